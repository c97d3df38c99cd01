"""Time-Series-Library, and Informer, Autoformer, iTransformer, PatchTST and others that have its loop.

Every 100 iterations it prints their mean time, behind each epoch what that took without its validation, and how many
iterations it had. The first hundred of a later epoch are timed since the line before: what that has beyond the steps is
the validation. Several trainings often share a log.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from stepwatch import bounds
from stepwatch.messages import Message
from stepwatch.readers.formats.running import median
from stepwatch.readers.reader import NOTHING
from stepwatch.readers.records import OVER, Records
from stepwatch.readers.text.block import Floats, Ints
from stepwatch.readers.text.line import Line
from stepwatch.readers.text.line_format import LineFormat
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
_NAMES = ("epoch", "done", "steps", "loss", "val_loss", "mean_s", "left_s", "cost_s", "saved", "begun")


class _Told(NamedTuple):
    """What one line shows; nan for all else."""

    line: float
    epoch: float
    done: float
    steps: float
    loss: float
    val_loss: float
    mean_s: float
    left_s: float
    cost_s: float
    saved: float
    begun: float


class _Row(NamedTuple):
    line: int
    done: float
    """Iterations of the epoch."""
    mean_s: float
    """Since the line before."""
    loss: float


class _TimeSeries(LineFormat):
    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        unknown = np.full(len(lines), np.nan)
        records.keep(_ROWS, lines, *(found.get(name, unknown) for name in _NAMES))

    def read_event(self, rest: str, prefix: str, number: int, records: Records) -> bool:
        values = next((found.values() for line in (_SPEED, _COST) if (found := line.find(rest)) is not None), {})
        if _SAVED.fits(rest):
            values["saved"] = 1.0
        own = bool(values)
        if _BEGUN.fits(rest):
            values["begun"] = 1.0
        if values:
            records.keep_row(_ROWS, number, *(values.get(name, math.nan) for name in _NAMES))
        return own or super().read_event(rest, prefix, number, records)

    def finish(self, first_line: int, records: Records) -> None:
        training: _Training | None = None
        for told in map(_Told._make, records.take_table(_ROWS, len(_Told._fields)).tolist()):
            if training is None or told.begun > 0 or told.epoch < training.epoch:
                if training is not None:
                    training.add_to(records)
                training = _Training(int(told.line), first=training is None)
            training.take(told)
        if training is not None:
            training.add_to(records)


class _Training:
    """One of the trainings of a log, line by line."""

    def __init__(self, line: int, *, first: bool) -> None:
        self.line, self.first = line, first
        self.epoch, self.steps, self.offset = 1.0, math.nan, 0.0
        self.open: list[_Row] = []
        """Of the epoch that goes on."""
        self.place: _Told | None = None
        self.cost_s = math.nan
        self.left_s = 0.0
        """Behind the last line of the epoch before."""
        self.rows: list[tuple[int, float, float, float]] = []
        self.events: list[Evaluation | Checkpoint] = []
        self.ends_at: list[float] = []

    def take(self, told: _Told) -> None:
        if told.done > 0:
            self.epoch, self.place = told.epoch, told
        elif told.mean_s > 0 and self.place is not None:
            self.open.append(_Row(int(self.place.line), self.place.done, told.mean_s, self.place.loss))
            end = self.offset + self.place.done - 1 + told.left_s / told.mean_s
            if told.left_s >= 0 and bounds.ITERATION.holds(end):
                self.ends_at.append(end)
            self.place = None
        elif told.cost_s > 0:
            self.cost_s = told.cost_s
        elif told.steps > 0:
            self.epoch, self.steps = told.epoch, told.steps
            self._close(told.steps, int(told.line), told.loss)
            at, val_loss = int(self.offset), None if math.isnan(told.val_loss) else told.val_loss
            self.events.append(Evaluation(int(told.line), at, val_loss=val_loss))
        elif told.saved > 0:
            self.events.append(Checkpoint(int(told.line), int(self.offset)))

    def _close(self, steps: float, line: int = -1, loss: float = math.nan) -> None:
        """An epoch with all that is known of it; of one that goes on there is neither its cost nor its end."""
        covers = np.diff([0.0, *(row.done for row in self.open)])
        means = np.array([row.mean_s for row in self.open])
        known = np.ones(len(means), bool)
        known[:1] = not self.rows  # the first one of a later epoch holds the validation
        spent, seen = float((covers * means)[known].sum()), float(covers[known].sum())
        rest = (self.cost_s - spent) / (steps - seen) if steps > seen else math.nan
        if not rest > 0:
            seen_s = means[known] if known.any() else np.array([row[2] for row in self.rows[-1:]] or [math.nan])
            rest = self.cost_s / steps if self.cost_s > 0 else median(seen_s)
        if len(means) and not known[0]:
            took = float(covers[0] * (means[0] - rest)) - self.left_s
            places = [place for place, each in enumerate(self.events) if isinstance(each, Evaluation)]
            if places and took > 0:
                self.events[places[-1]] = self.events[places[-1]]._replace(took_s=took)
            means[0] = rest
        self.rows += [
            (row.line, self.offset + row.done, mean, row.loss)
            for row, mean in zip(self.open, means.tolist(), strict=True)
        ]
        done = self.open[-1].done if self.open else 0.0
        if line >= 0 and steps > done:
            self.rows.append((line, self.offset + steps, rest, loss))
        self.left_s = (steps - done) * rest if steps > done else 0.0
        self.offset += steps if line >= 0 else 0.0
        self.open, self.cost_s = [], math.nan

    def add_to(self, records: Records) -> None:
        if self.open:
            self._close(self.open[-1].done)
        rows = [row for row in self.rows if row[2] > 0]
        if not rows:
            return
        for line, number, time_s, loss in rows:
            records.add_row(line=line, number=int(number), time_s=time_s, loss=loss)
        records.events += self.events
        if not self.first:
            records.events.append(Fact(self.line, "process", self.line, header=True))
        if self.ends_at:
            end = median(np.array(self.ends_at))
            epochs = end / self.steps
            records.events.append(
                Fact(rows[0][0], "max_iters", int(round(epochs) * self.steps) if epochs >= 0.5 else round(end))
            )


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
    own=(_SPEED, _COST, _SAVED),
    events_first=False,
    traits=Traits(may_evaluate=True, shows_events=True, levers=Levers(
        batch="--batch_size", workers="--num_workers", precision="--use_amp",
    )),
)  # fmt: skip
READER = FORMAT.reader()
