"""A growing log as server-sent events: explained anew whenever it has grown, at most once a second."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from stepwatch.errors import StepwatchError
from stepwatch.web.api import Api, Refusal, busy, refusal_of
from stepwatch.web.limits import ServerOptions
from stepwatch.web.places import Grown, grown
from stepwatch.web.security import sent
from stepwatch.web.wire import Asked

_SHORTEST_S = 1.0


class LiveViews:
    def __init__(self, options: ServerOptions, api: Api, leaving: asyncio.Event) -> None:
        self._options = options
        self._api = api
        self._leaving = leaving
        self._open = 0

    async def respond(self, request: Request) -> Response:
        language = self._api.language(request)
        path = request.query_params.get("path", "")
        state = await self._state(path, language)
        if self._open >= self._options.limits.live_views:
            return sent(busy(language).reply)
        if isinstance(state, Refusal) and state.reply.status == 403:  # a log that is not there yet may still come
            return sent(state.reply)
        query = [[name, value] for name, value in request.query_params.multi_items() if name not in ("path", "format")]
        events = self._events(path, [*query, ["format", "page"]], language)
        return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def _events(self, path: str, query: list[list[str]], language: str) -> AsyncIterator[str]:
        self._open += 1
        try:
            yield f"retry: {int(_SHORTEST_S * 1000)}\n\n"
            last: Grown | bytes | None = None
            said = time.monotonic()
            while not self._leaving.is_set():
                begun = time.monotonic()
                state = await self._state(path, language)
                seen = state if isinstance(state, Grown) else state.reply.body
                if seen != last:
                    last = seen
                    yield await self._event(path, query, language, state)
                    said = time.monotonic()
                elif begun - said > 15.0:  # seconds without a sign of life
                    yield ": still here\n\n"
                    said = begun
                with suppress(TimeoutError):
                    # Twice as long as the last analysis took: a long log must not keep a worker to itself.
                    async with asyncio.timeout(max(_SHORTEST_S, 2.0 * (time.monotonic() - begun))):
                        await self._leaving.wait()
        finally:
            self._open -= 1

    async def _state(self, path: str, language: str) -> Grown | Refusal:
        try:
            return await asyncio.to_thread(grown, path, self._options.allowed)
        except StepwatchError as error:
            return refusal_of(error, self._options.limits.body_bytes, language)

    async def _event(self, path: str, query: list[list[str]], language: str, state: Grown | Refusal) -> str:
        try:
            if isinstance(state, Refusal):
                raise state
            text = await self._api.log(path, language)
            asked = Asked("explain", "text/plain", query, text, self._options.limits.body_bytes, language)
            reply = await self._api.put(asked)
        except Refusal as refusal:
            reply = refusal.reply
        name, found = "problem", json.loads(reply.body)
        if reply.status == 200 and isinstance(state, Grown):
            name, found = "report", {**found, "size": state.size}
        return f"event: {name}\ndata: {json.dumps(found, ensure_ascii=False)}\n\n"
