"""modded-nanogpt: a source listing at the top, and a clock that is stopped for validation.

Every line shows the whole time so far, so a step is the difference of two lines. Only validation waits for the card: if
the lines of steps run ahead of it, they show the time of the previous step, and are corrected. The versions of 2024
reset the clock after ten steps.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from stepwatch.patterns import Pattern
from stepwatch.readers.formats.running import at_lines
from stepwatch.readers.records import LARGEST_KEPT, LONGEST_TIME_S, Records, pieces, rows_where
from stepwatch.readers.text.block import Mask
from stepwatch.readers.text.line import Line, lines_with_marks
from stepwatch.readers.text.line_format import LineFormat
from stepwatch.run import Evaluation, Fact, Fault, Floats, Ints, Iterations, Levers, Timing, Traits, rows_from

CLOCKS_OF_VALIDATIONS, _PLANNED = "validation", "planned"
VALIDATION = Line(
    "step:{pad}{at}/{last}[ |] val_loss:{val_loss}[ |] {any}train_time:<{time_ms}ms;{time_s}s>[ |] step_avg:"
)
STEP = Line(
    "step:{pad}{number}/{last}[ |] [train_loss:{loss}[ |] ]train_time:<{time_ms}ms;{time_s}s>[ |] step_avg:{rest}"
)
_SIZES = Pattern(rb"(?m)^ {4}(batch_size|sequence_length|val_loss_every)(?: ?: ?int)? = ([\d* ]{1,40}?) *(?:#(.*))?$")
_SCHEDULES = Pattern(rb"window|TrainingStage|batch_size_schedule|bs_schedule")


class ModdedNanogptFormat(LineFormat):
    def add_events(self, statement: Line, lines: Ints, found: dict[str, Floats], records: Records) -> Mask:
        """A validation shows the last step and the clock when it began; one at step 0 begins a run."""
        if statement is not VALIDATION:
            return super().add_events(statement, lines, found, records)
        fits = (found["at"] <= LARGEST_KEPT) & (found["last"] <= LARGEST_KEPT)
        line, found = lines[fits], {name: column[fits] for name, column in found.items()}
        at, last = found["at"].astype(np.int64), found["last"].astype(np.int64)
        for row in np.flatnonzero(at == 0).tolist():
            records.events.append(Fact(line=int(line[row]), name="max_iters", value=int(last[row]), header=True))
        records.keep(_PLANNED, line[at > 0], at[at > 0], last[at > 0])  # the same in most lines: see finish()
        stamps = {"stamp_s": found["stamp_s"]} if "stamp_s" in found else {}
        records.add_events(Evaluation, line, at=at, val_loss=found["val_loss"], **stamps)
        clock = found["time_ms"] / 1e3 if "time_ms" in found else found["time_s"]
        timed = (clock >= 0) & (clock <= LONGEST_TIME_S)
        records.keep(CLOCKS_OF_VALIDATIONS, line[timed], at[timed], clock[timed])
        return fits

    def sniff(self, head: bytes) -> float:
        """Counts validations if there is nothing else, as in some of its logs."""
        return super().sniff(head) or float(sum(map(VALIDATION.fits, lines_with_marks(head, VALIDATION.marks))))

    def parse(self, text: bytes, first_line: int, records: Records) -> None:
        """Reads tokens per step, the validation interval and whether steps change their length from the listing."""
        super().parse(text, first_line, records)
        begin = text.find(b"class Hyperparameters")
        if begin < 0:
            return
        values: dict[str, int] = {}
        in_tokens = False
        for found in _SIZES.finditer(text, begin, begin + 4000):
            values[found[1].decode()] = math.prod(int(factor) for factor in found[2].split(b"*") if factor.strip())
            in_tokens |= found[1] == b"batch_size" and b"tokens" in (found[3] or b"")
        stated: dict[str, float] = {"schedules": _SCHEDULES.search(text) is not None}
        length = 1 if in_tokens else values.get("sequence_length", 0)
        if values.get("batch_size", 0) * length > 0:
            stated["tokens_per_iter"] = float(values["batch_size"] * length)
        if values.get("val_loss_every", 0) > 0:
            stated["eval_interval"] = float(values["val_loss_every"])
        line = first_line + text.count(b"\n", 0, begin)
        records.events += [Fact(line=line, name=name, value=value) for name, value in stated.items()]

    def finish(self, first_line: int, records: Records) -> None:
        super().finish(first_line, records)
        line, at, last = records.take_table(_PLANNED, 3).astype(np.int64).T
        new = np.flatnonzero((np.diff(at, prepend=0) <= 0) | (np.diff(last, prepend=-1) != 0)).tolist()
        records.events += [Fact(line=int(line[row]), name="max_iters", value=int(last[row])) for row in new]
        rows = records.iterations()
        # The listing contains the same words; and an error that it handles has not happened.
        source = {unread.line for unread in records.unread if "{" in unread.text}
        records.unread = [unread for unread in records.unread if unread.line not in source]
        records.unread_lines = [line for line in records.unread_lines if line not in source]
        first = rows.line.min() if len(rows.line) else np.iinfo(np.int64).max
        records.events = [event for event in records.events if not (isinstance(event, Fault) and event.line < first)]
        clocks = _Clocks.of(rows, records.take_table(CLOCKS_OF_VALIDATIONS, 3))
        known, losses, moments = rows.line, rows.loss, rows.stamp_s
        del rows  # there may be millions of rows
        for columns in records.columns.values():
            columns.clear()
        timed = [_timed(clocks.take(begin, end)) for begin, end in pairwise(clocks.edges()) if end > begin]
        if not timed:
            return
        del clocks
        # The rows with times instead of clocks, each with the loss of its line.
        lines, numbers, times = timed[0] if len(timed) == 1 else map(np.concatenate, zip(*timed, strict=True))
        loss, stamps = (at_lines(lines, known, column) for column in (losses, moments))
        records.add_rows(number=numbers, line=lines, time_s=times, loss=loss, stamp_s=stamps)
        for line, number, _ in timed:
            if len(line) == 1 and number[0] > 1:  # only the mean since the start
                records.events.append(Fact(line=int(line[0]), name="mean_of_run", value=True))


# --- from the clock to times ----------------------------------------------------------------------------------------


class _Clocks:
    """What the clock showed, line by line; `waited` is true if the card had been waited for."""

    def __init__(self, line: Ints, number: Ints, shown_s: Floats, waited: np.ndarray) -> None:
        self.line, self.number, self.shown_s, self.waited = line, number, shown_s, waited

    @classmethod
    def of(cls, rows: Iterations, validations: np.ndarray) -> _Clocks:
        places = rows_from(rows.line, validations[:, 0])
        line, number, shown = (
            np.insert(own, places, stated)
            for own, stated in zip((rows.line, rows.number, rows.time_s), validations.T, strict=True)
        )
        return cls(line, number, shown, np.insert(np.zeros(len(rows), bool), places, True))

    def take(self, begin: int, end: int) -> _Clocks:
        part = slice(begin, end)
        return _Clocks(self.line[part], self.number[part], self.shown_s[part], self.waited[part])

    def edges(self) -> list[int]:
        """Where the numbers fall: another run, or an excerpt."""
        return [0, *(np.flatnonzero(self.number[1:] < self.number[:-1]) + 1).tolist(), len(self.number)]


def _timed(clocks: _Clocks) -> tuple[Ints, Ints, Floats]:
    """Line, number and time of each step or group of steps; one whose beginning is unknown is left out.

    Overwrites the clocks: there may be millions.
    """
    # As if the clock had never been reset; after a reset it begins with the step of the next line. A step line and a
    # validation line may show the same moment a digit apart, which is not a reset.
    shown, begun = clocks.shown_s, float(clocks.shown_s[0])
    anew = 1 + rows_where(lambda before, after: after < 0.5 * before, shown[:-1], shown[1:])
    since = shown[anew]
    _to_differences(shown)
    np.maximum(shown, 0.0, out=shown)
    shown[anew] = since
    shown[0] = 0.0
    np.cumsum(shown, out=shown)
    shown += begun
    again = 1 + rows_where(np.equal, clocks.number[:-1], clocks.number[1:])  # numbers do not fall
    first = np.delete(np.arange(len(shown)), again) if len(again) else slice(0, len(shown))
    number, line, printed = clocks.number[first], clocks.line[first], shown[first]
    # When the card had done the steps up to each number: as validation shows it, else by the lines of steps.
    waited = np.flatnonzero(clocks.waited)
    if isinstance(first, slice):
        of_waited = np.minimum(waited, len(number) - 1)
    else:
        of_waited = np.searchsorted(first, waited, side="right") - 1
    last = np.append(of_waited[1:] != of_waited[:-1], True)[: len(waited)]
    at, done = of_waited[last], shown[waited[last]]
    after = at > 0
    steps_s = printed[at[after]] - printed[at[after] - 1]
    late = (done - printed[at])[after] / np.maximum(steps_s, 1e-9)
    late = late[number[at[after]] - number[at[after] - 1] == 1]
    # A step line is printed before the card has done the step, up to a whole step ahead.
    ahead = min(max(float(np.median(late)), 0.0), 1.0) if len(late) else 0.0
    ended = np.append(printed[1:], 2 * printed[-1] - printed[max(len(printed) - 2, 0)])
    ended -= printed
    ended *= ahead
    if ahead and number[0] == 0:
        # Lines run ahead from the first that comes after less than half a step; before it, the card was waited for.
        usual = float(np.median(np.diff(printed), overwrite_input=True)) if len(printed) > 1 else 0.0
        fast = np.flatnonzero(np.diff(printed[:10]) < 0.5 * usual)  # among the steps that were not counted in 2024
        ended[: int(fast[0]) + 1 if len(fast) else 0] = 0.0
    ended += printed
    ended[at] = done
    interval = int(number[1] - number[0]) if len(number) > 1 else int(number[0])
    if 0 < number[0] == interval:  # the first of all; a single line only shows the mean since the start
        line, number, ended = np.append(line[:1], line), np.append(0, number), np.append(0.0, ended)
    _to_differences(ended)
    times = ended[1:]
    times /= np.diff(number)
    return line[1:], number[1:], np.maximum(times, 0.0, out=times)


def _to_differences(column: Floats) -> None:
    """Replaces each value but the first by its difference from the previous one, in place."""
    for rows in reversed([*pieces(len(column) - 1)]):
        column[rows.start + 1 : rows.stop + 1] -= column[rows].copy()


FORMAT = ModdedNanogptFormat(
    name="modded-nanogpt",
    timing=Timing.CUMULATIVE,
    iterations=(STEP,),
    settings=(
        Line("{any}compiled for CUDA {decimal} on {gpu_text} with world_size {world_size}"),
        Line("Device: {gpu_text} |"),
        Line("Config: {any}batch_size={tokens_per_iter} tokens"),
        Line("{any}grad_accum_steps={gradient_accumulation_steps}{end}"),
        Line("stopping_early: ", sets={"ended": "by plan"}),
    ),
    own=(VALIDATION,),
    traits=Traits(schedules=True, shows_events=True, levers=Levers(evaluate_every="val_loss_every")),
)
READER = FORMAT.reader()
