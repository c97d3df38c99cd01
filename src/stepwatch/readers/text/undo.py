"""Removes what an average hides: a slow first iteration, or a checkpoint whose time is part of the next line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from stepwatch.readers.records import LONGEST_TIME_S
from stepwatch.run import Checkpoint, Evaluation, Event, Fact, Floats, Ints, Iterations, column_of, rows_from
from stepwatch.units import MILLI


def starts_of(rows: Iterations, events: Iterable[Event]) -> Ints:
    """The first row after each header; the very first row is always one."""
    headers = [event.line for event in events if isinstance(event, Fact) and event.header]
    after = rows_from(rows.line, [-1, *headers])
    return np.unique(after[after < len(rows)])


def gaps_of(rows: Iterations, starts: Ints) -> tuple[Ints, Floats]:
    """Iterations and clock seconds since the previous row; 0 and nan at the start of a process."""
    steps = np.diff(rows.number, prepend=rows.number[:1])
    seconds = np.diff(rows.stamp_s, prepend=np.nan)
    fresh = steps <= 0
    fresh[starts] = True
    return np.where(fresh, 0, steps), np.where(fresh | (seconds < 0), np.nan, seconds)


def rows_after(rows: Iterations, events: Sequence[Evaluation] | Sequence[Checkpoint]) -> Ints:
    """For each event, the row whose time includes it: the next one printed."""
    return rows_from(rows.line, column_of(events, "line"))


def without(rows: Iterations, steps: Ints, events: Sequence[Evaluation] | Sequence[Checkpoint]) -> Floats:
    """The times, with the known cost of each event removed from the mean in the next row."""
    times = rows.time_s.copy()
    took_s = column_of(events, "took_s")
    for row, took in zip(rows_after(rows, events).tolist(), took_s.tolist(), strict=True):
        if math.isnan(took) or row >= len(rows) or steps[row] == 0:
            continue
        rest = times[row] - took / steps[row]
        if rest > 0:  # a cost above the total is from another clock
            times[row] = rest
    return times


def is_possible_time(times: Floats) -> np.ndarray:
    """Which times are possible for an iteration."""
    return np.asarray((times >= 0) & (times <= LONGEST_TIME_S))


def fine(seconds: Floats, stamps: Floats) -> np.ndarray:
    """Which spans are long enough for the resolution of their clock."""
    known = stamps[np.isfinite(stamps)]
    tick = MILLI if bool((known % 1 != 0).any()) else 1.0
    return np.asarray(seconds >= 200 * tick)  # so that a time derived from it is within half a per cent
