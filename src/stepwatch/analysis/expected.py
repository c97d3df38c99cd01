"""What the estimator expects of this run on this card: for "is my speed normal?" and for a run that has only begun."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from stepwatch.analysis.costs import MODELLED, Costs
from stepwatch.analysis.phases import Phase, Phases
from stepwatch.estimator.ceilings import normal_mfu
from stepwatch.run import Run
from stepwatch.settings import Origin, Settings, flops_per_token
from stepwatch.units import Z90, Interval

if TYPE_CHECKING:
    from stepwatch.estimator.estimate import Estimate
    from stepwatch.estimator.workload import Workload
    from stepwatch.gpus import Gpu


def find_expected(run: Run, gpu: Gpu | None) -> Estimate | None:
    """None where the log tells too little of the model, or the card is unknown."""
    if gpu is None:
        return None
    from stepwatch.estimator.estimate import estimate

    workload = workload_of(run, gpu)
    try:
        return estimate(workload, gpu) if workload is not None else None
    except (ValueError, OverflowError, ZeroDivisionError):  # settings that no model can have
        return None


def workload_of(run: Run, gpu: Gpu | None) -> Workload | None:
    """What the run computes; None where the log does not tell it, or contradicts itself."""
    from stepwatch.estimator.workload import Workload

    # The tokens of an iteration, and a shape: stated, or nanoGPT's default that its parameter count confirms.
    settings, stated_params = run.settings, run.settings.number("n_params")
    batch = settings.count("batch_size") and settings.count("gradient_accumulation_steps")
    shape = all(settings.count(name) for name in ("n_layer", "n_head", "n_embd"))
    shape = shape or (run.traits.has_nanogpt_settings and bool(stated_params))
    if not run.traits.states_model or not shape or not (settings.count("tokens_per_iter") or batch):
        return None

    compiles = settings.flag("compile")
    if compiles is None and run.traits.announces_compile and run.has_header:
        compiles = False  # nanoGPT says so when it compiles
        settings = settings.beneath(Settings.of(Origin.INFERRED, {"compile": compiles}))
    try:
        workload, _ = Workload.from_settings(settings, has_bf16=gpu is None or gpu.has_bf16)
        if compiles is None:
            workload = replace(workload, compile=None)
        # The shape that was filled in has the number of parameters that the log prints (positions not counted).
        counted = replace(workload, stated_params=None).n_params - workload.block_size * workload.n_embd
        return None if stated_params and abs(counted / stated_params - 1) >= 0.03 else workload
    except (ValueError, OverflowError, ZeroDivisionError):  # settings that no model can have
        return None


def least_step_s(run: Run, gpu: Gpu | None) -> float:
    """What the work of the model takes at the peak of the card; 0 where one of them is unknown."""
    n_params, tokens = run.settings.number("n_params"), run.settings.number("tokens_per_iter")
    peak = gpu.peak_flops().flops if gpu is not None else None
    if not peak or not n_params or not tokens:
        return 0.0
    return flops_per_token(n_params, None) * tokens / (run.settings.count("world_size") or 1) / peak


def usual_step_s(run: Run, gpu: Gpu | None) -> Interval | None:
    """By the size of the model alone: what its work takes at the MFU that others reach on this card, or half of it."""
    normal, at_peak_s = normal_mfu(gpu) if gpu is not None else None, least_step_s(run, gpu)
    if normal is None or not at_peak_s:
        return None
    return Interval(at_peak_s / normal.high, at_peak_s / normal.mid, 2 * at_peak_s / normal.low)


def combined(measured: Interval, rows: int, expected: Interval) -> Interval:
    """A step seen on few rows and the estimator's, weighed by how well each is known (both as log-normal)."""
    own = math.log(max(measured.high, 1e-12) / max(measured.low, 1e-12)) / 2 / Z90
    # The first normal iterations may be a tenth from the later ones: a card is not warm, a compiler not done.
    seen = math.hypot(own, 0.10 / rows**0.7)
    believed = math.log(expected.high / expected.low) / 2 / Z90
    apart = abs(math.log(max(measured.mid, 1e-12) / expected.mid))
    if apart > 2 * math.hypot(seen, believed):  # what was seen is not what was expected: the log wins
        return Interval(*(measured.mid * math.exp(z * Z90 * seen) for z in (-1, 0, 1)))
    weight = seen**-2 / (seen**-2 + believed**-2)
    mid = math.exp(weight * math.log(max(measured.mid, 1e-12)) + (1 - weight) * math.log(expected.mid))
    spread = Z90 * (seen**-2 + believed**-2) ** -0.5
    return Interval(mid * math.exp(-spread), mid, mid * math.exp(spread))


def with_expected_step(run: Run, phases: Phases, costs: Costs, expected: Estimate | None, gpu: Gpu | None) -> Costs:
    """Nothing but the first iteration was seen: step and evaluation are as expected, the rest of it compilation."""
    if len(run.iterations) != 1 or not phases.of(Phase.FIRST).any():
        return costs
    if expected is None:
        usual, most_s = usual_step_s(run, gpu), float(run.iterations.time_s[0])
        if usual is None or usual.mid > most_s:
            return costs
        step = Interval(usual.low, usual.mid, min(usual.high, most_s))
        return replace(costs, step_s=step, how={**costs.how, "step_s": MODELLED})
    rest = float(run.iterations.time_s[0]) - expected.step_s.mid
    evaluation = expected.eval_s if phases.first_evaluates else Interval.exactly(0.0)
    left = (max(rest - part, 0.0) for part in (evaluation.high, evaluation.mid, evaluation.low))
    costs = replace(costs, step_s=expected.step_s, compile_s=Interval(*left))
    modelled = ["step_s", "compile_s"]
    if phases.first_evaluates:
        costs = replace(costs, eval_s=evaluation)
        modelled.append("eval_s")
    return replace(costs, how={**costs.how, **dict.fromkeys(modelled, MODELLED)})
