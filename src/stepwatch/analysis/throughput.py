"""How fast the run really is: from the normal iterations alone, against the user's own card."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepwatch.analysis.costs import Costs
from stepwatch.analysis.goodput import Goodput
from stepwatch.analysis.phases import Phases
from stepwatch.analysis.statistics import median
from stepwatch.estimator.ceilings import normal_mfu
from stepwatch.gpus.catalogue import A100_FLOPS
from stepwatch.run import IMPOSSIBLE_MFU, SENTINEL_MFU, Run
from stepwatch.settings import ModelShape, flops_per_token
from stepwatch.units import Interval

if TYPE_CHECKING:
    from stepwatch.gpus import Gpu

MFU_DECAY = 0.9  # nanoGPT's moving average over logged iterations
FITTED_ROWS = 400  # at the beginning of a log: enough to undo the average


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    tokens_per_s: float | None = None
    effective_tokens_per_s: float | None = None
    achieved_flops: float | None = None
    """Per card."""
    flops_from: str | None = None
    """`header`, `mfu` (the printed one, undone) or `parameters` (6 N, attention not counted)."""
    gpu: Gpu | None = None
    gpu_origin: str | None = None
    peak_flops: float | None = None
    peak_dtype: str | None = None
    mfu: float | None = None
    normal_mfu: Interval | None = None
    """What others reach on this card."""
    reported_mfu: float | None = None
    possible: bool = True
    """False where the card cannot do what the times would need, boost clock included."""
    cards: int


def find_throughput(
    run: Run, phases: Phases, costs: Costs, goodput: Goodput, gpu: Gpu | None, gpu_origin: str | None
) -> Throughput:
    step = costs.step_s.mid
    tokens = tokens_per_iteration(run)
    cards = run.settings.count("world_size") or 1

    # FLOPs of one card for one iteration: the header is exact, the printed mfu works without one.
    flops: float | None = None
    source = None
    n_params, shape = run.settings.number("n_params"), ModelShape.from_settings(run.settings)
    if run.flops_per_token and tokens:
        flops, source = run.flops_per_token * tokens / cards, "header"
    elif n_params and tokens and shape:
        flops, source = flops_per_token(n_params, shape) * tokens / cards, "header"
    elif run.traits.mfu_of_a100 and (behind := flops_behind_mfu(run)) is not None:
        flops, source = behind, "mfu"
    elif n_params and tokens:
        flops, source = flops_per_token(n_params, None) * tokens / cards, "parameters"
    achieved = flops / step if flops is not None and costs.step_known else None
    peak = dtype = limit = None
    if gpu is not None:
        stated = run.settings.text("dtype")
        (peak, dtype), limit = gpu.peak_flops(stated), gpu.impossible_above_flops(stated)
    printed = run.iterations.reported_mfu
    real = printed[~np.isnan(printed) & (printed != SENTINEL_MFU) & (printed < IMPOSSIBLE_MFU)]
    return Throughput(
        tokens_per_s=tokens / step if tokens and costs.step_known else None,
        effective_tokens_per_s=tokens * goodput.iterations / goodput.wall_s if tokens and goodput.wall_s > 0 else None,
        achieved_flops=achieved,
        flops_from=source if achieved else None,
        gpu=gpu,
        gpu_origin=gpu_origin,
        peak_flops=peak or None,
        peak_dtype=dtype,
        mfu=achieved / peak if achieved and peak else None,
        normal_mfu=normal_mfu(gpu) if gpu is not None else None,
        reported_mfu=float(real[-1]) if len(real) else None,
        possible=not (achieved and limit and achieved > limit),
        cards=cards,
    )


def tokens_per_iteration(run: Run) -> float | None:
    settings = run.settings
    stated = settings.number("tokens_per_iter")
    if stated:
        return stated
    if not run.traits.has_nanogpt_settings:
        # A trainer that prints tokens per second and the time of a step gives the tokens of a step too.
        rate, time = run.iterations.reported_tokens_per_s, run.iterations.time_s
        known = np.isfinite(rate) & (rate > 0) & (time > 0)
        return round(median(rate[known] * time[known])) if known.any() else None
    factors = [settings.number(name) for name in ("batch_size", "block_size", "gradient_accumulation_steps")]
    known_factors = [factor for factor in factors if factor is not None]
    return float(math.prod(known_factors)) if len(known_factors) == len(factors) else None


def flops_behind_mfu(run: Run) -> float | None:
    """FLOPs per iteration and card that the printed mfu rests on.

    The printed value is r' = 0.9 r + 0.1 F / (312e12 dt), linear in F: every line gives F, the first printed
    one without any smoothing. The median over the lines is free of the rounding of a single one.
    """
    printed, times = run.iterations.reported_mfu[:FITTED_ROWS], run.iterations.time_s[:FITTED_ROWS]
    usable = ~np.isnan(printed) & (printed != SENTINEL_MFU) & (times > 0)
    if not usable.any() or run.reordered:
        return None
    begin = int(np.argmax(usable))
    fresh = bool((printed[:begin] == SENTINEL_MFU).any())
    rest = usable[begin:]
    end = begin + (int(np.argmin(rest)) if not rest.all() else len(rest))  # where the series is broken off
    carried = 0.0 if fresh else float(printed[begin])
    gain = 1 / float(times[begin]) if fresh else 0.0
    found = [float(printed[begin]) / gain] if fresh and printed[begin] > 0 else []
    for row in range(begin + 1, end):
        carried, gain = MFU_DECAY * carried, MFU_DECAY * gain + (1 - MFU_DECAY) / float(times[row])
        if printed[row] > 0 and (fresh or row > begin + 4):
            found.append((float(printed[row]) - carried) / gain)
    flops = median(np.array(found)) * A100_FLOPS
    return flops if flops > 0 else None
