"""What an evaluation and a checkpoint should cost before anything was measured, as log-normal beliefs.

Sources: in 48 published nanoGPT logs with known settings a forward pass took 0.35 of a training
micro-step in the median (quartiles 0.31 to 0.365, range 0.22 to 0.63). torch.save of weights and Adam's
two moments (12 bytes per parameter) ran at 0.26 to 0.9 GB/s on ordinary disks, 0.06 on mounted drives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FORWARD_SHARE = 0.34
FORWARD_SHARE_SPREAD = 0.21  # standard deviation of its logarithm
CHECKPOINT_BYTES_PER_PARAM = 12.0
SAVE_BYTES_PER_S = 0.45e9
SAVE_SPREAD = 0.75


@dataclass(frozen=True, slots=True)
class Belief:
    """A log-normal belief about a duration."""

    median_s: float
    spread: float

    def log_density(self, seconds: float) -> float:
        return -0.5 * (math.log(seconds / self.median_s) / self.spread) ** 2 - math.log(seconds)


def evaluation_prior(step_s: float, eval_iters: int | None, micro_steps: float | None) -> Belief | None:
    """2 splits x eval_iters forward passes, each a share of one of the step's micro-steps."""
    if not eval_iters or not micro_steps:
        return None
    return Belief(2.0 * eval_iters * FORWARD_SHARE * step_s / micro_steps, FORWARD_SHARE_SPREAD)


def checkpoint_prior(n_params: float | None) -> Belief | None:
    if not n_params:
        return None
    return Belief(CHECKPOINT_BYTES_PER_PARAM * n_params / SAVE_BYTES_PER_S, SAVE_SPREAD)
