"""Where a log comes from: files, directories that are one run, pipes, pasted text."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from stepwatch.errors import NoIterations, UnreadableInput
from stepwatch.messages import Message
from stepwatch.platforms import open_files_limit, opened_to_follow
from stepwatch.samples import LOG_FILE, SAMPLES_SUFFIX
from stepwatch.sources.contents import (
    BLOCK_BYTES,
    READ_BYTES,
    content_of,
    content_of_parts,
    kind_of,
    normalise,
    read_bytes,
)
from stepwatch.sources.directories import (
    RECORD,
    event_files,
    is_continued,
    is_run_directory,
    mlflow_files,
    ranks_beside,
    wandb_files,
    whole_record,
)

if TYPE_CHECKING:
    from stepwatch.sources.stored import StoredText

__all__ = [
    "LARGEST_EXPANSION_BYTES",
    "RECORD",
    "Source",
    "cut_off",
    "from_bytes",
    "from_event_files",
    "from_file",
    "from_pieces",
    "from_stdin",
    "from_text",
    "is_cut_json",
    "kind_of",
    "normalise",
    "place_of_line",
    "plain_file",
    "printable",
    "samples_of_log",
    "unreadable",
]

LARGEST_EXPANSION_BYTES = 2 * 1024**3


@dataclass(frozen=True, slots=True)
class Source:
    """A named, normalised text; a long one is not kept in memory but read in blocks."""

    name: str
    content: bytes | StoredText
    beside: tuple[Source, ...] = ()
    """Files that say more about the run than its log."""
    written_s: float | None = None
    """When the file was last written to."""
    begin: int = 0
    """The first line of a stored text, and the line after its last one."""
    end: int = sys.maxsize

    @property
    def text(self) -> bytes:
        """All of it."""
        return self.content if isinstance(self.content, bytes) else b"".join(self.blocks())

    def head(self, size: int) -> bytes:
        if isinstance(self.content, bytes):
            return self.content[:size]
        found = b""
        for block in self.blocks():
            found += block[: size - len(found)]
            if len(found) >= size:
                break
        return found

    def blocks(self) -> Iterator[bytes]:
        """Blocks of whole lines, of bounded size unless a single line is longer."""
        if isinstance(self.content, bytes):
            text, begin = self.content, 0
            while begin < len(text):
                end = begin + BLOCK_BYTES
                if end < len(text):
                    end = text.rfind(b"\n", begin, end) + 1 or text.find(b"\n", end) + 1 or len(text)
                yield text[begin:end]
                begin = end
            return
        for number, block, end in self.content.blocks(self.begin):
            if number >= self.end:
                return
            last = place_of_line(block, self.end - number) if end > self.end else len(block)
            yield block[place_of_line(block, self.begin - number) : last]

    def lines(self, numbers: Collection[int], longest: int) -> dict[int, str]:
        """The beginnings of these lines, as far as they exist."""
        found: dict[int, str] = {}
        block = self.content if isinstance(self.content, bytes) else b""
        line = place = end = 0
        for number in sorted(number for number in numbers if number >= 0):
            if not isinstance(self.content, bytes) and number >= end:
                line, block, end = self.content.block_with(number)
                place = 0
            line, place = number, place_of_line(block, number - line, place)
            stop = block.find(b"\n", place)
            found[number] = block[place : stop if stop >= 0 else len(block)][:longest].decode("utf-8", "replace")
        return found

    def part(self, begin: int, end: int | None = None) -> Source:
        """Only these lines."""
        if not isinstance(self.content, bytes):
            end = self.end if end is None else self.begin + end
            return replace(self, begin=self.begin + begin, end=end)
        place = place_of_line(self.content, begin)
        stop = len(self.content) if end is None else place_of_line(self.content, end - begin, place)
        return replace(self, content=self.content[place:stop])

    def holding(self, text: bytes | StoredText) -> Source:
        """The same with another text."""
        return replace(self, content=text, begin=0, end=sys.maxsize)


def place_of_line(text: bytes, line: int, begin: int = 0) -> int:
    """The position at which a line begins, counting from line 0 at `begin`."""
    size = 1 << 16
    while line > 0:
        found = text.count(b"\n", begin, begin + size)
        if found < line and begin + size < len(text):
            line, begin = line - found, begin + size
        elif size > 1 << 10:
            size >>= 3
        else:
            for _ in range(line):
                begin = text.find(b"\n", begin) + 1 or len(text)
            break
    return begin


def from_text(text: str, name: str = "-") -> Source:
    """The text of a log, for example a pasted one."""
    return Source(name, normalise(text.encode("utf-8", "surrogatepass")))


def from_bytes(data: bytes, name: str = "-", *, limit: int = LARGEST_EXPANSION_BYTES) -> Source:
    """The content of a file that is in memory, plain or compressed."""
    return Source(printable(os.path.basename(name)), normalise(read_bytes(io.BytesIO(data), limit)))


def from_file(path: str | os.PathLike[str], *, limit: int = LARGEST_EXPANSION_BYTES) -> Source:
    """A file, or a directory that is one run; a record includes its older pieces and other ranks."""
    path = os.fspath(path)
    try:
        if not os.path.isdir(path):
            source = plain_file(path, limit=limit)
            if source.head(len(RECORD)) != RECORD:
                return source
            return _with_ranks(_whole_record(source, path, limit), path, limit)
        name = printable(os.path.basename(os.path.normpath(path)))
        if is_run_directory(path):
            return plain_file(os.path.join(path, LOG_FILE), limit=limit)
        files = wandb_files(path)
        metrics = mlflow_files(path)
        if metrics:
            lines = chain.from_iterable(_mlflow_lines(file, tag, limit) for file, tag in metrics)
            return Source(name, content_of_parts(lines, limit))
        if files is None:  # any other directory cannot be read (Windows would call it a lack of permission)
            return Source(name, _events(event_files(path), limit))
        output, beside = files
        content = plain_file(output, limit=limit).content if output is not None else b""
        return Source(name, content, tuple(plain_file(file, limit=limit) for file in beside))
    except OSError as error:
        raise unreadable(path, error) from error


def from_pieces(paths: Sequence[str], *, limit: int = LARGEST_EXPANSION_BYTES) -> Source:
    """The pieces of a rotated log as one text; the oldest comes first in `paths`."""
    texts = [plain_file(path, limit=limit).text for path in paths]
    whole = b"".join(text if text.endswith(b"\n") else text + b"\n" for text in texts)
    source = Source(printable(os.path.basename(paths[-1])), whole)
    try:
        return _with_ranks(source, paths[-1], limit) if whole.startswith(RECORD) else source
    except OSError as error:
        raise unreadable(paths[-1], error) from error


def from_event_files(files: Sequence[str], name: str, *, limit: int = LARGEST_EXPANSION_BYTES) -> Source:
    """The event files of one run, in order of time."""
    try:
        return Source(printable(name), _events(files, limit))
    except OSError as error:
        raise unreadable(name, error) from error


def from_stdin(*, limit: int = LARGEST_EXPANSION_BYTES) -> Source:
    """Standard input, decompressed if necessary."""
    if sys.stdin is None:  # closed by the process that started us
        return Source("-", b"")
    try:
        return Source("-", content_of(sys.stdin.buffer, limit))
    except OSError as error:
        raise unreadable("-", error) from error


def plain_file(path: str, *, limit: int) -> Source:
    """One file, without others that belong to it. Errors name this file, even if it is only one of a run's files."""
    try:
        with ExitStack() as open_files:
            stream = open_files.enter_context(opened_to_follow(path))
            content = content_of(stream, limit)
            written_s = os.fstat(stream.fileno()).st_mtime
            if not isinstance(content, bytes) and content.keeps(stream):  # it closes the stream later
                open_files.pop_all()
    except OSError as error:
        raise unreadable(path, error) from error
    return Source(printable(os.path.basename(path)), content, written_s=written_s)


def _with_ranks(source: Source, path: str, limit: int) -> Source:
    """Adds the other ranks. Long records stay in their files, unless these are more than this process may have open."""
    files = ranks_beside(path)
    beside = []
    for file in files:
        rank = replace(plain_file(file, limit=limit), written_s=None)
        if rank.head(len(RECORD)) == RECORD:
            rank = _whole_record(rank, file, limit)
            beside.append(rank if 2 * len(files) < open_files_limit() else rank.holding(rank.text))
    return replace(source, beside=tuple(beside))


def _whole_record(source: Source, path: str, limit: int) -> Source:
    if not is_continued(source.head(READ_BYTES)):
        return source
    return source.holding(whole_record(source.text, path, lambda file: plain_file(file, limit=limit).text))


def _mlflow_lines(file: str, tag: str, limit: int) -> Iterator[bytes]:
    """The lines of a metric, each followed by its name, or a parameter on one line."""
    kind, _, name = printable("_".join(tag.split())).partition("/")
    behind = name.encode("utf-8", "replace")
    for block in plain_file(file, limit=limit).blocks():
        if kind == "params":
            yield b"param %b %b\n" % (behind, block.strip().partition(b"\n")[0])
            return
        lines = (line.rstrip() for line in block.split(b"\n"))
        yield b"".join(b"%b %b\n" % (line, behind) for line in lines if line)


def _events(files: Sequence[str], limit: int) -> bytes | StoredText:
    sources = (plain_file(file, limit=limit) for file in files)
    blocks = (source.blocks() for source in sources if kind_of(source.head(64)) == "events")
    content = content_of_parts(chain.from_iterable(blocks), limit)
    if not content:
        raise IsADirectoryError
    return content


def samples_of_log(path: str) -> str | None:
    """The path of the samples that belong to a log or to the directory of a run, if there are any."""
    if os.path.isdir(path):
        return path if is_run_directory(path) else None
    if os.path.basename(path) == LOG_FILE and is_run_directory(os.path.dirname(path) or "."):
        return os.path.dirname(path) or "."
    found = os.path.splitext(path)[0] + SAMPLES_SUFFIX
    return found if os.path.isfile(path) and os.path.isfile(found) else None


def printable(name: str) -> str:
    """A file name that is safe to print: it may contain bytes that are not text, or commands to a terminal."""
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
    """Whether a text begins like a JSON object but is not valid JSON."""
    if not text.lstrip().startswith(b"{"):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return True
    return False


def cut_off(name: str) -> NoIterations:
    return NoIterations(
        Message("“{name:word}” is cut off: its JSON has no end", {"name": name}),
        Message("copy the whole file, or give the trainer's console output"),
    )
