"""How fast a run is: the levels of its speed, what it computes in its normal iterations, and what it should.

The step time changes suddenly, between levels, or drifts slowly; the warm-up is cut off first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stepwatch.analysis.costs import MODELLED, Costs
from stepwatch.analysis.phases import Phase, Phases
from stepwatch.analysis.statistics import (
    MEDIAN_ERROR,
    block_medians,
    chosen,
    median,
    pieces,
    series,
    spread,
    variance,
)
from stepwatch.estimator.ceilings import normal_mfu
from stepwatch.gpus.catalogue import A100_FLOPS
from stepwatch.run import IMPOSSIBLE_MFU, SENTINEL_MFU, Floats, Run
from stepwatch.settings import Origin, Settings, flops_per_token
from stepwatch.units import Z90, Interval

if TYPE_CHECKING:
    from stepwatch.analysis.goodput import Goodput
    from stepwatch.analysis.long_columns import Series
    from stepwatch.estimator.estimation import Estimate
    from stepwatch.estimator.workload import Workload
    from stepwatch.gpus import Gpu

SMALLEST_CHANGE = 0.10
_ROWS_PER_BLOCK = 15
FITTED_ROWS = 400  # at the beginning of a log: enough to undo the average


# --- levels of the step time ------------------------------------------------------------------------------------


class Regime(NamedTuple):
    """A stretch of the run at one level."""

    from_iteration: int
    to_iteration: int
    step_s: float
    rows: int
    announced: str = ""
    """The line of the log that says why its steps differ from those before."""


class Regimes(NamedTuple):
    regimes: tuple[Regime, ...] = ()
    drift: float | None = None
    """Relative change of the step time from the first to the last fifth, if it is gradual."""
    stable_from: int | None = None
    """The first iteration after the warm-up, if there is a noticeable one."""

    @property
    def announced(self) -> bool:
        """Whether the log explains every change of speed."""
        return len(self.regimes) > 1 and all(regime.announced for regime in self.regimes[1:])


def find_regimes(run: Run, phases: Phases) -> Regimes:
    normal = phases.normal
    times, numbers = (chosen(column, normal) for column in (run.iterations.time_s, run.iterations.number))
    if not len(times) or phases.baseline is None:
        return Regimes()
    warm_up = 0  # leading rows slower than what follows; only after the first iteration of a process
    if phases.phase[0] == Phase.FIRST and len(times) >= 8:
        limit = median(times[3:30]) * (1 + max(0.04, 4 * phases.baseline.noise))
        while warm_up < len(times) // 4 and times[warm_up] > limit:
            warm_up += 1
    stable = int(numbers[warm_up]) if warm_up else None
    times, numbers = times[warm_up:], numbers[warm_up:]
    lines = run.iterations.line[normal][warm_up:] if run.announced else run.iterations.line[:0]
    # What can be due to rounding is no change.
    digit = math.log1p(1.01 * phases.digit_s / max(median(times), 1e-9))
    smallest = max(SMALLEST_CHANGE, digit)
    bounds = [0, len(times)]
    ends = [(float(times[rows].min()), float(times[rows].max())) for rows in pieces(len(times))]
    if math.log(max(*(high for _, high in ends), 1e-9) / max(min(low for low, _ in ends), 1e-9)) >= smallest:
        bounds = _bounds(times, smallest)
    # A line that says why is just before the first row of a regime, or one row away from there.
    announced = [(int(np.searchsorted(lines, line)), text) for line, text in run.announced]
    regimes = []
    for begin, end in pairwise(bounds):
        regime = Regime(int(numbers[begin]), int(numbers[end - 1]), median(times[begin:end]), rows=end - begin)
        why = next((text for row, text in announced if begin > 0 and abs(row - begin) <= 1), "")
        regimes.append(regime._replace(announced=why))
    drift = None  # from the first to the last fifth, if the fifths rise or fall in order
    fifths = block_medians(times, 5) if len(regimes) == 1 and len(times) >= 50 else np.zeros(1)
    if fifths[0] > 0:  # not too short for the printed digits
        change = float(fifths[-1] / fifths[0] - 1)
        single = math.sqrt(variance(times[: len(times) // 5]))
        noise = single / math.sqrt(len(times) / 5) / float(fifths[0])
        backwards = np.diff(fifths) * np.sign(change) < -0.2 * abs(fifths[-1] - fifths[0])
        # A drift that has mostly gone back by the end is over.
        stays = float(median(times[-(len(times) // 10) :]) / fifths[0] - 1) / change > 0.5 if change else False
        if abs(change) >= max(0.02, 5 * noise, math.expm1(digit)) and not backwards.any() and stays:
            drift = change
    return Regimes(regimes=tuple(regimes), drift=drift, stable_from=stable)


def _bounds(times: Floats | Series, smallest: float) -> list[int]:
    """The rows at which the level changes by at least `smallest`, and both ends."""
    if len(times) < 2 * _ROWS_PER_BLOCK:
        # Too few rows for blocks: cut only where the change is large and far beyond the noise from row to row.
        levels = np.log(np.maximum(times, 1e-9))
        row_noise = spread(np.diff(levels)) / math.sqrt(2)

        def clearly_apart(before: Floats, after: Floats, _gain: float) -> bool:
            error = MEDIAN_ERROR * row_noise * math.sqrt(1 / len(before) + 1 / len(after))
            overlap = max(before.min(), after.min()) <= min(before.max(), after.max())
            change = abs(median(after) - median(before))
            return change > max(0.2, 6 * error) and not overlap

        return _merged(times, [0, *_cuts(levels, 4, clearly_apart), len(times)], smallest)

    blocks = min(200, len(times) // _ROWS_PER_BLOCK)
    edges = np.linspace(0, len(times), blocks + 1).astype(int)
    levels = np.log(np.maximum(block_medians(times, blocks), 1e-9))
    # The noise of a block's median: from row to row and, unless there are few blocks, from block to block.
    changes = series(len(times) - 1, lambda rows: np.diff(np.log(np.maximum(times[rows.start : rows.stop + 1], 1e-9))))
    single = math.sqrt(variance(changes) / 2)
    noise = MEDIAN_ERROR * single / math.sqrt(len(times) / blocks)
    if blocks > 3:
        noise = max(noise, spread(np.diff(levels)) / math.sqrt(2))
    least = 2 * max(SMALLEST_CHANGE / 2, 3 * noise) ** 2
    cuts = _cuts(levels, 1, lambda _before, _after, gain: gain > least)
    bounds = _merged(times, [0, *edges[cuts].tolist(), len(times)], smallest)

    # Blocks show that the level changes, the rows of the two blocks around a cut show where; a drift keeps its cut.
    # A change needs half of a block's rows to move its median: no stretch is shorter.
    block, placed = math.ceil(len(times) / blocks), [0]
    for cut, end in pairwise(bounds[1:]):
        begin, stop = max(cut - block, placed[-1]), min(cut + block, end)
        around = np.log(np.maximum(times[begin:stop], 1e-9))
        middle, far = median(around), 2 * spread(around)
        row, _ = _best_cut(np.clip(around, middle - far, middle + far), 1)  # one slow row is no change of level
        change = _level(times, begin + row, end) - _level(times, placed[-1], begin + row)
        place = begin + row if abs(change) >= smallest else cut
        if min(place - placed[-1], end - place) >= block // 2:
            placed.append(place)
    return _merged(times, [*placed, bounds[-1]], smallest)


def _cuts(levels: Floats, fewest: int, is_change: Callable[[Floats, Floats, float], bool]) -> list[int]:
    """Binary segmentation: splits where this explains most, again and again, as long as it is a change."""
    found: list[int] = []
    open_parts = [(0, len(levels))]
    while open_parts:
        begin, end = open_parts.pop()
        size, gain = _best_cut(levels[begin:end], fewest)
        cut = begin + size
        if size and is_change(levels[begin:cut], levels[cut:end], gain):
            found.append(cut)
            open_parts += [(begin, cut), (cut, end)]
    return sorted(found)


def _best_cut(levels: Floats, fewest: int) -> tuple[int, float]:
    """The place where two levels instead of one reduce the sum of squares most, and by how much."""
    count = len(levels)
    if count < 2 * fewest:
        return 0, 0.0
    sizes = np.arange(fewest, count - fewest + 1)
    sums = np.cumsum(levels)[sizes - 1]
    difference = sums / sizes - (levels.sum() - sums) / (count - sizes)
    gain = sizes * (count - sizes) / count * difference**2
    best = int(np.argmax(gain))
    return best + fewest, float(gain[best])


def _merged(times: Floats | Series, bounds: list[int], smallest: float) -> list[int]:
    """Removes cuts between parts that are nearly alike, the most alike first: a drift is no change of regime."""
    kept, levels = list(bounds), [_level(times, begin, end) for begin, end in pairwise(bounds)]
    while len(levels) > 1:
        changes = [abs(after - before) for before, after in pairwise(levels)]
        least = changes.index(min(changes))
        if changes[least] >= smallest:
            break
        del kept[least + 1]
        levels[least : least + 2] = [_level(times, kept[least], kept[least + 1])]
    return kept


def _level(times: Floats | Series, begin: int, end: int) -> float:
    return math.log(max(median(times[begin:end]), 1e-9))


# --- what the normal iterations compute -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    tokens_per_s: float | None = None
    effective_tokens_per_s: float | None = None
    achieved_flops: float | None = None
    """Per card."""
    flops_from: str | None = None
    """`header`, `mfu` (the printed one, undone) or `parameters` (6 N, attention not counted)."""
    least_flops: float | None = None
    """Per card, if an excerpt is too short to undo the printed MFU: slow iterations only pull that average down."""
    gpu: Gpu | None = None
    gpu_origin: str | None = None
    peak_flops: float | None = None
    peak_dtype: str | None = None
    mfu: float | None = None
    normal_mfu: Interval | None = None
    """What others reach on this card."""
    reported_mfu: float | None = None
    possible: bool = True
    """False if the card cannot do what the times would need, boost clock included."""
    cards: int

    @property
    def least_mfu(self) -> float | None:
        return self.least_flops / self.peak_flops if self.least_flops and self.peak_flops else None


def find_throughput(
    run: Run, phases: Phases, costs: Costs, goodput: Goodput, gpu: Gpu | None, gpu_origin: str | None
) -> Throughput:
    step = costs.step_s.mid
    tokens = tokens_per_iteration(run)
    cards = run.settings.count("world_size") or 1

    # FLOPs of one card for one iteration: the header is exact, the printed mfu works without one.
    flops: float | None = None
    source = None
    n_params = run.settings.number("n_params")
    shape = [size for name in ("n_layer", "n_embd", "block_size") if (size := run.settings.count(name))]
    if run.flops_per_token and tokens:
        flops, source = run.flops_per_token * tokens / cards, "header"
    elif n_params and tokens and len(shape) == 3:
        flops, source = flops_per_token(n_params, *shape) * tokens / cards, "header"
    elif run.traits.mfu_of_a100 and (behind := flops_behind_mfu(run)) is not None:
        flops, source = behind, "mfu"
    elif n_params and tokens:
        flops, source = flops_per_token(n_params) * tokens / cards, "parameters"
    achieved = flops / step if flops is not None and costs.step_measured else None
    printed = run.iterations.reported_mfu
    real = (printed != SENTINEL_MFU) & (printed < IMPOSSIBLE_MFU)
    least = None
    if run.traits.mfu_of_a100 and flops is None and costs.step_measured and real.any():
        slowest = step / costs.step_s.high  # earlier steps in the average may have been a little faster
        least = max(float(printed[real].max()), 0.0) * A100_FLOPS * slowest or None
    peak = dtype = limit = None
    if gpu is not None:
        stated = run.settings.text("dtype")
        (peak, dtype), limit = gpu.peak_flops(stated), gpu.impossible_above_flops(stated)
    return Throughput(
        tokens_per_s=tokens / step if tokens and costs.step_measured else None,
        effective_tokens_per_s=tokens * goodput.iterations / goodput.wall_s if tokens and goodput.wall_s > 0 else None,
        achieved_flops=achieved,
        flops_from=source if achieved else None,
        least_flops=least,
        gpu=gpu,
        gpu_origin=gpu_origin,
        peak_flops=peak or None,
        peak_dtype=dtype,
        mfu=achieved / peak if achieved and peak else None,
        normal_mfu=normal_mfu(gpu) if gpu is not None else None,
        reported_mfu=float(printed[len(real) - 1 - int(np.argmax(real[::-1]))]) if real.any() else None,
        possible=not limit or (achieved or least or 0.0) <= limit,
        cards=cards,
    )


def tokens_per_iteration(run: Run) -> float | None:
    settings = run.settings
    stated = settings.number("tokens_per_iter")
    if stated:
        return stated
    if not run.traits.has_nanogpt_settings:
        # Tokens per second and the time of a step also show the tokens of a step.
        rate, time = run.iterations.reported_tokens_per_s, run.iterations.time_s
        known = np.isfinite(rate) & (rate > 0) & (time > 0)
        return round(median(rate[known] * time[known])) if known.any() else None
    factors = [settings.number(name) for name in ("batch_size", "block_size", "gradient_accumulation_steps")]
    known_factors = [factor for factor in factors if factor is not None]
    return float(math.prod(known_factors)) if len(known_factors) == len(factors) else None


def flops_behind_mfu(run: Run) -> float | None:
    """FLOPs per iteration and card that the printed mfu is based on.

    The printed value is r' = 0.9 r + 0.1 F / (312e12 dt), linear in F: every line gives F, the first printed
    one without any smoothing. The median over the lines removes the rounding of single ones.
    """
    printed, times = run.iterations.reported_mfu[:FITTED_ROWS], run.iterations.time_s[:FITTED_ROWS]
    usable = ~np.isnan(printed) & (printed != SENTINEL_MFU) & (times > 0)
    if not usable.any() or run.reordered:
        return None
    begin = int(np.argmax(usable))
    fresh = bool((printed[:begin] == SENTINEL_MFU).any())
    rest = usable[begin:]
    end = begin + (int(np.argmin(rest)) if not rest.all() else len(rest))  # where the series breaks off
    carried = 0.0 if fresh else float(printed[begin])
    gain = 1 / float(times[begin]) if fresh else 0.0
    found = [float(printed[begin]) / gain] if fresh and printed[begin] > 0 else []
    for row in range(begin + 1, end):
        carried, gain = 0.9 * carried, 0.9 * gain + 0.1 / float(times[row])
        if printed[row] > 0 and (fresh or row > begin + 4):
            found.append((float(printed[row]) - carried) / gain)
    flops = median(np.array(found)) * A100_FLOPS
    return flops if flops > 0 else None


# --- what the estimator expects ---------------------------------------------------------------------------------


def find_expected(workload: Workload, gpu: Gpu) -> Estimate | None:
    """What to expect on this card; None if its speed is unknown or no model can have these settings."""
    from stepwatch.estimator.estimation import estimate

    try:
        return estimate(workload, gpu)
    except (ValueError, OverflowError, ZeroDivisionError):  # settings that no model can have
        return None


def workload_of(run: Run, gpu: Gpu | None) -> Workload | None:
    """What the run computes; None if the log does not show it, or contradicts itself."""
    # The tokens of an iteration, and a shape: stated, or nanoGPT's default that its parameter count confirms.
    settings, stated_params = run.settings, run.settings.number("n_params")
    batch = settings.count("batch_size") and settings.count("gradient_accumulation_steps")
    shape = all(settings.count(name) for name in ("n_layer", "n_head", "n_embd"))
    shape = shape or (run.traits.has_nanogpt_settings and bool(stated_params))
    if not run.traits.states_model or not shape or not (settings.count("tokens_per_iter") or batch):
        return None
    from stepwatch.estimator.workload import Workload  # most logs do not say what they compute

    compiles = settings.flag("compile")
    if compiles is None and run.traits.announces_compile and run.has_header:
        compiles = False  # nanoGPT says so when it compiles
        settings = settings.overridden_by(Settings.of(Origin.INFERRED, {"compile": compiles}))
    try:
        workload, _ = Workload.from_settings(settings, has_bf16=gpu is None or gpu.has_bf16)
        if compiles is None:
            workload = replace(workload, compile=None)
        # The completed shape must have the number of parameters that the log prints (positions not counted).
        counted = replace(workload, stated_params=None).n_params - workload.block_size * workload.n_embd
        return None if stated_params and abs(counted / stated_params - 1) >= 0.03 else workload
    except (ValueError, OverflowError, ZeroDivisionError):  # settings that no model can have
        return None


def least_step_s(run: Run, gpu: Gpu | None) -> float:
    """The time of a step at the peak of the card; 0 if the work or the peak is unknown."""
    n_params, tokens = run.settings.number("n_params"), run.settings.number("tokens_per_iter")
    peak = gpu.peak_flops().flops if gpu is not None else None
    if not peak or not n_params or not tokens:
        return 0.0
    return flops_per_token(n_params) * tokens / (run.settings.count("world_size") or 1) / peak


def combined(measured: Interval, rows: int, expected: Interval) -> Interval:
    """Combines a step seen on few rows with the estimator's, weighted by how well each is known (both log-normal)."""
    own = math.log(max(measured.high, 1e-12) / max(measured.low, 1e-12)) / 2 / Z90
    # The first normal iterations may differ from later ones by a tenth: the card is not warm, the compiler not done.
    seen = math.hypot(own, 0.10 / rows**0.7)
    believed = math.log(expected.high / expected.low) / 2 / Z90
    apart = abs(math.log(max(measured.mid, 1e-12) / expected.mid))
    if apart > 2 * math.hypot(seen, believed):  # what was seen is not what was expected: the log wins
        return Interval(*(measured.mid * math.exp(z * Z90 * seen) for z in (-1, 0, 1)))
    weight = seen**-2 / (seen**-2 + believed**-2)
    mid = math.exp(weight * math.log(max(measured.mid, 1e-12)) + (1 - weight) * math.log(expected.mid))
    doubt = Z90 * (seen**-2 + believed**-2) ** -0.5
    return Interval(mid * math.exp(-doubt), mid, mid * math.exp(doubt))


def with_expected_step(run: Run, phases: Phases, costs: Costs, expected: Estimate | None, gpu: Gpu | None) -> Costs:
    """If only the first iteration was seen: step and evaluation are as expected, the rest of it is compilation."""
    if expected is None:
        # By the size of the model alone: the time of its work at the MFU that others reach on this card, or half of it.
        normal, at_peak_s = normal_mfu(gpu) if gpu is not None else None, least_step_s(run, gpu)
        most_s = float(run.iterations.time_s[0])
        if normal is None or not at_peak_s or at_peak_s / normal.mid > most_s:
            return costs
        step = Interval(at_peak_s / normal.high, at_peak_s / normal.mid, min(2 * at_peak_s / normal.low, most_s))
        return replace(costs, step_s=step, how={**costs.how, "step_s": MODELLED})
    rest = float(run.iterations.time_s[0]) - expected.step_s.mid
    evaluation = expected.eval_s if phases.first_evaluates else Interval.exactly(0.0)
    left = (max(rest - part, 0.0) for part in (evaluation.high, evaluation.mid, evaluation.low))
    costs = replace(costs, step_s=expected.step_s, compile_s=Interval(*left))
    modelled = ["step_s", "compile_s"]
    if phases.first_evaluates:
        costs = replace(costs, eval_s=evaluation)
        modelled.append("eval_s")
    return replace(costs, how={**costs.how, **dict.fromkeys(modelled, MODELLED)})
