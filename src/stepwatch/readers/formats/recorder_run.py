"""What only a record shows about a run: its span, its compilation, and what happens inside its steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from stepwatch.readers.formats.running import at_lines, median
from stepwatch.readers.records import DEVICES, INSIDE, WORK, Kinds, Records, pieces
from stepwatch.run import Checkpoint, Evaluation, Event, Fact, Floats, Run
from stepwatch.run.more import Inside, Span
from stepwatch.settings import Origin, Settings
from stepwatch.units import TERA

_Timed = TypeVar("_Timed", Evaluation, Checkpoint)


def complete(run: Run, kinds: Kinds, records: Records) -> Run:
    """Adds what only the recorder shows: the run's span, its compilation, and what happens inside its steps."""
    events = kinds.events()
    begin, end = _bounds(run, events)
    own = [event for event in events if begin <= event.line < end]
    facts = [event for event in own if isinstance(event, Fact)]
    evaluations = _merged([event for event in own if isinstance(event, Evaluation)])
    saves = _merged([event for event in own if isinstance(event, Checkpoint)])
    compilations = [fact.value for fact in facts if fact.name == "compilation"]
    settings = run.settings
    if compilations and settings.flag("compile") is None:
        settings = settings.overridden_by(Settings.of(Origin.LOG, {"compile": True}))
    run = replace(
        run, evaluations=evaluations, settings=settings,
        checkpoints=saves,
        distributed=(settings.count("world_size") or 1) > 1,
        compile_s=sum(took for took, _ in compilations) if compilations else None,
        rank=next((int(fact.value) for fact in facts if fact.name == "rank"), None),
        closed=any(fact.name == "end_s" for fact in facts),
        lost_lines=sum(fact.value for fact in facts if fact.name == "lost"),
    )  # fmt: skip
    run = replace(run, span=_span(run, facts, compilations), inside=inside_of(run, records, begin, end))
    # Work and tokens per step, from the settings or else from the steps themselves.
    tokens = settings.number("tokens_per_iter")
    if tokens is None:
        tokens = _middle(run.iterations.reported_tokens_per_s * run.iterations.time_s)
    flops = next((float(fact.value) for fact in reversed(facts) if fact.name == "flops_per_iter"), None)
    if flops is None:
        flops = _middle(_columns(records, WORK, 2, begin, end)[1] * TERA)
    return replace(run, flops_per_token=flops / tokens if flops and tokens else None)


def _bounds(run: Run, events: Sequence[Event]) -> tuple[float, float]:
    """From the last header before the first step to the next one after the last step: others are of other processes."""
    headers = [event.line for event in events if isinstance(event, Fact) and event.header]
    lines = run.iterations.line
    first, last = (int(lines.min()), int(lines.max())) if len(lines) else (math.inf, math.inf)
    begin = max((line for line in headers if line <= first), default=-1)
    return float(begin), float(min((line for line in headers if line > last), default=math.inf))


def _merged(events: Sequence[_Timed]) -> tuple[_Timed, ...]:
    """One event for each iteration, with its total time; what was pasted twice counts once."""
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
    """The span of the run; None if no line shows the time."""
    stated = [(event.took_s or 0.0, event.stamp_s) for event in run.evaluations]
    stated += [(save.took_s or 0.0, save.stamp_s) for save in run.checkpoints]
    phases = [(took, stamp) for took, stamp in (*stated, *compilations) if stamp is not None and math.isfinite(stamp)]
    rows = run.iterations
    begins = [stamp - took for took, stamp in phases]
    ends = [stamp for _, stamp in phases]
    for part in pieces(len(rows)):
        stamps = rows.stamp_s[part]
        known = np.isfinite(stamps)
        if known.any():
            begins.append(float((stamps - rows.time_s[part])[known].min()))
            ends.append(float(stamps[known].max()))
    if not begins:
        return None
    ends += [fact.value for fact in facts if fact.name in ("clock_s", "end_s") and math.isfinite(fact.value)]
    started = next((fact.value for fact in facts if fact.name == "started_s"), math.nan)
    begun = min(begins)
    return Span(started if started <= begun else begun, begun, max(ends))


def with_inside(run: Run, kinds: Kinds, records: Records) -> Run:
    """Adds what a trainer prints along with each time: how long the step waited for its data."""
    return replace(run, inside=inside_of(run, records))


def inside_of(run: Run, records: Records, begin: float = -math.inf, end: float = math.inf) -> Inside | None:
    """What happens inside the steps, from the accompanying tables."""
    rows = run.iterations
    lines, data_s, wait_s = _columns(records, INSIDE, 3, begin, end)
    _, numbers, device_s = _columns(records, DEVICES, 3, begin, end)
    if not len(rows) or not (len(lines) or len(numbers)):
        return None
    if not bool((numbers[1:] >= numbers[:-1]).all()):
        order = np.argsort(numbers, kind="stable")
        numbers, device_s = numbers[order], device_s[order]
    return Inside(
        data_s=at_lines(rows.line, lines, data_s), wait_s=at_lines(rows.line, lines, wait_s),
        device_s=at_lines(rows.number, numbers, device_s),
    )  # fmt: skip


def _columns(records: Records, name: str, width: int, begin: float, end: float) -> list[np.ndarray]:
    """The rows of a table between two lines."""
    columns = records.table_columns(name, width)
    first, last = np.searchsorted(columns[0], (begin, end))
    return [column[first:last] for column in columns]


def _middle(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return median(known) if len(known) else None
