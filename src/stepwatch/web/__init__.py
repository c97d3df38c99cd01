"""The page on this machine: paste a log, drop a file, watch one grow; and the same as a small JSON API.

The server only moves bytes. Every log is read and explained in a worker process, which is killed when it takes too
long.
"""
