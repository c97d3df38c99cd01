"""The .json log of mmengine and mmcv: the figures of their lines as objects, without a clock.

mmengine writes the number among all iterations (`step`), mmcv the number within the epoch. The largest of these is
taken as the length of an epoch: if the epoch's last iterations do not fill an interval, they are missing.
"""

from __future__ import annotations

import math
from itertools import islice

import numpy as np

from stepwatch.patterns import Pattern
from stepwatch.readers.formats import Reader
from stepwatch.readers.formats.json_rows import fact_of_single_row, first_of_each, objects, split_initial_means
from stepwatch.readers.formats.recorder_run import with_inside
from stepwatch.readers.levers import MMENGINE
from stepwatch.readers.records import INSIDE, LONGEST_TIME_S, Records
from stepwatch.readers.text.block import Block
from stepwatch.readers.text.line import MOST_SNIFFED, Line
from stepwatch.readers.text.shape import alike
from stepwatch.run import Evaluation, Fact, Floats, Timing, Traits

_OBJECT = Line(
    r"\{", '"time": {time_s}', '"data_time": {data_s:decimal}', '"loss": {loss:decimal}', '"lr": {lr:decimal}',
    '"epoch": {epoch:int}', '"iter": {place:int}', '"step": {step:int}', needs=("time_s",),
)  # fmt: skip
_KEYS = ("epoch", "iter", "step", "time", "data_time", "loss", "lr")
_SNIFFED = Pattern(rb'(?m)\{"(?<=^\{")[^\n]{1,20000}\}\s*$')
_VALIDATED = b'"mode": "val"'
_CONFIGS = b'"config": ', b'"env_info": '
_LENGTH = Pattern(rb"(?:max_epochs|total_epochs)(?: = |=)(\d{1,9})")
_ROWS, _ENDS, _EVALUATED = "rows", "ends", "evaluated"


def sniff(head: bytes) -> float:
    """How many objects are marked as validation, or have both times, as in no other trainer."""
    hits = 0
    for row in islice(_SNIFFED.finditer(head), MOST_SNIFFED):
        both = b'"time": ' in row[0] and b'"data_time": ' in row[0] and b'"iteration": ' not in row[0]
        hits += both and (b'"epoch": ' in row[0] or b'"step": ' in row[0] or b'"iter": ' in row[0])
        hits += not both and _VALIDATED in row[0]
    return float(hits)


def parse(text: bytes, first_line: int, records: Records) -> None:
    """Training objects have few shapes, and are read together; odd ones are read one by one."""
    block = Block.of(text)
    whole = (block.octets[block.starts] == ord("{")) & (block.octets[block.ends - 1] == ord("}"))
    left = block.without(block.filled, block.holding(block.filled, _CONFIGS))
    untrained = block.without(left, block.holding(left, (b'"lr":', b'"loss":')))
    evaluated = np.union1d(block.holding(left, (_VALIDATED,)), block.holding(untrained, (b'"time":',)))
    evaluated = evaluated[whole[evaluated]]
    records.keep(_EVALUATED, evaluated + first_line)
    odd = block.without(block.filled, evaluated)
    for _, lines, found in alike(block, block.without(left, evaluated), (_OBJECT,), prefixes=False):
        if bool(((found["time_s"] > 0) & (found["time_s"] <= LONGEST_TIME_S)).all()) and {"lr", "loss"} <= set(found):
            unknown = np.full(len(lines), np.nan)
            columns = (found.get(name, unknown) for name in ("epoch", "place", "step", "time_s", "data_s", "loss"))
            records.keep(_ROWS, lines + first_line, *columns)
            odd = block.without(odd, lines)
    for line, letters, numbers in objects(block, odd, first_line, _KEYS):
        epoch, place, step, time, data = (numbers.get(key, math.nan) for key in _KEYS[:5])
        if any(config in letters for config in _CONFIGS):
            for stated in _LENGTH.finditer(letters):
                records.keep_row(_ENDS, line, float(stated[1]))
        elif _VALIDATED in letters or ("lr" not in numbers and "loss" not in numbers):
            if "time" in numbers or _VALIDATED in letters:
                records.keep_row(_EVALUATED, line)
        elif 0 < time <= LONGEST_TIME_S and (place >= 0 or step >= 0):
            loss = numbers.get("loss", math.nan)
            loss = math.inf if "loss" in numbers and not math.isfinite(loss) else loss
            records.keep_row(_ROWS, line, epoch, place, step, time, data, loss)


def finish(first_line: int, records: Records) -> None:
    rows = records.take_table(_ROWS, 7)
    ends, evaluated = records.take_table(_ENDS, 2), records.take_table(_EVALUATED, 1)[:, 0]
    if not len(rows):
        return
    number, per_epoch = _numbers(*rows[:, 1:4].T)
    new = first_of_each(number, rows[:, 4], rows[:, 6]) & np.isfinite(number)
    if not new.any():
        return
    number = number[new]
    line, time, data, loss = (rows[new, place] for place in (0, 4, 5, 6))
    del rows  # for a long log, it takes more memory than all columns
    fell = np.flatnonzero(np.diff(number) <= 0) + 1
    records.events += [Fact(int(line[row]), "process", row, header=True) for row in fell.tolist()]
    for row, end in zip((0, *fell.tolist()), (*fell.tolist(), len(line)), strict=True):
        own = slice(row, end)
        time[own], data[own] = split_initial_means(number[own], time[own], data[own])
        if end == row + 1:
            records.events.append(
                fact_of_single_row(line[row], number[row], number[row] % per_epoch if per_epoch else number[row])
            )
        stated = ends[ends[:, 0] < line[row], 1]
        if len(stated) and per_epoch > 0:
            records.events.append(Fact(int(line[row]), "max_iters", int(stated[-1] * per_epoch)))
    evaluated = evaluated[evaluated > line[0]]
    at = number[np.searchsorted(line, evaluated) - 1].astype(np.int64)
    records.add_events(Evaluation, evaluated.astype(np.int64), at=at)
    records.add_rows(number=number.astype(np.int64), time_s=time, loss=loss, line=line.astype(np.int64))
    records.keep(INSIDE, line, np.minimum(data, time), np.full(len(line), np.nan))


def _numbers(epoch: Floats, place: Floats, step: Floats) -> tuple[Floats, float]:
    """The number of each row among all iterations, and the iterations per epoch; 0 if epochs are not counted."""
    if np.isfinite(step).all():
        return step, 0.0
    later = np.diff(epoch) > 0
    if not np.isfinite(epoch).all() or (later.any() and (np.diff(place)[later] > 0).all()):  # counted over all epochs
        return place, 0.0
    per_epoch = float(place.max())
    return (epoch - 1) * per_epoch + place, per_epoch


READER = Reader(
    name="mmengine-json",
    timing=Timing.SPANS_LOG_INTERVAL,
    traits=Traits(prints_means=True, levers=MMENGINE),
    sniff=sniff,
    parse=parse,
    finish=finish,
    complete=with_inside,
)
