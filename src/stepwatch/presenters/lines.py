"""Styled lines and plain tables, laid out here and painted by rich.

The first screen is counted in lines before it is shown, so the layout is ours. rich paints it on a terminal; a pipe
gets the plain text, and does not wait for rich to load.
"""

from __future__ import annotations

import os
import sys
import textwrap
from typing import Literal, NamedTuple

from stepwatch.patterns import Pattern

SCREEN_LINES = 25
PIPE_WIDTH = 80
WIDEST = 100
NARROWEST = 40
GAP = "  "
_NARROWEST_COLUMN = 6
# A figure stays with its unit at the end of a line, `3 min 15 s` stays whole, and so does an option of one of two runs.
_HELD = Pattern(
    r"(?<=\d) (?=(?:ms|s|min|h|d|j|%|TFLOPS?|tokens/s|[kMGT]?[Bo]|GiB|Gio)(?!\w))"
    r"|(?<=\d [hdj]) (?=\d)|(?<=\d min) (?=\d)|(?<=--(?:set|run)) (?=[AB]:)"
)


class Line:
    """Pieces of text, each with a style that rich knows."""

    __slots__ = ("pieces",)

    def __init__(self, text: str = "", style: str = "") -> None:
        self.pieces: list[tuple[str, str]] = [(text, style)] if text else []

    def append(self, text: str, style: str = "") -> Line:
        self.pieces.append((text, style))
        return self

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.pieces)

    def cut(self, width: int) -> Line:
        """The line up to a width."""
        kept = Line()
        for text, style in self.pieces:
            kept.append(text[:width], style)
            width = max(width - len(text), 0)
        return kept


class Cell(NamedTuple):
    text: str
    style: str = ""


Side = Literal["left", "right"]


class Table:
    """A head and rows, without lines around them; where the width is short, the widest column is wrapped."""

    def __init__(self, *columns: tuple[str, Side]) -> None:
        self.sides = [side for _, side in columns]
        self.head = [Cell(head, "dim") for head, _ in columns]
        self.rows: list[tuple[list[Cell], str]] = []

    def add(self, *cells: Cell | str, style: str = "") -> None:
        self.rows.append(([cell if isinstance(cell, Cell) else Cell(cell) for cell in cells], style))

    def lines(self, width: int) -> list[Line]:
        every = ([(self.head, "")] if any(cell.text for cell in self.head) else []) + self.rows
        if not every:
            return []
        widths = self._widths([row for row, _ in every], width)
        return [line for row, style in every for line in self._row(row, style, widths)]

    def _widths(self, rows: list[list[Cell]], width: int) -> list[int]:
        widths = [max(len(row[i].text) for row in rows) for i in range(len(self.sides))]
        room = width - len(GAP) * (len(widths) - 1)
        while sum(widths) > room and max(widths) > _NARROWEST_COLUMN:
            widths[widths.index(max(widths))] -= 1
        return widths

    def _row(self, row: list[Cell], style: str, widths: list[int]) -> list[Line]:
        wrapped = [textwrap.wrap(cell.text, max(width, 1)) or [""] for cell, width in zip(row, widths, strict=True)]
        lines = []
        for number in range(max(map(len, wrapped))):
            line = Line()
            for cell, parts, side, width in zip(row, wrapped, self.sides, widths, strict=True):
                text = parts[number] if number < len(parts) else ""
                line.append(GAP if line.pieces else "")
                line.append(text.rjust(width) if side == "right" else text.ljust(width), cell.style or style)
            lines.append(line)
        return lines


def width_of_output(widest: int = WIDEST) -> int:
    """The terminal's, within reason; 80 columns for a pipe."""
    if not _on_terminal():
        return PIPE_WIDTH
    try:
        width = int(os.environ.get("COLUMNS", 0)) or os.get_terminal_size().columns
    except (OSError, ValueError):
        width = PIPE_WIDTH
    return max(NARROWEST, min(width, widest))


def _on_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def held(text: str) -> str:
    """With a space that no line ends at between a figure and its unit."""
    return _HELD.sub("\u00a0", text)


def wrapped(text: str, width: int) -> list[str]:
    lines = textwrap.wrap(held(text), max(width, 20), break_on_hyphens=False) or [""]
    return [line.replace("\u00a0", " ") for line in lines]


def labelled(label: str, text: str, *, indent: int, width: int, style: str) -> list[Line]:
    """A label in front of the first line of a text, the others indented."""
    lines = wrapped(text, width - indent)
    first = Line(label, style=style).append(" " * max(indent - len(label), 1) if label else " " * indent)
    return [first.append(lines[0]), *(Line(" " * indent + line) for line in lines[1:])]


def shown(lines: list[Line], width: int, colour: bool | None) -> str:
    """As text for the output: painted on a terminal, plain elsewhere; `colour` False or True decides otherwise."""
    if not (_on_terminal() if colour is None else colour):
        return printable(plain(lines))
    return printable(painted(lines, width, colour="NO_COLOR" not in os.environ))


def printable(text: str) -> str:
    """Lone surrogates of an odd file name or setting cannot be written to any output."""
    return text.encode("utf-8", "replace").decode("utf-8")


def plain(lines: list[Line]) -> str:
    return "".join(line.text.rstrip() + "\n" for line in lines)


def painted(lines: list[Line], width: int, *, colour: bool) -> str:
    """The lines with rich's escape codes, in the colours that this terminal can show."""
    from io import StringIO

    from rich.console import Console
    from rich.text import Text

    stream = StringIO()
    console = Console(
        file=stream, width=width, force_terminal=True, no_color=not colour, force_jupyter=False, legacy_windows=False,
        highlight=False, markup=False, emoji=False, soft_wrap=True,
    )  # fmt: skip
    for line in lines:
        text = Text.assemble(*line.pieces)
        text.rstrip()
        console.print(text)
    return stream.getvalue()
