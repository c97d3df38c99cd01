"""What a recorder or the trainer itself timed: each part separately, the span by the clock, the inside of a step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from stepwatch.analysis.costs import COMBINED, MEASURED, NOT_SEPARABLE, Costs
from stepwatch.analysis.findings import INFO, NOTICE, SLEEP_RATIO, WARNING, Finding, Rule, held_up_by
from stepwatch.analysis.goodput import DATA, PARTS, START, WITH_DATA, Goodput, Split
from stepwatch.analysis.phases import Phase, Phases
from stepwatch.analysis.statistics import chosen, median, pieces, series, t_quantile, total
from stepwatch.messages import Message
from stepwatch.run import SLEEP_S, Floats, Run
from stepwatch.units import Interval

if TYPE_CHECKING:
    from stepwatch.analysis import Analysis


def with_recorded(run: Run, phases: Phases, costs: Costs) -> Costs:
    """Adds what was timed separately: the compilation, steps on the device, and the waiting of steps for data."""
    if run.inside is not None:
        known = phases.normal & np.isfinite(run.inside.device_s)
        host, device = chosen(run.iterations.time_s, known), chosen(run.inside.device_s, known)
        if len(host) and median(host) > 0:
            longer = series(len(host), lambda rows: np.maximum(host[rows], device[rows]))
            ratio = median(longer) / median(host)
            if ratio > 1.02:  # below that the device keeps pace with its host
                costs = replace(costs, step_s=costs.step_s.scaled(ratio), device_ratio=ratio)
    if run.compile_s is not None:
        own, how = costs.compile_s or Interval.exactly(0.0), costs.how.get("compile_s", MEASURED)
        how = COMBINED if how == NOT_SEPARABLE else how  # the first step alone shows nothing; its compilation is known
        compilation = own + Interval.exactly(run.compile_s)
        costs = replace(costs, compile_s=compilation, how={**costs.how, "compile_s": how})
    known = _shows_waiting(run, phases)
    if run.inside is None or not known.any():
        return costs
    data, covers = chosen(run.inside.data_s, known), chosen(phases.covers, known)
    whole, count = total(covers), len(data)
    mean = total(series(count, lambda rows: data[rows] * covers[rows])) / whole  # sums need the mean
    half = mean  # a single row does not show how far others differ
    if count > 1:
        squares = series(count, lambda rows: (data[rows] - mean) ** 2 * covers[rows])
        spread = math.sqrt(total(squares) / whole * count / (count - 1))
        half = t_quantile(count - 1) * spread / math.sqrt(count)
    return replace(costs, data_s=Interval.around(mean, half), how={**costs.how, "data_s": MEASURED})


def _shows_waiting(run: Run, phases: Phases) -> np.ndarray:
    """Rows that show how long a step waits: not the first, which starts the loader, nor those in which it slept."""
    if run.inside is None:
        return np.zeros(len(run.iterations), bool)
    known = np.isfinite(run.inside.data_s) & (phases.phase != Phase.FIRST)
    if phases.baseline is not None:
        for rows in pieces(len(known)):
            excess, times = phases.excess_s(run, rows), run.iterations.time_s[rows]
            known[rows] &= (excess <= SLEEP_S) | (times <= SLEEP_RATIO * phases.baseline.time_s[rows])
    return np.asarray(known)


def with_waiting(run: Run, phases: Phases, costs: Costs, split: Split) -> Split:
    """Separates waiting from the rest of the split: late data explain stalls, the usual wait is part of every step."""
    if run.inside is None or costs.data_s is None:
        return split
    known = _shows_waiting(run, phases)
    usual = median(chosen(run.inside.data_s, known))
    count = len(known)
    parts = {
        part: split.column_s(part) if split.parts[part].any() else np.broadcast_to(0.0, count)
        for part in ("eval", "checkpoint", "compile")
    }
    parts |= {part: np.empty(count) for part in ("step", "unexplained", DATA)}
    for rows in pieces(count):
        data = np.where(known[rows], run.inside.data_s[rows], costs.data_s.mid)
        step, unexplained = split.column_s("step", rows), split.column_s("unexplained", rows)
        beyond = np.where(known[rows], data - usual, 0.0)
        late = np.minimum(np.maximum(beyond, 0.0), unexplained)
        within = np.minimum(data - late, step)
        parts["step"][rows], parts["unexplained"][rows] = step - within, unexplained - late
        parts[DATA][rows] = late + within
    return Split(run.iterations.time_s, np.arange(count, dtype=np.int32), parts)


def recorded_goodput(run: Run, phases: Phases, costs: Costs, split: Split) -> Goodput:
    """Every part as it was timed; time outside all phases is the start, then unexplained. Phases do not overlap."""
    assert run.span is not None

    def spent_s(part: str) -> float:
        return total(series(len(run.iterations), lambda rows: split.column_s(part, rows)))

    parts = dict.fromkeys(PARTS if costs.data_s is None else WITH_DATA, 0.0)
    parts["step"] = spent_s("step")
    if run.left_out and phases.baseline is not None:  # steps that were dropped while watching: like those around them
        gaps, usual = np.diff(run.iterations.number) - 1.0, np.asarray(phases.baseline.time_s)
        between = gaps * (usual[1:] + usual[:-1]) / 2
        mean = float(between.sum() / gaps.sum()) if gaps.sum() > 0 else float(usual.mean())
        parts["step"] += run.left_out * mean * costs.mean_ratio
    if costs.data_s is not None:
        unseen = min(run.left_out * costs.data_s.mid, parts["step"])
        parts["step"] -= unseen
        parts[DATA] = spent_s(DATA) + unseen
    parts["compile"] = spent_s("compile") + (run.compile_s or 0.0)
    parts["stall"] = spent_s("unexplained")
    parts["eval"] = sum(evaluation.took_s or 0.0 for evaluation in run.evaluations)
    parts["checkpoint"] = sum(save.took_s or 0.0 for save in run.checkpoints)
    known = sum(parts.values())
    wall = max(run.span.ended_s - run.span.started_s, known)
    parts[START] = min(run.span.begun_s - run.span.started_s, wall - known)
    parts["unexplained"] = wall - known - parts[START]
    return Goodput(
        wall_s=wall,
        interval_s=Interval.around(wall, 0.001 * wall),  # as far as a clock can be trusted
        parts_s=parts,
        iterations=len(run.iterations) + run.left_out,
        by_clock=True,
    )


# --- findings ---------------------------------------------------------------------------------------------------


def data_wait(a: Analysis) -> Iterator[Finding]:
    share = a.data_share
    if a.costs.data_s is None or share is None:
        return
    facts = {"share": share, "lost": a.goodput.parts_s[DATA], "each": a.costs.data_s.mid}
    severity = WARNING if share >= 0.20 else NOTICE if share >= 0.05 else INFO
    text = Message(
        "The steps wait {share:pct} of their time for data: {each:time} each, {lost:time} in this log. More workers or "
        "prefetching in the loader, data prepared beforehand or a faster disk would recover most of it.",
        facts,
    )
    if severity == INFO:
        text = Message("The steps wait {share:pct} of their time for data: the loader keeps up.", facts)
    yield Finding("data_wait", severity, text)


def late_steps(a: Analysis) -> Iterator[Finding]:
    """Slow steps whose cause the record shows: their data came late, or another rank did."""
    rows = np.flatnonzero(a.phases.of(Phase.STALL))
    if a.run.inside is None or not len(rows) or a.phases.baseline is None:
        return

    def facts(late: np.ndarray) -> dict[str, object]:
        at, lost = a.run.iterations.number[late].tolist(), float(a.phases.excess_s(a.run, late).sum())
        return {"at": at, "count": len(late), "lost": lost}

    late = rows[held_up_by(a, rows, a.run.inside.data_s)]
    if len(late):
        message = Message(
            "Iteration {at:ints} was slow because its data came late: {lost:time} lost.",
            facts(late),
            "{count:n} iterations ({at:ints}) were slow because their data came late: {lost:time} lost in all.",
            len(late),
        )
        yield Finding("late_data", NOTICE, message)
    late = rows[held_up_by(a, rows, a.run.inside.wait_s)]
    if len(late):
        message = Message(
            "Iteration {at:ints} was slow because it waited for another rank: {lost:time} lost.",
            facts(late),
            "{count:n} iterations ({at:ints}) were slow because they waited for another rank: {lost:time} lost in all.",
            len(late),
        )
        yield Finding("late_ranks", NOTICE, message)


def device_time(a: Analysis) -> Iterator[Finding]:
    """A host that does not wait for its device, or a device that waits for its host."""
    inside = a.run.inside
    if inside is None:
        return
    known = a.phases.normal & np.isfinite(inside.device_s)
    columns = a.run.iterations.time_s, inside.device_s, inside.data_s, inside.wait_s
    times, computing, data, late = (chosen(column, known) for column in columns)
    if not len(times):
        return

    def idle_s(rows: slice) -> Floats:
        waits = np.nan_to_num(data[rows]) + np.nan_to_num(late[rows])
        return np.asarray(np.maximum(times[rows] - waits - computing[rows], 0.0))

    spent = total(times)
    idle = total(series(len(times), idle_s)) / spent if spent > 0 else 0.0
    facts = {"host": median(times), "device": median(computing), "idle": idle}
    if a.costs.device_ratio > 1:
        text = Message(
            "The loop does not wait for the device: the host finishes a step in {host:time}, the device takes {device:time}. The device's time counts.",
            facts,
        )
        yield Finding("asynchronous_loop", INFO, text)
    elif idle >= 0.20:
        text = Message(
            "Of the {host:time} of a step the device computes for {device:time}; for {idle:pct} of the step it is idle and waits for the host, data and other ranks not counted. Compilation, a larger batch, or fewer small operations and read-outs such as .item() in the loop would help.",
            facts,
        )
        yield Finding("device_idle", WARNING if idle >= 0.50 else NOTICE, text)


def outside_the_phases(a: Analysis) -> Iterator[Finding]:
    lost, wall = a.goodput.parts_s["unexplained"], a.goodput.wall_s
    if a.run.span is None or wall <= 0 or lost < 0.05 * wall:
        return
    text = Message(
        "{lost:time}, {share:pct} of the time, lie between and after the recorded phases.",
        {"lost": lost, "share": lost / wall},
    )
    yield Finding("outside_phases", NOTICE, text)


def lost_lines(a: Analysis) -> Iterator[Finding]:
    if a.run.lost_lines:
        message = Message(
            "{count:n} line could not be written by the recorder, as on a full disk: its time counts as unexplained.",
            {"count": a.run.lost_lines},
            "{count:n} lines could not be written by the recorder, as on a full disk: their time counts as unexplained.",
            a.run.lost_lines,
        )
        yield Finding("lost_lines", NOTICE, message)


def parts_of_steps(a: Analysis) -> dict[str, float]:
    """The mean times of the named parts of a normal step, the longest first."""
    found = {name: took[a.phases.normal] for name, took in a.run.parts.items()}
    known = {name: float(np.nansum(took)) / len(took) for name, took in found.items() if len(took)}
    return dict(sorted(known.items(), key=lambda each: -each[1]))


def step_parts(a: Analysis) -> Iterator[Finding]:
    parts, normal = parts_of_steps(a), a.run.iterations.time_s[a.phases.normal]
    shares = {name: took / float(normal.mean()) for name, took in parts.items()}
    said = [
        Message("{name:word} {took:time} ({share:pct})", {"name": name, "took": parts[name], "share": share})
        for name, share in shares.items()
        if share >= 0.01
    ]
    if said:
        yield Finding("step_parts", INFO, Message("The parts of a step: {parts:said}.", {"parts": said}))


RULES: tuple[Rule, ...] = (data_wait, late_steps, step_parts, device_time, outside_the_phases, lost_lines)
