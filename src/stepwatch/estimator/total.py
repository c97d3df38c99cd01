"""The whole of a nanoGPT run from the cost of its parts."""

from __future__ import annotations

from typing import NamedTuple

from stepwatch.estimator.estimate import Estimate
from stepwatch.estimator.simulate import Loop, Prices, simulate
from stepwatch.settings import Settings
from stepwatch.units import Interval

# Where only a better validation loss saves: early evaluations mostly improve, late ones mostly do not.
SHARE_THAT_SAVES = Interval(0.15, 0.6, 1.0)
DEFAULT_MAX_ITERS, DEFAULT_EVAL_INTERVAL = 600_000, 2000  # nanoGPT's


class Total(NamedTuple):
    total_s: Interval
    step_part_s: Interval
    evaluations: int
    saves: Interval


def loop_of(settings: Settings) -> Loop:
    """nanoGPT runs iterations 0 to max_iters, evaluates at each multiple of eval_interval and never saves at 0."""
    last = settings.count("max_iters") or DEFAULT_MAX_ITERS
    evaluations = last // (settings.count("eval_interval") or DEFAULT_EVAL_INTERVAL) + 1
    share = Interval.exactly(1.0) if settings.flag("always_save_checkpoint") is not False else SHARE_THAT_SAVES
    return Loop(last + 1, evaluations, never=1, share=share)


def prices_of(found: Estimate) -> Prices:
    return Prices(found.step_s, found.eval_s, found.checkpoint_s, start_s=found.compile_s)


def total(found: Estimate, settings: Settings) -> Total:
    loop = loop_of(settings)
    run = simulate(loop, prices_of(found), one_model=True)
    return Total(run.total_s, run.step_s, loop.evaluations, loop.saves)
