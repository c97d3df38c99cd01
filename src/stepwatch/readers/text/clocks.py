"""The clocks in the prefixes of all lines of a block at once; line.py reads those of single lines."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import numpy as np

from stepwatch.patterns import Pattern
from stepwatch.readers.text.block import UNDECODED, Block, Floats, Ints, Mask, bytes_equal, eight_digits
from stepwatch.readers.text.line import stamp_of
from stepwatch.run import repeated

_HALF_DAY = Pattern(rb":\d\d [AP]M\b")
_HIGH_BITS = np.uint64(0x8080808080808080)
_MIDNIGHT = np.uint64(int.from_bytes(b"00:00:00", "little"))
_PAST_TIMES = np.uint64(0x76767F76767F7676)  # past nine of the digits, past nothing of the colons
_LONGEST_FRACTION = 7  # digits
_TENS = 10.0 ** np.arange(_LONGEST_FRACTION + 2)
_DAYS = np.array((0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31))  # a 29th of February is for the patterns
_TIME = r"\d\d:\d\d:\d\d"


class _Date(NamedTuple):
    """How a date is written in front of a time of day."""

    shape: re.Pattern[bytes]
    year: int | None
    """Where each part begins; without a year it is 2000, as for the patterns."""
    month: int
    day: int
    marks: tuple[tuple[int, bytes], ...]
    """What stands between the parts, and behind them."""

    @property
    def width(self) -> int:
        return self.marks[-1][0]


_DATES = (  # the first that is found counts, as for the patterns
    _Date(re.compile(rf"\d{{4}}[-/]\d\d[-/]\d\d[T ]{_TIME}".encode()), 0, 5, 8, ((4, b"-/"), (7, b"-/"), (10, b"T "))),
    _Date(
        re.compile(rf"(?<![\d/])\d\d/\d\d/\d{{4}}[T ]{_TIME}".encode()), 6, 0, 3, ((2, b"/"), (5, b"/"), (10, b"T "))
    ),
    _Date(re.compile(rf"(?<![\d/])\d\d/\d\d {_TIME}".encode()), None, 0, 3, ((2, b"/"), (5, b" "))),
)


def read_stamps(block: Block, starts: Ints, prefix: bytes) -> tuple[Mask, Floats | None]:
    """The clocks in such a prefix; lines whose clock is none are left out, and None is for a prefix without one."""
    date, found = next(((date, found) for date in _DATES if (found := date.shape.search(prefix))), (None, None))
    if date is None or found is None or _HALF_DAY.search(prefix):
        # A clock of another form is for the patterns.
        return np.full(len(starts), stamp_of(prefix.decode("utf-8", "replace")) is None), None
    at = starts + found.start()
    fits, days = _read_dates(block, at, date)
    time = at + date.width + 1
    figures = block.words[time] ^ _MIDNIGHT
    fits &= (((figures + _PAST_TIMES) | figures) & _HIGH_BITS) == 0
    figures = figures * np.uint64(10) + (figures >> np.uint64(8))  # two digits in the byte of the first
    hour, minute, second = (((figures >> np.uint64(bits)) & np.uint64(0xFF)).astype(np.int64) for bits in (0, 24, 48))
    fits &= (hour <= 23) & (minute <= 59)
    seconds = (days + hour * 3600 + minute * 60 + np.minimum(second, 59)).astype(np.float64)
    end = time + 8
    mark = block.octets[end]
    pointed = (mark == ord(".")) | (mark == ord(","))
    if pointed.any():
        fraction, places = eight_digits(block, end + 1)
        fits &= ~pointed | (places <= _LONGEST_FRACTION)
        pointed &= places > 0
        seconds = seconds + np.where(pointed, fraction / _TENS[places], 0.0)
    return fits, seconds


def clocks_of(block: Block, starts: Ints, prefix: str) -> Floats:
    """The clock in each of these prefixes, which differ from the one given in their digits alone; nan for none."""
    letters = prefix.encode("utf-8", UNDECODED)
    fits, stamps = read_stamps(block, starts, letters)
    clocks = np.full(len(starts), math.nan) if stamps is None else stamps
    for row in np.flatnonzero(~fits).tolist():
        stamp = stamp_of(block.text[starts[row] : starts[row] + len(letters)].decode("utf-8", "replace"))
        clocks[row] = math.nan if stamp is None else stamp
    return clocks


def _read_dates(block: Block, at: Ints, date: _Date) -> tuple[Mask, Ints]:
    """`2025-01-02 ` as seconds since 1970; lines that follow on each other mostly have the same."""
    first, last = block.words[at], block.words[at + max(date.width - 7, 0)]
    begins = np.flatnonzero(np.concatenate(([True], (first[1:] != first[:-1]) | (last[1:] != last[:-1]))))
    heads = at[begins[: len(at)]]
    fits = np.ones(len(heads), bool)
    for offset, allowed in date.marks:
        octets = block.octets[heads + offset]
        fits &= (octets == allowed[0]) | (octets == allowed[-1])
    parts = [np.full(len(heads), 2000)]
    for place, length in ((date.year, 4), (date.month, 2), (date.day, 2)):
        if place is not None:
            value, count = eight_digits(block, heads + place)
            fits &= count == length
            parts.append(value)
    year, month, day = parts[-3:]
    fits &= (month >= 1) & (month <= 12) & (day >= 1) & (day <= _DAYS[np.clip(month, 0, 12)])
    # Days since 1970, by the usual shift of the year to March.
    shifted = year - (month <= 2)
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    days = era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
    lengths = np.diff(np.append(begins[: len(at)], len(at)))
    return repeated(fits, lengths), repeated(days * 86400, lengths)


_DIGITS = b"0123456789"


class Prefix(NamedTuple):
    """The prefix of one line. Those of other lines are alike but for their digits, which are a rank's or a clock's."""

    text: str

    def skip(self, block: Block, lines: Ints) -> tuple[Ints, Ints, Floats | None]:
        """The lines that begin so, where each goes on, and the clock in each prefix; None where there is none."""
        starts = block.starts[lines]
        if not self.text:
            return lines, starts, None
        letters = self.text.rstrip(" ").encode()
        fits = block.ends[lines] - starts >= len(letters)
        lines, starts = lines[fits], starts[fits]
        fits = np.ones(len(starts), bool)  # the same letters, and any digits in the places of its own
        for begin in range(0, len(letters), 8):
            part = letters[begin : begin + 8]
            words = block.words[starts + begin]
            same = np.uint64(int.from_bytes(bytes(0 if letter in _DIGITS else 0xFF for letter in part), "little"))
            digit = np.uint64(int.from_bytes(bytes(0x80 if letter in _DIGITS else 0 for letter in part), "little"))
            fits &= (words & same) == (np.uint64(int.from_bytes(part, "little")) & same)
            figures = words ^ np.uint64(0x3030303030303030)
            fits &= (((figures + np.uint64(0x7676767676767676)) | figures) & digit) == 0
        lines, starts = lines[fits], starts[fits]
        fits, stamps = read_stamps(block, starts, letters)
        lines, at = lines[fits], skip_spaces(block, starts[fits] + len(letters))
        return lines, at, None if stamps is None else stamps[fits]


def skip_spaces(block: Block, at: Ints) -> Ints:
    for _ in range(25):  # words of eight spaces
        if not (block.octets[at] == ord(" ")).any():
            break
        at = at + bytes_equal(block.words[at], ord(" "))
    return at
