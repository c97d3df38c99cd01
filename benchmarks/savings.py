"""How well a promised saving holds: planted runs, played once as they were and once with the advised change.

    python -m benchmarks.savings [--runs 200] [--seed 1]

Each random run (tests/builders.py) is written as a log and given to stepwatch. For every advice on evaluations or
checkpoints the same run is played again with the change, from the same seed, and the true difference is compared with
the interval that was promised.

Advice on compilation is judged on as many further runs, in which card, model and step go together. Two things are
planted there that the program does not know:

- The gain of the compiler, log-uniform in the range of the published factors; for tiny models in theirs.
- The error of the estimator for this run: the compiled step is the estimated one times one of the errors that it made
  on published runs of cards held out of its fit (data/held_out.tsv), including the tails. The eager step is the
  compiled one times the gain.

A third of these runs is used as drawn, a third is made eager, and a third short: compiled, 50 to 1,000 iterations, 30
to 300 seconds of compilation.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from statistics import median

import numpy as np
from benchmarks.fit_estimator import HELD_OUT, SINGLE
from tests.builders import CHECKPOINT_BYTES_PER_PARAM, Bools, Record, Saves, Truth, a_run, random_truth

from stepwatch.advice import Advice, advice_on_log
from stepwatch.analysis import Analysis, analyse
from stepwatch.estimator.estimation import estimate
from stepwatch.estimator.workload import Workload
from stepwatch.gpus import find_gpu
from stepwatch.readers import read
from stepwatch.sources import from_text

RUNS, SEED = 200, 1
HELD_OUT_RUNS, HELD_OUT_SEED = 1200, 303
COMPILATION = ("compile", "no_compile")
WANTED_COVERAGE, WANTED_ERROR = 0.85, 0.10
# The results that were seen before, so that nobody takes the table for a first look.
LOOKS = (
    "This was the second look at runs that nothing was set by. The first, 400 runs of seed 202, gave `compile` 41 "
    "times with 88 % inside and a median error of 11.5 %, and `save_apart` 5 times with 80 % and 11.3 %. Nothing was "
    "changed but the number of runs: over twenty other seeds of 400 runs, `compile` was off by 8.4 % in the median of "
    "829, by 6 to 14 % seed by seed, so that 40 cases show little."
)
CARD = "4090"
COMPILE_GAIN, TINY_COMPILE_GAIN, TINY_PARAMS = (1.15, 2.3), (0.9, 1.85), 15e6  # as published for GPTs
EAGER_START_S = (0.2, 3.0)
SHORT_ITERATIONS, SHORT_COMPILE_S = (50, 1000), (30.0, 300.0)
COPY_BYTES_PER_S = (6e9, 25e9)
COMPILING_S, STARTING_S = 20.0, 1.0
ASSUMED_EVAL_ITERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One advice on one run."""

    rule: str
    truth_s: float
    low: float
    mid: float
    high: float

    @property
    def covers(self) -> bool:
        return self.low <= self.truth_s <= self.high

    @property
    def error(self) -> float:
        return abs(self.mid / self.truth_s - 1) if self.truth_s else float("inf")


def measure(runs: int = RUNS, seed: int = SEED) -> list[Outcome]:
    rng, compiling = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    found = [outcome for _ in range(runs) for outcome in _outcomes(random_truth(rng), rng)]
    others = [outcome for _ in range(runs) for outcome in _on_card(random_truth(compiling), compiling)]
    return [one for one in found if one.rule not in COMPILATION] + [one for one in others if one.rule in COMPILATION]


def _outcomes(truth: Truth, rng: np.random.Generator) -> Iterator[Outcome]:
    gain, copying = _log_uniform(COMPILE_GAIN, rng), _log_uniform(COPY_BYTES_PER_S, rng)
    yield from _judged(a_run(truth), gain, copying)


def _on_card(truth: Truth, rng: np.random.Generator) -> Iterator[Outcome]:
    truth = (_as_drawn, _eager, _short)[rng.integers(3)](replace(truth, header=True), rng)
    gain = _log_uniform(TINY_COMPILE_GAIN if truth.n_params < TINY_PARAMS else COMPILE_GAIN, rng)
    step_s = _estimated_s(truth) * float(rng.choice(_wrong())) * (1.0 if truth.compiled else gain)
    truth = replace(truth, step_s=step_s, eval_s=truth.eval_s / truth.step_s * step_s)
    yield from _judged(a_run(truth), gain, COPY_BYTES_PER_S[0])


def _judged(record: Record, gain: float, copying: float) -> Iterator[Outcome]:
    for run in read(from_text(record.text))[:1]:
        analysis = analyse(run, find_gpu(CARD), "user")
        found = advice_on_log(analysis)
        for advice in found.advice if found is not None else ():
            other = _played(record, advice, gain, copying)
            if other is not None:
                yield _outcome(analysis, advice, record, other)


def _log_uniform(ends: tuple[float, float], rng: np.random.Generator) -> float:
    return float(np.exp(rng.uniform(*np.log(ends))))


def _as_drawn(truth: Truth, rng: np.random.Generator) -> Truth:
    return truth


def _eager(truth: Truth, rng: np.random.Generator) -> Truth:
    return replace(truth, compiled=False, compile_s=_log_uniform(EAGER_START_S, rng))


def _short(truth: Truth, rng: np.random.Generator) -> Truth:
    """A run that ends before its compilation may have paid off."""
    iterations, every = round(_log_uniform(SHORT_ITERATIONS, rng)), int(rng.choice((1, 10)))
    return replace(
        truth, compiled=True, compile_s=_log_uniform(SHORT_COMPILE_S, rng), first_iter=0, kept=1.0,
        max_iters=iterations, log_interval=every, eval_interval=max(iterations // (3 * every), 1) * every,
    )  # fmt: skip


def _estimated_s(truth: Truth) -> float:
    """The compiled step of the run on the card, as estimated by stepwatch."""
    shape = truth.shape
    workload = Workload(
        n_layer=shape.n_layer, n_head=shape.n_head, n_embd=shape.n_embd, vocab_size=shape.vocab_size,
        block_size=shape.block_size, batch_size=truth.batch_size, grad_accum=truth.gradient_accumulation,
    )  # fmt: skip
    found = estimate(workload, find_gpu(CARD))
    assert found is not None
    return found.step_s.mid


@cache
def _wrong() -> tuple[float, ...]:
    """Measured over estimated step of each published run on one card, with its card held out of the fit."""
    with HELD_OUT.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t")
        return tuple(float(row["measured_over_estimated"]) for row in rows if row["group"] == SINGLE)


def _outcome(analysis: Analysis, advice: Advice, record: Record, other: Record) -> Outcome:
    """Over the whole run if the program knows its length, else over what it saw."""
    last = max(int(number) for number in re.findall(r"(?:iter|step) (\d+):", record.text))
    rows = slice(None) if analysis.forecast.max_iters is not None else record.number <= last
    truth_s = float(record.time_s[rows].sum() - other.time_s[rows].sum())
    saves = advice.saves_s
    return Outcome(rule=advice.rule, truth_s=truth_s, low=saves.low, mid=saves.mid, high=saves.high)


def _played(record: Record, advice: Advice, gain: float, copying: float) -> Record | None:
    """The same run with the change, all else unchanged; None for a rule without a planted truth."""
    new = advice.new_settings
    match advice.rule:
        case "evaluate_less":
            return _evaluating_at(record, record.number % int(new["eval_interval"]) == 0)
        case "fewer_eval_batches":
            factor = float(new["eval_iters"]) / float(advice.change["eval_iters"][0] or ASSUMED_EVAL_ITERS)
            return replace(record, eval_s=record.eval_s * factor)
        case "skip_train_split":
            return replace(record, eval_s=record.eval_s / 2)
        case "save_on_improvement":
            return _saving_at(record, a_run(replace(record.truth, saves=Saves.ON_IMPROVEMENT)).saved)
        case "save_apart":
            return _saving_at(record, record.number % (advice.effect.save_every or 1) == 0)
        case "async_saving":
            copied_s = CHECKPOINT_BYTES_PER_PARAM * record.truth.n_params / copying
            return replace(record, checkpoint_s=np.minimum(record.checkpoint_s, copied_s))
        case "compile":
            return _computing(record, 1 / gain, COMPILING_S)
        case "no_compile":
            return _computing(record, gain, STARTING_S)
    return None


def _evaluating_at(record: Record, kept: Bools) -> Record:
    return replace(_saving_at(record, kept), eval_s=np.where(kept, record.eval_s, 0.0))


def _saving_at(record: Record, kept: Bools) -> Record:
    return replace(record, checkpoint_s=np.where(kept, record.checkpoint_s, 0.0))


def _computing(record: Record, factor: float, start_s: float) -> Record:
    """The run with step and forward pass faster or slower by the same factor, and another start."""
    start = np.where(record.number == record.truth.first_iter, start_s, 0.0)
    return replace(record, step_s=record.step_s * factor, eval_s=record.eval_s * factor, compile_s=start)


def both_tables() -> str:
    """The constants of the rules were set with the first runs in view; the others were only looked at afterwards."""
    return (
        f"{RUNS} runs stand for as many of each kind: drawn freely, for evaluations and checkpoints, and with a step "
        "that goes with the card and the model, for compilation.\n\n"
        f"In sample: {RUNS} runs, seed {SEED}. The constants of the rules were set with these in view.\n\n"
        f"{table(measure())}\n\nHeld out: {HELD_OUT_RUNS} runs, seed {HELD_OUT_SEED}. {LOOKS}\n\n"
        f"{table(measure(HELD_OUT_RUNS, HELD_OUT_SEED))}"
    )


def table(outcomes: list[Outcome]) -> str:
    rows = [
        "| rule | given | true saving inside | median error | median high/low |", "|---|---|---|---|---|",
        f"| wanted | | ≥ {WANTED_COVERAGE:.0%} | ≤ {WANTED_ERROR:.0%} | |".replace("%", " %"),
    ]  # fmt: skip
    for rule in sorted({outcome.rule for outcome in outcomes}):
        of_rule = [outcome for outcome in outcomes if outcome.rule == rule]
        covered = sum(outcome.covers for outcome in of_rule) / len(of_rule)
        error = median(outcome.error for outcome in of_rule)
        width = median(outcome.high / outcome.low for outcome in of_rule)
        rows.append(f"| {rule} | {len(of_rule)} | {100 * covered:.0f} % | {100 * error:.1f} % | {width:.2f} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    print(table(measure(options.runs, options.seed)))


if __name__ == "__main__":
    main()
