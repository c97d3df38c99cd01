"""OpenMMLab's trainers (mmdetection, mmsegmentation, mmpretrain, …): the log of mmengine, and of mmcv before it.

`time` is a whole iteration including data loading. mmcv prints the mean since the previous line, mmengine that of the
last few iterations; what happens between two lines shows in their clocks. Validation, saves and the start of an epoch's
loader are not included. The last iterations of an epoch have no line if they do not fill an interval.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from stepwatch.readers.formats.json_rows import fact_of_single_row, first_of_each, split_initial_means
from stepwatch.readers.formats.recorder_run import with_inside
from stepwatch.readers.formats.running import as_slice
from stepwatch.readers.levers import MMENGINE
from stepwatch.readers.records import INSIDE, OTHER_PROGRAM, Records
from stepwatch.readers.text.block import Block
from stepwatch.readers.text.line import Line, stamp_of
from stepwatch.readers.text.line_format import LineFormat
from stepwatch.readers.text.shape import alike
from stepwatch.run import Checkpoint, Evaluation, Fact, Floats, Ints, Timing, Traits

_VALIDATED = Line(r"<Epoch;Iter>(val)  [\[{epoch:int}\]]\[{pad}[{int}/]{batches:int}\]", "time: {average_s:decimal}")
_EVALUATED = Line(  # mmcv before 1.1: a training line with results instead of a time
    r"<Epoch;Iter>  [\[{epoch:int}\]]\[{int}/{int}\]  lr: {decimal}, {word}: {decimal}"
)
_SAVED = Line("Saving checkpoint at {count:int} <epochs;iterations>")
_BEGUN = (
    Line("workflow: {any}, max: {last_epoch:int} epochs", header=True),
    Line("workflow: {any}, max: {int} iters", header=True),
    Line("Checkpoints will be saved to ", header=True, sets={"saved": "."}),
)
_STARTS = (  # what follows belongs to this start
    Line("System environment:", sets={OTHER_PROGRAM: "*"}), Line("Environment info:", sets={OTHER_PROGRAM: "*"}),
)  # fmt: skip
_LENGTHS = (Line("{any}max_epochs<=; = >{last_epoch:int}"), Line("{any}total_epochs<=; = >{last_epoch:int}"))
_TRAINED = ("time: ", "loss: ")
_ROWS, _BEGINS, _ENDS, _EVENTS = "rows", "begins", "ends", "events"


class _Rows(NamedTuple):
    """The lines of the training, as columns."""

    line: Floats
    epoch: Floats
    """Nan if the trainer counts iterations only."""
    place: Floats
    """The iteration's place in its epoch, or in the whole training."""
    total: Floats
    time_s: Floats
    data_s: Floats
    loss: Floats
    stamp_s: Floats

    @property
    def number(self) -> Floats:
        return np.where(np.isnan(self.epoch), 0.0, (self.epoch - 1.0) * self.total) + self.place


class _Mmengine(LineFormat):
    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        unknown = np.full(len(lines), np.nan)
        names = ("epoch", "number", "last", "time_s", "data_s", "loss", "stamp_s")
        records.keep(_ROWS, lines, *(found.get(name, unknown) for name in names))

    def read_block(self, block: Block, left: Ints, numbers: np.ndarray, records: Records) -> None:
        """Reads validations and saves together: if epochs are short, there are as many as lines of training."""
        for statement, lines, found in alike(block, left, (_VALIDATED, _SAVED)):
            unknown = np.full(len(lines), np.nan)
            epoch, took, stamp = (found.get(name, unknown) for name in ("epoch", "average_s", "stamp_s"))
            if statement is _VALIDATED:
                records.keep(_EVENTS, numbers[lines], np.zeros(len(lines)), epoch, took * found["batches"], stamp)
            else:
                by_epoch = np.isin(lines, block.holding(lines, (b" epochs",)))
                records.keep(_EVENTS, numbers[lines], 1.0 + by_epoch, found["count"], unknown, stamp)
            left = block.without(left, lines)
        super().read_block(block, left, numbers, records)

    def read_event(self, rest: str, prefix: str, number: int, records: Records) -> bool:
        stamp = stamp_of(prefix)
        clock = np.nan if stamp is None else stamp
        if any(line.fits(rest) for line in _BEGUN):
            records.keep_row(_BEGINS, number, clock)
        length = next((found for line in (_BEGUN[0], *_LENGTHS) if (found := line.find(rest)) is not None), None)
        if length is not None:
            records.keep_row(_ENDS, number, length.values()["last_epoch"])
        validated, saved = _VALIDATED.find(rest), _SAVED.find(rest)
        if validated is None and not any(key in rest for key in _TRAINED):
            validated = _EVALUATED.find(rest)
        if validated is not None:
            values = validated.values()
            took = values.get("average_s", np.nan) * values.get("batches", np.nan)
            records.keep_row(_EVENTS, number, 0.0, values.get("epoch", np.nan), took, clock)
        elif saved is not None:
            by_epoch = "epochs" in rest
            records.keep_row(_EVENTS, number, 1.0 + by_epoch, saved.values()["count"], np.nan, clock)
        return validated is not None or saved is not None

    def finish(self, first_line: int, records: Records) -> None:
        rows = _Rows(*records.take_columns(_ROWS, len(_Rows._fields)))
        begins, ends, events = (
            records.take_table(name, width) for name, width in ((_BEGINS, 2), (_ENDS, 2), (_EVENTS, 5))
        )
        known = as_slice(np.flatnonzero(np.isfinite(rows.number) & (rows.time_s > 0)))
        rows = _Rows(*(column[known] for column in rows))
        known = as_slice(np.flatnonzero(first_of_each(rows.number, rows.time_s, rows.loss, rows.stamp_s)))
        rows = _Rows(*(column[known] for column in rows))
        if not len(rows.line):
            return
        number, times = rows.number, rows.time_s.astype(np.float64)
        rows = rows._replace(data_s=rows.data_s.astype(np.float64))
        of = np.searchsorted(begins[:, 0], rows.line)
        starts = np.flatnonzero((np.diff(of, prepend=0) > 0) | (np.diff(number, prepend=np.inf) <= 0))
        closings: list[tuple[float, int]] = []
        for begin, end in zip(starts.tolist(), [*starts[1:].tolist(), len(number)], strict=True):
            # A line after its last row shows that the epoch has ended.
            last, over = end - 1, rows.line[end] if end < len(number) else np.inf
            ended = (events[:, 0] > rows.line[last]) & (events[:, 0] < over) & (events[:, 1] != 1)
            ended &= (events[:, 2] == rows.epoch[last]) & (rows.place[last] < rows.total[last])
            closings += [(float(line), last) for line in events[ended, 0][:1]]
            own = slice(begin, end)
            times[own], rows.data_s[own] = split_initial_means(number[own], times[own], rows.data_s[own])
            if end == begin + 1:
                records.events.append(fact_of_single_row(rows.line[begin], number[begin], rows.place[begin]))
            if of[begin] == (of[begin - 1] if begin else 0):
                records.events += [Fact(int(rows.line[begin]), "process", begin, header=True)] * (begin > 0)
                continue
            # The first line covers everything since the start, which the clock shows.
            by_epoch = np.isfinite(rows.epoch[begin]) or end == begin + 1
            done = rows.place[begin] if by_epoch else min(number[begin], number[begin + 1] - number[begin])
            times[begin] = np.fmax(times[begin], (rows.stamp_s[begin] - begins[of[begin] - 1, 1]) / max(done, 1.0))
        # The planned end: printed in each line, or as epochs once or twice at the start.
        for place in np.flatnonzero(np.diff(rows.total, prepend=-1) != 0).tolist():
            stated = ends[ends[:, 0] < rows.line[place], 1][-1:] if np.isfinite(rows.epoch[place]) else np.ones(1)
            planned = float(stated.sum()) * rows.total[place]
            if 0 < planned < np.inf:
                records.events.append(Fact(int(rows.line[place]), "max_iters", int(planned)))
        _add_events(records, rows, events)
        # The last iteration of a process whose last epoch has ended, if no line covers it.
        line, row = np.array(closings).reshape(-1, 2).T
        row = row.astype(np.int64)
        reached = rows.epoch[row].astype(np.float64) * rows.total[row]
        stamps = rows.stamp_s[row] + (reached - number[row]) * times[row]
        unknown, lines = np.full(len(row), np.nan), np.append(rows.line, line)
        columns = {
            "number": np.append(number, reached).astype(np.int64), "time_s": np.append(times, times[row]),
            "loss": np.append(rows.loss, unknown), "stamp_s": np.append(rows.stamp_s, stamps),
        }  # fmt: skip
        records.add_rows(**columns, line=lines.astype(np.int64))
        data = np.minimum(np.append(rows.data_s, unknown), columns["time_s"])
        records.keep(INSIDE, lines, data, np.full(len(lines), np.nan))


def _add_events(records: Records, rows: _Rows, events: np.ndarray) -> None:
    """Adds validations, which end with their last line, and saves, which begin with theirs."""
    before = np.searchsorted(rows.line, events[:, 0]) - 1
    row_of = before.tolist()
    number, total, time_s, stamps = (
        column[before].tolist() for column in (rows.number, rows.total, rows.time_s, rows.stamp_s)
    )
    stated = events.tolist()
    saves = np.maximum.accumulate(np.where(events[:, 1] > 0, np.arange(len(events)), -1))  # the last save so far
    ends = np.append((np.diff(before) != 0) | (np.diff(events[:, 1]) != 0), True)[: len(events)]
    last_save = saves.tolist()
    for event in np.flatnonzero(ends & (before >= 0)).tolist():
        line, kind, count, took, stamp = stated[event]
        row, save = row_of[event], last_save[event]
        at = count if kind == 1 else count * total[event] if math.isfinite(count) else number[event]
        if kind:
            clock = None if math.isnan(stamp) else stamp
            records.events.append(Checkpoint(line=int(line), at=int(at), stamp_s=clock))
            continue
        # By the clock: since the save above, or since the training ended.
        left = max(at - number[event], 0.0) * time_s[event]
        since = stated[save][4] if save >= 0 and row_of[save] == row else stamps[event] + left
        known = [seconds for seconds in (took, stamp - since) if seconds >= 0]
        records.events.append(Evaluation(line=int(line), at=int(at), took_s=max(known, default=None)))


FORMAT = _Mmengine(
    name="mmengine",
    timing=Timing.SPANS_LOG_INTERVAL,
    traits=Traits(may_evaluate=True, shows_events=True, prints_means=True, levers=MMENGINE),
    iterations=(
        Line(
            r"<Epoch;Iter>[(train)]  [\[{epoch:int}\]]\[{pad}{number}/{last}\]",
            "time: {time_s}",
            "data_time: {data_s:decimal}",
            "loss: {loss}",
            needs=("time_s",),
        ),
    ),
    settings=(*_BEGUN, *_STARTS),
    own=(_VALIDATED, _EVALUATED, _SAVED, *_LENGTHS),
)
READER = FORMAT.reader()._replace(complete=with_inside)
