"""Own training loops with a tqdm bar for each epoch.

A bar may be of anything: loading, tokenising, validation, inference. Bars of one length that follow each other are the
epochs of a run; a shorter one that comes back between them is its validation. One bar alone is a training only where
its title or a loss behind it says so. The seconds on a bar are those of its epoch; the rate is smoothed. Where only a
bar of the epochs is left, evaluations inside are known from lines with a clock, as those of Hugging Face's examples.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import numpy as np

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.formats.running import WHOLE_SECONDS, Laps, Pause, first_draws, lap_times
from stepwatch.readers.reader import BOTH, MOST_SNIFFED, NOTHING, Reader
from stepwatch.readers.records import Records
from stepwatch.readers.text.block import Block
from stepwatch.readers.text.faults import fault_in
from stepwatch.readers.text.line import value_of
from stepwatch.readers.text.stamps import stamp_of, strip_prefix
from stepwatch.run import Evaluation, Fact, Floats, Ints, Timing, Traits

_BAR = Pattern(  # the second form has no total: tqdm around a generator
    rb"(?:(?<!\d)\d{1,3}%[^\S\n]*(?:\|[^|\n]{0,1200}\|)?[ ]*(?P<number>\d{1,12})/(?P<last>\d{1,12}) "
    rb"\[(?P<elapsed>\d{1,6}(?::\d\d){1,2})<[^,\]\n]{1,24}"
    rb"|(?<![\w.])(?P<count>\d{1,12})(?:it|batch|step) \[(?P<since>\d{1,6}(?::\d\d){1,2})), *"
    rb"(?:(?P<per_s>[\d.]{1,12}|\?) ?(?:it|iter|batch|batches|step|steps)/s"
    rb"|(?P<s_per>[\d.]{1,12}) ?s/(?:it|iter|batch|step))"
    rb"(?P<behind>[^\]\n]{0,400})\]"
)
_TRAINING = Pattern(
    r"(?i)(?<![\w/.])(?:train(?:ing)?|epochs?|iterations?|iters?|steps?|fit(?:ting)?)(?![\w/.])"
)  # no path
_VALIDATION = Pattern(r"(?i)\b(?:in)?val|eval|\btest|\bdev\b")
_OTHER = Pattern(
    r"(?i)load|token|map|split|generat|process|prepar|extract|convert|cach|filter|pack|sav|writ|merg|cop(?:y|ied)|fetch"
    r"|predict|infer|scan|shard|build|read|request|encod|decod|embed|sampl|render|featur|search|files?\b"
)
_LOSS = Pattern(rb"(?i)\bloss\b|_loss\b")
_EPOCH = Pattern(rb"(?i)\bepochs?\b[^\w\n]{0,4}(?P<epoch>\d{1,6})(?: ?(?:/|of) ?(?P<last>\d{1,6}))?")
_PLACE = Pattern(rb"(?i)(?:epoch|train|valid)\w*[^\n\d%]{0,12}?(?P<epoch>\d{1,6}) ?(?:/|of) ?(?P<last>\d{1,6})(?! *\[)")
_PLANNED = Pattern(rb"(?i)num(?:ber of)?[ _]epochs\W{0,4}(?P<last>\d{1,6})")
_COVERED = Pattern(rb"\| 0/(?P<last>\d{1,12}) \[00:00<\?")  # of a bar that was written over
_COUNTS_EPOCHS = Pattern(r"(?i)(?:training )?epochs?(?: ?progress)?")
_DIGITS = Pattern(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_WHOLE = Pattern(r"(?<![\d.])(?<!e[-+])\d+(?![\d.%]|e[-+])")  # the epoch; a loss or a rate in the title has a point
_LONGEST_TITLE = 160
_EVALUATES = Pattern(
    rb"(?m)^[^\n]{1,120}?(?:\*{3,} (?:(?P<begins>Running)|Eval results?)|- +eval_\w{1,30} = )[^\n]{0,80}"
)
_LOSS_VALUE = Pattern(rb"(?i)\bloss\W{0,3}(?P<loss>\d{1,9}\.\d{1,12})")

_LEAST_S = WHOLE_SECONDS / 0.02  # a time is then right to two digits


class _Draw(NamedTuple):
    line: int
    number: int
    elapsed_s: float
    loss: float


_SURELY = 0.9  # of the time of a bar: a step of the one around it takes at least that


class _Bars(NamedTuple):
    """All bars with one title and one length: their draws, divided where one begins anew."""

    title: str
    last: int
    laps: list[list[_Draw]]
    with_loss: bool

    @property
    def spent_s(self) -> float:
        return sum(lap[-1].elapsed_s for lap in self.laps)

    @property
    def step_s(self) -> float:
        last = self.laps[-1][-1]
        return last.elapsed_s / last.number

    @property
    def whole_s(self) -> float:
        """What one of them takes from its beginning to its end."""
        lap = max(self.laps, key=lambda lap: lap[-1].number)[-1]
        return lap.elapsed_s / lap.number * self.last

    @property
    def is_titled(self) -> bool:
        return bool(_TRAINING.search(self.title)) and not _VALIDATION.search(self.title)


def sniff(head: bytes) -> float:
    """Below that of any format with lines of its own."""
    likely = (title for _, title in _titled(head) if not _OTHER.search(title) and not _VALIDATION.search(title))
    return 0.9 * min(sum(1 for _ in islice(likely, MOST_SNIFFED)), MOST_SNIFFED) / MOST_SNIFFED


def _titled(text: bytes) -> Iterator[tuple[re.Match[bytes], str]]:
    """The bars, each with its title: what stands on its line before it, behind another bar."""
    end = 0
    for found in _BAR.finditer(text):
        begin = max(end, text.rfind(b"\n", end, found.start()) + 1)
        yield found, _title(text[begin : found.start()][-_LONGEST_TITLE:])
        end = found.end()


def parse(text: bytes, first_line: int, records: Records) -> None:
    line, begin, end = first_line, 0, 0
    beside = []
    for found, title in _titled(text):
        line, begin = line + text.count(b"\n", begin, found.start()), found.start()
        beside.append(text[end:begin])
        end = found.end()
        loss = _LOSS_VALUE.search(found["behind"])
        value = float(loss["loss"]) if loss else math.nan
        counts = int(found["number"] or found["count"]), int(found["last"] or 0)
        seconds = _seconds(found, counts[0])
        has_loss = _LOSS.search(found["behind"]) is not None
        records.kept.append((title, line, *counts, seconds, value, has_loss))
    rest = b"".join([*beside, text[end:]])
    spoken = Block.of(rest)
    rows = spoken.holding(spoken.filled, (b"loss", b"Loss", b"LOSS", b"poch", b"POCH")).tolist()
    says = [row for row in rows if _LOSS.search(spoken.line(row)) or _EPOCH.search(spoken.line(row))]
    records.keep("spoken", np.array(says) + first_line)
    line, begin = first_line, 0
    for found in _PLACE.finditer(rest):
        line, begin = line + rest.count(b"\n", begin, found.start()), found.start()
        records.keep_row("place", line, float(found["epoch"]), float(found["last"]))
    for found in _PLANNED.finditer(rest):
        records.keep_row("place", first_line, math.nan, float(found["last"]))
    line, begin = first_line, 0
    for found in _EVALUATES.finditer(text):
        line, begin = line + text.count(b"\n", begin, found.start()), found.start()
        evaluates = b"valuation" in found[0] or found["begins"] is None
        stamp = stamp_of(found[0].decode("utf-8", "replace")) if evaluates else None
        if stamp is not None:
            records.keep_row("evaluates", line, stamp, float(found["begins"] is not None))
    for last in {int(found["last"]) for found in _COVERED.finditer(text)}:
        records.keep_row("covered", first_line, float(last))
    block = Block.of(text)
    for number in block.holding(block.filled, (b"Error", b"Interrupt", b"Traceback", b"Killed")).tolist():
        bare, prefix = strip_prefix(block.line(number)[:2000].decode("utf-8", "replace"))
        fault = fault_in(bare, prefix, first_line + number)
        if fault is not None:
            records.events.append(fault)


def finish(first_line: int, records: Records) -> None:
    kept, records.kept = records.kept, []
    spoken = records.take_table("spoken", 1)[:, 0]
    places, covered = records.take_table("place", 3), records.take_table("covered", 2)
    evaluates = records.take_table("evaluates", 3)
    planned = [int(last) for last in places[:, 2]]
    bars = _bars_of(_with_totals(kept))
    training = _training_of(bars, spoken)
    if training is not None:
        titles = {row[0] for row in kept if _masked(row[0]) == training.title}
        planned += [last for title in titles if (last := _named(title))]
        outer = [each.last for each in bars if _is_outer(each, training)]
        validations = [each for each in bars if _is_validation(each, training)]
        validations += [each for each in bars if _OTHER.search(each.title) and _leads_to(each, validations, training)]
        if _COUNTS_EPOCHS.fullmatch(training.title):
            batches = max((int(last) for last in covered[:, 1] if last != training.last), default=0)
            if batches:
                _tell_epochs(training, batches, _clocked(evaluates), records)
            return
        _tell(training, validations, planned + outer, places[np.isfinite(places[:, 1])], records)


def _seconds(found: re.Match[bytes], number: int) -> float:
    """The clock shows whole seconds; the rate more, where it is the mean of all."""
    shown = value_of((found["elapsed"] or found["since"]).decode(), "clock")
    try:
        per_s, s_per = float(found["per_s"] or 0), float(found["s_per"] or 0)
    except ValueError:
        per_s = s_per = 0.0
    exact = number / per_s if per_s > 0 else number * s_per
    if number == 0:
        return 0.0
    return exact if shown <= exact < shown + 1 else shown + WHOLE_SECONDS


@lru_cache(maxsize=1000)
def _title(text: bytes) -> str:
    return text.decode("utf-8", "replace").strip(" :-\r\t")


def _named(title: str) -> int:
    """How many epochs a title names; 0 where it names none."""
    epoch = _EPOCH.search(title.encode())
    return int(epoch["last"] or 0) if epoch else 0


@lru_cache(maxsize=1000)
def _masked(title: str) -> str:
    return " ".join(_DIGITS.sub("#", title).split())


@lru_cache(maxsize=1000)
def _epoch_of(title: str) -> tuple[str, ...]:
    """The whole numbers of a title: where they change, it is that of another bar."""
    return tuple(found[0] for found in _WHOLE.finditer(title))


_Kept = tuple[str, int, int, int, float, float, bool]


def _with_totals(kept: list[_Kept]) -> list[_Kept]:
    """With a total for bars that have none: where most bars of that title ended."""
    ends: dict[str, Counter[int]] = {}
    open_bars: dict[str, tuple[str, int]] = {}
    for title, _, number, last, *_ in kept:
        if last == 0:
            before = open_bars.get(_masked(title))
            if before is not None and (number <= before[1] or _epoch_of(before[0]) != _epoch_of(title)):
                ends.setdefault(_masked(title), Counter())[before[1]] += 1
            open_bars[_masked(title)] = title, number
    for masked, (_, number) in open_bars.items():
        if masked not in ends:  # one bar alone shows no total
            continue
        ends[masked][number] += 1
    totals = {masked: max(counts, key=lambda number: (counts[number], number)) for masked, counts in ends.items()}
    whole = [row if row[3] else (*row[:3], totals.get(_masked(row[0]), 0), *row[4:]) for row in kept]
    return [row for row in whole if row[2] <= row[3]]


def _bars_of(kept: list[_Kept]) -> list[_Bars]:
    found: dict[tuple[str, int], _Bars] = {}
    titles: dict[tuple[str, int], str] = {}
    drawn: tuple[str, int] | None = None
    for title, line, number, last, seconds, loss, has_loss in kept:
        key = (_masked(title), last)
        bars = found.setdefault(key, _Bars(key[0], last, [], has_loss))
        if has_loss and not bars.with_loss:
            bars = found[key] = bars._replace(with_loss=True)
        lap = bars.laps[-1] if bars.laps else []
        anew = not lap or number < lap[-1].number or seconds < lap[-1].elapsed_s - 1
        anew = anew or _epoch_of(titles[key]) != _epoch_of(title)
        if not anew and number == lap[-1].number == last:
            # The last position again: the same bar, right behind it or where the log has more of a bar than its end.
            again = line - lap[-1].line <= 2 or lap[0].number < last
            anew = drawn != key or not again or seconds > lap[-1].elapsed_s + 1
        if anew:
            bars.laps.append([])
        titles[key], drawn = title, key
        bars.laps[-1].append(_Draw(line, number, seconds, loss))
    # What was never drawn beyond its beginning has no time.
    moved = (bars._replace(laps=[lap for lap in bars.laps if lap[-1].number > 0]) for bars in found.values())
    return [bars for bars in moved if bars.laps and bars.last > 1]


def _is_spoken_of(bars: _Bars, spoken: Floats) -> bool:
    """Whether a loss or an epoch stands above or below most of these bars, as of a training, and of no loading."""
    places = np.unique(np.searchsorted([lap[-1].line for lap in bars.laps], spoken)).tolist()
    count = len(bars.laps)
    return count > 1 and max(sum(place < count for place in places), sum(place > 0 for place in places)) > count / 2


def _training_of(bars: list[_Bars], spoken: Floats) -> _Bars | None:
    """The bars of the training; None where nothing shows that any of them is."""
    likely = [
        each for each in bars
        if not _VALIDATION.search(each.title) and not _OTHER.search(each.title)
        and (each.is_titled or each.with_loss or (not each.title and _is_spoken_of(each, spoken)))
    ]  # fmt: skip
    # None that a longer one is inside of; each is held against the shortest of these, since there may be many bars.
    shortest: dict[int, float] = {}
    for each in likely:
        shortest[each.last] = min(shortest.get(each.last, math.inf), each.whole_s)
    longer, least = {}, math.inf
    for last in sorted(shortest, reverse=True):
        longer[last], least = least, min(least, shortest[last])
    inner = [each for each in likely if each.step_s < _SURELY * longer[each.last]]
    return max(inner, key=lambda each: each.spent_s, default=None)


def _is_outer(bars: _Bars, inner: _Bars) -> bool:
    """A bar that counts the epochs: a step of it takes as long as all of the other bar."""
    if bars is inner or bars.last >= inner.last or _OTHER.search(bars.title) or _VALIDATION.search(bars.title):
        return False
    return bars.step_s >= _SURELY * inner.whole_s


def _is_validation(bars: _Bars, training: _Bars) -> bool:
    if bars is training or _OTHER.search(bars.title) or _is_outer(bars, training):
        return False
    begin, end = training.laps[0][0].line, training.laps[-1][-1].line
    within = [lap for lap in bars.laps if lap[-1].line >= begin]
    repeats = len(within) > 1 and within[0][0].line < end
    return bool(within) and (bool(_VALIDATION.search(bars.title)) or (repeats and bars.spent_s < training.spent_s))


def _leads_to(bars: _Bars, validations: list[_Bars], training: _Bars) -> bool:
    """Whether a validation has a bar of something else before it, most times: features that it works on."""
    checks = [(lap[-1].line, True) for each in validations for lap in each.laps]
    following = sorted([*checks, *((lap[-1].line, False) for lap in training.laps)])
    places = (bisect_right(following, (lap[-1].line, True)) for lap in bars.laps)
    leading = sum(place < len(following) and following[place][1] for place in places)
    return 2 * leading > max(len(bars.laps), len(training.laps))


def _thinned(lap: list[_Draw]) -> list[_Draw]:
    """Positions so far apart that the clock tells the time between them; the first, and the last."""
    kept = lap[:1] if lap[0].number == 1 else []
    for draw in lap[len(kept) : -1]:
        since = draw.elapsed_s - (kept[-1].elapsed_s if kept else 0.0)
        if since >= _LEAST_S and lap[-1].elapsed_s - draw.elapsed_s >= _LEAST_S:
            kept.append(draw)
    return [*kept, lap[-1]] if len(lap) > len(kept) else kept


def _epochs(laps: list[list[_Draw]], places: Floats) -> Ints:
    """Which epoch each lap is, from 0: by the lines that number them, as not every bar may have been kept."""
    in_order = np.arange(len(laps))
    if not len(places):
        return in_order
    ends = np.array([lap[-1].line for lap in laps])
    above = places[0, 0] <= laps[0][0].line  # the epoch is named before its bar, else with its results
    rows = np.searchsorted(places[:, 0], ends, side="right") - 1 if above else np.searchsorted(places[:, 0], ends)
    if rows.min() < 0 or rows.max() >= len(places):
        return in_order
    epochs = places[rows, 1].astype(np.int64) - int(min(places[:, 1].min(), 1))
    return epochs if bool((np.diff(epochs, prepend=-1) > 0).all()) else in_order


def _clocked(evaluates: Floats) -> list[tuple[int, float]]:
    """The line of each evaluation and what it took, by the clocks where it begins and where its results stand."""
    pairs = zip(evaluates[:-1].tolist(), evaluates[1:].tolist(), strict=True)
    return [
        (int(line), ended - began)
        for (line, began, begins), (_, ended, another) in pairs
        if begins and not another and ended >= began
    ]


def _tell_epochs(training: _Bars, batches: int, evaluations: list[tuple[int, float]], records: Records) -> None:
    """A bar of the epochs alone, with all that ran in them; evaluations taken out where each of them is known."""
    draws = [draw for draw in training.laps[-1] if draw.number > 0]
    number = np.array([draw.number for draw in draws], np.int64)
    line = np.array([draw.line for draw in draws], np.int64)
    rows = np.searchsorted(line, [at for at, _ in evaluations])
    spent = np.diff([draw.elapsed_s for draw in draws], prepend=0.0)
    took_s = np.array([took for _, took in evaluations])
    inside = np.bincount(rows, took_s, len(line) + 1)[: len(line)]  # the one behind the last epoch apart
    known = bool(evaluations) and bool((inside < spent).all())
    times = (spent - inside if known else spent) / np.diff(number, prepend=0) / batches
    records.add_rows(number=number * batches, time_s=times, line=line)
    if known:
        at = np.append(number * batches, number[-1] * batches + 1)[rows]
        records.events += [
            Evaluation(line=each, at=int(place), took_s=took)
            for place, (each, took) in zip(at, evaluations, strict=True)
        ]
    facts = {"mean_of_run": True, "holds": NOTHING if known else BOTH, "max_iters": training.last * batches}
    records.events += [Fact(int(line[0]), name, value) for name, value in facts.items()]


def _tell(training: _Bars, validations: list[_Bars], planned: list[int], places: Floats, records: Records) -> None:
    checks = sorted((lap for bars in validations for lap in bars.laps), key=lambda lap: lap[-1].line)
    begins_of = [lap[0].line for lap in training.laps[1:]] + [math.inf]
    laps: list[list[_Draw]] = []
    at_end = any(
        lap[-1].number == training.last and any(lap[-1].line < check[-1].line < end for check in checks)
        for lap, end in zip(training.laps, begins_of, strict=True)
    )
    for lap, end in zip(training.laps, begins_of, strict=True):
        last = lap[-1]
        if at_end and last.number < training.last and any(last.line < check[-1].line < end for check in checks):
            # A validation follows, as on other epochs that were whole: its last position is not in the log.
            seconds = last.elapsed_s * training.last / last.number
            lap = [*lap, last._replace(number=training.last, elapsed_s=seconds)]
        laps.append(_thinned([lap[row] for row in first_draws(np.array([draw.number for draw in lap])).tolist()]))
    draws = [draw for lap in laps for draw in lap]
    lengths = np.array([len(lap) for lap in laps])
    number = np.array([draw.number for draw in draws], np.int64)
    begins = np.cumsum(lengths) - lengths
    line = np.array([draw.line for draw in draws], np.int64)
    elapsed, error = np.array([draw.elapsed_s for draw in draws]), np.full(len(draws), WHOLE_SECONDS)
    epochs = _epochs(laps, places)
    whole = number + np.repeat(epochs, lengths) * training.last
    evaluations, pauses = [], []
    for lap in checks:
        row = int(np.searchsorted(line, lap[-1].line)) - 1
        if row >= 0:
            evaluations.append(Evaluation(line=lap[-1].line, at=int(whole[row]), took_s=lap[-1].elapsed_s))
            pauses.append(Pause(row, lap[-1].elapsed_s))
    times = lap_times(Laps(number, elapsed, error, begins, number[begins]), pauses)
    loss = np.array([draw.loss for draw in draws])
    kept = times > 0
    records.add_rows(number=whole[kept], time_s=times[kept], loss=loss[kept], line=line[kept])
    records.events += _filled(_merged(evaluations), epochs, training.last)
    begun = int(line[0])
    facts: dict[str, int] = {"averaged": 1, "first_covers": int(number[0])}
    if planned:
        facts["max_iters"] = max(planned) * training.last
    records.events += [Fact(begun, name, value) for name, value in facts.items()]


def _filled(evaluations: list[Evaluation], epochs: Ints, batches: int) -> list[Evaluation]:
    """With those whose bars were not kept, where most epochs end with one."""
    ends = {(epoch + 1) * batches for epoch in epochs.tolist()}
    at_end = [each for each in evaluations if each.at in ends]
    if 2 * len(at_end) <= len(epochs):
        return evaluations
    took = sorted(each.took_s or 0.0 for each in at_end)[len(at_end) // 2]
    missing = set(range(batches, int(epochs[-1]) * batches + 1, batches)) - {each.at for each in evaluations}
    return evaluations + [at_end[0]._replace(at=at, took_s=took) for at in missing]


def _merged(evaluations: list[Evaluation]) -> list[Evaluation]:
    """Several bars after one step are one evaluation."""
    found: dict[int, Evaluation] = {}
    for each in evaluations:
        before = found.get(each.at)
        took = (each.took_s or 0.0) + (before.took_s or 0.0 if before else 0.0)
        found[each.at] = each._replace(took_s=took)
    return list(found.values())


READER = Reader(
    name="tqdm-loop", timing=Timing.SPANS_LOG_INTERVAL, holds=NOTHING,
    about=Message(
        "From the progress bars of the epochs: the time between two of their positions, with the loading of data. "
        "Validation has bars of its own. What runs between the bars is not visible, and bars of anything else, loading "
        "or inference for example, are not read."
    ),
    example="""\
Epoch 1/10: 100%|██████████| 187/187 [06:39<00:00,  2.13s/it, loss=0.412]
Validation: 100%|██████████| 21/21 [00:18<00:00,  1.12it/s]
Epoch 2/10:  50%|█████     | 94/187 [03:19<03:17,  2.12s/it, loss=0.377]""",
    sniff=sniff, parse=parse, finish=finish, traits=Traits(may_evaluate=True), claims_any_bar=True,
)  # fmt: skip
