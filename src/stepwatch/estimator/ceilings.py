"""What was measured elsewhere: how fast cards multiply matrices, what evaluations and checkpoints take."""

from __future__ import annotations

import math
import os
import re
from functools import cache
from typing import Literal, NamedTuple

from stepwatch.estimator.constants import (
    ANCHORS,
    FORWARD_SHARE,
    FORWARD_SHARE_EAGER,
    FORWARD_SPREAD,
    PEAK_SHARES,
    PUBLISHED_OF_CEILING,
    SAVE_BYTES_PER_S,
    SAVE_SPREAD,
    SAVED_BYTES_PER_PARAM,
    SHARED_PIPES_SINCE,
    SLOPE,
)
from stepwatch.gpus import Gpu, gpus
from stepwatch.units import TERA, Interval

_MEMORY = re.compile(r" \d+GB$")
_HALF = {"float16": "bfloat16", "bfloat16": "float16"}


class Ceiling(NamedTuple):
    """FLOP/s of large matrix products: measured on this card, derived from similar cards, or by a rule of thumb."""

    flops: float
    basis: Literal["measured", "kin", "guess"]


@cache
def matmul_ceiling(gpu: Gpu, dtype: str) -> Ceiling | None:
    """The ceiling for a dtype; None where not even a peak is known.

    No lower than that of a card of the same architecture that is its inferior in every figure: measurements of single
    cards scatter by some per cent, and a faster card is not slower for it. What was measured on the very card stands.
    """
    if gpu.calibration is not None and f"matmul_{dtype}" in gpu.calibration.figures:
        return Ceiling(gpu.calibration.figures[f"matmul_{dtype}"].value, "measured")
    own = _own_ceiling(gpu, dtype)
    if own is None:
        return None
    figures = ("fp32_flops", "tf32_flops", "fp16_flops", "bf16_flops", "bandwidth_bytes_per_s", "sm_count")
    inferior = (
        _own_ceiling(other, dtype)
        for other in gpus()
        if other.architecture == gpu.architecture
        and all((getattr(gpu, name) or 0.0) >= (getattr(other, name) or 0.0) for name in figures)
    )
    return own._replace(flops=max(own.flops, *(other.flops for other in inferior if other is not None), 0.0))


def normal_mfu(gpu: Gpu) -> Interval | None:
    """What nine of ten published runs of models over 100M parameters reach of the peak of this card."""
    peak, dtype = gpu.peak_flops()
    ceiling = matmul_ceiling(gpu, dtype) if peak and dtype else None
    return None if ceiling is None or not peak else PUBLISHED_OF_CEILING.scaled(ceiling.flops / peak)


@cache
def _own_ceiling(gpu: Gpu, dtype: str) -> Ceiling | None:
    """As measured, or from the peak: what cards of the same architecture reach of theirs."""
    measured = _measured(gpu, dtype)
    if measured is not None:
        return Ceiling(measured, "measured")
    if dtype == "bfloat16" and not gpu.has_bf16:
        single = _own_ceiling(gpu, "float32")
        return single and Ceiling(single.flops * PEAK_SHARES.emulated, "kin")
    twin = _measured(gpu, _HALF.get(dtype, ""))
    if twin is not None:
        return Ceiling(twin, "measured")
    peak = gpu.bf16_flops if dtype == "bfloat16" else gpu.fp16_flops
    anchor = ANCHORS.get(gpu.compute_capability) if gpu.compute_capability else None
    if dtype == "float32" or (dtype == "tf32" and gpu.tf32_flops is None):
        shared = gpu.compute_capability is not None and gpu.compute_capability >= SHARED_PIPES_SINCE
        derived = (gpu.fp32_flops or 0.0) * (PEAK_SHARES.fp32_shared_pipes if shared else PEAK_SHARES.fp32)
    elif dtype == "tf32":  # the same share as in half precision
        peak, half = gpu.bf16_flops or gpu.fp16_flops, _own_ceiling(gpu, "bfloat16" if gpu.has_bf16 else "float16")
        derived = (gpu.tf32_flops or 0.0) * (half.flops / peak if half and peak else PEAK_SHARES.other_makers)
    elif peak is None:  # no tensor cores: autocast converts and gains nothing
        single = _own_ceiling(gpu, "float32")
        derived = single.flops if single is not None else 0.0
    elif anchor is None or not gpu.tdp_w:
        derived = peak * PEAK_SHARES.other_makers
    else:
        derived = peak * min(PEAK_SHARES.highest, math.exp(anchor + SLOPE * math.log(peak / TERA / gpu.tdp_w)))
    return Ceiling(derived, "guess" if anchor is None else "kin") if derived else None


def _measured(gpu: Gpu, dtype: str) -> float | None:
    """Of this card, or of the same chip with another amount of memory."""
    chip = _MEMORY.sub("", gpu.name), gpu.sm_count, dtype
    return measured_ceilings().get((gpu.name, dtype)) or _measured_chips().get(chip)


@cache
def _measured_chips() -> dict[tuple[str, int | None, str], float]:
    units = {gpu.name: gpu.sm_count for gpu in gpus()}
    return {(_MEMORY.sub("", name), units[name], dtype): flops for (name, dtype), flops in measured_ceilings().items()}


@cache
def measured_ceilings() -> dict[tuple[str, str], float]:
    """Best square products of 1024 to 10240, the upper median over owners ([GEMM] in docs/gpus-sources.md)."""
    with open(os.path.join(os.path.dirname(__file__), "matmul_ceilings.tsv"), encoding="utf-8") as table:
        _, *lines = table.read().splitlines()
    return {(name, dtype): float(tflops) * TERA for name, dtype, tflops, *_ in (line.split("\t") for line in lines)}


# --- what an evaluation and a checkpoint should cost ------------------------------------------------------------


class Belief(NamedTuple):
    """A log-normal belief about a duration."""

    median_s: float
    spread: float


def forward_share(compiled: bool | None) -> float:
    """Of a micro-step, what one forward pass takes; where nothing is known the model is compiled, as by default."""
    return FORWARD_SHARE_EAGER if compiled is False else FORWARD_SHARE


def evaluation_prior(
    step_s: float, eval_iters: int | None, micro_steps: float | None, compiled: bool | None = None
) -> Belief | None:
    """2 splits x eval_iters forward passes, each a share of one of the step's micro-steps."""
    if not eval_iters or not micro_steps:
        return None
    return Belief(2.0 * eval_iters * forward_share(compiled) * step_s / micro_steps, FORWARD_SPREAD)


def checkpoint_prior(n_params: float | None) -> Belief | None:
    if not n_params:
        return None
    return Belief(SAVED_BYTES_PER_PARAM * n_params / SAVE_BYTES_PER_S, SAVE_SPREAD)
