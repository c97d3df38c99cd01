"""Loops of one's own that print a line for each epoch, with a clock in front of it or the time that the epoch took.

The number has to rise by one from line to line, and a loss or an accuracy has to stand with it: many programs print a
clock and a number. Any other format that claims a line of the log is the better one. Where lines have no time, the
total that is printed behind them, as by PyTorch's tutorials, is divided among them.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice, pairwise, repeat
from operator import itemgetter
from typing import NamedTuple, TypeVar

import numpy as np

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.formats.clocked import ROWS, STARTS, add_clocked
from stepwatch.readers.formats.running import WHOLE_SECONDS
from stepwatch.readers.reader import BOTH, Reader
from stepwatch.readers.records import OVER, Records
from stepwatch.readers.text.block import UNDECODED, Block, Floats, Ints
from stepwatch.readers.text.faults import fault_in
from stepwatch.readers.text.line import value_of
from stepwatch.readers.text.shape import ONE_DIGIT, read_values
from stepwatch.readers.text.stamps import clocks_of, stamp_of, strip_prefix
from stepwatch.run import Fact, Timing, Traits

_EPOCH = Pattern(
    r"(?i)(?:[^\w{\[(]{0,8}|\[)(?P<starts>start(?:ing|ed)? |begin(?:ning)? )?(?:train(?:ing)? )?epoch[\s:=#\[]{0,4}"
    r"(?P<epoch>\d{1,6})(?![\d.%])(?: ?(?:/|of) ?(?P<last>\d{1,6}))?(?![\d.%])(?P<rest>.*)"
)
_LEARNT = Pattern(r"(?i)(?:loss|acc(?:uracy)?|perplexity|ppl)(?![a-z])")
_LOSS = Pattern(r"(?i)(?<!val[ _])(?<!test[ _])(?<!validation[ _])loss[^\w\n.+-]{0,4}(?P<loss>\d[\d.e+-]{0,20})")
_TOOK = Pattern(
    r"(?i)(?:\b(?:time(?: taken| cost)?|took|cost time|duration)[ :=]{1,3}"
    r"|(?<![^ ])[\[(](?=[\d.]{1,12} ?s\w{0,6}[\])]))"
    r"(?:(?P<clock>\d{1,4}:\d\d:\d\d(?:\.\d{1,9})?)|(?P<seconds>\d{1,9}(?:\.\d{1,9})?) ?(?:s|sec|secs|seconds)\b)"
    # Without a unit it is seconds, as Python's clock gives them: who writes minutes has divided, and says so.
    # That of a batch is shorter, and its mean stands behind it.
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
_BELOW = Pattern(r"(?m)^[ -]{0,4}(?P<seconds>\d{1,9})s - (?P<results>(?:loss|\w{1,40}_loss): .*)")
"""What Keras before TensorFlow 2 printed with verbose=2, below the number of the epoch."""

_STEP = Pattern(  # of a line that is of a batch
    r"(?i)^\W{0,3}\[ *\d{1,9}(?![\d.]| ?s)|\b(?:step|iter|iteration|batch)\W{0,3}\d"
)
_RESULTS = ("below",)
_WORD = Pattern(r"[A-Za-z]+")
_LETTERS = (b"poch", b"POCH", b"oss", b"cc", b"LOSS", b"rain", b"otal")  # of which every line has some that is read
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


class _Below(NamedTuple):
    """The time and the results of an epoch, below the line with its number."""

    line: int
    took_s: float
    loss: float


class _Learnt(NamedTuple):
    """A line that is of no epoch, with a loss or an accuracy."""

    line: int


class _Total(NamedTuple):
    """What all epochs took."""

    line: int
    took_s: float


class _Done(NamedTuple):
    """A line with a clock that says that the training is over."""

    line: int
    clock_s: float


_Kept = _Line | _Learnt | _Total | _Done
_OneKind = TypeVar("_OneKind", _Line, _Total)


def sniff(head: bytes) -> float:
    below = head.count(b"s - loss: ") >= _LEAST_EPOCHS and _BELOW.finditer(head.decode("utf-8", "replace"))
    if below and len(list(islice(below, _LEAST_EPOCHS))) == _LEAST_EPOCHS:
        return _WEAKEST  # their numbers may stand in the piece before
    if head.count(b"poch") + head.count(b"POCH") < _LEAST_EPOCHS:
        return 0.0
    records = Records()
    parse(head, 0, records)
    return _WEAKEST if _ends(records.kept) or _totalled(records.kept) else 0.0


def parse(text: bytes, first_line: int, records: Records) -> None:
    block = Block.of(text)
    kinds: dict[bytes, list[int]] = {}  # lines that differ in their digits alone: what is in one is in all, and where
    for row, kind in enumerate(text.translate(ONE_DIGIT).split(b"\n")):
        kinds.setdefault(kind, []).append(row)
    kept: list[_Kept | _Below] = []
    for own in (own for kind, own in kinds.items() if any(map(kind.__contains__, _LETTERS))):
        model = block.line(own[0])[:_LONGEST_LINE].decode("utf-8", UNDECODED)
        bare, prefix = strip_prefix(model)
        found = _EPOCH.match(bare)
        if found is None or _STEP.search(found["rest"]):
            kept += _others(block, own, first_line, model)
        else:
            kept += _epochs(block, np.array(own), first_line, prefix, found)
    for each in sorted(kept, key=itemgetter(0)):
        if type(each) is not _Below:
            records.kept.append(each)
            continue
        # The results get the number that stands above; the save of the epoch may stand between the two.
        lines = [line for line in records.kept[-2:] if isinstance(line, _Line)]
        above = next((line for line in reversed(lines) if line.starts or line.kind == _RESULTS), None)
        if above is None or not above.starts:
            records.kept.append(_Learnt(each.line))
        else:
            records.kept.append(_Line(each.line, _RESULTS, False, *above[3:6], each.took_s, each.loss))
    faults = [word for word in (b"Error", b"Interrupt", b"Traceback", b"Killed", b"CANCELLED") if word in text]
    for row in block.holding(block.filled, faults).tolist() if faults else ():
        bare, prefix = strip_prefix(block.line(row)[:_LONGEST_LINE].decode("utf-8", "replace"))
        fault = fault_in(bare, prefix, first_line + row)
        if fault is not None:
            records.events.append(fault)


def _epochs(block: Block, rows: Ints, first_line: int, prefix: str, found: re.Match[str]) -> Iterator[_Line]:
    """Lines of epochs of one kind, by what was found in the first of them behind its prefix."""
    starts, rest = block.starts[rows], found["rest"]
    before = prefix + found.string[: found.start("rest")]

    def figures(match: re.Match[str] | None, name: str, before: str, kind: str = "decimal") -> Floats:
        """What stands on each line where this group stands on the first, behind what is before the searched text."""
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
    epoch, last = (np.nan_to_num(figures(found, name, prefix)).astype(np.int64) for name in ("epoch", "last"))
    columns = (epoch, last, clocks_of(block, starts, prefix), took_s, figures(loss, "loss", before))
    lists = (column.tolist() for column in columns)
    told = zip((rows + first_line).tolist(), repeat(words), repeat(starting), *lists, strict=False)
    return map(tuple.__new__, repeat(_Line), told)  # as _Line(…), in a third of the time


def _others(block: Block, rows: list[int], first_line: int, model: str) -> Iterator[_Kept | _Below]:
    """What lines of one kind say that are of no epoch."""
    bare, prefix = strip_prefix(model)
    learnt = _LEARNT.search(bare) is not None
    if not (_TOTAL.match(bare) or _DONE.match(bare) or _BELOW.match(model)):
        yield from (_Learnt(first_line + row) for row in rows if learnt)
        return
    for row in rows:
        line = block.line(row)[:_LONGEST_LINE].decode("utf-8", "replace")
        bare, prefix = strip_prefix(line)
        total_s, below = _total_in(bare), _BELOW.match(line)  # its time looks like a prefix
        done_s = stamp_of(prefix) if _DONE.match(bare) else None
        if done_s is not None:
            yield _Done(first_line + row, done_s)
        if below is not None:
            loss = _LOSS.search(below["results"])
            lost = value_of(loss["loss"], "decimal") if loss else math.nan
            yield _Below(first_line + row, float(below["seconds"]), lost)
        elif total_s > 0:
            yield _Total(first_line + row, total_s)
        elif learnt and math.isnan(total_s) and done_s is None:
            yield _Learnt(first_line + row)


def finish(first_line: int, records: Records) -> None:
    kept, records.kept = records.kept, []
    ends = _ends(kept)
    if not ends:
        for run, total in _totalled(kept):
            count = len(run)
            records.add_row(line=run[-1].line, number=count, time_s=total.took_s / count)
            facts = {"process": run[-1].line, "max_iters": count, "mean_of_run": True}
            records.events += [Fact(run[-1].line, name, value, name == "process") for name, value in facts.items()]
            records.events.append(Fact(total.line, OVER, True))
        return
    numbers = 1 - min(ends[0].epoch, 1)  # some count from 0
    runs = _divided(ends)
    totals = _with_totals(runs, kept)
    starts = _starts(runs, kept)
    printed = all(each.took_s > 0 for each in ends)
    if not printed:  # one epoch alone whose beginning is not in the log has no time
        runs = [run for run in runs if len(run) > 1 or run[0].line in starts]
        totals = [(run, total) for run, total in totals if len(run) > 1 or run[0].line in starts]
    planned = [each for each in kept if isinstance(each, _Line) and each.last]
    for run in runs:
        above = bisect_right(planned, run[-1].line, key=itemgetter(0))
        if above:
            last = max(planned[above - 1].last, run[-1].epoch + numbers)
            records.events.append(Fact(run[0].line, "max_iters", last))
    for run, total in totals:
        records.events.append(Fact(run[-1].line, "reported_s", total.took_s))
        records.events += [Fact(total.line, name, True) for name in ("ended", OVER)]
    if printed:
        rows = [(each.epoch + numbers, each.took_s, each.loss, each.clock_s, each.line) for each in ends]
        number, took_s, loss, clock_s, line = np.array(rows).T
        counts = {"number": number.astype(np.int64), "line": line.astype(np.int64)}
        records.add_rows(**counts, time_s=took_s, loss=loss, stamp_s=clock_s)
        records.events += [Fact(run[0].line, "process", run[0].line, header=True) for run in runs[1:]]
        return
    for run in runs:
        line, epoch, clock_s, loss = np.array([(each.line, each.epoch, each.clock_s, each.loss) for each in run]).T
        records.keep(ROWS, line, epoch + numbers, clock_s, loss)
        start = starts.get(run[0].line)
        if start is not None:
            records.keep_row(STARTS, start.line, start.clock_s)
    exact = any(each.clock_s % 1 for each in ends)
    add_clocked(records, 0.0005 if exact else WHOLE_SECONDS)


def _total_in(line: str) -> float:
    """The seconds that a line says the training took; nan where it says nothing of it."""
    found = _TOTAL.match(line)
    if found is None:
        return math.nan
    if found["clock"]:
        return value_of(found["clock"], "clock")
    return sum(float(found[unit] or 0) * seconds for unit, seconds in (("h", 3600.0), ("m", 60.0), ("s", 1.0)))


def _divided(lines: list[_Line]) -> list[list[_Line]]:
    """The epochs of each run: another begins where they are counted from the beginning again."""
    begins = [row for row, (before, after) in enumerate(pairwise(lines), 1) if after.epoch <= before.epoch]
    return [lines[begin:end] for begin, end in pairwise([0, *begins, len(lines)])]


def _between(kept: list[_OneKind], begin: float, end: float) -> list[_OneKind]:
    """What stands on the lines from here to there."""
    return kept[bisect_left(kept, begin, key=itemgetter(0)) : bisect_left(kept, end, key=itemgetter(0))]


def _starts(runs: list[list[_Line]], kept: list[_Kept]) -> dict[int, _Line]:
    """With which line each run starts, by its first line; without those that have none."""
    lines = [each for each in kept if isinstance(each, _Line) and each.starts and math.isfinite(each.clock_s)]
    starts, above = {}, -1
    for run in runs:
        between = _between(lines, above, run[0].line)
        own = [each for each in between if each.epoch == run[0].epoch]
        above = run[-1].line
        if own:  # a process that ended in its first epoch may have printed the same line before
            starts[run[0].line] = [each for each in own if each.kind == own[0].kind][-1]
    return starts


def _with_totals(runs: list[list[_Line]], kept: list[_Kept]) -> list[tuple[list[_Line], _Total]]:
    """Each run with the total behind it; none unless each has its own: another may be of an epoch or of all runs."""
    totals = [each for each in kept if isinstance(each, _Total)]
    found = []
    for run, following in zip(runs, [*runs[1:], None], strict=True):
        end = following[0].line if following else math.inf
        own = _between(totals, run[0].line, end)
        if len({each.took_s for each in own}) != 1 or own[0].line < run[-1].line:
            return []
        found.append((run, own[0]))
    return found


def _totalled(kept: list[_Kept]) -> list[tuple[list[_Line], _Total]]:
    """Epochs without a time of their own, of runs from their beginning on, each with its total."""
    for lines in sorted(_counted(kept), key=len, reverse=True):
        if lines[0].epoch <= 1 and (not lines[0].starts or _have_results(lines, kept)):
            return _with_totals(_divided(lines), kept)
    return []


def _counted(kept: list[_Kept]) -> list[list[_Line]]:
    kinds: dict[tuple[str, ...], list[_Line]] = {}
    for each in kept:
        if isinstance(each, _Line):
            kinds.setdefault(each.kind, []).append(each)
    return [lines for lines in kinds.values() if len(lines) >= _LEAST_EPOCHS and _counts(lines)]


def _have_results(lines: list[_Line], kept: list[_Kept]) -> bool:
    """Whether a loss or an accuracy stands between the lines with which epochs start."""
    learnt = [each.line for each in kept if isinstance(each, _Learnt) or (isinstance(each, _Line) and not each.starts)]
    gaps = ((a.line, b.line) for a, b in pairwise(lines) if b.epoch > a.epoch)
    return all(bisect_right(learnt, begin) < bisect_left(learnt, end) for begin, end in gaps)


def _ends(kept: list[_Kept]) -> list[_Line]:
    """The lines with which epochs end: with their own time, else with results, else those with which the next start."""
    counted = [
        [each._replace(took_s=math.nan) for each in lines] if _contradicts(lines) else lines for lines in _counted(kept)
    ]
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
        if _have_results(lines, kept):
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


def _contradicts(lines: list[_Line]) -> bool:
    """Whether the clock in front of the lines shows that their times are in another unit than seconds."""
    timed = [(a, b) for a, b in pairwise(lines) if b.took_s > 0 and b.epoch > a.epoch]
    ratios = sorted((b.clock_s - a.clock_s) / b.took_s for a, b in timed)
    middle = ratios[len(ratios) // 2] if ratios else math.nan
    return middle > 10 or middle < 0.1


def _next_starts(lines: list[_Line], kept: list[_Kept]) -> list[_Line]:
    """Each epoch at the line with which the next one starts; the last of a run at the last that has its number.

    Where no line has it, where the training is said to be over.
    """
    ends = []
    at = [each.line for each in kept]
    for before, after in zip(lines, [*lines[1:], None], strict=True):
        end: _Line | _Done | None = after
        if after is None or after.epoch <= before.epoch:
            behind = kept[bisect_right(at, before.line) : bisect_left(at, after.line) if after else None]
            results = [each for each in behind if isinstance(each, _Line) and each.epoch == before.epoch]
            done = next((each for each in behind if isinstance(each, _Done)), None)
            end = results[-1] if results else done
        if end is not None and end.clock_s > before.clock_s:
            ends.append(before._replace(line=end.line, clock_s=end.clock_s))
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
