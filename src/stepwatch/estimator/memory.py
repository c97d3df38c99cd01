"""Bytes on the card: what stays, what one micro-step needs at its peak, and what others take."""

from __future__ import annotations

import sys
from bisect import bisect_right
from dataclasses import replace

from stepwatch.estimator.ceilings import SAVED_BYTES_PER_PARAM
from stepwatch.estimator.constants import (
    ADAM_BYTES_PER_PARAM,
    LOSS_POSITIONS,
    MEMORY,
    PADDING,
)
from stepwatch.estimator.workload import Workload
from stepwatch.gpus import Gpu
from stepwatch.units import Interval

_DISPLAYS = frozenset({"geforce", "laptop", "desktop", "titan"})


def vram_bytes(workload: Workload, gpu: Gpu | None = None) -> Interval:
    """Peak memory of one card, including the CUDA context and the reserve for a display."""
    fixed = workload.static_bytes_per_param * workload.n_params + MEMORY.context
    if gpu is not None and gpu.segment in _DISPLAYS:
        fixed += MEMORY.display
    copies = 0.0 if workload.single_precision else MEMORY.autocast_per_param * workload.n_params

    tokens, single = workload.tokens_per_micro_step, workload.single_precision
    per_layer = MEMORY.layer_fp32 if single else MEMORY.layer
    if workload.dropout > 0:
        per_layer += MEMORY.dropout
    if workload.compile is not False:
        per_layer *= MEMORY.compiled_share
    layer = per_layer * workload.n_embd
    if workload.flash is False:
        layer += (MEMORY.score_fp32 if single else MEMORY.score) * workload.n_head * workload.block_size
    activations = tokens * layer * workload.n_layer
    if workload.activation_checkpointing:
        activations = tokens * (MEMORY.recomputed * workload.n_embd * workload.n_layer + layer)

    per_logit = MEMORY.logit if workload.compile is False or single else MEMORY.logit_compiled
    padded = -(-workload.vocab_size // PADDING) * PADDING
    logits = per_logit * tokens * padded
    if workload.chunked_loss:
        # The logits of some positions, and what these add to the head's gradient, which counts among the fixed bytes.
        added = MEMORY.autocast_per_param * padded * workload.n_embd
        logits = min(logits, MEMORY.logit * min(tokens, LOSS_POSITIONS) * padded + added)
    varying = activations + logits + copies
    return Interval(
        fixed + varying * (1 - MEMORY.spread),
        fixed + varying,
        fixed * (1 + MEMORY.fixed_spread) + varying * (1 + MEMORY.spread),
    )


def fits(workload: Workload, gpu: Gpu) -> bool | None:
    """Whether the middle of the estimate is within the card's memory; None if that is unknown."""
    return None if gpu.vram_bytes is None else vram_bytes(workload, gpu).mid <= gpu.vram_bytes


def largest_batch_size(workload: Workload, gpu: Gpu) -> int | None:
    """The largest micro-batch that fits; 0 if not even one sequence does."""
    if gpu.vram_bytes is None:
        return None
    beyond = 1
    while beyond < sys.maxsize and fits(replace(workload, batch_size=beyond), gpu):
        beyond *= 2
    sizes = range(1, min(beyond, sys.maxsize))  # a browser has 32 bits
    return bisect_right(
        sizes, gpu.vram_bytes, lo=beyond // 2, key=lambda size: vram_bytes(replace(workload, batch_size=size), gpu).mid
    )


def checkpoint_bytes(workload: Workload) -> float:
    """Weights and Adam's two moments in fp32, as nanoGPT saves them; gradients are not saved."""
    gradient = ADAM_BYTES_PER_PARAM - SAVED_BYTES_PER_PARAM
    return (workload.static_bytes_per_param - gradient) * workload.n_params
