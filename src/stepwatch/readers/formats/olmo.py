"""OLMo and OLMo-core: a block of metrics for each logged step, with the clock of the logger.

The block has batches per second, a mean over a window; the clock is exact. Evaluations and saves are logged when they
begin, and are subtracted.
"""

from __future__ import annotations

import math
from enum import IntEnum

import numpy as np

from stepwatch.readers.formats.clocked import ROWS, STARTS, add_clocked, losses
from stepwatch.readers.records import Records
from stepwatch.readers.text.block import Floats, Ints
from stepwatch.readers.text.line import Line
from stepwatch.readers.text.line_format import Kept, LineFormat
from stepwatch.run import Checkpoint, Evaluation, Levers, Timing, Traits
from stepwatch.units import MILLI

_STEP = Line(r"{any}\[step={number}/{last}")
_LOSSES = (Line("{pad}train/CrossEntropyLoss={loss}"), Line("{pad}train/CE loss={loss}"))
_RATES_OF = (Line("{pad}throughput/device/batches_per_second={per_s}"), Line("{pad}throughput/device/BPS={per_s}"))
_STARTS = (Line("{any}Starting training"), Line("{any}Pre-train system metrics"))
_SAVING = Line("{any}Saving[ {name}] checkpoint")
_SAVED = Line("{any}<checkpoint;Checkpoint> saved to ")
_EVALUATING = Line("{any}Running evaluation for ")
_LOSS, _RATES, _PAUSES = "loss", "rates", "pauses"


class _Pause(IntEnum):
    SAVE_BEGINS = 0
    SAVE_ENDS = 1
    EVALUATION = 2


class _Olmo(LineFormat):
    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        self.add_last(records, int(lines[0]), float(found["last"][0]))
        records.keep(ROWS, lines, found["number"], found.get("stamp_s", math.nan), math.nan)

    def finish(self, first_line: int, records: Records) -> None:
        rows = records.table(ROWS, 4)
        if not len(rows):
            return
        rates = losses(rows[:, 0], records.take_table(_RATES, 2))
        rows[:, 3] = losses(rows[:, 0], records.take_table(_LOSS, 2))
        if np.isnan(rows[:, 2]).all():  # without a clock: use the mean over the window
            known = rates > 0
            columns = rows[known, 0].astype(np.int64), rows[known, 1].astype(np.int64)
            records.add_rows(line=columns[0], number=columns[1], time_s=1 / rates[known], loss=rows[known, 3])
            return
        records.tables[ROWS] = [tuple(rows.T)]
        # A save lasts until its end is logged, an evaluation until its figures are printed under the same step again.
        pauses = records.take_table(_PAUSES, 3)
        places = np.searchsorted(rows[:, 0], pauses[:, 0]) - 1
        ends = pauses[pauses[:, 1] == _Pause.SAVE_ENDS]
        evaluated: set[int] = set()
        for place, (line, kind, clock) in zip(places.tolist(), pauses.tolist(), strict=True):
            if place < 0 or kind == _Pause.SAVE_ENDS:
                continue
            at = int(rows[place, 1])
            if kind == _Pause.EVALUATION:
                after = rows[place + 1] if place + 1 < len(rows) else rows[place]
                took = after[2] - clock if after[1] == at and after[0] > line else math.nan
                if at not in evaluated:
                    records.events.append(Evaluation(int(line), at, took_s=took if took >= 0 else None))
                evaluated.add(at)
            else:
                after = ends[ends[:, 0] > line][:1]
                took = float(after[0, 2] - clock) if len(after) else math.nan
                records.events.append(Checkpoint(int(line), at, took_s=took if took >= 0 else None))
        add_clocked(records, MILLI / 2)


FORMAT = _Olmo(
    name="olmo",
    timing=Timing.SPANS_LOG_INTERVAL,
    traits=Traits(
        shows_events=True,
        levers=Levers(
            evaluate_every="eval_interval",
            evaluation_batches="eval_subset_num_batches",
            save_every="save_interval",
            batch="device_train_microbatch_size",
            accumulates=True,
            workers="data.num_workers",
            prefetch="data.prefetch_factor",
            log_every="console_log_interval",
            precision="precision: amp_bf16",
            recompute="activation_checkpointing: whole_layer",
            length="model.max_sequence_length",
        ),
    ),
    iterations=(_STEP,),
    settings=(Line("{any}Total number of parameters: {n_params}"),),
    tables=(
        Kept(_LOSS, _LOSSES, ("loss",)),
        Kept(_RATES, _RATES_OF, ("per_s",)),
        Kept(STARTS, _STARTS, ("stamp_s",)),
        Kept(_PAUSES, (_SAVED,), (_Pause.SAVE_ENDS, "stamp_s")),
        Kept(_PAUSES, (_SAVING,), (_Pause.SAVE_BEGINS, "stamp_s")),
        Kept(_PAUSES, (_EVALUATING,), (_Pause.EVALUATION, "stamp_s")),
    ),
)
READER = FORMAT.reader()
