"""trackio's database of a project: the history of its runs, as JSON in a table of SQLite."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

from stepwatch.errors import NoIterations, UnreadableInput
from stepwatch.messages import Message
from stepwatch.readers.formats.recorder_run import with_inside
from stepwatch.readers.formats.wandb_file import tell
from stepwatch.readers.reader import NOTHING, Reader
from stepwatch.readers.records import Records
from stepwatch.run import Fact, Timing
from stepwatch.sources import is_sqlite

if TYPE_CHECKING:
    import sqlite3

_History = list[dict[str, object]]


def sniff(head: bytes) -> float:
    return 1e6 if is_sqlite(head) else 0.0  # nothing else begins like one


def parse(text: bytes, first_line: int, records: Records) -> None:
    records.held += text


def finish(first_line: int, records: Records) -> None:
    data, records.held = records.held, b""
    try:
        import sqlite3  # the Python of a browser has none
    except ImportError as error:
        raise UnreadableInput(Message("the log is a database of SQLite, which this Python cannot read")) from error
    try:
        histories, configs = _runs(data)
    except (sqlite3.Error, UnicodeError, OverflowError) as error:
        raise NoIterations(
            Message("this database holds no metrics of trackio that can be read"),
            Message("give the file of the project, from trackio's directory: it ends in .db"),
        ) from error
    line = 0
    for number, (name, history) in enumerate(histories.items()):
        records.events.append(Fact(line, "run", number, header=True))
        tell(history, configs.get(name, {}), None, records, line)
        line += len(history) + 2  # no more moments than rows, and the start


def _runs(data: bytes) -> tuple[dict[str, _History], dict[str, dict[str, object]]]:
    """Rows and settings by run, in the order in which the runs began."""
    import sqlite3

    with sqlite3.connect(":memory:") as database:
        # A database in WAL mode cannot be opened without its files: as if it were in the older mode.
        database.deserialize(data[:18] + b"\x01\x01" + data[20:])
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        histories: dict[str, _History] = {}
        for row in _rows(database, "metrics"):
            values, stamp = _object(row.get("metrics")), _seconds(row.get("timestamp"))
            if stamp is not None:
                history = histories.setdefault(_run_of(row), [])
                history.append(values | {"_timestamp": stamp, "_step": row.get("step")})
        configs = {}
        if "configs" in tables:
            configs = {_run_of(row): _object(row.get("config")) for row in _rows(database, "configs")}
    return histories, configs


def _rows(database: sqlite3.Connection, table: str) -> list[dict[str, object]]:
    found = database.execute(f"SELECT * FROM {table} ORDER BY rowid")
    names = [column[0] for column in found.description]
    return [dict(zip(names, row, strict=True)) for row in found]


def _run_of(row: dict[str, object]) -> str:
    return str(row.get("run_id") or row.get("run_name"))


def _object(text: object) -> dict[str, object]:
    try:
        found = json.loads(text) if isinstance(text, (str, bytes)) else None
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def _seconds(text: object) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else None
    except (ValueError, OverflowError):
        return None


READER = Reader(
    name="trackio", timing=Timing.SPANS_LOG_INTERVAL, holds=NOTHING,
    about=Message(
        "From the rows in the database of the project: the mean of the steps between two moments at which the "
        "training loss was logged, without the evaluations between them."
    ),
    example="(binary: my-project.db)",
    sniff=sniff, parse=parse, finish=finish, complete=with_inside,
)  # fmt: skip
