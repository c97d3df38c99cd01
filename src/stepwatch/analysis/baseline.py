"""What a normal iteration takes around each row: a baseline that follows regimes, and the noise about it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepwatch.analysis.statistics import median, running_median, spread
from stepwatch.run import Floats, Ints, Iterations, Run

WINDOW = 51  # rows; a slow spell shorter than half of it is a burst of slow iterations, a longer one a regime
PRINTED_STEP_S = 1e-5  # nanoGPT prints hundredths of a millisecond


class Baseline(NamedTuple):
    """The normal time at every row, and the relative noise of normal rows around it."""

    time_s: Floats
    noise: float

    def ratio(self, iterations: Iterations) -> Floats:
        return iterations.time_s / self.time_s


def last_digit_s(run: Run, covers: Ints) -> float:
    """What the last printed digit is worth in the time of a step: two times that are no further apart may be equal."""
    times = run.iterations.time_s
    if not run.traits.rounds_times or not len(times):
        return PRINTED_STEP_S
    # An epoch has whole seconds, a step below one has whole milliseconds: the finer one counts, where it is printed.
    totals, steps = times * covers, 1e3 * times
    whole, in_ms = (bool((np.abs(shown - np.rint(shown)) < 1e-6).all()) for shown in (totals, steps))
    of_epoch = 1 / median(covers)
    return of_epoch if median(times) >= 1 or (whole and not in_ms) else min(of_epoch, 1e-3)


def baseline_of(iterations: Iterations, normal: np.ndarray, digit_s: float = PRINTED_STEP_S) -> Baseline | None:
    """From the rows that may be normal; None where there are none."""
    if not normal.any():
        return None
    times = np.maximum(iterations.time_s[normal], PRINTED_STEP_S / 2)
    local = running_median(times, WINDOW)
    everywhere = spread_over(local, normal)
    usual = median(times)
    rounding = 0.3 * digit_s / usual  # of a digit, as a standard deviation
    return Baseline(time_s=everywhere, noise=max(spread(np.log(times / local)), rounding))


def spread_over(values: Floats, rows: np.ndarray) -> Floats:
    """Values of some rows, carried over to the rows between them."""
    if rows.all():
        return values
    everywhere = np.empty(len(rows))
    everywhere[rows] = values
    others = np.flatnonzero(~rows)
    everywhere[others] = np.interp(others, np.flatnonzero(rows), values)
    return everywhere
