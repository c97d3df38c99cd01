"""tqdm's bars in a text: their titles and the figures in these, and which drawings belong to one bar."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from stepwatch.patterns import Pattern
from stepwatch.readers.formats.running import WHOLE_SECONDS
from stepwatch.readers.text.line import value_of
from stepwatch.run import Ints

_BAR = Pattern(  # the second form has no total: tqdm around a generator; the first is Rich's, as Lightning draws it
    rb"(?:\xe2[\x94\x95][\x80-\xbf]){2,200} *(?P<done>\d{1,12})/(?P<whole>\d{1,12}) +"
    rb"(?P<spent>\d{1,6}:\d\d:\d\d) \xe2\x80\xa2 +[\d:-]{1,12}(?: +[\d.]{1,12}it/s)?(?P<beside>[^\n]{0,400})"
    rb"|(?:(?<!\d)\d{1,3}%[^\S\n]*(?:\|[^|\n]{0,1200}\|)?[ ]*(?P<number>\d{1,12})/(?P<last>\d{1,12}) "
    rb"\[(?P<elapsed>\d{1,6}(?::\d\d){1,2})<[^,\]\n]{1,24}"
    rb"|(?<![\w.])(?P<count>\d{1,12})(?i:it|batch|step) \[(?P<since>\d{1,6}(?::\d\d){1,2})), *"
    rb"(?:(?P<per_s>[\d.]{1,12}|\?) ?(?i:it|iter|batch|batches|step|steps)/s"
    rb"|(?P<s_per>[\d.]{1,12}) ?s/(?i:it|iter|batch|batches|step|steps))"
    rb"(?P<behind>[^\]\n]{0,400})\]"
)
_CLOCK = Pattern(rb"\[\d{1,6}:\d\d|:\d\d \xe2\x80\xa2 ")  # in every bar: other lines are not searched
_FIGURE = Pattern(  # a whole number is an epoch or a step; a figure has a point
    r"(?P<name>[A-Za-z_][\w@/.-]{0,40}?)\]?[ ]?(?:[:=][ ]?|[ ])(?:tensor\()?(?:\[[\d;]{1,12}m)?"
    r"(?P<value>[-+]?(?:\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+|nan|inf)(?![\w/]))(?:%|\))?"
)
_EPOCH = Pattern(r"(?i)\bepochs?\b[^\w\n]{0,4}(?P<epoch>\d{1,6})(?: ?(?:/|of) ?(?P<last>\d{1,6}))?")
_NUMBER = Pattern(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_WHOLE = Pattern(r"(?<![\d.])(?<!e[-+])\d+(?![\d.%]|e[-+])")
_Key = tuple[str, tuple[str, ...], int]


class Title(NamedTuple):
    """The text before a bar."""

    words: str = ""
    """Without figures; each number is a #."""
    names: tuple[str, ...] = ()
    """Names of its figures, which are losses and rates."""
    values: tuple[str, ...] = ()
    epoch: int | None = None
    last_epoch: int = 0
    numbers: tuple[str, ...] = ()
    """Whole numbers: if they change and the bar does not advance, it is another bar."""


NO_TITLE = Title()


class Draw(NamedTuple):
    line: int
    number: int
    elapsed_s: float
    loss: float = math.nan


class Drawn(NamedTuple):
    """One drawing of a bar, as found in the text."""

    title: Title
    behind: Title
    line: int
    number: int
    last: int
    elapsed_s: float


class Bars(NamedTuple):
    """All bars with the same title and length: their drawings, divided where a bar begins again."""

    title: Title
    last: int
    laps: list[list[Draw]]
    names: frozenset[str]
    """Names of the figures in the title or after the bar that change from drawing to drawing."""
    counts_epochs: bool = False
    """Whether the epoch in its title is the bar's own position."""
    epochs: Ints | None = None
    """The epoch of each lap, from 0 on, if the log numbers them."""

    @property
    def spent_s(self) -> float:
        return sum(lap[-1].elapsed_s for lap in self.laps)

    @property
    def step_s(self) -> float:
        last = self.laps[-1][-1]
        return last.elapsed_s / last.number

    @property
    def whole_s(self) -> float:
        """The time of one of these bars from beginning to end."""
        lap = max(self.laps, key=lambda lap: lap[-1].number)[-1]
        return lap.elapsed_s / lap.number * self.last

    @property
    def key(self) -> _Key:
        """The same for all bars that are alike."""
        return self.title.words, self.title.names, self.last

    @property
    def begin(self) -> int:
        return self.laps[0][0].line

    @property
    def end(self) -> int:
        return self.laps[-1][-1].line

    def within(self, begin: float, end: float) -> Bars | None:
        """The bars that end between two lines."""
        laps = [lap for lap in self.laps if begin <= lap[-1].line < end]
        return self._replace(laps=laps) if laps else None


def found_in(text: bytes) -> Iterator[tuple[re.Match[bytes], Title]]:
    """The bars, each with its title: the text before it on its line, after any other bar."""
    begin = 0
    while clock := _CLOCK.search(text, begin):
        end = text.rfind(b"\n", begin, clock.start()) + 1 or begin
        begin = text.find(b"\n", clock.end())
        if begin < 0:
            begin = len(text)
        for found in _BAR.finditer(text, end, begin):
            yield found, title_of(text[end : found.start()][-160:])
            end = found.end()


@lru_cache(maxsize=1000)
def title_of(text: bytes) -> Title:
    plain = text.decode("utf-8", "replace").strip(" :-\r\t")
    if not plain:
        return NO_TITLE
    figures = list(_FIGURE.finditer(plain))
    bare = _FIGURE.sub("", plain) if figures else plain
    epoch = _EPOCH.search(bare)
    return Title(
        " ".join(_NUMBER.sub("#", bare).split()).strip(" :;,|-"),
        tuple(found["name"] for found in figures),
        tuple(found["value"] for found in figures),
        int(epoch["epoch"]) if epoch else None,
        int(epoch["last"] or 0) if epoch else 0,
        tuple(found[0] for found in _WHOLE.finditer(bare)),
    )


def drawn(found: re.Match[bytes], title: Title, line: int) -> Drawn:
    number, last = int(found["number"] or found["count"] or found["done"]), int(found["last"] or found["whole"] or 0)
    behind = title_of((found["behind"] or found["beside"] or b"").lstrip(b", "))
    return Drawn(title, behind, line, number, last, _seconds(found, number))


def _seconds(found: re.Match[bytes], number: int) -> float:
    """Elapsed seconds: the clock has whole ones; the rate is more precise if it is the mean of all steps."""
    shown = value_of((found["elapsed"] or found["since"] or found["spent"]).decode(), "clock")
    try:
        per_s, s_per = float(found["per_s"] or 0), float(found["s_per"] or 0)
    except ValueError:
        per_s = s_per = 0.0
    exact = number / per_s if per_s > 0 else number * s_per
    if number == 0:
        return 0.0
    return exact if shown <= exact < shown + 1 else shown + WHOLE_SECONDS


def bars_of(kept: list[Drawn]) -> list[Bars]:
    """All bars by title and length, in the order of their first appearance."""
    found: dict[_Key, Bars] = {}
    before: dict[_Key, Drawn] = {}
    changes: dict[_Key, set[str]] = {}
    ended: dict[_Key, Drawn] = {}
    drawn: object = None
    titled = list(_titled(_with_totals(kept)))
    of_epochs = _keys_of_epochs(titled)
    for each in titled:
        key = _key(each)
        if key in of_epochs:
            each = each._replace(title=each.title._replace(epoch=None, numbers=()))
        if key not in found:
            found[key] = Bars(each.title, each.last, [], frozenset(), key in of_epochs)
            changes[key] = set()
        bars = found[key]
        if each.title.names or each.behind.names:
            changes[key].update(_changes(before.get(key), each))
        lap = bars.laps[-1] if bars.laps else []
        late = key in ended and before[key].number == 0 and each.number == each.last
        if late and each.title.epoch == ended[key].title.epoch != before[key].title.epoch:
            continue  # closed only after the next one had begun
        if not lap or _begins(each, before[key], lap, right_behind=drawn == key):
            bars.laps.append([])
            if lap:
                ended[key] = before[key]
        before[key], drawn = each, key
        loss = _loss(each.title, each.behind)
        bars.laps[-1].append(Draw(each.line, each.number, each.elapsed_s, loss))
    whole = []
    for key, bars in found.items():
        # A bar that was never drawn beyond its beginning has no time.
        laps = [lap for lap in bars.laps if lap[-1].number > 0]
        if laps and bars.last > 1:
            whole.append(bars._replace(laps=laps, names=frozenset(changes[key])))
    return whole


def _key(drawn: Drawn) -> _Key:
    return drawn.title.words, drawn.title.names, drawn.last


def _keys_of_epochs(drawn: list[Drawn]) -> set[_Key]:
    """Bars that advance with the epoch in their title, and differ from it at most by where counting begins."""
    ahead: dict[_Key, set[int]] = {}
    epochs: dict[_Key, set[int]] = {}
    before: dict[_Key, tuple[int, Drawn]] = {}
    others: set[_Key] = set()
    for each in drawn:
        key, epoch = _key(each), each.title.epoch
        if epoch is None:
            others.add(key)
            continue
        ahead.setdefault(key, set()).add(epoch - each.number)
        epochs.setdefault(key, set()).add(epoch)
        then, last = before.get(key, (epoch, each))
        if epoch > then and (each.elapsed_s < last.elapsed_s - 1 or last.number == last.last):
            others.add(key)
        before[key] = epoch, each
    near = {key for key, steps in ahead.items() if steps <= {0, 1} or steps <= {-1, 0}}
    return {key for key in near - others if len(epochs[key]) > 1}


def _titled(kept: list[Drawn]) -> Iterator[Drawn]:
    """Gives the first drawings of a bar the title that the loop sets later."""
    following = None
    whole = []
    for each in reversed(kept):
        if (
            following is not None and each.title == NO_TITLE and following.last == each.last
            and each.line <= following.line <= each.line + 2 and each.number <= following.number
            and each.elapsed_s <= following.elapsed_s + 1 and each.number <= 1
        ):  # fmt: skip
            each = each._replace(title=following.title._replace(values=()))
        whole.append(each)
        following = each
    return reversed(whole)


def _changes(before: Drawn | None, drawn: Drawn) -> Iterator[str]:
    """The names of figures that differ from the previous drawing; for a first drawing, those after the bar."""
    for side in ("title", "behind"):
        now: Title = getattr(drawn, side)
        then: Title = getattr(before, side) if before is not None else NO_TITLE
        known = dict(zip(then.names, then.values, strict=False))
        if side == "behind" or known:
            pairs = zip(now.names, now.values, strict=False)
            yield from (name for name, value in pairs if known.get(name, "") != value)


def _begins(drawn: Drawn, before: Drawn, lap: list[Draw], *, right_behind: bool) -> bool:
    """Whether a drawing belongs to another bar than the previous one with the same title."""
    back = drawn.number < before.number or drawn.elapsed_s < before.elapsed_s - 1
    if back or drawn.title.epoch != before.title.epoch:
        return True
    if drawn.number > before.number:
        return False
    if drawn.title.numbers != before.title.numbers and drawn.title.epoch is None:
        return drawn.number == drawn.last
    if drawn.number < drawn.last:
        return False
    # The last position again: the same bar if directly below, and more of it than its end is logged or it is near.
    if right_behind and lap[0].number < drawn.last:
        return False
    return not right_behind or drawn.line - before.line > 2 or drawn.elapsed_s > before.elapsed_s + 1


def _loss(*titles: Title) -> float:
    for title in titles:
        for name, value in zip(title.names, title.values, strict=False):
            if name.lower().endswith("loss") and "val" not in name.lower():
                return float(value)
    return math.nan


def _with_totals(kept: list[Drawn]) -> list[Drawn]:
    """Adds a total to bars that have none: the number at which most bars of that title ended."""
    ends: dict[str, Counter[int]] = {}
    open_bars: dict[str, Drawn] = {}
    full: dict[str, Drawn] = {}
    counted = []
    for each in kept:
        whole = full.get(each.title.words)
        if each.last:
            full[each.title.words] = each
        elif whole and each.number > whole.last and whole.elapsed_s <= each.elapsed_s < 2 * whole.elapsed_s:
            continue  # a bar that went beyond its total, which tqdm then omits
        counted.append(each)
        if each.last == 0:
            before = open_bars.get(each.title.words)
            if before is not None and (each.number <= before.number or each.title.numbers != before.title.numbers):
                ends.setdefault(each.title.words, Counter())[before.number] += 1
            open_bars[each.title.words] = each
    for words, last in open_bars.items():
        if words in ends:  # a single bar shows no total
            ends[words][last.number] += 1
    totals = {words: max(counts, key=lambda number: (counts[number], number)) for words, counts in ends.items()}
    totalled = (each if each.last else each._replace(last=totals.get(each.title.words, 0)) for each in counted)
    return [each for each in totalled if each.number <= each.last]
