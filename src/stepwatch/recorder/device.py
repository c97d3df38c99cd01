"""How long the device worked on a step, by CUDA events, without ever waiting for it."""

from __future__ import annotations

import sys
from collections import deque
from typing import Any, Protocol


class Event(Protocol):
    """What we use of torch.cuda.Event."""

    def record(self) -> None: ...
    def query(self) -> bool: ...
    def elapsed_time(self, end: Any, /) -> float: ...


class Device:
    """Pairs of events around the steps, read once the device has passed them: a step or two later."""

    def __init__(self) -> None:
        self._idle: list[Event] = []
        self._pending: deque[tuple[int, Event, Event]] = deque()

    def mark(self) -> Event:
        """An event at this place of the stream."""
        event = self._idle.pop() if self._idle else self.new_event()
        event.record()
        return event

    def new_event(self) -> Event:
        event: Event = sys.modules["torch"].cuda.Event(enable_timing=True)
        return event

    def passed(self, step: int, begin: Event, end: Event) -> None:
        self._pending.append((step, begin, end))
        if len(self._pending) > 64:  # events that the card has not reached yet
            self._idle.extend(self._pending.popleft()[1:])

    def finished(self) -> list[tuple[int, float]]:
        """Step and seconds of those the device is done with."""
        done = []
        while self._pending and self._pending[0][2].query():
            step, begin, end = self._pending.popleft()
            done.append((step, begin.elapsed_time(end) * 1e-3))  # from milliseconds
            self._idle += [begin, end]
        return done


def cuda_in_use() -> bool:
    """Whether the training has begun to use CUDA; asking never begins it."""
    torch = sys.modules.get("torch")
    try:
        return torch is not None and bool(torch.cuda.is_initialized())
    except Exception:
        return False
