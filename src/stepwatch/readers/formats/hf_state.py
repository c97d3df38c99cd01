"""trainer_state.json of the Hugging Face Trainer: what it logged, with steps but without times.

Only the state that is written after the training has a time, that of the whole run: the mean of all its steps. Rows of
TRL's trainers have the time of their steps too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import chain

import numpy as np

from stepwatch.errors import NoIterations
from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.levers import HUGGING_FACE
from stepwatch.readers.reader import MOST_SNIFFED, NOTHING, Reader
from stepwatch.readers.records import LARGEST_KEPT, Records
from stepwatch.run import Evaluation, Fact, Timing, Traits
from stepwatch.sources import cut_off, is_cut_json

# One entry of log_history, whole or on lines of its own; the rest of the file is plain keys.
_ENTRY = Pattern(rb'\{(?P<body>[^{}]{0,20000}?"step":\s{0,4}\d[^{}]{0,20000}?)\}')
_PAIR = Pattern(rb'"(?P<key>[^"\n]{1,80})":\s{0,4}"?(?P<value>-?(?:\d[\d.]{0,30}(?:[eE][-+]?\d{1,3})?|NaN|Infinity))')
_MARKS = Pattern(rb'"log_history"\s{0,4}:|"is_world_process_zero"|"is_hyper_param_search"')
_ROW_MARKS = Pattern(rb'"(?:loss|eval_loss|eval_runtime|train_runtime)":')
_LINES_OF_OBJECTS = Pattern(rb"\{[^\n]{1,4000}\}\n\{")
_RUNTIMES = Pattern(rb"eval_(?:\w{1,60}_)?runtime")
_FACTS = (
    ("max_steps", "max_iters"), ("logging_steps", "log_interval"), ("train_batch_size", "batch_size"),
    ("eval_steps", "eval_interval"),
)  # fmt: skip
_BOUNDED = ("runtime", "step", "steps")
_State = tuple[list[dict[str, float]], dict[str, float]]
"""The entries of the log_history, and the numbers beside it."""
_Entries = list[tuple[int, dict[str, float]]]
"""Rows of the log_history, with their number for a line."""


def sniff(head: bytes) -> float:
    """How many entries of a log_history; below 1 for a state without any."""
    if b"}\n{" in head and _LINES_OF_OBJECTS.search(head):  # a file of one object per line
        return 0.0
    hits = 0
    for entry in _ENTRY.finditer(head) if b'"step":' in head else ():
        hits += b'"epoch":' in entry["body"] and _ROW_MARKS.search(entry["body"]) is not None
        if hits == MOST_SNIFFED:
            break
    return float(hits) or (0.5 if _MARKS.search(head) and head.lstrip()[:1] == b"{" else 0.0)


def parse(text: bytes, first_line: int, records: Records) -> None:
    records.held += text


def finish(first_line: int, records: Records) -> None:
    text, records.held = records.held, b""
    rows, top = _whole(text) or _torn(text)
    entries = list(enumerate(row for row in rows if "step" in row))  # their number for a line: often all are on one
    if not entries and is_cut_json(text):
        raise cut_off("trainer_state.json")
    if not entries and _MARKS.search(text):
        steps = {"steps": int(top.get("global_step", 0))}
        raise NoIterations(
            Message("the log_history in this state is empty: nothing was logged in {steps:n} steps", steps),
            Message("give the trainer's console output or its TensorBoard event file: these have timestamps"),
        )
    _add_rows(entries, top, records)


def _whole(text: bytes) -> _State | None:
    """The numbers of a state as it was written; None where it is cut, or there is another text around it."""
    try:
        state = json.loads(text, parse_int=float)
        rows = state.pop("log_history")
        # Most have nothing but numbers that can be, none of them in quotes, and there may be very many.
        keys = {key for row in rows for key in row}
        bounded = [row[key] for key in keys if key.endswith(_BOUNDED) for row in rows if key in row]
        numbers = {*map(type, chain.from_iterable(row.values() for row in rows))} == {float}
        if not numbers or not 0 <= min(bounded, default=0) <= max(bounded, default=0) <= LARGEST_KEPT:
            rows = [dict(_pairs(json.dumps(row).encode())) for row in rows]
    except (ValueError, RecursionError, AttributeError, TypeError, KeyError):
        return None
    return rows, dict(_pairs(json.dumps(state).encode()))


def _torn(text: bytes) -> _State:
    """The same of a part of a state."""
    return [dict(_pairs(entry["body"])) for entry in _ENTRY.finditer(text)], dict(_pairs(_ENTRY.sub(b"", text)))


def _pairs(body: bytes) -> Iterator[tuple[str, float]]:
    for pair in _PAIR.finditer(body):
        try:
            key, value = pair["key"].decode("utf-8", "replace"), float(pair["value"])
        except ValueError:
            continue
        if 0 <= value <= LARGEST_KEPT or not key.endswith(_BOUNDED):
            yield key, value


def _add_rows(entries: _Entries, top: dict[str, float], records: Records) -> None:
    runtimes = {key for key in {key for _, row in entries for key in row} if _RUNTIMES.fullmatch(key.encode())}
    evaluations = [(line, row) for line, row in entries if not runtimes.isdisjoint(row)]
    ended = [(line, row) for line, row in entries if "train_runtime" in row]
    mean = _mean(ended[-1], evaluations) if ended else math.nan
    rows = [(line, row) for line, row in entries if "loss" in row]
    each_timed = bool(rows) and all(row.get("step_time", 0) > 0 for _, row in rows)
    if each_timed:  # TRL's mean of the steps since the row before
        mean = math.nan
        told = ended[-1][1]["train_runtime"] if ended else math.nan
        records.events += [Fact(rows[-1][0], "reported_s", told)] * math.isfinite(told)
    if math.isfinite(mean) and ended[-1][1]["step"] > max((row["step"] for _, row in rows), default=0):
        rows.append(ended[-1])  # the last steps are fewer than those between two losses
    loss = np.array([row.get("loss", math.nan) for _, row in rows])
    loss[~np.isfinite(loss) & np.array(["loss" in row for _, row in rows], bool)] = math.inf
    records.add_rows(
        number=np.array([row["step"] for _, row in rows]).astype(np.int64), line=np.array([line for line, _ in rows]),
        time_s=np.array([row["step_time"] if each_timed else mean for _, row in rows]), loss=loss,
    )  # fmt: skip
    for line, row in evaluations:
        found = next((v for k, v in row.items() if k.startswith("eval_") and k.endswith("loss")), None)
        records.events.append(Evaluation(line=line, at=int(row["step"]), val_loss=found, took_s=_took(row)))
    if ended and ended[-1][1]["step"] >= 1:
        top = top | {"max_steps": ended[-1][1]["step"]}  # it may have been stopped before its last step
    every = top.get("eval_steps", 0)
    if not (every >= 1 and any(row["step"] % every == 0 for _, row in evaluations)):  # given even if it never does
        top = top | {"eval_steps": 0}
    _add_facts(rows, top, records, math.isfinite(mean))


def _mean(end: tuple[int, dict[str, float]], evaluations: _Entries) -> float:
    """Of all steps up to the end, without the evaluations before it: those after it are not in its time."""
    line, row = end
    within = {(each["step"], _took(each)) for place, each in evaluations if place < line}  # some are there twice
    spent = sum(took for _, took in within if took)
    return max(row["train_runtime"] - spent, 0.0) / row["step"] if row["step"] > 0 else math.nan


def _took(row: dict[str, float]) -> float | None:
    times = [value for key, value in row.items() if _RUNTIMES.fullmatch(key.encode())]
    return sum(times) if times else None


def _add_facts(rows: _Entries, top: dict[str, float], records: Records, timed: bool) -> None:
    line = rows[0][0] if rows else 0
    facts: dict[str, float] = {ours: top[theirs] for theirs, ours in _FACTS if top.get(theirs, 0) >= 1}
    if timed:
        facts["mean_of_run"] = 1
    seen = _tokens(rows, top)
    steps = top.get("global_step", 0.0)
    if seen and steps:
        facts["tokens_per_iter"] = round(seen / steps)
        if top.get("total_flos", 0) > 0:
            facts["flops_per_token"] = top["total_flos"] / seen
    records.events += [Fact(line=line, name=name, value=value) for name, value in facts.items()]


def _tokens(rows: _Entries, top: dict[str, float]) -> float:
    """Tokens up to the last step: as the Trainer counts them, or TRL in its rows."""
    if top.get("num_input_tokens_seen", 0) > 0:
        return top["num_input_tokens_seen"]
    counts = np.array([(row["step"], row["num_tokens"]) for _, row in rows if row.get("num_tokens", 0) > 0])
    return float(counts[-1, 1] / counts[-1, 0] * top.get("global_step", 0)) if len(counts) and counts[-1, 0] else 0.0


READER = Reader(
    name="hf-state",
    timing=Timing.SPANS_LOG_INTERVAL,
    holds=NOTHING,
    traits=Traits(levers=HUGGING_FACE),
    sniff=sniff,
    parse=parse,
    finish=finish,
)
