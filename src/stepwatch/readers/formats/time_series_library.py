"""Time-Series-Library, and Informer, Autoformer, iTransformer, PatchTST and others that have its loop.

Every 100 iterations it prints their mean time, behind each epoch what that took without its validation, and how many
iterations it had. The first hundred of a later epoch are timed since the line before: what that has beyond the steps is
the validation. Several trainings often share a log.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from stepwatch import bounds
from stepwatch.messages import Message
from stepwatch.readers.formats.running import median
from stepwatch.readers.reader import NOTHING
from stepwatch.readers.records import OVER, Records
from stepwatch.readers.text.block import Floats, Ints
from stepwatch.readers.text.line import Line
from stepwatch.readers.text.line_format import Kept, LineFormat
from stepwatch.run import Checkpoint, Evaluation, Fact, Levers, Timing, Traits

_PLACE = Line("{pad}iters: {done:int}, epoch: {epoch:int} | loss: {loss}")
_EPOCH = Line(
    "{any}Epoch: {epoch:int}, Steps: {steps:int} | Train Loss: {loss}", "<Vali;Val> Loss: {val_loss}", needs=("loss",)
)
_SPEED = Line("{pad}speed: {mean_s:decimal}s/iter; left time: {left_s:decimal}s")
_COST = Line("{any}Epoch: {epoch:int} cost time: {cost_s:decimal}")
_SAVED = Line("{any}Validation loss decreased ({any}Saving model")
_BEGUN = Line("{any}start training : ", header=True, sets={"begun": "training"})
_ROWS = "rows"
_NAMES = ("epoch", "done", "steps", "loss", "val_loss", "mean_s", "left_s", "cost_s", "saved")


class _Told(NamedTuple):
    """What the lines show, as columns; nan for all that a line does not show."""

    line: Floats
    epoch: Floats
    done: Floats
    steps: Floats
    loss: Floats
    val_loss: Floats
    mean_s: Floats
    left_s: Floats
    cost_s: Floats
    saved: Floats


class _TimeSeries(LineFormat):
    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        records.keep(_ROWS, lines, *(found.get(name, np.nan) for name in _NAMES))

    def finish(self, first_line: int, records: Records) -> None:
        table = records.take_table(_ROWS, len(_Told._fields))
        told = _Told(*table.T)
        headers = [event.line for event in records.events if isinstance(event, Fact) and event.header]
        starts = dict(zip(np.searchsorted(told.line, headers).tolist(), headers, strict=True))
        counts = (told.done > 0) | (told.steps > 0)
        level = 1.0
        for row, (epoch, counted) in enumerate(zip(told.epoch.tolist(), counts.tolist(), strict=True)):
            if row == 0 or row in starts or epoch < level:
                starts.setdefault(row, int(told.line[row]))
                level = 1.0
            level = epoch if counted else level
        begins = sorted(row for row in starts if row < len(table))
        for begin, end in pairwise([*begins, len(table)]):
            if _add_training(_Told(*table[begin:end].T), records) and begin:
                records.events.append(Fact(starts[begin], "process", starts[begin], header=True))


def _add_training(told: _Told, records: Records) -> bool:
    """The rows and events of one training; whether there are any."""
    line = told.line.astype(np.int64)
    # What is printed of some iterations stands on two lines.
    pairs = np.flatnonzero((told.done > 0) | (told.mean_s > 0))
    pairs = np.stack((pairs[:-1], pairs[1:]))
    places, speeds = pairs[:, (told.done[pairs[0]] > 0) & (told.mean_s[pairs[1]] > 0)]
    done, means = told.done[places], told.mean_s[speeds]
    ends = np.flatnonzero(told.steps > 0)
    lap = np.searchsorted(ends, speeds)  # the epoch of each, counted from 0
    ended = np.arange(len(ends) + (lap[-1:] == len(ends)).sum()) < len(ends)  # the last one may go on
    steps = np.append(told.steps[ends], done[-1:])[: len(ended)]
    offset = np.append(0.0, np.cumsum(told.steps[ends]))
    costs = np.flatnonzero(told.cost_s > 0)
    cost = np.full(len(ends) + 1, np.nan)
    cost[np.searchsorted(ends, costs)] = told.cost_s[costs]
    cost = cost[: len(ended)]
    count = np.bincount(lap, minlength=len(steps))
    first = np.cumsum(count) - count
    covers = np.diff(done, prepend=0.0)
    covers[first[count > 0]] = done[first[count > 0]]
    shown = np.append(done, 0.0)[np.where(count > 0, first + count - 1, -1)]
    ends_later = ended & (steps > shown)  # its end is a row of its own
    # The first row of a later epoch holds the validation.
    held = (count > 0) & (np.cumsum(count + ends_later) > count + ends_later)
    known = np.ones(len(means), bool)
    known[first[held]] = False
    spent, seen = (np.bincount(lap, known * column, len(steps)) for column in (covers * means, covers))
    rest = np.where(steps > seen, (cost - spent) / (steps - seen), np.nan)
    for row in np.flatnonzero(~(rest > 0)).tolist():
        own = slice(first[row], first[row] + count[row])
        seen_s = means[own][known[own]]
        if not len(seen_s) and row:  # as the row above
            above = first[row] - 1
            seen_s = means[above : above + 1] if not ends_later[row - 1] and known[above] else rest[row - 1 : row]
        rest[row] = cost[row] / steps[row] if cost[row] > 0 else median(seen_s) if len(seen_s) else np.nan
    left_s = np.where(steps > shown, (steps - shown) * rest, 0.0)
    took_s = np.full(len(ends) + 1, np.nan)
    later = np.flatnonzero(held & (np.arange(len(steps)) > 0))
    took_s[later - 1] = covers[first[later]] * (means[first[later]] - rest[later]) - left_s[later - 1]
    own_ends = ends[ends_later[: len(ends)]]
    columns = {
        "line": np.concatenate((line[places], line[own_ends])),
        "number": np.concatenate((offset[lap] + done, offset[1:][ends_later[: len(ends)]])).astype(np.int64),
        "time_s": np.concatenate((np.where(known, means, rest[lap]), rest[ends_later])),
        "loss": np.concatenate((told.loss[places], told.loss[own_ends])),
    }
    timed = columns["time_s"] > 0
    if not timed.any():
        return False
    records.add_rows(**{name: column[timed] for name, column in columns.items()})
    took_s = np.where(took_s > 0, took_s, np.nan)[: len(ends)]
    at = offset.astype(np.int64)
    records.add_events(Evaluation, line[ends], at=at[1:], val_loss=told.val_loss[ends], took_s=took_s)
    saves = np.flatnonzero(told.saved > 0)
    records.add_events(Checkpoint, line[saves], at=at[np.searchsorted(ends, saves)])
    planned = offset[lap] + done - 1 + told.left_s[speeds] / means
    planned = planned[(told.left_s[speeds] >= 0) & bounds.ITERATION.mask(planned)]
    if len(planned):
        end = median(planned)
        epochs = end / told.steps[ends[-1]] if len(ends) else np.nan
        last = int(round(epochs) * told.steps[ends[-1]]) if epochs >= 0.5 else round(end)
        records.events.append(Fact(int(columns["line"][timed].min()), "max_iters", last))
    return True


FORMAT = _TimeSeries(
    name="time-series-library",
    timing=Timing.SPANS_LOG_INTERVAL,
    holds=NOTHING,
    about=Message(
        "The mean of the last 100 iterations, and what each epoch took without its validation. What lies between two "
        "epochs beyond that is the validation, with the test and the checkpoint."
    ),
    example="""\
	iters: 100, epoch: 1 | loss: 0.5521043
	speed: 0.0534s/iter; left time: 136.1232s
Epoch: 1 cost time: 13.1208
Epoch: 1, Steps: 264 | Train Loss: 0.6012345 Vali Loss: 1.0123456 Test Loss: 0.5432101
Validation loss decreased (inf --> 1.012346).  Saving model ...
	iters: 100, epoch: 2 | loss: 0.4410238
	speed: 0.1409s/iter; left time: 321.9563s""",
    iterations=(_PLACE, _EPOCH),
    settings=(
        _BEGUN,
        Line("{any}Early stopping{end}", sets={"ended": "by plan", OVER: "*"}),
        Line("{any}\\>testing : ", sets={"ended": "by plan", OVER: "*"}),
    ),
    tables=(
        Kept(_ROWS, (_SPEED, _COST), _NAMES),
        Kept(_ROWS, (_SAVED,), tuple(1.0 if name == "saved" else name for name in _NAMES)),
    ),
    events_first=False,
    traits=Traits(may_evaluate=True, shows_events=True, levers=Levers(
        batch="--batch_size", workers="--num_workers", precision="--use_amp",
    )),
)  # fmt: skip
READER = FORMAT.reader()
