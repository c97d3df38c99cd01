"""W&B's own file of a run, run-….wandb: LevelDB's framing and the few fields of its messages, read by hand.

Behind the mark of 7 bytes, blocks of 32 KiB hold pieces: a checksum (4 bytes), the length (2), and whether it is a
whole record or its first, middle or last piece (1). No piece goes over the end of a block, so that reading can begin
again at the next one where there is damage. Fields by their number in wandb_internal.proto.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from sys import intern

from stepwatch.readers.formats.event_files import fields

_BLOCK_BYTES = 1 << 15
_HEADER = struct.Struct("<IHB")  # of a piece: checksum, size, kind


class _Piece(IntEnum):
    """What a piece is of its record."""

    WHOLE = 1
    FIRST = 2
    LAST = 4


class _Field(IntEnum):
    """Of a record, as wandb_internal.proto numbers them."""

    HISTORY = 2
    OUTPUT = 4
    CONFIG = 5
    STATS = 7
    RAW_OUTPUT = 13
    RUN = 17
    EXIT = 18
    ENVIRONMENT = 26


@dataclass(slots=True)
class Recorded:
    """What a run logged, up to where its file ends."""

    history: list[dict[str, object]] = field(default_factory=list)
    stats: list[tuple[float, dict[str, object]]] = field(default_factory=list)
    """What the machine did, with the time in seconds."""
    config: dict[str, object] = field(default_factory=dict)
    console: list[str] = field(default_factory=list)
    started_s: float | None = None
    exit_code: int | None = None
    cards: list[str] = field(default_factory=list)
    damaged: int = 0
    """How often something was lost: at the end of a file that was cut, too."""


@lru_cache(maxsize=1)  # a file is asked for its steps, its epochs and its console in turn
def decode(data: bytes) -> Recorded:
    """All whole records of a file; never raises."""
    found = Recorded()
    for message in _messages(data, found):
        try:
            for number, size, place in fields(message, 0, len(message)):
                _read(number, message[place : place + size], size, found)
        except (ValueError, IndexError, struct.error, RecursionError):
            found.damaged += 1
    return found


def _messages(data: bytes, found: Recorded) -> Iterator[bytes]:
    begin, parts, opened = len(b":W&B") + 3, [b""], False  # behind the mark and its version
    while begin + _HEADER.size <= len(data):
        left = _BLOCK_BYTES - begin % _BLOCK_BYTES
        if left < _HEADER.size:
            begin += left
            continue
        checksum, size, kind = _HEADER.unpack_from(data, begin)
        end = begin + _HEADER.size + size
        if checksum == size == kind == 0:  # what is left of a block
            begin += left
            continue
        piece = data[begin + _HEADER.size : end]
        if end > len(data) and size <= left - _HEADER.size:  # cut, or being written
            found.damaged += 1
            return
        if size > left - _HEADER.size or zlib.crc32(piece, zlib.crc32(bytes((kind,)))) != checksum:
            found.damaged += 1
            begin, opened = begin + left, False
            continue
        if kind in (_Piece.WHOLE, _Piece.FIRST):
            parts, opened = [], True
        parts.append(piece)
        if kind in (_Piece.WHOLE, _Piece.LAST) and opened:
            yield b"".join(parts)
            opened = False
        begin = end
    found.damaged += opened or 0 < len(data) - begin < _HEADER.size


def _read(number: int, part: bytes, value: int, found: Recorded) -> None:
    if number == _Field.HISTORY:
        found.history.append(_items(part, 1))
    elif number == _Field.CONFIG:
        found.config |= _items(part, 1)
    elif number == _Field.STATS:
        found.stats.append((_time(part, 2) or 0.0, _items(part, 3)))
    elif number in (_Field.OUTPUT, _Field.RAW_OUTPUT):
        found.console += [text.decode("utf-8", "replace") for text in _parts(part, 3)]
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


def _items(message: bytes, wanted: int) -> dict[str, object]:
    """Values by key; a nested key as one, with points. Newer versions have fields for plain values beside JSON."""
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
        found[intern(key or ".".join(nested))] = value  # all rows have the same ones
    return found
