"""Which numbers of lines that an example describes are those of iterations, and which of their epochs."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from stepwatch.readers.formats.running import median
from stepwatch.readers.records import LARGEST_KEPT, Records
from stepwatch.run import Checkpoint, Evaluation, Floats, Iterations


class Counted(NamedTuple):
    """The numbers of the iterations and of their epochs, and their ends; nan where the lines have none."""

    number: Floats
    last: Floats
    epoch: Floats
    epochs: Floats
    of_epochs: bool = False
    """The numbers are those of epochs: the lines have no other."""

    def take(self, rows: np.ndarray) -> Counted:
        number, last, epoch, epochs = (column[rows] for column in self[:4])
        return Counted(number, last, epoch, epochs, self.of_epochs)

    def counts(self) -> bool:
        """Whether numbers count up: they fall only with a new epoch, back to where they began, or hardly ever."""
        number = self.number[np.isfinite(self.number)]
        if len(number) < 3 or len(number) < len(self.number):
            return len(number) < 3 or self.take(np.isfinite(self.number)).counts()
        steps, begun = np.diff(number), np.diff(self.epoch) > 0
        moved = (steps != 0) | (begun & np.isfinite(self.last[1:]))
        begins = number[1:] <= number.min() + 0.1 * np.ptp(number)
        astray = (steps < 0) & ~begun & ~begins
        return bool(moved.any()) and bool(astray.sum() <= 1 + 0.05 * moved.sum())

    def is_nested(self) -> bool:
        """Whether the numbers are those within the epochs, not of something else: they move more often, or are full."""
        full = bool((self.number == self.last).all())
        return full or (np.diff(self.number) != 0).sum() > 2 * (np.diff(self.epoch) != 0).sum()


def counted(numbers: np.ndarray, lasts: np.ndarray, epoch: Floats, epochs: Floats) -> Counted | None:
    """Which of the numbers counts the iterations, and which its epochs; None where none does."""
    pairs = [Counted(number, last, epoch, epochs) for number, last in zip(numbers, lasts, strict=True)]
    pairs = [pair for pair in pairs if np.isfinite(pair.number).mean() > 0.5]
    found = next((pair for pair in pairs if pair.counts()), None)
    if found is None and np.isfinite(epoch).all():
        unknown = np.full(len(epoch), np.nan)
        found = Counted(epoch, epochs, unknown, unknown, of_epochs=True)
    if found is None or not found.counts():
        return None
    # As in `3/50 … 140/500`, where the second counts within the first; a line at the end has `500/500`.
    inner = [Counted(pair.number, pair.last, found.number, found.last) for pair in pairs if pair is not found]
    inner = [pair for pair in inner if np.isfinite(pair.last).all() and np.isfinite(pair.epochs).all()]
    nested = (pair for pair in inner if np.isnan(epoch).all() and pair.counts() and pair.is_nested())
    return next(nested, found)


def through_epochs(rows: Iterations, records: Records, found: Counted) -> tuple[Iterations, float]:
    """Numbers that go on where an epoch begins its own, and the length of the run where that is known."""
    epoch, epochs = found.epoch, float(found.epochs[-1])
    step, end = np.diff(epoch), float(found.last[-1])
    if ((step > 0) & (np.diff(rows.number) <= 0)).any():
        if not np.isfinite(end):  # by the numbers in it: counted from 0, its last line is not its end
            gaps = np.diff(np.unique(rows.number)).astype(np.float64)
            end = float(rows.number.max() + (median(gaps) if len(gaps) and rows.number.min() == 0 else 0))
        base = min(float(np.nanmin(epoch)), 1.0)  # counted from 0 or from 1
        before = np.clip(np.nan_to_num((epoch - base) * end), 0, LARGEST_KEPT)
        rows = replace(rows, number=rows.number + before.astype(np.int64))
        events = records.sorted_events()
        records.unplaced += [event for event in events if isinstance(event, (Evaluation, Checkpoint))]
        records.events = [event for event in events if not isinstance(event, (Evaluation, Checkpoint))]
        end *= epochs
    elif np.isfinite(epoch[-1]) and not (step > 0).any():
        end = end if epochs == 1 else np.nan  # of the only epoch there is, or of each
    return rows, end
