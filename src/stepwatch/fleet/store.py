"""The tables of a store, as Parquet files that can be read at any moment, even while two writers are at work.

    STORE/<table>/bucket=<00…0f>/part.parquet

All rows of a log are in the bucket given by the hash of its name, one file per table. To replace them, the file is
read and replaced by a new one in one step: by a rename on disks, by a put in buckets. So a reader sees each row once,
old or new, never half a file, and needs nothing but the files. Two writers take turns: by a lock on disks; in S3 by a
put that fails if the file is no longer the one that was read, and is then repeated.

Programs such as DuckDB and Polars open a file twice, for its footer and for its data, and may find another one the
second time. So previous versions keep their places in the new file for a while: Parquet finds data by the offsets in
its footer and does not mind other bytes in between.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from stepwatch.errors import InputError
from stepwatch.estimator.own_runs import learning_from
from stepwatch.estimator.workload import Workload
from stepwatch.fleet.logs import reason_of, retried, without_password
from stepwatch.fleet.schema import COUNT, FLAG, NUMBER, SCHEMA, TABLES, TEXT, TIME, Column
from stepwatch.gpus import Gpu
from stepwatch.messages import Message
from stepwatch.platforms import claim, replace_durably

BUCKETS = 16
"""Ten logs make few files, and a sixteenth of ten million logs still fits into memory. Part of the schema."""
PART = "part.parquet"
_UNLESS_ASKED = "iterations"
_TYPES = {
    TEXT: pa.string(),
    COUNT: pa.int64(),
    NUMBER: pa.float64(),
    FLAG: pa.bool_(),
    TIME: pa.timestamp("us", tz="UTC"),
}
_GRACE_S = 60.0
"""How long an old version is kept: other programs open a file for the second time when their query gets to it."""
_MOST_TIMES = 2
"""The largest file, in sizes of all versions: beyond it old ones are dropped, or each write would add to it."""
_MAGIC = b"PAR1"
SIMILAR = math.log(2)
"""Half to twice the parameters: the range in which a card is as efficient as with this model."""
_OTHER_WAS_QUICKER = ("PreconditionFailed", "pre-conditions")  # in the errors of S3

Row = Mapping[str, Any]


def bucket_of(log: str) -> str:
    return f"{hashlib.blake2b(log.encode('utf-8', 'surrogatepass'), digest_size=8).digest()[0] % BUCKETS:02x}"


def arrow_schema(table: str) -> pa.Schema:
    return pa.schema([(each.name, _TYPES[each.kind]) for each in TABLES[table]], metadata={"schema": SCHEMA})


class Store:
    """A directory or a bucket; `create` if it may be new."""

    def __init__(self, place: str, *, create: bool = False) -> None:
        self.place = place
        try:
            self._fs, self._root = url_to_fs(without_password(place))
            there = retried(lambda: self._files(""))
        except InputError:
            raise
        except Exception as error:
            facts = {"name": place, "reason": reason_of(error)}
            raise InputError(Message("“{name:word}” cannot be opened: {reason:word}", facts)) from error
        self._local = isinstance(self._fs, LocalFileSystem)
        if create:
            tables = {path.split("/")[0] for path in there}
            for table in TABLES:
                if table not in tables and table != _UNLESS_ASKED:
                    self._replace(table, "00", {}, (), {}, create=True)
        elif not any(path.startswith("runs/") for path in there):
            raise InputError(
                Message("“{name:word}” is no store of stepwatch", {"name": place}),
                Message("make one: {command:list}", {"command": "stepwatch collect LOGS --into STORE"}),
            )

    def _files(self, bucket: str) -> dict[str, str | None]:
        """The files of all tables, or of one bucket, below the store, each with its tag; one request for all."""
        self._fs.invalidate_cache()
        found = self._fs.find(self._root, detail=True)
        inside = {path.removeprefix(self._root).strip("/"): info for path, info in found.items()}
        ending = f"bucket={bucket}/{PART}" if bucket else PART
        return {path: info.get("ETag") for path, info in inside.items() if path.endswith(ending)}

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows of a table; each file is fetched whole, so that no writer can change it in between."""
        paths = [path for path in retried(lambda: self._files("")) if path.startswith(f"{name}/")]
        if not paths:
            raise InputError(Message("the store has no table “{name:word}”", {"name": name}))
        if self._fs.async_impl:  # many requests at a time
            files = [f"{self._root}/{path}" for path in paths]
            fetched = retried(lambda: self._fs.cat(files, recursive=False))
            found = [_as_written(name, fetched[file], columns) for file in files]
        else:
            found = [_as_written(name, data, columns) for path in paths if (data := self._read(path)) is not None]
        return pa.concat_tables(found)

    def fingerprints(self) -> dict[str, str]:
        """The fingerprints of all logs that were read, except those to be tried again."""
        sources = self.table("sources", ("log", "fingerprint"))
        pairs = zip(sources["log"].to_pylist(), sources["fingerprint"].to_pylist(), strict=True)
        return {log: fingerprint for log, fingerprint in pairs if fingerprint is not None}

    def replace(self, logs: Iterable[str], rows: Mapping[str, Sequence[Row]]) -> None:
        """Replaces all rows of these logs, which are all in one bucket."""
        logs = set(logs)
        (bucket,) = {bucket_of(log) for log in logs}
        with self._alone():
            there = retried(lambda: self._files(bucket))
            # `sources` comes last: a log whose rows were not all written is read again.
            for table in [name for name in TABLES if name != "sources"] + ["sources"]:
                self._replace(table, bucket, logs, rows.get(table, ()), there)

    def _replace(
        self,
        table: str,
        bucket: str,
        logs: Iterable[str],
        rows: Sequence[Row],
        there: Mapping[str, str | None],
        *,
        create: bool = False,
    ) -> None:
        path = f"{table}/bucket={bucket}/{PART}"
        while True:
            data = self._read(path) if path in there else None
            if (data is None and not rows and not create) or (create and data is not None):
                return
            columns = ([_plain(row.get(each.name), each) for row in rows] for each in TABLES[table])
            schema = arrow_schema(table)
            new = pa.table(
                [pa.array(values, each.type) for values, each in zip(columns, schema, strict=True)], schema=schema
            )
            if data is not None:
                old = _as_written(table, data)
                gone = pa.array(sorted(logs), pa.string())
                kept = old.filter(pa.compute.invert(pa.compute.is_in(old["log"], value_set=gone)))
                if kept.num_rows == old.num_rows and not rows:
                    return
                new = pa.concat_tables([kept, new])
            order = [(name, "ascending") for name in ("log", "source", "run_index", "part", "code", "rule", "iter")]
            new = new.sort_by([key for key in order if key[0] in new.column_names])
            if self._written(path, _file_after(data, new), there.get(path)):
                return
            there = retried(lambda: self._files(bucket))  # another writer was faster

    def _read(self, path: str) -> bytes | None:
        try:
            data: bytes = retried(lambda: self._fs.cat_file(f"{self._root}/{path}"))
        except FileNotFoundError:
            return None
        return data

    def _written(self, path: str, data: bytes, tag: str | None) -> bool:
        """Returns False if another writer was faster."""
        path = f"{self._root}/{path}"
        try:
            if not self._local:
                return retried(lambda: self._put(path, data, tag))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            new = f"{os.path.dirname(path)}/.{uuid.uuid4().hex}.new"
            try:
                Path(new).write_bytes(data)
                replace_durably(new, path)
            finally:
                Path(new).unlink(missing_ok=True)
        except Exception as error:
            raise self._not_written(error) from error
        return True

    def _not_written(self, error: Exception) -> InputError:
        facts = {"name": self.place, "reason": reason_of(error)}
        return InputError(Message("“{name:word}” cannot be written: {reason:word}", facts))

    def _put(self, path: str, data: bytes, tag: str | None) -> bool:
        """Writes to a bucket; to S3 only if the file there is still the one that was read."""
        protocols = (self._fs.protocol,) if isinstance(self._fs.protocol, str) else self._fs.protocol
        only_if: dict[str, str] = {}
        if "s3" in protocols:
            only_if = {"IfMatch": tag} if tag else {"IfNoneMatch": "*"}
        try:
            self._fs.pipe_file(path, data, **only_if)
        except OSError as error:  # also if an earlier attempt succeeded and only its answer was lost
            if isinstance(error, FileExistsError) or any(word in str(error) for word in _OTHER_WAS_QUICKER):
                return False
            if not isinstance(error, FileNotFoundError):
                raise
            self._fs.makedirs(os.path.dirname(path), exist_ok=True)  # if directories are real, as in sftp
            self._fs.pipe_file(path, data)
        return True

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Allows one writer at a time on a disk; the lock ends with its process. S3 has conditional writes instead."""
        if not self._local:
            yield
            return
        try:
            descriptor = os.open(f"{self._root}/.lock", os.O_CREAT | os.O_RDWR)
        except OSError as error:
            raise self._not_written(error) from error
        try:
            end = time.monotonic() + 60.0
            while not claim(descriptor):
                if time.monotonic() > end:
                    raise InputError(
                        Message("another process keeps the store “{name:word}” locked", {"name": self.place}),
                        Message("wait for it, or end it"),
                    )
                time.sleep(0.01)
            yield
        finally:
            os.close(descriptor)


def _file_after(old: bytes | None, table: pa.Table) -> bytes:
    """The new file of a table, including the versions that it replaces as long as readers may still look for them."""
    if old is None:
        return _encoded(table, len(_MAGIC))
    now = time.time()
    footer_of_old = pq.read_metadata(pa.BufferReader(old))
    # Where the data and footers of previous versions are, and until when they are kept.
    kept: list[tuple[int, int, float]] = [tuple(one) for one in json.loads(footer_of_old.metadata.get(b"kept", b"[]"))]
    for group in map(footer_of_old.row_group, range(footer_of_old.num_row_groups)):
        chunks = [group.column(index) for index in range(group.num_columns)]
        begins = [chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks]
        ends = [begin + chunk.total_compressed_size for begin, chunk in zip(begins, chunks, strict=True)]
        kept.append((min(begins), max(ends), now + _GRACE_S))
    kept.append((_footer_of(old), len(old), now + _GRACE_S))
    kept = [place for place in kept if place[2] > now]
    size = len(_encoded(table, len(_MAGIC)))
    most = _MOST_TIMES * (size + sum(end - begin for begin, end, _ in kept))
    kept = sorted(place for place in kept if place[1] <= most)
    first = len(_MAGIC)
    for begin, end, _ in kept:
        if first + size <= begin:
            break
        first = end
    data = _encoded(table.replace_schema_metadata({**table.schema.metadata, "kept": json.dumps(kept)}), first)
    footer = _footer_of(data)
    whole = bytearray(max([footer, *(end for _, end, _ in kept)]))
    whole[:footer] = data[:footer]
    for begin, end, _ in kept:
        whole[begin:end] = old[begin:end]
    return bytes(whole) + data[footer:]


def _footer_of(file: bytes) -> int:
    """The offset of the footer: its length and the magic bytes are at the end of the file."""
    return len(file) - int.from_bytes(file[-8:-4], "little") - 8


def _encoded(table: pa.Table, begin: int) -> bytes:
    """The table as a Parquet file whose data starts at offset `begin`."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, compression="zstd") as writer:
        sink.write(bytes(begin - len(_MAGIC)))  # the writer takes its offsets from the position of the sink
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _as_written(table: str, data: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """Reads a file of the store; columns that an older version lacks are null."""
    schema = arrow_schema(table)
    # Not `read_table`, and no Python file: both start threads, which can abort a Python that exits soon after.
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        found = file.read(columns=list(columns) if columns is not None else None, use_threads=False)
    wanted = pa.schema([schema.field(name) for name in columns or schema.names], metadata=schema.metadata)
    if found.schema.equals(wanted):  # a cast of every column takes as long as to read them
        return found.replace_schema_metadata(wanted.metadata)
    for name in wanted.names:
        if name not in found.column_names:
            found = found.append_column(name, pa.nulls(found.num_rows, schema.field(name).type))
    return found.select(wanted.names).cast(wanted)


def _plain(value: Any, column: Column) -> Any:
    if value is None or column.kind in (COUNT, FLAG):
        return value
    if column.kind == TEXT:
        return value.encode("utf-8", "replace").decode()
    if not math.isfinite(value):
        return None
    return round(value * 1_000_000) if column.kind == TIME else float(value)


# --- own runs as a prior of the estimator ------------------------------------------------------------------------


def learning_from_store(place: str) -> AbstractContextManager[None]:
    """Within this context, every estimate accounts for what the runs of a store took, compared with what was expected.

    Raises InputError if there is no store.
    """
    columns = ("gpu", "dtype", "world_size", "n_params", "n_layer", "n_embd", "vocab_size", "step_s_mid")
    found = Store(place).table("runs", (*columns, "expected_step_s_mid"))
    rows = found.filter(
        pa.compute.is_valid(pa.compute.field("expected_step_s_mid")) & pa.compute.is_valid(pa.compute.field("gpu"))
    ).to_pylist()
    seen = []
    for row in rows:
        layers, width = row["n_layer"] or 0, row["n_embd"] or 0
        size = row["n_params"] or 12 * layers * width**2 + (row["vocab_size"] or 0) * width
        if size and row["step_s_mid"] and row["expected_step_s_mid"]:
            ratio = row["step_s_mid"] / row["expected_step_s_mid"]
            seen.append((row["gpu"], row["dtype"], (row["world_size"] or 1) > 1, math.log(size), ratio))

    def ratios(workload: Workload, gpu: Gpu) -> Sequence[float]:
        size = math.log(workload.n_params)
        return [
            ratio
            for name, dtype, has_several_cards, its_size, ratio in seen
            if name == gpu.name
            and dtype in (None, workload.dtype)
            and has_several_cards == (workload.world_size > 1)
            and abs(its_size - size) <= SIMILAR
        ]

    return learning_from(ratios)
