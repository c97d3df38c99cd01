"""Styled lines and plain tables, laid out here and painted by rich.

The lines of the first screen are counted before it is shown, so we do the layout ourselves. rich styles it on a
terminal; a pipe gets the plain text and does not wait for rich to load.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from io import StringIO
from shutil import get_terminal_size
from typing import Literal, NamedTuple
from unicodedata import category, east_asian_width

from stepwatch.i18n.languages import TABLE

SCREEN_LINES = 25
MARK_STYLES = {"e": "cyan", "c": "cyan bold", "0": "magenta bold", "!": "red bold"}
"""Styles of iterations, by the letter of what they include."""
WIDEST = 100
WIDEST_TABLE = 200
NARROWEST = 40
GAP = "  "
_UNKNOWN, _ELLIPSIS = "–", "…"

# --- how wide a text is, and where a line of it may end, for Latin and East Asian scripts -----------------------

# No line ends between a figure and its unit, within `3 min 15 s`, or within an option for one of two runs.
_HELD = re.compile(
    r"(?<=\d) (?=(?:ms|s|min|h|d|j|%|TFLOPS?|tokens/s|[kMGT]?[Bo]|GiB|Gio)(?!\w))"
    r"|(?<=\d [hdj]) (?=\d)|(?<=\d min) (?=\d)|(?<=--(?:set|run)) (?=[AB]:)"
)
# Characters that no line begins or ends with in Chinese and Japanese (Unicode line breaking, JIS X 4051).
_CLOSING = "。，、．：；！？）」』》〉】〕…‥・”’々ー〜～ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ％℃"
_OPENING = "（「『《〈【〔“‘"
_WIDE = r"\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6"
_UNITS = "|".join(sorted({word for row in TABLE.values() for word in row.clock if not word.isascii()}, key=len)[::-1])
_HAN_OR_KANA = rf"(?:[\u30a1-\u30fa\u30fc]+|[{_WIDE}])"  # a word in katakana stays whole
_WORD = rf"(?:[^\s{_WIDE}{_OPENING}]|\u00a0|\u202f|[“‘](?![{_WIDE}]))+"
# What stays on one line: a character of a script without spaces, or a word; a figure together with what it counts.
_COUNTED = rf"{_WORD}(?:(?<=[\d\u00a0])(?:{_UNITS}|{_HAN_OR_KANA}))?"
_ATOM = rf"\s*[{_OPENING}]*(?:{_COUNTED}|{_HAN_OR_KANA})[{_CLOSING}]*(?:\u00a0{_COUNTED}[{_CLOSING}]*)*|\s*\S"


def cell_width(text: str) -> int:
    """Columns of a terminal: two for a wide character, none for a mark that combines."""
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(c) in "WF" else category(c) not in ("Mn", "Me", "Cf") for c in text)


def padded(text: str, width: int, side: str = "left") -> str:
    """The text padded with spaces to a width, and aligned to this side."""
    space = " " * (width - cell_width(text))
    return space + text if side == "right" else text + space


def cut(text: str, width: int) -> str:
    """As much of the text as fits."""
    if cell_width(text) <= width:
        return text
    used = 0
    for place, character in enumerate(text):
        used += cell_width(character)
        if used > width:
            return text[:place]
    return text


def held(text: str) -> str:
    """The text with a non-breaking space between each figure and its unit."""
    return _HELD.sub("\u00a0", text)


def longest_word(text: str) -> int:
    """The column width at which no word is cut, and a script without spaces is not wrapped character by character."""
    words = (min(cell_width(word), 8) for word in text.split(" "))
    return max(*words, *(cell_width(atom.strip(" ")) for atom in re.findall(_ATOM, text)), 0)


def wrapped(text: str, width: int, *, cut_words: bool = True) -> list[str]:
    """The lines of a text, broken between words and between the characters of scripts that have no spaces.

    A table cell may be narrow: then no word is cut, and the caller decides what stays together.
    """
    if cut_words:
        text, width = held(text), max(width, 20)
    lines, line = [], ""
    if text.isascii() or not any(east_asian_width(character) in "WF" for character in text):
        lines = textwrap.wrap(text, max(width, 1), break_long_words=cut_words, break_on_hyphens=False) or [""]
        return [line.replace("\u00a0", " ") for line in lines]
    for atom in re.findall(_ATOM, text):
        if line and cell_width(line + atom) > width:
            lines.append(line)
            line = ""
        line += atom if line else atom.lstrip(" ")
        while cut_words and cell_width(line) > width:
            lines.append(cut(line, width))
            line = line[len(lines[-1]) :]
    return [line.replace("\u00a0", " ") for line in (*lines, line)]


# --- lines and tables -------------------------------------------------------------------------------------------


Line = list[tuple[str, str]]
"""Pieces of text, each with a style that rich knows."""


def plain(line: Line) -> str:
    return "".join(text for text, _ in line)


Side = Literal["left", "right"]


class TableColumn(NamedTuple):
    head: str
    side: Side = "left"
    style: str = ""


class Row(NamedTuple):
    cells: Sequence[str]
    style: str = ""
    mark_style: str = ""
    """The style of the last cell but one, if it is a letter of the chart."""


def table_lines(columns: Sequence[TableColumn], rows: Sequence[Row], widths: Sequence[int]) -> list[Line]:
    """A head and rows, without borders; text too long for its column is wrapped between words."""
    head = Row([column.head for column in columns], "dim")
    lines = []
    for row in [head, *rows] if any(head.cells) else rows:
        parts = []
        for text, width in zip(row.cells, widths, strict=True):
            if cell_width(text) <= width:
                parts.append([text.replace("\u00a0", " ")])
            else:  # a figure is separated from its unit only if they do not fit on one line
                whole = held(text) if longest_word(held(text)) <= width else text
                parts.append(wrapped(whole, width, cut_words=False))
        for number in range(max(map(len, parts))):
            line: Line = []
            for place, (column, pieces, width) in enumerate(zip(columns, parts, widths, strict=True)):
                text = pieces[number] if number < len(pieces) else ""
                marked = row.mark_style if place == len(columns) - 2 else ""
                line.append((GAP if line else "", ""))
                line.append((padded(text, width, column.side), marked or row.style or column.style))
            lines.append(line)
    return lines


def table_widths(columns: Sequence[TableColumn], rows: Sequence[Row], width: int) -> list[int] | None:
    """As wide as the texts. Without room, heads wrap first, then names, then figures; None if words do not fit."""
    widths = [
        max(cell_width(column.head), *(cell_width(row.cells[place]) for row in rows))
        for place, column in enumerate(columns)
    ]
    room = width - len(GAP) * (len(widths) - 1)
    for least, sides in (
        (cell_width, ()),
        (lambda text: longest_word(held(text)), ("left",)),
        (lambda text: longest_word(held(text)), ("left", "right")),
        (longest_word, ("left", "right")),
    ):
        if sum(widths) <= room:
            break
        floors = [
            max(
                longest_word(column.head),
                *((least if column.side in sides else cell_width)(row.cells[place]) for row in rows),
            )
            for place, column in enumerate(columns)
        ]
        while sum(widths) > room and any(wide > floor for wide, floor in zip(widths, floors, strict=True)):
            shrinking = [wide if wide > floor else 0 for wide, floor in zip(widths, floors, strict=True)]
            widths[shrinking.index(max(shrinking))] -= 1
    return widths if sum(widths) <= room else None


def in_columns(columns: Sequence[TableColumn], rows: Sequence[Row], width: int) -> tuple[list[Line], tuple[str, ...]]:
    """The table, and the heads of less important columns that were left out for lack of room.

    If even single words do not fit, the cells of a row are stacked.
    """
    everything = range(len(columns))
    for kept in (list(everything), [place for place in everything if columns[place].style != "dim"]):
        some = [columns[place] for place in kept]
        found = [row._replace(cells=[row.cells[place] for place in kept]) for row in rows]
        widths = table_widths(some, found, width)
        if widths is not None:
            missing = tuple(columns[place].head for place in everything if place not in kept)
            return table_lines(some, found, widths), missing
    return stacked(columns, rows, width), ()


def stacked(columns: Sequence[TableColumn], rows: Sequence[Row], width: int) -> list[Line]:
    """A table whose words are too wide for it: the name of each row, and below it its cells with their heads."""
    lines: list[Line] = []
    for row in rows:
        name, *cells = row.cells
        lines += [[(line, row.style or "bold")] for line in wrapped(name, width)]
        said = [f"{column.head} {text}".strip() for column, text in zip(columns[1:], cells, strict=True) if text]
        line = ""
        for text in [*(f"{text} ·" for text in said[:-1]), *said[-1:]]:
            if line and cell_width(f"{GAP}{line} {text}") > width:
                lines.append([(GAP + line, "")])
                line = ""
            *above, line = (f"{line} {text}",) if line else wrapped(text, width - len(GAP))
            lines += [[(GAP + piece, "")] for piece in above]
        lines += [[(GAP + line, "")]] if line else []
    return lines


def fitted(
    columns: Sequence[TableColumn], rows: Sequence[Row], width: int, left_out: Sequence[int], name: int, state: int
) -> tuple[list[Line], tuple[str, ...]]:
    """As many columns as there is room for, and the heads of the others.

    Columns of unknown values are left out first, then those with the same value in all rows. The remaining room is for
    the names, which are shortened in the middle, and for the states, which may wrap.
    """

    def least(column: int) -> int:
        lengths = [cell_width(row.cells[column]) for row in rows]
        if column == name:
            lengths = [min(max(lengths), 16)]  # longer names are shortened
        if column == state:
            lengths = [length if length <= 18 else 14 for length in lengths]  # long ones wrap
        return max(*lengths, longest_word(columns[column].head))

    def use(column: int) -> tuple[int, int]:
        found = {row.cells[column] for row in rows}
        return 0 if found == {_UNKNOWN} else 1 if len(found) == 1 else 2, left_out.index(column)

    kept = list(range(len(columns)))
    for column in sorted(left_out, key=use):
        if sum(map(least, kept)) + len(GAP) * (len(kept) - 1) <= width:
            break
        kept.remove(column)
    widths = {column: least(column) for column in kept}
    for column, narrowest in (
        (name, 8),  # enough for the two ends of a name
        (state, max(longest_word(row.cells[state]) for row in rows)),
    ):
        excess = sum(widths.values()) + len(GAP) * (len(kept) - 1) - width
        widths[column] = max(widths[column] - max(excess, 0), min(narrowest, widths[column]))
    for column, longest in (
        (name, max(cell_width(columns[name].head), *(cell_width(row.cells[name]) for row in rows))),
        (state, max(cell_width(row.cells[state]) for row in rows)),
    ):
        room = width - sum(widths.values()) - len(GAP) * (len(kept) - 1)
        widths[column] = min(widths[column] + max(room, 0), longest)
    names = [row.cells[name] for row in rows]
    short = dict(zip(names, shortened(names, widths[name]), strict=True))
    shown_rows = [Row([short[row.cells[c]] if c == name else row.cells[c] for c in kept], row.style) for row in rows]
    lines = table_lines([columns[c] for c in kept], shown_rows, list(widths.values()))
    return lines, tuple(column.head for c, column in enumerate(columns) if c not in kept)


def shortened(names: Sequence[str], most: int) -> list[str]:
    """The names shortened in the middle so that they still differ; a name that cannot be shortened so stays whole."""
    kept = max(most - len(_ELLIPSIS), 2)
    found = {name: name for name in names if cell_width(name) <= most}
    long = [name for name in dict.fromkeys(names) if name not in found]
    for front in sorted(range(1, kept), key=lambda front: abs(front - kept // 3)):
        short = {name: cut(name, front) + _ELLIPSIS + cut(name[::-1], kept - front)[::-1] for name in long}
        counts = Counter((*short.values(), *found.values()))
        found |= {name: text for name, text in short.items() if counts[text] == 1}
        long = [name for name in long if name not in found]
    return [found.get(name, name) for name in names]


def width_of_output(widest: int = WIDEST) -> int:
    """The width of the terminal, within limits; 80 columns for a pipe."""
    if sys.stdout is None or not sys.stdout.isatty():
        return 80
    return max(NARROWEST, min(get_terminal_size().columns, widest))


def shown(lines: list[Line], width: int, colour: bool | None) -> str:
    """The lines as text: styled on a terminal, plain elsewhere; `colour` True or False overrides this."""
    if colour is None:
        colour = sys.stdout is not None and sys.stdout.isatty()
    if not colour:
        return printable("".join(plain(line).rstrip() + "\n" for line in lines))
    from rich.console import Console  # a pipe does not wait for it
    from rich.text import Text

    stream = StringIO()
    console = Console(
        file=stream,
        width=width,
        force_terminal=True,
        no_color="NO_COLOR" in os.environ,
        force_jupyter=False,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=True,
    )
    for line in lines:
        text = Text.assemble(*line)
        text.rstrip()
        console.print(text)
    return printable(stream.getvalue())


def printable(text: str) -> str:
    """Replaces lone surrogates of an odd file name or setting, which cannot be written to any output."""
    return text.encode("utf-8", "replace").decode("utf-8")
