"""The table of a directory's runs on a terminal: as many of its columns as there is room for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from stepwatch.presenters.lines import GAP, Cell, Line, Side, Table

WIDEST = 200
_NAME, _STATE = 1, 9
_WORDS = (_NAME, 2, 3, _STATE)  # columns that are no figures
_UNKNOWN = "–"
_FIRST_LEFT_OUT = (7, 3, 2, 4, 6, 8)  # MFU, card, format, iterations, tokens/s, share of the steps
_SHORTEST_NAME, _LONGEST_STATE, _WRAPPED_STATE = 16, 18, 14
_ELLIPSIS = "…"


class Overview(NamedTuple):
    lines: list[Line]
    left_out: tuple[str, ...]
    """Heads of columns for which there was no room."""


def overview(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Overview:
    columns = _fitting(heads, rows, width)
    widths = {column: _width(column, heads, rows) for column in columns}
    room = width - sum(widths.values()) - len(GAP) * (len(columns) - 1)
    names = [row[_NAME] for row in rows]
    widths[_NAME] = min(widths[_NAME] + max(room, 0), max(map(len, [heads[_NAME], *names])))
    spare = width - sum(widths.values()) - len(GAP) * (len(columns) - 1)
    widths[_STATE] = min(widths[_STATE] + max(spare, 0), max(len(row[_STATE]) for row in rows))
    table = _Table(*((heads[c], _side(c)) for c in columns), widths=list(widths.values()))
    for row, name in zip(rows, shortened(names, widths[_NAME]), strict=True):
        table.add(*(Cell(name if column == _NAME else row[column]) for column in columns))
    return Overview(table.lines(width), tuple(heads[c] for c in range(len(heads)) if c not in columns))


def _side(column: int) -> Side:
    return "left" if column in _WORDS else "right"


class _Table(Table):
    """Of given widths: heads are wrapped, figures never."""

    def __init__(self, *columns: tuple[str, Side], widths: list[int]) -> None:
        super().__init__(*columns)
        self._given = widths

    def _widths(self, rows: list[list[Cell]], width: int) -> list[int]:
        return self._given


def _fitting(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Those that tell nothing are left out first, then those that tell the same of all runs."""

    def use(column: int) -> tuple[int, int]:
        told = {row[column] for row in rows}
        return 0 if told == {_UNKNOWN} else 1 if len(told) == 1 else 2, _FIRST_LEFT_OUT.index(column)

    columns = list(range(len(heads)))
    for column in sorted(_FIRST_LEFT_OUT, key=use):
        if sum(_width(c, heads, rows) for c in columns) + len(GAP) * (len(columns) - 1) <= width:
            break
        columns.remove(column)
    return columns


def _width(column: int, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """The least that a column needs."""
    lengths = [len(row[column]) for row in rows]
    if column == _NAME:
        lengths = [min(max(lengths), _SHORTEST_NAME)]
    if column == _STATE:  # a long one may be wrapped
        lengths = [length if length <= _LONGEST_STATE else _WRAPPED_STATE for length in lengths]
    return max(*lengths, *map(len, heads[column].split()))


def shortened(names: Sequence[str], most: int) -> list[str]:
    """Names without their middle, so that those that differ still do; whole where that cannot be."""
    kept = max(most - len(_ELLIPSIS), 2)
    found = {name: name for name in names if len(name) <= most}
    long = [name for name in dict.fromkeys(names) if name not in found]
    for front in sorted(range(1, kept), key=lambda front: abs(front - kept // 3)):
        short = {name: name[:front] + _ELLIPSIS + name[front - kept :] for name in long}
        counts = Counter((*short.values(), *found.values()))
        found |= {name: text for name, text in short.items() if counts[text] == 1}
        long = [name for name in long if name not in found]
    return [found.get(name, name) for name in names]
