"""What each logged iteration was doing: first by what the log says, then by what the times suggest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from stepwatch.analysis.statistics import PRINTED_STEP_S, Baseline, baseline_of, last_digit_s, median, pieces
from stepwatch.run import (
    SENTINEL_MFU,
    Checkpoint,
    Evaluation,
    Floats,
    Ints,
    Run,
    Timing,
    column_of,
    iterations_of,
    rows_from,
    usual_distance,
)
from stepwatch.settings import Origin

if TYPE_CHECKING:
    from stepwatch.analysis.periods import Period

Mask: TypeAlias = npt.NDArray[np.bool_]

LARGE_RATIO = 1.5  # of a slow iteration that stands out in any noise
STALL_RATIO = LARGE_RATIO
STALL_NOISES = 8.0
SPIKE_RATIO = 1.06
SPIKE_NOISES = 5.0
DDP_PERIOD = 100  # PyTorch's DDP samples its statistics, and synchronises, every 100th iteration
DDP_LARGEST_RATIO = 6.0
AVERAGES = (Timing.SPANS_LOG_INTERVAL, Timing.CUMULATIVE, Timing.SPANS_RUN)


class Phase(IntEnum):
    STEP = 0
    EVAL = 1
    EVAL_CHECKPOINT = 2
    CHECKPOINT = 3
    FIRST = 4
    STALL = 5


PHASE_NAMES = ("step", "eval", "eval+checkpoint", "checkpoint", "first", "stall")


CERTAINTY_NAMES = ("seen", "deduced", "guessed")
_SEEN, _DEDUCED, _GUESSED = range(3)
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlogged:
    """Unlogged evaluations: some that the log mentions, and stretches that must have run between two of its lines."""

    mentioned: Ints = field(default_factory=lambda: _NONE)
    first: Ints = field(default_factory=lambda: _NONE)
    """The first of each stretch, in rising order."""
    counts: Ints = field(default_factory=lambda: _NONE)
    interval: int = 1

    @property
    def total(self) -> int:
        return len(self.mentioned) + int(self.counts.sum())

    def shown(self) -> list[int]:
        """The first ones and, if there are more, the last: a sentence has no room for all."""
        most = 5
        stretches = (
            range(first, first + count * self.interval, self.interval)
            for first, count in zip(self.first.tolist(), self.counts.tolist(), strict=True)
        )
        begin = sorted((*self.mentioned[:most].tolist(), *islice(chain.from_iterable(stretches), most)))[:most]
        last = self.first[-1:] + (self.counts[-1:] - 1) * self.interval
        return begin if self.total <= most else [*begin, int(np.concatenate((self.mentioned[-1:], last)).max())]

    def among(self, numbers: Ints) -> np.ndarray:
        """Which of these iterations are among them."""
        mentioned = np.isin(numbers, self.mentioned)
        if not len(self.first):
            return mentioned
        stretch = np.maximum(np.searchsorted(self.first, numbers, side="right") - 1, 0)
        place, rest = np.divmod(numbers - self.first[stretch], self.interval)
        return np.asarray(mentioned | ((rest == 0) & (place >= 0) & (place < self.counts[stretch])))

    def at_rows(self, numbers: Ints) -> tuple[Ints, Ints]:
        """The rows before which they ran, and how many before each."""
        rows = rows_from(numbers, np.concatenate((self.mentioned, self.first)))
        return rows, np.concatenate((np.ones(len(self.mentioned), np.int64), self.counts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """A phase and a certainty per row, and what was learned on the way."""

    phase: npt.NDArray[np.int8]
    certainty: npt.NDArray[np.int8]
    covers: Ints
    """How many iterations the time of each row covers: 1, or the log interval if times are averages."""
    artefact: Mask
    digit_s: float = PRINTED_STEP_S
    """The size of the last printed digit in the time of a step."""
    first: int | None = None
    """The row of the first iteration of the process, if the log has it."""
    baseline: Baseline | None = None
    eval_interval: int | None = None
    eval_interval_inferred: bool = False
    first_evaluates: bool = False
    first_saves: bool = False
    unlogged_evals: Unlogged = field(default_factory=Unlogged)
    unlogged_saves: int = 0
    evaluations: int = 0
    """In the logged span, including those of unlogged iterations."""
    checkpoints: int = 0
    trailing: int | None = None
    """The iteration of an evaluation after the last logged row, when the log ends with it."""
    periods: tuple[Period, ...] = ()
    """Of slow iterations that nothing explains: they are recurring stalls."""

    def of(self, *phases: Phase) -> Mask:
        found = self.phase == int(phases[0])  # with an enum member, numpy would look for array methods
        for phase in phases[1:]:
            found |= self.phase == int(phase)
        return np.asarray(found)

    @property
    def normal(self) -> Mask:
        """Rows whose time is a training step and nothing else."""
        return np.asarray(self.of(Phase.STEP) & ~self.artefact)

    @property
    def regular(self) -> Mask:
        """Slow rows that nothing explains, but that recur at an interval."""
        found = np.zeros(len(self.phase), bool)
        for period in self.periods:
            found |= period.rows
        return found

    def excess_s(self, run: Run, rows: npt.NDArray[np.generic] | slice, mean_ratio: float = 1.0) -> Floats:
        """What these rows took beyond a normal step; with heavy tails the mean step is above the median one."""
        times = run.iterations.time_s[rows]
        if self.baseline is None:
            return np.zeros(len(times))
        return np.asarray((times - mean_ratio * self.baseline.time_s[rows]) * self.covers[rows])


def find_phases(run: Run) -> Phases:
    count, numbers = len(run.iterations), run.iterations.number
    # The distance between lines: as most of them are, even if the config says otherwise; it may be from another log.
    apart = usual_distance(numbers) or run.settings.count("log_interval") or 1
    covers = _covers(run, apart) if run.timing in AVERAGES else np.broadcast_to(np.int64(1), count)
    phases = Phases(
        phase=np.zeros(count, np.int8),
        certainty=np.full(count, _DEDUCED, np.int8),
        covers=covers,
        artefact=np.zeros(count, bool),
        digit_s=last_digit_s(run, covers) if run.traits.rounds_times else PRINTED_STEP_S,
        first=_first_row(run, apart),
    )
    _mark_events(run, phases)
    phases, spikes = _with_baseline(run, phases)
    interval, inferred = _eval_interval(run, phases, spikes)
    marked = bool(spikes.any()) and _mark_silent_evaluations(run, phases, spikes, interval, inferred)
    lone = np.isnan(column_of(run.checkpoints, "at"))
    if lone.any() and "checkpoint" in run.holds and phases.baseline is not None and not run.reordered:
        _mark_lone_saves(run, phases, phases.baseline, lone)
        marked = True
    if marked:
        phases, spikes = _with_baseline(run, phases)
    if phases.baseline is not None and spikes.any():
        phases = _with_stalls(run, phases, phases.baseline, spikes)

    first_evaluates, first_saves = _first_holds(run, phases, interval)
    if phases.first is not None:
        phases.phase[phases.first], phases.certainty[phases.first] = Phase.FIRST, _SEEN
    if run.span is not None:  # a recorder timed the steps separately
        phases.certainty[:] = _SEEN
    found = bool(phases.of(Phase.EVAL, Phase.EVAL_CHECKPOINT).any())
    unlogged, trailing = _unlogged(run, interval, apart, found or not inferred)
    saves = unlogged.among(iterations_of(run.checkpoints)) if unlogged.total else _NONE
    evaluations, checkpoints = len(run.evaluations), len(run.checkpoints)
    others = run.timing in AVERAGES  # if each mean includes one, none of them can be separated
    if "eval" in run.holds:
        logged = int(phases.of(Phase.EVAL, Phase.EVAL_CHECKPOINT).sum())
        done = logged + unlogged.total + (trailing is not None) + first_evaluates
        evaluations = done or (evaluations if others else 0)
    if "checkpoint" in run.holds:
        last = trailing is not None and any(save.at == trailing for save in run.checkpoints)
        logged = int(phases.of(Phase.EVAL_CHECKPOINT, Phase.CHECKPOINT).sum())
        checkpoints = logged + int(saves.sum()) + last + first_saves or (checkpoints if others else 0)
    return replace(
        phases,
        evaluations=evaluations,
        checkpoints=checkpoints,
        eval_interval=interval,
        eval_interval_inferred=inferred,
        first_evaluates=first_evaluates,
        first_saves=first_saves,
        unlogged_evals=unlogged,
        unlogged_saves=int(saves.sum()),
        trailing=trailing,
    )


# --- how many iterations a time covers --------------------------------------------------------------------------


def _covers(run: Run, usual: int) -> Ints:
    """How many iterations each time covers, if times are means."""
    numbers = run.iterations.number
    begin = 0 if run.timing is Timing.SPANS_RUN else _before_first(numbers, usual)
    if run.first_covers is not None and len(numbers):
        begin = int(numbers[0]) - run.first_covers
    gaps = np.empty_like(numbers)  # there may be millions
    gaps[:1] = numbers[:1] - begin
    np.subtract(numbers[1:], numbers[:-1], out=gaps[1:])
    np.maximum(gaps, 1, out=gaps)
    if (gaps == 1).all():
        return np.broadcast_to(np.int64(1), len(gaps))

    # A mean is of one log interval: if lines are missing, it says nothing about what they covered.
    interval = run.settings.get("log_interval")
    if interval is None or run.timing is not Timing.SPANS_LOG_INTERVAL or not run.traits.prints_means:
        return gaps
    longer = gaps > usual
    if interval.origin is Origin.INFERRED:
        if 2 * int((gaps == usual).sum()) < len(gaps):
            return gaps
        # At least three equal gaps in a row are another interval, not missing lines.
        inner = (gaps[1:-1] == gaps[:-2]) & (gaps[1:-1] == gaps[2:])
        for shift in range(3):
            longer[shift : shift + len(inner)] &= ~inner
    elapsed = np.diff(run.iterations.stamp_s, prepend=np.nan)  # a clock may confirm the mean
    longer &= ~(run.iterations.time_s * gaps <= elapsed * 1.1)
    return np.where(longer, usual, gaps)


def _before_first(numbers: Ints, interval: int) -> int:
    """The iteration after which the first mean begins; a first row off the grid of the others has a shorter mean."""
    first = int(numbers[0])
    if len(numbers) > 1 and numbers[1] - first == first:  # the interval may change later
        return 0
    if len(numbers) > 1 and (numbers[1] - first) % interval:
        return (first - 1) // interval * interval
    return max(0, first - interval)


# --- the first iteration ----------------------------------------------------------------------------------------


def _first_row(run: Run, interval: int) -> int | None:
    """The row of the first iteration of the process; None for a log that starts in mid-run."""
    iterations = run.iterations
    if not len(iterations) or run.timing is Timing.SPANS_RUN or run.start == "unknown":
        return None
    number, mfu = int(iterations.number[0]), float(iterations.reported_mfu[0])
    if run.span is not None:
        return 0 if number == 0 or run.has_header else None
    if number == 0 or mfu == SENTINEL_MFU:
        return 0
    if not run.traits.mfu_marks_start:  # these count from 1, or print averages from the first interval on
        if run.timing in AVERAGES:
            most = (run.first_covers or 0) > int(iterations.number[-1]) - number
            # It is the mean of most of the run, unless it is so far above the others that it must include the start.
            far = len(iterations) > 1 and iterations.time_s[0] > STALL_RATIO * median(iterations.time_s[1:])
            if most and not (run.has_header and far):
                return None
            if run.start == "process":  # which may continue from a checkpoint
                return 0
            return 0 if run.has_header or _before_first(run.iterations.number, interval) == 0 else None
        return 0 if number == 1 or (run.has_header and number != interval) else None  # the tenth alone is not the first
    return 0 if run.has_header and math.isnan(mfu) else None


# --- row by row -------------------------------------------------------------------------------------------------


def _nearly_all_include(run: Run, phases: Phases, rows: Mask) -> bool:
    """Whether nearly every average is one of these rows: then an average that includes the event is a normal one."""
    if run.timing is Timing.SPANS_RUN:  # what one row includes, all include
        return True
    covers, first = phases.covers, phases.first  # the first is never a normal one
    most, some = covers.sum(), covers[rows].sum()
    if first is not None:
        most, some = most - covers[first], some - covers[first] * rows[first]
    return bool(some > 0.8 * most)


def _mark_events(run: Run, phases: Phases) -> None:
    """Marks what the lines of the log say."""
    evaluated = _rows_of(run, run.evaluations if "eval" in run.holds else ())
    saved = _rows_of(run, run.checkpoints if "checkpoint" in run.holds else ())
    if run.timing in AVERAGES:
        for rows in (evaluated, saved):
            if _nearly_all_include(run, phases, rows):
                rows[:] = False
        # If the first means include a save and no later one does, a slow start is as likely.
        later = saved[0 if phases.first is None else phases.first + 1 :]
        count = int(later.sum())
        if 0 < count < len(later) and later[:count].all():
            saved[:] = False
    phases.phase[evaluated] = Phase.EVAL
    phases.phase[saved] = Phase.CHECKPOINT
    phases.phase[evaluated & saved] = Phase.EVAL_CHECKPOINT
    phases.certainty[evaluated | saved] = _SEEN


def _rows_of(run: Run, events: Sequence[Evaluation] | Sequence[Checkpoint], *, by_number: bool = False) -> Mask:
    """The rows whose time includes one of the events with a known iteration, or that have the number of one."""
    numbers, lines = run.iterations.number, run.iterations.line
    found = np.zeros(len(numbers), bool)
    places, line_of = column_of(events, "at"), column_of(events, "line")
    for part in pieces(len(places)):
        known = ~np.isnan(places[part])
        at, line = (column[part][known].astype(np.int64) for column in (places, line_of))
        rows = rows_from(numbers, at)
        inside = rows < len(numbers)
        rows, at, line = rows[inside], at[inside], line[inside]
        if by_number or run.timing not in AVERAGES or run.reordered:
            found[rows[numbers[rows] == at]] = True
        else:  # a mean covers everything since the row before, but nothing after its own line
            rows = rows + (lines[rows] < line)
            found[rows[rows < len(numbers)]] = True
    return found


def _with_baseline(run: Run, phases: Phases) -> tuple[Phases, Mask]:
    """Adds the baseline of the rows that may still be normal; also returns unexplained rows far above it."""
    normal, spikes = phases.normal, phases.of(Phase.STEP)
    if run.timing in AVERAGES:  # a single step is no measure for an average of many
        several = phases.covers[phases.covers > 1]
        normal &= phases.covers >= 0.1 * median(several if len(several) else phases.covers)
    if phases.first is not None:
        normal[phases.first] = spikes[phases.first] = False
    baseline = baseline_of(run.iterations, normal, phases.digit_s)
    if baseline is None:
        return replace(phases, baseline=None), np.zeros(len(spikes), bool)
    limit = max(SPIKE_RATIO, math.exp(SPIKE_NOISES * baseline.noise))
    for rows in pieces(len(spikes)):
        spikes[rows] &= baseline.ratio(run.iterations, rows) > limit
    return replace(phases, baseline=baseline), spikes


def _eval_interval(run: Run, phases: Phases, spikes: Mask) -> tuple[int | None, bool]:
    """The interval and whether it is inferred: from the settings, else the evaluations or the period of the spikes."""
    known, baseline = run.settings.count("eval_interval"), phases.baseline
    if known:
        return known, False
    numbers = iterations_of(run.evaluations)
    numbers = numbers[numbers > 1]  # 0 or 1 is off the grid
    if len(numbers) == 1:
        at, begin = int(numbers[0]), int(run.iterations.number[0])
        grid = at - begin  # if the first row, one interval earlier, was cut off from its line
        return (grid if _is_cut_off(run, phases, spikes) and grid > 0 and at % grid == 0 else at), True
    if len(numbers):
        # Many trainers evaluate once more at the last iteration, whatever its number.
        gaps = np.diff(numbers)
        usual = int(np.gcd.reduce(gaps[:-1])) if len(gaps) > 1 else 0
        return usual if usual >= int(gaps[-1]) else usual_gap(gaps), True
    if baseline is None or "eval" not in run.holds or run.evaluations or run.traits.counts_epochs or not spikes.any():
        return None, True  # an epoch that is slow only now and then is not slow because of an evaluation
    from stepwatch.analysis.periods import find_period

    period = find_period(run, spikes, baseline, phases.first)
    largest = float(baseline.ratio(run.iterations, spikes).max(initial=0.0))
    is_ddp = period == DDP_PERIOD and run.distributed and largest < DDP_LARGEST_RATIO
    return None if is_ddp else period, True


def _is_cut_off(run: Run, phases: Phases, spikes: Mask) -> bool:
    """Whether an excerpt begins with what looks like a stall: the line of its evaluation may have been above it."""
    if not spikes[0] or phases.baseline is None or phases.first is not None or run.span is not None or run.has_header:
        return False
    ratio = float(phases.baseline.ratio(run.iterations, slice(0, 1))[0])
    return "eval" in run.holds and ratio > _stall_ratio(phases.baseline)


def _stall_ratio(baseline: Baseline) -> float:
    return max(STALL_RATIO, math.exp(STALL_NOISES * baseline.noise))


def _mark_silent_evaluations(run: Run, phases: Phases, spikes: Mask, interval: int | None, inferred: bool) -> bool:
    """Marks slow rows on the grid of evaluations that no line mentions. Returns whether there is one."""
    setting, baseline = run.settings.get("eval_interval"), phases.baseline
    if baseline is None or "eval" not in run.holds:
        return False
    if not interval and _is_cut_off(run, phases, spikes):
        phases.phase[0], phases.certainty[0] = Phase.EVAL, _GUESSED
    if not interval:
        return bool(phases.phase[0])
    if run.evaluations and setting is not None and setting.origin is Origin.USER:
        return False  # a question about the future
    rows = np.flatnonzero(spikes)
    rows = rows[run.iterations.number[rows] % interval == 0]
    if run.evaluations:  # at least half as slow as those that were seen: the rest on the grid is something else
        seen = phases.of(Phase.EVAL, Phase.EVAL_CHECKPOINT)
        if phases.first is not None:
            seen[phases.first] = False
        excess = baseline.ratio(run.iterations, seen) - 1
        rows = rows[baseline.ratio(run.iterations, rows) - 1 > 0.5 * median(excess)]
    saves = run.settings.flag("always_save_checkpoint") is True and not run.checkpoints
    phases.phase[rows] = Phase.EVAL_CHECKPOINT if saves else Phase.EVAL
    phases.certainty[rows] = _GUESSED if inferred and len(rows) < 2 else _DEDUCED
    return len(rows) > 0


def _mark_lone_saves(run: Run, phases: Phases, baseline: Baseline, lone: Mask) -> None:
    """`saving checkpoint` with no evaluation line above: it belongs to the next row if that row is slow."""
    rows = rows_from(run.iterations.line, column_of(run.checkpoints, "line")[lone])
    rows = rows[rows < len(run.iterations)]
    slow = baseline.ratio(run.iterations, rows) > max(SPIKE_RATIO, 1 + SPIKE_NOISES * baseline.noise)
    phase = phases.phase[rows]  # nanoGPT saves only after an evaluation
    phases.phase[rows[(phase == Phase.EVAL) | ((phase == Phase.STEP) & slow)]] = Phase.EVAL_CHECKPOINT


def _with_stalls(run: Run, phases: Phases, baseline: Baseline, spikes: Mask) -> Phases:
    """Marks slow rows that nothing explains, except the artefact of DDP, and finds their periods."""
    from stepwatch.analysis.periods import MOST_PLACES, find_periods, multiples

    numbers = run.iterations.number
    hundreds = multiples(numbers, DDP_PERIOD) & phases.of(Phase.STEP)
    on_hundred = hundreds & spikes
    on_hundred[on_hundred] = baseline.ratio(run.iterations, on_hundred) < DDP_LARGEST_RATIO
    if (
        run.span is None
        and int(on_hundred.sum()) >= 3
        and on_hundred.sum() >= MOST_PLACES * hundreds.sum()
        and (spikes & ~on_hundred).sum() <= on_hundred.sum()
    ):
        phases = replace(phases, artefact=on_hundred)
    spikes &= ~phases.artefact

    def beyond(rows: Ints) -> Floats:
        """How much longer rows are than normal steps; in a mean, all of it is taken as that of one slow iteration."""
        step = (phases.phase[rows] == int(Phase.STEP)) & ~phases.artefact[rows]
        return np.where(step, (baseline.ratio(run.iterations, rows) - 1) * phases.covers[rows], 0.0)

    periods = [
        period
        for period in find_periods(numbers, phases.covers, beyond, spikes, phases.first)
        if median(beyond(np.flatnonzero(period.rows))) > STALL_RATIO - 1
    ]
    slow = spikes.copy()
    slow[slow] = baseline.ratio(run.iterations, spikes) > _stall_ratio(baseline)
    for period in periods:
        slow |= period.rows
    phases.phase[slow] = Phase.STALL
    if slow.any() or phases.artefact.any():
        phases, _ = _with_baseline(run, phases)
    return replace(phases, periods=tuple(periods))


def _first_holds(run: Run, phases: Phases, interval: int | None) -> tuple[bool, bool]:
    """Whether the first iteration includes an evaluation, and a checkpoint (never at iteration 0)."""
    if phases.first is None or "eval" not in run.holds:
        return False, False
    number = int(run.iterations.number[phases.first])
    if run.timing in AVERAGES:
        if _nearly_all_include(run, phases, _rows_of(run, run.evaluations, by_number=True)):
            return False, False
        return bool((column_of(run.evaluations, "at") <= number).any()), False
    logged = bool((column_of(run.evaluations, "at") == number).any())
    if number == 0 and run.traits.evaluates_at_zero:
        # nanoGPT always evaluates at 0; an excerpt may lack the line, but a whole log without it is from a fork.
        evaluates = logged or not (run.has_header and run.evaluations)
    else:
        evaluates = logged or (not run.evaluations and interval is not None and number % interval == 0)
    return evaluates, number > 0 and phases.phase[phases.first] in (Phase.EVAL_CHECKPOINT, Phase.CHECKPOINT)


# --- what was not logged ----------------------------------------------------------------------------------------


def _unlogged(run: Run, interval: int | None, apart: int, evaluates: bool) -> tuple[Unlogged, int | None]:
    """Evaluations inside the logged span at iterations that were not logged, and one that ends the log."""
    numbers = run.iterations.number
    begin, end = int(numbers[0]), int(numbers[-1])
    if run.timing in AVERAGES or "eval" not in run.holds:
        return Unlogged(), None
    if not run.evaluations:
        return between_rows(numbers, interval, 0, _NONE) if interval and evaluates else Unlogged(), None
    mentioned = iterations_of(run.evaluations)
    mentioned = mentioned[(mentioned > begin) & (mentioned < end)]
    hidden = Unlogged(mentioned=mentioned[numbers[rows_from(numbers, mentioned)] != mentioned])
    known = "log_interval" in run.settings
    if interval and known and not run.reordered and len(run.evaluations) > 1:
        # Lines are missing where a gap is longer than the log interval; evaluations must have run there.
        hidden = between_rows(numbers, interval, 2 * apart, hidden.mentioned)
    last = run.evaluations[-1].at
    return hidden, last if end < last <= end + 10 * (apart if known else 1) else None


def between_rows(numbers: Ints, interval: int, beyond: int, mentioned: Ints) -> Unlogged:
    """The multiples of the interval inside gaps longer than `beyond`, and the mentioned ones outside these gaps."""
    found = [(_NONE, _NONE)]
    for rows in pieces(len(numbers) - 1):
        before, after = numbers[:-1][rows], numbers[1:][rows]
        far = after - before > beyond
        before, after = before[far], after[far]
        first, counts = before - before % interval + interval, (after - 1) // interval - before // interval
        found.append((first[counts > 0], counts[counts > 0]))
    first, counts = (np.concatenate(column).astype(np.int64) for column in zip(*found, strict=True))
    between = Unlogged(first=first, counts=counts, interval=interval)
    return replace(between, mentioned=mentioned[~between.among(mentioned)] if len(first) else mentioned)


def usual_gap(gaps: Ints) -> int:
    """The common divisor of all gaps; if it is less than half of the smallest, there is no grid: then their median.

    Epochs differ by an iteration, and a resumed run continues at another number.
    """
    divisor = int(np.gcd.reduce(gaps))
    return divisor if 2 * divisor >= int(gaps.min()) else int(np.median(gaps))
