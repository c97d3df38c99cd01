"""Styled lines and plain tables, laid out here and painted by rich.

The first screen is counted in lines before it is shown, so the layout is ours. rich paints it on a terminal; a pipe
gets the plain text, and does not wait for rich to load.
"""

from __future__ import annotations

import textwrap
from typing import Literal, NamedTuple

GAP = "  "
_NARROWEST_COLUMN = 6


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
