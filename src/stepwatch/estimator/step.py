"""Seconds of one training step, term by term: what is multiplied, what is moved, what is launched, what is sent.

micro-step = max(products on the measured ceiling + bytes over bandwidth, launches)
step       = micro-steps + optimizer + iteration + what of the all-reduce is not hidden behind the backward pass
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from stepwatch.estimator.ceilings import matmul_ceiling
from stepwatch.estimator.constants import (
    FORWARD_AND_BACKWARD,
    LARGE_CACHE,
    LAYER_WEIGHTS,
    PADDING,
    RECOMPUTED,
    SLOW_FLASH,
    SMALL_VOCABULARY,
    STEP,
    TENSOR_CORES_SINCE,
    Constants,
)
from stepwatch.estimator.workload import Workload
from stepwatch.gpus import Gpu
from stepwatch.gpus.links import CARDS_PER_NODE, link_bytes_per_s


class Term(NamedTuple):
    """One summand of the step."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the model needs to know of a card, for one dtype."""

    matmul_flops: float
    ceiling_known: bool
    bandwidth_bytes_per_s: float
    large_cache: bool
    slow_flash: bool
    tensor_cores: bool
    link_bytes_per_s: float
    single_precision: bool


def arithmetic(workload: Workload, gpu: Gpu) -> str:
    """The arithmetic of the matrix products: nanoGPT allows TF32 where float32 was asked for."""
    if workload.single_precision:
        return "tf32" if gpu.tf32_flops and (workload.tf32 or workload.dtype == "tf32") else "float32"
    return workload.dtype


def machine(workload: Workload, gpu: Gpu, link: str | float | None = None) -> Machine | None:
    """None where the card's speed is not known, as for a CPU."""
    dtype = arithmetic(workload, gpu)
    ceiling = matmul_ceiling(gpu, dtype)
    bandwidth = gpu.bandwidth_bytes_per_s
    if gpu.calibration is not None:  # the constants are for the nominal bandwidth, of which a copy reaches a share
        bandwidth = gpu.calibration.figures["bandwidth"].value / STEP.copy_share
    if ceiling is None or not bandwidth:
        return None
    return Machine(
        matmul_flops=ceiling.flops,
        ceiling_known=ceiling.basis != "guess",
        bandwidth_bytes_per_s=bandwidth,
        large_cache=gpu.compute_capability in LARGE_CACHE,
        slow_flash=gpu.compute_capability in SLOW_FLASH,
        tensor_cores=gpu.compute_capability is None or gpu.compute_capability >= TENSOR_CORES_SINCE,
        link_bytes_per_s=link_bytes_per_s(gpu, workload.world_size, link),
        single_precision=dtype in ("float32", "tf32"),
    )


def step_terms(workload: Workload, machine: Machine, constants: Constants) -> tuple[Term, ...]:
    """The summands of one step on one of the cards, in order; launches count only where they exceed the card's work."""
    tokens, depth_width = workload.tokens_per_micro_step, workload.n_layer * workload.n_embd
    eager, written = workload.compile is False, workload.flash is False
    again = RECOMPUTED if workload.activation_checkpointing else 1.0

    # Products on the measured ceiling ...
    head = FORWARD_AND_BACKWARD * workload.vocab_size * workload.n_embd
    if workload.vocab_size % PADDING and workload.vocab_size > SMALL_VOCABULARY:
        head *= constants.unpadded_vocabulary
    products = FORWARD_AND_BACKWARD * LAYER_WEIGHTS * depth_width * workload.n_embd * again + head
    efficiency = constants.matmul_efficiency * (1.0 if machine.tensor_cores else constants.no_tensor_cores)
    attention = FORWARD_AND_BACKWARD * depth_width * workload.block_size  # of the half that the mask leaves
    if written:
        attention = 2 * attention / constants.attention_efficiency
    else:
        slower = constants.hopper_attention if machine.slow_flash else 1.0
        softmax = STEP.softmax_share * STEP.usual_head / (workload.n_embd / workload.n_head)
        attention = attention / (constants.attention_efficiency * slower) * (1 - STEP.softmax_share + softmax)

    # ... and bytes over the bandwidth.
    per_byte = (constants.large_cache if machine.large_cache else 1.0) / machine.bandwidth_bytes_per_s
    per_byte *= constants.float32_bytes if machine.single_precision else 1.0
    layer_bytes = constants.layer_bytes
    layer_bytes += constants.dropout_bytes if workload.dropout > 0 else 0.0
    layer_bytes += constants.no_flash_layer_bytes if written else 0.0
    layer_bytes += constants.eager_layer_bytes if eager else 0.0
    scores = constants.score_bytes * workload.n_layer * workload.n_head * workload.block_size if written else 0.0
    logits = (constants.vocabulary_bytes + (constants.eager_vocabulary_bytes if eager else 0.0)) * workload.vocab_size
    micro = (
        Term("matmul", tokens * products / (efficiency * machine.matmul_flops)),
        Term("attention", tokens * again * attention / machine.matmul_flops),
        Term("elementwise", tokens * again * layer_bytes * depth_width * per_byte),
        Term("scores", tokens * again * scores * per_byte),
        Term("logits", tokens * logits * per_byte),
    )

    working = sum(term.seconds for term in micro)
    per_layer = constants.launch_s_per_layer
    if written:
        per_layer = constants.no_flash_launch_s_per_layer
    elif eager:
        per_layer = constants.eager_launch_s_per_layer
    waiting = max(0.0, constants.launch_s + per_layer * workload.n_layer - working)
    times = workload.micro_steps
    traffic = constants.optimizer_bytes if workload.fused else constants.unfused_optimizer_bytes
    return (
        *(Term(term.name, term.seconds * times) for term in micro),
        Term("launch", waiting * times),
        Term("optimizer", traffic * workload.n_params / machine.bandwidth_bytes_per_s),
        Term("iteration", constants.iteration_s),
        Term("communication", communication_s(workload, machine.link_bytes_per_s, constants, working + waiting)),
    )


def communication_s(workload: Workload, link: float, constants: Constants, micro_s: float) -> float:
    """A ring sends each gradient twice; the backward pass of the last micro-step hides a part of it."""
    cards = workload.world_size
    if cards == 1:
        return 0.0
    sent = 2 * (cards - 1) / cards * STEP.gradient_bytes * workload.n_params
    seconds = sent / (constants.link_efficiency * link)
    exposed = max(0.0, seconds - constants.overlap * STEP.backward_share * micro_s)
    nodes = max(1.0, cards / CARDS_PER_NODE)
    waiting = constants.straggling * (1 + STEP.waiting_per_doubling * math.log2(nodes))
    return exposed + waiting * micro_s * workload.micro_steps
