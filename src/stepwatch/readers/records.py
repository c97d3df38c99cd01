"""What a reader finds in a text before it is divided into runs: iterations as columns, and events in order."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise, repeat
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from stepwatch import bounds
from stepwatch.platforms import release_pages, spill_to_disk
from stepwatch.run import (
    COLUMNS,
    Checkpoint,
    Evaluation,
    Event,
    EventColumns,
    Fact,
    Fault,
    Iterations,
    Unread,
    column_of,
    joined,
    rows_from,
)
from stepwatch.settings import KINDS, as_kind
from stepwatch.units import DAY_S

MANY_ROWS = 1 << 22
"""From this many rows, columns are narrowed and finally moved to a file: a log of about 200 MB."""
PIECE = 1 << 18
"""Rows processed at a time when there may be millions."""
MANY_EVENTS = 1 << 16
"""Above this count, evaluations and checkpoints are kept as columns."""
_RECENT_EVENTS = 8
"""The last events stay objects: a line may add to an event a few lines above."""
_FOUR_BYTES = 1 << 30  # values kept in four bytes are smaller, so that the sum of two fits too
_NARROW: dict[str, Any] = {"number": np.int32, "line": np.int32, "loss": np.float32, "reported_mfu": np.float32}
MOST_UNREAD_KEPT = 200
LONGEST_LINE_KEPT = 300
SHOWN_LETTERS = 80  # of a line that is quoted in a sentence
LINE_OF: Callable[[Event], int] = itemgetter(0)  # there may be millions of events
LARGEST_KEPT = bounds.ITERATION.high
LONGEST_TIME_S = bounds.RUN_S.high
DATED_S = 946684800.0 + 2 * DAY_S  # clocks without a date are placed in the first days of 2000
INSIDE, DEVICES, WORK = "inside", "device", "work"
ROW_TABLES = (INSIDE, DEVICES, WORK)
"""Tables that accompany the rows. Columns: line, data and wait; line, step and device time; line and TFLOP."""

STEPS_CHANGE = "announced"
"""A fact: a line that announces that the steps are different from here on."""

ESTIMATED_END = "eta_end"
"""A fact: the last iteration, estimated from the printed remaining time; a configured value takes precedence."""

OTHER_PROGRAM = "over"
"""A fact: the output after this line is from another program, if no iteration follows."""

_NOT_SET = (0, -1, "")  # printed by trainers for a setting without a value
_COLUMN_BOUNDS = {
    "loss": bounds.LOSS,
    "reported_mfu": bounds.MFU,
    "reported_tokens_per_s": bounds.TOKENS_PER_S,
    "stamp_s": bounds.CLOCK_S,
}


@dataclass(slots=True)
class Records:
    """Filled line by line or block by block, with the same result."""

    columns: dict[str, list[np.ndarray]] = field(default_factory=lambda: {name: [] for name in COLUMNS})
    events: list[Event] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    unread_lines: list[int] = field(default_factory=list)
    outside: list[Unread] = field(default_factory=list)
    """Values that are impossible in any training, kept instead of the text of their lines."""
    outside_lines: list[int] = field(default_factory=list)
    unplaced: list[Evaluation | Checkpoint] = field(default_factory=list)
    """Events whose line does not show the iteration. They get that of a row before or after, once all are known."""
    held: bytes = b""
    """Lines at the end of a block that a reader cannot interpret before it has seen the next ones."""
    kept: list[Any] = field(default_factory=list)
    """What a reader collects until the end, if a single line is not enough."""
    tables: dict[str, list[tuple[np.ndarray, ...]]] = field(default_factory=dict)
    """Tables specific to a reader, line number first, turned into rows at the end: in parts, each of narrow columns."""
    table_rows: dict[str, list[tuple[float, ...]]] = field(default_factory=dict)
    many: dict[type[Evaluation | Checkpoint], list[EventColumns[Any]]] = field(default_factory=dict)
    """Evaluations and checkpoints of a long log, no longer among the events."""
    many_unplaced: dict[type[Evaluation | Checkpoint], list[EventColumns[Any]]] = field(default_factory=dict)
    """The same for unplaced events."""

    def copy(self) -> Records:
        """A copy that can be finished on its own: contents are never changed in place."""
        values: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        for name, value in values.items():
            if isinstance(value, list):
                values[name] = list(value)
            elif isinstance(value, dict):
                values[name] = {key: list(parts) for key, parts in value.items()}
        return Records(**values)

    def add_rows(self, **columns: np.ndarray) -> None:
        unknown = np.broadcast_to(np.nan, len(columns["line"]))  # takes no memory
        for name in COLUMNS:
            column = columns.get(name, unknown)
            narrow = column.dtype.kind == "i" and name not in ("number", "line")  # a table of whole numbers
            self.columns[name].append(column.astype(np.float64) if narrow else column)

    def add_row(self, **values: float) -> None:
        self.add_rows(**{name: np.array([value]) for name, value in values.items()})

    def add_events(self, kind: Any, lines: np.ndarray, **columns: np.ndarray) -> None:
        """Adds evaluations or checkpoints, one per line, from columns of their fields; nan is unknown."""
        if len(lines) > MANY_EVENTS:
            unknown = np.broadcast_to(np.nan, len(lines))
            whole = (lines, *(columns.get(name, unknown) for name in kind._fields[1:]))
            narrow = (c if c.dtype == np.int32 else c.astype(np.float64, copy=False) for c in whole)
            self.many.setdefault(kind, []).append(EventColumns(kind, tuple(narrow)))
            return
        told = (_known(columns[name]) if name in columns else repeat(None) for name in kind._fields[1:])
        # Same as kind(line, …), which takes three times as long; there may be as many events as iterations.
        self.events += map(tuple.__new__, repeat(kind), zip(lines.tolist(), *told, strict=False))

    def keep(self, name: str, lines: np.ndarray, *columns: np.ndarray | float) -> None:
        part = (np.broadcast_to(np.asarray(column, np.float64), len(lines)) for column in (lines, *columns))
        self.tables.setdefault(name, []).append(tuple(map(_exactly, part)))

    def keep_row(self, name: str, *values: float) -> None:
        self.table_rows.setdefault(name, []).append(values)

    def table(self, name: str, width: int) -> np.ndarray:
        """All rows kept under this name, by line."""
        return _stacked(self.table_columns(name, width))

    def take_table(self, name: str, width: int) -> np.ndarray:
        """Like table(), but the rows are removed from the records."""
        return _stacked(self.take_columns(name, width))

    def take_columns(self, name: str, width: int) -> list[np.ndarray]:
        """Like take_table(), but as columns; whole numbers stay in four bytes, which saves memory for many rows."""
        columns = self.table_columns(name, width)
        del self.tables[name]
        return columns

    def table_columns(self, name: str, width: int) -> list[np.ndarray]:
        """Like table(), but as the stored columns: callers must not write to them."""
        single = self.table_rows.pop(name, [])
        parts = self.tables.pop(name, [])
        if single or not parts:
            parts.append(tuple(map(_exactly, np.array(single, np.float64).reshape(-1, width).T)))
        columns = list(_joined_columns(parts))
        line = columns[0]
        order = None
        if len(line) and not bool((line[1:] >= line[:-1]).all()):
            order = np.argsort(line, kind="stable")
        for place, column in enumerate(columns):  # each old column is freed as the next one is sorted
            columns[place] = _aside(column if order is None or column.strides == (0,) else column[order])
        self.tables[name] = [tuple(columns)]
        return columns

    def keep_row_tables(self, lines: np.ndarray, numbers: np.ndarray) -> None:
        """Keeps only the rows of the accompanying tables that belong to these iterations."""
        for name in self._row_tables():
            columns = self.table_columns(name, self._width(name))
            kept = np.isin(columns[1], numbers) if name == DEVICES else np.isin(columns[0], lines)
            self.tables[name] = [tuple(column[kept] for column in columns)]

    def split_row_tables(self, line: float) -> tuple[dict[str, Any], dict[str, Any]]:
        """The accompanying tables, split in two at a line."""
        before, after = {}, {}
        for name in self._row_tables():
            columns = self.table_columns(name, self._width(name))
            row = int(np.searchsorted(columns[0], line))
            before[name] = [tuple(column[:row].copy() for column in columns)]
            after[name] = [tuple(column[row:].copy() for column in columns)]
        return before, after

    def _row_tables(self) -> list[str]:
        return [name for name in ROW_TABLES if name in self.tables or name in self.table_rows]

    def _width(self, name: str) -> int:
        rows = self.table_rows.get(name)
        return len(rows[0]) if rows else len(self.tables[name][0])

    def add_unread(self, line: int, text: str) -> None:
        self.unread_lines.append(line)
        if len(self.unread) < MOST_UNREAD_KEPT:
            self.unread.append(Unread(line=line, text=text[:LONGEST_LINE_KEPT]))

    def iterations(self) -> Iterations:
        """All rows in the order of their lines."""
        for parts in self.columns.values():
            _grow_first(parts)
        for name in ("number", "line"):
            if self.columns[name][0].dtype.kind != "i":
                self.columns[name][0] = whole_numbers(self.columns[name][0])
        line = self.columns["line"][0]
        if len(rows_where(np.less, line[1:], line[:-1])):
            order = np.argsort(line, kind="stable")
            del line
            for parts in self.columns.values():  # each old column is freed as it is sorted
                if parts[0].strides != (0,):
                    parts[0] = parts[0][order]
        if len(self.columns["line"][0]) > MANY_ROWS:
            for parts in self.columns.values():
                parts[0] = _aside(parts[0])
        return Iterations(**{name: parts[0] for name, parts in self.columns.items()})

    def narrow(self) -> None:
        """Stores the columns of many rows, except times, in four bytes: seven digits of a loss or an MFU.

        Turns many events into columns, and joins small arrays.
        """
        for name, rows in self.table_rows.items():
            if len(rows) > MANY_EVENTS:
                self.keep(name, *np.array(rows, np.float64).T)
                rows.clear()
        for table in self.tables.values():
            if len(table) > 1:
                table[:] = [_joined_columns(table)]
        if len(self.events) > MANY_EVENTS:
            self.events = _few(self.events, self.many)
        if len(self.unplaced) > MANY_EVENTS:
            self.unplaced = _few(self.unplaced, self.many_unplaced)
        many = sum(map(len, self.columns["line"])) > MANY_ROWS
        for name, parts in self.columns.items():
            narrow = _NARROW.get(name) if many else None
            for place, part in enumerate(parts if narrow is not None else ()):
                if part.dtype == narrow or part.strides == (0,):
                    continue
                if narrow is not np.int32 or bool((np.abs(part) < _FOUR_BYTES).all()):
                    parts[place] = part.astype(narrow)
            if len(parts) > 1:
                _grow_first(parts)

    def replace_rows(self, rows: Iterations) -> None:
        """Replaces all rows that were added, after an average was resolved into steps or repeats were dropped."""
        self.columns = {name: [getattr(rows, name)] for name in COLUMNS}

    def place(self, *, after: bool, offset: int = 0) -> None:
        """Gives each unplaced event the number of the next row, or of the previous one, plus an offset."""
        if not (self.unplaced or self.many_unplaced):
            return
        rows = self.iterations()
        interval = max(int(rows.number[-1] - rows.number[-2]), 1) if len(rows) > 1 else 1

        def numbers_at(lines: Any) -> np.ndarray:
            places = rows_from(rows.line, lines) - (0 if after else 1)
            numbers = rows.number[np.clip(places, 0, len(rows) - 1)]
            numbers = np.where(places >= len(rows), numbers + interval, numbers)  # the row never came
            return np.asarray(np.maximum(numbers + offset, 0))

        if len(rows):
            told = zip(self.unplaced, numbers_at([event.line for event in self.unplaced]).tolist(), strict=True)
            # Same as event._replace(at=at), which takes four times as long; there may be as many events as iterations.
            self.events += [tuple.__new__(type(event), (event[0], at, *event[2:])) for event, at in told]
            for kind, parts in self.many_unplaced.items():
                placed = (part.with_column("at", numbers_at(part.columns[0]).astype(np.float64)) for part in parts)
                self.many.setdefault(kind, []).extend(placed)
        self.unplaced.clear()
        self.many_unplaced.clear()

    def unplaced_events(self) -> list[Evaluation | Checkpoint]:
        """All unplaced events by line, as objects again."""
        for parts in self.many_unplaced.values():
            for part in parts:
                self.unplaced += part
        self.many_unplaced.clear()
        self.unplaced.sort(key=LINE_OF)
        return self.unplaced

    # --- what may be handed on ------------------------------------------------------------------------------------

    def admit(self) -> None:
        """Leaves out and counts values that are impossible in any training: after this, arithmetic is safe."""
        rows = self.iterations()
        number, times, changed = rows.number, rows.time_s, {}
        # The printed digits rounded it to zero.
        short = rows_where(lambda time_s: (time_s >= 0) & (time_s < bounds.STEP_S.low), times)
        if len(short):
            changed["time_s"] = times = _with(times, short, bounds.STEP_S.low)
        strange = rows_where(
            lambda at, time_s: (at < 0) | (at > bounds.ITERATION.high) | (time_s < 0) | (time_s > bounds.STEP_S.high),
            number,
            times,
        )
        for row in strange.tolist():
            name = "time_s" if 0 <= number[row] <= bounds.ITERATION.high else "number"
            self._leave_out(int(rows.line[row]), name, getattr(rows, name)[row].item())
        for name, limits in _COLUMN_BOUNDS.items():
            column, instead = getattr(rows, name), np.inf if name == "loss" else np.nan
            if column.strides == (0,):  # unknown in all rows
                continue
            for beyond in (partial(np.greater, limits.low), partial(np.less, limits.high)):
                outside = rows_where(beyond, column)
                if len(outside):
                    changed[name] = column = _with(column, outside, instead)
        if changed:
            rows = replace(rows, **changed)
        if len(strange):
            rows = rows.take(np.delete(np.arange(len(rows)), strange))
        if changed or len(strange):
            self.replace_rows(rows)
        self.events = [kept for event in self.events if (kept := self._admitted(event)) is not None]
        self.many = {kind: [self._admitted_columns(part) for part in parts] for kind, parts in self.many.items()}
        self.outside.sort()
        self.outside_lines.sort()

    def _admitted(self, event: Event) -> Event | None:
        # For most evaluations only the number is known.
        if type(event) is Evaluation and event[4] is event[5] is None and 0 <= event[1] <= bounds.ITERATION.high:
            return event
        if isinstance(event, (Evaluation, Checkpoint)):
            at, took, stamp = event.at, event.took_s, event.stamp_s
            if at is not None and not bounds.ITERATION.holds(at):
                self._leave_out(event.line, "number", at)
                return None
            if took is not None and not bounds.EVENT_S.holds(took):
                self._leave_out(event.line, "took_s", took)
                event = event._replace(took_s=None)
            return event if stamp is None or bounds.CLOCK_S.holds(stamp) else event._replace(stamp_s=None)
        if isinstance(event, Fact) and event.name in KINDS:
            value = event.value
            if KINDS[event.name] is int and isinstance(value, float) and math.isfinite(value):
                value = int(value)
            fitting = as_kind(event.name, value)
            if fitting is None and value not in _NOT_SET:
                self._leave_out(event.line, event.name, value)
            if fitting is None:
                return None
            return event if fitting is event.value else event._replace(value=fitting)
        return event

    def _admitted_columns(self, events: EventColumns[Any]) -> EventColumns[Any]:
        strange = np.zeros(len(events), bool)
        for name, limits in (("at", bounds.ITERATION), ("took_s", bounds.EVENT_S), ("stamp_s", bounds.CLOCK_S)):
            column = column_of(events, name)
            strange |= ~(limits.mask(column) | np.isnan(column))
        if not strange.any():
            return events
        kept = [self._admitted(event) for event in events.take(strange)]
        good = [event for event in kept if event is not None]
        return EventColumns.joined([events.take(~strange), EventColumns.of(events.kind, good)])

    def _leave_out(self, line: int, name: str, value: object) -> None:
        self.outside_lines.append(line)
        if len(self.outside) < MOST_UNREAD_KEPT:
            self.outside.append(Unread(line=line, text=f"{name} = {value}"[:LONGEST_LINE_KEPT]))

    def sorted_events(self) -> Sequence[Event]:
        """All events by line, as objects again."""
        for parts in self.many.values():
            for part in parts:
                self.events += part
        self.many.clear()
        return sorted(self.events, key=LINE_OF)

    def replace_events(self, facts: list[Event], *others: EventColumns[Any]) -> None:
        """Replaces all events; evaluations and checkpoints stay columns if there are many."""
        self.events, self.many = facts, {}
        for events in others:
            if len(events) > MANY_EVENTS:
                self.many[events.kind] = [events]
            else:
                self.events += events

    def by_kind(self) -> Kinds:
        """All events by line, separated by kind."""
        found: dict[Any, Sequence[Any]] = {kind: [] for kind in (Fact, Evaluation, Checkpoint, Fault)}
        for event in sorted(self.events, key=LINE_OF):
            found[type(event)].append(event)  # type: ignore[attr-defined]
        for kind, parts in self.many.items():
            found[kind] = EventColumns.joined([*parts, EventColumns.of(kind, found[kind])])
        return Kinds(*found.values())


class Kinds(NamedTuple):
    """Events by line, separated by kind."""

    facts: Sequence[Fact]
    evaluations: Sequence[Evaluation]
    checkpoints: Sequence[Checkpoint]
    faults: Sequence[Fault]

    def between(self, begin: float, end: float) -> Kinds:
        """The events from line `begin` up to, not including, line `end`."""

        parts: list[Any] = [
            events[bisect_left(events, begin, key=LINE_OF) : bisect_left(events, end, key=LINE_OF)] for events in self
        ]
        return Kinds(*parts)

    def events(self) -> list[Event]:
        return sorted((event for kind in self for event in kind), key=LINE_OF)


def _few(events: list[Any], many: dict[type[Evaluation | Checkpoint], list[EventColumns[Any]]]) -> list[Any]:
    """The events that stay objects; the others are added to the columns."""
    older, recent = events[:-_RECENT_EVENTS], events[-_RECENT_EVENTS:]
    for kind in (Evaluation, Checkpoint):
        own = [event for event in older if type(event) is kind]
        if own:
            many.setdefault(kind, []).append(EventColumns.of(kind, own))
    return [event for event in older if type(event) not in many] + recent


def through_midnight(stamps: np.ndarray) -> np.ndarray:
    """Makes clocks without a date go on after midnight, where they start again at zero."""
    if not np.fmax.reduce(stamps, initial=np.nan) <= DATED_S:  # or none is known
        return stamps
    known = np.flatnonzero(~np.isnan(stamps)) if len(rows_where(np.isnan, stamps)) else None
    values = stamps if known is None else stamps[known]
    midnights = rows_where(lambda clock, before: clock - before < -DAY_S / 2, values[1:], values[:-1]) + 1
    if not len(midnights):
        return stamps
    whole = stamps.copy()
    begins = midnights if known is None else known[midnights]
    for days, (begin, end) in enumerate(pairwise([*begins.tolist(), len(stamps)]), start=1):
        whole[begin:end] += DAY_S * days
    return whole


def pieces(length: int) -> Iterator[slice]:
    """Slices of PIECE rows. For longer columns, frees the memory of rows already read from a file before each slice."""
    for begin in range(0, length, PIECE):
        if length > PIECE:
            release_pages()
        yield slice(begin, min(begin + PIECE, length))


def _aside(column: np.ndarray) -> np.ndarray:
    """A long column moved to a file if there is room for one; it must not be written to any more."""
    if len(column) <= MANY_ROWS or not column.flags.writeable:  # already moved, or one value for all rows
        return column
    mapped = spill_to_disk(column[part].tobytes() for part in pieces(len(column)))
    return column if mapped is None else np.frombuffer(mapped, column.dtype)


def rows_where(holds: Callable[..., np.ndarray], *columns: np.ndarray) -> np.ndarray:
    """The rows for which the condition holds, without a mask over all rows of a long column."""
    if len(columns[0]) <= PIECE:
        return np.flatnonzero(holds(*columns))
    found = [part.start + np.flatnonzero(holds(*(c[part] for c in columns))) for part in pieces(len(columns[0]))]
    return np.concatenate(found)


def _with(column: np.ndarray, rows: np.ndarray, value: float) -> np.ndarray:
    changed = column.copy()
    changed[rows] = value
    return changed


def rows_of(columns: list[np.ndarray], kept: np.ndarray) -> list[np.ndarray]:
    """The selected rows of a table, without a copy if they are all rows, consecutive, or one value throughout."""
    if not kept.any():
        return [column[:0] for column in columns]
    rows = slice(int(np.argmax(kept)), len(kept) - int(np.argmax(kept[::-1])))
    if kept[rows].all():
        return [column[rows] for column in columns]
    count = int(np.count_nonzero(kept))
    return [np.broadcast_to(c[0], count) if c.strides == (0,) else c[kept] for c in columns]


def whole_numbers(column: np.ndarray) -> np.ndarray:
    """The column as integers: in four bytes if it is kept in them, else in eight."""
    return column if column.dtype == np.int32 else column.astype(np.int64, copy=False)


def _exactly(column: np.ndarray) -> np.ndarray:
    """The column in four bytes per row if all values are whole numbers, and in none if they are all equal.

    Impossibly large numbers become nan.
    """
    beyond = np.abs(column) > LARGEST_KEPT
    if beyond.any():
        column = np.where(beyond & np.isfinite(column), np.nan, column)
    first = column[:1]
    same = len(column) > 0 and bool((np.isnan(column) if np.isnan(first[0]) else column == first).all())
    kept = first if same else column
    with np.errstate(invalid="ignore"):
        whole = kept.astype(np.int32)
    narrow = whole if bool(((whole == kept) & (np.abs(kept) < _FOUR_BYTES)).all()) else np.array(kept)
    return np.broadcast_to(narrow, len(column)) if same else narrow


def _joined_columns(parts: list[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    """Joins the parts. Each part is freed once it is copied, so that a long table is not in memory twice."""
    columns = [list(column) for column in zip(*parts, strict=True)]
    parts.clear()
    for column in columns:
        _grow_first(column)
    return tuple(column[0] for column in columns)


def _stacked(columns: list[np.ndarray]) -> np.ndarray:
    """The columns as one table of floats; each column is contiguous, as it is used."""
    whole = np.empty((len(columns), len(columns[0])))
    for place, column in enumerate(columns):
        whole[place] = column
    return whole.T


def _known(column: np.ndarray) -> list[Any]:
    """The values, with None for nan."""
    values: list[Any] = column.tolist()
    for row in np.flatnonzero(np.isnan(column)).tolist():
        values[row] = None
    return values


def _grow_first(parts: list[np.ndarray]) -> None:
    """Appends the others to the first, in place if the system can: no copy is made, and no small arrays remain."""
    if len(parts) < 2:
        parts[:] = parts or [np.empty(0)]
        return
    first = parts.pop(0)
    size = len(first)
    holds_nan = first.dtype.kind == "f"  # a column with one value throughout takes no memory, whatever its type
    if first.strides != (0,) and all(
        np.can_cast(part.dtype, first.dtype) or (holds_nan and part.strides == (0,)) for part in parts
    ):
        with suppress(ValueError):  # the array does not own its memory, or is referenced elsewhere
            first.resize(size + sum(map(len, parts)))
    if len(first) == size:
        parts[:] = [joined([first, *parts])]
        return
    for part in parts:
        first[size : size + len(part)] = part
        size += len(part)
    parts[:] = [first]
