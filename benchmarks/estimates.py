"""How good the estimates are before a run: the Markdown of docs/accuracy.md.

    python -m benchmarks.estimates

Step times are judged with every row of the card held out of the fit; evaluations and memory have no fitted constants
of their own. For groups of fewer than ten rows there are no percentages: their rows are listed instead.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import adapter
from benchmarks.fit_estimator import (
    NAMES,
    NO_FLASH,
    OTHER,
    SEVERAL,
    SINGLE,
    UNKNOWN,
    Judged,
    interval_widths,
    judged,
    of_group,
)
from benchmarks.phases import corpus_logs

from stepwatch.estimator.ceilings import SAVE_BYTES_PER_S, SAVED_BYTES_PER_PARAM, forward_share
from stepwatch.estimator.constants import MEMORY
from stepwatch.estimator.estimation import estimate
from stepwatch.estimator.memory import fits, vram_bytes
from stepwatch.estimator.workload import Workload
from stepwatch.gpus import find_gpu
from stepwatch.units import GIGA

DATA = Path(__file__).with_name("data")
FEWEST = 10
INTERVALS_FROM = 30
SHAPE = ("n_layer", "n_head", "n_embd", "vocab_size", "block_size", "batch_size")


def table() -> str:
    """The whole section, in Markdown."""
    parts = [_steps(), _cards(), _communication(), _intervals(), _evaluations(), _corpus(), _memory()]
    return "\n\n".join(parts)


def _read(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def _shape(raw: Mapping[str, str]) -> dict[str, Any]:
    return {name: int(raw[name]) for name in SHAPE}


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _errors(pool: Iterable[Judged]) -> tuple[np.ndarray, np.ndarray]:
    ones = list(pool)
    return np.abs([one.in_sample_error for one in ones]), np.abs([one.error for one in ones])


def _figures(errors: np.ndarray) -> list[str]:
    if len(errors) < FEWEST:
        return ["–", "–", "–"]
    return [f"{np.median(errors):.1%}", f"{np.mean(errors <= 0.15):.0%}", f"{np.mean(errors <= 0.25):.0%}"]


def _steps() -> str:
    pools: dict[str, list[Judged]] = {name: of_group(group) for group, name in NAMES.items()}
    pools["GeForce cards of the first line"] = [one for one in of_group(SINGLE) if one.row.is_geforce]
    rows = []
    for name, pool in pools.items():
        seen, unseen = _errors(pool)
        rows.append([name, str(len(pool)), *_figures(seen), *_figures(unseen), str(int(np.sum(unseen > 0.2)))])
    header = ["step time", "rows", "median, in sample", "≤ 15 %", "≤ 25 %"]
    return _markdown([*header, "median, held out", "≤ 15 %", "≤ 25 %", "rows beyond 20 %"], rows)


def _cards() -> str:
    """The sweep card by card: each card was left out of the fit that judges it."""
    pool = of_group(NO_FLASH)
    rows = []
    for card in sorted({one.row.gpu for one in pool}):
        seen, unseen = _errors(one for one in pool if one.row.gpu == card)
        rows.append([card, str(len(unseen)), _figures(seen)[0], _figures(unseen)[0]])
    return _markdown(["compiled, no flash", "rows", "median, in sample", "median, held out"], rows)


def _communication() -> str:
    pool = of_group(SEVERAL)
    heard = np.median(np.abs([one.error for one in pool]))
    silent = np.median(np.abs([one.silent_error for one in pool]))
    return (
        f"Several cards, held out ({len(pool)} rows): median error {heard:.1%} with the communication term, "
        f"{silent:.1%} without it. Six forms were tried on these few rows, with medians from 11.7% to "
        "13.3%; the differences are chance, and the one kept was not chosen for its median."
    )


def _intervals() -> str:
    widths = interval_widths()
    rows = []
    for group in (SINGLE, NO_FLASH, OTHER, UNKNOWN, SEVERAL):
        pool = of_group(group)
        low, high = widths[group]
        inside = [low <= one.row.measured_s / one.held_out_s <= high for one in pool]
        others = [_covered_by_others(one, pool) for one in pool]
        few = len(pool) < INTERVALS_FROM
        rows.append([
            NAMES[group], str(len(pool)), "–" if few else f"{np.mean(inside):.0%}",
            "–" if few else f"{np.mean(others):.0%}", f"{high / low:.2f}",
        ])  # fmt: skip
    header = ["90 % intervals, held-out rows", "rows", "cover", "cover, widths too from other cards", "high / low"]
    return _markdown(header, rows)


def _covered_by_others(one: Judged, pool: Sequence[Judged]) -> bool:
    """With widths that were also calibrated without the card: what to expect for a card that nobody has measured."""
    ratios = [other.row.measured_s / other.held_out_s for other in pool if other.row.gpu != one.row.gpu]
    low, high = np.quantile(ratios, [0.05, 0.95]) if ratios else (0.0, np.inf)
    return bool(min(low, 1.0) <= one.row.measured_s / one.held_out_s <= max(high, 1.0))


def evaluation_cases() -> list[tuple[Mapping[str, str], float, float]]:
    """Each published evaluation with our estimate, and with our estimate if the step is known."""
    cases: list[tuple[Mapping[str, str], float, float]] = []
    for raw in _read("evaluations.tsv"):
        workload = Workload(
            **_shape(raw), grad_accum=int(raw["gradient_accumulation_steps"]),
            dropout=float(raw["dropout"]), dtype=raw["dtype"], compile=raw["compile"] == "True",
            eval_iters=int(raw["eval_iters"]),
        )  # fmt: skip
        answer = estimate(workload, find_gpu(raw["gpu"]))
        assert answer is not None
        save_s = answer.checkpoint_s.mid if "checkpoint" in raw["what"] else 0.0
        known = answer.eval_s.mid * float(raw["step_s"]) / answer.step_s.mid
        cases.append((raw, answer.eval_s.mid + save_s, known + save_s))
    return cases


def corpus_evaluations(place: Path) -> list[tuple[str, float, float]]:
    """Measured evaluations of real logs whose header shows eval_iters and accumulation, and what they should take.

    Based on the measured step, since most of these logs do not name their card: this tests the share of a forward
    pass.
    """
    found = []
    for log in corpus_logs(place):
        outcome = adapter.explain(log.path, "--no-iterations")
        if outcome.exit_code != 0:
            continue
        for run in json.loads(outcome.stdout)["runs"]:
            case = _corpus_evaluation(run)
            if case is not None:
                found.append((log.ident, *case))
    return found


def _corpus_evaluation(run: Mapping[str, Any]) -> tuple[float, float] | None:
    """Includes the checkpoint if every evaluation of the log has one."""
    settings, costs = run["settings"], run["costs"]
    batches, accumulation, params = (settings[k] for k in ("eval_iters", "gradient_accumulation_steps", "n_params"))
    how = costs["how"].get("eval_s")
    if not batches or not accumulation or how not in ("measured", "modelled"):
        return None
    micro_s = costs["step_s"]["mid"] / max(accumulation / (settings["world_size"] or 1), 1)
    said = 2 * batches * forward_share(settings["compile"]) * micro_s
    if how == "measured":
        return costs["eval_s"]["mid"], said
    both = costs["eval_and_checkpoint_s"]
    return (both["mid"], said + SAVED_BYTES_PER_PARAM * params / SAVE_BYTES_PER_S) if both and params else None


def _corpus() -> str:
    place = adapter.corpus()
    if place is None:
        return "Evaluations of real logs: not measured, the logs are not here."
    cases = corpus_evaluations(place)
    errors = [abs(said / measured - 1) for _, measured, said in cases]
    return (
        "Evaluations of the real logs whose header shows their settings (including the checkpoint if each saves), "
        f"estimated from the measured step: {len(cases)} runs, median error {np.median(errors):.1%}, "
        f"worst {max(errors):.0%}."
    )


def _evaluations() -> str:
    rows = [
        [raw["id"], raw["gpu"], raw["what"], f"{float(raw['seconds']):.2f}", f"{said:.2f}", f"{known:.2f}"]
        for raw, said, known in evaluation_cases()
    ]
    header = ["evaluation", "card", "what was timed", "measured s", "estimated s", "estimated from the measured step s"]
    return _markdown(header, rows)


def memory_cases() -> list[tuple[Mapping[str, str], float, bool | None]]:
    cases: list[tuple[Mapping[str, str], float, bool | None]] = []
    for raw in _read("memory.tsv"):
        workload = Workload(
            **_shape(raw), compile=raw["compile"] == "True", flash=raw["flash"] == "True",
            stated_params=float(raw["n_params"]) if raw["n_params"] else None,
            static_bytes_per_param=float(raw["static_bytes_per_param"]),
        )  # fmt: skip
        gpu = find_gpu(raw["gpu"])
        total = vram_bytes(workload, gpu).mid
        if raw["counts"] == "allocated":  # torch's own count includes neither the context nor the display
            total -= MEMORY.context + MEMORY.display
        cases.append((raw, total / GIGA, fits(workload, gpu)))
    return cases


def _memory() -> str:
    words = {True: "yes", False: "no", None: "–"}
    rows = [
        [raw["case"], raw["gpu"], raw["peak_gb"] or "–", f"{said:.1f}", raw["fits"] or "–", words[verdict]]
        for raw, said, verdict in memory_cases()
    ]
    return _markdown(["memory", "card", "published GB", "estimated GB", "fits, published", "fits, estimated"], rows)


def main() -> None:
    judged()
    print(table())


if __name__ == "__main__":
    main()
