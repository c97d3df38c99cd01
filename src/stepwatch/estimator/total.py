"""The whole of a nanoGPT run from the cost of its parts."""

from __future__ import annotations

from typing import NamedTuple

from stepwatch.estimator.estimate import Estimate
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


def total(found: Estimate, settings: Settings) -> Total:
    """nanoGPT runs iterations 0 to max_iters, evaluates at each multiple of eval_interval and never saves at 0."""
    last = settings.count("max_iters") or DEFAULT_MAX_ITERS
    evaluations = last // (settings.count("eval_interval") or DEFAULT_EVAL_INTERVAL) + 1
    saves = Interval.exactly(float(evaluations - 1))
    if settings.flag("always_save_checkpoint") is False:
        saves = SHARE_THAT_SAVES.scaled(evaluations - 1)
    steps, evaluated = found.step_s.scaled(last + 1), found.eval_s.scaled(evaluations)
    # One model makes step and evaluation, so their errors go together; disk and compiler err on their own.
    computed = Interval(steps.low + evaluated.low, steps.mid + evaluated.mid, steps.high + evaluated.high)
    save = found.checkpoint_s
    saved = Interval(saves.low * save.low, saves.mid * save.mid, saves.high * save.high)
    return Total(computed + saved + found.compile_s, steps, evaluations, saves)
