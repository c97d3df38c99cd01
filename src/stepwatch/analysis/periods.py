"""The periods of slow iterations, if they have any: evaluations that no line mentions, and other regular work."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stepwatch.analysis.phases import LARGE_RATIO, Mask
from stepwatch.analysis.statistics import Baseline, median, pieces, series
from stepwatch.run import Floats, Ints, Run

MOST_PLACES = 0.75  # the share of a period's places at which iterations must be slow
_LIKE_SIZE = 4.0  # evaluations are regular, but some have a checkpoint on top
_LEAST_TIMES = 3  # two slow rows always have a distance
_ENOUGH = 400  # so many slow rows show the distances between them


class Period(NamedTuple):
    """Recurring work: at iteration `first`, and every `every` iterations from there on."""

    every: int
    first: int
    rows: Mask
    """The slow rows that include it."""


def find_period(run: Run, spikes: Mask, baseline: Baseline, first: int | None) -> int | None:
    """The interval whose multiples are slow nearly every time and account for most of the slowness of their size."""
    numbers, ratio = run.iterations.number, baseline.ratio(run.iterations, spikes)
    slow = np.flatnonzero(spikes)
    excess = ratio - 1
    least, most = (ratio.min(), ratio.max()) if len(ratio) else (0.0, 0.0)
    # Even very few slow rows may be evaluations, if they are the only ones, large, alike and at round numbers.
    large_and_alike = (
        max(LARGE_RATIO, 1 + 20 * baseline.noise) < least
        and most < 500  # the largest published one is 287
        and most - 1 < _LIKE_SIZE * (least - 1)
    )
    round_number = 5 * (run.settings.count("log_interval") or 1)
    candidates = _candidates(numbers[spikes])
    best, best_score = None, 0.0
    for candidate in candidates:
        grid = multiples(numbers, candidate)
        if first is not None:
            grid[first] = False
        places, on_grid = int(np.count_nonzero(grid)), grid[slow]
        share = int(np.count_nonzero(on_grid)) / max(places, 1)
        if share < MOST_PLACES:
            continue
        alone = large_and_alike and candidate % round_number == 0 and bool(on_grid.all())
        if not alone and not _is_regular(excess, on_grid, places, len(numbers) - places, len(candidates)):
            continue
        score = float(excess[on_grid].sum()) * share * share
        if score > best_score:
            best, best_score = candidate, score
    return best


def multiples(numbers: Ints, of: int) -> Mask:
    found = np.empty(len(numbers), bool)
    for rows in pieces(len(numbers)):
        found[rows] = numbers[rows] % of == 0
    return found


def find_periods(
    numbers: Ints, covers: Ints, beyond: Callable[[Ints], Floats], spikes: Mask, first: int | None
) -> list[Period]:
    """All periods of slow rows, each with its own offset; the one that costs most is found first.

    `beyond` returns how much longer rows are than normal steps, in steps; 0 if something else explains it.
    """
    found: list[Period] = []
    slow = np.flatnonzero(spikes)
    excess, before = beyond(slow), _before(numbers, covers)
    while len(left := slow[excess > 0]) >= _LEAST_TIMES:
        best, most = None, 0.0
        tries = len(left) * (len(left) - 1) // 2
        near = left[:_ENOUGH]
        for every, offset in _grids(numbers[near], covers[near]):
            rows = _rows_on(every, offset, numbers, before, most=len(left) / MOST_PLACES + 1)
            rows = rows[rows != first]
            if len(rows) < _LEAST_TIMES:
                continue
            on_grid = rows[np.minimum(np.searchsorted(rows, slow), len(rows) - 1)] == slow
            hits = on_grid & (excess > 0)
            count, cost = int(np.count_nonzero(hits)), float(excess[hits].sum())
            if count >= max(_LEAST_TIMES, MOST_PLACES * len(rows)) and cost > most:
                alike = rows[beyond(rows) > 0.5 * median(beyond(slow[hits]))]  # some are lost in the noise
                if _is_regular(excess, on_grid, len(rows), len(numbers) - len(rows), tries):
                    held = np.zeros(len(numbers), bool)
                    held[alike] = True
                    best, most = Period(every, int(numbers[alike[0]]), held), cost
        if best is None:
            return found
        found.append(best)
        excess[best.rows[slow]] = 0.0
    return found


def _before(numbers: Ints, covers: Ints) -> Any:
    """For each row the last iteration before those that it covers and no row before it does."""

    def part(rows: slice) -> Any:
        here, about = numbers[rows], covers[rows]
        above = numbers[rows.start - 1] if rows.start else here[0] - about[0]
        return here - np.minimum(about, np.diff(here, prepend=above))

    return series(len(numbers), part)


def _rows_on(every: int, offset: int, numbers: Ints, before: Any, most: float) -> Ints:
    """The rows that are the first to cover one of these iterations; none if there are too many."""
    found: list[Ints] = []
    for rows in pieces(len(numbers)):
        on_grid = (numbers[rows] - offset) // every > (before[rows] - offset) // every
        found.append(rows.start + np.flatnonzero(on_grid))
        if sum(map(len, found)) > most:
            return np.zeros(0, np.int64)
    return np.concatenate(found)


def _grids(numbers: Ints, covers: Ints) -> Iterator[tuple[int, int]]:
    """Distances of slow rows, each with the remainders that most rows cover: the last and the first that they share.

    Also average distances, since a row that is a mean does not show exactly where the work was.
    """
    apart = {*np.unique(np.diff(numbers))[:60].tolist(), *np.unique(numbers[2:] - numbers[:-2])[:60].tolist()}
    span = int(numbers[-1] - numbers[0])
    for every in sorted(apart | {round(span / round(span / each)) for each in apart if 0 < each <= span}):
        ends = numbers % every
        tried = np.array([*dict.fromkeys(ends.tolist())])
        last = int(tried[np.argmax(((ends - tried[:, None]) % every < covers).sum(axis=1))])
        before = (covers - 1 - (ends - last) % every)[(ends - last) % every < covers]
        yield every, last
        if before.min() > 0:
            yield every, last - int(before.min())


def _candidates(numbers: npt.NDArray[np.int64]) -> list[int]:
    """Spike numbers, their differences and common divisors; few enough to try them all."""
    numbers = numbers[numbers > 0][:_ENOUGH]
    if not len(numbers):
        return []
    found = {*numbers[:60].tolist(), *np.unique(np.diff(numbers))[:60].tolist(), int(np.gcd.reduce(numbers))}
    found |= {math.gcd(int(a), int(b)) for a, b in itertools.pairwise(numbers)}
    return sorted(value for value in found if value > 1)


def _is_regular(excess: Floats, on_grid: Mask, places: int, beside: int, tries: int) -> bool:
    """Whether the slow rows of a grid are alike, account for most of the slowness of their size, and are not by chance.

    `excess` and `on_grid` are those of all slow rows; `places` and `beside` count all rows on the grid and off it.

    If the noise is large, some of many slow rows fall on a grid, the more so the more grids are tried. A stall that is
    far larger or smaller says nothing either way.
    """
    hits = on_grid & (excess > 0)
    usual = median(excess[hits])
    alike = (excess > usual / _LIKE_SIZE) & (excess < usual * _LIKE_SIZE)
    on, off = alike & on_grid, alike & ~on_grid
    count = int(on.sum())
    if count < 2 or 2 * count <= int(hits.sum()) or excess[on].sum() < excess[off].sum():
        return False
    rate = (int(off.sum()) + 1) / (beside + 2)  # of slow rows off the grid, by Laplace's rule
    # At most the probability of so many hits (Chernoff's bound); the grid was chosen through one of them.
    share = (count - 1) / (places - 1)
    if share <= rate:
        return False
    divergence = share * math.log(share / rate)
    if share < 1:
        divergence += (1 - share) * math.log((1 - share) / (1 - rate))
    return tries * math.exp(-(places - 1) * divergence) < 0.05
