"""A step on a machine that was measured part by part: interpolated between the sizes at which the parts were timed.

The time of a part is a sum of products of its sizes (an overhead, elements, FLOPs), which is linear in each single
size. So linear interpolation along each axis follows it between the points, including the bends due to caches.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Sequence
from functools import reduce
from typing import Literal

from stepwatch.estimator.constants import DOUBT, FORWARD_AND_BACKWARD, LAYER_WEIGHTS, MATRICES
from stepwatch.estimator.estimation import Term
from stepwatch.estimator.workload import Workload
from stepwatch.gpus.calibration import SEQUENCES, Calibration, Curve

Passes = Literal["forward", "both"]
# Above the last point: axes along which the time grows in proportion, and those that no longer matter, since a row is
# far larger than the cache.
PROPORTIONAL, SATURATED = frozenset({"tokens", "logits", "elements", "block_size"}), frozenset({"vocab_size"})


def measured_terms(workload: Workload, known: Calibration, passes: Passes = "both") -> tuple[Term, ...]:
    """Seconds of a micro-step, or of a forward pass."""
    width, tokens, depth = workload.n_embd, workload.tokens_per_micro_step, workload.n_layer
    recomputed = workload.activation_checkpointing and passes == "both"

    def part(name: str, place: tuple[float, float], scaled_by: int) -> float:
        seconds = interpolated(known.curves[f"{name}_{passes}"], place, scaled_by)
        if recomputed:
            seconds += interpolated(known.curves[f"{name}_forward"], place, scaled_by)
        return seconds

    biases = max(1.0, known.figures["bias"].value) if workload.bias else 1.0
    layers = depth * (part("layer", (tokens, width), 1) * biases)
    ends = interpolated(known.curves[f"head_{passes}"], (tokens * workload.vocab_size, workload.vocab_size, width))
    ends += interpolated(known.curves[f"embedding_{passes}"], (workload.vocab_size * width,))

    sequences = workload.batch_size * workload.n_head * depth / SEQUENCES
    place = (workload.block_size, width / workload.n_head)
    attention, scores = sequences * part("attention", place, 0), 0.0
    dropout = workload.dropout > 0 and passes == "both"
    if dropout or workload.flash is False:  # what writing the scores out adds
        scores = max(0.0, sequences * part("scores", place, 0) - attention)
    dropout_s = 0.0
    if dropout:  # after the embeddings, the attention and the MLP of each layer
        dropout_s = tokens * width * (2 * depth + 1) * known.figures["dropout_element"].value

    compiled = known.figures.get("compiled_share") if workload.compile else None
    share = 1.0 if compiled is None else compiled.value
    flops = known.figures["matmul_float32"].value * (1 if passes == "both" else 3)
    per_weight = FORWARD_AND_BACKWARD * tokens
    products = min(per_weight * LAYER_WEIGHTS * width * width * depth / flops, layers)
    head = min(per_weight * width * workload.vocab_size / flops, ends)
    return (
        Term("matmul", (products + head) * share),
        Term("attention", attention * share),
        Term("elementwise", (layers - products + dropout_s) * share),
        Term("scores", scores * share),
        Term("logits", (ends - head) * share),
        Term("iteration", known.figures["batch_sequence"].value * workload.batch_size),
    )


def measured_step(workload: Workload, known: Calibration) -> tuple[Term, ...]:
    """The terms of a step: micro-steps and the optimizer."""

    def updated_s(elements: float) -> float:
        return interpolated(known.curves["optimizer"], (elements,))

    width = workload.n_embd
    layer = sum(updated_s(squares * width * width) for squares in MATRICES) + 2 * updated_s(width)
    biases = 6 * updated_s(2 * width) if workload.bias else 0.0
    rest = updated_s(workload.vocab_size * width) + updated_s(workload.block_size * width) + updated_s(width)
    optimizer_s = workload.n_layer * (layer + biases) + rest
    if workload.is_modern:  # tokens and values have separate tables
        optimizer_s += 2 * updated_s(workload.vocab_size * width)
    optimizer_s = optimizer_s * workload.n_params / workload.shape_params
    optimizer_s += workload.optimizer_flops / known.figures["matmul_float32"].value
    *work, batch = (Term(name, seconds * workload.micro_steps) for name, seconds in measured_terms(workload, known))
    return (*work, Term("optimizer", optimizer_s), batch)


def measured_evaluation_s(workload: Workload, known: Calibration) -> float:
    """2 x eval_iters forward passes."""
    return 2 * workload.eval_iters * sum(term.seconds for term in measured_terms(workload, known, "forward"))


def measured_checkpoint_s(workload: Workload, known: Calibration, size: float) -> float:
    tensors = (12 if workload.bias else 6) * workload.n_layer + (4 if workload.bias else 3)
    files = 4 * tensors  # of each weight: itself, and Adam's two moments and count of steps
    return files * known.figures["save_tensor"].value + size / known.figures["save_rate"].value


def doubt(workload: Workload, known: Calibration, least: float) -> float:
    """Half the width of an interval, as a share of its middle."""
    unmeasured = DOUBT.compiled if workload.compile is not False else 0.0
    return min(DOUBT.most, math.sqrt(least**2 + (DOUBT.times_noise * known.noise) ** 2 + unmeasured**2))


# --- interpolation ----------------------------------------------------------------------------------------------


def interpolated(curve: Curve, place: Sequence[float], scaled_by: int | None = None) -> float:
    """Interpolates linearly along each axis; below the first point the time is that of the first.

    `scaled_by` is an axis along which the time grows with the square: divided by the size, it is linear again.
    """
    shape = [len(axis.points) for axis in curve.axes]
    times = 1.0 if scaled_by is None else place[scaled_by]
    cells = []  # along each axis the two neighbours of the value, with their weights
    for axis, value in zip(curve.axes, place, strict=True):
        points = axis.points
        times *= max(1.0, value / points[-1]) if axis.name in PROPORTIONAL else 1.0
        inside = min(value, points[-1]) if axis.name in PROPORTIONAL | SATURATED else value
        low = min(max(bisect_right(points, inside) - 1, 0), len(points) - 2)
        share = max(0.0, (inside - points[low]) / (points[low + 1] - points[low]))
        cells.append(((low, 1.0 - share), (low + 1, share)))
    values = rising(curve)
    total = 0.0
    for corner in itertools.product(*cells):
        at = reduce(lambda so_far, step: so_far * step[1] + step[0][0], zip(corner, shape, strict=True), 0)
        weight = reduce(lambda so_far, step: so_far * step[1], corner, 1.0)
        scale = 1.0 if scaled_by is None else curve.axes[scaled_by].points[corner[scaled_by][0]]
        total += weight * values[at] / scale
    return total * times


def rising(curve: Curve) -> list[float]:
    """The figures, none below that of a smaller size: more work never takes less time, except for noise."""
    shape = [len(axis.points) for axis in curve.axes]
    values = [figure.value for figure in curve.figures]
    stride = 1
    for length in reversed(shape):
        for place in range(len(values)):
            if place // stride % length:
                values[place] = max(values[place], values[place - stride])
        stride *= length
    return values
