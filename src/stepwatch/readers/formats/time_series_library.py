"""Time-Series-Library, and Informer, Autoformer, iTransformer, PatchTST and others that share its loop.

It prints the mean time of every 100 iterations and, after each epoch, the epoch's time without its validation and its
number of iterations. The first hundred of a later epoch are timed since the previous line: what exceeds the steps is
the validation. Several trainings often share a log.
"""

from __future__ import annotations

import math
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from stepwatch import bounds
from stepwatch.readers.formats.running import as_slice, median
from stepwatch.readers.records import OTHER_PROGRAM, Records, pieces, rows_of
from stepwatch.readers.text.block import Floats, Ints
from stepwatch.readers.text.line import Line
from stepwatch.readers.text.line_format import Kept, LineFormat
from stepwatch.run import Checkpoint, Evaluation, Fact, Levers, Timing, Traits

_PLACE = Line("{pad}iters: {done:int}, epoch: {epoch:int} | loss: {loss}")
_EPOCH = Line(
    "{any}Epoch: {epoch:int}, Steps: {steps:int} | Train Loss: {loss}",
    "<Vali;Val> Loss: {val_loss}",
    needs=("val_loss",),
)
_SPEED = Line("{pad}speed: {mean_s:decimal}s/iter; left time: {left_s:decimal}s")
_COST = Line("{any}Epoch: {epoch:int} cost time: {cost_s:decimal}")
_SAVED = Line("{any}Validation loss decreased ({any}Saving model")
_BEGUN = Line("{any}start training : ", header=True, sets={"begun": "training"})
_PLACES, _ENDS, _SPEEDS, _COSTS, _SAVES = "places", "ends", "speeds", "costs", "saves"
_COLUMNS = {
    _PLACES: ("epoch", "done", "loss"), _ENDS: ("epoch", "steps", "loss", "val_loss"), _SPEEDS: ("mean_s", "left_s"),
    _COSTS: ("epoch", "cost_s"), _SAVES: (),
}  # fmt: skip
"""What lines of each kind show, after their line numbers."""


class _Stated(NamedTuple):
    """What the lines of each kind show, as columns by line."""

    places: list[np.ndarray]
    ends: list[np.ndarray]
    speeds: list[np.ndarray]
    costs: list[np.ndarray]
    saves: list[np.ndarray]

    def between(self, begin: float, end: float) -> _Stated:
        def part(table: list[np.ndarray]) -> list[np.ndarray]:
            rows = slice(*np.searchsorted(table[0], (begin, end)))
            return [column[rows] for column in table]

        return _Stated(*map(part, self))


class _TimeSeries(LineFormat):
    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        name = _PLACES if "done" in found else _ENDS
        records.keep(name, lines, *(found.get(column, np.nan) for column in _COLUMNS[name]))

    def finish(self, first_line: int, records: Records) -> None:
        stated = _Stated(*(records.take_columns(name, 1 + len(columns)) for name, columns in _COLUMNS.items()))
        headers = [event.line for event in records.events if isinstance(event, Fact) and event.header]
        starts = _starts(stated, headers)
        first = min((int(table[0][0]) for table in stated if len(table[0])), default=-1)
        for begin, end in pairwise([-math.inf, *starts, math.inf]):
            if _add_training(stated.between(begin, end), records) and begin > first:
                records.events.append(Fact(int(begin), "process", int(begin), header=True))


def _starts(stated: _Stated, headers: list[int]) -> list[int]:
    """The lines that begin another training: those that say so, and those where the epochs fall back."""
    starts, level, begins = [], 1.0, True
    last = max([*headers, *(int(table[0][-1]) for table in stated if len(table[0]))], default=-1)
    for lines in pieces(last + 1):  # lists of numbers take much memory
        part = stated.between(lines.start, lines.stop)
        rows = [(line, math.nan, False, True) for line in headers if lines.start <= line < lines.stop]
        for table, counts in ((part.places, part.places[2] > 0), (part.ends, part.ends[2] > 0), (part.costs, None)):
            counted = np.zeros(len(table[0]), bool) if counts is None else counts
            columns = (column.tolist() for column in (table[0], table[1], counted))
            rows += [(*row, False) for row in zip(*columns, strict=True)]
        for line, number, is_counted, says_so in sorted(rows, key=itemgetter(0)):
            if says_so or (number < level and not begins):
                starts.append(int(line))
                level = 1.0
            level = number if is_counted else level
            begins = says_so
    return starts


def _add_training(stated: _Stated, records: Records) -> bool:
    """Adds the rows and events of one training; returns whether there are any."""
    place_line, _, place_done, place_loss = rows_of(stated.places, stated.places[2] > 0)
    speed_line, mean_s, eta_s = rows_of(stated.speeds, stated.speeds[1] > 0)
    end_line, _, end_steps, end_loss, val_loss = rows_of(stated.ends, stated.ends[2] > 0)
    cost_line, _, cost_s = rows_of(stated.costs, stated.costs[2] > 0)
    # What is printed for one iteration may be on two lines.
    behind = np.searchsorted(speed_line, place_line)
    next_place, next_speed = np.append(place_line[1:], np.inf), np.append(speed_line, np.inf)[behind]
    pairs = np.flatnonzero(next_speed < next_place)
    places, speeds = as_slice(pairs), as_slice(behind[pairs])
    del behind, next_place, next_speed, pairs  # there may be millions of lines
    done, means = place_done[places], mean_s[speeds]
    lap = np.searchsorted(end_line, speed_line[speeds]).astype(np.int32)  # the epoch of each, counted from 0
    ended = np.arange(len(end_line) + (lap[-1:] == len(end_line)).sum()) < len(end_line)  # the last may be unfinished
    steps = np.append(end_steps, done[-1:])[: len(ended)]
    offset = np.append(0.0, np.cumsum(end_steps, dtype=np.float64))
    cost = np.full(len(end_line) + 1, np.nan)
    cost[np.searchsorted(end_line, cost_line)] = cost_s
    cost = cost[: len(ended)]
    count = np.bincount(lap, minlength=len(steps))
    first = np.cumsum(count) - count
    covers = np.diff(done, prepend=0)
    covers[first[count > 0]] = done[first[count > 0]]
    shown = np.append(done, 0.0)[np.where(count > 0, first + count - 1, -1)]
    ends_later = ended & (steps > shown)  # its end is a separate row
    # The first row of a later epoch includes the validation.
    held = (count > 0) & (np.cumsum(count + ends_later) > count + ends_later)
    known = np.ones(len(means), bool)
    known[first[held]] = False
    own_steps = covers * known
    spent, seen = np.bincount(lap, own_steps * means, len(steps)), np.bincount(lap, own_steps, len(steps))
    rest = np.where(steps > seen, (cost - spent) / (steps - seen), np.nan)
    for row in np.flatnonzero(~(rest > 0)).tolist():
        own = slice(first[row], first[row] + count[row])
        seen_s = means[own][known[own]]
        if not len(seen_s) and row:  # like the row above
            above = first[row] - 1
            seen_s = means[above : above + 1] if not ends_later[row - 1] and known[above] else rest[row - 1 : row]
        rest[row] = cost[row] / steps[row] if cost[row] > 0 else median(seen_s) if len(seen_s) else np.nan
    left_s = np.where(steps > shown, (steps - shown) * rest, 0.0)
    del own_steps, spent, seen, cost, count, shown
    took_s = np.full(len(end_line) + 1, np.nan)
    later = np.flatnonzero(held & (np.arange(len(steps)) > 0))
    took_s[later - 1] = covers[first[later]] * (means[first[later]] - rest[later]) - left_s[later - 1]
    del covers, first, held, left_s, later
    planned = offset[lap] + done - 1 + eta_s[speeds] / means
    planned = planned[(eta_s[speeds] >= 0) & bounds.ITERATION.mask(planned)]
    end = median(planned) if len(planned) else math.nan
    del planned
    own_ends = ends_later[: len(end_line)]
    number = np.concatenate((offset[lap] + done, offset[1:][own_ends])).astype(np.int64)
    time_s = np.concatenate((rest[lap], rest[ends_later]))
    np.copyto(time_s[: len(means)], means, where=known)
    columns = {
        "line": np.concatenate((place_line[places], end_line[own_ends])),
        "number": number,
        "time_s": time_s,
        "loss": np.concatenate((place_loss[places], end_loss[own_ends])),
    }
    timed = time_s > 0
    if not timed.any():
        return False
    first_line = int(columns["line"][timed].min())
    records.add_rows(**dict(zip(columns, rows_of([*columns.values()], timed), strict=True)))
    del columns, number, time_s, lap, known, rest
    took_s = np.where(took_s > 0, took_s, np.nan)[: len(end_line)]
    at = offset.astype(np.int64)
    records.add_events(Evaluation, end_line, at=at[1:], val_loss=val_loss, took_s=took_s)
    (saves,) = stated.saves
    records.add_events(Checkpoint, saves, at=at[np.searchsorted(end_line, saves)])
    if not math.isnan(end):
        epochs = end / end_steps[-1] if len(end_steps) else np.nan
        last = round(epochs) * int(end_steps[-1]) if epochs >= 0.5 else round(end)
        records.events.append(Fact(first_line, "max_iters", last))
    return True


FORMAT = _TimeSeries(
    name="time-series-library",
    timing=Timing.SPANS_LOG_INTERVAL,
    iterations=(_PLACE, _EPOCH),
    settings=(
        _BEGUN,
        Line("{any}Early stopping{end}", sets={"ended": "by plan", OTHER_PROGRAM: "*"}),
        Line("{any}\\>testing : ", sets={"ended": "by plan", OTHER_PROGRAM: "*"}),
    ),
    tables=(
        Kept(_SPEEDS, (_SPEED,), _COLUMNS[_SPEEDS]),
        Kept(_COSTS, (_COST,), _COLUMNS[_COSTS]),
        Kept(_SAVES, (_SAVED,)),
    ),
    events_first=False,
    traits=Traits(may_evaluate=True, shows_events=True, levers=Levers(
        batch="--batch_size", workers="--num_workers", precision="--use_amp",
    )),
)  # fmt: skip
READER = FORMAT.reader()
