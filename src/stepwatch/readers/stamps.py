"""Timestamps and launcher prefixes in front of a line: a wall clock that somebody else kept."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_DATE_TIME = re.compile(
    r"(?P<year>\d{4})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T ](?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
)
_GLOG = re.compile(r"\b[IWEF](?P<month>\d\d)(?P<day>\d\d) (?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:\.(?P<fraction>\d{1,9}))?")
_SYSLOG = re.compile(
    r"\b(?P<name>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}(?P<day>\d{1,2}) (?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:\.(?P<fraction>\d{1,9}))?"
)
_CLOCK = re.compile(r"(?<![\d:])(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?(?![\d:])")
_EPOCH = re.compile(r"(?<![\d.])(?P<epoch>1\d{9}(?:\.\d{1,9})?)(?![\d.])")
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]

# Launchers and copies put these in front of a line: quotes, ranks, levels, process ids, srun's and mpirun's labels.
_PIECES = re.compile(
    r"""^(?:\s+
    |>\s?
    |`{3,}\w*\s*
    |\[(?:rank|default)?\d+\]:?\s*
    |\[\d+,\d+\]<std(?:out|err)>:\s*
    |\(\w[\w ]{0,20}pid=\d+(?:,[^)]{0,40})?\)\s*
    |\d{1,4}:\s+
    |\[?(?:INFO|DEBUG|WARNING|stdout|stderr)\]?[:\s]\s*
    |[|:\-–]\s+
    )""",
    re.VERBOSE,
)
_LONGEST_PREFIX = 160


def stamp_of(prefix: str) -> float | None:
    """Seconds of the clock in a line's prefix, on an arbitrary but steady zero; None where there is none."""
    prefix = prefix[:_LONGEST_PREFIX]
    for pattern in (_DATE_TIME, _GLOG, _SYSLOG, _CLOCK):
        found = pattern.search(prefix)
        if found:
            return _seconds(found.groupdict())
    found = _EPOCH.search(prefix)
    return float(found["epoch"]) if found else None


def _seconds(parts: dict[str, str | None]) -> float | None:
    month = _MONTHS.index(parts["name"]) + 1 if parts.get("name") else int(parts.get("month") or 1)
    try:
        moment = datetime(
            int(parts.get("year") or 2000), month, int(parts.get("day") or 1),
            int(parts["hour"] or 0), int(parts["minute"] or 0), min(int(parts["second"] or 0), 59), tzinfo=UTC,
        )  # fmt: skip
    except ValueError:
        return None
    return moment.timestamp() + float("0." + (parts.get("fraction") or "0"))


def strip_prefix(line: str) -> tuple[str, str]:
    """A line without its launcher and timestamp prefix, and that prefix."""
    rest = line
    for _ in range(8):
        shorter = _without_piece(rest)
        if shorter == rest:
            break
        rest = shorter
    return rest, line[: len(line) - len(rest)]


def _without_piece(text: str) -> str:
    piece = _PIECES.match(text)
    if piece and piece.end():
        return text[piece.end() :]
    for pattern in (_DATE_TIME, _GLOG, _SYSLOG, _CLOCK, _EPOCH):
        found = pattern.match(text, 1 if text.startswith("[") else 0)
        if found:
            return text[found.end() :].lstrip("Z]:,+ ")
    return text
