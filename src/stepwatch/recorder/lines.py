"""The recorder's file: appended line by line, without errors and without delaying the training.

Each line is one write to the system, so that a killed process loses at most the line it was writing. A write that
fails is counted and reported once. If a write takes long, a thread does the writing from then on. A file that another
process writes to is left alone.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import queue
import stat
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from time import perf_counter, time

from stepwatch.platforms import WITHOUT_WAITING, claim

_LOOKS_EVERY_BYTES = 32_768  # some hundred lines between two checks that the file is still in place


class WarnOnce:
    """Reports each kind of trouble once. A warning that the program turned into an error stays a warning."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def say(self, kind: str, text: str) -> None:
        if kind in self._said:
            return
        self._said.add(kind)
        with contextlib.suppress(Exception):
            # The line to show is in the program that uses the recorder, so many calls above this one.
            here, level = os.path.dirname(__file__), 1
            frame = sys._getframe()
            while frame.f_back is not None and os.path.dirname(frame.f_code.co_filename) == here:
                frame, level = frame.f_back, level + 1
            warnings.warn(f"stepwatch: {text}", RuntimeWarning, stacklevel=level)


class Lines:
    """A file that lines are appended to; it and every further piece of it begin with `head`."""

    __slots__ = (
        "__weakref__",
        "_behind",
        "_closed",
        "_descriptor",
        "_head",
        "_last_line_incomplete",
        "_lost",
        "_os_write",
        "_rotate_bytes",
        "_thread",
        "_trouble",
        "_until_look",
        "append",
        "path",
    )  # fmt: skip

    def __init__(
        self, path: str, trouble: WarnOnce, head: Callable[[bool], bytes], *, rotate_bytes: int | None = None,
        write: Callable[[int, bytes], int] = os.write,
    ) -> None:  # fmt: skip
        self.path, self._trouble, self._head, self._rotate_bytes = path, trouble, head, rotate_bytes
        self._os_write = write
        self.append: Callable[[bytes, float], None] = self._write
        """A line with its newline, and perf_counter's time. Never raises."""
        self._descriptor, self._until_look, self._lost = -1, 0, 0
        self._last_line_incomplete = self._closed = False
        self._behind: queue.SimpleQueue[bytes | None] | None = None
        self._thread: threading.Thread | None = None
        self._open()
        self._begin(continued=False)
        _all.add(self)

    def close(self) -> None:
        if self._behind is not None and self._thread is not None:
            self._behind.put(None)
            self._thread.join(timeout=5.0)  # then the program may end
        self._shut()
        self._closed = True

    # --- writing ------------------------------------------------------------------------------------------------

    def _write(self, line: bytes, now: float) -> None:
        """`now` is perf_counter's time before the write: a slow one is the last that the training waits for."""
        try:
            if (self._lost or self._last_line_incomplete) and not self._reports_loss():
                self._lost += 1
                return
            write = self._os_write  # as a local name: looking up an attribute takes longer
            written = write(self._descriptor, line)
        except OSError as error:
            self._lose(error.strerror)
            return
        if written != len(line):
            self._last_line_incomplete = True
            self._lose("the disk is full")
        self._until_look = left = self._until_look - written
        if left < 0:
            self._look()
        if perf_counter() - now > 0.1:  # a slow disk
            self._switch_to_background_writer()

    def _lose(self, reason: str | None) -> None:
        self._lost += 1
        if self._descriptor >= 0:
            self._trouble.say("write", f"{self.path} cannot be written ({reason}): the training goes on")
        elif self._closed:
            self._trouble.say("closed", f"{self.path} is closed: nothing more is recorded")

    def _reports_loss(self) -> bool:
        """Ends a torn line and says how many are missing. All or nothing: else the next line would be glued to it."""
        line = b'{"lost":%d,"t":%.6f}\n' % (self._lost, time()) if self._lost else b""
        line = b"\n" + line if self._last_line_incomplete else line
        if self._os_write(self._descriptor, line) != len(line):
            self._last_line_incomplete = True
            return False
        self._lost, self._last_line_incomplete = 0, False
        return True

    # --- the file -----------------------------------------------------------------------------------------------

    def _open(self) -> None:
        try:
            folder = os.path.dirname(self.path)
            if folder:
                os.makedirs(folder, exist_ok=True)
            stem, suffix = os.path.splitext(self.path)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | WITHOUT_WAITING
            for number in itertools.count(1):  # run-2.jsonl, …: with a dot it would look like a piece of the first file
                path = self.path if number == 1 else f"{stem}-{number}{suffix}"
                self._descriptor = os.open(path, flags, 0o666)
                if claim(self._descriptor):
                    break
                self._shut()
            if path != self.path:
                self._trouble.say("shared", f"{self.path} is written by another process: this one writes {path}")
                self.path = path
            state = os.fstat(self._descriptor)
            if stat.S_ISREG(state.st_mode) and state.st_size > 0:  # a killed process may have torn its last line
                with open(self.path, "rb") as stream:
                    stream.seek(-1, os.SEEK_END)
                    self._last_line_incomplete = stream.read(1) != b"\n"
            else:
                self._last_line_incomplete = False
        except OSError as error:
            self._shut()
            self._trouble.say("open", f"{self.path} cannot be opened ({error.strerror}): nothing is recorded")

    def _begin(self, continued: bool) -> None:
        """Writes the header without checking the size: the header alone may be larger than a piece should be."""
        head = self._head(continued)
        if self._rotate_bytes is not None:
            self._rotate_bytes = max(self._rotate_bytes, 2 * len(head))  # a piece holds more than its header
        self._until_look = _LOOKS_EVERY_BYTES
        self._write(head, math.inf)
        self._until_look = min(_LOOKS_EVERY_BYTES, self._rotate_bytes or _LOOKS_EVERY_BYTES) - len(head)

    def _shut(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _look(self) -> None:
        """Puts a full piece aside; starts a file again that was moved or removed."""
        self._until_look = _LOOKS_EVERY_BYTES
        try:
            state, there = os.fstat(self._descriptor), os.stat(self.path) if os.path.exists(self.path) else None
        except OSError:
            return
        moved = there is None or not os.path.samestat(state, there)
        full = self._rotate_bytes is not None and not moved and state.st_size >= self._rotate_bytes
        if self._rotate_bytes is not None and not moved:
            self._until_look = min(_LOOKS_EVERY_BYTES, max(self._rotate_bytes - state.st_size, 0))
        if not moved and not full:
            return
        self._shut()  # Windows cannot rename an open file
        if full:  # run.jsonl becomes run.jsonl.1, which becomes .2, like logrotate; nothing is removed
            last = next(number for number in itertools.count(1) if not os.path.exists(f"{self.path}.{number}"))
            try:
                for number in range(last, 1, -1):
                    os.rename(f"{self.path}.{number - 1}", f"{self.path}.{number}")
                os.rename(self.path, f"{self.path}.1")
                moved = True
            except OSError as error:
                self._rotate_bytes = None
                self._trouble.say("rotate", f"{self.path} cannot be put aside ({error.strerror}): it goes on growing")
        self._open()
        if moved:
            self._begin(continued=True)

    def leave_to_parent(self) -> None:
        """In a forked process: whatever it would write, the parent writes."""
        self.append = lambda line, now: None
        self._shut()

    # --- a slow disk --------------------------------------------------------------------------------------------

    def _switch_to_background_writer(self) -> None:
        """From now on a thread writes, and the training only hands over its lines."""
        self._trouble.say("slow", f"{self.path} is slow to write: lines follow behind, and a kill may lose some")
        lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

        def append(line: bytes, _: float) -> None:
            if lines.qsize() < 100_000:
                lines.put(line)
            else:
                self._trouble.say("behind", f"{self.path} is too slow to write: lines are left out")

        def write() -> None:
            while (line := lines.get()) is not None:
                self._write(line, math.inf)

        self._behind, self.append = lines, append
        self._thread = threading.Thread(target=write, name="stepwatch-recorder", daemon=True)
        self._thread.start()


_all: weakref.WeakSet[Lines] = weakref.WeakSet()


def leave_all_to_parent() -> None:
    for lines in list(_all):
        lines.leave_to_parent()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=leave_all_to_parent)
