"""minimind: a countdown in whole minutes, from which the time since the epoch began follows.

`epoch_time` is the time left in the epoch: the mean of its steps so far times those to come, in minutes, rounded down.
So each line bounds the time since the epoch began, which only grows: a line whose minutes have just fallen, or are
about to, bounds the others too. Saves are in the mean; nothing else is shown. A fork also draws a bar for each epoch,
into a stream that may be written at another time: its seconds are used as the clock.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from stepwatch.readers.formats import CHECKPOINT
from stepwatch.readers.formats.epochs import Epochs, add_epochs, plan_epochs
from stepwatch.readers.formats.running import WHOLE_SECONDS, EpochClocks, as_slice, groups, lap_times, median
from stepwatch.readers.records import LONGEST_TIME_S, Records, rows_of
from stepwatch.readers.text.block import Block, Floats, Ints
from stepwatch.readers.text.line import Line
from stepwatch.readers.text.line_format import LineFormat
from stepwatch.readers.text.shape import alike
from stepwatch.run import Fact, Levers, Timing, Traits, repeated
from stepwatch.units import MINUTE_S

_STEP = Line(
    r"{any}Epoch:{pad}\[{epoch:int}/{last_epoch:int}\]{pad}({done:int}/{total:int})",
    "loss:{pad}{loss}", "epoch_time:{pad}{time_min}{pad}min", "epoch_Time:{pad}{time_old:decimal}{pad}min",
    needs=("time_min", "time_old"),
)  # fmt: skip
_BAR = Line(r"{any}%|{bar}|{pad}{number}/{last} \[{shown:clock}\<{eta}")
_LINES, _BARS = "lines", "bars"
_Point = tuple[float, float]  # steps of the epoch, and seconds since it began


class _Minimind(LineFormat):
    def read_block(self, block: Block, left: Ints, numbers: np.ndarray, records: Records) -> None:
        for _, lines, found in alike(block, left, (_BAR,)):
            records.keep(_BARS, numbers[lines], found["number"], found["last"], found["shown"])
            left = block.without(left, lines)
        super().read_block(block, left, numbers, records)

    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        unknown = np.full(len(lines), np.nan)
        older = np.full(len(lines), "time_old" in found)
        left = found["time_old" if "time_old" in found else "time_min"] * MINUTE_S
        columns = (
            found["done"],
            found["total"],
            left,
            older,
            found.get("loss", unknown),
            found.get("stamp_s", unknown),
        )
        records.keep(_LINES, lines, found["epoch"], *columns)
        plan_epochs(found, lines, records)

    def finish(self, first_line: int, records: Records) -> None:
        columns, bars = records.take_columns(_LINES, 8), records.take_table(_BARS, 4)
        known = (columns[3] > 0) & (np.abs(columns[4]) <= LONGEST_TIME_S)
        for column in columns[:4]:
            known &= np.isfinite(column)
        line, epoch, done, total, *others = rows_of(columns, known)
        del columns  # there may be millions of rows
        if (done == 0).any() or (others[1].any() and not (done == total).any()):  # counted from 0
            done = done + 1
        epochs = Epochs.of(line, epoch - 1, done, total)
        del line, epoch, done, total
        if not len(epochs.rows):
            return
        own = as_slice(epochs.rows)
        left, older, loss, stamps = (column[own] for column in others)
        elapsed = _by_bars(epochs, bars)
        if elapsed is None:
            times = epochs.differences(_since_begin(epochs, left, older))
        else:
            doubts = np.full(len(elapsed), WHOLE_SECONDS)
            times = lap_times(EpochClocks(epochs.done, elapsed, doubts, epochs.begins, epochs.done[epochs.begins]))
        usual = median(epochs.covers.astype(np.float64))
        for row in epochs.begins[epochs.process].tolist():
            if epochs.done[row] <= usual + 1:  # counted from 0, the first line has one step more than the others
                records.events.append(Fact(int(epochs.line[row]), "first_covers", int(epochs.done[row])))
        add_epochs(epochs, times, np.broadcast_to(np.nan, len(left)), loss, stamps, [], records)


def _by_bars(epochs: Epochs, bars: np.ndarray) -> Floats | None:
    """Seconds since the epoch began at each row; None unless each epoch has a bar."""
    bars = bars[np.isin(bars[:, 2], epochs.total)]
    begins = np.flatnonzero(np.diff(bars[:, 1], prepend=np.inf) < 0)
    if not len(bars) or len(begins) != len(epochs.begins):
        return None
    ends = np.append(begins[1:], len(bars))
    laps = zip(begins, ends, np.split(epochs.done, epochs.begins[1:]), strict=True)
    return np.concatenate([np.interp(done, bars[a:b, 1], bars[a:b, 3]) for a, b, done in laps])


def _since_begin(epochs: Epochs, left: Floats, older: Floats) -> Floats:
    """Seconds since the epoch began at each row, as evenly as the bounds of all rows allow."""
    elapsed, lengths = np.empty(len(left)), epochs.lengths
    for part in groups(epochs.begins, len(left)):
        some = slice(*np.searchsorted(epochs.begins, (part.start, part.stop)))
        done, own = epochs.done[part], left[part]
        to_come = repeated(epochs.total[some], lengths[some]) - done
        with np.errstate(divide="ignore", invalid="ignore"):
            least = done * ((own - older[part] * MINUTE_S) / to_come)  # older versions subtract two rounded figures
            most = done * ((own + MINUTE_S) / to_come)
        least = np.where(to_come > 0, np.maximum(least, 0.0), 0.0)
        most = np.where(to_come > 0, most, np.inf)
        for begin, length in zip((epochs.begins[some] - part.start).tolist(), lengths[some].tolist(), strict=True):
            rows = slice(begin, begin + length)
            low = np.maximum.accumulate(least[rows])
            high = np.minimum.accumulate(most[rows][::-1])[::-1]
            elapsed[part][rows] = _straightest(done[rows], np.minimum(low, high), high)
    return elapsed


def _straightest(done: Ints, low: Floats, high: Floats) -> Floats:
    """The path from 0 between the bounds with the fewest bends, like a string that is pulled tight."""
    bends: list[_Point] = [(0.0, 0.0)]
    below: deque[_Point] = deque()  # the bounds that the string may touch after its last bend
    above: deque[_Point] = deque()
    for place, least, most in zip(done.tolist(), low.tolist(), high.tolist(), strict=True):
        _pull(bends, below, above, (place, least), 1.0)
        if most < math.inf:
            _pull(bends, above, below, (place, most), -1.0)
    slopes = [_slope(bends[-1], side[0]) for side in (below, above) if side]
    end = float(done[-1])
    if slopes and end > bends[-1][0]:
        bends.append((end, bends[-1][1] + sum(slopes) / len(slopes) * (end - bends[-1][0])))
    places, values = zip(*bends, strict=True)
    return np.asarray(np.interp(done, places, values))


def _pull(bends: list[_Point], side: deque[_Point], other: deque[_Point], bound: _Point, sign: float) -> None:
    """Adds a bound to its side; if it is beyond the other side, the string bends there."""
    while side:
        begin = side[-2] if len(side) > 1 else bends[-1]
        if sign * _slope(begin, bound) < sign * _slope(begin, side[-1]):
            break
        side.pop()
    while not side and other and sign * _slope(bends[-1], bound) > sign * _slope(bends[-1], other[0]):
        bends.append(other.popleft())
    side.append(bound)


def _slope(begin: _Point, end: _Point) -> float:
    return (end[1] - begin[1]) / (end[0] - begin[0])


FORMAT = _Minimind(
    name="minimind",
    timing=Timing.SPANS_LOG_INTERVAL,
    holds=frozenset({CHECKPOINT}),
    iterations=(_STEP,),
    own=(_BAR,),
    settings=(
        Line("{any}\uff1a{n_params:decimal} \u767e\u4e07", scale=1e6),  # \u767e\u4e07 is a million
        Line("{any}Model Params: {n_params:amount}"),
    ),
    traits=Traits(levers=Levers(
        save_every="--save_interval", batch="--batch_size", accumulation="--accumulation_steps",
        workers="--num_workers", log_every="--log_interval", precision="--dtype bfloat16", compile="--use_compile 1",
        length="--max_seq_len",
    )),
)  # fmt: skip
READER = FORMAT.reader()
