"""DeepSpeed: the lines of its engine, and those of DeepSpeed-Chat.

The engine prints samples per second of the last step alone, from forward to step: the step time is the batch of all
cards divided by that rate. If no line shows the batch, the clock of the lines is used. The pipeline engine prints a
mean, RLHF the whole step with generation, and other scripts the latency of micro-steps, as the engine's own timers do.
Trainers that run on the engine print more than these lines, so they count little in detection.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from stepwatch.patterns import Pattern
from stepwatch.readers.records import Records
from stepwatch.readers.text.line import Line, lines_with_marks
from stepwatch.readers.text.line_format import Kept, LineFormat
from stepwatch.readers.text.undo import fine, gaps_of, is_possible_time, starts_of
from stepwatch.run import Checkpoint, Evaluation, Event, Fact, Floats, Ints, Iterations, Levers, Timing, Traits
from stepwatch.units import GIGA

_TRAINER_ABOVE = b"elapsed time per iteration ("
_CONFIG = Pattern(
    r'"?(?P<name>train_batch_size|train_micro_batch_size_per_gpu|gradient_accumulation_steps|world_size|steps_per_print)'
    r'"?[:. ]+(?P<value>\d{1,15}),?\s*$'
)
_ARGUMENTS = Pattern(
    r"--(?P<name>per_device_train_batch_size|gradient_accumulation_steps|max_seq_len)[ =]'?,? ?'?(?P<value>\d{1,15})"
)
_NAMES = {
    "train_batch_size": "batch", "train_micro_batch_size_per_gpu": "batch_size",
    "per_device_train_batch_size": "batch_size", "gradient_accumulation_steps": "accumulation",
    "world_size": "world_size", "steps_per_print": "log_interval", "max_seq_len": "block_size",
}  # fmt: skip
_TIMERS = "<fwd;forward>{0}: {{fwd:decimal}} | <bwd;backward>{0}: {{bwd:decimal}} |{{any}} step{0}: {{step:decimal}}"
_TIMES = (
    ("e2e", Line("[|]E2E latency={time_s}s")),
    ("e2e", Line("End-to-End => Latency: {time_s}s")),
    ("pipeline", Line("steps: {number} loss: {loss}{any} iter time (s): {time_s} samples/sec:")),
    (
        "latency",
        Line(
            "Model Parameters: {billions:decimal} B, Latency: {time_s}s, {any}Batch Size: {micro:int}, "
            "Sequence Length: {length:int}"
        ),
    ),
    ("breakdown", Line(r"[\[Rank {int}\] ][rank={int} ]time (ms) | " + _TIMERS.format(""))),
    ("micro", Line(r"[\[Rank {int}\] ][rank={int} ]time (ms) | " + _TIMERS.format("_microstep"))),
)
_INNER = {"parameters", "ppl", "eval_loss", "micro_steps"}
_TURNS, _MICRO_STEPS, _SIZES = "turn", "micro-steps of a step", "sizes"
_TURN_LINES = (Line("epoch: {epoch:int}|step: {step:int}|ppo"), Line("Epoch: {epoch:int} | Step: {step:int} | PPO"))


class _DeepSpeed(LineFormat):
    def sniff(self, head: bytes) -> float:
        if _TRAINER_ABOVE in head:
            return 0.0
        statements = [*self.iterations, *(line for _, line in _TIMES)]
        lines = lines_with_marks(head, tuple(statement.letters for statement in statements))
        # A weak claim: other trainers run on this engine, and print their own lines.
        return 0.01 * sum(any(statement.fits(line) for statement in statements) for line in lines)

    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        if "tokens_per_s_on_average" in found:
            found["tokens_per_s"] = found["tokens_per_s_on_average"]
            records.events.append(Fact(int(lines[0]), "running", True))
        super().add(records, lines, found)
        if "epoch" in found:
            first = (found["epoch"] == 0) & (found["number"] > 0)  # later epochs restart the count of micro-steps
            records.keep(_MICRO_STEPS, lines[first], found["micro"][first] / found["number"][first])

    def read_settings(self, rest: str, line: str, number: int, records: Records) -> bool:
        config = _CONFIG.match(rest)
        stated = [config] if config is not None else [*_ARGUMENTS.finditer(rest)] if "--" in rest else []
        records.events += [Fact(number, _NAMES[setting["name"]], float(setting["value"])) for setting in stated]
        return super().read_settings(rest, line, number, records) or bool(stated)

    def add_event(
        self, statement: Line, values: dict[str, float], stamp: float | None, number: int, records: Records
    ) -> bool:
        kind = next((kind for kind, line in _TIMES if line is statement), None)
        if kind is None:
            return super().add_event(statement, values, stamp, number, records)
        if "fwd" in values:
            for part in ("fwd", "bwd", "step"):
                records.keep_row(kind, number, values[part] / 1e3, math.nan, math.nan)
        else:
            own, loss = values.get("number", math.nan), values.get("loss", math.nan)
            records.keep_row(kind, number, values["time_s"], own, loss)
        if "billions" in values:
            records.keep_row(_SIZES, number, values["billions"] * GIGA, values["length"], values["micro"])
        return True

    def finish(self, first_line: int, records: Records) -> None:
        for line, ratio in records.take_table(_MICRO_STEPS, 2)[-1:].tolist():
            records.events.append(Fact(int(line), "micro_steps", float(round(ratio))))
        sizes = records.take_table(_SIZES, 4)
        headers = sorted(event.line for event in records.events if isinstance(event, Fact) and event.header)
        process = np.searchsorted(headers, sizes[:, 0])
        stated = np.column_stack((sizes[:, 1:], process))  # the same in most lines of a process
        for row in np.flatnonzero((np.diff(stated, axis=0, prepend=-1) != 0).any(axis=1)).tolist():
            names = ("parameters", "block_size", "batch_size")
            records.events += map(Fact, [int(sizes[row, 0])] * len(names), names, sizes[row, 1:].tolist())
        events = records.sorted_events()
        facts = [event for event in events if isinstance(event, Fact)]
        times = _Times.of(records)
        rows, own = _rows(records.iterations(), facts, times)
        kept = [event for event in events if not (isinstance(event, Fact) and event.name in _INNER)]
        records.events = [*kept, *own, *_placed(records.unplaced_events(), facts, rows)]
        records.unplaced = []
        known = is_possible_time(rows.time_s)
        for line in rows.line[~known].tolist():
            records.add_unread(line, "")
        records.replace_rows(replace(rows, reported_tokens_per_s=np.full(len(rows), np.nan)).take(known))


class _Times(NamedTuple):
    """Lines without the engine's rate: line, time, number and loss by kind; in `turns` line, epoch and step."""

    of_kind: dict[str, np.ndarray]
    turns: np.ndarray

    @classmethod
    def of(cls, records: Records) -> _Times:
        kinds = dict.fromkeys(kind for kind, _ in _TIMES)
        return cls({kind: records.take_table(kind, 4) for kind in kinds}, records.take_table(_TURNS, 3))


# --- which lines are the iterations -----------------------------------------------------------------------------


def _rows(rates: Iterations, facts: Sequence[Fact], times: _Times) -> tuple[Iterations, list[Fact]]:
    """The rows of the lines that show most of a whole step, and the facts that follow from them."""
    stated = _stated(facts)
    of_kind = times.of_kind
    own: dict[str, object] = {}
    if len(of_kind["e2e"]):  # RLHF restarts the count of steps in every epoch
        line, epoch, step = times.turns.T
        length = int(np.max(step, initial=-1)) + 1
        length = next((int(fact.value) for fact in facts if fact.name == "generations"), length)
        rows = _numbered(of_kind["e2e"], line, epoch * length + step)
    elif len(of_kind["pipeline"]):
        rows, own = _numbered(of_kind["pipeline"]), {"averaged": True}
    elif len(rates):
        rows, own = _from_rates(rates, facts, of_kind["breakdown"])
    elif len(of_kind["latency"]):
        rows = _whole_steps(_numbered(of_kind["latency"]), int(stated["accumulation"]))
    else:
        rows = _numbered(_summed(of_kind["breakdown"]))
    if not is_possible_time(rows.time_s).any():
        own = {}
        rows = _whole_steps(_numbered(_summed(of_kind["micro"])), int(stated["accumulation"]))
    if not len(rows):
        return rows, []
    generates = bool(len(of_kind["e2e"]))
    own |= _sizes({**stated, **own}, generates)
    return rows, [Fact(int(rows.line[0]), name, value) for name, value in own.items() if value]


def _stated(facts: Sequence[Fact]) -> dict[str, Any]:
    divides = ("accumulation", "batch_size")
    stated = {fact.name: fact.value for fact in facts if fact.name not in divides or fact.value >= 1}
    return {"accumulation": max(stated.get("micro_steps", 1.0), 1.0)} | stated


_NONE = np.zeros(0)


def _numbered(times: np.ndarray, lines: np.ndarray = _NONE, numbers: np.ndarray = _NONE) -> Iterations:
    """Timed lines as rows, numbered by their own number, by that of a line above, or counted from 1."""
    line, time, own, loss = times.T
    number = np.where(np.isnan(own), np.arange(1, len(line) + 1), own)
    above = np.searchsorted(lines, line) - 1
    if len(lines) and (above >= 0).all():
        number = numbers[above]
    unknown = np.full(len(line), np.nan)
    return Iterations(
        number=number.astype(np.int64), time_s=time, line=line.astype(np.int64), loss=loss, reported_mfu=unknown,
        reported_tokens_per_s=unknown, stamp_s=unknown,
    )  # fmt: skip


def _summed(parts: np.ndarray) -> np.ndarray:
    """The timers of each line, which are kept separately, as one time."""
    first = np.unique(parts[:, 0], return_index=True)[1]
    whole = parts[first]
    whole[:, 1] = np.add.reduceat(parts[:, 1], first) if len(first) else 0.0
    return whole


def _whole_steps(rows: Iterations, accumulation: int) -> Iterations:
    """Micro-steps summed to steps."""
    if accumulation <= 1:
        return rows
    count = len(rows) // accumulation
    whole = rows.take(slice(accumulation - 1, count * accumulation, accumulation))
    times = rows.time_s[: count * accumulation].reshape(count, accumulation).sum(axis=1)
    return replace(whole, number=np.arange(1, count + 1), time_s=times)


def _from_rates(rows: Iterations, facts: Sequence[Fact], breakdown: np.ndarray) -> tuple[Iterations, dict[str, object]]:
    """Batch divided by rate; the batch is from the clock if no line shows it, or shows that of another engine."""
    steps, seconds = gaps_of(rows, starts_of(rows, facts))
    batch = next((fact.value for fact in facts if fact.name == "batch"), None)
    with np.errstate(invalid="ignore", divide="ignore"):
        usable = fine(seconds, rows.stamp_s)
        by_clock = np.where(usable | (not usable.any()), seconds / steps, np.nan)
        seen = rows.reported_tokens_per_s * by_clock
        # A step cannot take longer than the clock shows between two lines.
        if np.isfinite(seen).any() and (batch is None or np.nanmedian(seen) < 0.9 * batch):
            batch = float(np.nanmedian(seen))
        times = (batch or math.nan) / rows.reported_tokens_per_s
    if any(fact.name == "running" for fact in facts):  # old lines: the mean of the whole run, which is of no use
        return replace(rows, time_s=np.where(np.isfinite(by_clock), by_clock, times)), {"averaged": True}
    if batch is None:  # the sum of the timers after each line
        parts = _summed(breakdown)
        times = np.append(parts[:, 1], math.nan)[np.searchsorted(parts[:, 0], rows.line)]
    return replace(rows, time_s=times), {"batch": batch}


def _sizes(stated: Mapping[str, Any], generates: bool) -> dict[str, object]:
    """Settings that no single line shows: the last step, and tokens if the batch fits a whole number of cards."""
    accumulation = stated["accumulation"]
    length = stated.get("generations" if generates else "micro_batches", 0.0) * stated.get("epochs", 1.0)
    last = length - 1 if generates else length // accumulation
    sizes: dict[str, object] = {"max_iters": max(last, 0.0), "n_params": stated.get("parameters")}
    batch, one = stated.get("batch"), stated.get("batch_size", 1.0) * accumulation
    if not batch or generates:
        return sizes
    cards = round(batch / one)
    if cards and abs(batch / (cards * one) - 1) < 0.02:
        if "batch_size" in stated:
            sizes["world_size"] = stated.get("world_size", float(cards))
            sizes["gradient_accumulation_steps"] = cards * accumulation
        if "block_size" in stated:
            sizes["tokens_per_iter"] = cards * one * stated["block_size"]
    return sizes


# --- evaluations and checkpoints --------------------------------------------------------------------------------


def _placed(unplaced: Sequence[Evaluation | Checkpoint], facts: Sequence[Fact], rows: Iterations) -> list[Event]:
    """Events placed by the epochs begun if the epoch length is known, else by the row above; losses are from below."""
    stated = _stated(facts)
    length = stated.get("micro_batches", 0.0) // stated["accumulation"]
    begun = [fact.line for fact in facts if fact.name == "micro_batches"]
    losses = [(fact.line, _loss(fact)) for fact in facts if fact.name in ("ppl", "eval_loss")]
    placed: list[Event] = []
    for event in unplaced:
        row = int(np.searchsorted(rows.line, event.line)) - 1
        at = int(rows.number[row]) if row >= 0 else 0
        if isinstance(event, Checkpoint):
            placed.append(event._replace(at=at))
            continue
        if length:
            at = int(length * bisect_left(begun, event.line))
        below = bisect_right(losses, event.line, key=itemgetter(0))
        loss = next((value for line, value in losses[below : below + 1] if line <= event.line + 40), None)
        placed.append(event._replace(at=at, val_loss=loss))
    return placed


def _loss(fact: Fact) -> float:
    value = float(fact.value)
    return math.log(value) if fact.name == "ppl" and value > 0 else value


FORMAT = _DeepSpeed(
    name="deepspeed",
    timing=Timing.SPANS_STEP,
    traits=Traits(
        levers=Levers(
            batch="train_micro_batch_size_per_gpu",
            accumulation="gradient_accumulation_steps",
            log_every="steps_per_print",
            precision="bf16.enabled=true",
        )
    ),
    iterations=tuple(
        Line(
            "{any}<epoch={epoch:int}/micro_step={micro:int}/global_step=;{int}/>{number}, "
            "[RunningAvgSamplesPerSec={decimal}, ]" + rate
        )
        for rate in ("CurrSamplesPerSec={tokens_per_s}", "SamplesPerSec={tokens_per_s_on_average:decimal}")
    ),
    evaluations=(Line("***** Evaluating {any} *****"),),
    checkpoints=(
        Line(r"[\[Rank {int}\] ]\[{name}\] Checkpoint {any}global_step{at} is about to be saved"),
        Line(r"[\[Rank {int}\] ]\[{name}\] Checkpoint {word} is about to be saved"),
        Line("<S;s>aving [the final ]model ..."),
    ),
    settings=(
        Line("***** Running training *****", header=True, sets={"begun": "training"}),
        Line("Beginning of Epoch {int}/{epochs:int}, Total Micro Batches {micro_batches:int}"),
        Line("Beginning of Epoch {int}/{epochs:int}, Total Generation Batches {generations:int}"),
        Line("ppl: {ppl:decimal}"),
        Line("chosen: {word} rejected: {word} loss: {eval_loss:decimal}"),
    ),
    tables=(Kept(_TURNS, _TURN_LINES, ("epoch", "step")),),
    own=(*(line for _, line in _TIMES), *(Line(name) for name in _NAMES)),
    events_first=False,
)
READER = FORMAT.reader()
