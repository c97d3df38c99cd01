"""Pictures made of characters: the times of a run, slow iterations by the letter of what they include, and a bar."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from stepwatch.analysis.statistics import median
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.presenters.document import STEP, Points, count, time
from stepwatch.presenters.run_sentences import PART_MARKS, PartRow
from stepwatch.presenters.screen import MARK_STYLES, Line, cell_width, cut, padded, plain, wrapped

_DOTS = ".·˙"  # low, middle and high in the cell: three levels per line
_APART = math.log(2.0)  # noise is less; no line contains both steps and anything that takes more than twice as long


# --- the times of a run -----------------------------------------------------------------------------------------


_Cell = tuple[str, int, float]
"""A mark, its column, and the logarithm of its time."""


def text_chart(points: Points, language: str, width: int, height: int) -> list[Line]:
    """At most `height` lines, each labelled with the median of its times; the axis and the legend are below them."""
    margin = 0
    for _ in range(2):  # the labels need room, and which labels there are depends a little on the room
        columns = max(width - margin - 2, 1)
        cells = _cells(points, columns)
        rows = _rows(cells, height)
        inside: list[list[_Cell]] = [[] for _ in rows]
        for cell in cells:
            inside[sum(cell[2] >= low for low, _ in rows[1:])].append(cell)
        middles = (math.exp(median(np.array([log for *_, log in row]))) if row else None for row in inside)
        labels = [say(time(middle), language) if middle is not None else "" for middle in middles]
        margin = max(map(cell_width, labels)) + 1
    lines: list[Line] = []
    for label, (low, high), found in reversed(list(zip(labels, rows, inside, strict=True))):
        marks = [" "] * columns
        for mark, column, log in found:  # later ones overwrite earlier ones
            level = (log - low) / (high - low)
            dot = _DOTS[min(max(int(level * len(_DOTS)), 0), len(_DOTS) - 1)]
            marks[column] = dot if mark == STEP else mark
        room = max(width - margin - 1, 0)
        styled = [(mark, MARK_STYLES.get(mark, "")) for mark in marks[:room]]
        lines.append([(cut(padded(label, margin - 1, "right") + " │", width), "dim"), *styled])
    ends = [say(count(int(value)), language) for value in (points.number[0], points.number[-1])]
    name = say(Message("iteration"), language)
    free = columns - cell_width("".join(ends) + name) - 6
    left, right = max(free // 2, 1), max(free - free // 2, 1)
    axis = f"{'':{margin}}└ {ends[0]} {'─' * left} {name} {'─' * right} {ends[1]}"
    present = {STEP, *(mark for mark, *_ in cells)}
    lines.append([(cut(axis, width), "dim")])
    begun = len(lines)  # the legend takes as many lines as it needs: none of its entries is cut
    for mark, meaning in ((mark, say(meaning, language)) for mark, meaning in points.legend.items() if mark in present):
        first, *others = wrapped(meaning, width - 4)
        if len(lines) > begun and cell_width(plain(lines[-1])) + 5 + cell_width(meaning) <= width:
            lines[-1].append(("   ", ""))
        else:
            lines.append([("  ", "")])
        lines[-1] += [(mark, MARK_STYLES.get(mark, "")), (" " + first, "dim")]
        lines += ([("    " + other, "dim")] for other in others)
    return lines


def _cells(points: Points, columns: int) -> list[_Cell]:
    """The median of the steps of each column, and the other marks, in the order of `points`."""
    numbers = points.number
    span = max(int(numbers[-1]) - int(numbers[0]), 1)
    cells: list[_Cell] = []
    for mark, rows in points.marks.items():
        column = np.clip((numbers[rows] - numbers[0]) * (columns - 1) // span, 0, columns - 1)
        times = np.log(np.maximum(points.time_s[rows], 1e-6))
        if mark != STEP:
            cells += [(mark, *place) for place in zip(column.tolist(), times.tolist(), strict=True)]
            continue
        for begin, end in pairwise([*np.flatnonzero(np.diff(column, prepend=-1)).tolist(), len(rows)]):
            cells.append((mark, int(column[begin]), median(times[begin:end])))
    return cells


def _rows(cells: Sequence[_Cell], height: int) -> list[tuple[float, float]]:
    """The range of each line, bottom up: a logarithmic scale without its widest gaps, always split above the steps."""
    times = sorted(log for *_, log in cells)
    steps = max((log for mark, _, log in cells if mark == STEP), default=times[-1])
    gaps = {above: above - below for below, above in pairwise(times) if above - below > _APART}
    slow = next((time for time in times if time > steps + _APART), None)
    if slow is not None:
        gaps[slow] = math.inf
    starts = sorted(sorted(gaps, key=lambda above: -gaps[above])[: height - 1])
    bands = []
    for low, following in pairwise([times[0], *starts, math.inf]):
        bands.append((low, max(time for time in times if time < following)))
    counts = [1] * len(bands)
    for _ in range(height - len(bands)):
        widest = max(range(len(bands)), key=lambda place: (bands[place][1] - bands[place][0]) / counts[place])
        if len(bands) == 1 or bands[widest][1] - bands[widest][0] > _APART:  # else its rows would be empty
            counts[widest] += 1
    rows = []
    for (low, high), shared in zip(bands, counts, strict=True):
        step = max(high - low, _APART) / shared
        rows += [(low + step * place, low + step * (place + 1)) for place in range(shared)]
    return rows


# --- where the time went ----------------------------------------------------------------------------------------


def stacked_bar(parts: Sequence[PartRow], width: int) -> Line:
    """The whole time as one bar, with a character for each part; the table of the parts is its legend."""
    known = [part for part in parts if part.share > 0]  # unknown shares are left out of the bar
    marks = [PART_MARKS[part.part] for part in known]
    lengths = shared_out([part.share for part in known], width)
    return [(mark * length, MARK_STYLES.get(mark, "")) for mark, length in zip(marks, lengths, strict=True)]


def shared_out(shares: Sequence[float], columns: int) -> list[int]:
    """The columns of each share, at least one, by the largest remainders; they add up to `columns`."""
    exact = [share / sum(shares) * columns for share in shares]
    lengths = [max(int(length), 1) for length in exact]
    while sum(lengths) != columns:
        missing = 1 if sum(lengths) < columns else -1
        able = [place for place, length in enumerate(lengths) if missing > 0 or length > 1]
        if not able:
            break
        lengths[max(able, key=lambda place: missing * (exact[place] - lengths[place]))] += missing
    return lengths
