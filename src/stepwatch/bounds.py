"""Possible values for everything that is read about a training or a machine, as ranges, each with its reason.

Readers drop and report values outside, so that no later code has to check again: sums, products and ratios of values
inside neither overflow nor divide by zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from stepwatch.units import DAY_S

if TYPE_CHECKING:
    import numpy as np

YEAR_S = 365.25 * DAY_S


class Range(NamedTuple):
    """From low to high, both included; nan is never inside."""

    low: float
    high: float
    why: str

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def mask(self, column: np.ndarray) -> np.ndarray:
        inside: np.ndarray = (column >= self.low) & (column <= self.high)
        return inside


STEP_S = Range(1e-9, 7 * DAY_S, "a processor does nothing in less than a cycle, and nobody waits for a step for a week")
ITERATION = Range(0, 10**12, "so many steps of a millisecond take 32 years")
EVENT_S = Range(0.0, STEP_S.high, "an evaluation or a save may take no time, and is waited for no longer than a step")
RUN_S = Range(0.0, 100 * YEAR_S, "no clock of a run has run for more than a century")
CLOCK_S = Range(0.0, 130 * YEAR_S, "clocks count from 1970, and this is written before 2100")
LOSS = Range(-3e38, 3e38, "beyond, a float32 is infinite")
MFU = Range(
    -1.0, 1e6, "nanoGPT prints -100 % before its fifth iteration; a wrong peak makes it a thousand times too large"
)
TOKENS_PER_S = Range(
    1e-3, 1e12, "a token takes no quarter of an hour, and the largest clusters do some millions a second"
)
FLOPS = Range(
    1.0, 1e30, "of a token, or of a card in a second: the largest models need 1e13, the fastest card does 1e16"
)

_COUNT = Range(1, 2**53 - 1, "counted, and divided by; beyond, a float does not hold every whole number")
_PLAIN = Range(-1e6, 1e6, "a rate or a factor of the optimizer")
SETTINGS: Mapping[str, Range] = {
    "n_layer": Range(1, 10**5, "the deepest published transformer has 1,000"),
    "n_head": Range(1, 10**5, "the widest published model has a few hundred"),
    "n_embd": Range(1, 10**6, "the widest published model has some ten thousand"),
    "vocab_size": Range(1, 10**8, "the largest published vocabulary has a million"),
    "block_size": Range(1, 10**9, "the longest published window has ten million tokens"),
    "batch_size": Range(1, 10**8, "sequences that a card holds at a time"),
    "gradient_accumulation_steps": Range(1, 10**8, "passes of an iteration"),
    "world_size": Range(1, 10**6, "the largest clusters have some hundred thousand cards"),
    "tokens_per_iter": Range(1, 10**12, "the largest published batch has some hundred million tokens"),
    "n_params": Range(1, 1e15, "the largest published model has some 1e12 parameters"),
    "mtbf_hours": Range(1e-3, RUN_S.high / 3600, "between some seconds and a century"),
    "max_iters": _COUNT,
    "eval_interval": _COUNT,
    "eval_iters": _COUNT,
    "log_interval": _COUNT,
    "warmup_iters": Range(-_COUNT.high, _COUNT.high, "a count that divides nothing"),
    "lr_decay_iters": Range(-_COUNT.high, _COUNT.high, "a count that divides nothing"),
    "dropout": Range(0.0, 1.0, "a share"),
    "learning_rate": _PLAIN,
    "weight_decay": _PLAIN,
    "beta1": _PLAIN,
    "beta2": _PLAIN,
    "grad_clip": _PLAIN,
    "min_lr": _PLAIN,
}


_SHARE = Range(0.0, 2.0, "a share of a time, by two clocks that may differ a little in a short one")
_SAMPLED: Mapping[str, Range] = {
    "_bytes": Range(0.0, 1e18, "the largest machines have some 1e14 bytes of memory"),
    "_bytes_per_s": Range(0.0, 1e15, "the fastest memory moves some 1e13"),
    "_hz": Range(0.0, 1e12, "no clock of a processor has reached 1e10"),
    "_w": Range(0.0, 1e6, "a card draws some thousand"),
    "_c": Range(-273.15, 1000.0, "from absolute zero to where silicon has long melted its solder"),
}
_SAMPLED_COUNT = Range(0.0, 1e9, "processors, processes, threads, or page faults in a second")
_SHARES = {"cpu", "disk_busy", "blocked", "stopped", "utilisation", "hot", "capped", "far"}
CALIBRATED = Range(1e-18, 1e18, "seconds, bytes and operations in a second of one machine: no pass lasts 1e-18 s")

CORES = Range(1, 10**6, "the largest machines have some thousand")


def of_sample(name: str) -> Range:
    """The range of a column of samples, by the unit in its name."""
    known = (limits for unit, limits in _SAMPLED.items() if name.endswith(unit))
    return _SHARE if name in _SHARES else next(known, _SAMPLED_COUNT)


def within(limits: Range, value: Any) -> float | None:
    """The value if it is a number in the range, else None."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and limits.holds(value) else None
