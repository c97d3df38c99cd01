"""The scripts and styles of the page by their names, packed once; the engine of the charts apart, since it is large."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path

from stepwatch.presenters.html import drawing, style

PLACE = Path(__file__).parent / "page"
SCRIPTS = ("words", "asking", "showing", "watching", "forms", "start")
"""The parts of page.js, in their order."""
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

    async def text(self, name: str) -> str | None:
        """None where there is no such file."""
        if name != "engine.js":
            return _own().get(name)
        assert self._engine is not None
        if self._engine.done() and self._engine.exception() is not None:  # the machine had no room for its process
            self._engine = asyncio.create_task(_engine())
        return await asyncio.shield(self._engine)


def addresses() -> dict[str, str]:
    """Each changes with the text that it leads to."""
    return {name: f"page/{name}?v={digest(name)}" for name in (*_own(), "engine.js")}


@cache
def _own() -> Mapping[str, str]:
    parts = [(PLACE / f"{part}.js").read_text(encoding="utf-8") for part in SCRIPTS]
    own = {name: (PLACE / name).read_text(encoding="utf-8") for name in ("page.css", "example.log")}
    return {**own, "page.js": "\n".join(('"use strict";', *parts)), "report.css": style(), "charts.js": drawing()}


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
    if process.returncode:
        raise ChildProcessError(process.returncode)
    _built.append(text.decode())
    return _built[0]


@cache
def digest(name: str) -> str:
    """Of the text of a file; of the engine, which takes seconds to make, by the package that it comes from."""
    text = version("vl-convert-python") if name == "engine.js" else _own()[name]
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def packed(text: str) -> bytes:
    return gzip.compress(text.encode(), mtime=0)
