"""One simulator for plan, forecast and advice: numbers of steps, evaluations and checkpoints, each at its price.

What a change saves is the difference of two simulated runs. What both have in common cancels, with its uncertainty:
a run that evaluates half as often differs only by those evaluations, however little is known about its step.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from stepwatch.settings import NANOGPT_DEFAULTS, Settings
from stepwatch.units import Interval

if TYPE_CHECKING:
    from stepwatch.estimator.estimation import Estimate

NOTHING = Interval.exactly(0.0)
UNCHANGED = Interval.exactly(1.0)


class Prices(NamedTuple):
    """What each thing costs once; None if it does not occur."""

    step_s: Interval
    eval_s: Interval | None = None
    checkpoint_s: Interval | None = None
    pair_s: Interval | None = None
    """An evaluation with its checkpoint, if only the two together were measured."""
    start_s: Interval = NOTHING
    """Compilation and warm-up."""


class Loop(NamedTuple):
    """How often each thing happens, and by how much a change raises or lowers its price."""

    iterations: int
    evaluations: int = 0
    never: int = 0
    """Evaluations that never save: nanoGPT's first."""
    share: Interval = NOTHING
    """The share of the other evaluations that save; if two runs have the same share, its error is the same, too."""
    apart: Interval | None = None
    """Checkpoints that do not depend on the evaluations, if they are counted separately."""
    step: Interval = UNCHANGED
    spill: Interval = UNCHANGED
    """Another factor of the step, for what does not fit the card's memory; its error is the same in both runs."""
    evaluation: Interval = UNCHANGED
    checkpoint: Interval = UNCHANGED
    start_s: Interval | None = None
    """Replaces the price if a change affects the start."""
    lost_s: Interval = NOTHING
    """The time lost in stalls, and in work repeated after failures."""

    @property
    def saves(self) -> Interval:
        if self.apart is not None:
            return self.apart
        return self.share.scaled(max(self.evaluations - self.never, 0))


class Simulated(NamedTuple):
    """The time of a run by part; `total_s` is narrower than the sum of the ends, since errors do not all coincide."""

    step_s: Interval
    eval_s: Interval
    checkpoint_s: Interval
    start_s: Interval
    lost_s: Interval
    total_s: Interval


def simulate(loop: Loop, prices: Prices, *, one_model: bool = False) -> Simulated:
    """`one_model`: step and evaluation come from the same estimate, so their errors go together."""
    steps = product(product(prices.step_s, loop.step), loop.spill).scaled(loop.iterations)
    evaluated = product(prices.eval_s or NOTHING, loop.evaluation).scaled(loop.evaluations)
    saves, each = loop.saves, product(prices.checkpoint_s or NOTHING, loop.checkpoint)
    saved = Interval(saves.low * each.low, saves.mid * each.mid, saves.high * each.high)  # the widest that it can be
    start = prices.start_s if loop.start_s is None else loop.start_s
    if one_model:
        working = _at_once(steps, evaluated) + saved
    elif prices.pair_s is None or saves.high > loop.evaluations:  # some are made without an evaluation
        working = steps + evaluated + saved
    elif (loop.evaluation, loop.checkpoint) == (UNCHANGED, UNCHANGED):
        # Evaluations that save cost the price of the pair, which is better known than either part.
        alone, both = prices.eval_s or NOTHING, prices.pair_s
        low = min(alone.low, both.low) * (loop.evaluations - saves.low) + both.low * saves.low
        mid = alone.mid * (loop.evaluations - saves.mid) + both.mid * saves.mid
        high = min(alone.high, both.high) * (loop.evaluations - saves.high) + both.high * saves.high
        working = steps + Interval(min(low, mid), mid, max(high, mid))
    else:
        # The difference between the price of the pair and the sum of its parts stays the same.
        events, known = evaluated + saved, (prices.eval_s or NOTHING).mid + (prices.checkpoint_s or NOTHING).mid
        beyond_s = (prices.pair_s.mid - known) * saves.mid
        working = steps + Interval(*(max(end + beyond_s, 0.0) for end in (events.low, events.mid, events.high)))
    return Simulated(steps, evaluated, saved, start, loop.lost_s, working + loop.lost_s + start)


# --- a run of nanoGPT -------------------------------------------------------------------------------------------


# If only a better validation loss saves: early evaluations mostly improve, late ones mostly do not.
SHARE_THAT_SAVES = Interval(0.15, 0.6, 1.0)


def loop_of(settings: Settings) -> Loop:
    """nanoGPT runs iterations 0 to max_iters, evaluates at each multiple of eval_interval and never saves at 0."""
    last, interval = (settings.count(name) or int(NANOGPT_DEFAULTS[name]) for name in ("max_iters", "eval_interval"))
    share = UNCHANGED if settings.flag("always_save_checkpoint") is not False else SHARE_THAT_SAVES
    return Loop(last + 1, last // interval + 1, never=1, share=share)


def prices_of(found: Estimate) -> Prices:
    return Prices(found.step_s, found.eval_s, found.checkpoint_s, start_s=found.compile_s)


def whole_run(found: Estimate, settings: Settings) -> tuple[Loop, Simulated]:
    """A run from the estimate of its parts: how often each thing happens, and what that takes."""
    loop = loop_of(settings)
    return loop, simulate(loop, prices_of(found), one_model=True)


# --- the difference of two runs ---------------------------------------------------------------------------------


def saving(before: Loop, after: Loop, prices: Prices) -> Interval:
    """How much shorter the run is after the change."""
    steps = _cheaper(prices.step_s.scaled(before.iterations), before, after)
    start = NOTHING
    if after.start_s != before.start_s:
        start = (before.start_s or prices.start_s) + (after.start_s or prices.start_s).scaled(-1)
    lost = NOTHING if before.lost_s == after.lost_s else before.lost_s + after.lost_s.scaled(-1)
    fewer = before.evaluations * before.evaluation.mid - after.evaluations * after.evaluation.mid
    saves = _saves_less(before, after)
    low, mid = _at(fewer, saves.low, prices).low, _at(fewer, saves.mid, prices).mid
    evaluations = Interval(min(low, mid), mid, max(mid, _at(fewer, saves.high, prices).high))
    if prices.eval_s is not None and before.evaluation != after.evaluation:  # it is not known how much cheaper they are
        unit, factor = after.evaluations * prices.eval_s.mid, after.evaluation
        evaluations += Interval((factor.mid - factor.high) * unit, 0.0, (factor.mid - factor.low) * unit)
    one_gain = after.step == after.evaluation and after.step != before.step  # then both have the same error
    return (_at_once(steps, evaluations) if one_gain else steps + evaluations) + start + lost


def _cheaper(spent_s: Interval, before: Loop, after: Loop) -> Interval:
    """Time spent x (before - after): the factors have independent errors, the spill has the same error in both."""
    if (before.step, before.spill) == (after.step, after.spill):
        return NOTHING
    gains = [
        getattr(before.spill, end) * before.step.mid - getattr(after.spill, end) * after.step.mid
        for end in ("low", "mid", "high")
    ]
    gain = Interval(min(gains), gains[1], max(gains)) + _doubt(before) + _doubt(after).scaled(-1)
    by_time = sorted((end - spent_s.mid) * gain.mid for end in (spent_s.low, spent_s.high))
    mid = spent_s.mid * gain.mid
    down = math.hypot(by_time[0], spent_s.mid * (gain.mid - gain.low))
    up = math.hypot(by_time[1], spent_s.mid * (gain.high - gain.mid))
    return Interval(mid - down, mid, mid + up)


def _doubt(loop: Loop) -> Interval:
    """The uncertainty of the factor of the step, around 0."""
    step = loop.step.scaled(loop.spill.mid)
    return Interval(step.low - step.mid, 0.0, step.high - step.mid)


def _saves_less(before: Loop, after: Loop) -> Interval:
    """Checkpoints that the change avoids, in units of the price."""
    then = [at * after.checkpoint.mid for at in (after.saves.low, after.saves.mid, after.saves.high)]
    slack = 0.0
    if before.checkpoint != after.checkpoint:
        slack = after.saves.mid * (after.checkpoint.high - after.checkpoint.low) / 2
    now = before.saves.scaled(before.checkpoint.mid)
    if before.share == after.share and before.apart == after.apart:
        ends = sorted((now.low - then[0], now.high - then[2]))
    else:
        ends = [now.low - then[2], now.high - then[0]]
    mid = now.mid - then[1]
    return Interval(min(ends[0], mid) - slack, mid, max(ends[1], mid) + slack)


def _at(evaluations: float, saves: float, prices: Prices) -> Interval:
    """The cost of these evaluations and checkpoints; as pairs where they go together, since those are better known."""
    pairs = 0.0
    if prices.pair_s is not None and evaluations * saves > 0:
        pairs = math.copysign(min(abs(evaluations), abs(saves)), saves)
    return (
        (prices.pair_s or NOTHING).scaled(pairs)
        + (prices.eval_s or NOTHING).scaled(evaluations - pairs)
        + (prices.checkpoint_s or NOTHING).scaled(saves - pairs)
    )


# --- intervals --------------------------------------------------------------------------------------------------


def product(one: Interval, other: Interval) -> Interval:
    """The product of independent positive quantities: the relative half-widths add in quadrature."""
    if other == UNCHANGED:
        return one
    mid = one.mid * other.mid
    down = math.hypot((one.mid - one.low) * other.mid, (other.mid - other.low) * one.mid)
    up = math.hypot((one.high - one.mid) * other.mid, (other.high - other.mid) * one.mid)
    return Interval(max(mid - down, 0.0), mid, mid + up)


def _at_once(one: Interval, other: Interval) -> Interval:
    """The sum of two quantities that are low or high together."""
    return Interval(one.low + other.low, one.mid + other.mid, one.high + other.high)
