"""What the numbers of an example line may be, by the words and units next to them.

Several may be the iteration's number, and several a time: each of these is a claim with a weight, and the lines of the
log decide between them (like_readings.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from stepwatch.patterns import Pattern
from stepwatch.units import DAY_S, HOUR_S, MINUTE_S

_CLOCK = r"\d{1,6}:\d\d(?::\d\d)?(?:\.\d{1,9})?"
_STAMP = r"(?:19|20)\d\d[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?"
_BAR = r"(?<=\|)(?:[\u2588-\u258f]+ *|#+\d? *| {8,})(?=\|)"
_DRAWING = r"\[[=>.]{5,80}\]|\u2501{2,80}"
_DURATION = r"\d{1,7}[dhm](?: \d{1,7}[hms]){1,3}"
THOUSANDS, PLAIN = r"\d+(?:,\d{3})*", r"\d+"
_COUNT = r"(?:global[_ ]?step|it|iters?|iterations?|steps?|(?:mini_?)?batch(?:es)?|updates?)"
_GLUED = ("iter", "iteration", "step", "batch", "epoch")  # as in `iter12` and `step_12`
# By the letters people write: the unit as it is shown to the user, and its seconds.
UNITS = {
    **dict.fromkeys(("ns", "nsec", "nanosecond", "nanoseconds"), ("ns", 1e-9)),
    **dict.fromkeys(("us", "\u00b5s", "\u03bcs", "usec", "microsecond", "microseconds"), ("\u00b5s", 1e-6)),
    **dict.fromkeys(("ms", "msec", "msecs", "millis", "millisecond", "milliseconds"), ("ms", 1e-3)),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), ("s", 1.0)),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), ("min", MINUTE_S)),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), ("h", HOUR_S)),
    **dict.fromkeys(("d", "day", "days"), ("d", DAY_S)),
}
_LETTERS = ("m", "h", "d")  # as capitals they mean millions and the like
_UNIT_WORDS = "|".join(sorted(UNITS.keys() - set(_LETTERS), key=len, reverse=True))
_UNIT = rf"(?P<unit>{_UNIT_WORDS}|(?-i:[{''.join(_LETTERS)}]))"
_PER, _A_SECOND = r"\s?(?:/|_per_|per\b)\s?", r"(?:secs?|seconds?|s)\b"
# After a number.
_UNIT_BEHIND = Pattern(rf"(?i)\s?[(\[]?{_UNIT}\b(?P<each>{_PER}{_COUNT}\b)?(?!{_PER}epoch|\s?[:=]\s?\d)")
_RATE_BEHIND = Pattern(rf"(?i)\s?(?:{_COUNT}|its|b){_PER}{_A_SECOND}")
_TOKENS_BEHIND = Pattern(rf"(?i)\s?(?P<thousands>k?)\s?(?:tok|tokens?){_PER}{_A_SECOND}")
_COUNT_BEHIND = Pattern(rf"(?i)(?:st|nd|rd|th)?\s?{_COUNT}\b")
_END_BEHIND = Pattern(r"\s*/\s*\d[\d,]*(?![\d.]*\s*[/.])|\s+of\s+\d")
_LATER_BEHIND = Pattern(r"(?i)\s?\w{1,8}\s(?:left|remaining|to go)\b")
_NAMED_BEHIND = Pattern(r"\s?(?:%|[A-Za-z]\w*\b(?!\s?[:=]))")
_BRACKET_BEHIND = Pattern(r"\s*\[\s*\d")
# Before a number, without the spaces that pad it.
_RATE_BEFORE = Pattern(rf"(?i)(?<![A-Za-z]){_COUNT}{_PER}{_A_SECOND}\W{{0,4}}$")
_TOKENS_BEFORE = Pattern(rf"(?i)(?<![A-Za-z])(?P<thousands>k?)tok(?:ens?)?{_PER}{_A_SECOND}\W{{0,4}}$")
_EACH_BEFORE = Pattern(
    rf"(?i)(?:(?<![A-Za-z]){_UNIT}{_PER}{_COUNT}|(?:\b|_){_COUNT}_{_UNIT.replace('<unit>', '<other>')}"
    rf"|\btim(?:e|ing)s?_{_UNIT.replace('<unit>', '<group>')}/{_COUNT})\W{{0,4}}$"
)
_TIMED_BEFORE = Pattern(
    r"(?i)(?:\b|_)(?:dt|time|timing|took|takes|duration|elapsed|latency|wall(?:clock)?|runtime)"
    rf"(?P<each>{_PER}{_COUNT}|\s{_COUNT}{_PER}{_COUNT})?(?:[_\s,]{{0,2}}(?:in\s)?[(\[]?{_UNIT}[)\]]?)?\W{{0,4}}$"
)
_UNIT_BEFORE = Pattern(r"(?i)(?<![\w/])(?P<unit>ms|msec|secs?|seconds?)\W{0,2}[:=]$")
_PART_BEFORE = Pattern(
    r"(?i)(?:\b|_)(?:data|load(?:ing|er)?|fetch|fwd|bwd|forward|backward|eval(?:uation)?|val(?:idation)?|test|wait|comm"
    r"|opt(?:imizer)?|save|ckpt|checkpoint|epoch)(?:[_\s](?:time|dt|timing|took))?(?:[_\s(\[]{0,2}(?:ms|s)[)\]]?)?\W{0,4}$"
)
_GROUP_BEFORE = Pattern(r"(?i)\btim(?:e|ing)s?_(?P<unit>ms|s)/[\w/]{1,40}\W{0,4}$")  # as in `timing_s/gen:12.1`
_RUNS_BEFORE = Pattern(r"(?i)(?:\b|_)(?:elapsed|total|since|wall(?:clock)?|runtime)(?:\b|_)[^\d]{0,20}$")
_MEAN_BEFORE = Pattern(r"(?i)(?:\b|_)(?:avg|average|mean)(?:\b|_)[^\d]{0,20}$")
_LATER_BEFORE = Pattern(
    r"(?i)(?:\b|_)(?:eta|remaining|left|until)(?![A-Za-z])[^\d]{0,20}(?:\d+\s?(?:days?|d|hours?|hrs?|h|minutes?|mins?|m)\s?){0,3}$"
)
_COUNT_BEFORE = Pattern(rf"(?i)(?:\b|_)(?P<word>{_COUNT})(?:[_ ](?:no|num|number|idx|id))?_?\W{{0,4}}$")
_OF_BEFORE = Pattern(r"\d\s*(?:/|of)\s*$")
_GOING_BEFORE = Pattern(r"(?i)\b(?:train(?:ing)?|progress)\W{0,4}$")
_NAME_BEFORE = Pattern(r"[A-Za-z]\W{0,4}$")
_EPOCH_BEFORE = Pattern(r"(?i)(?:\b|_)(?:epochs?|ep)(?:\s?\([a-z]{1,10}\))?_?\W{0,4}$")
_LOSS_BEFORE = Pattern(r"(?i)(?:(?P<own>\b)|_)loss\W{0,4}$")
_VAL_BEFORE = Pattern(r"(?i)(?:\b|_)(?:val|valid|validation|eval|test|dev)[_\s]\w{0,12}\W{0,4}$")
_MEAN_BETWEEN = Pattern(r"\s?(?:ms|s)?,?\s*(?:[\d.]+\s?/s)?\s*\(\s*")
_UNIX = Pattern(r"1\d{9}(?:\.\d+)?")
_WORD_BEFORE = Pattern(r"([A-Za-z_][\w./-]{0,40}(?: \(\w{1,8}\))?)\W{0,4}$")
_LOOKED_AT = 100  # letters next to a number that are read; a long line has many numbers
_LESS_FOR_MEAN = 4  # a mean is chosen only if no other time is as likely


class Piece(NamedTuple):
    text: str
    kind: str
    """number, clock, stamp, duration, bar, drawing, word, space or other."""
    begin: int
    end: int

    @property
    def is_whole(self) -> bool:
        return self.kind == "number" and self.text.replace(",", "").isdecimal()


class Claim(NamedTuple):
    """What a number may be, and how strong the evidence is."""

    kind: str
    """number, epoch, loss, tokens_per_s, time, or stamp."""
    weight: int = 0
    unit: str = ""
    """Of a time, as it is shown to the user; empty if none is printed, and seconds are assumed."""
    scale: float = 1.0
    """The unit in seconds."""
    is_rate: bool = False
    """Iterations per second instead of a time."""
    each: bool = False
    """Whether the words next to it say that it is of one iteration."""
    runs: bool = False
    """Whether the words next to it say that it has passed since some start."""
    is_mean: bool = False
    """Whether the words next to it say that it is a mean."""


def pieces_of(line: str, figure: str) -> list[Piece]:
    """Splits the line into numbers, words and what is between them; `figure` is how whole numbers are written."""
    glued = "|".join(rf"(?<={word}{mark})" for word in _GLUED for mark in ("", "_"))
    token = re.compile(
        rf"(?P<stamp>(?<![\w.:-]){_STAMP}(?!\d))|(?P<clock>(?<![\w.:]){_CLOCK}(?![\d.:]))"
        rf"|(?P<duration>(?<![\w.]){_DURATION}\b)|(?P<bar>{_BAR})|(?P<drawing>{_DRAWING})"
        rf"|(?P<number>(?:(?<![\w.])|(?i:{glued}))(?:[-+]?(?:{figure}(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?|nan|inf|NaN)(?!\d|\.\d))"
        rf"|(?P<word>[^\W\d]*?(?i:{'|'.join(_GLUED)})_?(?=\d+\b)|\w+)|(?P<space>\s+)|(?P<other>.)"
    )
    return [Piece(found[0], str(found.lastgroup), found.start(), found.end()) for found in token.finditer(line)]


def claims_of(line: str, pieces: Sequence[Piece]) -> dict[int, Claim]:
    """What the numbers among the pieces may be, by their index."""
    found = {place: claim for place, piece in enumerate(pieces) if (claim := _claim(line, piece)) is not None}
    for place, claim in list(found.items()):  # as in `Time 0.340 ( 0.412)`
        following = [i for i in range(place + 1, len(pieces)) if pieces[i].kind == "number"][:2]
        for other in following if claim.kind == "time" else ():
            if _MEAN_BETWEEN.fullmatch(line[pieces[place].end : pieces[other].begin]):
                found[other] = claim._replace(weight=claim.weight - _LESS_FOR_MEAN, is_mean=True)
    if any(claim.kind == "number" for claim in found.values()):
        return found
    # No word shows it: the number may be what the line begins with, one without a name after it, or any.
    spare = [place for place, piece in enumerate(pieces) if piece.is_whole and place not in found]
    spare = [
        place
        for place in spare
        if not any(pattern.search(_before(line, pieces[place])) for pattern in (_LATER_BEFORE, _OF_BEFORE))
    ]
    word = next((place for place, piece in enumerate(pieces) if piece.kind == "word"), len(pieces))
    epochs = any(claim.kind == "epoch" for claim in found.values())
    for place in spare:
        unnamed = not _NAMED_BEHIND.match(line, pieces[place].end)
        weight = -1 if place < word else -2 if unnamed else -3
        if weight > -3 or not epochs:  # an epoch is better than a number about which nothing is known
            found[place] = Claim("number", weight)
    return found


def word_before(line: str, piece: Piece) -> str:
    """What the line calls a figure."""
    found = _WORD_BEFORE.search(_before(line, piece))
    return found[1].strip() if found else ""


def _before(line: str, piece: Piece) -> str:
    return line[max(piece.begin - _LOOKED_AT, 0) : piece.begin]


def _claim(line: str, piece: Piece) -> Claim | None:
    before, behind = _before(line, piece).rstrip(), line[piece.end : piece.end + _LOOKED_AT]
    if piece.kind == "stamp":
        return Claim("stamp")
    if piece.kind not in ("number", "clock", "duration") or _LATER_BEFORE.search(before) or _LATER_BEHIND.match(behind):
        return None
    if piece.kind in ("clock", "duration"):
        runs = _RUNS_BEFORE.search(before) is not None
        named = runs or _TIMED_BEFORE.search(before) is not None
        return Claim("time", 1, "h:min:s", runs=True) if named else None
    if _UNIX.fullmatch(piece.text):
        return Claim("stamp")
    tokens = _TOKENS_BEHIND.match(behind) or (not _UNIT_BEHIND.match(behind) and _TOKENS_BEFORE.search(before))
    if tokens:
        return None if tokens["thousands"] else Claim("tokens_per_s", 1)
    time = _time_claim(before, behind)
    if time is not None:
        return time
    loss = _LOSS_BEFORE.search(before)
    if loss:
        return None if _VAL_BEFORE.search(before) else Claim("loss", 1 if loss["own"] is None else 2)
    if not piece.is_whole:
        return None
    going = _GOING_BEFORE.search(before)
    if _EPOCH_BEFORE.search(before) or (going and _BRACKET_BEHIND.match(behind)):  # as in `Train: 2 [ 50/1251`
        return Claim("epoch", 1)
    ends = _END_BEHIND.match(behind) is not None and not before.endswith("/")
    counted = _COUNT_BEFORE.search(before)
    if counted:
        return Claim("number", 6 if ends else 5 if counted["word"].lower().startswith("global") else 4)
    if ends:
        return Claim("number", 1 if _NAME_BEFORE.search(before) and not going else 5)
    return Claim("number", 2) if _COUNT_BEHIND.match(behind) else None


def _time_claim(before: str, behind: str) -> Claim | None:
    runs, is_mean = _RUNS_BEFORE.search(before) is not None, _MEAN_BEFORE.search(before) is not None
    group = _GROUP_BEFORE.search(before)
    each = _EACH_BEFORE.search(before)
    part = _PART_BEFORE.search(before) is not None or (group is not None and each is None)
    less = 3 * part + 2 * runs + _LESS_FOR_MEAN * is_mean
    if _RATE_BEHIND.match(behind) or _RATE_BEFORE.search(before):
        return Claim("time", 3 - less, "it/s", is_rate=True, each=True, is_mean=is_mean)
    unit, timed, named = _UNIT_BEHIND.match(behind), _TIMED_BEFORE.search(before), _UNIT_BEFORE.search(before)
    if each:
        letters, weight = each["unit"] or each["other"] or each["group"], 4
    elif unit:
        letters, weight = unit["unit"], 4 if unit["each"] else 3 if timed else 2
        if letters in _LETTERS and not timed and not unit["each"]:
            weight = 1
    elif timed:
        letters, weight = timed["unit"], 4 if timed["each"] else 3
    elif named or group:
        letters, weight = (named or group)["unit"], 2  # type: ignore[index]
    else:
        return None
    shown, scale = UNITS[letters.lower()] if letters else ("", 1.0)
    of_one = bool(each or (unit and unit["each"]) or (timed and timed["each"]))
    return Claim("time", weight - less, shown, scale, each=of_one, runs=runs and not of_one, is_mean=is_mean)
