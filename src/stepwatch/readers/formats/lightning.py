"""PyTorch Lightning: its progress bars, and metrics.csv of its CSVLogger (lightning_csv.py).

A bar counts the batches of one epoch, not optimizer steps, and its rate is the mean since the epoch began, including
validation. The seconds since then are batches divided by the rate; validation has a separate bar, and is subtracted.
Before version 2, the bar of the epoch also counted the batches of the validation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stepwatch.patterns import Pattern
from stepwatch.readers.formats import lightning_csv
from stepwatch.readers.formats.running import (
    WHOLE_SECONDS,
    EpochClocks,
    as_slice,
    at_lines,
    first_occurrences,
    groups,
    lap_times,
)
from stepwatch.readers.levers import LIGHTNING
from stepwatch.readers.records import OTHER_PROGRAM, Records, pieces, rows_of
from stepwatch.readers.text.block import Mask
from stepwatch.readers.text.line import Line, lines_with_marks
from stepwatch.readers.text.line_format import LineFormat
from stepwatch.run import Checkpoint, Evaluation, Fact, Floats, Ints, Timing, Traits, repeated

_COUNTS = (
    r"[{pad}{int}%][[ ]|{bar}|][ ]{number}</{last};/?;it> \[{elapsed:clock}[\<{eta}],{pad}"
    "<{s_per_it:decimal}s/it;{it_per_s:decimal}it/s;?it/s>"
)
_LOSSES = (
    " loss=", "train_loss_step=", "train_loss=", "train/loss_step=", "train/loss=", "loss_step=",
    "{pad}loss=",  # of any name
)  # fmt: skip
_BAR = Line("Epoch {epoch:int}:" + _COUNTS, *(f"{name}{{loss_{place}:float}}" for place, name in enumerate(_LOSSES)))
_RICH_COUNTS = "  {word}  {number}/<{last};-->  {elapsed:clock}  •  {word}  {it_per_s:decimal}it/s"
_RICH = Line("{any}Epoch {epoch:int}/{end_epoch:decimal}" + _RICH_COUNTS)
_VALIDATIONS = (
    Line("Validation[ DataLoader {int}]:" + _COUNTS),
    Line("Validating[ DataLoader {int}]:" + _COUNTS),
    Line("Validation[ DataLoader {int}]" + _RICH_COUNTS),
)
_OWN_SIGNS = Pattern(
    rb"v_num|[Ll]ightning|Trainer\.fit|Sanity Check|GPU available: |LOCAL_RANK: |Validat\w+ DataLoader|\xe2\x80\xa2"
)
_LITTLE = 0.05  # of the time: what the digits of a rate may hide
EPOCHS = "epochs"
_STOPPED = b"Trainer.fit` stopped: "


class LightningFormat(LineFormat):
    def sniff(self, head: bytes) -> float:
        """Any loop may title its bars like this: other loops count from 1, or show tqdm's smoothed rate."""
        hits = super().sniff(head)
        return 0.0 if hits and _is_another_loop(head) else hits or lightning_csv.sniff(head)

    def parse(self, text: bytes, first_line: int, records: Records) -> None:
        if records.kept or (first_line == 0 and lightning_csv.sniff(text)):
            lightning_csv.parse(text, first_line, records)
            return
        at = text.find(_STOPPED)  # it may come after a bar
        while at >= 0:
            line = first_line + text.count(b"\n", 0, at)
            records.events += [Fact(line, "stopped", True), Fact(line, OTHER_PROGRAM, True)]
            at = text.find(_STOPPED, at + 1)
        super().parse(text, first_line, records)

    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        columns = (found["number"], found.get("last", 0.0), found["elapsed"], *_rate(found))
        records.keep("bar", lines, found["epoch"], *columns)
        loss = next((found[f"loss_{place}"] for place in range(len(_LOSSES)) if f"loss_{place}" in found), None)
        if loss is not None:
            records.keep("loss", lines, np.where(np.isnan(loss), np.inf, loss))
        if "end_epoch" in found:
            counted = found["end_epoch"] >= 0  # it is -2 without an end
            records.keep(EPOCHS, lines[counted], found["end_epoch"][counted] + 1)

    def add_events(self, statement: Line, lines: Ints, found: dict[str, Floats], records: Records) -> Mask:
        if statement not in _VALIDATIONS:
            return super().add_events(statement, lines, found, records)
        records.keep("val", lines, found["number"], found.get("last", 0.0), found["elapsed"], *_rate(found))
        return np.ones(len(lines), bool)

    def finish(self, first_line: int, records: Records) -> None:
        if records.kept:
            lightning_csv.finish(records)
        else:
            BarRows(records).add()


def _is_another_loop(head: bytes) -> bool:
    if _OWN_SIGNS.search(head):
        return False
    lines = lines_with_marks(head, _BAR.marks, prefixes=False)
    found = [bar.values() for line in lines if (bar := _BAR.find(line)) is not None]
    if found and found[0]["epoch"] > 0:
        return True
    means = [
        abs(bar["number"] * bar.get("s_per_it", 1 / max(bar.get("it_per_s", 0), 1e-9)) - bar["elapsed"] - WHOLE_SECONDS)
        <= 1 + _LITTLE * bar["elapsed"]
        for bar in found
        if 0 < bar["number"] < bar.get("last", 0)
    ]
    return 2 * sum(means) < len(means)


def _rate(found: dict[str, Floats]) -> tuple[Floats, Floats]:
    """Seconds per batch, and the figure as printed: its last digit shows how precise it is."""
    if "s_per_it" in found:
        return found["s_per_it"], found["s_per_it"]
    printed = found.get("it_per_s", np.full(len(found["number"]), np.nan))
    return 1 / np.maximum(printed, 1e-9), printed


def _since_start(position: Floats, elapsed: Floats, rate: Floats, digits: Floats) -> tuple[Floats, Floats]:
    """Seconds since the bar began, and their error: batches divided by the rate, if that is more precise."""
    with np.errstate(divide="ignore", invalid="ignore"):
        fine = position * rate
        error = fine * 0.005 / np.maximum(digits, 1e-9)
    use = np.isfinite(fine) & (np.abs(fine - elapsed - WHOLE_SECONDS) <= 1.0 + error) & (error < WHOLE_SECONDS)
    return np.where(use, fine, elapsed), np.where(use, np.maximum(error, 1e-6), WHOLE_SECONDS)


class _Epochs(NamedTuple):
    """The drawings of all bars, grouped by epoch; a run that is restarted has separate epochs."""

    begins: Ints
    ends: Ints
    of: Ints
    """The epoch of each drawing, counted from 0."""
    number: np.ndarray
    """The printed number of each epoch."""

    @classmethod
    def between(cls, turns: np.ndarray, printed: np.ndarray) -> _Epochs:
        edges = np.concatenate(([0], np.flatnonzero(turns) + 1, [len(turns) + 1]))
        of: Any = repeated(np.arange(len(edges) - 1, dtype=np.int32), np.diff(edges))
        return cls(edges[:-1], edges[1:], of, printed[edges[:-1]].astype(np.int64))


class _Passes(NamedTuple):
    """Each pass of a validation bar."""

    begin: Floats
    end: Floats
    batches: Floats
    took_s: Floats


class BarRows:
    """Rows and evaluations from everything that was kept. Epochs may be many and short: all are processed together."""

    def __init__(self, records: Records) -> None:
        self.records = records
        columns = records.take_columns("bar", 7)
        columns = rows_of(columns, np.logical_and.reduce([*map(np.isfinite, columns[1:4])]))
        self.line, epoch, self.drawn, self.total, elapsed, rate, digits = columns
        unknown = self.total == 0
        if unknown.any():  # as long as the longest epoch seen
            self.total = np.where(unknown, self.drawn[unknown].max(), self.total)
        length = len(self.line)
        self.seconds, self.errors, self.since_zero = np.empty(length), np.empty(length), np.empty(length, bool)
        for rows in pieces(length):
            self.seconds[rows], self.errors[rows] = _since_start(
                self.drawn[rows], elapsed[rows], rate[rows], digits[rows]
            )
            # A bar that resumes in the middle of an epoch has a rate that covers only what it drew itself.
            apart = np.abs(self.drawn[rows] * rate[rows] - elapsed[rows] - WHOLE_SECONDS)
            self.since_zero[rows] = apart <= 1 + _LITTLE * elapsed[rows]
        again = (np.diff(elapsed) < -1) & (np.diff(self.drawn) <= 0)
        self.epochs = _Epochs.between((np.diff(epoch) != 0) | again, epoch) if length else None
        del columns, epoch, elapsed, rate, digits  # there may be millions of drawings
        self.losses = at_lines(self.line, *records.take_columns("loss", 2))
        line, drawn, batches, *clocks = records.take_columns("val", 6)
        edges = np.concatenate(([0], np.flatnonzero(np.diff(drawn) < 0) + 1, [len(line)]))
        first, last = edges[:-1][: len(line)], edges[1:][: len(line)] - 1
        seconds, _ = _since_start(drawn[last], *(column[last] for column in clocks))
        self.passes = _Passes(line[first], line[last], batches[first], seconds)

    def add(self) -> None:
        epochs = self.epochs
        if epochs is None:
            return
        in_epoch = np.searchsorted(self.line[epochs.begins], self.passes.begin, side="right") - 1
        batches, kept = self._training_batches(epochs, in_epoch)
        rows = np.flatnonzero(kept & (batches > 0))
        del kept
        some = as_slice(rows)
        rows = rows[first_occurrences(self._positions(batches)[some])]
        if len(rows):
            most = np.maximum.reduceat(self.drawn - batches, epochs.begins) if batches is not self.drawn else 0
            per_epoch = self.total[epochs.ends - 1] - most
            losses = self.losses
            if len(rows) < len(losses):  # the bar gets its loss after its position: take each position's last drawing
                rises = np.diff(np.maximum.accumulate(self._positions(self.drawn))) > 0
                last = np.append(np.flatnonzero(rises), len(rises))
                losses = losses[last[np.searchsorted(last, rows)]]
            number = batches[as_slice(rows)].astype(np.int64)
            del batches
            self._add_rows(epochs, in_epoch, rows, number, per_epoch, losses)
        whole = self.records.iterations()
        saves = [event for event in self.records.unplaced_events() if isinstance(event, Checkpoint)]
        places = np.searchsorted(whole.line, [save.line for save in saves]) - 1
        numbers = whole.number[np.maximum(places, 0)].tolist() if len(whole) else []
        placed = zip(saves, numbers, (places >= 0).tolist(), strict=False)
        # Same as save._replace(at=at), which takes four times as long; there may be as many saves as epochs.
        self.records.events += [
            tuple.__new__(Checkpoint, (save[0], at, *save[2:])) for save, at, known in placed if known
        ]
        self.records.unplaced.clear()
        # A run that says that it stopped has reached its last batch.
        if len(whole) and any(isinstance(event, Fact) and event.name == "stopped" for event in self.records.events):
            self.records.events.append(Fact(line=int(whole.line[-1]), name="max_iters", value=int(whole.number[-1])))

    def _positions(self, batches: np.ndarray, part: slice = slice(None)) -> Ints:
        """Numbers that rise from epoch to epoch."""
        assert self.epochs is not None
        positions = self.epochs.of[part].astype(np.int64)
        positions *= int(self.drawn.max()) + 1
        positions += batches[part].astype(np.int64)
        return positions

    def _add_rows(
        self, epochs: _Epochs, in_epoch: Ints, rows: Ints, number: Ints, per_epoch: Floats, losses: Floats
    ) -> None:
        some = as_slice(rows)
        begins = np.flatnonzero(np.diff(epochs.of[some], prepend=-1))
        own = epochs.of[rows[begins]]  # there may be epochs without a row
        single = np.diff(begins, append=len(rows)) == 1
        first, second = number[begins], number[np.minimum(begins + 1, len(rows) - 1)]
        drawn_zero = np.minimum.reduceat(self.drawn, epochs.begins)[own] == 0
        # Only the first epoch of a log may be cut off, and only if no lines of a start precede it.
        above = any(isinstance(event, Fact) and event.line < self.line[0] for event in self.records.events)
        whole = self.since_zero[rows[begins]] & ((own > 0) | above)
        from_start = drawn_zero | (first <= 1) | single | (first <= second - first) | whole
        laps = EpochClocks(number, self.seconds[some], self.errors[some], begins, np.where(from_start, first, 0))
        evaluated, paused, took_s = self._evaluations(epochs, in_epoch, rows, own, begins)
        times = lap_times(laps, paused, took_s)
        epoch = epochs.number
        number = number + repeated((epoch[own] * per_epoch[own]).astype(np.int64), laps.lengths)
        lines = self.line[some] if self.line.dtype.kind == "i" else self.line[some].astype(np.int64)
        self.records.add_rows(number=number, time_s=np.maximum(times, 1e-6, out=times), loss=losses, line=lines)
        self.records.add_events(Evaluation, evaluated.astype(np.int64), at=number[paused], took_s=took_s)
        fell = np.concatenate(([True], np.diff(epoch) < 0))[own]
        begun = fell & from_start & ((epoch[own] == 0) | ~single | (own > 0))
        self._add_facts(lines[begins], begun, laps, np.where(single & (first > 1), first, 0))
        runs = np.flatnonzero(begun | (np.arange(len(begun)) == 0))
        # The rich bar counts epochs as well as batches.
        ends = at_lines(lines[begins[runs]], *self.records.table_columns(EPOCHS, 2))
        for run in np.flatnonzero(ends > 0).tolist():
            length = int(ends[run] * per_epoch[own[runs[run]]])
            self.records.events.append(Fact(line=int(lines[begins[runs[run]]]), name="max_iters", value=length))
        alone = begun[runs] & (np.diff(runs, append=len(begun)) == 1) & (single & (first > 1) & (epoch[own] == 0))[runs]
        for line in lines[begins[runs[alone]]].tolist():  # only the total time is known
            self.records.events.append(Fact(line=line, name="mean_of_run", value=True))

    def _add_facts(self, lines: Ints, begun: np.ndarray, laps: EpochClocks, interval: Ints) -> None:
        """Adds each fact where a process begins, and where its value differs from the epoch before."""
        events = self.records.events
        events += [Fact(line=line, name="process", value=line, header=True) for line in lines[begun].tolist()]
        known = begun & (laps.done > 0)
        first = zip(lines[known].tolist(), laps.done[known].tolist(), strict=True)
        events += [Fact(line=line, name="first_covers", value=done) for line, done in first]
        averaged = np.maximum.reduceat(laps.covers, laps.begins) > 1
        for name, values in (("averaged", averaged), ("log_interval", interval)):
            other = np.flatnonzero(values.astype(bool) & (begun | (np.diff(values.astype(int), prepend=0) != 0)))
            events += [Fact(line=int(lines[i]), name=name, value=values[i].item()) for i in other.tolist()]

    def _training_batches(self, epochs: _Epochs, in_epoch: Ints) -> tuple[Floats, np.ndarray]:
        """The batches trained at each drawing of the bar, and which drawings are of training."""
        batches, kept = self.drawn, np.ones(len(self.drawn), bool)
        since = np.searchsorted(self.line, self.passes.begin, side="right")
        until = np.minimum(np.searchsorted(self.line, self.passes.end, side="right"), epochs.ends[in_epoch])
        for each in np.flatnonzero((since < until) & (in_epoch >= 0)).tolist():
            begin, middle, end = epochs.begins[in_epoch[each]], since[each], epochs.ends[in_epoch[each]]
            above = self.drawn[begin:middle].max(initial=-1)
            if above < 0 or self.drawn[middle : until[each]].max() <= above:
                continue  # this bar counts training only
            if batches is self.drawn:
                batches = self.drawn.astype(np.float64)
            drawn, validated = self.drawn[middle:end], self.passes.batches[each]
            validation = (drawn > above) & (drawn <= above + validated)
            kept[middle:end][validation] = False
            batches[middle:end] -= np.where(validation, drawn - above, np.where(drawn > above, validated, 0))
        return batches, kept

    def _evaluations(
        self, epochs: _Epochs, in_epoch: Ints, rows: Ints, own: Ints, begins: Ints
    ) -> tuple[Floats, Ints, Floats]:
        """Lines, rows and costs: of the validation's own bars, or where the bar of the epoch paused at its end."""
        first_row = np.full(len(epochs.begins), -1)
        first_row[own] = begins
        known = (in_epoch >= 0) & (first_row[in_epoch] >= 0)
        place = np.searchsorted(self.line[rows], self.passes.begin[known]) - 1
        place = np.maximum(place, first_row[in_epoch[known]])
        paused, first_pass, of_row = np.unique(place, return_index=True, return_inverse=True)
        line, took_s = self.passes.begin[known][first_pass], np.zeros(len(paused))
        np.add.at(took_s, of_row, self.passes.took_s[known])
        first_row[in_epoch[known]] = -1  # those with a separate bar are done
        found = [(line, paused, took_s)]
        # The bar of the epoch pauses during validation; its clock includes what the validation's own bar does not show.
        for part in groups(epochs.begins, len(epochs.of)):
            first, end = np.searchsorted(rows, (part.start, part.stop)).tolist()
            drawings = rows[first:end]
            last_drawing, longest = self._levels(part, drawings)
            still, seconds = longest - self.seconds[drawings], self.seconds[drawings]
            ends = self.line[last_drawing]
            some = slice(*np.searchsorted(paused, (first, end)).tolist())
            at = paused[some] - first
            longer = (ends[at] > line[some]) & (still[at] > took_s[some] + 2 * self.errors[drawings[at]])
            took_s[some][longer] = still[at][longer]
            long = still > np.maximum(0.1, 0.03 * seconds)  # a shorter pause is not a validation
            whole = (self.drawn[drawings] == self.total[drawings]) & (first_row[epochs.of[drawings]] >= 0)
            at = np.flatnonzero(long & whole)
            found.append((ends[at], first + at, still[at]))
        lines, of_rows, costs = map(np.concatenate, zip(*found, strict=True))
        return lines, of_rows, costs

    def _levels(self, part: slice, drawings: Ints) -> tuple[Ints, Floats]:
        """For some drawings of whole epochs: the last drawing at the same position, and the latest clock there."""
        position = np.maximum.accumulate(self._positions(self.drawn, part))
        begins = np.flatnonzero(np.diff(position, prepend=-1))
        level = np.searchsorted(begins, drawings - part.start, side="right") - 1
        longest = np.maximum.reduceat(self.seconds[part], begins)
        return part.start + np.append(begins[1:], len(position))[level] - 1, longest[level]


FORMAT = LightningFormat(
    name="lightning",
    timing=Timing.SPANS_ITERATION,
    traits=Traits(may_evaluate=True, levers=LIGHTNING),
    iterations=(_BAR, _RICH),
    checkpoints=(Line("Epoch {int}, global step {int}: {any}saving model to "),),
    settings=(
        Line("{any}You are using a CUDA device ('{gpu_text:quoted}')"),
        Line("{n_params:amount}  Total params"),
        Line("{any}Starting with {world_size} processes"),
        Line("{any}global step {global_step:int}:"),
        Line("{any}Signaling Trainer to stop", sets={"ended": "by plan"}),  # at max_time, or without progress
    ),
    own=_VALIDATIONS,
    events_first=False,
)
READER = FORMAT.reader()
