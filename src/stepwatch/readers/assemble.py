"""From records to runs: one Run per process start, excerpts put in order, repeats dropped."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress, repeat
from operator import is_, itemgetter
from typing import Any, NamedTuple

import numpy as np

from stepwatch.readers.reader import Reader
from stepwatch.readers.records import LINE_OF, Records
from stepwatch.run import (
    SENTINEL_MFU,
    Checkpoint,
    Evaluation,
    Event,
    Fact,
    Fault,
    Floats,
    Ints,
    Iterations,
    Run,
    Timing,
)
from stepwatch.settings import KINDS, Origin, Settings, Value

DAY_S = 86400.0
_END = float("inf")
_ROWS_FOR_INTERVAL = 5000
_FEW = 16  # times as many are passed over as are taken
_ROWS_ALIKE = 5  # of a piece that is a copy, or a run of its own


def assemble(records: Records, reader: Reader, source: str) -> tuple[Run, ...]:
    """Divides what was read into runs. A text without iterations gives at most one, empty run."""
    iterations = records.iterations()
    events = records.sorted_events()
    kinds = _by_kind(events)
    cuts = [*starts_of_runs(iterations, events, kinds.facts), _END]
    rows = np.searchsorted(iterations.line, cuts).tolist()
    told = [bisect_left(events, cut, key=LINE_OF) for cut in cuts]
    missed = np.searchsorted(records.unread_lines, cuts).tolist()
    shown = np.searchsorted([unread.line for unread in records.unread], cuts).tolist()
    runs = []
    for i in range(len(cuts) - 1):
        piece = _Piece(iterations.take(slice(rows[i], rows[i + 1])), events[told[i] : told[i + 1]])
        run = piece.run(reader, source, kinds if len(cuts) == 2 else _by_kind(piece.events))
        if reader.complete is not None:
            run = reader.complete(run, piece.events, records)
        unread = tuple(records.unread[shown[i] : shown[i + 1]])
        runs.append(replace(run, unread=unread, unread_count=missed[i + 1] - missed[i]))
    return tuple(runs)


class _Kinds(NamedTuple):
    """Events, each kind for itself."""

    facts: list[Fact]
    evaluations: list[Evaluation]
    checkpoints: list[Checkpoint]
    faults: list[Fault]


# --- where a new run begins -------------------------------------------------------------------------------------


def starts_of_runs(iterations: Iterations, events: Sequence[Event], facts: Sequence[Fact]) -> list[float]:
    """The lines at which a new process starts: a header, a -100 % line, or the first number again."""
    if not len(iterations):
        return [0.0]
    rows = _sentinel_rows(iterations) | _zero_rows(iterations) | _begun_again(iterations)
    starts = _header_starts(iterations, facts) | _lines_of_starts(iterations, events, rows)
    return [0.0, *sorted(line for line in starts if line > 0)]


def _header_starts(iterations: Iterations, facts: Sequence[Fact]) -> set[float]:
    """The first header line after iterations, where iterations follow it (ranks flush their headers at exit)."""
    headers = [fact for fact in facts if fact.header]
    rows_before = np.searchsorted(iterations.line, [event.line for event in headers]).tolist()
    starts: dict[int, float] = {}
    said: set[tuple[str, object]] = set()
    for row, fact in zip(rows_before, headers, strict=True):
        known = (fact.name, fact.value) in said
        said.add((fact.name, fact.value))
        if 0 < row < len(iterations) and not (known and row not in starts and _goes_on(iterations, row)):
            starts.setdefault(row, float(fact.line))
    repeats = _repeats(iterations, np.array(sorted(starts), dtype=np.int64))
    return {line for row, line in starts.items() if row not in repeats}


def _repeats(iterations: Iterations, rows: Ints) -> set[int]:
    """Those of the rows that stand in the log before, as most that follow on them do: a run that was pasted twice."""
    if not len(rows):
        return set()
    lengths = np.minimum(np.append(rows[1:], len(iterations)) - rows, _ROWS_ALIKE)
    begins = np.cumsum(lengths) - lengths
    asked = np.arange(lengths.sum()) - np.repeat(begins - rows, lengths)  # each of the rows and some behind it
    known = _first_alike(iterations, asked) < np.repeat(rows, lengths)
    return set(rows[2 * np.add.reduceat(known.astype(np.int64), begins) > lengths].tolist())


def _first_alike(iterations: Iterations, asked: Ints) -> Ints:
    """For each row that is asked for the first of all with its number, time and loss."""
    number, time, loss = iterations.number, iterations.time_s, _comparable(iterations.loss)
    alike = np.flatnonzero(np.isin(number, number[asked]) & np.isin(time, time[asked]))
    order = alike[np.lexsort((alike, loss[alike], time[alike], number[alike]))]
    new = np.ones(len(order), bool)
    new[1:] = False
    for column in (number, time, loss):
        new[1:] |= column[order[1:]] != column[order[:-1]]
    first = np.zeros(len(number), np.int64)
    first[order] = order[new][np.cumsum(new) - 1]
    return np.asarray(first[asked])


def _comparable(loss: Floats) -> Floats:
    return np.where(np.isnan(loss), _NO_LOSS, loss)


_Identity = tuple[int, float, float]
_NO_LOSS = -1.0  # nan is equal to nothing


def _identity(iterations: Iterations, row: int) -> _Identity:
    loss = float(iterations.loss[row])
    return int(iterations.number[row]), float(iterations.time_s[row]), _NO_LOSS if loss != loss else loss


def _goes_on(iterations: Iterations, row: int) -> bool:
    """Whether the row follows on the one before as in the same process: then a known header is that of a late rank."""
    mfu, before = iterations.reported_mfu[row], iterations.reported_mfu[row - 1]
    grows = iterations.number[row] > iterations.number[row - 1]
    return bool(grows and not np.isnan(mfu) and (mfu != SENTINEL_MFU or before == SENTINEL_MFU))


def _sentinel_rows(iterations: Iterations) -> set[int]:
    """The first -100 % line after others, or the next one whose number does not grow; repeats do not count."""
    sentinel = iterations.reported_mfu == SENTINEL_MFU
    if len(sentinel) < 2 or not sentinel.any():
        return set()
    grows = iterations.number[1:] > iterations.number[:-1]
    candidates = (np.flatnonzero(sentinel[1:] & ~(sentinel[:-1] & grows)) + 1).tolist()
    seen = _identities(iterations, candidates[0]) if candidates else set()
    starts = set()
    for row in candidates:
        identity = _identity(iterations, row)
        if identity not in seen:
            starts.add(row)
            seen.add(identity)
    return starts


def _zero_rows(iterations: Iterations) -> set[int]:
    """Iteration 0 after higher ones, with a time that no iteration 0 before it had."""
    starts = set()
    seen: set[float] = set()
    for row in np.flatnonzero(iterations.number == 0).tolist():
        time = float(iterations.time_s[row])
        if seen and time not in seen and iterations.number[row - 1] > 0:
            starts.add(row)
        seen.add(time)
    return starts


def _begun_again(iterations: Iterations) -> set[int]:
    """Where the log comes back to the number that it began with, and goes on over known ones with other times."""
    number = iterations.number
    again = np.flatnonzero((number[1:] == number[0]) & (number[:-1] > number[0])) + 1
    if not len(again):
        return set()
    _, first, which = np.unique(number, return_index=True, return_inverse=True)
    new = first[which]  # for each row the first with its number
    return {
        row for row in set(again.tolist()) - _repeats(iterations, again)
        if (np.diff(number[row : row + _ROWS_ALIKE]) > 0).all() and (new[row : row + _ROWS_ALIKE] < row).all()
    }  # fmt: skip


def _identities(iterations: Iterations, end: int) -> set[_Identity]:
    columns = iterations.number[:end], iterations.time_s[:end], _comparable(iterations.loss[:end])
    return set(zip(*(column.tolist() for column in columns), strict=True))


def _lines_of_starts(iterations: Iterations, events: Sequence[Event], rows: set[int]) -> set[float]:
    """The line of each row, or of the evaluation or the header just above that belongs to it."""
    lines = list(map(LINE_OF, events)) if rows else []
    starts = set()
    for row in rows:
        line, above = int(iterations.line[row]), int(iterations.line[row - 1])
        between = events[bisect_right(lines, above) : bisect_left(lines, line)]
        number = int(iterations.number[row])
        own = (event.line for event in between if _belongs(event, number))
        starts.add(float(next(own, line)))
    return starts


def _belongs(event: Event, number: int) -> bool:
    if isinstance(event, Evaluation):
        return event.at == number
    return isinstance(event, Fact) and event.header


def _by_kind(events: Sequence[Event]) -> _Kinds:
    kinds = list(map(type, events))
    present = set(kinds)
    return _Kinds(*(_of_kind(events, kinds, present, kind) for kind in (Fact, Evaluation, Checkpoint, Fault)))


def of_kind(events: Sequence[Event], kind: type) -> list[Any]:
    kinds = list(map(type, events))
    return _of_kind(events, kinds, set(kinds), kind)


def _of_kind(events: Sequence[Event], kinds: list[type], present: set[type], kind: type) -> list[Any]:
    """In their order; without a step in Python for each, since there may be millions."""
    if len(present) < 2:
        return list(events) if kind in present else []
    if kind not in present:
        return []
    count = kinds.count(kind)
    if count * _FEW > len(kinds):
        return list(compress(events, map(is_, kinds, repeat(kind))))
    places, place = [], -1
    for _ in range(count):
        place = kinds.index(kind, place + 1)
        places.append(place)
    return [events[place] for place in places]


# --- one run ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Piece:
    iterations: Iterations
    events: Sequence[Event]

    def run(self, reader: Reader, source: str, kinds: _Kinds) -> Run:
        # What follows the last iteration is of another program (sample.py) or of ranks that flush at exit.
        last = int(self.iterations.line.max(initial=-1)) if len(self.iterations) else float("inf")
        facts = [fact for fact in kinds.facts if fact.line <= last]
        named = {fact.name: fact.value for fact in facts}
        ranks = _ranks(self._before_first_row())
        iterations, reordered = _in_order(self.iterations)
        return Run(
            format=reader.name,
            timing=_timing(named, reader),
            holds=named.get("holds", reader.holds),
            iterations=replace(iterations, stamp_s=_unwrapped(iterations.stamp_s)),
            evaluations=_evaluations(kinds.evaluations),
            checkpoints=_checkpoints(kinds, self.iterations) if kinds.checkpoints else (),
            faults=tuple(kinds.faults),
            settings=_settings(facts, ranks, self.iterations),
            source=source,
            gpu_text=next((str(fact.value) for fact in facts if fact.name == "gpu_text"), None),
            saved_params=_saved_params(named),
            flops_per_token=_float(named.get("flops_per_token")),
            mfu_peak_flops=_float(named.get("mfu_peak_flops")),
            compile_s=_float(named.get("compile_s")),
            traits=replace(reader.traits, schedules=bool(named.get("schedules", reader.traits.schedules))),
            has_header=any(fact.header for fact in facts),
            resumed="resume" in named or named.get("init_from") == "resume",
            distributed="distributed" in named or ranks > 1,
            busy_when_logging="busy_when_logging" in named,
            reordered=reordered,
        )

    def _before_first_row(self) -> list[Event]:
        first = int(self.iterations.line.min()) if len(self.iterations) else float("inf")
        return list(self.events[: bisect_left(self.events, first, key=LINE_OF)])


def _in_order(iterations: Iterations) -> tuple[Iterations, bool]:
    """Rows by rising number, each number once: excerpts repeat and re-order lines, ranks print them twice."""
    if len(iterations) < 2 or bool((iterations.number[1:] > iterations.number[:-1]).all()):
        return iterations, False
    order = np.argsort(iterations.number, kind="stable")
    numbers = iterations.number[order]
    first = order[np.concatenate(([True], numbers[1:] > numbers[:-1]))]
    reordered = bool((np.diff(iterations.number) < 0).any())
    return iterations.take(first), reordered


def _unwrapped(stamps: np.ndarray) -> np.ndarray:
    """Clocks without a date start again at midnight."""
    known = ~np.isnan(stamps)
    if known.sum() < 2 or float(np.nanmax(stamps)) > 946684800.0 + 2 * DAY_S:  # a real date, not the year-2000 stand-in
        return stamps
    values = stamps[known]
    days = np.concatenate(([0.0], np.cumsum(np.diff(values) < -DAY_S / 2)))
    whole = stamps.copy()
    whole[known] = values + days * DAY_S
    return whole


def _evaluations(found: Sequence[Evaluation]) -> tuple[Evaluation, ...]:
    """Each evaluation once, by rising number; ranks and excerpts repeat them."""
    if bool((np.diff(np.fromiter(map(itemgetter(1), found), np.int64)) > 0).all()):
        return tuple(found)
    by_number: dict[int, Evaluation] = {}
    for event in found:
        by_number.setdefault(event.at, event)
    return tuple(by_number[at] for at in sorted(by_number))


def _checkpoints(kinds: _Kinds, iterations: Iterations) -> tuple[Checkpoint, ...]:
    """Saves with their iteration: the evaluation just above where no iteration line stands between."""
    saves = list(kinds.checkpoints)
    lines, of_evaluations = (np.fromiter(map(LINE_OF, found), np.int64) for found in (saves, kinds.evaluations))
    last = np.searchsorted(of_evaluations, lines, side="right")
    above = np.concatenate(([-1], iterations.line))[np.searchsorted(iterations.line, lines)]
    for row in np.flatnonzero(np.concatenate(([-1], of_evaluations))[last] > above).tolist():
        save, evaluation = saves[row], kinds.evaluations[last[row] - 1]
        if save.at in (None, evaluation.at):
            saves[row] = Checkpoint(save.line, evaluation.at, True, save.took_s, save.stamp_s)
    numbers = np.array([save.at for save in saves], np.float64)  # nan where it is not known
    if bool((np.diff(numbers) > 0).all()) and not np.isnan(numbers[0]):
        return tuple(saves)
    found: dict[tuple[int | None, int], Checkpoint] = {}
    for save in saves:
        found.setdefault((save.at, -1 if save.at is not None else save.line), save)
    return tuple(found.values())


def _ranks(events: Sequence[Event]) -> int:
    """How many processes printed the header: each rank says it once. A crash before the run starts the count anew."""
    counts = {"tokens_per_iter": 0, "n_params": 0}
    for event in events:
        if isinstance(event, Fact) and event.name in counts:
            counts[event.name] += 1
        elif isinstance(event, Fault) and event.kind == "traceback":
            counts = dict.fromkeys(counts, 0)
    return max(1, *counts.values())


def _timing(named: dict[str, object], reader: Reader) -> Timing:
    if "mean_of_run" in named:
        return Timing.SPANS_RUN
    if "averaged" in named:
        return Timing.SPANS_LOG_INTERVAL
    return Timing.SPANS_STEP if "step_alone" in named else reader.timing


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _saved_params(named: dict[str, object]) -> float | None:
    decayed, plain = named.get("decayed"), named.get("non_decayed")
    if isinstance(decayed, float):
        return decayed + (plain if isinstance(plain, float) else 0.0)
    count = named.get("n_params")
    return count if isinstance(count, float) else None


def _settings(facts: Sequence[Fact], ranks: int, iterations: Iterations) -> Settings:
    """What the log says of its settings; a later line wins, as in nanoGPT's configurator."""
    values: dict[str, Value] = {}
    for fact in facts:
        if fact.name in KINDS:
            values[fact.name] = _fitting(fact)
        elif fact.name == "compiling":
            values["compile"] = True
        elif fact.name == "slow_attention":
            values["flash"] = False
    settings = Settings.of(Origin.LOG, values)
    if ranks > 1 and "world_size" not in values:
        settings = settings.beneath(Settings.of(Origin.INFERRED, {"world_size": ranks}))
    if "log_interval" not in values and len(iterations) > 1:
        interval = _log_interval(iterations)
        if interval:
            settings = settings.beneath(Settings.of(Origin.INFERRED, {"log_interval": interval}))
    return settings


def _fitting(fact: Fact) -> Value:
    value: Value = fact.value
    return int(value) if KINDS[fact.name] is int and not isinstance(value, str) else value


def _log_interval(iterations: Iterations) -> int | None:
    """The usual distance between logged iterations; the start of a long log tells it as well as all of it."""
    gaps = Counter(np.diff(np.sort(iterations.number[:_ROWS_FOR_INTERVAL])).tolist())
    gaps.pop(0, None)
    return max(gaps, key=lambda gap: (gaps[gap], -gap)) if gaps else None
