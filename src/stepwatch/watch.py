"""A run while it goes on: fed line by line, looked at whenever somebody looks.

The log is never read again. What the analysis needs is kept in bounded form: every slow iteration, the first ones and
the latest, and of the normal ones between them a sample that is even over the run. `analyse()` is the same as for a
whole log, and until the sample begins to be thinned so is its answer. It is called when lines have come, and so seldom
that it takes a hundredth of the time.

Past about 1,000 evaluations in one run, or 8,000 stalls, these are sampled too: evaluations that were let go count at
the usual cost, stalls as normal steps.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stepwatch.analysis import Analysis
from stepwatch.analysis.costs import MEASURED
from stepwatch.analysis.phases import Phase
from stepwatch.analysis.statistics import median
from stepwatch.errors import NoIterations, UsageError
from stepwatch.messages import Message
from stepwatch.readers.following import LiveReader
from stepwatch.run import Ints, Run
from stepwatch.sources import unreadable
from stepwatch.sources.follow import Growing, GrowingFile, GrowingPipe
from stepwatch.units import Interval

MOST_ROWS = 16_384  # kept before normal ones are thinned to half of it
MOST_TOLD = 2_048  # rows at and beside evaluations and saves
MOST_STALLS = 8_192
WORTH_THINNING = 256  # rows that go at once; more would make the sample denser towards the end
HEAD_ROWS = 400  # as many as the printed mfu is undone from
TAIL_ROWS = 400  # more than the forecast calls recent
ANALYSIS_SHARE = 0.01  # of the time, at most
RECENT_ROWS = 11
ENOUGH_ROWS = 8
SLOWER = 1.10  # as large as a change of regime
SLOWER_NOISES = 2.0
LATE_RATIO = 3.0
LATE_S = 10.0
UNKNOWN_EVALUATION_STEPS = 300.0  # the largest published evaluation takes 287 steps
MOST_EVENTS = 50
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing: any share of any arithmetic progression, evenly

STALL, SILENCE, LINES_AGAIN, SLOWDOWN, RECOVERED, RESTART, ANEW, DONE = (
    "stall", "silence", "lines_again", "slowdown", "recovered", "restart", "anew", "done",
)  # fmt: skip


class Event(NamedTuple):
    """Something that happened while somebody watched."""

    kind: str
    at_s: float
    message: Message
    iteration: int | None = None
    time_s: float | None = None
    ratio: float | None = None

    @property
    def is_alarm(self) -> bool:
        return self.kind in (STALL, SILENCE, SLOWDOWN)


class Ahead(NamedTuple):
    """A coming evaluation or checkpoint."""

    at: int
    in_s: float
    certain: bool = True


class Look(NamedTuple):
    """The state of the run at one moment."""

    name: str
    now_s: float
    analysis: Analysis | None = None
    remaining_s: Interval | None = None
    """From this very moment: it runs down between lines, and waits with a line that does not come."""
    recent_step_s: float | None = None
    ratio: float | None = None
    """Of the latest iterations to a normal one."""
    slow: bool = False
    evaluation: Ahead | None = None
    checkpoint: Ahead | None = None
    slow_row: int | None = None
    """The last row of the analysis that was no plain step."""
    silence_s: float = 0.0
    late: bool = False
    """No line for much longer than normal."""
    starting: bool = False
    """A new run has printed its header and no iteration."""
    missing: bool = False
    """Nothing was ever read."""
    events: tuple[Event, ...] = ()

    @property
    def done(self) -> bool:
        return self.analysis is not None and self.analysis.forecast.done and not self.starting

    @property
    def last_iteration(self) -> int | None:
        known = self.analysis is not None and len(self.analysis.run.iterations)
        return int(self.analysis.run.iterations.number[-1]) if known and self.analysis is not None else None


def open_log(name: str, *, tee: Callable[[bytes], None] | None = None, once: bool = False) -> Growing:
    """A pipe, which `tee` is handed as it comes, or a file that may not be there yet unless it is read but once."""
    if name == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError(
                Message("there is no log to watch"),
                Message("name it: stepwatch watch train.log, or pipe it: python train.py … | stepwatch watch -"),
            )
        return GrowingPipe(sys.stdin.buffer, tee=tee)
    try:
        if stat.S_ISFIFO(os.stat(name).st_mode):
            return GrowingPipe(open(name, "rb", buffering=0), name=os.path.basename(name), tee=tee)
    except OSError as error:
        if once or not isinstance(error, FileNotFoundError):
            raise unreadable(name, error) from error
    return GrowingFile(name)


class Live:
    """A run that goes on; `explain` is the analysis with what the user knows of card and settings."""

    def __init__(
        self, name: str, explain: Callable[[Run], Analysis], *, stopwatch: Callable[[], float] = time.thread_time
    ) -> None:
        self.name = name
        self.events: list[Event] = []
        self._news: list[Event] = []
        self._explain, self._stopwatch = explain, stopwatch
        self._reader = LiveReader(name)
        self._analysis: Analysis | None = None
        self._fresh = False
        self._not_before = -np.inf
        self._line_at: float | None = None
        self._analysed_line_at = 0.0
        self._levels = _Levels()
        self._watching = False
        self._told_row = -1
        self._late = self._slow = self._done = False
        self._runs = 0

    # --- what comes in --------------------------------------------------------------------------------------

    def feed(self, text: bytes, at_s: float) -> None:
        """Whole lines that came at that moment."""
        if not text:
            return
        self._reader.feed(text)
        self._fresh = True
        self._line_at = at_s
        if self._late:
            self._late = False
            self._tell(Event(LINES_AGAIN, at_s, Message("Lines come again.")))

    def settle(self) -> None:
        """All that there was has been fed."""
        self._reader.settle()

    def begin_watching(self, now_s: float) -> None:
        """What was fed before is history: nothing in it is an event."""
        self._analyse_now(now_s)
        self._watching = True

    def tell_anew(self, now_s: float) -> None:
        self._tell(Event(ANEW, now_s, Message("The log was cut or replaced; it is read on from its new beginning.")))

    # --- what is seen ---------------------------------------------------------------------------------------

    def look(self, now_s: float, *, thoroughly: bool = False) -> Look:
        """The state now; `thoroughly` analyses what is new even if it is not yet time to."""
        if self._fresh and (thoroughly or now_s >= self._not_before):
            self._analyse_now(now_s)
        a = self._analysis
        if a is None or not len(a.run.iterations):
            return Look(
                self.name, now_s, a, events=tuple(self.events), starting=True, missing=self._line_at is None,
                remaining_s=a.forecast.remaining_s if a else None,
            )  # fmt: skip
        starting = self._reader.begins_anew
        silence = max(now_s - self._line_at, 0.0) if self._line_at is not None else 0.0
        if not starting:
            self._watch_silence(a, silence, now_s)
        waited = min(max(now_s - self._analysed_line_at, 0.0), _until_next_line(a))
        recent = _recent_step_s(a)
        return Look(
            self.name, now_s, a, remaining_s=_less(a.forecast.remaining_s, waited), recent_step_s=recent,
            ratio=recent / a.costs.step_s.mid if recent is not None and _step_known(a) else None, slow=self._slow,
            evaluation=_next_evaluation(a, waited), checkpoint=_next_checkpoint(a, waited), slow_row=_slow_row(a),
            silence_s=silence, late=self._late, starting=starting, events=tuple(self.events),
        )  # fmt: skip

    def news(self) -> list[Event]:
        """What happened since it was last asked for."""
        news, self._news = self._news, []
        return news

    def runs(self) -> tuple[Run, ...]:
        """Every run of the log with iterations, in order, for the report at the end."""
        current = self._reader.run()
        runs = tuple(run for run in (*self._reader.past, current) if run is not None and len(run.iterations))
        return runs or ((current,) if current is not None else ())

    # --- analysis -------------------------------------------------------------------------------------------

    def _analyse_now(self, now_s: float) -> None:
        begin = self._stopwatch()
        self._fresh = False
        run = self._reader.run()
        if run is None:
            return
        restarted, self._runs = len(self._reader.past) > self._runs, len(self._reader.past)
        if restarted:
            self._levels = _Levels()
            self._told_row, self._slow, self._done = -1, False, False
            if self._watching:
                self._tell(Event(RESTART, now_s, Message("A new run begins.")))
        try:
            self._analysis = self._explain(run)
        except NoIterations:  # a header that tells too little to expect anything by
            self._analysis = None
            return
        self._analysed_line_at = self._line_at if self._line_at is not None else now_s
        self._notice(self._analysis, now_s)
        if self._levels.any or len(run.iterations) > MOST_ROWS:
            self._thin(self._analysis)
        self._not_before = now_s + (self._stopwatch() - begin) / ANALYSIS_SHARE

    def _thin(self, a: Analysis) -> None:
        """Every slow row, both ends, and an even sample of the rest."""
        numbers = a.run.iterations.number
        rows = np.arange(len(numbers))
        ends = (rows < HEAD_ROWS) | (rows >= len(rows) - TAIL_ROWS)
        stalls = a.phases.of(Phase.STALL)
        told = (~a.phases.of(Phase.STEP) & ~stalls) | _beside_events(a.run) | _on_grid(a, numbers)
        levels = self._levels
        levels.told = _level_for(numbers[told & ~ends], levels.told, MOST_TOLD)
        levels.stalls = _level_for(numbers[stalls & ~ends], levels.stalls, MOST_STALLS)
        levels.normal = _level_for(numbers[~stalls & ~told & ~ends], levels.normal, MOST_ROWS // 2)
        kept = (told & _sampled(numbers, levels.told)) | (stalls & _sampled(numbers, levels.stalls))
        kept |= ends | (~told & ~stalls & _sampled(numbers, levels.normal))
        if int((~kept).sum()) >= WORTH_THINNING:
            self._reader.keep(a.run, kept, self._forgotten(a.run))

    def _forgotten(self, run: Run) -> set[int]:
        """Iterations whose evaluations and saves go with their rows."""
        if not self._levels.told:
            return set()
        saved = [save.at for save in run.checkpoints if save.at is not None]
        at = np.array([*(evaluation.at for evaluation in run.evaluations), *saved], np.int64)
        numbers = run.iterations.number
        between = (at > numbers[HEAD_ROWS]) & (at < numbers[-TAIL_ROWS])
        return set(at[between & ~_sampled(at, self._levels.told)].tolist())

    # --- events ---------------------------------------------------------------------------------------------

    def _tell(self, event: Event) -> None:
        self.events = [*self.events, event][-MOST_EVENTS:]
        self._news = [*self._news, event][-MOST_EVENTS:]

    def _notice(self, a: Analysis, now_s: float) -> None:
        """Stalls and changes of speed since the last analysis; what was there before anybody watched is no news."""
        if not len(a.run.iterations):
            return
        last = int(a.run.iterations.number[-1])
        was_slow, self._slow = self._slow, self._is_slow(a)
        if self._watching:
            self._tell_stalls(a, now_s)
            if self._slow != was_slow:
                self._tell(_change_of_speed(a, now_s, last, slow=self._slow))
            if a.forecast.done and not self._done:
                end = Message("The run reached its last iteration, {end:n}.", {"end": a.forecast.max_iters})
                self._tell(Event(DONE, now_s, end, iteration=last))
        self._told_row, self._done = last, a.forecast.done

    def _tell_stalls(self, a: Analysis, now_s: float) -> None:
        if a.phases.baseline is None or self._slow:
            return  # a stretch that is slow as a whole is told as such
        stalled = a.phases.of(Phase.STALL)
        fresh = stalled & (a.run.iterations.number > self._told_row)
        first_of_burst = fresh & ~np.concatenate(([False], stalled[:-1]))
        for row in np.flatnonzero(first_of_burst).tolist():
            number, time_s = int(a.run.iterations.number[row]), float(a.run.iterations.time_s[row])
            ratio = time_s / float(a.phases.baseline.time_s[row])
            lost = float(a.phases.excess_s(a.run, np.array([row]))[0])
            facts = {"at": [number], "ratio": ratio, "lost": lost, "count": 1, "of": a.run.logged}
            self._tell(Event(STALL, now_s, _stall_message(facts), number, time_s, ratio))

    def _is_slow(self, a: Analysis) -> bool:
        recent = _recent_step_s(a)
        if recent is None or a.phases.baseline is None or not _step_known(a):
            return False
        limit = max(SLOWER, 1 + SLOWER_NOISES * a.phases.baseline.noise)
        return recent / a.costs.step_s.mid > (1 + (limit - 1) / 2 if self._slow else limit)

    def _watch_silence(self, a: Analysis, silence_s: float, now_s: float) -> None:
        due = _until_next_line(a)
        if self._late or a.forecast.done or not _step_known(a) or len(a.run.iterations) < ENOUGH_ROWS:
            return
        if silence_s > max(LATE_RATIO * due, due + LATE_S):
            self._late = True
            text = Message(
                "No line for {silence:time}; one was due after {due:time}.", {"silence": silence_s, "due": due}
            )
            last = int(a.run.iterations.number[-1])
            self._tell(Event(SILENCE, now_s, text, last, silence_s, silence_s / due if due > 0 else None))


def _stall_message(facts: dict[str, object]) -> Message:
    # The key of the finding, whole, so that it is translated once.
    return Message(
        "Iteration {at:ints} took {ratio:x} times as long as a normal one, without evaluation or checkpoint: something else held the machine for {lost:time}.",
        facts,
        "{count:n} of {of:n} logged iterations were slow without evaluation or checkpoint (up to {ratio:x} times normal; {at:ints}): something else held the machine for {lost:time} in all.",
        1,
    )


def _change_of_speed(a: Analysis, now_s: float, last: int, *, slow: bool) -> Event:
    recent = _recent_step_s(a) or a.costs.step_s.mid
    ratio = recent / a.costs.step_s.mid
    facts = {"at": last, "now": recent, "ratio": ratio}
    if slow:
        text = Message("Slower at iteration {at:n}: {now:time} per iteration, {ratio:x} times normal.", facts)
        return Event(SLOWDOWN, now_s, text, last, recent, ratio)
    text = Message("Back to normal at iteration {at:n}: {now:time} per iteration.", facts)
    return Event(RECOVERED, now_s, text, last, recent, ratio)


# --- which rows are kept ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Levels:
    """Of each kind of rows one in 2^level is kept."""

    normal: int = 0
    told: int = 0
    stalls: int = 0

    @property
    def any(self) -> bool:
        return bool(self.normal or self.told or self.stalls)


def _level_for(numbers: Ints, level: int, most: int) -> int:
    """The lowest level, from this one on, at which no more than so many are kept."""
    while int(_sampled(numbers, level).sum()) > most:
        level += 1
    return level


def _sampled(numbers: Ints, level: int) -> np.ndarray:
    """One of 2^level, by number alone: what was let go once stays so."""
    if level == 0:
        return np.ones(len(numbers), bool)
    return np.asarray((numbers.astype(np.uint64) * _GOLDEN) >> np.uint64(64 - level) == 0)


def _beside_events(run: Run) -> np.ndarray:
    """Rows before and after evaluations and saves, in the log: they tell what the event belongs to."""
    beside = np.zeros(len(run.iterations), bool)
    lines = [*(evaluation.line for evaluation in run.evaluations), *(save.line for save in run.checkpoints)]
    order = np.argsort(run.iterations.line, kind="stable")
    following = np.searchsorted(run.iterations.line[order], lines)
    places = np.concatenate((following, following - 1))
    beside[order[places[(places >= 0) & (places < len(order))]]] = True
    return beside


def _on_grid(a: Analysis, numbers: Ints) -> np.ndarray:
    """Rows where an evaluation is due: one that is missing there would count as not logged."""
    interval = a.phases.eval_interval
    return np.asarray(numbers % interval == 0) if interval else np.zeros(len(numbers), bool)


# --- what is to come --------------------------------------------------------------------------------------------


def _step_known(a: Analysis) -> bool:
    return a.costs.how.get("step_s") == MEASURED and a.costs.step_s.mid > 0


def _recent_step_s(a: Analysis) -> float | None:
    """The middle of the latest iterations, stalls included: a stretch of them is the speed of now."""
    rows = np.flatnonzero(a.phases.of(Phase.STEP, Phase.STALL))[-RECENT_ROWS:]
    return median(a.run.iterations.time_s[rows]) * a.costs.device_ratio if len(rows) else None


def _slow_row(a: Analysis) -> int | None:
    rows = np.flatnonzero(~a.phases.of(Phase.STEP))
    return int(rows[-1]) if len(rows) else None


def _until_next_line(a: Analysis) -> float:
    """From one line to the next, with the evaluation and the checkpoint that may lie between."""
    last = int(a.run.iterations.number[-1])
    lines = a.run.settings.count("log_interval") or 1
    due = lines * a.costs.step_s.high
    interval = a.phases.eval_interval
    evaluates = (last + lines) // interval > last // interval if interval else True
    if not evaluates:
        return due
    if a.costs.pair_s is not None or a.costs.eval_s is not None:
        return due + (a.costs.pair_s or a.costs.eval_s or Interval.exactly(0.0)).high
    return due + (UNKNOWN_EVALUATION_STEPS * a.costs.step_s.high if _may_evaluate(a) else 0.0)


def _may_evaluate(a: Analysis) -> bool:
    return a.phases.eval_interval is not None or a.run.logged < 1000


def _less(interval: Interval | None, seconds: float) -> Interval | None:
    if interval is None:
        return None
    return Interval(*(max(end - seconds, 0.0) for end in (interval.low, interval.mid, interval.high)))


def _next_evaluation(a: Analysis, waited_s: float) -> Ahead | None:
    interval, last = a.phases.eval_interval, int(a.run.iterations.number[-1])
    if not interval or not _step_known(a) or (a.forecast.max_iters is not None and not a.forecast.evals_ahead):
        return None
    begun = a.phases.trailing if a.phases.trailing is not None else last
    at = begun - begun % interval + interval
    if a.forecast.max_iters is not None and at > a.forecast.max_iters:
        return None
    return Ahead(at, max((at - last - 1) * a.costs.step_s.mid - waited_s, 0.0))


def _next_checkpoint(a: Analysis, waited_s: float) -> Ahead | None:
    """After the next evaluation, if that one saves; where only better losses are saved nobody knows."""
    evaluation = _next_evaluation(a, waited_s)
    saves = (
        a.forecast.saves_ahead / a.forecast.evals_ahead if a.forecast.evals_ahead else float(bool(a.run.checkpoints))
    )
    if evaluation is None or saves <= 0 or a.costs.eval_s is None:
        return None
    always = a.run.settings.flag("always_save_checkpoint") is True
    return Ahead(evaluation.at, evaluation.in_s + a.costs.eval_s.mid, certain=always)
