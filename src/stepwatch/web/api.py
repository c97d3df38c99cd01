"""The JSON API: each request is received in full, within limits, and answered by a worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from stepwatch.answers import cards
from stepwatch.errors import StepwatchError, TooLarge
from stepwatch.messages import Message
from stepwatch.presenters import render
from stepwatch.presenters.page_wording import on_page
from stepwatch.web.limits import Limits, ServerOptions
from stepwatch.web.openapi import document
from stepwatch.web.places import Forbidden, contents
from stepwatch.web.security import sent
from stepwatch.web.wire import JSON, Asked, Reply, complaint, spoken, too_large
from stepwatch.web.workers import Lost, Overdue, Workers

MEDIA = (JSON, "text/plain", "application/gzip", "application/x-gzip", "application/octet-stream")


class Refusal(Exception):
    """The question does not reach a worker; carries the reply to send instead."""

    def __init__(self, reply: Reply, *, retry: bool = False) -> None:
        super().__init__(reply.status)
        self.reply = reply
        self.retry = retry


@dataclass(slots=True)
class Intake:
    """The memory held by waiting requests; beyond its limits new requests are refused."""

    limits: Limits
    waiting: int = field(default=0)
    held_bytes: int = field(default=0)

    @contextmanager
    def place(self, language: str) -> Iterator[Callable[[int], None]]:
        """A place in the queue; yields a function that reports how many more bytes were received for it."""
        if self.waiting >= self.limits.waiting:
            raise busy(language)
        self.waiting += 1
        own = 0

        def hold(count: int) -> None:
            nonlocal own
            if self.held_bytes + count > self.limits.held_bytes:
                raise busy(language)
            own += count
            self.held_bytes += count

        try:
            yield hold
        finally:
            self.waiting -= 1
            self.held_bytes -= own


def busy(language: str) -> Refusal:
    what, remedy = Message("too many requests at once"), Message("try again in a few seconds")
    return Refusal(complaint(503, what, remedy, language), retry=True)


class Api:
    """The routes below /api/. A new question needs one more entry in the table of options and in the routes."""

    def __init__(self, options: ServerOptions, workers: Workers) -> None:
        self._options = options
        self._workers = workers
        self._intake = Intake(options.limits)

    def answering(self, kind: str) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            try:
                return sent(await self._answer(kind, request))
            except Refusal as refusal:
                response = sent(refusal.reply)
                if refusal.retry:
                    response.headers["Retry-After"] = "5"  # seconds
                return response

        return respond

    async def _answer(self, kind: str, request: Request) -> Reply:
        language = self.language(request)
        media = request.headers.get("content-type", MEDIA[-1]).partition(";")[0].strip().lower()
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        if media not in MEDIA or encoding not in ("identity", "gzip"):
            what = Message("a body of that kind cannot be read")
            remedy = Message("send it as one of: {names:word}", {"names": ", ".join(MEDIA)})
            raise Refusal(complaint(415, what, remedy, language))
        query = [[name, value] for name, value in request.query_params.multi_items() if name != "path"]
        with self._intake.place(language) as hold:
            path = request.query_params.get("path") if kind == "explain" else None
            body = await self._body(request, hold, language) if path is None else await self.log(path, language)
            limits = self._options.limits
            media = media if path is None else "text/plain"
            return await self.put(Asked(kind, media, query, body, limits.body_bytes, language))

    async def put(self, asked: Asked) -> Reply:
        """The answer of a worker, or the reason why there is none."""
        try:
            return await self._workers.ask(asked)
        except Overdue:
            what = Message("the answer took longer than {limit:time}", {"limit": self._options.limits.answer_s})
            remedy = Message("cut out the part you want explained")
            raise Refusal(complaint(503, what, remedy, asked.spoken())) from None
        except Lost:
            what = Message("the worker that computed the answer was ended, probably for lack of memory")
            remedy = Message("try again; if that does not help, cut out the part you want explained")
            raise Refusal(complaint(503, what, remedy, asked.spoken()), retry=True) from None

    async def log(self, path: str, language: str) -> bytes:
        """The content of a log on this machine."""
        limit = self._options.limits.body_bytes
        try:
            return await asyncio.to_thread(contents, path, self._options.allowed, limit)
        except StepwatchError as error:
            raise refusal_of(error, limit, language) from error

    async def _body(self, request: Request, hold: Callable[[int], None], language: str) -> bytes:
        limits = self._options.limits
        body = bytearray()
        incoming = _Incoming(request)
        try:
            async with asyncio.timeout(limits.arrive_s):
                async for part in incoming:
                    if len(body) + len(part) > limits.body_bytes:
                        body.clear()
                        raise Refusal(too_large(limits.body_bytes, language))
                    hold(len(part))
                    body += part
        except TimeoutError:
            what = Message("the log did not arrive in time")
            raise Refusal(complaint(408, what, None, language)) from None
        except Refusal:
            await incoming.drain()
            raise
        return bytes(body)

    def language(self, request: Request) -> str:
        return spoken(request.query_params.get("lang"), self._options.language)


def refusal_of(error: StepwatchError, limit: int, language: str) -> Refusal:
    if isinstance(error, TooLarge):
        return Refusal(too_large(limit, language))
    status = 403 if isinstance(error, Forbidden) else 400
    remedy = on_page(error.remedy) if error.remedy is not None else None
    return Refusal(complaint(status, error.what, remedy, language, about="path"))


class _Incoming:
    """The parts of a body as they arrive."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._more = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self._more:
            event = await self._request.receive()
            if event["type"] == "http.disconnect":
                raise ClientDisconnect
            self._more = event.get("more_body", False)
            yield event.get("body", b"")

    async def drain(self) -> None:
        """Reads on for a while and discards everything: most clients only listen once they have sent all of it."""
        read = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(5.0):  # a slower client does not learn the reason
                async for part in self:
                    read += len(part)
                    if read > 256 * 10**6:  # four times the most that may be sent
                        return


async def catalogue(request: Request) -> Response:
    return Response(render(cards(), "json", "en"), media_type=JSON)


async def openapi(request: Request) -> Response:
    return JSONResponse(document())
