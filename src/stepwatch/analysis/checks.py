"""What was checked and is fine: said in one line, so that nobody looks there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from stepwatch.analysis.findings import LEAST_SPREAD_ROWS
from stepwatch.messages import Message
from stepwatch.run import Timing

if TYPE_CHECKING:
    from stepwatch.analysis import Analysis

SMALL_SHARE = 0.05  # of the time of steps, evaluations and checkpoints


def passed(a: Analysis) -> Iterator[Message]:
    """Only what this log can show: a run of means hides its stalls."""
    codes = {finding.code for finding in a.findings}
    rows, parts = int(a.phases.normal.sum()), a.goodput.parts_s
    single = a.run.timing not in (Timing.SPANS_LOG_INTERVAL, Timing.SPANS_RUN)
    if codes & {"speed_is_normal", "faster_than_expected"}:
        yield Message("good speed for this card")
    differ = a.run.timing is not Timing.SPANS_RUN  # else all are the same mean
    if rows >= LEAST_SPREAD_ROWS and differ and not codes & {"uneven_steps", "regime_change", "drift", "schedule"}:
        yield Message("even pace")
    if rows >= LEAST_SPREAD_ROWS and single and not codes & {"stall", "sleep", "periodic_slowness", "late_data"}:
        yield Message("no stalls")
    between = parts["eval"] + parts["checkpoint"]
    if a.evaluations_done and 0 < between < SMALL_SHARE * (between + a.goodput.steps_s):
        yield Message("little time in evaluations and checkpoints")
    losses = a.run.iterations.loss[~np.isnan(a.run.iterations.loss)]  # nan is what was not printed
    if len(losses) and np.isfinite(losses).all():
        yield Message("finite loss throughout")
