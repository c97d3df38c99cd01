"""Many logs: found anywhere, read by many processes, kept in a store of Parquet files, queried through DuckDB.

    logs      finds logs: directories, globs, buckets, archives
    identity  which machine, versions and project a log is from
    rows      what the store keeps of a log
    reader    a process that reads logs, and may be killed
    store     the tables, written so that they can be read at any moment; own runs as a prior of the estimator
    collect   fills a store from logs
    jobs      chains of starts of the same training
    likes     runs that are slower than comparable runs, and since when
    questions the queries on a store

A leaf: only the command line and the page import it, when it is needed (extra `fleet`).
"""
