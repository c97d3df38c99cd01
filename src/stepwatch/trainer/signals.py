"""SIGINT and SIGTERM: the first asks the loop to stop after its step, a second one ends the process at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType


class Stop:
    """Whether someone asked to stop."""

    def __init__(self, under_torchrun: bool) -> None:
        self.asked: str | None = None
        self._under_torchrun = under_torchrun
        self._since = 0.0
        self._before = {number: signal.signal(number, self._take) for number in (signal.SIGINT, signal.SIGTERM)}
        if under_torchrun:
            self._watch()

    def __enter__(self) -> Stop:
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self.asked is None:
            self.asked, self._since = signal.Signals(number).name, time.monotonic()
        # Within 2 s it is the same request: Ctrl-C reaches a rank from the terminal and once more from torchrun.
        elif not self._under_torchrun or time.monotonic() - self._since > 2.0:
            os._exit(128 + number)

    def _watch(self) -> None:
        """Python's handlers wait for the main thread; the pipe is written at once, even while that one is stuck."""
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing)
        threading.Thread(target=self._end_if_stuck, args=(reading,), daemon=True).start()

    def _end_if_stuck(self, pipe: int) -> None:
        number = os.read(pipe, 1)
        time.sleep(15.0)  # torchrun asks because a rank is gone: one that hangs in a collective never ends its step
        if number and self.asked is None:
            os._exit(128 + number[0])
