"""The runs of a store as a page; each answer is made in a separate process, within time limits."""

from __future__ import annotations

import asyncio
import json
import sys
from html import escape

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from stepwatch.i18n import LANGUAGES, say
from stepwatch.messages import Message
from stepwatch.web.limits import ServerOptions
from stepwatch.web.page_text import addresses
from stepwatch.web.security import sent
from stepwatch.web.wire import complaint, spoken

_ASKED = ("where", "since", "by", "source", "run_index")
_PAGE = """<!DOCTYPE html>
<html lang="{language}">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>stepwatch</title>
<link rel="stylesheet" href="{css}"><script defer src="{charts}"></script><script defer src="{script}"></script></head>
<body><main>
<form method="get" action="store"><p><label>{where} <input name="where" value="{condition}" size="40"></label>
<label>{since} <input name="since" value="{moment}" size="10"></label> <button>{ask}</button>
<label>{filter} <input id="filter" type="search"></label></p></form>
<article class="report" lang="{language}">{body}</article>
</main></body></html>
"""


class StoreView:
    """`/store`: all runs, or the report of one if `source` is given."""

    def __init__(self, options: ServerOptions) -> None:
        self._options = options
        self._free = asyncio.Semaphore(options.limits.workers)

    async def respond(self, request: Request) -> Response:
        if self._options.store is None:
            raise HTTPException(404)
        asked = {name: value[:4000] for name in _ASKED if (value := request.query_params.get(name))}
        language = spoken(request.query_params.get("lang"), self._options.language)
        command = ("-m", "stepwatch.fleet.pages", self._options.store, language, json.dumps(asked))
        async with self._free:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
            try:
                body, wrong = await asyncio.wait_for(process.communicate(), self._options.limits.answer_s)
            except (TimeoutError, asyncio.CancelledError):
                process.kill()
                await process.wait()
                return sent(complaint(503, Message("the answer took too long"), None, language))
        if process.returncode == 1:
            what = Message("{text:list}", {"text": wrong.decode("utf-8", "replace")})
            return sent(complaint(422, what, None, language))
        if process.returncode:
            return sent(complaint(500, Message("stepwatch failed on this input"), None, language))
        files = addresses()
        return HTMLResponse(
            _PAGE.format(
                language=language if language in LANGUAGES else "en",
                css=files["report.css"],
                charts=files["charts.js"],
                script=files["store.js"],
                where=escape(say(Message("Only runs with (SQL)"), language)),
                since=escape(say(Message("Since"), language)),
                ask=escape(say(Message("Show"), language)),
                filter=escape(say(Message("Filter the rows"), language)),
                condition=escape(asked.get("where", "")),
                moment=escape(asked.get("since", "")),
                body=body.decode("utf-8"),
            )
        )
