"""The application: routes, templates and static files around the API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from stepwatch.estimator.plan import MODEL_NAMES
from stepwatch.gpus import gpus
from stepwatch.i18n import LANGUAGES
from stepwatch.i18n.languages import TABLE
from stepwatch.messages import Message
from stepwatch.settings import KINDS, PRIVATE
from stepwatch.web.api import Api, cards, openapi
from stepwatch.web.files import PLACE, Files, digest
from stepwatch.web.live import LiveViews
from stepwatch.web.options import Options
from stepwatch.web.security import Guard, sent
from stepwatch.web.wire import complaint, spoken
from stepwatch.web.words import words
from stepwatch.web.workers import Workers

_LANGUAGE_NAMES = {code: language.name for code, language in TABLE.items()}
_MEDIA = {".css": "text/css", ".js": "text/javascript"}
_FOR_A_YEAR = "private, max-age=31536000, immutable"  # the address of a file changes with its text


def create_app(options: Options) -> Starlette:
    leaving = asyncio.Event()
    workers = Workers(options.limits.workers, options.limits.answer_s, options.limits.queue_s)
    api = Api(options, workers)
    files = Files()
    page = _Page(options, files)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with workers.running(), files.preparing():
            yield

    async def wrong(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        what = Message("that cannot be asked in this way") if status == 405 else Message("there is nothing here")
        language = spoken(request.query_params.get("lang"), options.language)
        response = sent(complaint(status, what, Message("see /api/openapi.json for what there is"), language))
        response.headers.update(getattr(error, "headers", None) or {})
        return response

    app = Starlette(
        routes=[
            Route("/", page.show),
            Route("/page/words/{language}.json", page.words),
            Route("/page/{name}", page.file),
            Route("/live", LiveViews(options, api, leaving).respond),
            Route("/api/explain", api.asked("explain"), methods=["POST"]),
            Route("/api/estimate", api.asked("estimate"), methods=["POST"]),
            Route("/api/advise", api.asked("advise"), methods=["POST"]),
            Route("/api/gpus", cards),
            Route("/api/openapi.json", openapi),
        ],
        middleware=[Middleware(Guard, options=options)],
        exception_handlers={HTTPException: wrong},
        lifespan=lifespan,
    )
    app.state.leaving = leaving
    return app


class _Page:
    """The page and its files."""

    def __init__(self, options: Options, files: Files) -> None:
        self._options = options
        self._files = files
        templates = Environment(
            loader=FileSystemLoader(PLACE), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
            lstrip_blocks=True,
        )  # fmt: skip
        self._template = templates.get_template("index.html")

    async def show(self, request: Request) -> Response:
        language = self._language(request)
        files = await self._files.all()
        text = self._template.render(
            words=words(language), language=language, languages=_LANGUAGE_NAMES, version=version("stepwatch"),
            cards=_card_names(), own_card=await asyncio.to_thread(_own_card), models=MODEL_NAMES,
            settings=[name for name in KINDS if name not in PRIVATE], allowed=bool(self._options.allowed),
            limit=self._options.limits.body_bytes,
            files={name: f"page/{name}?v={digest(text)}" for name, text in files.items()},
        )  # fmt: skip
        return HTMLResponse(text, headers={"Content-Language": language})

    async def words(self, request: Request) -> Response:
        language = request.path_params["language"]
        if language not in LANGUAGES:
            raise HTTPException(404)
        return JSONResponse(words(language))

    async def file(self, request: Request) -> Response:
        name, files = request.path_params["name"], await self._files.all()
        if name not in files:
            raise HTTPException(404)
        text = files[name]
        lasting = request.query_params.get("v") == digest(text)
        headers = {"Cache-Control": _FOR_A_YEAR} if lasting else {}
        return Response(text, media_type=_MEDIA[Path(name).suffix], headers=headers)

    def _language(self, request: Request) -> str:
        """Asked for in the address or by --lang, else the browser's first that we speak, else the server's."""
        preferred = [
            part.partition(";")[0].strip()[:2] for part in request.headers.get("accept-language", "").split(",")
        ]
        own = (self._options.language,) if self._options.language_asked else ()
        asked = (request.query_params.get("lang"), *own, *preferred)
        return next((name for name in asked if name in LANGUAGES), self._options.language)


@cache
def _card_names() -> tuple[str, ...]:
    return tuple(sorted(card.name for card in gpus()))


@cache
def _own_card() -> str | None:
    """What the driver knows; asked once, since cards do not come and go."""
    from stepwatch.errors import UnknownGpu
    from stepwatch.gpus import this_card

    try:
        return this_card().gpu.name
    except UnknownGpu:
        return None
