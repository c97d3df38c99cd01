"""Files of one JSON object per line: the few values that a reader asks for, without the hundred others in each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stepwatch.readers.records import LARGEST_KEPT, Records
from stepwatch.readers.text.block import Block
from stepwatch.run import Fact, Floats, Ints

_SLOW = 1.5  # times a usual row: more than rows of one speed differ, less than a mean including the start of a loader


class Object(NamedTuple):
    """One object: its line, its text, and the numbers that were asked for."""

    line: int
    text: bytes
    numbers: Mapping[str, float]


def objects(block: Block, lines: Ints, first_line: int, keys: Sequence[str]) -> Iterator[Object]:
    """The lines that are objects, with their numbers under these keys."""
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
    """The number; nan if it is not one, or is larger than anything can be."""
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if abs(value) <= LARGEST_KEPT else math.nan


def first_of_each(number: Ints | Floats, *columns: Floats) -> np.ndarray:
    """Which rows did not occur before: a file may contain its log twice, and several ranks write the same."""
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
    """Drops rows that occurred before with the same clock, time and loss: a copy of the log in the same file."""
    rows = records.iterations()
    new = first_of_each(rows.number, rows.time_s, rows.loss, rows.stamp_s)
    if not new.all():
        records.replace_rows(rows.take(new))


def split_initial_means(number: Floats, time: Floats, data: Floats) -> tuple[Floats, Floats]:
    """The times and waits of a process's rows; first rows that are means since the start are resolved into their own.

    Means of the last 50 iterations, printed every 10, are such means until the fiftieth: a wait at the start would
    count in each of them. Rows are treated so if each is slow, but the part that it adds to the previous one is usual.
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


def fact_of_single_row(line: float, number: float, covers: float) -> Fact:
    """What the only row of a process covers, as no distance to another shows it: all so far, or the last few."""
    whole = covers >= number
    return Fact(int(line), "mean_of_run" if whole else "log_interval", 1 if whole else max(int(covers), 1))
