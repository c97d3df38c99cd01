"""The user's own runs as a prior: measured over expected steps, on the same card with a similar shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING

from stepwatch.messages import Message
from stepwatch.units import Z90, Interval

if TYPE_CHECKING:
    from stepwatch.estimator.estimation import Estimate
    from stepwatch.estimator.workload import Workload
    from stepwatch.gpus import Gpu

History = Callable[["Workload", "Gpu"], Sequence[float]]
"""The measured step over the expected one, for runs like this one."""

_HISTORY: ContextVar[History | None] = ContextVar("history", default=None)


@contextmanager
def learning_from(history: History | None) -> Iterator[None]:
    """In this context every estimate takes these runs into account."""
    before = _HISTORY.set(history)
    try:
        yield
    finally:
        _HISTORY.reset(before)


def corrected(found: Estimate, workload: Workload, gpu: Gpu) -> Estimate:
    """The estimate, corrected by own runs; unchanged if there are none like this one."""
    history = _HISTORY.get()
    ratios = history(workload, gpu) if history is not None else ()
    if not ratios:
        return found
    step = found.step_s
    shift, spread = posterior([math.log(ratio) for ratio in ratios], math.log(step.high / step.low) / (2 * Z90))
    mid, width = step.mid * math.exp(shift), math.exp(Z90 * spread)
    low = max(mid / width, found.floor_step_s)
    mid = max(mid, low)
    share = mid / step.mid  # evaluations run on the same card
    return replace(
        found,
        step_s=Interval(low, mid, max(mid * width, mid)),
        eval_s=found.eval_s.scaled(share),
        terms=tuple(term._replace(seconds=term.seconds * share) for term in found.terms),
        own_runs=len(ratios),
    )


def posterior(seen: Sequence[float], prior: float) -> tuple[float, float]:
    """Middle and standard deviation of the next one, all logarithms, if the true middle was expected at 0 ± prior."""
    count, mean = len(seen), sum(seen) / len(seen)
    # Runs of one fleet usually differ by a third of how wrong the estimator may be, which counts as much as three runs:
    # nine of ten next runs then lie inside, from the first own run on. The same work differs by 2 % from run to run in
    # a healthy fleet (tests/fleets.py plants up to this).
    usual, worth = prior / 3, 3
    squares = worth * usual**2 + sum((one - mean) ** 2 for one in seen)
    spread = max(math.sqrt(squares / (worth + count - 1)), 0.02)
    certain, doubt = count / spread**2, 1 / prior**2
    return mean * certain / (certain + doubt), min(math.hypot(math.sqrt(1 / (certain + doubt)), spread), prior)


def note(found: Estimate) -> Message | None:
    """Says by how many own runs the estimate was corrected, if any."""
    if not found.own_runs:
        return None
    return Message(
        "Corrected by {count:n} own run on this card with a similar shape.",
        {"count": found.own_runs},
        "Corrected by {count:n} own runs on this card with a similar shape.",
        found.own_runs,
    )
