"""Decompresses files of gzip, xz, bzip2 and zstd piece by piece."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import IO, Any

from stepwatch.errors import UnreadableInput
from stepwatch.messages import Message
from stepwatch.sources.contents import MAGIC_BYTES, READ_BYTES, kind_of


def parts(packing: str, head: bytes, stream: IO[bytes]) -> Iterator[bytes]:
    """The contents of all members, in pieces of bounded size; a truncated or damaged file is read up to that point."""
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
        if kind_of(data) != packing:
            return
        machine, damage = _machine_for(packing)


def _machine_for(packing: str) -> tuple[Any, type[Exception]]:
    """A decompressor for one member, with the interface of lzma and bz2, and what it raises if the data is damaged.

    Python may have been built without lzma or bz2, and has its own zstd from 3.14 on.
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


class _Gzip:
    """zlib's decompressor with the interface of those in lzma and bz2, which keep input not yet decompressed."""

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
            return found  # the next call raises
        self._more = len(found) >= most
        return found


def _before_the_damage(machine: zlib._Decompress, data: bytes, most: int) -> bytes:
    """Decompresses byte by byte, so that only what follows the first wrong byte is lost."""
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
    """The decompressor of the package zstandard. It always consumes its whole input, so it gets little at a time."""

    _FED_BYTES = 1 << 9  # four bytes may expand to a block of 128 KiB, so these to 16 MiB

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
