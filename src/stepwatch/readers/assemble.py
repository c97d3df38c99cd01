"""From records to runs: one Run per process start, excerpts in order, repeats dropped."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from stepwatch import bounds
from stepwatch.bounds import within
from stepwatch.readers.formats import Reader
from stepwatch.readers.records import (
    ESTIMATED_END,
    LINE_OF,
    OTHER_PROGRAM,
    STEPS_CHANGE,
    Kinds,
    Records,
    rows_where,
    through_midnight,
)
from stepwatch.run import (
    SENTINEL_MFU,
    Checkpoint,
    Evaluation,
    Event,
    EventColumns,
    Fact,
    Fault,
    Floats,
    Ints,
    Iterations,
    OneKind,
    Run,
    Timing,
    Unread,
    column_of,
    repeated,
    rows_from,
    usual_distance,
)
from stepwatch.settings import KINDS, Origin, Settings, Value
from stepwatch.units import HOUR_S

if TYPE_CHECKING:
    from stepwatch.run.more import Rank

_ROWS_ALIKE = 5  # rows compared to recognize a copy, or a separate run


def assemble(records: Records, reader: Reader, source: str) -> tuple[Run, ...]:
    """Divides the records into runs. A text without iterations results in at most one run, which is empty."""
    records.admit()
    iterations = records.iterations()
    kinds = records.by_kind()
    cuts = [*starts_of_runs(iterations, kinds), math.inf]
    rows = rows_from(iterations.line, cuts).tolist()
    missed = np.searchsorted(records.unread_lines, cuts).tolist()
    shown = np.searchsorted([unread.line for unread in records.unread], cuts).tolist()
    outside = np.searchsorted(records.outside_lines, cuts).tolist()
    named = np.searchsorted([value.line for value in records.outside], cuts).tolist()
    runs = []
    for i in range(len(cuts) - 1):
        own, mine = kinds, iterations
        if len(cuts) > 2:
            own, mine = kinds.between(cuts[i], cuts[i + 1]), iterations.take(slice(rows[i], rows[i + 1]))
        run = _run(mine, own, reader, source)
        if reader.complete is not None:
            run = reader.complete(run, own, records)
        unread = tuple(records.unread[shown[i] : shown[i + 1]])
        strange = tuple(records.outside[named[i] : named[i + 1]])
        run = replace(
            run,
            unread=unread,
            unread_count=missed[i + 1] - missed[i],
            outside=strange,
            outside_count=outside[i + 1] - outside[i],
        )
        # Rows and events are already checked; what remains is what facts say and what the format adds.
        runs.append(_admitted(run) if own.facts or reader.complete is not None else run)
    return tuple(runs)


# --- where a new run begins -------------------------------------------------------------------------------------


def starts_of_runs(iterations: Iterations, kinds: Kinds) -> list[float]:
    """The lines at which a new process starts: at a header, a -100 % line, or when the first number comes again."""
    if not len(iterations):
        return [0.0]
    headers = [fact for fact in kinds.facts if fact.header]
    starts = _header_starts(iterations, headers) if headers else set()
    rows = _sentinel_rows(iterations) if (iterations.reported_mfu[1:] == SENTINEL_MFU).any() else set()
    if (iterations.number[1:] <= iterations.number[:-1]).any():  # else no number is repeated
        rows |= _restarted_rows(iterations) | _rows_of_other_excerpts(iterations)
        seen: set[float] = set()
        for row in np.flatnonzero(iterations.number == 0).tolist():
            time = float(iterations.time_s[row])
            if seen and time not in seen and iterations.number[row - 1] > 0:  # no earlier iteration 0 had this time
                rows.add(row)
            seen.add(time)
    for row in rows:
        # The run starts at the line of the row, or at the header or evaluation just above that belongs to it. An
        # evaluation above the header, or above an error, was the last one of the previous process.
        line, above, number = int(iterations.line[row]), int(iterations.line[row - 1]), int(iterations.number[row])
        between = kinds.between(math.nextafter(above, math.inf), line)
        failed = max((fault.line for fault in between.faults), default=above)
        own = [fact.line for fact in between.facts if fact.header] or [
            event.line for event in between.evaluations if event.at == number and event.line > failed
        ]
        starts.add(float(own[0] if own else line))
    return [0.0, *sorted(line for line in starts if line > 0)]


def _header_starts(iterations: Iterations, headers: Sequence[Fact]) -> set[float]:
    """The first header line after iterations, if more iterations follow it (ranks flush their headers at exit)."""
    rows_before = rows_from(iterations.line, [event.line for event in headers]).tolist()
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
    """The rows that appeared earlier in the log, as did most of the rows after them: a run that was pasted twice."""
    if not len(rows):
        return set()
    lengths = np.minimum(np.append(rows[1:], len(iterations)) - rows, _ROWS_ALIKE)
    begins = np.cumsum(lengths) - lengths
    asked = np.arange(lengths.sum()) - repeated(begins - rows, lengths)  # each of the rows and some that follow
    # For each of these, the first of all rows with the same number, time and loss.
    number, time, loss = iterations.number, iterations.time_s, _comparable(iterations.loss)
    alike = np.flatnonzero(np.isin(number, number[asked]) & np.isin(time, time[asked]))
    order = alike[np.lexsort((alike, loss[alike], time[alike], number[alike]))]
    new = np.ones(len(order), bool)
    new[1:] = False
    for column in (number, time, loss):
        new[1:] |= column[order[1:]] != column[order[:-1]]
    first = np.zeros(len(number), np.int64)
    first[order] = order[new][np.cumsum(new) - 1]
    known = first[asked] < repeated(rows, lengths)
    return set(rows[2 * np.add.reduceat(known.astype(np.int64), begins.astype(np.intp)) > lengths].tolist())


def _comparable(loss: Floats) -> Floats:
    return np.where(np.isnan(loss), -1.0, loss)  # nan is not equal to itself


def _goes_on(iterations: Iterations, row: int) -> bool:
    """Whether the row continues the previous one in the same process. Then a repeated header is from a late rank."""
    mfu, before = iterations.reported_mfu[row], iterations.reported_mfu[row - 1]
    grows = iterations.number[row] > iterations.number[row - 1]
    return bool(grows and not np.isnan(mfu) and (mfu != SENTINEL_MFU or before == SENTINEL_MFU))


def _sentinel_rows(iterations: Iterations) -> set[int]:
    """The first -100 % line after others, or the next one whose number does not grow; repeats do not count."""
    sentinel = iterations.reported_mfu == SENTINEL_MFU
    grows = iterations.number[1:] > iterations.number[:-1]
    candidates = np.flatnonzero(sentinel[1:] & ~(sentinel[:-1] & grows)) + 1
    if not len(candidates):
        return set()
    columns = iterations.number, iterations.time_s, _comparable(iterations.loss)
    before = np.flatnonzero(np.isin(iterations.number[: candidates[0]], iterations.number[candidates]))
    seen = set(zip(*(column[before].tolist() for column in columns), strict=True))
    starts = set()
    for row, *identity in zip(candidates.tolist(), *(column[candidates].tolist() for column in columns), strict=True):
        if tuple(identity) not in seen:
            starts.add(row)
            seen.add(tuple(identity))
    return starts


def _restarted_rows(iterations: Iterations) -> set[int]:
    """Rows at which the log returns to its first number and repeats known numbers with other times."""
    number = iterations.number
    again = np.flatnonzero((number[1:] == number[0]) & (number[:-1] > number[0])) + 1
    if not len(again):
        return set()
    _, first, which = np.unique(number, return_index=True, return_inverse=True)
    new = first[which]  # for each row, the first row with its number
    starts = set()
    for row in set(again.tolist()) - _repeats(iterations, again):
        rises = (np.diff(number[row : row + _ROWS_ALIKE]) > 0).all()
        if rises and (new[row : row + _ROWS_ALIKE] < row).all():
            starts.add(row)
    return starts


def _rows_of_other_excerpts(iterations: Iterations) -> set[int]:
    """Rows at which the numbers go back, then continue with another distance and other times: another run's excerpt."""
    number, time_s = iterations.number, iterations.time_s
    starts = set()
    for row in (np.flatnonzero(number[1:] <= number[:-1]) + 1).tolist():
        before, after = slice(max(row - _ROWS_ALIKE, 0), row), slice(row, row + _ROWS_ALIKE)
        steps = np.diff(number[before]), np.diff(number[after])
        if min(map(len, steps)) < _ROWS_ALIKE - 1 or not all((step > 0).all() for step in steps):
            continue
        ends = [(float(time_s[part].min()), float(time_s[part].max())) for part in (before, after)]
        apart = max(ends[0][0] / ends[1][1], ends[1][0] / ends[0][1])
        if apart > 1.5 and np.median(steps[0]) != np.median(steps[1]):  # no training varies that much between lines
            starts.add(row)
    return starts


def of_kind(events: Sequence[Event], kind: type) -> list[Any]:
    return [event for event in events if type(event) is kind]


# --- one run ----------------------------------------------------------------------------------------------------


def _run(iterations: Iterations, kinds: Kinds, reader: Reader, source: str) -> Run:
    # What follows the last iteration is from another program (sample.py), or from ranks that flush at exit.
    first = int(iterations.line.min()) if len(iterations) else math.inf
    last = int(iterations.line.max()) if len(iterations) else math.inf
    facts = [fact for fact in kinds.facts if fact.line <= last]
    named = {fact.name: fact.value for fact in facts}
    over = min(
        (fact.line for fact in kinds.facts if fact.name == OTHER_PROGRAM and fact.line >= last), default=math.inf
    )
    ranks = _ranks(kinds.between(0, first)) if facts else 1
    timing = reader.timing
    if "mean_of_run" in named:
        timing = Timing.SPANS_RUN
    elif "averaged" in named:
        timing = Timing.SPANS_LOG_INTERVAL
    elif "step_alone" in named:
        timing = Timing.SPANS_STEP
    in_order, reordered = _in_order(iterations)
    evaluations: Sequence[Evaluation] = kinds.evaluations
    if not isinstance(evaluations, EventColumns):
        evaluations = tuple(evaluations)
    at = column_of(evaluations, "at")
    if not bool((at[1:] > at[:-1]).all()):  # keep each once, by rising number: ranks and excerpts repeat them
        evaluations = _taken(evaluations, np.unique(at, return_index=True)[1])
    saved, plain = named.get("decayed"), named.get("non_decayed")
    if isinstance(saved, float):
        saved += plain if isinstance(plain, float) else 0.0
    else:
        saved = named["n_params"] if isinstance(named.get("n_params"), float) else None
    return Run(
        format=reader.name,
        timing=timing,
        holds=named.get("holds", reader.holds),
        traits=replace(
            reader.traits,
            schedules=bool(named.get("schedules", reader.traits.schedules)),
            counts_epochs=bool(named.get("counts_epochs", reader.traits.counts_epochs)),
        ),
        iterations=in_order,
        evaluations=evaluations,
        checkpoints=_checkpoints(kinds, iterations) if kinds.checkpoints else (),
        faults=tuple(  # some have a fraction: they are parts of a line
            fault._replace(line=int(fault.line)) for fault in kinds.faults if fault.line < over
        ),
        settings=_settings(facts, ranks, iterations),
        source=source,
        gpu_text=next((str(fact.value) for fact in facts if fact.name == "gpu_text"), None),
        saved_params=saved,
        flops_per_token=named.get("flops_per_token"),
        mfu_peak_flops=named.get("mfu_peak_flops"),
        compile_s=named.get("compile_s"),
        limit_s=named.get("limit_s"),
        patience=named.get("patience_iters"),
        reported_s=named.get("reported_s"),
        bar_alone="bar_alone" in named,
        first_covers=named.get("first_covers"),
        start=named.get("start", "training"),
        announced=tuple(Unread(fact.line, str(fact.value)) for fact in facts if fact.name == STEPS_CHANGE),
        has_header=any(fact.header for fact in facts),
        resumed="resume" in named or named.get("init_from") == "resume",
        distributed="distributed" in named or ranks > 1,
        busy_when_logging="busy_when_logging" in named,
        reordered=reordered,
        ended_by_plan=any(fact.name == "ended" for fact in kinds.facts),
    )


def _admitted(run: Run) -> Run:
    """The run without impossible values in the fields other than rows and events."""
    covers, patience = within(bounds.ITERATION, run.first_covers), within(bounds.ITERATION, run.patience)
    inside, span = run.inside, run.span
    if span is not None and not (list(span) == sorted(span) and all(map(bounds.CLOCK_S.holds, span))):
        span = None
    if inside is not None:
        strange = [~(bounds.EVENT_S.mask(column) | np.isnan(column)) for column in inside]
        known = (np.where(out, np.nan, c) if out.any() else c for out, c in zip(strange, inside, strict=True))
        inside = type(inside)(*known)
    return replace(
        run,
        saved_params=within(bounds.SETTINGS["n_params"], run.saved_params),
        flops_per_token=within(bounds.FLOPS, run.flops_per_token),
        mfu_peak_flops=within(bounds.FLOPS, run.mfu_peak_flops),
        compile_s=within(bounds.RUN_S, run.compile_s),
        limit_s=within(bounds.RUN_S, run.limit_s),
        patience=None if patience is None else int(patience),
        reported_s=within(bounds.RUN_S, run.reported_s),
        first_covers=None if covers is None else int(covers),
        span=span,
        inside=inside,
        parts={name: np.where(bounds.EVENT_S.mask(part), part, 0.0) for name, part in run.parts.items()},
    )


def _in_order(iterations: Iterations) -> tuple[Iterations, bool]:
    """Rows by rising number, each once, with a continuous clock: excerpts and ranks repeat and reorder lines."""
    untimed = rows_where(lambda time_s: ~np.isfinite(time_s), iterations.time_s)
    if 0 < len(untimed) < len(iterations):  # if no row has a time, keep all for the error message
        iterations = iterations.take(np.isfinite(iterations.time_s))
    reordered = bool((iterations.number[1:] < iterations.number[:-1]).any())
    if (iterations.number[1:] <= iterations.number[:-1]).any():
        order = np.argsort(iterations.number, kind="stable")
        iterations = iterations.take(order[np.diff(iterations.number[order], prepend=-np.inf) > 0])
    if iterations.stamp_s.strides != (0,):  # unknown in all rows
        iterations = replace(iterations, stamp_s=through_midnight(iterations.stamp_s))
    return iterations, reordered


def _checkpoints(kinds: Kinds, iterations: Iterations) -> Sequence[Checkpoint]:
    """Saves with their iteration. One without takes that of the evaluation above if no iteration line is between."""
    saves = kinds.checkpoints
    lines, at = column_of(saves, "line"), column_of(saves, "at").copy()
    evaluated = column_of(kinds.evaluations, "line")
    last = np.searchsorted(evaluated, lines, side="right")
    rows = rows_from(iterations.line, lines)
    above = np.where(rows > 0, iterations.line[rows - 1] if len(iterations) else -1, -1)
    theirs = np.concatenate(([np.nan], column_of(kinds.evaluations, "at")))[last]
    at = np.where((np.concatenate(([-1.0], evaluated))[last] > above) & np.isnan(at), theirs, at)
    if isinstance(saves, EventColumns):
        saves = saves.with_column("at", at)
    else:
        places = [None if place != place else int(place) for place in at.tolist()]
        placed = zip(saves, places, strict=True)
        saves = tuple(save if save.at == place else save._replace(at=place) for save, place in placed)
    if bool((at[1:] > at[:-1]).all()) and not np.isnan(at[0]):
        return saves
    # Keep one per iteration; those without an iteration, one per line.
    _, first = np.unique(np.where(np.isnan(at), -1.0 - lines, at), return_index=True)
    return _taken(saves, np.sort(first))


def _taken(events: Sequence[OneKind], rows: Ints) -> Sequence[OneKind]:
    return events.take(rows) if isinstance(events, EventColumns) else tuple(events[row] for row in rows.tolist())


def _ranks(kinds: Kinds) -> int:
    """How many processes printed the header: each rank does once. A header after a crash starts the count again."""
    counts, crashed = {"tokens_per_iter": 0, "n_params": 0}, False
    events: list[Event] = [*kinds.facts, *kinds.faults]
    for event in sorted(events, key=LINE_OF):
        if isinstance(event, Fact) and event.name in counts:
            counts = dict.fromkeys(counts, 0) if crashed else counts
            counts[event.name] += 1
            crashed = False
        elif isinstance(event, Fault) and event.kind == "traceback":
            crashed = True
    return max(1, *counts.values())


def _settings(facts: Sequence[Fact], ranks: int, iterations: Iterations) -> Settings:
    """The settings stated in the log; a later line overrides an earlier one, as in nanoGPT's configurator."""
    values: dict[str, Value] = {}
    for fact in facts:
        if fact.name in KINDS:
            values[fact.name] = fact.value
        elif fact.name == "compiling":
            values["compile"] = True
        elif fact.name == "slow_attention":
            values["flash"] = False
    estimated: list[Value] = [fact.value for fact in facts if fact.name == ESTIMATED_END]
    if estimated:
        values.setdefault("max_iters", estimated[-1])
    inferred: dict[str, Value] = {}
    if ranks > 1 and "world_size" not in values:
        inferred["world_size"] = ranks
    usual = usual_distance(iterations.number)
    if values.get("log_interval", usual) != usual is not None:  # a config may belong to another log
        inferred["log_interval"] = usual
    elif "log_interval" not in values and len(iterations) > 1:
        # The usual distance between logged iterations; the start of a long log is enough.
        gaps = Counter(np.diff(np.sort(iterations.number[:5000])).tolist())
        gaps.pop(0, None)
        if gaps:
            inferred["log_interval"] = max(gaps, key=lambda gap: (gaps[gap], -gap))
    return Settings.of(Origin.LOG, values).overridden_by(Settings.of(Origin.INFERRED, inferred))


# --- joining the records of several processes to one run --------------------------------------------------------


def joined_ranks(runs: Sequence[Run], *, by_name: bool = False) -> tuple[Run, ...]:
    """Joins the runs of other ranks to that of the lowest rank; with `by_name`, they are known to belong together."""
    ranked = [run for run in runs if run.span is not None and run.rank is not None and _size(run) > 1]
    lowest = min((run.rank for run in ranked if run.rank is not None), default=None)
    leaders = [run for run in ranked if run.rank == lowest]
    if len(leaders) == len(ranked):
        return tuple(runs)
    ranks = {id(run): {rank.rank: rank for rank in run.ranks or _own_rank(run)} for run in leaders}
    joined: set[int] = set()
    for number in sorted({run.rank for run in ranked if run.rank is not None} - {lowest}):
        mine = [run for run in ranked if run.rank == number]
        # Pair runs in order if there are equally many, else take the nearest start.
        same = len(mine) == len(leaders)
        nearest = leaders if same else [min(leaders, key=lambda leader: _apart_s(run, leader)) for run in mine]
        for run, leader in zip(mine, nearest, strict=True):
            # Ranks start together; up to an hour apart if their clocks were never synchronized.
            if _size(run) != _size(leader) or not (by_name or _apart_s(run, leader) <= HOUR_S):
                continue
            for rank in _own_rank(run):  # joined now or before: a file may have been given twice
                if ranks[id(leader)].setdefault(rank.rank, rank).started_s == rank.started_s:
                    joined.add(id(run))
    return tuple(_with_ranks(run, ranks.get(id(run), {})) for run in runs if id(run) not in joined)


def _size(run: Run) -> int:
    return run.settings.count("world_size") or 1


def _apart_s(run: Run, other: Run) -> float:
    if run.span is None or other.span is None:
        return math.inf
    return abs(run.span.started_s - other.span.started_s)


def _own_rank(run: Run) -> tuple[Rank, ...]:
    """The steps of the run as those of one rank; empty if the rank is unknown."""
    if run.rank is None or run.span is None:
        return ()
    rows = run.iterations
    wait = run.inside.wait_s if run.inside is not None else np.full(len(rows), np.nan)
    from stepwatch.run.more import Rank

    return (Rank(run.rank, run.span.started_s, rows.number, rows.time_s, wait),)


def _with_ranks(run: Run, ranks: dict[int, Rank]) -> Run:
    return replace(run, ranks=tuple(ranks[rank] for rank in sorted(ranks))) if len(ranks) > 1 else run
