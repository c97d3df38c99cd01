"""Reads lines of one shape all at once.

A log of two million iterations is two million lines of one shape. One of them, read by its pattern, shows which pieces
of the statement are present and what surrounds them. The result is a short list of steps (a literal, a number, a word);
numpy performs each step for all lines of a block together. Among the lines that do not fit, one of the most common kind
shows the next shape. What fits none of the shapes is read line by line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Protocol

import numpy as np

from stepwatch.readers.text.block import (
    Block,
    Floats,
    Ints,
    Mask,
    bytes_before,
    may_continue_number,
    read_clock,
    read_duration,
    read_int,
    read_number,
)
from stepwatch.readers.text.clocks import Prefix, skip_spaces
from stepwatch.readers.text.line import LONGEST_LINE, ONE_DIGIT, Found, Line, strip_prefix, value_of

_SAMPLED = 2000  # lines searched for a model
_DRAWINGS = bytes(range(128, 256))  # the bytes that draw a bar


# --- steps --------------------------------------------------------------------------------------------------------


class Step(Protocol):
    """A part that comes next in all lines."""

    @property
    def name(self) -> str:
        """The name of its value; empty if it has none."""

    def apply(self, block: Block, at: Ints, ends: Ints) -> tuple[Mask, Ints, Floats | None]:
        """Which lines have it, where it ends, and its values."""


@dataclass(slots=True)
class Literal:
    letters: bytes
    """At most eight."""
    name: str = ""

    def apply(self, block: Block, at: Ints, ends: Ints) -> tuple[Mask, Ints, None]:
        words = block.words[at]
        if len(self.letters) < 8:
            words = words & np.uint64((1 << (8 * len(self.letters))) - 1)
        return words == np.uint64(int.from_bytes(self.letters, "little")), at + len(self.letters), None


@dataclass(slots=True)
class Figure:
    """A number or a clock."""

    name: str
    kind: str
    guarded: bool = True
    """Whether nothing that follows shows where the number ends."""

    def apply(self, block: Block, at: Ints, ends: Ints) -> tuple[Mask, Ints, Floats]:
        fits, at, values = _FIGURES[self.kind](block, at)
        return fits & ~may_continue_number(block, at) if self.guarded else fits, at, values


@dataclass(slots=True)
class Spaces:
    """Any number of spaces."""

    name: str = ""

    def apply(self, block: Block, at: Ints, ends: Ints) -> tuple[Mask, Ints, None]:
        return np.ones(len(at), bool), skip_spaces(block, at), None


@dataclass(slots=True)
class Until:
    """Everything up to a letter, or to the end of the line."""

    letter: int
    least: int = 1
    name: str = ""

    def apply(self, block: Block, at: Ints, ends: Ints) -> tuple[Mask, Ints, None]:
        stop = at + bytes_before(block.words[at], self.letter)
        rows = np.flatnonzero((stop == at + 8) & (stop < ends))
        for _ in range(150):  # no word or drawing of a bar is longer than 150 times eight bytes
            if not len(rows):
                break
            count = bytes_before(block.words[stop[rows]], self.letter)
            stop[rows] += count
            rows = rows[(count == 8) & (stop[rows] < ends[rows])]
        stop = np.minimum(stop, ends)
        fits = stop - at >= self.least
        fits[rows] = False
        return fits, stop, None


@dataclass(slots=True)
class Rest:
    """Everything up to the end of the line."""

    name: str = ""

    def apply(self, block: Block, at: Ints, ends: Ints) -> tuple[Mask, Ints, None]:
        return np.ones(len(at), bool), ends, None


@dataclass(slots=True)
class End:
    name: str = ""

    def apply(self, block: Block, at: Ints, ends: Ints) -> tuple[Mask, Ints, None]:
        return at == ends, at, None


@dataclass(slots=True)
class Spaced:
    """One of these, after any number of spaces."""

    step: Literal | Figure | End

    @property
    def name(self) -> str:
        return self.step.name

    def apply(self, block: Block, at: Ints, ends: Ints) -> tuple[Mask, Ints, Floats | None]:
        if block.octets[at[0]] == ord(" "):
            at = skip_spaces(block, at)
        found = self.step.apply(block, at, ends)
        if found[0].all():  # if the first line has no space, most others have none
            return found
        behind = skip_spaces(block, at)
        return found if behind is at else self.step.apply(block, behind, ends)


_FIGURES: dict[str, Callable[[Block, Ints], tuple[Mask, Ints, Floats]]] = {
    "int": read_int,
    "whole": lambda block, at: read_int(block, at, commas=True),
    "figure": read_number,
    "cell": lambda block, at: read_number(block, at, nan=True),
    "decimal": lambda block, at: read_number(block, at, commas=True),
    "count": lambda block, at: read_int(block, at, commas=True),
    "float": lambda block, at: read_number(block, at, commas=True, nan=True),
    "clock": read_clock,
    "duration": read_duration,
}


def read_values(block: Block, begins: Ints, ends: Ints, kind: str) -> Floats:
    """The numbers between these places; nan if there is none."""
    fits, stops, values = _FIGURES[kind](block, begins)
    for row in np.flatnonzero(~fits | (stops != ends)).tolist():
        values[row] = value_of(block.text[begins[row] : ends[row]].decode("utf-8", "replace"), kind)
    return values


# --- from one line to the steps for all ---------------------------------------------------------------------------


class Shape(NamedTuple):
    """The prefix of lines of this shape, and the steps after it."""

    prefix: Prefix
    steps: list[Step]

    @classmethod
    def of(cls, line: str, found: Found, prefix: str = "") -> Shape | None:
        """The shape of a line, from what was found in it and its prefix; None if it is of no use for other lines."""
        steps = _Steps()
        at = found.begin
        before = (-1, -1)
        for begin, end, field in found.spans:
            if (begin, end) == before and end > begin:
                continue  # one of two names for the same text is enough
            if begin < at:
                return None
            before = begin, end
            steps.add_text(line[at:begin], found.end - at)
            if field.kind in _FIGURES:
                steps.add(Figure(field.name, field.kind))
            elif field.kind == "word":
                steps.add(Until(ord(" ")))
            elif field.kind in ("bar", "quoted", "eta"):
                steps.add(Until(ord(line[end : end + 1] or "|"), least=0))
            elif field.kind in ("pad", "gap"):
                steps.add_text(" " if field.kind == "gap" else "", 1)
                steps.add(Spaces())
            elif field.kind in ("name", "colour", "drawing"):
                steps.add_text(line[begin:end], end - begin)
            elif field.kind == "rest" and found.whole:
                steps.add(Rest())
            else:
                steps.add_text(line[begin:end], 0, line[end : end + 1])
            at = end
        steps.add_text(line[at:].rstrip(), found.end - at)
        return cls(Prefix(prefix, line[: found.begin]), steps.finished())

    def match(self, block: Block, lines: Ints) -> tuple[Ints, dict[str, Floats]]:
        """The lines that have this shape, and their values by name; the clock in the prefix is `stamp_s`."""
        lines, at, stamps = self.prefix.skip(block, lines)
        ends = block.ends[lines]
        found = {} if stamps is None else {"stamp_s": stamps}
        for step in self.steps:
            if not len(lines):
                break
            fits, at, values = step.apply(block, at, ends)
            if values is not None and step.name:
                found[step.name] = values
            if not fits.all():
                lines, at, ends = lines[fits], at[fits], ends[fits]
                found = {name: column[fits] for name, column in found.items()}
        return lines, found


class _Steps:
    """Collects steps piece by piece; adjacent letters become one literal."""

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._letters = ""
        self._figure: Figure | None = None  # the last figure, while nothing but spaces follows it

    def add(self, step: Step) -> None:
        letters, self._letters = self._letters.encode(), ""
        if self._figure is not None and letters.startswith(b","):
            between_thousands = letters == b"," or letters[1:2].isdigit()
            self._figure.guarded = self._figure.kind != "cell" and between_thousands
        elif self._figure is not None and letters:
            self._figure.guarded = letters[:1] in b"0123456789.eE"
        for each in (*(Literal(letters[begin : begin + 8]) for begin in range(0, len(letters), 8)), step):
            if isinstance(each, (Literal, Figure, End)) and self._steps and isinstance(self._steps[-1], Spaces):
                self._steps[-1] = Spaced(each)
            else:
                self._steps.append(each)
            if not isinstance(each, Spaces):
                self._figure = each if isinstance(each, Figure) else None

    def add_text(self, text: str, fixed: int, follows: str = "") -> None:
        """Adds the first `fixed` letters as they are; of the remaining text, everything except figures.

        `follows` ends a figure too if it cannot be part of one.
        """
        fixed = max(min(fixed, len(text)), 0)
        self._letters += text[:fixed]
        for token in _TOKENS.finditer(text, fixed):
            self._letters += token["letters"] or token["key"] or (" " if token["space"] else "")
            if token["space"]:
                self.add(Spaces())
            elif token["figure"]:
                ends = token.end() == len(text) and follows in _ENDS_OF_FIGURES
                self.add(Until(ord(follows if ends else " ")))

    def finished(self) -> list[Step]:
        self.add(Spaces())
        self.add(End())
        return self._steps


_ENDS_OF_FIGURES = tuple(":;|])}")
_TOKENS = re.compile(  # a word that contains a digit, such as bf16, is a word
    r"(?P<space> +(?=[^ ]*\d)| {2,})|(?P<key>[^ \d]*?[A-Za-z][^ =:]*[=:])?"
    r"(?P<figure>[-+]?[^ A-Za-z=:]*\d[^ ]*)|(?P<letters>[^ ]+| )"
)


def alike(
    block: Block, lines: Ints, statements: Sequence[Line], *, prefixes: bool = True
) -> Iterator[tuple[Line, Ints, dict[str, Floats]]]:
    """The lines that fit one of the statements, grouped by shape, with their values."""
    poor = 0  # shapes with too few lines to be worth it
    refused: set[bytes] = set()
    marks = {mark for statement in statements for mark in statement.marks}
    for _ in range(40):  # a bound that no format reaches
        model = _model(block, lines, statements, marks, prefixes, refused)
        if model is None or poor > 3:
            return
        fits, found = model.shape.match(block, lines)
        poor += len(fits) < 4  # as fast one by one
        # Check a sample: the pattern must find the same fields in these lines as in the model.
        some = {(len(fits) - 1) * part // 15 for part in range(16)} if len(fits) else ()
        texts = (block.line(fits[place]).decode("utf-8", "replace") for place in some)
        read = (model.statement.find(strip_prefix(text)[0] if prefixes else text) for text in texts)
        if len(fits) and all(one is not None and one.texts.keys() == model.fields for one in read):
            yield model.statement, fits, found
            lines = block.without(lines, fits)
        else:
            refused.add(model.kind)


class _Model(NamedTuple):
    """A line that shows the shape of others."""

    kind: bytes
    """The line with all digits replaced by 0, as in the other lines of its kind."""
    statement: Line
    fields: frozenset[str]
    shape: Shape


def _model(
    block: Block, lines: Ints, statements: Sequence[Line], marks: set[bytes], prefixes: bool, refused: set[bytes]
) -> _Model | None:
    """A line that fits one of the statements, of the most common kind."""
    if not len(lines):
        return None
    if len(lines) <= _SAMPLED:
        text = block.letters(lines)
    else:  # in steps of the golden ratio, which do not coincide with any period of a log
        lines = lines[(np.arange(_SAMPLED) * ((5**0.5 - 1) / 2) % 1 * len(lines)).astype(np.int64)]
        text = b"\n".join(block.lines(lines))
    if not any(map(text.__contains__, marks)):
        return None
    sample = text.split(b"\n")[: len(lines)]
    kinds = text.translate(ONE_DIGIT, _DRAWINGS).split(b"\n")[: len(lines)]
    first = dict(zip(reversed(kinds), reversed(sample), strict=True))
    counted = (kind for kind, _ in Counter(kinds).most_common() if kind not in refused)
    marked = (kind for kind in counted if any(map(first[kind].__contains__, marks)))
    for kind in islice(marked, 100):
        line = first[kind].decode("utf-8", "replace")
        rest, prefix = strip_prefix(line) if prefixes else (line, "")
        for statement in statements if len(line) <= LONGEST_LINE and "\ufffd" not in line else ():
            found = statement.find(rest)
            shape = Shape.of(rest, found, prefix) if found is not None else None
            if found is not None and shape is not None:
                return _Model(kind, statement, frozenset(found.texts), shape)
        refused.add(kind)
    return None
