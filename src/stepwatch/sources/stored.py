"""Lines that come piece by piece, and texts that are too long for memory: they are read block by block."""

from __future__ import annotations

import codecs
import io
import weakref
from bisect import bisect_right
from collections.abc import Iterator
from itertools import chain
from operator import itemgetter
from typing import IO, NamedTuple

from stepwatch.sources.contents import BLOCK_BYTES, encoding_of, kind_of, lines_in, read_parts, to_lines

LONGEST_HALF_LINE = 1 << 16
_LAST_LINES = 1 << 14
"""Bytes at the end of a block that are searched for the end of a line."""
_FEW = 1 << 18
"""Bytes that are read for a single line; line numbers are remembered at this distance."""
LONGEST_LINE = 1 << 24
"""A longer line comes in pieces: no real line of a log is that long."""


def end_of_lines(data: bytes) -> int:
    """The place after the last end of a line; a `\\r` at the very end may be half of `\\r\\n`."""
    return max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1


class LineSplitter:
    """Turns bytes in any pieces into whole plain lines; of a line that is too long, both ends are kept."""

    def __init__(self, longest: int = LONGEST_HALF_LINE) -> None:
        self._longest = longest
        self._begun = False
        self._held = b""
        self._decoder: codecs.IncrementalDecoder | None = None

    def feed(self, data: bytes) -> bytes:
        if not self._begun:
            data = self._held + data
            if len(data) < 64 and b"\n" not in data:  # too little to detect the encoding
                self._held = data
                return b""
            encoding = encoding_of(data)
            self._decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding is not None else None
            self._begun, self._held = True, b""
        if self._decoder is not None:
            data = self._decoder.decode(data).encode("utf-8", "replace")
        cut = end_of_lines(data)
        whole, rest = (self._held + data[:cut], data[cut:]) if cut else (b"", self._held + data)
        half = self._longest // 2
        # Logs do not have endless lines; both ends are enough to see whether an iteration is in it.
        self._held = rest if len(rest) <= self._longest else rest[:half] + rest[-half:]
        return to_lines(whole)

    def rest(self) -> bytes:
        """Returns what was held back; the next bytes start a new text."""
        rest, encoding = self._held, None if self._begun else encoding_of(self._held)
        if encoding is not None:
            rest = rest.decode(encoding, "replace").encode("utf-8", "replace")
        self._begun, self._held, self._decoder = False, b"", None
        return to_lines(rest)

    def end(self) -> bytes:
        """The same, but as a whole line."""
        rest = self.rest()
        return rest if not rest or rest.endswith(b"\n") else rest + b"\n"


class Stretch(NamedTuple):
    """Whole lines of a stored text, with the numbers of the first line and of the one after the last."""

    first: int
    text: bytes
    end: int


class StoredText:
    """A file that is kept open, as of the time it was opened: what is added later is not read.

    It is read as plain lines; a file of records, which has no lines, as plain bytes.
    """

    def __init__(self, stream: IO[bytes], limit: int, *, has_lines: bool = True) -> None:
        self._stream, self._limit, self._has_lines = stream, limit, has_lines
        self._size = stream.seek(0, io.SEEK_END)
        head = self.read(0, 1 << 12)
        self._is_plain = kind_of(head) is None and encoding_of(head) is None
        self._begins = [(0, 0)]  # lines and their places, as far as they were read, at which reading can start
        self._last: Stretch | None = None
        self._going: tuple[int, Iterator[Stretch]] | None = None
        weakref.finalize(self, stream.close)

    def keeps(self, stream: IO[bytes]) -> bool:
        """Whether its text is in this file: the text of a document is in another."""
        return stream is self._stream

    def blocks(self, line: int = 0) -> Iterator[Stretch]:
        """All blocks, starting with the one that contains this line."""
        if self._last is not None and self._last.first <= line:
            yield self._last
            return
        found: Stretch | None = None
        for found in self._plain_blocks(line) if self._is_plain else self._other_blocks():
            if found.end > line:
                yield found
        self._last = found

    def block_with(self, line: int) -> Stretch:
        """A few lines that include this one; if asked in rising order, a compressed file is read only once."""
        if self._is_plain:
            self._going = 0, self._plain_blocks(line, _FEW)
        elif self._going is None or line < self._going[0]:
            self._going = 0, self.blocks(line)
        for found in self._going[1]:
            self._going = found.first, self._going[1]
            if found.end > line:
                return found
        return Stretch(line, b"", line)

    def read(self, place: int, size: int) -> bytes:
        """Bytes of the file; seeks first, since several iterators read from it."""
        self._stream.seek(place)
        return self._stream.read(max(min(size, self._size - place), 0))

    def _plain_blocks(self, line: int, size: int | None = None) -> Iterator[Stretch]:
        """The blocks of a plain UTF-8 file, where reading can start anywhere."""
        number, place = self._begins[bisect_right(self._begins, line, key=itemgetter(0)) - 1]
        size = size or BLOCK_BYTES
        while data := self.read(place, self._size_of_block(place, size)):
            while not end_of_lines(data) and len(data) < min(LONGEST_LINE, self._size - place):
                data += self.read(place + len(data), BLOCK_BYTES)
            if place + len(data) < self._size:
                data = data[: end_of_lines(data) or len(data)]
            block = to_lines(data)
            begin, end = 0, number
            while begin < len(block):
                if place + begin > self._begins[-1][1] and (begin == 0 or block is data):
                    self._begins.append((end, place + begin))
                stop = block.find(b"\n", begin + _FEW) + 1 or len(block)
                begin, end = stop, end + lines_in(memoryview(block)[begin:stop])
            yield Stretch(number, block, end)
            number, place = end, place + len(data)

    def _size_of_block(self, place: int, size: int) -> int:
        """Up to the end of a line near this size, if there is one: then the block need not be cut, which copies it."""
        begin = max(size - _LAST_LINES, 0)
        end = end_of_lines(self.read(place + begin, size - begin)) if place + size < self._size else 0
        return begin + end if end else size

    def _other_blocks(self) -> Iterator[Stretch]:
        """The blocks of a file that is compressed, in another encoding, or without lines: always from its beginning."""
        lines, number = LineSplitter(LONGEST_LINE), 0
        parts = read_parts(io.BufferedReader(_RereadStream(self)), self._limit)
        texts = map(lines.feed, parts) if self._has_lines else parts
        for block in chain(texts, (lines.rest() for _ in range(1))):
            if block:
                found = Stretch(number, block, number + lines_in(block))
                yield found
                number = found.end


class _RereadStream(io.RawIOBase):
    """The file as a separate stream, from its beginning."""

    def __init__(self, stored: StoredText) -> None:
        self._stored, self._place = stored, 0

    def readable(self) -> bool:
        return True

    def readinto(self, target: bytearray | memoryview) -> int:  # type: ignore[override]
        data = self._stored.read(self._place, len(target))
        target[: len(data)] = data
        self._place += len(data)
        return len(data)
