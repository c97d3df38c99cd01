"""The page on this machine: paste a log, drop a file, or watch a log grow; the same is available as a small JSON API.

The server only moves bytes. Every log is read and explained in a worker process, which is killed if it takes too
long.
"""
