"""trackio's database of a project: the history of its runs, as JSON in a table of SQLite."""

from __future__ import annotations

import json
import math
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepwatch.errors import NoIterations, UnreadableInput
from stepwatch.messages import Message
from stepwatch.readers.formats import Reader
from stepwatch.readers.formats.history import History, add_history, keep_rows
from stepwatch.readers.formats.recorder_run import with_inside
from stepwatch.readers.records import Records
from stepwatch.run import Fact, Timing
from stepwatch.sources import kind_of

if TYPE_CHECKING:
    import sqlite3


def sniff(head: bytes) -> float:
    return math.inf if kind_of(head) == "sqlite" else 0.0  # nothing else begins like one


def parse(text: bytes, first_line: int, records: Records) -> None:
    """Copies the database into a file, because SQLite only opens files, and it may be compressed or in use."""
    with _copy(records).open("ab") as copy:
        copy.write(text)


def _copy(records: Records) -> Path:
    if not records.kept:
        records.kept.append(tempfile.TemporaryDirectory())
    path = Path(records.kept[0].name, "project.db")
    path.touch()
    return path


def finish(first_line: int, records: Records) -> None:
    copy = _copy(records)
    with records.kept.pop():
        try:
            import sqlite3  # missing in the Python of a browser
        except ImportError as error:
            raise UnreadableInput(Message("the log is a database of SQLite, which this Python cannot read")) from error
        with copy.open("r+b") as file:
            file.seek(18)
            file.write(b"\x01\x01")  # sets the older mode: in WAL mode it could not be opened without its other files
        try:
            histories, configs = _runs(copy)
        except (sqlite3.Error, UnicodeError, OverflowError) as error:
            raise NoIterations(
                Message("this database contains no readable metrics of trackio"),
                Message("give the file of the project, from trackio's directory: it ends in .db"),
            ) from error
    line = 0
    for number, (name, history) in enumerate(histories.items()):
        records.events.append(Fact(line, "run", number, header=True))
        add_history(history, configs.get(name, {}), None, records, line)
        line += history.length + 2  # no more moments than rows, plus the start


def _runs(path: Path) -> tuple[dict[str, History], dict[str, dict[str, object]]]:
    """Rows and settings by run, in the order in which the runs began."""
    import sqlite3

    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        kept: dict[str, Records] = defaultdict(Records)
        lengths: dict[str, int] = defaultdict(int)
        for rows in _rows(database, "metrics", "timestamp", "step", text="metrics"):
            histories: dict[str, list[dict[str, object]]] = defaultdict(list)
            for (run_id, run_name, _, timestamp, step), row in rows:
                try:
                    row["_timestamp"] = datetime.fromisoformat(timestamp).timestamp()
                except (ValueError, OverflowError, TypeError):
                    continue  # a row without its time says nothing
                row["_step"] = step
                histories[str(run_id or run_name)].append(row)
            for name, history in histories.items():
                keep_rows(history, lengths[name], kept[name])
                kept[name].narrow()
                lengths[name] += len(history)
        configs = _rows(database, "configs", text="config") if "configs" in tables else ()
        return (
            {name: History.kept(lengths[name], records) for name, records in kept.items()},
            {str(run_id or run_name): config for rows in configs for (run_id, run_name, _), config in rows},
        )


def _rows(
    database: sqlite3.Connection, table: str, *columns: str, text: str
) -> Iterator[Iterable[tuple[tuple[Any, ...], dict[str, object]]]]:
    """For each row, its run, a text and further columns (None if missing), and the object in the text.

    In pieces: all rows as objects would take ten times the size of the file.
    """
    there = {name for _, name, *_ in database.execute(f"PRAGMA table_info({table})")}
    wanted = ", ".join(name if name in there else "NULL" for name in ("run_id", "run_name", text, *columns))
    found = database.execute(f"SELECT {wanted} FROM {table} ORDER BY rowid")
    while rows := found.fetchmany(1 << 14):
        texts = [row[2].decode("utf-8", "replace") if isinstance(row[2], bytes) else str(row[2]) for row in rows]
        yield zip(rows, _objects(texts), strict=True)


def _objects(texts: list[str]) -> list[dict[str, object]]:
    """The objects in these texts, empty if there is none; parsing all at once takes half of the time."""
    try:
        found = json.loads(f"[{','.join(texts)}]")
    except (ValueError, RecursionError):
        found = None
    if found is not None and len(found) == len(texts):
        return [each if isinstance(each, dict) else {} for each in found]
    half = len(texts) // 2
    return _objects(texts[:half]) + _objects(texts[half:]) if half else [{}]


READER = Reader(
    name="trackio", timing=Timing.SPANS_LOG_INTERVAL,
    sniff=sniff, parse=parse, finish=finish, complete=with_inside, strongest=math.inf,
)  # fmt: skip
