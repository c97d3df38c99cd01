"""YOLOX: a line every few iterations with the mean time since the previous one.

`iter_time` includes the loading of data, which `data_time` shows. The last iterations of an epoch have no line. After
each epoch the weights are saved, and again after an evaluation: the clocks of both show its cost.
"""

from __future__ import annotations

import numpy as np

from stepwatch.readers.formats.epochs import Epochs, EvaluationSpan, add_epochs, plan_epochs
from stepwatch.readers.formats.recorder_run import with_inside
from stepwatch.readers.records import LONGEST_TIME_S, OTHER_PROGRAM, Records
from stepwatch.readers.text.block import Floats, Ints
from stepwatch.readers.text.line import Line
from stepwatch.readers.text.line_format import Kept, LineFormat
from stepwatch.run import Checkpoint, Levers, Timing, Traits

_STEP = Line(
    "{any}epoch: {epoch:int}/{last_epoch:int}, iter: {done:int}/{total:int}, ",
    "iter_time: {time_s}s", "data_time: {data:decimal}s", "total_loss: {loss}", needs=("time_s",),
)  # fmt: skip
_SAVED = Line("{any}Save weights to ")
_EVALUATED = Line("{any}Average forward time: {decimal} ms, ")
_LINES, _SAVES, _RESULTS = "lines", "saves", "results"


class _Yolox(LineFormat):
    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        columns = (found.get(name, np.nan) for name in ("data", "loss", "stamp_s"))
        records.keep(_LINES, lines, found["epoch"] - 1, found["done"], found["total"], found["time_s"], *columns)
        plan_epochs(found, lines, records)

    def finish(self, first_line: int, records: Records) -> None:
        table = records.take_table(_LINES, 8)
        known = np.isfinite(table[:, 1:5]).all(axis=1) & (table[:, 3] > 0) & (table[:, 4] <= LONGEST_TIME_S)
        saves, results = records.take_table(_SAVES, 2), records.take_table(_RESULTS, 1)[:, 0]
        table = _with_ends(table[known], saves[:, 0])
        epochs = Epochs.of(*table[:, :4].T)
        if not len(epochs.rows):
            return
        _, _, _, _, times, data, loss, stamps = table[epochs.rows].T
        passes = []
        numbers = epochs.numbers(records)
        row = np.searchsorted(epochs.line, saves[:, 0], side="right") - 1
        for last in np.unique(row[row >= 0]).tolist():
            own = saves[row == last]
            records.events.append(Checkpoint(line=int(own[0, 0]), at=int(numbers[last])))
            inside = results[(results > own[0, 0]) & (results < own[-1, 0])]
            if len(inside):
                took = float(own[-1, 1] - own[0, 1])
                passes.append(EvaluationSpan(int(inside[0]), int(inside[-1]), took if took >= 0 else None))
        add_epochs(epochs, times, np.minimum(data, times), loss, stamps, passes, records)


def _with_ends(table: np.ndarray, saves: Floats) -> np.ndarray:
    """Adds the last iterations of epochs that are saved after their last line, each as long as those before."""
    ends = np.flatnonzero(np.diff(table[:, 1], append=np.inf) != 0)
    behind = np.append(saves, np.inf)[np.searchsorted(saves, table[ends, 0])]
    ended = (behind < np.append(table[1:, 0], np.inf)[ends]) & (table[ends, 2] < table[ends, 3])
    last = table[ends[ended]].copy()
    last[:, 7] += (last[:, 3] - last[:, 2]) * last[:, 4]
    last[:, 0], last[:, 2], last[:, 6] = behind[ended], last[:, 3], np.nan
    return np.insert(table, ends[ended] + 1, last, axis=0)


FORMAT = _Yolox(
    name="yolox",
    timing=Timing.SPANS_LOG_INTERVAL,
    iterations=(_STEP,),
    settings=(
        Line("{any}start train epoch{epoch_begun:int}"),
        Line("{any}Training start...", header=True, sets={"begun": "training"}),
        Line("{any}Training of experiment is done ", sets={"ended": "by plan", OTHER_PROGRAM: "*"}),
    ),
    tables=(Kept(_SAVES, (_SAVED,), ("stamp_s",)), Kept(_RESULTS, (_EVALUATED,))),
    traits=Traits(may_evaluate=True, shows_events=True, prints_means=True, levers=Levers(
        evaluate_every="eval_interval", other_units=True, batch="-b", workers="data_num_workers",
        log_every="print_interval", precision="--fp16",
    )),
)  # fmt: skip
READER = FORMAT.reader()._replace(complete=with_inside)
