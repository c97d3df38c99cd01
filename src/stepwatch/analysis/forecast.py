"""When the run will end: phase by phase, from what this log shows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from stepwatch.analysis.costs import MEASURED, NOT_SEPARABLE, Costs
from stepwatch.analysis.goodput import BASE_DOUBT, Goodput
from stepwatch.analysis.phases import Phase, Phases, usual_gap
from stepwatch.analysis.statistics import MEDIAN_ERROR, block_medians, chosen, median, series, spread
from stepwatch.analysis.throughput import Regimes, combined
from stepwatch.estimator.simulate import Loop, Prices, simulate
from stepwatch.run import SLEEP_S, Floats, Run, iterations_of
from stepwatch.settings import Origin
from stepwatch.units import Z90, Interval

if TYPE_CHECKING:
    from stepwatch.analysis.long_columns import Series
    from stepwatch.estimator.estimation import Estimate


# --- the step to come: the level now, how it has changed, and what no line shows yet ----------------------------


Reason: TypeAlias = Literal["schedule", "evaluations", "levels", "slower", "faster", "limit", "patience", "hidden"]
"""Why a forecast is wide, or not simply extrapolated from what was seen."""
# Allows for later changes that the log has not shown yet: heat, other users; evaluations slow down as steps do. The
# smallest values that cover nine in ten of the forecasts that allow for nothing else, from 288 public logs, with at
# most six cuts of each. How well they fit a trainer that was left out: benchmarks.left_out. Runs become slower more
# often than faster.
LATER_DOWN, LATER_UP = 0.06, 0.08
# The steps after the first row of a process relative to those in it, if it is a mean that includes the start: nine in
# ten of 83 public logs.
FIRST_ROW = Interval(0.25, 0.95, 1.2)


def future_step(
    run: Run, phases: Phases, costs: Costs, goodput: Goodput, regimes: Regimes, share_left: float
) -> tuple[Interval, tuple[Reason, ...]]:
    """The mean step of the rest of the run, and why it is wide: the recent level, as uncertain as it has varied.

    `share_left` is the part of the run still to come.
    """
    warm = run.iterations.number >= (regimes.stable_from or 0)
    times = chosen(run.iterations.time_s, phases.normal & warm)
    if phases.baseline is None or not len(times):
        return costs.step_s, ()
    beyond = 1.0
    if goodput.by_clock and goodput.steps_s > 0:
        # Time that the clock of the lines shows beyond the printed times will continue as well.
        beyond = 1 + goodput.parts_s["unexplained"] / goodput.steps_s
    factor = costs.mean_ratio * max(beyond, costs.device_ratio)
    recent = times[-200:]  # enough for a median, few enough to be the present level
    statistical = Z90 * MEDIAN_ERROR * phases.baseline.noise / math.sqrt(len(recent))
    slope = _drift(times) if len(times) >= 16 else 0.0  # three rows in each fifth
    # How the level wanders between parts of the run, around its drift. After a jump, only since then: see below.
    rows = regimes.regimes[-1].rows if len(regimes.regimes) > 1 else len(times)
    wander, parts = 0.0, min(12, rows // 8)
    if parts > 1:
        level = times
        if slope:
            apart = 1 / (len(times) - 1)
            level = series(
                len(times),
                lambda rows: times[rows] * np.exp(-slope * (apart * np.arange(*rows.indices(len(times))))),
            )
        blocks = block_medians(level[-rows:], parts)
        wander = float(np.std(blocks) / max(float(np.mean(blocks)), 1e-12))
    few = 0.10 / len(times) ** 0.7  # as in throughput.combined: the card may not be warm yet, the compiler not done
    slack = math.hypot(wander, statistical, few)
    down, up = math.hypot(LATER_DOWN, slack), math.hypot(LATER_UP, slack)
    if goodput.wall_s > 0:
        down += max((goodput.wall_s - goodput.interval_s.low) / goodput.wall_s - BASE_DOUBT, 0.0)
        up += max((goodput.interval_s.high - goodput.wall_s) / goodput.wall_s - BASE_DOUBT, 0.0)

    # What has changed may go on changing, and may change back: the range covers every level so far.
    reasons: list[Reason] = []
    now = median(recent)
    levels = [now]
    if slope:
        # The middle of the last fifth is a tenth from the end. A drift ends now, or goes on to the end of the run, but
        # for no more than twice as long as it was seen.
        fifth = len(times) // 5
        now = median(times[-fifth:]) * math.exp(slope / 10)
        later = now * math.exp(slope * share_left / max(share_left, 1 - share_left) / 2)
        levels = [now, later, median(times[:fifth])]
        reasons.append("slower" if slope > 0 else "faster")
    if len(regimes.regimes) > 1 and not run.traits.schedules:
        levels += [regime.step_s for regime in regimes.regimes]
        reasons.append("levels")
    low, high = min(levels) * (1 - down), max(levels) * (1 + up)
    if run.traits.schedules:
        reasons.append("schedule")
        # At most by half: the largest growth of steps in a published schedule (modded-nanogpt, 2025: batch and window).
        high += now * 0.5 * min(2 * share_left, 1.0)
    return Interval(factor * max(low, 0.0), factor * now, factor * high), tuple(reasons)


def _drift(times: Floats | Series) -> float:
    """The logarithm of how much longer steps became over these rows, if they did so all the time; else 0."""
    logs = series(len(times), lambda rows: np.log(np.maximum(times[rows], 1e-12)))
    fifths = block_medians(logs, 5)
    change = float(fifths[-1] - fifths[0])
    changes = series(len(logs) - 1, lambda rows: logs[1:][rows] - logs[:-1][rows])
    noise = spread(changes) / math.sqrt(2)  # from row to row, which leaves out the drift
    backwards = np.diff(fifths) * np.sign(change) < -0.1 * abs(change)
    if abs(change) < max(0.02, 5 * MEDIAN_ERROR * noise / math.sqrt(len(times) / 5)) or backwards.any():
        return 0.0
    # The middles of the first and the last fifth are four fifths apart. If a drift fades, its end counts.
    return min(change / 0.8, float(fifths[-1] - fifths[2]) / 0.4, key=abs)


# --- when it will end -------------------------------------------------------------------------------------------


# If nothing says how often a run evaluates: nanoGPT's configs say 250 for small models, 1000 and 2000 for large ones.
USUAL_INTERVALS = (250, 500, 1000, 2000, 5000)
UNSEEN_EVALUATIONS = 0.2  # of the remaining time
# Time between an evaluation and the next step that no line shows. In 22 public logs of YOLO the printed total shows it:
# 19 have 0.3 to 1.7 s, half of those with epochs below 20 s less than 0.5 s.
HIDDEN_S = Interval(0.0, 0.5, 1.7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Time to the end of the run, or per thousand iterations if its length is unknown."""

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
    reasons: tuple[Reason, ...] = ()
    """What the forecast allows for besides what the log has shown."""


def find_forecast(
    run: Run,
    phases: Phases,
    costs: Costs,
    goodput: Goodput,
    regimes: Regimes,
    expected: Estimate | None = None,
    least_step_s: float = 0.0,
) -> Forecast:
    """Forecasts the end of the run; `least_step_s` is the physical limit of the card."""
    last, end = int(run.iterations.number[-1]), run.settings.count("max_iters")
    given = run.settings.get("max_iters")
    if run.ended_by_plan and (given is None or given.origin is not Origin.USER):
        end = last  # the planned end is not reached; one that the user gives is a question about another run
    rows = int(phases.normal.sum())
    first = int(run.iterations.number[0]) - int(phases.covers[0])
    left = max(end - last, 0) / max(end - first, 1) if end is not None else 0.5
    (step, reasons), basis = future_step(run, phases, costs, goodput, regimes, left), "log"
    if expected is not None and rows < 20:
        # The log outweighs the model as soon as it has shown a few normal iterations.
        step = combined(step, rows, expected.step_s) if rows else expected.step_s
        basis = "both" if rows else "estimate"
        if costs.eval_s is None or costs.how.get("eval_s") == NOT_SEPARABLE:
            costs = replace(costs, eval_s=expected.eval_s)
        if costs.checkpoint_s is None:
            costs = replace(costs, checkpoint_s=expected.checkpoint_s, pair_s=None)
    if least_step_s < step.mid:
        step = Interval(max(step.low, least_step_s), step.mid, step.high)
    if end is None:
        thousand, _, _ = _span(run, phases, costs, step, last + 1000)
        return Forecast(per_thousand_s=thousand, last_iteration=last, basis=basis)
    past = goodput.interval_s
    if last >= end or (run.closed and last + 1 >= end):  # a loop over range(end) does not run the last one
        return Forecast(done=True, total_s=past, remaining_s=Interval.exactly(0.0), last_iteration=last, max_iters=end)
    remaining, evals, saves = _span(run, phases, costs, step, end)
    if len(run.iterations) == 1 and phases.covers[0] > 1 and last <= phases.covers[0]:
        of_first = FIRST_ROW.scaled(remaining.mid)  # its evaluation, too, is the first of its kind
        remaining = Interval(min(remaining.low, of_first.low), of_first.mid, max(remaining.high, of_first.high))
    seen = run.evaluations or phases.first_evaluates or phases.of(Phase.EVAL, Phase.EVAL_CHECKPOINT).any()
    if run.traits.may_evaluate and not seen and costs.eval_s is None:  # most do, or the log says that it will
        reasons = (*reasons, "evaluations")
        # Found as LATER_DOWN was, from the logs without an evaluation in their first part.
        remaining = Interval(remaining.low, remaining.mid, remaining.high + UNSEEN_EVALUATIONS * remaining.mid)
    elif evals and costs.eval_s is not None and phases.eval_interval and end % phases.eval_interval:
        # Many trainers evaluate after their last step too, and no line says so in advance.
        remaining = Interval(remaining.low, remaining.mid, remaining.high + costs.eval_s.mid)
    if run.traits.hides_saves and not goodput.by_clock and evals:
        reasons = (*reasons, "hidden")
        past, remaining = (
            Interval(span.low + hidden.low, span.mid + hidden.mid, span.high + hidden.high)
            for span, hidden in ((past, HIDDEN_S.scaled(len(run.evaluations))), (remaining, HIDDEN_S.scaled(evals)))
        )
    if run.patience is not None and max(run.patience, last) < end:
        reasons = (*reasons, "patience")
        earliest = max(run.patience - last, 0) / (end - last)  # if nothing has improved since the first epoch
        remaining = Interval(remaining.low * earliest, remaining.mid, remaining.high)
    # What biased the past also biases the future, so the errors add up linearly, not in quadrature.
    total = Interval(past.low + remaining.low, past.mid + remaining.mid, past.high + remaining.high)
    if run.limit_s is not None and past.mid < run.limit_s:
        reasons = ("limit",)
        total = Interval(run.limit_s, run.limit_s, run.limit_s + step.high)  # it checks the clock after each step
        remaining = Interval(*(edge - past.mid for edge in (total.low, total.mid, total.high)))
    return Forecast(
        total_s=total,
        remaining_s=remaining,
        last_iteration=last,
        max_iters=end,
        evals_ahead=evals,
        saves_ahead=saves,
        assumed_no_evals=phases.eval_interval is None and phases.first_evaluates,
        basis=basis,
        reasons=reasons,
    )


def _span(run: Run, phases: Phases, costs: Costs, step: Interval, end: int) -> tuple[Interval, int, float]:
    """The time to the end of iteration `end` (nanoGPT runs the last one too), with its evaluations and saves."""
    last, interval = int(run.iterations.number[-1]), phases.eval_interval
    ahead = end - last
    if phases.trailing is not None:
        last, ahead = phases.trailing, max(end - phases.trailing + 1, 0)
    # Stalls that keep coming will continue; a few may have been the only ones. A machine asleep does not count.
    stalls = phases.excess_s(run, phases.of(Phase.STALL))
    awake = stalls[stalls < SLEEP_S]
    lost_s = float(awake.sum()) / run.logged * max(end - last, 0) if len(awake) else 0.0
    loop = Loop(ahead, lost_s=Interval(0.0, lost_s if len(awake) >= 5 else 0.0, 1.5 * lost_s))
    evaluates = (
        bool(run.evaluations)
        or bool(phases.of(Phase.EVAL, Phase.EVAL_CHECKPOINT).any())
        or not phases.eval_interval_inferred
    )
    alone = iterations_of(run.evaluations)
    first = int(run.iterations.number[0])
    if len(alone) == 1 and phases.eval_interval_inferred and alone[0] > last - first + int(phases.covers[0]):
        interval = None  # the log begins in mid-run: its only evaluation is not the first
    if interval is None or not evaluates:
        left = simulate(loop, Prices(step)).total_s
        if interval is None and (phases.first_evaluates or len(alone)) and costs.eval_s is not None:
            # Only one evaluation was seen: the interval is unknown, but longer than the stretch without one.
            at = int(alone[-1]) if len(alone) else first
            seen = max(last - at, at - first, 1)
            fits = (usual for usual in USUAL_INTERVALS if usual > seen and at % usual in (0, 1))
            likely = end // (usual := next(fits, 2 * seen)) - last // usual
            most = max((end - last) / max(seen, 10), likely)  # the shortest interval in public logs of nanoGPT
            left = left + Interval(0.0, likely * costs.eval_s.mid, most * costs.eval_s.high)
        return left, 0, 0.0
    evals = max(end // interval - last // interval, 0)
    prices = _prices_ahead(costs, step)
    saves = iterations_of(run.checkpoints)
    saves = saves[saves > 0]
    with_evaluations = "checkpoint" in run.holds and run.traits.saves_with_evaluations
    if len(saves) > 1 and not with_evaluations:  # they have a separate interval
        own = usual_gap(np.diff(saves))
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
    alone = costs.eval_s
    if costs.checkpoint_s is None:
        return Prices(step, alone.widened(down=LATER_DOWN, up=LATER_UP))
    both = costs.pair_s or alone + costs.checkpoint_s
    if costs.how.get("eval_s") != MEASURED:  # in 33 of 36 public logs the checkpoint is at most a third of both
        least = 2 / 3 * both.low
        alone = Interval(max(alone.low, least), max(alone.mid, least), max(alone.high, least))
    alone, both = (cost.widened(down=LATER_DOWN, up=LATER_UP) for cost in (alone, both))
    return Prices(step, alone, costs.checkpoint_s, both)


def _share_that_saves(run: Run, phases: Phases) -> Interval:
    """The share of coming evaluations that will save: as seen so far, falling as it has fallen."""
    always = run.settings.flag("always_save_checkpoint")
    if run.evaluations:  # after the first iteration; if one ends the log, its save may still come
        at = iterations_of(run.evaluations)
        saved = np.isin(at, iterations_of(run.checkpoints))
        saved = saved[(at > 0) & (saved | (at != phases.trailing))]
    else:
        rows = phases.of(Phase.EVAL, Phase.EVAL_CHECKPOINT)
        saved = phases.phase[rows] == Phase.EVAL_CHECKPOINT
    count = len(saved)
    if always and (not count or saved.all()):
        return Interval.exactly(1.0)
    if not count:
        return Interval(0.0, 0.5, 1.0)
    if saved.all():
        # Early on, every evaluation is an improvement; if only those save, most later ones do not.
        likely = (count + 0.8) / (count + 2) if always is False else (count + 2) / (count + 3)
        return Interval(max(0.1, 1 - 3 / (count + 2)), likely, 1.0)
    if not saved.any():
        return Interval(0.0, 0.0, 1.0 / (count + 1))
    now, before = float(saved[count // 2 :].mean()), float(saved.mean())
    fallen = min(now * now / before, 1.0)
    return Interval(0.5 * min(fallen, now), fallen, min(1.2 * max(now, fallen) + 0.1, 1.0))
