"""What a run will cost before it runs: step, evaluation, checkpoint, compilation and memory, each as an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from stepwatch.estimator.ceilings import (
    FASTEST_SAVE,
    FORWARD_SPREAD,
    SAVE_BYTES_PER_S,
    SLOWEST_SAVE,
    forward_share,
    matmul_ceiling,
)
from stepwatch.estimator.constants import (
    COMPILE,
    DOUBT,
    EAGER_START,
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
    fitted,
    widths,
)
from stepwatch.estimator.memory import checkpoint_bytes, vram_bytes
from stepwatch.estimator.own_runs import corrected
from stepwatch.estimator.workload import Workload, least_flops_per_iteration
from stepwatch.gpus import Gpu
from stepwatch.gpus.links import CARDS_PER_NODE, link_bytes_per_s
from stepwatch.units import Z90, Interval

if TYPE_CHECKING:
    from stepwatch.gpus.calibration import Calibration


# --- one training step, term by term ----------------------------------------------------------------------------


class Term(NamedTuple):
    """One summand of the step."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSpeed:
    """What the model needs to know about a card, for one dtype."""

    matmul_flops: float
    ceiling_known: bool
    bandwidth_bytes_per_s: float
    large_cache: bool
    slow_flash: bool
    tensor_cores: bool
    link_bytes_per_s: float
    single_precision: bool


def arithmetic(workload: Workload, gpu: Gpu) -> str:
    """The arithmetic of the matrix products: nanoGPT allows TF32 if float32 was asked for."""
    if workload.single_precision:
        return "tf32" if gpu.tf32_flops and (workload.tf32 or workload.dtype == "tf32") else "float32"
    return workload.dtype


def card_speed(workload: Workload, gpu: Gpu, link: str | float | None = None) -> CardSpeed | None:
    """The speed of the card for this workload; None if unknown, as for a CPU."""
    dtype = arithmetic(workload, gpu)
    ceiling = matmul_ceiling(gpu, dtype)
    bandwidth = gpu.bandwidth_bytes_per_s
    if gpu.calibration is not None:  # the constants are for the nominal bandwidth, of which a copy reaches a share
        bandwidth = gpu.calibration.figures["bandwidth"].value / STEP.copy_share
    if ceiling is None or not bandwidth:
        return None
    return CardSpeed(
        matmul_flops=ceiling.flops,
        ceiling_known=ceiling.basis != "guess",
        bandwidth_bytes_per_s=bandwidth,
        large_cache=gpu.compute_capability in LARGE_CACHE,
        slow_flash=gpu.compute_capability in SLOW_FLASH,
        tensor_cores=gpu.compute_capability is None or gpu.compute_capability >= TENSOR_CORES_SINCE,
        link_bytes_per_s=link_bytes_per_s(gpu, workload.world_size, link),
        single_precision=dtype in ("float32", "tf32"),
    )


def step_terms(workload: Workload, card: CardSpeed, constants: Constants) -> tuple[Term, ...]:
    """The summands of one step on one of the cards, in order; launches count only if they exceed the card's work."""
    tokens, depth_width = workload.tokens_per_micro_step, workload.n_layer * workload.n_embd
    eager, written = workload.compile is False, workload.flash is False
    again = RECOMPUTED if workload.activation_checkpointing else 1.0

    # Products on the measured ceiling ...
    head = FORWARD_AND_BACKWARD * workload.vocab_size * workload.n_embd
    if workload.vocab_size % PADDING and workload.vocab_size > SMALL_VOCABULARY:
        head *= constants.unpadded_vocabulary
    products = FORWARD_AND_BACKWARD * LAYER_WEIGHTS * depth_width * workload.n_embd * again + head
    efficiency = constants.matmul_efficiency * (1.0 if card.tensor_cores else constants.no_tensor_cores)
    attention = FORWARD_AND_BACKWARD * depth_width * workload.block_size  # of the half that the mask leaves
    if written:
        attention = 2 * attention / constants.attention_efficiency
    else:
        slower = constants.hopper_attention if card.slow_flash else 1.0
        softmax = STEP.softmax_share * STEP.usual_head / (workload.n_embd / workload.n_head)
        attention = attention / (constants.attention_efficiency * slower) * (1 - STEP.softmax_share + softmax)

    # ... and bytes over the bandwidth.
    per_byte = (constants.large_cache if card.large_cache else 1.0) / card.bandwidth_bytes_per_s
    per_byte *= constants.float32_bytes if card.single_precision else 1.0
    layer_bytes = constants.layer_bytes
    layer_bytes += constants.dropout_bytes if workload.dropout > 0 else 0.0
    layer_bytes += constants.no_flash_layer_bytes if written else 0.0
    layer_bytes += constants.eager_layer_bytes if eager else 0.0
    scores = constants.score_bytes * workload.n_layer * workload.n_head * workload.block_size if written else 0.0
    logits = (constants.vocabulary_bytes + (constants.eager_vocabulary_bytes if eager else 0.0)) * workload.vocab_size
    micro = (
        Term("matmul", tokens * products / (efficiency * card.matmul_flops)),
        Term("attention", tokens * again * attention / card.matmul_flops),
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
    updates = traffic * workload.n_params / card.bandwidth_bytes_per_s
    updates += workload.optimizer_flops / (efficiency * card.matmul_flops)
    return (
        *(Term(term.name, term.seconds * times) for term in micro),
        Term("launch", waiting * times),
        Term("optimizer", updates),
        Term("iteration", constants.iteration_s),
        Term("communication", communication_s(workload, card.link_bytes_per_s, constants, working + waiting)),
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


# --- all parts of a run -----------------------------------------------------------------------------------------


Bound = Literal["compute", "memory", "launch", "communication"]
_BOUNDS: dict[Bound, frozenset[str]] = {
    "compute": frozenset({"matmul", "attention"}),
    "memory": frozenset({"elementwise", "scores", "logits", "optimizer"}),
    "launch": frozenset({"launch", "iteration"}),
    "communication": frozenset({"communication"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Intervals hold the truth in 90 % of the cases; `terms` sum to `step_s.mid`, unless the floor is higher."""

    step_s: Interval
    eval_s: Interval
    checkpoint_s: Interval
    compile_s: Interval
    vram_bytes: Interval
    floor_step_s: float
    bound: Bound
    terms: tuple[Term, ...]
    own_runs: int = 0
    """How many of the user's own runs it was corrected by."""


def estimate(
    workload: Workload, gpu: Gpu, n_gpus: int | None = None, link: str | float | None = None
) -> Estimate | None:
    """None if nothing is known about the card's speed, as for a CPU; `n_gpus` overrides the workload's world size."""
    if n_gpus is not None:
        workload = replace(workload, world_size=n_gpus)
    if gpu.segment == "cpu" and gpu.calibration is not None:
        return _on_processor(workload, gpu, gpu.calibration, link)
    card = card_speed(workload, gpu, link)
    floor_s = floor_step_s(workload, gpu)
    if card is None or floor_s is None:
        return None
    terms = step_terms(workload, card, fitted())
    low, high = widths()[_kind(workload, card)]
    mid = max(sum(term.seconds for term in terms), floor_s)
    step_s = Interval(max(mid * low, floor_s), mid, mid * high)

    # 2 x eval_iters forward passes on one card, each a share of a micro-step; the errors of the two are independent.
    outside = {"optimizer", "iteration", "communication"}
    micro_s = sum(term.seconds for term in terms if term.name not in outside) / workload.micro_steps
    again = RECOMPUTED if workload.activation_checkpointing else 1.0  # nothing is recomputed without a backward pass
    eval_s = 2 * workload.eval_iters * forward_share(workload.compile) / again * micro_s
    faster, slower = (
        math.exp(math.hypot(math.log(end / mid), Z90 * FORWARD_SPREAD)) for end in (step_s.low, step_s.high)
    )
    found = Estimate(
        step_s=step_s,
        eval_s=Interval(eval_s / faster, eval_s, eval_s * slower),
        checkpoint_s=_checkpoint(workload, gpu.calibration),
        compile_s=_compilation(workload, gpu.calibration),
        vram_bytes=vram_bytes(workload, gpu),
        floor_step_s=floor_s,
        bound=_bound(terms),
        terms=terms,
    )
    return corrected(found, workload, gpu)


def _on_processor(workload: Workload, gpu: Gpu, calibration: Calibration, link: str | float | None) -> Estimate:
    """From the parts that were measured; in float32 for any dtype, as nanoGPT does without a card."""
    from stepwatch.estimator.measured import doubt, measured_evaluation_s, measured_step

    workload = replace(workload, dtype="float32")
    floor_s = floor_step_s(workload, gpu) or 0.0
    terms = measured_step(workload, calibration)
    rate = link_bytes_per_s(gpu, workload.world_size, link)
    micro_s = sum(term.seconds for term in terms if term.name != "optimizer") / workload.micro_steps
    terms = (*terms, Term("communication", communication_s(workload, rate, fitted(), micro_s)))
    step_s = max(sum(term.seconds for term in terms), floor_s)
    evaluation_s = measured_evaluation_s(workload, calibration)
    slower, eval_slower = (1 + doubt(workload, calibration, least) for least in (DOUBT.step, DOUBT.evaluation))
    # Parts that were measured while other programs ran may be faster on an idle machine, by the factor they waited.
    waiting = calibration.waiting
    faster, eval_faster, floor_s = slower * waiting, eval_slower * waiting, floor_s / waiting
    return Estimate(
        step_s=Interval(max(step_s / faster, floor_s), step_s, step_s * slower),
        eval_s=Interval(evaluation_s / eval_faster, evaluation_s, evaluation_s * eval_slower),
        checkpoint_s=_checkpoint(workload, calibration),
        compile_s=_compilation(workload, calibration),
        vram_bytes=vram_bytes(workload, gpu),
        floor_step_s=floor_s,
        bound=_bound(terms),
        terms=terms,
    )


def floor_step_s(workload: Workload, gpu: Gpu) -> float | None:
    """No real step is shorter: the least FLOPs at the highest clock that such a card reaches."""
    dtype = arithmetic(workload, gpu)
    peak = gpu.fp32_flops if dtype == "float32" else gpu.peak_flops(dtype).flops
    if not peak:
        return None
    return least_flops_per_iteration(workload) / (peak * gpu.boost_slack * workload.world_size)


def _kind(workload: Workload, card: CardSpeed) -> str:
    """Which held-out errors show how wrong this estimate may be."""
    if workload.compile is None or workload.flash is None:
        return "unknown_stack"
    if not workload.compile or card.single_precision:
        return "other"
    if not workload.flash:
        return "no_flash"
    # Of the held-out rows, 20 on cards without their own measured ceiling were off by 8.4 % in the median, 29 on
    # measured ones by 8.2 %: a similar card is as good. Cards of other makers have none.
    if not card.ceiling_known:
        return "unknown_card"
    return "several" if workload.world_size > 1 else "single"


def _checkpoint(workload: Workload, calibration: Calibration | None) -> Interval:
    size = checkpoint_bytes(workload)
    if calibration is not None:
        from stepwatch.estimator.measured import measured_checkpoint_s

        mid = measured_checkpoint_s(workload, calibration, size)
        return Interval(mid * DOUBT.faster_save, mid, mid * DOUBT.slower_save)
    return Interval(size / FASTEST_SAVE, size / SAVE_BYTES_PER_S, size / SLOWEST_SAVE)


def _compilation(workload: Workload, calibration: Calibration | None) -> Interval:
    if workload.compile is False:
        return EAGER_START
    mid = COMPILE.base_s + COMPILE.per_layer_s * workload.n_layer
    timed = None if calibration is None else calibration.figures.get("compile")
    if timed is not None:
        from stepwatch.gpus.calibration import COMPILED_LAYERS

        mid *= timed.value / (COMPILE.base_s + COMPILE.per_layer_s * COMPILED_LAYERS)
    return Interval(mid * COMPILE.warm, mid, mid * COMPILE.cold)


def _bound(terms: tuple[Term, ...]) -> Bound:
    """What takes most of the step; launches count only if the card waits for them."""

    def total(bound: Bound) -> float:
        return sum(term.seconds for term in terms if term.name in _BOUNDS[bound])

    return max(_BOUNDS, key=total)
