"""The text of the page from its words, scripts, styles and template, with a server or without one."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from stepwatch.answers import cards
from stepwatch.i18n import say
from stepwatch.i18n.languages import TABLE
from stepwatch.messages import Message
from stepwatch.options import OPTIONS
from stepwatch.presenters.page_files import drawing, engine, style
from stepwatch.settings import KINDS, PRIVATE

PLACE = Path(__file__).parent / "page"
SCRIPTS = ("words", "engines", "asking", "showing", "watching", "forms", "start")
"""The parts of page.js, in order."""


class InBrowser(NamedTuple):
    """What a page without a server needs: where its parts are, relative to the page, and what it may load."""

    worker: str
    """The script that runs Python."""
    python: str
    """The folder of Pyodide and the packages."""
    examples: str
    links: Mapping[str, str]
    """Further pages, keyed by the names of their words."""
    policy: str
    """The Content-Security-Policy, as there is no server to send it as a header."""


def page_text(
    language: str,
    *,
    limit: int,
    own_card: str | None = None,
    allowed: bool = False,
    in_browser: InBrowser | None = None,
) -> str:
    """`allowed`: whether logs in some directory may be watched."""
    return _template().render(
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


@cache
def _template() -> Template:
    templates = Environment(
        loader=FileSystemLoader(PLACE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return templates.get_template("index.html")


# --- scripts and styles by their names, packed once -------------------------------------------------------------


def addresses() -> dict[str, str]:
    """The address of each file; it changes with the content."""
    return {name: f"page/{name}?v={digest(name)}" for name in texts()}


@cache
def texts() -> Mapping[str, str]:
    """The texts of all files, by name."""
    parts = [(PLACE / f"{part}.js").read_text(encoding="utf-8") for part in SCRIPTS]
    names = ("page.css", "example.log", "store.js", "worker.js")
    own = {name: (PLACE / name).read_text(encoding="utf-8") for name in names}
    own |= {"page.js": "\n".join(('"use strict";', *parts)), "report.css": style(), "charts.js": drawing()}
    return {**own, "engine.js": engine()}


@cache
def digest(name: str) -> str:
    """A digest of the text of a file."""
    return hashlib.sha256(texts()[name].encode()).hexdigest()[:16]


@cache
def packed(text: str) -> bytes:
    return gzip.compress(text.encode(), mtime=0)


# --- words, by their names in the template and the scripts ------------------------------------------------------


WORDS = {
    "tagline": Message("Why was that iteration slow, how long will it take?"),
    "promise": Message("What you paste stays on this machine: nothing is stored, nothing is sent elsewhere."),
    "language": Message("Language"),
    "views": Message("Views"),
    "explain": Message("Explain a log"),
    "estimate": Message("Estimate a run"),
    "advise": Message("Advise"),
    "compare": Message("Compare"),
    "gpus": Message("Cards"),
    "card_or_all": Message("Leave it empty for all of them."),
    "ask_gpus": Message("Show"),
    "watch": Message("Watch a log"),
    "log": Message("Log of the training run"),
    "log_hint": Message("Paste the log here, or drop files anywhere on the page; .gz too."),
    "choose": Message("Choose a file"),
    "take_away": Message("Remove"),
    "card": Message("Card"),
    "card_hint": Message("Type to search: 4070, a100, … Leave it empty if you do not know."),
    "card_needed": Message("Type to search: 4070, a100, …"),
    "own_card": Message("this machine's card"),
    "like": Message("Example line"),
    "like_hint": Message(
        "If the format of the log is unknown: one of its lines with the number and the time of an iteration."
    ),
    "run": Message("Number of the run"),
    "run_hint": Message("If the log has several runs and you want one of them."),
    "missing": Message("Settings that the log does not show"),
    "given": Message("Settings"),
    "setting": Message("Setting"),
    "value": Message("Value"),
    "add": Message("Add a setting"),
    "remove": Message("Remove this setting"),
    "ask_explain": Message("Explain"),
    "ask_estimate": Message("Estimate"),
    "ask_advise": Message("Advise"),
    "ask_compare": Message("Compare"),
    "example": Message("Try an example"),
    "change": Message("Edit"),
    "lines": Message("lines"),
    "pasted": Message("pasted text"),
    "before": Message("Before"),
    "after": Message("After"),
    "before_log": Message("Log of the first run"),
    "after_log": Message("Log of the second run"),
    "compare_hint": Message("Paste the log here, or drop a file on it; .gz too."),
    "advise_text": Message("Log or config; leave it empty for recommended settings"),
    "advise_hint": Message("Paste a log or a config here, or drop a file anywhere on the page."),
    "start": Message("Watch"),
    "stop": Message("Stop"),
    "config": Message("Config of nanoGPT, or nothing for its defaults"),
    "config_hint": Message("Paste the config here, or drop it anywhere on the page. It is read, never executed."),
    "model": Message("Model"),
    "as_config": Message("as the config says"),
    "count": Message("Number of cards"),
    "claim": Message("Is this possible?"),
    "claim_hint": Message("A figure that somebody promised: 100ms for an iteration, 20min for the run, 2M-tokens/s."),
    "path": Message("Path of the log on this machine"),
    "path_hint": Message("It may be growing, and need not exist yet."),
    "nothing_allowed": Message(
        "This page may not read any directory. Whoever starts it allows one, with the option “allow”."
    ),
    "answer": Message("Answer"),
    "save_as": Message("Save as"),
    "working": Message("Working …"),
    "done": Message("Answered."),
    "stale": Message("Out of date: the input has changed since this answer."),
    "charts_missing": Message("The charts could not be loaded; the tables show the same figures."),
    "needs_script": Message("This page needs JavaScript."),
    "stopped": Message("Stopped."),
    "ends": Message("Ends at"),
    "between": Message("nine of ten times between"),
    "monitor": Message("State of the run"),
    "progress": Message("Progress of the run"),
    "events": Message("What happened"),
    "updated": Message("Last look at"),
    "again": Message("The connection broke; trying again …"),
    "too_large": Message("The file is too large for the page."),
    "unreachable": Message("The server does not answer; what you entered is still here. Is it still running?"),
    "empty": Message("Paste a log or choose a file first."),
    "no_card": Message("Name a card first."),
    "no_path": Message("Give the path of a log first."),
    "loading": Message("Loading Python, about 10 MB, the first time only …"),
    "python_missing": Message("Python could not be loaded into this page. Reload it to try again."),
    "lost": Message("the worker that computed the answer was ended, probably for lack of memory"),
    "examples": Message("Examples"),
    "documentation": Message("Documentation"),
    "open_in_page": Message("Open in the page"),
    "why_slow": Message("Why is this iteration slow?"),
    "how_long": Message("How long will it take?"),
    "which_settings": Message("Which settings should I use?"),
}


def words(language: str) -> dict[str, str]:
    return {name: say(text, language) for name, text in WORDS.items()}
