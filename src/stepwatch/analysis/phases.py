"""What each logged iteration was doing: what the log says first, what the times suggest second."""

from __future__ import annotations

import itertools
import math
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stepwatch.analysis.baseline import Baseline, baseline_of
from stepwatch.analysis.statistics import Floats, median
from stepwatch.run import SENTINEL_MFU, Run, Timing
from stepwatch.settings import Origin

Mask = npt.NDArray[np.bool_]

STALL_RATIO = 1.5
STALL_NOISES = 8.0
SPIKE_RATIO = 1.06
SPIKE_NOISES = 5.0
SLEEP_S = 300.0  # a stall beyond it is a machine that stood still
LARGEST_EVAL_RATIO = 500.0  # the largest published one is 287
DDP_PERIOD = 100  # PyTorch's DDP samples its statistics, and synchronises, every 100th iteration
DDP_LARGEST_RATIO = 6.0
_MOST_STEPS = 0.8
_FEW_STEPS = 0.1
_HEAVIEST_SPIKE = 50.0
_CLOCK_DOUBT = 0.1
_LIKE_SIZE = 4.0  # evaluations are regular, but some have a checkpoint on top
_CHANCE = 0.05
AVERAGES = (Timing.SPANS_LOG_INTERVAL, Timing.CUMULATIVE, Timing.SPANS_RUN)


class Phase(IntEnum):
    STEP = 0
    EVAL = 1
    EVAL_CHECKPOINT = 2
    CHECKPOINT = 3
    FIRST = 4
    STALL = 5


PHASE_NAMES = ("step", "eval", "eval+checkpoint", "checkpoint", "first", "stall")


class Certainty(IntEnum):
    SEEN = 0
    DEDUCED = 1
    GUESSED = 2


CERTAINTY_NAMES = ("seen", "deduced", "guessed")


class Phases(NamedTuple):
    """A phase and a certainty per row, and what was learned on the way."""

    phase: npt.NDArray[np.int8]
    certainty: npt.NDArray[np.int8]
    baseline: Baseline | None
    eval_interval: int | None
    eval_interval_inferred: bool
    first_evaluates: bool
    first_saves: bool
    covers: npt.NDArray[np.int64]
    """How many iterations the time of each row is about: 1, or the log interval where times are averages."""
    unlogged_evals: tuple[int, ...]
    unlogged_saves: tuple[int, ...]
    trailing: int | None
    """The iteration of an evaluation after the last logged row, when the log ends with it."""
    artefact: Mask
    periodic: int | None
    """The period of slow iterations that nothing explains."""

    def of(self, *phases: Phase) -> Mask:
        found = self.phase == phases[0]
        for phase in phases[1:]:
            found |= self.phase == phase
        return np.asarray(found)

    @property
    def normal(self) -> Mask:
        """Rows whose time is a training step and nothing else."""
        return np.asarray((self.phase == Phase.STEP) & ~self.artefact)

    def excess_s(self, run: Run, rows: npt.NDArray[np.generic], mean_ratio: float = 1.0) -> Floats:
        """What these rows took beyond a normal step; with heavy tails the mean step is above the median one."""
        times = run.iterations.time_s[rows]
        if self.baseline is None:
            return np.zeros(len(times))
        return np.asarray((times - mean_ratio * self.baseline.time_s[rows]) * self.covers[rows])


def find_phases(run: Run) -> Phases:
    iterations = run.iterations
    count = len(iterations)
    phase = np.zeros(count, np.int8)
    certainty = np.full(count, Certainty.DEDUCED, np.int8)

    _mark_seen(run, phase, certainty)
    first = _first_row(run)
    candidates = _candidates(run, phase, first)
    baseline = baseline_of(iterations, candidates)
    interval, inferred = _eval_interval(run, phase, first, baseline)
    _mark_deduced_evals(run, phase, certainty, first, baseline, interval, inferred)
    _mark_lone_saves(run, phase, certainty, baseline)
    baseline, candidates = _again(run, baseline, candidates, _candidates(run, phase, first))
    artefact, periodic = _mark_stalls(run, phase, certainty, first, baseline)
    baseline, _ = _again(run, baseline, candidates, _candidates(run, phase, first) & ~artefact)

    first_evaluates, first_saves = _first_holds(run, first, phase, interval)
    if first is not None:
        phase[first] = Phase.FIRST
        certainty[first] = Certainty.SEEN
    if run.span is not None:  # a recorder timed the step alone, whatever it was doing
        certainty[:] = Certainty.SEEN
    unlogged, trailing = _unlogged(run, phase, interval, inferred)
    return Phases(
        phase=phase, certainty=certainty, baseline=baseline, eval_interval=interval, eval_interval_inferred=inferred,
        first_evaluates=first_evaluates, first_saves=first_saves, covers=_covers(run), unlogged_evals=unlogged,
        unlogged_saves=_saves_at(run, set(unlogged)), trailing=trailing, artefact=artefact, periodic=periodic,
    )  # fmt: skip


def _candidates(run: Run, phase: npt.NDArray[np.int8], first: int | None) -> Mask:
    normal = phase == Phase.STEP
    if run.timing in AVERAGES:  # one step told apart from the many of an average says nothing of them
        covers = _covers(run)
        normal &= covers >= _FEW_STEPS * np.median(covers[covers > 1] if (covers > 1).any() else covers)
    if first is not None:
        normal[first] = False
    return np.asarray(normal)


def _again(run: Run, baseline: Baseline | None, before: Mask, now: Mask) -> tuple[Baseline | None, Mask]:
    """The baseline anew where other rows count as normal now."""
    return (baseline, before) if np.array_equal(before, now) else (baseline_of(run.iterations, now), now)


def _covers(run: Run) -> npt.NDArray[np.int64]:
    numbers = run.iterations.number
    if run.timing not in AVERAGES:
        return np.broadcast_to(np.int64(1), len(numbers))
    logged = int(numbers[0]) if run.timing is Timing.SPANS_RUN else run.settings.count("log_interval") or 1
    first = max(0, int(numbers[0]) - logged) if run.timing is Timing.SPANS_RUN else _before_first(numbers, logged)
    before = np.concatenate(([first], numbers[:-1]))
    return _without_left_out(run, np.maximum(numbers - before, 1))


def _without_left_out(run: Run, gaps: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """A mean is of one log interval: where lines were left out it says nothing of what they stood for."""
    interval = run.settings.get("log_interval")
    if interval is None or run.timing is not Timing.SPANS_LOG_INTERVAL or not run.traits.prints_means:
        return gaps
    usual = run.settings.count("log_interval") or 1
    longer = gaps > usual
    if interval.origin is Origin.INFERRED:
        if 2 * int((gaps == usual).sum()) < len(gaps):
            return gaps
        longer &= ~_in_series(gaps)
    if not longer.any():
        return gaps
    elapsed = np.diff(run.iterations.stamp_s, prepend=np.nan)  # a clock may bear the mean out
    longer &= ~(run.iterations.time_s * gaps <= elapsed * (1 + _CLOCK_DOUBT))
    return np.where(longer, usual, gaps)


def _in_series(gaps: npt.NDArray[np.int64]) -> Mask:
    """Gaps among at least three equal ones in a row: there the interval is another, and no line is missing."""
    inner = (gaps[1:-1] == gaps[:-2]) & (gaps[1:-1] == gaps[2:])
    found = np.zeros(len(gaps), bool)
    for shift in range(3):
        found[shift : shift + len(inner)] |= inner
    return found


def _before_first(numbers: npt.NDArray[np.int64], interval: int) -> int:
    """The iteration after which the first mean begins; a first row off the grid of the others is a shorter one."""
    first = int(numbers[0])
    if len(numbers) > 1 and numbers[1] - first == first:  # the interval may change later
        return 0
    if len(numbers) > 1 and (numbers[1] - first) % interval:
        return (first - 1) // interval * interval
    return max(0, first - interval)


# --- what the log says ------------------------------------------------------------------------------------------


def _mark_seen(run: Run, phase: npt.NDArray[np.int8], certainty: npt.NDArray[np.int8]) -> None:
    evaluations = run.evaluations if "eval" in run.holds else ()
    evaluated = _rows_of(run, [(event.at, event.line) for event in evaluations])
    saves = [save for save in run.checkpoints if "checkpoint" in run.holds]
    saved = _rows_of(run, [(save.at, save.line) for save in saves if save.at is not None])
    evaluated, saved = (rows & (not _in_all(run, rows)) for rows in (evaluated, saved))
    phase[evaluated & ~saved] = Phase.EVAL
    phase[evaluated & saved] = Phase.EVAL_CHECKPOINT
    phase[saved & ~evaluated] = Phase.CHECKPOINT
    certainty[evaluated | saved] = Certainty.SEEN


def _rows_of(run: Run, places: list[tuple[int, int]]) -> Mask:
    """The rows whose time holds events, given by number and line."""
    numbers, lines = run.iterations.number, run.iterations.line
    wanted = [number for number, _ in places]
    if run.timing not in AVERAGES or run.reordered:
        return _rows_at(numbers, wanted)
    # A mean holds all since the row before, and nothing that came after its own line.
    rows = np.searchsorted(numbers, wanted)
    inside = rows < len(numbers)
    rows, later = rows[inside], np.asarray([line for _, line in places], np.int64)[inside]
    rows = rows + (lines[rows] < later)
    found = np.zeros(len(numbers), bool)
    found[rows[rows < len(numbers)]] = True
    return found


def _in_all(run: Run, rows: Mask) -> bool:
    """Whether nearly every average is one of these rows: then an average with such an event is the normal thing."""
    covers = _covers(run)
    return run.timing in AVERAGES and bool(covers[rows].sum() > _MOST_STEPS * covers.sum())


def _rows_at(numbers: npt.NDArray[np.int64], wanted: list[int]) -> Mask:
    """Which of the rising numbers are wanted ones."""
    found = np.zeros(len(numbers), bool)
    rows = np.searchsorted(numbers, wanted)
    inside = rows < len(numbers)
    rows, exact = rows[inside], np.asarray(wanted, np.int64)[inside]
    found[rows[numbers[rows] == exact]] = True
    return found


def _first_row(run: Run) -> int | None:
    """The first iteration of the process; a log that starts in mid-run has none."""
    iterations = run.iterations
    if not len(iterations) or run.timing is Timing.SPANS_RUN:
        return None
    number, mfu = int(iterations.number[0]), float(iterations.reported_mfu[0])
    if run.span is not None:
        return 0 if number == 0 or run.has_header else None
    if number == 0 or mfu == SENTINEL_MFU:
        return 0
    if not run.traits.mfu_marks_start:  # these count from 1, or print averages from the first interval on
        interval = run.settings.count("log_interval") or 1
        if run.timing in AVERAGES:
            return 0 if run.has_header or _before_first(run.iterations.number, interval) == 0 else None
        return 0 if number == 1 or (run.has_header and number != interval) else None  # the tenth alone is not the first
    return 0 if run.has_header and math.isnan(mfu) else None


def _first_holds(run: Run, first: int | None, phase: npt.NDArray[np.int8], interval: int | None) -> tuple[bool, bool]:
    """Whether the first iteration holds an evaluation, and a checkpoint (never at iteration 0)."""
    if first is None or "eval" not in run.holds:
        return False, False
    number = int(run.iterations.number[first])
    if run.timing in AVERAGES:
        number = min((e.at for e in run.evaluations), default=number)
        if _in_all(run, _rows_at(run.iterations.number, [e.at for e in run.evaluations])):
            return False, False
        return any(e.at <= run.iterations.number[first] for e in run.evaluations), False
    told = any(e.at == number for e in run.evaluations)
    if number == 0 and run.traits.evaluates_at_zero:
        # nanoGPT always evaluates at 0; an excerpt may leave the line out, a whole log without it is a fork's.
        evaluates = told or not (run.has_header and run.evaluations)
    else:
        evaluates = told or (not run.evaluations and interval is not None and number % interval == 0)
    return evaluates, number > 0 and phase[first] in (Phase.EVAL_CHECKPOINT, Phase.CHECKPOINT)


def _saves_at(run: Run, numbers: set[int]) -> tuple[int, ...]:
    return tuple(sorted({save.at for save in run.checkpoints if save.at in numbers and save.at is not None}))


# --- what the times suggest -------------------------------------------------------------------------------------


def _spikes(run: Run, phase: npt.NDArray[np.int8], first: int | None, baseline: Baseline) -> Mask:
    limit = max(SPIKE_RATIO, math.exp(SPIKE_NOISES * baseline.noise))
    spikes = (baseline.ratio(run.iterations) > limit) & (phase == Phase.STEP)
    if first is not None:
        spikes[first] = False
    return np.asarray(spikes)


def _eval_interval(
    run: Run, phase: npt.NDArray[np.int8], first: int | None, baseline: Baseline | None
) -> tuple[int | None, bool]:
    """From the settings; else from the numbers of the evaluations seen; else from the period of the spikes."""
    known = run.settings.count("eval_interval")
    if known:
        return known, False
    numbers = [
        evaluation.at for evaluation in run.evaluations if evaluation.at > 1
    ]  # the first is often beside the grid
    if len(numbers) >= 2:
        return _usual_gap(np.diff(numbers)), True
    if len(numbers) == 1:
        return numbers[0], True
    if baseline is None or "eval" not in run.holds or run.evaluations:
        return None, True
    spikes = _spikes(run, phase, first, baseline)
    period = _period(run, spikes, baseline, first)
    return None if period == DDP_PERIOD and _looks_like_ddp(run, spikes, baseline) else period, True


def _usual_gap(gaps: npt.NDArray[np.int64]) -> int:
    """What divides all of them; many trainers evaluate once more at the last iteration, whatever its number."""
    usual = int(np.gcd.reduce(gaps[:-1])) if len(gaps) > 1 else 0
    return usual if usual > int(gaps[-1]) else int(np.gcd.reduce(gaps))


def _looks_like_ddp(run: Run, spikes: Mask, baseline: Baseline) -> bool:
    """Several processes, and no slow iteration larger than their sampling makes it."""
    return run.distributed and float(baseline.ratio(run.iterations)[spikes].max(initial=0.0)) < DDP_LARGEST_RATIO


def _period(run: Run, spikes: Mask, baseline: Baseline, first: int | None) -> int | None:
    """The interval whose multiples are slow nearly every time and together hold most of the slowness of their size."""
    numbers = run.iterations.number
    others = np.ones(len(numbers), bool)
    if first is not None:
        others[first] = False
    excess = np.where(spikes, np.minimum(baseline.ratio(run.iterations) - 1, _HEAVIEST_SPIKE), 0.0)
    candidates = _candidate_periods(numbers[spikes])
    best, best_score = None, 0.0
    for candidate in candidates:
        grid = (numbers % candidate == 0) & others
        share = int((grid & spikes).sum()) / max(int(grid.sum()), 1)
        if share < 0.75:
            continue
        if not _are_alone(run, spikes, grid, baseline, candidate) and not _is_regular(excess, grid, len(candidates)):
            continue
        score = float(excess[grid].sum()) * share * share
        if score > best_score:
            best, best_score = candidate, score
    return best


def _are_alone(run: Run, spikes: Mask, grid: Mask, baseline: Baseline, candidate: int) -> bool:
    """Whether the only slow rows of a log may be evaluations, however few: large, alike and at round numbers."""
    if (spikes & ~grid).any() or candidate % (5 * (run.settings.count("log_interval") or 1)):
        return False
    ratio = baseline.ratio(run.iterations)[spikes]
    least = max(STALL_RATIO, 1 + 20 * baseline.noise)
    return bool(
        least < ratio.min() and ratio.max() < LARGEST_EVAL_RATIO and ratio.max() - 1 < _LIKE_SIZE * (ratio.min() - 1)
    )


def _is_regular(excess: Floats, grid: Mask, tries: int) -> bool:
    """Whether the slow rows of a grid are alike, hold most of the slowness of their size, and are no chance.

    Of many places where noise is large some fall on a grid, the more so the more grids are tried. A stall far larger
    or smaller says nothing either way.
    """
    hits = grid & (excess > 0)
    usual = median(excess[hits])
    alike = (excess > usual / _LIKE_SIZE) & (excess < usual * _LIKE_SIZE)
    on, off = alike & grid, alike & ~grid
    count = int(on.sum())
    if count < 2 or 2 * count <= int(hits.sum()) or excess[on].sum() < excess[off].sum():
        return False
    rate = (int(off.sum()) + 1) / (int((~grid).sum()) + 2)  # of such rows beside the grid, by Laplace's rule
    return tries * _chance(count - 1, int(grid.sum()) - 1, rate) < _CHANCE  # the grid was laid through one of them


def _chance(hits: int, places: int, rate: float) -> float:
    """At most the probability of so many hits or more (Chernoff's bound)."""
    share = hits / places
    if share <= rate:
        return 1.0
    divergence = share * math.log(share / rate)
    if share < 1:
        divergence += (1 - share) * math.log((1 - share) / (1 - rate))
    return math.exp(-places * divergence)


def _candidate_periods(numbers: npt.NDArray[np.int64]) -> list[int]:
    """Spike numbers, their differences and common divisors; few enough to try them all."""
    numbers = numbers[numbers > 0][:400]
    if not len(numbers):
        return []
    gaps = np.diff(numbers)
    found = {*numbers[:60].tolist(), *sorted(set(gaps.tolist()))[:60], int(np.gcd.reduce(numbers))}
    found |= {math.gcd(int(a), int(b)) for a, b in itertools.pairwise(numbers)}
    return sorted(value for value in found if value >= 2)


def _mark_deduced_evals(
    run: Run, phase: npt.NDArray[np.int8], certainty: npt.NDArray[np.int8], first: int | None,
    baseline: Baseline | None, interval: int | None, inferred: bool,
) -> None:  # fmt: skip
    """Slow rows on the grid of evaluations that no line tells of."""
    if baseline is None or not interval or "eval" not in run.holds:
        return
    spikes = _spikes(run, phase, first, baseline)
    rows = spikes & (run.iterations.number % interval == 0)
    if run.evaluations:
        rows &= _as_large_as_seen(run, phase, first, baseline)
    saves = run.settings.flag("always_save_checkpoint") is True and not run.checkpoints
    phase[rows] = Phase.EVAL_CHECKPOINT if saves else Phase.EVAL
    certainty[rows] = Certainty.GUESSED if inferred and int(rows.sum()) < 2 else Certainty.DEDUCED


def _as_large_as_seen(run: Run, phase: npt.NDArray[np.int8], first: int | None, baseline: Baseline) -> Mask:
    """Rows at least half as slow as the evaluations that were seen: the rest on the grid is something else."""
    seen = (phase == Phase.EVAL) | (phase == Phase.EVAL_CHECKPOINT)
    if first is not None:
        seen[first] = False
    excess = baseline.ratio(run.iterations) - 1
    if not seen.any():
        return np.zeros(len(phase), bool)
    return np.asarray(excess > 0.5 * median(excess[seen]))


def _mark_lone_saves(
    run: Run, phase: npt.NDArray[np.int8], certainty: npt.NDArray[np.int8], baseline: Baseline | None
) -> None:
    """`saving checkpoint` with no evaluation line above: it belongs to the next row if that row is slow."""
    lone = [save.line for save in run.checkpoints if save.at is None and "checkpoint" in run.holds]
    if not lone or baseline is None or run.reordered:
        return
    rows = np.searchsorted(run.iterations.line, lone)
    ratio = baseline.ratio(run.iterations)
    for row in rows[rows < len(phase)].tolist():
        if phase[row] == Phase.EVAL:
            phase[row] = Phase.EVAL_CHECKPOINT
        elif phase[row] == Phase.STEP and ratio[row] > max(SPIKE_RATIO, 1 + SPIKE_NOISES * baseline.noise):
            # nanoGPT saves only after an evaluation.
            phase[row] = Phase.EVAL_CHECKPOINT
            certainty[row] = Certainty.DEDUCED


def _mark_stalls(
    run: Run, phase: npt.NDArray[np.int8], certainty: npt.NDArray[np.int8], first: int | None, baseline: Baseline | None
) -> tuple[Mask, int | None]:
    """Slow rows that nothing explains; the DDP artefact and other periods are told apart from stalls."""
    artefact = np.zeros(len(phase), bool)
    if baseline is None:
        return artefact, None
    spikes = _spikes(run, phase, first, baseline)
    ratio = baseline.ratio(run.iterations)
    period = _period(run, spikes, baseline, first) if int(spikes.sum()) >= 3 else None
    on_hundred = (run.iterations.number % DDP_PERIOD == 0) & spikes & (ratio < DDP_LARGEST_RATIO)
    hundreds = (run.iterations.number % DDP_PERIOD == 0) & (phase == Phase.STEP)
    if (
        run.span is None
        and int(on_hundred.sum()) >= 3
        and on_hundred.sum() >= 0.75 * hundreds.sum()
        and (spikes & ~on_hundred).sum() <= on_hundred.sum()
    ):
        artefact = on_hundred
        period = None
    slow = spikes & ~artefact & (ratio > max(STALL_RATIO, math.exp(min(STALL_NOISES * baseline.noise, 5.0))))
    phase[slow] = Phase.STALL
    certainty[slow] = Certainty.DEDUCED
    repeated = period is not None and int((slow & (run.iterations.number % period == 0)).sum()) >= 3
    return np.asarray(artefact), period if repeated else None


def _in_missing_stretches(run: Run, interval: int | None) -> set[int]:
    """Evaluations that must have run where lines are missing from the log: gaps longer than the log interval."""
    usual = run.settings.count("log_interval")
    if not interval or not usual or run.reordered or len(run.evaluations) < 2:
        return set()
    numbers = run.iterations.number
    found: set[int] = set()
    following = numbers[:-1] - numbers[:-1] % interval + interval
    missing = (np.diff(numbers) > 2 * usual) & (following < numbers[1:])
    for row in np.flatnonzero(missing).tolist():
        found |= set(range(int(following[row]), int(numbers[row + 1]), interval))
    return found


def _unlogged(
    run: Run, phase: npt.NDArray[np.int8], interval: int | None, inferred: bool
) -> tuple[tuple[int, ...], int | None]:
    """Evaluations inside the logged span at iterations that were not logged, and one that ends the log."""
    numbers = run.iterations.number
    begin, end = int(numbers[0]), int(numbers[-1])
    if run.timing in AVERAGES or "eval" not in run.holds:
        return (), None
    if run.evaluations:
        told = [e.at for e in run.evaluations if begin < e.at < end]
        inside = np.array(sorted({*told, *_in_missing_stretches(run, interval)}), np.int64)
        hidden = inside[numbers[np.searchsorted(numbers, inside)] != inside]
        last = run.evaluations[-1].at
        return tuple(hidden.tolist()), last if last > end and last - end <= 10 * (
            run.settings.count("log_interval") or 1
        ) else None
    found = bool(((phase == Phase.EVAL) | (phase == Phase.EVAL_CHECKPOINT)).any())
    if not interval or not (found or not inferred):
        return (), None
    grid = np.arange(begin - begin % interval + interval, end, interval)
    logged = numbers[np.minimum(np.searchsorted(numbers, grid), len(numbers) - 1)]
    return tuple(grid[logged != grid].tolist()), None
