"""A run without an iteration: it has only begun, or it ended before the first. Only an expectation can be given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stepwatch.analysis import Analysis
from stepwatch.analysis.costs import MODELLED, NOT_SEPARABLE, Costs
from stepwatch.analysis.findings import NOTICE, Finding
from stepwatch.analysis.forecast import Forecast
from stepwatch.analysis.goodput import PARTS, Goodput, Split
from stepwatch.analysis.phases import AVERAGES, Phases
from stepwatch.analysis.throughput import Regimes, find_throughput
from stepwatch.errors import NoIterations
from stepwatch.estimator.simulate import whole_run
from stepwatch.messages import Message
from stepwatch.run import Run
from stepwatch.units import Interval

if TYPE_CHECKING:
    from stepwatch.estimator.estimation import Estimate
    from stepwatch.gpus import Gpu


def analyse_without_iterations(
    run: Run, expected: Estimate | None, gpu: Gpu | None, gpu_origin: str | None
) -> Analysis:
    """Analyses such a run. Raises NoIterations if there is neither an expectation nor an error that ended it."""
    end, nothing, none = run.settings.count("max_iters"), np.zeros(0), Interval.exactly(0.0)
    findings: tuple[Finding, ...] = ()
    if expected is not None:
        costs = Costs(
            step_s=expected.step_s,
            mean_ratio=1.0,
            eval_s=expected.eval_s,
            checkpoint_s=expected.checkpoint_s,
            compile_s=expected.compile_s,
            how=dict.fromkeys(("step_s", "eval_s", "checkpoint_s", "compile_s"), MODELLED),
        )
        text = Message("The log has no iteration yet: all figures are estimates for this card, none was measured.")
        findings = (Finding("only_begun", NOTICE, text),)
        forecast = Forecast(per_thousand_s=expected.step_s.scaled(1000), basis="estimate")
        if end is not None:
            loop, whole = whole_run(expected, run.settings)
            forecast = Forecast(
                total_s=whole.total_s,
                remaining_s=whole.total_s,
                basis="estimate",
                max_iters=end,
                evals_ahead=loop.evaluations,
                saves_ahead=loop.saves.mid,
            )
    elif run.faults:
        costs = Costs(step_s=none, mean_ratio=1.0, how={"step_s": NOT_SEPARABLE})
        forecast = Forecast(max_iters=end)
    else:
        hint = Message("the header says too little about the model; wait for the first lines")
        if gpu is None:
            hint = Message("name the card with --gpu to see what to expect, or wait for the first lines")
        raise NoIterations(Message("the log has a header but no iteration yet"), hint)
    phases = Phases(
        phase=nothing.astype(np.int8),
        certainty=nothing.astype(np.int8),
        covers=nothing.astype(np.int64),
        artefact=nothing.astype(bool),
        eval_interval=run.settings.count("eval_interval"),
        evaluations=len(run.evaluations) if run.timing in AVERAGES or "eval" not in run.holds else 0,
        checkpoints=len(run.checkpoints) if run.timing in AVERAGES or "checkpoint" not in run.holds else 0,
    )
    goodput = Goodput(wall_s=0.0, interval_s=none, parts_s=dict.fromkeys(PARTS, 0.0), iterations=0, by_clock=False)
    return Analysis(
        run=run,
        phases=phases,
        costs=costs,
        regimes=Regimes(),
        split=Split(nothing, nothing.astype(np.int64), {}),
        goodput=goodput,
        throughput=find_throughput(run, phases, costs, goodput, gpu, gpu_origin),
        forecast=forecast,
        expected=expected,
        findings=findings,
    )
