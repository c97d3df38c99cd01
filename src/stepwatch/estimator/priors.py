"""What an evaluation and a checkpoint should cost before anything was measured, as log-normal beliefs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from stepwatch.estimator.constants import (
    FORWARD_SHARE,
    FORWARD_SHARE_EAGER,
    FORWARD_SPREAD,
    SAVE_BYTES_PER_S,
    SAVE_SPREAD,
    SAVED_BYTES_PER_PARAM,
)


@dataclass(frozen=True, slots=True)
class Belief:
    """A log-normal belief about a duration."""

    median_s: float
    spread: float

    def log_density(self, seconds: float) -> float:
        return -0.5 * (math.log(seconds / self.median_s) / self.spread) ** 2 - math.log(seconds)


def forward_share(compiled: bool | None) -> float:
    """Of a micro-step, what one forward pass takes; where nothing is known the model is compiled, as by default."""
    return FORWARD_SHARE_EAGER if compiled is False else FORWARD_SHARE


def evaluation_prior(
    step_s: float, eval_iters: int | None, micro_steps: float | None, compiled: bool | None = None
) -> Belief | None:
    """2 splits x eval_iters forward passes, each a share of one of the step's micro-steps."""
    if not eval_iters or not micro_steps:
        return None
    return Belief(2.0 * eval_iters * forward_share(compiled) * step_s / micro_steps, FORWARD_SPREAD)


def checkpoint_prior(n_params: float | None) -> Belief | None:
    if not n_params:
        return None
    return Belief(SAVED_BYTES_PER_PARAM * n_params / SAVE_BYTES_PER_S, SAVE_SPREAD)
