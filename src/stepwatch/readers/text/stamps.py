"""Timestamps and launcher prefixes in front of a line: a wall clock that somebody else kept."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from stepwatch.patterns import Pattern
from stepwatch.readers.text.block import UNDECODED, Block, Floats, Ints, Mask, bytes_equal, eight_digits
from stepwatch.run import repeated

_TIME_OF_DAY = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?(?: (?P<half>[AP]M)\b)?"
_HALF_DAY = Pattern(rb":\d\d [AP]M\b")
_DATE_TIME = Pattern(rf"(?P<year>\d{{4}})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T ]{_TIME_OF_DAY}")
# Python's usual datefmt of the Hugging Face examples, and that of detectron2 and mmengine, which has no year: only what
# is a month and a day, for a count and its end may stand before a clock too.
_MONTH_FIRST = Pattern(rf"(?<![\d/])(?P<month>\d\d)/(?P<day>\d\d)/(?P<year>\d{{4}})[T ]{_TIME_OF_DAY}")
_RICH = Pattern(rf"(?<![\d/])(?P<month>\d\d)/(?P<day>\d\d)/(?P<short>\d\d) {_TIME_OF_DAY}")  # its handler's own
_POINTED = Pattern(rf"(?<![\d.])(?P<month>\d\d)\.(?P<day>\d\d)\.(?P<short>\d\d)\|{_TIME_OF_DAY}")  # ST-GCN
_YEARLESS = Pattern(rf"(?<![\d/])(?P<month>0[1-9]|1[0-2])/(?P<day>0[1-9]|[12]\d|3[01]) {_TIME_OF_DAY}")
_GLOG = Pattern(rf"\b[IWEF](?P<month>\d\d)(?P<day>\d\d) {_TIME_OF_DAY}")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_SYSLOG = Pattern(
    r"\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?"
    rf"(?P<name>{'|'.join(_MONTHS)}) {{1,2}}(?P<day>\d{{1,2}}) {_TIME_OF_DAY}(?: \d{{4}}\b(?!-))?"
)
_CLOCK = Pattern(rf"(?<![\d:]){_TIME_OF_DAY}(?![\d:])")
_EPOCH = Pattern(r"(?<![\d.])(?P<epoch>1\d{9}(?:\.\d{1,9})?)(?![\d.])")
_CLOCKS = (_DATE_TIME, _MONTH_FIRST, _RICH, _POINTED, _YEARLESS, _GLOG, _SYSLOG, _CLOCK, _EPOCH)
_BEGINNING = Pattern(r"[\[(]?(?:\d|[IWEF]\d|[A-Z][a-z]{2},? )")  # of any clock; most lines have none
_AFTER_CLOCK = Pattern(r"(?:\s?(?:Z|UTC|GMT|[+-]\d\d:?\d\d)\b)?[\])]?[:,]?\s*")
_NAME_IN_BRACKET = Pattern(r"\s[A-Za-z_][\w.]{0,60}\]:?\s*")  # detectron2: `[05/04 09:30:07 d2.engine]: `

# Launchers, loggers and copies put these in front of a line. Only what cannot be the program's own words.
_PIECES = Pattern(
    r"""(?:\s+
    |>\s?
    |"(?=\S)
    |`{3,}(?:(?:bash|console|log|output|plaintext|python|sh|shell|text|txt)\b)?\s*
    |\[\d+,\d+\]<std(?:out|err)>:\s*                                 # mpirun
    |\[(?!(?:train|eval)\])[\w.]{1,40}\]:?\s*                        # torchrun, levels, logger names
    |\[rank:\s?\d{1,6}\]:?\s*                                         # Lightning's
    |\[\w{1,40}\.py:\d{1,6}:\w{1,60}\]\s*                          # DeepSpeed: file, line and function
    |\[(?:INFO|DEBUG|WARNING|ERROR)\s(?=\d{4}-)                     # DeepSpeed of 2020
    |\(\w[\w ]{0,20}pid=\d{1,9}(?:,[^)]{0,40})?\)\s*                 # ray
    |\d{1,4}:\s+                                                     # srun
    |\d{1,9}\s+[\w./-]{1,60}:\d{1,6}\]\s*                            # glog: process and place
    |[\w.-]{1,40}\s[\w./-]{1,40}\[\d{1,9}\]:\s*                      # syslog: host and process
    |(?:INFO|DEBUG|WARNING|ERROR):[\w.]{1,40}:
    |(?:INFO|DEBUG|WARNING|ERROR|std(?:out|err)(?:\s[FP]\b)?)[:\s]\s*
    |[\w.]{1,40}(?::[\w.<>]{1,40}){0,2}\s+-\s+                       # logger name, function and line
    |[\w.]{1,40}\s(?:INFO|DEBUG|WARNING|ERROR):\s+                   # detectron2's file: logger name and level
    |(?<=\s)[\w-]{1,40}\.py\s+                                       # a logger's file behind its clock
    |-[\w-]{1,40}\.py-(?:INFO|DEBUG|WARNING|ERROR):                  # PraNet's: file and level behind its clock
    |[A-Za-z][\w.-]{0,60}\s+\|\s                                     # docker compose
    |[\w.@-]{1,100}:\s+(?=step\s\d|saving\s|tokens\sper\s|number\sof\sp|Overriding|Initializing|\[?\d{4}-\d\d-
        |step:\s*\d+/|stopping_early:|final_\w+\s|iteration\s+\d+/|steps:\s\d|validation\s|successfully\s|using\s|>\s
        |\w+\s\.{3,}|[\w-]+\s\.{3,}:)                              # pdsh, or the name of a run
    |[|:\-–]\s+
    )""",
    re.VERBOSE,
)

_PLAIN_STARTS = ("step ", "saving ", "iter ")  # nothing stands before most lines


def stamp_of(prefix: str) -> float | None:
    """Seconds of the clock in a line's prefix, on an arbitrary but steady zero; None where there is none."""
    if not prefix:
        return None
    for pattern in _CLOCKS:
        found = pattern.search(prefix[:160])
        if found:
            return _seconds(found.groupdict())
    return None


def _seconds(parts: dict[str, str | None]) -> float | None:
    if parts.get("epoch"):
        return float(parts["epoch"] or 0)
    name = parts.get("name")
    month = _MONTHS.index(name) + 1 if name else int(parts.get("month") or 1)
    hour = int(parts["hour"] or 0)
    if parts.get("half"):
        hour = hour % 12 + (12 if parts["half"] == "PM" else 0)
    try:
        moment = datetime(
            int(parts.get("year") or 2000) + int(parts.get("short") or 0), month, int(parts.get("day") or 1),
            hour, int(parts["minute"] or 0), min(int(parts["second"] or 0), 59), tzinfo=UTC,
        )  # fmt: skip
    except ValueError:
        return None
    return moment.timestamp() + float("0." + (parts.get("fraction") or "0"))


@lru_cache(1024)  # every format that may claim a log looks at its first lines
def strip_prefix(line: str) -> tuple[str, str]:
    """A line without its launcher and timestamp prefix, and that prefix."""
    if line.startswith(_PLAIN_STARTS):
        return line, ""
    begin = 0
    for _ in range(12):
        end = _end_of_piece(line, begin)
        if end == begin:
            break
        begin = end
    return line[begin:], line[:begin]


def _end_of_piece(line: str, begin: int) -> int:
    if _BEGINNING.match(line, begin):
        bracket = line.startswith(("[", "("), begin)
        for pattern in _CLOCKS:
            found = pattern.match(line, begin + bracket)
            if found:
                named = _NAME_IN_BRACKET.match(line, found.end()) if bracket else None
                after = named or _AFTER_CLOCK.match(line, found.end())
                return after.end() if after else found.end()
    piece = _PIECES.match(line, begin)
    return piece.end() if piece else begin


# --- the same for all lines of a block at once ------------------------------------------------------------------

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
