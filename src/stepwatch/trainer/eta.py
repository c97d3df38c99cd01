"""How long the run will take: what the estimator expected, and what its own times so far show."""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from stepwatch.units import GIGA, Z90, Interval

_BLOCKS = 60
_DOUBT_AT_FIRST = 0.25


@dataclass(slots=True)
class Pace:
    """Times of the run so far; averaged over blocks of steps, since single steps vary."""

    _blocks: deque[float] = field(default_factory=lambda: deque(maxlen=_BLOCKS))
    _open: list[float] = field(default_factory=list)
    evaluations: deque[float] = field(default_factory=lambda: deque(maxlen=_BLOCKS))
    checkpoints: deque[float] = field(default_factory=lambda: deque(maxlen=_BLOCKS))

    def step(self, seconds: float) -> None:
        self._open.append(seconds)
        if len(self._open) == 10:  # steps of a block
            self._blocks.append(statistics.fmean(self._open))
            self._open.clear()

    def eta(self, steps: int, evaluations: int, checkpoints: int) -> tuple[float, float, float] | None:
        """(middle, low, high) in seconds: nine of ten runs should end between low and high; None without steps."""
        blocks = list(self._blocks) or self._open
        if not blocks or not steps:
            return None
        middle = steps * statistics.median(blocks)
        for count, seconds in ((evaluations, self.evaluations), (checkpoints, self.checkpoints)):
            middle += count * statistics.median(seconds) if seconds else 0.0
        spread = math.exp(Z90 * self._doubt(blocks))
        return middle, middle / spread, middle * spread

    def _doubt(self, blocks: list[float]) -> float:
        """How far the level may move, as the standard deviation of its logarithm."""
        if len(self._blocks) < 2:
            return _DOUBT_AT_FIRST
        seen = statistics.stdev([math.log(max(block, 1e-9)) for block in blocks])
        # No level is known better than to 2 %: cards warm up, other programs start and end
        return max(0.02, seen, _DOUBT_AT_FIRST / len(self._blocks))


def said(seconds: float) -> str:
    """`2h 10min`, `3min 20s`, `12s`."""
    whole = round(seconds)
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes}min"
    return f"{minutes}min {whole % 60}s" if minutes else f"{whole}s"


class Expected(NamedTuple):
    """For the whole run, from its first iteration on; each interval should hold the true value in nine of ten runs."""

    step_s: Interval
    eval_s: Interval
    total_s: Interval
    memory_bytes: Interval
    fits: bool | None
    busy: bool = False
    """Whether it is based on a calibration of a busy machine."""

    def line(self) -> str:
        fits = {True: "fits", False: "does not fit", None: "whether it fits is unknown"}[self.fits]
        memory = f"memory {self.memory_bytes.mid / GIGA:.2f} GB: {fits}"
        doubt = (
            "; the calibration was made on a busy machine: measure again with stepwatch calibrate" if self.busy else ""
        )
        times = f"step {_ms(self.step_s)}, evaluation {_ms(self.eval_s)}, in all {_long(self.total_s)}"
        return f"estimate of the run: {times}; {memory}{doubt}"

    def verdict(self, step_s: float, total_s: float | None) -> str:
        """`total_s` is for a run from its beginning to its end."""
        found = [f"step {step_s * 1e3:.2f}ms, {_place(step_s, self.step_s)} {_ms(self.step_s)}"]
        if total_s is not None:
            found.append(f"in all {said(total_s)}, {_place(total_s, self.total_s)} {_long(self.total_s)}")
        return f"estimate against the run: {'; '.join(found)}"


def _place(truth: float, claim: Interval) -> str:
    if claim.holds(truth):
        return "as estimated:"
    return "less than estimated:" if truth < claim.low else "more than estimated:"


def _ms(seconds: Interval) -> str:
    return f"{seconds.mid * 1e3:.2f}ms ({seconds.low * 1e3:.2f} to {seconds.high * 1e3:.2f})"


def _long(seconds: Interval) -> str:
    return f"{said(seconds.mid)} ({said(seconds.low)} to {said(seconds.high)})"
