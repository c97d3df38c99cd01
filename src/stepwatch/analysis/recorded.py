"""What a recorder saw: each part timed by itself, the span by the clock, and what lies inside a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from stepwatch.analysis.costs import COMBINED, MEASURED, NOT_SEPARABLE, Costs
from stepwatch.analysis.findings import INFO, NOTICE, WARNING, Finding, Rule
from stepwatch.analysis.goodput import DATA, START, Goodput, Split, no_parts
from stepwatch.analysis.phases import Phases
from stepwatch.analysis.statistics import median
from stepwatch.messages import Message
from stepwatch.run import Floats, Run
from stepwatch.units import Interval

if TYPE_CHECKING:
    from stepwatch.analysis import Analysis


def with_recorded(run: Run, phases: Phases, costs: Costs) -> Costs:
    """The costs with the compilation that was timed by itself, and the step as the device takes it."""
    if run.inside is not None:
        known = phases.normal & np.isfinite(run.inside.device_s)
        host, device = run.iterations.time_s[known], run.inside.device_s[known]
        if len(host) and median(host) > 0:
            ratio = median(np.maximum(host, device)) / median(host)
            if ratio > 1.02:  # with less the device keeps pace with its host
                costs = replace(costs, step_s=costs.step_s.scaled(ratio), device_ratio=ratio)
    if run.compile_s is not None:
        own, how = costs.compile_s or Interval.exactly(0.0), costs.how.get("compile_s", MEASURED)
        how = COMBINED if how == NOT_SEPARABLE else how  # the first step alone shows nothing; its compilation is known
        compilation = own + Interval.exactly(run.compile_s)
        costs = replace(costs, compile_s=compilation, how={**costs.how, "compile_s": how})
    return costs


def recorded_goodput(run: Run, phases: Phases, costs: Costs, split: Split) -> Goodput:
    """Every part as it was timed; what no phase covers is the start, then unexplained. Phases do not overlap: they bound the span."""
    assert run.span is not None
    parts = no_parts(costs)
    parts["step"] = float(split.column_s("step").sum())
    if run.left_out and phases.baseline is not None:  # steps that a run which is watched let go: as those around them
        gaps, usual = np.diff(run.iterations.number) - 1.0, np.asarray(phases.baseline.time_s)
        between = gaps * (usual[1:] + usual[:-1]) / 2
        mean = float(between.sum() / gaps.sum()) if gaps.sum() > 0 else float(usual.mean())
        parts["step"] += run.left_out * mean * costs.mean_ratio
    if costs.data_s is not None:
        unseen = min(run.left_out * costs.data_s.mid, parts["step"])
        parts["step"] -= unseen
        parts[DATA] = float(split.column_s(DATA).sum()) + unseen
    parts["compile"] = float(split.column_s("compile").sum()) + (run.compile_s or 0.0)
    parts["stall"] = float(split.column_s("unexplained").sum())
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


def device_time(a: Analysis) -> Iterator[Finding]:
    """A host that does not wait for its device, or a device that waits for its host."""
    inside = a.run.inside
    if inside is None:
        return
    known = a.phases.normal & np.isfinite(inside.device_s)
    times, computing = a.run.iterations.time_s[known], inside.device_s[known]
    if not len(times):
        return
    waits: Floats = np.nan_to_num(inside.data_s[known]) + np.nan_to_num(inside.wait_s[known])
    idle = float(np.maximum(times - waits - computing, 0.0).sum() / times.sum()) if times.sum() > 0 else 0.0
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
    """What the named parts of a normal step take in the mean, the longest first."""
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


RULES: tuple[Rule, ...] = (step_parts, device_time, outside_the_phases, lost_lines)
