"""Bytes on the card: what stays, what one micro-step holds at its peak, and what others take."""

from __future__ import annotations

from dataclasses import replace

from stepwatch.estimator.constants import (
    ADAM_BYTES_PER_PARAM,
    AUTOCAST_BYTES_PER_PARAM,
    COMPILED_SHARE,
    CONTEXT_BYTES,
    DISPLAY_BYTES,
    DROPOUT_BYTES,
    FIXED_SPREAD,
    LAYER_BYTES,
    LAYER_BYTES_FP32,
    LOGIT_BYTES,
    LOGIT_BYTES_COMPILED,
    MEMORY_SPREAD,
    PADDING,
    RECOMPUTED_BYTES,
    SAVED_BYTES_PER_PARAM,
    SCORE_BYTES,
    SCORE_BYTES_FP32,
)
from stepwatch.estimator.workload import Workload
from stepwatch.gpus import Gpu
from stepwatch.units import Interval

_DISPLAYS = frozenset({"geforce", "laptop", "desktop", "titan"})


def vram_bytes(workload: Workload, gpu: Gpu | None = None) -> Interval:
    """Peak memory of one card, context and display's reserve included."""
    fixed = workload.static_bytes_per_param * workload.n_params + CONTEXT_BYTES
    if gpu is not None and gpu.segment in _DISPLAYS:
        fixed += DISPLAY_BYTES
    copies = 0.0 if workload.single_precision else AUTOCAST_BYTES_PER_PARAM * workload.n_params
    varying = _activation_bytes(workload) + _logit_bytes(workload) + copies
    return Interval(
        fixed + varying * (1 - MEMORY_SPREAD),
        fixed + varying,
        fixed * (1 + FIXED_SPREAD) + varying * (1 + MEMORY_SPREAD),
    )


def fits(workload: Workload, gpu: Gpu) -> bool | None:
    """The middle of the estimate is within the card's memory; None where that is unknown."""
    return None if gpu.vram_bytes is None else vram_bytes(workload, gpu).mid <= gpu.vram_bytes


def largest_batch_size(workload: Workload, gpu: Gpu) -> int | None:
    """The largest micro-batch that fits; 0 where not even one sequence does."""
    if gpu.vram_bytes is None:
        return None
    one, two = (vram_bytes(replace(workload, batch_size=size), gpu).mid for size in (1, 2))
    return max(0, 1 + int((gpu.vram_bytes - one) / (two - one))) if one <= gpu.vram_bytes else 0


def checkpoint_bytes(workload: Workload) -> float:
    """Weights and Adam's two moments in fp32, as nanoGPT saves them; gradients are not saved."""
    gradient = ADAM_BYTES_PER_PARAM - SAVED_BYTES_PER_PARAM
    return (workload.static_bytes_per_param - gradient) * workload.n_params


def _activation_bytes(workload: Workload) -> float:
    tokens, single = workload.tokens_per_micro_step, workload.single_precision
    per_layer = LAYER_BYTES_FP32 if single else LAYER_BYTES
    if workload.dropout > 0:
        per_layer += DROPOUT_BYTES
    if workload.compile is not False:
        per_layer *= COMPILED_SHARE
    layer = per_layer * workload.n_embd
    if workload.flash is False:
        layer += (SCORE_BYTES_FP32 if single else SCORE_BYTES) * workload.n_head * workload.block_size
    if workload.activation_checkpointing:
        return tokens * (RECOMPUTED_BYTES * workload.n_embd * workload.n_layer + layer)
    return tokens * layer * workload.n_layer


def _logit_bytes(workload: Workload) -> float:
    whole = workload.compile is False or workload.single_precision
    per_logit = LOGIT_BYTES if whole else LOGIT_BYTES_COMPILED
    padded = -(-workload.vocab_size // PADDING) * PADDING
    return per_logit * workload.tokens_per_micro_step * padded
