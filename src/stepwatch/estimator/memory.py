"""Bytes on the card: what stays, what one micro-step holds at its peak, and what others take."""

from __future__ import annotations

from dataclasses import replace

from stepwatch.estimator.step import PADDING
from stepwatch.estimator.workload import ADAM_BYTES_PER_PARAM, Workload, n_params
from stepwatch.gpus import Gpu
from stepwatch.units import GIGA, Interval

# NANOGPT 5. Autocast keeps a two-byte copy of each weight while the graph needs it.
AUTOCAST_BYTES_PER_PARAM = 2.0
# Per token, layer and unit of width, autocast: norms' inputs 4 + 4, qkv in and out 2 + 6, attention 2, MLP 2 + 8 + 8.
LAYER_BYTES, LAYER_BYTES_FP32 = 36.0, 56.0
DROPOUT_BYTES = 6.0  # masks of one byte, and the outputs that they force to be kept
COMPILED_SHARE = 0.85  # inductor recomputes pointwise results: 0.6 to 0.85, the upper end as the 4070 at batch 16 asks
RECOMPUTED_BYTES = 4.0  # activation checkpointing keeps the input of each layer
SCORE_BYTES, SCORE_BYTES_FP32 = 6.5, 11.0  # per head and pair of positions: 5 to 8 under autocast
# Per logit: bf16, fp32, the softmax and its gradient eager; inductor never holds all of them.
LOGIT_BYTES, LOGIT_BYTES_COMPILED, LOGIT_BYTES_FP32 = 12.0, 6.0, 12.0
CONTEXT_BYTES = 0.5 * GIGA  # 0.3 to 0.6
DISPLAY_BYTES = 0.8 * GIGA  # 0.5 to 1.5 on a card that drives a screen
SPREAD = 0.2  # of the activations and of the allocator's slack; published cases lie within it
_DISPLAYS = frozenset({"geforce", "laptop", "desktop", "titan"})


def vram_bytes(workload: Workload, gpu: Gpu | None = None) -> Interval:
    """Peak memory of one card, context and display's reserve included."""
    fixed = workload.static_bytes_per_param * n_params(workload) + CONTEXT_BYTES
    if gpu is not None and gpu.segment in _DISPLAYS:
        fixed += DISPLAY_BYTES
    varying = _activation_bytes(workload) + _logit_bytes(workload) + _copies(workload)
    return Interval(fixed + varying * (1 - SPREAD), fixed + varying, fixed * 1.05 + varying * (1 + SPREAD))


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
    return (workload.static_bytes_per_param - ADAM_BYTES_PER_PARAM / 4) * n_params(workload)


def _activation_bytes(workload: Workload) -> float:
    single = workload.dtype in ("float32", "tf32")
    tokens = workload.tokens_per_micro_step
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
    per_logit = LOGIT_BYTES if workload.compile is False else LOGIT_BYTES_COMPILED
    if workload.dtype in ("float32", "tf32"):
        per_logit = LOGIT_BYTES_FP32
    padded = -(-workload.vocab_size // PADDING) * PADDING
    return per_logit * workload.tokens_per_micro_step * padded


def _copies(workload: Workload) -> float:
    return 0.0 if workload.dtype in ("float32", "tf32") else AUTOCAST_BYTES_PER_PARAM * n_params(workload)
