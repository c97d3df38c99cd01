"""A step on a machine that was measured part by part: interpolated between the sizes at which the parts were timed.

The time of a part is a sum of products of its sizes (an overhead, elements, FLOPs), which is linear in each size
alone. So linear interpolation along each axis follows it between the points, and the bends of caches with them.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Sequence
from functools import reduce
from typing import Literal

from stepwatch.estimator.constants import (
    COMPILED_DOUBT,
    FORWARD_AND_BACKWARD,
    LAYER_WEIGHTS,
    MATRICES,
    MOST_DOUBT,
    NOISE_SHARE,
    SEQUENCES,
    TENSORS_SAVED,
)
from stepwatch.estimator.step import Term
from stepwatch.estimator.workload import Workload
from stepwatch.gpus.calibration import Axis, Calibration, Curve

Passes = Literal["forward", "both"]
# Above the last point: what grows in proportion there, and what matters no more, since a row left the cache long ago.
PROPORTIONAL, SATURATED = frozenset({"tokens", "logits", "elements", "block_size"}), frozenset({"vocab_size"})


def measured_terms(workload: Workload, known: Calibration, passes: Passes = "both") -> tuple[Term, ...]:
    """Seconds of a micro-step, or of a forward pass."""
    width, tokens = workload.n_embd, workload.tokens_per_micro_step
    layers = workload.n_layer * _layer_s(workload, known, passes)
    ends = interpolated(known.curves[f"head_{passes}"], (tokens * workload.vocab_size, workload.vocab_size, width))
    ends += interpolated(known.curves[f"embedding_{passes}"], (workload.vocab_size * width,))
    attention, scores = _attention_s(workload, known, passes)
    compiled = known.figures.get("compiled_share") if workload.compile else None
    share = 1.0 if compiled is None else compiled.value
    flops = known.figures["matmul_float32"].value * (1 if passes == "both" else 3)
    per_weight = FORWARD_AND_BACKWARD * tokens
    products = min(per_weight * LAYER_WEIGHTS * width * width * workload.n_layer / flops, layers)
    head = min(per_weight * width * workload.vocab_size / flops, ends)
    return (
        Term("matmul", (products + head) * share),
        Term("attention", attention * share),
        Term("elementwise", (layers - products + _dropout_s(workload, known, passes)) * share),
        Term("scores", scores * share),
        Term("logits", (ends - head) * share),
        Term("iteration", known.figures["batch_sequence"].value * workload.batch_size),
    )


def measured_step(workload: Workload, known: Calibration) -> tuple[Term, ...]:
    """Micro-steps and the optimizer."""
    micro = (Term(name, seconds * workload.micro_steps) for name, seconds in measured_terms(workload, known))
    *work, batch = micro
    return (*work, Term("optimizer", _optimizer_s(workload, known)), batch)


def measured_evaluation_s(workload: Workload, known: Calibration) -> float:
    """2 x eval_iters forward passes."""
    return 2 * workload.eval_iters * sum(term.seconds for term in measured_terms(workload, known, "forward"))


def measured_checkpoint_s(workload: Workload, known: Calibration, size: float) -> float:
    tensors = (12 if workload.bias else 6) * workload.n_layer + (4 if workload.bias else 3)
    return TENSORS_SAVED * tensors * known.figures["save_tensor"].value + size / known.figures["save_rate"].value


def doubt(workload: Workload, known: Calibration, least: float) -> float:
    """Half the width of an interval, as a share of its middle."""
    unmeasured = COMPILED_DOUBT if workload.compile is not False else 0.0
    return min(MOST_DOUBT, math.sqrt(least**2 + (NOISE_SHARE * known.noise) ** 2 + unmeasured**2))


def _layer_s(workload: Workload, known: Calibration, passes: Passes) -> float:
    def once(of: Passes) -> float:
        return interpolated(known.curves[f"layer_{of}"], (workload.tokens_per_micro_step, workload.n_embd), scaled_by=1)

    seconds = once(passes)
    if workload.activation_checkpointing and passes == "both":
        seconds += once("forward")
    return seconds * (max(1.0, known.figures["bias"].value) if workload.bias else 1.0)


def _attention_s(workload: Workload, known: Calibration, passes: Passes) -> tuple[float, float]:
    """Of all layers; with dropout or without flash attention, also what writing the scores out adds."""
    sequences = workload.batch_size * workload.n_head * workload.n_layer / SEQUENCES
    place = (workload.block_size, workload.n_embd / workload.n_head)

    def of(name: str) -> float:
        seconds = interpolated(known.curves[f"{name}_{passes}"], place, scaled_by=0)
        if workload.activation_checkpointing and passes == "both":
            seconds += interpolated(known.curves[f"{name}_forward"], place, scaled_by=0)
        return sequences * seconds

    flash = of("attention")
    written = workload.flash is False or (workload.dropout > 0 and passes == "both")
    return flash, max(0.0, of("scores") - flash) if written else 0.0


def _dropout_s(workload: Workload, known: Calibration, passes: Passes) -> float:
    """After the embeddings, the attention and the MLP of each layer."""
    if workload.dropout <= 0 or passes == "forward":
        return 0.0
    elements = workload.tokens_per_micro_step * workload.n_embd * (2 * workload.n_layer + 1)
    return elements * known.figures["dropout_element"].value


def _optimizer_s(workload: Workload, known: Calibration) -> float:
    def of(elements: float) -> float:
        return interpolated(known.curves["optimizer"], (elements,))

    width = workload.n_embd
    layer = sum(of(squares * width * width) for squares in MATRICES) + 2 * of(width)
    biases = 6 * of(2 * width) if workload.bias else 0.0
    rest = of(workload.vocab_size * width) + of(workload.block_size * width) + of(width)
    shape_s = workload.n_layer * (layer + biases) + rest
    return shape_s * (workload.stated_params or workload.shape_params) / workload.shape_params


# --- interpolation ----------------------------------------------------------------------------------------------


def interpolated(curve: Curve, place: Sequence[float], scaled_by: int | None = None) -> float:
    """Linear along each axis; below the first point the time is that of the first.

    `scaled_by` names an axis in whose square the time grows: divided by it, it is linear again.
    """
    shape = [len(axis.points) for axis in curve.axes]
    times = 1.0 if scaled_by is None else place[scaled_by]
    for axis, value in zip(curve.axes, place, strict=True):
        times *= max(1.0, value / axis.points[-1]) if axis.name in PROPORTIONAL else 1.0
    cells = [_cell(axis, value) for axis, value in zip(curve.axes, place, strict=True)]
    values = rising(curve)
    total = 0.0
    for corner in itertools.product(*cells):
        at = reduce(lambda so_far, step: so_far * step[1] + step[0][0], zip(corner, shape, strict=True), 0)
        weight = reduce(lambda so_far, step: so_far * step[1], corner, 1.0)
        scale = 1.0 if scaled_by is None else curve.axes[scaled_by].points[corner[scaled_by][0]]
        total += weight * values[at] / scale
    return total * times


def _cell(axis: Axis, value: float) -> tuple[tuple[int, float], tuple[int, float]]:
    """The two neighbours of a value with their weights."""
    points = axis.points
    if axis.name in PROPORTIONAL | SATURATED:
        value = min(value, points[-1])
    low = min(max(bisect_right(points, value) - 1, 0), len(points) - 2)
    share = max(0.0, (value - points[low]) / (points[low + 1] - points[low]))
    return (low, 1.0 - share), (low + 1, share)


def rising(curve: Curve) -> list[float]:
    """The figures, none below that of a smaller size: what is more work never takes less time, but for noise."""
    shape = [len(axis.points) for axis in curve.axes]
    values = [figure.value for figure in curve.figures]
    stride = 1
    for length in reversed(shape):
        for place in range(len(values)):
            if place // stride % length:
                values[place] = max(values[place], values[place - stride])
        stride *= length
    return values
