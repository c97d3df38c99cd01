"""What a run will cost before it runs: step, evaluation, checkpoint, compilation and memory, each as an interval."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from stepwatch.estimator import measured
from stepwatch.estimator.constants import Constants, fitted, widths
from stepwatch.estimator.memory import checkpoint_bytes, fits, largest_batch_size, vram_bytes
from stepwatch.estimator.step import (
    Machine,
    Term,
    arithmetic,
    communication_s,
    machine,
    step_terms,
)
from stepwatch.estimator.workload import (
    Workload,
    flops_per_iteration,
    least_flops_per_iteration,
    n_params,
)
from stepwatch.gpus import Gpu
from stepwatch.gpus.calibration import Calibration
from stepwatch.gpus.catalogue import BOOST_SLACK, DATACENTRE_SLACK
from stepwatch.gpus.links import link_bytes_per_s
from stepwatch.units import GIGA, Interval

__all__ = [
    "Estimate", "Term", "Workload", "estimate", "fits", "floor_step_s", "flops_per_iteration", "largest_batch_size",
    "n_params", "vram_bytes",
]  # fmt: skip

Bound = Literal["compute", "memory", "launch", "communication"]
_BOUNDS: dict[Bound, frozenset[str]] = {
    "compute": frozenset({"matmul", "attention"}),
    "memory": frozenset({"elementwise", "scores", "logits", "optimizer"}),
    "launch": frozenset({"launch", "iteration"}),
    "communication": frozenset({"communication"}),
}

# A forward pass took 0.30 of a compiled micro-step on a 4070, 0.33 on a V100, 0.35 in the median of 48 published logs.
FORWARD_SHARE, FORWARD_SPREAD = 0.32, 0.2
FORWARD_SHARE_EAGER = 0.35  # 0.34 to 0.36 in 13 eager logs of a T4; 0.46 on an A800 whose step is bound by launches
# torch.save, not the disk, sets the pace: 0.65 to 0.9 GB/s on NVMe, 0.26 and less on what is slower.
SAVE_BYTES_PER_S, SLOWEST_SAVE, FASTEST_SAVE = 0.75 * GIGA, 0.26 * GIGA, 0.95 * GIGA
# First iteration minus evaluation and step: 2 s with a warm cache, 7 to 13 s (4070, 6 layers), 21 s (3080 Ti), 29 s
# (V100), 50 s (H200, 48 layers). The host compiles, so that layers matter and the card does not.
COMPILE_S, COMPILE_S_PER_LAYER, WARM_SHARE, COLD_SHARE = 10.0, 0.8, 0.15, 2.5
EAGER_START = Interval(0.2, 1.0, 4.0)


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


def estimate(
    workload: Workload, gpu: Gpu, n_gpus: int | None = None, link: str | float | None = None
) -> Estimate | None:
    """None where nothing is known of the card's speed, as for a CPU; `n_gpus` overrides the workload's world size."""
    if n_gpus is not None and n_gpus != workload.world_size:
        workload = replace(workload, world_size=n_gpus)
    if gpu.segment == "cpu" and gpu.calibration is not None:
        return _on_processor(workload, gpu, gpu.calibration, link)
    known = machine(workload, gpu, link)
    floor_s = floor_step_s(workload, gpu)
    if known is None or floor_s is None:
        return None
    constants = fitted()
    terms = step_terms(workload, known, constants)
    step_s = _interval(sum(term.seconds for term in terms), _kind(workload, known), floor_s)
    return Estimate(
        step_s=step_s,
        eval_s=_evaluation(workload, step_s, terms, constants),
        checkpoint_s=_checkpoint(workload, gpu.calibration),
        compile_s=_compilation(workload, gpu.calibration),
        vram_bytes=vram_bytes(workload, gpu),
        floor_step_s=floor_s,
        bound=_bound(terms),
        terms=terms,
    )


def _on_processor(workload: Workload, gpu: Gpu, known: Calibration, link: str | float | None) -> Estimate:
    """From the parts that were measured; in float32, whatever dtype is asked for, as nanoGPT does without a card."""
    workload = replace(workload, dtype="float32")
    floor_s = floor_step_s(workload, gpu) or 0.0
    terms = measured.measured_step(workload, known)
    rate = link_bytes_per_s(gpu, workload.world_size, link)
    micro_s = sum(term.seconds for term in terms if term.name != "optimizer") / workload.micro_steps
    terms = (*terms, Term("communication", communication_s(workload, rate, fitted(), micro_s)))
    evaluation_s = measured.measured_evaluation_s(workload, known)
    step_doubt = measured.doubt(workload, known, measured.STEP_DOUBT)
    evaluation_doubt = measured.doubt(workload, known, measured.EVALUATION_DOUBT)
    return Estimate(
        step_s=_within(sum(term.seconds for term in terms), step_doubt, floor_s),
        eval_s=_within(evaluation_s, evaluation_doubt),
        checkpoint_s=_checkpoint(workload, known),
        compile_s=_compilation(workload, known),
        vram_bytes=vram_bytes(workload, gpu),
        floor_step_s=floor_s,
        bound=_bound(terms),
        terms=terms,
    )


def _within(mid: float, doubt: float, floor_s: float = 0.0) -> Interval:
    mid = max(mid, floor_s)
    return Interval(max(mid / (1 + doubt), floor_s), mid, mid * (1 + doubt))


def floor_step_s(workload: Workload, gpu: Gpu, n_gpus: int | None = None) -> float | None:
    """No honest step is shorter: the least FLOPs at the highest clock that such a card reaches."""
    if n_gpus is not None:
        workload = replace(workload, world_size=n_gpus)
    peak = _nominal_flops(workload, gpu)
    if not peak:
        return None
    slack = DATACENTRE_SLACK if gpu.segment == "datacentre" else BOOST_SLACK
    return least_flops_per_iteration(workload) / (peak * slack * workload.world_size)


def _nominal_flops(workload: Workload, gpu: Gpu) -> float | None:
    dtype = arithmetic(workload, gpu)
    return gpu.fp32_flops if dtype == "float32" else gpu.peak_flops(dtype).flops


def _kind(workload: Workload, known: Machine) -> str:
    """Which held-out errors tell how wrong this estimate may be."""
    if workload.compile is None or workload.flash is None:
        return "unknown_stack"
    if not workload.compile or known.single_precision:
        return "other"
    if not workload.flash:
        return "no_flash"
    # Of the held-out rows, 20 on cards without a measured ceiling of their own were off by 8.4 % in the median, 29 on
    # measured ones by 8.2 %: kin is as good. Cards of other makers have no kin.
    if not known.ceiling_known:
        return "unknown_card"
    return "several" if workload.world_size > 1 else "single"


def _interval(mid: float, kind: str, floor_s: float) -> Interval:
    low, high = widths()[kind]
    mid = max(mid, floor_s)
    return Interval(max(mid * low, floor_s), mid, mid * high)


def _evaluation(workload: Workload, step_s: Interval, terms: tuple[Term, ...], constants: Constants) -> Interval:
    """2 x eval_iters forward passes on one card, each a share of a micro-step; the launches of a forward are a half."""
    share = FORWARD_SHARE_EAGER if workload.compile is False else FORWARD_SHARE
    outside = {"optimizer", "iteration", "communication"}
    micro_s = sum(term.seconds for term in terms if term.name not in outside) / workload.micro_steps
    again = 0.75 if workload.activation_checkpointing else 1.0  # nothing is recomputed without a backward pass
    mid = 2 * workload.eval_iters * share * again * micro_s
    low, high = step_s.low / step_s.mid, step_s.high / step_s.mid
    return Interval(mid * low / (1 + FORWARD_SPREAD), mid, mid * high * (1 + FORWARD_SPREAD))


def _checkpoint(workload: Workload, known: Calibration | None) -> Interval:
    size = checkpoint_bytes(workload)
    if known is not None:
        mid = measured.measured_checkpoint_s(workload, known, size)
        return Interval(mid * measured.FASTER_SAVE, mid, mid * measured.SLOWER_SAVE)
    return Interval(size / FASTEST_SAVE, size / SAVE_BYTES_PER_S, size / SLOWEST_SAVE)


def _compilation(workload: Workload, known: Calibration | None) -> Interval:
    if workload.compile is False:
        return EAGER_START
    mid = COMPILE_S + COMPILE_S_PER_LAYER * workload.n_layer
    timed = None if known is None else known.figures.get("compile")
    if timed is not None:
        mid *= timed.value / (COMPILE_S + COMPILE_S_PER_LAYER * measured.COMPILED_LAYERS)
        return Interval(mid * measured.WARM_COMPILE, mid, mid * measured.COLD_COMPILE)
    return Interval(mid * WARM_SHARE, mid, mid * COLD_SHARE)


def _bound(terms: tuple[Term, ...]) -> Bound:
    """What takes most of the step; launches count only where the card waits for them."""

    def total(bound: Bound) -> float:
        return sum(term.seconds for term in terms if term.name in _BOUNDS[bound])

    return max(_BOUNDS, key=total)
