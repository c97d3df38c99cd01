"""When it will end: phase by phase, from what this log shows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from stepwatch.analysis.costs import MEASURED, NOT_SEPARABLE, Costs
from stepwatch.analysis.expected import combined
from stepwatch.analysis.goodput import BASE_DOUBT, Goodput
from stepwatch.analysis.phases import SLEEP_S, Phase, Phases
from stepwatch.analysis.statistics import MEDIAN_ERROR, block_medians, median
from stepwatch.estimator.simulate import Loop, Prices, simulate
from stepwatch.run import Run
from stepwatch.units import Z90, Interval

if TYPE_CHECKING:
    from stepwatch.estimator.estimate import Estimate

# Where nothing says how often a run evaluates: nanoGPT's configs say 250 for small models, 1000 and 2000 for large.
SHORTEST_INTERVAL = 10  # between two evaluations, of the public logs of nanoGPT
USUAL_INTERVALS = (250, 500, 1000, 2000, 5000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
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
    last, end = int(run.iterations.number[-1]), run.settings.count("max_iters")
    rows = int(phases.normal.sum())
    step, basis = _future_step(run, phases, costs, goodput), "log"
    if expected is not None and rows < 20:
        # The log outweighs the model as soon as it has shown a few normal iterations.
        step = combined(step, rows, expected.step_s) if rows else expected.step_s
        basis = "both" if rows else "estimate"
        if costs.eval_s is None or costs.how.get("eval_s") == NOT_SEPARABLE:
            costs = replace(costs, eval_s=expected.eval_s)
        if costs.checkpoint_s is None:
            costs = replace(costs, checkpoint_s=expected.checkpoint_s, pair_s=None)
    if end is None:
        thousand, _, _ = _span(run, phases, costs, step, last + 1000)
        return Forecast(per_thousand_s=thousand, last_iteration=last, basis=basis)
    past = goodput.interval_s
    if last >= end or (run.closed and last + 1 >= end):  # a loop over range(end) does not run the last one
        return Forecast(done=True, total_s=past, remaining_s=Interval.exactly(0.0), last_iteration=last, max_iters=end)
    remaining, evals, saves = _span(run, phases, costs, step, end)
    return Forecast(
        # What biased the past biases the future alike, so the errors add up, not in quadrature.
        total_s=Interval(past.low + remaining.low, past.mid + remaining.mid, past.high + remaining.high),
        remaining_s=remaining,
        last_iteration=last,
        max_iters=end,
        evals_ahead=evals,
        saves_ahead=saves,
        assumed_no_evals=phases.eval_interval is None and phases.first_evaluates,
        basis=basis,
    )


def _future_step(run: Run, phases: Phases, costs: Costs, goodput: Goodput) -> Interval:
    """The step from here on: the recent level, doubted as far as levels have wandered so far."""
    times = run.iterations.time_s[phases.normal]
    if phases.baseline is None or not len(times):
        return costs.step_s
    beyond = 1.0
    if goodput.by_clock and goodput.parts_s["step"] > 0:
        # What the clock of the lines shows beyond the printed times goes on as well.
        unexplained = goodput.parts_s["unexplained"] - goodput.before_s
        beyond = 1 + unexplained / goodput.parts_s["step"]
    recent = times[-200:]
    mid = median(recent) * costs.mean_ratio * max(beyond, costs.device_ratio)
    statistical = Z90 * MEDIAN_ERROR * phases.baseline.noise / math.sqrt(len(recent))
    wander, parts = 0.0, min(12, len(times) // 8)  # of the level between parts of the run
    if parts > 1:
        blocks = block_medians(times, parts)
        wander = float(np.std(blocks) / max(float(np.mean(blocks)), 1e-12))
    slack = math.hypot(wander, statistical)
    # What a machine does later that it has not shown yet: heat, other users. From runs cut at a tenth of their
    # length; things get slower more often than faster.
    down, up = math.hypot(0.025, slack), math.hypot(0.035, slack)
    if goodput.wall_s > 0:
        down += max((goodput.wall_s - goodput.interval_s.low) / goodput.wall_s - BASE_DOUBT, 0.0)
        up += max((goodput.interval_s.high - goodput.wall_s) / goodput.wall_s - BASE_DOUBT, 0.0)
    return Interval(mid * max(1 - down, 0.0), mid, mid * (1 + up))


def _span(run: Run, phases: Phases, costs: Costs, step: Interval, end: int) -> tuple[Interval, int, float]:
    """What is left to iteration `end` inclusive (nanoGPT runs the last one too), its evaluations and its saves."""
    last, interval = int(run.iterations.number[-1]), phases.eval_interval
    ahead = end - last
    if phases.trailing is not None:
        last, ahead = phases.trailing, max(end - phases.trailing + 1, 0)
    # Stalls that keep coming go on coming; a few may have been the only ones. A machine asleep does not count.
    stalls = phases.excess_s(run, phases.of(Phase.STALL))
    awake = stalls[stalls < SLEEP_S]
    lost_s = float(awake.sum()) / run.logged * max(end - last, 0)
    loop = Loop(ahead, lost_s=Interval(0.0, lost_s if len(awake) >= 5 else 0.0, 1.5 * lost_s))
    evaluates = (
        bool(run.evaluations)
        or bool(phases.of(Phase.EVAL, Phase.EVAL_CHECKPOINT).any())
        or not phases.eval_interval_inferred
    )
    if interval is None or not evaluates:
        left = simulate(loop, Prices(step)).total_s
        if interval is None and phases.first_evaluates and costs.eval_s is not None:
            # Only the evaluation of the first iteration was seen: the next come at an unknown, longer interval.
            seen = max(last - int(run.iterations.number[0]), 1)
            likely = end // next((usual for usual in USUAL_INTERVALS if usual > seen), 2 * seen)
            most = max((end - last) / max(seen, SHORTEST_INTERVAL), likely)
            left = left + Interval(0.0, likely * costs.eval_s.mid, most * costs.eval_s.high)
        return left, 0, 0.0
    evals = max(end // interval - last // interval, 0)
    prices = _prices_ahead(costs, step)
    saves = sorted({save.at for save in run.checkpoints if save.at})
    with_evaluations = "checkpoint" in run.holds and run.traits.saves_with_evaluations
    if len(saves) > 1 and not with_evaluations:  # they have an interval of their own
        own = int(np.gcd.reduce(np.diff(saves)))
        apart = Interval.exactly(float(max(end // own - last // own, 0)))
        loop = loop._replace(evaluations=evals, apart=apart)
        return simulate(loop, prices._replace(pair_s=None)).total_s, evals, apart.mid
    share = _share_that_saves(run, phases)
    saving = share if prices.checkpoint_s is not None else Interval.exactly(0.0)
    return simulate(loop._replace(evaluations=evals, share=saving), prices).total_s, evals, evals * share.mid


def _prices_ahead(costs: Costs, step: Interval) -> Prices:
    """What a coming evaluation costs, alone and with its checkpoint."""
    if costs.eval_s is None:
        return Prices(step)
    alone, slack = costs.eval_s, 0.02  # how far later ones are from those that were seen
    if costs.checkpoint_s is None:
        return Prices(step, alone.widened(down=slack, up=slack))
    both = costs.pair_s or alone + costs.checkpoint_s
    if costs.how.get("eval_s") != MEASURED:  # no published log has a checkpoint above half of the two together
        least = 0.5 * both.low
        alone = Interval(max(alone.low, least), max(alone.mid, least), max(alone.high, least))
    alone, both = alone.widened(down=slack, up=slack), both.widened(down=slack, up=slack)
    return Prices(step, alone, costs.checkpoint_s, both)


def _share_that_saves(run: Run, phases: Phases) -> Interval:
    """The share of coming evaluations that will save: what was seen, falling as it fell."""
    always = run.settings.flag("always_save_checkpoint")
    if run.evaluations:  # after the first iteration; one that ends the log is not known to save or not
        saves = {save.at for save in run.checkpoints}
        known = [e.at for e in run.evaluations if e.at > 0 and (e.at in saves or e.at != phases.trailing)]
        saved = np.array([at in saves for at in known])
    else:
        rows = phases.of(Phase.EVAL, Phase.EVAL_CHECKPOINT)
        saved = phases.phase[rows] == Phase.EVAL_CHECKPOINT
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
    now, before = float(saved[count // 2 :].mean()), float(saved.mean())
    fallen = min(now * now / before, 1.0)
    return Interval(0.5 * min(fallen, now), fallen, min(1.2 * max(now, fallen) + 0.1, 1.0))
