"""What files hold, plain or packed (gzip, xz, bzip2 and zstd, known by how they begin)."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from importlib import import_module
from itertools import chain
from types import ModuleType
from typing import Any, BinaryIO

from stepwatch.errors import TooLarge, UnreadableInput
from stepwatch.messages import Message
from stepwatch.sources.plain_text import normalise

# --- compressed files, expanded piece by piece ------------------------------------------------------------------


MAGIC_BYTES = 10
SUFFIXES = (".gz", ".xz", ".bz2", ".zst")
READ_BYTES = 1 << 20


_BZIP2 = tuple(b"BZh%d%s" % (level, block) for level in range(1, 10) for block in (b"1AY&SY", b"\x17rE8P\x90"))
_BEGINNINGS = {"gzip": (b"\x1f\x8b",), "xz": (b"\xfd7zXZ\x00",), "bzip2": _BZIP2, "zstd": (b"\x28\xb5\x2f\xfd",)}


def packing_of(head: bytes) -> str | None:
    """How a file is compressed, by its first bytes; None where it is not."""
    return next((packing for packing, beginnings in _BEGINNINGS.items() if head.startswith(beginnings)), None)


def parts(packing: str, head: bytes, stream: BinaryIO) -> Iterator[bytes]:
    """What the members hold, in pieces of bounded size; of a file that is cut or damaged what comes before."""
    machine, damage = _machine_for(packing)
    data = head + stream.read(READ_BYTES)
    while data or not machine.needs_input:
        try:
            yield machine.decompress(data, 1 << 24)  # 16 MB at a time: a bomb must not fill the memory
        except damage:
            return
        if not machine.eof:
            data = stream.read(READ_BYTES) if machine.needs_input else b""
            continue
        data = machine.unused_data  # rotated logs are often several members one after the other
        while len(data) < MAGIC_BYTES and (more := stream.read(READ_BYTES)):
            data += more
        if packing_of(data) != packing:
            return
        machine, damage = _machine_for(packing)


def beginning(packing: str, data: bytes, size: int) -> bytes:
    """The first bytes of what a file holds, as far as its own first bytes show."""
    found = bytearray()
    for part in parts(packing, data, io.BytesIO()):
        found += part
        if len(found) >= size:
            break
    return bytes(found[:size])


def _machine_for(packing: str) -> tuple[Any, type[Exception]]:
    """What expands one member, in the manner of lzma and bz2, and what it raises where the data is damaged.

    A Python may have been built without lzma or bz2, and has its own zstd from 3.14 on.
    """
    try:
        if packing == "gzip":
            return _Gzip(), zlib.error
        if packing == "xz":
            lzma = import_module("lzma")
            return lzma.LZMADecompressor(lzma.FORMAT_XZ), lzma.LZMAError
        if packing == "bzip2":
            return import_module("bz2").BZ2Decompressor(), OSError
        try:
            own = import_module("compression.zstd")
        except ImportError:
            package = import_module("zstandard")
            return _Zstandard(package), package.ZstdError
        return own.ZstdDecompressor(), own.ZstdError
    except ImportError as error:
        raise UnreadableInput(
            Message("the log is compressed with {name:word}, which this Python cannot expand", {"name": packing}),
            Message("expand it yourself and give the plain log, or for zstd install the package zstandard"),
        ) from error


# --- the machines -----------------------------------------------------------------------------------------------


class _Gzip:
    """zlib's machine in the manner of those of lzma and bz2, which keep what they have not expanded yet."""

    def __init__(self) -> None:
        self._machine = zlib.decompressobj(wbits=31)
        self._more = False

    @property
    def eof(self) -> bool:
        return self._machine.eof

    @property
    def unused_data(self) -> bytes:
        return self._machine.unused_data

    @property
    def needs_input(self) -> bool:
        return not (self._more or self._machine.unconsumed_tail)

    def decompress(self, data: bytes, most: int) -> bytes:
        data = self._machine.unconsumed_tail + data
        before = self._machine.copy()
        try:
            found = self._machine.decompress(data, most)
        except zlib.error:
            found = _before_the_damage(before, data, most)
            if not found:
                raise
            return found  # asked again, the machine raises
        self._more = len(found) >= most
        return found


def _before_the_damage(machine: zlib._Decompress, data: bytes, most: int) -> bytes:
    """Byte by byte, so that only what follows the first wrong one is lost."""
    found = bytearray()
    for place in range(len(data)):
        try:
            found += machine.decompress(data[place : place + 1])
        except zlib.error:
            break
        if len(found) >= most:
            break
    return bytes(found)


class _Zstandard:
    """That of the package zstandard. It does not stop within what it was given, so it is given little at a time."""

    _FED_BYTES = 1 << 9  # four bytes may stand for a block of 128 KiB: this for 16 MiB

    def __init__(self, module: ModuleType) -> None:
        self._machine = module.ZstdDecompressor().decompressobj()
        self._waiting = b""

    @property
    def eof(self) -> bool:
        return bool(self._machine.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._machine.unused_data) + self._waiting

    @property
    def needs_input(self) -> bool:
        return not self._waiting

    def decompress(self, data: bytes, most: int) -> bytes:
        waiting = self._waiting + data
        found, place = bytearray(), 0
        while place < len(waiting) and not self.eof and len(found) < most:
            found += self._machine.decompress(waiting[place : place + self._FED_BYTES])
            place += self._FED_BYTES
        self._waiting = waiting[place:]
        return bytes(found)


# --- as a whole up to a limit, or in samples --------------------------------------------------------------------


def read_bytes(stream: BinaryIO, limit: int) -> bytes:
    """All that a file, a pipe or a device holds, expanded."""
    return b"".join(read_parts(stream, limit))


def read_parts(stream: BinaryIO, limit: int) -> Iterator[bytes]:
    """The same piece by piece. Raises TooLarge where it is more than the limit."""
    head = stream.read(MAGIC_BYTES)
    packing = packing_of(head)
    size = stream.seek(0, io.SEEK_END) if packing is None and stream.seekable() else 0
    if size > limit:
        raise too_large(limit)
    if size > 0:
        stream.seek(0)
        while size > 0 and (part := stream.read(min(size, READ_BYTES))):
            yield part
            size -= len(part)
        return
    # A pipe, a device or a packed file: its size is unknown.
    pieces = chain((head,), iter(lambda: stream.read(READ_BYTES), b""))
    if packing is not None:
        # A file cut short gives what it holds: a running job's log is often such.
        expanding = parts(packing, head, stream)
        first = next(expanding, None)
        if first is None:
            raise UnreadableInput(
                Message("the file looks like {name:word} but cannot be expanded", {"name": packing}),
                Message("expand it yourself and give the plain log"),
            )
        pieces = chain((first,), expanding)
    for part in pieces:
        size += len(part)
        if size > limit:
            raise too_large(limit)
        yield part


def head_of(path: str, size: int) -> bytes:
    """The first bytes of a file as lines, expanded where it is packed. Raises OSError."""
    with open(path, "rb") as stream:
        data = stream.read(size)
    packing = packing_of(data)
    return normalise(data if packing is None else beginning(packing, data, 8 * size))


def samples_of(path: str, size: int) -> Iterator[bytes]:
    """The beginning of a file as lines, of that size, then a little of its end and places between. Raises OSError."""
    with open(path, "rb") as stream:
        data = stream.read(size)
        packing = packing_of(data)
        if packing is not None:  # its end cannot be had without all that comes before
            data = beginning(packing, data, 8 * size)
        yield normalise(data)
        if len(data) < size:
            return
        whole: BinaryIO = stream
        if packing is not None:
            stream.seek(0)
            whole = io.BytesIO(beginning(packing, stream.read(8 * size), 64 * size))
        length = whole.seek(0, io.SEEK_END)
        places, sample_bytes = 8, 1 << 15
        for number in range(places, 0, -1):
            whole.seek(max((length - sample_bytes) * number // places, 0) // 4 * 4)  # of UTF-16 no half letter
            yield normalise(whole.read(sample_bytes))


def too_large(limit: int) -> TooLarge:
    return TooLarge(
        Message("the log is larger than {limit:size}", {"limit": limit}),
        Message("cut out the part you want explained, or raise the limit with --max-size"),
    )
