"""Many words searched for at once: where in a text one of them begins.

A pattern of many alternatives tries them at every byte. Here the first four bytes of all words are looked up by tables
over the whole text, and only where all four fit is a pattern asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

import numpy as np

from stepwatch.readers.columns import Block, Ints

_LOOKED_AT = 4
_GROUPS = 8  # bits of a byte: words of one group share a bit
_SMALL = 2000  # bytes: below, a pattern is as fast


class Words:
    """A set of words, none with a line end in it."""

    def __init__(self, words: Iterable[bytes]) -> None:
        self.words = tuple(sorted(set(words)))

    @cached_property
    def pattern(self) -> re.Pattern[bytes]:
        return re.compile(b"|".join(map(re.escape, sorted(self.words, key=len, reverse=True))))

    @cached_property
    def _tables(self) -> list[bytes]:
        """For each place in a word: by byte, the groups whose words may have it there."""
        tables = np.zeros((_LOOKED_AT, 256), np.uint8)
        for i, word in enumerate(self.words):
            bit = 1 << (i * _GROUPS // len(self.words))
            for place in range(_LOOKED_AT):
                tables[place, word[place] if place < len(word) else slice(None)] |= bit
        return [table.tobytes() for table in tables]

    def found(self, text: bytes) -> list[re.Match[bytes]]:
        """A match for each place at which one of them begins."""
        if len(text) < _SMALL:
            return list(self.pattern.finditer(text))
        padded = text + bytes(_LOOKED_AT)
        fits = np.full(len(text), 0xFF, np.uint8)
        for place, table in enumerate(self._tables):
            fits &= np.frombuffer(padded.translate(table), np.uint8)[place : place + len(text)]
        matches = (self.pattern.match(text, begin) for begin in np.flatnonzero(fits != 0).tolist())
        return [match for match in matches if match is not None]

    def among(self, text: bytes, block: Block, lines: Ints) -> list[int]:
        """Those of the lines of a block that hold one of them."""
        if not len(lines):
            return []
        starts = np.cumsum(block.ends[lines] - block.starts[lines] + 1)
        places = [match.start() for match in self.found(block.letters(text, lines))]
        rows = np.searchsorted(starts, places, side="right")
        found: list[int] = lines[rows[np.diff(rows, prepend=-1) > 0]].tolist()
        return found
