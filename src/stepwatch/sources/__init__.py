"""Where a log comes from, and how its bytes become plain lines of UTF-8.

Everything downstream sees the same thing whatever was handed in: lines ended by `\\n`, without colours,
backspaces, carriage returns or NULs, and none behind a progress bar.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import BinaryIO, NamedTuple

from stepwatch.errors import NoIterations, TooLarge, UnreadableInput
from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.sources.packed import MAGIC_BYTES, Packing, beginning, packing_of, parts

LARGEST_EXPANSION_BYTES = 2 * 1024**3
RECORD = b'{"stepwatch":'  # how a file of the recorder begins
_WANDB = b":W&B"
# Colours and cursor moves; titles and links, which end with their line at the latest; character sets; the rest.
_ANSI = Pattern(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)?|[ -/][0-9A-Za-z]|[0-?@-_c])")
_ENCODINGS = (  # UTF-32 first: its mark begins like that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
# The recorder's file is JSON too, line by line; nobody else writes these keys and no spaces.
_LINE_OF_RECORD = Pattern(rb'\{"(?:stepwatch|step|eval|checkpoint|device|compile|lost|end)":\d|\{"settings":\{')
# tqdm's bar and what it prints behind it. It ends no line, so that the program's next one may stand behind its `]`.
_BAR = Pattern(
    rb"\d{1,3}%\|[^|\n]{0,1200}\| {0,4}[\d.]{1,12}[kMGT]?/[\d.]{1,12}[kMGT]? "
    rb"\[[\d:]{4,12}<[^,\[\]\n]{1,24},[^\[\]\n]{0,400}\]\Z"
)
_BEHIND_BRACKET = Pattern(rb"\](?=[\w{\[(<*=#>+-])")
_LONGEST_BAR = 2000
_READ_BYTES = 1 << 20
_PLACES, _PLACE_BYTES = 8, 1 << 15  # of a long file, where it is looked at too
_CONTROLS = bytes(c for c in range(32) if c not in (9, 10))
_TELLTALES = (b"\r", b"\x1b", b"\x08", b"\x00", b"\x07", b"\x0c", b"\x0b")


class Source(NamedTuple):
    """A named text, already normalised."""

    name: str
    text: bytes
    beside: tuple[Source, ...] = ()
    """Files that tell more of the run than its log does."""


def from_text(text: str, name: str = "-") -> Source:
    return Source(name, normalise(text.encode("utf-8", "surrogatepass")))


def from_bytes(data: bytes, name: str = "-", *, limit: int = LARGEST_EXPANSION_BYTES) -> Source:
    """What a file holds, plain or packed, without there being a file."""
    return Source(printable(os.path.basename(name)), normalise(expanded(data, limit=limit)))


def expanded(data: bytes, *, limit: int = LARGEST_EXPANSION_BYTES) -> bytes:
    return _read(io.BytesIO(data), limit)


def from_file(path: str | os.PathLike[str], *, limit: int = LARGEST_EXPANSION_BYTES) -> Source:
    """A file, or a directory that is one run; of a record also its older pieces, and beside it those of other ranks."""
    path = os.fspath(path)
    try:
        if os.path.isdir(path):
            return _from_directory(path, limit)
        source = _from_plain_file(path, limit)
        if not source.text.startswith(RECORD):
            return source
        from stepwatch.sources import records  # most logs are none

        return records.completed(source, path, lambda file: _from_plain_file(file, limit).text)
    except OSError as error:
        raise unreadable(path, error) from error


def from_pieces(paths: Sequence[str], *, limit: int = LARGEST_EXPANSION_BYTES) -> Source:
    """The pieces of a rotated log as one text, given the oldest first."""
    try:
        texts = [_from_plain_file(path, limit).text for path in paths]
        whole = b"".join(text if text.endswith(b"\n") else text + b"\n" for text in texts)
        source = Source(printable(os.path.basename(paths[-1])), whole)
        if not whole.startswith(RECORD):
            return source
        from stepwatch.sources import records

        return records.with_ranks(source, paths[-1], lambda file: _from_plain_file(file, limit).text)
    except OSError as error:
        raise unreadable(paths[-1], error) from error


def plain_file(path: str, *, limit: int = LARGEST_EXPANSION_BYTES) -> Source:
    """One file, without what belongs to it."""
    try:
        return _from_plain_file(path, limit)
    except OSError as error:
        raise unreadable(path, error) from error


def _from_plain_file(path: str, limit: int) -> Source:
    with open(path, "rb") as stream:
        return Source(printable(os.path.basename(path)), normalise(_read(stream, limit)))


def _from_directory(path: str, limit: int) -> Source:
    """A directory that is one run; any other is none that can be read (Windows would call it a lack of permission)."""
    from stepwatch.sources import directories  # most inputs are files

    name = printable(os.path.basename(os.path.normpath(path)))
    files = directories.wandb_files(path)
    if files is not None:
        output, beside = files
        text = _from_plain_file(output, limit).text if output is not None else b""
        return Source(name, text, tuple(_from_plain_file(file, limit) for file in beside))
    return Source(name, _events(directories.event_files(path), limit))


def from_event_files(files: Sequence[str], name: str, *, limit: int = LARGEST_EXPANSION_BYTES) -> Source:
    """Those of one run, by their time."""
    try:
        return Source(printable(name), _events(files, limit))
    except OSError as error:
        raise unreadable(name, error) from error


def _events(files: Sequence[str], limit: int) -> bytes:
    events = b""
    for file in files:
        text = _from_plain_file(file, limit - len(events)).text
        events += text if is_event_file(text) else b""
    if not events:
        raise IsADirectoryError
    return events


def from_stdin(*, limit: int = LARGEST_EXPANSION_BYTES) -> Source:
    if sys.stdin is None:  # closed by whoever started us
        return Source("-", b"")
    try:
        return Source("-", normalise(_read(sys.stdin.buffer, limit)))
    except OSError as error:
        raise unreadable("-", error) from error


def printable(name: str) -> str:
    """A file name may hold bytes that are no text, or commands to a terminal."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in name)


def unreadable(path: str, error: OSError) -> UnreadableInput:
    name = {"name": os.path.basename(path.rstrip("/\\")) or path}
    if isinstance(error, FileNotFoundError):
        return UnreadableInput(
            Message("there is no file “{name:word}”", name),
            Message("check the path, or paste the log with: stepwatch -"),
        )
    if isinstance(error, IsADirectoryError):
        return UnreadableInput(
            Message("“{name:word}” is a directory", name), Message("name the log file in it, for example train.log")
        )
    if isinstance(error, PermissionError):
        return UnreadableInput(
            Message("no permission to read “{name:word}”", name),
            Message("make it readable, or pipe it: … | stepwatch -"),
        )
    reason = {**name, "reason": error.strerror or type(error).__name__}
    return UnreadableInput(
        Message("“{name:word}” cannot be read: {reason:word}", reason),
        Message("check the file, or paste the log with: stepwatch -"),
    )


def is_cut_json(text: bytes) -> bool:
    """Whether a text begins as an object of JSON but is none."""
    if not text.lstrip().startswith(b"{"):
        return False
    import json

    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return True
    return False


def cut_off(name: str) -> NoIterations:
    return NoIterations(
        Message("“{name:word}” is cut off: its JSON has no end", {"name": name}),
        Message("copy the whole file, or hand in what the trainer printed"),
    )


def _read(stream: BinaryIO, limit: int) -> bytes:
    head = stream.read(MAGIC_BYTES)
    _refuse_wandb(head)
    packing = packing_of(head)
    if packing is not None:
        return _expand(packing, head, stream, limit)
    size = stream.seek(0, io.SEEK_END) if stream.seekable() else 0
    if size > limit:
        raise _too_large(limit)
    if size > 0:
        stream.seek(0)
        return stream.read(size)
    return _up_to(limit, _rest(head, stream))  # a pipe, or a device: neither tells how much it will give


def _refuse_wandb(head: bytes) -> None:
    """The file run-….wandb holds all that a run logged, in a form that W&B keeps to itself."""
    if head.startswith(_WANDB):
        raise UnreadableInput(
            Message("this is W&B's own record of a run, which only W&B reads"),
            Message(
                "hand in the output.log of that run, from its directory files; offline runs go up with: wandb sync"
            ),
        )


def _rest(head: bytes, stream: BinaryIO) -> Iterator[bytes]:
    yield head
    while part := stream.read(_READ_BYTES):
        yield part


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
        _refuse_wandb(data)
        packing = packing_of(data)
        if packing is not None:  # its end cannot be had without all that comes before
            data = beginning(packing, data, 8 * size)
        yield normalise(data)
        if len(data) < size:
            return
        if packing is None:
            yield from _further_on(stream, os.fstat(stream.fileno()).st_size)
            return
        stream.seek(0)
        more = beginning(packing, stream.read(8 * size), 64 * size)
        yield from _further_on(io.BytesIO(more), len(more))


def _further_on(stream: BinaryIO, whole: int) -> Iterator[bytes]:
    for number in range(_PLACES, 0, -1):
        stream.seek(max((whole - _PLACE_BYTES) * number // _PLACES, 0) // 4 * 4)  # of UTF-16 no half letter
        yield normalise(stream.read(_PLACE_BYTES))


def _too_large(limit: int) -> TooLarge:
    return TooLarge(
        Message("the log is larger than {limit:size}", {"limit": limit}),
        Message("cut out the part you want explained, or raise the limit with --max-size"),
    )


def _expand(packing: Packing, head: bytes, stream: BinaryIO, limit: int) -> bytes:
    """A file cut short gives what it holds: a running job's log is often such."""
    expanding = parts(packing, head, stream)
    first = next(expanding, None)
    if first is None:
        raise UnreadableInput(
            Message("the file looks like {name:word} but cannot be expanded", {"name": packing.name}),
            Message("expand it yourself and hand in the plain log"),
        )
    return _up_to(limit, chain((first,), expanding))


# --- normalising ------------------------------------------------------------------------------------------------


def normalise(data: bytes) -> bytes:
    """Any bytes that hold a log, as plain lines; event files, which are no text, as they are. Never raises."""
    if is_event_file(data):
        return data
    data = to_utf8(data)
    data = _unpack_json(data)
    return to_lines(data)


def is_event_file(data: bytes) -> bool:
    """Whether it begins with the first record of a TensorBoard event file: a time, and the version."""
    return data[12:13] == b"\t" and b"brain.Event:" in data[20:64]


def to_utf8(data: bytes) -> bytes:
    encoding = encoding_of(data)
    return data if encoding is None else data.decode(encoding, "replace").encode("utf-8", "replace")


def encoding_of(data: bytes) -> str | None:
    """What a text is written in, by how it begins; None for UTF-8 and what is like it."""
    for mark, encoding in _ENCODINGS:
        if data.startswith(mark):
            return encoding
    # UTF-16 that lost its mark, as when a PowerShell log was cut in two: every other byte is NUL.
    sample = data[:2000]
    if len(sample) > 20 and sample[1::2].count(0) > 0.8 * len(sample) / 2 > sample[0::2].count(0):
        return "utf-16-le"
    if len(sample) > 20 and sample[0::2].count(0) > 0.8 * len(sample) / 2 > sample[1::2].count(0):
        return "utf-16-be"
    return None


def to_lines(data: bytes) -> bytes:
    if codecs.BOM_UTF8 in data:  # also in the middle, where files were put together
        data = data.replace(codecs.BOM_UTF8, b"")
    if any(byte in data for byte in _TELLTALES):  # several memchr are faster than one regex over 100 MB
        data = _without_controls(data)
    return _parted_behind_bars(data) if b"<" in data and b"%|" in data else data


def _without_controls(data: bytes) -> bytes:
    if b"\x1b" in data:
        data = _ANSI.sub(b"", data)
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if b"\x08" in data:
        data = b"\n".join(_overstrike(line) if b"\x08" in line else line for line in data.split(b"\n"))
    return data.translate(None, _CONTROLS)


def _parted_behind_bars(data: bytes) -> bytes:
    """With what was printed behind a progress bar on a line of its own."""
    parts, begin = [], 0
    for found in _BEHIND_BRACKET.finditer(data):
        end = found.end()
        start = max(begin, end - _LONGEST_BAR)
        start = max(start, data.rfind(b"\n", start, end) + 1)
        if data.find(b"%|", start, end) >= 0 and _BAR.compiled.search(data, start, end):
            parts.append(data[begin:end])
            begin = end
    return b"\n".join((*parts, data[begin:])) if parts else data


def _overstrike(line: bytes) -> bytes:
    """What a terminal shows after backspaces: the byte before each is taken back."""
    shown = bytearray()
    for byte in line:
        if byte != 8:
            shown.append(byte)
        elif shown:
            shown.pop()
    return bytes(shown)


def _unpack_json(data: bytes) -> bytes:
    """The text inside a notebook file or Kaggle's JSON log; anything else as it is."""
    if not data[:4000].lstrip().startswith((b"{", b"[")) or _LINE_OF_RECORD.match(data):
        return data
    from stepwatch.sources.notebooks import unpack  # few logs are JSON

    return unpack(data)
