"""Step times from the clock of a log whose lines show no time, or only a rounded one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from stepwatch.readers.formats.running import Clock, Pause, median, step_times
from stepwatch.readers.records import Records, rows_of
from stepwatch.run import Checkpoint, Evaluation, Fact, Floats

ROWS, STARTS = "rows", "starts"
"""Tables: line, number, clock and loss of each row; line and clock where a process begins to train."""


def add_clocked(records: Records, error_s: float) -> None:
    """Adds rows timed by the clock since the previous row, without the evaluations and saves in between."""
    table = records.take_columns(ROWS, 4)
    table = rows_of(table, np.isfinite(table[2]))
    starts = records.take_table(STARTS, 2)
    again = np.flatnonzero(np.diff(table[1]) < 0) + 1
    begun = np.searchsorted(table[0], starts[:, 0])
    length = len(table[0])
    edges = sorted({0, *again.tolist(), *begun[begun < length].tolist(), length})
    events = [event for event in records.sorted_events() if isinstance(event, (Evaluation, Checkpoint))]
    for begin, end in pairwise(edges):
        part = [column[begin:end] for column in table]
        line, number, clock, loss = rows_of(part, np.diff(part[1], prepend=-1) > 0)
        above = table[0][begin - 1] if begin else -1.0
        started = starts[(starts[:, 0] > above) & (starts[:, 0] <= line[0])]
        usual = median(np.diff(number)) if len(number) > 1 else 1.0
        done = int(min(number[0], usual)) if len(started) else 0
        first = started[-1, 1] if len(started) else clock[0]
        own = [event for event in events if event.at is not None and line[0] <= event.line <= line[-1]]
        errors, unknown = (np.broadcast_to(each, len(line)) for each in (error_s, np.nan))
        clocks = Clock(number.astype(np.int64), clock - first, errors, unknown, done)
        times, _ = step_times(clocks, [Pause(int(event.at or 0), event.took_s) for event in own])
        del clocks  # there may be millions of rows
        records.add_rows(
            line=line.astype(np.int64), number=number.astype(np.int64), time_s=np.maximum(times, 1e-6, out=times),
            loss=loss, stamp_s=clock,
        )  # fmt: skip
        if len(started) or begin:
            at = int(started[-1, 0] if len(started) else line[0])
            records.events.append(Fact(line=at, name="process", value=at, header=True))
        if usual == 1:
            records.events.append(Fact(line=int(line[0]), name="step_alone", value=True))


def losses(lines: Floats, table: np.ndarray) -> Floats:
    """For blocks with the loss on a separate line: the first loss after each of these lines and before the next."""
    places = np.searchsorted(table[:, 0], lines)
    following = np.append(lines[1:], np.inf)
    whole = np.concatenate((table, [[np.inf, np.nan]]))
    return np.where(whole[places, 0] < following, whole[places, 1], np.nan)
