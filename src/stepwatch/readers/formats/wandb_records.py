"""W&B's own file of a run, run-….wandb: LevelDB's framing and the few fields of its messages, decoded by hand.

After the mark of 7 bytes, blocks of 32 KiB contain pieces: a checksum (4 bytes), the length (2), and whether it is a
whole record or its first, middle or last piece (1). No piece crosses the end of a block, so that reading can restart at
the next one after damage. Fields have their numbers in wandb_internal.proto.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from sys import intern

from stepwatch.readers.formats.event_files import fields

_BLOCK_BYTES = 1 << 15
_HEADER = struct.Struct("<IHB")  # of a piece: checksum, size, kind
_KINDS = [zlib.crc32(bytes((kind,))) for kind in range(256)]  # the checksum of a piece begins with its kind
_PLAIN_ITEM = re.compile(
    rb"\n.([\n\x12].[^\x82]*)\x82\x01.(-?(?:0|[1-9]\d{0,15})(?:\.\d+)?(?:[eE][-+]?\d{1,2})?)", re.DOTALL
)
"""A short key and a number in JSON. The lengths in between are redundant: they do not change where each byte is."""


class _Piece(IntEnum):
    """Which part of its record a piece is."""

    WHOLE = 1
    FIRST = 2
    LAST = 4


class _Field(IntEnum):
    """The fields of a record, as wandb_internal.proto numbers them."""

    HISTORY = 2
    OUTPUT = 4
    CONFIG = 5
    RAW_OUTPUT = 13
    RUN = 17
    EXIT = 18
    ENVIRONMENT = 26


@dataclass(slots=True)
class Recorded:
    """What a run logged, up to the end of the file."""

    history: list[dict[str, object]] = field(default_factory=list)
    config: dict[str, object] = field(default_factory=dict)
    console: list[bytes] = field(default_factory=list)
    started_s: float | None = None
    exit_code: int | None = None
    cards: list[str] = field(default_factory=list)
    damaged: int = 0
    """How often something was lost, including at the end of a file that was cut off."""


def decode(data: bytes) -> Recorded:
    """All whole records of a file; never raises."""
    decoder = Decoder()
    decoder.feed(data)
    decoder.found.damaged += decoder.is_cut
    return decoder.found


def console(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """What the program printed, from a file in pieces of any size."""
    decoder = Decoder((_Field.OUTPUT, _Field.RAW_OUTPUT))
    for block in blocks:
        decoder.feed(block)
        yield b"".join(decoder.found.console)
        decoder.found.console.clear()


class Decoder:
    """Decodes a file, in pieces of any size, into the contents of its records: all, or only some kinds."""

    def __init__(self, wanted: Collection[_Field] = tuple(_Field)) -> None:
        self.found = Recorded()
        self._wanted = wanted
        self._place = 0  # position in the file of what is held
        self._held = b""
        self._begin = len(b":W&B") + 3  # where reading continues: at first after the mark and its version
        self._parts: list[bytes] = []
        self._opened = False

    @property
    def is_cut(self) -> bool:
        """Whether the data so far ends within a record."""
        return self._opened or len(self._held) > 0

    def feed(self, data: bytes) -> None:
        for message in self._messages(self._held + data):
            try:
                for number, size, place in fields(message, 0, len(message)):
                    if number in self._wanted:
                        _read(number, message[place : place + size], size, self.found)
            except (ValueError, IndexError, struct.error, RecursionError):
                self.found.damaged += 1

    def _messages(self, data: bytes) -> Iterator[bytes]:
        begin = self._begin
        while begin + _HEADER.size <= len(data):
            left = _BLOCK_BYTES - (self._place + begin) % _BLOCK_BYTES
            if left < _HEADER.size:
                begin += left
                continue
            checksum, size, kind = _HEADER.unpack_from(data, begin)
            end = begin + _HEADER.size + size
            if checksum == size == kind == 0:  # the unused rest of a block
                begin += left
                continue
            if end > len(data) and size <= left - _HEADER.size:  # cut off, or not yet written
                break
            piece = data[begin + _HEADER.size : end]
            if size > left - _HEADER.size or zlib.crc32(piece, _KINDS[kind]) != checksum:
                self.found.damaged += 1
                begin, self._opened = begin + left, False
                continue
            if kind in (_Piece.WHOLE, _Piece.FIRST):
                self._parts, self._opened = [], True
            self._parts.append(piece)
            if kind in (_Piece.WHOLE, _Piece.LAST) and self._opened:
                yield b"".join(self._parts)
                self._opened = False
            begin = end
        done = min(begin, len(data))
        self._place, self._held, self._begin = self._place + done, data[done:], begin - done


def _read(number: int, part: bytes, value: int, found: Recorded) -> None:
    if number == _Field.HISTORY:
        found.history.append(_plain_items(part) or _items(part, 1))
    elif number == _Field.CONFIG:
        found.config |= _items(part, 1)
    elif number in (_Field.OUTPUT, _Field.RAW_OUTPUT):
        found.console += [text.decode("utf-8", "replace").encode() for text in _parts(part, 3)]
    elif number == _Field.RUN:
        found.started_s = _time(part, 17)
        for config in _parts(part, 4):
            found.config |= _items(config, 1)
    elif number == _Field.EXIT:
        found.exit_code = next((code for field, code, _ in fields(part, 0, len(part)) if field == 1), 0)
    elif number == _Field.ENVIRONMENT:
        kinds = [text.decode("utf-8", "replace") for text in _parts(part, 18)]
        named = [name.decode("utf-8", "replace") for card in _parts(part, 24) for name in _parts(card, 1)]
        count = next((count for field, count, _ in fields(part, 0, len(part)) if field == 19), 1)
        found.cards = named or kinds[:1] * min(count, 1024) or found.cards


def _parts(message: bytes, wanted: int) -> list[bytes]:
    return [message[at : at + size] for number, size, at in fields(message, 0, len(message)) if number == wanted]


def _time(message: bytes, wanted: int) -> float | None:
    for stamp in _parts(message, wanted):
        parts = {number: value for number, value, _ in fields(stamp, 0, len(stamp))}
        return parts.get(1, 0) + parts.get(2, 0) / 1e9
    return None


@lru_cache(1 << 12)  # all rows have the same keys
def _key(part: bytes) -> str:
    """The key of an item, from the field that contains it; empty if the bytes are not such a field."""
    return intern(part[2:].decode("utf-8", "replace")) if part[1] == len(part) - 2 < 0x80 else ""


def _plain_items(message: bytes) -> dict[str, object]:
    """The items of a message that has only short keys and numbers, as almost all rows do; else empty."""
    found = _PLAIN_ITEM.findall(message)
    items: dict[str, object] = {_key(key): float(number) for key, number in found}
    size = sum([5 + len(key) + len(number) for key, number in found])
    return items if size == len(message) and "" not in items else {}


def _items(message: bytes, wanted: int) -> dict[str, object]:
    """Values by key; nested keys are joined with points. Newer versions have fields for plain values besides JSON."""
    found: dict[str, object] = {}
    for item in _parts(message, wanted):
        key = ""
        nested: list[str] = []
        value: object = None
        for number, size, at in fields(item, 0, len(item)):
            text = item[at : at + size]
            if number == 1:
                key = text.decode("utf-8", "replace")
            elif number == 2:
                nested.append(text.decode("utf-8", "replace"))
            elif number == 4:
                value = bool(size)
            elif number == 5:  # zigzag
                value = size >> 1 if size % 2 == 0 else -(size >> 1) - 1
            elif number == 6:
                value = struct.unpack("<d", text)[0]
            elif number == 7:
                value = text.decode("utf-8", "replace")
            elif number in (8, 16):
                value = json.loads(text)
        found[intern(key or ".".join(nested))] = value  # all rows have the same keys
    return found
