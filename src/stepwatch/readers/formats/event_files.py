"""TensorBoard's event files as columns: TFRecord framing and the few fields of its messages, decoded by hand.

A record is its length (8 bytes), a checksum of that (4), the message, a checksum of the message (4). A message of one
scalar is: 09 time, 10 step, 2a summary { 0a value { 0a tag, 15 number } }. Nearly all messages are scalars, and numpy
decodes them together. A length with a wrong checksum is damage: reading continues at the next length with a right one.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from stepwatch.readers.formats.tracks import Track
from stepwatch.readers.text.block import Bytes, Floats, Ints

Hashes = npt.NDArray[np.uint64]

_HEADER_BYTES = 12
_BLOCK = 1 << 16  # places, or records, that are processed together
_LENGTH = struct.Struct("<Q").unpack_from
_WALL = struct.Struct("<d").unpack_from
_NUMBER = struct.Struct("<f").unpack_from
_TENSORS = tuple(
    np.uint64(int.from_bytes(b, "little"))
    for b in (b"\x42\x0a\x08\x01\x12\x00\x2a\x04", b"\x42\x0a\x08\x01\x12\x00\x22\x04")
)
_PRIME = np.uint64(1099511628211)


class Scalars(NamedTuple):
    """Numbers with their tag, step and time."""

    tags: list[str]
    tag: Ints
    step: Ints
    wall_s: Floats
    value: Floats

    def by_tag(self) -> Iterator[tuple[str, Track]]:
        """The numbers of each tag, in the order of the file."""
        if len(self.tags) == 1:
            yield self.tags[0], Track(self.step, self.wall_s, self.value)
            return
        order = np.argsort(self.tag, kind="stable")
        edges = np.searchsorted(self.tag[order], np.arange(len(self.tags) + 1)).tolist()
        for tag, edge in zip(self.tags, pairwise(edges), strict=True):
            rows = order[slice(*edge)]
            yield tag, Track(self.step[rows], self.wall_s[rows], self.value[rows])


class TextEvent(NamedTuple):
    """A message that is not a number: a text, hyperparameters, the start of a file (`tag` is empty)."""

    tag: str
    step: int
    wall_s: float
    content: bytes


# --- framing ----------------------------------------------------------------------------------------------------


_CRC = np.arange(256, dtype=np.uint32)
for _ in range(8):
    _CRC = np.where(_CRC & 1, (_CRC >> 1) ^ np.uint32(0x82F63B78), _CRC >> 1).astype(np.uint32)


def sound(octets: Bytes, places: Ints) -> npt.NDArray[np.bool_]:
    """Whether there is a length with the right checksum at each of these places."""
    crc = np.full(len(places), 0xFFFFFFFF, np.uint32)
    for k in range(8):
        crc = _CRC[(crc ^ octets[places + k]) & 0xFF] ^ (crc >> 8)
    crc = ~crc
    masked = ((crc >> 15) | (crc << 17)) + np.uint32(0xA282EAD8)
    stored = sum((octets[places + 8 + k].astype(np.uint32) << np.uint32(8 * k) for k in range(4)), np.uint32(0))
    return np.asarray(masked == stored)


def frames(data: bytes, octets: Bytes) -> tuple[list[int], int, int]:
    """Where whole records begin, where the first incomplete one does, and how often reading had to restart."""
    begins: list[int] = []
    place = damaged = 0
    while True:
        found: list[int] = []
        while len(found) < _BLOCK and place + _HEADER_BYTES <= len(data) - 4:
            end = place + _HEADER_BYTES + _LENGTH(data, place)[0] + 4  # with the checksum of the message
            if end > len(data):
                break
            found.append(place)
            place = end
        checked = sound(octets, np.array([*found, place] if place + _HEADER_BYTES <= len(data) else found, np.int64))
        if checked.all():
            begins += found
            if len(found) < _BLOCK:
                return begins, place, damaged
            continue
        good = int(np.argmin(checked))
        begins += found[:good]
        place = found[good] if good < len(found) else place
        # Find all lengths of a block at once, so that much damage takes no more work than little.
        end_of_all = len(data) - _HEADER_BYTES + 1
        block_end = min(place + _BLOCK, end_of_all)
        lengths = _sound_places(data, octets, place)
        while place < block_end:
            at = bisect_left(lengths, place)
            if at == len(lengths) or lengths[at] > place:
                damaged += 1
                if at == len(lengths):  # none in this block: search for the next block that has one
                    blocks = (_sound_places(data, octets, start) for start in range(block_end, end_of_all, _BLOCK))
                    lengths, at = next(filter(None, blocks), [end_of_all]), 0
                place = lengths[at]
            else:
                end = place + _HEADER_BYTES + _LENGTH(data, place)[0] + 4
                if end > len(data):
                    break
                begins.append(place)
                place = end


def _sound_places(data: bytes, octets: Bytes, begin: int) -> list[int]:
    """The places of one block with a length that has the right checksum."""
    places = np.arange(begin, min(begin + _BLOCK, len(data) - _HEADER_BYTES + 1))
    return cast("list[int]", places[sound(octets, places)].tolist())


# --- messages ---------------------------------------------------------------------------------------------------


def decode(data: bytes) -> tuple[Scalars, list[TextEvent], int, int]:
    """All whole records: numbers and texts, how many bytes they took, and how often there was damage."""
    octets = np.zeros(len(data) + 32, np.uint8)  # so that reading a few bytes ahead never passes the end
    octets[: len(data)] = np.frombuffer(data, np.uint8)
    begins, end, damaged = frames(data, octets)
    places = np.array(begins, np.int64)
    scalars, left = _usual(octets, places)
    more, texts = _others(data, places[left].tolist())
    return _joined([scalars, more]), texts, end, damaged


def _usual(octets: Bytes, begins: Ints) -> tuple[Scalars, npt.NDArray[np.bool_]]:
    """The records of one plain number, and which records are something else."""
    words = np.ndarray((len(octets) - 7,), np.dtype("<u8"), octets.data, 0, (1,))
    numbers = np.ndarray((len(octets) - 3,), np.dtype("<f4"), octets.data, 0, (1,))
    rows = np.arange(len(begins))
    ends = begins + _HEADER_BYTES + words[begins].astype(np.int64) if len(begins) else begins
    cursor = begins + _HEADER_BYTES
    wall = words[cursor + 1].view(np.float64) if len(begins) else np.empty(0)
    fits = (octets[cursor] == 0x09) & (ends - cursor > 20)
    cursor = cursor + 9
    stepped = octets[cursor] == 0x10
    step, after = _varints(octets, cursor + 1)
    step, cursor = np.where(stepped, step, 0), np.where(stepped, after, cursor)
    for mark in (0x2A, 0x0A):  # a summary, then its only value; each reaches to the end of the record
        fits &= octets[np.minimum(cursor, len(octets) - 1)] == mark
        length, cursor = _varints(octets, np.where(fits, cursor + 1, 0))
        fits &= cursor + length == ends
        cursor = np.where(fits, cursor, 0)
    fits &= octets[cursor] == 0x0A
    size = octets[cursor + 1].astype(np.int64)
    begin = cursor + 2
    fits &= (size < 0x80) & (begin + size + 5 <= ends)  # a length of one byte
    after = np.where(fits, begin + size, 0)
    plain = fits & (octets[after] == 0x15) & (after + 5 == ends)
    tensor = fits & ((words[after] == _TENSORS[0]) | (words[after] == _TENSORS[1])) & (after + 12 <= ends)
    value = np.where(plain, numbers[after + 1], numbers[np.minimum(after + 8, len(numbers) - 1)])
    kept = rows[plain | tensor]
    tags, tag = _tags(octets, begin[kept], size[kept])
    scalars = Scalars(tags, tag, step[kept], wall[kept], value[kept].astype(np.float64))
    return scalars, ~(plain | tensor)


def _varints(octets: Bytes, cursor: Ints) -> tuple[Ints, Ints]:
    """Numbers with seven bits per byte, and where they end."""
    value = np.zeros(len(cursor), np.int64)
    going = np.ones(len(cursor), bool)
    for k in range(9):
        byte = octets[np.minimum(cursor, len(octets) - 1)].astype(np.int64)
        value |= np.where(going, byte & 0x7F, 0) << (7 * k)
        cursor = cursor + going
        going &= byte >= 0x80
        if not going.any():
            break
    return value, cursor


def _tags(octets: Bytes, begin: Ints, size: Ints) -> tuple[list[str], Ints]:
    """The distinct tags, and the tag of each record: tags are distinguished by a hash of their letters."""
    sums = size.astype(np.uint64)
    for k in range(int(size.max(initial=0))):
        inside = k < size
        letter = octets[np.where(inside, begin + k, 0)].astype(np.uint64) + np.uint64(1)
        sums = np.where(inside, (sums ^ letter) * _PRIME, sums)
    _, first, tag = np.unique(sums, return_index=True, return_inverse=True)
    spans = zip(begin[first].tolist(), size[first].tolist(), strict=True)
    return [octets[b : b + s].tobytes().decode("utf-8", "replace") for b, s in spans], tag.astype(np.int64)


def _others(data: bytes, begins: list[int]) -> tuple[Scalars, list[TextEvent]]:
    """Records of any other shape, one by one."""
    tags: dict[str, int] = {}
    rows: list[tuple[int, int, float, float]] = []
    texts: list[TextEvent] = []
    for begin in begins:
        end = begin + _HEADER_BYTES + _LENGTH(data, begin)[0]
        try:
            wall, step, version, values = _event(data, begin + _HEADER_BYTES, end)
        except (IndexError, struct.error, ValueError):
            continue  # not a message: the record is damaged
        if version:
            texts.append(TextEvent("", step, wall, b""))
        for tag, number, content in values:
            if number is not None:
                rows.append((tags.setdefault(tag, len(tags)), step, wall, number))
            elif content:
                texts.append(TextEvent(tag, step, wall, content))
    table = np.array(rows, np.float64).reshape(-1, 4)
    scalars = Scalars(list(tags), table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2], table[:, 3])
    return scalars, texts


def _event(data: bytes, begin: int, end: int) -> tuple[float, int, bool, list[tuple[str, float | None, bytes]]]:
    wall, step, version = 0.0, 0, False
    values = []
    for field, value, place in fields(data, begin, end):
        if field == 1:
            wall = float(_WALL(data, place)[0])
        elif field == 2:
            step = value if value < 1 << 62 else 0
        elif field == 3:
            version = True
        elif field == 5:
            values += [
                _value(data, at, at + size) for name, size, at in fields(data, place, place + value) if name == 1
            ]
    return wall, step, version, values


def _value(data: bytes, begin: int, end: int) -> tuple[str, float | None, bytes]:
    """A tag with its number, or with the bytes of its text or its plugin."""
    tag, number, content = "", None, b""
    for field, value, place in fields(data, begin, end):
        if field == 1:
            tag = data[place : place + value].decode("utf-8", "replace")
        elif field == 2:
            number = float(_NUMBER(data, place)[0])
        elif field == 8:  # a tensor of one number, or of a text
            number, text, kind = None, b"", 0
            for part, size, at in fields(data, place, place + value):
                if part == 1:
                    kind = size
                elif part in (4, 5) and kind == 1 and size == 4:
                    number = float(_NUMBER(data, at)[0])
                elif part in (4, 6) and kind == 2 and size == 8:
                    number = float(_WALL(data, at)[0])
                elif part == 8:
                    text += data[at : at + size]
            content = text or content
        elif field == 9 and tag.startswith("_hparams_"):
            content = data[place : place + value]
    return tag, number, content


def fields(data: bytes, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The fields of a message: number, value (for a part, its length), place of the value. Raises if it is invalid."""
    while begin < end:
        key, begin = (data[begin], begin + 1) if data[begin] < 0x80 else _varint(data, begin)  # most keys have one byte
        kind = key & 7
        if kind == 0:
            value, after = _varint(data, begin)
        elif kind == 2:
            value, begin = (data[begin], begin + 1) if data[begin] < 0x80 else _varint(data, begin)
            after = begin + value
        else:
            value = {1: 8, 5: 4}[kind] if kind in (1, 5) else -1
            after = begin + value
        if value < 0 or after > end:
            raise ValueError("not a message")
        yield key >> 3, value, begin
        begin = after


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place += 1
        if byte < 0x80:
            return value, place
        shift += 7
        if shift > 63:
            raise ValueError("not a number")


def _joined(parts: list[Scalars]) -> Scalars:
    """Joins several sets of numbers; each tag occurs once."""
    tags: dict[str, int] = {}
    numbers = [
        np.array([tags.setdefault(tag, len(tags)) for tag in part.tags] or [0], np.int64)[part.tag] for part in parts
    ]
    columns = (np.concatenate([part[i] for part in parts]) for i in (2, 3, 4))
    return Scalars(list(tags), np.concatenate(numbers), *columns)
