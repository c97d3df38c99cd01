"""When it will end: phase by phase, from what this log shows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stepwatch.analysis.costs import MEASURED, NOT_SEPARABLE, Costs
from stepwatch.analysis.expected import ENOUGH_ROWS, combined
from stepwatch.analysis.goodput import BASE_DOUBT, Goodput
from stepwatch.analysis.phases import SLEEP_S, Phase, Phases
from stepwatch.analysis.statistics import block_medians, median
from stepwatch.estimator.simulate import Loop, Prices, simulate
from stepwatch.run import Run
from stepwatch.units import Interval

if TYPE_CHECKING:
    from stepwatch.estimator.estimate import Estimate

# What a machine does later that it has not shown yet: heat, other users. From runs cut at a tenth of their length.
# Things get slower more often than faster.
FASTER_DOUBT, SLOWER_DOUBT = 0.025, 0.035
LATER_EVALUATIONS = 0.02
RECENT_ROWS = 200
MANY_STALLS = 5


class Forecast(NamedTuple):
    """Time to the end of the run, or per thousand iterations where its length is unknown."""

    done: bool = False
    total_s: Interval | None = None
    remaining_s: Interval | None = None
    basis: str = "log"
    per_thousand_s: Interval | None = None
    last_iteration: int = 0
    max_iters: int | None = None
    evals_ahead: int = 0
    saves_ahead: float = 0.0
    assumed_no_evals: bool = False


def find_forecast(
    run: Run, phases: Phases, costs: Costs, goodput: Goodput, expected: Estimate | None = None
) -> Forecast:
    last = int(run.iterations.number[-1])
    rows = int(phases.normal.sum())
    step = _future_step(run, phases, costs, goodput)
    basis = "log"
    if expected is not None and rows < ENOUGH_ROWS:
        # The log outweighs the model as soon as it has shown a few normal iterations.
        step = combined(step, rows, expected.step_s) if rows else expected.step_s
        costs = _filled_in(costs, expected)
        basis = "both" if rows else "estimate"
    end = run.settings.count("max_iters")
    if end is None:
        return Forecast(
            per_thousand_s=_span(run, phases, costs, step, last, last + 1000)[0], last_iteration=last, basis=basis
        )
    if last >= end or (run.closed and last + 1 >= end):  # a loop over range(end) does not run the last one
        return Forecast(
            done=True, total_s=goodput.interval_s, remaining_s=Interval.exactly(0.0), last_iteration=last, max_iters=end
        )
    remaining, evals, saves = _span(run, phases, costs, step, last, end)
    total = _sum_with_past(goodput, remaining)
    blind = phases.eval_interval is None and phases.first_evaluates
    return Forecast(
        total_s=total, remaining_s=remaining, last_iteration=last, max_iters=end, evals_ahead=evals, saves_ahead=saves,
        assumed_no_evals=blind, basis=basis,
    )  # fmt: skip


def _filled_in(costs: Costs, expected: Estimate) -> Costs:
    """What the log does not tell of evaluation and checkpoint yet, from the estimator."""
    if costs.eval_s is None or costs.how.get("eval_s") == NOT_SEPARABLE:
        costs = replace(costs, eval_s=expected.eval_s)
    if costs.checkpoint_s is None:
        costs = replace(costs, checkpoint_s=expected.checkpoint_s, pair_s=None)
    return costs


def _sum_with_past(goodput: Goodput, remaining: Interval) -> Interval:
    """What biased the past biases the future alike, so the relative errors add up, not in quadrature."""
    past = goodput.interval_s
    return Interval(past.low + remaining.low, past.mid + remaining.mid, past.high + remaining.high)


def _future_step(run: Run, phases: Phases, costs: Costs, goodput: Goodput) -> Interval:
    """The step from here on: the recent level, doubted as far as levels have wandered so far."""
    doubt_down = (goodput.wall_s - goodput.interval_s.low) / goodput.wall_s if goodput.wall_s > 0 else 0.0
    doubt_up = (goodput.interval_s.high - goodput.wall_s) / goodput.wall_s if goodput.wall_s > 0 else 0.0
    if phases.baseline is None or not phases.normal.any():
        return costs.step_s
    times = run.iterations.time_s[phases.normal]
    recent = median(times[-RECENT_ROWS:])
    mid = recent * costs.mean_ratio * max(_clock_factor(goodput), costs.device_ratio)
    wander = _wander(times)
    statistical = 1.6449 * 1.2533 * phases.baseline.noise / math.sqrt(min(len(times), RECENT_ROWS))
    slack = math.hypot(wander, statistical)
    down = math.hypot(FASTER_DOUBT, slack) + max(doubt_down - BASE_DOUBT, 0.0)
    up = math.hypot(SLOWER_DOUBT, slack) + max(doubt_up - BASE_DOUBT, 0.0)
    return Interval(mid * max(1 - down, 0.0), mid, mid * (1 + up))


def _clock_factor(goodput: Goodput) -> float:
    """Where the lines have a clock, what it shows beyond the printed times goes on as well."""
    if not goodput.by_clock or goodput.parts_s["step"] <= 0:
        return 1.0
    return min(1 + (goodput.parts_s["unexplained"] - goodput.before_s) / goodput.parts_s["step"], 1.5)


def _wander(times: np.ndarray) -> float:
    """Relative spread of the level between parts of the run."""
    if len(times) < 16:
        return 0.0
    blocks = block_medians(times, min(12, len(times) // 8))
    return float(np.std(blocks) / max(float(np.mean(blocks)), 1e-12)) if len(blocks) > 1 else 0.0


def _span(run: Run, phases: Phases, costs: Costs, step: Interval, last: int, end: int) -> tuple[Interval, int, float]:
    """Iterations last+1 to end inclusive (nanoGPT runs the last one too), with the evaluations among them."""
    ahead = end - last
    if phases.trailing is not None:
        ahead = max(end - phases.trailing + 1, 0)
        last = phases.trailing
    loop = Loop(ahead, lost_s=_stalls_ahead(run, phases, max(end - last, 0)))
    interval = phases.eval_interval
    if interval is None:
        steps = simulate(loop, Prices(step)).total_s
        return _with_unknown_evaluations(run, phases, costs, steps, last, end), 0, 0.0
    if not _evaluates(run, phases):
        return simulate(loop, Prices(step)).total_s, 0, 0.0
    evals = end // interval - last // interval
    prices = _prices_ahead(costs, step)
    apart = _saves_apart(run, last, end)
    if apart is not None:
        loop = loop._replace(evaluations=evals, apart=apart)
        return simulate(loop, prices._replace(pair_s=None)).total_s, evals, apart.mid
    share = _share_that_saves(run, phases)
    saving = share if prices.checkpoint_s is not None else Interval.exactly(0.0)
    return simulate(loop._replace(evaluations=evals, share=saving), prices).total_s, evals, evals * share.mid


def _saves_apart(run: Run, last: int, end: int) -> Interval | None:
    """Checkpoints to come where they have an interval of their own; None where they go by the evaluations."""
    if "checkpoint" in run.holds and run.format == "nanogpt":
        return None
    numbers = sorted({save.at for save in run.checkpoints if save.at})
    if len(numbers) < 2:
        return None
    interval = int(np.gcd.reduce(np.diff(numbers)))
    return Interval.exactly(float(end // interval - last // interval)) if interval > 0 else None


def _prices_ahead(costs: Costs, step: Interval) -> Prices:
    """What a coming evaluation costs, alone and with its checkpoint."""
    if costs.eval_s is None:
        return Prices(step)
    alone, slack = costs.eval_s, LATER_EVALUATIONS
    if costs.checkpoint_s is None:
        return Prices(step, alone.widened(down=slack, up=slack))
    both = costs.pair_s or alone + costs.checkpoint_s
    if costs.how.get("eval_s") != MEASURED:  # no published log has a checkpoint above half of the two together
        alone = Interval(
            max(alone.low, 0.5 * both.low), max(alone.mid, 0.5 * both.low), max(alone.high, 0.5 * both.low)
        )
    alone, both = alone.widened(down=slack, up=slack), both.widened(down=slack, up=slack)
    return Prices(step, alone, costs.checkpoint_s, both)


def _stalls_ahead(run: Run, phases: Phases, iterations: int) -> Interval:
    """Stalls that keep coming go on coming; a few may have been the only ones. A machine asleep does not count."""
    rows = np.flatnonzero(phases.phase == Phase.STALL)
    if not len(rows) or phases.baseline is None:
        return Interval.exactly(0.0)
    excess = phases.excess_s(run, rows)
    awake = excess[excess < SLEEP_S]
    rate = float(awake.sum()) / run.logged * iterations
    return Interval(0.0, rate if len(awake) >= MANY_STALLS else 0.0, 1.5 * rate)


def _evaluates(run: Run, phases: Phases) -> bool:
    return (
        bool(run.evaluations)
        or bool(phases.of(Phase.EVAL, Phase.EVAL_CHECKPOINT).any())
        or not phases.eval_interval_inferred
    )


# Where nothing tells how often a run evaluates: nanoGPT's configs say 250 for small models, 1000 and 2000 for large.
USUAL_INTERVALS = (250, 500, 1000, 2000, 5000)


def _with_unknown_evaluations(run: Run, phases: Phases, costs: Costs, steps: Interval, last: int, end: int) -> Interval:
    """Only the evaluation of the first iteration was seen: the next come at an unknown, longer interval."""
    if not phases.first_evaluates or costs.eval_s is None:
        return steps
    seen = max(last - int(run.iterations.number[0]), 1)
    likely = next((interval for interval in USUAL_INTERVALS if interval > seen), 2 * seen)
    most = (end - last) / seen
    cost = costs.eval_s
    return steps + Interval(0.0, (end // likely) * cost.mid, max(most, end // likely) * cost.high)


def _share_that_saves(run: Run, phases: Phases) -> Interval:
    """The share of coming evaluations that will save: what was seen, falling as it fell."""
    always = run.settings.flag("always_save_checkpoint")
    saved = _saved_flags(run, phases)
    count = len(saved)
    if always and (not count or saved.all()):
        return Interval.exactly(1.0)
    if not count:
        return Interval(0.0, 0.5, 1.0)
    if saved.all():
        # Early on every evaluation improves; where only those save, later ones mostly do not.
        likely = (count + 0.8) / (count + 2) if always is False else (count + 2) / (count + 3)
        return Interval(max(0.1, 1 - 3 / (count + 2)), likely, 1.0)
    if not saved.any():
        return Interval(0.0, 0.0, 1.0 / (count + 1))
    recent = saved[count // 2 :]
    now, before = float(recent.mean()), float(saved.mean())
    fallen = min(now * now / before, 1.0)
    return Interval(0.5 * min(fallen, now), fallen, min(1.2 * max(now, fallen) + 0.1, 1.0))


def _saved_flags(run: Run, phases: Phases) -> np.ndarray:
    """For each evaluation seen after the first iteration: did it save. One that ends the log is not known to."""
    saves = {save.at for save in run.checkpoints}
    if run.evaluations:
        return np.array(
            [e.at in saves for e in run.evaluations if e.at > 0 and (e.at in saves or e.at != phases.trailing)]
        )
    rows = phases.of(Phase.EVAL, Phase.EVAL_CHECKPOINT)
    return np.asarray(phases.phase[rows] == Phase.EVAL_CHECKPOINT)
