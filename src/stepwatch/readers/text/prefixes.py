"""What a launcher or logger puts in front of every line, passed over for all lines of a block at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepwatch.readers.text.block import Block, Floats, Ints
from stepwatch.readers.text.dates import read_stamps
from stepwatch.readers.text.figures import bytes_equal

_DIGITS = b"0123456789"


class Prefix(NamedTuple):
    """The prefix of one line. Those of other lines are alike but for their digits, which are a rank's or a clock's."""

    text: str

    def skip(self, block: Block, lines: Ints) -> tuple[Ints, Ints, Floats | None]:
        """The lines that begin so, where each goes on, and the clock in each prefix; None where there is none."""
        starts = block.starts[lines]
        if not self.text:
            return lines, starts, None
        letters = self.text.rstrip(" ").encode()
        fits = block.ends[lines] - starts >= len(letters)
        lines, starts = lines[fits], starts[fits]
        fits = np.ones(len(starts), bool)  # the same letters, and any digits in the places of its own
        for begin in range(0, len(letters), 8):
            part = letters[begin : begin + 8]
            words = block.words[starts + begin]
            same = np.uint64(int.from_bytes(bytes(0 if letter in _DIGITS else 0xFF for letter in part), "little"))
            digit = np.uint64(int.from_bytes(bytes(0x80 if letter in _DIGITS else 0 for letter in part), "little"))
            fits &= (words & same) == (np.uint64(int.from_bytes(part, "little")) & same)
            figures = words ^ np.uint64(0x3030303030303030)
            fits &= (((figures + np.uint64(0x7676767676767676)) | figures) & digit) == 0
        lines, starts = lines[fits], starts[fits]
        fits, stamps = read_stamps(block, starts, letters)
        lines, at = lines[fits], skip_spaces(block, starts[fits] + len(letters))
        return lines, at, None if stamps is None else stamps[fits]


def skip_spaces(block: Block, at: Ints) -> Ints:
    for _ in range(25):  # words of eight spaces
        count = bytes_equal(block.words[at], ord(" "))
        at = at + count
        if (count < 8).all():
            break
    return at
