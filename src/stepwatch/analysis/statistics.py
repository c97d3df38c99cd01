"""The few estimators that the analysis needs, robust against the spikes it is looking for; the normal time of a row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from stepwatch.platforms import release_pages
from stepwatch.run import Floats, Ints, Iterations, Run
from stepwatch.units import Z90

if TYPE_CHECKING:
    from stepwatch.analysis.long_columns import Series

MEDIAN_ERROR = 1.2533  # standard error of a median over that of a mean, for a normal distribution


PIECE = 1 << 20
"""Rows of a long column that are processed at a time, so that intermediate results do not take memory of its size."""
_WHOLE_PIECES = 4
"""Up to so many pieces, chosen rows are copied: they are then selected only once, however often they are used."""
_SAMPLED, _AROUND = 1 << 16, 0.01

Part = Callable[[slice], Floats]
"""Returns the values of some rows of a column that need not exist as a whole."""
Column: TypeAlias = "Floats | Ints | Series | Levels"
"""Anything that is indexed by rows, whether it exists as a whole or not."""


def pieces(count: int) -> Iterator[slice]:
    """Slices for `count` rows; if there are many, memory of columns that were put aside is released before each."""
    for begin in range(0, count, PIECE):
        if count > PIECE:
            release_pages()
        yield slice(begin, min(begin + PIECE, count))


def every_nth(rows: npt.NDArray[np.bool_], nth: int) -> Ints:
    """Like np.flatnonzero(rows)[::nth]."""
    found, seen = [], 0
    for part in pieces(len(rows)):
        own = part.start + np.flatnonzero(rows[part])
        found.append(own[-seen % nth :: nth].copy())  # a view would keep all of them in memory
        seen += len(own)
    return np.concatenate(found)


def total_s(seconds: Floats) -> float:
    """A sum that does not depend on how many values a processor adds at once: it is the same in a browser."""
    return float(seconds.sum(dtype=np.longdouble))


def series(count: int, part: Part) -> Any:
    """A column as an array if it is short, else as a Series."""
    if count <= PIECE:
        return part(slice(0, count))
    from stepwatch.analysis.long_columns import Series  # most logs are short

    return Series(count, part)


def chosen(column: npt.NDArray[Any] | Levels, rows: npt.NDArray[np.bool_]) -> Any:
    """Like column[rows], but without a copy if most rows of a very long column are chosen, or if it is constant."""
    if isinstance(column, np.ndarray) and column.strides == (0,):
        return np.broadcast_to(column[:1], int(np.count_nonzero(rows))) if len(column) else column
    if len(column) <= _WHOLE_PIECES * PIECE or 4 * np.count_nonzero(rows) < 3 * len(column):
        return column[rows]
    from stepwatch.analysis.long_columns import chosen_of_most

    return chosen_of_most(column, rows)


def median(values: Column, weights: Ints | None = None) -> float:
    """Like np.median, which would load numpy's masked arrays: a sixth of the time that a short log takes.

    With weights, each value counts that many times.
    """
    count = len(values)
    if not count:
        return math.nan
    if weights is not None and (weights != weights[0]).any():
        whole = np.asarray(values)
        order = np.argsort(whole)
        return float(whole[order][np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)])
    if count > PIECE:
        low, high = _in_order(values, (count - 1) // 2, count // 2)
        return (low + high) / 2
    ordered = np.sort(values[:])  # vectorised: faster than a partition at three places; NaN comes last
    middle = float(ordered[(count - 1) // 2]) + float(ordered[count // 2])
    return math.nan if np.isnan(ordered[-1]) else middle / 2


def _in_order(values: Column, first: int, second: int) -> tuple[float, float]:
    """The values at two adjacent or equal places in sorted order; nan if there is any nan.

    Of a long column, only the values between two bounds are sorted, which a sample shows to be near.
    """
    count = len(values)
    if count > PIECE:
        sample = np.sort(values[:: count // _SAMPLED])
        shares = first / count - _AROUND, second / count + _AROUND
        least, most = (float(sample[min(max(int(share * len(sample)), 0), len(sample) - 1)]) for share in shares)
        counts, between = np.zeros(3, np.int64), []
        for rows in pieces(count):
            part = values[rows]
            if np.isnan(part).any():
                return math.nan, math.nan
            counts += [np.count_nonzero(found) for found in (part < least, part == least, part == most)]
            between.append(part[(part > least) & (part < most)])
        inside = np.sort(np.concatenate(between))
        ends = np.cumsum([counts[0], counts[1], len(inside), counts[2]])

        def at(place: int) -> float:
            return least if place < ends[1] else float(inside[place - ends[1]]) if place < ends[2] else most

        if first >= ends[0] and second < ends[3] and least < most:
            return at(first), at(second)
        if least == most and ends[0] <= first and second < ends[1]:
            return least, least
    ordered = np.empty(count)
    for rows in pieces(count):
        ordered[rows] = values[rows]
    ordered.sort()  # vectorised: faster than a partition at three places
    if np.isnan(ordered[-1]):  # NaN comes last
        return math.nan, math.nan
    return float(ordered[first]), float(ordered[second])


def total(values: Column) -> float:
    return sum(float(values[rows].sum()) for rows in pieces(len(values)))


def variance(values: Column) -> float:
    count = len(values)
    mean = total(values) / count
    return total(series(count, lambda rows: np.asarray((values[rows] - mean) ** 2, np.float64))) / count


def quantile(values: Column, share: float) -> float:
    """The value that is above this share of the values."""
    place = min(int(share * len(values)), len(values) - 1)
    return _in_order(values, place, place)[0]


def nine_in_ten(values: Column) -> tuple[float, float]:
    """The range of nine in ten of the values."""
    return quantile(values, 0.05), quantile(values, 0.95)


def spread(values: Column) -> float:
    """Standard deviation from the median absolute deviation: a few stalls do not move it."""
    if len(values) < 2:
        return 0.0
    middle = median(values)
    around = series(len(values), lambda rows: np.abs(values[rows] - middle))
    return 1.4826 * median(around)  # as for a normal distribution


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


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """A column of few different values, in few bytes per row; it is indexed like the column itself."""

    values: Floats
    of_row: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.of_row)

    def __getitem__(self, rows: Any) -> Any:
        return self.values[self.of_row[rows]]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        return np.asarray(self.values[self.of_row], dtype=dtype)

    def spread_over(self, rows: npt.NDArray[np.bool_]) -> Levels:
        """Extends a column of the chosen rows to all rows, by linear interpolation as in np.interp."""
        if rows.all():
            return self
        others, beside = np.flatnonzero(~rows), np.zeros(len(rows), bool)
        beside[:-1] |= ~rows[1:]
        beside[1:] |= ~rows[:-1]
        near = np.flatnonzero(beside & rows)
        between, which = np.unique(
            np.interp(others, near, self[near - np.searchsorted(others, near)]), return_inverse=True
        )
        of_row = np.empty(len(rows), np.min_scalar_type(len(self.values) + len(between)))
        of_row[rows] = self.of_row
        of_row[others] = len(self.values) + which
        return Levels(np.concatenate((self.values, between)), of_row)


def running_levels(values: Column, window: int, most_points: int = 2_000, least: float = -math.inf) -> Levels:
    """The median around each value, at least `least`; in a long series, several neighbours share one."""
    count = len(values)
    window = min(window, count) | 1
    if count <= window:
        return Levels(np.array([median(np.maximum(values, least))]), np.zeros(count, np.uint8))
    half = window // 2
    stride = max(1, count // most_points)  # so that there are fewer than twice `most_points`
    if not isinstance(values, np.ndarray):
        windows = np.stack([values[begin : begin + window] for begin in range(0, count - 2 * half, stride)])
    else:
        windows = np.lib.stride_tricks.sliding_window_view(values, window)[::stride]
    medians = np.maximum(np.partition(windows, half, axis=-1)[:, half], least)
    medians[np.isnan(windows).any(axis=-1)] = np.nan  # as in median
    of_row = np.zeros(half + len(medians) * stride + half, np.min_scalar_type(len(medians)))
    of_row[half : len(of_row) - half].reshape(-1, stride)[:] = np.arange(len(medians))[:, None]
    of_row[count - half :] = len(medians) - 1
    return Levels(medians, of_row[:count])


def block_medians(values: Column, blocks: int) -> Floats:
    """Medians of consecutive blocks of nearly equal size."""
    edges = np.linspace(0, len(values), min(blocks, len(values)) + 1).astype(int)
    if len(values) > PIECE:
        return np.array([median(values[begin:end]) for begin, end in pairwise(edges.tolist())])
    sizes = np.diff(edges)
    medians = np.empty(len(sizes))
    for size in {*sizes.tolist()}:  # two at most
        same = sizes == size
        ordered = np.sort(values[edges[:-1][same, None] + np.arange(size)])  # NaN comes last
        middle = (ordered[:, (size - 1) // 2] + ordered[:, size // 2]) / 2
        medians[same] = np.where(np.isnan(ordered[:, -1]), np.nan, middle)
    return medians


def standard_error(values: Column) -> float:
    """The standard error of the median of a series that may wander: as if independent, or by blocks if larger."""
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

    time_s: Levels
    noise: float

    def ratio(self, iterations: Iterations, rows: Any) -> Floats:
        return np.asarray(iterations.time_s[rows] / self.time_s[rows])


def last_digit_s(run: Run, covers: Ints) -> float:
    """The size of the last printed digit of rounded times in a step: times that are no further apart may be equal."""
    times = run.iterations.time_s
    # Epochs are in whole seconds, steps below one second in whole milliseconds: the finer one counts, if it is printed.
    whole = _all_whole(len(times), lambda rows: times[rows] * covers[rows])
    in_ms = _all_whole(len(times), lambda rows: 1e3 * times[rows])
    of_epoch = 1 / median(covers)
    return of_epoch if median(times) >= 1 or (whole and not in_ms) else min(of_epoch, 1e-3)


def _all_whole(count: int, part: Part) -> bool:
    return all(bool((np.abs(shown - np.rint(shown)) < 1e-6).all()) for shown in map(part, pieces(count)))


def baseline_of(iterations: Iterations, normal: np.ndarray, digit_s: float = PRINTED_STEP_S) -> Baseline | None:
    """The baseline of the rows that may be normal; None if there are none."""
    if not normal.any():
        return None
    times, least = chosen(iterations.time_s, normal), digit_s / 2  # shorter times are printed as zero
    local = running_levels(times, WINDOW, least=least)
    middle = median(series(len(times), lambda rows: np.maximum(times[rows], least)))
    rounding = 0.3 * digit_s / middle  # rounding by a digit, as a standard deviation
    noise = spread(series(len(times), lambda rows: np.log(np.maximum(times[rows], least) / local[rows])))
    return Baseline(time_s=local.spread_over(normal), noise=max(noise, rounding))
