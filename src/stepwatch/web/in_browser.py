"""Answers the page if there is no server: its Web Worker calls this, in the browser's Python."""

from __future__ import annotations

import json

from stepwatch.web.replies import reply_or_error, reply_to
from stepwatch.web.wire import Asked

_WARMING = b"iter 0: loss 4.2000, time 100.00ms, mfu 9.00%\n"


def answer(kind: str, query: str, body: memoryview | bytes, limit: int) -> tuple[int, bytes]:
    """The same reply as from a worker of the server; the query is a list of pairs in JSON."""
    asked = Asked(kind, "application/octet-stream", json.loads(query), bytes(body), limit, "en")
    reply = reply_or_error(reply_to, asked)
    return reply.status, reply.body


def warm() -> None:
    """Loads what is only loaded when first used, so that the first question does not wait for it."""
    answer("explain", '[["format", "page"]]', _WARMING, len(_WARMING))
