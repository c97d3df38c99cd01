"""What a note and a page are made of: sections of paragraphs, lists and tables, still as Messages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from stepwatch.messages import Message
from stepwatch.settings import KINDS

# Options and nanoGPT's setting names are set as code, as one would type them.
_NAMES = "|".join(sorted((name for name in KINDS if "_" in name), key=len, reverse=True))
_TYPED = re.compile(
    rf"((?<!\S)--[a-z]+(?:-[a-z]+)*(?: (?:[AB]:)?[a-z_]+=…| [AB]:\d+)?|\b(?:{_NAMES})\b(?: = \w+|=[\w.…]+)?)"
)

Cell = tuple[Message, ...]
"""Joined by plus signs where there are several; empty for an empty cell."""


class Text(NamedTuple):
    """One paragraph of one or more sentences."""

    messages: tuple[Message, ...]
    warning: bool = False


class Bullets(NamedTuple):
    items: tuple[Text, ...]


class Table(NamedTuple):
    head: tuple[Message, ...]
    align: str
    """A letter for each column, `l` or `r`."""
    rows: tuple[tuple[Cell, ...], ...]


class Typed(NamedTuple):
    """Something to be typed, and what for."""

    why: Message
    command: str


class Labelled(NamedTuple):
    """A list of which every item has a label before it."""

    items: tuple[tuple[Message, tuple[Message, ...]], ...]


class Code(NamedTuple):
    """Lines to be pasted as they are."""

    text: str
    language: str = ""


Block = Text | Bullets | Table | Typed | Labelled | Code


class Section(NamedTuple):
    name: str
    """The same in every language: anchors and charts go by it."""
    heading: Message
    blocks: tuple[Block, ...]
    number: int | None = None
    """Before the heading, where sections are ranked."""


def section(name: str, heading: Message, blocks: Iterable[Block]) -> Section:
    """Without the blocks that hold nothing."""
    return Section(name, heading, tuple(block for block in blocks if _content(block)))


def _content(block: Block) -> object:
    match block:
        case Text():
            return block.messages
        case Table():
            return block.rows
        case Typed():
            return block.command
        case Code():
            return block.text
        case _:
            return block.items


def text_and_code(text: str) -> list[str]:
    """A sentence in pieces, by turns plain text and what one would type."""
    return _TYPED.split(text)
