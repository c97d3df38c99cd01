"""A log that still grows: a file that is polled, or a pipe. Both return whole plain lines, as `sources` does.

A file may not exist yet, be truncated, or be replaced by another; a line may be half written. None of this is an
error, and no line that could be read is lost.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO, NamedTuple, Protocol

from stepwatch.errors import UnreadableInput
from stepwatch.messages import Message
from stepwatch.platforms import opened_to_follow
from stepwatch.sources import printable, unreadable
from stepwatch.sources.contents import PACKINGS, READ_BYTES, kind_of
from stepwatch.sources.stored import LineSplitter


class NewText(NamedTuple):
    """The result of one look at a growing log."""

    text: bytes = b""
    """Whole lines, normalised."""
    more: bool = False
    """More can be read at once."""
    ended: bool = False
    anew: bool = False
    """The file was truncated or replaced since the last look."""
    age_s: float = 0.0
    """How long ago the log was last written to."""


class FollowedLog(Protocol):
    name: str
    has_end: bool
    """A pipe ends; a file may always be written to again."""

    def poll(self, timeout_s: float) -> NewText:
        """What comes within `timeout_s`; returns earlier if the log ends or much has come."""
        ...

    def rest(self) -> bytes:
        """The last line, if it has no end of line."""
        ...

    def close(self) -> None: ...


class GrowingFile:
    """A file, followed by its name: read from its beginning as it grows, even if another file takes its name."""

    has_end = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
        opening: Callable[[str], BinaryIO] = opened_to_follow,
    ) -> None:
        self.path = os.fspath(path)
        self.name = printable(os.path.basename(self.path))
        self._sleep, self._clock, self._opening = sleep, clock, opening
        self._stream: BinaryIO | None = None
        self._place = 0
        self._before = b""
        self._changed_ns = -1
        self._lines = LineSplitter()
        self._opened = False

    def poll(self, timeout_s: float) -> NewText:
        if timeout_s > 0:
            self._sleep(timeout_s)
        try:
            return self._read()
        except FileNotFoundError:  # not there yet, or moved away: the open file may still grow
            return self._read_open() if self._stream is not None else NewText()
        except OSError as error:
            if not self._opened:
                raise unreadable(self.path, error) from error
            # A disk or server that is unavailable for a moment: reopened, the file is read on from the same place.
            with suppress(OSError):
                stream = self._opening(self.path)
                self.close()
                self._stream = stream
            return NewText()

    def rest(self) -> bytes:
        return self._lines.end()

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _read(self) -> NewText:
        named = os.stat(self.path)
        if stat.S_ISDIR(named.st_mode):
            raise IsADirectoryError
        if self._stream is None:
            return self._open(anew=self._opened)
        if not os.path.samestat(named, os.fstat(self._stream.fileno())):
            piece = self._read_open()
            if piece.text or piece.more:  # the old file to its end, then the new one
                return piece
            self.close()
            return self._open(anew=True)
        return self._read_open()

    def _open(self, *, anew: bool) -> NewText:
        self._stream = self._opening(self.path)
        left = self._begin_anew()
        self._opened = True
        piece = self._read_open()
        return piece._replace(text=left + piece.text, anew=anew)

    def _begin_anew(self) -> bytes:
        self._place, self._before, self._changed_ns = 0, b"", -1
        return self._lines.end()

    def _read_open(self) -> NewText:
        assert self._stream is not None
        state = os.fstat(self._stream.fileno())
        age = max(self._clock() - state.st_mtime, 0.0)
        if state.st_mtime_ns == self._changed_ns and state.st_size == self._place:
            return NewText(age_s=age)
        left, anew = b"", state.st_size < self._place or not self._goes_on()
        if anew:
            left = self._begin_anew()
        self._stream.seek(self._place)
        data = self._stream.read(READ_BYTES)
        if self._place == 0 and kind_of(data) in PACKINGS:
            raise UnreadableInput(
                Message("a compressed log does not grow line by line"),
                Message("watch the plain log, or explain this one: stepwatch explain LOG"),
            )
        self._place += len(data)
        self._before = (self._before + data)[-64:]  # other bytes there mean another file under the same name
        more = self._place < state.st_size
        self._changed_ns = -1 if more else state.st_mtime_ns
        return NewText(text=left + self._lines.feed(data), more=more, anew=anew, age_s=age)

    def _goes_on(self) -> bool:
        """Whether what was read last is still there: a file may be truncated and grow again between two looks."""
        assert self._stream is not None
        self._stream.seek(self._place - len(self._before))
        return self._stream.read(len(self._before)) == self._before


class GrowingPipe:
    """A pipe, read by a separate thread so that its writer never waits for us; `tee` gets every byte at once."""

    has_end = True

    def __init__(self, stream: BinaryIO, *, name: str = "-", tee: Callable[[bytes], None] | None = None) -> None:
        self.name = name
        self._lines = LineSplitter()
        self._tee = tee
        self._read_up = bytearray()
        self._over = False
        self._turn = threading.Condition()
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def poll(self, timeout_s: float) -> NewText:
        with self._turn:
            self._turn.wait_for(lambda: self._over or len(self._read_up) >= READ_BYTES, timeout_s)
            data, self._read_up = bytes(self._read_up), bytearray()
            self._turn.notify_all()
            return NewText(text=self._lines.feed(data) if data else b"", ended=self._over)

    def rest(self) -> bytes:
        return self._lines.end()

    def close(self) -> None:
        with self._turn:
            self._over = True

    def _read(self, stream: BinaryIO) -> None:
        try:
            while data := os.read(stream.fileno(), READ_BYTES):
                if self._tee is not None:
                    self._tee(data)
                with self._turn:
                    self._turn.wait_for(lambda: self._over or len(self._read_up) < 1 << 24)  # 16 MB
                    self._read_up += data
                    self._turn.notify_all()
        except (OSError, ValueError):  # the writer, or the reader of what we pass on, is gone
            pass
        if self.name != "-":  # standard input is not ours to close
            stream.close()
        with self._turn:
            self._over = True
            self._turn.notify_all()
