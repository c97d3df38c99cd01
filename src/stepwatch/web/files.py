"""The scripts and styles of the page, by their names."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from stepwatch.presenters.html import drawing, style

PLACE = Path(__file__).parent / "page"
_ENGINE = "import sys; from stepwatch.presenters.html import engine; sys.stdout.buffer.write(engine().encode())"


class Files:
    def __init__(self) -> None:
        self._engine: asyncio.Task[str] | None = None

    @asynccontextmanager
    async def preparing(self) -> AsyncIterator[None]:
        self._engine = asyncio.create_task(_engine())
        try:
            yield
        finally:
            self._engine.cancel()
            await asyncio.gather(self._engine, return_exceptions=True)

    async def all(self) -> Mapping[str, str]:
        assert self._engine is not None
        return {**_own(), "engine.js": await asyncio.shield(self._engine)}


@cache
def _own() -> Mapping[str, str]:
    own = {name: (PLACE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js")}
    return {**own, "report.css": style(), "charts.js": drawing()}


_built: list[str] = []  # once for all applications of a process


async def _engine() -> str:
    """Put together by a process of its own: it takes seconds in which this one would answer nobody."""
    if _built:
        return _built[0]
    process = await asyncio.create_subprocess_exec(sys.executable, "-P", "-c", _ENGINE, stdout=PIPE, stderr=DEVNULL)
    try:
        text, _ = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    _built.append(text.decode())
    return _built[0]


@cache
def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
