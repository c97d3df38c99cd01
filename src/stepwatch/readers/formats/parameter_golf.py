"""parameter-golf: modded-nanogpt's clock, with a time limit that ends most runs, and its own lines.

Newer variants print minutes with one decimal; tokens per second since the start have all digits, and show the clock
exactly. The plan is a number of iterations or seconds of training, whichever ends first. What follows the last step
(quantization, evaluations of the compressed model) is not training.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from stepwatch.readers.formats.modded_nanogpt import CLOCKS_OF_VALIDATIONS, STEP, VALIDATION, ModdedNanogptFormat
from stepwatch.readers.formats.running import median
from stepwatch.readers.records import LARGEST_KEPT, LONGEST_TIME_S, Records
from stepwatch.readers.text.block import Floats, Ints
from stepwatch.readers.text.line import Line
from stepwatch.readers.text.line_format import Kept
from stepwatch.run import Fact, Levers, Timing, Traits
from stepwatch.units import MINUTE_S

_STOPPED = Line("stopping_early: {any}train_time:{pad}{time_ms}ms step:{pad}{at}/")
_FINAL = Line("final_{word} val_loss:")  # of the trained model
_OWN = (b"val_bpb", b"wallclock")
_STOPS, _FINALS, _CAP = "stops", "finals", "cap_s"


class _Golf(ModdedNanogptFormat):
    def sniff(self, head: bytes) -> float:
        """Claims lines that modded-nanogpt has as well if words of this format occur too."""
        return super().sniff(head) + (0.5 if any(word in head for word in _OWN) else -0.5)

    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        if "time_min" in found:  # so that lines at 0.0 minutes are kept; see finish()
            found = {**found, "time_min": np.maximum(found["time_min"], 1e-9)}
        super().add(records, lines, found)

    def add_event(
        self, statement: Line, values: dict[str, float], stamp: float | None, number: int, records: Records
    ) -> bool:
        if statement is not _STOPPED:
            return super().add_event(statement, values, stamp, number, records)
        if values["at"] <= LARGEST_KEPT and values["time_ms"] / 1e3 <= LONGEST_TIME_S:
            records.keep_row(CLOCKS_OF_VALIDATIONS, number, values["at"], values["time_ms"] / 1e3)
            records.keep_row(_STOPS, number, values["at"])
        records.events.append(Fact(line=number, name="ended", value="by plan"))
        return True

    def finish(self, first_line: int, records: Records) -> None:
        rows = records.iterations()
        per_s = rows.reported_tokens_per_s
        if len(rows) and np.isfinite(per_s).any():
            facts = [event for event in records.events if isinstance(event, Fact)]
            tokens = next((float(fact.value) for fact in facts if fact.name == "tokens_per_iter"), np.nan)
            with np.errstate(divide="ignore", invalid="ignore"):
                exact = rows.number * tokens / per_s
            fits = np.abs(exact - rows.time_s) <= MINUTE_S / 10  # the last digit of its clock
            records.replace_rows(replace(rows, time_s=np.where(fits, exact, rows.time_s)))
        stops, finals = records.table(_STOPS, 2), records.take_table(_FINALS, 1)
        super().finish(first_line, records)
        rows = records.iterations()
        # Even if no line says so, a time limit has ended the training if the model is evaluated at the end.
        ended = np.unique(np.searchsorted(rows.line, finals[:, 0]) - 1)
        known = np.searchsorted(rows.line, stops[:, 0], side="right") - 1
        for row in np.setdiff1d(ended[ended >= 0], known).tolist():
            stated = {"max_iters": int(rows.number[row]), "ended": "by plan"}
            records.events += [Fact(line=int(rows.line[row]), name=name, value=value) for name, value in stated.items()]
        for row, at in zip(known.tolist(), stops[:, 1].tolist(), strict=True):
            if row >= 0:
                records.events.append(Fact(line=int(rows.line[row]), name="max_iters", value=int(at)))
        caps = [event for event in records.events if isinstance(event, Fact) and event.name == _CAP]
        stopped = max(stops[:, 0].max(initial=-1), finals[:, 0].max(initial=-1)) >= rows.line.max(initial=0)
        if not caps or not len(rows) or stopped or caps[-1].value <= 0:
            return
        # As many iterations as the remaining time allows, at the pace of the last lines.
        own = slice(int(np.flatnonzero(np.diff(rows.number, prepend=np.inf) < 0)[-1]), None)
        spent = float((rows.time_s[own] * np.diff(rows.number[own], prepend=0)).sum())
        pace = max(median(rows.time_s[own][-3:]), 1e-6)  # median of three: in one of them the steps may become longer
        last = int(rows.number[-1]) + max(round((caps[-1].value - spent) / pace), 0)
        planned = [event.value for event in records.events if isinstance(event, Fact) and event.name == "max_iters"]
        if not planned or last < planned[-1]:
            limits = {"max_iters": last, "limit_s": float(caps[-1].value)}
            records.events += [Fact(line=int(rows.line[-1]), name=name, value=value) for name, value in limits.items()]


FORMAT = _Golf(
    name="parameter-golf",
    timing=Timing.CUMULATIVE,
    iterations=(
        STEP,
        Line("{pad}{number}/{last} train_loss:{pad}{loss} train_time:{pad}{time_min}m tok/s:{pad}{tokens_per_s}{rest}"),
        Line("step:{pad}{number}/{last} loss:{pad}{loss} t:{pad}{time_ms}ms avg:{rest}"),
    ),
    evaluations=(Line("[step:]{pad}{at}/{int} val_loss:{pad}{val_loss}"),),
    settings=(
        Line("{any}train_batch_tokens:{pad}{tokens_per_iter:int}"),
        Line("{any}train_seq_len:{pad}{block_size:int}"),
        Line("stopping_early: ", sets={"ended": "by plan"}),
        Line("{any}max_wallclock_seconds:{pad}{cap_s:decimal}"),
        Line("{any}gptq:reserving {any}effective={cap_s:decimal}ms", scale=1e-3),
        Line("{pad}world_size:{pad}{world_size:int}"),
        Line("{any}grad_accum_steps:{pad}{gradient_accumulation_steps:int}"),
        Line("{any}model_params:{pad}{n_params:int}"),
        Line("{pad}val_loss_every:{pad}{eval_interval:int}"),
    ),
    tables=(Kept(_FINALS, (_FINAL,)),),
    own=(VALIDATION, _STOPPED),
    traits=Traits(
        schedules=True, shows_events=True, levers=Levers(evaluate_every="VAL_LOSS_EVERY", log_every="TRAIN_LOG_EVERY")
    ),
)
READER = FORMAT.reader()._replace(strongest=math.inf)
