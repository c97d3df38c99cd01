"""Many lines at once: a line template matched by numpy over a block of bytes.

A log of two million iterations is two million lines of one shape. Matching them one by one costs an
object per line; here every step of the match (a literal, the digits of a number) is done for all
lines of a block together, eight bytes at a time. Lines that do not fit are left to the reader's patterns.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

PADDING = 16  # bytes after the block, so that a load of eight bytes never leaves it

_ZEROS = np.uint64(0x3030303030303030)
_PAST_NINE = np.uint64(0x7676767676767676)
_HIGH_BITS = np.uint64(0x8080808080808080)
_TENS = 10.0 ** np.arange(9)


class Block(NamedTuple):
    """Whole lines as bytes, with every line's start and end and a view of eight bytes at any offset."""

    words: Words
    octets: Bytes
    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, text: bytes) -> Block:
        padded = np.zeros(len(text) + PADDING, np.uint8)
        padded[: len(text)] = np.frombuffer(text, np.uint8)
        newlines = np.flatnonzero(padded[: len(text)] == 10)
        starts = np.concatenate(([0], newlines + 1))
        ends = np.concatenate((newlines, [len(text)]))
        if starts[-1] == len(text):
            starts, ends = starts[:-1], ends[:-1]
        words = np.ndarray((len(padded) - 7,), np.dtype("<u8"), padded.data, 0, (1,))
        return cls(words, padded, starts, ends)


class Template:
    """A line shape such as `iter {number}: loss {loss}, time {time}ms`, matched on whole lines.

    `{name,}` is a number that may have commas, `{ }` any number of spaces, `{*}` anything up to the next space or the
    end, `{...}` the rest of the line. With `anywhere` the shape begins where its first letters are first found in the
    line, and a date and time in front of it become `stamp_s`.
    """

    def __init__(self, shape: str, *, anywhere: bool = False) -> None:
        self.anywhere = anywhere
        self.pieces: list[tuple[str, bytes]] = []  # (field name or "", literal)
        for literal, name in re.findall(r"([^{]*)(?:\{([\w ,*.]+)\})?", shape):
            if literal:
                self.pieces.append(("", literal.encode()))
            if name:
                self.pieces.append((name, b""))

    def match(self, block: Block, lines: Ints) -> tuple[Ints, dict[str, Floats]]:
        """The lines (of those given) that fit, and the numbers in them by field name."""
        cursor = block.starts[lines]
        if self.anywhere:
            lines, cursor = _find_literal(block, lines, self.pieces[0][1])
        begins = cursor
        found: dict[str, Floats] = {}
        for name, literal in self.pieces:
            if literal:
                fits, cursor = _skip_literal(block, cursor, literal)
            elif name == " ":
                fits, cursor = np.ones(len(cursor), bool), _skip_spaces(block, cursor)
            elif name == "...":
                fits, cursor = np.ones(len(cursor), bool), block.ends[lines]
            elif name == "*":
                fits, cursor = _skip_word(block, cursor, block.ends[lines])
            else:
                fits, cursor, found[name.rstrip(",")] = _read_number(block, cursor, commas=name.endswith(","))
            if not fits.all():
                lines, cursor, begins = lines[fits], cursor[fits], begins[fits]
                found = {key: column[fits] for key, column in found.items()}
        fits = cursor == block.ends[lines]
        lines, found = lines[fits], {key: column[fits] for key, column in found.items()}
        if self.anywhere and len(lines):
            fits, stamps = _stamps(block, block.starts[lines], begins[fits])
            lines, found = lines[fits], {key: column[fits] for key, column in found.items()}
            if stamps is not None:
                found["stamp_s"] = stamps
        return lines, found


def numbers_behind(block: Block, lines: Ints, literal: bytes) -> Floats:
    """For each line the number behind the first place of these letters; nan where they are not, inf if no plain one."""
    rows, places = _find_literal(block, lines, literal)
    fits, places = _skip_literal(block, places, literal)
    plain, places, values = _read_number(block, places)
    after = block.octets[places]
    ended = (after == ord(" ")) | (places == block.ends[rows])
    found = np.full(len(lines), np.nan)
    found[np.searchsorted(lines, rows)] = np.where(fits & plain & ended, values, np.inf)
    return found


def _find_literal(block: Block, lines: Ints, literal: bytes) -> tuple[Ints, Ints]:
    """The lines that hold the literal, and where it first begins in each."""
    part = literal[:8]
    mask = np.uint64((1 << (8 * len(part))) - 1)
    places = np.flatnonzero((block.words & mask) == np.uint64(int.from_bytes(part, "little")))
    rows = np.searchsorted(block.starts, places, side="right") - 1
    rows, first = np.unique(rows, return_index=True)
    wanted = np.isin(rows, lines, assume_unique=True)
    return rows[wanted], places[first[wanted]]


def _skip_spaces(block: Block, cursor: Ints) -> Ints:
    for _ in range(_MOST_SPACES):
        space = block.octets[cursor] == ord(" ")
        if not space.any():
            break
        cursor = cursor + space
    return cursor


def _skip_word(block: Block, cursor: Ints, ends: Ints) -> tuple[Mask, Ints]:
    spaces = np.flatnonzero(block.octets == ord(" "))
    places = np.append(spaces, len(block.octets))
    stop = np.minimum(places[np.searchsorted(spaces, cursor)], ends)
    return stop > cursor, stop


_MOST_SPACES = 40
_STAMP = re.compile(rb"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d")
_DIGITS_OF_STAMP = ((0, 4), (5, 2), (8, 2), (11, 2), (14, 2), (17, 2))
_TICKS = ((4, b"-/"), (7, b"-/"), (10, b"T "), (13, b":"), (16, b":"))


def _stamps(block: Block, starts: Ints, begins: Ints) -> tuple[Mask, Floats | None]:
    """The clocks in front of the lines, which stand at the same place in all of them; lines with another do not fit."""
    prefix = block.octets[starts[0] : begins[0]].tobytes()
    found = _STAMP.search(prefix)
    if found is None:
        # A line whose prefix is longer may hold a clock: it is for the patterns.
        return np.asarray(begins - starts == begins[0] - starts[0]), None
    at = starts + found.start()
    fits = at + 19 <= begins
    for offset, allowed in _TICKS:
        fits &= np.isin(block.octets[at + offset], np.frombuffer(allowed, np.uint8))
    parts = []
    for offset, length in _DIGITS_OF_STAMP:
        digits = block.octets[at[:, None] + offset + np.arange(length)].astype(np.int64) - 48
        fits &= ((digits >= 0) & (digits <= 9)).all(axis=1)
        parts.append(digits @ 10 ** np.arange(length - 1, -1, -1))
    seconds = _seconds_of(*(part[fits] for part in parts))
    mark = block.octets[at[fits] + 19]
    fraction, places = _read_digits(block, at[fits] + 20)
    pointed = ((mark == ord(".")) | (mark == ord(","))) & (places > 0) & (places < 8)
    return fits, seconds + np.where(pointed, fraction / _TENS[np.minimum(places, 8)], 0.0)


def _seconds_of(year: Ints, month: Ints, day: Ints, hour: Ints, minute: Ints, second: Ints) -> Floats:
    """Since 1970; days by the usual shift of the year to March."""
    shifted = year - (month <= 2)
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    days = era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
    return np.asarray(days * 86400 + hour * 3600 + minute * 60 + np.minimum(second, 59), dtype=np.float64)


def _skip_literal(block: Block, cursor: Ints, literal: bytes) -> tuple[Mask, Ints]:
    fits = np.ones(len(cursor), bool)
    for begin in range(0, len(literal), 8):
        part = literal[begin : begin + 8]
        mask = np.uint64((1 << (8 * len(part))) - 1)
        place = np.minimum(cursor + begin, len(block.words) - 1)  # a literal may be longer than a small block
        fits &= (block.words[place] & mask) == np.uint64(int.from_bytes(part, "little"))
        cursor = np.where(fits, cursor, 0)
    return fits, cursor + len(literal) * fits


def _read_number(block: Block, cursor: Ints, *, commas: bool = False) -> tuple[Mask, Ints, Floats]:
    """A decimal number of at most eight digits on either side of the point; anything else does not fit."""
    negative = block.octets[cursor] == ord("-")
    cursor = cursor + negative
    whole, count = _read_digits(block, cursor)
    fits = (count > 0) & (count < 8)
    cursor = cursor + count
    while commas:
        more, three = _read_digits(block, cursor + 1)
        group = (block.octets[cursor] == ord(",")) & (three == 3) & fits
        if not group.any():
            break
        whole = np.where(group, whole * 1000 + more, whole)
        cursor = cursor + 4 * group
    point = (block.octets[cursor] == ord(".")) & fits
    value = whole
    if point.any():
        cursor = cursor + point
        fraction, places = _read_digits(block, cursor)
        places = np.where(point, places, 0)
        fits &= (places < 8) & (point <= (places > 0))
        # One division of whole numbers, so that the result is the one nearest to the decimal, as float() gives it.
        value = (whole * _TENS[places] + np.where(point, fraction, 0.0)) / _TENS[places]
        cursor = cursor + places
    return fits, cursor, np.where(negative, -value, value)


def _read_digits(block: Block, cursor: Ints) -> tuple[Floats, Ints]:
    """The digits at the cursor as one number, and how many there are (8: at least eight)."""
    word = block.words[cursor] ^ _ZEROS
    past = ((word + _PAST_NINE) | word) & _HIGH_BITS  # the high bit of every byte that is no digit
    first = past & (~past + np.uint64(1))
    count = np.bitwise_count(first - np.uint64(1)) >> 3
    shift = (8 - count.astype(np.uint64)) << np.uint64(3)
    word = np.where(count > 0, word << (shift & np.uint64(63)), 0)
    word = (word * np.uint64(2561)) >> np.uint64(8)
    word = ((word & np.uint64(0x00FF00FF00FF00FF)) * np.uint64(6553601)) >> np.uint64(16)
    word = ((word & np.uint64(0x0000FFFF0000FFFF)) * np.uint64(42949672960001)) >> np.uint64(32)
    return word.astype(np.float64), count.astype(np.int64)
