"""Planted truth: nanoGPT logs written from costs that are known, so that an analysis must find them again.

This is the other side of the ledger. It imports nothing from stepwatch and follows nanoGPT's train.py, not our reading
of it: iteration k evaluates when `k % eval_interval == 0`, then saves when k > 0 and the policy says so, then steps,
and prints its own whole time when `k % log_interval == 0`.

    a_log(truth)       the text of the log
    a_run(truth)       the text and everything that happened: a `Record`
    random_truth(rng)  a varied, realistic `Truth`
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cached_property, lru_cache
from math import gcd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

A100_FLOPS = 312e12  # nanoGPT model.py divides by this on every card
CHECKPOINT_BYTES_PER_PARAM = 12  # weights and two Adam moments, fp32
LOCAL_ITERATIONS_WITHOUT_MFU = 5
STALL_STEPS = (1.5, 30.0)
TAIL_LIMIT = 0.4  # a long-tailed step stays below 1.4 steps: beyond, nobody could tell it from a stall
DRIFT_TIME = 0.3  # share of the run in which a warming card goes 1 - 1/e of the way
SETTLING = 4.0  # how fast losses, and with them the chance of a new best, fall over the run
STARTED = datetime(2024, 5, 4, 9, 30, 0)


class Saves(Enum):
    """When an evaluation is followed by a checkpoint."""

    NEVER = "never"  # validation loss never falls below the first
    ALWAYS = "always"  # always_save_checkpoint = True
    ON_IMPROVEMENT = "on improvement"  # with a probability that falls over the run


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The model: enough for nanoGPT's own counts of parameters and FLOPs."""

    n_layer: int = 6
    n_head: int = 6
    n_embd: int = 384
    vocab_size: int = 65
    block_size: int = 256

    @property
    def n_decayed(self) -> int:
        return self.n_embd * (self.vocab_size + self.block_size + 12 * self.n_layer * self.n_embd)

    @property
    def n_not_decayed(self) -> int:
        return (2 * self.n_layer + 1) * self.n_embd

    @property
    def n_params(self) -> int:
        """As nanoGPT prints it: without the position embedding."""
        return self.n_decayed + self.n_not_decayed - self.block_size * self.n_embd

    @property
    def flops_per_token(self) -> int:
        return 6 * self.n_params + 12 * self.n_layer * self.n_embd * self.block_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What is planted. Times in seconds; noises are relative standard deviations; shares are 0-1."""

    seed: int = 0
    first_iter: int = 0
    max_iters: int = 2000
    log_interval: int = 10
    eval_interval: int = 250
    step_s: float = 0.1
    eval_s: float = 5.0
    checkpoint_s: float = 0.5
    compile_s: float = 20.0
    compiled: bool = True
    saves: Saves = Saves.ON_IMPROVEMENT
    noise: float = 0.01
    eval_noise: float = 0.01
    checkpoint_noise: float = 0.05
    tail_share: float = 0.0
    drift: float = 0.0
    stall_share: float = 0.0
    shape: Shape = Shape()
    batch_size: int = 64
    eval_iters: int = 200
    gradient_accumulation: int = 1
    header: bool = True
    with_step_lines: bool = True
    with_saving_lines: bool = True
    with_mfu: bool = True
    timestamps: bool = False
    kept: float = 1.0
    out_dir: str = "out-x"

    @property
    def n_params(self) -> int:
        return self.shape.n_params

    @property
    def tokens_per_iter(self) -> int:
        return self.gradient_accumulation * self.batch_size * self.shape.block_size

    @property
    def flops_per_iter(self) -> int:
        return self.tokens_per_iter * self.shape.flops_per_token

    @property
    def unlogged_evaluations(self) -> bool:
        return self.eval_interval % self.log_interval != 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Record:
    """A run that happened: its log, and per iteration the time and its parts. Arrays cover first_iter..max_iters."""

    truth: Truth
    number: NDArray[np.int64]
    step_s: Floats
    eval_s: Floats
    checkpoint_s: Floats
    compile_s: Floats
    stall_s: Floats
    evaluated: Bools
    saved: Bools
    train_loss: Floats
    val_loss: Floats

    @cached_property
    def time_s(self) -> Floats:
        """Whole time of each iteration: the sum of its parts."""
        return self.step_s + self.eval_s + self.checkpoint_s + self.compile_s + self.stall_s

    @cached_property
    def logged(self) -> Bools:
        """Iterations that print an `iter` line; a cut may still take it away (see `seen`)."""
        return np.asarray(self.number % self.truth.log_interval == 0)

    @cached_property
    def mfu(self) -> Floats:
        """What nanoGPT prints, for the logged iterations: -1, then a moving average over logged iterations."""
        running, printed = -1.0, []
        local = self.number[self.logged] - self.truth.first_iter
        current = self.truth.flops_per_iter / A100_FLOPS / self.time_s[self.logged]
        for age, mfu in zip(local.tolist(), current.tolist(), strict=True):
            if age >= LOCAL_ITERATIONS_WITHOUT_MFU:
                running = mfu if running == -1.0 else 0.9 * running + 0.1 * mfu
            printed.append(running)
        return np.array(printed)

    @cached_property
    def _lines(self) -> list[_Line]:
        lines = list(_body(self))
        return lines[: max(1, round(self.truth.kept * len(lines)))]

    @cached_property
    def text(self) -> str:
        """The log."""
        header = _header(self.truth) if self.truth.header else ()
        written = [_Line(text=text, at_s=0.0) for text in header] + self._lines
        return "".join(f"{_stamp(line.at_s) if self.truth.timestamps else ''}{line.text}\n" for line in written)

    @cached_property
    def seen(self) -> Bools:
        """Iterations up to the last printed `iter` line, the unprinted between them included."""
        return self.number <= max((line.times for line in self._lines if line.times is not None), default=-1)

    @property
    def wall_s(self) -> float:
        """Seconds from the start of the first iteration to the last printed one."""
        return float(self.time_s[self.seen].sum())

    @property
    def total_s(self) -> float:
        """Seconds of the whole run, a cut log's missing rest included."""
        return float(self.time_s.sum())

    @property
    def n_evaluations(self) -> int:
        return int((self.evaluated & self.seen).sum())

    @property
    def n_saves(self) -> int:
        return int((self.saved & self.seen).sum())

    @property
    def n_visible_evaluations(self) -> int:
        """Evaluations whose time is printed, the first iteration apart (there they are mixed with the compilation)."""
        return int((self.evaluated & self.seen & self.logged)[1:].sum())

    @property
    def first_is_printed(self) -> bool:
        return bool(self.logged[0] & self.seen[0])

    @property
    def true_step_s(self) -> float:
        """Mean step over the seen run, stalls apart."""
        return float(self.step_s[self.seen].mean())

    @property
    def true_eval_s(self) -> float | None:
        return _mean(self.eval_s[self.evaluated & self.seen])

    @property
    def true_checkpoint_s(self) -> float | None:
        return _mean(self.checkpoint_s[self.saved & self.seen])

    @property
    def true_compile_s(self) -> float | None:
        """The planted one, or None when the log does not print the iteration that held it."""
        return self.truth.compile_s if self.first_is_printed else None


def a_log(truth: Truth) -> str:
    """The log that nanoGPT would have written had these costs been real."""
    return a_run(truth).text


@lru_cache(64)  # many tests ask for the same few
def a_run(truth: Truth) -> Record:
    """Plays the run: every draw comes from `truth.seed` alone."""
    rng = np.random.default_rng(truth.seed)
    number = np.arange(truth.first_iter, truth.max_iters + 1)
    evaluated = number % truth.eval_interval == 0
    improved = _improvements(truth, number, evaluated, rng)
    saved = evaluated & (number > 0) & (improved if truth.saves is not Saves.ALWAYS else True)
    slower = _slower(truth.drift, number.size)
    train_loss, val_loss = _losses(number, evaluated, improved, truth, rng)
    return Record(
        truth=truth,
        number=number,
        step_s=truth.step_s * slower * _step_factors(truth, number.size, rng),
        eval_s=np.where(evaluated, truth.eval_s * slower * _lognormal(truth.eval_noise, number.size, rng), 0.0),
        checkpoint_s=np.where(saved, truth.checkpoint_s * _lognormal(truth.checkpoint_noise, number.size, rng), 0.0),
        compile_s=np.where(number == truth.first_iter, truth.compile_s, 0.0),
        stall_s=_stalls(truth, number.size, rng),
        evaluated=evaluated,
        saved=saved,
        train_loss=train_loss,
        val_loss=val_loss,
    )


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if values.size else None


def _lognormal(relative_sd: float, size: int, rng: np.random.Generator) -> Floats:
    """Mean 1, the given standard deviation, a little longer to the right, as times are."""
    sigma = np.sqrt(np.log1p(relative_sd**2))
    return np.asarray(np.exp(sigma * rng.standard_normal(size) - sigma**2 / 2))


def _step_factors(truth: Truth, size: int, rng: np.random.Generator) -> Floats:
    factors = _lognormal(truth.noise, size, rng)
    extra = np.minimum(2.0 * truth.noise * np.abs(rng.standard_t(3.0, size)), TAIL_LIMIT)
    return factors + np.where(rng.random(size) < truth.tail_share, extra, 0.0)


def _slower(drift: float, size: int) -> Floats:
    """A card that warms: the run ends `drift` slower than it began, settling, with mean 1 (evaluations too)."""
    rise = -np.exp(-np.linspace(0.0, 1.0, size) / DRIFT_TIME)
    spread = np.ptp(rise)
    return np.asarray(1.0 + drift * (rise - rise.mean()) / (spread if spread else 1.0))


def _stalls(truth: Truth, size: int, rng: np.random.Generator) -> Floats:
    """Extras of 1.5 to 30 steps; never in the first iteration, where they would be part of the warm-up."""
    low, high = np.log(STALL_STEPS)
    extra = truth.step_s * np.exp(rng.uniform(low, high, size))
    hit = rng.random(size) < truth.stall_share
    hit[0] = False
    return np.where(hit, extra, 0.0)


def _progress(number: NDArray[np.int64], truth: Truth) -> Floats:
    return number / max(1, truth.max_iters)


def _improvements(truth: Truth, number: NDArray[np.int64], evaluated: Bools, rng: np.random.Generator) -> Bools:
    """Evaluations with a new best validation loss: likely early, rare late."""
    lucky = rng.random(number.size) < np.exp(-SETTLING / 2 * _progress(number, truth))
    return np.asarray(evaluated & ((number == 0) | (lucky & (truth.saves is not Saves.NEVER))))


def _losses(
    number: NDArray[np.int64], evaluated: Bools, improved: Bools, truth: Truth, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """A falling training loss, and a validation loss that is a printed new best exactly where `improved` says so."""
    start = np.log(truth.shape.vocab_size)
    curve = start * (0.3 + 0.7 * np.exp(-SETTLING * _progress(number, truth)))
    val, best = np.zeros(number.size), float(curve[0])
    for index in np.flatnonzero(evaluated).tolist():
        if number[index] == 0:
            val[index] = best
        elif improved[index]:
            val[index] = best - max(0.001, 0.5 * (best - curve[index]))
        else:
            val[index] = best + rng.uniform(0.001, 0.02)
        if improved[index] or truth.saves is Saves.ALWAYS:  # nanoGPT then overwrites its best even by a worse one
            best = val[index]
    return curve * (1 + 0.01 * rng.standard_normal(number.size)), val


class _Line(NamedTuple):
    text: str
    at_s: float  # since the first iteration began
    times: int | None = None  # the iteration whose time it prints


def _stamp(at_s: float) -> str:
    moment = (STARTED + timedelta(seconds=at_s)).isoformat(sep=" ", timespec="milliseconds")
    return moment.replace(".", ",") + " "


def _body(record: Record) -> Iterator[_Line]:
    """Every line after the header, in nanoGPT's order: evaluation, checkpoint, iteration."""
    truth = record.truth
    rows = np.flatnonzero(record.evaluated | record.logged)
    ended = np.cumsum(record.time_s)
    measured = ended - record.time_s + record.compile_s + record.eval_s
    mfu = iter(record.mfu.tolist())
    columns = (record.number, record.evaluated, record.saved, record.logged, measured, ended)
    losses = (record.train_loss, record.val_loss, record.time_s * 1000)
    for k, evaluated, saved, logged, measured_s, ended_s, train, val, ms in zip(
        *(column[rows].tolist() for column in (*columns, *losses)), strict=True
    ):
        if evaluated and truth.with_step_lines:
            yield _Line(f"step {k}: train loss {train:.4f}, val loss {val:.4f}", measured_s)
        if saved and truth.with_saving_lines:
            yield _Line(f"saving checkpoint to {truth.out_dir}", measured_s)
        if logged:
            share = f", mfu {next(mfu) * 100:.2f}%" if truth.with_mfu else ""
            yield _Line(f"iter {k}: loss {train:.4f}, time {ms:.2f}ms{share}", ended_s, k)


def _header(truth: Truth) -> tuple[str, ...]:
    """What nanoGPT prints before the first iteration: the config file, then the counts, in its order."""
    shape = truth.shape
    own_vocabulary = shape.vocab_size != 50304
    return (
        "Overriding config with config/train_planted.py:",
        *_config(truth),
        "",
        f"tokens per iteration will be: {truth.tokens_per_iter:,}",
        *([f"found vocab_size = {shape.vocab_size} (inside data/planted/meta.pkl)"] if own_vocabulary else []),
        f"Resuming training from {truth.out_dir}" if truth.first_iter else "Initializing a new model from scratch",
        *([] if own_vocabulary or truth.first_iter else [_DEFAULT_VOCABULARY]),
        f"number of parameters: {shape.n_params / 1e6:.2f}M",
        f"num decayed parameter tensors: {4 * shape.n_layer + 2}, with {shape.n_decayed:,} parameters",
        f"num non-decayed parameter tensors: {2 * shape.n_layer + 1}, with {shape.n_not_decayed:,} parameters",
        "using fused AdamW: True",
        *(["compiling the model... (takes a ~minute)"] if truth.compiled else []),
    )


_DEFAULT_VOCABULARY = "defaulting to vocab_size of GPT-2 to 50304 (50257 rounded up for efficiency)"


def _config(truth: Truth) -> tuple[str, ...]:
    """A config file with a comment or two, as people write them."""
    shape = truth.shape
    return (
        "# a planted run: every cost in this log is known",
        f"out_dir = '{truth.out_dir}'",
        f"eval_interval = {truth.eval_interval} # planted",
        f"eval_iters = {truth.eval_iters}",
        f"log_interval = {truth.log_interval}",
        f"always_save_checkpoint = {truth.saves is Saves.ALWAYS}",
        *(["init_from = 'resume'"] if truth.first_iter else []),
        "dataset = 'planted'",
        f"gradient_accumulation_steps = {truth.gradient_accumulation}",
        f"batch_size = {truth.batch_size}",
        f"block_size = {shape.block_size} # tokens per sequence",
        f"n_layer = {shape.n_layer}",
        f"n_head = {shape.n_head}",
        f"n_embd = {shape.n_embd}",
        f"max_iters = {truth.max_iters}",
        f"compile = {truth.compiled}",
    )


# Random runs ---------------------------------------------------------------------------------------------------------

SHAPES = (  # with a micro-batch that people run them at
    (Shape(n_layer=4, n_head=4, n_embd=128, vocab_size=65, block_size=64), 12),
    (Shape(n_layer=6, n_head=6, n_embd=384, vocab_size=65, block_size=256), 64),
    (Shape(n_layer=8, n_head=8, n_embd=512, vocab_size=2048, block_size=512), 32),
    (Shape(n_layer=6, n_head=6, n_embd=384, vocab_size=50304, block_size=512), 16),
    (Shape(n_layer=12, n_head=12, n_embd=768, vocab_size=50304, block_size=1024), 8),
    (Shape(n_layer=24, n_head=16, n_embd=1024, vocab_size=50304, block_size=1024), 4),
)
SHAPE_WEIGHTS = (0.1, 0.3, 0.15, 0.15, 0.2, 0.1)
# Forward share of a micro-step in 48 real logs: median 0.35, quartiles 0.31 and 0.365, range 0.22 to 0.63 (LOGS.md 4).
FORWARD_SHARE = ((0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0), (0.22, 0.28, 0.31, 0.35, 0.365, 0.50, 0.63))
EVAL_STEPS = (0.3, 300.0)
LOG_INTERVALS = (1, 1, 2, 5, 10, 10, 10, 10, 20, 50, 100, 100, 200)
LONGEST_RUN = 20_000


def random_truth(rng: np.random.Generator) -> Truth:
    """A varied, realistic run. Where a header is printed, its figures explain the costs as physics would."""
    shape, batch_size = SHAPES[rng.choice(len(SHAPES), p=SHAPE_WEIGHTS)]
    header = bool(rng.random() < 0.8)  # nanoGPT always prints one; captures by trackers and excerpts lose it
    eval_iters, gradient_accumulation, eval_steps = _random_evaluation(header, rng)
    step_s = gradient_accumulation * _random_micro_step_s(batch_size * shape.block_size * shape.flops_per_token, rng)
    first_iter, max_iters, log_interval, eval_interval, kept = _random_loop(rng)
    compiled = bool(rng.random() < 0.7)
    return Truth(
        seed=int(rng.integers(2**32)),
        first_iter=first_iter,
        max_iters=max_iters,
        log_interval=log_interval,
        eval_interval=eval_interval,
        step_s=step_s,
        eval_s=eval_steps * step_s,
        checkpoint_s=CHECKPOINT_BYTES_PER_PARAM * shape.n_params / _random_rate(rng),
        compile_s=_log_uniform(2.0, 120.0, rng) if compiled else float(rng.uniform(0.0, 3.0)),
        compiled=compiled,
        saves=tuple(Saves)[rng.choice(3, p=(0.18, 0.37, 0.45))],
        noise=_log_uniform(0.001, 0.15, rng),
        eval_noise=_log_uniform(0.001, 0.03, rng),
        checkpoint_noise=_log_uniform(0.02, 0.25, rng),
        tail_share=float(rng.uniform(0.01, 0.1)) if rng.random() < 0.25 else 0.0,
        drift=float(rng.uniform(0.02, 0.25) * rng.choice((1, 1, 1, -1))) if rng.random() < 0.2 else 0.0,
        stall_share=float(rng.choice((0.05, 0.001, 0.0), p=(0.1, 0.1, 0.8))),
        shape=shape,
        batch_size=batch_size,
        eval_iters=eval_iters,
        gradient_accumulation=gradient_accumulation,
        header=header,
        with_mfu=bool(rng.random() < 0.95),
        timestamps=bool(rng.random() < 0.05),
        kept=kept,
    )


def _log_uniform(low: float, high: float, rng: np.random.Generator) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _random_evaluation(header: bool, rng: np.random.Generator) -> tuple[int, int, float]:
    """eval_iters, gradient accumulation, and what an evaluation costs in steps: bound together where both are told."""
    while True:
        eval_iters = int(rng.choice((5, 10, 20, 40, 50, 100, 200, 200, 200)))
        gradient_accumulation = int(rng.choice((1, 1, 1, 1, 2, 4, 5, 8, 16, 20, 32, 40)))
        forward_share = float(np.interp(rng.random(), *FORWARD_SHARE))
        eval_steps = 2 * eval_iters * forward_share / gradient_accumulation
        if EVAL_STEPS[0] <= eval_steps <= EVAL_STEPS[1]:
            return eval_iters, gradient_accumulation, eval_steps if header else _log_uniform(*EVAL_STEPS, rng)


def _random_micro_step_s(flops: float, rng: np.random.Generator) -> float:
    """At 3 to 150 TFLOPS, but not below what launching the kernels takes."""
    return max(flops / _log_uniform(3e12, 150e12, rng), 0.006)


def _random_rate(rng: np.random.Generator) -> float:
    """Bytes per second of torch.save: mostly a local disk, sometimes a slow mount."""
    return _log_uniform(0.26e9 if rng.random() < 0.6 else 0.06e9, 0.9e9, rng)


def _random_loop(rng: np.random.Generator) -> tuple[int, int, int, int, float]:
    """first_iter, max_iters, log_interval, eval_interval, kept, for 2 to 40 printed evaluations after the first."""
    log_interval = int(rng.choice(LOG_INTERVALS) if rng.random() < 0.8 else round(_log_uniform(1, 200, rng)))
    visible = round(_log_uniform(2, min(40, LONGEST_RUN // (3 * log_interval)), rng))
    apart = round(_log_uniform(3, min(500, LONGEST_RUN // (visible * log_interval)), rng))  # printed lines
    eval_interval = apart * log_interval
    divisors = [j for j in (2, 3, 4, 5) if log_interval % j == 0 and gcd(j, apart) == 1]
    if divisors and rng.random() < 0.3:  # then every j-th evaluation is printed
        eval_interval //= int(rng.choice(divisors))
    first_iter = eval_interval * int(rng.integers(1, 40)) if visible >= 3 and rng.random() < 0.1 else 0
    span = min(visible * apart * log_interval + int(rng.integers(apart * log_interval)), LONGEST_RUN)
    kept = float(rng.uniform(0.6, 1.0)) if visible >= 5 and rng.random() < 0.15 else 1.0
    return first_iter, first_iter + span, log_interval, eval_interval, kept
