"""Seconds of one training step, term by term: what is multiplied, what is moved, what is launched, what is sent.

micro-step = max(products on the measured ceiling + bytes over bandwidth, launches)
step       = micro-steps + optimizer + iteration + what of the all-reduce is not hidden behind the backward pass
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from stepwatch.estimator.ceilings import matmul_ceiling
from stepwatch.estimator.constants import Constants
from stepwatch.estimator.workload import Workload, n_params
from stepwatch.gpus import Gpu
from stepwatch.gpus.links import CARDS_PER_NODE, link_bytes_per_s

# Ada and the GeForce and RTX PRO cards of Blackwell keep much of the activations in their large L2 (24 to 128 MB).
LARGE_CACHE = frozenset({(8, 9), (12, 0)})
# FlashAttention-2 reaches 50 to 73 % of an A100's peak, yet 35 % of an H100's (arXiv 2307.08691, 2407.08608).
SLOW_FLASH = frozenset({(9, 0), (10, 0)})
TENSOR_CORES_SINCE = (7, 0)
PADDING = 64  # vocabulary sizes that are no multiple of it miss the fast kernels ...
SMALL_VOCABULARY = 1024  # ... which matters only where the head is a large matrix
BACKWARD_SHARE = 2 / 3
COPY_SHARE = 0.92  # of the nominal bandwidth, what a large copy is taken to reach: no card was at hand to measure it


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
    if workload.dtype in ("float32", "tf32"):
        return "tf32" if gpu.tf32_flops and (workload.tf32 or workload.dtype == "tf32") else "float32"
    return workload.dtype


def machine(workload: Workload, gpu: Gpu, link: str | float | None = None) -> Machine | None:
    """None where the card's speed is not known, as for a CPU."""
    dtype = arithmetic(workload, gpu)
    ceiling = matmul_ceiling(gpu, dtype)
    bandwidth = _bandwidth_bytes_per_s(gpu)
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


def _bandwidth_bytes_per_s(gpu: Gpu) -> float | None:
    """The constants are for the nominal bandwidth; of a measured one it is what the copy would have come from."""
    if gpu.calibration is None:
        return gpu.bandwidth_bytes_per_s
    return gpu.calibration.figures["bandwidth"].value / COPY_SHARE


def step_terms(workload: Workload, machine: Machine, constants: Constants) -> tuple[Term, ...]:
    """The summands of one step on one of the cards, in order; launches count only where they exceed the card's work."""
    micro = _micro_step(workload, machine, constants)
    working = sum(term.seconds for term in micro)
    waiting = max(0.0, _launch_s(workload, constants) - working)
    times = workload.micro_steps
    traffic = constants.optimizer_bytes if workload.fused else constants.unfused_optimizer_bytes
    optimizer = traffic * n_params(workload) / machine.bandwidth_bytes_per_s
    terms = [Term(term.name, term.seconds * times) for term in micro]
    terms += [
        Term("launch", waiting * times),
        Term("optimizer", optimizer),
        Term("iteration", constants.iteration_s),
        Term("communication", communication_s(workload, machine.link_bytes_per_s, constants, working + waiting)),
    ]
    return tuple(terms)


def _micro_step(workload: Workload, machine: Machine, constants: Constants) -> tuple[Term, ...]:
    tokens, depth_width = workload.tokens_per_micro_step, workload.n_layer * workload.n_embd
    per_byte = (constants.large_cache if machine.large_cache else 1.0) / machine.bandwidth_bytes_per_s
    per_byte *= constants.float32_bytes if machine.single_precision else 1.0
    # Activation checkpointing runs the forward pass of the layers once more: a third of forward and backward.
    again = 4 / 3 if workload.activation_checkpointing else 1.0
    head, head_bytes = _head(workload, constants)
    matmul = 72 * depth_width * workload.n_embd * again + head
    efficiency = constants.matmul_efficiency * (1.0 if machine.tensor_cores else constants.no_tensor_cores)
    scores = (
        0.0
        if workload.flash is not False
        else (constants.score_bytes * workload.n_layer * workload.n_head * workload.block_size)
    )
    return (
        Term("matmul", tokens * matmul / (efficiency * machine.matmul_flops)),
        Term("attention", tokens * again * _attention(workload, machine, constants) / machine.matmul_flops),
        Term("elementwise", tokens * again * _layer_bytes(workload, constants) * depth_width * per_byte),
        Term("scores", tokens * again * scores * per_byte),
        Term("logits", tokens * head_bytes * per_byte),
    )


def _head(workload: Workload, constants: Constants) -> tuple[float, float]:
    flops = 6.0 * workload.vocab_size * workload.n_embd
    if workload.vocab_size % PADDING and workload.vocab_size > SMALL_VOCABULARY:
        flops *= constants.unpadded_vocabulary
    eager = constants.eager_vocabulary_bytes if workload.compile is False else 0.0
    return flops, (constants.vocabulary_bytes + eager) * workload.vocab_size


def _attention(workload: Workload, machine: Machine, constants: Constants) -> float:
    """FLOPs per token, weighed by how much slower they run than the products of the layers."""
    flops = 6.0 * workload.n_layer * workload.n_embd * workload.block_size
    if workload.flash is False:
        return 2 * flops / constants.attention_efficiency  # the masked half is computed too
    efficiency = constants.attention_efficiency * (constants.hopper_attention if machine.slow_flash else 1.0)
    # The softmax between the products weighs more for small heads: heads of 128 run about 15 % faster than of 64
    # (FlashAttention-2, figure 4).
    return flops / efficiency * (0.7 + 0.3 * 64 / (workload.n_embd / workload.n_head))


def _layer_bytes(workload: Workload, constants: Constants) -> float:
    total = constants.layer_bytes
    if workload.dropout > 0:
        total += constants.dropout_bytes
    if workload.flash is False:
        total += constants.no_flash_layer_bytes
    if workload.compile is False:
        total += constants.eager_layer_bytes
    return total


def _launch_s(workload: Workload, constants: Constants) -> float:
    per_layer = constants.launch_s_per_layer
    if workload.flash is False:
        per_layer = constants.no_flash_launch_s_per_layer
    elif workload.compile is False:
        per_layer = constants.eager_launch_s_per_layer
    return constants.launch_s + per_layer * workload.n_layer


def communication_s(workload: Workload, link: float, constants: Constants, micro_s: float) -> float:
    """A ring sends each fp32 gradient twice; the backward pass of the last micro-step hides a part of it."""
    cards = workload.world_size
    if cards == 1:
        return 0.0
    sent = 2 * (cards - 1) / cards * 4 * n_params(workload)
    seconds = sent / (constants.link_efficiency * link)
    exposed = max(0.0, seconds - constants.overlap * BACKWARD_SHARE * micro_s)
    nodes = max(1.0, cards / CARDS_PER_NODE)
    # Within a node the buckets and NCCL's kernels cost the same for any number of cards; every doubling of the nodes
    # adds about half as much again (llm-foundry: 9 % from 1 to 16 nodes of A100, 13 % from 1 to 64 of H100).
    waiting = constants.straggling * (1 + math.log2(nodes) / 2)
    return exposed + waiting * micro_s * workload.micro_steps
