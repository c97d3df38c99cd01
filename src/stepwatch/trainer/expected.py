"""What the estimator expected of a run, said at its start and held against what happened at its end."""

from __future__ import annotations

from typing import NamedTuple

from stepwatch.trainer.eta import said
from stepwatch.units import GIGA, Interval


class Expected(NamedTuple):
    """Of the whole run, from its first iteration on; each interval should hold the truth in nine of ten runs."""

    step_s: Interval
    eval_s: Interval
    total_s: Interval
    memory_bytes: Interval
    fits: bool | None
    busy: bool = False
    """Whether it rests on a calibration that was made on a busy machine."""

    def line(self) -> str:
        fits = {True: "fits", False: "does not fit", None: "whether it fits is unknown"}[self.fits]
        memory = f"memory {self.memory_bytes.mid / GIGA:.2f} GB: {fits}"
        doubt = (
            "; the calibration was made on a busy machine: measure again with stepwatch calibrate" if self.busy else ""
        )
        times = f"step {_ms(self.step_s)}, evaluation {_ms(self.eval_s)}, in all {_long(self.total_s)}"
        return f"estimate of the run: {times}; {memory}{doubt}"

    def verdict(self, step_s: float, total_s: float | None) -> str:
        """`total_s` of a run that was made from its beginning to its end."""
        found = [f"step {step_s * 1e3:.2f}ms, {_place(step_s, self.step_s)} {_ms(self.step_s)}"]
        if total_s is not None:
            found.append(f"in all {said(total_s)}, {_place(total_s, self.total_s)} {_long(self.total_s)}")
        return f"estimate against the run: {'; '.join(found)}"


def _place(truth: float, claim: Interval) -> str:
    return (
        "as estimated:"
        if claim.holds(truth)
        else "less than estimated:"
        if truth < claim.low
        else "more than estimated:"
    )


def _ms(seconds: Interval) -> str:
    return f"{seconds.mid * 1e3:.2f}ms ({seconds.low * 1e3:.2f} to {seconds.high * 1e3:.2f})"


def _long(seconds: Interval) -> str:
    return f"{said(seconds.mid)} ({said(seconds.low)} to {said(seconds.high)})"
