"""A format whose iterations are single lines: described by statements, without code."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from stepwatch.readers.formats import NOTHING, Reader, Untimed
from stepwatch.readers.records import LARGEST_KEPT, LINE_OF, LONGEST_TIME_S, Records
from stepwatch.readers.text.block import Block, Floats, Ints, Mask
from stepwatch.readers.text.faults import CARD_LETTERS, FAULT_LETTERS, names_fault_by_number, read_common_line
from stepwatch.readers.text.line import (
    LONGEST_LINE,
    ONE_DIGIT,
    Line,
    clock_independent_of_digits,
    lines_with_marks,
    stamp_of,
    strip_prefix,
    value_of,
)
from stepwatch.readers.text.shape import alike
from stepwatch.run import Checkpoint, Evaluation, Fact, Timing, Traits

COLUMNS: Mapping[str, tuple[str, float]] = {
    "time_us": ("time_s", 1e-6), "time_ms": ("time_s", 1e-3), "time_s": ("time_s", 1.0), "time_min": ("time_s", 60.0),
    "loss": ("loss", 1.0), "mfu_pct": ("reported_mfu", 1e-2), "mfu": ("reported_mfu", 1.0),
    "tokens_per_s": ("reported_tokens_per_s", 1.0), "stamp_s": ("stamp_s", 1.0),
}  # fmt: skip
"""The column of iterations that a field is stored in, and the factor to its unit."""
_TEXTS = ("any", "rest", "name", "word", "quoted")


class Kept(NamedTuple):
    """Lines kept as rows of a table in the records; the format evaluates them once everything is read."""

    name: str
    lines: tuple[Line, ...]
    columns: tuple[str | float, ...] = ()
    """After the line number: fields of the line, `stamp_s`, or a number that is the same for all of these lines."""


@dataclass(frozen=True, kw_only=True)
class LineFormat:
    name: str
    timing: Timing
    holds: frozenset[str] = NOTHING
    iterations: tuple[Line, ...]
    """Fields: `number`, one of the times or `per_s`, others named in COLUMNS, and `last`. Matched after the prefix."""
    evaluations: tuple[Line, ...] = ()
    """Fields: at, val_loss, train_loss, took_s, took_ms; all are optional."""
    checkpoints: tuple[Line, ...] = ()
    """Fields: at, took_s, took_ms."""
    settings: tuple[Line, ...] = ()
    """Fields are settings by name, `gpu_text` or other facts; a header marks the start of a process."""
    timeless: tuple[Line, ...] = ()
    """Steps of a stage that prints no times: reported to the user as lines that were not understood."""
    tables: tuple[Kept, ...] = ()
    own: tuple[Line, ...] = ()
    """Lines that the format reads in code, in `add_event` or `read_event`."""
    events_first: bool = True
    """Whether evaluations and checkpoints without a number come before the line of their iteration."""
    events_offset: int = 0
    """Added to the number of the neighbouring iteration to get that of the event."""
    untimed: tuple[Untimed, ...] = ()
    traits: Traits = field(default_factory=Traits)
    prefixes: bool = True
    """Whether the prefixes of launchers and loggers are removed before a statement is tried."""
    last_offset: int = 0
    """Added to the printed number of iterations to get the number of the last one."""

    def reader(self) -> Reader:
        return Reader(
            self.name, self.timing, self.sniff, self.parse, self.finish, holds=self.holds, traits=self.traits,
            untimed=self.untimed,
        )  # fmt: skip

    # --- is it this format? -----------------------------------------------------------------------------------

    def sniff(self, head: bytes) -> float:
        """How many of the first lines with the marks are iterations; below 1 if only the start of a run is there."""
        hits = sum(
            any(line.fits(rest) for line in self.iterations)
            for rest in lines_with_marks(head, self._marks, prefixes=self.prefixes)
        )
        if hits:
            return float(hits)
        opening = [line for line in self.settings if line.opening]
        begun = any(
            line.fits(rest) for line in opening for rest in lines_with_marks(head, (line.letters,), prefixes=False)
        )
        return 0.5 if begun else 0.0

    @cached_property
    def _marks(self) -> tuple[bytes, ...]:
        return tuple(dict.fromkeys(mark for line in self.iterations for mark in line.marks))

    @cached_property
    def marks_of_time(self) -> tuple[str, ...]:
        return tuple(mark.decode() for line in self.iterations for mark in line.marks_of_time)

    # --- reading ----------------------------------------------------------------------------------------------

    def parse(self, text: bytes, first_line: int, records: Records) -> None:
        block = Block.of(text)
        self.read_block(block, block.filled, np.arange(len(block.starts)) + first_line, records)

    def read_block(self, block: Block, left: Ints, numbers: np.ndarray, records: Records) -> None:
        """Reads the lines of a block that are left; `numbers` are those of all its lines."""
        for _, lines, found in alike(block, left, self.iterations, prefixes=self.prefixes):
            fits = _possible(found)
            if not np.all(fits):
                lines, found = lines[fits], {name: column[fits] for name, column in found.items()}
            if len(lines):
                self.add(records, numbers[lines], found)
                left = block.without(left, lines)
        left = block.holding(left, self._letters)
        events, unplaced = len(records.events), len(records.unplaced)
        for statement, lines, found in alike(block, left, self.together, prefixes=self.prefixes):
            if statement not in self.iterations:  # else its numbers are impossible
                left = block.without(left, lines[self.add_events(statement, numbers[lines], found, records)])
        rows: list[dict[str, float]] = []
        silent: set[bytes] = set()  # meaningless lines, with any other digits too
        for index, number in zip(left.tolist(), numbers[left].tolist(), strict=True):
            line = block.line(index)[:LONGEST_LINE]
            kind = line.translate(ONE_DIGIT)
            if kind in silent:
                continue
            text = line.decode("utf-8", "replace")
            values = self.read_line(text, number, records)
            if values:
                rows.append({"line": number, **values})
            elif values is not None and clock_independent_of_digits(text):
                silent.add(kind)
        records.events[events:] = sorted(records.events[events:], key=LINE_OF)
        records.unplaced[unplaced:] = sorted(records.unplaced[unplaced:], key=LINE_OF)
        for names in dict.fromkeys(map(tuple, rows)):
            table = np.array([[*row.values()] for row in rows if tuple(row) == names], np.float64).T
            of_rows = dict(zip(names, table, strict=True))
            self.add(records, of_rows.pop("line").astype(numbers.dtype), of_rows)

    @cached_property
    def _letters(self) -> tuple[bytes, ...]:
        lines = (*self._events, *self.settings, *self.timeless)
        return tuple(dict.fromkeys((*self._marks, *(line.letters for line in lines), *FAULT_LETTERS, *CARD_LETTERS)))

    @cached_property
    def _tables(self) -> Mapping[Line, Kept]:
        return {line: table for table in self.tables for line in table.lines}

    @cached_property
    def _events(self) -> tuple[Line, ...]:
        return (*self._tables, *self.own, *self.evaluations, *self.checkpoints)

    @cached_property
    def together(self) -> tuple[Line, ...]:
        """Event lines that are read all at once, after the iterations, which come first for a single line too."""
        by_code = type(self).read_event is not LineFormat.read_event
        events = [line for line in self._events if line not in self.settings]
        return (*self.iterations, *events) if events and not by_code else ()

    def finish(self, first_line: int, records: Records) -> None:
        records.place(after=self.events_first, offset=self.events_offset)

    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        """Adds the iterations on these lines from their fields, which are columns."""
        columns: dict[str, np.ndarray] = {
            name: found[each] * scale for each, (name, scale) in COLUMNS.items() if each in found
        }
        if "per_s" in found:
            columns["time_s"] = 1 / found["per_s"]
        if "last" in found:
            # Repeated if the numbers fall back: that may be the start of another run.
            new = np.diff(found["last"], prepend=-1).astype(bool) | (np.diff(found["number"], prepend=0) < 0)
            for row in np.flatnonzero(new).tolist():
                self.add_last(records, int(lines[row]), float(found["last"][row]))
        columns |= {"number": found["number"].astype(np.int64), "line": lines}
        timed = columns["time_s"] > 0 if "time_s" in columns else np.ones(len(lines), bool)
        if not timed.all():  # a first line, before anything was timed
            columns = {name: column[timed] for name, column in columns.items()}
        records.add_rows(**columns)

    def add_last(self, records: Records, line: int, last: float) -> None:
        if 0 < last <= LARGEST_KEPT:
            records.events.append(Fact(line=line, name="max_iters", value=int(last) + self.last_offset))

    def read_line(self, line: str, number: int, records: Records) -> dict[str, float] | None:
        """Reads one line. Returns the fields of an iteration, None for another known line, {} for a meaningless one."""
        rest, prefix = strip_prefix(line) if self.prefixes else (line, "")
        for statement in self.iterations:
            found = statement.find(rest)
            if found is not None:
                values = found.values()
                if "loss" in values and not math.isfinite(values["loss"]):
                    values["loss"] = math.inf  # nan means not printed
                stamp = stamp_of(prefix, rest[: found.begin])
                if stamp is not None:
                    values["stamp_s"] = stamp
                unread = any(field.kind == "figure" and math.isnan(values[field.name]) for *_, field in found.spans)
                if _possible(values) and not unread:
                    return values
        if self.read_event(rest, prefix, number, records) or self.read_settings(rest, line, number, records):
            return None
        if read_common_line(rest, prefix, number, records):
            return None
        # A time in a separate piece has a mark that other lines have too: "runtime: ", "wall clock time: ".
        headed = any(not each.pieces or each.letters.decode() in rest for each in self.iterations)
        timed = headed and any(mark in rest for mark in self.marks_of_time)
        if timed or any(each.fits(rest) for each in self.timeless):
            records.add_unread(number, line)  # looks like an iteration, but is not understood
            return None
        return None if names_fault_by_number(rest) else {}

    def read_event(self, rest: str, prefix: str, number: int, records: Records) -> bool:
        """Reads the event on one line. A format that overrides this is read line by line."""
        for statement in self._events:
            found = statement.find(rest)
            if found is not None:
                stamp = stamp_of(prefix, rest[: found.begin])
                values = found.values() if stamp is None else {**found.values(), "stamp_s": stamp}
                columns = {name: np.array([value]) for name, value in values.items()}
                if self.add_events(statement, np.array([number]), columns, records)[0]:
                    return statement not in self.settings  # else it is a header too
        return False

    def add_events(self, statement: Line, lines: Ints, found: dict[str, Floats], records: Records) -> Mask:
        """Adds the events of these lines, which fit the statement; returns which of them have possible numbers."""
        table = self._tables.get(statement)
        if table is not None:
            columns = [found.get(each, math.nan) if isinstance(each, str) else each for each in table.columns]
            records.keep(table.name, lines, *columns)
            return np.ones(len(lines), bool)
        stamps = found.pop("stamp_s").tolist() if "stamp_s" in found else [None] * len(lines)
        rows = np.array([*found.values()]).reshape(len(found), len(lines)).T.tolist()
        known = [
            self.add_event(statement, dict(zip(found, values, strict=True)), stamp, number, records)
            for number, stamp, values in zip(lines.tolist(), stamps, rows, strict=True)
        ]
        return np.array(known, bool)

    def add_event(
        self, statement: Line, values: dict[str, float], stamp: float | None, number: int, records: Records
    ) -> bool:
        """Adds the event of a line that fits the statement; False if its numbers are impossible."""
        at = at_of(values)
        if statement in self.evaluations:
            evaluation = Evaluation(
                line=number, at=at or 0, train_loss=values.get("train_loss"), val_loss=values.get("val_loss"),
                took_s=took_of(values), stamp_s=stamp,
            )  # fmt: skip
            (records.events if at is not None else records.unplaced).append(evaluation)
        elif statement in self.checkpoints:
            save = Checkpoint(line=number, at=at, took_s=took_of(values), stamp_s=stamp)
            (records.events if at is not None else records.unplaced).append(save)
        else:
            return False
        return True

    def read_settings(self, rest: str, line: str, number: int, records: Records) -> bool:
        known = False
        for statement in self.settings:
            found = statement.find(rest)
            if found is None and len(rest) < len(line):  # a table row looks like a prefix
                found = statement.find(line)
            if found is None:
                continue
            known = True
            stated: dict[str, object] = dict(statement.sets)
            for _, _, part in found.spans:
                if part.name:
                    text = found.texts[part.name]
                    number_in_it = value_of(text, part.kind) * statement.scale
                    stated[part.name] = text.strip() if part.kind in _TEXTS else number_in_it
            for name, value in stated.items():
                if not isinstance(value, float) or math.isfinite(value):
                    records.events.append(Fact(line=number, name=name, value=value, header=statement.header))
        return known


def _possible(found: Mapping[str, Any]) -> Any:
    """Whether number and time are possible for an iteration; works for columns and for single values."""
    fits = found.get("number", 0.0) <= LARGEST_KEPT
    for each, (name, scale) in COLUMNS.items():
        if name == "time_s" and each in found:
            fits = fits & (found[each] >= 0) & (found[each] * scale <= LONGEST_TIME_S)
    if "per_s" in found:
        fits = fits & (found["per_s"] * LONGEST_TIME_S >= 1)
    return fits


def at_of(values: Mapping[str, float]) -> int | None:
    """The iteration of an event."""
    at = values.get("at", math.nan)
    return int(at) if 0 <= at <= LARGEST_KEPT else None


def took_of(values: Mapping[str, float]) -> float | None:
    """What an event took, in seconds."""
    took = values.get("took_s", values.get("took_ms", math.nan) / 1e3)
    return took if 0 <= took <= LONGEST_TIME_S else None
