"""What a normal iteration takes around each row: a baseline that follows regimes, and the noise about it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepwatch.analysis.statistics import median, running_median, spread
from stepwatch.run import Floats, Iterations

WINDOW = 51  # rows; a slow spell shorter than half of it is a burst of slow iterations, a longer one a regime
PRINTED_STEP_S = 1e-5  # nanoGPT prints hundredths of a millisecond


class Baseline(NamedTuple):
    """The normal time at every row, and the relative noise of normal rows around it."""

    time_s: Floats
    noise: float

    def ratio(self, iterations: Iterations) -> Floats:
        return iterations.time_s / self.time_s


def baseline_of(iterations: Iterations, normal: np.ndarray, *, rounded: bool = False) -> Baseline | None:
    """From the rows that may be normal; None where there are none. `rounded` are times below a second to whole ms."""
    if not normal.any():
        return None
    times = np.maximum(iterations.time_s[normal], PRINTED_STEP_S / 2)
    local = running_median(times, WINDOW)
    everywhere = spread_over(local, normal)
    usual = median(times)
    rounding = 0.3 * (1e-3 if rounded and usual < 1 else PRINTED_STEP_S) / usual  # of a digit, as a standard deviation
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
