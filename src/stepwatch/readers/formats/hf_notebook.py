"""Hugging Face Trainer in a notebook: its bar and table, as text.

The clock of the bar starts when the first step has ended, and while it runs, the bar is one step ahead: so it does in
transformers' utils/notebook.py. Evaluations and saves are in its time. There is one row for each line of the table; all
have the mean of the run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.formats.hf_trainer import UNSLOTH
from stepwatch.readers.formats.trainer_rows import cards_of
from stepwatch.readers.reader import BOTH
from stepwatch.readers.records import Records
from stepwatch.readers.text.line import Line
from stepwatch.readers.text.line_format import LineFormat
from stepwatch.run import Evaluation, Fact, Fault, Floats, Ints, Timing, Traits

_LABEL = Line(
    r"\[{pad}{number}/{last} {elapsed:clock}[ \< {eta}, {word} it/s], Epoch {epoch:decimal}/{epochs:decimal}\]"
)
_HEADER = Pattern(rb"(?m)^(?P<first>Step|Epoch)\tTraining Loss(?P<evaluated>\tValidation Loss)?")
_ROW = Pattern(
    rb"(?m)^(?P<place>\d{1,12}(?:\.\d{1,6})?)\t(?P<loss>[^\t\n]{1,20})(?:\t(?P<next>[^\t\n]{1,20}))?[^\n]*\n?"
)
_ENDED = Pattern(
    rb"(?m)(?:TrainOutput\(global_step=(?P<step>\d{1,12}),[^\n]{0,200}?)?"
    rb"'train_runtime': (?P<runtime>\d{1,9}(?:\.\d{1,9})?)"
    rb"|^(?P<used>\d{1,9}\.\d{1,9}) seconds used for training\."  # unsloth's notebooks
)


class _Training(NamedTuple):
    """One bar: what it shows, and what else the log tells of that training."""

    line: int
    done: int
    last: int
    mean_s: float
    """Of all steps, with what ran between them."""
    ended: bool


@dataclass(frozen=True, kw_only=True)
class NotebookFormat(LineFormat):
    """Bars, tables and totals are kept until all is read: a total stands behind the bar that it belongs to."""

    def parse(self, text: bytes, first_line: int, records: Records) -> None:
        super().parse(text, first_line, records)
        for header in _HEADER.finditer(text):
            line, begin = first_line + text.count(b"\n", 0, header.start()) + 1, text.find(b"\n", header.end()) + 1
            while (row := _ROW.compiled.match(text, begin)) is not None and begin:
                loss, val_loss = _number(row["loss"]), _number(row["next"]) if header["evaluated"] else math.nan
                by_epoch, evaluated = header["first"] == b"Epoch", header["evaluated"] is not None
                records.keep_row("table", line, float(row["place"]), by_epoch, loss, evaluated, val_loss)
                line, begin = line + 1, row.end()
        for end in _ENDED.finditer(text):
            line = first_line + text.count(b"\n", 0, end.start())
            records.keep_row("ended", line, _number(end["runtime"] or end["used"]), _number(end["step"]))

    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        records.keep("label", lines, *(found[name] for name in ("number", "last", "elapsed", "epochs")))

    def finish(self, first_line: int, records: Records) -> None:
        labels = records.take_table("label", 5)
        table, ended = records.take_table("table", 6), records.take_table("ended", 3)
        settings = [event for event in records.events if isinstance(event, Fact)]
        faults = [event for event in records.events if isinstance(event, Fault)]
        records.events = [event for event in records.events if not isinstance(event, Fault)]
        fresh = (np.diff(labels[:, 1:4], axis=0, prepend=-1) != 0).any(axis=1)  # a bar may be shown twice
        labels = labels[fresh]
        for label, end in zip(labels, [*labels[1:, 0], math.inf][: len(labels)], strict=True):
            own = table[(table[:, 0] > label[0]) & (table[:, 0] < end)]
            training = _training(label, ended[(ended[:, 0] > label[0]) & (ended[:, 0] < end)])
            per_epoch = training.last / float(label[4])
            number = np.where(own[:, 2] > 0, np.round(own[:, 1] * per_epoch), own[:, 1]).astype(np.int64)
            # An evaluation may be shown before its step is counted.
            number = np.minimum(number, training.done)
            for row, at in zip(own[own[:, 4] > 0], number[own[:, 4] > 0].tolist(), strict=True):
                val_loss = None if math.isnan(row[5]) else float(row[5])
                records.events.append(Evaluation(line=int(row[0]), at=at, val_loss=val_loss))
            if not training.ended:  # an error before a training, or after its end, is that of another cell
                records.events += [fault for fault in faults if label[0] < fault.line < end]
            line, loss = own[:, 0].astype(np.int64), own[:, 3]
            if not len(number) or number[-1] < training.done:
                after = int(line[-1]) if len(line) else training.line
                number, line = np.append(number, training.done), np.append(line, after)
                loss = np.append(loss, np.nan)
            records.add_rows(number=number, time_s=np.full(len(number), training.mean_s), loss=loss, line=line)
            facts = {
                "process": training.line, "mean_of_run": True,
                "max_iters": training.done if training.ended else training.last,
                **cards_of({fact.name: fact.value for fact in settings if fact.line <= training.line}),
            }  # fmt: skip
            records.events += [
                Fact(training.line, name, value, header=name == "process") for name, value in facts.items()
            ]


def _training(label: Floats, ended: Floats) -> _Training:
    line, number, last, elapsed = (float(value) for value in label[:4])
    running = number < last
    done = int(number - 1 if running else min(number, last))
    for _, runtime, step in ended.tolist():
        if runtime >= elapsed - 1:  # else it is that of another training; this one includes the first step
            done = int(step) if step > 0 else int(min(number, last))
            return _Training(int(line), done, int(last), runtime / max(done, 1), True)
    timed = done - 1  # the first step ends before the clock starts
    mean = elapsed / timed if timed > 0 and elapsed > 0 else math.nan
    return _Training(int(line), done, int(last), mean, not running)


def _number(text: bytes | None) -> float:
    try:
        return float(text) if text is not None else math.nan
    except ValueError:  # No log
        return math.nan


FORMAT = NotebookFormat(
    name="hf-notebook",
    timing=Timing.SPANS_RUN,
    traits=Traits(batch_size="per_device_train_batch_size", accumulation="gradient_accumulation_steps"),
    holds=BOTH,
    about=Message(
        "From the bar above the table in the notebook: the mean over the whole run, with the evaluations and saves in "
        "it; from train_runtime where the notebook shows that."
    ),
    example="""\
[ 301/1000 05:12 < 12:07, 0.96 it/s, Epoch 0.30/1]
Step\tTraining Loss\tValidation Loss
100\t2.411300\t2.380700
200\t2.205100\t2.190400""",
    iterations=(_LABEL,),
    settings=UNSLOTH,
)
READER = FORMAT.reader()
