"""Reads a log that is still growing, piece by piece, into the current run, with bounded memory.

The readers, and the rules for what is a run, are the same as for a whole log. Only Records are kept, and they are
trimmed, so that neither chatter nor a long log makes them grow.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stepwatch.readers import Reader, detect
from stepwatch.readers.assemble import assemble, starts_of_runs
from stepwatch.readers.formats import reader_of
from stepwatch.readers.reading import SNIFFED_BYTES
from stepwatch.readers.records import Records
from stepwatch.readers.text.faults import FAULT_LETTERS
from stepwatch.run import COLUMNS, Checkpoint, Evaluation, Event, Fact, Fault, Iterations, Run
from stepwatch.run.more import Inside
from stepwatch.settings import Origin, Settings
from stepwatch.sources import Source

MOST_PAST_RUNS = 8
RECENT_BYTES = 1 << 20
"""If rows are made of several lines, this much text is kept, up to twice as much."""
MOST_SINCE_CUT = 8  # times RECENT_BYTES are read before older lines are dropped
LEAST_ALIKE = 100  # rows that must agree before older lines may be dropped
MOST_ALIKE = 256  # facts of one name, or faults: more than any header has, a bound for endless repeats


class LiveReader:
    """The current run, and the earlier ones in the same log."""

    def __init__(self, name: str, format_name: str | None = None) -> None:
        self.name = name
        self.past: list[Run] = []
        self.ended = 0
        """The number of finished runs, including those that are no longer kept."""
        self._reader: Reader | None = reader_of(format_name) if format_name is not None else None
        self._undetected = b""
        self._may_have_crashed = False
        self._line = 0
        self._records = Records()
        self._given_out = 0
        self._unread = self._outside = 0
        self._left_out = 0
        self._inferred = Settings({})
        self._is_plain = True
        self._last_line = -1
        self._recent = b""
        """The last lines of a log whose rows are made of several lines, starting at line `_recent_line`."""
        self._recent_line = 0
        self._since_cut = 0
        self._older: _EarlierRows | None = None
        self._before: Iterations | None = None
        """The rows when dropping lines was last tried: if they have changed since, later lines change older rows."""

    @np.errstate(all="ignore")  # as in reading._parsed()
    def feed(self, text: bytes) -> None:
        """Takes whole lines as they arrive."""
        if self._reader is None:
            recent = self._undetected[-(1 << 13) :] + text  # includes lines in which an iteration may have begun
            self._may_have_crashed |= any(letters in text for letters in FAULT_LETTERS)
            text = self._undetected + text
            # Earlier text was searched when it arrived: long chatter costs only as much as its new part.
            name = detect(Source(self.name, recent)) and detect(Source(self.name, text))
            if name is None:  # keep the text until the format is clear, in bounded memory
                cut = text.find(b"\n", len(text) - SNIFFED_BYTES) + 1 if len(text) > SNIFFED_BYTES else 0
                self._line += text.count(b"\n", 0, cut)
                self._undetected = text[cut:]
                return
            self._reader, self._undetected = reader_of(name), b""
        if text:
            if not self._is_plain:
                if not self._recent:
                    self._recent_line = self._line
                self._recent += text
                self._since_cut += len(text)
                if len(self._recent) > 2 * RECENT_BYTES:
                    cut = self._recent.rfind(b"\n", 0, len(self._recent) - RECENT_BYTES) + 1
                    self._recent_line += self._recent.count(b"\n", 0, cut)
                    self._recent = self._recent[cut:]
            self._reader.parse(text, self._line, self._records)
            self._line += text.count(b"\n")

    @np.errstate(all="ignore")
    def run(self) -> Run | None:
        """The current run, or None before its header; a run that crashed before its header counts too."""
        if self._reader is None:
            if not self._may_have_crashed:
                return None
            unknown, records = reader_of("nanogpt"), Records()  # signs of a crash are the same in every format
            unknown.parse(self._undetected, self._line, records)
            crashed = assemble(records, unknown, self.name)[-1]
            return crashed if crashed.faults else None
        records, finished = self._records, self._finished(self._reader)
        records.events = list(_bounded(records.sorted_events()))
        self._given_out = len(records.events)
        # Whether finishing leaves the rows as they were read; a last line that was held back may follow them.
        rows, whole = records.iterations(), finished.iterations()
        self._is_plain = (
            self._older is None
            and (len(rows) > 0 or not len(whole))
            and all(
                np.array_equal(getattr(rows, name), getattr(whole, name)[: len(rows)], equal_nan=True)
                for name in ("line", "time_s")
            )
        )
        if self._is_plain:
            run = self._plain_run(self._reader)
        else:
            runs = [*assemble(finished, self._reader, self.name)]
            past, ended = [], 0
            if self._older is not None:
                runs, past, ended = self._older.before(runs), self._older.past, self._older.ended
            *others, run = runs
            over = [each for each in others if len(each.iterations)]
            self.past, self.ended = [*past, *over][-MOST_PAST_RUNS:], ended + len(over)
            if self._since_cut > MOST_SINCE_CUT * RECENT_BYTES:  # few rows may come from many lines
                self._let_go(run, np.ones(len(run.iterations), bool), set())
        self._last_line = int(run.iterations.line.max(initial=-1))
        return run if len(run.iterations) or run.has_header or run.faults else None

    def _finished(self, reader: Reader) -> Records:
        """A finished copy of the records, as if no more lines came: records can be finished only once."""
        finished = self._records.copy()
        reader.finish(self._line, finished)
        return finished

    def _plain_run(self, reader: Reader) -> Run:
        """The run if finishing changes no rows: then rows are divided into runs, and dropped, as they come."""
        records = self._records
        records.admit()
        self._unread += len(records.unread_lines)
        self._outside += len(records.outside_lines)
        records.unread_lines.clear()
        records.outside_lines.clear()
        finished = self._finished(reader)
        rows = finished.iterations()
        start = starts_of_runs(rows, finished.by_kind())[-1]
        if len(rows) and start > max(rows.line[0], 0):
            self._divide(start, reader)
            finished = self._finished(reader)
        return self._as_known(assemble(finished, reader, self.name)[-1])

    @property
    def begins_anew(self) -> bool:
        """Whether a header follows the last iteration and fault: a new run has started, without an iteration yet."""
        lines = [event.line for event in self._records.events if isinstance(event, Fact) and event.header]
        ends = [event.line for event in self._records.events if isinstance(event, Fault)]
        ends += [int(part[-1]) for part in self._records.columns["line"] if len(part)]
        ends += [self._last_line] if self._last_line >= 0 else []
        return bool(lines) and bool(ends) and max(lines) > max(ends)

    @property
    def new_fault(self) -> bool:
        """Whether a line since the last call of run() says that the process ended."""
        return any(isinstance(event, Fault) for event in self._records.events[self._given_out :])

    @property
    def loss_lost(self) -> bool:
        """Whether the last loss is not a number."""
        parts = [part for part in self._records.columns["loss"] if len(part)]
        return bool(parts) and bool(np.isinf(parts[-1][-1]))

    def keep(self, run: Run, rows: np.ndarray, forgotten: Iterable[int] = ()) -> None:
        """Keeps only these rows of the run last returned, and no events of the forgotten iterations."""
        if not self._is_plain:
            self._let_go(run, rows, set(forgotten))
            return
        whole = self._records.iterations()
        kept = np.isin(whole.line, run.iterations.line[rows])
        self._left_out += len(run.iterations) - int(np.count_nonzero(rows))
        self._inferred = Settings({name: setting for name, setting in run.settings.items() if name == "log_interval"})
        self._records.replace_rows(whole.take(kept))
        self._records.keep_row_tables(run.iterations.line[rows], run.iterations.number[rows])
        # Keep saves as placed: once their evaluation is forgotten, nothing shows their iteration.
        gone = set(forgotten)
        kept_events: list[Event] = [e for e in self._records.events if not isinstance(e, (Evaluation, Checkpoint))]
        kept_events += [evaluation for evaluation in run.evaluations if evaluation.at not in gone]
        kept_events += [save for save in run.checkpoints if save.at not in gone]
        self._records.events = sorted(kept_events, key=lambda event: event.line)
        self._given_out = len(self._records.events)

    # --- rows that are made of several lines ----------------------------------------------------------------

    def _let_go(self, run: Run, rows: np.ndarray, forgotten: set[int]) -> None:
        """Drops older lines if the recent ones, read alone, result in the same rows as within the whole log.

        Does so only if no earlier row has changed: a clock that runs ahead of the card, for example, is corrected by
        the median of all validations, so that each validation changes all rows a little.
        """
        if self._reader is None or len(self._recent) < RECENT_BYTES or run.reordered:
            return
        self._since_cut = 0
        before, self._before = self._before, run.iterations
        if before is None:
            return
        # Rows that are still kept must have the same times as before, except the last, which may be incomplete.
        now, last = run.iterations, before.line[:-1]
        then_s, now_s = before.time_s[:-1][np.isin(last, now.line)], now.time_s[np.isin(now.line, last)]
        if not np.allclose(then_s, now_s, rtol=1e-6, equal_nan=True):
            return
        tail = Records()
        tail.events = [e for e in self._records.events if isinstance(e, Fact) and e.line < self._recent_line]
        self._reader.parse(self._recent, self._recent_line, tail)
        finished = tail.copy()
        self._reader.finish(self._line, finished)
        alone = assemble(finished, self._reader, self.name)[-1]
        if not len(alone.iterations):
            return
        cut = int(alone.iterations.line[len(alone.iterations) // 2])
        shift = _number_offset(_from(run, cut), _from(alone, cut))
        if shift is None:
            return
        kept = rows | (run.iterations.line >= cut)
        thinned = replace(
            run,
            iterations=run.iterations.take(kept),
            evaluations=tuple(event for event in run.evaluations if event.at not in forgotten),
            checkpoints=tuple(event for event in run.checkpoints if event.at not in forgotten),
            inside=None if run.inside is None else Inside(*(column[kept] for column in run.inside)),
            parts={name: column[kept] for name, column in run.parts.items()},
            left_out=run.left_out + int(np.count_nonzero(~kept)),
        )
        self._older = _EarlierRows(_from(thinned, -math.inf, until=cut), cut, shift, self.past, self.ended)
        self._records, self._given_out = tail, len(tail.events)

    # --- parts ----------------------------------------------------------------------------------------------

    def _divide(self, start: float, reader: Reader) -> None:
        """Moves finished runs to the past; the run that starts at this line continues."""
        whole, events = self._records.iterations(), self._records.events
        before, now = Records(), Records()
        before.replace_rows(whole.take(whole.line < start))
        now.replace_rows(whole.take(whole.line >= start))
        before.events = [event for event in events if event.line < start]
        now.events = [event for event in events if event.line >= start]
        before.unplaced = [event for event in self._records.unplaced if event.line < start]
        now.unplaced = [event for event in self._records.unplaced if event.line >= start]
        now.held = self._records.held
        before.tables, now.tables = self._records.split_row_tables(start)
        # One piece may contain several runs, for example when a log is first read.
        reader.finish(self._line, before)
        *others, last = assemble(before, reader, self.name)
        over = [*(run for run in others if len(run.iterations)), self._as_known(last)]
        self.past = [*self.past, *over][-MOST_PAST_RUNS:]
        self.ended += len(over)
        self._records, self._unread, self._outside, self._left_out, self._inferred = now, 0, 0, 0, Settings({})

    def _as_known(self, run: Run) -> Run:
        """The run with the settings and counts of the dropped rows."""
        stated = {name: setting for name, setting in run.settings.items() if setting.origin is Origin.LOG}
        settings = run.settings.overridden_by(self._inferred).overridden_by(Settings(stated))
        return replace(
            run, settings=settings, left_out=self._left_out, unread_count=self._unread, outside_count=self._outside
        )


@dataclass(frozen=True, slots=True)
class _EarlierRows:
    """A run up to a line of the log; its rows from that line on are read from the kept lines."""

    run: Run
    cut: int
    shift: int
    """Added to the numbers in the kept lines, read alone, to get those in the whole log."""
    past: list[Run]
    ended: int

    def before(self, runs: Sequence[Run]) -> list[Run]:
        """The runs of the kept lines, completed to those of the whole log."""
        first, *others = [run for run in runs if run.iterations.line.max(initial=-1) >= self.cut] or [self.run]
        later = _from(first, self.cut, self.shift)
        run, parts = self.run, {}
        rows = {n: np.concatenate((getattr(run.iterations, n), getattr(later.iterations, n))) for n in COLUMNS}
        if run.parts.keys() == later.parts.keys():
            parts = {name: np.concatenate((column, later.parts[name])) for name, column in run.parts.items()}
        inside = None
        if run.inside is not None and later.inside is not None:
            inside = Inside(*map(np.concatenate, zip(run.inside, later.inside, strict=True)))
        return [
            replace(
                run,
                iterations=Iterations(**rows),
                evaluations=(*run.evaluations, *later.evaluations),
                checkpoints=(*run.checkpoints, *later.checkpoints),
                faults=(*run.faults, *later.faults),
                settings=run.settings.overridden_by(later.settings),
                inside=inside,
                parts=parts,
                reported_s=later.reported_s,
                ended_by_plan=later.ended_by_plan,
                unread_count=run.unread_count + sum(line.line >= self.cut for line in later.unread),
            ),
            *others,
        ]


def _from(run: Run, cut: float, shift: int = 0, until: float = math.inf) -> Run:
    """The part of a run between two lines of the log, with `shift` added to its numbers."""

    def holds(event: Evaluation | Checkpoint | Fault) -> bool:
        return cut <= event.line < until

    rows = (run.iterations.line >= cut) & (run.iterations.line < until)
    iterations = run.iterations.take(rows)
    return replace(
        run,
        iterations=replace(iterations, number=iterations.number + shift),
        evaluations=tuple(e._replace(at=e.at + shift) for e in run.evaluations if holds(e)),
        checkpoints=tuple(e if e.at is None else e._replace(at=e.at + shift) for e in run.checkpoints if holds(e)),
        faults=tuple(filter(holds, run.faults)),
        inside=None if run.inside is None else Inside(*(column[rows] for column in run.inside)),
        parts={name: column[rows] for name, column in run.parts.items()},
    )


def _number_offset(run: Run, alone: Run) -> int | None:
    """The offset from the numbers of lines read alone to those in the whole log; None if anything else differs."""
    if not LEAST_ALIKE <= len(alone.iterations) == len(run.iterations):
        return None
    shift = int(run.iterations.number[0] - alone.iterations.number[0])
    alone = _from(alone, -math.inf, shift)
    alike = (
        np.array_equal(run.iterations.line, alone.iterations.line)
        and np.array_equal(run.iterations.number, alone.iterations.number)
        and np.allclose(run.iterations.time_s, alone.iterations.time_s, rtol=1e-6, equal_nan=True)
        and [event[:2] for event in run.evaluations] == [event[:2] for event in alone.evaluations]
        and [event[:2] for event in run.checkpoints] == [event[:2] for event in alone.checkpoints]
        and (run.timing, run.holds, run.traits) == (alone.timing, alone.holds, alone.traits)
        and all(run.settings.get(name) == alone.settings.get(name) for name in alone.settings)
        and (run.inside is None) == (alone.inside is None)
        and run.parts.keys() == alone.parts.keys()
    )
    return shift if alike else None


def _bounded(events: Iterable[Event]) -> Iterable[Event]:
    """All evaluations and checkpoints; of facts and faults, the first ones of each name, and the last."""
    counts: Counter[str] = Counter()
    latest: dict[str, Event] = {}
    kept: list[Event] = []
    for event in events:
        if isinstance(event, (Evaluation, Checkpoint)):
            kept.append(event)
            continue
        name = event.name if isinstance(event, Fact) else event.kind if isinstance(event, Fault) else ""
        counts[name] += 1
        if counts[name] < MOST_ALIKE:
            kept.append(event)
        else:
            latest[name] = event
    return sorted((*kept, *latest.values()), key=lambda event: event.line) if latest else kept
