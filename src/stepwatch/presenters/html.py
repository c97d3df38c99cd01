"""Writes any document as HTML: a file that needs no network, or a part of another page."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from stepwatch.i18n import LANGUAGES, clean, joined, say
from stepwatch.i18n.languages import TABLE
from stepwatch.messages import Message
from stepwatch.presenters import document as doc
from stepwatch.presenters import run_charts, vega
from stepwatch.presenters.bar_charts import stacked_bar
from stepwatch.presenters.document import all_blocks, text_and_code
from stepwatch.presenters.page_files import drawing, engine, page_file, style
from stepwatch.presenters.pictures import svg
from stepwatch.presenters.screen import cell_width, held, printable, wrapped
from stepwatch.presenters.vega import Spec

if TYPE_CHECKING:
    from jinja2 import Environment

LANGUAGE_NAMES = {code: language.name for code, language in TABLE.items()}
_STYLES = {"warning": "alert", "aside": "source"}
_TEXTS = {
    "warning": Message("Warning"),
    "table": Message("The figures as a table"),
    "others": Message("The other runs"),
    "zoom_in": Message("Zoom in"),
    "zoom_out": Message("Zoom out"),
    "zoom_all": Message("Whole run"),
    "click_hint": Message("Click a slow one to see what the log says around it."),
    "zoom_hint": Message("Drag to move; pinch, or Ctrl and the wheel, to zoom."),
}


class Body(NamedTuple):
    """Escaped markup without script or style, and the specification of each chart by its name."""

    html: str
    specs: dict[str, Spec]


def body_of(
    document: doc.Document,
    language: str,
    *,
    reword: Callable[[Message], Message] = lambda message: message,
    picture: Callable[[vega.Plot], str | None] = lambda plot: None,
) -> Body:
    """Each chart is a picture or a place to draw in, plus a table, which is open until the chart is drawn."""
    specs: dict[str, Spec] = {}

    def said(found: str | Message | Iterable[Message] | None) -> str:
        if isinstance(found, str):
            return found
        messages = (found,) if isinstance(found, Message) else found or ()
        return joined(held(say(reword(message), language)) for message in messages)

    def drawn(chart: doc.Chart) -> dict[str, Any] | None:
        """What the template shows of a chart; None if there is nothing to draw."""
        plot = run_charts.plot(chart, language)
        if plot is None:
            return None
        specs[chart.name] = plot.spec
        zooms = any(param["name"] == "zoom_i" for param in plot.spec.get("params", ()))
        drawing = picture(plot)
        return {
            "plot": plot,
            "align": "l" + "r" * (len(plot.head) - 1),
            "zooms": zooms,
            "clicks": bool(plot.spec["datasets"].get("lines")),
            "picture": Markup(drawing) if drawing else None,
        }

    template = _templates().get_template("body.html")
    html = template.render(
        document=document,
        language=language,
        colon=TABLE[language].colon,
        title=title_of(document, language),
        said=said,
        joined=joined,
        drawn=drawn,
        others=[section for section in document.sections if section.anchor and section.folded],
        shares=lambda block: Markup(stacked_bar(block.parts, f"{language}-{block.name}", language)),
    )
    return Body(printable(html), specs)


def title_of(document: doc.Document, language: str) -> str:
    """The title of a tab or a saved file: the log, and the first words of the headline."""
    headlines = (block.paragraphs[0][0] for block in all_blocks(document) if isinstance(block, doc.Headline))
    answer = next(headlines, None) or document.title
    text = say(answer, language) if answer is not None else ""
    first = re.split(r"(?<=[.!?])\s|;\s|。|；", text, maxsplit=1)[0].rstrip(".")
    longest = 70  # letters; a tab shows fewer, a list of files about this many
    said = first if cell_width(first) <= longest else wrapped(first, longest, cut_words=False)[0] + " …"
    about = clean(document.about or "")
    return joined(filter(None, (about and about + TABLE[language].colon, said)))


# --- the whole page ---------------------------------------------------------------------------------------------


def as_page(document: doc.Document, language: str) -> str:
    """A single file in all languages that needs nothing else."""
    bodies = {spoken: body_of(document, spoken) for spoken in LANGUAGES}
    scripts = (engine(), drawing(), page_file("switching.js"))
    chosen = "body:has(#language-{code}:checked) .report[lang={code}] {{ display: block; }}\n"  # without a script too
    sheet = style() + "".join(chosen.format(code=code) for code in LANGUAGES)
    # Nothing may be fetched, and only our own scripts may run.
    allowed = " ".join(f"'{_digest(script)}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src '{_digest(sheet)}'; base-uri 'none'; form-action 'none'"
    )
    return (
        _templates()
        .get_template("page.html")
        .render(
            language=language,
            texts={"skip": say(Message("To the content"), language), "language": say(Message("Language"), language)},
            version=version("stepwatch"),
            languages=list(LANGUAGE_NAMES.items()),
            title=title_of(document, language),
            bodies={spoken: Markup(found.html) for spoken, found in bodies.items()},
            policy=policy,
            style=Markup(sheet),
            charts=Markup(_charts_json(bodies)),
            engine=Markup(scripts[0]),
            drawing=Markup(scripts[1]),
            switching=Markup(scripts[2]),
        )
    )


def as_fragment(document: doc.Document, language: str) -> str:
    """One language, no script: charts are pictures if vl-convert is installed, else tables."""
    scoped = style().replace(":root", ":scope") + ":scope { background: var(--page); padding: .25rem 1rem; }\n"
    body = body_of(document, language, picture=svg)
    return f'<div class="stepwatch"><style>@scope (.stepwatch) {{\n{scoped}}}</style>\n{body.html}</div>'


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _charts_json(bodies: Mapping[str, Body]) -> str:
    """The data once, as it contains no words; the rest of each chart once per language."""
    first = next(iter(bodies.values()))
    specs = {
        spoken: {
            name: {key: value for key, value in spec.items() if key != "datasets"} for name, spec in body.specs.items()
        }
        for spoken, body in bodies.items()
    }
    datasets = {name: spec["datasets"] for name, spec in first.specs.items()}
    text = json.dumps(
        {"specs": specs, "datasets": datasets}, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )
    return text.replace("<", "\\u003c")


@cache
def _templates() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(autoescape=True, loader=FunctionLoader(page_file), undefined=StrictUndefined)
    environment.filters["typed"] = text_and_code
    environment.globals |= {"kind_of": lambda block: type(block).__name__, "number_in": _number_in}
    environment.globals |= {"styles": _STYLES, "texts": _TEXTS}
    return environment


def _number_in(cell: doc.Cell) -> float | None:
    """The number by which a table sorts this cell; None for words."""
    values = cell.params.values() if isinstance(cell, Message) else ()
    return next((value for value in values if isinstance(value, int | float)), None)
