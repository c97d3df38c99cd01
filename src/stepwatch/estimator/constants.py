"""The physical and fitted constants of a step, its start and its memory, each with its source.

NANOGPT and THROUGHPUT are collections of published measurements. Fitted constants are data: `constants.tsv`, written by
benchmarks/fit_estimator.py, each row with its origin.
"""

from __future__ import annotations

import os
from functools import cache
from typing import NamedTuple

from stepwatch.units import GIGA, Interval

# --- work ---------------------------------------------------------------------------------------------------------

MATRICES = (3, 1, 4, 4)  # of a layer, in squares of its width: queries, keys and values; their output; two of the MLP
LAYER_WEIGHTS = sum(MATRICES)
FORWARD_AND_BACKWARD = 6.0  # FLOPs per weight and token: 2 forward, 4 backward
PADDING = 64  # vocabulary sizes that are no multiple of it miss the fast kernels (nanoGPT: 50257 to 50304) ...
SMALL_VOCABULARY = 1024  # ... which matters only if the head is a large matrix

# --- the step (estimation.py) ---------------------------------------------------------------------------------------

# Ada and the GeForce and RTX PRO cards of Blackwell keep much of the activations in their large L2 (24 to 128 MB).
LARGE_CACHE = frozenset({(8, 9), (12, 0)})
# FlashAttention-2 reaches 50 to 73 % of an A100's peak, but 35 % of an H100's (arXiv 2307.08691, 2407.08608).
SLOW_FLASH = frozenset({(9, 0), (10, 0)})
TENSOR_CORES_SINCE = (7, 0)
RECOMPUTED = 4 / 3  # activation checkpointing runs the forward pass, a third of both, once more


class StepPhysics(NamedTuple):
    """What is the same on every card."""

    # The softmax between the products weighs more for small heads: heads of 128 run about 15 % faster than of 64
    # (FlashAttention-2, figure 4).
    softmax_share: float = 0.3
    usual_head: int = 64
    backward_share: float = 2 / 3
    copy_share: float = 0.92  # of the nominal bandwidth, by a large copy: assumed, no card was available to measure it
    gradient_bytes: int = 4  # all-reduced in fp32
    # Within a node the buckets and NCCL's kernels cost the same for any number of cards; every doubling of the nodes
    # adds about half as much again (llm-foundry: 9 % from 1 to 16 nodes of A100, 13 % from 1 to 64 of H100).
    waiting_per_doubling: float = 0.5


STEP = StepPhysics()

# --- the first iteration --------------------------------------------------------------------------------------------


class CompileTimes(NamedTuple):
    """First iteration minus evaluation and step; the host compiles, so layers matter but the card does not.

    2 s with a warm cache, 7 to 13 s (4070, 6 layers), 21 s (3080 Ti), 29 s (V100), 50 s (H200, 48 layers).
    """

    base_s: float = 10.0
    per_layer_s: float = 0.8
    warm: float = 0.15  # a factor of the middle, like cold
    cold: float = 2.5


COMPILE = CompileTimes()
EAGER_START = Interval(0.2, 1.0, 4.0)

# --- memory (NANOGPT 5) ---------------------------------------------------------------------------------------------

ADAM_BYTES_PER_PARAM = 16.0  # fp32 weight, gradient and two moments
LOSS_POSITIONS = 2048  # whose logits `stepwatch train` computes at a time on a card: ON_CARD in trainer/loss.py


class MemoryBytes(NamedTuple):
    """Bytes of one card; those of a layer are per token and unit of width."""

    autocast_per_param: float = 2.0  # a two-byte copy of each weight while the graph needs it
    layer: float = 36.0  # autocast: norms' inputs 4 + 4, qkv in and out 2 + 6, attention 2, MLP 2 + 8 + 8
    layer_fp32: float = 56.0
    dropout: float = 6.0  # masks of one byte, and the outputs that they force to be kept
    # inductor recomputes pointwise results: 0.6 to 0.85, the upper end as needed by the 4070 at batch 16
    compiled_share: float = 0.85
    recomputed: float = 4.0  # activation checkpointing keeps the input of each layer
    score: float = 6.5  # per head and pair of positions: 5 to 8 under autocast
    score_fp32: float = 11.0
    logit: float = 12.0  # bf16, fp32, the softmax and its gradient eager ...
    logit_compiled: float = 6.0  # ... inductor never holds all of them
    context: float = 0.5 * GIGA  # 0.3 to 0.6
    display: float = 0.8 * GIGA  # 0.5 to 1.5 on a card that drives a screen
    spread: float = 0.2  # of the activations and of the allocator's slack; published cases are within it
    fixed_spread: float = 0.05


MEMORY = MemoryBytes()

# --- a machine that was measured (measured.py) ----------------------------------------------------------------------


class MeasuredDoubt(NamedTuple):
    """How far the truth may be from the estimate in nine of ten cases on an idle machine; measured noise adds to it.

    Chosen by eye on the shapes that benchmarks/calibration.py calls seen and other, not fitted.
    """

    step: float = 0.15
    evaluation: float = 0.18
    compiled: float = 0.3
    most: float = 0.8
    times_noise: float = 1.5
    # Small checkpoints took up to 1.7 times the estimate in the runs of benchmarks/calibration.py, held-out included.
    faster_save: float = 0.75
    slower_save: float = 1.75


DOUBT = MeasuredDoubt()

# --- fitted ---------------------------------------------------------------------------------------------------------

PLACE = os.path.join(os.path.dirname(__file__), "constants.tsv")


class Constants(NamedTuple):
    """Effective numbers, not physics: they trade off against each other, and are valid only together.

    Bytes are of memory traffic: per token, layer and unit of width; per token and vocabulary entry; per token, layer,
    head and position of the block; per parameter and iteration.
    """

    matmul_efficiency: float
    no_tensor_cores: float
    attention_efficiency: float
    hopper_attention: float
    unpadded_vocabulary: float
    layer_bytes: float
    dropout_bytes: float
    vocabulary_bytes: float
    eager_layer_bytes: float
    eager_vocabulary_bytes: float
    float32_bytes: float
    score_bytes: float
    no_flash_layer_bytes: float
    large_cache: float
    optimizer_bytes: float
    unfused_optimizer_bytes: float
    launch_s: float
    launch_s_per_layer: float
    eager_launch_s_per_layer: float
    no_flash_launch_s_per_layer: float
    iteration_s: float
    link_efficiency: float
    overlap: float
    straggling: float


@cache
def _rows() -> dict[str, float]:
    with open(PLACE, encoding="utf-8") as table:
        _, *lines = table.read().splitlines()
    return {name: float(value) for name, value, *_ in (line.split("\t") for line in lines)}


@cache
def fitted() -> Constants:
    """The fitted constants."""
    return Constants(**{name: _rows()[name] for name in Constants._fields})


@cache
def widths() -> dict[str, tuple[float, float]]:
    """Truth over estimate, at the low and the high end of 90 %, for each kind of estimate."""
    rows = _rows()
    kinds = [name.removeprefix("low:") for name in rows if name.startswith("low:")]
    return {kind: (rows[f"low:{kind}"], rows[f"high:{kind}"]) for kind in kinds}
