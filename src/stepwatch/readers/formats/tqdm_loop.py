"""Custom training loops with a tqdm bar for each epoch.

A bar may be of anything: loading, tokenising, validation, inference. Bars of one length that follow each other are the
epochs of a run; a shorter one that recurs between them is its validation. A single bar is a training only if its title
says so, or if a loss is printed after it or along it. If the epochs are counted from the beginning again, another run
begins. The seconds on a bar are those of its epoch; the rate is smoothed. If only a bar that counts epochs is left,
evaluations inside it are known from lines with a clock, as in Hugging Face's examples.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from itertools import accumulate, islice, pairwise
from typing import NamedTuple

import numpy as np

from stepwatch.patterns import Pattern
from stepwatch.readers.formats import BOTH, NOTHING, Reader
from stepwatch.readers.formats.drawn_bars import Bars, Draw, bars_of, drawn, found_in
from stepwatch.readers.formats.running import WHOLE_SECONDS, EpochClocks, lap_times
from stepwatch.readers.records import OTHER_PROGRAM, Records
from stepwatch.readers.text.block import Block
from stepwatch.readers.text.faults import fault_in
from stepwatch.readers.text.line import MOST_SNIFFED, ONE_DIGIT, stamp_of, strip_prefix
from stepwatch.readers.text.redraws import thinned
from stepwatch.run import Evaluation, Fact, Floats, Ints, Timing, Traits, repeated

_TRAINING = Pattern(
    r"(?i)(?<![\w/.])(?:train(?:ing)?|epochs?|iterations?|iters?|steps?|fit(?:ting)?)(?![\w/.])"
)  # not in a path
_STEPS = Pattern(r"(?i)\b(?:progress|iterations?|iters?|steps?)\b")
_VALIDATION = Pattern(r"(?i)\b(?:in)?val|eval|\btest|\bdev\b")
_OTHER = Pattern(
    r"(?i)load|token|map|split|generat|process|prepar|extract|convert|cach|filter|pack|sav|writ|merg|cop(?:y|ied)|fetch"
    r"|predict|infer|scan|shard|build|read|request|encod|decod|embed|sampl|render|featur|search|files?\b"
)
_MEASURE = Pattern(  # a figure that inference and validation show as well
    r"(?i)acc|top|prec|recall|f1|auc|iou|map|wer|cer|bleu|rouge|psnr|ssim|score|time|sec|mem|gpu|ram|speed|fps|rate|[kmg]b"
)
_LEARNT = Pattern(r"(?i)loss|\b(?:nll|elbo|kl|lr|learning rate|grad(?: norm)?)\b")
_LOSS = Pattern(rb"(?i)\bloss\b|_loss\b")
_SPEAKS = (b"loss", b"Loss", b"LOSS", b"poch", b"POCH", b"val", b"Val", b"VAL", b"est", b"EST", b"cc", b"ACC", b"rain")
_PLACE = Pattern(
    rb"(?i)\bepoch\b[^\w\n]{0,4}(?P<epoch>\d{1,6}+)(?!\.\d|%)(?: ?(?:/|of) ?(?P<last>\d{1,6}))?"
    rb"|(?:epoch|train|valid)\w*[^\n\d%]{0,12}?(?P<place>\d{1,6}) ?(?:/|of) ?(?P<end>\d{1,6})(?! *\[| \d\d:)"
)
_PLANNED = Pattern(
    rb"(?i)num(?:ber of)?[ _]epochs\W{0,4}(?P<last>\d{1,6})"
    rb"|(?:\btrain\w*[^\n]{0,30}[ (]|\()(?P<length>\d{1,6}) epochs\b"
)
_COVERED = Pattern(rb"\| 0/(?P<last>\d{1,12}) \[00:00<\?")  # of a bar that was overwritten
_FROM_ZERO = Pattern(rb"(?<=/)\d{1,6}(?= *\Z)")  # Lightning writes the number of the last epoch next to Rich's bars
_COUNTS_EPOCHS = Pattern(r"(?i)(?:training )?epochs?(?: ?progress)?")
_CHECK = Pattern(rb"(?i)\b(?:val|valid|validation|eval|evaluation|test|dev)(?:\b|_)|\bacc(?:uracy)?\b")
_BEGINS_WITH_CHECK = Pattern(rb"(?i)\W{0,8}(?:val|valid|validation|eval|evaluation|test|testing)(?:\b|_)")
_ITS_LOSS = Pattern(rb"(?i)(?:val|valid|validation|eval|evaluation|test|dev)[ _/-]?loss")
_TRAINS = Pattern(rb"(?i)train")
_TOOK = Pattern(
    rb"(?i)\b(?:train\w*|epoch)\b[^\n]{0,80}?\b(?:took|time|elapsed|in)\b[^\n\d]{0,12}"
    rb"(?P<took>\d{1,9}(?:\.\d{1,9})?) ?(?P<unit>s|sec|second|m|min|minute|h|hour)(?:ond|ute|our)?s?\b"
)
_UNITS = {b"s": 1.0, b"m": 60.0, b"h": 3600.0}
_STEP = Pattern(rb"(?i)\b(?:step|iter(?:ation)?)s?\b[^\w\n]{0,4}(?P<step>\d{1,9})(?![\d.])")
_ENDED = Pattern(
    rb"(?i)early[ _-]?stop(?:ping|ped)?\b(?![^\n]{0,12}(?:counter|patience))"
    rb"|\btraining (?:is )?(?:complete|finish|done|over)"
)
_EVALUATES = Pattern(
    rb"(?m)^[^\n]{1,120}?(?:\*{3,} (?:(?P<begins>Running)|Eval results?)|- +eval_\w{1,30} = )[^\n]{0,80}"
)

_LEAST_S = WHOLE_SECONDS / 0.02  # times from here on are right to two digits
_STRONGEST = 0.9  # its highest claim: below one line of any other format
_SURELY = 0.9  # of the time of a bar: a step of the bar around it takes at least that


class _LossLines(NamedTuple):
    """Lines that mention epochs, losses or a validation."""

    line: Floats
    about: np.ndarray
    """Whether it names an epoch or a loss."""
    checks: np.ndarray
    """Whether it is about a validation only."""
    heads: np.ndarray
    """Whether it names an epoch, but no result."""
    step: Floats
    """The step that it names along with a loss."""


def sniff(head: bytes) -> float:
    """Claims less than any format with characteristic lines."""
    titles = (title.words for _, title in found_in(head))
    likely = (words for words in titles if not _OTHER.search(words) and not _VALIDATION.search(words))
    return _STRONGEST * min(sum(1 for _ in islice(likely, MOST_SNIFFED)), MOST_SNIFFED) / MOST_SNIFFED


def parse(text: bytes, first_line: int, records: Records) -> None:
    text, numbers = thinned(Block.of(text), first_line, _LEAST_S + 1)
    row, begin, end = 0, 0, 0
    beside = []
    for found, title in found_in(text):
        row, begin = row + text.count(b"\n", begin, found.start()), found.start()
        above = text[end:begin]
        if found["whole"]:
            above = _FROM_ZERO.sub(lambda last: b"%d" % (int(last[0]) + 1), above)
        beside.append(above)
        end = found.end()
        records.kept.append(drawn(found, title, int(numbers[row])))
    rest = b"".join([*beside, text[end:]])
    _keep_spoken(rest, numbers, records)
    _keep_places(rest, numbers, records)
    row, begin = 0, 0
    evaluates_here = any(letters in text for letters in (b"*** Running", b"*** Eval", b" eval_"))  # the search is slow
    for found in _EVALUATES.finditer(text) if evaluates_here else ():
        row, begin = row + text.count(b"\n", begin, found.start()), found.start()
        evaluates = b"valuation" in found[0] or found["begins"] is None
        stamp = stamp_of(found[0].decode("utf-8", "replace")) if evaluates else None
        if stamp is not None:
            records.keep_row("evaluates", numbers[row], stamp, float(found["begins"] is not None))
    for last in {int(found["last"]) for found in _COVERED.finditer(text)}:
        records.keep_row("covered", first_line, float(last))
    block = Block.of(text)
    for row in block.holding(block.filled, (b"Error", b"Interrupt", b"Traceback", b"Killed")).tolist():
        bare, prefix = strip_prefix(block.line(row)[:2000].decode("utf-8", "replace"))
        fault = fault_in(bare, prefix, int(numbers[row]))
        if fault is not None:
            records.events.append(fault)


def _keep_places(rest: bytes, numbers: Ints, records: Records) -> None:
    """Keeps the epochs that lines name, how many are planned, and where a line says that the training is over."""
    block = Block.of(rest.lower())
    silent: set[bytes] = set()  # these would say nothing with other digits either
    for row in block.holding(block.filled, (b"epoch", b"train", b"valid", b"stop")).tolist():
        line = block.line(row)
        kind = line.translate(ONE_DIGIT)
        if kind in silent:
            continue
        places, planned, ended = list(_PLACE.finditer(line)), list(_PLANNED.finditer(line)), _ENDED.search(line)
        if not (places or planned or ended):
            silent.add(kind)
        for found in places:
            epoch, last = float(found["epoch"] or found["place"]), float(found["last"] or found["end"] or math.nan)
            if not epoch > last:  # a date for example
                records.keep_row("place", numbers[row], epoch, last)
        for found in planned:
            records.keep_row("place", numbers[row], math.nan, float(found["last"] or found["length"]))
        if ended:
            records.keep_row("ended", numbers[row])


def _keep_spoken(rest: bytes, numbers: Ints, records: Records) -> None:
    spoken = Block.of(rest)
    kinds: dict[bytes, tuple[bool, bool, bool, bool]] = {}
    for row in spoken.holding(spoken.filled, _SPEAKS).tolist():
        line = spoken.line(row)[:500]
        kind = line.translate(ONE_DIGIT)
        if kind not in kinds:
            names_epoch = _PLACE.search(line) is not None
            other_loss = not _BEGINS_WITH_CHECK.match(line) and _LOSS.search(_ITS_LOSS.sub(b"", line))
            trains = bool(_TRAINS.search(line) or other_loss)
            checks = not trains and _CHECK.search(line) is not None
            about = names_epoch or _LOSS.search(line) is not None
            heads = names_epoch and not checks and not trains
            kinds[kind] = about, checks, heads, _TOOK.search(line) is not None
        about, checks, heads, timed = kinds[kind]
        if about or checks:
            step = _STEP.search(line) if about and _LOSS.search(line) else None
            at = float(step["step"]) if step else math.nan
            records.keep_row("spoken", numbers[row], float(about), float(checks), float(heads), at)
        took = _TOOK.search(line) if timed else None
        if took is not None:
            records.keep_row("took", numbers[row], float(took["took"]) * _UNITS[took["unit"][:1].lower()])


def finish(first_line: int, records: Records) -> None:
    kept, records.kept = records.kept, []
    line, about, checks, heads, step = records.take_table("spoken", 5).T
    spoken = _LossLines(line, about > 0, checks > 0, heads > 0, step)
    places, covered = records.take_table("place", 3), records.take_table("covered", 2)
    ended = records.take_table("ended", 1)
    evaluates, took = records.take_table("evaluates", 3), records.take_table("took", 2)
    bars = bars_of(kept)
    runs = _trainings_of(bars, spoken, places, took)
    if not runs:
        return
    if len(runs) == 1 and _COUNTS_EPOCHS.fullmatch(runs[0].title.words) and not runs[0].names:
        batches = max((int(last) for last in covered[:, 1] if last != runs[0].last), default=0)
        if batches:
            clocked = [  # from the beginning of an evaluation to its results
                (int(line), ended - began)
                for (line, began, begins), (_, ended, another) in pairwise(evaluates.tolist())
                if begins and not another and ended >= began
            ]
            _add_epochs(runs[0], batches, clocked, records)
        return
    ends = [*(run.begin for run in runs[1:]), math.inf]
    begins = [-1.0, *(run.end for run in runs[:-1])]
    for training, begin, end in zip(runs, begins, ends, strict=True):
        beside = [part for each in bars if each.key != training.key and (part := each.within(training.begin, end))]
        own = places[(places[:, 0] > begin) & (places[:, 0] < end)]
        planned = _planned(places[(places[:, 0] > begin) & (places[:, 0] <= training.end)])
        planned = planned or _planned(places[places[:, 0] < end])
        planned += [each.last for each in beside if _is_outer(each, training)]
        validations = [each for each in beside if _is_validation(each, training)]
        others = [each for each in beside if _OTHER.search(each.title.words)]
        validations += [each for each in others if _leads_to(each, validations, training)]
        if training.counts_epochs or _spans_epochs(training, own):
            training, planned, own = training._replace(epochs=None), [1], own[:0]
            records.events += [Fact(training.begin, "counts_epochs", True)] * training.counts_epochs
        _add_rows(training, validations, planned, own[np.isfinite(own[:, 1])], records)
        over = [line for line in ended[:, 0].tolist() if training.end < line < end]
        if over:
            records.events += [Fact(int(over[0]), name, "by plan") for name in ("ended", OTHER_PROGRAM)]
        if begin >= 0:
            records.events.append(Fact(training.begin, "process", training.begin, header=True))


def _spans_epochs(training: Bars, places: Floats) -> bool:
    """Whether one bar continues from epoch to epoch: lines that name several of them are printed along most bars.

    Or each epoch that is named ends where a bar of all epochs has reached its share: the first of 5 at a fifth.
    """
    if training.title.epoch is not None:
        return False
    known = places[np.isfinite(places[:, 1])]
    if len(training.laps) == 1:
        draws = training.laps[0]
        above = np.searchsorted([draw.line for draw in draws], known[:, 0], side="right") - 1
        at = np.array([draw.number for draw in draws])[above]
        inside = (above >= 0) & (at > 0) & (at < training.last) & np.isfinite(known[:, 2])
        _, epoch, epochs = known[inside].T
        if inside.any() and bool((np.abs(at[inside] * epochs - training.last * epoch) < epochs).all()):
            return True
    begins, ends = (np.array([lap[row].line for lap in training.laps]) for row in (0, -1))
    rows = zip(np.searchsorted(known[:, 0], begins), np.searchsorted(known[:, 0], ends, side="right"), strict=True)
    several = sum(len(np.unique(known[begin:end, 1])) > 1 for begin, end in rows)
    return 2 * several > len(training.laps)


def _planned(places: Floats) -> list[int]:
    """How many epochs are planned: the last number given along with an epoch, else all that are announced."""
    stated = places[np.isfinite(places[:, 2])]
    counted = stated[np.isfinite(stated[:, 1])]
    return [int(last) for last in (counted[-1:] if len(counted) else stated)[:, 2]]


def _has_losses_between(bars: Bars, spoken: _LossLines) -> bool:
    """Whether a loss or an epoch is mentioned above or below most of these bars, as in a training, not in loading."""
    places = np.unique(np.searchsorted([lap[-1].line for lap in bars.laps], spoken.line[spoken.about])).tolist()
    count = len(bars.laps)
    return count > 1 and max(sum(place < count for place in places), sum(place > 0 for place in places)) > count / 2


def _has_losses_along(bars: Bars, spoken: _LossLines, places: Floats) -> bool:
    """Whether losses of one epoch are printed while a single bar advances.

    Losses of a validation count only if there are steps between them: a bar may go through models that are evaluated.
    """
    lap = bars.laps[0]
    along = (places[:, 0] >= bars.begin) & (places[:, 0] <= bars.end) & np.isfinite(places[:, 1])
    if len(bars.laps) > 1 or len(np.unique(places[along, 1])) > 1:
        return False
    rows = np.searchsorted([draw.line for draw in lap], spoken.line, side="right")
    result = spoken.about & ~spoken.heads & (rows > 0) & (rows < len(lap))
    learnt, checked = (np.unique(rows[result & kind]) - 1 for kind in (~spoken.checks, spoken.checks))
    apart = bool((np.diff([lap[row].number for row in checked.tolist()]) > 1).all())
    return max(len(learnt), len(checked) * apart) >= 3  # two may be those of its beginning and end


def _is_checked(bars: Bars, every: list[int], spoken: _LossLines) -> bool:
    """Whether the lines after most of these bars mention a validation only, and no line above names the epoch.

    `every` has the lines of all drawings.
    """
    if not len(spoken.line):
        return False
    first, last = (np.array([lap[place].line for lap in bars.laps]) for place in (0, -1))
    behind = np.searchsorted(spoken.line, last, side="right")
    next_bar = np.append(every, np.inf)[np.searchsorted(every, last, side="right")]
    checks = np.append(spoken.checks, False)[behind] & (np.append(spoken.line, np.inf)[behind] < next_bar)
    above = np.searchsorted(spoken.line, first) - 1
    headed = (above >= 0) & spoken.heads[above]
    return 2 * int((checks & ~headed).sum()) > len(bars.laps)


def _has_more_steps_than_bar(bars: Bars, spoken: _LossLines) -> bool:
    """Whether lines with a loss count more steps between these bars than one of them has, most of the time."""
    known = np.isfinite(spoken.step)
    places = np.searchsorted([lap[-1].line for lap in bars.laps], spoken.line[known])
    steps = np.split(spoken.step[known], np.flatnonzero(np.diff(places)) + 1)
    return bool(known.any()) and bool(np.median([np.ptp(each) for each in steps]) > bars.last)


def _is_titled(bars: Bars) -> bool:
    return bool(_TRAINING.search(bars.title.words)) and not _VALIDATION.search(bars.title.words)


def _has_loss(bars: Bars) -> bool:
    """Whether the figures of the bar are those of a training."""
    names = (name.replace("_", " ") for name in (*bars.names, *bars.title.names))
    return any(_LEARNT.search(name) and not _VALIDATION.search(name) for name in names)


def _has_figures(bars: Bars) -> bool:
    """Whether its title is nothing but figures that change all the time, and that no inference would show."""
    names = bars.names.intersection(bars.title.names)
    own = (name for name in names if not _MEASURE.search(name) and not _VALIDATION.search(name.replace("_", " ")))
    return not bars.title.words and any(own)


def _trainings_of(bars: list[Bars], spoken: _LossLines, places: Floats, took: Floats) -> list[Bars]:
    """The bars of each training, in order; empty if nothing shows that any of them is one."""
    every = sorted(draw.line for each in bars for lap in each.laps for draw in lap)
    named = any(_is_titled(each) or _has_loss(each) or _has_figures(each) for each in bars)
    alone = max(bars, key=lambda each: each.spent_s, default=None) if not named else None
    likely = []
    for each in bars:
        words = each.title.words
        if _VALIDATION.search(words) or (_OTHER.search(words) and not _has_loss(each)):
            continue
        untitled = (
            not words
            and not each.names
            and (
                (_has_losses_between(each, spoken) and not _is_checked(each, every, spoken))
                or (each is alone and _has_losses_along(each, spoken, places))
            )
        )
        if untitled:
            between_s = took[took[:, 0] > each.begin, 1].sum()
            hidden = between_s >= 2 * sum(other.spent_s for other in bars)  # then these are not the training's bars
            untitled = not hidden and not _has_more_steps_than_bar(each, spoken)
        if _is_titled(each) or _has_loss(each) or _has_figures(each) or untitled:
            likely.append(each)
    # Exclude bars that contain a longer one; each is compared with the shortest of these, as there may be many bars.
    shortest: dict[int, float] = {}
    for each in likely:
        shortest[each.last] = min(shortest.get(each.last, math.inf), each.whole_s)
    longer, least = {}, math.inf
    for last in sorted(shortest, reverse=True):
        longer[last], least = least, min(least, shortest[last])
    inner = [
        each for each in likely
        if each.step_s < _SURELY * longer[each.last]
        and not (each.counts_epochs and any(_is_outer(each, other) for other in likely))
    ]  # fmt: skip
    runs: list[Bars] = []
    for each in sorted(inner, key=lambda each: -each.spent_s):
        alike = not runs or _is_titled(each)
        for run in _divided(each, places):
            # A single bar after a training, or between two, is a test of it.
            if (alike or len(run.laps) > 1) and all(run.end < other.begin or other.end < run.begin for other in runs):
                runs.append(run)
    return sorted(runs, key=lambda run: run.begin)


def _divided(bars: Bars, places: Floats) -> list[Bars]:
    """The bars of each run: another begins where the number of the epoch falls."""
    ends = np.array([lap[-1].number for lap in bars.laps])
    epochs = _numbered(bars.laps, places[np.isfinite(places[:, 1])])
    if len(ends) > 1 and bars.title.epoch is None and ends.max() < _SURELY * bars.last:
        epochs = np.zeros(len(ends), np.int64)  # what nearby lines count is not what these bars went through
    values, counts = np.unique(ends, return_counts=True)
    usual = values[np.argmax(counts)] if 2 * counts.max() > len(ends) else bars.last
    # An epoch that was not finished, unlike others, is not followed by another: the training was restarted.
    broken = (ends[:-1] < _SURELY * usual) & (np.array([lap[0].number for lap in bars.laps[1:]]) < ends[:-1])
    anew = broken if epochs is None else np.diff(epochs) <= 0
    cuts = (np.flatnonzero(anew | bars.counts_epochs) + 1).tolist()
    return [
        bars._replace(laps=bars.laps[begin:end], epochs=None if epochs is None else epochs[begin:end])
        for begin, end in pairwise([0, *cuts, len(bars.laps)])
    ]


def _is_outer(bars: Bars, inner: Bars) -> bool:
    """Whether a bar counts the epochs: one step of it takes as long as the whole other bar."""
    words = bars.title.words
    shorter = bars.last < inner.last or bars.counts_epochs
    if bars is inner or not shorter or _OTHER.search(words) or _VALIDATION.search(words):
        return False
    return bars.step_s >= _SURELY * inner.whole_s


def _is_validation(bars: Bars, training: Bars) -> bool:
    if bars is training or _OTHER.search(bars.title.words) or _is_outer(bars, training):
        return False
    begin, end = training.laps[0][0].line, training.laps[-1][-1].line
    within = [lap for lap in bars.laps if lap[-1].line >= begin]
    repeats = len(within) > 1 and within[0][0].line < end
    named = bool(_VALIDATION.search(bars.title.words))
    return bool(within) and (named or (repeats and bars.spent_s < training.spent_s))


def _leads_to(bars: Bars, validations: list[Bars], training: Bars) -> bool:
    """Whether a validation mostly follows a bar of something else: features that it works on."""
    checks = [(lap[-1].line, True) for each in validations for lap in each.laps]
    following = sorted([*checks, *((lap[-1].line, False) for lap in training.laps)])
    places = (bisect_right(following, (lap[-1].line, True)) for lap in bars.laps)
    leading = sum(place < len(following) and following[place][1] for place in places)
    return 2 * leading > max(len(bars.laps), len(training.laps))


def _thinned(lap: list[Draw], *, first: bool) -> list[Draw]:
    """Positions far enough apart for the clock, and the last; for the first epoch, also the first.

    The first step of a later epoch starts the loader again, as in each: it is part of the next row.
    """
    kept = lap[:1] if first and lap[0].number == 1 else []
    for draw in lap[len(kept) : -1]:
        since = draw.elapsed_s - (kept[-1].elapsed_s if kept else 0.0)
        if since >= _LEAST_S and lap[-1].elapsed_s - draw.elapsed_s >= _LEAST_S:
            kept.append(draw)
    return [*kept, lap[-1]] if len(lap) > len(kept) else kept


def _numbered(laps: list[list[Draw]], places: Floats) -> Ints | None:
    """The epoch of each lap from 0 on, as titles and lines number it, since bars may be missing; or None.

    Lines that name the end are used first: others may count from another beginning, or something else.
    """
    begins, ends = np.array([lap[0].line for lap in laps]), np.array([lap[-1].line for lap in laps])
    edges, following = np.append(-1, ends), np.append(begins[1:], np.inf)
    for stated in (places[np.isfinite(places[:, 2])], places):
        above = np.searchsorted(stated[:, 0], ends, side="right") - 1  # named before its bar or in its title
        below = np.searchsorted(stated[:, 0], ends)  # or along with its results
        padded = np.concatenate((stated, [[-1.0, np.nan, np.nan]]))
        for rows, least, most in ((above, edges[:-1], ends), (below, ends, following)):
            known = (padded[rows, 0] >= least) & (padded[rows, 0] <= most) & (rows >= 0)
            epochs = padded[rows, 1]
            if known.all():
                falls = np.diff(epochs) <= 0
                # The same number for consecutive epochs is not the number of an epoch.
                if 2 * int(falls.sum()) < len(laps) or not falls.any() or bool((np.diff(epochs)[falls] < 0).all()):
                    return np.asarray(epochs, np.int64) - min(int(stated[:, 1].min()), 1)
    return None


def _add_epochs(training: Bars, batches: int, evaluations: list[tuple[int, float]], records: Records) -> None:
    """Adds a bar that only counts epochs, with all that ran in them; evaluations are subtracted if all are known."""
    draws = [draw for draw in training.laps[-1] if draw.number > 0]
    number = np.array([draw.number for draw in draws], np.int64)
    line = np.array([draw.line for draw in draws], np.int64)
    rows = np.searchsorted(line, [at for at, _ in evaluations])
    spent = np.diff([draw.elapsed_s for draw in draws], prepend=0.0)
    took_s = np.array([took for _, took in evaluations])
    inside = np.bincount(rows, took_s, len(line) + 1)[: len(line)]  # without the one after the last epoch
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


def _add_rows(training: Bars, validations: list[Bars], planned: list[int], places: Floats, records: Records) -> None:
    checks = sorted((lap for bars in validations for lap in bars.laps), key=lambda lap: lap[-1].line)
    ends = [check[-1].line for check in checks]
    begins_of = [lap[0].line for lap in training.laps[1:]] + [math.inf]
    laps: list[list[Draw]] = []
    checked = [
        bisect_right(ends, lap[-1].line) < bisect_left(ends, end)
        for lap, end in zip(training.laps, begins_of, strict=True)
    ]
    at_end = any(
        followed and lap[-1].number == training.last for lap, followed in zip(training.laps, checked, strict=True)
    )
    for lap, followed in zip(training.laps, checked, strict=True):
        last = lap[-1]
        seconds = last.elapsed_s * training.last / last.number
        is_near = seconds - last.elapsed_s < 2 * WHOLE_SECONDS  # as if the bar was removed at its end
        if followed and last.number < training.last and (at_end or is_near):
            # A validation follows, as after other epochs that were finished: the last position is not in the log.
            lap = [*lap, last._replace(number=training.last, elapsed_s=seconds)]
        reached = accumulate((draw.number for draw in lap), max, initial=0)
        rising = [draw for draw, before in zip(lap, reached, strict=False) if draw.number > before]
        laps.append(_thinned(rising, first=not laps))
    draws = [draw for lap in laps for draw in lap]
    lengths = np.array([len(lap) for lap in laps])
    number = np.array([draw.number for draw in draws], np.int64)
    begins = np.cumsum(lengths) - lengths
    line = np.array([draw.line for draw in draws], np.int64)
    elapsed, error = np.array([draw.elapsed_s for draw in draws]), np.full(len(draws), WHOLE_SECONDS)
    numbered = _numbered(training.laps, places) if training.epochs is None else training.epochs
    epochs = np.arange(len(laps)) if numbered is None else numbered
    whole = number + repeated(epochs, lengths) * training.last
    evaluations, paused = [], []
    for lap, row in zip(checks, (np.searchsorted(line, ends) - 1).tolist(), strict=True):
        if row >= 0:
            evaluations.append(Evaluation(line=lap[-1].line, at=int(whole[row]), took_s=lap[-1].elapsed_s))
            paused.append(row)
    took = [evaluation.took_s or 0.0 for evaluation in evaluations]
    times = lap_times(EpochClocks(number, elapsed, error, begins, number[begins]), paused, took)
    loss = np.array([draw.loss for draw in draws])
    kept = times > 0
    records.add_rows(number=whole[kept], time_s=times[kept], loss=loss[kept], line=line[kept])
    records.events += _filled(_merged(evaluations), epochs, training.last)
    begun = int(line[0])
    facts: dict[str, int] = {"averaged": 1, "first_covers": int(number[0])}
    counts_steps = _has_figures(training) or _STEPS.search(training.title.words)  # of the whole training
    if not planned and not len(places) and len(laps) == 1 and counts_steps:
        planned = [1]
    if planned and max(planned) > epochs[-1]:
        facts["max_iters"] = max(planned) * training.last
        if whole[-1] >= facts["max_iters"]:
            records.events.append(Fact(training.end, OTHER_PROGRAM, True))
    records.events += [Fact(begun, name, value) for name, value in facts.items()]


def _filled(evaluations: list[Evaluation], epochs: Ints, batches: int) -> list[Evaluation]:
    """Adds evaluations whose bars were not kept, if most epochs end with one."""
    ends = {(epoch + 1) * batches for epoch in epochs.tolist()}
    at_end = [each for each in evaluations if each.at in ends]
    first, last = int(epochs.min()), int(epochs[-1])
    if 2 * len(at_end) <= max(len(epochs), last - first + 1):  # a number far off does not belong to this training
        return evaluations
    took = sorted(each.took_s or 0.0 for each in at_end)[len(at_end) // 2]
    missing = set(range((first + 1) * batches, last * batches + 1, batches)) - {each.at for each in evaluations}
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
    name="tqdm-loop", timing=Timing.SPANS_LOG_INTERVAL,
    sniff=sniff, parse=parse, finish=finish, traits=Traits(may_evaluate=True), strongest=_STRONGEST,
    claims_any_bar=True,
)  # fmt: skip
