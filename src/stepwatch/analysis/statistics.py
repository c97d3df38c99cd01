"""The few estimators that the analysis needs, robust against the spikes it is looking for; the normal time of a row."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np

from stepwatch.run import Floats, Ints, Iterations, Run
from stepwatch.units import Z90

MEDIAN_ERROR = 1.2533  # standard error of a median over that of a mean, of a normal distribution


def median(values: Floats | Ints) -> float:
    """As np.median, which would load numpy's masked arrays: a sixth of the time that a short log takes."""
    values = np.asarray(values, dtype=np.float64)
    if not len(values):
        return math.nan
    low, high = (len(values) - 1) // 2, len(values) // 2
    ordered = np.partition(values, (low, high, len(values) - 1))  # NaN comes last
    return math.nan if np.isnan(ordered[-1]) else float((ordered[low] + ordered[high]) / 2)


def weighted_median(values: Floats, weights: Ints) -> float:
    """Of values that stand for so many each; as the median where all stand for the same."""
    if (weights == weights[0]).all():
        return median(values)
    order = np.argsort(values)
    return float(values[order][np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)])


def quantile(values: Floats, share: float) -> float:
    """The value below which that share of the values lies."""
    place = min(int(share * len(values)), len(values) - 1)
    return float(np.partition(values, place)[place])


def spread(values: Floats) -> float:
    """Standard deviation from the median absolute deviation: a few stalls do not move it."""
    if len(values) < 2:
        return 0.0
    return 1.4826 * median(np.abs(values - median(values)))  # as of a normal distribution


def t_quantile(degrees: float) -> float:
    """95 % quantile of Student's t (two-sided 90 %): its table first, then an expansion of the normal's 1.645."""
    if degrees < 4:
        table = np.log((6.314, 3.847, 2.920, 2.353, 2.132))
        return float(np.exp(np.interp(max(degrees, 1.0), (1, 1.5, 2, 3, 4), table)))
    z = Z90
    g1 = (z**3 + z) / 4
    g2 = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    g3 = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + g1 / degrees + g2 / degrees**2 + g3 / degrees**3


def running_median(values: Floats, window: int, most_points: int = 2_000) -> Floats:
    """The median of the values around each one; in long series each median stands for a few neighbours."""
    count = len(values)
    window = min(window, count) | 1
    if count <= window:
        return np.full(count, median(values))
    half = window // 2
    stride = max(1, count // most_points)
    windows = np.lib.stride_tricks.sliding_window_view(values, window)[::stride]
    ordered = np.partition(windows, (half, window - 1), axis=-1)  # as in median
    medians = np.where(np.isnan(ordered[:, -1]), np.nan, ordered[:, half])
    inner = np.repeat(medians, stride)[: count - 2 * half]
    return np.concatenate((np.full(half, medians[0]), inner, np.full(half, medians[-1])))


def block_medians(values: Floats, blocks: int) -> Floats:
    """Medians of consecutive blocks of nearly equal size."""
    edges = np.linspace(0, len(values), min(blocks, len(values)) + 1).astype(int)
    return np.array([median(values[a:b]) for a, b in itertools.pairwise(edges)])


def standard_error(values: Floats) -> float:
    """Of the median of a series that may wander: the larger of what independence and its blocks say."""
    count = len(values)
    if count < 2:
        return 0.0
    independent = MEDIAN_ERROR * spread(values) / math.sqrt(count)
    if count < 24:
        return independent
    blocks = block_medians(values, min(24, count // 8))
    return max(independent, float(np.std(blocks, ddof=1)) / math.sqrt(len(blocks)))


# --- what a normal iteration takes around each row --------------------------------------------------------------


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
    times = np.maximum(iterations.time_s[normal], digit_s / 2)  # what is shorter is printed as nothing
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
