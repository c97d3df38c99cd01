"""What files hold, plain or packed, as a whole up to a limit or in samples."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import BinaryIO

from stepwatch.errors import TooLarge, UnreadableInput
from stepwatch.messages import Message
from stepwatch.sources.packed import MAGIC_BYTES, READ_BYTES, beginning, packing_of, parts
from stepwatch.sources.plain_text import normalise

_PLACES, _PLACE_BYTES = 8, 1 << 15  # of a long file, where it is looked at too


def read_bytes(stream: BinaryIO, limit: int) -> bytes:
    """All that a file, a pipe or a device holds, expanded."""
    head = stream.read(MAGIC_BYTES)
    packing = packing_of(head)
    if packing is not None:
        # A file cut short gives what it holds: a running job's log is often such.
        expanding = parts(packing, head, stream)
        first = next(expanding, None)
        if first is None:
            raise UnreadableInput(
                Message("the file looks like {name:word} but cannot be expanded", {"name": packing.name}),
                Message("expand it yourself and give the plain log"),
            )
        return _up_to(limit, chain((first,), expanding))
    size = stream.seek(0, io.SEEK_END) if stream.seekable() else 0
    if size > limit:
        raise _too_large(limit)
    if size > 0:
        stream.seek(0)
        return stream.read(size)
    # A pipe, or a device: neither tells how much it will give.
    return _up_to(limit, chain((head,), iter(lambda: stream.read(READ_BYTES), b"")))


def _up_to(limit: int, parts: Iterable[bytes]) -> bytes:
    found: list[bytes] = []
    size = 0
    for part in parts:
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        found.append(part)
    return b"".join(found)


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
        for number in range(_PLACES, 0, -1):
            whole.seek(max((length - _PLACE_BYTES) * number // _PLACES, 0) // 4 * 4)  # of UTF-16 no half letter
            yield normalise(whole.read(_PLACE_BYTES))


def _too_large(limit: int) -> TooLarge:
    return TooLarge(
        Message("the log is larger than {limit:size}", {"limit": limit}),
        Message("cut out the part you want explained, or raise the limit with --max-size"),
    )
