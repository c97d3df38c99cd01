"""MindSpore: what its TimeMonitor prints behind each epoch, and LossMonitor's lines above it.

The time of the epoch is exact, and with the mean of its steps it shows their number. The first epoch holds the
compilation of the graph.
"""

from __future__ import annotations

import numpy as np

from stepwatch.readers.reader import NOTHING
from stepwatch.readers.records import LONGEST_TIME_S, Records
from stepwatch.readers.text.block import Floats, Ints
from stepwatch.readers.text.line import Line
from stepwatch.readers.text.line_format import Kept, LineFormat
from stepwatch.run import Fact, Levers, Timing, Traits

_EPOCH = Line("{any}epoch time: {whole_ms:decimal} ms, per step time: {step_ms:decimal} ms")
_LOSS = Line("{any}epoch: {epoch:int}[/{last:int}] step: {step:int}[/{int}], loss is {loss}")
_TIMES, _LOSSES = "times", "losses"


class _MindSpore(LineFormat):
    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        stamps = found.get("stamp_s", np.nan)
        records.keep(_TIMES, lines, found["whole_ms"] / 1000, found["step_ms"] / 1000, stamps)

    def finish(self, first_line: int, records: Records) -> None:
        table, losses = records.take_table(_TIMES, 4), records.take_table(_LOSSES, 4)
        table = table[(table[:, 2] > 0) & (table[:, 1] <= LONGEST_TIME_S)]
        if not len(table):
            return
        line, whole, step, stamps = table.T
        steps = np.maximum(np.round(whole / step), 1.0)
        above = np.searchsorted(losses[:, 0], line) - 1
        told = np.concatenate((losses, [[-1.0, np.nan, np.nan, np.nan]]))[above]
        known = told[:, 0] > np.append(-1.0, line[:-1])  # a loss of this epoch
        epoch = np.where(known, told[:, 1], np.nan)
        if np.isnan(epoch).any():
            epoch = np.arange(1.0, len(line) + 1)
        anew = np.diff(epoch, prepend=np.inf) <= 0
        columns = {"number": (epoch * steps).astype(np.int64), "time_s": whole / steps, "stamp_s": stamps}
        loss = np.where(known, told[:, 3], np.nan)
        records.add_rows(**columns, loss=loss, line=line.astype(np.int64))
        for row in np.flatnonzero(anew).tolist():
            if row or epoch[row] == 1:  # an excerpt shows no start
                records.events.append(Fact(int(line[row]), "process", row, header=True))
            if known[row] and told[row, 2] > 0:
                records.events.append(Fact(int(line[row]), "max_iters", int(told[row, 2] * steps[row])))


FORMAT = _MindSpore(
    name="mindspore",
    timing=Timing.SPANS_LOG_INTERVAL,
    holds=NOTHING,
    iterations=(_EPOCH,),
    tables=(Kept(_LOSSES, (_LOSS,), ("epoch", "last", "loss")),),
    traits=Traits(may_evaluate=True, levers=Levers(
        batch="batch_size", workers="num_parallel_workers", precision="amp_level='O2'",
    )),
)  # fmt: skip
READER = FORMAT.reader()
