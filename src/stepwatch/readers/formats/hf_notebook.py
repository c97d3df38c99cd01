"""Hugging Face Trainer in a notebook: its bar and table, as text.

The clock of the bar starts when the first step has ended, and while it runs, the bar is one step ahead (see
transformers' utils/notebook.py). Its time includes evaluations and saves. Each line of the table becomes a row; all
rows have the mean of the run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from stepwatch.patterns import Pattern
from stepwatch.readers.formats import BOTH
from stepwatch.readers.formats.hf_trainer import UNSLOTH
from stepwatch.readers.formats.running import WHOLE_SECONDS
from stepwatch.readers.formats.trainer_rows import cards_of
from stepwatch.readers.levers import HUGGING_FACE
from stepwatch.readers.records import OTHER_PROGRAM, Records
from stepwatch.readers.text.block import Block, read_number
from stepwatch.readers.text.line import Line
from stepwatch.readers.text.line_format import LineFormat
from stepwatch.run import Evaluation, Fact, Fault, Floats, Ints, Timing, Traits

_LABEL = Line(
    r"\[{pad}{number}/{last} {elapsed:clock}[ \< <{left_s:clock};{eta}>, <{per_s:decimal};+inf> it/s]"
    r", Epoch {epoch:decimal}/{epochs:decimal}\]"
)
_HEADER = Pattern(  # the letters come first: they are found several times as fast as the beginning of a line
    rb"(?m)\tTraining Loss(?:(?<=^Step\tTraining Loss)|(?P<by_epoch>(?<=^Epoch\tTraining Loss)))"
    rb"(?P<evaluated>\tValidation Loss)?"
)
_ENDED = Pattern(
    rb"(?m)(?:TrainOutput\(global_step=(?P<step>\d{1,12}),[^\n]{0,200}?)?"
    rb"'train_runtime': (?P<runtime>\d{1,9}(?:\.\d{1,9})?)"
    rb"|^(?P<used>\d{1,9}\.\d{1,9}) seconds used for training\.",  # unsloth's notebooks
)
_BEHIND = Pattern(  # printed below a training that has returned: a word about it, or the bar of an evaluation
    rb"(?mi)^[^\n\w]{0,8}(?:(?:model )?training (?:is |has )?(?:been )?(?:complete|finish|done|over)|early stopp)"
    rb"|^ *\[ *\d{1,9}/\d{1,9} \d{1,3}(?::\d\d){1,2}\]"
)
_RESULT = Pattern(rb"""['"](?:train_runtime|eval_runtime|eval_loss)['"]: """)  # returned by train() and evaluate()
_HALF_A_DIGIT = 0.005  # of the printed rate


class _Training(NamedTuple):
    """One bar: what it shows, and what else the log shows about that training."""

    line: int
    begin: int
    """The checkpoint from which it resumed; 0 if it is new."""
    done: int
    last: int
    mean_s: float
    """Of all steps, including what ran between them."""
    ended: bool


@dataclass(frozen=True, kw_only=True)
class NotebookFormat(LineFormat):
    """Keeps bars, tables and totals until everything is read: a total comes after the bar that it belongs to."""

    def sniff(self, head: bytes) -> float:
        """Counts tables and results too: below the bar of a notebook they are not lines of a console."""
        labels = super().sniff(head)
        if labels < 1:
            return labels
        tables = sum(len(place) for _, _, place, *_ in _tables(Block.of(head)))
        return labels + tables + sum(1 for _ in _RESULT.finditer(head))

    def parse(self, text: bytes, first_line: int, records: Records) -> None:
        block = Block.of(text)
        left = block.filled
        for header, rows, place, loss, val_loss in _tables(block):
            by_epoch, evaluated = (np.array(header[name] is not None) for name in ("by_epoch", "evaluated"))
            val_loss = np.where(evaluated, val_loss, np.nan)
            records.keep("table", rows + first_line, place, by_epoch, loss, evaluated, val_loss)
            left = block.without(left, rows)
        self.read_block(block, left, np.arange(len(block.starts)) + first_line, records)
        rest = block.letters(left)
        for end in _ENDED.finditer(rest):
            line = first_line + left[rest.count(b"\n", 0, end.start())]
            records.keep_row("ended", line, _number(end["runtime"] or end["used"]), _number(end["step"]))
        for end in _BEHIND.finditer(rest):
            records.keep_row("behind", first_line + left[rest.count(b"\n", 0, end.start())])

    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        unknown = np.full(len(lines), np.nan)
        names = ("number", "last", "elapsed", "epochs", "per_s", "left_s")
        records.keep("label", lines, *(found.get(name, unknown) for name in names))

    def finish(self, first_line: int, records: Records) -> None:
        labels = records.take_table("label", 7)
        table, ended = records.take_table("table", 6), records.take_table("ended", 3)
        behind = records.take_table("behind", 1)[:, 0]
        settings = [event for event in records.events if isinstance(event, Fact)]
        faults = [event for event in records.events if isinstance(event, Fault)]
        records.events = [event for event in records.events if not isinstance(event, Fault)]
        ends = np.append(labels[1:, 0], math.inf)
        tables, totals = (
            [
                rows[np.searchsorted(rows[:, 0], begin, side="right") : np.searchsorted(rows[:, 0], end)]
                for begin, end in zip(labels[:, 0], ends, strict=False)
            ]
            for rows in (table, ended)
        )
        for place, (label, end, own) in enumerate(zip(labels, ends.tolist(), tables, strict=False)):
            both = slice(place, place + 2)
            if not len(totals[place]) and len(labels[both]) > 1 and _is_shown_again(labels[both], tables[both]):
                continue
            per_epoch = float(label[2] / label[4])
            number = np.where(own[:, 2] > 0, np.round(own[:, 1] * per_epoch), own[:, 1]).astype(np.int64)
            training = _training(label, totals[place], number)
            over = behind[(behind > label[0]) & (behind < end)]
            if len(over) and not training.ended:  # stopped early: the cell continued
                training = training._replace(ended=True)
                records.events += [Fact(int(over[0]), OTHER_PROGRAM, True)]
            number = np.minimum(number, training.done)
            evaluated = own[:, 4] > 0
            places = own[evaluated, 0].astype(np.int64)
            records.add_events(Evaluation, places, at=number[evaluated], val_loss=own[evaluated, 5])
            if not training.ended:  # an error before a training, or after its end, is from another cell
                records.events += [fault for fault in faults if label[0] < fault.line < end]
            lines, loss = own[:, 0].astype(np.int64), own[:, 3]
            if not len(number) or number[-1] < training.done:
                after = int(lines[-1]) if len(lines) else training.line
                number, lines = np.append(number, training.done), np.append(lines, after)
                loss = np.append(loss, np.nan)
            records.add_rows(number=number, time_s=np.full(len(number), training.mean_s), loss=loss, line=lines)
            facts = {
                "process": training.line, "mean_of_run": True, "first_covers": int(number[0]) - training.begin,
                **({"resume": True} if training.begin else {}),
                "max_iters": training.done if training.ended else training.last,
                **cards_of({fact.name: fact.value for fact in settings if fact.line <= training.line}),
            }  # fmt: skip
            records.events += [
                Fact(training.line, name, value, header=name == "process") for name, value in facts.items()
            ]


def _tables(block: Block) -> Iterator[tuple[re.Match[bytes], Ints, Floats, Floats, Floats]]:
    """Each header with the rows below it, and their first three cells; nan if a cell is not a number."""
    headers = [*_HEADER.finditer(block.text)]
    lines = np.searchsorted(block.starts, [header.end() for header in headers]).tolist()
    for header, (first, last) in zip(headers, pairwise([*lines, len(block.starts)]), strict=True):
        begin, end = block.starts[first:last], block.ends[first:last]
        text = slice(header.end(), int(end[-1]) if len(end) else header.end())
        tabs = np.append(np.flatnonzero(block.octets[text] == ord("\t")) + header.end(), [len(block.text)] * 3)
        cells = np.searchsorted(tabs, begin)
        ends = [np.minimum(tabs[cells + place], end) for place in range(3)]
        fits, stops, place = read_number(block, begin)
        fits &= (stops == ends[0]) & (ends[1] > stops + 1) & (block.octets[begin] != ord("-"))
        count = int(np.argmin(np.append(fits, False)))
        begins = [cell[:count] + 1 for cell in ends[:2]]
        loss, other = (_numbers(block, start, cell[:count]) for start, cell in zip(begins, ends[1:], strict=True))
        yield header, first + np.arange(count), place[:count], loss, other


def _numbers(block: Block, begins: Ints, ends: Ints) -> Floats:
    fits, stops, values = read_number(block, np.minimum(begins, len(block.text)))
    for row in np.flatnonzero(~fits | (stops != ends)).tolist():
        values[row] = _number(block.text[begins[row] : ends[row]])
    return values


def _is_shown_again(labels: Floats, tables: list[Floats]) -> bool:
    """Whether the second of two bars is the first, further on: it has the same rows as far as the first goes."""
    first, second = labels[:, [1, 3]]
    early, late = (table[:, 1:] for table in tables)
    return bool(
        labels[0, 2] == labels[1, 2]
        and (first <= second).all()
        and np.array_equal(early, late[: len(early)], equal_nan=True)
        and (len(early) or (first == second).all())  # without rows, only the same position proves it
    )


def _training(label: Floats, ended: Floats, rows: Ints) -> _Training:
    line, number, last, elapsed, _, per_s, left_s = (float(value) for value in label)
    running = number < last
    done = int(number - 1 if running else min(number, last))
    if len(rows) and rows[-1] == number:  # evaluated before the bar was redrawn
        done = int(number)
    begin = _resumed_at(number, elapsed, per_s, rows)
    for _, runtime, step in ended.tolist():
        if runtime >= elapsed - 1:  # else it is of another training; the runtime includes the first step
            done = int(step) if step > 0 else int(min(number, last))
            return _Training(int(line), begin, done, int(last), runtime / max(done - begin, 1), True)
    timed = done - begin - 1  # the first step ends before the clock starts
    # The clock has whole seconds; what is left, based on the mean so far, has more of them.
    means = [(WHOLE_SECONDS / elapsed, elapsed / timed)] if timed > 0 and elapsed > 0 else []
    if not means or means[0][0] > _HALF_A_DIGIT:
        means += [(_HALF_A_DIGIT / per_s, 1 / per_s)] if per_s > 0 else []
        means += [(WHOLE_SECONDS / left_s, left_s / (last - number))] if left_s > 0 and running else []
    return _Training(int(line), begin, done, int(last), min(means, default=(0.0, math.nan))[1], not running)


def _resumed_at(number: float, elapsed: float, per_s: float, rows: Ints) -> int:
    """The checkpoint that a training resumed from: by the rate of the bar, and by a table that begins late."""
    gap = float(np.median(np.diff(rows))) if len(rows) > 1 else math.nan
    by_table = int(rows[0] - gap) if len(rows) > 1 and rows[0] > 1.5 * gap else 0
    if not per_s > 0:
        return by_table
    by_rate = number - per_s * (elapsed + WHOLE_SECONDS) - 2  # the number on the bar when its clock starts
    doubt = 1 + _HALF_A_DIGIT * elapsed + WHOLE_SECONDS * per_s
    if by_rate <= doubt:
        return 0
    return by_table if abs(by_table - by_rate) <= doubt else round(by_rate)


def _number(text: bytes | None) -> float:
    try:
        return float(text) if text is not None else math.nan
    except ValueError:  # No log
        return math.nan


FORMAT = NotebookFormat(
    name="hf-notebook",
    timing=Timing.SPANS_RUN,
    traits=Traits(levers=HUGGING_FACE),
    holds=BOTH,
    iterations=(_LABEL,),
    settings=UNSLOTH,
)
READER = FORMAT.reader()._replace(strongest=math.inf)
