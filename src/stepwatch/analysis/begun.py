"""A run without an iteration: it has only begun, or it ended before the first. All that is known is what to expect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stepwatch.analysis.costs import MODELLED, NOT_SEPARABLE, Costs
from stepwatch.analysis.forecast import Forecast
from stepwatch.analysis.goodput import PARTS, Goodput, Split
from stepwatch.analysis.phases import Phases
from stepwatch.errors import NoIterations
from stepwatch.messages import Message
from stepwatch.run import Run
from stepwatch.units import Interval

if TYPE_CHECKING:
    from stepwatch.estimator.estimate import Estimate

_NOTHING = np.zeros(0)
NO_SPLIT = Split(_NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING)
NO_COSTS = Costs(step_s=Interval.exactly(0.0), mean_ratio=1.0, how={"step_s": NOT_SEPARABLE})
NO_GOODPUT = Goodput(
    wall_s=0.0, interval_s=Interval.exactly(0.0), parts_s=dict.fromkeys(PARTS, 0.0), iterations=0, by_clock=False
)


def too_little(run: Run, gpu_known: bool) -> NoIterations:
    """Neither iterations nor enough to expect anything."""
    hint = Message("the header says too little about the model; wait for the first lines")
    if not gpu_known:
        hint = Message("name the card with --gpu to see what to expect, or wait for the first lines")
    return NoIterations(Message("the log has a header but no iteration yet"), hint)


def no_phases(run: Run) -> Phases:
    return Phases(
        phase=_NOTHING.astype(np.int8),
        certainty=_NOTHING.astype(np.int8),
        covers=_NOTHING.astype(np.int64),
        artefact=_NOTHING.astype(bool),
        eval_interval=run.settings.count("eval_interval"),
    )


def expected_costs(expected: Estimate) -> Costs:
    return Costs(
        step_s=expected.step_s,
        mean_ratio=1.0,
        eval_s=expected.eval_s,
        checkpoint_s=expected.checkpoint_s,
        compile_s=expected.compile_s,
        how=dict.fromkeys(("step_s", "eval_s", "checkpoint_s", "compile_s"), MODELLED),
    )


def expected_forecast(run: Run, expected: Estimate) -> Forecast:
    from stepwatch.estimator.simulate import total

    end = run.settings.count("max_iters")
    if end is None:
        return Forecast(per_thousand_s=expected.step_s.scaled(1000), basis="estimate")
    whole = total(expected, run.settings)
    return Forecast(
        total_s=whole.total_s,
        remaining_s=whole.total_s,
        basis="estimate",
        max_iters=end,
        evals_ahead=whole.evaluations,
        saves_ahead=whole.saves.mid,
    )
