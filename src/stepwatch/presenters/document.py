"""What an answer says, in which order and how urgently: sections of blocks, as Messages; no language, no width.

One module per kind of answer composes a Document, one writer per form writes any Document. Where there is room for a
single screen only, a writer takes the blocks with a priority, the lowest number first. A document without any priority
is always written whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from stepwatch.messages import Message
from stepwatch.settings import KINDS
from stepwatch.units import Interval

if TYPE_CHECKING:
    from stepwatch.advice import AdviceList
    from stepwatch.analysis.comparison import Comparison
    from stepwatch.estimator.plan import Plan
    from stepwatch.presenters.run_sentences import PartRow
    from stepwatch.report import RunReport
    from stepwatch.run import Floats, Ints


class Priority(IntEnum):
    """What comes onto the first screen before what; between them is room for an order: MORE + 1 comes after MORE."""

    ALWAYS = 0
    MAIN = 10
    PRESSING = 20
    """Warnings, and the one change that pays most."""
    REMARK = 30
    ASSUMED = 40
    TALLER = 50
    """A chart of more than its least height."""
    MORE = 60
    GAP = 70
    """An empty line before remarks and before the command."""
    EXTRA = 80


# Options and nanoGPT's setting names are set as code, as one would type them.
_NAMES = "|".join(sorted((name for name in KINDS if "_" in name), key=len, reverse=True))
_TYPED = re.compile(
    # Letters of scripts without spaces may stand beside them.
    rf"((?<![!-~“‘«])--[a-z]+(?:-[a-z]+)*(?: (?:[AB]:)?[a-z_]+=…| [AB]:\d+)?"
    rf"|(?a:\b(?:{_NAMES})\b(?: = \w+|=[\w.…]+)?))"
)


@dataclass(frozen=True)
class Badge:
    """A verdict in one word, with a sign that needs no colour."""

    sign: str
    word: Message
    tone: str
    """bad, poor, good or open."""


Cell = Message | Badge | None


class Headline(NamedTuple):
    """The answer; a second paragraph is less prominent."""

    paragraphs: tuple[tuple[Message, ...], ...]
    alarm: bool = False
    badge: Badge | None = None
    priority: int | None = Priority.ALWAYS


class Text(NamedTuple):
    """One paragraph or list item of one or more sentences."""

    messages: tuple[Message, ...]
    """Empty for what only the first screen says."""
    kind: str = ""
    """warning, notice, info, change or news for a remark, lead or aside; else plain."""
    label: Message | None = None
    """Before it on the first screen, where no heading says what it is about."""
    brief: tuple[Message, ...] = ()
    """For the first screen, where it is shorter there."""
    priority: int | None = None


class Bullets(NamedTuple):
    """A list without labels."""

    items: tuple[Text, ...]


class Shares(NamedTuple):
    """All the time of a run as one bar of its parts."""

    name: str
    parts: tuple[PartRow, ...]
    priority: int | None = None


class Table(NamedTuple):
    """Cells in rows and columns, and which of them a terminal shows."""

    head: tuple[Message, ...]
    """Empty for labels with their values."""
    align: str
    """A letter for each column: l or r, or d for what is less important, to the left."""
    rows: tuple[tuple[Cell, ...], ...]
    priority: int | None = None
    strong: int | None = None
    """The row that stands out."""
    shown: tuple[int, ...] | None = None
    """The rows on the first screen, where not all of them."""
    marks: tuple[str, ...] = ()
    """For each row the letter of the text chart."""
    left_out: tuple[int, ...] = ()
    """Columns that may be left out where a terminal is too narrow, the first ones first."""
    name: int = 0
    """Of such a table, the column whose texts lose their middle."""
    state: int = 0
    """Of such a table, the column that may be wrapped."""
    links: tuple[str, ...] = ()
    """For each row the anchor of the section that it is about, or an empty text."""
    judged: int | None = None
    """The column of badges by which the rows are in order, the worst first; a page sorts them by any column."""


class Labelled(NamedTuple):
    """A list of which every item has a label before it."""

    items: tuple[Text, ...]
    priority: int | None = None
    figures: bool = False
    """The few that most readers came for, each with what it is read against. Without a priority other blocks repeat
    them, and only a page shows them, as a strip."""


class Code(NamedTuple):
    """Lines to be pasted as they are."""

    text: str
    language: str = ""


class Command(NamedTuple):
    """Something to be typed, and what for. Each argument is quoted already."""

    arguments: tuple[str, ...]
    why: Message | None = None
    priority: int | None = Priority.ALWAYS


class Quoted(NamedTuple):
    """Lines of a log with their numbers."""

    lines: tuple[tuple[int, str], ...]


class Points(NamedTuple):
    """What a terminal draws of a chart: the time of iterations, each with the letter of what it includes."""

    number: Ints
    time_s: Floats
    marks: dict[str, Ints]
    """Rows by their letter, in the order in which they are drawn, not all where they are many; STEP for plain steps."""
    legend: dict[str, Message]


STEP = "·"
"""The mark of iterations that are drawn as a line, by the middle of each column."""


class Chart(NamedTuple):
    """A picture, and what a terminal draws of it."""

    name: str
    of: RunReport | Plan | Comparison | AdviceList | None = None
    """What `run_charts.plot` draws; None where there is nothing to draw."""
    sharing: int = 1
    """How many runs of a page share the points that it may have."""
    points: Points | None = None
    priority: int | None = None


class Progress(NamedTuple):
    """How far something is that goes on; the share from 0 to 1, None where the end is not known."""

    name: str
    where: Message
    share: float | None
    priority: int | None = Priority.ALWAYS


Block = Headline | Text | Bullets | Shares | Table | Labelled | Code | Command | Quoted | Chart | Progress


class Section(NamedTuple):
    """Blocks under a heading, and sections below it."""

    name: str
    """The same in every language: style sheets go by it."""
    heading: Message
    blocks: tuple[Block, ...]
    sections: tuple[Section, ...] = ()
    number: int | None = None
    """Before the heading, where sections are ranked."""
    beside: Message | None = None
    """Beside the heading, less prominent: what a change saves."""
    anchor: str = ""
    """By which a table links to it."""
    badge: Badge | None = None
    """Beside the heading while the section is folded."""
    below: bool = False
    """Below the first screen, whatever priorities its blocks have."""
    prompt: bool = False
    """For a reader at a prompt alone: what to type next."""
    folded: bool = False
    """Of interest to few: a page shows its heading until it is opened."""
    asked: bool = False
    """Asked for by an option: shown whole, below the first screen too."""


class Document(NamedTuple):
    """An answer, for any writer."""

    title: Message | None
    blocks: tuple[Block, ...]
    sections: tuple[Section, ...] = ()
    about: str | None = None
    """The name of the log, for titles; None where it has none."""

    def charts(self) -> dict[str, Chart]:
        return {block.name: block for block in all_blocks(self) if isinstance(block, Chart)}


def all_blocks(part: Document | Section) -> Iterator[Block]:
    yield from part.blocks
    for inner in part.sections:
        yield from all_blocks(inner)


def sections(*found: Section) -> tuple[Section, ...]:
    """Without blocks that hold nothing, and without sections of which nothing is left."""
    kept = []
    for section in found:
        blocks = []
        for block in section.blocks:
            match block:
                case Text(messages=(), brief=()) | Table(rows=()) | Bullets(items=()) | Labelled(items=()):
                    pass
                case Code(text="") | Command(arguments=()):
                    pass
                case Shares() if not any(part.share > 0 for part in block.parts):
                    pass
                case _:
                    blocks.append(block)
        if blocks or section.sections:
            kept.append(section._replace(blocks=tuple(blocks)))
    return tuple(kept)


def without_commands(document: Document) -> Document:
    """For a reader who has no prompt."""
    return document._replace(sections=sections(*map(_without_commands, document.sections)))


def _without_commands(section: Section) -> Section:
    blocks = tuple(block for block in section.blocks if not isinstance(block, Command))
    return section._replace(blocks=blocks, sections=tuple(map(_without_commands, section.sections)))


def texts(messages: Iterable[Message | None], kind: str = "", priority: int | None = None) -> tuple[Text, ...]:
    """One for each."""
    return tuple(Text((message,), kind, priority=priority) for message in messages if message is not None)


UNKNOWN = Message("–")


def word(value: object) -> Message:
    """Text that is the same in every language."""
    return Message("{value:word}", {"value": value})


def count(value: int) -> Message:
    return Message("{count:n}", {"count": value})


def time(seconds: float | Interval) -> Message:
    """In seconds: one, or the range that it is in."""
    if isinstance(seconds, Interval):
        return Message("{cost:range}", {"cost": seconds})
    return Message("{time:time}", {"time": seconds})


def text_and_code(text: str) -> list[str]:
    """A sentence in pieces, by turns plain text and what one would type."""
    return _TYPED.split(text)
