"""trackio's database: runs, their rows and settings, with databases that are written here."""

from __future__ import annotations

import gzip
import json
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from stepwatch.errors import NoIterations, UnreadableInput
from stepwatch.readers import read
from stepwatch.sources import contents, from_bytes, from_file

BEGIN_S = 1_750_000_000.0


def database(runs: dict[str, float], *, wal: bool = False, config: dict[str, object] | None = None) -> bytes:
    """Runs by name with the time of a step; one after the other, 20 steps, a row every second one."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp TEXT, run_name TEXT, step INTEGER, metrics TEXT)"
        )
        connection.execute("CREATE TABLE configs (id INTEGER PRIMARY KEY, run_name TEXT, config TEXT)")
        wall = BEGIN_S
        for name, step_s in runs.items():
            connection.execute("INSERT INTO configs (run_name, config) VALUES (?, ?)", (name, json.dumps(config or {})))
            for step in range(2, 42, 2):
                wall += 2 * step_s
                stamp = datetime.fromtimestamp(wall, UTC).isoformat()
                row = (stamp, name, step, json.dumps({"train/loss": 2.0, "lr": 1e-4}))
                connection.execute("INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?)", row)
        connection.commit()
        data = connection.serialize()
    return data[:18] + b"\2\2" + data[20:] if wal else data


@pytest.mark.parametrize("wal", [False, True])
def test_each_run_has_its_rows_and_settings(wal: bool) -> None:
    first, second = read(from_bytes(database({"a": 1.5, "b": 3.0}, wal=wal, config={"max_steps": 60}), "project.db"))
    for run, step_s in ((first, 1.5), (second, 3.0)):
        assert run.format == "trackio"
        assert run.iterations.number[-19:].tolist() == list(range(4, 42, 2))
        assert run.iterations.time_s[-19:].tolist() == pytest.approx([step_s] * 19)
        assert run.settings.count("max_iters") == 60


def test_one_that_is_long_or_packed_is_read_from_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "WHOLE_BYTES", 1 << 12)
    data = database({"a": 1.5, "b": 3.0}, wal=True)
    (tmp_path / "plain.db").write_bytes(data)
    (tmp_path / "packed.db.gz").write_bytes(gzip.compress(data))
    for name in ("plain.db", "packed.db.gz"):
        source = from_file(tmp_path / name)
        assert not isinstance(source.content, bytes)
        assert [len(run.iterations) for run in read(source)] == [19, 19]
    assert (tmp_path / "plain.db").read_bytes() == data


def test_a_database_of_something_else_or_cut_is_refused() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE people (name TEXT)")
        other = connection.serialize()
    for data in (other, database({"a": 1.5})[:5000], other[:50]):
        with pytest.raises(NoIterations):
            read(from_bytes(data, "project.db"))


def test_a_python_without_sqlite_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    data = database({"a": 1.5})
    monkeypatch.setitem(sys.modules, "sqlite3", None)  # as in a browser
    with pytest.raises(UnreadableInput, match="SQLite"):
        read(from_bytes(data, "project.db"))
