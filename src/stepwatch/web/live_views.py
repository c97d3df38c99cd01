"""A growing log as server-sent events: the state of the run every second, and its report when the log has grown.

The log is read here and fed to a worker, which keeps the run of each view.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from stepwatch.errors import StepwatchError
from stepwatch.messages import Message
from stepwatch.sources.follow import GrowingFile
from stepwatch.web.api import Api, busy, refusal_of
from stepwatch.web.limits import ServerOptions
from stepwatch.web.places import opened, samples_beside, within
from stepwatch.web.security import sent
from stepwatch.web.wire import UNKNOWN_VIEW, Asked, LogUpdate, Reply, complaint
from stepwatch.web.workers import Lost, Overdue, Workers

_SHORTEST_S = 1.0
_NUMBERS = itertools.count()


class LiveViews:
    def __init__(self, options: ServerOptions, api: Api, watchers: Workers, leaving: asyncio.Event) -> None:
        self._options, self._api, self._watchers, self._leaving = options, api, watchers, leaving
        self._open = 0
        self._asking: set[asyncio.Task[Reply]] = set()

    async def respond(self, request: Request) -> Response:
        language = self._api.language(request)
        path = request.query_params.get("path", "")
        if self._open >= self._options.limits.live_views:
            return sent(busy(language).reply)
        self._open += 1  # before the first await, since other requests run during it
        try:
            await asyncio.to_thread(within, path, self._options.allowed)  # the log may not exist yet
        except BaseException as error:
            self._leave()
            if isinstance(error, StepwatchError):
                return sent(self._refusal(error, language))
            raise
        query = [[name, value] for name, value in request.query_params.multi_items() if name not in ("path", "format")]
        return _Stream(self._events(path, [*query, ["format", "page"]], language), self._leave)

    def _leave(self) -> None:
        self._open -= 1

    async def _events(self, path: str, query: list[list[str]], language: str) -> AsyncIterator[str]:
        view = _View(path, self._options, Asked("look", "text/plain", query, b"", 0, language), self._ask)
        last, said = b"", time.monotonic()
        report_at, grown = 0.0, False
        try:
            yield f"retry: {int(_SHORTEST_S * 1000)}\n\n"
            while not self._leaving.is_set():
                begun = time.monotonic()
                report = grown and begun >= report_at
                try:
                    grown |= await view.read()
                    reply = await view.look(report=report)
                    if report:  # a long run must not keep the worker busy
                        report_at, grown = time.monotonic() + max(1.0, 10 * (time.monotonic() - begun)), False
                except StepwatchError as error:
                    reply = self._refusal(error, language)
                except (Overdue, Lost):
                    view.restart()
                    reply = complaint(503, Message("the watching was interrupted and begins again"), None, language)
                if reply.body != last:
                    last, said = reply.body, begun
                    for event in _events_of(reply, view.size):
                        yield event
                elif begun - said > 15.0:  # seconds without an event
                    yield ": still here\n\n"
                    said = begun
                with suppress(TimeoutError):
                    async with asyncio.timeout(_SHORTEST_S):
                        await self._leaving.wait()
        finally:
            view.end()

    def _ask(self, asked: Asked) -> Awaitable[Reply]:
        """Not cancelled when the reader leaves: that would replace the worker, which also keeps the runs of others."""
        task = asyncio.create_task(self._watchers.ask(asked))
        self._asking.add(task)

        def done(task: asyncio.Task[Reply]) -> None:
            self._asking.discard(task)
            if not task.cancelled():
                task.exception()  # marks it as retrieved: nobody may be waiting for it

        task.add_done_callback(done)
        return asyncio.shield(task)

    def _refusal(self, error: StepwatchError, language: str) -> Reply:
        return refusal_of(error, self._options.limits.body_bytes, language).reply


class _Stream(StreamingResponse):
    """Reports its end, even if its first event was never requested."""

    def __init__(self, events: AsyncIterator[str], leave: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


class _View:
    """One log that is watched: how far it was read, and the name by which the worker knows it."""

    def __init__(
        self, path: str, options: ServerOptions, asked: Asked, ask: Callable[[Asked], Awaitable[Reply]]
    ) -> None:
        self._path, self._allowed, self._asked, self._ask = path, options.allowed, asked, ask
        self.restart()

    def restart(self) -> None:
        self._source = GrowingFile(
            os.path.join(self._allowed[0], self._path), opening=lambda path: opened(path, self._allowed)
        )
        self._name = f"{next(_NUMBERS)}"
        self.size = 0
        self._age_s = 0.0
        self._first = True

    async def read(self) -> bool:
        """Passes on new text; returns whether there was any."""
        any_text = False
        while True:
            piece = await asyncio.to_thread(self._source.poll, 0.0)
            self._age_s = piece.age_s
            if piece.anew:
                self.size = 0
            if piece.text or piece.anew:
                any_text = True
                self.size += len(piece.text)
                await self._glance(piece.text, anew=piece.anew, more=True)
            if not piece.more:
                return any_text

    async def look(self, *, report: bool) -> Reply:
        samples = await asyncio.to_thread(samples_beside, self._path, self._allowed) if report else None
        return await self._glance(report=report, samples=samples)

    def end(self) -> None:
        self._source.close()
        self._ask(self._asked._replace(body=LogUpdate(self._name, "", ended=True).before(b"")))

    async def _glance(self, text: bytes = b"", **more: Any) -> Reply:
        glance = LogUpdate(self._name, self._source.name, self._age_s, first=self._first, **more)
        reply = await self._ask(self._asked._replace(body=glance.before(text)))
        self._first &= reply.status != 200
        if reply.status == UNKNOWN_VIEW:
            raise Lost
        return reply


def _events_of(reply: Reply, size: int) -> list[str]:
    found = json.loads(reply.body)
    if reply.status != 200:
        return [_event("problem", found)]
    looked = [_event("look", {**found["look"], "size": size})]
    return [*looked, _event("report", {**found["report"], "size": size})] if "report" in found else looked


def _event(name: str, found: object) -> str:
    return f"event: {name}\ndata: {json.dumps(found, ensure_ascii=False)}\n\n"
