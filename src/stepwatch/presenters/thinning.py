"""Selects the rows of a long run that are drawn: few enough for a fast page, but with every spike."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepwatch.analysis import Analysis
from stepwatch.analysis.phases import Phase
from stepwatch.run import Floats, Ints

MOST_POINTS = 4000
"""As many as a browser moves smoothly; they make up 200 kB of a page."""


class Thinned(NamedTuple):
    """Rows in order, and what was left out."""

    rows: Ints
    steps_left_out: int
    slow_left_out: int


def drawn_rows(a: Analysis, most: int = MOST_POINTS) -> Thinned:
    """All slow rows if they are at most half of `most`; of the others, the extremes and the median of each stretch.

    If there are more slow rows, each phase keeps the slowest, the first and the last of each stretch. Rows with a time
    of 0 are left out: they have no place on a logarithmic scale.
    """
    times = a.run.iterations.time_s
    timed = times > 0
    slow = [np.flatnonzero((a.phases.phase == phase) & timed) for phase in Phase if phase is not Phase.STEP]
    kept: list[Ints] = []
    room = most // 2
    for left, found in zip(range(len(slow), 0, -1), sorted(slow, key=len), strict=True):
        kept.append(_thinned(times, found, room // left, steps=False))  # rare kinds come first and are kept whole
        room -= len(kept[-1])
    steps = np.flatnonzero((a.phases.phase == Phase.STEP) & timed)
    shown = _thinned(times, steps, most - sum(map(len, kept)), steps=True)
    rows = np.sort(np.concatenate((shown, *kept)))
    return Thinned(rows, len(steps) - len(shown), sum(map(len, slow)) - sum(map(len, kept)))


def _thinned(times: Floats, rows: Ints, most: int, *, steps: bool) -> Ints:
    """Three rows per stretch: of steps the fastest, the median and the slowest, else both ends and the slowest."""
    if len(rows) <= most:
        return rows
    chosen: set[int] = set()
    for part in stretches(rows, max(most // 3, 1)):
        order = part[np.argsort(times[part], kind="stable")] if steps else part
        middle = order[len(order) // 2] if steps else part[np.argmax(times[part])]
        chosen |= {int(order[0]), int(middle), int(order[-1])}
    return np.array(sorted(chosen), np.int64)


def stretches(rows: Ints, most: int) -> list[Ints]:
    """The rows in at most `most` pieces of equal length, none of them empty."""
    count = min(most, len(rows))
    return list(np.array_split(rows, count)) if count else []
