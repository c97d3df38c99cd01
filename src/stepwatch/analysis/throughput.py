"""How fast the run really is: from the normal iterations alone, against the user's own card."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stepwatch.analysis.costs import MEASURED, Costs
from stepwatch.analysis.goodput import Goodput
from stepwatch.analysis.phases import Phases
from stepwatch.analysis.statistics import median
from stepwatch.gpus.catalogue import A100_FLOPS
from stepwatch.run import IMPOSSIBLE_MFU, SENTINEL_MFU, Run
from stepwatch.settings import ModelShape, flops_per_token

if TYPE_CHECKING:
    from stepwatch.gpus import Gpu

MFU_DECAY = 0.9  # nanoGPT's moving average over logged iterations
_FITTED_ROWS = 400


class Throughput(NamedTuple):
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
    reported_mfu: float | None = None
    possible: bool = True
    """False where the card cannot do what the times would need, boost clock included."""
    cards: int = 1


def find_throughput(
    run: Run, phases: Phases, costs: Costs, goodput: Goodput, gpu: Gpu | None, gpu_origin: str | None
) -> Throughput:
    step = costs.step_s.mid
    known = costs.how.get("step_s") == MEASURED
    tokens = tokens_per_iteration(run)
    cards = run.settings.count("world_size") or 1
    flops, source = _flops_per_iteration(run, tokens, cards)
    peak, dtype = _peak(run, gpu)
    achieved = flops / step if flops is not None and step > 0 and known else None
    limit = gpu.impossible_above_flops(run.settings.text("dtype")) if gpu is not None else None
    return Throughput(
        tokens_per_s=tokens / step if tokens and step > 0 and known else None,
        effective_tokens_per_s=tokens * goodput.iterations / goodput.wall_s if tokens and goodput.wall_s > 0 else None,
        achieved_flops=achieved, flops_from=source if achieved else None, gpu=gpu, gpu_origin=gpu_origin,
        peak_flops=peak, peak_dtype=dtype, mfu=achieved / peak if achieved and peak else None,
        reported_mfu=_last_reported(run), possible=not (achieved and limit and achieved > limit), cards=cards,
    )  # fmt: skip


def tokens_per_iteration(run: Run) -> float | None:
    settings = run.settings
    stated = settings.number("tokens_per_iter")
    if stated:
        return stated
    if not run.traits.has_nanogpt_settings:
        return _tokens_behind_rate(run)
    factors = [settings.number(name) for name in ("batch_size", "block_size", "gradient_accumulation_steps")]
    if any(factor is None for factor in factors):
        return None
    return float(np.prod([factor for factor in factors if factor is not None]))


def _tokens_behind_rate(run: Run) -> float | None:
    """A trainer that prints tokens per second and the time of a step tells the tokens of a step too."""
    rate, time = run.iterations.reported_tokens_per_s, run.iterations.time_s
    known = np.isfinite(rate) & (rate > 0) & (time > 0)
    return round(median(rate[known] * time[known])) if known.any() else None


def _peak(run: Run, gpu: Gpu | None) -> tuple[float | None, str | None]:
    if gpu is None:
        return None, None
    peak, dtype = gpu.peak_flops(run.settings.text("dtype"))
    return (peak, dtype) if peak else (None, dtype)


def _last_reported(run: Run) -> float | None:
    printed = run.iterations.reported_mfu
    real = printed[~np.isnan(printed) & (printed != SENTINEL_MFU) & (printed < IMPOSSIBLE_MFU)]
    return float(real[-1]) if len(real) else None


def _flops_per_iteration(run: Run, tokens: float | None, cards: int) -> tuple[float | None, str | None]:
    """Of one card, for one iteration; the header is exact, the printed mfu works without one."""
    if run.flops_per_token and tokens:
        return run.flops_per_token * tokens / cards, "header"
    n_params = run.settings.number("n_params")
    shape = ModelShape.from_settings(run.settings)
    if n_params and tokens and shape:
        return flops_per_token(n_params, shape) * tokens / cards, "header"
    from_mfu = flops_behind_mfu(run) if run.traits.mfu_of_a100 else None
    if from_mfu is not None:
        return from_mfu, "mfu"
    if n_params and tokens:
        return flops_per_token(n_params, None) * tokens / cards, "parameters"
    return None, None


def flops_behind_mfu(run: Run) -> float | None:
    """FLOPs per iteration and card that the printed mfu rests on.

    The printed value is r' = 0.9 r + 0.1 F / (312e12 dt), linear in F: every line gives F, the first printed
    one without any smoothing. The median over the lines is free of the rounding of a single one.
    """
    printed, times = run.iterations.reported_mfu[:_FITTED_ROWS], run.iterations.time_s[:_FITTED_ROWS]
    real = np.flatnonzero(~np.isnan(printed) & (printed != SENTINEL_MFU) & (times > 0))
    if not len(real) or run.reordered:
        return None
    begin = int(real[0])
    fresh = begin > 0 and bool((run.iterations.reported_mfu[:begin] == SENTINEL_MFU).any())
    carried = 0.0 if fresh else float(printed[begin])
    gain = 1 / float(times[begin]) if fresh else 0.0
    found = [float(printed[begin]) / gain] if fresh and printed[begin] > 0 else []
    for row, (value, time) in enumerate(zip(printed[begin + 1 :].tolist(), times[begin + 1 :].tolist(), strict=True)):
        if math.isnan(value) or value == SENTINEL_MFU or time <= 0:
            break
        carried, gain = MFU_DECAY * carried, MFU_DECAY * gain + (1 - MFU_DECAY) / time
        if value > 0 and (fresh or row >= 4):
            found.append((value - carried) / gain)
    if not found:
        return None
    flops = median(np.array(found)) * A100_FLOPS
    return flops if flops > 0 else None
