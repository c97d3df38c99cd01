"""Files run-….wandb, written as W&B writes them: LevelDB's framing around the few messages that are read."""

from __future__ import annotations

import json
import struct
import zlib

BLOCK = 32768
BEGIN_S = 1_700_000_000.0


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out, value = out + bytes((value & 0x7F | 0x80,)), value >> 7
    return out + bytes((value,))


def part(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def items(values: dict[str, object], number: int = 1) -> bytes:
    return b"".join(
        part(number, part(1, key.encode()) + part(16, json.dumps(value).encode())) for key, value in values.items()
    )


def history(**values: object) -> bytes:
    return part(2, items({key.replace("__", "/"): value for key, value in values.items()}))


def started(config: dict[str, object]) -> bytes:
    return part(17, part(4, items(config)) + part(17, b"\x08" + varint(int(BEGIN_S))))


def printed(text: str) -> bytes:
    return part(13, part(3, text.encode()))


def framed(*messages: bytes) -> bytes:
    data = bytearray(b":W&B\xe1\xbe\x00")
    for message in messages:
        begin = True
        while message or begin:
            left = BLOCK - len(data) % BLOCK
            if left < 7:
                data += bytes(left)
                left = BLOCK
            piece, message = message[: left - 7], message[left - 7 :]
            kind = (1 if begin else 4) if not message else (2 if begin else 3)
            data += struct.pack("<IHB", zlib.crc32(piece, zlib.crc32(bytes((kind,)))), len(piece), kind) + piece
            begin = False
    return bytes(data)
