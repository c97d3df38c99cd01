"""Megatron-LM, Megatron-DeepSpeed and GPT-NeoX.

The time is the mean since the previous line, including the wait for the cards. Since the end of 2023, when lines got
their own clock, the timer stops during evaluations and saves; before, both are in the mean of the next line. Since 2026
the first iteration is printed alone, and counted again in the next mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from stepwatch.readers.formats import CHECKPOINT, EVALUATION
from stepwatch.readers.records import Records
from stepwatch.readers.text.line import Line
from stepwatch.readers.text.line_format import LineFormat
from stepwatch.readers.text.undo import gaps_of, starts_of, without
from stepwatch.run import Checkpoint, Evaluation, Event, Fact, Floats, Ints, Iterations, Levers, Timing, Traits
from stepwatch.units import GIGA

_OWN_CLOCK = b"] iteration "
_WORK = "gigaflops of an iteration on one card"
_SHARD = Line("{any}number of parameters on ({any}) model parallel rank ({tensor:int}, {pipeline:int}): {count:int}")
_OF_EVALUATIONS = ("eval_iters", "eval_interval")  # meaningless if no iteration evaluates
_SETTINGS = {
    "seq_length": "block_size", "micro_batch_size": "batch_size", "train_iters": "max_iters",
    "world_size": "world_size", "log_interval": "log_interval", "eval_interval": "eval_interval",
    "eval_iters": "eval_iters", "num_layers": "n_layer", "num_attention_heads": "n_head", "hidden_size": "n_embd",
    "padded_vocab_size": "vocab_size",
}  # fmt: skip


class _Megatron(LineFormat):
    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        super().add(records, lines, found)
        if "batch" in found:
            changes = np.flatnonzero(np.diff(found["batch"], prepend=-1))
            records.events += [Fact(int(lines[i]), "batch", float(found["batch"][i])) for i in changes.tolist()]
        if "tflops" in found:
            time_ms = found["time_ms"] if "time_ms" in found else found["time_s"] * 1e3
            records.keep(_WORK, lines, found["tflops"] * time_ms)

    def add_event(
        self, statement: Line, values: dict[str, float], stamp: float | None, number: int, records: Records
    ) -> bool:
        if statement is not _SHARD:
            return super().add_event(statement, values, stamp, number, records)
        records.events.append(Fact(number, "shard", ((values["tensor"], values["pipeline"]), values["count"])))
        return True

    def parse(self, text: bytes, first_line: int, records: Records) -> None:
        super().parse(text, first_line, records)
        if _OWN_CLOCK in text:
            records.events.append(Fact(first_line, "own_clock", True))

    def finish(self, first_line: int, records: Records) -> None:
        super().finish(first_line, records)
        rows, events = records.iterations(), records.sorted_events()
        if not len(rows):
            return
        starts = starts_of(rows, events)
        # The line after the first may count the first again. If the clock shows this, use the difference instead.
        steps, seconds = gaps_of(rows, starts)
        with np.errstate(invalid="ignore", divide="ignore"):
            rest = ((steps + 1) * rows.time_s - np.roll(rows.time_s, 1)) / np.maximum(steps, 1)
            wrong = (np.abs(steps * rows.time_s / seconds - 1) > 0.1) & (np.abs(steps * rest / seconds - 1) < 0.03)
        rows = replace(rows, time_s=np.where(wrong, rest, rows.time_s))
        saves, evaluations = _saves(events, rows), _evaluations(events)
        stated = [event for event in events if not isinstance(event, Evaluation | Checkpoint)]
        stated += _derived(stated, rows, starts, records.take_table(_WORK, 2))
        if any(isinstance(event, Fact) and event.name == "eval_iters" and event.value < 1 for event in stated):
            stated = [event for event in stated if not (isinstance(event, Fact) and event.name in _OF_EVALUATIONS)]
        if not any(isinstance(event, Fact) and event.name == "own_clock" for event in stated):
            # The timer keeps running: subtract what has a known duration; the rest stays in the next line.
            inside = set()
            for kind, own in ((EVALUATION, evaluations), (CHECKPOINT, saves)):
                if own and all(event.took_s is not None for event in own):
                    rows = replace(rows, time_s=without(rows, steps, own))
                else:
                    inside.add(kind)
            stated += [Fact(line, "holds", frozenset(inside)) for line in rows.line[starts].tolist()]
        records.events = [*stated, *evaluations, *saves]
        records.replace_rows(rows)


def _saves(events: Sequence[Event], rows: Iterations) -> list[Checkpoint]:
    """Each save once: timed by its timer, printed when it is done, else by the clocks of its begin and end."""
    saves: list[Checkpoint] = []
    for event in events:
        if isinstance(event, Checkpoint) and saves and saves[-1].at == event.at:
            saves[-1] = saves[-1]._replace(took_s=saves[-1].took_s or _between(saves[-1], event, rows))
        elif isinstance(event, Checkpoint):
            saves.append(event)
        elif isinstance(event, Fact) and event.name == "save_ms" and saves:
            saves[-1] = saves[-1]._replace(took_s=event.value / 1e3)
    return saves


def _between(begin: Checkpoint, end: Checkpoint, rows: Iterations) -> float | None:
    """By the clock; None if iterations are in between, because the save then ran in parallel."""
    apart = np.searchsorted(rows.line, begin.line) == np.searchsorted(rows.line, end.line)
    if begin.stamp_s is None or end.stamp_s is None or not apart:
        return None
    return max(end.stamp_s - begin.stamp_s, 0.0)


def _evaluations(events: Sequence[Event]) -> list[Evaluation]:
    """Each iteration once, with the sum of the timers of its data sets, which come before their losses."""
    found: list[Evaluation] = []
    took = 0.0
    for event in events:
        if isinstance(event, Fact) and event.name == "evaluate_ms":
            took += event.value / 1e3
        elif isinstance(event, Evaluation):
            if found and found[-1].at == event.at:
                found[-1] = found[-1]._replace(took_s=(found[-1].took_s or 0.0) + took or None)
            else:
                found.append(event._replace(took_s=took or None))
            took = 0.0
    return found


def _derived(events: Sequence[Event], rows: Iterations, starts: Ints, work: np.ndarray) -> list[Fact]:
    """For each process: parameters summed over its shards, tokens from batch and length, work from TFLOP/s."""
    facts = [event for event in events if isinstance(event, Fact)]
    derived: list[Fact] = []
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(rows)], strict=True):
        above = int(rows.line[start - 1]) if start else -1
        line, last = int(rows.line[start]), int(rows.line[end - 1])
        own = [fact for fact in facts if above < fact.line <= last]
        done = work[(work[:, 0] > above) & (work[:, 0] <= last), 1]
        named = {fact.name: fact.value for fact in own}
        shards = {fact.value[0]: fact.value[1] for fact in own if fact.name == "shard"}
        n_params = named.get("billions") or sum(shards.values())
        if n_params:
            derived.append(Fact(line, "n_params", float(n_params)))
        batches = [fact.value for fact in own if fact.name == "batch"]
        if any(later > earlier for earlier, later in pairwise(batches)):
            derived.append(Fact(line, "schedules", True))
        if not batches or "block_size" not in named:
            continue
        tokens = batches[-1] * named["block_size"]
        derived.append(Fact(line, "tokens_per_iter", tokens))
        if len(done) and named.get("world_size") and tokens and len(set(batches)) == 1:
            flops = float(np.median(done)) * GIGA * named["world_size"]
            derived.append(Fact(line, "flops_per_token", flops / tokens))
    return derived


FORMAT = _Megatron(
    name="megatron",
    timing=Timing.SPANS_LOG_INTERVAL,
    iterations=(
        Line(
            r"[\[{name}:{int}\] -  ][samples/sec: {word} | ]iteration< ;=>{pad}{number}/{pad}{last} |",
            "elapsed time per iteration (ms): {time_ms} |",
            "elapsed time per iteration (s): {time_s} |",
            "elapsed_time_per_iteration_ms={time_ms} |",  # Argonne's fork
            "throughput per GPU (TFLOP/s/GPU): {tflops:decimal} |",
            "global< batch size:;_batch_size=>{pad}{batch:int} |",
            "[lm ;lm_]loss<: ;=>{loss} |",
            needs=("time_ms", "time_s"),
        ),
    ),
    evaluations=(
        Line("validation[-{word}] <loss;results> <at;on> [iteration {at}]{bar}|[{any}loss value: {val_loss}]"),
        Line("test[-{word}] <loss;results> <at;on> [iteration {at}]{bar}|[{any}loss value: {val_loss}]"),
    ),
    checkpoints=(
        Line("saving checkpoint at iteration  {at} to "),
        Line("successfully saved checkpoint <from;at> iteration  {at}"),
    ),
    settings=(
        Line("{any}using world size: {world_size}", header=True, opening=True),
        Line(r"\[before the start of training step\] datetime", header=True, sets={"begun": "datetime"}),
        Line("using torch.{dtype} for parameters"),
        Line("Total number of parameters in billions:  {billions:decimal}", scale=1e9),
        Line("[time (ms) | ]save-checkpoint[ ]{dots}: [(][{decimal}, ]{save_ms:decimal}"),
        Line("[time (ms) | ]evaluate[ ]{dots}: [(][{decimal}, ]{evaluate_ms:decimal}"),
        *(
            Line(f"{name} ..{{dots}}[ ]{{{setting}:int}}[....{{dots}}{{name}}]{{end}}")
            for name, setting in _SETTINGS.items()
        ),
    ),
    own=(_SHARD,),
    events_first=False,
    traits=Traits(
        may_evaluate=True,
        shows_events=True,
        prints_means=True,
        levers=Levers(
            evaluate_every="--eval-interval",
            evaluation_batches="--eval-iters",
            save_every="--save-interval",
            batch="--micro-batch-size",
            accumulates=True,
            workers="--num-workers",
            log_every="--log-interval",
            precision="--bf16",
            recompute="--recompute-activations",
            length="--seq-length",
        ),
    ),
)
READER = FORMAT.reader()
