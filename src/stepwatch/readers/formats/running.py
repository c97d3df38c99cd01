"""Step times from a clock that runs since the start, which progress bars and some logs show instead of a time.

The clock has whole seconds, so the difference of two rows is a poor measure of a short step. tqdm's rate is better: it
is a moving average that can be resolved into its terms. If the log does not have all of these, rows share the mean of a
span that is long compared with the last digit of the clock.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from stepwatch.readers import records
from stepwatch.readers.records import pieces, rows_where
from stepwatch.run import Floats, Ints, repeated

SMOOTHING = 0.3  # tqdm's own
WHOLE_SECONDS = 0.5
_KEPT = 1 - SMOOTHING
_LONG = 100.0  # times the error of a clock: what it shows is then right to two digits
_PRINTED = 0.02  # what the rounding of a rate may hide over a span


def groups(begins: Ints, length: int) -> Iterator[slice]:
    """Slices of about PIECE rows that consist of whole parts, which begin at these rows."""
    edges = np.append(begins, length)
    some = edges[np.searchsorted(edges, np.arange(0, length, records.PIECE))]
    return (slice(*edge) for edge in pairwise(dict.fromkeys([*some.tolist(), length])))


class Clock(NamedTuple):
    """Rows of one process: rising numbers, and the seconds since its start at each."""

    number: Ints
    elapsed_s: Floats
    error_s: Floats
    rate_s: Floats
    """tqdm's smoothed seconds per step, or nan."""
    done: int
    """Iterations that the process has done at the first row; 0 if the log does not begin with it."""

    @property
    def covers(self) -> Ints:
        """Iterations that each row's time covers."""
        covers = np.empty_like(self.number)
        covers[:1] = max(self.done, 1)
        np.subtract(self.number[1:], self.number[:-1], out=covers[1:])
        return covers


class EpochClocks(NamedTuple):
    """Rows of many clocks, one after the other: those of a run's epochs."""

    number: Ints
    elapsed_s: Floats
    error_s: Floats
    begins: Ints
    """The first row of each clock."""
    done: Ints
    """Iterations that each clock has done at its first row; 0 if its beginning is not in the log."""

    @property
    def lengths(self) -> Ints:
        return np.diff(self.begins, append=len(self.number))

    @property
    def covers(self) -> Ints:
        """As in Clock."""
        covers = np.diff(self.number, prepend=0)
        covers[self.begins] = np.maximum(self.done, 1)
        return covers


class Pause(NamedTuple):
    """An evaluation or a save between two steps, after iteration `at`, and what it took, if known."""

    at: int
    took_s: float | None


def step_times(clock: Clock, pauses: Sequence[Pause]) -> tuple[Floats, list[float | None]]:
    """The mean time of an iteration in each row, without pauses, and what each pause took."""
    if not len(clock.number):
        return np.zeros(0), [pause.took_s for pause in pauses]
    rows = _rows_with(clock, pauses)
    fixed = {row + i for row in rows.tolist() for i in (-1, 0)}  # rows with a pause are not averaged with others
    times = _from_updates(clock, fixed, np.unique(rows) - 1)
    if times is None:  # differences over spans that are long enough
        times = _differences(clock.number, clock.elapsed_s, clock.error_s, fixed)
        times[0] = _first(clock, times)
    return _without_pauses(clock, times, pauses, rows.tolist())


def _rows_with(clock: Clock, pauses: Sequence[Pause]) -> Ints:
    """The row whose time includes each pause: the next one, or the bar above the pause if it was drawn afterwards.

    A notebook shows what a pause printed below the bar that followed it. The clock shows this: most of the rows above
    are then longer than usual by their pause, and those below cannot contain it.
    """
    rows = np.searchsorted(clock.number, [pause.at for pause in pauses], side="right")
    costs = np.array([pause.took_s for pause in pauses], np.float64)
    known = np.flatnonzero((costs > 0) & (rows > 1))
    above, half = rows[known] - 1, costs[known] / 2
    inside = rows[known] < len(clock.number)
    if not inside.any():
        return rows
    spent, covers = np.diff(clock.elapsed_s).astype(np.float64), clock.covers[1:]
    np.subtract.at(spent, rows[known][inside] - 1, costs[known][inside])
    excess = np.append(spent - median(spent / covers) * covers, -np.inf)  # no row follows the last one
    behind = (excess[above - 1] > half) & (excess[above] < -half)
    if 2 * np.count_nonzero(behind[inside]) > np.count_nonzero(inside):
        rows[known[behind]] -= 1
    return np.asarray(rows)


def lap_times(laps: EpochClocks, pauses: Sequence[int] | Ints = (), took_s: Sequence[float] | Floats = ()) -> Floats:
    """Like step_times(), for many clocks; a pause is given by the row that precedes it, and what it took."""
    paused = np.asarray(pauses, np.int64)
    longest = np.maximum.reduceat(laps.elapsed_s, laps.begins)
    offsets = np.cumsum(longest) - longest  # as one continuous clock
    begins, ends = laps.begins, laps.begins + laps.lengths
    times, apart = np.empty(len(laps.number)), np.zeros(len(laps.number) + 1, bool)
    apart[begins] = apart[paused + 1] = True
    fixed = np.flatnonzero(apart | np.append(apart[1:], False))
    for rows in groups(begins, len(times)):
        some = slice(*np.searchsorted(begins, (rows.start, rows.stop)))
        elapsed = laps.elapsed_s[rows] + repeated(offsets[some], laps.lengths[some])
        first, last = np.searchsorted(fixed, (rows.start, rows.stop))
        ends_of_spans = set((fixed[first:last] - rows.start).tolist())
        times[rows] = _differences(laps.number[rows], elapsed, laps.error_s[rows], ends_of_spans)
    times[begins] = laps.elapsed_s[begins] / np.where(laps.done > 0, laps.done, laps.number[begins])
    for lap in np.flatnonzero((laps.done == 0) & (laps.lengths > 1)).tolist():
        times[begins[lap]] = median(times[begins[lap] + 1 : ends[lap]])
    # A first row too early for its clock shares a mean with later rows; the run's first row shows the start instead.
    early = laps.elapsed_s[begins] < _LONG * laps.error_s[begins]
    for lap in np.flatnonzero(early & (laps.done > 0) & (laps.lengths > 1) & (begins > 0)).tolist():
        rows = slice(int(begins[lap]), int(ends[lap]))
        far = laps.elapsed_s[rows] >= _LONG * laps.error_s[rows]
        row = rows.start + (int(np.argmax(far)) if far.any() else len(far) - 1)
        if not apart[row]:
            times[rows.start : row + 1] = laps.elapsed_s[row] / laps.number[row]
    # Few steps after a first row with most of them, taking less than the clock shows: only the mean of all is known.
    last = ends - 1
    unseen = laps.elapsed_s[last] - laps.elapsed_s[begins] <= laps.error_s[last] + laps.error_s[begins]
    for lap in np.flatnonzero((2 * laps.done > laps.number[last]) & unseen).tolist():
        times[begins[lap] : ends[lap]] = laps.elapsed_s[last[lap]] / laps.number[last[lap]]
    lap_of = np.searchsorted(begins, paused, side="right") - 1
    inside: dict[int, list[Pause]] = {}
    for i in np.flatnonzero(paused + 1 < ends[lap_of]).tolist():
        inside.setdefault(int(lap_of[i]), []).append(Pause(int(paused[i]), float(took_s[i])))
    for lap, own in inside.items():
        rows = slice(begins[lap], ends[lap])
        clock = Clock(laps.number[rows], laps.elapsed_s[rows], laps.error_s[rows], np.empty(0), int(laps.done[lap]))
        times[rows], _ = _without_pauses(clock, times[rows], own, [pause.at + 1 - int(begins[lap]) for pause in own])
    return times


def _without_pauses(
    clock: Clock, times: Floats, pauses: Sequence[Pause], rows: list[int]
) -> tuple[Floats, list[float | None]]:
    if not any(0 < row < len(times) for row in rows):
        return np.maximum(times, 0.0, out=times), [pause.took_s for pause in pauses]
    covers = clock.covers
    spent = times * covers
    took = [pause.took_s for pause in pauses]
    places, costs = np.array(rows, np.int64), np.array(took, np.float64)  # nan if unknown
    known = ~np.isnan(costs) & (places > 0) & (places < len(spent))
    np.subtract.at(spent, places[known], costs[known])
    # The usual time without pauses, as each row may have one; with them if they took more than there is.
    left = spent / covers
    usual, whole = (median(each[1:]) if len(each) > 2 else float(each[-1]) for each in (left, times))
    usual = usual if usual > 0 else whole
    least = 0.5 * usual * covers  # at least this much of a row is left after an evaluation
    spent = np.where(spent < np.minimum(least, times * covers), usual * covers, spent)
    for i in np.flatnonzero(np.isnan(costs)).tolist():
        row = rows[i]
        if 0 < row < len(spent) and len(times) > 2:
            took[i] = max(float(spent[row] - usual * covers[row]), 0.0)
            spent[row] -= took[i] or 0.0
    return np.maximum(spent / covers, 0.0), took


def _from_updates(clock: Clock, fixed: set[int], paused: Ints) -> Floats | None:
    """Times from the rate, ignoring bars that were only redrawn because a pause printed: they are not part of it."""
    last = len(clock.number) - 1
    before = paused[(paused > 0) & (paused < last)]
    same = clock.rate_s[before] == clock.rate_s[before - 1]
    goes_on = clock.rate_s[before] != clock.rate_s[before + 1]
    drawn = before[same & goes_on]
    drawn = drawn[np.diff(drawn, prepend=-1) > 1]
    # They are of fewer steps than an update; other rows have the same rate because it has few digits.
    if len(drawn):
        drawn = drawn[clock.covers[drawn] < median(clock.covers.astype(np.float64))]
    ended = before[~goes_on & (before == last - 1)] + 1  # the last row, which no step follows
    if not len(drawn) and not len(ended):
        return _from_rate(clock, fixed)
    kept = np.setdiff1d(np.arange(last + 1), np.append(drawn, ended))
    updates = Clock(clock.number[kept], clock.elapsed_s[kept], clock.error_s[kept], clock.rate_s[kept], clock.done)
    times = _from_rate(updates, set((np.searchsorted(kept, sorted(fixed), side="right") - 1).tolist()))
    if times is None:
        return _from_rate(clock, fixed)
    spent = clock.rate_s * clock.covers  # of redrawn bars, up to the pause
    spent[kept] = times * updates.covers
    spent[drawn + 1] -= spent[drawn]
    spent[ended] = clock.elapsed_s[ended] - clock.elapsed_s[ended - 1]
    return np.asarray(spent / clock.covers)


def _from_rate(clock: Clock, fixed: set[int]) -> Floats | None:
    """Resolves tqdm's average into its terms; None if the clock shows that the log lacks some of them."""
    stands = len(clock.number) == 2 and clock.elapsed_s[0] == clock.elapsed_s[1]  # then only the rate shows the time
    if np.isnan(clock.rate_s).any() or (len(clock.number) < 3 and not stands):
        return None
    averages = _averages(clock)
    spent = np.empty(len(averages))
    spent[0] = averages[0] - _KEPT * (0.0 if clock.done else averages[0])
    np.multiply(averages[:-1], _KEPT, out=spent[1:])
    np.subtract(averages[1:], spent[1:], out=spent[1:])
    del averages  # there may be millions of rows
    spent /= SMOOTHING
    np.maximum(spent, 0.0, out=spent)
    # The two clocks differ by at most the seconds that one of them does not show, except in one block out of ten.
    apart = np.cumsum(spent)
    apart -= clock.elapsed_s
    span = float(clock.elapsed_s[-1] - clock.elapsed_s[0])
    if abs(float(apart[-1] - apart[0])) > 1.5 + _PRINTED * span:
        return None
    starts = np.arange(0, len(apart), 50)
    spread = np.maximum.reduceat(apart, starts) - np.minimum.reduceat(apart, starts)
    del apart
    spans = np.diff(np.append(clock.elapsed_s[starts], clock.elapsed_s[-1]))
    parted = spread > 1.2 + _PRINTED * spans
    if float(parted.mean()) > 0.1:
        return None
    by_rate = repeated(~parted, np.diff(np.append(starts, len(spent))))
    by_rate[0] = True
    if parted.any():  # after a resume, the average includes skipped steps for a while: use the clock there
        by_clock = _differences(clock.number, clock.elapsed_s, clock.error_s, fixed.union(starts.tolist()))
        spent = np.where(by_rate, spent, by_clock * clock.covers)
        span -= float(spent[~by_rate].sum())
    by_rate[0] = False
    sum_of_parts = float(spent[by_rate].sum())
    if span > 2 / _PRINTED and sum_of_parts > 0:
        spent[by_rate] *= span / sum_of_parts
    spent /= clock.covers
    return spent


def _averages(clock: Clock) -> Floats:
    """tqdm's average of the seconds between two draws: its rate times its average of the steps between them."""
    drawn = clock.covers.astype(np.float64)
    if clock.done:
        drawn[0] = clock.number[0]  # a resumed bar jumps to its position, which tqdm counts as steps
        counts = _smoothed(drawn, SMOOTHING * float(drawn[0]))
    else:
        drawn[0] = drawn[1:].mean()
        counts = _smoothed(drawn, float(drawn[0]))
    counts *= clock.rate_s
    return counts


def _smoothed(values: Floats, first: float) -> Floats:
    """The moving average of all values after the first, whose average is given."""
    if (values[1:] == values[1]).all():
        average = np.zeros(len(values))
        average[:3000] = _KEPT ** np.arange(min(len(values), 3000))  # a float holds no more terms
        average *= first - values[1]
        average += values[1]
        return average
    later = accumulate(values[1:].tolist(), lambda average, x: SMOOTHING * x + _KEPT * average, initial=first)
    return np.array(list(later))


def _differences(number: Ints, elapsed_s: Floats, error_s: Floats, fixed: set[int]) -> Floats:
    """Mean times between rows whose span is long compared with the errors of its ends; fixed rows end a span."""
    back = len(rows_where(np.less, elapsed_s[1:], elapsed_s[:-1]))
    elapsed = np.maximum.accumulate(elapsed_s) if back else elapsed_s  # no copy of millions of rows
    long_enough = error_s * -_LONG
    long_enough += elapsed
    np.maximum.accumulate(long_enough, out=long_enough)
    followed = np.empty(len(elapsed), np.int32)
    for rows in pieces(len(elapsed)):
        followed[rows] = np.maximum(np.searchsorted(long_enough, elapsed[rows]), np.arange(rows.start, rows.stop) + 1)
    del long_enough
    following = followed.data  # Python numbers without a list of them
    last = len(elapsed) - 1
    anchors = array("i", [0])
    for goal in (*(row for row in sorted(fixed) if 0 < row < last), last):
        begun = len(anchors)
        while anchors[-1] < goal:
            anchors.append(following[anchors[-1]] if following[anchors[-1]] < goal else goal)
        if len(anchors) > begun + 1 and following[anchors[-2]] > goal:  # too short: join it to the previous span
            del anchors[-2]
    del followed, following
    ends = np.frombuffer(anchors, np.int32)
    times = np.empty(len(elapsed))
    times[0] = np.nan
    for spans in pieces(len(ends) - 1):
        own = ends[spans.start : spans.stop + 1]
        steps = np.maximum(np.diff(number[own]), 1)  # where another clock begins, it is not a difference
        times[own[0] + 1 : own[-1] + 1] = repeated(np.diff(elapsed[own]) / steps, np.diff(own))
    return times


def _first(clock: Clock, times: Floats) -> float:
    """The time of the first row: since the start, by the finer of its two figures; else like the other rows."""
    if not clock.done and len(times) > 1:
        return median(times[1:])
    number, elapsed, rate = max(clock.done, int(clock.number[0])), float(clock.elapsed_s[0]), float(clock.rate_s[0])
    if abs(rate * number - elapsed) <= 1.0:
        return rate * number / max(clock.done, 1) if clock.done else rate
    return elapsed / max(clock.done or number, 1)


def median(values: Floats) -> float:
    """Same as np.median, which would load numpy's masked arrays."""
    middle = len(values) // 2
    ordered = np.sort(values)
    return float(ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2)


def processes(number: Ints, elapsed_s: Floats, announced: Sequence[int] = ()) -> list[slice]:
    """The rows of each process: another begins where the clock starts again, and at announced rows.

    Two processes that write into one file have slightly different clocks: these go back too, but not to the start.
    """
    back = (np.diff(elapsed_s) < -1.0) & (np.diff(number) <= 0)
    # Less than half of the clock before: it has just started, even if the process resumes from a checkpoint.
    anew = (elapsed_s[1:] < 0.5 * elapsed_s[:-1]) | (number[1:] <= number[:1])
    again = np.flatnonzero(back & anew) + 1
    edges = sorted({0, *again.tolist(), *announced, len(number)})
    return [slice(a, b) for a, b in pairwise(edges)]


def first_occurrences(number: Ints) -> Ints:
    """The rows at which a rising number is new: bars are redrawn many times."""
    new = np.empty(len(number), bool)
    new[:1] = number[:1] > 0
    np.greater(number[1:], np.maximum.accumulate(number)[:-1], out=new[1:])
    return np.flatnonzero(new)


def as_slice(rows: Ints) -> Ints | slice:
    """The rows, as a slice if they are consecutive: indexing a column with it makes no copy."""
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1:
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def at_lines(lines: Ints | Floats, known: Ints | Floats, values: Floats) -> Floats:
    """Values that are known at some lines, for these lines; nan if missing."""
    if not len(known) or (values.strides == (0,) and np.isnan(values[0])):  # unknown in all rows
        return np.broadcast_to(np.nan, len(lines))  # takes no memory
    if len(known) == len(lines) and bool((known == lines).all()) and bool((known[1:] > known[:-1]).all()):
        return values if values.dtype.kind == "f" else values.astype(np.float64)
    places = np.minimum(np.searchsorted(known, lines), len(known) - 1)
    return np.where(known[places] == lines, values[places], np.nan)
