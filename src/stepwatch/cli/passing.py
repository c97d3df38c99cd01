"""Passes a command's output on as it comes, and keeps a copy.

On a terminal the command gets its own terminal, so that colours, bars, the window size and Ctrl-C work as
without us; otherwise it gets pipes. A separate process does this and nothing else: whatever happens to
`stepwatch run`, the training keeps its output.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pty
import selectors
import signal
import struct
import subprocess
import sys
import termios
import time
import tty
from collections.abc import Callable, Sequence

from stepwatch.samples import ARRIVALS_FILE, LOG_FILE

assert sys.platform != "win32"  # nothing here exists there

EXITS = {errno.ENOENT: 127, errno.EACCES: 126}  # as a shell reports a command that cannot be started


def start(command: Sequence[str], directory: str) -> tuple[int, int]:
    """The ids of the process that passes output on, and of the command; the first exits with the code of the second.

    From now on our signals are forwarded to the command.
    """
    answers, reply_to = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    relay_pid = os.fork()
    if relay_pid:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the command itself
        for name in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, lambda number, _: os.kill(relay_pid, number))
        os.close(reply_to)
        with os.fdopen(answers, "rb") as answer:
            pid = answer.read()
        return relay_pid, int(pid or 0)
    os.close(answers)
    code = 1
    try:
        code = _relay(command, directory, reply_to)
    except BaseException as error:
        os.write(2, f"stepwatch: {error}\n".encode())
    finally:
        os._exit(code)


def wait(relay_pid: int, look: Callable[[bool], None] | None = None) -> int:
    """The exit code of the command; `look` is called until it has ended."""
    while look is not None:
        ended, status = os.waitpid(relay_pid, os.WNOHANG)
        look(bool(ended))
        if ended:
            return os.waitstatus_to_exitcode(status)
    _, status = os.waitpid(relay_pid, 0)
    return os.waitstatus_to_exitcode(status)


def _relay(command: Sequence[str], directory: str, reply_to: int) -> int:
    """Starts the command, sends its process id to `reply_to`, and passes its output on until it ends."""
    for name in (signal.SIGINT, signal.SIGQUIT):  # the training decides; we end when it does
        signal.signal(name, signal.SIG_IGN)
    on_terminal = os.isatty(1)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(_Log(directory))
        if on_terminal:
            ours, theirs = pty.openpty()
            _same_size(theirs)
            child = _spawn(command, theirs, theirs, theirs if os.isatty(0) else 0, new_session=True)
            os.close(theirs)
            screens = {ours: 1}
            if os.isatty(0):
                # Keys reach the command as they are typed; the terminal is restored in any case.
                stack.callback(termios.tcsetattr, 0, termios.TCSADRAIN, termios.tcgetattr(0))
                tty.setraw(0)
                signal.signal(signal.SIGWINCH, lambda *_: _same_size(ours))
        else:
            ours, theirs = os.pipe()
            ours_too, errors = (ours, theirs) if os.path.sameopenfile(1, 2) else os.pipe()
            screens = {ours: 1} | ({} if ours_too == ours else {ours_too: 2})
            child = _spawn(command, theirs, errors, 0, new_session=False)
            for end in {theirs, errors}:
                os.close(end)
        for name in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, lambda number, _: _forward(child, number))
        os.write(reply_to, str(child.pid).encode())
        os.close(reply_to)
        _pump(screens, log, ours if on_terminal and os.isatty(0) else None, child)
        code = child.wait()
        return 128 - code if code < 0 else code  # as a shell reports a signal


def _spawn(command: Sequence[str], out: int, err: int, stdin: int, *, new_session: bool) -> subprocess.Popen[bytes]:
    def begin() -> None:
        for name in (signal.SIGINT, signal.SIGQUIT):
            signal.signal(name, signal.SIG_DFL)
        if new_session:
            os.setsid()
            fcntl.ioctl(out, termios.TIOCSCTTY, 0)

    try:
        return subprocess.Popen(command, stdin=stdin, stdout=out, stderr=err, preexec_fn=begin)
    except OSError as error:
        os.write(2, f"stepwatch: {command[0]}: {error.strerror}\n".encode())
        os._exit(EXITS.get(error.errno or 0, 1))


def _pump(screens: dict[int, int], log: _Log, keys_to: int | None, child: subprocess.Popen[bytes]) -> None:
    """Runs until the command has ended and all its output was passed on; its children may hold the pipe open longer."""
    with selectors.DefaultSelector() as selector:
        for source in screens:
            selector.register(source, selectors.EVENT_READ)
        if keys_to is not None:
            selector.register(0, selectors.EVENT_READ)
        left = set(screens)
        while left:
            ready = selector.select(0.2)
            if not ready and child.poll() is not None:
                return
            for key, _ in ready:
                try:
                    data = os.read(key.fd, 1 << 16)  # the size of a pipe on Linux
                except OSError as error:
                    if error.errno != errno.EIO:  # Linux's way to say that the other end of a terminal is closed
                        raise
                    data = b""
                if not data:
                    selector.unregister(key.fd)
                    left.discard(key.fd)
                elif key.fd in screens:
                    log.write(data)
                    try:
                        _write_all(screens[key.fd], data)
                    except OSError:  # the terminal is closed, or nobody reads the pipe: the training goes on
                        screens[key.fd] = os.open(os.devnull, os.O_WRONLY)
                elif keys_to is not None:
                    os.write(keys_to, data)


class _Log:
    """A copy of all output in order of arrival, with the times of arrival.

    If the copy cannot be written, it ends with a message.
    """

    def __init__(self, directory: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._file: int | None = os.open(os.path.join(directory, LOG_FILE), flags, 0o644)
        self._arrivals = os.open(os.path.join(directory, ARRIVALS_FILE), flags, 0o644)
        self._size, self._noted_s = 0, 0.0
        self._pending: tuple[float, int] | None = None

    def __enter__(self) -> _Log:
        return self

    def __exit__(self, *_: object) -> None:
        self._note(self._pending)

    def write(self, data: bytes) -> None:
        if self._file is None:
            return
        now_s = time.time()
        self._size += len(data)
        if now_s - self._noted_s >= 0.05:  # seconds between two notes: far less than between two samples
            self._note(self._pending)
            self._note((now_s, self._size))
            self._noted_s, self._pending = now_s, None
        else:
            self._pending = now_s, self._size
        try:
            _write_all(self._file, data)
        except OSError as error:
            self._file = None
            os.write(2, f"stepwatch: the log is not kept any more: {error.strerror}\n".encode())

    def _note(self, arrival: tuple[float, int] | None) -> None:
        """Notes a time, and how many bytes had arrived by then."""
        if arrival is not None:
            with contextlib.suppress(OSError):
                os.write(self._arrivals, f"{arrival[0]:.3f},{arrival[1]}\n".encode())


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _forward(child: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.send_signal(number)


def _same_size(descriptor: int) -> None:
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(1, termios.TIOCGWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
        fcntl.ioctl(descriptor, termios.TIOCSWINSZ, size)
