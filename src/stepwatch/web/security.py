"""Who may ask: Host, Origin and token are checked before anything else, and every answer gets the security headers."""

from __future__ import annotations

import secrets
import sys

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as Event

from stepwatch.messages import Message
from stepwatch.web.limits import ServerOptions, may_be_called
from stepwatch.web.wire import Reply, complaint, spoken

COOKIE = "stepwatch"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers would send the Origin “null”
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
_OWN_SITE = ("same-origin", "none")  # none: typed into the address bar, or from a bookmark


class Guard:
    """Wraps everything else, so that nothing is answered without it."""

    def __init__(self, app: ASGIApp, options: ServerOptions) -> None:
        self._app = app
        self._options = options
        self._session = secrets.token_urlsafe(32)  # the value of the cookie, so that it does not contain the token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        begun = False

        async def dressed(event: Event) -> None:
            nonlocal begun
            if event["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=event)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if self._options.token is not None and self._in_address(request):
                    headers.append("Set-Cookie", f"{COOKIE}={self._session}; Path=/; HttpOnly; SameSite=Strict")
            await send(event)

        try:
            refusal = self._refusal(request)
            await (self._app if refusal is None else refusal)(scope, receive, dressed)
        except ClientDisconnect:
            pass
        except Exception as error:  # no traceback on the screen, and nothing of the request
            print(f"stepwatch: {type(error).__name__} at {request.url.path}", file=sys.stderr)
            if not begun:
                failed = self._complaint(request, 500, Message("stepwatch failed on this input"))
                await failed(scope, receive, dressed)

    def _refusal(self, request: Request) -> Response | None:
        remedy = Message("use the address that stepwatch serve printed")
        if not may_be_called(_name(request.headers.get("host", "")), self._options):
            return self._complaint(request, 403, Message("this server is not known by that name"), remedy)
        if not _from_here(request):
            return self._complaint(request, 403, Message("requests from other sites are not allowed"), remedy)
        if self._options.token is not None and not self._known(request):
            refusal = self._complaint(request, 401, Message("this server requires a token"), remedy)
            refusal.headers["WWW-Authenticate"] = "Bearer"
            return refusal
        return None

    def _known(self, request: Request) -> bool:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self._is_token(given.strip()):
            return True
        return _same(request.cookies.get(COOKIE, ""), self._session) or self._in_address(request)

    def _in_address(self, request: Request) -> bool:
        """Only the page itself accepts the token in its address, as its first request; then the cookie is used."""
        return request.url.path == "/" and self._is_token(request.query_params.get("token", ""))

    def _is_token(self, given: str) -> bool:
        return _same(given, self._options.token or "")

    def _complaint(self, request: Request, status: int, what: Message, remedy: Message | None = None) -> Response:
        language = spoken(request.query_params.get("lang"), self._options.language)
        return sent(complaint(status, what, remedy, language))


def sent(reply: Reply) -> Response:
    return Response(reply.body, reply.status, media_type=reply.media)


def _same(given: str, known: str) -> bool:
    return bool(known) and secrets.compare_digest(given.encode("utf-8", "replace"), known.encode("utf-8", "replace"))


def _from_here(request: Request) -> bool:
    """No page of another site may send requests, not even by a form or image; links to the page itself are allowed."""
    if request.url.path == "/" and request.method in ("GET", "HEAD"):
        return True
    origin = request.headers.get("origin")
    host = request.headers.get("host", "").lower()
    if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
        return False
    return request.headers.get("sec-fetch-site", "none") in _OWN_SITE


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
