"""The shape of lines that are alike but for their numbers, matched by numpy, and what a reader tells of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from stepwatch.readers.columns import (
    Block,
    Floats,
    Ints,
    Mask,
    read_clock,
    read_floats,
    read_stamp,
    skip_digits,
    skip_literal,
    skip_spaces,
)
from stepwatch.readers.records import Records
from stepwatch.run import COLUMNS, Fact

_NUMBER = re.compile(
    rb"( +)?(?:(\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,7}(?!\d))?)|(\d{1,4}(?::\d\d){1,2}(?![\d:]))"
    rb"|(\d{1,3}(?:,\d{3})+(?!\d))|(\d+(?:\.\d+)?(?:[eE][-+]\d\d(?!\d))?))"
)
_MOMENT, _CLOCK, _COMMAS = 2, 3, 4  # groups of it
_DIGITS = re.compile(rb"\d+")
_SPACES = re.compile(rb" +(?=0)")
_WIDEST, _WIDEST_PASSED = 9, 15  # digits before the point, of numbers that are told and of others
_COUNTED = (b"rank", b"gpu", b"node")
_JOINTS = (b":", b",", b"-", b"e-", b"e+", b"E-", b"E+")
_MOST_THOUSANDS = 3  # groups behind a comma
_MOST_SPACES = 6
_WIDTH_OF_MOMENT = 19


def kind_of(line: bytes) -> bytes:
    """The line without its digits: lines of one shape are alike in it."""
    key = _DIGITS.sub(b"0", line)
    return _SPACES.sub(b" ", key) if b"  " in key else key


def split(line: bytes) -> tuple[list[bytes], list[Number]]:
    """The letters of the line, one piece more than it has numbers, and these."""
    found = list(_NUMBER.finditer(line))
    edges = [0, *(place for match in found for place in match.span()), len(line)]
    literals, numbers = [line[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)], [*map(Number, found)]
    for literal, number in zip(literals, numbers, strict=False):
        letters = literal[-1:].isalpha() and not number.spaces
        number.in_name = letters and not literal.lower().endswith(_COUNTED)
    for place, literal in enumerate(literals[1:-1], start=1):
        if literal in _JOINTS and not numbers[place].spaces:  # with other widths it may be one number
            numbers[place - 1].fix_width()
            numbers[place].fix_width()
    return literals, numbers


class Dice:
    """Numbers without an order, the same each time; the module random would take longer to load than most logs."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def between(self, first: int, last: int) -> int:
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return first + (self.state >> 33) % (last - first + 1)


class Number:
    """A number of a line, and which others may stand in its place."""

    def __init__(self, found: re.Match[bytes]) -> None:
        self.group = found.lastindex or 0
        self.model = found[self.group]
        self.spaces = len(found[1] or b"")
        self.any_spaces = self.spaces > 0
        self.constant = False
        self.in_name = False
        """Of a name, as in bf16: patterns may want this one, where nothing else of the line tells it."""
        self.never: set[float] = set()
        self._least, self._most = 1, _WIDEST
        whole, *rest = re.split(rb"(?=[.eE])", self.model) if self.group > _COMMAS else (self.model,)
        self._width, self._rest = len(whole), rest

    @property
    def is_whole(self) -> bool:
        return self.group > _COMMAS and not self._rest and not self.constant

    # --- others of its kind ---

    def other_spaces(self, dice: Dice) -> int:
        return dice.between(1, _MOST_SPACES) if self.any_spaces else self.spaces

    def other(self, dice: Dice) -> bytes:
        if self.constant:
            return self.model
        if self.group == _MOMENT:
            return b"20%02d" % dice.between(10, 30) + self.model[4:5] + self._other_moment(dice)
        if self.group == _CLOCK:
            parts = [dice.between(0, 99), *(dice.between(0, 59) for _ in range(self.model.count(b":")))]
            return b":".join(b"%02d" % part for part in parts)
        if self.group == _COMMAS:
            groups = (b",%03d" % dice.between(0, 999) for _ in range(dice.between(1, _MOST_THOUSANDS)))
            return b"%d" % dice.between(1, 999) + b"".join(groups)
        return self._of_width(dice, dice.between(self._least, self._most))

    def _other_moment(self, dice: Dice) -> bytes:
        fraction = _DIGITS.sub(lambda part: _figures(dice, len(part[0])), self.model[_WIDTH_OF_MOMENT:])
        parts = [dice.between(1, 12), dice.between(1, 28), *(dice.between(0, last) for last in (23, 59, 59))]
        marks = (self.model[place : place + 1] for place in (7, 10, 13, 16))
        return b"".join(b"%02d" % part + mark for part, mark in zip(parts, (*marks, b""), strict=True)) + fraction

    def _of_width(self, dice: Dice, width: int) -> bytes:
        rest = b""
        for part in self._rest:
            exponent = part[:1] != b"."
            rest += part[:2] + b"%02d" % dice.between(0, 9) if exponent else b"." + _figures(dice, dice.between(1, 6))
        return _figures(dice, width) + rest

    def extremes(self, dice: Dice) -> list[bytes]:
        if self.group <= _COMMAS:
            return []
        return [self._of_width(dice, width) for width in (self._least, self._most)]

    def longest(self, dice: Dice) -> bytes:
        free = self.group > _COMMAS and self._least < self._most and not self.constant
        return self._of_width(dice, _WIDEST_PASSED) if free else self.model

    def named(self, number: str) -> bytes:
        """This number in its form."""
        if self.constant or self.group <= _COMMAS or len(number) > self._most:
            return self.model
        rest = b"".join(_DIGITS.sub(lambda part: b"0" * len(part[0]), part) for part in self._rest)
        return number.zfill(self._least).encode() + rest

    # --- which are allowed ---

    def fix_width(self) -> None:
        self._least = self._most = self._width

    def allow(self, text: bytes) -> None:
        """A number as wide as this one."""
        if self.group > _COMMAS and not self.constant:
            self._most = max(self._most, len(re.split(rb"[.eE]", text)[0]))

    # --- reading ---

    def value(self, text: bytes) -> float:
        if self.group == _MOMENT:
            year, month, day, hour, minute, second = map(int, _DIGITS.findall(text)[:6])
            try:
                moment = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC)
            except ValueError:
                return np.nan
            return moment.timestamp() + float(b"0." + text[_WIDTH_OF_MOMENT + 1 :] + b"0")
        value = 0.0
        for part in text.split(b":"):
            value = 60 * value + float(part.replace(b",", b""))
        return value

    def values(self, text: bytes, block: Block, begins: Ints, ends: Ints) -> Floats:
        """The numbers at these places, as float() gives them."""
        if self.group == _MOMENT:
            return read_stamp(block, begins)[2]
        if self.group == _CLOCK:
            return read_clock(block, begins)[2]
        return read_floats(text, block, begins, ends, commas=self.group == _COMMAS)

    def skip(self, block: Block, cursor: Ints, ends: Ints) -> tuple[Mask, Ints]:
        """Over a number of the kind; which of the lines have one."""
        if self.constant:
            return skip_literal(block, cursor, self.model)
        if self.group == _MOMENT:
            fits = cursor + _WIDTH_OF_MOMENT <= ends
            clocks, stops, _ = read_stamp(block, np.where(fits, cursor, 0))
            pointed = len(self.model) > _WIDTH_OF_MOMENT
            return fits & clocks & ((stops > cursor + _WIDTH_OF_MOMENT) == pointed), stops
        stops = skip_digits(block, cursor)
        if self.group == _CLOCK:
            return _skip_parts(block, (stops > cursor) & (stops < cursor + 4), stops, ":", 2, self.model.count(b":"))
        if self.group == _COMMAS:
            return _skip_thousands(block, (stops > cursor) & (stops < cursor + 4), stops)
        fits = (stops - cursor >= self._least) & (stops - cursor <= self._most)
        for part in self._rest:
            skip = _skip_fraction if part[:1] == b"." else _skip_power
            fits, stops = skip(block, fits, stops, part)
        return fits, stops


def _figures(dice: Dice, count: int) -> bytes:
    return b"".join(b"%d" % dice.between(0, 9) for _ in range(count))


def _skip_parts(block: Block, fits: Mask, cursor: Ints, mark: str, width: int, count: int) -> tuple[Mask, Ints]:
    """Over so many times the mark and digits of this width."""
    for _ in range(count):
        fits = fits & (block.octets[cursor] == ord(mark))
        stops = skip_digits(block, cursor + fits)
        fits &= stops == cursor + 1 + width
        cursor = np.where(fits, stops, cursor)
    return fits, cursor


def _skip_thousands(block: Block, fits: Mask, cursor: Ints) -> tuple[Mask, Ints]:
    """Over a comma and three digits, once or more."""
    fits, cursor = _skip_parts(block, fits, cursor, ",", 3, 1)
    for _ in range(_MOST_THOUSANDS - 1):
        _, cursor = _skip_parts(block, fits, cursor, ",", 3, 1)
    return fits, cursor


def _skip_fraction(block: Block, fits: Mask, cursor: Ints, part: bytes) -> tuple[Mask, Ints]:
    fits = fits & (block.octets[cursor] == part[0])
    stops = skip_digits(block, cursor + fits)
    return fits & (stops > cursor + 1), stops


def _skip_power(block: Block, fits: Mask, cursor: Ints, part: bytes) -> tuple[Mask, Ints]:
    """Over `e-05`, with either sign."""
    sign = block.octets[cursor + 1]
    fits = fits & (block.octets[cursor] == part[0]) & ((sign == ord("-")) | (sign == ord("+")))
    stops = skip_digits(block, cursor + 2 * fits)
    return fits & (stops == cursor + 4), stops


# --- what a reader tells ------------------------------------------------------------------------------------------


class Answer(NamedTuple):
    """What a reader found in one line: its form, as types within each other, and its leaves in order."""

    form: Any
    leaves: list[Any]

    @classmethod
    def of(cls, records: Records) -> Answer:
        tables = tuple((name, *rows) for name, rows in records.table_rows.items())
        told = (
            tuple(records.single_rows), tuple(records.events), tuple(records.unplaced), tuple(records.kept), tables,
            len(records.unread_lines) > 0,
        )  # fmt: skip
        leaves: list[Any] = []
        return cls(_form(told, leaves), leaves)

    def is_like(self, other: Answer) -> bool:
        """Whether the two differ in numbers alone."""
        if self.form != other.form:
            return False
        pairs = zip(self.leaves, other.leaves, strict=True)
        return all(_is_number(one) or one == another for one, another in pairs)

    def is_same(self, other: Answer) -> bool:
        return bool(self.form == other.form) and all(map(_same, self.leaves, other.leaves))


class Part(NamedTuple):
    """A tuple of some class, or an array of one number; of these an answer is made."""

    kind: Any
    parts: tuple[Any, ...]

    @property
    def leaves(self) -> int:
        return sum(part.leaves if isinstance(part, Part) else 1 for part in self.parts)

    @property
    def has_arrays(self) -> bool:
        return self.kind is np.ndarray or any(isinstance(part, Part) and part.has_arrays for part in self.parts)


def _form(told: Any, leaves: list[Any]) -> Any:
    if isinstance(told, tuple):
        return Part(type(told), tuple(_form(part, leaves) for part in told))
    if isinstance(told, np.ndarray):
        return Part(np.ndarray, tuple(_form(part, leaves) for part in told.tolist()))
    leaves.append(told)
    return type(told)


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, int | float) and not isinstance(leaf, bool)


def _same(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))


_MULTIPLES: tuple[Callable[[Any], Any], ...] = (
    lambda x: x, lambda x: x * 1e-3, lambda x: x / 1e3, lambda x: x * 1e-2, lambda x: x * 1e-6, lambda x: x * 1e3,
    lambda x: x * 1e6, lambda x: x * 1e9, lambda x: x * 60.0, lambda x: x * 3600.0, lambda x: -x,
    lambda x: 1 / np.maximum(x, 1e-12), lambda x: 1 / np.maximum(x, 1e-9), lambda x: x + 1, lambda x: x - 1,
)  # fmt: skip


class Source(NamedTuple):
    """Where a leaf comes from: always the same, or a multiple of the number in this place; the last is the line's."""

    constant: Any
    place: int | None = None
    multiple: Callable[[Any], Any] = _MULTIPLES[0]

    @classmethod
    def possible(cls, told: Any, seen: Sequence[tuple[Sequence[float], Any]]) -> list[Source]:
        """All that give what was seen, for these numbers."""
        if all(_same(told, leaf) for _, leaf in seen):
            return [cls(told)]
        places = range(len(seen[0][0]))
        return [
            cls(told, place, multiple) for multiple in _MULTIPLES for place in places
            if all(_same(multiple(values[place]), leaf) for values, leaf in seen)
        ]  # fmt: skip

    def value(self, values: Sequence[float]) -> Any:
        return self.constant if self.place is None else self.multiple(values[self.place])

    def column(self, columns: Sequence[np.ndarray | None]) -> np.ndarray | None:
        """The leaves of many lines; None where they are all the same."""
        column = None if self.place is None else columns[self.place]
        if column is None:
            return None
        told = np.asarray(self.multiple(column))
        return told.astype(np.int64) if isinstance(self.constant, int) else told


class Shape:
    """Letters and numbers that follow each other, and what a reader tells of such a line."""

    def __init__(
        self, literals: list[bytes], numbers: list[Number], apart: list[tuple[int, int]], model: Answer,
        sources: list[Source],
    ) -> None:  # fmt: skip
        self.numbers, self.apart, self.model, self.sources = numbers, apart, model, sources
        self.literals = [
            [literal[begin : begin + 8] for begin in range(0, len(literal), 8)]
            for literal in (*map(_with_spaces, literals, numbers), literals[-1])
        ]
        checked = {place for place, number in enumerate(numbers) if number.never} | {p for pair in apart for p in pair}
        self.used = checked | {source.place for source in sources if source.place not in (None, len(numbers))}
        self.unread = bool(sources[-1].constant)

    def match(self, text: bytes, block: Block, lines: Ints) -> tuple[Ints, list[Floats | None]]:
        """The lines (of those given) that fit, and the numbers in them that are of use."""
        cursor = block.starts[lines]
        spans: list[tuple[Ints, Ints]] = []
        for literals, number in zip(self.literals, (*self.numbers, None), strict=True):
            for literal in literals:
                fits, cursor = skip_literal(block, cursor, literal)
                lines, cursor, spans = _fitting(fits, lines, cursor, spans)
            if number is None:
                break
            if number.any_spaces:
                begins = skip_spaces(block, cursor)
                lines, cursor, spans = _fitting(begins > cursor, lines, begins, spans)
            fits, stops = number.skip(block, cursor, block.ends[lines])
            lines, cursor, spans = _fitting(fits, lines, stops, [*spans, (cursor, stops)])
        lines, cursor, spans = _fitting(cursor == block.ends[lines], lines, cursor, spans)
        return self._allowed(lines, [
            number.values(text, block, *spans[place]) if place in self.used else None
            for place, number in enumerate(self.numbers)
        ])  # fmt: skip

    def _allowed(self, lines: Ints, columns: list[Any]) -> tuple[Ints, list[Floats | None]]:
        fits = np.ones(len(lines), bool)
        for number, column in zip(self.numbers, columns, strict=True):
            if number.never:
                fits &= ~np.isin(column, list(number.never))
        for one, other in self.apart:
            fits &= columns[one] != columns[other]
        if fits.all():
            return lines, columns
        return lines[fits], [None if column is None else column[fits] for column in columns]

    def gives(self, answer: Answer, values: Sequence[float]) -> bool:
        """Whether a line with these numbers is answered as the shape says."""
        return answer.is_same(Answer(self.model.form, [source.value(values) for source in self.sources]))

    # --- adding what a reader would ---

    def add(self, lines: Ints, numbers: list[Floats | None], records: Records) -> None:
        if not len(lines):
            return
        leaves = zip(self.sources, (source.column([*numbers, lines]) for source in self.sources), strict=True)
        rows, events, unplaced, kept, tables, _ = self.model.form.parts
        others = any(part.kind is not Fact for part in events.parts)
        repeats = others or any(told.parts for told in (rows, unplaced, kept, tables))
        for row in rows.parts:
            told = zip(COLUMNS, _arrays(row, leaves, len(lines)), strict=True)
            columns = {name: column for name, column in told if not np.isnan(column[:1]).any()}
            records.add_rows(**columns | {name: columns[name].astype(np.int64) for name in ("number", "line")})
        for part in events.parts:
            if repeats and part.kind is Fact:
                records.events += _changes(part, leaves, len(lines))
            else:
                records.events += _built(part, leaves, len(lines))
        for part in unplaced.parts:
            records.unplaced += _built(part, leaves, len(lines))
        for part in kept.parts:
            whole = isinstance(part, Part) and part.has_arrays
            records.kept += [_joined(part, leaves, len(lines))] if whole else _built(part, leaves, len(lines))
        for table in tables.parts:
            name = next(leaves)[0].constant
            for row in table.parts[1:]:
                records.keep(name, *_arrays(row, leaves, len(lines)))


_Leaves = Iterator[tuple[Source, np.ndarray | None]]


def _with_spaces(literal: bytes, number: Number) -> bytes:
    return literal if number.any_spaces else literal + b" " * number.spaces


def _fitting(fits: Mask, lines: Ints, cursor: Ints, spans: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints, Any]:
    if fits.all():
        return lines, cursor, spans
    return lines[fits], cursor[fits], [(begins[fits], ends[fits]) for begins, ends in spans]


def _arrays(row: Part, leaves: _Leaves, count: int) -> list[np.ndarray]:
    """A tuple of numbers as columns."""
    told = [next(leaves) for _ in row.parts]
    return [np.full(count, source.constant) if column is None else column for source, column in told]


def _built(form: Any, leaves: _Leaves, count: int) -> list[Any]:
    """One thing of this form for each line, made without a call for each: there may be millions."""
    if not isinstance(form, Part):
        source, column = next(leaves)
        return [source.constant] * count if column is None else column.tolist()
    parts = [_built(part, leaves, count) for part in form.parts]
    columns = zip(*parts, strict=True) if parts else repeat((), count)
    return list(columns) if form.kind is tuple else list(map(tuple.__new__, repeat(form.kind), columns))


def _joined(form: Any, leaves: _Leaves, count: int) -> Any:
    """One thing for all lines, whose arrays are columns."""
    if not isinstance(form, Part):
        return next(leaves)[0].constant
    if form.kind is np.ndarray:
        return _arrays(form, leaves, count)[0]
    parts = [_joined(part, leaves, count) for part in form.parts]
    return tuple(parts) if form.kind is tuple else form.kind(*parts)


def _changes(form: Part, leaves: _Leaves, count: int) -> list[Any]:
    """Facts, the first, the last and those that differ from the one before: lines of times and events repeat theirs."""
    own = [next(leaves) for _ in range(form.leaves)]
    kept = np.zeros(count, bool)
    kept[[0, -1]] = True
    for _, column in own[1:]:
        if column is not None:
            kept[1:] |= column[1:] != column[:-1]
    taken = ((source, None if column is None else column[kept]) for source, column in own)
    return _built(form, taken, int(kept.sum()))
