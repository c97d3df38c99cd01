"""What a log says around its slow iterations and around its end, for a report that is passed on without the log."""

from __future__ import annotations

import numpy as np

from stepwatch.analysis import Analysis
from stepwatch.analysis.phases import Phase
from stepwatch.readers.reading import place_of_line
from stepwatch.report import Excerpts, LogLine

MOST_EXCERPTS = 40
"""Of each run: the slowest iterations, the first one and the last; with what follows, 40 kB at most."""
_LONGEST_BYTES = 200
_BEFORE, _AFTER = 3, 1
"""Lines: an evaluation and its checkpoint are printed before the time of their iteration."""


def excerpts_of(a: Analysis, text: bytes) -> Excerpts:
    """By rows; the last row has the lines of what ended the run, where the log shows it. No other line is kept."""
    iterations = a.run.iterations
    if not text or not len(iterations):
        return {}
    slow = np.flatnonzero(a.phases.phase != Phase.STEP)
    order = slow[np.lexsort((-iterations.time_s[slow], a.phases.phase[slow] != Phase.FIRST))]
    places = {int(row): [int(iterations.line[row])] for row in order[: MOST_EXCERPTS - 1]}
    last = len(iterations) - 1
    if a.run.faults:
        places.setdefault(last, [int(iterations.line[last])]).append(a.run.faults[-1].line)
    wanted = {
        row: {near for at in lines for near in range(at - _BEFORE, at + _AFTER + 1)} for row, lines in places.items()
    }
    texts: dict[int, str] = {}
    line = begin = 0
    for number in sorted(set().union(*wanted.values())):
        if number >= 0:
            begin, line = place_of_line(text, number - line, begin), number
            end = text.find(b"\n", begin)
            texts[number] = text[begin : end if end >= 0 else len(text)][:_LONGEST_BYTES].decode("utf-8", "replace")
    return {
        row: tuple(LogLine(number + 1, texts[number]) for number in sorted(near) if texts.get(number, "").strip())
        for row, near in wanted.items()
    }
