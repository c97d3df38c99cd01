"""Levels of the step time over a run: sudden changes, slow drift, and where the warm-up ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from stepwatch.analysis.phases import Phase, Phases
from stepwatch.analysis.statistics import (
    MEDIAN_ERROR,
    Series,
    block_medians,
    chosen,
    median,
    pieces,
    series,
    spread,
    variance,
)
from stepwatch.run import Floats, Run

SMALLEST_CHANGE = 0.10
_ROWS_PER_BLOCK = 15


class Regime(NamedTuple):
    """A stretch of the run at one level."""

    from_iteration: int
    to_iteration: int
    step_s: float
    rows: int
    announced: str = ""
    """The line of the log that says why its steps are others than those before."""


class Regimes(NamedTuple):
    regimes: tuple[Regime, ...] = ()
    drift: float | None = None
    """Relative change of the step time from the first to the last fifth, where it is a slow one."""
    stable_from: int | None = None
    """The first iteration after the warm-up, where there is one to speak of."""

    @property
    def announced(self) -> bool:
        """Whether the log says why the speed changed, each time that it did."""
        return len(self.regimes) > 1 and all(regime.announced for regime in self.regimes[1:])


def find_regimes(run: Run, phases: Phases) -> Regimes:
    normal = phases.normal
    times, numbers = (chosen(column, normal) for column in (run.iterations.time_s, run.iterations.number))
    if not len(times) or phases.baseline is None:
        return Regimes()
    warm_up = 0  # leading rows slower than what follows; only after the first iteration of a process
    if phases.phase[0] == Phase.FIRST and len(times) >= 8:
        limit = median(times[3:30]) * (1 + max(0.04, 4 * phases.baseline.noise))
        while warm_up < len(times) // 4 and times[warm_up] > limit:
            warm_up += 1
    stable = int(numbers[warm_up]) if warm_up else None
    times, numbers = times[warm_up:], numbers[warm_up:]
    lines = run.iterations.line[normal][warm_up:] if run.announced else run.iterations.line[:0]
    # What the rounding of the print can make is no change.
    digit = math.log1p(1.01 * phases.digit_s / max(median(times), 1e-9))
    smallest = max(SMALLEST_CHANGE, digit)
    bounds = [0, len(times)]
    ends = [(float(times[rows].min()), float(times[rows].max())) for rows in pieces(len(times))]
    if math.log(max(*(high for _, high in ends), 1e-9) / max(min(low for low, _ in ends), 1e-9)) >= smallest:
        bounds = _bounds(times, smallest)
    # A line that says why stands just before the first row of a regime, or a row away from that.
    announced = [(int(np.searchsorted(lines, line)), text) for line, text in run.announced]
    regimes = []
    for begin, end in pairwise(bounds):
        regime = Regime(int(numbers[begin]), int(numbers[end - 1]), median(times[begin:end]), rows=end - begin)
        why = next((text for row, text in announced if begin > 0 and abs(row - begin) <= 1), "")
        regimes.append(regime._replace(announced=why))
    drift = None  # from the first to the last fifth, if the fifths rise or fall in order
    fifths = block_medians(times, 5) if len(regimes) == 1 and len(times) >= 50 else np.zeros(1)
    if fifths[0] > 0:  # not too short for the printed digits
        change = float(fifths[-1] / fifths[0] - 1)
        single = math.sqrt(variance(times[: len(times) // 5]))
        noise = single / math.sqrt(len(times) / 5) / float(fifths[0])
        backwards = np.diff(fifths) * np.sign(change) < -0.2 * abs(fifths[-1] - fifths[0])
        # One that has gone back for the most part by the end has passed.
        stays = float(median(times[-(len(times) // 10) :]) / fifths[0] - 1) / change > 0.5 if change else False
        if abs(change) >= max(0.02, 5 * noise, math.expm1(digit)) and not backwards.any() and stays:
            drift = change
    return Regimes(regimes=tuple(regimes), drift=drift, stable_from=stable)


def _bounds(times: Floats | Series, smallest: float) -> list[int]:
    """The rows where the level changes by at least so much, with both ends."""
    if len(times) < 2 * _ROWS_PER_BLOCK:
        # Too few rows for blocks: cut only where the change is large and far beyond the noise from row to row.
        levels = np.log(np.maximum(times, 1e-9))
        row_noise = spread(np.diff(levels)) / math.sqrt(2)

        def clearly_apart(before: Floats, after: Floats, _gain: float) -> bool:
            error = MEDIAN_ERROR * row_noise * math.sqrt(1 / len(before) + 1 / len(after))
            overlap = max(before.min(), after.min()) <= min(before.max(), after.max())
            change = abs(median(after) - median(before))
            return change > max(0.2, 6 * error) and not overlap

        return _merged(times, [0, *_cuts(levels, 4, clearly_apart), len(times)], smallest)

    blocks = min(200, len(times) // _ROWS_PER_BLOCK)
    edges = np.linspace(0, len(times), blocks + 1).astype(int)
    levels = np.log(np.maximum(block_medians(times, blocks), 1e-9))
    # Of a block's median: from block to block or, where these are few, from row to row.
    changes = series(len(times) - 1, lambda rows: np.diff(np.log(np.maximum(times[rows.start : rows.stop + 1], 1e-9))))
    single = math.sqrt(variance(changes) / 2)
    noise = MEDIAN_ERROR * single / math.sqrt(len(times) / blocks)
    if blocks > 3:
        noise = max(noise, spread(np.diff(levels)) / math.sqrt(2))
    least = 2 * max(SMALLEST_CHANGE / 2, 3 * noise) ** 2
    cuts = _cuts(levels, 1, lambda _before, _after, gain: gain > least)
    bounds = _merged(times, [0, *edges[cuts].tolist(), len(times)], smallest)

    # Blocks show that the level changes, the rows of the two around a cut show where; a drift stays as it was cut.
    # Half of a block's rows move its median: no stretch is shorter.
    block, placed = math.ceil(len(times) / blocks), [0]
    for cut, end in pairwise(bounds[1:]):
        begin, stop = max(cut - block, placed[-1]), min(cut + block, end)
        around = np.log(np.maximum(times[begin:stop], 1e-9))
        middle, far = median(around), 2 * spread(around)
        row, _ = _best_cut(np.clip(around, middle - far, middle + far), 1)  # one slow row is no change of level
        change = _level(times, begin + row, end) - _level(times, placed[-1], begin + row)
        place = begin + row if abs(change) >= smallest else cut
        if min(place - placed[-1], end - place) >= block // 2:
            placed.append(place)
    return _merged(times, [*placed, bounds[-1]], smallest)


def _cuts(levels: Floats, fewest: int, is_change: Callable[[Floats, Floats, float], bool]) -> list[int]:
    """Binary segmentation: the split that explains most, again and again, while it is a change."""
    found: list[int] = []
    open_parts = [(0, len(levels))]
    while open_parts:
        begin, end = open_parts.pop()
        size, gain = _best_cut(levels[begin:end], fewest)
        cut = begin + size
        if size and is_change(levels[begin:cut], levels[cut:end], gain):
            found.append(cut)
            open_parts += [(begin, cut), (cut, end)]
    return sorted(found)


def _best_cut(levels: Floats, fewest: int) -> tuple[int, float]:
    """Where two levels instead of one take most off the sum of squares, and how much."""
    count = len(levels)
    if count < 2 * fewest:
        return 0, 0.0
    sizes = np.arange(fewest, count - fewest + 1)
    sums = np.cumsum(levels)[sizes - 1]
    difference = sums / sizes - (levels.sum() - sums) / (count - sizes)
    gain = sizes * (count - sizes) / count * difference**2
    best = int(np.argmax(gain))
    return best + fewest, float(gain[best])


def _merged(times: Floats | Series, bounds: list[int], smallest: float) -> list[int]:
    """Without the cuts between parts that are nearly alike, the most alike first: a drift is no change of regime."""
    kept, levels = list(bounds), [_level(times, begin, end) for begin, end in pairwise(bounds)]
    while len(levels) > 1:
        changes = [abs(after - before) for before, after in pairwise(levels)]
        least = changes.index(min(changes))
        if changes[least] >= smallest:
            break
        del kept[least + 1]
        levels[least : least + 2] = [_level(times, kept[least], kept[least + 1])]
    return kept


def _level(times: Floats | Series, begin: int, end: int) -> float:
    return math.log(max(median(times[begin:end]), 1e-9))
