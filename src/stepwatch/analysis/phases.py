"""What each logged iteration was doing: what the log says first, what the times suggest second."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from stepwatch.analysis.periods import (
    LARGE_RATIO,
    MOST_PLACES,
    Mask,
    Period,
    Unlogged,
    between_rows,
    find_period,
    find_periods,
    multiples,
    usual_gap,
)
from stepwatch.analysis.statistics import Baseline, baseline_of, last_digit_s, median, pieces
from stepwatch.run import (
    SENTINEL_MFU,
    Checkpoint,
    Evaluation,
    Floats,
    Ints,
    Run,
    Start,
    Timing,
    column_of,
    numbers_of,
    rows_from,
    usual_distance,
)
from stepwatch.settings import Origin

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


class Certainty(IntEnum):
    SEEN = 0
    DEDUCED = 1
    GUESSED = 2


CERTAINTY_NAMES = ("seen", "deduced", "guessed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """A phase and a certainty per row, and what was learned on the way."""

    phase: npt.NDArray[np.int8]
    certainty: npt.NDArray[np.int8]
    covers: Ints
    """How many iterations the time of each row is about: 1, or the log interval where times are averages."""
    artefact: Mask
    baseline: Baseline | None = None
    eval_interval: int | None = None
    eval_interval_inferred: bool = False
    first_evaluates: bool = False
    first_saves: bool = False
    unlogged_evals: Unlogged = field(default_factory=Unlogged)
    unlogged_saves: int = 0
    trailing: int | None = None
    """The iteration of an evaluation after the last logged row, when the log ends with it."""
    periods: tuple[Period, ...] = ()
    """Of slow iterations that nothing explains: they are stalls that come back."""

    def of(self, *phases: Phase) -> Mask:
        found = self.phase == int(phases[0])  # numpy searches a member of an enumeration for methods of arrays
        for phase in phases[1:]:
            found |= self.phase == int(phase)
        return np.asarray(found)

    @property
    def normal(self) -> Mask:
        """Rows whose time is a training step and nothing else."""
        return np.asarray(self.of(Phase.STEP) & ~self.artefact)

    def covers_of(self, rows: Mask) -> Ints:
        """Those of these rows; where each is about one iteration they take no memory."""
        if self.covers.strides == (0,):
            return np.broadcast_to(np.int64(1), int(np.count_nonzero(rows)))
        return self.covers[rows]

    @property
    def regular(self) -> Mask:
        """Slow rows that nothing explains but that come back at an interval."""
        found = np.zeros(len(self.phase), bool)
        for period in self.periods:
            found |= period.rows
        return found

    def excess_s(self, run: Run, rows: npt.NDArray[np.generic], mean_ratio: float = 1.0) -> Floats:
        """What these rows took beyond a normal step; with heavy tails the mean step is above the median one."""
        times = run.iterations.time_s[rows]
        if self.baseline is None:
            return np.zeros(len(times))
        return np.asarray((times - mean_ratio * self.baseline.time_s[rows]) * self.covers[rows])


def find_phases(run: Run) -> Phases:
    marks = _Marks(run)
    marks.mark_events()
    marks.find_baseline()
    interval, inferred = marks.eval_interval()
    marks.mark_silent_evaluations(interval, inferred)
    marks.mark_lone_saves()
    marks.find_baseline()
    periods = marks.mark_stalls()
    marks.find_baseline()

    first_evaluates, first_saves = marks.first_holds(interval)
    if marks.first is not None:
        marks.mark(marks.first, Phase.FIRST, Certainty.SEEN)
    if run.span is not None:  # a recorder timed the step alone, whatever it was doing
        marks.certainty[:] = Certainty.SEEN
    found = bool(marks.evaluated.any())
    unlogged, trailing = _unlogged(run, interval, found or not inferred)
    saved = numbers_of(run.checkpoints)
    return Phases(
        phase=marks.phase,
        certainty=marks.certainty,
        covers=marks.covers,
        artefact=marks.artefact,
        baseline=marks.baseline,
        eval_interval=interval,
        eval_interval_inferred=inferred,
        first_evaluates=first_evaluates,
        first_saves=first_saves,
        unlogged_evals=unlogged,
        unlogged_saves=int(unlogged.among(saved).sum()),
        trailing=trailing,
        periods=periods,
    )


# --- how many iterations a time is about ------------------------------------------------------------------------


def log_interval(run: Run) -> int:
    """How far lines are apart: as most of them are, whatever a config says, which may be of another log."""
    stated = run.settings.count("log_interval") or 1
    return usual_distance(run.iterations.number) or stated


def _covers(run: Run) -> Ints:
    numbers, usual = run.iterations.number, log_interval(run)
    if run.timing not in AVERAGES:
        return np.broadcast_to(np.int64(1), len(numbers))
    begin = 0 if run.timing is Timing.SPANS_RUN else _before_first(numbers, usual)
    if run.first_covers is not None and len(numbers):
        begin = int(numbers[0]) - run.first_covers
    gaps = np.maximum(np.diff(numbers, prepend=begin), 1)

    # A mean is of one log interval: where lines were left out it says nothing of what they stood for.
    interval = run.settings.get("log_interval")
    if interval is None or run.timing is not Timing.SPANS_LOG_INTERVAL or not run.traits.prints_means:
        return gaps
    longer = gaps > usual
    if interval.origin is Origin.INFERRED:
        if 2 * int((gaps == usual).sum()) < len(gaps):
            return gaps
        # Among at least three equal ones in a row the interval is another, and no line is missing.
        inner = (gaps[1:-1] == gaps[:-2]) & (gaps[1:-1] == gaps[2:])
        for shift in range(3):
            longer[shift : shift + len(inner)] &= ~inner
    elapsed = np.diff(run.iterations.stamp_s, prepend=np.nan)  # a clock may confirm the mean
    longer &= ~(run.iterations.time_s * gaps <= elapsed * 1.1)
    return np.where(longer, usual, gaps)


def _before_first(numbers: Ints, interval: int) -> int:
    """The iteration after which the first mean begins; a first row off the grid of the others is a shorter one."""
    first = int(numbers[0])
    if len(numbers) > 1 and numbers[1] - first == first:  # the interval may change later
        return 0
    if len(numbers) > 1 and (numbers[1] - first) % interval:
        return (first - 1) // interval * interval
    return max(0, first - interval)


# --- the first iteration ----------------------------------------------------------------------------------------


def _first_row(run: Run) -> int | None:
    """The first iteration of the process; a log that starts in mid-run has none."""
    iterations = run.iterations
    if not len(iterations) or run.timing is Timing.SPANS_RUN or run.start is Start.UNKNOWN:
        return None
    number, mfu = int(iterations.number[0]), float(iterations.reported_mfu[0])
    if run.span is not None:
        return 0 if number == 0 or run.has_header else None
    if number == 0 or mfu == SENTINEL_MFU:
        return 0
    if not run.traits.mfu_marks_start:  # these count from 1, or print averages from the first interval on
        interval = log_interval(run)
        if run.timing in AVERAGES:
            most = (run.first_covers or 0) > int(iterations.number[-1]) - number
            # It is the mean of most of the run, unless it is so far above the others that it must hold the start.
            far = len(iterations) > 1 and iterations.time_s[0] > STALL_RATIO * median(iterations.time_s[1:])
            if most and not (run.has_header and far):
                return None
            if run.start is Start.PROCESS:  # which may go on from a checkpoint
                return 0
            return 0 if run.has_header or _before_first(run.iterations.number, interval) == 0 else None
        return 0 if number == 1 or (run.has_header and number != interval) else None  # the tenth alone is not the first
    return 0 if run.has_header and math.isnan(mfu) else None


# --- row by row -------------------------------------------------------------------------------------------------


class _Marks:
    """What is known of each row so far."""

    def __init__(self, run: Run) -> None:
        count = len(run.iterations)
        self.run = run
        self.phase = np.zeros(count, np.int8)
        self.certainty = np.full(count, Certainty.DEDUCED, np.int8)
        self.covers = _covers(run)
        self.first = _first_row(run)
        self.artefact: Mask = np.zeros(count, bool)
        self.baseline: Baseline | None = None
        self._normal: Mask | None = None

    def mark(self, rows: Mask | int, phase: Phase, certainty: Certainty) -> None:
        self.phase[rows] = phase
        self.certainty[rows] = certainty

    @property
    def steps(self) -> Mask:
        return np.asarray(self.phase == int(Phase.STEP))  # see Phases.of

    @property
    def evaluated(self) -> Mask:
        return np.asarray((self.phase == int(Phase.EVAL)) | (self.phase == int(Phase.EVAL_CHECKPOINT)))

    def hold_most(self, rows: Mask) -> bool:
        """Whether nearly every average is one of these rows: then an average with such an event is the normal thing."""
        if self.run.timing not in AVERAGES:
            return False
        if self.run.timing is Timing.SPANS_RUN:  # what one row holds, all hold
            return True
        later = np.arange(len(rows)) != self.first  # whatever the first holds, it is no normal one
        covers = self.covers[later]
        return bool(covers[rows[later]].sum() > 0.8 * covers.sum())

    def mark_events(self) -> None:
        """What the lines of the log say."""
        evaluations = self.run.evaluations if "eval" in self.run.holds else ()
        saves = self.run.checkpoints if "checkpoint" in self.run.holds else ()
        evaluated = self._rows_of(evaluations)
        saved = self._rows_of(saves)
        # Where means with a save are the first of all, and no later one is, a slow start is as likely.
        later = saved[0 if self.first is None else self.first + 1 :]
        count = int(later.sum())
        if self.run.timing in AVERAGES and 0 < count < len(later) and later[:count].all():
            saved[:] = False
        self.mark(evaluated & ~saved, Phase.EVAL, Certainty.SEEN)
        self.mark(evaluated & saved, Phase.EVAL_CHECKPOINT, Certainty.SEEN)
        self.mark(saved & ~evaluated, Phase.CHECKPOINT, Certainty.SEEN)

    def _rows_of(self, events: Sequence[Evaluation] | Sequence[Checkpoint]) -> Mask:
        """The rows whose time holds those of the events of which the iterations are known."""
        numbers, lines = self.run.iterations.number, self.run.iterations.line
        found = np.zeros(len(numbers), bool)
        places, line_of = column_of(events, "at"), column_of(events, "line")
        for part in pieces(len(places)):
            known = ~np.isnan(places[part])
            at, line = (column[part][known].astype(np.int64) for column in (places, line_of))
            rows = rows_from(numbers, at)
            inside = rows < len(numbers)
            rows, at, line = rows[inside], at[inside], line[inside]
            if self.run.timing in AVERAGES and not self.run.reordered:
                # A mean holds all since the row before, and nothing that came after its own line.
                rows = rows + (lines[rows] < line)
                found[rows[rows < len(numbers)]] = True
            else:
                found[rows[numbers[rows] == at]] = True
        return found & (not self.hold_most(found))

    def find_baseline(self) -> None:
        """From the rows that may be normal by now."""
        normal = self.steps & ~self.artefact
        if self.run.timing in AVERAGES:  # one step does not show the many of an average
            several = self.covers[self.covers > 1]
            normal &= self.covers >= 0.1 * median(several if len(several) else self.covers)
        if self.first is not None:
            normal[self.first] = False
        if self._normal is None or not np.array_equal(self._normal, normal):
            digit_s = last_digit_s(self.run, self.covers)
            self.baseline, self._normal = baseline_of(self.run.iterations, normal, digit_s), normal

    def _spikes(self, baseline: Baseline) -> Mask:
        """Rows far above the baseline that nothing explains yet."""
        limit = max(SPIKE_RATIO, math.exp(SPIKE_NOISES * baseline.noise))
        spikes = self.steps
        for rows in pieces(len(spikes)):
            spikes[rows] &= baseline.ratio(self.run.iterations, rows) > limit
        if self.first is not None:
            spikes[self.first] = False
        return np.asarray(spikes)

    def eval_interval(self) -> tuple[int | None, bool]:
        """From the settings; else inferred: from the numbers of the evaluations, or the period of the spikes."""
        run, known = self.run, self.run.settings.count("eval_interval")
        if known:
            return known, False
        numbers = numbers_of(run.evaluations)
        numbers = numbers[numbers > 1]  # 0 or 1 is off the grid
        if len(numbers) == 1:
            return int(numbers[0]), True
        if len(numbers):
            # Many trainers evaluate once more at the last iteration, whatever its number.
            gaps = np.diff(numbers)
            usual = int(np.gcd.reduce(gaps[:-1])) if len(gaps) > 1 else 0
            return usual if usual > int(gaps[-1]) else usual_gap(gaps), True
        if self.baseline is None or "eval" not in run.holds or run.evaluations or run.traits.counts_epochs:
            return None, True  # whatever an epoch does not always do, it is slow by something else than an evaluation
        spikes = self._spikes(self.baseline)
        period = find_period(run, spikes, self.baseline, self.first)
        largest = float(self.baseline.ratio(run.iterations, spikes).max(initial=0.0))
        is_ddp = period == DDP_PERIOD and run.distributed and largest < DDP_LARGEST_RATIO
        return None if is_ddp else period, True

    def mark_silent_evaluations(self, interval: int | None, inferred: bool) -> None:
        """Slow rows on the grid of evaluations that no line mentions."""
        run, setting = self.run, self.run.settings.get("eval_interval")
        if self.baseline is None or not interval or "eval" not in run.holds:
            return
        if run.evaluations and setting is not None and setting.origin is Origin.USER:
            return  # a question about what is to come
        rows = self._spikes(self.baseline) & multiples(run.iterations.number, interval)
        if run.evaluations:  # at least half as slow as those that were seen: the rest on the grid is something else
            seen = self.evaluated
            if self.first is not None:
                seen[self.first] = False
            excess, found = self.baseline.ratio(run.iterations, seen) - 1, np.flatnonzero(rows)
            rows[found] = self.baseline.ratio(run.iterations, found) - 1 > 0.5 * median(excess)
        saves = run.settings.flag("always_save_checkpoint") is True and not run.checkpoints
        guessed = inferred and int(rows.sum()) < 2
        self.mark(
            rows,
            Phase.EVAL_CHECKPOINT if saves else Phase.EVAL,
            Certainty.GUESSED if guessed else Certainty.DEDUCED,
        )

    def mark_lone_saves(self) -> None:
        """`saving checkpoint` with no evaluation line above: it belongs to the next row if that row is slow."""
        run, baseline = self.run, self.baseline
        lone = np.isnan(column_of(run.checkpoints, "at"))
        if not lone.any() or "checkpoint" not in run.holds or baseline is None or run.reordered:
            return
        rows = rows_from(run.iterations.line, column_of(run.checkpoints, "line")[lone])
        rows = rows[rows < len(run.iterations)]
        slow = baseline.ratio(run.iterations, rows) > max(SPIKE_RATIO, 1 + SPIKE_NOISES * baseline.noise)
        for row, is_slow in zip(rows.tolist(), slow.tolist(), strict=True):
            if self.phase[row] == Phase.EVAL:
                self.phase[row] = Phase.EVAL_CHECKPOINT
            elif self.phase[row] == Phase.STEP and is_slow:
                self.mark(row, Phase.EVAL_CHECKPOINT, Certainty.DEDUCED)  # nanoGPT saves only after an evaluation

    def mark_stalls(self) -> tuple[Period, ...]:
        """Slow rows that nothing explains, the artefact of DDP apart; returns the periods of those that have one."""
        run, baseline = self.run, self.baseline
        if baseline is None:
            return ()
        spikes, numbers = self._spikes(baseline), run.iterations.number
        hundreds = multiples(numbers, DDP_PERIOD) & self.steps
        on_hundred = hundreds & spikes
        on_hundred[on_hundred] = baseline.ratio(run.iterations, on_hundred) < DDP_LARGEST_RATIO
        if (
            run.span is None
            and int(on_hundred.sum()) >= 3
            and on_hundred.sum() >= MOST_PLACES * hundreds.sum()
            and (spikes & ~on_hundred).sum() <= on_hundred.sum()
        ):
            self.artefact = on_hundred
        spikes &= ~self.artefact

        def beyond(rows: Ints) -> Floats:
            """Of a mean of many iterations it is the one slow iteration that counts, as far as it is no noise."""
            step = (self.phase[rows] == int(Phase.STEP)) & ~self.artefact[rows]
            return np.where(step, (baseline.ratio(run.iterations, rows) - 1) * self.covers[rows], 0.0)

        periods = [
            period
            for period in find_periods(numbers, self.covers, beyond, spikes, self.first)
            if median(beyond(np.flatnonzero(period.rows))) > STALL_RATIO - 1
        ]
        slow = spikes.copy()
        slow[slow] = baseline.ratio(run.iterations, spikes) > max(STALL_RATIO, math.exp(STALL_NOISES * baseline.noise))
        for period in periods:
            slow |= period.rows
        self.mark(slow, Phase.STALL, Certainty.DEDUCED)
        return tuple(periods)

    def first_holds(self, interval: int | None) -> tuple[bool, bool]:
        """Whether the first iteration holds an evaluation, and a checkpoint (never at iteration 0)."""
        run = self.run
        if self.first is None or "eval" not in run.holds:
            return False, False
        number = int(run.iterations.number[self.first])
        if run.timing in AVERAGES:
            if self.hold_most(_among(numbers_of(run.evaluations), run.iterations.number)):
                return False, False
            return bool((column_of(run.evaluations, "at") <= number).any()), False
        told = bool((column_of(run.evaluations, "at") == number).any())
        if number == 0 and run.traits.evaluates_at_zero:
            # nanoGPT always evaluates at 0; an excerpt may leave the line out, a whole log without it is a fork's.
            evaluates = told or not (run.has_header and run.evaluations)
        else:
            evaluates = told or (not run.evaluations and interval is not None and number % interval == 0)
        return evaluates, number > 0 and self.phase[self.first] in (Phase.EVAL_CHECKPOINT, Phase.CHECKPOINT)


# --- what was not logged ----------------------------------------------------------------------------------------


def _among(some: Ints, numbers: Ints) -> Mask:
    """As np.isin(numbers, some) of two rising columns, which would sort both."""
    found = np.zeros(len(numbers), bool)
    for part in pieces(len(some)):
        rows = rows_from(numbers, some[part])
        inside = rows < len(numbers)
        rows = rows[inside]
        found[rows[numbers[rows] == some[part][inside]]] = True
    return found


def _unlogged(run: Run, interval: int | None, evaluates: bool) -> tuple[Unlogged, int | None]:
    """Evaluations inside the logged span at iterations that were not logged, and one that ends the log."""
    numbers = run.iterations.number
    usual = log_interval(run) if "log_interval" in run.settings else None
    begin, end = int(numbers[0]), int(numbers[-1])
    if run.timing in AVERAGES or "eval" not in run.holds:
        return Unlogged(), None
    if not run.evaluations:
        if not interval or not evaluates:
            return Unlogged(), None
        return between_rows(numbers, interval, 0, np.zeros(0, np.int64)), None
    mentioned = numbers_of(run.evaluations)
    mentioned = mentioned[(mentioned > begin) & (mentioned < end)]
    hidden = Unlogged(mentioned=mentioned[numbers[rows_from(numbers, mentioned)] != mentioned])
    if interval and usual and not run.reordered and len(run.evaluations) > 1:
        # Lines are missing where a gap is longer than the log interval; evaluations must have run there.
        hidden = between_rows(numbers, interval, 2 * usual, hidden.mentioned)
    last = run.evaluations[-1].at
    return hidden, last if end < last <= end + 10 * (usual or 1) else None
