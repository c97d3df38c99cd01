"""Lines that are alike but for their numbers, read together by what the reader of single lines says of one of them.

The reader is asked about one line, and about copies of it with other numbers. Where its answers differ in numbers
alone, each of which is one of the line's own or a fixed multiple of it, it need not be asked about the other lines of
this shape: numpy reads their numbers, and they are put where the reader would put them. The copies also show which
digits matter: those of a name, a width that a pattern wants, two numbers that are equal, one that a pattern names.
Lines that differ in these are left to the reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from stepwatch.readers.columns import Block, Floats, Ints, some_of
from stepwatch.readers.lines import Read, read_singly
from stepwatch.readers.records import LINE_OF, MOST_UNREAD_KEPT, Records
from stepwatch.readers.shapes import Answer, Dice, Shape, Source, kind_of, split
from stepwatch.readers.words import Words
from stepwatch.run import Unread

_LONGEST_MODEL = 1000
_LEAST_SEEN = 2  # in a sample of the lines
_LEAST_LINES = 100  # of a shape: to learn it takes as long as to read them
_SAMPLES = 4  # of the lines that are left, in each block
_MOST_NEW, _MOST_KEPT = 32, 2000  # shapes in a block, in all
_TRIES, _MOST_TRIES = 10, 80
_NAMED = ("0", "1", "2", "10", "100")  # numbers that a pattern may name
_NUMBER_OF_LINE = 104729
_CHECKED = 8  # lines of each shape in a block
_MOST_TRIED_FIRST = 8


def read_lines(
    read: Read, words: Words, text: bytes, block: Block, lines: Ints, first_line: int, records: Records
) -> None:
    """Reads the lines that hold one of the words: those of a frequent shape together, the others one by one."""
    if len(records.shapes) > _MOST_KEPT:  # of a log that is watched for weeks
        records.shapes.clear()
    unread = _UnreadLines(records)
    events, unplaced, known = len(records.events), len(records.unplaced), len(records.shapes)

    def read_together(key: bytes, lines: Ints) -> Ints:
        shape = records.shapes.get(key)
        if shape is None:
            return lines
        fits, found = shape.match(text, block, lines)
        if not _holds(shape, read, text, block, fits, found):
            records.shapes[key] = None
            return lines
        shape.add(fits + first_line, found, records)
        if shape.unread:
            unread.add(read, words, text, block, fits, first_line)
        return block.without(lines, fits)

    for key in [key for key, shape in records.shapes.items() if shape is not None][-_MOST_TRIED_FIRST:]:
        lines = read_together(key, lines)  # mostly the shapes of the block before are all that this one has
    for _ in range(_SAMPLES):
        before = len(lines), len(records.shapes)
        for key, line in _frequent(words, text, block, lines) if len(lines) >= _LEAST_LINES else ():
            if key not in records.shapes and len(records.shapes) - known < _MOST_NEW:
                records.shapes[key] = learned(read, line)
            lines = read_together(key, lines)
        if (len(lines), len(records.shapes)) == before:
            break
    read_singly(read, words, text, block, lines, first_line, records)
    unread.tell()
    records.events[events:] = sorted(records.events[events:], key=LINE_OF)
    records.unplaced[unplaced:] = sorted(records.unplaced[unplaced:], key=LINE_OF)


def _frequent(words: Words, text: bytes, block: Block, lines: Ints) -> Iterator[tuple[bytes, bytes]]:
    """Shapes that are seen again and again in a sample of the lines, each with a line of it."""
    sample = some_of(lines)
    seen: dict[bytes, list[bytes]] = {}
    for index in sample.tolist():
        line = text[block.starts[index] : block.ends[index]]
        if len(line) <= _LONGEST_MODEL and words.pattern.search(line):
            seen.setdefault(kind_of(line), []).append(line)
    least = max(_LEAST_LINES * len(sample) / len(lines), _LEAST_SEEN)
    often = sorted((key for key in seen if len(seen[key]) >= least), key=lambda key: -len(seen[key]))
    # The first line is often another than those that follow.
    return ((key, seen[key][len(seen[key]) // 2]) for key in often)


def _holds(shape: Shape, read: Read, text: bytes, block: Block, lines: Ints, found: Sequence[Floats | None]) -> bool:
    """Whether some of the lines are read as the shape says."""
    for row in range(0, len(lines), max(len(lines) // _CHECKED, 1)):
        records = Records()
        line = text[block.starts[lines[row]] : block.ends[lines[row]]].decode("utf-8", "replace")
        read(line, int(lines[row]), records)
        numbers = [np.nan if column is None else float(column[row]) for column in found]
        if not shape.gives(Answer.of(records), [*numbers, float(lines[row])]):
            return False
    return True


class _UnreadLines:
    """Lines that a reader could not read, put in order at the end of a block; the text of the first is kept."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.before = len(records.unread_lines), len(records.unread)
        self.lines: list[int] = []
        self.shown: list[Unread] = []

    def add(self, read: Read, words: Words, text: bytes, block: Block, lines: Ints, first_line: int) -> None:
        self.lines += (lines + first_line).tolist()
        shown = Records()
        first = lines[: MOST_UNREAD_KEPT - self.before[1]]
        read_singly(read, words, text, block, first, first_line, shown)
        self.shown += shown.unread

    def tell(self) -> None:
        if self.lines:
            count, kept = self.before
            self.records.unread_lines[count:] = sorted(self.records.unread_lines[count:] + self.lines)
            self.records.unread[kept:] = sorted(self.records.unread[kept:] + self.shown)[: MOST_UNREAD_KEPT - kept]


# --- what a reader says of a line, and of copies of it ------------------------------------------------------------


def learned(read: Read, line: bytes) -> Shape | None:
    """The shape of the line with what the reader finds in it; None where its answers do not follow from one line."""
    trial = _Trial(read, line)
    sure = len(trial.model.leaves) > 1  # else it may be for several reasons that nothing is told
    if not (sure and trial.agree()):
        trial.narrow()
        if not trial.agree():
            return None
    sources = trial.sources()
    if sources is None:
        return None
    trial.find_exceptions(sources)
    return Shape(trial.literals, trial.numbers, trial.apart, trial.model, sources)


class _Trial:
    """A line and its copies; `asked` are the numbers of each copy, that of the line last, and the answer."""

    def __init__(self, read: Read, line: bytes) -> None:
        self.read = read
        self.dice = Dice(len(line))
        self.literals, self.numbers = split(line)
        self.texts = [number.model for number in self.numbers]
        self.spaces = [number.spaces for number in self.numbers]
        self.model = self._answer(self.texts, self.spaces)
        self.asked: list[tuple[list[float], Answer]] = []
        self.apart: list[tuple[int, int]] = []

    def _answer(self, texts: Sequence[bytes], spaces: Sequence[int], number: int = _NUMBER_OF_LINE) -> Answer:
        between = zip(self.literals, spaces, texts, strict=False)
        line = b"".join([literal + b" " * space + text for literal, space, text in between]) + self.literals[-1]
        records = Records()
        self.read(line.decode("utf-8", "replace"), number, records)
        return Answer.of(records)

    def agree(self) -> bool:
        """Whether copies with all numbers changed are answered alike."""
        self.asked = []
        return all(self._ask() for _ in range(_TRIES))

    def _ask(self) -> bool:
        texts = [number.other(self.dice) for number in self.numbers]
        varied = [number.other_spaces(self.dice) for number in self.numbers]
        spaces = varied if len(self.asked) % 2 else self.spaces
        line = _NUMBER_OF_LINE + 7919 * len(self.asked)
        answer = self._answer(texts, spaces, line)
        if not answer.is_like(self.model):
            return False
        self.asked.append(([*self._values(texts), float(line)], answer))
        return True

    def _values(self, texts: Sequence[bytes]) -> list[float]:
        return [number.value(text) for number, text in zip(self.numbers, texts, strict=True)]

    def narrow(self) -> None:
        """What each number alone may be: any, one of the same width, or only what it is."""
        for place, number in enumerate(self.numbers):
            if number.any_spaces:
                counts = (_replaced(self.spaces, place, count) for count in (1, 2, 5) if count != number.spaces)
                number.any_spaces = all(self._answer(self.texts, count).is_same(self.model) for count in counts)
            if not self._may_change(place):
                number.fix_width()
                number.constant = not self._may_change(place)

    def _may_change(self, place: int) -> bool:
        number = self.numbers[place]
        others = [*number.extremes(self.dice), *(number.other(self.dice) for _ in range(3))]
        return all(self._answer(_replaced(self.texts, place, text), self.spaces).is_like(self.model) for text in others)

    def sources(self) -> list[Source] | None:
        """For each thing in the answer where it comes from; None where that cannot be told."""
        found = [self._source(place) for place in range(len(self.model.leaves))]
        return None if None in found else [source for source in found if source is not None]

    def _source(self, place: int) -> Source | None:
        """More copies are made until only one source is left: a thousandth may be a product or a quotient."""
        while True:
            seen = [(values, answer.leaves[place]) for values, answer in self.asked]
            sources = Source.possible(self.model.leaves[place], seen)
            if len(sources) < 2 or len(self.asked) >= _MOST_TRIES:
                return sources[0] if sources else None
            if not self._ask():
                return None

    def find_exceptions(self, sources: Sequence[Source]) -> None:
        """Numbers that a pattern may name, numbers that are equal, and how long those may be that are not told."""
        used = {source.place for source in sources}
        for place, number in enumerate(self.numbers):
            number.constant |= number.in_name and place not in used
        for name in _NAMED:
            named = [number.named(name) for number in self.numbers]
            if not self._as_told(named, sources):
                self._find_named(named, sources)
        longest = [
            number.model if place in used else number.longest(self.dice) for place, number in enumerate(self.numbers)
        ]
        if self._as_told(longest, sources):
            for text, number in zip(longest, self.numbers, strict=True):
                number.allow(text)

    def _find_named(self, named: Sequence[bytes], sources: Sequence[Source]) -> None:
        """Which of the numbers may not be so, or not both of two."""
        for place, text in enumerate(named):
            if not self._as_told(_replaced(self.texts, place, text), sources):
                self.numbers[place].never.add(self.numbers[place].value(text))
        for one, other in combinations(range(len(named)), 2):
            texts = _replaced(self.texts, one, self.texts[other])
            whole = self.numbers[one].is_whole and self.numbers[other].is_whole
            if whole and (one, other) not in self.apart and not self._as_told(texts, sources):
                self.apart.append((one, other))

    def _as_told(self, texts: Sequence[bytes], sources: Sequence[Source]) -> bool:
        values = [*self._values(texts), float(_NUMBER_OF_LINE)]
        answer = self._answer(texts, self.spaces)
        return answer.is_same(Answer(self.model.form, [source.value(values) for source in sources]))


def _replaced(values: Sequence[Any], place: int, value: Any) -> list[Any]:
    return [*values[:place], value, *values[place + 1 :]]
