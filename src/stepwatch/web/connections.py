"""Limits the number of connections, and closes those that are held without a question.

A client has some seconds to send the head of a request. If all places are taken, the connection that has waited
longest without a question is closed.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from stepwatch.platforms import open_files_limit

MOST = 400


def most_connections() -> int:
    """Half of the files that this process may open: workers, logs and the page need some too."""
    return min(MOST, open_files_limit() // 2)


class Connection(H11Protocol):
    head_s = 10.0
    """How long the head of a request may take to arrive; on any network it is a single packet."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) >= (self.limit_concurrency or MOST) and _waiting:
            longest, timer = _waiting.popitem(last=False)
            timer.cancel()
            longest.transport.abort()
        self._note()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._note()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note()

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_question()
        super().connection_lost(exc)

    def _note(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._has_question()
        elif self not in _waiting:
            _waiting[self] = self.loop.call_later(self.head_s, self.transport.abort)

    def _has_question(self) -> None:
        timer = _waiting.pop(self, None)
        if timer is not None:
            timer.cancel()


_waiting: OrderedDict[Connection, asyncio.TimerHandle] = OrderedDict()
"""Connections without a question, longest waiting first."""


class Complaints:
    """Prints what the event loop could not do, one line each and only once: it can fail a thousand times a second."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def hear(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        text = f"{context.get('message', '')} ({type(error).__name__})" if error is not None else context["message"]
        if text not in self._said:
            self._said.add(text)
            print(f"stepwatch: {text}", file=sys.stderr)
