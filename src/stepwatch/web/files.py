"""The scripts and styles of the page by their names, packed once."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from stepwatch.presenters.html import drawing, engine, style

PLACE = Path(__file__).parent / "page"
SCRIPTS = ("words", "engines", "asking", "showing", "watching", "forms", "start")
"""The parts of page.js, in their order."""


def addresses() -> dict[str, str]:
    """Each changes with the text that it leads to."""
    return {name: f"page/{name}?v={digest(name)}" for name in texts()}


@cache
def texts() -> Mapping[str, str]:
    """All files by their names."""
    parts = [(PLACE / f"{part}.js").read_text(encoding="utf-8") for part in SCRIPTS]
    names = ("page.css", "example.log", "store.js", "worker.js")
    own = {name: (PLACE / name).read_text(encoding="utf-8") for name in names}
    own |= {"page.js": "\n".join(('"use strict";', *parts)), "report.css": style(), "charts.js": drawing()}
    return {**own, "engine.js": engine()}


@cache
def digest(name: str) -> str:
    """Of the text of a file."""
    return hashlib.sha256(texts()[name].encode()).hexdigest()[:16]


@cache
def packed(text: str) -> bytes:
    return gzip.compress(text.encode(), mtime=0)
