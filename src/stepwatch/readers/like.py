"""Any numbered line with a time, taught by one example: `it 12 | 0.34 s`.

What stands in the example decides: a number behind a word such as `iter` is the iteration's, one with a unit of time is
the time, one behind `loss` the loss; other numbers stand for any number, words for themselves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from stepwatch.errors import UsageError
from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.columns import Template
from stepwatch.readers.lines import LOSS, NUMBER, LineFormat
from stepwatch.readers.reader import BOTH, Reader
from stepwatch.readers.stamps import strip_prefix
from stepwatch.run import Timing

NAME = "like"
_FIGURE = r"[-+]?(?:\d+(?:,\d{3})*(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
_TOKEN = re.compile(rf"(?P<number>(?<![\w.])(?:{_FIGURE}|nan|inf)(?![\d.]))|(?P<word>\w+)|(?P<space>\s+)|(?P<other>.)")
_TIMES = {
    "us": "time_us", "\u00b5s": "time_us", "usec": "time_us", "ms": "time_ms", "msec": "time_ms",
    "milliseconds": "time_ms", "s": "time_s", "sec": "time_s", "secs": "time_s", "second": "time_s",
    "seconds": "time_s", "min": "time_min", "mins": "time_min", "minutes": "time_min",
}  # fmt: skip
_PER_S = re.compile(r"\s?(?:it|its|iter|iters|iterations|step|steps|batch|batches|b|updates?)\s?/\s?(?:s|sec|second)\b")
_UNIT = re.compile(r"\s?(?P<unit>us|\u00b5s|usec|ms|msec|milliseconds|s|secs?|seconds?|mins?|minutes)\b")
_TOKENS_PER_S = re.compile(r"\s?(?:k?tok|tokens?)\s?/\s?(?:s|sec|second)\b")
_TOKENS_BEFORE = re.compile(r"(?i)\btok(?:ens?)?\s?/\s?(?:s|sec|second)\W{0,4}$")
_COUNTED = re.compile(r"(?i)\b(?:it|iter|iters|iteration|step|steps|batch|update|global_step)\W{0,4}$")
_LOSS = re.compile(r"(?i)\bloss\W{0,4}$")
_TIMED = re.compile(
    r"(?i)\b(?:dt|time|took|duration|elapsed)(?:[_\s(\[]*(?P<unit>us|ms|s|sec|seconds|min)[)\]]?)?\W{0,4}$"
)
_LATER = re.compile(r"(?i)\b(?:eta|remaining|left|total|since|until)\b[^\d]{0,20}$")
_TIMED_NAMES = ("time_", "per_s")
_LONGEST = 400


class _Piece(NamedTuple):
    text: str
    kind: str
    """number, word, space or other."""
    begin: int
    end: int


def like(example: str) -> Reader:
    """A reader for lines like the example. Raises UsageError where that has no number and time."""
    whole = example.strip()[:_LONGEST]
    for line in (strip_prefix(whole)[0], whole):  # a number in front may be a launcher's, or the iteration's
        pieces = [_Piece(found[0], str(found.lastgroup), found.start(), found.end()) for found in _TOKEN.finditer(line)]
        names = _names(line, pieces)
        if "number" in names.values() and any(name.startswith(_TIMED_NAMES) for name in names.values()):
            return _format(example, pieces, names, prefixes=line != whole or strip_prefix(whole)[1] == "").reader()
    raise UsageError(
        Message("“{line:word}” shows no number of an iteration, or no time", {"line": example[:80]}),
        Message("a line to learn from has both, such as: it 12 | 0.34 s"),
    )


def _names(line: str, pieces: Sequence[_Piece]) -> dict[int, str]:
    """What the numbers among the pieces are, by their place; the first of each kind counts."""
    names: dict[int, str] = {}
    for place, piece in enumerate(pieces):
        if piece.kind == "number":
            name = _name(line[: piece.begin], piece.text, line[piece.end :])
            if name is not None and not _taken(name, names):
                names[place] = name
    if "number" not in names.values():
        for place, piece in enumerate(pieces):
            spare = place not in names and not _LATER.search(line[: piece.begin])
            if piece.kind == "number" and spare and piece.text.isdecimal():
                return {**names, place: "number"}
    return names


def _taken(name: str, names: dict[int, str]) -> bool:
    timed = any(other.startswith(_TIMED_NAMES) for other in names.values())
    return name in names.values() or (timed and name.startswith(_TIMED_NAMES))


def _name(before: str, number: str, after: str) -> str | None:
    if _LATER.search(before):
        return None
    if _TOKENS_PER_S.match(after) or _TOKENS_BEFORE.search(before):
        return "tokens_per_s"
    if _PER_S.match(after):
        return "per_s"
    unit = _UNIT.match(after)
    if unit:
        return _TIMES[unit["unit"]]
    if _LOSS.search(before):
        return "loss"
    if _COUNTED.search(before) and number.isdecimal():
        return "number"
    timed = _TIMED.search(before)
    if timed:
        return _TIMES[timed["unit"] or "s"]
    return "last" if number.isdecimal() and re.search(r"\d/\s?$", before) else None


def _format(example: str, pieces: Sequence[_Piece], names: dict[int, str], *, prefixes: bool) -> LineFormat:
    groups = [_group(piece, names.get(place)) for place, piece in enumerate(pieces)]
    literals = [piece.text for piece in pieces if piece.kind == "word" or (piece.kind == "other" and piece.text != " ")]
    mark = max(literals, key=len, default="")
    return LineFormat(
        name=NAME,
        timing=Timing.SPANS_ITERATION,
        holds=BOTH,
        about=Message("As the example line shows; it is taken to be one iteration, with all that ran in it."),
        example=example,
        mark=mark.encode(),
        iteration=Pattern(_padded(groups)),
        templates=_templates(pieces, names),
        prefixes=prefixes,
    )


def _group(piece: _Piece, name: str | None) -> str:
    if piece.kind == "space":
        return r"\s+"
    if piece.kind != "number":
        return r"\w+" if piece.kind == "word" and _varies(piece.text) else re.escape(piece.text)
    number = LOSS if name in (None, "loss") else r"\d+" if name in ("number", "last") else NUMBER
    return rf"(?P<{name}>{number})" if name else number


def _padded(groups: Sequence[str]) -> str:
    """Columns of figures are padded: spaces may come and go before a number."""
    joined = ""
    for before, group in pairwise(("", *groups)):
        padded = group.startswith(("(?P<", "(?:")) and before not in ("", r"\s+")
        joined += (r"\s*" if padded else "") + group
    return joined


def _varies(word: str) -> bool:
    """Letters and digits mixed are an identity or an amount, and another in each line."""
    return any(c.isdigit() for c in word) and any(c.isalpha() for c in word)


def _templates(pieces: Sequence[_Piece], names: dict[int, str]) -> tuple[Template, ...]:
    """The same line for the fast path, where its pieces allow it."""
    if any(piece.kind == "word" and _varies(piece.text) for piece in pieces) or "{" in "".join(p.text for p in pieces):
        return ()
    shape = ""
    for place, piece in enumerate(pieces):
        if piece.kind == "space":
            shape += " { }"
        elif piece.kind == "number":
            shape += "{" + names.get(place, f"_{place}") + ("," if names.get(place) == "tokens_per_s" else "") + "}"
        else:
            shape += piece.text
    return (Template(shape),)
