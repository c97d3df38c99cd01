"""What a step, an evaluation, a checkpoint and the compilation cost, each as an interval with how it is known.

An evaluation row is step + evaluation, a saving one has the checkpoint on top, the first holds the compilation.
Two witnesses tell them apart: rows with and without a save, and what the costs should be (estimator's
beliefs). They are combined by their noise; where neither tells, the cost is "not separable".
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stepwatch.analysis.baseline import PRINTED_STEP_S, WINDOW
from stepwatch.analysis.phases import Phase, Phases
from stepwatch.analysis.statistics import Floats, median, running_median, spread, standard_error, t_quantile
from stepwatch.estimator.priors import Belief, checkpoint_prior, evaluation_prior
from stepwatch.run import Run
from stepwatch.settings import Origin
from stepwatch.units import Interval

MEASURED, MODELLED, COMBINED, NOT_SEPARABLE = "measured", "modelled", "combined", "not separable"

# Evaluations within one run are regular: max/min is mostly below 1.05, so about 1 % before anything was seen.
PRIOR_NOISE = 0.013
PRIOR_DEGREES = 1.5
_SHARED_WEIGHT = 3.0  # how many evaluations the noise shared by both kinds counts for in each
_GRID = 400
_TOO_WIDE = 20.0  # a checkpoint known to no better than this factor is not told apart
_Z90 = 1.6449
_STEP_Z = 1.1  # less than 1.645: the interval spans the median and the mean, and each has its error on one side only
_COOL_CARD = 0.15  # a first evaluation may be faster than later ones by this much
_WARM_UP_S, _LONGEST_WARM_UP_S = 1.0, 8.0  # without compilation, as seen in published logs
_LEVEL_ERROR = 0.004
_NARROWEST = 9


class Costs(NamedTuple):
    """What each part costs; None where it does not occur in the log."""

    step_s: Interval
    eval_s: Interval | None
    checkpoint_s: Interval | None
    compile_s: Interval | None
    how: dict[str, str]
    mean_ratio: float
    """Mean over median of the normal rows: sums need the mean."""
    pair_s: Interval | None
    """Evaluation and checkpoint together, as measured where every evaluation saves."""
    device_ratio: float = 1.0
    """How much longer a step is on the device than in the times of a host that does not wait for it."""


class _Location(NamedTuple):
    """A typical value: its standard error, the spread of a single one, and how well that spread is known."""

    mid: float
    error: float
    single: float
    degrees: float

    @property
    def half_width(self) -> float:
        return t_quantile(self.degrees) * self.error


def find_costs(run: Run, phases: Phases) -> Costs:
    how: dict[str, str] = {}
    step, mean_ratio = _step(run, phases, how)
    level = _level(run, phases)
    alone, saving = _at_one_level(run, phases, mean_ratio, level)
    lone_saves = phases.excess_s(run, phases.of(Phase.CHECKPOINT), mean_ratio)
    noise = _noise(run, phases, alone, saving)
    beliefs = _beliefs(run, step.mid)

    first = phases.excess_s(run, phases.of(Phase.FIRST), mean_ratio)
    bound = (
        float(first[0]) / level.at_first if len(first) and phases.first_evaluates and not phases.first_saves else None
    )
    if phases.baseline is None:
        evaluation, checkpoint, pair = _nothing_but_evaluations(run, phases, how)
    else:
        evaluation, checkpoint, pair = _evaluation_and_checkpoint(
            _location(alone, noise), _location(saving, noise), beliefs, bound, how
        )
    if checkpoint is None and len(lone_saves):
        checkpoint = _interval(_location(lone_saves, noise))
        how["checkpoint_s"] = MEASURED
    compilation = None
    if len(first) and phases.baseline is None:
        evaluation, compilation = _nothing_but_first(run, phases, evaluation, how)
    elif len(first):
        evaluation, compilation = _first(float(first[0]), level, phases, evaluation, checkpoint, beliefs, noise, how)
        compilation = _at_most(compilation, _time_of_first(run, phases))
    evaluation = _unseen_evaluation(phases, evaluation, beliefs, how)
    checkpoint = _unseen_checkpoint(run, checkpoint, evaluation, how)
    return Costs(
        step_s=step, eval_s=evaluation, checkpoint_s=checkpoint, compile_s=compilation, how=how,
        mean_ratio=mean_ratio, pair_s=pair,
    )  # fmt: skip


# --- the step ---------------------------------------------------------------------------------------------------


def _step(run: Run, phases: Phases, how: dict[str, str]) -> tuple[Interval, float]:
    normal = phases.normal
    if phases.baseline is None or not normal.any():
        how["step_s"] = NOT_SEPARABLE
        smallest = float(run.iterations.time_s.min())
        return Interval(0.0, smallest / 3, smallest), 1.0
    how["step_s"] = MEASURED
    times = run.iterations.time_s[normal]
    middle = median(times)
    ratio = _mean_ratio(times, phases, normal)
    mean = _mean(times, phases, normal)
    error = (
        _STEP_Z * standard_error(times) if len(times) > 4 else t_quantile(max(len(times) - 1, 1)) * _small_error(times)
    )
    error += 0.5e-5  # the last printed digit
    low, high = min(middle, mean), max(middle, mean)
    return Interval(max(low - error, 0.0), (low + high) / 2, high + error), ratio


def _small_error(times: Floats) -> float:
    if len(times) == 1:
        return 0.004 * float(times[0])
    return float(np.std(times, ddof=1)) / math.sqrt(len(times))


def _mean(times: Floats, phases: Phases, normal: np.ndarray) -> float:
    assert phases.baseline is not None
    return float(np.mean(np.minimum(times, phases.baseline.time_s[normal] * _heaviest(phases))))


def _heaviest(phases: Phases) -> float:
    """No row weighs more in a mean than the noise around the baseline allows."""
    assert phases.baseline is not None
    return 1 + max(0.5, 8 * phases.baseline.noise)


def _mean_ratio(times: Floats, phases: Phases, normal: np.ndarray) -> float:
    """Mean over median of normal rows around their baseline.

    Not below 1: a time shorter than the usual one is a host that did not wait for its device, not a faster step.
    """
    assert phases.baseline is not None
    return max(1.0, float(np.mean(np.minimum(times / phases.baseline.time_s[normal], _heaviest(phases)))))


# --- evaluation and checkpoint ----------------------------------------------------------------------------------


class _Level(NamedTuple):
    """The speed over its mean at all evaluations: what slows steps slows evaluations alike."""

    places: npt.NDArray[np.int64]
    """Rows at which it is known; between them it is on a straight line."""
    values: Floats
    at_first: float
    doubt_at_first: float

    def at(self, rows: npt.NDArray[np.int64]) -> Floats:
        return np.asarray(np.interp(rows, self.places, self.values))


def _level(run: Run, phases: Phases) -> _Level:
    normal = phases.normal
    if phases.baseline is None or int(normal.sum()) < 8:
        return _Level(np.zeros(1, np.int64), np.ones(1), 1.0, 0.0)
    noise = phases.baseline.noise
    # Followed more closely than the baseline where the noise allows it, so that a drift is not smeared at the ends.
    window = max(_NARROWEST, min(WINDOW, math.ceil((1.25 * noise / _LEVEL_ERROR) ** 2)))
    local = np.maximum(running_median(run.iterations.time_s[normal], window), PRINTED_STEP_S / 2)
    local = local / float(np.mean(local))
    # What varies no more than the noise of the medians is no change of speed.
    chance = (1.25 * noise) ** 2 / window
    kept = max(0.0, 1 - chance / max(float(np.var(local)), 1e-30))
    local = 1 + kept * (local - 1)
    start = _at_start(local, window)
    level = _Level(np.flatnonzero(normal), local, start, 0.5 * abs(start - 1))
    mean = float(np.mean(_levels_of_evaluations(run, phases, level)))
    return _Level(level.places, local / mean, start / mean, level.doubt_at_first / mean)


def _at_start(local: Floats, window: int) -> float:
    """The level at the first iteration: a line through the first two windows, since a drift is steepest there."""
    half = window // 2
    if len(local) < 3 * half or half == 0:
        return float(local[0])
    return float(local[half] - (local[2 * half] - local[half]))


def _levels_of_evaluations(run: Run, phases: Phases, level: _Level) -> list[float]:
    evaluated = np.flatnonzero(phases.of(Phase.EVAL, Phase.EVAL_CHECKPOINT))
    levels = level.at(evaluated).tolist() or [1.0]
    levels += level.at(np.searchsorted(run.iterations.number, phases.unlogged_evals)).tolist()
    return [*levels, level.at_first] if phases.first_evaluates else levels


def _at_one_level(run: Run, phases: Phases, mean_ratio: float, level: _Level) -> tuple[Floats, Floats]:
    """Evaluations alone and with a save, as they would be at the mean level; a disk does not slow with the card."""
    rows, both = (np.flatnonzero(phases.of(phase)) for phase in (Phase.EVAL, Phase.EVAL_CHECKPOINT))
    alone = phases.excess_s(run, rows, mean_ratio) / level.at(rows)
    saving = phases.excess_s(run, both, mean_ratio)
    if not len(alone):
        return alone, saving / level.at(both)
    return alone, saving - median(alone) * (level.at(both) - 1)


def _noise(run: Run, phases: Phases, alone: Floats, saving: Floats) -> tuple[float, float, float]:
    """Relative noise of one evaluation, the degrees of freedom behind it, and the absolute noise of its step."""
    deviations = [(group - median(group)) / max(median(group), 1e-9) for group in (alone, saving) if len(group) > 1]
    degrees = float(sum(len(group) - 1 for group in deviations))
    weight = PRIOR_DEGREES * PRIOR_NOISE**2
    if deviations:
        together = np.concatenate(deviations)
        # A stall may fall on an evaluation: the median absolute deviation, once there are enough, ignores it.
        own = spread(together) * math.sqrt(len(together) / max(degrees, 1.0))
        if len(together) < 6:
            own = max(
                own,
                float(np.sqrt(np.mean(np.minimum(together**2, 0.05))) * math.sqrt(len(together) / max(degrees, 1.0))),
            )
        weight += degrees * own**2
    relative = math.sqrt(weight / (PRIOR_DEGREES + degrees))
    step_noise = 0.0
    if phases.baseline is not None:
        step_noise = phases.baseline.noise * median(phases.baseline.time_s * phases.covers)
    return relative, PRIOR_DEGREES + degrees, step_noise


def _location(values: Floats, noise: tuple[float, float, float]) -> _Location | None:
    if not len(values):
        return None
    relative, degrees, step_noise = noise
    mid = max(median(values), 0.0)
    single = math.hypot(relative * mid, step_noise)
    if len(values) >= 4:  # a save has a noise of its own, so the group's spread counts once there is one
        own = len(values) - 1.0
        single = math.sqrt((_SHARED_WEIGHT * single**2 + own * spread(values) ** 2) / (_SHARED_WEIGHT + own))
        degrees = min(degrees, _SHARED_WEIGHT + own)
    efficiency = 1.0 if len(values) < 3 else 1.2
    return _Location(mid, efficiency * single / math.sqrt(len(values)), single, degrees)


def _interval(location: _Location | None) -> Interval | None:
    return None if location is None else Interval.around(location.mid, location.half_width)


class _Beliefs(NamedTuple):
    evaluation: Belief | None
    checkpoint: Belief | None
    usual_evaluation_s: float
    """With nanoGPT's default of 200 batches and no accumulation: the middle where nothing is told."""


def _beliefs(run: Run, step_s: float) -> _Beliefs:
    settings = run.settings
    accumulation = settings.number("gradient_accumulation_steps")
    ranks = settings.count("world_size") or 1
    micro_steps = max(accumulation / ranks, 1.0) if accumulation else None
    usual = evaluation_prior(step_s, settings.count("eval_iters") or 200, micro_steps or 1.0)
    return _Beliefs(
        evaluation_prior(step_s, settings.count("eval_iters"), micro_steps),
        checkpoint_prior(_saved_params(run)),
        usual.median_s if usual is not None else 0.0,
    )


def _saved_params(run: Run) -> float | None:
    """What --set says, else what the log counts, else what it prints."""
    given = run.settings.get("n_params")
    if given is not None and given.origin is Origin.USER:
        return run.settings.number("n_params")
    return run.saved_params or run.settings.number("n_params")


def _nothing_but_evaluations(
    run: Run, phases: Phases, how: dict[str, str]
) -> tuple[Interval | None, Interval | None, Interval | None]:
    """No normal iteration to compare with: of each row only the sum of its parts is known."""
    rows, both = phases.of(Phase.EVAL, Phase.EVAL_CHECKPOINT), phases.of(Phase.EVAL_CHECKPOINT)
    if not rows.any():
        return None, None, None
    most = median((run.iterations.time_s * phases.covers)[rows])
    how["eval_s"] = NOT_SEPARABLE
    if not both.any():
        return Interval(0.0, most / 2, most), None, None
    how["checkpoint_s"] = NOT_SEPARABLE
    return Interval(0.0, most / 2, most), Interval(0.0, most / 8, most), Interval(0.0, 0.625 * most, most)


def _evaluation_and_checkpoint(
    alone: _Location | None, saving: _Location | None, beliefs: _Beliefs, bound: float | None, how: dict[str, str]
) -> tuple[Interval | None, Interval | None, Interval | None]:
    if saving is None:
        if alone is not None:
            how["eval_s"] = MEASURED
        return _interval(alone), None, None
    if alone is None:
        return *_split_by_belief(saving, beliefs, bound, how), _interval(saving)
    how["eval_s"] = MEASURED
    difference = saving.mid - alone.mid
    error = math.hypot(saving.error, alone.error)
    half = t_quantile(min(saving.degrees, alone.degrees)) * error
    if difference > 2.5 * half or (beliefs.checkpoint is None and difference > half):
        how["checkpoint_s"] = MEASURED
        return _interval(alone), Interval.around(difference, half), _interval(saving)
    if beliefs.checkpoint is None:
        how["checkpoint_s"] = NOT_SEPARABLE
        high = max(difference + half, 1e-9)
        return _interval(alone), Interval(0.0, min(max(difference, 0.0), high), high), _interval(saving)
    checkpoint = _posterior(difference, error, saving.degrees, beliefs.checkpoint)
    how["checkpoint_s"] = COMBINED
    return _interval(alone), checkpoint, _interval(saving)


def _posterior(difference: float, error: float, degrees: float, belief: Belief) -> Interval:
    """A noisy difference and a belief about it, multiplied on a grid."""
    high = max(difference + 6 * error, belief.median_s * math.exp(2.5 * belief.spread))
    grid = np.geomspace(min(belief.median_s * math.exp(-3 * belief.spread), high / 2), high, _GRID)
    weight = _student((grid - difference) / error, degrees) + np.array([belief.log_density(x) for x in grid.tolist()])
    return _quantiles(grid, weight)


def _student(score: Floats, degrees: float) -> Floats:
    return np.asarray(-(degrees + 1) / 2 * np.log1p(score**2 / degrees))


def _quantiles(grid: Floats, log_weight: Floats) -> Interval:
    mass = np.exp(log_weight - log_weight.max()) * np.gradient(grid)
    cumulative = np.cumsum(mass) / mass.sum()
    low, mid, high = np.interp((0.05, 0.5, 0.95), cumulative, grid).tolist()
    return Interval(low, mid, high)


def _split_by_belief(
    saving: _Location, beliefs: _Beliefs, bound: float | None, how: dict[str, str]
) -> tuple[Interval | None, Interval | None]:
    """Every evaluation saves: only the sum is measured, and beliefs about the parts divide it.

    The first iteration is a witness too: it evaluates and does not save, so no evaluation is longer than it.
    """
    total = saving.mid
    if total <= 0 or (beliefs.evaluation is None and beliefs.checkpoint is None):
        return _split_by_first(saving, bound, how)
    share = 1 / (1 + np.exp(-np.linspace(-7, 7, _GRID)))  # of the checkpoint in the sum, fine at both ends
    weight = np.zeros(_GRID)
    if beliefs.evaluation is not None:
        weight += [beliefs.evaluation.log_density(x) for x in (total * (1 - share)).tolist()]
    if beliefs.checkpoint is not None:
        weight += [beliefs.checkpoint.log_density(x) for x in (total * share).tolist()]
    if bound is not None and bound > 0:
        beyond = np.maximum(total * (1 - share) / bound - 1, 0.0)
        weight -= 0.5 * (beyond / _COOL_CARD) ** 2
    part = _quantiles(share, weight)
    relative = saving.half_width / total
    checkpoint = part.scaled(total).widened(down=relative, up=relative)
    evaluation = Interval(1 - part.high, 1 - part.mid, 1 - part.low).scaled(total).widened(down=relative, up=relative)
    if checkpoint.high > _TOO_WIDE * max(checkpoint.low, 1e-12):
        how["checkpoint_s"] = NOT_SEPARABLE
        checkpoint = Interval(0.0, checkpoint.mid, checkpoint.high)
    else:
        how["checkpoint_s"] = MODELLED
    how["eval_s"] = MODELLED
    return evaluation, checkpoint


def _split_by_first(saving: _Location, bound: float | None, how: dict[str, str]) -> tuple[Interval, Interval]:
    """No belief: only a first iteration shorter than the sum shows how long an evaluation is at most."""
    total = saving.mid
    if bound is None or not 0 < bound < (1 - 2 / _TOO_WIDE) * total:
        how["eval_s"] = how["checkpoint_s"] = NOT_SEPARABLE
        whole = max(total + saving.half_width, 1e-9)
        return Interval(0.0, 0.85 * total, whole), Interval(0.0, 0.15 * total, whole)
    how["eval_s"] = how["checkpoint_s"] = COMBINED
    low, mid, high = (
        max(bound - _LONGEST_WARM_UP_S, 0.2 * bound),
        max(bound - _WARM_UP_S, 0.6 * bound),
        bound * (1 + _COOL_CARD),
    )
    slack = saving.half_width
    return Interval(low, mid, high), Interval(max(total - high - slack, 0.0), total - mid, total - low + slack)


# --- the first iteration ----------------------------------------------------------------------------------------


def _first(
    excess: float, level: _Level, phases: Phases, evaluation: Interval | None, checkpoint: Interval | None,
    beliefs: _Beliefs, noise: tuple[float, float, float], how: dict[str, str],
) -> tuple[Interval | None, Interval | None]:  # fmt: skip
    """Compilation is what is left of the first iteration; returns the evaluation too, where only this row holds one."""
    if excess <= 0:
        how["compile_s"] = MEASURED
        return evaluation, Interval(0.0, 0.0, max(noise[2], 1e-5) * 2)
    if not phases.first_evaluates:
        how["compile_s"] = MEASURED
        return evaluation, Interval.around(excess, _Z90 * noise[2])
    if evaluation is None:
        return _first_alone(excess, beliefs, how)
    inside = evaluation.scaled(level.at_first).widened(down=level.doubt_at_first, up=level.doubt_at_first)
    if phases.first_saves and checkpoint is not None:
        inside = inside + checkpoint
    single = math.hypot(noise[0] * inside.mid, noise[2]) * t_quantile(noise[1])
    low = excess - math.hypot(inside.high - inside.mid, single) - inside.mid
    high = excess + math.hypot(inside.mid - inside.low, single) - inside.mid
    mid = excess - inside.mid
    how["compile_s"] = COMBINED if how.get("eval_s") in (MODELLED, NOT_SEPARABLE) else MEASURED
    if how.get("eval_s") == NOT_SEPARABLE:
        least = max(excess - inside.high - single, 0.0)  # an evaluation is no longer than one with its checkpoint
        how["compile_s"] = COMBINED if least > 0 else NOT_SEPARABLE
        return evaluation, Interval(least, max(mid, least), max(excess, mid))
    return evaluation, Interval(max(low, 0.0), max(mid, 0.0), max(high, 0.25 * single))


def _time_of_first(run: Run, phases: Phases) -> float:
    row = int(np.argmax(phases.of(Phase.FIRST)))
    return float(run.iterations.time_s[row] * phases.covers[row])


def _at_most(part: Interval | None, whole_s: float) -> Interval | None:
    """A noise larger than the first iteration makes no part of it longer than all of it."""
    return part and Interval(min(part.low, whole_s), min(part.mid, whole_s), min(part.high, whole_s))


def _nothing_but_first(
    run: Run, phases: Phases, evaluation: Interval | None, how: dict[str, str]
) -> tuple[Interval | None, Interval]:
    """No normal iteration to compare with: the first may hold anything in any proportion."""
    whole = _time_of_first(run, phases)
    how["compile_s"] = NOT_SEPARABLE
    if evaluation is None and phases.first_evaluates:
        how["eval_s"] = NOT_SEPARABLE
        evaluation = Interval(0.0, whole / 3, whole)
    return evaluation, Interval(0.0, whole / 3, whole)


def _first_alone(excess: float, beliefs: _Beliefs, how: dict[str, str]) -> tuple[Interval, Interval]:
    """The only evaluation is the one in the first iteration: a belief divides it, or nothing does."""
    belief = beliefs.evaluation
    if belief is None or belief.median_s * math.exp(-2 * belief.spread) > excess:
        how["eval_s"] = how["compile_s"] = NOT_SEPARABLE
        likely = min(excess, beliefs.usual_evaluation_s)
        return Interval(0.0, likely, excess), Interval(0.0, excess - likely, excess)
    how["eval_s"] = how["compile_s"] = MODELLED
    ends = [min(belief.median_s * math.exp(z * belief.spread), excess) for z in (-_Z90, 0.0, _Z90)]
    return Interval(*ends), Interval(excess - ends[2], excess - ends[1], excess - ends[0])


def _unseen_evaluation(
    phases: Phases, evaluation: Interval | None, beliefs: _Beliefs, how: dict[str, str]
) -> Interval | None:
    """Evaluations that fell on unlogged iterations only: the model's figure, if it has one."""
    if evaluation is not None or not (phases.unlogged_evals or phases.trailing):
        return evaluation
    if beliefs.evaluation is None:
        how["eval_s"] = NOT_SEPARABLE
        return Interval(0.0, 0.0, 0.0)
    how["eval_s"] = MODELLED
    belief = beliefs.evaluation
    return Interval(*(belief.median_s * math.exp(z * belief.spread) for z in (-_Z90, 0.0, _Z90)))


def _unseen_checkpoint(
    run: Run, checkpoint: Interval | None, evaluation: Interval | None, how: dict[str, str]
) -> Interval | None:
    """Saves whose row was not logged: the model's figure, or nothing to tell them by."""
    if checkpoint is not None or not run.checkpoints:
        return checkpoint
    belief = checkpoint_prior(_saved_params(run))
    if belief is None:
        how["checkpoint_s"] = NOT_SEPARABLE
        high = evaluation.high if evaluation is not None else 0.0
        return Interval(0.0, 0.0, high)
    how["checkpoint_s"] = MODELLED
    return Interval(*(belief.median_s * math.exp(z * belief.spread) for z in (-_Z90, 0.0, _Z90)))
