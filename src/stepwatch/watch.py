"""A run in progress: fed line by line, analysed whenever it is looked at.

The log is read only once. What the analysis needs is kept in bounded form: every slow iteration, the first and the
latest ones, and an even sample of the normal ones between them. `analyse()` is the same as for a whole log, and until
rows are thinned out its answer is the same, too. It is called after new lines, but so rarely that it takes at most a
hundredth of the time.

Beyond about 1,000 evaluations in one run, or 8,000 stalls, these are sampled too: evaluations that were dropped count
at the usual cost, dropped stalls as normal steps.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from stepwatch.analysis import Analysis
from stepwatch.analysis.findings import stall_message
from stepwatch.analysis.phases import Phase
from stepwatch.analysis.statistics import median
from stepwatch.analysis.throughput import FITTED_ROWS, SMALLEST_CHANGE
from stepwatch.errors import NoIterations, UsageError
from stepwatch.messages import Message
from stepwatch.readers.following import LiveReader
from stepwatch.readers.refusals import no_times
from stepwatch.run import Ints, Run
from stepwatch.sources import unreadable
from stepwatch.sources.directories import log_in
from stepwatch.sources.follow import FollowedLog, GrowingFile, GrowingPipe
from stepwatch.units import HOUR_S, Interval
from stepwatch.verdict import ENDED, Status, Verdict, judge

MOST_ROWS = 16_384  # kept before thinning: normal rows and stalls to half of it each, others to an eighth
END_ROWS = FITTED_ROWS  # kept at both ends: the first undo the average in the printed MFU, the forecast uses the latest
MOST_EVENTS = 50
RESTART_S = 600.0  # torchrun's join_timeout: no restart comes later than that
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing: any share of any arithmetic progression, evenly

STALL, SILENCE, LINES_AGAIN, SLOWDOWN, RECOVERED, RESTART, TRUNCATED, DONE, CRASHED, DIVERGED, STOPPED, CAUSE = (
    "stall", "silence", "lines_again", "slowdown", "recovered", "restart", "anew", "done", "crashed", "diverged",
    "stopped", "cause",
)  # fmt: skip


def steady_clock() -> Callable[[], float]:
    """Returns a clock that starts at the current time of day and does not jump when the system clock is set."""
    begin = time.time() - time.monotonic()
    return lambda: begin + time.monotonic()


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """Something that happened during the watch."""

    kind: str
    at_s: float
    message: Message
    iteration: int | None = None
    time_s: float | None = None
    ratio: float | None = None
    line: int | None = None
    """The line of the log that shows it, counted from 1."""

    @property
    def is_alarm(self) -> bool:
        return self.kind in (STALL, SILENCE, SLOWDOWN, CRASHED, DIVERGED, STOPPED, CAUSE)


@dataclass(frozen=True, slots=True)
class UpcomingEvent:
    """A coming evaluation or checkpoint."""

    at: int
    in_s: float
    certain: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The state of the run at one moment."""

    name: str
    now_s: float
    analysis: Analysis | None = None
    verdict: Verdict | None = None
    remaining_s: Interval | None = None
    """Counted from `now_s`: it runs down between lines, and stops while a line is overdue. None for a run that ended
    before its last iteration."""
    recent_step_s: float | None = None
    ratio: float | None = None
    """Time of the latest iterations relative to a normal one."""
    slow: bool = False
    evaluation: UpcomingEvent | None = None
    checkpoint: UpcomingEvent | None = None
    slow_row: int | None = None
    """The last row of the analysis that is not a plain step."""
    silence_s: float = 0.0
    late: bool = False
    """No line for much longer than normal."""
    starting: bool = False
    """A new run has printed its header but no iteration yet."""
    missing: bool = False
    """Nothing was ever read."""
    over: bool = False
    """No more lines are expected in this log."""
    events: tuple[WatchEvent, ...] = ()

    @property
    def grave(self) -> Verdict | None:
        """The verdict if the run crashed, diverged or stopped, else None."""
        return self.verdict if self.verdict is not None and self.verdict.status in ENDED else None

    @property
    def failed(self) -> bool:
        return self.verdict is not None and self.verdict.status in (Status.CRASHED, Status.DIVERGED)

    @property
    def done(self) -> bool:
        return self.analysis is not None and self.analysis.forecast.done and not self.starting

    @property
    def last_iteration(self) -> int | None:
        if self.analysis is None or not len(self.analysis.run.iterations):
            return None
        return int(self.analysis.run.iterations.number[-1])


@dataclass(slots=True)
class _State:
    """What is remembered about the watched run; starts afresh with a new run."""

    levels: _Levels = field(default_factory=lambda: _Levels())
    last_noticed: int = -1
    """The last iteration that was analysed: earlier ones are no news."""
    slow: bool = False
    done: bool = False


def open_log(name: str, *, tee: Callable[[bytes], None] | None = None, once: bool = False) -> FollowedLog:
    """Opens a pipe, whose bytes also go to `tee`, or a file, which may not exist yet unless `once` is set."""
    if name == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError(
                Message("there is no log to watch"),
                Message("name it: stepwatch watch train.log, or pipe it: python train.py … | stepwatch watch -"),
            )
        return GrowingPipe(sys.stdin.buffer, tee=tee)
    name = log_in(name)
    try:
        if stat.S_ISFIFO(os.stat(name).st_mode):
            return GrowingPipe(open(name, "rb", buffering=0), name=os.path.basename(name), tee=tee)
    except OSError as error:
        if once or not isinstance(error, FileNotFoundError):
            raise unreadable(name, error) from error
    return GrowingFile(name)


class Live:
    """A run in progress; `explain` analyses it with what the user said about card and settings."""

    def __init__(
        self, name: str, explain: Callable[[Run], Analysis], *, stopwatch: Callable[[], float] = time.thread_time
    ) -> None:
        self.name = name
        self.events: list[WatchEvent] = []
        self._news: list[WatchEvent] = []
        self._explain, self._stopwatch = explain, stopwatch
        self._reader = LiveReader(name)
        self._analysis: Analysis | None = None
        self._fresh = False
        self._not_before = -np.inf
        self._line_at: float | None = None
        self._analysed_line_at = 0.0
        self._watching = False
        self._history = False
        """No line has come since the watch began."""
        self._ended = False
        self._verdict: Verdict | None = None
        self._said: Verdict | None = None
        """The grave verdict that was reported and still holds."""
        self._restarted = False
        """The header of a new run was reported, but its first iteration has not come yet."""
        self._late = False
        self._runs = 0
        self._state = _State()

    # --- what comes in --------------------------------------------------------------------------------------

    def feed(self, text: bytes, at_s: float) -> None:
        """Takes whole lines that arrived at `at_s`."""
        if not text:
            return
        self._reader.feed(text)
        self._fresh, self._history = True, False
        self._line_at = at_s
        if self._late:
            self._late = False
            self._report(WatchEvent(LINES_AGAIN, at_s, Message("The log is growing again.")))

    def end(self) -> None:
        """Notes that the pipe is closed: no more lines will come."""
        self._fresh = self._ended = True

    def begin_watching(self, now_s: float) -> None:
        """Starts to report events. Lines fed before are history: the only event in them is the end of the run."""
        self._analyse_now(now_s)
        self._watching = self._history = True

    def report_truncation(self, now_s: float) -> None:
        text = Message("The log was truncated or replaced; reading continues at its new beginning.")
        self._report(WatchEvent(TRUNCATED, now_s, text))

    # --- what is seen ---------------------------------------------------------------------------------------

    def look(self, now_s: float, *, thoroughly: bool = False) -> Look:
        """Returns the current state; `thoroughly` analyses new lines even if an analysis is not yet due."""
        urgent = self._reader.new_fault or (self._reader.loss_lost and self._said is None)
        if self._fresh and (thoroughly or urgent or now_s >= self._not_before):
            self._analyse_now(now_s)
        a, verdict = self._analysis, self._verdict
        silence = max(now_s - self._line_at, 0.0) if self._line_at is not None else 0.0
        starting = self._reader.begins_anew
        if a is not None and verdict is not None:
            # Ranks may flush their headers as they exit: then only an iteration shows that the run was restarted.
            restarted = starting and verdict.status in ENDED and not a.run.distributed
            if restarted:
                verdict = Verdict(status=Status.BEGUN, text=Message("A new run begins."))
            self._announce(a, verdict, now_s, restarted=restarted)
        gone = verdict is not None and verdict.status in (Status.CRASHED, Status.STOPPED)
        over = gone and not starting and (self._history or silence >= RESTART_S)
        if a is None or not len(a.run.iterations):
            return Look(
                name=self.name,
                now_s=now_s,
                analysis=a,
                verdict=verdict,
                remaining_s=a.forecast.remaining_s if a and not gone else None,
                silence_s=silence,
                starting=True,
                missing=self._line_at is None,
                over=over,
                events=tuple(self.events),
            )
        # The time from one line to the next, with an evaluation and a checkpoint that may come between them.
        last, interval = int(a.run.iterations.number[-1]), a.phases.eval_interval
        lines = a.run.settings.count("log_interval") or 1
        due, cost = lines * a.costs.step_s.high, a.costs.pair_s or a.costs.eval_s
        if not interval or (last + lines) // interval > last // interval:
            if cost is not None:
                due += cost.high
            elif interval is not None or a.run.logged < 1000:  # the longest published evaluation takes 287 steps
                due += 300 * a.costs.step_s.high
        expected = not starting and not a.forecast.done and a.costs.step_measured and len(a.run.iterations) >= 8
        silent = Message(
            "No line for {silence:time} since iteration {last:n}; one was due after {due:time}. The run hangs, or it was ended and no line says so.",
            {"silence": silence, "last": last, "due": due},
        )
        if expected and not gone and not self._late and silence > max(3 * due, due + 10):
            self._late = True
            self._report(WatchEvent(SILENCE, now_s, silent, last, silence, silence / due))
        if self._late and (verdict is None or verdict.status not in ENDED):
            verdict = Verdict(status=Status.STOPPED, text=silent)
        waited = min(max(now_s - self._analysed_line_at, 0.0), due)
        remaining = a.forecast.remaining_s if not gone or a.forecast.done else None
        if remaining is not None:
            remaining = Interval(*(max(end - waited, 0.0) for end in (remaining.low, remaining.mid, remaining.high)))
        recent = _recent_step_s(a)
        evaluation, checkpoint = (None, None) if gone else _next_evaluation(a, waited)
        diverged_before = self._history and self._late and verdict is not None and verdict.status is Status.DIVERGED
        slow_rows = np.flatnonzero(~a.phases.of(Phase.STEP))
        return Look(
            name=self.name,
            now_s=now_s,
            analysis=a,
            verdict=verdict,
            remaining_s=remaining,
            recent_step_s=recent,
            ratio=recent / a.costs.step_s.mid if recent is not None and a.costs.step_measured else None,
            slow=self._state.slow,
            evaluation=evaluation,
            checkpoint=checkpoint,
            slow_row=int(slow_rows[-1]) if len(slow_rows) else None,
            silence_s=silence,
            late=self._late,
            starting=starting,
            over=over or diverged_before or (a.forecast.done and not starting),
            events=tuple(self.events),
        )

    def news(self) -> list[WatchEvent]:
        """Returns the events since the last call."""
        news, self._news = self._news, []
        return news

    def runs(self) -> tuple[Run, ...]:
        """All runs with iterations, in order, for the report at the end. Raises NoIterations if none is timed."""
        current = self._reader.run()
        if current is not None:
            current = replace(current, written_s=self._line_at)
        runs = tuple(run for run in (*self._reader.past, current) if run is not None and len(run.iterations))
        if runs and not any(run.is_timed for run in runs):
            raise no_times(runs)
        return tuple(run for run in runs if run.is_timed) or ((current,) if current is not None else ())

    # --- analysis -------------------------------------------------------------------------------------------

    def _explained(self, run: Run) -> Analysis:
        """Raises NoIterations if no time is known."""
        if len(run.iterations) and not run.is_timed:
            raise no_times((run,))
        return self._explain(run)

    def _analyse_now(self, now_s: float) -> None:
        begin = self._stopwatch()
        self._fresh = False
        try:
            run = self._reader.run()
        except NoIterations:  # the beginning of a file that can be read only as a whole
            run = None
        if run is None:
            self._not_before = now_s + 100 * (self._stopwatch() - begin)
            return
        if self._reader.ended > self._runs:
            self._state = _State()
            if self._watching:
                if self._said is None and not self._restarted:  # it ended and was started again between two looks
                    with suppress(NoIterations):
                        past = self._explained(self._reader.past[-1])
                        self._announce(past, judge(past), now_s)
                if not self._restarted:
                    self._report(WatchEvent(RESTART, now_s, Message("A new run begins.")))
            self._said, self._restarted = None, False
        self._runs = self._reader.ended
        try:
            self._analysis = self._explained(replace(run, written_s=self._line_at))
        except NoIterations:  # a header that says too little for any expectation
            self._analysis = self._verdict = None
            self._not_before = now_s + 100 * (self._stopwatch() - begin)
            return
        # During a watch, silence is judged by the lines that are due; an older log had ended before the watch.
        old = not self._watching and self._line_at is not None and now_s - self._line_at > HOUR_S
        self._verdict = judge(self._analysis, now_s=now_s if old else None, ended=self._ended)
        self._analysed_line_at = self._line_at if self._line_at is not None else now_s
        if len(run.iterations):
            self._notice(self._analysis, now_s)
        if self._state.levels.any or len(run.iterations) > MOST_ROWS:
            kept, forgotten = self._state.levels.thinned(self._analysis)
            if int((~kept).sum()) >= MOST_ROWS // 64:  # larger batches would make the sample denser towards the end
                self._reader.keep(self._analysis.run, kept, forgotten)
        self._not_before = now_s + 100 * (self._stopwatch() - begin)  # at most a hundredth of the time is spent on it

    # --- events ---------------------------------------------------------------------------------------------

    def _announce(self, a: Analysis, verdict: Verdict, now_s: float, *, restarted: bool = False) -> None:
        """Reports once that the run ended or diverged, and later if it continues after all or is restarted."""
        said, last = self._said, a.forecast.last_iteration if len(a.run.iterations) else None
        self._said = verdict if verdict.status in ENDED else None
        if self._said is not None and (said is None or said.status is not verdict.status):
            self._report(WatchEvent(verdict.status.value, now_s, verdict.text, last, line=verdict.line))
        elif self._said is not None and said is not None and said.text.key != verdict.text.key:
            self._report(WatchEvent(CAUSE, now_s, verdict.text, last, line=verdict.line))
        elif said is not None and restarted:
            self._restarted = True
            self._report(WatchEvent(RESTART, now_s, verdict.text))
        elif said is not None and self._said is None:
            text = Message("The run continues at iteration {at:n}.", {"at": last})
            if said.status is Status.DIVERGED:
                text = Message("The loss is a number again at iteration {at:n}.", {"at": last})
            self._report(WatchEvent(RECOVERED, now_s, text, last))

    def _report(self, event: WatchEvent) -> None:
        self.events = [*self.events, event][-MOST_EVENTS:]
        self._news = [*self._news, event][-MOST_EVENTS:]

    def _notice(self, a: Analysis, now_s: float) -> None:
        """Reports stalls and changes of speed since the last analysis; those from before the watch are no news."""
        state, last = self._state, int(a.run.iterations.number[-1])
        recent, normal = _recent_step_s(a) or a.costs.step_s.mid, a.costs.step_s.mid
        slow = False
        if a.phases.baseline is not None and a.costs.step_measured:
            least = max(SMALLEST_CHANGE, 2 * a.phases.baseline.noise)
            slow = recent / normal > 1 + (least / 2 if state.slow else least)
        if self._watching:
            if not slow and a.phases.baseline is not None:  # a stretch that is slow as a whole is reported as such
                stalled = a.phases.of(Phase.STALL) & ~a.phases.regular
                fresh = stalled & (a.run.iterations.number > state.last_noticed)
                first_of_burst = np.flatnonzero(fresh & ~np.concatenate(([False], stalled[:-1])))
                lost_s = a.phases.excess_s(a.run, first_of_burst)
                for row, lost in zip(first_of_burst.tolist(), lost_s.tolist(), strict=True):
                    number, time_s = int(a.run.iterations.number[row]), float(a.run.iterations.time_s[row])
                    ratio = time_s / float(a.phases.baseline.time_s[row])
                    message = stall_message(a.run, [number], ratio, lost)
                    self._report(WatchEvent(STALL, now_s, message, number, time_s, ratio))
            if slow != state.slow:
                facts = {"at": last, "now": recent, "ratio": recent / normal}
                text = Message("Back to normal at iteration {at:n}: {now:time} per iteration.", facts)
                if slow:
                    text = Message(
                        "Slower at iteration {at:n}: {now:time} per iteration, {ratio:x} times normal.", facts
                    )
                kind = SLOWDOWN if slow else RECOVERED
                self._report(WatchEvent(kind, now_s, text, last, recent, recent / normal))
            if a.forecast.done and not state.done:
                text = Message("The run reached its last iteration, {end:n}.", {"end": a.forecast.max_iters})
                self._report(WatchEvent(DONE, now_s, text, last))
        state.last_noticed, state.slow, state.done = last, slow, a.forecast.done


# --- which rows are kept ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Levels:
    """How far each kind of row is thinned: one in 2^level is kept."""

    normal: int = 0
    marked: int = 0
    stalls: int = 0

    @property
    def any(self) -> bool:
        return bool(self.normal or self.marked or self.stalls)

    def thinned(self, a: Analysis) -> tuple[np.ndarray, set[int]]:
        """The rows to keep (slow ones, both ends, an even sample of the rest), and iterations whose events to drop."""
        run, numbers = a.run, a.run.iterations.number
        rows = np.arange(len(numbers))
        ends = (rows < END_ROWS) | (rows >= len(rows) - END_ROWS)
        stalls = a.phases.of(Phase.STALL)
        marked = ~a.phases.of(Phase.STEP) & ~stalls
        # Rows next to evaluations and saves in the log: they show which iteration the event belongs to.
        lines = [*(evaluation.line for evaluation in run.evaluations), *(save.line for save in run.checkpoints)]
        order = np.argsort(run.iterations.line, kind="stable")
        following = np.searchsorted(run.iterations.line[order], lines)
        places = np.concatenate((following, following - 1))
        marked[order[places[(places >= 0) & (places < len(order))]]] = True
        if a.phases.eval_interval:  # otherwise an evaluation at a dropped row would count as not logged
            marked |= numbers % a.phases.eval_interval == 0
        self.marked = _level_for(numbers[marked & ~ends], self.marked, MOST_ROWS // 8)
        self.stalls = _level_for(numbers[stalls & ~ends], self.stalls, MOST_ROWS // 2)
        self.normal = _level_for(numbers[~stalls & ~marked & ~ends], self.normal, MOST_ROWS // 2)
        kept = (marked & _sampled(numbers, self.marked)) | (stalls & _sampled(numbers, self.stalls))
        kept |= ends | (~marked & ~stalls & _sampled(numbers, self.normal))
        if not self.marked:
            return kept, set()
        saved = [save.at for save in run.checkpoints if save.at is not None]
        at = np.array([*(evaluation.at for evaluation in run.evaluations), *saved], np.int64)
        between = (at > numbers[END_ROWS]) & (at < numbers[-END_ROWS])
        return kept, set(at[between & ~_sampled(at, self.marked)].tolist())


def _level_for(numbers: Ints, level: int, most: int) -> int:
    """The lowest level, starting at `level`, that keeps at most `most` of the numbers."""
    while int(_sampled(numbers, level).sum()) > most:
        level += 1
    return level


def _sampled(numbers: Ints, level: int) -> np.ndarray:
    """Selects one in 2^level, by number alone: what was dropped once stays dropped."""
    if level == 0:
        return np.ones(len(numbers), bool)
    return np.asarray((numbers.astype(np.uint64) * _GOLDEN) >> np.uint64(64 - level) == 0)


# --- what is to come --------------------------------------------------------------------------------------------


def _recent_step_s(a: Analysis) -> float | None:
    """Median time of the latest iterations, stalls included: a series of stalls is the current speed."""
    rows = np.flatnonzero(a.phases.of(Phase.STEP, Phase.STALL))[-11:]
    return median(a.run.iterations.time_s[rows]) * a.costs.device_ratio if len(rows) else None


def _next_evaluation(a: Analysis, waited_s: float) -> tuple[UpcomingEvent | None, UpcomingEvent | None]:
    """The next evaluation and the checkpoint after it, if any; uncertain if only better losses are saved."""
    interval, last, forecast = a.phases.eval_interval, int(a.run.iterations.number[-1]), a.forecast
    if not interval or not a.costs.step_measured or (forecast.max_iters is not None and not forecast.evals_ahead):
        return None, None
    begun = a.phases.trailing if a.phases.trailing is not None else last
    at = begun - begun % interval + interval
    if forecast.max_iters is not None and at > forecast.max_iters:
        return None, None
    evaluation = UpcomingEvent(at, max((at - last - 1) * a.costs.step_s.mid - waited_s, 0.0))
    saves = forecast.saves_ahead > 0 if forecast.evals_ahead else bool(a.run.checkpoints)
    if not saves or a.costs.eval_s is None:
        return evaluation, None
    always = a.run.settings.flag("always_save_checkpoint") is True
    return evaluation, UpcomingEvent(at, evaluation.in_s + a.costs.eval_s.mid, certain=always)
