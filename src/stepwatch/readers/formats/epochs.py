"""Loops that restart the step count in each epoch: continuous numbers, evaluations in between, waiting for data."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stepwatch.readers.formats.running import as_slice, first_occurrences, median
from stepwatch.readers.records import INSIDE, LARGEST_KEPT, LINE_OF, Records
from stepwatch.run import Evaluation, Fact, Floats, Ints, repeated

EPOCHS, RESUMED = "epochs", "resume"
"""Facts that a format states: how many epochs are planned, and that the process resumes from a checkpoint."""


class EvaluationSpan(NamedTuple):
    """One evaluation, from the line where it begins to the one where it ends."""

    begin: int
    end: int
    took_s: float | None


class Epochs(NamedTuple):
    """The lines of training, each once, and the epochs they belong to."""

    rows: Ints
    """The lines that count, of all those given."""
    line: Ints
    done: Ints
    """Steps of the epoch that are done at this line."""
    begins: Ints
    """The first row of each epoch."""
    epoch: Ints
    total: Ints
    """Steps of each epoch."""
    process: np.ndarray
    """Whether a process begins with the epoch."""

    @classmethod
    def of(cls, line: np.ndarray, epoch: np.ndarray, done: np.ndarray, total: np.ndarray) -> Epochs:
        """Several ranks print the same lines at different times: only a fall to the beginning is another epoch."""
        counts = done.astype(np.int64)
        steps = np.diff(counts, prepend=0)
        usual = int(np.median(np.abs(steps))) if len(steps) else 0
        new = (np.diff(epoch, prepend=0) != 0) | ((steps < -2 * usual) & (counts <= usual + 1))
        del steps  # there may be millions of rows
        new[:1] = True
        place = np.cumsum(new)  # the index of each row's epoch, then its place in the whole run
        place *= int(total.max(initial=0)) + 2
        place += counts
        rows = first_occurrences(place)
        place -= counts
        begins = np.flatnonzero(np.diff(place[rows], prepend=0))
        del place
        first = rows[begins]
        numbers, totals = epoch[first].astype(np.int64), total[first].astype(np.int64)
        process = np.diff(numbers, prepend=np.iinfo(np.int64).max) <= 0
        own = as_slice(rows)
        return cls(rows.astype(np.int32), line[own], counts[own], begins, numbers, totals, process)

    @property
    def lengths(self) -> Ints:
        return np.diff(self.begins, append=len(self.rows))

    @property
    def covers(self) -> Ints:
        """Steps since the previous row, or since the epoch began."""
        covers = np.diff(self.done, prepend=0)
        covers[self.begins] = self.done[self.begins]
        return covers

    def without_first_steps(self) -> tuple[Epochs, np.ndarray]:
        """Drops the first step of later epochs, which starts the loader again: it becomes part of the next row."""
        single = (self.done[self.begins] == 1) & ~self.process & (self.lengths > 1)
        kept = np.ones(len(self.rows), bool)
        kept[self.begins[single]] = False
        begins = self.begins - np.cumsum(single) + single
        return self._replace(rows=self.rows[kept], line=self.line[kept], done=self.done[kept], begins=begins), kept

    def differences(self, elapsed_s: Floats) -> Floats:
        """The mean step time of each row, from the seconds since its epoch began."""
        spent = np.diff(elapsed_s, prepend=0.0)
        spent[self.begins] = elapsed_s[self.begins]
        np.maximum(spent, 0.0, out=spent)
        spent /= self.covers
        return np.asarray(spent)

    def numbers(self, records: Records) -> Ints:
        """Steps done since the training began; a later process continues the count according to its epochs."""
        resumed = [event.line for event in records.events if isinstance(event, Fact) and event.name == RESUMED]
        offsets, offset = np.zeros(len(self.begins), np.int64), 0
        for lap, (epoch, total, begun) in enumerate(
            zip(self.epoch.tolist(), self.total.tolist(), self.process.tolist(), strict=True)
        ):
            if begun:
                line = int(self.line[self.begins[lap]])
                above = int(self.line[self.begins[lap] - 1]) if lap else -1
                # Some count epochs from 1: a log does if it begins with epoch 1 and was not resumed.
                from_one = epoch == 1 and not any(above < each < line for each in resumed)
                offset = (epoch - from_one) * total
            else:
                offset += (epoch - int(self.epoch[lap - 1])) * int(self.total[lap - 1])
            offsets[lap] = min(max(offset, -LARGEST_KEPT - 1), LARGEST_KEPT + 1)  # out of bounds: the step is left out
        return self.done + repeated(offsets, self.lengths)


def plan_epochs(found: dict[str, Floats], lines: Ints, records: Records) -> None:
    """Adds the number of planned epochs at each line where it differs from the line before."""
    last = found.get("last_epoch", np.empty(0))
    for row in np.flatnonzero(np.diff(last, prepend=-1)).tolist():
        records.events.append(Fact(line=int(lines[row]), name=EPOCHS, value=int(last[row])))


def add_epochs(
    epochs: Epochs,
    times: Floats,
    data: Floats,
    loss: Floats,
    stamps: Floats,
    passes: Sequence[EvaluationSpan],
    records: Records,
) -> None:
    """Adds rows, their wait for data, evaluations, and the planned length of the training."""
    if not len(epochs.rows):
        return
    numbers = epochs.numbers(records)
    records.add_rows(line=epochs.line, number=numbers, time_s=times, loss=loss, stamp_s=stamps)
    known = np.isfinite(data)
    records.keep(INSIDE, epochs.line[known], np.clip(data[known], 0.0, times[known]), np.nan)
    merged: dict[int, Evaluation] = {}
    for begin, _, took in passes:
        row = int(np.searchsorted(epochs.line, begin)) - 1
        at = int(numbers[row]) if row >= 0 else int(numbers[0] - epochs.covers[0])
        before = merged.get(row)
        costs = [each for each in (before.took_s if before else None, took) if each is not None]
        merged[row] = Evaluation(before.line if before else begin, at, took_s=sum(costs) if costs else None)
    records.events += merged.values()
    planned = [event for event in records.events if isinstance(event, Fact) and event.name == EPOCHS]
    planned.sort(key=LINE_OF)
    processes = np.flatnonzero(epochs.process)
    ends = [*epochs.line[epochs.begins[processes[1:]]].tolist(), math.inf]
    for lap, end in zip(processes.tolist(), ends, strict=True):
        row = int(epochs.begins[lap])
        line = int(epochs.line[row])
        if lap or epochs.done[row] <= median(
            epochs.covers.astype(np.float64)
        ):  # a log that begins in mid-epoch shows no start
            records.events.append(Fact(line=line, name="process", value=line, header=True))
        count = bisect_left(planned, end, key=LINE_OF)
        length = float(planned[count - 1].value) if count else 0.0
        if length > 0:
            records.events.append(Fact(line=line, name="max_iters", value=int(length * epochs.total[lap])))
