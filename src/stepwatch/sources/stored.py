"""A text that is too long to be held: it stays in its file, and is read block by block whenever it is asked for."""

from __future__ import annotations

import io
import weakref
from bisect import bisect_right
from collections.abc import Iterator
from itertools import chain
from operator import itemgetter
from typing import IO, BinaryIO

from stepwatch.sources.contents import packing_of, read_parts
from stepwatch.sources.plain_text import Lines, encoding_of, end_of_lines, is_binary, is_document, normalise, to_lines

WHOLE_BYTES = 1 << 25
"""A text up to this is held as a whole: 32 MB."""
BLOCK_BYTES = 1 << 22
LONGEST_LINE = 1 << 24
"""A longer one comes in pieces: no log's own is."""


class Stored:
    """Plain lines of a file that is kept open, as it was when it was opened: what is added later is not read."""

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self._stream, self._limit = stream, limit
        self._size = stream.seek(0, io.SEEK_END)
        head = self.read(0, 1 << 12)
        self._is_plain = packing_of(head) is None and encoding_of(head) is None
        self._begins = [(0, 0)]  # line and place of the blocks that were read, where one can go back to them
        self._last: tuple[int, bytes] | None = None
        self._going: tuple[int, Iterator[tuple[int, bytes]]] | None = None
        weakref.finalize(self, stream.close)

    def blocks(self, line: int = 0) -> Iterator[tuple[int, bytes]]:
        """Whole lines, with the number of the first, from the block on that holds this line."""
        if self._last is not None and self._last[0] <= line:
            yield self._last
            return
        found: tuple[int, bytes] | None = None
        for found in self._plain_blocks(line) if self._is_plain else self._other_blocks():
            if found[0] + lines_in(found[1]) > line:
                yield found
        self._last = found

    def block_with(self, line: int) -> tuple[int, bytes]:
        """The block that holds this line, with the number of its first; asked in order, a packed file is read once."""
        if self._is_plain or self._going is None or line < self._going[0]:
            self._going = 0, self.blocks(line)
        for number, block in self._going[1]:
            self._going = number, self._going[1]
            if number + lines_in(block) > line:
                return number, block
        return line, b""

    def read(self, place: int, size: int) -> bytes:
        """Bytes of the file, whoever else reads it meanwhile."""
        self._stream.seek(place)
        return self._stream.read(max(min(size, self._size - place), 0))

    def _plain_blocks(self, line: int) -> Iterator[tuple[int, bytes]]:
        """Of a file whose bytes are those of its text, so that one can begin anywhere."""
        number, place = self._begins[bisect_right(self._begins, line, key=itemgetter(0)) - 1]
        while data := self.read(place, BLOCK_BYTES):
            while not end_of_lines(data) and len(data) < min(LONGEST_LINE, self._size - place):
                data += self.read(place + len(data), BLOCK_BYTES)
            if place + len(data) < self._size:
                data = data[: end_of_lines(data) or len(data)]
            if place > self._begins[-1][1]:
                self._begins.append((number, place))
            block = to_lines(data)
            yield number, block
            number, place = number + lines_in(block), place + len(data)

    def _other_blocks(self) -> Iterator[tuple[int, bytes]]:
        """Of one that is packed, or in another encoding: always from its beginning."""
        lines, number = Lines(LONGEST_LINE), 0
        texts = (lines.feed(data) for data in read_parts(io.BufferedReader(_Again(self)), self._limit))
        for block in chain(texts, (lines.rest() for _ in range(1))):
            if block:
                yield number, block
                number += lines_in(block)


class _Again(io.RawIOBase):
    """The file from its beginning."""

    def __init__(self, stored: Stored) -> None:
        self._stored, self._place = stored, 0

    def readable(self) -> bool:
        return True

    def readinto(self, target: bytearray | memoryview) -> int:  # type: ignore[override]
        data = self._stored.read(self._place, len(target))
        target[: len(data)] = data
        self._place += len(data)
        return len(data)


def content_of(stream: BinaryIO, limit: int) -> bytes | Stored:
    """What a file, a pipe or a device holds as plain lines: in memory, or where that is long as it is stored."""
    parts = read_parts(stream, limit)
    start, size = [], 0
    for part in parts:
        start.append(part)
        size += len(part)
        if size > WHOLE_BYTES:
            break
    head = b"".join(start)
    if size <= WHOLE_BYTES:
        return normalise(head)
    if is_binary(head) or is_document(head):  # these are read as a whole
        return normalise(b"".join((head, *parts)))
    if stream.seekable() and stream.seek(0, io.SEEK_END):
        return Stored(stream, limit)
    import tempfile  # few logs are long pipes

    kept = tempfile.TemporaryFile()  # noqa: SIM115 (Stored closes it)
    kept.writelines(chain((head,), parts))
    return Stored(kept, limit)


def lines_in(block: bytes) -> int:
    return block.count(b"\n") + (block != b"" and not block.endswith(b"\n"))
