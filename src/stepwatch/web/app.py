"""The application: routes, templates and static files around the API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from stepwatch.answers import own_card
from stepwatch.i18n import LANGUAGES
from stepwatch.messages import Message
from stepwatch.web.api import Api, catalogue, openapi
from stepwatch.web.connections import Complaints
from stepwatch.web.limits import ServerOptions
from stepwatch.web.live_views import LiveViews
from stepwatch.web.page_text import digest, packed, page_text, texts, words
from stepwatch.web.security import Guard, sent
from stepwatch.web.store_view import StoreView
from stepwatch.web.wire import complaint, spoken
from stepwatch.web.workers import Workers

_MEDIA = {".css": "text/css", ".js": "text/javascript", ".log": "text/plain"}
_FOR_A_YEAR = "private, max-age=31536000, immutable"  # the address of a file changes with its content


def create_app(options: ServerOptions) -> Starlette:
    leaving = asyncio.Event()
    workers = Workers(options.limits.workers, options.limits.answer_s, options.limits.queue_s)
    # A single worker keeps all runs that are watched.
    watchers = Workers(1, options.limits.answer_s, options.limits.queue_s, when_asked=True, keep_state=True)
    api = Api(options, workers)
    page = _Page(options)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_exception_handler(Complaints().hear)
        async with workers.running(), watchers.running():
            yield

    async def wrong(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        what = Message("this request is not supported") if status == 405 else Message("not found")
        language = spoken(request.query_params.get("lang"), options.language)
        response = sent(complaint(status, what, Message("see /api/openapi.json for what is available"), language))
        response.headers.update(getattr(error, "headers", None) or {})
        return response

    app = Starlette(
        routes=[
            Route("/", page.show),
            Route("/page/words/{language}.json", page.words),
            Route("/page/{name}", page.file),
            Route("/store", StoreView(options).respond),
            Route("/live", LiveViews(options, api, watchers, leaving).respond),
            Route("/api/explain", api.answering("explain"), methods=["POST"]),
            Route("/api/estimate", api.answering("estimate"), methods=["POST"]),
            Route("/api/advise", api.answering("advise"), methods=["POST"]),
            Route("/api/compare", api.answering("compare"), methods=["POST"]),
            Route("/api/gpus", catalogue, methods=["GET"]),
            Route("/api/gpus", api.answering("gpus"), methods=["POST"]),
            Route("/api/openapi.json", openapi),
        ],
        middleware=[Middleware(Guard, options=options), Middleware(GZipMiddleware, compresslevel=6)],
        exception_handlers={HTTPException: wrong},
        lifespan=lifespan,
    )
    app.state.leaving = leaving
    return app


class _Page:
    """The page and its files."""

    def __init__(self, options: ServerOptions) -> None:
        self._options = options

    async def show(self, request: Request) -> Response:
        # The language in the address or from --lang, else the browser's first one that we have, else the server's.
        accepted = request.headers.get("accept-language", "").split(",")
        preferred = [part.partition(";")[0].strip()[:2] for part in accepted]
        own = (self._options.language,) if self._options.language_asked else ()
        asked = (request.query_params.get("lang"), *own, *preferred)
        language = next((name for name in asked if name in LANGUAGES), self._options.language)
        card = await asyncio.to_thread(own_card)
        text = page_text(
            language,
            own_card=card.name if card is not None else None,
            allowed=bool(self._options.allowed),
            limit=self._options.limits.body_bytes,
        )
        return HTMLResponse(text, headers={"Content-Language": language})

    async def words(self, request: Request) -> Response:
        language = request.path_params["language"]
        if language not in LANGUAGES:
            raise HTTPException(404)
        return JSONResponse(words(language))

    async def file(self, request: Request) -> Response:
        name = request.path_params["name"]
        text = texts().get(name)
        if text is None:
            raise HTTPException(404)
        lasting = request.query_params.get("v") == digest(name)
        headers = {"Cache-Control": _FOR_A_YEAR} if lasting else {}
        media = _MEDIA[Path(name).suffix]
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(text, media_type=media, headers=headers)
        headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        return Response(await asyncio.to_thread(packed, text), media_type=media, headers=headers)
