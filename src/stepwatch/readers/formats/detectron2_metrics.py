"""detectron2's metrics.json: one object for every 20 iterations, appended by each process that trains.

`time` and `data_time` are medians of the last 20 iterations. The eta of a process's first object is that median times
the remaining iterations, so that their number is exact; later etas use a median of 1000. Older versions count the
iteration just done as remaining.
"""

from __future__ import annotations

import math
from itertools import islice

import numpy as np

from stepwatch.patterns import Pattern
from stepwatch.readers.formats import Reader
from stepwatch.readers.formats.json_rows import drop_copies, fact_of_single_row, objects
from stepwatch.readers.formats.recorder_run import with_inside
from stepwatch.readers.levers import DETECTRON2
from stepwatch.readers.records import INSIDE, LONGEST_TIME_S, Records
from stepwatch.readers.text.block import Block
from stepwatch.readers.text.line import MOST_SNIFFED, Line
from stepwatch.readers.text.shape import alike
from stepwatch.run import Evaluation, Fact, Timing, Traits

_OBJECT = Line(
    r"\{", '"iteration": {number}', '"time": {time_s}', '"data_time": {data_s:decimal}',
    '"total_loss": {loss:decimal}', '"eta_seconds": {eta_s:decimal}', needs=("time_s",),
)  # fmt: skip
_FIELDS = {"number", "time_s", "data_s", "loss", "eta_s"}
_KEYS = ("iteration", "time", "data_time", "total_loss", "eta_seconds")
_SNIFFED = Pattern(rb'(?m)\{"(?<=^\{")[^\n]{1,20000}"iteration": \d{1,12}\b[^\n]{0,20000}\}\s*$')
_TIMED = Pattern(rb'"(?:data_time|eta_seconds|time)": ')
_RESULTS = (b"/AP", b'"AP', b"mIoU", b"/PQ")  # of its evaluators: boxes and masks, semantic and panoptic segmentation
_EVERY = 20  # iterations between two objects, and per median
_ROUND = 10  # the number of iterations is mostly a multiple of this
_LEFT = "left"


def sniff(head: bytes) -> float:
    """How many objects have an iteration together with a loader time or an eta, as in no other trainer."""
    rows = islice(_SNIFFED.finditer(head), MOST_SNIFFED)
    return float(sum(_TIMED.search(row[0]) is not None for row in rows))


def parse(text: bytes, first_line: int, records: Records) -> None:
    """Nearly all objects have one shape and are read together; those with results, and odd ones, one by one."""
    block = Block.of(text)
    results = block.holding(block.filled, _RESULTS)
    left = block.without(block.filled, results)
    for _, lines, found in alike(block, left, (_OBJECT,), prefixes=False):
        if set(found) == _FIELDS and bool(((found["time_s"] > 0) & (found["time_s"] <= LONGEST_TIME_S)).all()):
            number, times = found["number"].astype(np.int64) + 1, found["time_s"]
            records.add_rows(number=number, time_s=times, loss=found["loss"], line=lines + first_line)
            records.keep(INSIDE, lines + first_line, np.minimum(found["data_s"], times), np.full(len(lines), np.nan))
            records.keep(_LEFT, lines + first_line, found["eta_s"])
            left = block.without(left, lines)
    for line, letters, numbers in objects(block, np.union1d(left, results), first_line, _KEYS):
        iteration, time = numbers.get("iteration", math.nan), numbers.get("time", math.nan)
        if not iteration >= 0:
            continue
        timed = 0 < time <= LONGEST_TIME_S
        if timed:
            loss = numbers.get("total_loss", math.nan)
            loss = math.inf if "total_loss" in numbers and not math.isfinite(loss) else loss
            records.add_row(number=iteration + 1, time_s=time, loss=loss, line=line)
            records.keep_row(INSIDE, line, min(numbers.get("data_time", math.nan), time), math.nan)
            records.keep_row(_LEFT, line, numbers.get("eta_seconds", math.nan))
        # Results of other evaluators are separate objects; a row of an interrupted process lacks only its time.
        if any(result in letters for result in _RESULTS) or numbers.keys() == {"iteration"}:
            records.unplaced.append(Evaluation(line=line, at=int(iteration) + timed))


def finish(first_line: int, records: Records) -> None:
    drop_copies(records)
    rows = records.iterations()
    left = records.take_table(_LEFT, 2)
    fell = np.flatnonzero(np.diff(rows.number) <= 0) + 1
    records.events += [Fact(int(rows.line[row]), "process", row, header=True) for row in fell.tolist()]
    for row in np.flatnonzero(np.diff([0, *fell, len(rows)]) == 1).tolist():
        first = int([0, *fell][row])
        records.events.append(fact_of_single_row(rows.line[first], rows.number[first], _EVERY))
    for first in (row for row in (0, *fell.tolist()) if len(rows)):
        if rows.number[first] == _EVERY:  # a process logged from its beginning, wherever its last row is
            records.events.append(Fact(int(rows.line[first]), "first_covers", _EVERY))
    for row in {0, *fell.tolist(), len(rows) - 1} if len(rows) else ():
        eta = left[left[:, 0] == rows.line[row], 1]
        ahead = float(eta[0]) / float(rows.time_s[row]) if len(eta) else math.inf
        ahead = ahead if math.isfinite(ahead) else 0.5
        whole = abs(ahead - round(ahead)) < 1e-6 * max(ahead, 1.0)  # except for rounding
        if ahead == 0 or (row < len(rows) - 1 and whole):
            end = int(rows.number[row]) + round(ahead)
            later = fell[fell > row]
            last = int(rows.number[later[0] - 1 if len(later) else -1])
            # Older versions show by what follows: the last object, possibly off the interval alone, or a round number.
            one_less = last == end - 1 and last % _EVERY != 0
            older = ahead > 0 and (one_less or ((end - 1) % _ROUND == 0 and end % _ROUND != 0))
            records.events.append(Fact(int(rows.line[row]), "max_iters", end - older))
    # The last results follow the training, with the number of its end or the next one.
    for event in records.unplaced_events():
        above = int(np.searchsorted(rows.line, event.line, side="right")) - 1
        near = above >= 0 and event.at <= rows.number[above] + 1
        records.events.append(event._replace(at=int(rows.number[above])) if near else event)
    records.unplaced.clear()


READER = Reader(
    name="detectron2-json",
    timing=Timing.SPANS_LOG_INTERVAL,
    sniff=sniff,
    parse=parse,
    finish=finish,
    complete=with_inside,
    traits=Traits(levers=DETECTRON2),
)
