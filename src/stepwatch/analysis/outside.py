"""Evaluations and checkpoints outside the printed times: from what the trainer says they took, or from the clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from stepwatch.analysis.costs import MEASURED, NOT_SEPARABLE, Costs
from stepwatch.analysis.phases import SLEEP_S, STALL_RATIO, Phases
from stepwatch.analysis.statistics import median, t_quantile
from stepwatch.run import Checkpoint, Evaluation, Floats, Ints, Run
from stepwatch.units import Interval

_Events = Sequence[Evaluation] | Sequence[Checkpoint]


def with_outside(run: Run, phases: Phases, costs: Costs) -> Costs:
    """The costs with those of events that no printed time includes; unknown where nothing shows them."""
    events: dict[str, _Events] = {
        kind: found
        for kind, found in (("eval", run.evaluations), ("checkpoint", run.checkpoints))
        if kind not in run.holds and found
    }
    by_clock = _by_clock(run, phases, costs, events)
    how, found = dict(costs.how), {"eval": costs.eval_s, "checkpoint": costs.checkpoint_s}
    for kind, each in events.items():
        reported = _reported(each)
        how[f"{kind}_s"] = MEASURED if reported or by_clock[kind] else NOT_SEPARABLE
        found[kind] = _mean(reported, 0.0) if reported else _mean(by_clock[kind], 0.5)  # half a second of a clock
    return replace(costs, eval_s=found["eval"], checkpoint_s=found["checkpoint"], how=how)


def _reported(events: _Events) -> list[float]:
    return [event.took_s for event in events if event.took_s is not None]


def _mean(values: list[float], doubt_s: float) -> Interval:
    """Of the mean: sums need it."""
    if not values:
        return Interval.exactly(0.0)
    mid = max(float(np.mean(values)), 0.0)
    if len(values) == 1:
        return Interval.around(mid, 0.1 * mid + doubt_s)
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5
    return Interval.around(mid, t_quantile(len(values) - 1) * error + doubt_s / len(values) ** 0.5)


def _by_clock(run: Run, phases: Phases, costs: Costs, events: dict[str, _Events]) -> dict[str, list[float]]:
    """What the clock shows between two rows beyond their steps, where evaluations alone, or saves alone, lie there."""
    rows, stamps = run.iterations, run.iterations.stamp_s
    found: dict[str, list[float]] = {"eval": [], "checkpoint": []}
    if not events or run.reordered or len(rows) < 2 or np.isnan(stamps).all():
        return found
    covers, apart = phases.covers[1:], np.maximum(np.diff(rows.number), 1)
    told = covers * rows.time_s[1:] + (apart - covers) * costs.step_s.mid
    excess = np.diff(stamps) - np.where((covers > 1) | (apart == 1), told, apart * costs.step_s.mid)
    counts = {kind: np.zeros(len(excess), np.int64) for kind in found}
    for kind, each in events.items():
        after = np.searchsorted(rows.line, [event.line for event in each]) - 1
        after = after[(after >= 0) & (after < len(excess))]  # of those that lie between two rows
        counts[kind] = np.bincount(after, minlength=len(excess))
    pairs = (("checkpoint", "eval"), ("eval", "checkpoint"))
    for kind, other in pairs:
        found[kind] = _each(excess, counts[kind], counts[other] == 0)
    for kind, other in pairs:
        known = _reported(run.evaluations if other == "eval" else run.checkpoints) or found[other]
        if not found[kind] and known:  # they are never alone: what they take beyond the others
            found[kind] = _each(excess - counts[other] * float(np.mean(known)), counts[kind], counts[other] > 0)
    return found


def _each(excess: Floats, counts: Ints, where: np.ndarray) -> list[float]:
    rows = np.flatnonzero(where & (counts > 0) & np.isfinite(excess))
    found = excess[rows] / counts[rows]
    # A pause of the process is no part of what it fell on: it stays unexplained.
    usual = max(median(found), 0.0)
    values: list[float] = found[(found <= STALL_RATIO * usual) | (found - usual <= SLEEP_S)].tolist()
    return values


def outside_s(run: Run, phases: Phases, costs: Costs, *, by_clock: bool) -> dict[str, float]:
    """Seconds that such events took, by part, up to the last iteration and behind its line."""
    # The total of a trainer that prints one ends with the last step, and so does the clock of the rows.
    number = -1 if by_clock and run.told_s is not None else int(run.iterations.number[-1])
    return _spent_s(run, phases, costs, int(run.iterations.line[-1]), number)


def behind_last_s(run: Run, phases: Phases, costs: Costs) -> float:
    """Of those the seconds behind the line of the last row: no clock of the rows shows them."""
    up_to = _spent_s(run, phases, costs, int(run.iterations.line[-1]), -1)
    return sum(outside_s(run, phases, costs, by_clock=True).values()) - sum(up_to.values())


def before_first_s(run: Run, phases: Phases, costs: Costs) -> float:
    """Of those the seconds before the line of the first row: no clock of the lines shows them."""
    return sum(_spent_s(run, phases, costs, int(run.iterations.line[0]), -1).values())


def _spent_s(run: Run, phases: Phases, costs: Costs, end: int, number: int) -> dict[str, float]:
    """Before a line, or behind it and of an iteration up to that number: the last evaluation follows its step."""
    begin = _begin(run, phases)

    def counts(event: Evaluation | Checkpoint) -> bool:
        return begin < event.line and (event.line < end or (event.at is not None and event.at <= number))

    return {
        part: sum(cost.mid if event.took_s is None else event.took_s for event in found if counts(event))
        for part, found, cost in _outside(run, costs)
    }


def _outside(run: Run, costs: Costs) -> Iterator[tuple[str, _Events, Interval]]:
    """The events that no printed time includes, and what one costs; what follows a printed total is not of the run."""
    last = int(run.iterations.number[-1])
    evaluations = [event for event in run.evaluations if run.told_s is None or event.at <= last]
    if "eval" not in run.holds and costs.eval_s is not None:
        yield "eval", evaluations, costs.eval_s
    if "checkpoint" not in run.holds and costs.checkpoint_s is not None:
        yield "checkpoint", run.checkpoints, costs.checkpoint_s


def _begin(run: Run, phases: Phases) -> int:
    """The line after which the logged span begins: a mean is of what came before its own line too."""
    begin, number, covers = int(run.iterations.line[0]), int(run.iterations.number[0]), int(phases.covers[0])
    if covers > 1 and not run.reordered:
        events: tuple[Evaluation | Checkpoint, ...] = (*run.evaluations, *run.checkpoints)
        inside = (event.line for event in events if event.at is not None and number - covers <= event.at <= number)
        begin = min([begin, *(line - 1 for line in inside)])
    return begin
