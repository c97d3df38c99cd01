"""What an average hides is taken out of it again: a first iteration, a checkpoint that lies in the next line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from stepwatch.readers.records import LONGEST_TIME_S
from stepwatch.run import Checkpoint, Evaluation, Event, Fact, Floats, Ints, Iterations, column_of, rows_from
from stepwatch.units import MILLI


def starts_of(rows: Iterations, events: Iterable[Event]) -> Ints:
    """The rows that are the first after a header; the very first row is one of them."""
    headers = [event.line for event in events if isinstance(event, Fact) and event.header]
    after = rows_from(rows.line, [-1, *headers])
    return np.unique(after[after < len(rows)])


def gaps_of(rows: Iterations, starts: Ints) -> tuple[Ints, Floats]:
    """Iterations and seconds by the clock since the row before; 0 and nan at the start of a process."""
    steps = np.diff(rows.number, prepend=rows.number[:1])
    seconds = np.diff(rows.stamp_s, prepend=np.nan)
    fresh = steps <= 0
    fresh[starts] = True
    return np.where(fresh, 0, steps), np.where(fresh | (seconds < 0), np.nan, seconds)


def rows_after(rows: Iterations, events: Sequence[Evaluation] | Sequence[Checkpoint]) -> Ints:
    """The row in whose line's span each event lies: the next one that is printed."""
    return rows_from(rows.line, column_of(events, "line"))


def without(rows: Iterations, steps: Ints, events: Sequence[Evaluation] | Sequence[Checkpoint]) -> Floats:
    """The times, without what the events took, whose cost is known, in the mean of the row after them."""
    times = rows.time_s.copy()
    took_s = column_of(events, "took_s")
    for row, took in zip(rows_after(rows, events).tolist(), took_s.tolist(), strict=True):
        if math.isnan(took) or row >= len(rows) or steps[row] == 0:
            continue
        rest = times[row] - took / steps[row]
        if rest > 0:  # a cost beyond the whole is another clock's
            times[row] = rest
    return times


def credible(times: Floats) -> np.ndarray:
    """Which times can be those of an iteration."""
    return np.asarray((times >= 0) & (times <= LONGEST_TIME_S))


def fine(seconds: Floats, stamps: Floats) -> np.ndarray:
    """Which spans are long enough for the ticks of their clock."""
    known = stamps[np.isfinite(stamps)]
    tick = MILLI if bool((known % 1 != 0).any()) else 1.0
    return np.asarray(seconds >= 200 * tick)  # a time from it is then good to half a per cent
