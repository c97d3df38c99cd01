"""The case of a log: the whole run, at the prices that the log shows."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np

from stepwatch.advice.case import Case
from stepwatch.analysis import Analysis
from stepwatch.analysis.costs import MEASURED, NOT_SEPARABLE
from stepwatch.analysis.expected import workload_of
from stepwatch.analysis.findings import SLEEP_RATIO
from stepwatch.analysis.phases import SLEEP_S, Phase
from stepwatch.analysis.waiting import late_s
from stepwatch.estimator.memory import fits
from stepwatch.estimator.simulate import NOTHING, Loop, Prices
from stepwatch.estimator.workload import NANOGPT_DEFAULTS
from stepwatch.settings import Origin, Settings
from stepwatch.units import Z90, Interval

SAVES_AHEAD = (0.5, 1.0, 1.4)  # of the checkpoints that a forecast expects where only a better loss saves


def case_of_log(a: Analysis, *, cards: int | None = None, windows: bool = False) -> Case | None:
    """None where not even a normal iteration is known."""
    known = a.costs.how.get("step_s") != NOT_SEPARABLE and a.costs.step_s.mid > 0 and np.isfinite(a.goodput.wall_s)
    if not known or not len(a.run.iterations):
        return None
    settings, gpu = _settings(a), a.throughput.gpu
    workload = workload_of(a.run, gpu) if gpu is not None and a.throughput.possible else None
    if workload is not None and gpu is not None and a.expected is not None:
        far_slower = a.costs.step_s.mid > 2.0 * a.expected.step_s.high  # far slower than expected
        if far_slower and fits(workload, gpu) is not False:  # memory that spills would explain it
            workload = None  # what holds this run up is not in the model
    case = Case(
        settings=settings,
        prices=_prices(a),
        loop=_loop(a),
        measured=frozenset(name.removesuffix("_s") for name, how in a.costs.how.items() if how == MEASURED),
        gpu=gpu,
        workload=workload,
        lost_s=Interval.exactly(max(a.goodput.parts_s["unexplained"], 0.0) + stalled_s(a)),
        cards=max(cards or 1, a.throughput.cards),
        n_params=a.run.saved_params or settings.number("n_params"),
        improvements=_improvements(a),
        analysis=a,
        levers=None if a.run.traits.has_nanogpt_settings else a.run.traits.levers,
        windows=windows,
    )
    return replace(case, loop=case.changed({}))


def _settings(a: Analysis) -> Settings:
    found = a.run.settings
    interval = a.phases.eval_interval
    if not interval and len(a.run.evaluations) > 2:
        gaps = np.diff(sorted({event.at for event in a.run.evaluations}))
        interval = int(np.median(gaps)) if len(gaps) > 1 else None
    if interval and "eval_interval" not in found:
        found = found.beneath(Settings.of(Origin.INFERRED, {"eval_interval": interval}))
    if not a.run.traits.has_nanogpt_settings:
        return found
    if "always_save_checkpoint" not in found and len(a.run.checkpoints) < a.evaluations_done - 1:
        found = found.beneath(Settings.of(Origin.INFERRED, {"always_save_checkpoint": False}))
    assumed = {name: NANOGPT_DEFAULTS[name] for name in ("eval_iters", "always_save_checkpoint", "log_interval")}
    return Settings.of(Origin.FORMAT_DEFAULT, assumed).beneath(found)


def _prices(a: Analysis) -> Prices:
    costs, goodput = a.costs, a.goodput
    step = costs.step_s
    if goodput.iterations and goodput.wall_s > 0 and goodput.steps_s > 0:
        mean = goodput.steps_s / goodput.iterations
        down = math.hypot(1 - step.low / step.mid, 1 - goodput.interval_s.low / goodput.wall_s)
        up = math.hypot(step.high / step.mid - 1, goodput.interval_s.high / goodput.wall_s - 1)
        step = Interval(mean * max(1 - down, 0.0), mean, mean * (1 + up))

    def again(price: Interval | None) -> Interval | None:
        """The same thing in another run, or later in this one."""
        if price is None:
            return None
        slack = 0.01 * price.mid  # what evaluations and checkpoints differ by from one run to the next
        return Interval(max(price.low - slack, 0.0), price.mid, price.high + slack)

    return Prices(step, again(costs.eval_s), again(costs.checkpoint_s), again(costs.pair_s), costs.compile_s or NOTHING)


def _loop(a: Analysis) -> Loop:
    """The whole run: what is in the log and, where its length is known, what is still to come."""
    f, done = a.forecast, a.evaluations_done
    first = 1 if a.phases.first_evaluates and done and not a.phases.first_saves else 0
    ahead = max((f.max_iters or 0) - f.last_iteration, 0) if not f.done else 0
    evaluations = done + f.evals_ahead
    later = evaluations - first
    saves = [a.checkpoints_done + f.saves_ahead * share for share in SAVES_AHEAD]
    if a.checkpoints_done >= done - first or not f.saves_ahead:  # all of them so far, or none to come
        saves = [saves[1]] * 3
    share = Interval(*(min(count / later, 1.0) for count in saves)) if later > 0 else NOTHING
    loop = Loop(a.goodput.iterations + ahead, evaluations, never=first, share=share)
    if a.run.traits.saves_with_evaluations:
        return loop
    return loop._replace(share=NOTHING, apart=Interval.exactly(float(saves[1])))


def stalled_s(a: Analysis) -> float:
    """In stalls of a machine that was awake: one asleep is no part of a run, and late data are a part of their own."""
    if a.phases.baseline is None:
        return 0.0
    rows = np.flatnonzero(a.phases.of(Phase.STALL))
    excess = a.phases.excess_s(a.run, rows)
    ratio = a.run.iterations.time_s[rows] / a.phases.baseline.time_s[rows]
    return max(float(excess[(excess < SLEEP_S) | (ratio < SLEEP_RATIO)].sum()) - late_s(a), 0.0)


def _improvements(a: Analysis) -> Interval | None:
    """The share of evaluations that would save if only a better validation loss did."""
    losses = [evaluation.val_loss for evaluation in a.run.evaluations if evaluation.val_loss is not None]
    if len(losses) < 4:  # too few for a trend
        return None
    best, lowest, fell = losses[0], 0, 0
    for before, loss in pairwise(losses):
        lowest += loss < best
        fell += loss < before
        best = min(best, loss)
    later = len(losses) - 1
    chance = Z90 * math.sqrt(max(lowest * (later - lowest), 1) / later) / later
    share = lowest / later
    return Interval(max(share - chance, 0.0), share, min(max(fell / later, share) + chance, 1.0))
