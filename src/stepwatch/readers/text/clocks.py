"""Reads the clocks in the prefixes of all lines of a block at once; line.py reads those of single lines."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from stepwatch.readers.text.block import UNDECODED, Block, Floats, Ints, Mask, bytes_equal, read_int, read_number
from stepwatch.readers.text.line import (
    EPOCH,
    ambiguous_clock_starts,
    clock_in,
    is_more_of_clock,
    stamp_of,
    starts_clock,
)
from stepwatch.run import repeated

_MIDNIGHT = np.uint64(int.from_bytes(b"00:00:00", "little"))


def read_stamps(block: Block, starts: Ints, prefix: str, own: str = "") -> tuple[Mask, Floats | None]:
    """Which lines have a clock at the same place as this prefix, or none if it has none, and the clocks.

    The lines differ from the prefix only in their digits; all others are left to the patterns.
    """
    fits, whole = np.ones(len(starts), bool), prefix + own
    for doubt in ambiguous_clock_starts(whole):
        at = starts + _bytes_of(whole[: doubt.start()])
        fits &= _of_texts(block, at, len(doubt[0]), starts_clock) == starts_clock(doubt[0])
    found = clock_in(prefix, own)
    if found is None or not found[0].isascii():
        return fits & (found is None), None
    at = starts + _bytes_of(whole[: found.start()])
    if found.re is EPOCH:
        _, end, stamps = read_number(block, at)
        fits &= end - at == len(found[0])
    else:
        width = found.start("hour") - found.start()
        time = at + width
        figures = block.words[time] ^ _MIDNIGHT
        figures = figures * np.uint64(10) + (figures >> np.uint64(8))  # combines two digits in the byte of the first
        hour, minute, second = (
            ((figures >> np.uint64(bits)) & np.uint64(0xFF)).astype(np.int64) for bits in (0, 24, 48)
        )
        if found["half"]:
            hour = hour % 12 + 12 * (found["half"] == "PM")
        seconds = hour * 3600 + minute * 60 + np.minimum(second, 59)
        days = _of_texts(block, at, width, lambda text: stamp_of(text + "00:00:00"))
        stamps = np.where((hour <= 23) & (minute <= 59), days + seconds, np.nan)
        if found["fraction"]:
            begin = time + len("00:00:00.")
            _, end, fraction = read_int(block, begin)
            stamps += fraction / 10 ** len(found["fraction"])
            fits &= end - begin == len(found["fraction"])
    if not whole[found.end() :].strip(" .,"):  # the text after such a prefix may belong to the clock
        fits &= _of_texts(block, at + len(found[0]), 4, is_more_of_clock) == 0
    known = stamp_of(prefix, own) is not None
    return fits & (np.isnan(stamps) != known), stamps if known else None


def clocks_of(block: Block, starts: Ints, prefix: str) -> Floats:
    """The clock in each of these prefixes, which differ from `prefix` only in their digits; nan if there is none."""
    fits, stamps = read_stamps(block, starts, prefix)
    clocks = np.full(len(starts), math.nan) if stamps is None else stamps
    for row in np.flatnonzero(~fits).tolist():
        own = block.text[starts[row] : starts[row] + _bytes_of(prefix)].decode("utf-8", UNDECODED)
        clocks[row] = np.array(stamp_of(own), np.float64)
    return clocks


def _bytes_of(prefix: str) -> int:
    return len(prefix.encode("utf-8", UNDECODED))


def _of_texts(block: Block, at: Ints, width: int, value_of: Callable[[str], float | None]) -> Floats:
    """The value of the text of this width at each place; adjacent lines mostly have the same text."""
    other = np.zeros(len(at), bool)
    other[:1] = True
    for offset in range(0, width, 8):
        words = block.words[at + offset]
        if offset + 8 > width:
            words &= np.uint64((1 << (8 * (width - offset))) - 1)
        other[1:] |= words[1:] != words[:-1]
    heads = np.flatnonzero(other)
    texts = (block.text[place : place + width].decode("utf-8", UNDECODED) for place in at[heads].tolist())
    return repeated(np.array([*map(value_of, texts)], np.float64), np.diff(np.append(heads, len(at))))


_DIGITS = b"0123456789"


class Prefix(NamedTuple):
    """The prefix of one line. Other lines have the same one except for its digits, which are a rank's or a clock's."""

    text: str
    own: str = ""
    """What the statement leaves open after the prefix."""

    def skip(self, block: Block, lines: Ints) -> tuple[Ints, Ints, Floats | None]:
        """The lines with this prefix, where each continues after it, and the clocks; None if it has no clock."""
        starts = block.starts[lines]
        whole = self.text + self.own
        if not whole:
            return lines, starts, None
        letters = whole[: len(whole.rstrip(" ")) + 1].encode()  # with at least one of its spaces
        fits = block.ends[lines] - starts >= len(letters)
        lines, starts = lines[fits], starts[fits]
        fits = np.ones(len(starts), bool)  # the same letters, and any digit in place of a digit
        for begin in range(0, len(letters), 8):
            part = letters[begin : begin + 8]
            words = block.words[starts + begin]
            same = np.uint64(int.from_bytes(bytes(0 if letter in _DIGITS else 0xFF for letter in part), "little"))
            digit = np.uint64(int.from_bytes(bytes(0x80 if letter in _DIGITS else 0 for letter in part), "little"))
            fits &= (words & same) == (np.uint64(int.from_bytes(part, "little")) & same)
            figures = words ^ np.uint64(0x3030303030303030)
            fits &= (((figures + np.uint64(0x7676767676767676)) | figures) & digit) == 0
        lines, starts = lines[fits], starts[fits]
        fits, stamps = read_stamps(block, starts, self.text, self.own)
        lines, at = lines[fits], skip_spaces(block, starts[fits] + len(letters))
        return lines, at, None if stamps is None else stamps[fits]


def skip_spaces(block: Block, at: Ints) -> Ints:
    for _ in range(25):  # eight spaces at a time
        if not (block.octets[at] == ord(" ")).any():
            break
        at = at + bytes_equal(block.words[at], ord(" "))
    return at
