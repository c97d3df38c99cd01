"""From a Run to an Analysis: phases, costs, where the time went, speed, forecast, findings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from stepwatch.analysis import findings
from stepwatch.analysis.costs import Costs, find_costs
from stepwatch.analysis.findings import Finding
from stepwatch.analysis.forecast import Forecast, find_forecast
from stepwatch.analysis.goodput import DATA, Goodput, Split, find_goodput, split_rows, with_unprinted_events
from stepwatch.analysis.phases import Phase, Phases, find_phases
from stepwatch.analysis.statistics import chosen, nine_in_ten
from stepwatch.analysis.throughput import (
    Regimes,
    Throughput,
    find_expected,
    find_regimes,
    find_throughput,
    least_step_s,
    with_expected_step,
    workload_of,
)
from stepwatch.platforms import release_pages
from stepwatch.run import Run, Timing

if TYPE_CHECKING:
    from stepwatch.analysis.bill import Bill
    from stepwatch.analysis.machine import MachineUse
    from stepwatch.analysis.ranks import Ranks
    from stepwatch.estimator.estimation import Estimate
    from stepwatch.estimator.workload import Workload
    from stepwatch.gpus import Gpu
    from stepwatch.samples.columns import Samples

__all__ = ["Analysis", "Costs", "Finding", "Forecast", "Goodput", "Phases", "Regimes", "Split", "Throughput", "analyse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """Everything known about one run."""

    run: Run
    phases: Phases
    costs: Costs
    regimes: Regimes
    split: Split
    goodput: Goodput
    throughput: Throughput
    forecast: Forecast
    workload: Workload | None = None
    """What the run computes, if the log says enough."""
    expected: Estimate | None = None
    """What the estimator expects of this run on this card."""
    ranks: Ranks | None = None
    """The processes of the run side by side, if several left a record."""
    machine: MachineUse | None = None
    """What the machine did, if it was sampled."""
    bill: Bill | None = None
    """What the run cost, if energy was sampled or a price is given."""
    findings: tuple[Finding, ...] = ()

    def noticed(self, *codes: str) -> tuple[str, ...]:
        """Those of the codes that have a finding."""
        return tuple(finding.code for finding in self.findings if finding.code in codes)

    @property
    def step_spread_s(self) -> tuple[float, float] | None:
        """The range of nine in ten normal iterations; None if there are too few."""
        times = chosen(self.run.iterations.time_s, self.phases.normal)
        if len(times) < findings.LEAST_SPREAD_ROWS or self.run.timing is Timing.SPANS_RUN:
            return None
        return nine_in_ten(times)

    @property
    def shows_parts(self) -> bool:
        """Whether the log shows how much of the time was not spent on training steps.

        It does if the cost of evaluations or checkpoints is known, or if each of them would have a line. A mean over
        the whole run, which includes them, hides them.
        """
        of_all, parts = self.run.timing is Timing.SPANS_RUN and bool(self.run.holds), ("eval", "checkpoint")
        return not of_all and (any(map(self.costs.priced, parts)) or all(map(self._without, parts)))

    @property
    def parts_s(self) -> dict[str, float | None]:
        """Where the time went; None for evaluations or checkpoints that may have taken time without showing it."""
        parts = ("eval", "checkpoint")
        hidden = [part for part in parts if not self.costs.priced(part) and not self._without(part)]
        return {part: None if part in hidden and not took else took for part, took in self.goodput.parts_s.items()}

    def _without(self, part: str) -> bool:
        """Whether the log shows that there was no evaluation, or no checkpoint."""
        done = self.phases.evaluations if part == "eval" else self.phases.checkpoints
        return not done and findings.shows_events(self.run)

    @property
    def data_share(self) -> float | None:
        """The share of the steps' time in which they wait for data."""
        steps_s = self.goodput.steps_s
        return self.goodput.parts_s[DATA] / steps_s if self.costs.data_s is not None and steps_s > 0 else None

    @property
    def late_s(self) -> float:
        """The waiting that made steps stall; it is not counted under stalls."""
        if self.costs.data_s is None:
            return 0.0
        rows = np.flatnonzero(self.phases.of(Phase.STALL))
        left = float((self.split.column_s("unexplained") * self.phases.covers)[rows].sum())
        return max(float(self.phases.excess_s(self.run, rows).sum()) - left, 0.0)


def analyse(
    run: Run, gpu: Gpu | None = None, gpu_origin: str | None = None, samples: Samples | None = None
) -> Analysis:
    """Explains a run; `gpu` is the card it ran on, if known, and `samples` are those of its machine.

    Raises NoIterations if there are none and not even an expectation is possible.
    """
    workload = workload_of(run, gpu) if gpu is not None else None
    expected = find_expected(workload, gpu) if workload is not None and gpu is not None else None
    if not len(run.iterations):
        from stepwatch.analysis import begun

        return begun.analyse_without_iterations(run, expected, gpu, gpu_origin)
    release_pages()
    phases = find_phases(run)
    regimes = find_regimes(run, phases)
    costs = find_costs(run, phases, regimes)
    if len(run.iterations) == 1 and phases.first is not None:
        costs = with_expected_step(run, phases, costs, expected, gpu)
    if not run.holds >= {"eval", "checkpoint"}:
        costs = with_unprinted_events(run, phases, costs)
    rules: list[findings.Rule] = []
    goodput_of, side_by_side = find_goodput, None
    if run.inside is None and run.compile_s is None and run.span is None and not run.parts:
        split = split_rows(run, phases, costs)
    else:  # more than the time of a step was recorded
        from stepwatch.analysis import ranks, recorded

        costs = recorded.with_recorded(run, phases, costs)
        split = recorded.with_waiting(run, phases, costs, split_rows(run, phases, costs))
        goodput_of = find_goodput if run.span is None else recorded.recorded_goodput
        side_by_side = ranks.find_ranks(run) if run.ranks else None
        rules += [*recorded.RULES, *ranks.RULES]
    goodput = goodput_of(run, phases, costs, split)
    least_s = least_step_s(run, gpu) if "n_params" in run.settings else 0.0
    analysis = Analysis(
        run=run,
        phases=phases,
        costs=costs,
        regimes=regimes,
        split=split,
        goodput=goodput,
        throughput=find_throughput(run, phases, costs, goodput, gpu, gpu_origin),
        forecast=find_forecast(run, phases, costs, goodput, regimes, expected, least_s),
        workload=workload,
        expected=expected,
        ranks=side_by_side,
    )
    if samples is not None:
        from stepwatch.analysis import machine  # few logs come with samples

        analysis = replace(analysis, machine=machine.find_machine(run, phases, samples))
        rules += machine.RULES
    rules = [*findings.rules_for(analysis), *rules]
    return replace(analysis, findings=tuple(finding for rule in rules for finding in rule(analysis)))
