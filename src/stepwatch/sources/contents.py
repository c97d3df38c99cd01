"""The contents of files, plain or compressed, as plain lines of UTF-8; long texts stay in their files (stored.py).

All later code sees the same thing for any input: lines ended by `\\n`, without colours, backspaces,
carriage returns or NULs, and no text after a progress bar on the same line.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import IO, TYPE_CHECKING, BinaryIO

from stepwatch.errors import TooLarge, UnreadableInput
from stepwatch.messages import Message

if TYPE_CHECKING:
    from stepwatch.sources.stored import StoredText

# --- as a whole up to a limit, or in samples --------------------------------------------------------------------


MAGIC_BYTES = 10
SUFFIXES = (".gz", ".xz", ".bz2", ".zst")
READ_BYTES = 1 << 20
WHOLE_BYTES = 1 << 25
"""A text up to this size is kept in memory: 32 MB."""
BLOCK_BYTES = 1 << 22


_BZIP2 = tuple(b"BZh%d%s" % (level, block) for level in range(1, 10) for block in (b"1AY&SY", b"\x17rE8P\x90"))
PACKINGS = {"gzip": (b"\x1f\x8b",), "xz": (b"\xfd7zXZ\x00",), "bzip2": _BZIP2, "zstd": (b"\x28\xb5\x2f\xfd",)}
RECORDS = {"wandb": (b":W&B",), "sqlite": (b"SQLite format 3\0",), "events": ()}
"""Files without lines, and how they begin."""


def kind_of(head: bytes) -> str | None:
    """One of PACKINGS or RECORDS, by the first 64 bytes of a file; None for a text."""
    for kind, beginnings in (PACKINGS | RECORDS).items():
        if head.startswith(beginnings):
            return kind
    # TensorBoard's first record holds a time, and the version.
    return "events" if head[12:13] == b"\t" and b"brain.Event:" in head[20:64] else None


def read_bytes(stream: BinaryIO, limit: int) -> bytes:
    """The whole content of a file, a pipe or a device, decompressed."""
    return b"".join(read_parts(stream, limit))


def read_parts(stream: IO[bytes], limit: int) -> Iterator[bytes]:
    """The same piece by piece. Raises TooLarge if it is larger than the limit."""
    head = stream.read(MAGIC_BYTES)
    packing = kind_of(head)
    if packing not in PACKINGS:
        packing = None
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
        from stepwatch.sources.packed import parts  # most logs are plain

        # A truncated file is read as far as it goes: the log of a running job is often truncated.
        expanding = parts(packing, head, stream)
        first = next(expanding, None)
        if first is None:
            raise UnreadableInput(
                Message("the file looks like {name:word} but cannot be decompressed", {"name": packing}),
                Message("decompress it yourself and give the plain log"),
            )
        pieces = chain((first,), expanding)
    for part in pieces:
        size += len(part)
        if size > limit:
            raise too_large(limit)
        yield part


def head_of(path: str, size: int) -> bytes:
    """The first bytes of a file as lines, decompressed if necessary. Raises OSError."""
    with open(path, "rb") as stream:
        data = stream.read(size)
    return normalise(_beginning(data, 8 * size))


def _beginning(data: bytes, size: int) -> bytes:
    """The first decompressed bytes, as far as `data` contains them; plain data is returned as it is."""
    packing = kind_of(data)
    if packing is None or packing not in PACKINGS:
        return data
    from stepwatch.sources.packed import parts

    found = bytearray()
    for part in parts(packing, data, io.BytesIO()):
        found += part
        if len(found) >= size:
            break
    return bytes(found[:size])


def samples_of(path: str, size: int) -> Iterator[bytes]:
    """The first `size` bytes of a file as lines, then short samples from its end and in between. Raises OSError."""
    with open(path, "rb") as stream:
        head = stream.read(size)
        data = _beginning(head, 8 * size)
        yield normalise(data)
        if len(data) < size:
            return
        whole: BinaryIO = stream
        if kind_of(head) in PACKINGS:  # its end cannot be read without everything before it
            stream.seek(0)
            whole = io.BytesIO(_beginning(stream.read(8 * size), 64 * size))
        length = whole.seek(0, io.SEEK_END)
        places, sample_bytes = 8, 1 << 15
        for number in range(places, 0, -1):
            whole.seek(max((length - sample_bytes) * number // places, 0) // 4 * 4)  # UTF-16: no half character
            yield normalise(whole.read(sample_bytes))


def too_large(limit: int) -> TooLarge:
    return TooLarge(
        Message("the log is larger than {limit:size}", {"limit": limit}),
        Message("cut out the part you want explained, or raise the limit with --max-size"),
    )


# --- as plain lines ---------------------------------------------------------------------------------------------


_LINE_ABOVE = re.compile(rb"\x1b\[\d{0,2}A(?=[^\r\n\x1b])")  # cursor up, then text: printed after a bar further down
# Colours and cursor moves; titles and links, which end at the end of their line at the latest; character sets; others.
_ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)?|[ -/][0-9A-Za-z]|[0-?@-_c])")
_ENCODINGS = (  # UTF-32 first: its mark begins like that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Only the recorder writes these keys without spaces.
_LINE_OF_RECORD = re.compile(rb'\{"(?:stepwatch|step|eval|checkpoint|device|compile|lost|end)":\d|\{"settings":\{')
# tqdm's bar with text after it: a bar does not end its line, so the program's next line may follow it. No part of the
# pattern can match across the mark that a bar begins with, so matching takes time in proportion to the text.
_BAR = re.compile(
    rb"%\|(?<=\d%\|)[^|\n]{0,1200}\| {0,4}[\d.]{1,12}[kMGT]?/[\d.]{1,12}[kMGT]? "
    rb"\[[\d:]{4,12}<[^,\[\]\n]{1,24},[^\[\]\n]{0,400}\](?=[\w{\[(<*=#>+-])"
)
_CONTROLS = bytes(c for c in range(32) if c not in (9, 10))
_TELLTALES = (b"\r", b"\x1b", b"\x08", b"\x00", b"\x07", b"\x0c", b"\x0b")


def normalise(data: bytes) -> bytes:
    """The bytes of a log as plain lines; files that are not text are returned as they are. Never raises."""
    if kind_of(data) in RECORDS:
        return data
    encoding = encoding_of(data)
    if encoding is not None:
        data = data.decode(encoding, "replace").encode("utf-8", "replace")
    if data[:4000].lstrip().startswith((b"{", b"[")) and is_document(data):
        from stepwatch.sources.documents import unpack  # few logs are in a notebook

        data = unpack(io.BytesIO(data), b"".join) or data
    return to_lines(data)


def encoding_of(data: bytes) -> str | None:
    """The encoding of a text, by its first bytes; None for UTF-8 and similar encodings."""
    for mark, encoding in _ENCODINGS:
        if data.startswith(mark):
            return encoding
    # UTF-16 without its mark, for example if a PowerShell log was cut in two: every other byte is NUL.
    sample = data[:2000]
    if len(sample) > 20 and sample[1::2].count(0) > 0.8 * len(sample) / 2 > sample[0::2].count(0):
        return "utf-16-le"
    if len(sample) > 20 and sample[0::2].count(0) > 0.8 * len(sample) / 2 > sample[1::2].count(0):
        return "utf-16-be"
    return None


def to_lines(data: bytes) -> bytes:
    # Marks may also be in the middle, if files were joined; searching for a single byte first is seven times as fast.
    if codecs.BOM_UTF8[:1] in data and codecs.BOM_UTF8 in data:
        data = data.replace(codecs.BOM_UTF8, b"")
    if any(byte in data for byte in _TELLTALES):  # several memchr are faster than one regex over 100 MB
        if b"\x1b" in data:
            data = _ANSI.sub(b"", _LINE_ABOVE.sub(b"\n", data))
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\x08" in data:
            data = b"\n".join(_overstrike(line) if b"\x08" in line else line for line in data.split(b"\n"))
        data = data.translate(None, _CONTROLS)
    if b"<" in data and b"%|" in data:  # text after a progress bar gets a separate line
        data = _BAR.sub(rb"\g<0>\n", data)
    return data


def _overstrike(line: bytes) -> bytes:
    """What a terminal shows after backspaces: each removes the byte before it."""
    shown = bytearray()
    for byte in line:
        if byte != 8:
            shown.append(byte)
        elif shown:
            shown.pop()
    return bytes(shown)


CELL_ENDS = "--- end of cell ---"
"""A line after the output of each cell of a notebook: what follows is from another program."""


def is_document(data: bytes) -> bool:
    """Whether it is a notebook file or Kaggle's JSON log. The recorder's file is JSON too, line by line."""
    head = data[:4000].lstrip()
    if head.startswith(b"["):
        return b'"stream_name"' in head
    return head.startswith(b"{") and not _LINE_OF_RECORD.match(data) and b'"cells"' in data


def content_of(stream: IO[bytes], limit: int) -> bytes | StoredText:
    """The content of a file, a pipe or a device as plain lines: in memory, or in its file if it is long."""
    size_on_disk = 0
    if stream.seekable():
        place = stream.tell()
        size_on_disk = stream.seek(0, io.SEEK_END)
        stream.seek(place)
    parts = read_parts(stream, limit)
    first = next(parts, b"")
    kind = kind_of(first)
    may_be_document = first[:4000].lstrip().startswith((b"{", b"["))
    if may_be_document or size_on_disk <= WHOLE_BYTES:
        start, size = [first], len(first)
        for part in parts:
            start.append(part)
            size += len(part)
            if size > WHOLE_BYTES:
                break
        head = b"".join(start)
        if size <= WHOLE_BYTES:
            return normalise(head)
        if is_document(head):
            document = stream if size_on_disk and _is_plain(stream) else _in_a_file(chain((head,), parts))
            text = _text_inside(document)
            if document not in (stream, text):
                document.close()
            stream = text
        elif not size_on_disk:
            stream = _in_a_file(chain((head,), parts))
    from stepwatch.sources.stored import StoredText  # most logs are short

    return StoredText(stream, limit, has_lines=kind not in RECORDS)


def _is_plain(stream: IO[bytes]) -> bool:
    stream.seek(0)
    return kind_of(stream.read(MAGIC_BYTES)) not in PACKINGS


def _text_inside(document: IO[bytes]) -> IO[bytes]:
    """The text of a document, in a separate file; the document itself if it contains none."""
    from stepwatch.sources.documents import unpack

    document.seek(0)
    text = unpack(document, _in_a_file)
    if text.read(1):
        return text
    text.close()
    return document


def content_of_parts(parts: Iterator[bytes], limit: int) -> bytes | StoredText:
    """The same for content that comes in parts of any size."""
    start, size = [], 0
    for part in parts:
        start.append(part)
        size += len(part)
        if size > WHOLE_BYTES:
            return content_of(_in_a_file(chain(start, parts)), limit)
    if size > limit:
        raise too_large(limit)
    return normalise(b"".join(start))


def _in_a_file(parts: Iterable[bytes]) -> IO[bytes]:
    """Writes the parts to an unnamed file, which the caller closes."""
    import tempfile  # few logs are long pipes, or many long files

    kept = tempfile.TemporaryFile()  # noqa: SIM115
    try:
        kept.writelines(parts)
    except BaseException:
        kept.close()
        raise
    kept.seek(0)
    return kept


def lines_in(block: bytes | memoryview) -> int:
    import numpy as np  # three times as fast as bytes.count; a plan needs neither

    ends = np.frombuffer(block, np.uint8) == ord("\n")
    return int(np.count_nonzero(ends)) + (len(ends) > 0 and not ends[-1])
