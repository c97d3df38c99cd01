"""One run in the JSON form of a report, per docs/json.md."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from stepwatch.analysis import Analysis
from stepwatch.analysis.phases import CERTAINTY_NAMES, PHASE_NAMES
from stepwatch.analysis.ranks import ranks_json
from stepwatch.analysis.recorded import parts_of_steps
from stepwatch.i18n import clean
from stepwatch.run.more import Understood
from stepwatch.settings import PRIVATE
from stepwatch.units import TERA, interval_json, plain_json

SCHEMA = "stepwatch.report/1"
_TOGETHER = 1 << 12
"""How many iterations are objects at a time: as objects they take many times the memory of the columns."""

# Settings that are always in the JSON, null if unknown.
_STATED = (
    *("log_interval", "eval_interval", "eval_iters", "max_iters", "tokens_per_iter", "n_params", "batch_size"),
    *("block_size", "gradient_accumulation_steps", "n_layer", "n_head", "n_embd", "vocab_size"),
    *("always_save_checkpoint", "dtype", "compile", "world_size"),
)


def settings_json(analysis: Analysis) -> tuple[dict[str, Any], dict[str, str]]:
    values: dict[str, Any] = dict.fromkeys(_STATED)
    origins: dict[str, str] = {}
    for name, setting in analysis.run.settings.items():
        if name not in PRIVATE:
            values[name] = setting.value
            origins[name] = setting.origin.value
    if values["eval_interval"] is None and analysis.phases.eval_interval:
        values["eval_interval"] = analysis.phases.eval_interval
        origins["eval_interval"] = "inferred"
    return values, origins


def iterations_json(analysis: Analysis) -> Iterator[list[dict[str, Any]]]:
    """All iterations, a batch at a time."""
    iterations, phases, split = analysis.run.iterations, analysis.phases, analysis.split
    names = ["step", "data", "eval", "checkpoint", "compile", "unexplained"]
    if analysis.costs.data_s is None:
        names.remove("data")
    for begin in range(0, len(iterations), _TOGETHER):
        rows = slice(begin, begin + _TOGETHER)
        columns: list[Any] = [iterations.number, iterations.time_s, phases.phase, phases.certainty]
        parts = [split.column_s(name, rows).tolist() for name in names]
        yield [
            {
                "iter": number,
                "time_s": time_s,
                "phase": PHASE_NAMES[phase],
                "certainty": CERTAINTY_NAMES[certainty],
                "parts": dict(zip(names, seconds, strict=True)),
            }
            for number, time_s, phase, certainty, *seconds in zip(
                *(column[rows].tolist() for column in columns), *parts, strict=True
            )
        ]


def run_json(analysis: Analysis, texts: Mapping[str, Any], iterations: Mapping[str, Any]) -> dict[str, Any]:
    """One entry of `runs`; `texts` contains the sentences, already in the reader's language."""
    settings, origins = settings_json(analysis)
    costs, goodput, forecast = analysis.costs, analysis.goodput, analysis.forecast
    document: dict[str, Any] = {
        "source": analysis.run.source,
        "format": analysis.run.format,
        "settings": settings,
        "origins": origins,
        **iterations,
    }
    waiting = {} if costs.data_s is None else {"data_s": interval_json(costs.data_s)}
    document |= {
        "costs": {
            "step_s": interval_json(costs.step_s),
            **waiting,
            "eval_s": interval_json(costs.eval_s),
            "checkpoint_s": interval_json(costs.checkpoint_s),
            "compile_s": interval_json(costs.compile_s),
            "eval_and_checkpoint_s": interval_json(costs.pair_s),
            "step_spread_s": analysis.step_spread_s and dict(zip(("p5", "p95"), analysis.step_spread_s, strict=True)),
            "how": dict(costs.how),
        },
        "throughput": _throughput_json(analysis),
        "goodput": {
            "wall_s": plain_json(goodput.wall_s),
            "wall_interval_s": interval_json(goodput.interval_s),
            "parts_s": {name: None if value is None else plain_json(value) for name, value in analysis.parts_s.items()},
            "iterations": goodput.iterations,
            "by_clock": goodput.by_clock,
        },
        "forecast": None,
        "per_thousand_iterations_s": interval_json(forecast.per_thousand_s),
        "unread_lines": analysis.run.unread_count + analysis.run.outside_count,
        **texts,
    }
    if forecast.total_s is not None:
        document["forecast"] = {
            "done": forecast.done,
            "total_s": interval_json(forecast.total_s),
            "remaining_s": interval_json(forecast.remaining_s),
            "basis": forecast.basis,
            "max_iters": forecast.max_iters,
            "last_iteration": forecast.last_iteration,
            "evaluations_ahead": forecast.evals_ahead,
        }
    parts = parts_of_steps(analysis)
    if parts:
        document["step_parts_s"] = {name: plain_json(took) for name, took in parts.items()}
    use = analysis.machine
    if use is not None:
        document["machine"] = {
            "clock": use.clock.value,
            "samples": len(use.samples),
            "causes": [cause.code for cause in use.causes],
            "machine": {name: plain_json(mean) for name, mean in use.levels(use.samples.machine).items()},
            "cards": [
                {"index": card.number, "name": card.name}
                | {name: plain_json(mean) for name, mean in use.levels(card.columns).items()}
                for card in use.samples.cards
            ],
        }
    if analysis.bill is not None:
        figures = ("energy_j", "cost", "cost_per_million_tokens")
        document["bill"] = {name: interval_json(getattr(analysis.bill, name)) for name in figures}
    if analysis.ranks is not None:
        document["ranks"] = ranks_json(analysis.ranks)
    return document


def understood_json(understood: Understood) -> dict[str, Any]:
    """How the lines that an example describes were read; lines are counted from 1."""
    return {
        "counts": "epochs" if understood.counts_epochs else "iterations",
        "time": understood.meaning,
        "word": understood.word or None,
        "unit": understood.unit or None,
        "unit_assumed": understood.unit_assumed,
        "doubtful": understood.doubtful,
        "disagrees": understood.disagrees,
        "lines": [
            {
                "line": line.line + 1,
                "text": clean(line.text),
                "iter": line.number,
                "loss": line.loss,
                "time_s": line.time_s,
            }
            for line in understood.lines
        ],
    }


def _throughput_json(analysis: Analysis) -> dict[str, Any]:
    def number(value: float | None) -> float | None:
        return None if value is None or not math.isfinite(value) else plain_json(value)

    t = analysis.throughput
    return {
        "gpu": t.gpu.name if t.gpu else None,
        "gpu_origin": t.gpu_origin,
        "peak_tflops": number(t.peak_flops / TERA) if t.peak_flops else None,
        "dtype": t.peak_dtype,
        "achieved_tflops": number(t.achieved_flops / TERA) if t.achieved_flops else None,
        "flops_from": t.flops_from,
        "mfu": number(t.mfu),
        "least_mfu": number(t.least_mfu),
        "reported_mfu": number(t.reported_mfu),
        "tokens_per_s": number(t.tokens_per_s),
        "effective_tokens_per_s": number(t.effective_tokens_per_s),
        "expected_step_s": interval_json(analysis.expected.step_s if analysis.expected else None),
    }
