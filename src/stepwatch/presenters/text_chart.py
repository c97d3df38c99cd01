"""The times of a run drawn with characters: a logarithmic scale, slow iterations by the letter of what they include."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from stepwatch.analysis.statistics import median, quantile
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.presenters.document import STEP, Points, count, time
from stepwatch.presenters.screen import MARK_STYLES, Line

_DOTS = ".·˙"  # low, middle and high in the cell: three levels per line


def text_chart(points: Points, language: str, width: int, height: int) -> list[Line]:
    """So many lines, the axis and the legend below them."""
    numbers, times = points.number, points.time_s
    # From the fastest to the slowest, at least a factor of two: noise should not look like much.
    low = max(quantile(times, 0.01), 1e-6)
    high = max(float(times.max()), 2 * low)
    ticks = {height - 1: low, height // 2: math.sqrt(low * high), 0: high}
    longest = float(times.max()) * 1.001  # the scale may go further, but no label says what no iteration took
    labels = {row: say(time(at), language) for row, at in ticks.items() if at <= longest}
    margin = max(map(len, labels.values())) + 1
    columns = width - margin - 2
    cells = _plot(points, columns, height, low, high)
    lines = []
    for row, marks in enumerate(cells):
        line = Line(labels.get(row, "").rjust(margin - 1) + " │", style="dim")
        for mark in marks:
            line.append(mark, style=MARK_STYLES.get(mark, ""))
        lines.append(line)
    ends = [say(count(int(value)), language) for value in (numbers[0], numbers[-1])]
    middle = say(Message("iteration"), language)
    free = columns - len("".join(ends) + middle) - 6
    left, right = max(free // 2, 1), max(free - free // 2, 1)
    axis = Line(f"{'':{margin}}└ {ends[0]} {'─' * left} {middle} {'─' * right} {ends[1]}", style="dim")
    legend = Line(" ")
    present = {STEP, *(mark for row in cells for mark in row)}
    for place, (mark, meaning) in enumerate((mark, text) for mark, text in points.legend.items() if mark in present):
        legend.append("   " if place else " ").append(mark, style=MARK_STYLES.get(mark, ""))
        legend.append(" " + say(meaning, language), style="dim")
    return [*lines, axis, legend.cut(width)]


def _plot(points: Points, columns: int, height: int, low: float, high: float) -> list[list[str]]:
    """Per column the middle of its steps, and the marks in the order of `points`, the later ones over the others."""
    numbers, times = points.number, points.time_s
    span = max(int(numbers[-1]) - int(numbers[0]), 1)
    cells = [[" "] * columns for _ in range(height)]
    for mark, marked in points.marks.items():
        rows = marked[:: max(1, len(marked) // 20_000)] if mark == STEP else marked  # enough for the middle of a column
        column = np.clip((numbers[rows] - numbers[0]) * (columns - 1) // span, 0, columns - 1)
        level = np.log(np.maximum(times[rows], low) / low) / math.log(high / low)  # 0 at the bottom, 1 at the top
        if mark == STEP:
            finest = height * len(_DOTS)
            starts = np.flatnonzero(np.diff(column, prepend=-1))
            for begin, end in pairwise([*starts.tolist(), len(column)]):
                third = min(int(median(level[begin:end]) * finest), finest - 1)
                cells[-1 - third // len(_DOTS)][int(column[begin])] = _DOTS[third % len(_DOTS)]
        else:
            for place, at in zip(column.tolist(), level.tolist(), strict=True):
                cells[-1 - min(int(at * height), height - 1)][place] = mark
    return cells
