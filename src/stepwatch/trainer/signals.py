"""SIGINT and SIGTERM: the first asks the loop to stop, with a message at once; a second one ends the process at once.

Python calls its handlers between two of its own instructions, and only once for all signals in between: a backward
pass of a minute would hide a second Ctrl-C behind the first. What the system writes to a socket is not delayed, and
each signal is a separate byte; a thread reads them.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether someone asked to stop."""

    def __init__(self, under_torchrun: bool, on_asked: Callable[[str], object] = lambda name: None) -> None:
        """on_asked is called with the name of the first signal, from a thread."""
        self.asked: str | None = None
        self._on_asked = on_asked
        self._under_torchrun = under_torchrun
        self._handled = False
        self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        self._reading, self._writing = socket.socketpair()
        self._writing.setblocking(False)
        self._fd_before = signal.set_wakeup_fd(self._writing.fileno(), warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._listen, name="stepwatch-signals", daemon=True)
        self._thread.start()

    def __enter__(self) -> Stop:
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._fd_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._writing.close()
        self._thread.join()
        self._reading.close()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Without a Python handler nothing is written to the socket; if it is not called, the loop is stuck."""
        self._handled = True

    def _listen(self) -> None:
        since = 0.0
        while number := self._reading.recv(1):
            if number[0] not in _SIGNALS:
                continue
            if self.asked is None:
                self.asked, since = signal.Signals(number[0]).name, time.monotonic()
                self._on_asked(self.asked)
                if self._under_torchrun:
                    threading.Thread(target=self._end_if_stuck, args=(number[0],), daemon=True).start()
            # Within 2 s it is the same request: Ctrl-C reaches a rank from the terminal and again from torchrun.
            elif not self._under_torchrun or time.monotonic() - since > 2.0:
                os._exit(128 + number[0])

    def _end_if_stuck(self, number: int) -> None:
        time.sleep(15.0)  # torchrun asks because a rank is gone: a rank that hangs in a collective never ends its step
        if not self._handled:
            os._exit(128 + number)
