"""Timestamps and launcher prefixes in front of a line: a wall clock that somebody else kept."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache

_TIME_OF_DAY = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?(?: (?P<half>[AP]M)\b)?"
_DATE_TIME = re.compile(rf"(?P<year>\d{{4}})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T ]{_TIME_OF_DAY}")
# Python's usual datefmt of the Hugging Face examples, and that of detectron2 and mmengine, which has no year: only what
# is a month and a day, for a count and its end may stand before a clock too.
_MONTH_FIRST = re.compile(rf"(?<![\d/])(?P<month>\d\d)/(?P<day>\d\d)/(?P<year>\d{{4}})[T ]{_TIME_OF_DAY}")
_RICH = re.compile(rf"(?<![\d/])(?P<month>\d\d)/(?P<day>\d\d)/(?P<short>\d\d) {_TIME_OF_DAY}")  # its handler's own
_POINTED = re.compile(rf"(?<![\d.])(?P<month>\d\d)\.(?P<day>\d\d)\.(?P<short>\d\d)\|{_TIME_OF_DAY}")  # ST-GCN
_YEARLESS = re.compile(rf"(?<![\d/])(?P<month>0[1-9]|1[0-2])/(?P<day>0[1-9]|[12]\d|3[01]) {_TIME_OF_DAY}")
_GLOG = re.compile(rf"\b[IWEF](?P<month>\d\d)(?P<day>\d\d) {_TIME_OF_DAY}")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_SYSLOG = re.compile(
    r"\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?"
    rf"(?P<name>{'|'.join(_MONTHS)}) {{1,2}}(?P<day>\d{{1,2}}) {_TIME_OF_DAY}(?: \d{{4}}\b(?!-))?"
)
_CLOCK = re.compile(rf"(?<![\d:]){_TIME_OF_DAY}(?![\d:])")
_EPOCH = re.compile(r"(?<![\d.])(?P<epoch>1\d{9}(?:\.\d{1,9})?)(?![\d.])")
_CLOCKS = (_DATE_TIME, _MONTH_FIRST, _RICH, _POINTED, _YEARLESS, _GLOG, _SYSLOG, _CLOCK, _EPOCH)
_BEGINNING = re.compile(r"[\[(]?(?:\d|[IWEF]\d|[A-Z][a-z]{2},? )")  # of any clock; most lines have none
_AFTER_CLOCK = re.compile(r"(?:\s?(?:Z|UTC|GMT|[+-]\d\d:?\d\d)\b)?[\])]?[:,]?\s*")
_NAME_IN_BRACKET = re.compile(r"\s[A-Za-z_][\w.]{0,60}\]:?\s*")  # detectron2: `[05/04 09:30:07 d2.engine]: `

# Launchers, loggers and copies put these in front of a line. Only what cannot be the program's own words.
_PIECES = re.compile(
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
