"""Loops of one's own that print a line for each epoch, with a clock in front of it or the time that the epoch took.

The number has to rise by one from line to line, and a loss or an accuracy has to stand with it: many programs print a
clock and a number. Any other format that claims a line of the log is the better one.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from itertools import islice, pairwise
from typing import NamedTuple

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.formats.clocked import ROWS, STARTS, tell_clocked
from stepwatch.readers.formats.running import WHOLE_SECONDS
from stepwatch.readers.reader import BOTH, Reader
from stepwatch.readers.records import Records
from stepwatch.readers.text.block import Block
from stepwatch.readers.text.faults import fault_in
from stepwatch.readers.text.line import value_of
from stepwatch.readers.text.shape import ONE_DIGIT
from stepwatch.readers.text.stamps import stamp_of, strip_prefix
from stepwatch.run import Fact, Timing, Traits

_EPOCH = Pattern(
    r"(?i)[^\w{\[(]{0,8}(?P<starts>start(?:ing|ed)? |begin(?:ning)? )?(?:train(?:ing)? )?epoch[\s:#\[]{0,4}"
    r"(?P<epoch>\d{1,6})(?![\d.%])(?: ?(?:/|of) ?(?P<last>\d{1,6}))?(?![\d.%])(?P<rest>.*)"
)
_LEARNT = Pattern(r"(?i)(?:loss|acc(?:uracy)?|perplexity|ppl)(?![a-z])")
_LOSS = Pattern(r"(?i)(?<!val[ _])(?<!test[ _])(?<!validation[ _])loss[^\w\n.+-]{0,4}(?P<loss>\d[\d.e+-]{0,20})")
_TOOK = Pattern(
    r"(?i)\b(?:time(?: taken| cost)?|took|cost time|duration)[ :=]{1,3}"
    r"(?:(?P<clock>\d{1,4}:\d\d:\d\d(?:\.\d{1,9})?)|(?P<seconds>\d{1,9}(?:\.\d{1,9})?) ?(?:s|sec|secs|seconds)\b)"
)
_STEP = Pattern(r"(?i)^\W{0,3}\[ *\d|\b(?:step|iter|iteration|batch)\W{0,3}\d")  # of a line that is of a batch
_WORD = Pattern(r"[A-Za-z]+")
_LEAST_EPOCHS = 3
_LONGEST_LINE = 1000
_WEAKEST = 0.01


class _Line(NamedTuple):
    line: int
    kind: tuple[str, ...]
    """Its words around the number."""
    starts: bool
    epoch: int
    last: int
    clock_s: float
    took_s: float
    loss: float


class _Learnt(NamedTuple):
    """A line that is of no epoch, with a loss or an accuracy."""

    line: int


def sniff(head: bytes) -> float:
    if head.count(b"poch") + head.count(b"POCH") < _LEAST_EPOCHS:
        return 0.0
    records = Records()
    parse(head, 0, records)
    return _WEAKEST if _ends(records.kept) else 0.0


def parse(text: bytes, first_line: int, records: Records) -> None:
    block = Block.of(text)
    others: dict[bytes, bool] = {}  # lines that are of no epoch, nor with other digits: whether there is a result
    for row in block.holding(block.filled, (b"poch", b"POCH", b"oss", b"cc", b"LOSS")).tolist():
        line = block.line(row)[:_LONGEST_LINE]
        kind = line.translate(ONE_DIGIT)
        if kind not in others:
            bare, prefix = strip_prefix(line.decode("utf-8", "replace"))
            found = _EPOCH.match(bare)
            learnt = _LEARNT.search(bare)
            if found is None or _STEP.search(found["rest"]):
                others[kind] = learnt is not None
        if kind in others or found is None:
            records.kept += [_Learnt(first_line + row)] * others[kind]
            continue
        rest = found["rest"]
        starts = found["starts"] is not None or learnt is None
        words = (bare[: found.start("epoch")].lower(), *(word[0] for word in islice(_WORD.finditer(rest), 2)))
        took, loss, clock = _TOOK.search(rest), _LOSS.search(rest), stamp_of(prefix)
        seconds = math.nan if took is None else value_of(took["clock"] or took["seconds"], "clock")
        records.kept.append(
            _Line(
                first_line + row, words, starts, int(found["epoch"]), int(found["last"] or 0),
                math.nan if clock is None else clock, seconds, value_of(loss["loss"], "decimal") if loss else math.nan,
            )
        )  # fmt: skip
    for row in block.holding(block.filled, (b"Error", b"Interrupt", b"Traceback", b"Killed", b"CANCELLED")).tolist():
        bare, prefix = strip_prefix(block.line(row)[:_LONGEST_LINE].decode("utf-8", "replace"))
        fault = fault_in(bare, prefix, first_line + row)
        if fault is not None:
            records.events.append(fault)


def finish(first_line: int, records: Records) -> None:
    kept, records.kept = records.kept, []
    ends = _ends(kept)
    if not ends:
        return
    numbers = 1 - min(ends[0].epoch, 1)  # some count from 0
    begins = [0, *(row for row, (before, after) in enumerate(pairwise(ends), 1) if after.epoch <= before.epoch)]
    told = [each for each in kept if isinstance(each, _Line) and each.last]
    for begin, end in pairwise([*begins, len(ends)]):
        planned = [each.last for each in told if each.line <= ends[end - 1].line]
        if planned:
            records.events.append(Fact(ends[begin].line, "max_iters", planned[-1]))
    if all(each.took_s > 0 for each in ends):
        for each in ends:
            records.add_row(
                line=each.line, number=each.epoch + numbers, time_s=each.took_s, loss=each.loss, stamp_s=each.clock_s
            )
        records.events += [Fact(ends[row].line, "process", ends[row].line, header=True) for row in begins[1:]]
        return
    for each in ends:
        records.keep_row(ROWS, each.line, each.epoch + numbers, each.clock_s, each.loss)
    lines = [each for each in kept if isinstance(each, _Line) and each.starts and math.isfinite(each.clock_s)]
    for row in begins:
        above = ends[row - 1].line if row else -1
        own = [each for each in lines if above <= each.line < ends[row].line and each.epoch == ends[row].epoch]
        if own:
            records.keep_row(STARTS, own[0].line, own[0].clock_s)
    exact = any(each.clock_s % 1 for each in ends)
    tell_clocked(records, 0.0005 if exact else WHOLE_SECONDS)


def _ends(kept: list[_Line | _Learnt]) -> list[_Line]:
    """The lines with which epochs end: with their own time, else with results, else those with which the next start."""
    kinds: dict[tuple[str, ...], list[_Line]] = {}
    for each in kept:
        if isinstance(each, _Line):
            kinds.setdefault(each.kind, []).append(each)
    counted = [lines for lines in kinds.values() if len(lines) >= _LEAST_EPOCHS and _counts(lines)]
    results = [lines for lines in counted if not lines[0].starts]
    for lines in sorted(results, key=len, reverse=True):
        if all(each.took_s > 0 for each in lines) and not _is_running([each.took_s for each in lines]):
            return lines
    clocked = [lines for lines in counted if all(math.isfinite(each.clock_s) for each in lines)]
    timed = [
        lines for lines in clocked if all(a.clock_s <= b.clock_s or b.epoch <= a.epoch for a, b in pairwise(lines))
    ]
    for lines in sorted(timed, key=lambda lines: (lines[0].starts, -len(lines))):
        if not lines[0].starts:
            return lines
        learnt = [each.line for each in kept if isinstance(each, _Learnt) or not each.starts]
        gaps = ((a.line, b.line) for a, b in pairwise(lines) if b.epoch > a.epoch)
        if all(bisect_right(learnt, begin) < bisect_left(learnt, end) for begin, end in gaps):
            return _next_starts(lines, kept)
    return []


def _counts(lines: list[_Line]) -> bool:
    """Whether the number rises by one from line to line, more often than it begins again."""
    first = lines[0].epoch
    rises = sum(b.epoch == a.epoch + 1 for a, b in pairwise(lines))
    again = sum(b.epoch == first for b in lines[1:])
    return rises + again == len(lines) - 1 and rises > again


def _is_running(took_s: list[float]) -> bool:
    """Whether the time is that since the beginning: each is at least half of the first more than the one before."""
    return all(b - a > took_s[0] / 2 for a, b in pairwise(took_s))


def _next_starts(lines: list[_Line], kept: list[_Line | _Learnt]) -> list[_Line]:
    """Each epoch at the line with which the next one starts; the last at the last that has its number."""
    ends = [
        before._replace(line=after.line, clock_s=after.clock_s)
        for before, after in pairwise(lines) if after.epoch > before.epoch
    ]  # fmt: skip
    last = lines[-1]
    results = [each for each in kept if isinstance(each, _Line) and each.epoch == last.epoch and each.line > last.line]
    if results and results[-1].clock_s > last.clock_s:
        ends.append(last._replace(line=results[-1].line, clock_s=results[-1].clock_s))
    return ends


READER = Reader(
    name="epoch-lines", timing=Timing.SPANS_STEP, holds=BOTH,
    about=Message(
        "From the line that a training loop prints for each epoch: the time printed on it, or the time between two of "
        "them by the clock in front. Validation and saving are included."
    ),
    example="""\
2026-03-19 09:55:26,479 - INFO: Epoch 1/20: train loss 0.0366, test acc 0.010
2026-03-19 09:56:30,237 - INFO: Epoch 2/20: train loss 0.0312, test acc 0.013
2026-03-19 09:57:33,902 - INFO: Epoch 3/20: train loss 0.0290, test acc 0.019
""",
    sniff=sniff, parse=parse, finish=finish, traits=Traits(counts_epochs=True), strongest=_WEAKEST,
)  # fmt: skip
