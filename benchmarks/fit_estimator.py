"""Fits the estimator's constants to published step times, and says how well they hold for cards it has not seen.

    python -m benchmarks.fit_estimator [--write]

Prints the rows left out and by which rule, the constants with their origins, and the errors in sample and with each
card held out in turn. `--write` puts the constants into src/stepwatch/estimator/constants.tsv, and the held-out errors
into data/held_out.tsv, from which benchmarks/savings.py plants runs. The fit is a maximum a posteriori: absolute log
errors, and a log-normal prior around the published starting value of each constant, so that a constant which few rows
can determine stays where its source puts it.

What the held-out figures do not show: the form of the model was chosen with the table in view. About ten forms were
tried on the single-card rows (terms for SM clocks and for low power limits were dropped). For several cards, six:
one adapter per ring between nodes (13.3 %), a node's adapters shared (12.9 %), waiting per doubling of nodes instead of
cards (11.7 %); then logits at 12 instead of 8 bytes (12.1 %, kept: that is the count of what must be moved), and
`hopper_attention` fitted (13.1 %) or dropped (12.3 %). With fifteen rows these differ by chance; expect 12 to 13 %.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stepwatch.estimator.ceilings import measured_ceilings
from stepwatch.estimator.constants import PLACE, Constants
from stepwatch.estimator.estimation import CardSpeed, card_speed, step_terms
from stepwatch.estimator.workload import Workload
from stepwatch.gpus import find_gpu
from stepwatch.units import MILLI, TERA

TABLE = Path(__file__).with_name("data") / "throughput.tsv"
HELD_OUT = TABLE.with_name("held_out.tsv")
NOISE = 0.1  # the scatter of published figures for one configuration (other clocks, other versions)
ROUNDING = 0.03  # smaller errors count as none

SINGLE, NO_FLASH, OTHER, SEVERAL, UNKNOWN = "single", "no_flash", "other", "several", "unknown_stack"
NAMES = {
    SINGLE: "one card, compiled, flash, bf16 or fp16",
    NO_FLASH: "one card, compiled, no flash (all but two: languini sweep)",
    OTHER: "one card, eager, or fp32 or TF32",
    SEVERAL: "several cards",
    UNKNOWN: "compile or flash not stated",
}


class Prior(NamedTuple):
    """Where a constant starts, how far it may move (standard deviation of its logarithm), and the source of both."""

    centre: float
    spread: float
    origin: str
    stage: str | None  # the group of rows that it is fitted to; None: used as published


# THROUGHPUT is the survey of published runs that data/throughput.tsv is from.
PRIORS: Mapping[str, Prior] = {
    "matmul_efficiency": Prior(1.0, 0.05, "THROUGHPUT 5: e about 1.0 on the measured ceiling", SINGLE),
    "attention_efficiency": Prior(0.7, 0.2, "FlashAttention-2: 50-73 % of an A100's peak", SINGLE),
    "hopper_attention": Prior(0.6, 0.0, "FlashAttention-3: version 2 reaches 35 % of an H100, 60 % of an A100", None),
    "unpadded_vocabulary": Prior(1.8, 0.2, "50257 to 50304: 8.8 ms of 73 on an A100, twice the head's time", SINGLE),
    "layer_bytes": Prior(400.0, 0.2, "THROUGHPUT 4.2: 480-500 with another share of the products", SINGLE),
    "dropout_bytes": Prior(150.0, 0.4, "masks written and read at three places", SINGLE),
    "vocabulary_bytes": Prior(
        12.0, 0.2, "bf16 logits: written, read twice, gradient written and read by two products", SINGLE
    ),
    "large_cache": Prior(0.68, 0.12, "THROUGHPUT 5: 0.5-0.87", SINGLE),
    "optimizer_bytes": Prior(75.0, 0.2, "THROUGHPUT 4.3: 66-75", SINGLE),
    "iteration_s": Prior(2.5e-3, 0.4, "batch, clipping, logging: a few ms that nothing hides", SINGLE),
    "launch_s": Prior(2e-3, 0.3, "NANOGPT 1: 5-10 ms per micro-step of 12 layers", NO_FLASH),
    "launch_s_per_layer": Prior(1e-3, 0.0, "PR 392, 4 layers compiled; not seen to bind elsewhere", None),
    "no_flash_launch_s_per_layer": Prior(4.2e-3, 0.2, "THROUGHPUT 4.1: 4.5-5.3 ms in the sweep", NO_FLASH),
    "score_bytes": Prior(20.0, 0.4, "THROUGHPUT 4.4: tens of bytes", NO_FLASH),
    "no_flash_layer_bytes": Prior(400.0, 0.4, "THROUGHPUT 5: about twice layer_bytes", NO_FLASH),
    "unfused_optimizer_bytes": Prior(110.0, 0.3, "one pass per operation instead of one", NO_FLASH),
    "eager_launch_s_per_layer": Prior(2.0e-3, 0.3, "A800: 18 ms for 6 layers", OTHER),
    "no_tensor_cores": Prior(0.85, 0.2, "small products reach less of their ceiling on Pascal and Maxwell", OTHER),
    "eager_layer_bytes": Prior(600.0, 0.3, "compile gives 1.2-2.3 times on an A100", OTHER),
    "eager_vocabulary_bytes": Prior(12.0, 0.4, "NANOGPT 5: 10-14 bytes of logits held, moved twice", OTHER),
    "float32_bytes": Prior(1.6, 0.15, "four bytes for two, where autocast keeps some in four", OTHER),
    "link_efficiency": Prior(0.6, 0.3, "NCCL bus bandwidth against the data sheet", SEVERAL),
    "overlap": Prior(0.6, 0.2, "DDP sends in buckets during the backward pass", SEVERAL),
    "straggling": Prior(0.03, 0.4, "8 to 128 A100: 1.5-9 % lost; 1 to 8 H100: 1 %; 4 A100: 26 %", SEVERAL),
}
STAGES = (SINGLE, NO_FLASH, OTHER, SEVERAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One published measurement."""

    id: str
    gpu: str
    is_geforce: bool
    group: str
    workload: Workload
    card: CardSpeed
    measured_s: float


# --- the table, and the rules for what is left out ----------------------------------------------------------------


def _whole(raw: Mapping[str, str]) -> bool:
    return all(raw[name] for name in ("n_layer", "n_head", "n_embd", "vocab_size", "block_size", "dtype"))


# In order; a row falls under the first rule that applies.
RULES: Mapping[str, Callable[[Mapping[str, str]], bool]] = {
    "card not named": lambda raw: not raw["gpu"],
    "CPU or Apple: timers not synchronised": lambda raw: raw["gpu"] == "cpu" or "Apple" in raw["gpu"],
    "shape or precision not stated": lambda raw: not _whole(raw),
    "heads do not divide the width": lambda raw: bool(int(raw["n_embd"]) % int(raw["n_head"])),
    "no time published": lambda raw: not raw["ms_per_iter"] and not raw["tokens_per_s"],
    "FP8": lambda raw: raw["dtype"] == "float8",
    "grouped-query attention": lambda raw: raw["attention"] == "grouped",
    "windowed attention": lambda raw: raw["attention"] == "windowed",
    "selective recomputation": lambda raw: raw["recompute"] == "selective",
    "not PyTorch, or layers fused by hand": lambda raw: raw["stack"] == "other",
    "the source itself doubts the figure or the card": lambda raw: raw["caveat"] not in ("", "from the printed MFU"),
    "micro-batch not stated": lambda raw: not raw["batch_size"],
}
ASIDE = "compile or flash not stated (used for the interval of an unknown stack only)"


def left_out(raw: Mapping[str, str]) -> str | None:
    return next((rule for rule, fits in RULES.items() if fits(raw)), None)


@cache
def raw_rows() -> tuple[dict[str, str], ...]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file, delimiter="\t"))


@cache
def rows() -> tuple[Row, ...]:
    """The rows that the model can express."""
    return tuple(_row(raw) for raw in raw_rows() if left_out(raw) is None)


def _row(raw: Mapping[str, str]) -> Row:
    gpu = find_gpu(raw["gpu"])
    workload = _workload(raw)
    card = card_speed(workload, gpu, _link(raw["interconnect"], workload.world_size))
    assert card is not None, raw["id"]
    if raw["ms_per_iter"]:
        seconds = float(raw["ms_per_iter"]) * MILLI
    else:
        seconds = workload.tokens_per_iteration / float(raw["tokens_per_s"])
    return Row(
        id=raw["id"], gpu=gpu.name, is_geforce=gpu.is_geforce, group=_group(workload), workload=workload,
        card=card, measured_s=seconds,
    )  # fmt: skip


def _workload(raw: Mapping[str, str]) -> Workload:
    cards = int(raw["n_gpus"])
    shape: dict[str, Any] = {
        name: int(raw[name]) for name in ("n_layer", "n_head", "n_embd", "vocab_size", "block_size", "batch_size")
    }
    said = {"yes": True, "no": False}
    return Workload(
        **shape, world_size=cards, grad_accum=int(raw["grad_accum"] or 1) * cards,
        dropout=0.2 if raw["dropout"] else 0.0, dtype=raw["dtype"], tf32=raw["dtype"] == "tf32",
        compile=said.get(raw["compile"]), flash=said.get(raw["flash"]),
        fused=raw["fused"] != "no", activation_checkpointing=raw["recompute"] == "full",
        stated_params=float(raw["n_params"]),
    )  # fmt: skip


def _group(workload: Workload) -> str:
    if workload.compile is None or workload.flash is None:
        return UNKNOWN
    if workload.world_size > 1:
        return SEVERAL
    if workload.dtype not in ("bfloat16", "float16") or not workload.compile:
        return OTHER
    return SINGLE if workload.flash else NO_FLASH


def _link(interconnect: str, cards: int) -> str | None:
    if "PCIe" in interconnect:
        return "pcie"
    return "roce" if "1600 Gbps" in interconnect and cards > 8 else None


# --- the fit --------------------------------------------------------------------------------------------------------


def estimated_s(row: Row, constants: Constants, *, communication: bool = True) -> float:
    terms = step_terms(row.workload, row.card, constants)
    return sum(term.seconds for term in terms if communication or term.name != "communication")


def fit(table: Sequence[Row], start: Constants | None = None) -> Constants:
    """One group after the other: each adds the constants that only it can determine, and leaves the others alone."""
    values = {name: prior.centre for name, prior in PRIORS.items()}
    if start is not None:
        values = {name: float(getattr(start, name)) for name in PRIORS}
    for stage in STAGES:
        names = [name for name, prior in PRIORS.items() if prior.stage == stage]
        values |= _fit_stage([row for row in table if row.group == stage], names, values)
    return Constants(**values)


def _fit_stage(table: Sequence[Row], names: Sequence[str], values: Mapping[str, float]) -> dict[str, float]:
    centres = np.log([PRIORS[name].centre for name in names])
    spreads = np.array([PRIORS[name].spread for name in names])
    # Fifty rows of one sweep on one card are not fifty independent observations.
    count = Counter(row.gpu for row in table)
    weights = [1 / (NOISE * math.sqrt(count[row.gpu])) for row in table]

    def unpacked(point: np.ndarray) -> dict[str, float]:
        return dict(zip(names, np.exp(centres + spreads * point).tolist(), strict=True))

    def cost(point: np.ndarray) -> float:
        constants = Constants(**{**values, **unpacked(point)})
        errors = (math.log(estimated_s(row, constants) / row.measured_s) for row in table)
        misfit = sum(weight * math.hypot(error, ROUNDING) for weight, error in zip(weights, errors, strict=True))
        return misfit + float(point @ point) / 2

    start = (np.log([values[name] for name in names]) - centres) / spreads
    return unpacked(nelder_mead(cost, start))


def nelder_mead(cost: Callable[[np.ndarray], float], start: np.ndarray, *, evaluations: int = 900) -> np.ndarray:
    """The downhill simplex with the dimension-dependent coefficients of Gao and Han (2012)."""
    n = len(start)
    expand, contract, shrink = 1 + 2 / n, 0.75 - 0.5 / n, 1 - 1 / n
    simplex = [start, *(start + 0.5 * row for row in np.eye(n))]
    costs = [cost(point) for point in simplex]
    used = len(simplex)
    while used < evaluations:
        order = np.argsort(costs, kind="stable")
        simplex, costs = [simplex[i] for i in order], [costs[i] for i in order]
        if costs[-1] - costs[0] < 1e-4:
            break
        centre = np.mean(simplex[:-1], axis=0)
        step = centre - simplex[-1]
        point = centre + step
        value = cost(point)
        used += 1
        if value < costs[0]:
            further = centre + expand * step
            if (beyond := cost(further)) < value:
                point, value = further, beyond
            used += 1
        elif value >= costs[-2]:
            nearer = centre + (contract if value < costs[-1] else -contract) * step
            point, value = nearer, cost(nearer)
            used += 1
            if value >= costs[-1]:
                simplex = [simplex[0], *(simplex[0] + shrink * (old - simplex[0]) for old in simplex[1:])]
                costs = [costs[0], *(cost(old) for old in simplex[1:])]
                used += n
                continue
        simplex[-1], costs[-1] = point, value
    return simplex[int(np.argmin(costs))]


# --- each card held out ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A row with the model's estimates, fitted with and without its card."""

    row: Row
    in_sample_s: float
    held_out_s: float
    held_out_silent_s: float  # without the communication term

    @property
    def error(self) -> float:
        return self.held_out_s / self.row.measured_s - 1

    @property
    def in_sample_error(self) -> float:
        return self.in_sample_s / self.row.measured_s - 1

    @property
    def silent_error(self) -> float:
        return self.held_out_silent_s / self.row.measured_s - 1


@cache
def fitted_to_all() -> Constants:
    return fit(rows(), fit(rows()))


@cache
def judged() -> tuple[Judged, ...]:
    """Every row, estimated by constants that were fitted without any row of its card."""
    whole = fitted_to_all()
    without = {card: _without(card, whole) for card in {row.gpu for row in rows()}}
    return tuple(
        Judged(
            row=row,
            in_sample_s=estimated_s(row, whole),
            held_out_s=estimated_s(row, without[row.gpu]),
            held_out_silent_s=estimated_s(row, without[row.gpu], communication=False),
        )
        for row in rows()
    )


def _without(card: str, whole: Constants) -> Constants:
    """Only the groups that contain the card change, and those that build on them."""
    touched = {row.group for row in rows() if row.gpu == card}
    return whole if touched == {UNKNOWN} else fit([row for row in rows() if row.gpu != card], whole)


def of_group(group: str) -> list[Judged]:
    return [one for one in judged() if one.row.group == group]


# --- intervals ------------------------------------------------------------------------------------------------------

COVERED = 0.90
UNKNOWN_CARD = 1.25  # how much wider for a card without measured relatives: THROUGHPUT 5, +-30 % against +-20 %


def interval_widths() -> dict[str, tuple[float, float]]:
    """The shortest range of truth over held-out estimate that contains nine of ten; small groups use the nearest."""
    pools = {
        SINGLE: of_group(SINGLE),
        NO_FLASH: of_group(NO_FLASH),
        OTHER: of_group(OTHER),
        SEVERAL: of_group(SEVERAL) + of_group(SINGLE),
        UNKNOWN: of_group(UNKNOWN),
    }
    found = {kind: _quantiles(pool) for kind, pool in pools.items()}
    low, high = found[SINGLE]
    return {**found, "unknown_card": (low**UNKNOWN_CARD, high**UNKNOWN_CARD)}


def _quantiles(pool: Sequence[Judged]) -> tuple[float, float]:
    ratios = np.sort([one.row.measured_s / one.held_out_s for one in pool])
    count = int(np.ceil(COVERED * len(ratios)))
    spans = ratios[count - 1 :] / ratios[: len(ratios) - count + 1]
    first = int(np.argmin(spans))
    return min(float(ratios[first]), 1.0), max(float(ratios[first + count - 1]), 1.0)


# --- the report -----------------------------------------------------------------------------------------------------


def summary(errors: Iterable[float]) -> str:
    sizes = np.abs(list(errors))
    return (
        f"n {len(sizes):3d}  median {np.median(sizes):6.1%}  within 15 %: {np.mean(sizes <= 0.15):4.0%}"
        f"  within 25 %: {np.mean(sizes <= 0.25):4.0%}  worst {sizes.max():4.0%}"
    )


def ceiling_line() -> str:
    """The regression behind `ceilings.ANCHORS` and `ceilings.SLOPE`, to be copied there."""
    points = []
    for (name, dtype), flops in measured_ceilings().items():
        gpu = find_gpu(name)
        peak = gpu.bf16_flops if dtype == "bfloat16" else gpu.fp16_flops
        if dtype in ("float16", "bfloat16") and peak and peak > 20 * TERA and gpu.tdp_w and gpu.compute_capability:
            points.append((gpu.compute_capability, math.log(peak / TERA / gpu.tdp_w), math.log(flops / peak)))
    kinds = sorted({kind for kind, _, _ in points})
    matrix = np.array([[*(kind == own for own in kinds), x] for kind, x, _ in points], dtype=float)
    solution = np.linalg.lstsq(matrix, np.array([y for _, _, y in points]), rcond=None)[0]
    anchors = ", ".join(f"{kind}: {value:.3f}" for kind, value in zip(kinds, solution, strict=False))
    return f"slope {solution[-1]:.3f}, anchors {anchors}"


def report() -> str:
    reasons = Counter(left_out(raw) for raw in raw_rows())
    aside = sum(row.group == UNKNOWN for row in rows())
    lines = [f"{len(raw_rows())} rows, left out:"]
    lines += [f"  {reasons[rule]:4d}  {rule}" for rule in RULES]
    lines += [f"  {aside:4d}  {ASIDE}", f"{len(rows()) - aside} rows fitted", "", f"ceilings: {ceiling_line()}", ""]
    whole = fitted_to_all()
    lines += [f"  {name:28s} {getattr(whole, name):10.4g}  {_origin(name)}" for name in PRIORS]
    for group, name in NAMES.items():
        lines += ["", name, f"  in sample  {summary(one.in_sample_error for one in of_group(group))}"]
        lines += [f"  held out   {summary(one.error for one in of_group(group))}"]
    lines += ["", "several cards, held out, without the communication term"]
    lines += [f"             {summary(one.silent_error for one in of_group(SEVERAL))}"]
    lines += ["", "held out beyond 20 %, one card, compiled, flash:"]
    lines += [f"  {one.row.id} {one.row.gpu} {one.error:+.0%}" for one in of_group(SINGLE) if abs(one.error) > 0.2]
    lines += ["", "truth over estimate, shortest range that holds nine of ten:"]
    lines += [f"  {kind:14s} {low:.3f} to {high:.3f}" for kind, (low, high) in interval_widths().items()]
    return "\n".join(lines)


def _origin(name: str) -> str:
    prior = PRIORS[name]
    if prior.stage is None:
        return f"published: {prior.origin}"
    return f"fitted ({prior.stage}), from {prior.centre:g}: {prior.origin}"


def write() -> None:
    whole = fitted_to_all()
    lines = ["name\tvalue\torigin"]
    lines += [f"{name}\t{getattr(whole, name):.5g}\t{_origin(name)}" for name in PRIORS]
    for kind, (low, high) in interval_widths().items():
        lines += [f"low:{kind}\t{low:.4g}\theld-out errors", f"high:{kind}\t{high:.4g}\theld-out errors"]
    Path(PLACE).write_text("\n".join(lines) + "\n", encoding="utf-8")
    wrong = [f"{one.row.id}\t{one.row.group}\t{one.row.measured_s / one.held_out_s:.4f}" for one in judged()]
    HELD_OUT.write_text("\n".join(["id\tgroup\tmeasured_over_estimated", *wrong]) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the constants and the held-out errors")
    arguments = parser.parse_args()
    print(report())
    if arguments.write:
        write()
        print(f"\nwritten: {PLACE}, {HELD_OUT}")


if __name__ == "__main__":
    main()
