"""Who answers the page where there is no server: its Web Worker calls this, in the Python of the browser."""

from __future__ import annotations

import json

from stepwatch.web.replies import reply_to, safely
from stepwatch.web.wire import Asked

_WARMING = b"iter 0: loss 4.2000, time 100.00ms, mfu 9.00%\n"


def answer(kind: str, query: str, body: memoryview | bytes, limit: int) -> tuple[int, bytes]:
    """The same as a worker of the server gives; the query is a list of pairs in JSON."""
    asked = Asked(kind, "application/octet-stream", json.loads(query), bytes(body), limit, "en")
    reply = safely(reply_to, asked)
    return reply.status, reply.body


def warm() -> None:
    """The first question should not wait for what loads when first used."""
    answer("explain", '[["format", "page"]]', _WARMING, len(_WARMING))
