"""Columns with more rows than are processed at a time: their values are computed on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stepwatch.analysis import statistics
from stepwatch.run import Floats

if TYPE_CHECKING:
    from stepwatch.analysis.statistics import Levels, Part


class Series:
    """A long column whose values are computed on demand; a long slice of it is a Series again."""

    __slots__ = ("_count", "_part")

    def __init__(self, count: int, part: Part) -> None:
        self._count, self._part = count, part

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, rows: Any) -> Any:
        if not isinstance(rows, slice):  # one row
            return self._part(slice(rows, rows + 1))[0]
        begin, end, step = rows.indices(self._count)
        if step == 1 and end - begin > statistics.PIECE:
            return Series(end - begin, lambda own: self._part(slice(own.start + begin, own.stop + begin, own.step)))
        return self._part(slice(begin, end, step))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        return np.concatenate([np.asarray(self._part(rows), dtype=dtype) for rows in statistics.pieces(self._count)])


def chosen_of_most(column: npt.NDArray[Any] | Levels, rows: npt.NDArray[np.bool_]) -> Series:
    """Like column[rows], if most of the rows are chosen."""
    before = np.flatnonzero(~rows)
    before -= np.arange(len(before))  # chosen rows before each of the others

    def part(asked: slice) -> npt.NDArray[Any]:
        if asked.step not in (None, 1):
            places = np.arange(asked.start, asked.stop, asked.step)
            return column[places + np.searchsorted(before, places, side="right")]
        ends = np.array((asked.start, asked.stop - 1))
        first, last = (ends + np.searchsorted(before, ends, side="right")).tolist()
        return column[first : last + 1][rows[first : last + 1]]

    return Series(len(column) - len(before), part)
