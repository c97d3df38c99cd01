"""Levels of the step time over a run: sudden changes, slow drift, and where the warm-up ends."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from stepwatch.analysis.phases import Phases
from stepwatch.analysis.statistics import Floats, block_medians, median, spread
from stepwatch.run import Run

SMALLEST_CHANGE = 0.10
SMALLEST_DRIFT = 0.02
_MOST_BLOCKS = 200
_ROWS_PER_BLOCK = 15
_MOST_CUTS = 20
_FAR = 2.0
_FEWEST_ROWS = 4
_CLEAR_CHANGE = 0.2
_CLEAR_ERRORS = 6.0


class Regime(NamedTuple):
    """A stretch of the run at one level."""

    from_iteration: int
    to_iteration: int
    step_s: float
    rows: int


class Regimes(NamedTuple):
    regimes: tuple[Regime, ...] = ()
    drift: float | None = None
    """Relative change of the step time from the first to the last fifth, where it is a slow one."""
    stable_from: int | None = None
    """The first iteration after the warm-up, where there is one to speak of."""
    warm_up_rows: int = 0


def find_regimes(run: Run, phases: Phases) -> Regimes:
    normal = phases.normal
    times, numbers = run.iterations.time_s[normal], run.iterations.number[normal]
    if len(times) < 4 or phases.baseline is None:
        return Regimes()
    warm_up = _warm_up_rows(run, phases, times)
    stable = int(numbers[warm_up]) if warm_up and warm_up < len(numbers) else None
    times, numbers = times[warm_up:], numbers[warm_up:]
    regimes = _regimes(times, numbers)
    drift = _drift(times) if len(regimes) == 1 else None
    return Regimes(regimes=regimes, drift=drift, stable_from=stable, warm_up_rows=warm_up)


def _warm_up_rows(run: Run, phases: Phases, times: Floats) -> int:
    """Leading rows slower than what follows; only after the first iteration of a process."""
    assert phases.baseline is not None
    if phases.phase[0] != 4 or len(times) < 8:
        return 0
    level = median(times[3:30])
    limit = level * (1 + max(0.04, 4 * phases.baseline.noise))
    rows = 0
    while rows < min(10, len(times) // 4) and times[rows] > limit:
        rows += 1
    return rows


def _regimes(times: Floats, numbers: np.ndarray) -> tuple[Regime, ...]:
    bounds = _bounds(times) if len(times) >= 2 * _ROWS_PER_BLOCK else _bounds_of_few(times)
    return tuple(
        Regime(from_iteration=int(numbers[a]), to_iteration=int(numbers[b - 1]), step_s=median(times[a:b]), rows=b - a)
        for a, b in pairwise(bounds)
    )


def _bounds(times: Floats) -> list[int]:
    blocks = min(_MOST_BLOCKS, len(times) // _ROWS_PER_BLOCK)
    edges = np.linspace(0, len(times), blocks + 1).astype(int)
    levels = np.log(np.maximum(block_medians(times, blocks), 1e-9))
    bounds = _merged(times, [0, *(int(edges[cut]) for cut in _cuts(levels)), len(times)])
    return _placed(times, bounds, math.ceil(len(times) / blocks))


def _bounds_of_few(times: Floats) -> list[int]:
    """Of too few rows for blocks: cut only where the change is large and far beyond the noise from row to row."""
    levels = np.log(np.maximum(times, 1e-9))
    noise = spread(np.diff(levels)) / math.sqrt(2)
    bounds, open_parts = [0, len(times)], [(0, len(times))]
    while open_parts:
        begin, end = open_parts.pop()
        row, _ = _best_cut(levels[begin:end], _FEWEST_ROWS)
        before, after = levels[begin : begin + row], levels[begin + row : end]
        if row and _clearly_apart(before, after, noise):
            bounds.append(begin + row)
            open_parts += [(begin, begin + row), (begin + row, end)]
    return _merged(times, sorted(bounds))


def _clearly_apart(before: Floats, after: Floats, noise: float) -> bool:
    change = abs(median(after) - median(before))
    error = 1.2533 * noise * math.sqrt(1 / len(before) + 1 / len(after))  # of the difference of two medians
    overlap = max(before.min(), after.min()) <= min(before.max(), after.max())
    return change > max(_CLEAR_CHANGE, _CLEAR_ERRORS * error) and not overlap


def _cuts(levels: Floats) -> list[int]:
    """Binary segmentation: the split that explains most, again and again, while it explains more than noise would."""
    noise = spread(np.diff(levels)) / math.sqrt(2) if len(levels) > 3 else 0.0
    least = 2 * max(SMALLEST_CHANGE / 2, 3 * noise) ** 2
    found: list[int] = []
    open_parts = [(0, len(levels))]
    while open_parts and len(found) < _MOST_CUTS:
        begin, end = open_parts.pop()
        cut, gain = _best_cut(levels[begin:end])
        if gain > least:
            found.append(begin + cut)
            open_parts += [(begin, begin + cut), (begin + cut, end)]
    return sorted(found)


def _best_cut(levels: Floats, least: int = 1) -> tuple[int, float]:
    """Where two levels instead of one take most off the sum of squares, and how much; neither of fewer than least."""
    count = len(levels)
    if count < 2 * least:
        return 0, 0.0
    sizes = np.arange(least, count - least + 1)
    sums = np.cumsum(levels)[sizes - 1]
    difference = sums / sizes - (levels.sum() - sums) / (count - sizes)
    gain = sizes * (count - sizes) / count * difference**2
    best = int(np.argmax(gain))
    return best + least, float(gain[best])


def _merged(times: Floats, bounds: list[int]) -> list[int]:
    """Without the cuts between parts that are nearly alike: a drift is no change of regime."""
    kept = [bounds[0]]
    for cut, end in pairwise(bounds[1:]):
        if _differ(times, kept[-1], cut, end):
            kept.append(cut)
    return [*kept, bounds[-1]]


def _differ(times: Floats, begin: int, cut: int, end: int) -> bool:
    before, after = median(times[begin:cut]), median(times[cut:end])
    return abs(math.log(max(after, 1e-9) / max(before, 1e-9))) >= SMALLEST_CHANGE


def _placed(times: Floats, bounds: list[int], block: int) -> list[int]:
    """Blocks tell that the level changes, the rows of the two around a cut tell where; a drift stays as it was cut."""
    placed = [bounds[0]]
    for cut, end in pairwise(bounds[1:]):
        begin, stop = max(cut - block, placed[-1]), min(cut + block, end)
        around = np.log(np.maximum(times[begin:stop], 1e-9))
        middle, far = median(around), _FAR * spread(around)
        row, _ = _best_cut(np.clip(around, middle - far, middle + far))  # one slow row is no change of level
        moved = begin + row
        placed.append(moved if _differ(times, placed[-1], moved, end) else cut)
    return [*placed, bounds[-1]]


def _drift(times: Floats) -> float | None:
    """Change from the first to the last fifth, if the fifths rise or fall in order."""
    if len(times) < 50:
        return None
    fifths = block_medians(times, 5)
    if fifths[0] <= 0:  # too short for the printed digits
        return None
    change = float(fifths[-1] / fifths[0] - 1)
    moves = np.diff(fifths) * np.sign(change)
    noise = float(np.std(times[: len(times) // 5])) / math.sqrt(len(times) / 5) / float(fifths[0])
    if abs(change) < max(SMALLEST_DRIFT, 5 * noise) or (moves < -0.2 * abs(fifths[-1] - fifths[0])).any():
        return None
    return change
