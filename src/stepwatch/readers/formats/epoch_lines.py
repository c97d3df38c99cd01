"""Custom loops that print a line for each epoch, with a clock in front of it or the time that the epoch took.

The number must rise by one from line to line, and a loss or an accuracy must come with it, because many programs print
a clock and a number. Any other format that claims a line of the log is preferred. If lines have no time, the total that
is printed after them, as by PyTorch's tutorials, is divided among them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import islice, pairwise
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from stepwatch.patterns import Pattern
from stepwatch.readers.formats import BOTH, Reader
from stepwatch.readers.formats.clocked import ROWS, STARTS, add_clocked
from stepwatch.readers.formats.running import WHOLE_SECONDS
from stepwatch.readers.records import OTHER_PROGRAM, Records, rows_of
from stepwatch.readers.text.block import UNDECODED, Block, Floats, Ints
from stepwatch.readers.text.clocks import clocks_of
from stepwatch.readers.text.faults import fault_in
from stepwatch.readers.text.line import ONE_DIGIT, stamp_of, strip_prefix, value_of
from stepwatch.readers.text.shape import read_values
from stepwatch.run import Fact, Timing, Traits

_EPOCH = Pattern(
    r"(?i)(?:[^\w{\[(]{0,8}|\[)(?P<starts>start(?:ing|ed)? |begin(?:ning)? )?(?:train(?:ing)? )?epoch[\s:=#\[]{0,4}"
    r"(?P<epoch>\d{1,9})(?![\d.%])(?: ?(?:/|of) ?(?P<last>\d{1,9}))?(?![\d.%])(?P<rest>.*)"
)
_LEARNT = Pattern(r"(?i)(?:loss|acc(?:uracy)?|perplexity|ppl)(?![a-z])")
_LOSS = Pattern(r"(?i)(?<!val[ _])(?<!test[ _])(?<!validation[ _])loss[^\w\n.+-]{0,4}(?P<loss>\d[\d.e+-]{0,20})")
_TOOK = Pattern(
    r"(?i)(?:\b(?:time(?: taken| cost)?|took|cost time|duration)[ :=]{1,3}"
    r"|(?<![^ ])[\[(](?=[\d.]{1,12} ?s\w{0,6}[\])]))"
    r"(?:(?P<clock>\d{1,4}:\d\d:\d\d(?:\.\d{1,9})?)|(?P<seconds>\d{1,9}(?:\.\d{1,9})?) ?(?:s|sec|secs|seconds)\b)"
    # Without a unit it is seconds, as from Python's clock: whoever prints minutes has divided, and names the unit.
    # The time of a batch is shorter, and is followed by its mean.
    r"|\b(?:(?:epoch|total)[ _])?time[ :=]{1,3}(?P<bare>\d{1,9}\.\d{2,9})(?![\d:]| ?(?:m|h|%|\())"
)
_DONE = Pattern(r"(?i)\W{0,8}training (?:of \w{1,40} )?(?:is |was )?(?:done|finished|completed?|over)\b")
_TOTAL = Pattern(
    r"(?i)\W{0,8}(?:total (?:training |elapsed )?time\b|(?:finished|completed) training\b"
    r"|(?:model )?training (?:is )?(?:completed?|finished|done|took|time)\b)[^\d\n]{0,24}"
    r"(?:(?P<clock>\d{1,4}:\d\d:\d\d(?:\.\d{1,9})?)"
    r"|(?:(?P<h>\d{1,5}(?:\.\d{1,9})?) ?h(?:ou)?r?s?\b[ ,]{0,2})?"
    r"(?:(?P<m>\d{1,5}(?:\.\d{1,9})?) ?m(?:in(?:ute)?s?)?\b[ ,]{0,2})?"
    r"(?:(?P<s>\d{1,9}(?:\.\d{1,9})?) ?s(?:ec(?:ond)?s?)?\b)?)"
)
_BELOW_EPOCH = Pattern(r"(?m)^[ -]{0,4}(?P<seconds>\d{1,9})s - (?P<results>(?:loss|\w{1,40}_loss): .*)")
"""Printed by Keras before TensorFlow 2 with verbose=2, below the number of the epoch."""

_STEP = Pattern(  # of a line about a batch
    r"(?i)^\W{0,3}\[ *\d{1,9}(?![\d.]| ?s)|\b(?:step|iter|iteration|batch)\W{0,3}\d"
)
_EPOCHS = "epochs "  # begins `kind` for lines with an epoch
_RESULTS = _EPOCHS + "below"
_BELOW = "below"
"""The time and the results of an epoch, below the line with its number."""
_LEARNT_AT, _TOTALS, _DONE_AT = "learnt", "totals", "done"
"""Lines without an epoch: with a loss or an accuracy; with the time of all epochs; with the clock at the end."""
_WORD = Pattern(r"[A-Za-z]+")
_LETTERS = (b"poch", b"POCH", b"oss", b"cc", b"LOSS", b"rain", b"otal")  # every line that is read contains one of these
_LEAST_EPOCHS = 3
_LONGEST_LINE = 1000
_WEAKEST = 0.01


class _Line(NamedTuple):
    line: int
    kind: str
    starts: float
    epoch: float
    last: float
    clock_s: float
    took_s: float
    loss: float


class _Lines(NamedTuple):
    """Lines of one kind as columns, by line; what a line does not show is nan."""

    kind: str
    """The kind of lines; for epochs, the words around the number."""
    line: np.ndarray
    starts: np.ndarray
    epoch: np.ndarray
    last: np.ndarray
    clock_s: np.ndarray
    took_s: np.ndarray
    loss: np.ndarray

    @classmethod
    def of(cls, kind: str, line: np.ndarray, **columns: Floats) -> _Lines:
        unknown = np.broadcast_to(np.nan, len(line))
        return cls(kind, line, *(columns.get(name, unknown) for name in cls._fields[2:]))

    def take(self, rows: slice | np.ndarray) -> _Lines:
        return _Lines(self.kind, *(column[rows] for column in self[1:]))

    def between(self, begin: float, end: float) -> _Lines:
        """The lines from `begin` up to, not including, `end`."""
        return self.take(slice(*np.searchsorted(self.line, (begin, end))))

    def rows(self) -> Iterator[_Line]:
        columns = (column.tolist() for column in self[1:])
        return (_Line(line, self.kind, *values) for line, *values in zip(*columns, strict=True))


class _Kept(NamedTuple):
    """Everything that was read, by kind."""

    epochs: list[_Lines]
    """In order of first appearance."""
    learnt: _Lines
    totals: _Lines
    done: _Lines

    @classmethod
    def taken(cls, records: Records) -> _Kept:
        def lines(kind: str) -> _Lines:
            return _Lines(kind, *records.take_columns(kind, len(_Lines._fields) - 1))

        epochs = [lines(kind) for kind in [*records.tables] if kind.startswith(_EPOCHS)]
        return cls(sorted(epochs, key=lambda each: each.line[0]), *map(lines, (_LEARNT_AT, _TOTALS, _DONE_AT)))


def sniff(head: bytes) -> float:
    below = head.count(b"s - loss: ") >= _LEAST_EPOCHS and _BELOW_EPOCH.finditer(head.decode("utf-8", "replace"))
    if below and len(list(islice(below, _LEAST_EPOCHS))) == _LEAST_EPOCHS:
        return _WEAKEST  # their numbers may be in the previous piece
    if head.count(b"poch") + head.count(b"POCH") < _LEAST_EPOCHS:
        return 0.0
    records = Records()
    parse(head, 0, records)
    kept = _Kept.taken(records)
    return _WEAKEST if _ends(kept) is not None or _totalled(kept) else 0.0


def parse(text: bytes, first_line: int, records: Records) -> None:
    block = Block.of(text)
    kinds: dict[bytes, list[int]] = {}  # lines that differ only in digits: what is in one is in all, at the same place
    for row, kind in enumerate(text.translate(ONE_DIGIT).split(b"\n")):
        kinds.setdefault(kind, []).append(row)
    parts: list[_Lines] = []
    for own in (own for kind, own in kinds.items() if any(map(kind.__contains__, _LETTERS))):
        model = block.line(own[0])[:_LONGEST_LINE].decode("utf-8", UNDECODED)
        bare, prefix = strip_prefix(model)
        found = _EPOCH.match(bare)
        if found is None or _STEP.search(found["rest"]):
            parts += _others(block, own, first_line, model)
        else:
            parts.append(_epochs(block, np.array(own), first_line, prefix, found))
    if any(part.kind == _BELOW for part in parts):
        parts = _with_results(parts, records.kept)
    for part in parts:
        records.keep(part.kind, *part[1:])
    latest = (line for part in parts for line in part.take(slice(-2, None)).rows())
    records.kept = sorted([*records.kept, *latest], key=itemgetter(0))[-2:]
    faults = [word for word in (b"Error", b"Interrupt", b"Traceback", b"Killed", b"CANCELLED") if word in text]
    for row in block.holding(block.filled, faults).tolist() if faults else ():
        bare, prefix = strip_prefix(block.line(row)[:_LONGEST_LINE].decode("utf-8", "replace"))
        fault = fault_in(bare, prefix, first_line + row)
        if fault is not None:
            records.events.append(fault)


def _with_results(parts: list[_Lines], before: list[_Line]) -> list[_Lines]:
    """Results get the epoch number above them; the save of the epoch may be in between."""
    kinds: dict[str, list[_Line]] = {}
    for each in sorted((line for part in parts for line in part.rows()), key=itemgetter(0)):
        if each.kind == _BELOW:
            above = [
                line for line in before if line.kind == _RESULTS or (line.kind.startswith(_EPOCHS) and line.starts)
            ]
            if above and above[-1].starts:
                numbered = above[-1]._replace(line=each.line, kind=_RESULTS, starts=0.0)
                each = numbered._replace(took_s=each.took_s, loss=each.loss)
            else:
                each = each._replace(kind=_LEARNT_AT)
        kinds.setdefault(each.kind, []).append(each)
        before = [*before[-1:], each]
    tables = ((kind, np.array([(line.line, *line[2:]) for line in lines]).T) for kind, lines in kinds.items())
    return [_Lines(kind, *table) for kind, table in tables]


def _epochs(block: Block, rows: Ints, first_line: int, prefix: str, found: re.Match[str]) -> _Lines:
    """Lines of epochs of one kind, read by what was found in the first of them after its prefix."""
    starts, rest = block.starts[rows], found["rest"]
    before = prefix + found.string[: found.start("rest")]

    def figures(match: re.Match[str] | None, name: str, before: str, kind: str = "decimal") -> Floats:
        """The value on each line at the place of this group on the first line; `before` precedes the searched text."""
        if match is None or match[name] is None:
            return np.full(len(rows), math.nan)
        skipped = (before + match.string[: match.start(name)]).encode("utf-8", UNDECODED)
        begins = starts + len(skipped)
        return read_values(block, begins, begins + len(match[name].encode()), kind)

    took_s = np.full(len(rows), math.nan)
    for each in _TOOK.finditer(rest):
        values = figures(each, each.lastgroup or "", before, "clock" if each["clock"] else "decimal")
        if each["bare"]:
            values[values < 1] = math.nan
        took_s = np.where(np.isnan(took_s), values, took_s)
    learnt, loss = _LEARNT.search(found.string), _LOSS.search(rest)
    words = (found.string[: found.start("epoch")].lower(), *(word[0] for word in islice(_WORD.finditer(rest), 2)))
    starting = found["starts"] is not None or learnt is None
    epoch, last = (np.nan_to_num(figures(found, name, prefix)) for name in ("epoch", "last"))
    return _Lines(
        _EPOCHS + "\n".join(words), rows + first_line, np.full(len(rows), float(starting)), epoch, last,
        clocks_of(block, starts, prefix), took_s, figures(loss, "loss", before),
    )  # fmt: skip


def _others(block: Block, rows: list[int], first_line: int, model: str) -> Iterator[_Lines]:
    """What lines of one kind without an epoch say."""
    bare, prefix = strip_prefix(model)
    learnt = _LEARNT.search(bare) is not None
    if not (_TOTAL.match(bare) or _DONE.match(bare) or _BELOW_EPOCH.match(model)):
        if learnt:
            yield _Lines.of(_LEARNT_AT, np.array(rows) + first_line)
        return
    stated: dict[str, list[tuple[int, float, float, float]]] = {}  # line, clock, time and loss
    for row in rows:
        line = block.line(row)[:_LONGEST_LINE].decode("utf-8", "replace")
        bare, prefix = strip_prefix(line)
        at = first_line + row
        total_s, below = _total_in(bare), _BELOW_EPOCH.match(line)  # its time looks like a prefix
        done_s = stamp_of(prefix) if _DONE.match(bare) else None
        if done_s is not None:
            stated.setdefault(_DONE_AT, []).append((at, done_s, math.nan, math.nan))
        if below is not None:
            loss = _LOSS.search(below["results"])
            lost = value_of(loss["loss"], "decimal") if loss else math.nan
            stated.setdefault(_BELOW, []).append((at, math.nan, float(below["seconds"]), lost))
        elif total_s > 0:
            stated.setdefault(_TOTALS, []).append((at, math.nan, total_s, math.nan))
        elif learnt and math.isnan(total_s) and done_s is None:
            stated.setdefault(_LEARNT_AT, []).append((at, math.nan, math.nan, math.nan))
    for kind, values in stated.items():
        lines, clock_s, took_s, losses = np.array(values).T
        yield _Lines.of(kind, lines, clock_s=clock_s, took_s=took_s, loss=losses)


def finish(first_line: int, records: Records) -> None:
    kept = _Kept.taken(records)
    ends = _ends(kept)
    if ends is None:
        for run, took_s, total_line in _totalled(kept):
            count, line = len(run.line), int(run.line[-1])
            records.add_row(line=line, number=count, time_s=took_s / count)
            facts = {"process": line, "max_iters": count, "mean_of_run": True}
            records.events += [Fact(line, name, value, name == "process") for name, value in facts.items()]
            records.events.append(Fact(total_line, OTHER_PROGRAM, True))
        return
    numbers = 1 - min(int(ends.epoch[0]), 1)  # some count from 0
    runs = _divided(ends)
    totals = _with_totals(runs, kept)
    starts = _starts(runs, kept)
    printed = bool((ends.took_s > 0).all())
    if not printed:  # a single epoch whose beginning is not in the log has no time
        runs = [run for run in runs if len(run.line) > 1 or int(run.line[0]) in starts]
        totals = [stated for stated in totals if len(stated[0].line) > 1 or int(stated[0].line[0]) in starts]
    planned = [rows_of([lines.line, lines.last], lines.last > 0) for lines in kept.epochs]
    for run in runs:
        rows = (int(np.searchsorted(line, run.line[-1], "right")) for line, _ in planned)
        above = [(line[row - 1], last[row - 1]) for (line, last), row in zip(planned, rows, strict=True) if row]
        if above:
            value = max(int(max(above)[1]), int(run.epoch[-1]) + numbers)
            records.events.append(Fact(int(run.line[0]), "max_iters", value))
    for run, took_s, total_line in totals:
        records.events.append(Fact(int(run.line[-1]), "reported_s", took_s))
        records.events += [Fact(total_line, name, True) for name in ("ended", OTHER_PROGRAM)]
    del kept, planned  # there may be millions of lines
    if printed:
        counts = {"number": ends.epoch.astype(np.int64) + numbers, "line": ends.line.astype(np.int64)}
        records.add_rows(**counts, time_s=ends.took_s, loss=ends.loss, stamp_s=ends.clock_s)
        begun = [int(run.line[0]) for run in runs[1:]]
        records.events += [Fact(line, "process", line, header=True) for line in begun]
        return
    for run in runs:
        records.tables.setdefault(ROWS, []).append((run.line, run.epoch + numbers, run.clock_s, run.loss))
        start = starts.get(int(run.line[0]))
        if start is not None:
            records.keep_row(STARTS, start.line, start.clock_s)
    exact = bool((ends.clock_s % 1 > 0).any())
    del ends, runs
    add_clocked(records, 0.0005 if exact else WHOLE_SECONDS)


def _total_in(line: str) -> float:
    """The training time in seconds that a line states; nan if it states none."""
    found = _TOTAL.match(line)
    if found is None:
        return math.nan
    if found["clock"]:
        return value_of(found["clock"], "clock")
    return sum(float(found[unit] or 0) * seconds for unit, seconds in (("h", 3600.0), ("m", 60.0), ("s", 1.0)))


def _divided(lines: _Lines) -> list[_Lines]:
    """The epochs of each run: another run begins when they are counted from the beginning again."""
    begins = np.flatnonzero(lines.epoch[1:] <= lines.epoch[:-1]) + 1
    return [lines.take(slice(begin, end)) for begin, end in pairwise([0, *begins.tolist(), len(lines.line)])]


def _starts(runs: list[_Lines], kept: _Kept) -> dict[int, _Line]:
    """The line with which each run starts, by the run's first line; runs without one are missing."""
    starts, above = {}, -1
    for run in runs:
        first = int(run.line[0])
        between = (each.between(above, first) for each in kept.epochs)
        own = [
            [*each.take((each.starts > 0) & np.isfinite(each.clock_s) & (each.epoch == run.epoch[0])).rows()]
            for each in between
        ]
        above = int(run.line[-1])
        if any(own):  # a process that ended in its first epoch may have printed the same line before
            starts[first] = min(filter(None, own))[-1]
    return starts


def _with_totals(runs: list[_Lines], kept: _Kept) -> list[tuple[_Lines, float, int]]:
    """Each run with the total after it and the line of that total.

    Empty unless each run has its own total: another may be of one epoch or of all runs.
    """
    found = []
    for run, following in zip(runs, [*runs[1:], None], strict=True):
        own = kept.totals.between(run.line[0], following.line[0] if following is not None else math.inf)
        if not len(own.line) or (own.took_s != own.took_s[0]).any() or own.line[0] < run.line[-1]:
            return []
        found.append((run, float(own.took_s[0]), int(own.line[0])))
    return found


def _totalled(kept: _Kept) -> list[tuple[_Lines, float, int]]:
    """Runs, logged from their beginning, whose epochs have no time, each with its total."""
    for lines in _longest_first(_counted(kept)):
        if lines.epoch[0] <= 1 and (not lines.starts[0] or _have_results(lines, kept)):
            return _with_totals(_divided(lines), kept)
    return []


def _longest_first(kinds: list[_Lines]) -> list[_Lines]:
    return sorted(kinds, key=lambda lines: -len(lines.line))


def _counted(kept: _Kept) -> list[_Lines]:
    return [lines for lines in kept.epochs if len(lines.line) >= _LEAST_EPOCHS and _counts(lines)]


def _have_results(lines: _Lines, kept: _Kept) -> bool:
    """Whether there is a loss or an accuracy between any two lines that start epochs."""
    learnt = np.sort(np.concatenate((kept.learnt.line, *(each.line[each.starts == 0] for each in kept.epochs))))
    rises = lines.epoch[1:] > lines.epoch[:-1]
    begins, ends = lines.line[:-1][rises], lines.line[1:][rises]
    return bool((np.searchsorted(learnt, begins, "right") < np.searchsorted(learnt, ends)).all())


def _ends(kept: _Kept) -> _Lines | None:
    """The lines that end epochs: those with a time, else those with results, else those that start the next epoch."""
    counted = [
        lines._replace(took_s=np.broadcast_to(np.nan, len(lines.line))) if _contradicts(lines) else lines
        for lines in _counted(kept)
    ]
    for lines in _longest_first([lines for lines in counted if not lines.starts[0]]):
        if (lines.took_s > 0).all() and not _is_running(lines.took_s):
            return lines
    clocked = [lines for lines in counted if np.isfinite(lines.clock_s).all()]
    timed = [
        lines
        for lines in clocked
        if ((lines.clock_s[:-1] <= lines.clock_s[1:]) | (lines.epoch[1:] <= lines.epoch[:-1])).all()
    ]
    for lines in sorted(_longest_first(timed), key=lambda lines: bool(lines.starts[0])):
        if not lines.starts[0]:
            return lines
        if _have_results(lines, kept):
            ends = _next_starts(lines, kept)
            return ends if len(ends.line) else None
    return None


def _counts(lines: _Lines) -> bool:
    """Whether the number rises by one from line to line, more often than it begins again."""
    rises = np.count_nonzero(lines.epoch[1:] == lines.epoch[:-1] + 1)
    again = np.count_nonzero(lines.epoch[1:] == lines.epoch[0])
    return bool(rises + again == len(lines.line) - 1 and rises > again)


def _is_running(took_s: Floats) -> bool:
    """Whether times count from the beginning: each exceeds the previous one by at least half of the first."""
    return bool((np.diff(took_s) > took_s[0] / 2).all())


def _contradicts(lines: _Lines) -> bool:
    """Whether the clock in front of the lines shows that their times are not in seconds."""
    timed = (lines.took_s[1:] > 0) & (lines.epoch[1:] > lines.epoch[:-1])
    if not timed.any():
        return False
    ratios = np.sort(np.diff(lines.clock_s)[timed] / lines.took_s[1:][timed])
    middle = ratios[len(ratios) // 2]
    return bool(middle > 10 or middle < 0.1)


def _next_starts(lines: _Lines, kept: _Kept) -> _Lines:
    """Each epoch with the line that starts the next one; the last of a run, with the last line that has its number.

    If no line has it, with the line that says that the training is over.
    """
    line, clock_s = (np.append(column[1:], np.nan) for column in (lines.line, lines.clock_s))
    for row in [*np.flatnonzero(~(lines.epoch[:-1] < lines.epoch[1:])).tolist(), len(line) - 1]:
        begin, end = math.nextafter(lines.line[row], math.inf), lines.line[row + 1] if row + 1 < len(line) else math.inf
        behind = [each.between(begin, end) for each in kept.epochs]
        own = [each.take(each.epoch == lines.epoch[row]).take(slice(-1, None)) for each in behind]
        done = kept.done.between(begin, end).take(slice(1))
        found = max((each for each in own if len(each.line)), key=lambda each: each.line[0], default=done)
        line[row], clock_s[row] = (found.line[0], found.clock_s[0]) if len(found.line) else (np.nan, np.nan)
    return lines._replace(line=line, clock_s=clock_s).take(clock_s > lines.clock_s)


READER = Reader(
    name="epoch-lines", timing=Timing.SPANS_STEP, holds=BOTH,
    sniff=sniff, parse=parse, finish=finish, traits=Traits(counts_epochs=True), strongest=_WEAKEST,
)  # fmt: skip
