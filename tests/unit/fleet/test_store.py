"""A store can be read at any moment, and no row is lost or doubled by two writers."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stepwatch.errors import InputError
from stepwatch.fleet import store as store_module
from stepwatch.fleet.schema import SCHEMA, TABLES
from stepwatch.fleet.store import Store, bucket_of

ONE_BUCKET = [name for name in (f"/logs/{number}" for number in range(2000)) if bucket_of(name) == bucket_of("/logs/0")]


def rows_for(name: str, wall_s: float) -> dict[str, list[dict[str, object]]]:
    return {
        "runs": [{"log": name, "source": name, "run_index": 0, "wall_s": wall_s}],
        "sources": [{"log": name, "fingerprint": str(wall_s)}],
    }


def in_store(place: Path, what: Sequence[str] = ("source", "wall_s"), table: str = "runs") -> list[tuple[object, ...]]:
    # Each file whole, as our own commands read it: no writer can change it in between.
    files = [pq.read_table(pa.BufferReader(path.read_bytes())) for path in (place / table).rglob("*.parquet")]
    return sorted(tuple(row.values()) for row in pa.concat_tables(files).select(what).to_pylist())


def test_rows_are_replaced_and_nothing_else_is(tmp_path: Path) -> None:
    store = Store(str(tmp_path), create=True)
    for name in ONE_BUCKET[:2]:
        store.replace([name], rows_for(name, 1.0))
    store.replace([ONE_BUCKET[0]], rows_for(ONE_BUCKET[0], 2.0))
    assert in_store(tmp_path) == sorted([(ONE_BUCKET[0], 2.0), (ONE_BUCKET[1], 1.0)])
    assert store.fingerprints() == {ONE_BUCKET[0]: "2.0", ONE_BUCKET[1]: "1.0"}


def test_every_table_can_be_asked_from_the_beginning(tmp_path: Path) -> None:
    Store(str(tmp_path), create=True)
    for table, columns in TABLES.items():
        if table != "iterations":
            assert in_store(tmp_path, [column.name for column in columns], table) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a process shows its threads here")
def test_reading_leaves_no_thread_behind(tmp_path: Path) -> None:
    """Threads of pyarrow can abort a Python that leaves: an answer was followed by exit code 134."""
    Store(str(tmp_path), create=True).replace(["/logs/0"], rows_for("/logs/0", 1.0))
    count = "len(os.listdir('/proc/self/task'))"
    read = f"store.Store({str(tmp_path)!r}).table('runs')"
    words = f"import os; from stepwatch.fleet import store; before = {count}; {read}; print({count} - before)"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"


def test_the_files_name_their_schema(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    Store(str(tmp_path), create=True)
    (file,) = (tmp_path / "runs").rglob("*.parquet")
    assert pq.read_schema(file).metadata[b"schema"].decode() == SCHEMA


def test_two_writers_lose_no_row_and_a_reader_never_sees_one_twice(tmp_path: Path) -> None:
    names = ONE_BUCKET[:6]
    Store(str(tmp_path), create=True)

    def write(own: list[str]) -> None:
        store = Store(str(tmp_path))
        for wall_s in (1.0, 2.0):
            for name in own:
                store.replace([name], rows_for(name, wall_s))

    writers = [threading.Thread(target=write, args=(names[part::2],)) for part in (0, 1)]
    for writer in writers:
        writer.start()
    seen = 0
    while any(writer.is_alive() for writer in writers):
        sources = [source for source, _ in in_store(tmp_path)]
        assert len(sources) == len(set(sources))
        assert len(sources) >= seen
        seen = len(sources)
    assert in_store(tmp_path) == sorted((name, 2.0) for name in names)


def test_programs_that_open_a_file_twice_see_whole_rows_while_it_is_replaced(tmp_path: Path) -> None:
    store, names = Store(str(tmp_path), create=True), ONE_BUCKET[:20]
    files, seen = f"{tmp_path}/runs/**/*.parquet", 0

    def write() -> None:
        for turn in map(float, range(15)):
            rows = [{"log": name, "source": name, "run_index": 0, "wall_s": turn, "mfu": turn} for name in names]
            store.replace(names, {"runs": rows[: 1 + int(turn)]})

    writer = threading.Thread(target=write)
    with duckdb.connect() as session:
        writer.start()
        while writer.is_alive():
            by_duckdb = session.execute("select source, wall_s, mfu from read_parquet(?)", [files]).fetchall()
            by_polars = (
                pl.scan_parquet(files, hive_partitioning=False).select("source", "wall_s", "mfu").collect().rows()
            )
            for rows in (by_duckdb, by_polars):
                turns = {turn for _, *both in rows for turn in both}
                assert len(turns) <= 1, "rows of one version"
                assert len({source for source, *_ in rows}) == len(rows) == sum(1 + turn for turn in turns)
            seen += 1
    assert len(in_store(tmp_path)) == 15
    assert seen > 5


def test_versions_that_nobody_can_be_reading_any_more_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(tmp_path), create=True)
    logs = ONE_BUCKET[:30]
    rows = [{"log": name, "source": name, "run_index": 0, "verdict_text": name * 20} for name in logs]

    def written() -> int:
        store.replace(logs, {"runs": rows})
        (file,) = (tmp_path / "runs" / f"bucket={bucket_of(logs[0])}").glob("*.parquet")
        return file.stat().st_size

    once = written()
    assert written() > 1.5 * once
    for now in range(10):
        monkeypatch.setattr(store_module.time, "time", lambda now=now: 4e9 + 1000 * now)
        assert written() < 5 * once
    assert len(in_store(tmp_path)) == len(logs)


def test_what_is_no_store_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no store"):
        Store(str(tmp_path / "nothing"))
