"""Damages compressed and binary inputs: inside their frames, so that checksums hold, and the frames themselves."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import struct
from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import Any

from tests import event_files
from tests.unit.readers.formats import test_wandb_file as wandb_files

from stepwatch.sources import kind_of
from tools.fuzz.material import Material
from tools.fuzz.mutations import LINES_CHANGED, NUMBERS, bytes_changed, excerpt, mutated, same_length

_LENGTHS = struct.Struct("<Q")
_HEADER = struct.Struct("<IHB")  # of each part of a record in a W&B file: checksum, length, kind
_MOST_RECORDS = 60  # per input: more take longer and show nothing new


def damaged(material: Material, random: Random) -> bytes:
    """A compressed log, or an event file, a notebook or a W&B file."""
    logs = material.all
    if random.random() < 0.5:
        return _packed(mutated(material.log(random), logs, random), random)
    data = random.choice(material.binaries)
    if kind_of(data) == "events":
        data = _events(_records_of_events(data), random)
    elif kind_of(data) == "wandb":
        data = _wandb(_records_of_wandb(data), random)
    else:
        data = _notebook(data, logs, random)
    if random.random() < 0.3:
        data = random.choice((bytes_changed, _ended_early))(data, random)
    return _packed(data, random) if random.random() < 0.1 else data


def _ended_early(data: bytes, random: Random) -> bytes:
    return data[: random.randrange(len(data) + 1)]


# --- packed -----------------------------------------------------------------------------------------------------


@cache
def _packers() -> tuple[Callable[[bytes], bytes], ...]:
    packers: list[Callable[[bytes], bytes]] = [
        lambda data: gzip.compress(data, 1),
        lambda data: bz2.compress(data, 1),
        lambda data: lzma.compress(data, preset=0),
    ]
    try:
        from compression import zstd  # Python 3.14
    except ImportError:
        try:
            import zstandard

            packers.append(zstandard.ZstdCompressor().compress)
        except ImportError:
            pass
    else:
        packers.append(zstd.compress)
    return tuple(packers)


def _packed(data: bytes, random: Random) -> bytes:
    """Complete, cut, with other bytes, as several members, or compressed twice."""
    pack = random.choice(_packers())
    how = random.randrange(6)
    if how == 0:
        half = random.randrange(len(data) + 1)
        return pack(data[:half]) + random.choice((pack, random.choice(_packers())))(data[half:])
    if how == 1:
        return random.choice(_packers())(pack(data))
    packed = pack(data)
    if how == 2:
        return _ended_early(packed, random)
    return bytes_changed(packed, random) if how < 5 else packed


# --- records in frames ------------------------------------------------------------------------------------------


@cache
def _records_of_events(data: bytes) -> tuple[bytes, ...]:
    records, place = [], 0
    while place + 12 < len(data):
        (length,) = _LENGTHS.unpack_from(data, place)
        records.append(data[place + 12 : place + 12 + length])
        place += length + 16
    return tuple(records)


@cache
def _records_of_wandb(data: bytes) -> tuple[bytes, ...]:
    records, place, whole = [], 7, b""
    while place + 7 <= len(data):
        if wandb_files.BLOCK - place % wandb_files.BLOCK < 7:
            place += wandb_files.BLOCK - place % wandb_files.BLOCK
            continue
        _, length, kind = _HEADER.unpack_from(data, place)
        whole += data[place + 7 : place + 7 + length]
        if kind in (1, 4):
            records.append(whole)
            whole = b""
        place += 7 + length
    return tuple(records)


def _stretch(records: Sequence[bytes], random: Random) -> list[bytes]:
    """The first records, and some further on, few enough for a quick case."""
    count = random.randrange(2, _MOST_RECORDS)
    begin = random.randrange(max(len(records) - count, 1))
    return [record for record in (*records[:3], *records[begin + 3 : begin + count]) if len(record) < 20_000]


def _changed_inside(records: list[bytes], random: Random) -> list[bytes]:
    for _ in range(random.choice((1, 1, 2, 3, 5))):
        if not records:
            break
        row = random.randrange(len(records))
        how = random.randrange(4)
        if how == 0:
            records = random.choice(LINES_CHANGED)(records, random)
        elif how == 1:
            records[row] = same_length(records[row], random)
        elif how == 2:
            records[row] = _other_float(records[row], random)
        else:
            records[row] = bytes_changed(records[row], random)
    return records


_FLOATS = (0.0, -1.0, float("nan"), float("inf"), -float("inf"), 1e308, -1e308, 1e-308, 1e15, 2.0**63, -0.0, 1e18)


def _other_float(record: bytes, random: Random) -> bytes:
    """Another time, and sometimes another step, if an event has them."""
    if len(record) >= 9 and record[:1] == b"\x09":
        record = b"\x09" + struct.pack("<d", random.choice(_FLOATS)) + record[9:]
        if record[9:10] == b"\x10" and random.random() < 0.5:
            end = next((place for place in range(10, len(record)) if record[place] < 128), 10) + 1
            step = random.choice((0, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**64 - 1, 99099000000))
            record = record[:10] + event_files.varint(step) + record[end:]
    return record


def _events(records: Sequence[bytes], random: Random) -> bytes:
    return b"".join(map(event_files.framed, _changed_inside(_stretch(records, random), random)))


def _wandb(records: Sequence[bytes], random: Random) -> bytes:
    """Records of a run, or rows of a history that nobody logged."""
    if random.random() < 0.3:
        records = [*records[:2], *(_history(step, random) for step in range(random.randrange(2, 40)))]
    return wandb_files.framed(*_changed_inside(_stretch(records, random), random))


def _history(step: int, random: Random) -> bytes:
    row: dict[str, Any] = {"_step": step, "_timestamp": 1.7e9 + step, "_runtime": float(step), "train__loss": 2.0}
    row |= {"train__global_step": 10 * step, "train__epoch": step / 10}
    for name in row:
        if random.random() < 0.05:
            row[name] = random.choice((*_FLOATS, -1, 10**40, "nan", "x", None, True, [1], {"a": 1}))
    return wandb_files.history(**{name: value for name, value in row.items() if random.random() < 0.97})


# --- notebooks --------------------------------------------------------------------------------------------------


@cache
def _cells(data: bytes) -> list[Any]:
    notebook: Any = json.loads(data)
    return [cell for cell in notebook["cells"] if cell.get("outputs")]


def _notebook(data: bytes, logs: Sequence[bytes], random: Random) -> bytes:
    """Some of its cells, with output that is damaged or from another log."""
    cells = random.choices(_cells(data), k=random.choice((1, 1, 2, 4)))
    return json.dumps({"nbformat": 4, "cells": [_cell(cell, logs, random) for cell in cells]}).encode()


def _cell(cell: Any, logs: Sequence[bytes], random: Random) -> Any:
    outputs = []
    for output in cell["outputs"][:6]:
        kept = {name: value for name, value in output.items() if random.random() < 0.98}
        if random.random() < 0.2:
            text = mutated(random.choice(logs), logs, random).decode("utf-8", "replace")
            kept = {"output_type": "stream", "name": random.choice(("stdout", "stderr")), "text": text}
        elif isinstance(kept.get("text"), (str, list)):
            kept["text"] = _text(kept["text"], logs, random)
        elif isinstance(kept.get("data"), dict):
            kept["data"] = {name: _text(value, logs, random) for name, value in kept["data"].items() if "text" in name}
        outputs.append(kept)
    if random.random() < 0.05:
        return random.choice((None, 3, [], {"outputs": None}, {"outputs": [None]}, random.choice(NUMBERS).decode()))
    return {**cell, "outputs": outputs}


def _text(value: Any, logs: Sequence[bytes], random: Random) -> Any:
    """Changed text of the same kind: a string or a list of lines."""
    text = "".join(map(str, value)) if isinstance(value, list) else str(value)
    changed = mutated(excerpt(text.encode(), random), logs, random).decode("utf-8", "replace")
    return changed.splitlines(keepends=True) if isinstance(value, list) else changed
