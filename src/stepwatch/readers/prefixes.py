"""What a launcher or logger puts in front of every line, passed over for all lines of a block at once.

One line shows it. Lines that begin alike but for the digits, which are a rank's or a clock's, begin behind it; others
are left as they are.
"""

from __future__ import annotations

import numpy as np

from stepwatch.readers.columns import Block, Floats, Ints, Mask, stamps_in_front
from stepwatch.readers.text.stamps import stamp_of, strip_prefix

_LONGEST = 200
_DIGITS = b"0123456789"


def behind_prefix(text: bytes, block: Block, lines: Ints) -> tuple[Block, Floats | None]:
    """The block with its lines behind their prefix, and for each line the clock in it; None where there is none."""
    if not len(lines):
        return block, None
    model = int(lines[len(lines) // 2])
    line = text[block.starts[model] : block.ends[model]][:_LONGEST].decode("utf-8", "replace")
    prefix = strip_prefix(line)[1].rstrip()
    if not prefix or not prefix.isascii():
        return block, None
    fits = _alike(block, prefix.encode())
    begins = block.starts + len(prefix)
    fits &= begins <= block.ends
    rows = np.flatnonzero(fits)
    inside, seconds = stamps_in_front(block, block.starts[rows], begins[rows])
    if (seconds is None) != (stamp_of(prefix) is None):
        return block, None  # a clock of another form is for the patterns
    rows = rows[inside]
    starts = block.starts.copy()
    starts[rows] = np.minimum(begins[rows] + (block.octets[begins[rows]] == ord(" ")), block.ends[rows])
    if seconds is None:
        return block._replace(starts=starts), None
    stamps = np.full(len(starts), np.nan)
    stamps[rows] = seconds
    return block._replace(starts=starts), stamps


def _alike(block: Block, prefix: bytes) -> Mask:
    """The lines that begin with the prefix, or with other digits in the places of its own."""
    fits = np.ones(len(block.starts), bool)
    for begin in range(0, len(prefix), 8):
        part = prefix[begin : begin + 8]
        words = block.words[np.minimum(block.starts + begin, len(block.words) - 1)]
        same = bytes(0 if letter in _DIGITS else 0xFF for letter in part)
        digit = bytes(0x80 if letter in _DIGITS else 0 for letter in part)
        mask = np.uint64(int.from_bytes(same, "little"))
        fits &= (words & mask) == (np.uint64(int.from_bytes(part, "little")) & mask)
        figures = words ^ np.uint64(0x3030303030303030)
        others = (figures + np.uint64(0x7676767676767676)) | figures
        fits &= (others & np.uint64(int.from_bytes(digit, "little"))) == 0
    return fits
