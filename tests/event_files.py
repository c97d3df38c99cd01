"""Writes TensorBoard event files, byte by byte, for tests."""

from __future__ import annotations

import json
import struct


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ 0x82F63B78 if byte & 1 else byte >> 1
        table.append(byte)
    return table


_TABLE = _table()


def checksum(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def framed(payload: bytes) -> bytes:
    length = struct.pack("<Q", len(payload))
    return length + checksum(length) + payload + checksum(payload)


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def part(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def event(wall_s: float, step: int, rest: bytes) -> bytes:
    number = b"\x10" + varint(step) if step else b""
    return framed(b"\x09" + struct.pack("<d", wall_s) + number + rest)


def start(wall_s: float) -> bytes:
    return event(wall_s, 0, part(3, b"brain.Event:2"))


def scalar(wall_s: float, step: int, tag: str, value: float) -> bytes:
    return event(wall_s, step, part(5, part(1, part(1, tag.encode()) + b"\x15" + struct.pack("<f", value))))


def tensor_scalar(wall_s: float, step: int, tag: str, value: float, *, metadata_first: bool = False) -> bytes:
    """As TensorFlow 2 writes it."""
    tensor = part(8, b"\x08\x01\x12\x00\x22\x04" + struct.pack("<f", value))
    metadata = part(9, part(1, part(1, b"scalars")))
    parts = metadata + tensor if metadata_first else tensor + metadata
    return event(wall_s, step, part(5, part(1, part(1, tag.encode()) + parts)))


def text(wall_s: float, tag: str, content: str) -> bytes:
    return event(wall_s, 0, part(5, part(1, part(1, tag.encode()) + part(8, b"\x08\x07" + part(8, content.encode())))))


def arguments(wall_s: float, **values: object) -> bytes:
    return text(wall_s, "args/text_summary", json.dumps(values, indent=2))


def hyperparameters(wall_s: float, **values: float | str | bool) -> bytes:
    entries = b""
    for name, value in values.items():
        kind = (
            b"\x20" + varint(value)
            if isinstance(value, bool)
            else part(3, value.encode())
            if isinstance(value, str)
            else b"\x11" + struct.pack("<d", value)
        )
        entries += part(1, part(1, name.encode()) + part(2, kind))
    metadata = part(9, part(1, part(1, b"hparams") + part(2, part(3, entries))))
    return event(wall_s, 0, part(5, part(1, part(1, b"_hparams_/session_start_info") + metadata)))
