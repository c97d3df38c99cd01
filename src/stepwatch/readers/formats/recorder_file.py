"""The file of stepwatch's own recorder: one object per line, with each phase timed separately.

Nearly all lines are steps with their keys in one order, and are read as columns; the few others are read as JSON. A
line that a killed process did not finish is skipped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np

from stepwatch import bounds
from stepwatch.bounds import within
from stepwatch.patterns import Pattern
from stepwatch.readers.formats import Reader
from stepwatch.readers.formats.recorder_run import complete
from stepwatch.readers.records import DEVICES, INSIDE, LONGEST_LINE_KEPT, WORK, Records
from stepwatch.readers.text.arguments import settings_from
from stepwatch.readers.text.block import Block
from stepwatch.readers.text.line import MOST_SNIFFED, Line
from stepwatch.readers.text.shape import alike
from stepwatch.run import Checkpoint, Evaluation, Fact, Timing, Traits
from stepwatch.units import TERA

STEP = Line(
    r'\{"step":{number},"s":{s:decimal},"t":{t:decimal}',
    *(f',"{name}":{{{name}:decimal}}' for name in ("data_s", "wait_s", "loss", "tokens", "flops")),
)
DEVICE = Line(r'\{"device":{number},"s":{s:decimal}')

_SNIFFED = Pattern(rb'(?m)\{"step(?<=^\{"step)(?:":\d{1,15},"s":\d|watch":\d{1,3},"started":)')
_HEADER = b'{"stepwatch":'
_NO_NUMBERS = (b"NaN", b"Infinity")
_CLOCK_S = bounds.CLOCK_S._replace(low=1e8)  # lower if the clock was never set


def sniff(head: bytes) -> float:
    """How many lines are steps or headers of the recorder: no other program writes these keys in this order."""
    return float(sum(1 for _ in islice(_SNIFFED.finditer(head), MOST_SNIFFED)))


def parse(text: bytes, first_line: int, records: Records) -> None:
    block = Block.of(text)
    torn = _torn(text, block)
    left = block.without(block.filled, torn)
    for statement, lines, found in alike(block, left, (STEP, DEVICE), prefixes=False):
        fits = bounds.RUN_S.mask(found["s"]) & (found["number"] <= bounds.ITERATION.high)
        line = block.line(int(lines[0]))
        if statement is STEP:
            fits &= _CLOCK_S.mask(found["t"])
        if not line.endswith(b"}") or any(word in line for word in _NO_NUMBERS) or not fits.all():
            continue
        left = block.without(left, lines)
        lines = lines + first_line
        if statement is DEVICE:
            records.keep(DEVICES, lines, found["number"], found["s"])
            continue
        rate = {"reported_tokens_per_s": found["tokens"] / np.maximum(found["s"], 1e-9)} if "tokens" in found else {}
        rate |= {"loss": found["loss"]} if "loss" in found else {}
        number = found["number"].astype(np.int64)
        records.add_rows(number=number, time_s=found["s"], stamp_s=found["t"], line=lines, **rate)
        if "data_s" in found or "wait_s" in found:
            unknown = np.full(len(lines), np.nan)
            inside = (np.clip(found.get(name, unknown), 0.0, found["s"]) for name in ("data_s", "wait_s"))
            records.keep(INSIDE, lines, *inside)
        if "flops" in found:
            counted = bounds.FLOPS.mask(found["flops"])
            records.keep(WORK, lines[counted], found["flops"][counted] / TERA)
    whole = text.endswith(b"\n")
    for index in np.union1d(left, torn).tolist():
        line = block.line(index)
        known = _read_line(line, index + first_line, records)
        if not known and (whole or index + 1 < len(block.starts)) and b'"step":' in line:
            records.add_unread(index + first_line, line[:LONGEST_LINE_KEPT].decode("utf-8", "replace"))


def finish(first_line: int, records: Records) -> None:
    """Does nothing: no lines are held back."""


def _torn(text: bytes, block: Block) -> np.ndarray:
    """Lines on which a header follows the remains of another line: a process was killed, and the next one continued."""
    places = []
    at = text.find(_HEADER, 1)
    while at >= 0:
        if text[at - 1] != ord("\n"):
            places.append(at)
        at = text.find(_HEADER, at + 1)
    return np.unique(np.searchsorted(block.starts, places, side="right") - 1)


# --- line by line -----------------------------------------------------------------------------------------------


def _read_line(line: bytes, number: int, records: Records) -> bool:
    """Reads one line; False if it is not one of the recorder's."""
    line = line[max(line.rfind(_HEADER), 0) :].strip()
    if not line.startswith(b"{") or len(line) > 1_000_000:  # a limit on what is taken for settings
        return False
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return False
    kind = next(iter(entry), "") if isinstance(entry, dict) else ""
    if kind == "step":
        return _read_step(entry, number, records)
    if kind not in ("stepwatch", "settings", "compile", "eval", "checkpoint", "device", "lost", "end"):
        return False
    at, took, clock = _count(entry, kind), within(bounds.RUN_S, entry.get("s")), _clock(entry)
    stamp = None if math.isnan(clock) else clock
    if kind == "stepwatch":
        _read_header(entry, number, records)
    elif kind == "settings":
        _add_settings(entry["settings"], number, records)
    elif kind == "compile" and took is not None:
        records.events.append(Fact(line=number, name="compilation", value=(took, clock)))
    elif kind == "eval" and at is not None:
        losses = {name: _loss(entry, name) for name in ("train_loss", "val_loss")}
        records.events.append(Evaluation(line=number, at=at, took_s=took, stamp_s=stamp, **losses))
    elif kind == "checkpoint" and at is not None:
        records.events.append(Checkpoint(line=number, at=at, took_s=took, stamp_s=stamp))
    elif kind == "device" and at is not None and took is not None:
        records.keep_row(DEVICES, number, at, took)
    elif kind == "lost" and at:
        records.events.append(Fact(line=number, name="lost", value=at))
    if kind in ("settings", "lost", "end"):
        records.events.append(Fact(line=number, name="end_s" if kind == "end" else "clock_s", value=clock))
    return True


def _read_header(entry: Mapping[str, Any], line: int, records: Records) -> None:
    continued = entry.get("continued") is True
    facts: dict[str, Any] = {"started_s": _clock(entry, "started")} if not continued else {}
    for name in ("rank", "world_size"):
        count = _count(entry, name)
        if count is not None and (name == "rank" or count > 0):
            facts[name] = count
    if isinstance(entry.get("gpu"), str):
        facts["gpu_text"] = entry["gpu"][:200]
    records.events += [Fact(line=line, name=name, value=value, header=not continued) for name, value in facts.items()]
    _add_settings(entry.get("settings"), line, records)


def _add_settings(given: object, line: int, records: Records) -> None:
    if not isinstance(given, dict):
        return
    facts: dict[str, Any] = {**settings_from(given)}
    flops = within(bounds.FLOPS, given.get("flops_per_iter"))
    if flops is not None:
        facts["flops_per_iter"] = flops
    records.events += [Fact(line=line, name=name, value=value) for name, value in facts.items()]


def _read_step(entry: Mapping[str, Any], line: int, records: Records) -> bool:
    number, took = _count(entry, "step"), within(bounds.RUN_S, entry.get("s"))
    if number is None or took is None:
        return False
    values = {"number": float(number), "time_s": took, "line": float(line), "stamp_s": _clock(entry)}
    loss = _loss(entry, "loss")
    if loss is not None:
        values["loss"] = loss if math.isfinite(loss) else math.inf
    tokens = _count(entry, "tokens")
    if tokens and took > 0:
        values["reported_tokens_per_s"] = tokens / took
    records.add_row(**values)
    inside = [within(bounds.RUN_S, entry.get(name)) for name in ("data_s", "wait_s")]
    if inside != [None, None]:
        records.keep_row(INSIDE, line, *(math.nan if one is None else min(one, took) for one in inside))
    flops = within(bounds.FLOPS, entry.get("flops"))
    if flops is not None:
        records.keep_row(WORK, line, flops / TERA)
    return True


def _clock(entry: Mapping[str, Any], name: str = "t") -> float:
    stamp = within(_CLOCK_S, entry.get(name))
    return math.nan if stamp is None else stamp


def _count(entry: Mapping[str, Any], name: str) -> int | None:
    value = within(bounds.ITERATION, entry.get(name))
    return int(value) if value is not None and value == int(value) else None


def _loss(entry: Mapping[str, Any], name: str) -> float | None:
    """The loss; inf if it is not a number, as in every log, because nan means not recorded."""
    value = entry.get(name)
    if isinstance(value, float):
        return math.inf if math.isnan(value) else value
    return within(bounds.LOSS, value)


READER = Reader(
    name="stepwatch",
    timing=Timing.SPANS_STEP,
    sniff=sniff,
    parse=parse,
    finish=finish,
    complete=complete,
    traits=Traits(states_model=True, shows_events=True),
)
