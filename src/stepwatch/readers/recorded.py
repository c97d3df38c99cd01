"""The file of stepwatch's own recorder: one object per line, each phase timed by itself.

Nearly all lines are steps with their keys in one order, which go by columns; the others are few and read as JSON. A line
that a killed process did not finish is passed over.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.arguments import settings_from
from stepwatch.readers.columns import Block, Template, numbers_after
from stepwatch.readers.reader import NOTHING, Reader
from stepwatch.readers.records import DEVICES, INSIDE, WORK, Records
from stepwatch.readers.running import at_lines
from stepwatch.run import Checkpoint, Evaluation, Event, Fact, Floats, Inside, Rank, Run, Span, Timing
from stepwatch.settings import Origin, Settings
from stepwatch.units import TERA

STEP = Template('{{"step":{number},"s":{s},"t":{t@}{data_s?}{wait_s?}{loss?}{tokens?}{>}')
DEVICE = Template('{{"device":{number},"s":{s}{>}')

_SNIFFED = Pattern(rb'(?m)^\{"(?:step":\d{1,15},"s":\d|stepwatch":\d{1,3},"started":)')
_MOST_SNIFFED = 60
_HEADER = b'{"stepwatch":'
_FLOPS = b'"flops":'
_LONGEST_LINE = 1_000_000
_LONGEST_S, _LARGEST_NUMBER, _LARGEST_FLOPS = 1e9, 1e12, 1e24
_EARLIEST_S, _LATEST_S = 1e8, 1e11  # a clock that was ever set, and none of milliseconds

_Timed = TypeVar("_Timed", Evaluation, Checkpoint)


def sniff(head: bytes) -> float:
    """How many lines are steps or headers of the recorder: nobody else writes these keys in this order."""
    hits = 0.0
    for _ in _SNIFFED.finditer(head):
        hits += 1
        if hits == _MOST_SNIFFED:
            break
    return hits


def parse(text: bytes, first_line: int, records: Records) -> None:
    block = Block.of(text)
    left = np.flatnonzero(block.ends > block.starts)
    left = _without(left, _torn(text, block))
    left = _without(left, _read_steps(text, block, left, first_line, records))
    left = _without(left, _read_devices(block, left, first_line, records))
    whole = text.endswith(b"\n")
    for index in np.union1d(left, _torn(text, block)).tolist():
        line = text[block.starts[index] : block.ends[index]]
        known = _read_line(line, index + first_line, records)
        if not known and (whole or index + 1 < len(block.starts)) and b'"step":' in line:
            records.add_unread(index + first_line, line[:_MOST_SHOWN].decode("utf-8", "replace"))
    records.flush_rows()


def finish(first_line: int, records: Records) -> None:
    """Nothing is held back."""


_MOST_SHOWN = 300


def _without(lines: np.ndarray, taken: np.ndarray) -> np.ndarray:
    return lines[~np.isin(lines, taken)] if len(taken) else lines


def _torn(text: bytes, block: Block) -> np.ndarray:
    """Lines on which a header begins behind the remains of another line: a process was killed, the next went on."""
    places = []
    at = text.find(_HEADER, 1)
    while at >= 0:
        if text[at - 1] != ord("\n"):
            places.append(at)
        at = text.find(_HEADER, at + 1)
    return np.unique(np.searchsorted(block.starts, places, side="right") - 1)


# --- many lines at once -----------------------------------------------------------------------------------------


def _read_steps(text: bytes, block: Block, left: np.ndarray, first_line: int, records: Records) -> np.ndarray:
    """The lines of steps that were read."""
    lines, found = STEP.match(block, left)
    fits = (found["number"] >= 0) & (found["number"] % 1 == 0) & (found["s"] >= 0)
    if not fits.all():
        lines, found = lines[fits], {name: column[fits] for name, column in found.items()}
    if len(lines):
        tokens = found["tokens"]
        rate = {} if np.isnan(tokens).all() else {"reported_tokens_per_s": tokens / np.maximum(found["s"], 1e-9)}
        records.add_rows(
            number=found["number"].astype(np.int64), time_s=found["s"], loss=found["loss"], stamp_s=found["t"],
            line=lines + first_line, **rate,
        )  # fmt: skip
        inside = [np.clip(found[name], 0.0, found["s"]) for name in ("data_s", "wait_s")]
        if not all(np.isnan(column).all() for column in inside):
            records.keep(INSIDE, lines + first_line, *inside)
        if _FLOPS in text:
            rows, flops = numbers_after(block, text, _FLOPS)
            taken = np.isin(rows, lines) & (flops > 0) & (flops < _LARGEST_FLOPS)
            records.keep(WORK, rows[taken] + first_line, flops[taken] / TERA)
    return lines


def _read_devices(block: Block, left: np.ndarray, first_line: int, records: Records) -> np.ndarray:
    lines, found = DEVICE.match(block, left)
    fits = (found["number"] >= 0) & (found["number"] % 1 == 0) & (found["s"] >= 0)
    if len(lines):
        records.keep(DEVICES, lines[fits] + first_line, found["number"][fits], found["s"][fits])
    return lines


# --- line by line -----------------------------------------------------------------------------------------------


def _read_line(line: bytes, number: int, records: Records) -> bool:
    """Whether it was a line of the recorder's."""
    line = line[max(line.rfind(_HEADER), 0) :].strip()
    if not line.startswith(b"{") or len(line) > _LONGEST_LINE:
        return False
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return False
    kind = next(iter(told), "") if isinstance(told, dict) else ""
    if kind not in _KINDS:
        return False
    return _KINDS[kind](told, number, records)


def _read_header(told: Mapping[str, Any], line: int, records: Records) -> bool:
    continued = told.get("continued") is True
    facts: dict[str, Any] = {"started_s": _clock(told, "started")} if not continued else {}
    for name in ("rank", "world_size"):
        count = _count(told, name)
        if count is not None and (name == "rank" or count > 0):
            facts[name] = count
    if isinstance(told.get("gpu"), str):
        facts["gpu_text"] = told["gpu"][:200]
    records.events += [Fact(line=line, name=name, value=value, header=not continued) for name, value in facts.items()]
    _tell_settings(told.get("settings"), line, records)
    return True


def _read_settings(told: Mapping[str, Any], line: int, records: Records) -> bool:
    _tell_settings(told["settings"], line, records)
    records.events.append(Fact(line=line, name="clock_s", value=_clock(told)))
    return True


def _tell_settings(given: object, line: int, records: Records) -> None:
    if not isinstance(given, dict):
        return
    facts: dict[str, Any] = {**settings_from(given)}
    flops = given.get("flops_per_iter")
    if _is_number(flops) and 0 < flops < _LARGEST_FLOPS:
        facts["flops_per_iter"] = float(flops)
    records.events += [Fact(line=line, name=name, value=value) for name, value in facts.items()]


def _read_step(told: Mapping[str, Any], line: int, records: Records) -> bool:
    number, took = _count(told, "step"), _seconds(told)
    if number is None or took is None:
        return False
    values = {"number": float(number), "time_s": took, "line": float(line), "stamp_s": _clock(told)}
    loss = told.get("loss")
    if isinstance(loss, float | int) and not isinstance(loss, bool):
        values["loss"] = float(loss) if math.isfinite(loss) else math.inf  # nan is what was not noted
    tokens = _count(told, "tokens")
    if tokens and took > 0:
        values["reported_tokens_per_s"] = tokens / took
    records.add_row(**values)
    inside = [_seconds(told, name) for name in ("data_s", "wait_s")]
    if inside != [None, None]:
        records.keep_row(INSIDE, line, *(math.nan if one is None else min(one, took) for one in inside))
    flops = told.get("flops")
    if _is_number(flops) and 0 < flops < _LARGEST_FLOPS:
        records.keep_row(WORK, line, float(flops) / TERA)
    return True


def _read_device(told: Mapping[str, Any], line: int, records: Records) -> bool:
    number, took = _count(told, "device"), _seconds(told)
    if number is not None and took is not None:
        records.keep_row(DEVICES, line, number, took)
    return True


def _read_evaluation(told: Mapping[str, Any], line: int, records: Records) -> bool:
    at, took = _count(told, "eval"), _seconds(told)
    if at is not None:
        losses = {name: _loss(told.get(name)) for name in ("train_loss", "val_loss")}
        records.events.append(Evaluation(line=line, at=at, took_s=took, stamp_s=_stamp(told), **losses))
    return True


def _read_checkpoint(told: Mapping[str, Any], line: int, records: Records) -> bool:
    at, took = _count(told, "checkpoint"), _seconds(told)
    if at is not None:
        records.events.append(Checkpoint(line=line, at=at, took_s=took, stamp_s=_stamp(told)))
    return True


def _read_compilation(told: Mapping[str, Any], line: int, records: Records) -> bool:
    took = _seconds(told)
    if took is not None:
        records.events.append(Fact(line=line, name="compilation", value=(took, _clock(told))))
    return True


def _read_loss(told: Mapping[str, Any], line: int, records: Records) -> bool:
    count = _count(told, "lost")
    if count:
        records.events.append(Fact(line=line, name="lost", value=count))
    records.events.append(Fact(line=line, name="clock_s", value=_clock(told)))
    return True


def _read_end(told: Mapping[str, Any], line: int, records: Records) -> bool:
    records.events.append(Fact(line=line, name="end_s", value=_clock(told)))
    return True


_KINDS: Mapping[str, Callable[[Mapping[str, Any], int, Records], bool]] = {
    "stepwatch": _read_header, "settings": _read_settings, "compile": _read_compilation, "step": _read_step,
    "eval": _read_evaluation, "checkpoint": _read_checkpoint, "device": _read_device, "lost": _read_loss,
    "end": _read_end,
}  # fmt: skip


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _seconds(told: Mapping[str, Any], name: str = "s") -> float | None:
    value = told.get(name)
    return float(value) if _is_number(value) and 0 <= value <= _LONGEST_S else None


def _count(told: Mapping[str, Any], name: str) -> int | None:
    value = told.get(name)
    return int(value) if _is_number(value) and 0 <= value <= _LARGEST_NUMBER and value == int(value) else None


def _clock(told: Mapping[str, Any], name: str = "t") -> float:
    value = told.get(name)
    return float(value) if _is_number(value) and _EARLIEST_S <= value <= _LATEST_S else math.nan


def _stamp(told: Mapping[str, Any]) -> float | None:
    stamp = _clock(told)
    return None if math.isnan(stamp) else stamp


def _loss(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


# --- a run ------------------------------------------------------------------------------------------------------


def complete(run: Run, events: Sequence[Event], records: Records) -> Run:
    """The run with what only the recorder tells: its span, compilation, what is inside its steps."""
    begin, end = _bounds(run, events)
    own = [event for event in events if begin <= event.line < end]
    facts = [event for event in own if isinstance(event, Fact)]
    evaluations = _merged([event for event in own if isinstance(event, Evaluation)])
    evaluated = {evaluation.at for evaluation in evaluations}
    saves = _merged([event for event in own if isinstance(event, Checkpoint)])
    compilations = [fact.value for fact in facts if fact.name == "compilation"]
    settings = run.settings
    if compilations and settings.flag("compile") is None:
        settings = settings.beneath(Settings.of(Origin.LOG, {"compile": True}))
    run = replace(
        run, evaluations=evaluations, settings=settings,
        checkpoints=tuple(save._replace(with_evaluation=save.at in evaluated) for save in saves),
        distributed=(settings.count("world_size") or 1) > 1,
        compile_s=sum(took for took, _ in compilations) if compilations else None,
        rank=next((int(fact.value) for fact in facts if fact.name == "rank"), None),
        closed=any(fact.name == "end_s" for fact in facts),
        lost_lines=sum(fact.value for fact in facts if fact.name == "lost"),
    )  # fmt: skip
    run = replace(run, span=_span(run, facts, compilations), inside=_inside(run, records, begin, end))
    return replace(run, flops_per_token=_flops_per_token(run, facts, records, begin, end))


def _bounds(run: Run, events: Sequence[Event]) -> tuple[float, float]:
    """From the last header before the first step to the next one behind the last: others are of other processes."""
    headers = [event.line for event in events if isinstance(event, Fact) and event.header]
    lines = run.iterations.line
    first, last = (int(lines.min()), int(lines.max())) if len(lines) else (math.inf, math.inf)
    begin = max((line for line in headers if line <= first), default=-1)
    return float(begin), float(min((line for line in headers if line > last), default=math.inf))


def _merged(events: Sequence[_Timed]) -> tuple[_Timed, ...]:
    """One for each iteration, with all that it took; what was pasted twice counts once."""
    found: dict[int | None, _Timed] = {}
    for event in dict.fromkeys(event._replace(line=0) for event in events):
        before = found.get(event.at)
        took = [one.took_s for one in (before, event) if one is not None and one.took_s is not None]
        found[event.at] = (before or event)._replace(took_s=sum(took) if took else None, stamp_s=event.stamp_s)
    lines: dict[int | None, int] = {}
    for event in events:
        lines.setdefault(event.at, event.line)
    merged = [event._replace(line=lines[at]) for at, event in found.items()]
    return tuple(sorted(merged, key=lambda event: event.at or 0))


def _span(run: Run, facts: Sequence[Fact], compilations: Sequence[tuple[float, float]]) -> Span | None:
    """None where no line tells the time."""
    told = [(event.took_s or 0.0, event.stamp_s) for event in (*run.evaluations, *run.checkpoints)]
    phases = [(took, stamp) for took, stamp in (*told, *compilations) if stamp is not None and math.isfinite(stamp)]
    rows = run.iterations
    known = np.isfinite(rows.stamp_s)
    begins = [stamp - took for took, stamp in phases]
    ends = [stamp for _, stamp in phases]
    if known.any():
        begins.append(float((rows.stamp_s - rows.time_s)[known].min()))
        ends.append(float(rows.stamp_s[known].max()))
    if not begins:
        return None
    ends += [fact.value for fact in facts if fact.name in ("clock_s", "end_s") and math.isfinite(fact.value)]
    started = next((fact.value for fact in facts if fact.name == "started_s"), math.nan)
    begun = min(begins)
    return Span(started if started <= begun else begun, begun, max(ends))


def _inside(run: Run, records: Records, begin: float, end: float) -> Inside | None:
    rows = run.iterations
    table = _table(records, INSIDE, 3, begin, end)
    devices = _table(records, DEVICES, 3, begin, end)
    if not len(rows) or not (len(table) or len(devices)):
        return None
    devices = devices[np.argsort(devices[:, 1], kind="stable")]
    lines = table[:, 0]
    return Inside(
        data_s=at_lines(rows.line, lines, table[:, 1]), wait_s=at_lines(rows.line, lines, table[:, 2]),
        device_s=at_lines(rows.number, devices[:, 1], devices[:, 2]),
    )  # fmt: skip


def _table(records: Records, name: str, width: int, begin: float, end: float) -> np.ndarray:
    if name not in records.tables and name not in records.table_rows:
        return np.zeros((0, width))
    table = records.table(name, width)
    return table[(table[:, 0] >= begin) & (table[:, 0] < end)]


def _flops_per_token(run: Run, facts: Sequence[Fact], records: Records, begin: float, end: float) -> float | None:
    """Work and tokens of a step, as the settings tell them or else the steps themselves."""
    tokens: Floats | float | None = run.settings.number("tokens_per_iter")
    if tokens is None:
        rate = run.iterations.reported_tokens_per_s * run.iterations.time_s
        tokens = float(np.sort(rate)[np.isfinite(rate).sum() // 2]) if np.isfinite(rate).any() else None
    flops = next((fact.value for fact in reversed(facts) if fact.name == "flops_per_iter"), None)
    if flops is None:
        work = np.sort(_table(records, WORK, 2, begin, end)[:, 1])
        flops = float(work[len(work) // 2]) * TERA if len(work) else None
    return flops / tokens if flops and tokens else None


def rank_of(run: Run) -> Rank | None:
    """The steps of the run as those of one rank; None where nothing tells which."""
    if run.rank is None or run.span is None:
        return None
    rows = run.iterations
    wait = run.inside.wait_s if run.inside is not None else np.full(len(rows), np.nan)
    return Rank(run.rank, run.span.started_s, rows.number, rows.time_s, wait)


READER = Reader(
    name="stepwatch",
    timing=Timing.SPANS_STEP,
    holds=NOTHING,
    about=Message(
        "The file of stepwatch's recorder: one step, with its data and its waiting for other ranks. Evaluations, "
        "checkpoints and compilation are timed by themselves, so that nothing has to be deduced."
    ),
    example="""\
{"stepwatch":1,"started":1763264000.120000,"rank":0,"world_size":1,"pid":71,"gpu":"NVIDIA GeForce RTX 4070","driver":null,"clocks_mhz":null,"torch":null,"python":"3.12.1","settings":{"batch_size":12,"tokens_per_iter":12288}}
{"eval":250,"s":5.512300,"t":1763264009.832300,"train_loss":3.3104,"val_loss":3.3521}
{"checkpoint":250,"s":0.412300,"t":1763264010.244700,"path":"ckpt.pt"}
{"step":250,"s":0.171824,"t":1763264010.416600,"data_s":0.001210,"loss":3.3017}
{"step":251,"s":0.171402,"t":1763264010.588100,"data_s":0.001198,"loss":3.2986}""",
    sniff=sniff,
    parse=parse,
    finish=finish,
    complete=complete,
)
