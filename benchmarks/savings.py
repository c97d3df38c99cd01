"""How well a promised saving holds: planted runs, played once as they were and once with the advised change.

    python -m benchmarks.savings [--runs 200] [--seed 1]

Each random run (tests/builders.py) is written as a log and put to stepwatch. For every advice on evaluations,
checkpoints or compilation the same run is played again with the change, from the same seed, and the true difference
is compared with the interval that was promised.

What compilation gives is planted from two sources, neither of which the program is told:

- The gain is drawn from the range of the published factors, log-uniform; for tiny models from theirs.
- Where the log names the model, its step goes with it and the card: the compiled step is the estimator's, wrong by one
  of the errors that it made on published runs of cards held out of its fit (benchmarks/fit_estimator.py), tails and
  all. The eager step is the compiled one times the gain.

The random runs hardly ever are too short for the compiler, so that a part of them is planted as such: compiled, 50 to
1,000 iterations, 30 to 300 seconds of compilation.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from statistics import median

import numpy as np
from benchmarks.fit_estimator import SINGLE, of_group
from tests.builders import CHECKPOINT_BYTES_PER_PARAM, Bools, Record, Saves, Truth, a_run, random_truth

from stepwatch.advice import counsel_on_log
from stepwatch.advice.kinds import Advice
from stepwatch.analysis import Analysis, analyse
from stepwatch.estimator.estimate import Workload, estimate
from stepwatch.gpus import find_gpu
from stepwatch.readers import read
from stepwatch.sources import from_text

RUNS, SEED = 200, 1
HELD_OUT_RUNS, HELD_OUT_SEED = 400, 101
WANTED_COVERAGE, WANTED_ERROR = 0.85, 0.10
CARD = "4090"
COMPILE_GAIN, TINY_COMPILE_GAIN, TINY_PARAMS = (1.15, 2.3), (0.9, 1.85), 15e6  # as published for GPTs
SHORT_SHARE, SHORT_ITERATIONS, SHORT_COMPILE_S = 0.2, (50, 1000), (30.0, 300.0)
COPY_BYTES_PER_S = (6e9, 25e9)
COMPILING_S, EAGER_START_S = 20.0, 1.0
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
    rng = np.random.default_rng(seed)
    return [outcome for _ in range(runs) for outcome in _outcomes(random_truth(rng), rng)]


def _outcomes(truth: Truth, rng: np.random.Generator) -> Iterator[Outcome]:
    if rng.random() < SHORT_SHARE:
        truth = _short(truth, rng)
    gain = _log_uniform(TINY_COMPILE_GAIN if truth.n_params < TINY_PARAMS else COMPILE_GAIN, rng)
    copying = _log_uniform(COPY_BYTES_PER_S, rng)
    record = a_run(_on_card(truth, gain, rng) if truth.header else truth)
    for run in read(from_text(record.text))[:1]:
        analysis = analyse(run, find_gpu(CARD), "user")
        found = counsel_on_log(analysis)
        for advice in found.advice if found is not None else ():
            other = _played(record, advice, gain, copying)
            if other is not None:
                yield _outcome(analysis, advice, record, other)


def _log_uniform(ends: tuple[float, float], rng: np.random.Generator) -> float:
    return float(np.exp(rng.uniform(*np.log(ends))))


def _short(truth: Truth, rng: np.random.Generator) -> Truth:
    """Over before its compilation may have paid back."""
    iterations, every = round(_log_uniform(SHORT_ITERATIONS, rng)), int(rng.choice((1, 10)))
    return replace(
        truth, header=True, compiled=True, compile_s=_log_uniform(SHORT_COMPILE_S, rng), first_iter=0, kept=1.0,
        max_iters=iterations, log_interval=every, eval_interval=max(iterations // (3 * every), 1) * every,
    )  # fmt: skip


def _on_card(truth: Truth, gain: float, rng: np.random.Generator) -> Truth:
    """The same run at the speed that its model has on the card, as far as the estimator is right about that."""
    shape = truth.shape
    compiled = estimate(
        Workload(
            n_layer=shape.n_layer, n_head=shape.n_head, n_embd=shape.n_embd, vocab_size=shape.vocab_size,
            block_size=shape.block_size, batch_size=truth.batch_size, grad_accum=truth.gradient_accumulation,
        ),
        find_gpu(CARD),
    )  # fmt: skip
    assert compiled is not None
    step_s = compiled.step_s.mid * float(rng.choice(_wrong())) * (1.0 if truth.compiled else gain)
    return replace(truth, step_s=step_s, eval_s=truth.eval_s / truth.step_s * step_s)


@cache
def _wrong() -> tuple[float, ...]:
    """Measured over estimated step, of each published run on one card with its card held out of the fit."""
    return tuple(1 / (1 + one.error) for one in of_group(SINGLE))


def _outcome(analysis: Analysis, advice: Advice, record: Record, other: Record) -> Outcome:
    """Over the whole run where its length is known to the program, else over what it saw."""
    last = max(int(number) for number in re.findall(r"(?:iter|step) (\d+):", record.text))
    rows = slice(None) if analysis.forecast.max_iters is not None else record.number <= last
    truth_s = float(record.time_s[rows].sum() - other.time_s[rows].sum())
    saves = advice.saves_s
    return Outcome(rule=advice.rule, truth_s=truth_s, low=saves.low, mid=saves.mid, high=saves.high)


def _played(record: Record, advice: Advice, gain: float, copying: float) -> Record | None:
    """The same run with the change, all else as it fell out; None for a rule that there is no planted truth for."""
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
            return _computing(record, gain, EAGER_START_S)
    return None


def _evaluating_at(record: Record, kept: Bools) -> Record:
    return replace(_saving_at(record, kept), eval_s=np.where(kept, record.eval_s, 0.0))


def _saving_at(record: Record, kept: Bools) -> Record:
    return replace(record, checkpoint_s=np.where(kept, record.checkpoint_s, 0.0))


def _computing(record: Record, factor: float, start_s: float) -> Record:
    """Step and forward pass together faster or slower, and another start."""
    start = np.where(record.number == record.truth.first_iter, start_s, 0.0)
    return replace(record, step_s=record.step_s * factor, eval_s=record.eval_s * factor, compile_s=start)


def both_tables() -> str:
    """The constants of the rules were set with the first runs in view; the others were looked at afterwards only."""
    return (
        f"In sample: {RUNS} runs, seed {SEED}. The constants of the rules were set with these in view.\n\n"
        f"{table(measure())}\n\nHeld out: {HELD_OUT_RUNS} runs, seed {HELD_OUT_SEED}.\n\n"
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
