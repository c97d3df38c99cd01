"""Many logs: found anywhere, read by many processes, kept in a store of Parquet files, asked through DuckDB.

    logs      where logs lie: directories, globs, buckets, archives
    identity  which machine, versions and project a log is from
    rows      what the store keeps of a log
    reader    a process that reads logs, and may be killed
    store     the tables, written so that they can be read at any moment; own runs as a prior of the estimator
    collect   from logs to a store
    jobs      starts of one training, chained
    likes     runs that are slow against their like, and since when
    questions what is asked of a store

A leaf: only the command line and the page import it, when it is asked for (extra `fleet`).
"""
