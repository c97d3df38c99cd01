"""MetricLogger: the loop of torchvision's references, and of DETR, DeiT, MAE, DINO, BLIP and many others.

A line shows the mean of the last 20 steps, and of their wait for data; `eta` is the mean of all steps of the epoch
times the steps left, in whole seconds. If lines are 10 or 20 steps apart, the seconds since the epoch began follow from
the means alone; else the last mean is used for the steps between two lines, as far as `eta` allows. `Total time` of the
epoch is exact, and so is that of an evaluation, which is the same loop under another name.
"""

from __future__ import annotations

import math

import numpy as np

from stepwatch.readers.formats.epochs import Epochs, EvaluationSpan, add_epochs, plan_epochs
from stepwatch.readers.formats.recorder_run import with_inside
from stepwatch.readers.formats.running import as_slice
from stepwatch.readers.records import LONGEST_TIME_S, Records, pieces, rows_of
from stepwatch.readers.text.block import Block, Floats, Ints
from stepwatch.readers.text.line import Line
from stepwatch.readers.text.line_format import Kept, LineFormat
from stepwatch.readers.text.shape import alike
from stepwatch.run import Fact, Levers, Timing, Traits, repeated
from stepwatch.units import DAY_S

_WINDOW = 20  # of MetricLogger's SmoothedValue
_COUNTS = r"\[{pad}{done:int}/{total:int}\]  eta: [{days:int} day[s], ]{eta:clock}"
_EVALUATION = Line(
    "{any}<Test;test;TEST;Val;val;VAL;Eval;eval;EVAL;Infer;infer;Predict;predict;Generat;generat;Extract;extract>{any}"
    + _COUNTS
)
_TRAINING = Line(
    r"{any}<Epoch;epoch;EPOCH;Train;train;TRAIN>{any}<\[[epoch:]{epoch:int}[/{last_epoch:int}]\]{pad}; >" + _COUNTS,
    "  loss: {loss}", "  time: {time_s}", "  data: {data:decimal}", needs=("time_s",),
)  # fmt: skip
_OTHER = Line("{any}" + _COUNTS)
_TOTAL = Line("{any}Total time: [{days:int} day[s], ]{clock} ({took_s}[ ]s / it)")
_WHOLE = Line("{any}Training time [{days:int} day[s], ]{whole:clock}")
_LINES, _PASSES, _TOTALS, _WHOLES = "lines", "passes", "totals", "wholes"


class _MetricLogger(LineFormat):
    def sniff(self, head: bytes) -> float:
        """Rules out mmengine and detectron2, whose lines look alike but have another name for the wait for data."""
        return super().sniff(head) if b" data_time: " not in head else 0.0

    def read_block(self, block: Block, left: Ints, numbers: np.ndarray, records: Records) -> None:
        for _, lines, found in alike(block, left, (_EVALUATION,)):
            records.keep(_PASSES, numbers[lines], found["done"], found["total"], 1.0)
            left = block.without(left, lines)
        super().read_block(block, left, numbers, records)

    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        eta = found["eta"] + found.get("days", 0.0) * DAY_S
        columns = [found.get(name, np.nan) for name in ("data", "loss", "stamp_s")]
        epoch = found.get("epoch", np.nan)
        records.keep(_LINES, lines, epoch, found["done"] + 1, found["total"], eta, found["time_s"], *columns)
        plan_epochs(found, lines, records)

    def finish(self, first_line: int, records: Records) -> None:
        columns = records.take_columns(_LINES, 9)
        known = np.logical_and.reduce([*map(np.isfinite, columns[2:6]), columns[3] > 0, columns[5] <= LONGEST_TIME_S])
        columns = rows_of(columns, known)
        if np.isnan(columns[1]).any():  # without a number: count how often the steps restarted
            columns[1] = np.cumsum(np.diff(columns[2], prepend=0) < 0)
        epochs = Epochs.of(*columns[:4])
        rows = as_slice(epochs.rows)
        eta, mean, data, loss, stamps = (column[rows] for column in columns[4:])
        del columns  # there may be millions of rows
        totals = records.take_table(_TOTALS, 2)
        passes = _passes(records.take_table(_PASSES, 4), epochs, totals)
        elapsed = _chained(epochs, mean, eta)
        del eta
        # Scale to the time of the whole epoch, if it is printed after its last line.
        ends, ended = epochs.begins + epochs.lengths - 1, {each.end for each in passes}
        behind = np.concatenate((totals, [[np.inf, np.nan]]))[np.searchsorted(totals[:, 0], epochs.line[ends])]
        printed = (behind[:, 0] < np.append(epochs.line, np.inf)[ends + 1]) & (epochs.done[ends] == epochs.total)
        for lap in np.flatnonzero(printed & (elapsed[ends] > 0)).tolist():
            if behind[lap, 0] not in ended:
                whole = behind[lap, 1] * epochs.total[lap]
                elapsed[epochs.begins[lap] : ends[lap] + 1] *= whole / elapsed[ends[lap]]
        waited = _chained(epochs, np.minimum(data, mean), None)
        cut = epochs.done[epochs.begins] > _WINDOW
        epochs, kept = epochs.without_first_steps()
        times, waits = (epochs.differences(each if kept.all() else each[kept]) for each in (elapsed, waited))
        del elapsed, waited
        # If a log begins in the middle of an epoch, the steps before its first line are not part of that line.
        begins = epochs.begins[cut]
        times[begins], waits[begins] = mean[kept][begins], data[kept][begins]
        # The total also includes time without a line of its own, such as figures and saves.
        shown = np.append(epochs.line, -1)
        for line, clock, days in np.nan_to_num(records.take_table(_WHOLES, 3)).tolist():
            whole = clock + days * DAY_S
            last = int(shown[np.searchsorted(epochs.line, line) - 1])
            records.events.append(Fact(line=last, name="reported_s", value=whole))
        del mean, data
        loss, stamps = (each if kept.all() else each[kept] for each in (loss, stamps))
        add_epochs(epochs, times, waits, loss, stamps, passes, records)


def _chained(epochs: Epochs, mean: Floats, eta: Floats | None) -> Floats:
    """Seconds since the epoch began: from consecutive means, else as `eta` allows."""
    left = repeated(epochs.total, epochs.lengths) - epochs.done + 1
    begun = np.zeros(len(left), bool)
    begun[epochs.begins] = True
    whole = np.empty(len(left))
    known: dict[int, float] = {}
    last, shown = 0, 0.0
    for rows in pieces(len(left)):  # lists of numbers take much memory
        done, bounds = epochs.done[rows], ([0.0] * len(left[rows]), [math.inf] * len(left[rows]))
        if eta is not None:
            bounds = tuple((done * ((eta[rows] + more) / left[rows])).tolist() for more in (0, 1))
        elapsed: list[float] = []
        columns = (column.tolist() for column in (done, mean[rows], begun[rows]))
        for count, average, begins, low, high in zip(*columns, *bounds, strict=True):
            if begins:
                known, last, shown = {0: 0.0}, 0, 0.0
            before = known.get(max(count - _WINDOW, 0))
            if before is not None:
                shown = before + min(count, _WINDOW) * average
            else:
                shown = min(max(shown + (count - last) * average, low), high)
            known[count], last = shown, count
            elapsed.append(shown)
        whole[rows] = elapsed
    return whole


def _passes(table: np.ndarray, epochs: Epochs, totals: np.ndarray) -> list[EvaluationSpan]:
    """The lines of evaluations as passes: a pass ends with its total, with a training step, or when it begins again.

    A loop with another name is a pass only if a training continues after one of its length: else it may be of another
    script.
    """
    stops = np.sort(np.concatenate((epochs.line, totals[:, 0])))
    part = np.searchsorted(stops, table[:, 0])
    begins = np.flatnonzero((np.diff(part, prepend=-1) != 0) | (np.diff(table[:, 1], prepend=0) < 0))
    row = np.searchsorted(epochs.line, table[begins, 0])
    goes_on = (row > 0) & (row < len(epochs.line)) & ~np.isin(row, epochs.begins[epochs.process])
    named, total_of = table[begins, 3] > 0, table[begins, 2]
    counts = named | np.isin(total_of, total_of[goes_on & ~named])
    ends = begins + np.diff(begins, append=len(table))
    found = []
    for begin, end in zip(begins[counts].tolist(), ends[counts].tolist(), strict=True):
        last, total = table[end - 1, 0], table[end - 1, 2]
        place = int(np.searchsorted(totals[:, 0], last))
        stop = int(part[end - 1])
        stated = place < len(totals) and stop < len(stops) and stops[stop] == totals[place, 0]
        following = table[end, 0] if end < len(table) else np.inf
        if stated and totals[place, 0] < following:
            found.append(EvaluationSpan(int(table[begin, 0]), int(totals[place, 0]), float(totals[place, 1] * total)))
        else:
            found.append(EvaluationSpan(int(table[begin, 0]), int(last), None))
    return found


FORMAT = _MetricLogger(
    name="metric-logger",
    timing=Timing.SPANS_LOG_INTERVAL,
    iterations=(_TRAINING,),
    settings=(
        Line("{any}Namespace({any}epochs={epochs:int}", header=True),
        Line("{any}Epoch {int}/{epochs:int}[ {rest}]{end}"),
        Line("{any}Namespace({any}resume='{resume:quoted}.{name}'", header=True),
        Line("{any}Namespace({any}batch_size={batch_size}"),
        Line("{any}Namespace({any}world_size={world_size}"),
        Line("Start[ing] training", header=True, sets={"begun": "training"}),
        Line("{any}number of params[ (M)]: {n_params}{end}"),
    ),
    tables=(
        Kept(_TOTALS, (_TOTAL,), ("took_s",)),
        Kept(_WHOLES, (_WHOLE,), ("whole", "days")),
        Kept(_PASSES, (_EVALUATION,), ("done", "total", 1.0)),
        Kept(_PASSES, (_OTHER,), ("done", "total", 0.0)),
    ),
    traits=Traits(may_evaluate=True, levers=Levers(batch="--batch_size", workers="--num_workers / --workers")),
)
READER = FORMAT.reader()._replace(complete=with_inside)
