"""From a Run to an Analysis: phases, costs, where the time went, speed, forecast, findings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepwatch.analysis.costs import Costs, find_costs
from stepwatch.analysis.findings import Finding, find_findings
from stepwatch.analysis.forecast import Forecast, find_forecast
from stepwatch.analysis.goodput import Goodput, Split, find_goodput, split_rows
from stepwatch.analysis.phases import Phases, find_phases
from stepwatch.analysis.regimes import Regimes, find_regimes
from stepwatch.analysis.throughput import Throughput, find_throughput
from stepwatch.run import Run

if TYPE_CHECKING:
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
    findings: tuple[Finding, ...] = field(default=())


def analyse(run: Run, gpu: Gpu | None = None, gpu_origin: str | None = None) -> Analysis:
    """Explains a run; `gpu` is the card it ran on, where it is known."""
    phases = find_phases(run)
    costs = find_costs(run, phases)
    regimes = find_regimes(run, phases)
    split = split_rows(run, phases, costs)
    goodput = find_goodput(run, phases, costs, split)
    throughput = find_throughput(run, phases, costs, goodput, gpu, gpu_origin)
    forecast = find_forecast(run, phases, costs, goodput)
    values = {
        "run": run, "phases": phases, "costs": costs, "regimes": regimes, "split": split, "goodput": goodput,
        "throughput": throughput, "forecast": forecast,
    }  # fmt: skip
    bare = Analysis(**values)  # type: ignore[arg-type]
    return Analysis(**values, findings=find_findings(bare))  # type: ignore[arg-type]
