"""The time of coming steps: the level now, how it has changed so far, and what may come that no line shows yet."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from stepwatch.analysis.costs import Costs
from stepwatch.analysis.goodput import BASE_DOUBT, Goodput
from stepwatch.analysis.phases import Phases
from stepwatch.analysis.regimes import Regimes
from stepwatch.analysis.statistics import MEDIAN_ERROR, block_medians, median, spread
from stepwatch.run import Floats, Run
from stepwatch.units import Z90, Interval


class Reason(StrEnum):
    """Why a forecast is wide, or not the plain product of what was seen."""

    SCHEDULE = "schedule"
    EVALUATIONS = "evaluations"
    LEVELS = "levels"
    SLOWER = "slower"
    FASTER = "faster"
    LIMIT = "limit"
    PATIENCE = "patience"


class Step(NamedTuple):
    """What a step of the rest takes in the mean."""

    seconds: Interval
    reasons: tuple[Reason, ...] = ()


def future_step(
    run: Run, phases: Phases, costs: Costs, goodput: Goodput, regimes: Regimes, share_left: float
) -> Step:
    """The recent level, as uncertain as it has varied so far; `share_left` is the part of the run still to come."""
    warm = run.iterations.number >= (regimes.stable_from or 0)
    times = run.iterations.time_s[phases.normal & warm]
    if phases.baseline is None or not len(times):
        return Step(costs.step_s)
    beyond = 1.0
    if goodput.by_clock and goodput.steps_s > 0:
        # What the clock of the lines shows beyond the printed times goes on as well.
        unexplained = goodput.parts_s["unexplained"] - goodput.before_s
        beyond = 1 + unexplained / goodput.steps_s
    factor = costs.mean_ratio * max(beyond, costs.device_ratio)
    recent = times[-200:]  # enough for a median, few enough to be the level of now
    statistical = Z90 * MEDIAN_ERROR * phases.baseline.noise / math.sqrt(len(recent))
    slope = _drift(times)
    # How the level wanders between parts of the run, about its drift. Where it has jumped, since then: see below.
    rows = regimes.regimes[-1].rows if len(regimes.regimes) > 1 else len(times)
    wander, parts = 0.0, min(12, rows // 8)
    if parts > 1:
        blocks = block_medians((times * np.exp(-slope * np.linspace(0, 1, len(times))))[-rows:], parts)
        wander = float(np.std(blocks) / max(float(np.mean(blocks)), 1e-12))
    few = 0.10 / len(times) ** 0.7  # as in expected.combined: a card is not warm, a compiler not done
    slack = math.hypot(wander, statistical, few)
    # What a machine does later that it has not shown yet: heat, other users. From runs cut at a tenth of their
    # length; things get slower more often than faster.
    down, up = math.hypot(0.025, slack), math.hypot(0.035, slack)
    if goodput.wall_s > 0:
        down += max((goodput.wall_s - goodput.interval_s.low) / goodput.wall_s - BASE_DOUBT, 0.0)
        up += max((goodput.interval_s.high - goodput.wall_s) / goodput.wall_s - BASE_DOUBT, 0.0)

    reasons: list[Reason] = []
    level = Interval.exactly(median(recent))
    if slope:
        # The middle of the last fifth is a tenth from the end. A drift ends now, or goes on to the end of the run, but
        # for no more than twice as long as it was seen.
        now = median(times[-(len(times) // 5) :]) * math.exp(slope / 10)
        later = now * math.exp(slope * min(share_left / max(1 - share_left, 1e-3), 1.0) / 2)
        level = Interval(min(now, later), now, max(now, later))
        reasons.append(Reason.SLOWER if slope > 0 else Reason.FASTER)
    low, high = level.low * (1 - down), level.high * (1 + up)
    if run.traits.schedules:
        reasons.append(Reason.SCHEDULE)
        # By half: the most that the steps of a published schedule grow (modded-nanogpt, 2025: batch and window).
        high += level.mid * 0.5 * min(2 * share_left, 1.0)
    elif len(regimes.regimes) > 1:
        # What has changed may change back: for all of the rest, or for no more of it than before where that level was
        # short, less than a quarter of the present one. The machine can do the faster ones: for half of the rest.
        present, rows = regimes.regimes[-1], sum(regime.rows for regime in regimes.regimes)
        levels = []
        for regime in regimes.regimes:
            share = regime.rows / rows if regime.rows < 0.25 * present.rows else 1.0
            share = max(share, 0.5) if regime.step_s < present.step_s else share
            levels.append(present.step_s + (regime.step_s - present.step_s) * share)
        low, high = min(low, min(levels) * (1 - down)), max(high, max(levels) * (1 + up))
        reasons.append(Reason.LEVELS)
    return Step(Interval(factor * max(low, 0.0), factor * level.mid, factor * high), tuple(reasons))


def _drift(times: Floats) -> float:
    """The logarithm of how much longer steps become in as many rows, where they do so all the time; else 0."""
    if len(times) < 16:  # three rows in each fifth
        return 0.0
    logs = np.log(np.maximum(times, 1e-12))
    fifths = block_medians(logs, 5)
    change = float(fifths[-1] - fifths[0])
    noise = spread(np.diff(logs)) / math.sqrt(2)  # from row to row: a drift is none of it
    backwards = np.diff(fifths) * np.sign(change) < -0.1 * abs(change)
    if abs(change) < max(0.02, 5 * MEDIAN_ERROR * noise / math.sqrt(len(times) / 5)) or backwards.any():
        return 0.0
    # The middles of the first and the last fifth are four fifths apart. A drift that dies away is taken at its end.
    return min(change / 0.8, float(fifths[-1] - fifths[2]) / 0.4, key=abs)
