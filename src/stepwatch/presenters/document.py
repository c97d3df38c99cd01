"""What an answer says, in which order and how urgently: sections of blocks of Messages, without language or width.

One module per kind of answer composes a Document, one writer per form writes any Document. If there is room for a
single screen only, a writer takes the blocks with a priority, the lowest number first. A document without any priority
is always written in full.
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
    """The order in which blocks get onto the first screen. Values in between may be used: MORE + 1 comes after MORE."""

    ALWAYS = 0
    MAIN = 10
    PRESSING = 20
    """Warnings, and the one change that pays most."""
    REMARK = 30
    ASSUMED = 40
    TALLER = 50
    """More than the least height for a chart."""
    MORE = 60
    GAP = 70
    """An empty line before remarks and before the command."""
    EXTRA = 80


# Options and nanoGPT's setting names are formatted as code.
_NAMES = "|".join(sorted((name for name in KINDS if "_" in name), key=len, reverse=True))
_TYPED = re.compile(
    # In scripts without spaces, letters may directly adjoin an option.
    rf"((?<![!-~“‘«])--[a-z]+(?:-[a-z]+)*(?: (?:[AB]:)?[a-z_]+=…| [AB]:\d+)?"
    rf"|(?a:\b(?:{_NAMES})\b(?: = \w+|=[\w.…]+)?))"
)


@dataclass(frozen=True)
class Badge:
    """A verdict in one word, with a sign that is clear without colour."""

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
    """Empty for text that only the first screen shows."""
    kind: str = ""
    """warning, notice, info, change or news for a remark; lead; aside; empty for plain text."""
    label: Message | None = None
    """Put in front of the text on the first screen if no heading says what it is about."""
    brief: tuple[Message, ...] = ()
    """A shorter version for the first screen."""
    priority: int | None = None


class Bullets(NamedTuple):
    """A list without labels."""

    items: tuple[Text, ...]


class Shares(NamedTuple):
    """The whole time of a run as one bar, divided into its parts."""

    name: str
    parts: tuple[PartRow, ...]
    priority: int | None = None


class Table(NamedTuple):
    """Cells in rows and columns, and which of them a terminal shows."""

    head: tuple[Message, ...]
    """Empty for a table of labels and values."""
    align: str
    """One letter per column: l (left), r (right), or d (left and dimmed, for less important columns)."""
    rows: tuple[tuple[Cell, ...], ...]
    priority: int | None = None
    strong: int | None = None
    """The row that stands out."""
    shown: tuple[int, ...] | None = None
    """The rows on the first screen; None for all."""
    marks: tuple[str, ...] = ()
    """The letter of each row in the text chart."""
    left_out: tuple[int, ...] = ()
    """Columns that may be left out if a terminal is too narrow, the first ones first."""
    name: int = 0
    """If `left_out` is set: the column whose texts may be shortened in the middle."""
    state: int = 0
    """If `left_out` is set: the column that may be wrapped."""
    links: tuple[str, ...] = ()
    """For each row the anchor of the section that it refers to, or an empty string."""
    judged: int | None = None
    """The column of badges by which the rows are sorted, the worst first; a page sorts by any column."""


class Labelled(NamedTuple):
    """A list in which every item has a label."""

    items: tuple[Text, ...]
    priority: int | None = None
    figures: bool = False
    """The few figures that most readers look for, each with a reference value. Without a priority, other blocks repeat
    them, and only a page shows them, as a strip."""


class Code(NamedTuple):
    """Lines to be pasted as they are."""

    text: str
    language: str = ""


class Command(NamedTuple):
    """A command to type, and what it is for. Each argument is already quoted."""

    arguments: tuple[str, ...]
    why: Message | None = None
    priority: int | None = Priority.ALWAYS


class Quoted(NamedTuple):
    """Lines of a log with their numbers."""

    lines: tuple[tuple[int, str], ...]


class Points(NamedTuple):
    """The data for a chart on a terminal: the time of iterations, and a letter for what each includes."""

    number: Ints
    time_s: Floats
    marks: dict[str, Ints]
    """Rows by letter, in drawing order, only every nth row if there are many; STEP for plain steps."""
    legend: dict[str, Message]


STEP = "·"
"""The mark of plain steps, which are drawn as a line: the median of each column."""


class Chart(NamedTuple):
    """A picture, and the data for drawing it on a terminal."""

    name: str
    of: RunReport | Plan | Comparison | AdviceList | None = None
    """What `run_charts.plot` draws; None if there is nothing to draw."""
    sharing: int = 1
    """How many runs share the maximum number of points of a page."""
    points: Points | None = None
    priority: int | None = None


class Progress(NamedTuple):
    """The progress of something that is still running; the share is between 0 and 1, None if the end is unknown."""

    name: str
    where: Message
    share: float | None
    priority: int | None = Priority.ALWAYS


Block = Headline | Text | Bullets | Shares | Table | Labelled | Code | Command | Quoted | Chart | Progress


class Section(NamedTuple):
    """Blocks under a heading, and sections below it."""

    name: str
    """The same in every language: style sheets refer to it."""
    heading: Message
    blocks: tuple[Block, ...]
    sections: tuple[Section, ...] = ()
    number: int | None = None
    """Shown before the heading if sections are ranked."""
    beside: Message | None = None
    """Shown next to the heading, less prominent: what a change saves."""
    anchor: str = ""
    """The target of links from a table."""
    badge: Badge | None = None
    """Shown next to the heading while the section is folded."""
    below: bool = False
    """Never on the first screen, regardless of the priorities of its blocks."""
    prompt: bool = False
    """Only for readers at a prompt: what to type next."""
    folded: bool = False
    """Of interest to few: a page shows only the heading until the section is opened."""
    asked: bool = False
    """Requested by an option: shown in full, also below the first screen."""


class Document(NamedTuple):
    """An answer, for any writer."""

    title: Message | None
    blocks: tuple[Block, ...]
    sections: tuple[Section, ...] = ()
    about: str | None = None
    """The name of the log, for titles; None if it has none."""

    def charts(self) -> dict[str, Chart]:
        return {block.name: block for block in all_blocks(self) if isinstance(block, Chart)}


def all_blocks(part: Document | Section) -> Iterator[Block]:
    yield from part.blocks
    for inner in part.sections:
        yield from all_blocks(inner)


def sections(*found: Section) -> tuple[Section, ...]:
    """The sections without empty blocks; a section with nothing left is dropped."""
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
    """The document without its commands, for a reader who has no prompt."""
    return document._replace(sections=sections(*map(_without_commands, document.sections)))


def _without_commands(section: Section) -> Section:
    blocks = tuple(block for block in section.blocks if not isinstance(block, Command))
    return section._replace(blocks=blocks, sections=tuple(map(_without_commands, section.sections)))


def texts(messages: Iterable[Message | None], kind: str = "", priority: int | None = None) -> tuple[Text, ...]:
    """One Text per message; None is skipped."""
    return tuple(Text((message,), kind, priority=priority) for message in messages if message is not None)


UNKNOWN = Message("–")


def word(value: object) -> Message:
    """A message that is the same in every language."""
    return Message("{value:word}", {"value": value})


def count(value: int) -> Message:
    return Message("{count:n}", {"count": value})


def time(seconds: float | Interval) -> Message:
    """A time in seconds, or the range that it is in."""
    if isinstance(seconds, Interval):
        return Message("{cost:range}", {"cost": seconds})
    return Message("{time:time}", {"time": seconds})


def text_and_code(text: str) -> list[str]:
    """A sentence in pieces, alternating between plain text and code."""
    return _TYPED.split(text)
