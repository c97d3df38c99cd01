"""Cells of numbers between commas, read for many lines at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepwatch.readers.text.block import Block, Floats, read_floats

PIECE_BYTES = 1 << 18  # that are read together: one odd line makes all of them be read line by line
_LETTERS = b"0123456789.,eE+-naif\n"


def read_cells(text: bytes, width: int, wanted: Sequence[int]) -> Floats | None:
    """A row for each line, nan where a cell is empty, 0 for numbers that are not wanted.

    None unless each line has so many cells, all of them numbers or nothing.
    """
    text = text.rstrip(b"\n")
    if width < 3 or text.translate(None, _LETTERS):
        return None
    text = b"\n" + text + b"\n"
    block = Block.of(text)
    octets = block.octets[: len(text)]
    edges = np.flatnonzero((octets == ord(",")) | (octets == ord("\n")))
    if (len(edges) - 1) % width or not np.array_equal(edges[::width], np.flatnonzero(octets == ord("\n"))):
        return None
    begins, ends = (edges[:-1] + 1).reshape(-1, width), edges[1:].reshape(-1, width)
    filled = begins < ends
    table = np.where(filled, 0.0, np.nan)
    try:
        for place in wanted:
            rows = filled[:, place]
            table[rows, place] = read_floats(block, begins[rows, place], ends[rows, place])
    except ValueError:
        return None
    return table
