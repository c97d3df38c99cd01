"""Fills a store from logs: new and changed logs are read, by processes on this machine or by a Dask cluster."""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.pool import ThreadPool
from typing import NamedTuple

from stepwatch.errors import InputError, StepwatchError, TooLarge
from stepwatch.fleet.copies import Unreachable, fetched_locally
from stepwatch.fleet.logs import FileGroup, files_at, find_logs, logs_among
from stepwatch.fleet.reader import ReaderProcess
from stepwatch.fleet.rows import LogTask, Rows, failed
from stepwatch.fleet.store import Store, bucket_of
from stepwatch.messages import Message
from stepwatch.platforms import allowed_processors

MOST_PENDING = 5_000
"""How many logs' rows may wait for their bucket to be complete: a bucket of millions is written in pieces."""
BATCH = 16
"""Logs that a Dask worker reads at a time: few enough to lose, enough that its scheduler does not matter."""


@dataclass(frozen=True, kw_only=True)
class CollectRequest:
    """The names of the fields are those of the options."""

    places: tuple[str, ...]
    into: str
    scheduler: str | None = None
    workers: int | None = None
    gpu: str | None = None
    iterations: bool = False
    forecasts: bool = False
    time_limit: float = 60.0
    """Seconds for one log."""
    memory_limit: int = 800_000_000
    """Bytes for the process that reads it."""
    max_size: int = 2 * 1024**3


class CollectProgress(NamedTuple):
    done: int
    total: int
    elapsed_s: float

    @property
    def rate(self) -> float:
        return self.done / self.elapsed_s if self.elapsed_s > 0 else 0.0


class Collected(NamedTuple):
    """What a collection did."""

    found: int
    unchanged: int
    read: int
    runs: int
    not_logs: int
    failures: dict[str, int]
    """By cause."""
    elapsed_s: float


def collect(request: CollectRequest, report: Callable[[CollectProgress], None] = lambda progress: None) -> Collected:
    """Raises InputError if a place or the store cannot be reached."""
    began_s = time.monotonic()
    logs = find_logs(request.places)
    store = Store(request.into, create=True)
    known = store.fingerprints()
    todo = sorted(
        (log for log in logs if known.get(log.name) != log.fingerprint), key=lambda log: (bucket_of(log.name), log.name)
    )
    left = Counter(bucket_of(log.name) for log in todo)
    pending: dict[str, tuple[list[str], Rows]] = {}
    outcomes: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    runs = 0
    read = _by_cluster if request.scheduler is not None else _by_processes
    for done, (log, rows) in enumerate(read(todo, request) if todo else (), start=1):
        (source,) = rows["sources"]
        outcomes[source["outcome"]] += 1
        runs += len(rows.get("runs", ()))
        causes.update(row["cause"] for row in rows.get("failures", ()))
        again = any(row["cause"] == "unreachable" for row in rows.get("failures", ()))
        source |= {"fingerprint": None if again else log.fingerprint, "files": len(log.files), "size_bytes": log.size}
        bucket = bucket_of(log.name)
        names, tables = pending.setdefault(bucket, ([], {}))
        names.append(log.name)
        for table, found in rows.items():
            tables.setdefault(table, []).extend(found)
        left[bucket] -= 1
        if not left[bucket] or len(names) >= MOST_PENDING:
            store.replace(*pending.pop(bucket))
        report(CollectProgress(done, len(todo), time.monotonic() - began_s))
    return Collected(
        found=len(logs),
        unchanged=len(logs) - len(todo),
        read=len(todo),
        runs=runs,
        not_logs=outcomes["no log"],
        failures=dict(causes),
        elapsed_s=time.monotonic() - began_s,
    )


# --- reading one log --------------------------------------------------------------------------------------------


def read_log(log: FileGroup, request: CollectRequest, reader: ReaderProcess) -> Rows:
    """The rows of a log, wherever its files are; never raises because of the log."""
    try:
        with fetched_locally(log, limit=request.max_size) as paths:
            places = tuple(file.path for file in log.files) if log.kind == "files" else (log.name,)
            wanted = request.gpu, request.iterations, request.forecasts, request.max_size
            asked = LogTask(log.name, paths, places, *wanted)
            return _of_archive(asked, reader) if log.kind == "archive" else reader.rows_of(asked)
    except Unreachable as error:
        text = Message("it could not be fetched: {reason:word}", {"reason": str(error)})
        return failed(log.name, "unreachable", text)
    except StepwatchError as error:
        return failed(log.name, "too large" if isinstance(error, TooLarge) else "unreadable", error.what)


def _of_archive(archive: LogTask, reader: ReaderProcess) -> Rows:
    """Reads each log in the archive; all their rows belong to the archive."""
    (place,) = archive.paths
    whole: Rows = {"sources": [{"log": archive.name, "outcome": "no log", "runs": 0, "processor_s": 0.0}]}
    (source,) = whole["sources"]
    source["collected_at"] = time.time()
    for inner in logs_among(files_at(place)):
        if inner.kind == "archive":
            continue
        name = archive.name + inner.name.removeprefix(place).replace(os.sep, "/")
        paths = tuple(file.path for file in inner.files) if inner.kind == "files" else (inner.name,)
        places = tuple(archive.name + path.removeprefix(place).replace(os.sep, "/") for path in paths)
        rows = reader.rows_of(archive._replace(name=name, paths=paths, places=places))
        (read,) = rows.pop("sources")
        source["runs"] += read["runs"]
        source["processor_s"] += read.get("processor_s") or 0.0
        if read["outcome"] == "runs" or source["outcome"] != "runs":
            source["outcome"] = read["outcome"]
        for table, found in rows.items():
            named = [{**row, "log": archive.name} for row in found]
            if table == "failures":
                named = [{**row, "text": f"{name}: {row['text']}"} for row in named]
            whole.setdefault(table, []).extend(named)
    return whole


# --- by processes of this machine -------------------------------------------------------------------------------


def _by_processes(logs: Sequence[FileGroup], request: CollectRequest) -> Iterator[tuple[FileGroup, Rows]]:
    """Reads with one process per processor; each is fed and watched by a thread."""
    count = min(request.workers or allowed_processors(), len(logs))
    idle: queue.SimpleQueue[ReaderProcess] = queue.SimpleQueue()
    for _ in range(count):
        idle.put(ReaderProcess(time_s=request.time_limit, memory_bytes=request.memory_limit))

    def read(log: FileGroup) -> tuple[FileGroup, Rows]:
        reader = idle.get()
        try:
            return log, read_log(log, request, reader)
        finally:
            idle.put(reader)

    try:
        with ThreadPool(count) as threads:  # daemons: an interrupted collection does not wait for them
            yield from threads.imap_unordered(read, logs)
    finally:
        while not idle.empty():
            idle.get().close()


# --- by a cluster -----------------------------------------------------------------------------------------------


_own = threading.local()


def read_batch(logs: Sequence[FileGroup], request: CollectRequest) -> list[Rows]:
    """Runs in a Dask worker; each of its threads keeps a process that reads."""
    limits = request.time_limit, request.memory_limit
    if getattr(_own, "limits", None) != limits:
        _own.reader, _own.limits = ReaderProcess(time_s=limits[0], memory_bytes=limits[1]), limits
    return [read_log(log, request, _own.reader) for log in logs]


def _by_cluster(logs: Sequence[FileGroup], request: CollectRequest) -> Iterator[tuple[FileGroup, Rows]]:
    """A dead worker costs nothing: another one reads its batch, or each log by itself if that fails too."""
    from distributed import Client, as_completed

    address = str(request.scheduler)
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        if address.startswith("tcp://"):  # Dask would try for a while
            socket.create_connection((host, int(port)), timeout=10).close()
        client = Client(address, timeout="20s", set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(
            Message("the scheduler “{name:word}” cannot be reached", {"name": address}),
            Message("start one with: dask scheduler"),
        ) from error
    with client:
        batches = [logs[begin : begin + BATCH] for begin in range(0, len(logs), BATCH)]
        futures = {
            client.submit(read_batch, batch, request, pure=False, priority=-number, retries=2): batch
            for number, batch in enumerate(batches)
        }
        done = as_completed(futures, loop=client.loop)
        for future in done:
            batch = futures.pop(future)
            if future.status == "finished":
                yield from zip(batch, future.result(), strict=True)
            elif len(batch) > 1:
                for log in batch:
                    alone = client.submit(read_batch, [log], request, pure=False, retries=2)
                    futures[alone] = [log]
                    done.add(alone)
            else:
                text = Message("the worker that reads it has died")
                yield batch[0], failed(batch[0].name, "died", text)
            future.release()
