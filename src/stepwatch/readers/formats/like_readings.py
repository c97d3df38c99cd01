"""What the columns of numbers and times mean in lines that are described by an example.

Which numbers are those of iterations, and which of epochs. Whether a time is that of an iteration, of all iterations
since the previous line, or a running clock.

One line cannot show this, but all lines can. A column that never falls is a clock, one that only falls is the time
left. If lines have a timestamp, or a second column of times, the reading that agrees with it is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from stepwatch.readers.formats.like_claims import Claim
from stepwatch.readers.formats.running import WHOLE_SECONDS, Clock, median, step_times
from stepwatch.readers.records import LARGEST_KEPT, Records
from stepwatch.run import Checkpoint, Evaluation, Floats, Ints, Iterations
from stepwatch.run.more import TimeMeaning
from stepwatch.units import DAY_S, MILLI

_NEAR = 1.25  # how much two figures of the same thing differ, one with pauses and one without
_LONGEST_RUN_S = 366 * DAY_S  # nobody waits longer
_WITNESS = 5  # the weight of agreement, next to the weights of the words (like_claims.py)


# --- the numbers ------------------------------------------------------------------------------------------------------


class Counted(NamedTuple):
    """The numbers of the iterations and of their epochs, and their ends; nan if the lines have none."""

    number: Floats
    last: Floats
    epoch: Floats
    epochs: Floats
    of_epochs: bool = False
    """Whether the numbers are those of epochs, because the lines have no others."""

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
        """Whether the numbers count within the epochs: they change more often, or equal their end."""
        full = bool((self.number == self.last).all())
        return full or (np.diff(self.number) != 0).sum() > 2 * (np.diff(self.epoch) != 0).sum()


def counted(numbers: np.ndarray, lasts: np.ndarray, epoch: Floats, epochs: Floats) -> Counted | None:
    """Which of the numbers counts the iterations, and which the epochs; None if none does."""
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
    """Numbers that continue where an epoch restarts its own, and the length of the run if it is known."""
    epoch, epochs = found.epoch, float(found.epochs[-1])
    step, end = np.diff(epoch), float(found.last[-1])
    if ((step > 0) & (np.diff(rows.number) <= 0)).any():
        if not np.isfinite(end):  # by the numbers in it: if they count from 0, the last line is not the end
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
        end = end if epochs == 1 else np.nan  # of the only epoch, or of each
    return rows, end


# --- the times --------------------------------------------------------------------------------------------------------


class TimeColumn(NamedTuple):
    """The times at one place of all lines, in seconds."""

    claim: Claim
    values: Floats
    error_s: float
    """Half of the last digit."""


class Reading(NamedTuple):
    """One interpretation of the times."""

    meaning: TimeMeaning
    column: int | None
    """None for the clock in front of the lines."""
    scale: float
    """Not 1 if no unit is printed, and it cannot be seconds."""
    score: float
    usual: tuple[float, float]
    """The time of an iteration by this reading, without and with what happens between iterations."""

    def agrees(self, clock: Reading) -> bool:
        """Whether the steps fit into the time of the clock without leaving most of it empty."""
        # Evaluations and saves between two lines may take five times as long as the steps, rarely more.
        least = _NEAR if self.meaning != "step" else 5.0
        return clock.usual[0] / least <= self.usual[0] <= clock.usual[1] * _NEAR


class Rows(NamedTuple):
    """The lines of the example's shape."""

    number: Ints
    inside: Floats
    """Numbers as printed, which may restart in each epoch."""
    epoch: Floats
    stamps: Floats
    length: float
    """Iterations of the run, as far as they are known."""

    @property
    def done(self) -> Floats:
        """How many iterations a mean covers, whether they are counted from 0 or from 1."""
        return np.asarray(self.inside + (self.inside.min() == 0))

    def of(self, kept: np.ndarray) -> Rows:
        return self._replace(**{name: getattr(self, name)[kept] for name in ("number", "inside", "epoch", "stamps")})

    def parts(self, values: Floats) -> list[slice]:
        """The parts between restarts of these values: at a falling number, a new epoch, or a timer that was reset."""
        step = np.diff(values)
        cut = (np.diff(self.number) <= 0) | ((np.diff(self.epoch) > 0) & (step < 0))
        back = (step < 0) & ~cut
        reset = back & (values[1:] < 0.5 * values[:-1])
        if back.sum() == reset.sum() <= 0.02 * len(values):
            cut |= reset
        return [slice(*edges) for edges in pairwise([0, *(np.flatnonzero(cut) + 1).tolist(), len(values)])]

    def covers(self) -> Floats:
        """Iterations since the previous line; for a first line, the usual number."""
        gaps = np.diff(self.number).astype(np.float64)
        rising = gaps[gaps > 0]
        usual = median(rising) if len(rising) else 1.0
        return np.concatenate(([usual], np.where(gaps > 0, gaps, usual)))


def chosen(rows: Rows, columns: Sequence[TimeColumn]) -> tuple[Reading | None, bool]:
    """The reading with the most evidence, or None; and whether another one is as good."""
    found = [reading for place, column in enumerate(columns) for reading in _readings(rows, place, column)]
    clock = _clock(rows)
    if clock is None:  # a running time is as good as one
        running = [each for each in found if each.meaning == "elapsed" and each.score > 0]
        clock = max(running, key=lambda each: each.score, default=None)
    else:
        found.append(clock)
    judged = []
    for reading in found:
        others = [each for each in found if each.column != reading.column]
        if clock is None or clock.column == reading.column:
            agrees = any(
                reading.agrees(each) and each.agrees(reading)
                for each in others
                if (each.meaning == "elapsed") != (reading.meaning == "elapsed")
            )
            score = _WITNESS * agrees if reading.column is not None else 0
        else:
            score = _WITNESS if reading.agrees(clock) else -_WITNESS
        sure = clock is not None and score > 0
        if not sure and (reading.meaning == "interval" or (reading.scale != 1.0 and reading.score < 0)):
            continue  # only a clock can prove it
        judged.append(reading._replace(score=reading.score + score))
    judged = [each for each in judged if each.score > -_WITNESS]
    if not judged:
        return None, False
    best = max(judged, key=lambda each: each.score)
    rivals = [each for each in judged if each.score >= best.score - 1]
    steps = [each for each in rivals if each.meaning == best.meaning == "step"]
    differ = any(max(each.usual[0], best.usual[0]) > _NEAR * min(each.usual[0], best.usual[0]) for each in steps)
    return best, clock is None and differ


def times_of(rows: Rows, columns: Sequence[TimeColumn], reading: Reading) -> Floats:
    """The time of an iteration in each row; nan if it is unknown."""
    if reading.column is None:
        values = rows.stamps
        error_s = WHOLE_SECONDS if bool((values[np.isfinite(values)] % 1 == 0).all()) else 0.0
    else:
        values, error_s = columns[reading.column].values * reading.scale, columns[reading.column].error_s
    if reading.meaning == "step":
        return np.where(values > 0, values, np.nan)
    if reading.meaning == "interval":
        return np.where(values > 0, values, np.nan) / rows.covers()
    known = np.flatnonzero(np.isfinite(values))
    kept, values = rows.of(known), values[known]
    errors = np.full(len(values), error_s)
    if reading.meaning == "mean":
        values, errors = values * kept.done, errors * kept.done
    times = np.full(len(rows.number), np.nan)
    for part in kept.parts(values):
        times[known[part]] = _differences(kept, part, values, errors, since_start=reading.column is not None)
    return times


def counts_down(rows: Rows, column: TimeColumn) -> bool:
    """Whether the times are the time left: they hardly ever rise, and fall to less than half."""
    known = np.isfinite(column.values)
    values = column.values[known]
    if len(values) < 6:
        return False
    steps = np.diff(values)[np.diff(rows.number[known]) > 0]
    changes = steps[steps != 0]
    return len(changes) >= 5 and float((changes < 0).mean()) >= 0.9 and bool(values[-1] <= 0.5 * values[0])


def _readings(rows: Rows, place: int, column: TimeColumn) -> Iterator[Reading]:
    """The possible interpretations of a column, regardless of the others."""
    claim = column.claim
    known = np.isfinite(column.values)
    kept, values = rows.of(known), column.values[known]
    if not len(values) or not (values > 0).any() or counts_down(rows, column):
        return
    rises, longest, parts = _rises(kept, values)
    grown = float(longest[-1] / longest[0]) if longest[0] > 0 else np.inf
    # A clock never falls, in more lines than chance would allow: a hundred, or eight in which it grows threefold. Fewer
    # are enough if a word says so.
    if claim.runs:
        runs = rises and len(longest) >= (3 if grown >= 1.5 else 6)
    else:
        grows = (len(longest) >= 8 and grown >= 3) or len(longest) >= 100
        runs = rises and grows and not claim.each and not claim.is_mean
    usual = _usual(kept, values, parts)
    if rises and not claim.each and not claim.is_mean and usual is not None:
        yield Reading("elapsed", place, 1.0, 2.5 if runs else -1.0, usual)
    if runs:
        return
    if claim.is_mean and len(values) >= 3:
        elapsed = values * kept.done
        rises, _, parts = _rises(kept, elapsed)
        usual = _usual(kept, elapsed, parts)
        if rises and usual is not None:  # single steps, far apart, show less than the mean of all
            score = claim.weight + (4.5 if median(kept.covers()) > 1 else 0.5)
            yield Reading("mean", place, 1.0, score, usual)
    middle = median(values[values > 0])
    covers = median(kept.covers())
    for scale in (1.0, MILLI) if not claim.unit else (1.0,):
        step = middle * scale
        score = float(claim.weight)
        if scale != 1.0:  # seconds, unless no run takes that long
            score = score - 1 if middle * rows.length > _LONGEST_RUN_S else -1.0
        if step * rows.length <= _LONGEST_RUN_S:
            yield Reading("step", place, scale, score, (step, step))
        if covers > 1 and not claim.each and not claim.is_mean:
            yield Reading("interval", place, scale, score - 1, (step / covers, step / covers))


def _rises(rows: Rows, values: Floats) -> tuple[bool, Floats, list[slice]]:
    """Whether values fall only where they restart, the longest stretch between restarts, and all stretches."""
    parts = rows.parts(values)
    longest = max((values[part] for part in parts), key=len)
    never_falls = all(bool((np.diff(values[part]) >= 0).all()) for part in parts)
    rises = never_falls and len(longest) >= 3 and longest[-1] > longest[0] and len(parts) <= 0.4 * len(values)
    return bool(rises), longest, parts


def _clock(rows: Rows) -> Reading | None:
    """The reading by the timestamps, if the lines have any."""
    known = np.isfinite(rows.stamps)
    if known.sum() < 3 or known.mean() < 0.9:
        return None
    kept = rows.of(known)
    usual = _usual(kept, kept.stamps, kept.parts(kept.stamps))
    return None if usual is None else Reading("clock", None, 1.0, 0.0, usual)


def _usual(rows: Rows, values: Floats, parts: Sequence[slice]) -> tuple[float, float] | None:
    """The median and the mean time of an iteration by a clock, the shorter first; None if the clock never advances."""
    spans = np.concatenate([np.diff(values[part]) for part in parts])
    covers = np.concatenate([np.diff(rows.number[part]) for part in parts])
    counted = covers > 0
    if not counted.any() or not spans[counted].sum() > 0:
        return None
    mean = float(spans[counted].sum() / covers[counted].sum())
    middle = median(spans[counted] / covers[counted])
    return min(mean, middle) if middle > 0 else mean, max(mean, middle)


def _differences(rows: Rows, part: slice, clock_s: Floats, errors_s: Floats, *, since_start: bool) -> Floats:
    """The mean time of an iteration since the previous line; nan if there is only one line."""
    number, inside, elapsed = rows.number[part], rows.inside[part], clock_s[part]
    if len(number) < 2:
        return np.full(len(number), np.nan)
    done = int(inside[0]) if since_start and 0 < inside[0] <= number[1] - number[0] else 0
    clock = Clock(number, elapsed if done else elapsed - elapsed[0], errors_s[part], np.full(len(number), np.nan), done)
    times = step_times(clock, ())[0]
    return np.where(times > 0, times, np.nan)
