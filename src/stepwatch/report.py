"""The values that presenters receive, one for each kind of answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from stepwatch.advice import AdviceList
    from stepwatch.advice.recommended import Recommended
    from stepwatch.analysis import Analysis
    from stepwatch.analysis.findings import Finding
    from stepwatch.errors import Notice
    from stepwatch.estimator.plan import Plan
    from stepwatch.messages import Message
    from stepwatch.run import Run
    from stepwatch.run.more import Understood
    from stepwatch.units import Interval
    from stepwatch.verdict import Verdict


class LogLine(NamedTuple):
    """A line of the log, cut if it is very long; numbers count from 1."""

    number: int
    text: str


Excerpts = Mapping[int, tuple[LogLine, ...]]
"""The lines of the log around some iterations, by row; read from the log again only when they are shown."""


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """One run: what was measured, and what to change."""

    analysis: Analysis
    advice: AdviceList | None
    """None if the log does not even show what a normal iteration takes."""
    verdict: Verdict
    fine: tuple[Message, ...] = ()
    """What was checked and needs no attention."""
    ends_s: Interval | None = None
    """When a run in progress reaches its last iteration (seconds since 1970)."""
    excerpts: Callable[[], Excerpts] = dict
    """Around the slow iterations and the end of a run that broke off; empty if the log is not text."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """The answer to `explain`: one entry per run found, in order, and remarks on all of them."""

    runs: tuple[RunReport, ...]
    remarks: tuple[Finding, ...] = ()
    """Shown once for the whole input: several runs, a contradiction between --set and the log."""
    command: str = "stepwatch explain"
    """The command that was used, for the hint on what to do next."""
    directory: bool = False
    """The runs were found in a directory: a table of them comes first."""
    unstarted: tuple[Run, ...] = ()
    """Runs that never reached an iteration; numbered after the others."""
    understood: Understood | None = None
    """How the lines were read, if an example describes them."""
    inputs: tuple[str, ...] = ()
    """The inputs as they may be shown: names and relative paths, never absolute ones."""
    notices: tuple[Notice, ...] = ()

    @property
    def count(self) -> int:
        """How many runs there are, explained or not."""
        return len(self.runs) + len(self.unstarted)

    @property
    def analyses(self) -> tuple[Analysis, ...]:
        return tuple(run.analysis for run in self.runs)

    @property
    def longest(self) -> int:
        """The position of the run that took longest."""
        walls = [run.analysis.goodput.wall_s for run in self.runs]
        return max(range(len(walls)), key=lambda row: walls[row] if math.isfinite(walls[row]) else 0.0)

    @property
    def worst_first(self) -> tuple[int, ...]:
        """The positions of the runs by status, the most serious first; within one status, the longest first."""
        walls = [a.goodput.wall_s if math.isfinite(a.goodput.wall_s) else 0.0 for a in self.analyses]
        return tuple(sorted(range(len(walls)), key=lambda row: (self.runs[row].verdict.gravity, -walls[row])))

    @property
    def troubled(self) -> int:
        """How many of the runs have a problem."""
        return sum(run.verdict.is_problem for run in self.runs)


@dataclass(frozen=True, kw_only=True)
class PlanReport:
    """The answer to `estimate`."""

    plan: Plan
    advice: AdviceList
    remarks: tuple[Message, ...] = ()
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True, kw_only=True)
class AdviceReport:
    """The answer to `advise`: what to change in a run, or recommended settings if there is no run."""

    advice: AdviceList | None = None
    recommended: Recommended | None = None
    config: str | None = None
    """The config that the run was started with, as it may be shown."""
    remarks: tuple[Message, ...] = ()
    notices: tuple[Notice, ...] = ()
