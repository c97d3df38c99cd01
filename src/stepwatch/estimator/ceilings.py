"""What was measured elsewhere: how fast cards multiply matrices, what evaluations and checkpoints take.

NANOGPT and THROUGHPUT are collections of published measurements.
"""

from __future__ import annotations

import math
import os
import re
from functools import cache
from typing import Literal, NamedTuple

from stepwatch.gpus import Gpu, gpus
from stepwatch.units import GIGA, TERA, Interval

# ln(measured / advertised) = ANCHORS[compute capability] + SLOPE x ln(advertised TFLOPS per watt), least squares over
# the half-precision rows of matmul_ceilings.tsv (benchmarks/fit_estimator.py prints it): the more a card promises
# per watt, the less of it the power limit lets through.
SLOPE = -0.264
ANCHORS = {
    (7, 0): -0.530,
    (7, 5): -0.417,
    (8, 0): -0.245,
    (8, 6): -0.351,
    (8, 9): -0.294,
    (9, 0): -0.218,
    (10, 0): -0.089,
    (12, 0): -0.288,
}
# Half-precision training over matmul_ceiling: 5, 50 and 95 % of the 288 THROUGHPUT rows with at least 100M parameters
# and 8,192 tokens in a micro-batch.
PUBLISHED_OF_CEILING = Interval(0.30, 0.54, 0.71)
SHARED_PIPES_SINCE = (8, 6)  # fp32 and integers share the second half of the cores
# Shares of the advertised peak; fp32 and emulated are medians of matmul_ceilings.tsv.
SHARES = {
    "highest": 1.1,  # GeForce cards boost past the advertised clock by up to 13 %
    "other makers": 0.75,  # RX 7900 XT and XTX reach 0.74 to 0.81
    "fp32": 0.9,  # without tensor cores
    "fp32 on shared pipes": 0.68,
    "emulated": 0.56,  # bf16 by cards before compute capability 8, as a share of what fp32 reaches
}

_MEMORY = re.compile(r" \d+GB$")
_HALF = {"float16": "bfloat16", "bfloat16": "float16"}


class Ceiling(NamedTuple):
    """FLOP/s of large matrix products: measured on this card, derived from similar cards, or by a rule of thumb."""

    flops: float
    basis: Literal["measured", "kin", "guess"]


@cache
def matmul_ceiling(gpu: Gpu, dtype: str) -> Ceiling | None:
    """The ceiling for a dtype; None if not even a peak is known.

    At least that of every card of the same architecture that is no better in any figure: measurements of single cards
    scatter by a few per cent, which must not make a faster card slower. A calibration of the card itself is used as is.
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
    """The share of this card's peak that nine in ten published runs of models over 100M parameters reach."""
    peak, dtype = gpu.peak_flops()
    ceiling = matmul_ceiling(gpu, dtype) if peak and dtype else None
    return None if ceiling is None or not peak else PUBLISHED_OF_CEILING.scaled(ceiling.flops / peak)


@cache
def _own_ceiling(gpu: Gpu, dtype: str) -> Ceiling | None:
    """As measured, or the share of the peak that cards of the same architecture reach."""
    emulated = dtype == "bfloat16" and not gpu.has_bf16
    known, chip = measured_ceilings(), _MEMORY.sub("", gpu.name)
    for like in (dtype,) if emulated else (dtype, _HALF.get(dtype, "")):
        others = [gpu.name]
        if (gpu.name, like) not in known:  # the same chip with another amount of memory
            alike = (other.name for other in gpus() if other.sm_count == gpu.sm_count)
            others = [name for name in alike if _MEMORY.sub("", name) == chip]
        measured = [known[name, like] for name in others if (name, like) in known]
        if measured:
            return Ceiling(measured[-1], "measured")
    if emulated:
        single = _own_ceiling(gpu, "float32")
        return single and Ceiling(single.flops * SHARES["emulated"], "kin")
    peak = gpu.bf16_flops if dtype == "bfloat16" else gpu.fp16_flops
    anchor = ANCHORS.get(gpu.compute_capability) if gpu.compute_capability else None
    if dtype == "float32" or (dtype == "tf32" and gpu.tf32_flops is None):
        shared = gpu.compute_capability is not None and gpu.compute_capability >= SHARED_PIPES_SINCE
        derived = (gpu.fp32_flops or 0.0) * SHARES["fp32 on shared pipes" if shared else "fp32"]
    elif dtype == "tf32":  # the same share as in half precision
        peak, half = gpu.bf16_flops or gpu.fp16_flops, _own_ceiling(gpu, "bfloat16" if gpu.has_bf16 else "float16")
        derived = (gpu.tf32_flops or 0.0) * (half.flops / peak if half and peak else SHARES["other makers"])
    elif peak is None:  # no tensor cores: autocast converts and gains nothing
        single = _own_ceiling(gpu, "float32")
        derived = single.flops if single is not None else 0.0
    elif anchor is None or not gpu.tdp_w:
        derived = peak * SHARES["other makers"]
    else:
        derived = peak * min(SHARES["highest"], math.exp(anchor + SLOPE * math.log(peak / TERA / gpu.tdp_w)))
    return Ceiling(derived, "guess" if anchor is None else "kin") if derived else None


@cache
def measured_ceilings() -> dict[tuple[str, str], float]:
    """Best square products of 1024 to 10240, the upper median over owners ([GEMM] in docs/gpus-sources.md)."""
    with open(os.path.join(os.path.dirname(__file__), "matmul_ceilings.tsv"), encoding="utf-8") as table:
        _, *lines = table.read().splitlines()
    return {(name, dtype): float(tflops) * TERA for name, dtype, tflops, *_ in (line.split("\t") for line in lines)}


# --- what an evaluation and a checkpoint should cost ------------------------------------------------------------


# A forward pass as a share of a micro-step. Compiled: 0.30 on a 4070, 0.33 on a V100 (THROUGHPUT 6), median 0.316 of 11
# real logs. Eager: 0.34 to 0.36 in 13 logs of a T4; 0.46 on an A800 whose step is bound by launches.
FORWARD_SHARE, FORWARD_SHARE_EAGER = 0.32, 0.35
FORWARD_SPREAD = 0.21  # standard deviation of its logarithm: 48 published logs, quartiles 0.31 to 0.365
# torch.save, not the disk, sets the pace: 0.65 GB/s (NANOGPT 4), 0.77 and 0.9 on a 4070 (THROUGHPUT 6), median 0.61 of
# 14 real logs; 0.26 and less on slow disks, 0.06 on mounted drives.
SAVE_BYTES_PER_S, SLOWEST_SAVE, FASTEST_SAVE = 0.65 * GIGA, 0.26 * GIGA, 0.95 * GIGA
SAVE_SPREAD = 0.75  # standard deviation of its logarithm, for an unknown disk
SAVED_BYTES_PER_PARAM = 12.0  # fp32 weight and two moments of Adam


class LogNormalPrior(NamedTuple):
    """A log-normal belief about a duration."""

    median_s: float
    spread: float


def forward_share(compiled: bool | None) -> float:
    """The share of a micro-step that one forward pass takes; if unknown, the model is compiled, as by default."""
    return FORWARD_SHARE_EAGER if compiled is False else FORWARD_SHARE


def evaluation_prior(
    step_s: float, eval_iters: int, micro_steps: float, compiled: bool | None = None
) -> LogNormalPrior:
    """2 splits x eval_iters forward passes, each a share of one of the step's micro-steps."""
    return LogNormalPrior(2.0 * eval_iters * forward_share(compiled) * step_s / micro_steps, FORWARD_SPREAD)


def checkpoint_prior(n_params: float) -> LogNormalPrior:
    return LogNormalPrior(SAVED_BYTES_PER_PARAM * n_params / SAVE_BYTES_PER_S, SAVE_SPREAD)
