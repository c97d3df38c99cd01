"""What a step, an evaluation, a checkpoint and the compilation cost, each as an interval with how it is known.

An evaluation row is step + evaluation, a row with a save has the checkpoint on top, the first includes the compilation.
Two sources separate them: rows with and without a save, and what the costs should be (the estimator's beliefs). They
are weighted by their noise; if neither helps, the cost is "not separable".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stepwatch.analysis.phases import LARGE_RATIO, STALL_NOISES, STALL_RATIO, Phase, Phases
from stepwatch.analysis.statistics import (
    PRINTED_STEP_S,
    WINDOW,
    Levels,
    chosen,
    median,
    running_levels,
    series,
    spread,
    standard_error,
    t_quantile,
    total,
    variance,
)
from stepwatch.estimator.ceilings import LogNormalPrior, checkpoint_prior, evaluation_prior
from stepwatch.run import Floats, Run, rows_from
from stepwatch.settings import NANOGPT_DEFAULTS, Origin
from stepwatch.units import Z90, Interval

if TYPE_CHECKING:
    from stepwatch.analysis.throughput import Regimes

MEASURED, MODELLED, COMBINED, NOT_SEPARABLE = "measured", "modelled", "combined", "not separable"

_GRID = 400  # points of a numerical integral
_STEADY = 0.004  # how much single steps at the same speed differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What each part costs; None if it does not occur in the log."""

    step_s: Interval
    eval_s: Interval | None = None
    checkpoint_s: Interval | None = None
    compile_s: Interval | None = None
    data_s: Interval | None = None
    """How long an iteration waits for data on average: a part of its step."""
    how: dict[str, str] = field(default_factory=dict)
    mean_ratio: float
    """Mean over median of the normal rows: sums need the mean."""
    pair_s: Interval | None = None
    """Evaluation and checkpoint together, as measured if every evaluation saves."""
    device_ratio: float = 1.0
    """The time of a step on the device, relative to the times of a host that does not wait for it."""

    @property
    def step_known(self) -> bool:
        """Whether the step is measured or expected; otherwise its interval is only a bound."""
        return self.how.get("step_s") != NOT_SEPARABLE

    @property
    def step_measured(self) -> bool:
        return self.how.get("step_s") == MEASURED and self.step_s.mid > 0

    def priced(self, part: str) -> bool:
        """Whether the cost of an evaluation or a checkpoint is known; of an inseparable pair, the sum is enough."""
        cost = self.eval_s if part == "eval" else self.checkpoint_s
        separable = self.pair_s is not None or self.how.get(f"{part}_s") != NOT_SEPARABLE
        return cost is not None and cost.high > 0 and separable


class _Cost(NamedTuple):
    """One cost and how it is known; if it was measured, its standard error with the degrees of freedom."""

    seconds: Interval
    how: str
    error: float = 0.0
    degrees: float = math.inf


def find_costs(run: Run, phases: Phases, regimes: Regimes) -> Costs:
    speed_of, speeds_s = np.zeros(len(run.iterations), np.int16), np.ones(1)  # for a single speed
    if len(regimes.regimes) > 1 and not run.traits.schedules:
        speed_of, speeds_s = _speeds(run, phases, regimes)
    step, mean_ratio = _step(run, phases, speed_of, speeds_s)
    # The number from --set, else the one that the log counts, else the one that it prints.
    n_params, given = run.settings.number("n_params"), run.settings.get("n_params")
    if given is None or given.origin is not Origin.USER:
        n_params = run.saved_params or n_params
    belief = checkpoint_prior(n_params) if n_params else None
    present = speed_of == speed_of[-1]
    level, at_first, doubt_at_first = _level(run, phases, present)

    # Evaluations alone and with a save, scaled to the mean level; a disk does not slow down with the card.
    rows, both = (np.flatnonzero(phases.of(phase)) for phase in (Phase.EVAL, Phase.EVAL_CHECKPOINT))
    if present[np.append(rows, both)].any():  # the cause of two speeds may affect steps and evaluations differently
        rows, both = rows[present[rows]], both[present[both]]
    alone = phases.excess_s(run, rows, mean_ratio) / level[rows]
    saving = phases.excess_s(run, both, mean_ratio)
    saving = saving - median(alone) * (level[both] - 1) if len(alone) else saving / level[both]
    noise = _noise(phases, alone, saving)

    evaluation, checkpoint, pair, compilation = None, None, None, None
    excess = 0.0 if phases.first is None else float(phases.excess_s(run, np.array([phases.first]), mean_ratio)[0])
    if phases.baseline is None and len(rows) + len(both):
        # No normal iteration to compare with: only the sum of the parts of each row is known.
        most = median((run.iterations.time_s * phases.covers)[phases.of(Phase.EVAL, Phase.EVAL_CHECKPOINT)])
        evaluation = _Cost(Interval(0.0, most / 2, most), NOT_SEPARABLE)
        if len(both):
            checkpoint = _Cost(Interval(0.0, most / 8, most), NOT_SEPARABLE)
            pair = _Cost(Interval(0.0, most / 2 + most / 8, most), NOT_SEPARABLE)
    else:
        evaluation = _typical(alone, *noise) if len(alone) else None
        pair = _typical(saving, *noise) if len(saving) else None
        if pair is not None and evaluation is not None:
            checkpoint = _with_and_without(evaluation, pair, belief)
        elif pair is not None:  # if the first iteration evaluates but does not save, no evaluation is longer than it
            longest = excess / at_first if phases.first_evaluates and not phases.first_saves else None
            evaluation, checkpoint = _divided(pair, _prior(run, step.seconds.mid)[0], belief, longest)
    lone_saves = phases.excess_s(run, phases.of(Phase.CHECKPOINT), mean_ratio)
    if checkpoint is None and len(lone_saves):
        checkpoint = _typical(lone_saves, *noise)
    if phases.first is not None:
        inside = None
        if evaluation is not None and phases.first_evaluates:
            inside = evaluation.seconds.scaled(at_first).widened(down=doubt_at_first, up=doubt_at_first)
            if checkpoint is not None and phases.first_saves:
                inside = inside + checkpoint.seconds
        evaluation, compilation = _start(run, phases, step.seconds.mid, excess, evaluation, inside, noise)
    # Events on iterations that were not logged: the model's figure, if it has one.
    if evaluation is None and (phases.unlogged_evals.total or phases.trailing):
        evaluation = _from_prior(_prior(run, step.seconds.mid)[0], 0.0)
    if checkpoint is None and run.checkpoints:
        checkpoint = _from_prior(belief, evaluation.seconds.high if evaluation is not None else 0.0)
    found = {"step_s": step, "eval_s": evaluation, "checkpoint_s": checkpoint, "compile_s": compilation}
    known = {name: cost for name, cost in found.items() if cost is not None}
    seconds: dict[str, Any] = {name: cost.seconds for name, cost in known.items()}
    how, pair_s = {name: cost.how for name, cost in known.items()}, pair.seconds if pair is not None else None
    return Costs(**seconds, how=how, mean_ratio=mean_ratio, pair_s=pair_s)


# --- the step, and how its length changes -----------------------------------------------------------------------


def _step(run: Run, phases: Phases, speed_of: npt.NDArray[np.int16], speeds_s: Floats) -> tuple[_Cost, float]:
    """The median time of the normal iterations, and the mean over the median around their baseline."""
    normal, baseline = phases.normal, phases.baseline
    if baseline is None or not normal.any():
        smallest = float(run.iterations.time_s.min())
        return _Cost(Interval(0.0, smallest / 3, smallest), NOT_SEPARABLE), 1.0
    times, covers = chosen(run.iterations.time_s, normal), np.asarray(chosen(phases.covers, normal))
    usual = chosen(baseline.time_s, normal)
    heaviest = max(STALL_RATIO, 1 + STALL_NOISES * baseline.noise)  # the most that a row may count in a mean
    iterations = float(covers.sum())
    # Not below 1: a time shorter than the usual one is a host that did not wait for its device, not a faster step.
    ratios = series(len(times), lambda rows: np.minimum(times[rows] / usual[rows], heaviest) * covers[rows])
    mean_ratio = max(1.0, total(ratios) / iterations)
    cut = series(len(times), lambda rows: np.minimum(times[rows], usual[rows] * heaviest) * covers[rows])
    mean = total(cut) / iterations
    # If steps grow by a schedule, or few rows cover most of the steps, one half says nothing about the other.
    squares = series(len(covers), lambda rows: covers[rows].astype(np.float64) ** 2)
    few = iterations**2 < 0.5 * len(covers) * total(squares)
    mid = mean if run.traits.schedules or few else median(times, covers)
    first = phases.first
    if mid != mean and first is not None and phases.covers[first] > 1 and run.iterations.time_s[first] <= mid:
        plain = normal.copy()
        plain[first] = True  # the mean of a first epoch without a visible start is as good as the others
        mid = median(run.iterations.time_s[plain], phases.covers[plain])
    if len(speeds_s) > 1:  # the mean of two speeds is not a step's, and their distance is no error
        mean, own, each = mid * mean_ratio, speed_of[normal], times
        times = series(len(each), lambda rows: each[rows] * mid / speeds_s[own[rows]])
    if len(times) > 4:
        # Less than 1.645: the interval spans the median and the mean, and each has its error on one side only.
        error = 1.1 * standard_error(times)
    elif len(times) > 1:
        error = t_quantile(len(times) - 1) * float(np.std(times, ddof=1)) / math.sqrt(len(times))
    else:
        error = t_quantile(1) * _STEADY * float(times[0])
    # Rounding hides up to half a digit if all rows print the same; if they differ, it averages out.
    alike = float(np.unique(times, return_counts=True)[1].max()) / len(times) if run.traits.rounds_times else 1.0
    error += alike * phases.digit_s / 2
    low, high = min(mid, mean), max(mid, mean)
    return _Cost(Interval(max(low - error, 0.0), mid, high + error), MEASURED), mean_ratio


def _speeds(run: Run, phases: Phases, regimes: Regimes) -> tuple[npt.NDArray[np.int16], Floats]:
    """For each row the number of its speed, and the step time at each speed, if one figure does not fit all rows.

    Only a jump starts a new speed: if the adjoining halves of two stretches differ little, it is a drift.
    """
    normal, numbers = phases.normal, run.iterations.number
    begins = [regime.from_iteration for regime in regimes.regimes]
    of_row = np.zeros(len(numbers), np.int16)

    def level(times: Any) -> float:
        return median(series(len(times), lambda part: np.maximum(times[part], PRINTED_STEP_S / 2)))

    times = chosen(run.iterations.time_s, normal)
    rows = rows_from(numbers, begins).tolist()  # all are normal rows
    places = [*(int(np.count_nonzero(normal[:row])) for row in rows), len(times)]
    for row, begin, cut, end in zip(rows[1:], places, places[1:], places[2:], strict=False):
        before, after = times[(begin + cut) // 2 : cut], times[cut : (cut + end + 1) // 2]
        if abs(math.log(level(after) / level(before))) > math.log(LARGE_RATIO):
            of_row[row:] += 1
    speeds = (chosen(run.iterations.time_s, normal & (of_row == speed)) for speed in range(int(of_row[-1]) + 1))
    return of_row, np.array([level(times) for times in speeds])


def _level(run: Run, phases: Phases, now: npt.NDArray[np.bool_]) -> tuple[Levels, float, float]:
    """The local step time relative to its mean at all evaluations, since what slows steps slows these equally: for each
    row, for the first iteration, and how far off that may be. If a run has two speeds, relative to the present one.
    """
    normal = phases.normal
    if phases.baseline is None or not normal.any():
        return Levels(np.ones(1), np.zeros(len(normal), np.uint8)), 1.0, 0.0
    # Follows the times more closely than the baseline if the noise allows, so that a drift is not smeared at the ends.
    noise = 1.25 * phases.baseline.noise  # the error of a median, times the root of its number of rows
    window = max(9, min(WINDOW, math.ceil((noise / _STEADY) ** 2)))
    local = running_levels(chosen(run.iterations.time_s, normal), window, least=PRINTED_STEP_S / 2)
    local = Levels(local.values / (total(local) / len(local)), local.of_row)
    # Variation within the noise of the medians is no change of speed.
    kept = max(0.0, 1 - noise**2 / window / max(variance(local), 1e-30))
    local = Levels(1 + kept * (local.values - 1), local.of_row)
    # At the first iteration: on a line through the first two windows, as a drift is steepest there. If the line does
    # not lead to a positive time, it crosses a jump, which says nothing about the time before.
    half = window // 2
    line = 2 * local[half] - local[2 * half] if len(local) >= 3 * half else 0.0
    start = float(line if line > 0 else local[0])

    logged = np.flatnonzero(phases.of(Phase.EVAL, Phase.EVAL_CHECKPOINT))
    everywhere = local.spread_over(normal)
    levels, weights = everywhere[logged], np.ones(len(logged))
    if phases.unlogged_evals.total:
        between, times = phases.unlogged_evals.at_rows(run.iterations.number)
        levels, weights = np.append(levels, everywhere[between]), np.append(weights, times)
    if not len(logged):
        levels, weights = np.append(levels, 1.0), np.append(weights, 1.0)
    if phases.first_evaluates:
        levels, weights = np.append(levels, start), np.append(weights, 1.0)
    mean = float(np.average(levels, weights=weights)) if now.all() else median(local[now[normal]])
    return Levels(local.values / mean, local.of_row).spread_over(normal), start / mean, 0.5 * abs(start - 1) / mean


# --- evaluation and checkpoint ----------------------------------------------------------------------------------


def _noise(phases: Phases, alone: Floats, saving: Floats) -> tuple[float, float, float]:
    """The relative noise of one evaluation, with its degrees of freedom; and the noise of a step in seconds."""
    groups = [group for group in (alone, saving) if len(group) > 1]
    seen = float(sum(len(group) - 1 for group in groups))
    # Evaluations are regular within one run: max/min is mostly below 1.05, so the prior is about 1 %.
    before, degrees = 0.013, 1.5
    weight = degrees * before**2
    if groups:
        together = np.concatenate([(group - median(group)) / max(median(group), 1e-9) for group in groups])
        # A stall may fall on an evaluation: with enough of them, the median absolute deviation ignores it.
        own = spread(together)
        if len(together) < 6:
            own = max(own, math.sqrt(float(np.mean(np.minimum(together**2, 0.05)))))
        weight += seen * (own * math.sqrt(len(together) / seen)) ** 2
    degrees += seen
    step_s = 0.0
    if phases.baseline is not None:
        usual, covers = phases.baseline.time_s, phases.covers
        step_s = phases.baseline.noise * median(series(len(usual), lambda rows: usual[rows] * covers[rows]))
    return math.sqrt(weight / degrees), degrees, step_s


def _prior(run: Run, step_s: float) -> tuple[LogNormalPrior | None, float]:
    """The belief about an evaluation, and its seconds if nothing is known: nanoGPT's batches, no accumulation."""
    settings = run.settings
    accumulation, batches = settings.number("gradient_accumulation_steps"), settings.count("eval_iters")
    micro_steps = max(accumulation / (settings.count("world_size") or 1), 1.0) if accumulation else 1.0
    batches_or_usual = batches or NANOGPT_DEFAULTS["eval_iters"]
    found = evaluation_prior(step_s, batches_or_usual, micro_steps, settings.flag("compile"))
    return found if batches and accumulation else None, found.median_s


def _typical(values: Floats, relative: float, degrees: float, step_s: float) -> _Cost:
    """The cost of several similar events, with the noise of one (see _noise)."""
    mid = max(median(values), 0.0)
    single = math.hypot(relative * mid, step_s)
    if len(values) >= 4:  # a save adds its own noise, so the group's spread counts once it is known
        own, shared = len(values) - 1.0, 3.0  # how many evaluations the noise shared by both kinds counts for
        single = math.sqrt((shared * single**2 + own * spread(values) ** 2) / (shared + own))
        degrees = min(degrees, shared + own)
    efficiency = 1.0 if len(values) < 3 else 1.2  # of a median, relative to a mean
    error = efficiency * single / math.sqrt(len(values))
    return _Cost(Interval.around(mid, t_quantile(degrees) * error), MEASURED, error, degrees)


def _from_prior(belief: LogNormalPrior | None, most_s: float) -> _Cost:
    """A cost that no row shows: from a belief, or anything up to `most_s`."""
    if belief is None:
        return _Cost(Interval(0.0, 0.0, most_s), NOT_SEPARABLE)
    return _Cost(Interval(*(belief.median_s * math.exp(z * belief.spread) for z in (-Z90, 0.0, Z90))), MODELLED)


def _with_and_without(alone: _Cost, saving: _Cost, belief: LogNormalPrior | None) -> _Cost:
    """The checkpoint: what evaluations with a save take beyond those without, if noisy combined with a belief."""
    difference, error = saving.seconds.mid - alone.seconds.mid, math.hypot(saving.error, alone.error)
    half = t_quantile(min(saving.degrees, alone.degrees)) * error
    if difference > 2.5 * half or (belief is None and difference > half):
        return _Cost(Interval.around(difference, half), MEASURED)
    if belief is None:
        high = max(difference + half, 1e-9)
        return _Cost(Interval(0.0, min(max(difference, 0.0), high), high), NOT_SEPARABLE)
    # The noisy difference and the belief, multiplied on a grid.
    high = max(difference + 6 * error, belief.median_s * math.exp(2.5 * belief.spread))
    grid = np.geomspace(min(belief.median_s * math.exp(-3 * belief.spread), high / 2), high, _GRID)
    student = -(saving.degrees + 1) / 2 * np.log1p(((grid - difference) / error) ** 2 / saving.degrees)
    return _Cost(_quantiles(grid, student + _log_density(belief, grid)), COMBINED)


def _log_density(belief: LogNormalPrior, seconds: Floats) -> Floats:
    return np.asarray(-0.5 * (np.log(seconds / belief.median_s) / belief.spread) ** 2 - np.log(seconds))


def _quantiles(grid: Floats, log_weight: Floats) -> Interval:
    mass = np.exp(log_weight - log_weight.max()) * np.gradient(grid)
    cumulative = np.cumsum(mass) / mass.sum()
    low, mid, high = np.interp((0.05, 0.5, 0.95), cumulative, grid).tolist()
    return Interval(low, mid, high)


def _divided(
    pair: _Cost, evaluation: LogNormalPrior | None, checkpoint: LogNormalPrior | None, longest_s: float | None
) -> tuple[_Cost, _Cost]:
    """Splits the sum if every evaluation saves: by beliefs, and by how long an evaluation is at most."""
    total, slack = pair.seconds.mid, t_quantile(pair.degrees) * pair.error
    cool_card = 0.15  # a first evaluation may be faster than later ones by this much
    too_wide = 20.0  # a checkpoint known to no better than this factor is not separable
    if total > 0 and (evaluation is not None or checkpoint is not None):
        share = 1 / (1 + np.exp(-np.linspace(-7, 7, _GRID)))  # of the checkpoint in the sum, finer at both ends
        weight = np.zeros(_GRID)
        if evaluation is not None:
            weight += _log_density(evaluation, total * (1 - share))
        if checkpoint is not None:
            weight += _log_density(checkpoint, total * share)
        if longest_s is not None and longest_s > 0:
            weight -= 0.5 * (np.maximum(total * (1 - share) / longest_s - 1, 0.0) / cool_card) ** 2
        part = _quantiles(share, weight)
        rest = Interval(1 - part.high, 1 - part.mid, 1 - part.low)
        alone, saved = (of.scaled(total).widened(down=slack / total, up=slack / total) for of in (rest, part))
        if saved.high > too_wide * max(saved.low, 1e-12):
            return _Cost(alone, MODELLED), _Cost(Interval(0.0, saved.mid, saved.high), NOT_SEPARABLE)
        return _Cost(alone, MODELLED), _Cost(saved, MODELLED)
    if longest_s is not None and 0 < longest_s < (1 - 2 / too_wide) * total:
        # A warm-up without compilation takes 1 s and at most 8 s in published logs.
        low, mid = max(longest_s - 8.0, 0.2 * longest_s), max(longest_s - 1.0, 0.6 * longest_s)
        high = longest_s * (1 + cool_card)
        saved = Interval(max(total - high - slack, 0.0), total - mid, total - low + slack)
        return _Cost(Interval(low, mid, high), COMBINED), _Cost(saved, COMBINED)
    whole, likely = max(total + slack, 1e-9), 0.15 * total  # what the checkpoint likely costs
    return (
        _Cost(Interval(0.0, total - likely, whole), NOT_SEPARABLE),
        _Cost(Interval(0.0, likely, whole), NOT_SEPARABLE),
    )


# --- the first iteration ----------------------------------------------------------------------------------------


def _start(
    run: Run,
    phases: Phases,
    step_s: float,
    excess: float,
    evaluation: _Cost | None,
    inside: Interval | None,
    noise: tuple[float, float, float],
) -> tuple[_Cost | None, _Cost]:
    """The compilation: the first iteration without its step and what else is inside. Also the evaluation, if it is the
    only one.
    """
    relative, degrees, step_noise_s = noise
    whole = float(run.iterations.time_s[phases.first] * phases.covers[phases.first])
    if phases.baseline is None:  # nothing to compare with: the first may hold anything in any proportion
        rest, how = Interval(0.0, whole / 3, whole), NOT_SEPARABLE
        if evaluation is None and phases.first_evaluates:
            evaluation = _Cost(rest, how)
    elif excess <= 0:
        rest, how = Interval(0.0, 0.0, max(step_noise_s, PRINTED_STEP_S) * 2), MEASURED
    elif evaluation is None and phases.first_evaluates:
        # The only evaluation is the one in the first iteration: a belief divides it, or nothing does.
        belief, usual_s = _prior(run, step_s)
        likely, how = Interval(0.0, min(excess, usual_s), excess), NOT_SEPARABLE
        if belief is not None and belief.median_s * math.exp(-2 * belief.spread) <= excess:
            ends = (min(belief.median_s * math.exp(z * belief.spread), excess) for z in (-Z90, 0.0, Z90))
            likely, how = Interval(*ends), MODELLED
        evaluation, rest = _Cost(likely, how), Interval(excess - likely.high, excess - likely.mid, excess - likely.low)
    elif evaluation is None or inside is None:
        rest, how = Interval.around(excess, Z90 * step_noise_s), MEASURED
    else:
        mid = excess - inside.mid
        single = math.hypot(relative * inside.mid, step_noise_s) * t_quantile(degrees)
        if evaluation.how == NOT_SEPARABLE:
            least = max(excess - inside.high - single, 0.0)  # an evaluation is no longer than one with its checkpoint
            rest, how = Interval(least, max(mid, least), max(excess, mid)), COMBINED if least > 0 else NOT_SEPARABLE
        else:
            low = mid - math.hypot(inside.high - inside.mid, single)
            high = mid + math.hypot(inside.mid - inside.low, single)
            rest = Interval(max(low, 0.0), max(mid, 0.0), max(high, 0.25 * single))
            how = COMBINED if evaluation.how == MODELLED else MEASURED
    # Even with a large noise no part is longer than the whole first iteration.
    return evaluation, _Cost(Interval(min(rest.low, whole), min(rest.mid, whole), min(rest.high, whole)), how)
