"""Evaluations and checkpoints outside the printed times: from what the trainer says they took, or from the clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stepwatch.analysis.costs import MEASURED, NOT_SEPARABLE, Costs
from stepwatch.analysis.phases import Phases
from stepwatch.analysis.statistics import t_quantile
from stepwatch.run import Checkpoint, Evaluation, Run
from stepwatch.units import Interval

ALONE_DOUBT = 0.1  # of one that was seen once only
CLOCK_S = 0.5  # half of the second that most clocks tell


def with_outside(run: Run, phases: Phases, costs: Costs) -> Costs:
    """The costs with those of events that no printed time includes; nothing told of them is said to be so."""
    how = dict(costs.how)
    gaps = _gaps(run, phases, costs)
    evaluation, checkpoint = costs.eval_s, costs.checkpoint_s
    if "eval" not in run.holds and run.evaluations:
        alone, _ = gaps
        evaluation = _cost(run.evaluations, alone, how, "eval_s")
    if "checkpoint" not in run.holds and run.checkpoints:
        _, saves = gaps
        checkpoint = _cost(run.checkpoints, saves, how, "checkpoint_s")
    return replace(costs, eval_s=evaluation, checkpoint_s=checkpoint, how=how)


def _cost(
    events: Sequence[Evaluation] | Sequence[Checkpoint], by_clock: list[float], how: dict[str, str], name: str
) -> Interval:
    told = [event.took_s for event in events if event.took_s is not None]
    if told:
        how[name] = MEASURED
        return _mean(told, 0.0)
    if by_clock:
        how[name] = MEASURED
        return _mean(by_clock, CLOCK_S)
    how[name] = NOT_SEPARABLE
    return Interval.exactly(0.0)


def _mean(values: list[float], doubt_s: float) -> Interval:
    """Of the mean: sums need it."""
    mid = max(float(np.mean(values)), 0.0)
    if len(values) == 1:
        return Interval.around(mid, ALONE_DOUBT * mid + doubt_s)
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5
    return Interval.around(mid, t_quantile(len(values) - 1) * error + doubt_s / len(values) ** 0.5)


def _gaps(run: Run, phases: Phases, costs: Costs) -> tuple[list[float], list[float]]:
    """What the clock shows between two rows beyond their steps, where evaluations alone, or saves alone, lie there."""
    rows, stamps = run.iterations, run.iterations.stamp_s
    if run.reordered or len(rows) < 3 or np.isnan(stamps).all():
        return [], []
    between, covers, apart = np.diff(stamps), phases.covers[1:], np.maximum(np.diff(rows.number), 1)
    told = covers * rows.time_s[1:] + (apart - covers) * costs.step_s.mid
    excess = between - np.where((covers > 1) | (apart == 1), told, apart * costs.step_s.mid)
    counts = {
        kind: np.bincount(_gaps_of(run, events), minlength=len(excess)) if kind not in run.holds else 0 * apart
        for kind, events in (("eval", run.evaluations), ("checkpoint", run.checkpoints))
    }
    found = {
        kind: _beyond(excess, counts[kind], counts[other] == 0)
        for kind, other in (("eval", "checkpoint"), ("checkpoint", "eval"))
    }
    printed = {
        kind: [event.took_s for event in events if event.took_s is not None]
        for kind, events in (("eval", run.evaluations), ("checkpoint", run.checkpoints))
    }
    for kind, other in (("checkpoint", "eval"), ("eval", "checkpoint")):
        known = printed[other] or found[other]
        if not found[kind] and known:  # they are never alone: what they take beyond the others
            found[kind] = _beyond(excess - counts[other] * float(np.mean(known)), counts[kind], counts[other] > 0)
    return found["eval"], found["checkpoint"]


def _gaps_of(run: Run, events: Sequence[Evaluation] | Sequence[Checkpoint]) -> np.ndarray:
    """After which row each stands, of those that lie between two."""
    places = np.searchsorted(run.iterations.line, [event.line for event in events]) - 1
    return np.asarray(places[(places >= 0) & (places < len(run.iterations) - 1)])


def _beyond(excess: np.ndarray, counts: np.ndarray, where: np.ndarray) -> list[float]:
    rows = np.flatnonzero(where & (counts > 0) & np.isfinite(excess))
    values: list[float] = (excess[rows] / counts[rows]).tolist()
    return values


def outside_s(run: Run, phases: Phases, costs: Costs) -> dict[str, float]:
    """Seconds of the logged span that such events took, by part."""
    if not len(run.iterations):
        return {}
    begin, end = _first_line(run, phases), int(run.iterations.line[-1])
    return _spent_s(run, costs, begin, end)


def before_first_s(run: Run, phases: Phases, costs: Costs) -> float:
    """Of those the seconds before the line of the first row: no clock of the lines shows them."""
    return sum(_spent_s(run, costs, _first_line(run, phases), int(run.iterations.line[0])).values())


def _spent_s(run: Run, costs: Costs, begin: int, end: int) -> dict[str, float]:
    """Between two lines."""
    spent: dict[str, float] = {}
    for part, events, cost in (
        ("eval", run.evaluations, costs.eval_s), ("checkpoint", run.checkpoints, costs.checkpoint_s),
    ):  # fmt: skip
        if part not in run.holds and cost is not None:
            inside = [event for event in events if begin < event.line < end]
            spent[part] = sum(cost.mid if event.took_s is None else event.took_s for event in inside)
    return spent


def _first_line(run: Run, phases: Phases) -> int:
    """After which line the logged span begins: a mean is of what came before its own line too."""
    line, number, covers = int(run.iterations.line[0]), int(run.iterations.number[0]), int(phases.covers[0])
    if covers <= 1 or run.reordered:
        return line
    events: tuple[Evaluation | Checkpoint, ...] = (*run.evaluations, *run.checkpoints)
    inside = (event.line for event in events if event.at is not None and number - covers <= event.at <= number)
    return min([line, *(place - 1 for place in inside)])
