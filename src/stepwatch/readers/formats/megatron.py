"""Megatron-LM, Megatron-DeepSpeed and GPT-NeoX.

The time is the mean since the line before, the cards waited for. Since the end of 2023, when lines got a clock of their
own, the timer stands still during evaluations and saves; before, both are in the mean of the next line. Since 2026 the
first iteration is printed alone and counted again in the next mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.columns import Template
from stepwatch.readers.lines import LOSS, NUMBER, LineFormat, Told
from stepwatch.readers.reader import CHECKPOINT, EVALUATION, NOTHING
from stepwatch.readers.records import Records
from stepwatch.readers.undo import gaps_of, starts_of, without
from stepwatch.run import Checkpoint, Evaluation, Event, Fact, Ints, Iterations, Timing, Traits

# Argonne's fork writes its fields as name=value.
_FORK = b"elapsed_time_per_iteration_ms="
_FIELDS_OF_FORK = (
    (_FORK, b"elapsed time per iteration (ms): "), (b"iteration=", b"iteration "),
    (b"consumed_samples=", b"consumed samples: "), (b"consumed_tokens=", b"consumed tokens: "),
    (b"learning_rate=", b"learning rate: "), (b"global_batch_size=", b"global batch size: "),
    (b"lm loss=", b"lm loss: "),
)  # fmt: skip
_AGREES, _DISAGREES = 0.03, 0.1
_OWN_CLOCK = b"] iteration "
_ARGUMENT = Pattern(r"(?P<name>\w+) \.{2,}\s?(?P<value>\d{1,15})(?:\.{4,}\w+)?\s*$")
_SHARD = Pattern(r"number of parameters on \([\w, ]+\) model parallel rank \((?P<rank>\d+, \d+)\): (?P<count>\d{1,15})")
_OF_EVALUATIONS = ("eval_iters", "eval_interval")  # without a meaning where no iteration evaluates
_SETTINGS = {
    "seq_length": "block_size", "micro_batch_size": "batch_size", "train_iters": "max_iters",
    "world_size": "world_size", "log_interval": "log_interval", "eval_interval": "eval_interval",
    "eval_iters": "eval_iters", "num_layers": "n_layer", "num_attention_heads": "n_head", "hidden_size": "n_embd",
    "padded_vocab_size": "vocab_size",
}  # fmt: skip


def _as_usual(text: bytes) -> bytes:
    if _FORK in text:
        for own, usual in _FIELDS_OF_FORK:
            text = text.replace(own, usual)
    return text


class _Megatron(LineFormat):
    def sniff(self, head: bytes) -> float:
        return super().sniff(_as_usual(head))

    def _add_columns(self, records: Records, lines: np.ndarray, found: dict[str, np.ndarray]) -> None:
        super()._add_columns(records, lines, found)
        if "_batch" in found:
            changes = np.flatnonzero(np.diff(found["_batch"], prepend=-1))
            records.events += [Fact(int(lines[i]), "batch", float(found["_batch"][i])) for i in changes.tolist()]
        if "_tflops" in found:
            work = float(np.median(found["_tflops"] * found["time_ms"])) * 1e9
            records.events.append(Fact(int(lines[0]), "work", work))

    def _add_row(self, groups: Mapping[str, str | None], prefix: str, number: int, records: Records) -> bool:
        batch, tflops = groups.get("batch"), groups.get("tflops")
        if batch:
            records.events.append(Fact(number, "batch", float(batch)))
        if tflops:
            seconds = _number(groups.get("time_s")) + _number(groups.get("time_ms")) / 1e3
            work = _number(tflops) * seconds * 1e12
            records.events += [Fact(number, "work", work)] if math.isfinite(work) else []
        return super()._add_row(groups, prefix, number, records)

    def _read_event(self, rest: str, prefix: str, number: int, records: Records) -> bool:
        shard = _SHARD.search(rest)
        if shard is not None:
            records.events.append(Fact(number, "shard", (shard["rank"], float(shard["count"]))))
            return True
        argument = _ARGUMENT.match(rest)
        if argument is None:
            return super()._read_event(rest, prefix, number, records)
        name = _SETTINGS.get(argument["name"])
        if name is not None:
            records.events.append(Fact(number, name, float(argument["value"])))
        return True

    def parse(self, text: bytes, first_line: int, records: Records) -> None:
        text = _as_usual(text)
        super().parse(text, first_line, records)
        if _OWN_CLOCK in text:
            records.events.append(Fact(first_line, "own_clock", True))

    def finish(self, first_line: int, records: Records) -> None:
        super().finish(first_line, records)
        rows, events = records.iterations(), records.sorted_events()
        if not len(rows):
            return
        starts = starts_of(rows, events)
        rows = _without_first(rows, starts)
        saves, evaluations = _saves(events, rows), _evaluations(events)
        told = [event for event in events if not isinstance(event, Evaluation | Checkpoint)]
        told += _derived(told, rows, starts)
        if any(isinstance(event, Fact) and event.name == "eval_iters" and event.value < 1 for event in told):
            told = [event for event in told if not (isinstance(event, Fact) and event.name in _OF_EVALUATIONS)]
        if not any(isinstance(event, Fact) and event.name == "own_clock" for event in told):
            rows, inside = _with_events_inside(rows, starts, evaluations, saves)
            told += [Fact(line, "holds", inside) for line in rows.line[starts].tolist()]
        records.events = [*told, *evaluations, *saves]
        records.replace_rows(rows)


def _number(text: str | None) -> float:
    return float(text.replace(",", "")) if text else 0.0


def _without_first(rows: Iterations, starts: Ints) -> Iterations:
    """The line after the first counts the first again: the clock shows it, and the difference is what it should say."""
    steps, seconds = gaps_of(rows, starts)
    with np.errstate(invalid="ignore", divide="ignore"):
        rest = ((steps + 1) * rows.time_s - np.roll(rows.time_s, 1)) / np.maximum(steps, 1)
        wrong = np.abs(steps * rows.time_s / seconds - 1) > _DISAGREES
        wrong &= np.abs(steps * rest / seconds - 1) < _AGREES
    return replace(rows, time_s=np.where(wrong, rest, rows.time_s))


def _saves(events: Sequence[Event], rows: Iterations) -> list[Checkpoint]:
    """Each save once: its timer, printed when it is done, tells what it took, else the clocks of begin and end."""
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
    """By the clock; None where iterations lie between, since the save then ran beside them."""
    apart = np.searchsorted(rows.line, begin.line) == np.searchsorted(rows.line, end.line)
    if begin.stamp_s is None or end.stamp_s is None or not apart:
        return None
    return max(end.stamp_s - begin.stamp_s, 0.0)


def _evaluations(events: Sequence[Event]) -> list[Evaluation]:
    """Each iteration once, with the sum of the timers of its data sets, which stand before their losses."""
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


def _derived(events: Sequence[Event], rows: Iterations, starts: Ints) -> list[Fact]:
    """For each process: parameters from those of its shards, tokens from batch and length, work from TFLOP/s."""
    facts = [event for event in events if isinstance(event, Fact)]
    derived: list[Fact] = []
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(rows)], strict=True):
        above = int(rows.line[start - 1]) if start else -1
        own = [fact for fact in facts if above < fact.line <= int(rows.line[end - 1])]
        line = int(rows.line[start])
        derived += [Fact(line, name, value) for name, value in _of_process(own)]
    return derived


def _of_process(facts: Sequence[Fact]) -> Iterator[tuple[str, object]]:
    named = {fact.name: fact.value for fact in facts}
    shards = {fact.value[0]: fact.value[1] for fact in facts if fact.name == "shard"}
    n_params = named.get("billions") or sum(shards.values())
    if n_params:
        yield "n_params", float(n_params)
    batches = [fact.value for fact in facts if fact.name == "batch"]
    if any(after > before for before, after in pairwise(batches)):
        yield "schedules", True
    if not batches or "block_size" not in named:
        return
    tokens = batches[-1] * named["block_size"]
    yield "tokens_per_iter", tokens
    work = [fact.value for fact in facts if fact.name == "work"]
    if work and named.get("world_size") and tokens and len(set(batches)) == 1:
        yield "flops_per_token", float(np.median(work)) * named["world_size"] / tokens


def _with_events_inside(
    rows: Iterations, starts: Ints, evaluations: list[Evaluation], saves: list[Checkpoint]
) -> tuple[Iterations, frozenset[str]]:
    """Where the timer runs on: what is known to have taken how long is taken out, the rest stays in the next line."""
    steps, _ = gaps_of(rows, starts)
    inside = set()
    for kind, events in ((EVALUATION, evaluations), (CHECKPOINT, saves)):
        if events and all(event.took_s is not None for event in events):
            rows = replace(rows, time_s=without(rows, steps, events))
        else:
            inside.add(kind)
    return rows, frozenset(inside)


_ITERATION = "iteration { }{number}/{ }{last} | "
_REST = " | learning rate: {_lr} | global batch size:{ }{_batch} | lm loss: {loss?} | {**}"

FORMAT = _Megatron(
    name="megatron",
    timing=Timing.SPANS_LOG_INTERVAL,
    holds=NOTHING,
    about=Message(
        "The mean since the line before, with the loading of data; the cards are waited for. Evaluations and "
        "checkpoints are outside where the line has a clock of its own, and in the next line's mean where it has none."
    ),
    example="""\
 [2025-03-02 10:15:04.120311] iteration     1000/   20000 | consumed samples:       256000 | \
elapsed time per iteration (ms): 1204.6 | throughput per GPU (TFLOP/s/GPU): 402.7 | learning rate: 2.950000E-04 | \
global batch size:   256 | lm loss: 2.811904E+00 | loss scale: 1.0 | grad norm: 0.214 | \
number of skipped iterations:   0 | number of nan iterations:   0 |
 validation loss at iteration 1000 | lm loss value: 2.790112E+00 | lm loss PPL: 1.628284E+01 |
 [2025-03-02 10:15:58.001754] iteration     1010/   20000 | consumed samples:       258560 | \
elapsed time per iteration (ms): 1203.9 | throughput per GPU (TFLOP/s/GPU): 402.9 | learning rate: 2.950000E-04 | \
global batch size:   256 | lm loss: 2.807713E+00 | loss scale: 1.0 | grad norm: 0.209 | \
number of skipped iterations:   0 | number of nan iterations:   0 |""",
    mark=b"elapsed time per iteration (",
    iteration=Pattern(
        r"(?:\[\w{1,40}:\d{1,6}\] -\s+)?(?:samples/sec: \S+ \| )?"
        rf"iteration\s+(?P<number>\d{{1,15}})/\s*(?P<last>\d{{1,15}}) \|(?:[^|]*\|){{0,4}}?"
        rf"\s*elapsed time per iteration \((?:ms\): (?P<time_ms>{NUMBER})|s\): (?P<time_s>{NUMBER})) \|"
        rf"(?:.*?throughput per GPU \(TFLOP/s/GPU\): (?P<tflops>{NUMBER}) \|)?"
        r"(?:.*?global batch size:\s+(?P<batch>\d{1,15}) \|)?"
        rf"(?:.*?\b(?:lm[ _])?loss: (?P<loss>{LOSS}) \|)?"
    ),
    templates=(
        Template(
            f"{_ITERATION}consumed samples:{{ }}{{*}} | elapsed time per iteration (ms): {{time_ms}} | "
            f"throughput per GPU (TFLOP/s/GPU): {{_tflops}}{_REST}",
            anywhere=True,
        ),
        Template(
            f"{_ITERATION}consumed samples:{{ }}{{*}} | elapsed time per iteration (ms): {{time_ms}}{_REST}",
            anywhere=True,
        ),
        Template(
            f"{_ITERATION}consumed samples:{{ }}{{*}} | consumed tokens:{{ }}{{*}} | "
            f"elapsed time per iteration (ms): {{time_ms}}{_REST}",
            anywhere=True,
        ),
    ),
    evaluations=(
        Pattern(
            r"(?:validation|test)(?:-\S+)? (?:loss|results) (?:at|on) (?:iteration (?P<at>\d{1,15}))?[^|]*\|"
            rf"(?:.*?\bloss value: (?P<val_loss>{LOSS}))?"
        ),
    ),
    checkpoints=(
        Pattern(r"saving checkpoint at iteration\s+(?P<at>\d{1,15}) to "),
        Pattern(r"successfully saved checkpoint (?:from|at) iteration\s+(?P<at>\d{1,15})\b"),
    ),
    facts=(
        Told(Pattern(r"using world size: (?P<world_size>\d{1,15})\b"), header=True),
        Told(Pattern(r"^\[before the start of training step\] (?P<begun>datetime)"), header=True),
        Told(Pattern(r"^using torch\.(?P<dtype>\w+) for parameters")),
        Told(Pattern(rf"^Total number of parameters in billions:\s+(?P<billions>{NUMBER})"), scale=1e9),
        Told(Pattern(rf"^(?:time \(ms\) \| )?save-checkpoint ?\.*: \(?(?:{NUMBER}, )?(?P<save_ms>{NUMBER})")),
        Told(Pattern(rf"^(?:time \(ms\) \| )?evaluate ?\.*: \(?(?:{NUMBER}, )?(?P<evaluate_ms>{NUMBER})")),
    ),
    words=(
        b"validation", b"saving checkpoint", b"saved checkpoint", b"using world size", b"before the start",
        b"using torch", b"number of parameters", b"save-checkpoint", b"evaluate ",
        *(f"{name} ..".encode() for name in _SETTINGS),
    ),
    events_first=False,
    traits=Traits(prints_means=True),
)  # fmt: skip
READER = FORMAT.reader()
