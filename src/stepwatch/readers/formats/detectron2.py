"""detectron2: the lines of its console and of log.txt.

`time` is the mean of all iterations of the process except its first two, from fetching the data to the end of the step,
without evaluations, saves and the writing of the log. The mean of one line's iterations follows from the previous line.
What the first lines leave out follows from the clock of the line that begins the training. Lines without a `time`, as
some configurations print them, are read by their clock.
Its numbers count from 0: `iter: 19` is the twentieth, and has the number 20 here.
"""

from __future__ import annotations

import numpy as np

from stepwatch.readers.formats.json_rows import fact_of_single_row, first_of_each
from stepwatch.readers.formats.recorder_run import with_inside
from stepwatch.readers.formats.running import Clock, step_times
from stepwatch.readers.levers import DETECTRON2
from stepwatch.readers.records import ESTIMATED_END, INSIDE, OTHER_PROGRAM, Records
from stepwatch.readers.text.line import Line
from stepwatch.readers.text.line_format import Kept, LineFormat
from stepwatch.run import SLEEP_S, Checkpoint, Evaluation, Fact, Fault, Floats, Ints, Timing, Traits
from stepwatch.units import DAY_S

_BEGUN = Line("{any}Starting training from iteration {start:int}", header=True, opening=True)
_RANK = Line("{any}Rank of current process: {int}. World size: {world_size}", header=True, sets={OTHER_PROGRAM: "*"})
_TOTAL = Line("{any}Total training time: [{days:int} <day;days>, ]{clock_s:clock}")
_FINAL = Line("{any}Saving checkpoint to {any}model_final")
_SAVED = Line("{any}Saving checkpoint to {any}")
_SAVED_AT = Line("{any}Saving checkpoint to {any}model_{iteration:int}.pth")
_INFERENCE = Line("{any}Start inference on {int} ")
_RESULTS = (
    Line("{any}Total inference "), Line("{any}Evaluation results for "), Line("{any}copypaste: "),
)  # fmt: skip
_ROW = "[eta: <[{eta_days:int} <day;days>, ]{eta_s:clock};{word}>  ]iter: {number}  "
_MEANS, _BEGINS, _EVALUATED, _TOTALS, _FINALS = "means", "begins", "evaluated", "totals", "finals"
_PLANNED = "max_iters"
_LEFT_OUT = 2  # iterations at the start of a process that its timer does not count
_LAST_DIGIT_S = 0.5e-4  # of a printed mean


class _Detectron2(LineFormat):
    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        columns = (found.get(name, np.nan) for name in ("average_s", "data_s", "loss", "stamp_s"))
        eta = found.get("eta_s", np.nan) + found.get("eta_days", 0.0) * DAY_S
        records.keep(_MEANS, lines, found["number"] + 1, *columns, eta)

    def add_event(
        self, statement: Line, values: dict[str, float], stamp: float | None, number: int, records: Records
    ) -> bool:
        if statement is _FINAL:
            records.keep_row(_FINALS, number)
        at = int(values["iteration"]) + 1 if statement is _SAVED_AT else None
        records.events.append(Checkpoint(line=number, at=at, stamp_s=stamp))
        return True

    def finish(self, first_line: int, records: Records) -> None:
        line, number, mean, data, loss, stamp, eta = records.take_table(_MEANS, 7).T
        begins, evaluated, totals = (
            records.take_table(name, width) for name, width in ((_BEGINS, 3), (_EVALUATED, 3), (_TOTALS, 4))
        )
        finals = records.take_table(_FINALS, 1)[:, 0]
        by_clock = not (mean > 0).any()
        known = np.isfinite(number) & ((mean > 0) | (by_clock & np.isfinite(stamp)))
        known[known] = first_of_each(number[known], mean[known], loss[known], stamp[known])
        line, number, mean, data, loss, stamp, eta = (
            column[known] for column in (line, number, mean, data, loss, stamp, eta)
        )
        if not len(line):
            return
        of = np.searchsorted(begins[:, 0], line)
        ends = [*(np.flatnonzero((np.diff(of) > 0) | (np.diff(number) <= 0)) + 1).tolist(), len(line)]
        times = np.empty(len(line))
        end = 0
        while ends:
            begin, end = end, ends.pop(0)
            headed = of[begin] > (of[begin - 1] if begin else 0)
            start, began = begins[of[begin] - 1, 1:] if headed else (np.nan, np.nan)
            apart = number[begin + 1] - number[begin] if end > begin + 1 else number[begin]
            if begin and not headed:  # resumed from a checkpoint, one interval before its first line
                first = int(line[begin])
                facts = (each for each in reversed(records.events) if isinstance(each, Fact) and each.line < first)
                planned = next((each.value for each in facts if each.name == _PLANNED), None)
                carried = {_PLANNED: planned, "process": begin}
                records.events += [
                    Fact(first, name, value, header=True) for name, value in carried.items() if value is not None
                ]
                start = number[begin] - apart
            rows = slice(begin, end)
            anew = 0 if by_clock else _begun_anew(number[rows] - np.nan_to_num(start), mean[rows], stamp[rows])
            if anew:
                ends.insert(0, end)
                end = begin + anew
                rows = slice(begin, end)
            if end == begin + 1:
                records.events.append(
                    fact_of_single_row(line[begin], number[begin], number[begin] - np.nan_to_num(start))
                )
            elif headed and number[begin] > start:
                records.events.append(Fact(int(line[begin]), "first_covers", int(number[begin] - start)))
            others = [each.line for each in records.events if isinstance(each, Fact) and each.name == OTHER_PROGRAM]
            later = np.concatenate((begins[:, 0], others, line[end : end + 1], [np.inf]))
            over = float(later[later > line[end - 1]].min())
            ended = totals[(totals[:, 0] > line[end - 1]) & (totals[:, 0] < over)]
            if len(ended) and (np.isfinite(start) or number[begin] <= apart):  # an excerpt begins later
                whole_s = float(ended[0, 2] + np.nan_to_num(ended[0, 3]) * DAY_S)
                began = ended[0, 1] - whole_s
                records.events.append(Fact(int(line[end - 1]), "reported_s", whole_s))
            if ((finals > line[begin]) & (finals < over)).any():  # written at the last iteration, before its line
                records.events.append(Fact(int(line[end - 1]), _PLANNED, int(number[end - 1])))
            total = float(ended[0, 0]) if len(ended) else np.inf
            paused = _add_evaluations(records, evaluated, line[rows], number[rows], total, over)
            if by_clock:  # the first line of an excerpt has nothing before it
                spent = np.diff(stamp[rows], prepend=began) - paused
                times[rows] = spent / np.diff(number[rows], prepend=start)
            else:
                times[rows] = _times(number[rows] - np.nan_to_num(start), mean[rows], stamp[rows] - began)
            pace = times[rows] if by_clock else mean[rows]
            left = eta[rows] / pace
            left[~np.isfinite(left)] = np.nan
            none_due = np.isnan(left[-1]) or left[-1] < apart
            faults = (each.line for each in records.events if isinstance(each, Fault))
            failed = any(line[end - 1] < each < over for each in faults)
            done = len(ended) > 0 and none_due and not failed  # the total is printed after an error as well
            if done:
                records.events += [Fact(int(ended[0, 0]), name, True) for name in ("ended", OTHER_PROGRAM)]
            if not np.isnan(left).all():
                end_at = _end_of(number[rows], left, pace)
                if left[-1] < apart:  # no further line is due; older versions count the line's own iteration as left
                    end_at = 0 if done or left[-1] < 2 else round(number[end - 1] + left[-1])
                records.events.append(Fact(int(line[end - 1]), ESTIMATED_END, max(end_at, int(number[end - 1]))))
        timed = times > 0
        line, number, data, loss, stamp, times = (
            column[timed] for column in (line, number, data, loss, stamp, times)
        )  # fmt: skip
        records.add_rows(
            number=number.astype(np.int64), time_s=times, loss=loss, stamp_s=stamp, line=line.astype(np.int64)
        )
        records.keep(INSIDE, line, np.minimum(data, times), np.full(len(line), np.nan))


def _end_of(number: Floats, left: Floats, pace: Floats) -> int:
    """The end with the fewest digits that the etas allow; only etas near the end are used, as they err the least.

    They have whole seconds, and older versions count one iteration more.
    """
    near = left <= 2 * np.nanmin(left)
    value = float(np.median((number + left)[near]))
    # The largest error in 14 runs was 2 % of what is left: an eta uses a median of times, the line their mean.
    doubt = 0.02 * float(np.median(left[near])) + 1 + 1 / float(np.median(pace[near]))
    for digits in range(len(str(int(value))), -1, -1):
        end = int(round(value / 10**digits) * 10**digits)
        if abs(end - value) <= doubt:
            return end
    return round(value)


def _begun_anew(done: Floats, mean: Floats, stamp: Floats) -> int:
    """The first row after a pause from which the mean is not of all since the start (another process); 0 if none.

    The seconds in the mean never fall, and never grow by more than the clock shows. If the machine only slept they
    continue, and if the lines print another mean they are never right.
    """
    counted = np.maximum(done - _LEFT_OUT, 1.0)
    grown, elapsed = np.diff(mean * counted), np.diff(stamp)
    digits = _LAST_DIGIT_S * (counted[1:] + counted[:-1])
    broken = (grown < -digits) | (grown > elapsed + 1.0 + digits)  # the clock has whole seconds
    if not broken.any():
        return 0
    paused = np.flatnonzero(elapsed - np.diff(done) * mean[1:] > SLEEP_S)
    before = paused[paused <= int(np.argmax(broken))]
    return int(before[-1]) + 1 if len(before) else 0


def _times(done: Floats, mean: Floats, elapsed: Floats) -> Floats:
    """The time per iteration since the previous line; for the first line, since the start as the clock shows it."""
    counted = np.maximum(done - _LEFT_OUT, 1.0)
    clock = Clock(done.astype(np.int64), mean * counted, _LAST_DIGIT_S * counted, np.full(len(mean), np.nan), 0)
    times, _ = step_times(clock, [])
    times[0] = np.fmax(mean[0], elapsed[0] / max(done[0], 1.0))
    return np.where(times > 0, times, mean)


def _add_evaluations(
    records: Records, table: np.ndarray, line: Floats, number: Floats, total: float, over: float
) -> Floats:
    """Adds one evaluation between two lines, on any data sets: it belongs to the next line, and ends with its results.

    Returns the seconds of evaluations before each line.

    After the total it belongs to no line: detectron2 itself counts it one iteration later.
    """
    own = table[np.searchsorted(table[:, 0], line[0]) : np.searchsorted(table[:, 0], over)]
    before = np.searchsorted(line, own[:, 0]) - 1
    paused = np.zeros(len(line))
    for row in np.unique(before).tolist():
        lines = own[np.searchsorted(before, row) : np.searchsorted(before, row, side="right")]
        starts = lines[lines[:, 1] == 0]
        if len(starts):
            ends = lines[lines[:, 1] == 1]
            last = ends[np.searchsorted(ends[:, 0], np.append(starts[1:, 0], np.inf)) - 1] if len(ends) else starts
            ended = last[:, 0] > starts[:, 0]
            spent = (last[:, 2] - starts[:, 2])[ended]
            took = float(spent.sum()) if ended.any() and (spent >= 0).all() else None
            at = int(number[min(row + 1, len(number) - 1)]) + bool(starts[0, 0] > total)
            records.events.append(Evaluation(line=int(starts[0, 0]), at=at, took_s=took))
            paused[row + 1 : row + 2] = took or 0.0
    return paused


FORMAT = _Detectron2(
    name="detectron2",
    timing=Timing.SPANS_LOG_INTERVAL,
    iterations=(
        Line(
            _ROW,
            "time: {average_s:decimal} ",
            "data_time: {data_s:decimal} ",
            "total_loss: {loss}",
            needs=("average_s",),
        ),
        Line(_ROW, "total_loss: {loss}  {any}  max_mem: {int}M", needs=("loss",)),
    ),
    settings=(_BEGUN, _RANK, Line("<MAX_ITER;max_iter>: {max_iters:int}{end}")),
    tables=(
        Kept(_BEGINS, (_BEGUN, _RANK), ("start", "stamp_s")),
        Kept(_TOTALS, (_TOTAL,), ("stamp_s", "clock_s", "days")),
        Kept(_EVALUATED, (_INFERENCE,), (0.0, "stamp_s")),
        Kept(_EVALUATED, _RESULTS, (1.0, "stamp_s")),
    ),
    own=(_FINAL, _SAVED_AT, _SAVED),
    traits=Traits(shows_events=True, levers=DETECTRON2),
)
READER = FORMAT.reader()._replace(complete=with_inside)
