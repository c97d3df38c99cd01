"""Any numbered line with a time, taught by one example: `it 12 | 0.34 s`.

What stands in the example decides: a number beside a word such as `iter`, or before its end as in `12/500`, is the
iteration's, one with a unit of time is the time, one behind `loss` the loss; other numbers stand for any number, words
for themselves. What one line cannot tell, the others do: whether the count begins anew with each epoch, and whether the
time is that of an iteration or a clock that runs on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from stepwatch.errors import UsageError
from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.formats.running import WHOLE_SECONDS, Clock, median, step_times
from stepwatch.readers.reader import BOTH, Reader
from stepwatch.readers.records import LARGEST_KEPT, Records
from stepwatch.readers.text.line import FLOAT, Line
from stepwatch.readers.text.line_format import LineFormat, at_of
from stepwatch.readers.text.stamps import stamp_of, strip_prefix
from stepwatch.run import Checkpoint, Evaluation, Fact, Floats, Ints, Iterations, Timing

NAME = "like"
_CLOCK = r"\d{1,6}:\d\d(?::\d\d)?(?:\.\d{1,9})?"
_THOUSANDS, _PLAIN = r"\d+(?:,\d{3})*", r"\d+"
_COUNT = r"(?:global[_ ]?step|it|iters?|iterations?|steps?|(?:mini_?)?batch(?:es)?|updates?)"
_GLUED = ("iter", "iteration", "step", "batch", "epoch")  # as in `iter12` and `step_12`
_UNITS = {
    "us": "time_us", "\u00b5s": "time_us", "usec": "time_us", "ms": "time_ms", "msec": "time_ms",
    "millisecond": "time_ms", "milliseconds": "time_ms", "s": "time_s", "sec": "time_s", "secs": "time_s",
    "second": "time_s", "seconds": "time_s", "min": "time_min", "mins": "time_min", "minutes": "time_min",
}  # fmt: skip
_UNIT = rf"(?P<unit>{'|'.join(sorted(_UNITS, key=len, reverse=True))})"
_PER, _A_SECOND = r"\s?(?:/|_per_|per\b)\s?", r"(?:secs?|seconds?|s)\b"
# Behind a number.
_UNIT_BEHIND = Pattern(rf"(?i)\s?[(\[]?{_UNIT}\b(?P<each>{_PER}{_COUNT}\b)?(?!{_PER}epoch|\s?[:=]\s?\d)")
_RATE_BEHIND = Pattern(rf"(?i)\s?(?:{_COUNT}|its|b){_PER}{_A_SECOND}")
_TOKENS_BEHIND = Pattern(rf"(?i)\s?(?P<thousands>k?)\s?(?:tok|tokens?){_PER}{_A_SECOND}")
_COUNT_BEHIND = Pattern(rf"(?i)(?:st|nd|rd|th)?\s?{_COUNT}\b")
_END_BEHIND = Pattern(r"\s*/\s*\d[\d,]*(?![\d.]*\s*[/.])|\s+of\s+\d")
_LATER_BEHIND = Pattern(r"(?i)\s?\w{1,8}\s(?:left|remaining|to go)\b")
_NAMED_BEHIND = Pattern(r"\s?(?:%|[A-Za-z]\w*\b(?!\s?[:=]))")
# Before a number, without the spaces that pad it.
_RATE_BEFORE = Pattern(rf"(?i)(?<![A-Za-z]){_COUNT}{_PER}{_A_SECOND}\W{{0,4}}$")
_TOKENS_BEFORE = Pattern(rf"(?i)(?<![A-Za-z])(?P<thousands>k?)tok(?:ens?)?{_PER}{_A_SECOND}\W{{0,4}}$")
_EACH_BEFORE = Pattern(
    rf"(?i)(?:(?<![A-Za-z]){_UNIT}{_PER}{_COUNT}|(?:\b|_){_COUNT}_{_UNIT.replace('<unit>', '<other>')})\W{{0,4}}$"
)
_TIMED_BEFORE = Pattern(
    r"(?i)(?:\b|_)(?:dt|time|timing|took|takes|duration|elapsed|latency)"
    rf"(?P<each>{_PER}{_COUNT}|\s{_COUNT}{_PER}{_COUNT})?(?:[_\s,]{{0,2}}(?:in\s)?[(\[]?{_UNIT}[)\]]?)?\W{{0,4}}$"
)
_UNIT_BEFORE = Pattern(r"(?i)(?<![\w/])(?P<unit>ms|msec|secs?|seconds?)\W{0,2}[:=]$")
_PART_BEFORE = Pattern(
    r"(?i)(?:\b|_)(?:data|load(?:ing|er)?|fetch|fwd|bwd|forward|backward|eval(?:uation)?|val(?:idation)?|test|wait|comm"
    r"|opt(?:imizer)?|save|ckpt|checkpoint|epoch)(?:[_\s](?:time|dt|timing|took))?(?:[_\s(\[]{0,2}(?:ms|s)[)\]]?)?\W{0,4}$"
)
_RUNS_BEFORE = Pattern(r"(?i)(?:\b|_)(?:elapsed|total|since|wall|runtime)(?:\b|_)[^\d]{0,20}$")
_LATER_BEFORE = Pattern(
    r"(?i)(?:\b|_)(?:eta|remaining|left|until)\b[^\d]{0,20}(?:\d+\s?(?:days?|d|hours?|hrs?|h|minutes?|mins?|m)\s?){0,3}$"
)
_COUNT_BEFORE = Pattern(rf"(?i)(?:\b|_)(?P<word>{_COUNT})(?:[_ ](?:no|num|number|idx|id))?_?\W{{0,4}}$")
_BRACKET_BEHIND = Pattern(r"\s*\[\s*\d")
_GOING_BEFORE = Pattern(r"(?i)\b(?:train(?:ing)?|progress)\W{0,4}$")
_NAME_BEFORE = Pattern(r"[A-Za-z]\W{0,4}$")
_EPOCH_BEFORE = Pattern(r"(?i)(?:\b|_)(?:epochs?|ep)_?\W{0,4}$")
_LOSS_BEFORE = Pattern(r"(?i)(?:(?P<own>\b)|_)loss\W{0,4}$")
_VAL_BEFORE = Pattern(r"(?i)(?:\b|_)(?:val|valid|validation|eval|test|dev)[_\s]\w{0,12}\W{0,4}$")

_VALIDATION = rf"\b(?:val|valid|validation|eval|test)[ _]loss\W{{1,4}}(?P<val_loss>{FLOAT})"
_EVALUATIONS = tuple(
    Pattern(rf"(?i){at}{{0,120}}?{_VALIDATION}")
    for at in (rf"[^\d]{{0,40}}\b{_COUNT}\W{{1,4}}(?P<at>\d+)\b[^\n]", r"[^\n]")
)
_SAVE = Pattern(r"(?i)(?:sav(?:ing|ed)|writing|wrote)\b[^\n]{0,40}\b(?:checkpoint|ckpt)")
_EVENTS = tuple(Line("{any}{pad}" + word) for word in ("loss", "Loss", "checkpoint", "Checkpoint", "ckpt"))

_PLACES = "like"
"""The table of epoch, last number and last epoch of each line."""


class _Piece(NamedTuple):
    text: str
    kind: str
    """number, clock, word, space or other."""
    begin: int
    end: int


class _Claim(NamedTuple):
    """What a number may be, and how much speaks for it."""

    name: str
    weight: int

    @property
    def kind(self) -> str:
        return "time" if self.name.startswith(("time_", "per_s")) else self.name


def reader_like(example: str) -> Reader:
    """A reader for lines like the example. Raises UsageError where that has no number and time."""
    whole = example.strip()[:400]  # what is longer is no line of a log
    stripped, prefix = strip_prefix(whole)
    for line in (stripped, whole):  # a number in front may be a launcher's, or the iteration's
        for figure in (_THOUSANDS, _PLAIN):  # a comma may stand between two numbers
            pieces = _pieces(line, figure)
            names = _names(line, pieces)
            kinds = {_Claim(name, 0).kind for name in names.values()}
            if {"number", "time"} <= kinds:
                if _decimal_comma(line, pieces, names):
                    raise UsageError(
                        Message("the time in “{line:word}” has a decimal comma", {"line": example[:80]}),
                        Message("write the log with decimal points: a comma is read as one between thousands"),
                    )
                return _Like(
                    name=NAME,
                    timing=Timing.SPANS_ITERATION,
                    holds=BOTH,
                    about=Message(
                        "As the example line shows; it is assumed to be one iteration, with everything that ran in it."
                    ),
                    example=example,
                    iterations=(Line(_statement(pieces, names)),),
                    own=_EVENTS,
                    prefixes=line != whole or prefix == "",
                    running=_is_running(line, pieces, names),
                ).reader()
    raise UsageError(
        Message("“{line:word}” shows no iteration number, or no time", {"line": example[:80]}),
        Message("a line to learn from has both, such as: it 12 | 0.34 s"),
    )


def _decimal_comma(line: str, pieces: Sequence[_Piece], names: Mapping[int, str]) -> bool:
    """Whether the time is what stands behind the comma of a number; in a row of a table that is a cell of its own."""
    for place in (place for place, name in names.items() if _Claim(name, 0).kind == "time"):
        whole, comma = (pieces[place - 2], pieces[place - 1]) if place > 1 else (pieces[place], pieces[place])
        beside = line[: whole.begin][-1:] not in ("", ",")
        if (
            comma.text == ","
            and _is_whole(whole)
            and "." not in pieces[place].text
            and beside
            and place - 2 not in names
        ):
            return True
    return False


def _pieces(line: str, figure: str) -> list[_Piece]:
    glued = "|".join(rf"(?<={word}{mark})" for word in _GLUED for mark in ("", "_"))
    token = re.compile(
        rf"(?P<clock>(?<![\w.:]){_CLOCK}(?![\d.:]))"
        rf"|(?P<number>(?:(?<![\w.])|(?i:{glued}))(?:[-+]?(?:{figure}(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?|nan|inf|NaN)(?!\d|\.\d))"
        rf"|(?P<word>[^\W\d]*?(?i:{'|'.join(_GLUED)})_?(?=\d+\b)|\w+)|(?P<space>\s+)|(?P<other>.)"
    )
    return [_Piece(found[0], str(found.lastgroup), found.start(), found.end()) for found in token.finditer(line)]


# --- what the numbers are ---------------------------------------------------------------------------------------------


def _names(line: str, pieces: Sequence[_Piece]) -> dict[int, str]:
    """What the numbers among the pieces are, by their place; of each kind the one for which most speaks counts."""
    chosen: dict[str, tuple[int, _Claim]] = {}
    for place, piece in enumerate(pieces):
        claim = _claim(line, piece) if piece.kind in ("number", "clock") else None
        if claim is not None and (claim.kind not in chosen or claim.weight > chosen[claim.kind][1].weight):
            chosen[claim.kind] = place, claim
    names = {place: claim.name for place, claim in chosen.values()}
    if "number" not in chosen:
        # No word tells it: what the line begins with, a number without a name behind it, the epoch, or any.
        spare = [place for place, piece in enumerate(pieces) if _is_whole(piece) and place not in names]
        spare = [place for place in spare if not _LATER_BEFORE.search(line[: pieces[place].begin])]
        word = next((place for place, piece in enumerate(pieces) if piece.kind == "word"), len(pieces))
        first = [place for place in spare if place < word]
        unnamed = [place for place in spare if not _NAMED_BEHIND.match(line[pieces[place].end :])]
        epoch = [place for place, name in names.items() if name == "epoch"]
        names |= dict.fromkeys((*first, *unnamed, *epoch, *spare)[:1], "number")
    for counted, end in (("number", "last"), ("epoch", "epochs")):
        for place in [place for place, name in names.items() if name == counted]:
            # The number behind `/` or `of`, directly after this one.
            following = [i for i in range(place + 1, len(pieces)) if pieces[i].kind != "space"][:2]
            if len(following) == 2 and pieces[following[0]].text in ("/", "of") and _is_whole(pieces[following[1]]):
                names[following[1]] = end
    return names


def _claim(line: str, piece: _Piece) -> _Claim | None:
    before, behind = line[: piece.begin].rstrip(), line[piece.end :]
    if _LATER_BEFORE.search(before) or _LATER_BEHIND.match(behind):
        return None
    if piece.kind == "clock":
        named = _TIMED_BEFORE.search(before) or _RUNS_BEFORE.search(before)
        return _Claim("time_clock", 1) if named else None
    tokens = _TOKENS_BEHIND.match(behind) or (not _UNIT_BEHIND.match(behind) and _TOKENS_BEFORE.search(before))
    if tokens:
        return None if tokens["thousands"] else _Claim("tokens_per_s", 1)
    time = _time_claim(before, behind)
    if time is not None:
        return time
    loss = _LOSS_BEFORE.search(before)
    if loss:
        return None if _VAL_BEFORE.search(before) else _Claim("loss", 1 if loss["own"] is None else 2)
    if not _is_whole(piece):
        return None
    going = _GOING_BEFORE.search(before)
    if _EPOCH_BEFORE.search(before) or (going and _BRACKET_BEHIND.match(behind)):  # as in `Train: 2 [ 50/1251`
        return _Claim("epoch", 1)
    ends = _END_BEHIND.match(behind) is not None and not before.endswith("/")
    counted = _COUNT_BEFORE.search(before)
    if counted:
        return _Claim("number", 6 if ends else 5 if counted["word"].lower().startswith("global") else 4)
    if ends:
        return _Claim("number", 1 if _NAME_BEFORE.search(before) and not going else 5)
    return _Claim("number", 2) if _COUNT_BEHIND.match(behind) else None


def _is_whole(piece: _Piece) -> bool:
    return piece.kind == "number" and piece.text.replace(",", "").isdecimal()


def _time_claim(before: str, behind: str) -> _Claim | None:
    weight = -3 * bool(_PART_BEFORE.search(before)) - 2 * bool(_RUNS_BEFORE.search(before))
    if _RATE_BEHIND.match(behind) or _RATE_BEFORE.search(before):
        return _Claim("per_s", 3 + weight)
    unit, each = _UNIT_BEHIND.match(behind), _EACH_BEFORE.search(before)
    timed, named = _TIMED_BEFORE.search(before), _UNIT_BEFORE.search(before)
    if each:
        return _Claim(_UNITS[(each["unit"] or each["other"]).lower()], 4 + weight)
    if unit:
        return _Claim(_UNITS[unit["unit"].lower()], (4 if unit["each"] else 3 if timed else 2) + weight)
    if timed:
        return _Claim(_UNITS[(timed["unit"] or "s").lower()], (4 if timed["each"] else 3) + weight)
    return _Claim(_UNITS[named["unit"].lower()], 2 + weight) if named else None


def _is_running(line: str, pieces: Sequence[_Piece], names: Mapping[int, str]) -> bool:
    place = next(place for place, name in names.items() if _Claim(name, 0).kind == "time")
    return pieces[place].kind == "clock" or bool(_RUNS_BEFORE.search(line[: pieces[place].begin]))


# --- the format -------------------------------------------------------------------------------------------------------


def _statement(pieces: Sequence[_Piece], names: Mapping[int, str]) -> str:
    """Columns of figures are padded: spaces may come and go before a number, but not between it and a word."""
    statement, before = "", ""
    for place, piece in enumerate(pieces):
        if piece.kind == "space":  # of which a wider number would leave nothing, where it only pads
            behind = pieces[place + 1].kind if place + 1 < len(pieces) else ""
            statement += "{pad}" if before == "other" and behind in ("number", "clock") else "{gap}"
        elif piece.kind in ("number", "clock"):
            name = names.get(place)
            following = pieces[place + 1].text if place + 1 < len(pieces) else ""
            kind = "clock" if piece.kind == "clock" else _kind(name, following)
            statement += ("{pad}" if before not in ("", "space") else "") + f"{{{name}:{kind}}}".replace("None:", "")
        else:
            # Letters and digits mixed are an identity or an amount, and another in each line.
            mixed = any(c.isdigit() for c in piece.text) and any(c.isalpha() for c in piece.text)
            statement += "{name}" if piece.kind == "word" and mixed else Line.literally(piece.text)
        before = piece.kind
    return statement


def _kind(name: str | None, following: str) -> str:
    """Of a number: a comma that the example has behind it is not of it."""
    if name in ("number", "last", "epoch", "epochs"):
        return "int" if following == "," else "whole"
    if following == ",":
        return "cell"
    return "float" if name in (None, "loss") else "decimal"


# --- what all lines tell ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Like(LineFormat):
    """Lines of one shape, whose numbers and times are understood once all are read."""

    running: bool
    """The example calls its time one that has passed since some start."""

    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        found["time_s"] = found.get("time_clock", found.get("time_s", np.full(len(lines), np.nan)))
        if "time_clock" not in found and np.isnan(found["time_s"]).all():
            del found["time_s"]
        super().add(records, lines, found)
        unknown = np.full(len(lines), np.nan)
        records.keep(_PLACES, lines, *(found.get(name, unknown) for name in ("epoch", "last", "epochs")))

    def add_last(self, records: Records, line: int, last: float) -> None:
        """Not before it is clear whether it is an epoch's."""

    def read_event(self, rest: str, prefix: str, number: int, records: Records) -> bool:
        found = next((found for pattern in _EVALUATIONS if (found := pattern.match(rest))), None)
        if found is not None:
            at = at_of({"at": float(found.groupdict().get("at") or "nan")})
            loss = float(found["val_loss"].replace(",", ""))
            evaluation = Evaluation(line=number, at=at or 0, val_loss=loss, stamp_s=stamp_of(prefix))
            (records.events if at is not None else records.unplaced).append(evaluation)
        elif _SAVE.match(rest):
            records.unplaced.append(Checkpoint(line=number, at=None, stamp_s=stamp_of(prefix)))
        return found is not None or _SAVE.match(rest) is not None

    def finish(self, first_line: int, records: Records) -> None:
        rows = records.iterations()
        if len(rows):
            places = records.take_table(_PLACES, 4)
            _, epoch, last, epochs = places[np.searchsorted(places[:, 0], rows.line)].T
            # Numbers go on where an epoch begins its own; the length of the run where that is known.
            step, end = np.diff(epoch), last[-1]
            if ((step > 0) & (np.diff(rows.number) <= 0)).any():
                if not np.isfinite(end):  # by the numbers in it: counted from 0, its last line is not its end
                    gaps = np.diff(np.unique(rows.number)).astype(np.float64)
                    end = float(rows.number.max() + (median(gaps) if len(gaps) and rows.number.min() == 0 else 0))
                base = min(float(np.nanmin(epoch)), 1.0)  # counted from 0 or from 1
                before = np.clip(np.nan_to_num((epoch - base) * end), 0, LARGEST_KEPT)
                rows = replace(rows, number=rows.number + before.astype(np.int64))
                records.unplaced += [event for event in records.events if isinstance(event, (Evaluation, Checkpoint))]
                records.events = [event for event in records.events if not isinstance(event, (Evaluation, Checkpoint))]
                end *= epochs[-1]
            elif np.isfinite(epoch[-1]) and not (step > 0).any():
                end = end if epochs[-1] == 1 else np.nan  # of the only epoch there is, or of each
            super().add_last(records, int(rows.line[0]), float(end))
            records.replace_rows(self._timed(rows, records, epoch))
        super().finish(first_line, records)

    def _timed(self, rows: Iterations, records: Records, epoch: Floats) -> Iterations:
        """With times of iterations, where those of the lines are of a clock that runs on."""
        falls = (np.diff(rows.number) <= 0) | ((np.diff(epoch) > 0) & (np.diff(rows.time_s) < 0))
        edges = [0, *(np.flatnonzero(falls) + 1).tolist(), len(rows)]
        parts = [slice(begin, end) for begin, end in pairwise(edges)]
        # A clock never falls, in more lines than chance would give; fewer do where a word says so.
        longest = max((rows.time_s[part] for part in parts), key=len)
        grown = float(longest[-1] / longest[0])
        if self.running:
            enough = len(longest) >= (3 if grown >= 1.5 else 6) and grown > 1
        else:
            enough = len(longest) >= 8 and grown >= 3
        if not enough or not all(bool((np.diff(rows.time_s[part]) >= 0).all()) for part in parts):
            return rows
        times = np.concatenate([_differences(rows.number[part], rows.time_s[part]) for part in parts])
        records.events.append(Fact(line=int(rows.line[0]), name="averaged", value=True))
        return replace(rows, time_s=times).take(np.isfinite(times))


def _differences(number: Ints, elapsed_s: Floats) -> Floats:
    """The mean time of an iteration since the line before; nan where one line is all."""
    if len(number) < 2:
        return np.full(len(number), np.nan)
    error = np.full(len(number), WHOLE_SECONDS if bool((elapsed_s % 1 == 0).all()) else 0.0)
    done = int(number[0]) if number[0] <= number[1] - number[0] else 0
    return step_times(Clock(number, elapsed_s, error, np.full(len(number), np.nan), done), ())[0]
