"""From a Run to an Analysis: phases, costs, where the time went, speed, forecast, findings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING

from stepwatch.analysis import begun
from stepwatch.analysis.costs import Costs, find_costs
from stepwatch.analysis.expected import find_expected, with_expected_step
from stepwatch.analysis.findings import Finding, find_findings
from stepwatch.analysis.forecast import Forecast, find_forecast
from stepwatch.analysis.goodput import Goodput, Split, find_goodput, split_rows
from stepwatch.analysis.outside import with_outside
from stepwatch.analysis.phases import Phase, Phases, find_phases
from stepwatch.analysis.regimes import Regimes, find_regimes
from stepwatch.analysis.throughput import Throughput, find_throughput
from stepwatch.run import Run

if TYPE_CHECKING:
    from stepwatch.analysis.ranks import Ranks
    from stepwatch.estimator.estimate import Estimate
    from stepwatch.gpus import Gpu

__all__ = ["Analysis", "Costs", "Finding", "Forecast", "Goodput", "Phases", "Regimes", "Split", "Throughput", "analyse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """All that is known about one run."""

    run: Run
    phases: Phases
    costs: Costs
    regimes: Regimes
    split: Split
    goodput: Goodput
    throughput: Throughput
    forecast: Forecast
    expected: Estimate | None = None
    """What the estimator expects of this run on this card, where the log tells enough."""
    ranks: Ranks | None = None
    """The processes of the run beside each other, where several left a record."""
    findings: tuple[Finding, ...] = ()

    @property
    def evaluations_done(self) -> int:
        """In the logged span, those of unlogged iterations included."""
        if "eval" not in self.run.holds:
            return len(self.run.evaluations)
        logged = int(self.phases.of(Phase.EVAL, Phase.EVAL_CHECKPOINT).sum())
        first = self.phases.first_evaluates and bool(self.phases.of(Phase.FIRST).any())
        return logged + len(self.phases.unlogged_evals) + (self.phases.trailing is not None) + first

    @property
    def checkpoints_done(self) -> int:
        if "checkpoint" not in self.run.holds:
            return len(self.run.checkpoints)
        logged = int(self.phases.of(Phase.EVAL_CHECKPOINT, Phase.CHECKPOINT).sum())
        last = self.phases.trailing is not None and any(
            save.at == self.phases.trailing for save in self.run.checkpoints
        )
        first = self.phases.first_saves and bool(self.phases.of(Phase.FIRST).any())
        return logged + len(self.phases.unlogged_saves) + last + first


def analyse(run: Run, gpu: Gpu | None = None, gpu_origin: str | None = None) -> Analysis:
    """Explains a run; `gpu` is the card it ran on, where it is known."""
    if not len(run.iterations):
        return _analyse_header(run, gpu, gpu_origin)
    phases = find_phases(run)
    expected = find_expected(run, gpu)
    costs = with_outside(run, phases, with_expected_step(run, phases, find_costs(run, phases), expected))
    if run.span is not None or run.compile_s is not None:
        costs = _recorded().with_recorded(run, phases, costs)
    regimes = find_regimes(run, phases)
    split = split_rows(run, phases, costs)
    goodput = (find_goodput if run.span is None else _recorded().recorded_goodput)(run, phases, costs, split)
    throughput = find_throughput(run, phases, costs, goodput, gpu, gpu_origin)
    forecast = find_forecast(run, phases, costs, goodput, expected)
    bare = Analysis(
        run=run, phases=phases, costs=costs, regimes=regimes, split=split, goodput=goodput, throughput=throughput,
        forecast=forecast, expected=expected, ranks=_ranks(run) if run.ranks else None,
    )  # fmt: skip
    return replace(bare, findings=find_findings(bare))


def _recorded() -> ModuleType:
    """Only a recorder's file needs it, and start-up counts."""
    from stepwatch.analysis import recorded

    return recorded


def _ranks(run: Run) -> Ranks:
    from stepwatch.analysis.ranks import find_ranks

    return find_ranks(run)


def _analyse_header(run: Run, gpu: Gpu | None, gpu_origin: str | None) -> Analysis:
    """Raises NoIterations where not even an expectation can be had."""
    expected = find_expected(run, gpu)
    if expected is None:
        raise begun.too_little(run, gpu is not None)
    phases, costs, goodput = begun.no_phases(run), begun.expected_costs(expected), begun.no_goodput()
    bare = Analysis(
        run=run, phases=phases, costs=costs, regimes=Regimes(), split=begun.no_split(), goodput=goodput,
        throughput=find_throughput(run, phases, costs, goodput, gpu, gpu_origin),
        forecast=begun.expected_forecast(run, expected), expected=expected,
    )  # fmt: skip
    return replace(bare, findings=find_findings(bare))
