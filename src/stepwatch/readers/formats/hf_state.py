"""trainer_state.json of the Hugging Face Trainer: what it logged, with steps but without times.

Only a state written after the training has a time, that of the whole run: the mean of all its steps. Rows of TRL's
trainers also have the time of their steps.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from stepwatch import bounds
from stepwatch.errors import NoIterations
from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.formats import Reader
from stepwatch.readers.levers import HUGGING_FACE
from stepwatch.readers.records import LARGEST_KEPT, Records
from stepwatch.readers.text.line import MOST_SNIFFED
from stepwatch.run import Evaluation, Fact, Timing, Traits
from stepwatch.sources import cut_off, is_cut_json

# One entry of log_history, on one line or several; the rest of the file is plain keys.
_ENTRY = Pattern(rb'\{(?P<body>[^{}]{0,20000}?"step":\s{0,4}\d[^{}]{0,20000}?)\}')
_PAIR = Pattern(rb'"(?P<key>[^"\n]{1,80})":\s{0,4}"?(?P<value>-?(?:\d[\d.]{0,30}(?:[eE][-+]?\d{1,3})?|NaN|Infinity))')
_MARKS = Pattern(rb'"log_history"\s{0,4}:|"is_world_process_zero"|"is_hyper_param_search"')
_ROW_MARKS = Pattern(rb'"(?:loss|eval_loss|eval_runtime|train_runtime)":')
_LINES_OF_OBJECTS = Pattern(rb"\{[^\n]{1,4000}\}\n\{")
_HISTORY = Pattern(rb'"log_history"\s{0,4}:\s{0,4}\[')
_NO_STATE = (ValueError, RecursionError, AttributeError, TypeError, KeyError)
_RUNTIMES = Pattern(rb"eval_(?:\w{1,60}_)?runtime")
_FACTS = (
    ("max_steps", "max_iters"), ("logging_steps", "log_interval"), ("train_batch_size", "batch_size"),
    ("eval_steps", "eval_interval"),
)  # fmt: skip
_BOUNDED = ("runtime", "step", "steps")
_ROWS, _EVALUATED = "rows", "evaluated"
MOST_HELD = 1 << 22
"""Bytes of a state that are held; from a longer one, entries are taken out while it is read."""
_LONGEST_ENTRY = 50_000  # that _ENTRY matches
_SMALL = 2.0**-90  # factor for a loss: a table holds no number as large as the loss of a regression may be
_Entry = dict[str, float]


class _Taken(NamedTuple):
    """What was taken out of a state so far, besides its rows and evaluations."""

    entries: int
    top: _Entry
    """The numbers next to the log_history."""
    ended: tuple[int, _Entry] | None
    """The last entry with the time of the whole run, and its number."""
    counted: _Entry | None
    """The last entry with a loss and the tokens so far."""


def sniff(head: bytes) -> float:
    """How many entries of a log_history there are; below 1 for a state without any."""
    if b"}\n{" in head and _LINES_OF_OBJECTS.search(head):  # a file with one object per line
        return 0.0
    hits = 0
    for entry in _ENTRY.finditer(head) if b'"step":' in head else ():
        hits += b'"epoch":' in entry["body"] and _ROW_MARKS.search(entry["body"]) is not None
        if hits == MOST_SNIFFED:
            break
    return float(hits) or (0.5 if _MARKS.search(head) and head.lstrip()[:1] == b"{" else 0.0)


def parse(text: bytes, first_line: int, records: Records) -> None:
    records.held += text
    if len(records.held) > MOST_HELD:
        records.held = _without_entries(records.held, records)


def finish(first_line: int, records: Records) -> None:
    text, records.held = records.held, b""
    rows, top = _whole(text) or _torn(text)
    _take(rows, top, records)
    (taken,), records.kept = records.kept, []
    if not taken.entries and is_cut_json(text):
        raise cut_off("trainer_state.json")
    if not taken.entries and _MARKS.search(text):
        steps = {"steps": int(taken.top.get("global_step", 0))}
        raise NoIterations(
            Message("the log_history in this state is empty: nothing was logged in {steps:n} steps", steps),
            Message("give the trainer's console output or its TensorBoard event file: these have timestamps"),
        )
    _add_rows(taken, records)


def _without_entries(text: bytes, records: Records) -> bytes:
    """Takes entries out of a state. Returns the state with a shorter history or, if torn, what may be half an entry."""
    history, last = _HISTORY.search(text), text.rfind(b"{")
    end = text.rfind(b"}", 0, last) + 1
    if history is not None and text[end:last].strip() == b",":
        with suppress(*_NO_STATE):
            _take(_numbers(json.loads(b"[%b]" % text[history.end() : end], parse_int=float)), {}, records)
            return text[: history.end()] + text[last:]
    end = max([len(text) - _LONGEST_ENTRY, *(entry.end() for entry in _ENTRY.finditer(text))])
    _take(*_torn(text[:end]), records)
    return text[end:]


def _whole(text: bytes) -> tuple[list[_Entry], _Entry] | None:
    """The numbers of a complete state; None if it is cut off, or other text surrounds it."""
    try:
        state = json.loads(text, parse_int=float)
        rows = _numbers(state.pop("log_history"))
    except _NO_STATE:
        return None
    return rows, dict(_pairs(json.dumps(state).encode()))


def _numbers(rows: list[Any]) -> list[_Entry]:
    """The numbers of each row. There may be very many, most with only possible numbers, none of them in quotes."""
    keys = {key for row in rows for key in row}
    bounded = [row[key] for key in keys if key.endswith(_BOUNDED) for row in rows if key in row]
    numbers = {*map(type, chain.from_iterable(row.values() for row in rows))} == {float}
    if numbers and 0 <= min(bounded, default=0) <= max(bounded, default=0) <= LARGEST_KEPT:
        return rows
    return [dict(_pairs(json.dumps(row).encode())) for row in rows]


def _torn(text: bytes) -> tuple[list[_Entry], _Entry]:
    """Like _whole(), for part of a state."""
    return [dict(_pairs(entry["body"])) for entry in _ENTRY.finditer(text)], dict(_pairs(_ENTRY.sub(b"", text)))


def _pairs(body: bytes) -> Iterator[tuple[str, float]]:
    for pair in _PAIR.finditer(body):
        try:
            key, value = pair["key"].decode("utf-8", "replace"), float(pair["value"])
        except ValueError:
            continue
        if 0 <= value <= LARGEST_KEPT or not key.endswith(_BOUNDED):
            yield key, value


def _take(rows: list[_Entry], top: _Entry, records: Records) -> None:
    """Takes entries as columns; their index serves as their line, since often all are on one line."""
    (taken,) = records.kept or (_Taken(0, {}, None, None),)
    entries = list(enumerate((row for row in rows if "step" in row), taken.entries))
    runtimes = {key for key in {key for _, row in entries for key in row} if _RUNTIMES.fullmatch(key.encode())}
    evaluated = [(line, row) for line, row in entries if not runtimes.isdisjoint(row)]
    trained = [(line, row) for line, row in entries if "loss" in row]
    ended = next(((line, row) for line, row in reversed(entries) if "train_runtime" in row), taken.ended)
    counted = next((row for _, row in reversed(trained) if row.get("num_tokens", 0) > 0), taken.counted)
    records.kept = [_Taken(taken.entries + len(entries), taken.top | top, ended, counted)]
    loss = np.array([row["loss"] for _, row in trained])
    loss[~bounds.LOSS.mask(loss)] = math.inf
    steps, times = ([row.get(key, 0.0) for _, row in trained] for key in ("step", "step_time"))
    records.keep(_ROWS, np.array([line for line, _ in trained]), np.array(steps), loss * _SMALL, np.array(times))
    lines = np.array([line for line, _ in evaluated])
    steps, losses, times = ([value(row) for _, row in evaluated] for value in (itemgetter("step"), _val_loss, _took))
    records.keep(_EVALUATED, lines, np.array(steps), np.array(losses) * _SMALL, np.array(times))


def _val_loss(row: _Entry) -> float:
    return next((v for k, v in row.items() if k.startswith("eval_") and k.endswith("loss")), math.nan)


def _took(row: _Entry) -> float:
    return sum(value for key, value in row.items() if _RUNTIMES.fullmatch(key.encode()))


def _add_rows(taken: _Taken, records: Records) -> None:
    lines, number, loss, times = records.take_columns(_ROWS, 4)
    evaluated, at, val_loss, took = records.take_columns(_EVALUATED, 4)
    number, lines, mean, top = number.astype(np.int64), lines.astype(np.int64), math.nan, taken.top
    each_timed = len(times) > 0 and bool((times > 0).all())  # TRL's mean of the steps since the previous row
    counted = taken.counted
    if taken.ended is not None:
        line, row = taken.ended
        if each_timed:
            records.events.append(Fact(int(lines[-1]), "reported_s", row["train_runtime"]))
        else:
            before = evaluated < line  # later ones are not in its time
            mean = _mean(row, at[before], took[before])
        if math.isfinite(mean) and row["step"] > number.max(initial=0):  # steps after the last loss
            number, lines, loss = np.append(number, int(row["step"])), np.append(lines, line), np.append(loss, math.nan)
            counted = row if row.get("num_tokens", 0) > 0 else counted
        if row["step"] >= 1:
            top = top | {"max_steps": row["step"]}  # it may have been stopped before its planned last step
    times = times.astype(np.float64) if each_timed else np.full(len(lines), mean)
    records.add_rows(number=number, line=lines, time_s=times, loss=loss / _SMALL)
    columns = {"val_loss": val_loss / _SMALL, "took_s": took.astype(np.float64)}
    records.add_events(Evaluation, evaluated, at=at.astype(np.int64), **columns)
    every = top.get("eval_steps", 0)
    if not (every >= 1 and (at % every == 0).any()):  # stated even if it never evaluates
        top = top | {"eval_steps": 0}
    facts: dict[str, float] = {ours: top[theirs] for theirs, ours in _FACTS if top.get(theirs, 0) >= 1}
    if math.isfinite(mean):
        facts["mean_of_run"] = 1
    seen, steps = _tokens(counted, top), top.get("global_step", 0.0)
    if seen and steps:
        facts["tokens_per_iter"] = round(seen / steps)
        if top.get("total_flos", 0) > 0:
            facts["flops_per_token"] = top["total_flos"] / seen
    line = int(lines[0]) if len(lines) else 0
    records.events += [Fact(line=line, name=name, value=value) for name, value in facts.items()]


def _mean(end: _Entry, at: np.ndarray, took: np.ndarray) -> float:
    """The mean of all steps up to the end, without the evaluations before it."""
    within = {*zip(at.tolist(), took.tolist(), strict=True)}  # some occur twice
    spent = sum(spent for _, spent in within if spent)
    return max(end["train_runtime"] - spent, 0.0) / end["step"] if end["step"] > 0 else math.nan


def _tokens(counted: _Entry | None, top: _Entry) -> float:
    """Tokens up to the last step, as counted by the Trainer, or by TRL in its rows."""
    if top.get("num_input_tokens_seen", 0) > 0:
        return top["num_input_tokens_seen"]
    if counted is None or not counted["step"]:
        return 0.0
    return counted["num_tokens"] / counted["step"] * top.get("global_step", 0)


READER = Reader(
    name="hf-state",
    timing=Timing.SPANS_LOG_INTERVAL,
    traits=Traits(levers=HUGGING_FACE),
    sniff=sniff,
    parse=parse,
    finish=finish,
)
