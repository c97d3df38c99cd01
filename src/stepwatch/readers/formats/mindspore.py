"""MindSpore: what its TimeMonitor prints after each epoch, and LossMonitor's lines above it.

The time of the epoch is exact; divided by the mean of its steps, it shows their number. The first epoch includes the
compilation of the graph.
"""

from __future__ import annotations

import numpy as np

from stepwatch.readers.records import LONGEST_TIME_S, Records, rows_of
from stepwatch.readers.text.block import Floats, Ints
from stepwatch.readers.text.line import Line
from stepwatch.readers.text.line_format import Kept, LineFormat
from stepwatch.run import Fact, Levers, Timing, Traits, rows_from

_EPOCH = Line("{any}epoch time: {whole_ms:decimal} ms, per step time: {step_ms:decimal} ms")
_LOSS = Line("{any}epoch: {epoch:int}[/{last:int}] step: {step:int}[/{int}], loss is {loss}")
_TIMES, _LOSSES = "times", "losses"


class _MindSpore(LineFormat):
    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        stamps = found.get("stamp_s", np.nan)
        records.keep(_TIMES, lines, found["whole_ms"] / 1000, found["step_ms"] / 1000, stamps)

    def finish(self, first_line: int, records: Records) -> None:
        columns, losses = records.take_columns(_TIMES, 4), records.take_columns(_LOSSES, 4)
        line, whole, step, stamps = rows_of(columns, (columns[2] > 0) & (columns[1] <= LONGEST_TIME_S))
        del columns  # there may be millions of rows
        if not len(line):
            return
        whole_steps = np.round(whole / step)
        steps = np.maximum(whole_steps, 1.0, out=whole_steps)
        above = rows_from(losses[0], line) - 1
        # The loss of this epoch; if there is none above, index -1 is the appended placeholder.
        known = (above >= 0) & (np.append(losses[0], -1)[above] > np.append(-1, line[:-1]))
        epoch = np.where(known, np.append(losses[1], np.nan)[above], np.nan)
        if np.isnan(epoch).any():
            epoch = np.arange(1.0, len(line) + 1)
        anew = np.diff(epoch, prepend=np.inf) <= 0
        number, loss = (epoch * steps).astype(np.int64), np.where(known, np.append(losses[3], np.nan)[above], np.nan)
        records.add_rows(number=number, time_s=whole / steps, stamp_s=stamps, loss=loss, line=line)
        for row in np.flatnonzero(anew).tolist():
            if row or epoch[row] == 1:  # an excerpt shows no start
                records.events.append(Fact(int(line[row]), "process", row, header=True))
            last = float(losses[2][above[row]]) if known[row] else 0.0
            if last > 0:
                records.events.append(Fact(int(line[row]), "max_iters", int(last * steps[row])))


FORMAT = _MindSpore(
    name="mindspore",
    timing=Timing.SPANS_LOG_INTERVAL,
    iterations=(_EPOCH,),
    tables=(Kept(_LOSSES, (_LOSS,), ("epoch", "last", "loss")),),
    traits=Traits(may_evaluate=True, levers=Levers(
        batch="batch_size", workers="num_parallel_workers", precision="amp_level='O2'",
    )),
)  # fmt: skip
READER = FORMAT.reader()
