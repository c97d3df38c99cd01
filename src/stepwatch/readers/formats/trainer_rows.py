"""From the bars and dictionaries of the Hugging Face Trainer to rows, evaluations and checkpoints.

Which bar is the training's, which iteration a dictionary belongs to and how long the steps took is known only once
everything is read.
"""

from __future__ import annotations

import copy
import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise, repeat
from typing import Any, NamedTuple, overload

import numpy as np

from stepwatch.readers.formats import CHECKPOINT
from stepwatch.readers.formats.running import (
    WHOLE_SECONDS,
    Clock,
    Pause,
    as_slice,
    at_lines,
    first_occurrences,
    median,
    processes,
    step_times,
)
from stepwatch.readers.records import LARGEST_KEPT, LINE_OF, Records, pieces, whole_numbers
from stepwatch.run import Checkpoint, Evaluation, Fact, Floats, Ints, rows_from

_LAST_DIGIT = 0.0005  # half of it, in the rates of summaries
_ROUNDED_EPOCH = 0.005  # half of the last digit of an epoch with the fewest
_LITTLE = 0.02  # of the run: dictionaries come slightly later than the bars


class NarrowColumns:
    """Columns of one length, each as narrow as it was kept; indexed like an array with two dimensions."""

    __slots__ = ("columns",)

    def __init__(self, columns: Sequence[np.ndarray]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    @overload
    def __getitem__(self, place: tuple[Any, int]) -> Any: ...
    @overload
    def __getitem__(self, place: slice | np.ndarray) -> NarrowColumns: ...
    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, tuple):
            rows, column = place
            return self.columns[column][rows]
        return NarrowColumns([column[place] for column in self.columns])


class _Process(NamedTuple):
    """One process: the lines it may have written, where it shows its position, and what the epochs show."""

    begin: float
    end: float
    line: Floats
    number: Ints
    elapsed_s: Floats
    per_epoch: float = math.nan
    late: bool = False
    """Output that was held back came in whole pages at once: then only the epoch shows the place."""
    in_pages: bool = False
    """Some of the output was on time: if the bar above is further on than the epoch, the epoch shows the place."""

    def of(self, table: Any) -> Any:
        """The rows of a table, sorted by line, that belong to the process."""
        first, last = rows_from(table[:, 0], (self.begin, self.end))
        return table[first:last]


class TrainerRows:
    """Rows, evaluations and checkpoints of all processes, from everything that was kept."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.losses = NarrowColumns(records.take_columns("loss", 4))
        self.told = records.take_table("told", 6)
        self.evaluations = records.take_table("eval", 7)
        self.summaries = records.take_table("summary", 6)
        self.ended = records.take_table("ended", 1)
        self.rates = records.take_table("rate", 3)
        facts = {float(f.value) for f in records.events if isinstance(f, Fact) and f.name == "max_iters"}
        self.total = facts | {last for last in np.unique(self.told[:, 2]).tolist() if last > 0}
        bars = NarrowColumns(records.take_columns("bar", 5))
        counted = np.isfinite(bars[:, 1] + bars[:, 2])  # no more steps than a training can have
        bars = bars if counted.all() else bars[counted]
        self.bars = self._training_bars(bars)
        self.evaluations = self.evaluations if len(self.evaluations) else self._evaluation_bars(bars)
        self.marks = self._marks()
        self.saves = self._saves(*self.marks[:2])

    def add(self) -> None:
        line, number, elapsed, error, rate = self.marks
        if not len(line):
            for training in self._trainings():
                training._without_clock()
            return
        cuts = np.searchsorted(line, self._announced).tolist()
        pieces = processes(number, elapsed, [*cuts, *self._marks_after_summaries()])
        edges: list[float] = []
        for piece in pieces[1:]:  # a process begins with its empty bar, if one was drawn before its first position
            drawn = self._empty[np.searchsorted(self._empty, line[piece.start - 1], side="right") :]
            announced = self._announced[self._announced > line[piece.start - 1]]
            announced = announced[announced <= line[piece.start]]
            edge = min([float(line[piece.start]), *(announced[-1:] if len(announced) else drawn[:1]).tolist()])
            # A second summary in between is the process's own: it is above the only position that was kept.
            since, until = np.searchsorted(self.summaries[:, 0], (edges[-1] if edges else -math.inf, line[piece.start]))
            before = int(np.searchsorted(self.summaries[:, 0], line[piece.start - 1]))
            edges.append(min(edge, *self.summaries[max(before, since + 1) : until, 0].tolist()[:1], math.inf))
        begin = -math.inf
        for piece, end in zip(pieces, [*edges, math.inf], strict=True):
            inside = as_slice(first_occurrences(number[piece]))
            marks: list[Any] = [column[piece][inside] for column in (line, number, elapsed, error, rate)]
            if len(marks[0]):
                process = self._process(_Process(begin, end, *marks[:3]))
                self._add_process(process, marks, len(pieces) > 1)
            begin = end

    def _marks_after_summaries(self) -> Iterator[int]:
        """The first mark of the training after each summary: the bar of the finished one is drawn again after it."""
        line, number, elapsed = self.marks[:3]
        ends = self.summaries[np.diff(self.summaries[:, 1], append=np.nan) != 0]  # some are printed twice
        begins = [*np.searchsorted(line, ends[:, 0]).tolist(), len(line)]
        for (at, runtime, *_), (begin, end) in zip(ends.tolist(), pairwise(begins), strict=True):
            anew = self._empty[np.searchsorted(self._empty, at) :][:1]
            last = self._last_at(at)
            place = begin
            while place < end and number[place] >= last and not (anew < line[place]).any():
                if abs(elapsed[place] - runtime) > 1 / WHOLE_SECONDS + _LITTLE * runtime:
                    break
                place += 1
            if place < len(line):
                yield place

    def _trainings(self) -> Iterator[TrainerRows]:
        """What each of several trainings printed, if no bar divides them: each ends with its summary."""
        lines = np.concatenate([table[:, 0] for table in (self.losses, self.told, self.evaluations)])
        ends: list[np.ndarray] = []
        for row in self.summaries:
            # What train() returns may be printed again, by every rank: with the step, which the Trainer does not print.
            between = ends and ((lines > ends[-1][0]) & (lines < row[0])).any()
            doubt = _LITTLE * row[1] if row[5] > 0 else 0.0
            if ends and not between and abs(row[1] - ends[-1][1]) <= doubt:
                ends.pop()
            ends.append(row)
        edges = [-math.inf, *(float(row[0]) for row in ends[:-1]), math.inf]
        for begin, end in pairwise(edges):
            part = copy.copy(self)
            for name in ("losses", "told", "evaluations", "summaries", "ended", "rates"):
                table = getattr(self, name)
                setattr(part, name, table[(table[:, 0] > begin) & (table[:, 0] <= end)])
            part.saves = [save for save in self.saves if begin < save.line <= end]
            told = np.unique(part.told[:, 2])
            planned = {float(fact.value) for fact in self._facts.get("max_iters", []) if begin < fact.line <= end}
            part.total = planned | {last for last in told.tolist() if last > 0} or self.total
            part.__dict__.pop("_steps_done", None)
            own = [*part.losses[:1, 0], *part.summaries[:1, 0]]
            if len(edges) > 2 and own:
                line = int(min(own))
                self.records.events.append(Fact(line=line, name="process", value=line, header=True))
            yield part

    @cached_property
    def _empty(self) -> Floats:
        """The lines of bars at 0."""
        return np.asarray(self.bars[self.bars[:, 1] == 0, 0])

    @cached_property
    def _announced(self) -> Floats:
        """The lines of empty bars that follow the lines announcing a training."""
        headers = [event.line for event in self.records.events if isinstance(event, Fact) and event.header]
        places = np.searchsorted(self._empty, np.array(headers, np.float64))
        return np.unique(self._empty[places[places < len(self._empty)]])

    def _process(self, bare: _Process) -> _Process:
        """Adds the steps per epoch, from the summary or the planned ends: an epoch that was only seen is not an end."""
        ended = bare.of(self.summaries)
        if len(ended) and ended[-1, 3] > 0:
            done = int(bare.number[-1]) if len(bare.number) else self._steps_done
            per_epoch = (done or math.nan) / float(ended[-1, 3])
        else:
            begun = bare.line[0] if len(bare.line) else math.inf
            told = bisect_right(self._planned_epochs, begun, key=LINE_OF)
            epochs = self._planned_epochs[told - 1].value if told else math.nan
            seen = np.unique(self.losses[np.isfinite(self.losses[:, 2]), 2])
            if not told and not len(bare.line) and len(seen) > 1:
                # If the last dictionary is at the end of an epoch; elsewhere the run may have been stopped.
                whole = math.ceil(seen[-1] - 1e-3)
                epochs = whole if whole - seen[-1] < median(np.diff(seen)) else math.nan
            steps = self._last_at(begun) if len(bare.line) else self._steps_in_all()
            per_epoch = steps / epochs if steps and epochs > 0 else math.nan
            names = ("examples", "whole_batch", "micro_steps") if told else ()
            sizes = [self._stated(self._planned_epochs[told - 1].line, name) for name in names]
            if told and all(sizes):  # batches beyond the planned steps of an epoch become part of a step of the next
                examples, whole_batch, micro = map(float, filter(None, sizes))
                batches = math.ceil(examples * micro / whole_batch)
                per_epoch += batches % micro / micro if batches // micro == per_epoch else 0.0
        losses, evaluations = bare.of(self.losses), bare.of(self.evaluations)
        lines = np.concatenate((losses[:, 0], evaluations[:, 0]))
        places = np.concatenate((losses[:, 2], evaluations[:, 1]))
        by_place = _by_place(lines, bare)
        late = _late(by_place, places, places * per_epoch)
        in_pages = _is_partly_buffered(by_place, places, per_epoch)
        return bare._replace(per_epoch=per_epoch, late=late, in_pages=in_pages)

    # --- which bar, which clock ---

    def _training_bars(self, bars: NarrowColumns) -> NarrowColumns:
        """The bars of the training among those without a title: the evaluation draws some too, with another total."""
        steps = self.summaries[:, 1] * self.summaries[:, 2]
        doubt = 1 + np.maximum(self.summaries[:, 1], steps) * _LAST_DIGIT
        steps, doubt = steps[doubt < 1 + _LITTLE * steps], doubt[doubt < 1 + _LITTLE * steps]
        # Totals that equal the rate in a summary times its duration, as far as its digits show them.
        totals = np.unique(bars[:, 2])
        first, last = np.searchsorted(totals, steps - doubt), np.searchsorted(totals, steps + doubt, side="right")
        best = {total for a, b in zip(first.tolist(), last.tolist(), strict=True) for total in totals[a:b].tolist()}
        if len(steps) and not best and not len(self.losses):  # another bar: the training's own was not kept
            return bars[:0]
        if len(totals) == 1:
            return bars
        if self.total & set(np.unique(bars[:, 2]).tolist()):
            return bars[np.isin(bars[:, 2], list(self.total))]
        places = np.searchsorted(bars[:, 0], self.losses[:, 0]) - 1
        votes = Counter(_totals_at(bars, np.clip(places, 0, None)).tolist() if len(bars) else [])
        if not votes:
            longest = {total: float(bars[bars[:, 2] == total, 3].max()) for total in np.unique(bars[:, 2]).tolist()}
            votes = Counter({max(longest, key=lambda total: longest[total]): 1} if longest else {})
        if not votes:
            return bars[:0]
        best = best or {votes.most_common(1)[0][0]}
        chosen = bars[np.isin(bars[:, 2], list(best))]
        begin, end = chosen[0, 0], chosen[-1, 0]
        # Another run in the same log, if it is not between the lines of this one.
        for total in sorted(votes.keys() - best):
            others = bars[bars[:, 2] == total]
            if others[-1, 0] < begin or others[0, 0] > end:
                best = best | {total}
        return bars[np.isin(bars[:, 2], list(best))]

    def _evaluation_bars(self, bars: NarrowColumns) -> np.ndarray:
        """Evaluations whose dictionaries went elsewhere: bars of another length, while the training's continues."""
        if not len(self.bars):
            return self.evaluations
        others = bars[~np.isin(bars[:, 2], np.unique(self.bars[:, 2]))]
        anew = (np.diff(others[:, 1], prepend=np.inf) < 0) | (np.diff(others[:, 2], prepend=-1) != 0)
        begins, ends = others[anew], others[np.append(anew[1:], True)] if len(others) else others
        after = np.searchsorted(self.bars[:, 0], begins[:, 0])
        before = np.clip(after - 1, 0, None)
        within = (after > 0) & (after < len(self.bars))
        after = np.minimum(after, len(self.bars) - 1)
        goes_on = (self.bars[before, 1] > 0) & (self.bars[after, 1] >= self.bars[before, 1])
        whole = 2 * ends[:, 1] > ends[:, 2]
        begins = begins[within & goes_on & whole]
        found = np.full((len(begins), self.evaluations.shape[1]), np.nan)
        found[:, 0] = begins[:, 0]  # how long the training paused is seen by its own clock
        return found

    def _marks(self) -> tuple[Floats, Ints, Floats, Floats, Floats]:
        """Line, number, clock, its error, smoothed rate: from the bar, or from dictionaries that show more."""
        clocked = self.told[np.isfinite(self.told[:, 1]) & np.isfinite(self.told[:, 3])]
        fine = len(clocked) and bool((clocked[:, 4] < WHOLE_SECONDS).mean() > 0.9)
        if len(self.bars) and not fine:
            marks = self.bars[as_slice(np.flatnonzero(self.bars[:, 1] > 0))]
            error = np.broadcast_to(WHOLE_SECONDS, len(marks))
            rate = marks[:, 4].astype(np.float64, copy=False)
            return marks[:, 0], whole_numbers(marks[:, 1]), marks[:, 3], error, rate
        # The evaluation after the last step, where no loss shows the clock: it began at its clock minus its duration.
        rows = self.evaluations
        begun = rows[:, 5] - rows[:, 4]
        later = (rows[:, 2] > clocked[-1, 1]) & (rows[:, 0] > clocked[-1, 0]) if len(clocked) else rows[:, 0] < 0
        last = np.flatnonzero(later & (begun >= 0))[:1]
        unknown, error = np.full(len(last), np.nan), np.full(len(last), WHOLE_SECONDS)
        evaluated = np.stack((rows[last, 0], rows[last, 2], unknown, begun[last], error, unknown), axis=1)
        clocked = np.concatenate((clocked, evaluated))
        number = clocked[:, 1].astype(np.int64)
        return clocked[:, 0], number, clocked[:, 3], clocked[:, 4], np.full(len(clocked), np.nan)

    # --- numbers ---

    def _numbers(self, lines: Floats, epochs: Floats, process: _Process) -> Floats:
        """The iteration of dictionaries: as they show it, else as the bar above shows it, or by the epoch."""
        told = at_lines(lines, self.told[:, 0], self.told[:, 1])
        by_epoch = _by_epoch(epochs, process.per_epoch)
        by_place = _by_place(lines, process)
        late = _behind(by_place, epochs, process)
        best = np.where(np.isfinite(by_place) & ~late, by_place, by_epoch)
        return np.where(np.isfinite(told), told, best)

    def _steps_in_all(self) -> int:
        """The planned steps, as the log or the bar shows them, or by the rate in the summary; 0 if unknown."""
        if self.total:
            return int(max(self.total))
        if len(self.bars):
            return int(self.bars[-1, 2])
        steps = float(self.summaries[-1, 1] * self.summaries[-1, 2]) if len(self.summaries) else math.nan
        return round(steps) if 0 <= steps < LARGEST_KEPT else 0

    @cached_property
    def _steps_done(self) -> int:
        """The steps of a run without a clock: the summary's rate uses the planned steps, even if it stopped early."""
        planned, end = self._steps_in_all(), self.summaries[-1:]
        if not len(end):
            return planned
        step, epoch = float(end[0, 5]), float(end[0, 3])
        if 0 < step < LARGEST_KEPT:
            return int(step)
        planned_epochs = [fact.value for fact in self._planned_epochs if fact.line <= end[0, 0]]
        epochs = planned_epochs[-1] if planned_epochs else _end_of_rates(self.rates[:, 1], self.rates[:, 2])
        if 0 < epoch < (1 - _LITTLE) * epochs:
            return round(planned * epoch / epochs)
        if self.total or len(self.bars):
            return planned
        # The rate has few digits: the save of the last step, or losses at equal distances, are more precise.
        doubt = float(max(end[0, 1], planned)) * _LAST_DIGIT
        saved = max((save.at or 0 for save in self.saves), default=0)
        if saved > 0 and abs(saved - planned) <= doubt:
            return saved
        losses = self.losses[:, 2]
        at_end = len(losses) > 0 and losses[-1] == epoch > 0
        even = _evenly(losses, planned / epoch, doubt) if at_end else None
        return planned if even is None else int(even[-1])

    @cached_property
    def _facts(self) -> dict[str, list[Fact]]:
        """What the log says about its settings, by name and line."""
        facts: dict[str, list[Fact]] = {}
        for fact in sorted((event for event in self.records.events if isinstance(event, Fact)), key=LINE_OF):
            facts.setdefault(fact.name, []).append(fact)
        return facts

    @property
    def _planned_epochs(self) -> list[Fact]:
        return self._facts.get("epochs", [])

    def _stated(self, line: int, name: str) -> float | None:
        """A setting as last stated before a line, or as first stated after it."""
        facts = self._facts.get(name, [])
        place = max(bisect_right(facts, line, key=LINE_OF) - 1, 0)
        return facts[place].value if facts else None

    def _last_at(self, line: float) -> int:
        """The last step, as the bar shows it from this line on, or as the log shows it; 0 if unknown."""
        place = min(int(rows_from(self.bars[:, 0], line)), len(self.bars) - 1)
        return int(self.bars[place, 2] if len(self.bars) else max(self.total, default=0))

    def _saves(self, bar_line: Floats, bar_number: Ints) -> list[Checkpoint]:
        """Checkpoints with the number in their name, and others with that of the bar above them."""
        events = self.records.sorted_events()
        saves = [event for event in events if isinstance(event, Checkpoint)]
        self.records.events = [event for event in events if not isinstance(event, Checkpoint)]
        unplaced = self.records.unplaced_events()
        places = np.searchsorted(bar_line, [event.line for event in unplaced]) - 1
        numbers = np.append(bar_number, 0)[places].tolist()
        for event, place, at in zip(unplaced, places.tolist(), numbers, strict=True):
            if isinstance(event, Checkpoint) and place >= 0:
                saves.append(tuple.__new__(Checkpoint, (event[0], at, *event[2:])))
        self.records.unplaced.clear()
        return saves

    # --- rows ---

    def _add_process(self, process: _Process, marks: list[np.ndarray], several: bool) -> None:
        line, number, elapsed, error, rate = marks
        begin, end = process.begin, process.end
        losses = process.of(self.losses)
        loss_at = self._numbers(losses[:, 0], losses[:, 2], process)
        known = as_slice(np.flatnonzero(np.isfinite(loss_at)))
        losses, loss_at = losses[known], loss_at[known]
        evaluations = self._merged_evaluations(process)
        own = [save for save in self.saves if begin <= save.line < end]
        saved = list({save.at: save for save in reversed(own)}.values())[::-1]  # some are printed by two libraries
        ended = process.of(self.summaries)[-1:, 1]
        if len(number) == 1 and len(ended) and abs(ended[0] - elapsed[0]) <= 1 / WHOLE_SECONDS:
            elapsed, rate = ended, np.array([np.nan])  # the finer figure of the same time
        drawn_zero = bool(np.diff(np.searchsorted(self._empty, (begin, line[0])))[0])
        clock = Clock(number, elapsed, error, rate, _done(number, elapsed, rate, drawn_zero))
        pauses = [(e.at, e.took_s) for e in evaluations] + [(s.at or 0, s.took_s) for s in saved]
        times, took = step_times(clock, list(map(tuple.__new__, repeat(Pause), pauses)))
        # A clock that did not advance for most rows has measured nothing, and no minimum time can replace it.
        measured = median(times) > 0
        if several and not measured:
            return
        times = np.maximum(times, 1e-6) if measured else np.full(len(times), np.nan)
        loss = _by_number(number, loss_at, losses[:, 1])
        stamps = _by_number(number, loss_at, losses[:, 3])
        self.records.add_rows(number=number, time_s=times, loss=loss, stamp_s=stamps, line=whole_numbers(line))
        self._add_facts(process, clock, several)
        told = zip(evaluations, took, strict=False)
        # Avoid a call of the class for each: there may be as many as steps.
        self.records.events += [
            event if event[4] is seconds else tuple.__new__(Evaluation, (*event[:4], seconds, event[5]))
            for event, seconds in told
        ]
        costs = zip(saved, took[len(evaluations) :], strict=True)
        self.records.events += [tuple.__new__(Checkpoint, (*save[:2], seconds, save[3])) for save, seconds in costs]

    def _add_facts(self, process: _Process, clock: Clock, several: bool) -> None:
        events, line = self.records.events, int(process.line[0])
        said = any(len(table) for table in (self.losses, self.told, self.evaluations, self.summaries))
        if not said and not any(isinstance(event, Fact) and event.name == "training" for event in events):
            events.append(Fact(line=line, name="bar_alone", value=True))
        if clock.done or several:
            begin = line if math.isinf(process.begin) else int(process.begin)
            events.append(Fact(line=begin, name="process", value=line, header=True))
        if clock.done and clock.done < clock.number[0]:
            events.append(Fact(line=line, name="resume", value=True))
        if clock.done:
            events.append(Fact(line=line, name="first_covers", value=clock.done))
        if (clock.covers > 1).any():
            alone = len(clock.number) == 1
            events.append(Fact(line=line, name="mean_of_run" if alone else "averaged", value=True))
            if alone and any(process.begin <= save.line < process.end for save in self.saves):
                events.append(Fact(line=line, name="holds", value=frozenset({CHECKPOINT})))
        if self._last_at(line) > 0:
            events.append(Fact(line=line, name="max_iters", value=self._last_at(line)))
        if len(process.of(self.summaries)) or len(process.of(self.ended)):  # it is over, as planned or not
            events.append(Fact(line=int(process.line[-1]), name="max_iters", value=int(process.number[-1])))
        # What follows from several lines: tokens of an iteration, the number of cards.
        counted = process.of(self.told)
        counted = counted[np.isfinite(counted[:, 5]) & (counted[:, 5] > 0)]
        epochs = at_lines(counted[:, 0], self.losses[:, 0], self.losses[:, 2])
        numbers = self._numbers(counted[:, 0], epochs, process)
        steps, tokens = np.diff(numbers), np.diff(counted[:, 5])
        fits = (steps > 0) & (tokens > 0)
        if fits.any():
            # Over all rows: the lengths of samples differ, and rounding matters little over the whole.
            per_step = round(float(tokens[fits].sum() / steps[fits].sum()))
            events.append(Fact(line=line, name="tokens_per_iter", value=per_step))
        told = {name: self._stated(line, name) for name in ("batch_size", "whole_batch", "micro_steps")}
        events += [Fact(line=line, name=name, value=value) for name, value in cards_of(told).items()]
        trained = self._stated(line, "trainable_params")
        if trained and "n_params" not in self._facts:
            events.append(Fact(line=line, name="n_params", value=trained))

    def _merged_evaluations(self, process: _Process) -> list[Evaluation]:
        """Each evaluation once: several data sets are one; ignores those printed again or after the end."""
        rows = process.of(self.evaluations)
        at = self._numbers(rows[:, 0], rows[:, 1], process)
        at = np.where(np.isfinite(rows[:, 2]), rows[:, 2], self._after_long_rows(at, rows, process))
        rows, at = rows[np.isfinite(at)], at[np.isfinite(at)].astype(np.int64)
        # LLaMA-Factory does not show how long they took, but the clock before and after.
        clocked = np.flatnonzero(~np.isfinite(rows[:, 4]) & np.isfinite(rows[:, 5])).tolist()
        above: dict[float, list[tuple[float, float]]] = {}
        for line, number, _, clock, *_ in self.told.tolist() if clocked else ():
            above.setdefault(number, []).append((line, clock))
        for row in clocked:
            told = above.get(at[row], [])
            place = bisect_left(told, (rows[row, 0],)) - 1
            since = rows[row, 5] - told[place][1] if place >= 0 else math.nan
            rows[row, 4] = since if since > 0 else math.nan
        losses, seconds, stamps = (_known(rows[:, column]) for column in (3, 4, 6))
        ended = max(process.of(self.summaries)[:, 0], default=math.inf)
        again: set[tuple[int, float | None, float | None]] = set()
        found: dict[int, Evaluation] = {}
        lines = rows[:, 0].astype(np.int64).tolist()
        if bool((np.diff(at) > 0).all()):
            columns = zip(lines, at.tolist(), repeat(None), losses, seconds, stamps, strict=False)
            return list(map(tuple.__new__, repeat(Evaluation), columns))
        for row_line, place, loss, took, stamp in zip(lines, at.tolist(), losses, seconds, stamps, strict=True):
            seen = found.get(place)
            if seen is None:
                found[place] = tuple.__new__(Evaluation, (row_line, place, None, loss, took, stamp))
            elif took is not None and row_line < ended:
                again.add((place, seen.val_loss, seen.took_s))
                if (place, loss, took) not in again:
                    again.add((place, loss, took))
                    found[place] = seen._replace(took_s=(seen.took_s or 0.0) + took)
        return list(found.values())

    def _after_long_rows(self, at: Floats, rows: np.ndarray, process: _Process) -> Floats:
        """Moves evaluations that only a rounded epoch places to the step nearby that was followed by enough time."""
        spent, steps = np.diff(process.elapsed_s), np.diff(process.number)
        if not (process.late or process.in_pages) or not len(spent):
            return at
        excess = spent - median(spent / steps) * steps
        doubts, near = _doubts(rows[:, 1], process.per_epoch), np.minimum(at, rows[:, 1] * process.per_epoch)
        first, last = (np.searchsorted(process.number[:-1], near + doubt) for doubt in (-doubts, doubts))
        placed = at.copy()
        for row in np.flatnonzero(first < last).tolist():
            longest = int(first[row] + excess[first[row] : last[row]].argmax())
            if excess[longest] > rows[row, 4] / 2:
                placed[row] = process.number[longest]
        return placed if bool((np.diff(placed) > 0).all()) else at

    # --- no bar at all ---

    def _without_clock(self) -> None:
        """Dictionaries alone: the mean of the whole run if the summary shows it, or the clock in front of lines."""
        process = self._process(_Process(-math.inf, math.inf, np.empty(0), np.empty(0, np.int64), np.empty(0)))
        loss_at = self._numbers(self.losses[:, 0], self.losses[:, 2], process)
        if not np.isfinite(loss_at).any():  # nothing shows how many steps are in between
            loss_at = np.arange(1.0, len(loss_at) + 1)
        known = np.isfinite(loss_at)
        rows, number = self.losses[known], loss_at[known].astype(np.int64)
        inside = first_occurrences(number)
        rows, number = rows[inside], number[inside]
        if not len(rows):
            if self._steps_done and len(self.summaries):
                line, evaluations = int(self.summaries[-1, 0]), self._merged_evaluations(process)
                self._add_last(self._mean_of_run(evaluations, line))
                self.records.events += [*evaluations, *self.saves]
                self._add_end(line)
            return
        if math.isnan(process.per_epoch):
            process = process._replace(line=rows[:, 0], number=number)
        evaluations = self._merged_evaluations(process)
        line, times = int(rows[0, 0]), np.full(len(rows), np.nan)
        columns = {"number": number, "loss": rows[:, 1], "stamp_s": rows[:, 3], "line": rows[:, 0].astype(np.int64)}
        if len(rows) > 2 and np.isfinite(rows[:, 3]).all() and not math.isnan(process.per_epoch):
            clock = Clock(number, rows[:, 3] - rows[0, 3], np.full(len(rows), WHOLE_SECONDS), times, 0)
            times, _ = step_times(clock, [Pause(e.at, e.took_s) for e in evaluations])
            self.records.events.append(Fact(line=line, name="averaged", value=True))
        elif len(self.summaries):
            times[:] = self._mean_of_run(evaluations, line)
            if self._steps_done > number[-1]:
                self._add_last(times[0])
        self.records.add_rows(time_s=times, **columns)
        self.records.events += [*evaluations, *self.saves]
        self._add_end(line)

    def _mean_of_run(self, evaluations: list[Evaluation], line: int) -> float:
        end = self.summaries[-1]
        spent = float(end[1]) - sum(e.took_s or 0.0 for e in evaluations if e.line < end[0])
        self.records.events.append(Fact(line=line, name="mean_of_run", value=True))
        if self.saves:  # which the time in the summary includes
            self.records.events.append(Fact(line=line, name="holds", value=frozenset({CHECKPOINT})))
        return max(spent, 0.0) / self._steps_done if self._steps_done else math.nan

    def _add_last(self, time_s: float) -> None:
        """Adds the last step of a run, if no loss is printed for it."""
        number, line = np.array([self._steps_done]), self.summaries[-1:, 0].astype(np.int64)
        self.records.add_rows(number=number, time_s=np.array([time_s]), line=line)

    def _add_end(self, line: int) -> None:
        last = self._steps_done if len(self.summaries) else self._steps_in_all()
        if last:
            self.records.events.append(Fact(line=line, name="max_iters", value=last))


def cards_of(told: Mapping[str, Any]) -> dict[str, int]:
    """How many cards share the batch, and nanoGPT's accumulation, which is that of all cards together."""
    batch, whole, micro = (told.get(name) for name in ("batch_size", "whole_batch", "micro_steps"))
    if not (batch and whole and micro and whole % (batch * micro) == 0):
        return {}
    cards = int(whole / (batch * micro))
    return {"world_size": cards, "gradient_accumulation_steps": int(micro * cards)}


def _totals_at(bars: NarrowColumns, rows: Ints) -> Floats:
    """The totals of some bars. A full bar that began while another went on, as in an evaluation, gets that one's."""
    order = np.argsort(bars[:, 2], kind="stable")
    number, last, elapsed = bars[order, 1], bars[order, 2], bars[order, 3]
    alike = np.diff(last) == 0
    anew = np.append(True, ~alike | (np.diff(number) < 0))
    goes_on = np.flatnonzero(alike & ~anew[1:] & (np.diff(elapsed) >= 0) & (number < last)[:-1])
    until, begins = np.zeros(len(bars), np.int64), np.zeros(len(bars), np.int64)
    until[order[goes_on]] = order[goes_on + 1]
    until = np.maximum.accumulate(until)
    begins[order] = order[np.maximum.accumulate(np.where(anew, np.arange(len(bars)), 0))]
    begin = begins[rows]
    around = until[np.maximum(begin - 1, 0)]
    inside = (bars[rows, 1] == bars[rows, 2]) & (around > begin)
    return np.asarray(bars[np.where(inside, around, rows), 2])


def _by_place(lines: Floats, process: _Process) -> Floats:
    """The position of the bar above, which may be on the same line."""
    if not len(process.line):
        return np.full(len(lines), np.nan)
    places = np.searchsorted(process.line, lines, side="right") - 1
    return np.where(places >= 0, process.number[np.clip(places, 0, None)], np.nan)


def _end_of_rates(epochs: Floats, rates: Floats) -> float:
    """The epoch at which learning rates that fall linearly, as they do by default, reach 0; else nan."""
    known = np.isfinite(epochs) & np.isfinite(rates)
    epochs, rates = epochs[known], rates[known]
    top = int(rates.argmax()) if len(rates) else 0
    epochs, rates = epochs[top:], rates[top:]
    if len(rates) < 4 or not (rates[-1] < rates[0] and epochs[-1] > epochs[0]):
        return math.nan
    slope = (rates[-1] - rates[0]) / (epochs[-1] - epochs[0])
    if (np.abs(rates - rates[0] - slope * (epochs - epochs[0])) > _LITTLE / 2 * rates[0]).any():
        return math.nan
    end = float(epochs[0] - rates[0] / slope)
    return round(end) if abs(end - round(end)) < _LITTLE / 2 * end else end


def _by_epoch(epochs: Floats, per_epoch: float) -> Floats:
    """The iterations at these epochs, which are often rounded: at equal distances if possible."""
    even = _evenly(epochs, per_epoch)
    if even is None or (np.abs(epochs - np.round(epochs))[:-1] < _ROUNDED_EPOCH).all():  # logged after each epoch
        return np.round(epochs * per_epoch)
    return even


def _evenly(epochs: Floats, per_epoch: float, doubt: float = 0.0) -> Floats | None:
    """Iterations at equal distances, as trainers log and evaluate, if that agrees with all epochs; else None.

    `doubt` is that of the last iteration.
    """
    if len(epochs) < 2 or not np.isfinite(epochs).all() or not (per_epoch > 0 and epochs[-1] > 0):
        return None
    little = _doubts(epochs, per_epoch)
    for begin in (1, 0):  # some log the very first iteration too
        order = np.arange(len(epochs)) + begin
        even = np.maximum(order * np.round(epochs[-1] * per_epoch / order[-1]), 1)
        fits = np.abs(even - epochs * (even[-1] / epochs[-1])) <= little
        if even[-1] >= order[-1] and fits.all() and abs(even[-1] - epochs[-1] * per_epoch) <= little[-1] + doubt:
            return np.asarray(even)
    return None


def _doubts(epochs: Floats, per_epoch: float) -> Floats:
    """How many steps the rounding of an epoch may hide, and that of the last one, which sets the steps per epoch."""
    return np.asarray(1 + _ROUNDED_EPOCH * per_epoch * (1 + epochs / np.nanmax(epochs, initial=_ROUNDED_EPOCH)))


def _behind(by_place: Floats, epochs: Floats, process: _Process) -> np.ndarray:
    """Which dictionaries were held back: the bar above them is further on than their epoch."""
    apart = by_place - epochs * process.per_epoch
    return np.asarray(process.late | (process.in_pages & (apart > _doubts(epochs, process.per_epoch))))


def _is_partly_buffered(by_place: Floats, epochs: Floats, per_epoch: float) -> bool:
    """Whether some dictionaries are late, none is before its step, and one of the last is on time."""
    known = np.isfinite(by_place) & np.isfinite(epochs)
    if not known.any() or not per_epoch > 0:
        return False
    by_place, epochs = by_place[known], epochs[known]
    apart, doubts = by_place - epochs * per_epoch, _doubts(epochs, per_epoch)
    early = apart < -doubts - _LITTLE * by_place.max()
    on_time = (np.abs(apart) <= doubts) & (by_place > by_place.max() / 2)
    return bool((apart > doubts).any() and on_time.any() and not early.any())


def _late(by_place: Floats, epochs: Floats, by_epoch: Floats) -> bool:
    """Whether the bars above show other iterations than the epochs do, and none that grow with the epoch."""
    known = np.isfinite(by_place) & np.isfinite(by_epoch) & (epochs > 0)
    if known.sum() <= 2:
        return False
    by_place, epochs, by_epoch = by_place[known], epochs[known], by_epoch[known]
    grown = epochs * median(by_place / epochs)
    little = 2 + _LITTLE * float(by_epoch.max())
    return all(median(np.abs(by_place - other)) > little for other in (grown, by_epoch))


def _known(values: Floats) -> list[float | None]:
    if np.isfinite(values).all():
        return list(values.tolist())
    if not np.isfinite(values).any():
        return [None] * len(values)
    return [
        value if finite else None for value, finite in zip(values.tolist(), np.isfinite(values).tolist(), strict=True)
    ]


def _by_number(number: Ints, at: Floats, values: Floats) -> Floats:
    """Values at some of the iterations, for the rows; nan if missing."""
    if not len(at) or (values.strides == (0,) and np.isnan(values[0])):
        return np.broadcast_to(np.nan, len(number))  # takes no memory
    column = np.full(len(number), np.nan)
    for part in pieces(len(at)):
        rows = rows_from(number, at[part])
        exact = number[np.minimum(rows, len(number) - 1)] == at[part]
        column[rows[exact]] = values[part][exact]
    return column


def _done(number: Ints, elapsed: Floats, rate: Floats, drawn_zero: bool) -> int:
    """How many iterations the process had done at the first row; 0 if the log does not begin with it."""
    first = int(number[0])
    apart = int(number[1] - number[0]) if len(number) > 1 else first
    if not (drawn_zero or first <= 1 or first <= apart):
        return 0
    later = float(elapsed[-1] - elapsed[0]) / max(int(number[-1]) - first, 1)
    resumed = first > apart and float(elapsed[0]) / first < later / 4  # it cannot have done most of them itself
    return min(apart, first) if resumed else first
