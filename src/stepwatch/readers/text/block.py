"""Whole lines as one array of bytes: what every vectorised step reads from."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_DIGITS = b"0123456789"
_PADDING = 64  # bytes behind the block, so that no load of eight bytes leaves it


class Block(NamedTuple):
    """Lines as bytes, with every line's start and end and a view of eight bytes at any offset."""

    text: bytes
    words: Words
    octets: Bytes
    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, text: bytes) -> Block:
        padded = text + bytes(_PADDING)
        octets = np.frombuffer(padded, np.uint8)
        newlines = np.flatnonzero(octets[: len(text)] == ord("\n"))
        starts = np.concatenate(([0], newlines + 1))
        ends = np.concatenate((newlines, [len(text)]))
        if starts[-1] == len(text):
            starts, ends = starts[:-1], ends[:-1]
        words = np.ndarray((len(padded) - 7,), np.dtype("<u8"), padded, 0, (1,))
        return cls(text, words, octets, starts, ends)

    @property
    def filled(self) -> Ints:
        """The lines that are not empty."""
        return np.flatnonzero(self.ends > self.starts)

    def line(self, index: int) -> bytes:
        return self.text[self.starts[index] : self.ends[index]]

    def letters(self, lines: Ints) -> bytes:
        """These lines as a text of their own; lines that follow on each other are copied together."""
        if len(lines) == len(self.starts):
            return self.text
        if not len(lines):
            return b""
        edges = np.flatnonzero(np.diff(lines) > 1)
        begins = self.starts[lines[np.concatenate(([0], edges + 1))]].tolist()
        ends = self.ends[lines[np.append(edges, len(lines) - 1)]].tolist()
        return b"\n".join([self.text[begin:end] for begin, end in zip(begins, ends, strict=True)])

    def without(self, lines: Ints, others: Ints) -> Ints:
        """The lines that are not among the others."""
        if not len(others):
            return lines
        left = np.ones(len(self.starts), bool)
        left[others] = False
        return lines[left[lines]]

    def holding(self, lines: Ints, literals: Iterable[bytes]) -> Ints:
        """Those of the lines that hold one of the literals; where these have digits, perhaps some more.

        Most lines of a log differ in their digits alone: the literals are searched for in one of each kind.
        """
        kinds: dict[bytes, int] = {}
        without_digits = self.letters(lines).translate(None, _DIGITS).split(b"\n")[: len(lines)]
        kind = np.array([kinds.setdefault(line, len(kinds)) for line in without_digits], np.int64)
        letters = b"\n".join(kinds)
        places = [
            found.start()
            for literal in {literal.translate(None, _DIGITS) for literal in literals}
            if literal in letters  # faster than a search by pattern, and most are not there
            for found in re.finditer(re.escape(literal), letters)
        ]
        held = np.zeros(len(kinds) + 1, bool)
        held[np.searchsorted(np.cumsum([len(line) + 1 for line in kinds]), places, side="right")] = True
        return lines[held[kind]]
