"""Files of one JSON object per line: the few values that a reader asks for, without the hundred others beside them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stepwatch.readers.records import LARGEST_KEPT, Records
from stepwatch.readers.text.block import Block
from stepwatch.run import Fact, Floats, Ints

_SLOW = 1.5  # of a usual row: more than rows of one speed lie apart, less than a mean with the start of a loader


class Object(NamedTuple):
    """One of the objects: where it stands, its letters, and what was asked for of it."""

    line: int
    text: bytes
    numbers: Mapping[str, float]


def objects(block: Block, lines: Ints, first_line: int, keys: Sequence[str]) -> Iterator[Object]:
    """Those of the lines that are objects, with the numbers that stand under these keys."""
    marks = [(key, f'"{key}":'.encode()) for key in keys]
    for index in lines.tolist():
        line = block.line(index).strip()
        if line.startswith(b"{") and line.endswith(b"}"):
            numbers = {}
            for key, mark in marks:
                at = line.find(mark)
                if at >= 0:
                    begin = at + len(mark)
                    end = line.find(b",", begin)
                    numbers[key] = number_in(line[begin : end if end >= 0 else -1])
            yield Object(index + first_line, line, numbers)


def number_in(text: bytes) -> float:
    """What is written as no number, or as none that anything can be, is nan."""
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if abs(value) <= LARGEST_KEPT else math.nan


def first_of_each(number: Ints | Floats, *columns: Floats) -> np.ndarray:
    """Which rows do not stand there before: a file may hold its log twice, and several ranks write the same."""
    new = np.ones(len(number), bool)
    if bool((np.diff(number) > 0).all()):
        return new
    order = np.argsort(number, kind="stable")
    again = np.flatnonzero(number[order[1:]] == number[order[:-1]])  # a resumed run repeats few numbers
    rows = np.unique(np.concatenate((order[again], order[again + 1])))
    seen: set[tuple[float, ...]] = set()
    columns = tuple(np.where(np.isnan(column[rows]), -1.0, column[rows]) for column in columns)
    stated = zip(number[rows].tolist(), *(column.tolist() for column in columns), strict=True)
    for row, key in zip(rows.tolist(), stated, strict=True):
        new[row] = key not in seen
        seen.add(key)
    return new


def drop_copies(records: Records) -> None:
    """Rows that stand there before, with the same clock, time and loss, are a copy of the log in the same file."""
    rows = records.iterations()
    new = first_of_each(rows.number, rows.time_s, rows.loss, rows.stamp_s)
    if not new.all():
        records.replace_rows(rows.take(new))


def apart_at_start(number: Floats, time: Floats, data: Floats) -> tuple[Floats, Floats]:
    """The times of a process's rows, the first ones apart from each other where they are means of all since the start.

    Means of the last 50 iterations in rows of 10 are that until the fiftieth: a wait at the start would count in each
    of them. They are taken for it where each is slow, and what it adds to the one before is a usual row.
    """
    usual = np.median(time)
    slow = int(np.argmax(np.append(time < _SLOW * usual, True)))
    if not 1 < slow < len(time) / 2 or number[0] != number[1] - number[0]:
        return time, data
    first = slice(0, slow)
    steps = np.diff(number[first], prepend=0.0)
    own, waited = (np.diff(column[first] * number[first], prepend=0.0) / steps for column in (time, data))
    if not ((own[1:] < _SLOW * usual) & (own[1:] > usual / _SLOW)).all():
        return time, data
    return np.append(own, time[slow:]), np.append(np.maximum(waited, 0.0), data[slow:])


def lone_row(line: float, number: float, covers: float) -> Fact:
    """What the only row of a process is about, which no distance to another shows: all so far, or its last few."""
    whole = covers >= number
    return Fact(int(line), "mean_of_run" if whole else "log_interval", 1 if whole else max(int(covers), 1))
