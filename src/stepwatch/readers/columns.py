"""Many lines at once: a line template matched by numpy over a block of bytes.

A log of two million iterations is two million lines of one shape. Matching them one by one costs an
object per line; here every step of the match (a literal, the digits of a number) is done for all
lines of a block together, eight bytes at a time. Lines that do not fit are left to the reader's patterns.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

PADDING = 16  # bytes after the block, so that a load of eight bytes never leaves it

_ZEROS = np.uint64(0x3030303030303030)
_PAST_NINE = np.uint64(0x7676767676767676)
_HIGH_BITS = np.uint64(0x8080808080808080)
_TENS = 10.0 ** np.arange(9)


class Block(NamedTuple):
    """Whole lines as bytes, with every line's start and end and a view of eight bytes at any offset."""

    words: Words
    octets: Bytes
    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, text: bytes) -> Block:
        padded = np.zeros(len(text) + PADDING, np.uint8)
        padded[: len(text)] = np.frombuffer(text, np.uint8)
        newlines = np.flatnonzero(padded[: len(text)] == 10)
        starts = np.concatenate(([0], newlines + 1))
        ends = np.concatenate((newlines, [len(text)]))
        if starts[-1] == len(text):
            starts, ends = starts[:-1], ends[:-1]
        words = np.ndarray((len(padded) - 7,), np.dtype("<u8"), padded.data, 0, (1,))
        return cls(words, padded, starts, ends)


class Template:
    """A line shape such as `iter {number}: loss {loss}, time {time}ms`, matched on whole lines."""

    def __init__(self, shape: str) -> None:
        self.pieces: list[tuple[str, bytes]] = []  # (field name or "", literal)
        for literal, name in re.findall(r"([^{]*)(?:\{(\w+)\})?", shape):
            if literal:
                self.pieces.append(("", literal.encode()))
            if name:
                self.pieces.append((name, b""))

    def match(self, block: Block, lines: Ints) -> tuple[Ints, dict[str, Floats]]:
        """The lines (of those given) that fit, and the numbers in them by field name."""
        cursor = block.starts[lines]
        found: dict[str, Floats] = {}
        for name, literal in self.pieces:
            if literal:
                fits, cursor = _skip_literal(block, cursor, literal)
            else:
                fits, cursor, found[name] = _read_number(block, cursor)
            if not fits.all():
                lines, cursor = lines[fits], cursor[fits]
                found = {key: column[fits] for key, column in found.items()}
        fits = cursor == block.ends[lines]
        return lines[fits], {key: column[fits] for key, column in found.items()}


def _skip_literal(block: Block, cursor: Ints, literal: bytes) -> tuple[Mask, Ints]:
    fits = np.ones(len(cursor), bool)
    for begin in range(0, len(literal), 8):
        part = literal[begin : begin + 8]
        mask = np.uint64((1 << (8 * len(part))) - 1)
        fits &= (block.words[cursor + begin] & mask) == np.uint64(int.from_bytes(part, "little"))
        cursor = np.where(fits, cursor, 0)
    return fits, cursor + len(literal) * fits


def _read_number(block: Block, cursor: Ints) -> tuple[Mask, Ints, Floats]:
    """A decimal number of at most eight digits on either side of the point; anything else does not fit."""
    negative = block.octets[cursor] == ord("-")
    cursor = cursor + negative
    whole, count = _read_digits(block, cursor)
    fits = (count > 0) & (count < 8)
    cursor = cursor + count
    point = (block.octets[cursor] == ord(".")) & fits
    value = whole
    if point.any():
        cursor = cursor + point
        fraction, places = _read_digits(block, cursor)
        places = np.where(point, places, 0)
        fits &= (places < 8) & (point <= (places > 0))
        # One division of whole numbers, so that the result is the one nearest to the decimal, as float() gives it.
        value = (whole * _TENS[places] + np.where(point, fraction, 0.0)) / _TENS[places]
        cursor = cursor + places
    return fits, cursor, np.where(negative, -value, value)


def _read_digits(block: Block, cursor: Ints) -> tuple[Floats, Ints]:
    """The digits at the cursor as one number, and how many there are (8: at least eight)."""
    word = block.words[cursor] ^ _ZEROS
    past = ((word + _PAST_NINE) | word) & _HIGH_BITS  # the high bit of every byte that is no digit
    first = past & (~past + np.uint64(1))
    count = np.bitwise_count(first - np.uint64(1)) >> 3
    shift = (8 - count.astype(np.uint64)) << np.uint64(3)
    word = np.where(count > 0, word << (shift & np.uint64(63)), 0)
    word = (word * np.uint64(2561)) >> np.uint64(8)
    word = ((word & np.uint64(0x00FF00FF00FF00FF)) * np.uint64(6553601)) >> np.uint64(16)
    word = ((word & np.uint64(0x0000FFFF0000FFFF)) * np.uint64(42949672960001)) >> np.uint64(32)
    return word.astype(np.float64), count.astype(np.int64)
