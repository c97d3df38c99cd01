"""PyTorch Lightning: its progress bars, and metrics.csv of its CSVLogger (lightning_csv.py).

A bar counts the batches of one epoch, not optimizer steps, and its rate is the mean since the epoch began, validation
included. The seconds since then are the batches by the rate; validation has a bar of its own, and is taken out. Before
version 2 the bar of the epoch counted the batches of the validation as well.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers import lightning_csv
from stepwatch.readers.columns import Block, Template, numbers_after
from stepwatch.readers.lines import NUMBER, LineFormat, Told
from stepwatch.readers.reader import NOTHING
from stepwatch.readers.records import Records
from stepwatch.readers.running import WHOLE_SECONDS, Clock, Pause, at_lines, first_draws, step_times
from stepwatch.run import Checkpoint, Evaluation, Fact, Floats, Ints, Timing

_COUNTS = (
    r"\s*\d{1,3}%(?:\|[^|\n]{0,400}\|)? ?(?P<number>\d{1,12})/(?P<last>\d{1,12}) "
    rf"\[(?P<elapsed>[\d:]{{4,12}})<[\d:?]{{1,12}}, *(?:(?P<s_per_it>{NUMBER})s/it|(?P<it_per_s>{NUMBER}|\?)it/s)"
)
_RICH = (
    r"Epoch (?P<rich>\d{1,9})/\d{1,9}\s+[━╸╺ ]{1,400}\s(?P<rich_number>\d{1,12})/(?P<rich_last>\d{1,12})\s+"
    rf"(?P<rich_elapsed>\d+:\d\d:\d\d)\s+•\s+\S{{1,20}}\s+(?P<rich_per_s>{NUMBER})it/s"
)
_VALIDATION = Pattern(rf"(?:Validation|Validating)(?: DataLoader \d{{1,6}})?:{_COUNTS}")
_VALIDATION_WORDS = (b"Validation", b"Validating")
_LOSSES = (b" loss=", b"train_loss_step=", b"train_loss=", b"train/loss_step=", b"train/loss=", b"loss_step=", b"loss=")
_VALUES = Pattern(r"(?<==)(?P<value>[^\s,\]{}]+)(?P<after>[^\s{}]*)")
_SOME_LINES = 40
_COUNTED = "{%}|{|}{number}/{last} [{elapsed:}<{*}{ }{rate/}"
_BAR = f"Epoch {{epoch}}:{_COUNTED}"
_VALIDATION_BARS = tuple(
    Template(f"{title}:{_COUNTED}{{**}}") for title in ("Validation DataLoader {_loader}", "Validation", "Validating")
)
_STOPPED = b"Trainer.fit` stopped: "
_SMALLEST_VALIDATION_S, _SMALLEST_VALIDATION = 0.1, 0.03


@dataclass(frozen=True, kw_only=True)
class LightningFormat(LineFormat):
    def sniff(self, head: bytes) -> float:
        return super().sniff(head) or lightning_csv.sniff(head)

    def parse(self, text: bytes, first_line: int, records: Records) -> None:
        if records.held or (first_line == 0 and lightning_csv.sniff(text)):
            records.held += text
            return
        if b"`" in text and _STOPPED in text:  # one byte is found faster
            records.keep_row("stopped", first_line + text.count(b"\n", 0, text.find(_STOPPED)))
        super().parse(text, first_line, records)

    def _read_by_column(
        self, text: bytes, block: Block, stamps: Floats | None, left: Ints, first_line: int, records: Records
    ) -> Ints:
        """The bars, and the loss in them, wherever it stands among what the user shows there."""
        literal, tail = self._shown(text, block, left)
        lines, found = Template(_BAR + tail).match(block, left)
        self._add_columns(records, lines + first_line, found)
        rest = block.without(left, lines)
        others = block.letters(text, rest)
        wanted = next((each for each in _LOSSES if each == literal or each in others), None)
        if wanted is not None and wanted == literal and len(lines):
            records.keep("loss", lines + first_line, found["loss"])
            rows, losses = numbers_after(Block.of(others), others, wanted)
            records.keep("loss", rest[rows] + first_line, losses)
        elif wanted is not None:
            rows, losses = numbers_after(block, text, wanted)
            records.keep("loss", rows + first_line, losses)
        lines, found = Template(_BAR + "{**}").match(block, rest)
        self._add_columns(records, lines + first_line, found)
        return self._read_validations(block, block.without(rest, lines), first_line, records)

    def _read_validations(self, block: Block, left: Ints, first_line: int, records: Records) -> Ints:
        for template in _VALIDATION_BARS:
            lines, found = template.match(block, left)
            if len(lines):
                columns = (found[name] for name in ("number", "last", "elapsed", "rate", "digits"))
                records.keep("val", lines + first_line, *columns)
                left = block.without(left, lines)
        return left

    def _shown(self, text: bytes, block: Block, lines: Ints) -> tuple[bytes, str]:
        """What a bar in the middle of the block shows behind its rate: the letters of its loss, and its shape."""
        for line in lines[len(lines) // 2 :][:_SOME_LINES].tolist():
            found = self.iteration.match(text[block.starts[line] : block.ends[line]].decode("utf-8", "replace"))
            if found is not None and "=" in found.string[found.end() :]:
                return _learned(found.string[found.end() :])
        return b"", "]"

    def _add_columns(self, records: Records, lines: np.ndarray, found: dict[str, np.ndarray]) -> None:
        if len(lines):
            columns = (found[name] for name in ("epoch", "number", "last", "elapsed", "rate", "digits"))
            records.keep("bar", lines, *columns)

    def _add_row(self, groups: Mapping[str, str | None], prefix: str, number: int, records: Records) -> bool:
        rich = groups["rich"] is not None
        names = ("rich", "rich_number", "rich_last") if rich else ("epoch", "number", "last")
        epoch, position, last = (float(groups[name] or 0) for name in names)
        elapsed = _clock(groups["rich_elapsed" if rich else "elapsed"] or "")
        rate, digits = _rate(groups, "rich_per_s" if rich else "it_per_s")
        records.keep_row("bar", number, epoch, position, last, elapsed, rate, digits)
        return True

    def _read_event(self, rest: str, prefix: str, number: int, records: Records) -> bool:
        found = _VALIDATION.match(rest)
        if found is not None:
            groups = found.groupdict()
            position, last, (rate, digits) = float(found["number"]), float(found["last"]), _rate(groups, "it_per_s")
            records.keep_row("val", number, position, last, _clock(found["elapsed"]), rate, digits)
            return True
        return super()._read_event(rest, prefix, number, records)

    def finish(self, first_line: int, records: Records) -> None:
        if records.held:
            text, records.held = records.held, b""
            lightning_csv.tell(text, records)
        else:
            _BarRows(records).tell()


def _learned(shown: str) -> tuple[bytes, str]:
    literal = next((each for each in _LOSSES if each.decode() in shown), b"")
    place = shown.find(literal.decode()) + len(literal) if literal else -1
    shape, begin = "", 0
    for value in _VALUES.finditer(shown):
        field = "{loss+?}" + value["after"] if value.start("value") == place else "{*}"
        shape += shown[begin : value.start("value")].replace("{", "{{") + field
        begin = value.end()
    return literal, shape + shown[begin:].replace("{", "{{")


def _clock(text: str) -> float:
    seconds = 0.0
    for part in text.split(":"):
        seconds = seconds * 60 + float(part or 0)
    return seconds


def _rate(groups: Mapping[str, str | None], per_s: str) -> tuple[float, float]:
    """Seconds of a batch, and the figure as printed: its last digit tells how exact it is."""
    slow, fast = groups.get("s_per_it"), groups.get(per_s)
    if slow:
        return float(slow.replace(",", "")), float(slow.replace(",", ""))
    if fast and fast != "?":
        return 1 / max(float(fast.replace(",", "")), 1e-9), float(fast.replace(",", ""))
    return math.nan, math.nan


def _since_start(position: Floats, elapsed: Floats, rate: Floats, digits: Floats) -> tuple[Floats, Floats]:
    """Seconds since the bar began and how far off they may be: batches by rate, where its digits tell more."""
    with np.errstate(divide="ignore", invalid="ignore"):
        fine = position * rate
        error = fine * 0.005 / np.maximum(digits, 1e-9)
    use = np.isfinite(fine) & (np.abs(fine - elapsed - WHOLE_SECONDS) <= 1.0 + error) & (error < WHOLE_SECONDS)
    return np.where(use, fine, elapsed), np.where(use, np.maximum(error, 1e-6), WHOLE_SECONDS)


class _BarRows:
    """Rows and evaluations from everything that was kept."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.bars = records.table("bar", 7)
        self.seconds, self.errors = _since_start(*(self.bars[:, column] for column in (2, 4, 5, 6)))
        losses = records.table("loss", 2)
        self.losses = at_lines(self.bars[:, 0], losses[:, 0], losses[:, 1])
        self.passes = _passes(records.table("val", 6))
        self.begins = [each.begin for each in self.passes]

    def tell(self) -> None:
        bars = self.bars
        if not len(bars):
            return
        turns = (np.diff(bars[:, 1]) != 0) | ((np.diff(bars[:, 4]) < -1) & (np.diff(bars[:, 2]) <= 0))
        edges = np.concatenate(([0], np.flatnonzero(turns) + 1, [len(bars)]))
        lasting = np.arange(len(edges) - 1)
        if not self.passes:
            more = (np.diff(edges) > 1) | (bars[edges[:-1], 2] == 0)
            lasting = np.flatnonzero(more)
            self._tell_ends(edges[:-1][~more])
        for place in lasting.tolist():
            begin, end = int(edges[place]), int(edges[place + 1])
            until = float(bars[end, 0]) if end < len(bars) else math.inf
            first = place == 0 or bool(bars[begin, 1] < bars[begin - 1, 1])
            self._tell_epoch(slice(begin, end), until, first=first)
        self._place_saves()
        self._tell_end()

    def _tell_ends(self, rows: np.ndarray) -> None:
        """Epochs of which only one drawing is there, mostly the last: the mean of each."""
        if not len(rows):
            return
        line, epoch, drawn, total = self.bars[rows, :4].T
        number, lines = (epoch * total + drawn).astype(np.int64), line.astype(np.int64)
        time = np.maximum(self.seconds[rows] / drawn, 1e-6)
        self.records.add_rows(number=number, time_s=time, loss=self.losses[rows], line=lines)
        again = np.flatnonzero(np.diff(epoch) < 0) + 1
        self.records.events += [Fact(line=int(lines[i]), name="process", value=i, header=True) for i in again.tolist()]
        for name, value in (("averaged", True), ("log_interval", int(drawn[0]))):
            self.records.events.append(Fact(line=int(lines[0]), name=name, value=value))

    def _tell_epoch(self, own: slice, end: float, *, first: bool) -> None:
        epoch, losses, seconds, errors = (all_[own] for all_ in (self.bars, self.losses, self.seconds, self.errors))
        mine = self.passes[bisect_left(self.begins, epoch[0, 0]) : bisect_left(self.begins, end)]
        batches, kept = _training_batches(epoch, mine)
        per_epoch = int(epoch[-1, 3]) - int(np.max(epoch[:, 2] - batches, initial=0))
        drawn_zero = bool((epoch[:, 2] == 0).any())
        rows = np.flatnonzero(kept & (batches > 0))
        rows = rows[first_draws(batches[rows].astype(np.int64))]
        if not len(rows):
            return
        # A loss is put into the bar after the position: the last drawing of a position has its own.
        if len(rows) < len(epoch):
            losses = losses[np.searchsorted(np.maximum.accumulate(epoch[:, 2]), epoch[rows, 2], side="right") - 1]
        number = batches[rows].astype(np.int64)
        done = int(number[0]) if drawn_zero or number[0] <= 1 or len(rows) == 1 else 0
        if len(rows) > 1 and number[0] <= number[1] - number[0]:
            done = int(number[0])
        lines = epoch[rows, 0].astype(np.int64)
        evaluations = self._evaluations(epoch, lines, number, mine)
        clock = Clock(number, seconds[rows], errors[rows], np.full(len(rows), np.nan), done)
        times, _ = step_times(clock, [Pause(at, took) for _, at, took in evaluations])
        offset = int(epoch[0, 1]) * per_epoch
        self.records.add_rows(number=number + offset, time_s=np.maximum(times, 1e-6), loss=losses, line=lines)
        self.records.events += [
            Evaluation(line=int(line), at=at + offset, took_s=took) for line, at, took in evaluations
        ]
        self._tell_facts(int(lines[0]), clock, done > 0 and first and (epoch[0, 1] == 0 or len(rows) > 1))

    def _tell_facts(self, line: int, clock: Clock, begins: bool) -> None:
        events = self.records.events
        if begins:
            events.append(Fact(line=line, name="process", value=line, header=True))
        if (clock.covers > 1).any():
            events.append(Fact(line=line, name="averaged", value=True))
        if len(clock.number) == 1 and clock.done > 1:
            events.append(Fact(line=line, name="log_interval", value=clock.done))

    def _evaluations(
        self, epoch: np.ndarray, lines: np.ndarray, number: np.ndarray, passes: list[_Pass]
    ) -> list[tuple[float, int, float]]:
        """Line, batch and cost: of the validation's own bars, or where the bar of the epoch stood still at its end."""
        found: dict[int, tuple[float, int, float]] = {}
        for each in passes:
            place = int(np.searchsorted(lines, each.begin)) - 1
            at = int(number[max(place, 0)])
            line, _, earlier = found.get(at, (each.begin, at, 0.0))
            found[at] = (line, at, earlier + each.took_s)
        still = epoch[epoch[:, 2] == epoch[-1, 2]] if not passes and epoch[-1, 2] == epoch[-1, 3] else epoch[:0]
        if len(still) > 1:
            seconds, _ = _since_start(still[:, 2], still[:, 4], still[:, 5], still[:, 6])
            took = float(seconds[-1] - seconds[0])
            if took > max(_SMALLEST_VALIDATION_S, _SMALLEST_VALIDATION * float(seconds[0])):
                found[int(number[-1])] = (float(still[-1, 0]), int(number[-1]), took)
        return list(found.values())

    def _place_saves(self) -> None:
        rows = self.records.iterations()
        saves = [event for event in self.records.unplaced if isinstance(event, Checkpoint)]
        places = np.searchsorted(rows.line, [save.line for save in saves]) - 1
        numbers = rows.number[np.maximum(places, 0)].tolist() if len(rows) else []
        told = zip(saves, numbers, (places >= 0).tolist(), strict=False)
        # As save._replace(at=at), which takes four times as long; there may be as many as epochs.
        self.records.events += [
            tuple.__new__(Checkpoint, (save[0], at, *save[2:])) for save, at, placed in told if placed
        ]
        self.records.unplaced.clear()

    def _tell_end(self) -> None:
        """A run that says that it stopped has reached its last batch."""
        rows = self.records.iterations()
        if len(rows) and len(self.records.table("stopped", 1)):
            self.records.events.append(Fact(line=int(rows.line[-1]), name="max_iters", value=int(rows.number[-1])))


class _Pass(NamedTuple):
    """One time that a validation bar ran through."""

    begin: float
    end: float
    batches: int
    took_s: float


def _passes(bars: np.ndarray) -> list[_Pass]:
    if not len(bars):
        return []
    edges = [0, *(np.flatnonzero(np.diff(bars[:, 1]) < 0) + 1).tolist(), len(bars)]
    found = []
    for begin, end in pairwise(edges):
        seconds, _ = _since_start(*(bars[end - 1 : end, column] for column in (1, 3, 4, 5)))
        found.append(_Pass(float(bars[begin, 0]), float(bars[end - 1, 0]), int(bars[begin, 2]), float(seconds[0])))
    return found


def _training_batches(epoch: np.ndarray, passes: list[_Pass]) -> tuple[Floats, np.ndarray]:
    """The batches trained at each drawing of the bar, and which drawings are of training."""
    line, drawn = epoch[:, 0], epoch[:, 2]
    batches, kept = drawn.copy(), np.ones(len(epoch), bool)
    for each in passes:
        if each.begin > line[-1]:
            break  # behind the epoch
        above = drawn[line < each.begin].max(initial=-1)
        during = (line > each.begin) & (line <= each.end)
        if above < 0 or not during.any() or drawn[during].max() <= above:
            continue  # a bar that counts training alone
        validation = (line > each.begin) & (drawn > above) & (drawn <= above + each.batches)
        kept[validation] = False
        batches[(line > each.begin) & (drawn > above + each.batches)] -= each.batches
        batches[validation] -= drawn[validation] - above
    return batches, kept


FORMAT = LightningFormat(
    name="lightning",
    timing=Timing.SPANS_ITERATION,
    holds=NOTHING,
    about=Message(
        "From the progress bar: the mean since the epoch began, taken apart. What is counted are batches, not "
        "optimizer steps. Validation is taken out by its own bar; metrics.csv has times only where the user logs them."
    ),
    example="""\
Epoch 2:  40%|████      | 40/100 [00:08<00:12,  4.91it/s, v_num=0, train_loss=2.310]
Epoch 2: 100%|██████████| 100/100 [00:20<00:00,  4.92it/s, v_num=0, train_loss=2.284]
Validation DataLoader 0: 100%|██████████| 20/20 [00:01<00:00, 13.80it/s]
Epoch 3:   1%|          | 1/100 [00:00<00:20,  4.80it/s, v_num=0, train_loss=2.279]""",
    mark=b"Epoch ",
    iteration=Pattern(rf"Epoch (?P<epoch>\d{{1,9}}):{_COUNTS}|{_RICH}"),
    checkpoints=(Pattern(r"Epoch \d{1,9}, global step \d{1,12}: .{0,200}saving model to "),),
    facts=(
        Told(Pattern(r"You are using a CUDA device \('(?P<gpu_text>[^']{1,80})'\)")),
        Told(Pattern(r"^(?P<n_params>[\d.]+ ?[KMB]?)\s+Total params")),
        Told(Pattern(r"Starting with (?P<world_size>\d+) processes")),
        Told(Pattern(r"global step (?P<global_step>\d+):")),
    ),
    words=(*_VALIDATION_WORDS, b"CUDA device", b"Total params", b"Starting with"),
    events_first=False,
)
READER = FORMAT.reader()
