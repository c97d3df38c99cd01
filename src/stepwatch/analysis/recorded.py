"""What a recorder saw: each part timed by itself, the span by the clock, and what lies inside a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from stepwatch.analysis.costs import COMBINED, MEASURED, NOT_SEPARABLE, Costs
from stepwatch.analysis.findings import INFO, NOTICE, WARNING, Finding
from stepwatch.analysis.goodput import PARTS, Goodput, Split
from stepwatch.analysis.phases import Phase, Phases
from stepwatch.analysis.statistics import median
from stepwatch.messages import Message
from stepwatch.run import Floats, Run
from stepwatch.units import Interval

if TYPE_CHECKING:
    from stepwatch.analysis import Analysis

SPAN_DOUBT = 0.001  # of the clock that a span was taken by
NOTICED_DATA, MUCH_DATA = 0.05, 0.20  # shares of the steps that wait for data
NOTICED_IDLE, MUCH_IDLE = 0.20, 0.50
BEHIND = 0.02  # a device that takes longer than its host by less than this keeps pace with it
MUCH_OUTSIDE = 0.05


def with_recorded(run: Run, phases: Phases, costs: Costs) -> Costs:
    """The costs with the compilation that was timed by itself, and the step as the device takes it."""
    ratio = device_ratio(run, phases)
    costs = replace(costs, step_s=costs.step_s.scaled(ratio), device_ratio=ratio)
    if run.compile_s is None:
        return costs
    own, how = costs.compile_s or Interval.exactly(0.0), costs.how.get("compile_s", MEASURED)
    how = COMBINED if how == NOT_SEPARABLE else how  # the first step alone tells nothing; its compilation is known
    return replace(costs, compile_s=own + Interval.exactly(run.compile_s), how={**costs.how, "compile_s": how})


def device_ratio(run: Run, phases: Phases) -> float:
    """How much longer a step is on the device than for a host that does not wait for it; 1 where it waits."""
    if run.inside is None:
        return 1.0
    known = phases.normal & np.isfinite(run.inside.device_s)
    host = run.iterations.time_s[known]
    if not known.any() or median(host) <= 0:
        return 1.0
    ratio = median(np.maximum(host, run.inside.device_s[known])) / median(host)
    return ratio if ratio > 1 + BEHIND else 1.0


def recorded_goodput(run: Run, phases: Phases, costs: Costs, split: Split) -> Goodput:
    """Every part as it was timed; what no phase covers is unexplained. Phases do not overlap: they bound the span."""
    assert run.span is not None
    parts = dict.fromkeys(PARTS, 0.0)
    parts["step"] = float(split.step_s.sum()) + _left_out_s(run, phases, costs)
    parts["compile"] = float(split.compile_s.sum()) + (run.compile_s or 0.0)
    parts["stall"] = float(split.unexplained_s.sum())
    parts["eval"] = sum(evaluation.took_s or 0.0 for evaluation in run.evaluations)
    parts["checkpoint"] = sum(save.took_s or 0.0 for save in run.checkpoints)
    known = sum(parts.values())
    wall = max(run.span.ended_s - run.span.started_s, known)
    parts["unexplained"] = wall - known
    return Goodput(
        wall_s=wall, interval_s=Interval.around(wall, SPAN_DOUBT * wall), parts_s=parts,
        iterations=len(run.iterations) + run.left_out, by_clock=True,
        before_s=min(run.span.begun_s - run.span.started_s, parts["unexplained"]),
    )  # fmt: skip


def _left_out_s(run: Run, phases: Phases, costs: Costs) -> float:
    """Of the steps that a run which is watched let go: as those around them."""
    if not run.left_out or phases.baseline is None:
        return 0.0
    gaps, usual = np.diff(run.iterations.number) - 1.0, phases.baseline.time_s
    between = gaps * (usual[1:] + usual[:-1]) / 2
    mean = float(between.sum() / gaps.sum()) if gaps.sum() > 0 else float(usual.mean())
    return run.left_out * mean * costs.mean_ratio


# --- findings ---------------------------------------------------------------------------------------------------


def data_share(a: Analysis) -> float | None:
    """Of the steps, how much they wait for their data; the first one, which starts the loader, apart."""
    if a.run.inside is None:
        return None
    rows = np.isfinite(a.run.inside.data_s) & (a.phases.phase != Phase.FIRST)
    total = float(a.run.iterations.time_s[rows].sum())
    return float(a.run.inside.data_s[rows].sum()) / total if total > 0 else None


def data_wait(a: Analysis) -> Iterator[Finding]:
    share = data_share(a)
    if a.run.inside is None or share is None:
        return
    rows = np.isfinite(a.run.inside.data_s) & (a.phases.phase != Phase.FIRST)
    each = float(a.run.inside.data_s[rows].mean())
    facts = {"share": share, "lost": each * int(rows.sum()) * a.run.logged / len(rows), "each": each}
    if share < NOTICED_DATA:
        yield Finding("data_wait", INFO, Message(
            "The steps wait {share:pct} of their time for data: the loader keeps up.", facts))  # fmt: skip
        return
    yield Finding("data_wait", WARNING if share >= MUCH_DATA else NOTICE, Message(
        "The steps wait {share:pct} of their time for data: {each:time} each, {lost:time} in this log. More workers or prefetching in the loader, data prepared beforehand or a faster disk would bring most of it back.",
        facts))  # fmt: skip


def late_steps(a: Analysis) -> Iterator[Finding]:
    """Slow steps of which the record tells why: their data came late, or another rank did."""
    rows = np.flatnonzero(a.phases.of(Phase.STALL))
    if a.run.inside is None or not len(rows) or a.phases.baseline is None:
        return
    for inside in (a.run.inside.data_s, a.run.inside.wait_s):
        late = rows[_explains(a, rows, inside)]
        if not len(late):
            continue
        facts = {
            "at": a.run.iterations.number[late].tolist(), "count": len(late),
            "lost": float(a.phases.excess_s(a.run, late).sum()),
        }  # fmt: skip
        if inside is a.run.inside.data_s:
            yield Finding("late_data", NOTICE, Message(
                "Iteration {at:ints} was slow because its data came late: {lost:time} lost.", facts,
                "{count:n} iterations ({at:ints}) were slow because their data came late: {lost:time} lost in all.",
                len(late),
            ))  # fmt: skip
        else:
            yield Finding("late_ranks", NOTICE, Message(
                "Iteration {at:ints} was slow because it waited for another rank: {lost:time} lost.", facts,
                "{count:n} iterations ({at:ints}) were slow because they waited for another rank: {lost:time} lost in all.",
                len(late),
            ))  # fmt: skip


def explained_stalls(a: Analysis, rows: np.ndarray) -> np.ndarray:
    """Which of these slow rows are slow by what the record saw inside them."""
    assert a.run.inside is not None
    data, waiting = (_explains(a, rows, inside) for inside in (a.run.inside.data_s, a.run.inside.wait_s))
    return np.asarray(data | waiting)


def _explains(a: Analysis, rows: np.ndarray, inside: Floats) -> np.ndarray:
    """Whether most of what the rows took beyond a normal step was of this kind."""
    known = inside[np.isfinite(inside)]
    if not len(known):
        return np.zeros(len(rows), bool)
    beyond: Floats = np.nan_to_num(inside[rows] - median(known))
    return np.asarray(beyond > 0.5 * a.phases.excess_s(a.run, rows))


def device_time(a: Analysis) -> Iterator[Finding]:
    """A host that does not wait for its device, or a device that waits for its host."""
    if a.run.inside is None:
        return
    known = a.phases.normal & np.isfinite(a.run.inside.device_s)
    if not known.any():
        return
    host, device = median(a.run.iterations.time_s[known]), median(a.run.inside.device_s[known])
    facts = {"host": host, "device": device, "idle": _idle(a, known)}
    if a.costs.device_ratio > 1:
        yield Finding("asynchronous_loop", INFO, Message(
            "The loop does not wait for the device: the host is through a step in {host:time}, the device takes {device:time}. The device's time counts.",
            facts))  # fmt: skip
    elif facts["idle"] >= NOTICED_IDLE:
        yield Finding("device_idle", WARNING if facts["idle"] >= MUCH_IDLE else NOTICE, Message(
            "Of the {host:time} of a step the device computes for {device:time}; {idle:pct} of the step it idles and waits for the host, data and other ranks not counted. Compilation, a larger batch, or fewer small operations and read-outs such as .item() in the loop would help.",
            facts))  # fmt: skip


def _idle(a: Analysis, known: np.ndarray) -> float:
    """Share of the step in which the device waits for the host alone."""
    inside, times = a.run.inside, a.run.iterations.time_s[known]
    assert inside is not None
    waits: Floats = np.nan_to_num(inside.data_s[known]) + np.nan_to_num(inside.wait_s[known])
    idle = np.maximum(times - waits - inside.device_s[known], 0.0)
    return float(idle.sum() / times.sum()) if times.sum() > 0 else 0.0


def outside_the_phases(a: Analysis) -> Iterator[Finding]:
    lost, before = a.goodput.parts_s["unexplained"], a.goodput.before_s
    if a.goodput.wall_s <= 0 or lost < MUCH_OUTSIDE * a.goodput.wall_s:
        return
    facts = {"lost": lost, "before": before, "between": max(lost - before, 0.0), "share": lost / a.goodput.wall_s}
    yield Finding("outside_phases", NOTICE, Message(
        "{lost:time}, {share:pct} of the time, lie outside of all that was recorded: {before:time} before the first phase, {between:time} between and after the phases.",
        facts))  # fmt: skip


def lost_lines(a: Analysis) -> Iterator[Finding]:
    if a.run.lost_lines:
        yield Finding("lost_lines", NOTICE, Message(
            "{count:n} line could not be written by the recorder, as when a disk is full: its time counts as not explained.",
            {"count": a.run.lost_lines},
            "{count:n} lines could not be written by the recorder, as when a disk is full: their time counts as not explained.",
            a.run.lost_lines,
        ))  # fmt: skip


RULES: tuple[Callable[[Analysis], Iterator[Finding]], ...] = (
    data_wait, late_steps, device_time, outside_the_phases, lost_lines,
)  # fmt: skip
