"""Ultralytics' YOLO, and YOLOv5 and YOLOv7 before it: a progress bar for each epoch, and one for its validation.

A bar counts batches; its seconds cover loading and steps, without the validation and the save that follow. The rate, on
tqdm's bar and on Ultralytics' own later one, is a moving average: the seconds count, and the rate only decides within
the second that they do not show. YOLOv5 and YOLOv7 number epochs from 0.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.formats.lightning import EPOCHS, BarRows
from stepwatch.readers.levers import ULTRALYTICS
from stepwatch.readers.records import OTHER_PROGRAM, STEPS_CHANGE, Records, rows_of
from stepwatch.readers.text.block import Mask
from stepwatch.readers.text.line import Line
from stepwatch.readers.text.line_format import Kept, LineFormat
from stepwatch.run import Evaluation, Fact, Floats, Ints, Timing, Traits
from stepwatch.units import HOUR_S

_TQDM = (
    r"{pad}{int}%[|{bar}|][ ]{number}/{last} \[{shown:clock}\<{eta}"
    "[,{pad}<{s_per_it:decimal}s/it;{it_per_s:decimal}it/s>]"
)
_OWN = (
    r"{pad}{int}%  {word}  {number}/{last}[  <{s_per_it:decimal}s/it;{it_per_s:decimal}it/s>]  "
    r"<{shown:clock};{shown_s:decimal}s>"
)
_EPOCH = "{any}{epoch:int}/{end_epoch:int}  {word}  {loss:float}  {float}" + 6 * "[  {float}]" + "  {int}:"
_CLASSES = ("{any}Class  Images  {any}:", "{any}all  {int}  {int}  {any}:", "{any}classes  top1_acc  top5_acc:")
_VALIDATIONS = tuple(Line(begin + bar) for begin in _CLASSES for bar in (_TQDM, _OWN))
_COMPLETED = Line("{any}{epochs:int} epochs completed in {hours:decimal} hours")
_BEGUN = Line("{any}Starting training for {epochs:int} epochs...", header=True, opening=True)
_BEGUN_FOR = Line("{any}Starting training for {limit_s:decimal} hours...", header=True, opening=True, scale=HOUR_S)
_CLOSING = Line("{any}Closing dataloader mosaic")  # the last epochs load less for each image
_CUT = Pattern(rb"(?m)^ *\d{1,5}/\d{1,5} +[\d.]{1,8}[GM] [^\n%]{1,200}: *\d{1,3}(?:%(?:\|[^|\n]{0,400}\|?)?)? *$")
_WITHOUT_BAR = Line(_EPOCH)
_BARS, _PASSES, _LENGTHS, _ENDS, _CUTS = "bar", "val", "lengths", "completed", "cut"


class _Ultralytics(LineFormat):
    @cached_property
    def _marks(self) -> tuple[bytes, ...]:
        """Replaces what its statements have in common, a slash: any text has many."""
        return (b"%",)

    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        records.keep(_BARS, lines, found["epoch"], found["number"], found["last"], _seconds(found), np.nan, np.nan)
        records.keep("loss", lines, np.where(np.isnan(found["loss"]), np.inf, found["loss"]))
        records.keep(EPOCHS, lines, found["end_epoch"])

    def add_events(self, statement: Line, lines: Ints, found: dict[str, Floats], records: Records) -> Mask:
        if statement in _VALIDATIONS:
            records.keep(_PASSES, lines, found["number"], found["last"], _seconds(found), np.nan, np.nan)
            return np.ones(len(lines), bool)
        if statement is _COMPLETED:
            records.events += [Fact(line, OTHER_PROGRAM, True) for line in lines.tolist()]
        return super().add_events(statement, lines, found, records)

    def read_settings(self, rest: str, line: str, number: int, records: Records) -> bool:
        if not _CLOSING.fits(rest):
            return super().read_settings(rest, line, number, records)
        records.events.append(Fact(number, STEPS_CHANGE, rest.strip()))
        return True

    def finish(self, first_line: int, records: Records) -> None:
        bars, ends = records.take_columns(_BARS, 7), records.take_columns(EPOCHS, 2)
        lengths, totals = records.take_table(_LENGTHS, 2), records.take_table(_ENDS, 3)
        known = np.logical_and.reduce([*map(np.isfinite, bars[:5]), bars[3] > 0])
        bars, ends = rows_of(bars, known), rows_of(ends, known)
        passes = records.take_columns(_PASSES, 6)
        cuts = records.take_table(_CUTS, 2)
        line, epoch, drawn, total = bars[:4]
        if not len(line):
            if len(totals) or len(np.unique(cuts[:, 1])) > 1:  # it has trained; a header would mean that it has not yet
                records.events = [event for event in records.events if not (isinstance(event, Fact) and event.header)]
            return
        # Epochs count from 0 if their last number is one less than their stated count.
        stated = np.append(np.nan, lengths[:, 1])[np.searchsorted(lengths[:, 0], line)]
        from_zero = bool((epoch == 0).any() or (stated == ends[1] + 1).any())
        del stated
        epoch = bars[1] = epoch - (not from_zero)
        records.keep(EPOCHS, ends[0], ends[1] + from_zero)
        # A pass of the validation is what is drawn between two bars of training; the one after the end evaluates the
        # best weights, and is not in any printed time.
        before = np.searchsorted(line, passes[0])
        final = np.searchsorted(totals[:, 0], passes[0]) > np.searchsorted(
            totals[:, 0], np.where(before > 0, line[before - 1], -1.0)
        )
        begins = np.diff(before, prepend=-1) > 0
        during = begins & ~final
        records.keep(_PASSES, passes[0][during], 0.0, passes[2][during], 0.0, np.nan, np.nan)
        records.keep(_PASSES, *rows_of(passes, ~final))
        # An epoch that is validated has ended, even if its last drawing was overwritten.
        cut = before[during] - 1
        cut = cut[(cut >= 0) & (drawn[cut] < total[cut]) & (drawn[cut] > 0)]
        records.tables[_BARS] = [tuple(bars)]
        seconds = bars[4][cut] * (total[cut] / drawn[cut])
        records.keep(_BARS, line[cut] + 0.5, epoch[cut], total[cut], total[cut], seconds, np.nan, np.nan)
        del bars, ends, drawn
        BarRows(records).add()
        rows = records.iterations()
        patiences = [event for event in records.events if isinstance(event, Fact) and event.name == "patience"]
        records.events += [
            Fact(fact.line, "patience_iters", int(fact.value * total[-1])) for fact in patiences if fact.value > 0
        ]
        for at_line, epochs, hours in totals.tolist():
            last = int(np.searchsorted(rows.line, at_line)) - 1
            if last < 0:
                continue
            facts: dict[str, float] = {"max_iters": int(rows.number[last])}  # regardless of how many were planned
            above = np.concatenate((lengths[:, 0], totals[:, 0]))
            begun = above[above < at_line].max(initial=-1.0)
            if len(np.unique(epoch[(line > begun) & (line < at_line)])) == epochs:  # none is cut off
                facts["reported_s"] = hours * HOUR_S
            records.events += [Fact(int(rows.line[last]), name, value) for name, value in facts.items()]
            behind = np.flatnonzero(final & (before == np.searchsorted(line, at_line)))
            if len(behind):
                at, took = int(rows.number[last]) + 1, float(passes[3][behind[-1]])
                records.events.append(Evaluation(line=int(passes[0][behind[0]]), at=at, took_s=took))


def _seconds(found: dict[str, Floats]) -> Floats:
    """Seconds since a bar began: whole seconds or tenths, and within the last digit as the rate says."""
    elapsed, unit = (found["shown"], 1.0) if "shown" in found else (found["shown_s"], 0.0)
    if "s_per_it" in found:
        each = found["s_per_it"]
    elif "it_per_s" in found:
        each = 1 / np.maximum(found["it_per_s"], 1e-9)
    else:
        each = (elapsed + unit / 2) / np.maximum(found["number"], 1.0)
    return np.clip(each * found["number"], elapsed, elapsed + unit)


FORMAT = _Ultralytics(
    name="ultralytics",
    timing=Timing.SPANS_ITERATION,
    iterations=(Line(_EPOCH + _TQDM), Line(_EPOCH + _OWN)),
    settings=(_BEGUN, _BEGUN_FOR, Line("{any} patience={patience:int},"), Line("{any}CUDA:0 ({gpu_text}, {int}MiB)")),
    tables=(
        Kept(_LENGTHS, (_BEGUN,), ("epochs",)),
        Kept(_ENDS, (_COMPLETED,), ("epochs", "hours")),
        Kept(_CUTS, (_WITHOUT_BAR,), ("epoch",)),
    ),
    own=(_CLOSING, *_VALIDATIONS),
    untimed=(
        (
            _CUT,
            Message("the bars were cut at the width of the terminal: give the TensorBoard event file or results.csv"),
        ),
    ),
    traits=Traits(hides_saves=True, levers=ULTRALYTICS),
)
READER = FORMAT.reader()
