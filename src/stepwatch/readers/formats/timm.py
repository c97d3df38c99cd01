"""timm's train.py, and loops that print an AverageMeter as it does: PyTorch's ImageNet example, MoCo, Swin.

A line shows the time of its own step and, in brackets, the mean since the epoch began, and the same for the wait for
data. Stalls happen between the lines, so that only the means count: the difference of two, each multiplied by its
number of steps. timm also prints images per second, which have more digits than the mean. An evaluation is a loop of
the same kind.
"""

from __future__ import annotations

import numpy as np

from stepwatch.readers.formats.epochs import Epochs, EvaluationSpan, add_epochs, plan_epochs
from stepwatch.readers.formats.recorder_run import with_inside
from stepwatch.readers.formats.running import EpochClocks, as_slice, lap_times
from stepwatch.readers.records import LONGEST_TIME_S, Records, pieces, rows_of
from stepwatch.readers.text.block import Floats, Ints
from stepwatch.readers.text.line import Line
from stepwatch.readers.text.line_format import Kept, LineFormat
from stepwatch.run import Levers, Timing, Traits

_DIGITS = {"time": 0.0005, "rate": 0.005}
"""How much the last digit may hide: of a mean in seconds, and of images per second."""
_TIMM = Line(
    r"{any}Train: {epoch:int} \[{pad}{done:int}/{total:int} ({pad}{decimal}%)\]",
    " Loss:{pad}{loss}", " Time: {time_s}s,{pad}{decimal}/s  ({pad}{mean:decimal}s,{pad}{rate:decimal}/s)",
    " Data: {decimal} ({pad}{data:decimal})", needs=("mean",),
)  # fmt: skip
_EXAMPLE = Line(
    r"{any}Epoch: \[{epoch:int}\]\[{pad}{done:int}/{total:int}\]",
    "Time{pad}{time_s} ({pad}{mean:decimal})", "Data{pad}{decimal} ({pad}{data:decimal})",
    "Loss{pad}{loss} (", needs=("mean",),
)  # fmt: skip
_SWIN = Line(
    r"{any}Train: \[{epoch:int}/{last_epoch:int}\]\[{pad}{done:int}/{total:int}\]",
    "time {time_s} ({mean:decimal})", "loss {loss} (", needs=("mean",),
)  # fmt: skip
_EVALUATION = Line(
    r"{any}<Test;Val;Valid;Validation>[ ({name})]:{pad}[\[{int}\]]\[{pad}{done:int}/{total:int}\]",
    "Time[:]{pad}{decimal} ({pad}{mean:decimal})", needs=("mean",),
)  # fmt: skip
_LINES, _PASSES = "lines", "passes"


class _Timm(LineFormat):
    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        columns = (found.get(name, np.nan) for name in ("rate", "data", "loss", "stamp_s"))
        records.keep(_LINES, lines, found["epoch"], found["done"], found["total"], found["mean"], *columns)
        plan_epochs(found, lines, records)

    def finish(self, first_line: int, records: Records) -> None:
        columns = records.take_columns(_LINES, 9)
        known = np.logical_and.reduce([*map(np.isfinite, columns[1:5]), columns[3] > 0, columns[4] <= LONGEST_TIME_S])
        columns = rows_of(columns, known)
        if not (columns[2] == columns[3]).any():  # else steps are counted from 1
            columns[2] = columns[2] + 1
        epochs, _ = Epochs.of(*columns[:4]).without_first_steps()
        rows = as_slice(epochs.rows)
        mean, rate, data, loss, stamps = (column[rows] for column in columns[4:])
        del columns  # there may be millions of rows
        if not len(mean):
            return
        laps = EpochClocks(epochs.done, *_by_rate(mean, rate), epochs.begins, epochs.done[epochs.begins])
        del mean, rate
        for column in laps[1:3]:
            column *= epochs.done
        times = lap_times(laps)
        del laps
        waits = data
        if np.isfinite(data).all():
            first = epochs.done[epochs.begins]
            doubt = np.float64(_DIGITS["time"]) * epochs.done
            waits = lap_times(EpochClocks(epochs.done, data * epochs.done, doubt, epochs.begins, first))
        add_epochs(epochs, times, waits, loss, stamps, _passes(records.take_table(_PASSES, 4)), records)
        super().finish(first_line, records)


def _by_rate(mean: Floats, rate: Floats) -> tuple[Floats, Floats]:
    """The mean time of a step, from the images per second if these have more digits, and its error."""
    known = np.isfinite(rate) & (rate > 0)
    slowest = int(np.argmax(np.where(known, mean, 0.0)))  # shows best how many images a step has
    images, digits = rate[slowest] * mean[slowest], _DIGITS["time"]
    exact, doubts = mean.astype(np.float64), np.full(len(mean), digits)
    if not known.any() or images * digits > 0.5 * mean[slowest]:
        return exact, doubts
    for rows in pieces(len(mean)):
        own, per_s = mean[rows], rate[rows]
        finer = np.divide(round(images), per_s, out=own.astype(np.float64), where=known[rows])
        doubt = np.divide(_DIGITS["rate"] * finer, per_s, out=np.full(len(own), digits), where=known[rows])
        use = (np.abs(finer - own) <= digits + doubt) & (doubt < digits)  # a last batch may have fewer images
        np.copyto(exact[rows], finer, where=use)
        np.copyto(doubts[rows], doubt, where=use)
    return exact, doubts


def _passes(table: np.ndarray) -> list[EvaluationSpan]:
    """Each pass of an evaluation, timed by the mean of its last line for all its batches."""
    begins = np.flatnonzero(np.diff(table[:, 1], prepend=np.inf) <= 0)
    ends = begins + np.diff(begins, append=len(table)) - 1
    batches = np.maximum(table[ends, 1] + 1, table[ends, 2])
    columns = (table[begins, 0].astype(np.int64), table[ends, 0].astype(np.int64), table[ends, 3] * batches)
    return [EvaluationSpan(*each) for each in zip(*(column.tolist() for column in columns), strict=True)]


FORMAT = _Timm(
    name="timm",
    timing=Timing.SPANS_LOG_INTERVAL,
    iterations=(_TIMM, _EXAMPLE, _SWIN),
    checkpoints=(Line("Current checkpoints:"), Line("{any} saved !!!"), Line("=\\> saving checkpoint ")),
    settings=(
        Line("{any}Scheduled epochs: {epochs:int}", header=True),
        Line("{any}created, param count:{pad}{n_params}"),
        Line("{any}Training in distributed mode {any} total {world_size}"),
        Line("{any}loaded checkpoint '{resume:quoted}'"),
        Line("{any}number of params: {n_params}{end}"),
    ),
    tables=(Kept(_PASSES, (_EVALUATION,), ("done", "total", "mean")),),
    events_first=False,
    traits=Traits(may_evaluate=True, levers=Levers(
        evaluate_every="--val-interval", other_units=True, batch="--batch-size", accumulation="--grad-accum-steps",
        workers="--workers", log_every="--log-interval", precision="--amp --amp-dtype bfloat16",
        compile="--torchcompile", recompute="--grad-checkpointing",
    )),
)  # fmt: skip
READER = FORMAT.reader()._replace(complete=with_inside)
