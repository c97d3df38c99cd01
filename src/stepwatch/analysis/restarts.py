"""A restarted training: what was done a second time, and when it reached something new."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stepwatch.analysis.findings import NOTICE, Finding
from stepwatch.messages import Message

if TYPE_CHECKING:
    from stepwatch.analysis import Analysis


class Restart(NamedTuple):
    """What is between the last line of one start and the first new iteration of the next."""

    begin: int
    """The first iteration after it."""
    reached: int
    """The last one before it."""
    redone: int
    redone_s: float
    gap_s: float | None
    """From the last iteration before to the end of the first one after it; None without a clock."""
    until_new_s: float | None
    """From the last iteration before it to the end of the first one that had not been done before."""


def restart_between(before: Analysis, after: Analysis) -> Restart | None:
    """None if one of the two has no iteration."""
    earlier, later = before.run.iterations, after.run.iterations
    if not len(earlier) or not len(later):
        return None
    begin, reached = int(later.number[0]), int(earlier.number[-1])
    redone = max(reached - begin + 1, 0)
    new = np.flatnonzero(later.number > reached)[:1]
    last_s = float(earlier.stamp_s[-1])
    return Restart(
        begin=begin,
        reached=reached,
        redone=redone,
        redone_s=redone * before.costs.step_s.mid * before.costs.mean_ratio,
        gap_s=_between(last_s, float(later.stamp_s[0])),
        until_new_s=_between(last_s, float(later.stamp_s[new[0]])) if len(new) else None,
    )


def findings(before: Analysis, after: Analysis) -> Iterator[Finding]:
    """Findings on two starts in one log, if the second continues the first one's training from a save."""
    restart = restart_between(before, after)
    if restart is None or before.forecast.done or (restart.until_new_s is None and not restart.redone):
        return
    interval = after.run.settings.get("log_interval")
    step = interval.value if interval is not None and isinstance(interval.value, int) else 1
    if 0 < restart.begin <= restart.reached + step:  # from 0 it may as well be another training
        yield Finding("restart", NOTICE, _said(restart, after))


def _said(restart: Restart, after: Analysis) -> Message:
    facts = {
        "begin": restart.begin,
        "count": restart.redone,
        "again": restart.redone_s,
        "lost": restart.until_new_s,
        "reached": restart.reached,
    }
    if restart.until_new_s is not None and restart.redone:
        return Message(
            "This is a restart at iteration {begin:n}. It did one iteration again, and its first new one ended "
            "{lost:time} after the last one before the restart.",
            facts,
            "This is a restart at iteration {begin:n}. It did {count:n} iterations again, and its first new one ended "
            "{lost:time} after the last one before the restart.",
            restart.redone,
        )
    if restart.until_new_s is not None:
        return Message(
            "This is a restart at iteration {begin:n}. It did nothing again, and its first iteration ended {lost:time} "
            "after the last one before the restart.",
            facts,
        )
    if int(after.run.iterations.number[-1]) <= restart.reached:
        return Message(
            "This is a restart at iteration {begin:n}. It has not yet come as far as the run before it, which reached "
            "iteration {reached:n}.",
            facts,
        )
    return Message(
        "This is a restart at iteration {begin:n}. It did one iteration again, about {again:time}; the log does not "
        "say how long the training stood still.",
        facts,
        "This is a restart at iteration {begin:n}. It did {count:n} iterations again, about {again:time}; the log does "
        "not say how long the training stood still.",
        restart.redone,
    )


def _between(begin_s: float, end_s: float) -> float | None:
    return end_s - begin_s if math.isfinite(begin_s) and end_s >= begin_s else None
