"""The page itself: the template with its words, cards and settings, for either of those who answer it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from stepwatch.answers import cards
from stepwatch.i18n.languages import TABLE
from stepwatch.options import OPTIONS
from stepwatch.settings import KINDS, PRIVATE
from stepwatch.web.files import PLACE, addresses
from stepwatch.web.page_words import words


class InBrowser(NamedTuple):
    """What a page without a server needs: where its parts are, relative to it, and what it may load."""

    worker: str
    """The script that runs Python."""
    python: str
    """The folder of Pyodide and of the packages."""
    examples: str
    links: Mapping[str, str]
    """Further pages, by the names of the words for them."""
    policy: str
    """The Content-Security-Policy, since there is nobody to send it as a header."""


def page_text(
    language: str,
    *,
    limit: int,
    own_card: str | None = None,
    allowed: bool = False,
    in_browser: InBrowser | None = None,
) -> str:
    """`allowed`: whether there is a directory whose logs may be watched."""
    templates = Environment(
        loader=FileSystemLoader(PLACE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return templates.get_template("index.html").render(
        words=words(language),
        language=language,
        languages={code: each.name for code, each in TABLE.items()},
        version=version("stepwatch"),
        cards=sorted(card.name for card in cards()),
        own_card=own_card,
        models=OPTIONS["model"].choices,
        settings=[name for name in KINDS if name not in PRIVATE],
        allowed=allowed,
        limit=limit,
        files=addresses(),
        in_browser=in_browser,
    )
