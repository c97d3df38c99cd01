"""Any document as a page: for a file of its own that needs no network, or to stand inside another page."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from stepwatch.i18n import LANGUAGES, say
from stepwatch.messages import Message
from stepwatch.presenters import document as doc
from stepwatch.presenters import vega
from stepwatch.presenters.document import text_and_code
from stepwatch.presenters.screen import held, printable
from stepwatch.presenters.vega import Plot, Spec

if TYPE_CHECKING:
    from jinja2 import Environment

MOST_SECTIONS_ALIKE = 20
"""Of many runs the longest are written out."""
LANGUAGE_NAMES = {"en": "English", "fr": "Français", "de": "Deutsch", "es": "Español"}
_STYLES = {"warning": "alert", "aside": "source"}


class Body(NamedTuple):
    """Escaped markup without script or style, and the specification of each chart by its name."""

    html: str
    specs: dict[str, Spec]


def body_of(document: doc.Document, language: str, *, static: bool = True) -> Body:
    """`static` False leaves the drawings for paper out: a page with the engine may do without."""
    writer = _Writer(language, static)
    left_out = sum(section.place >= MOST_SECTIONS_ALIKE for section in document.sections)
    more = (Message("… and {count:n} more.", {"count": left_out}),) if left_out else ()
    html = (
        _templates()
        .get_template("body.html")
        .render(
            language=language,
            title=writer.said([document.title] if document.title is not None else []),
            blocks=list(writer.blocks(document.blocks)),
            sections=list(writer.sections(document.sections)),
            more=writer.said(more),
            texts={
                "warning": writer.said([Message("Warning")]),
                "table": writer.said([Message("The figures as a table")]),
                "zoom_in": writer.said([Message("Zoom in")]),
                "zoom_out": writer.said([Message("Zoom out")]),
                "zoom_all": writer.said([Message("Whole run")]),
                "zoom_hint": writer.said([Message("Drag to move; Ctrl and the wheel zoom.")]),
            },
        )
    )
    return Body(printable(html), writer.specs)


@dataclass(frozen=True, slots=True)
class _Writer:
    """What a document holds, in the form that the template takes."""

    language: str
    static: bool
    specs: dict[str, Spec] = field(default_factory=dict)

    def sections(self, sections: Iterable[doc.Section]) -> Iterator[dict[str, Any]]:
        for section in sections:
            if section.prompt or section.place >= MOST_SECTIONS_ALIKE:
                continue
            heading = self.said([section.heading])
            yield {
                "style": section.name if section.sections else f"part {section.name}",
                "heading": heading if section.number is None else f"{section.number}. {heading}",
                "blocks": list(self.blocks(section.blocks)),
                "sections": list(self.sections(section.sections)),
            }

    def blocks(self, blocks: Iterable[doc.Block]) -> Iterator[dict[str, Any]]:
        for block in blocks:
            found = self.block(block)
            if found is not None:
                yield found

    def block(self, block: doc.Block) -> dict[str, Any] | None:
        match block:
            case doc.Headline():
                return {"kind": "answer", "rows": [self.said(messages) for messages in block.paragraphs]}
            case doc.Figures():
                rows = [(self.said([label]), self.said([value])) for label, value in block.items]
                return {"kind": "figures", "rows": rows} if rows else None
            case doc.Text():
                style = _STYLES.get(block.kind)
                return {"kind": "text", "style": style, **self.text(block)} if block.messages else None
            case doc.Bullets():
                return {"kind": "bullets", "rows": [self.text(item) for item in block.items]}
            case doc.Table():
                return self.table(block)
            case doc.Code():
                return {"kind": "lines", "text": block.text}
            case doc.Quoted():
                return {"kind": "lines", "text": "\n".join(f"{number}: {text}" for number, text in block.lines)}
            case doc.Command():
                command = " ".join(block.arguments)
                if block.why is None:
                    return {"kind": "lines", "text": command}
                return {"kind": "typed", "text": self.said([block.why]), "command": command}
            case doc.Labelled():
                rows = [(self.said([label]), self.said(texts)) for label, texts, _ in block.items]
                return {"kind": "labelled", "rows": rows}
            case doc.Chart():
                drawn = block.draw(self.language, False) if block.draw is not None else None
                if drawn is not None:
                    return self.chart(block, drawn)
                return self.table(block.table) if block.table is not None else None
            case doc.Progress():
                return {"kind": "text", "style": None, "text": self.said([block.where]), "warning": False}

    def chart(self, chart: doc.Chart, drawn: Plot) -> dict[str, Any]:
        self.specs[chart.name] = drawn.spec
        still = None
        if self.static and chart.draw is not None:
            from markupsafe import Markup

            from stepwatch.presenters.pictures import svg

            still = Markup(svg(chart.draw(self.language, True) or drawn, f"{self.language}-{chart.name}"))
        return {
            "kind": "chart",
            "name": chart.name,
            "title": drawn.title,
            "description": drawn.description,
            "head": drawn.head,
            "align": "l" + "r" * (len(drawn.head) - 1),
            "rows": drawn.rows,
            "zooms": "params" in drawn.spec,
            "still": still,
        }

    def table(self, table: doc.Table) -> dict[str, Any] | None:
        if not table.rows:
            return None
        head = [self.said([cell]) for cell in table.head]
        rows = [[self.said(cell, " + ") for cell in row] for row in table.rows]
        return {"kind": "table", "head": head, "align": table.align, "rows": rows}

    def text(self, text: doc.Text) -> dict[str, Any]:
        return {"text": self.said(text.messages), "warning": text.kind == "warning"}

    def said(self, messages: Iterable[Message], between: str = " ") -> str:
        return between.join(held(say(message, self.language)) for message in messages)


# --- what a page needs beside the body --------------------------------------------------------------------------


def style() -> str:
    """The stylesheet of a body, and of the whole page around it."""
    swaps = "\n".join(
        f'  .still [fill="{light}"] {{ fill: {dark}; }} .still [stroke="{light}"] {{ stroke: {dark}; }}'
        for light, dark in vega.DARK.items()
    )
    return f"{_file('report.css')}\n@media screen and (prefers-color-scheme: dark) {{\n{swaps}\n}}\n"


@cache
def engine() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script, as vl-convert carries them; Vega-Embed brings the interpreter."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle.replace("</script", "<\\/script")


def drawing() -> str:
    """The script that draws: `stepwatchCharts.draw(element, specs)`."""
    return _file("charts.js")


# --- the whole page ---------------------------------------------------------------------------------------------


def as_page(document: doc.Document, language: str) -> str:
    """One file with everything in it, in every language."""
    from markupsafe import Markup

    bodies = {spoken: body_of(document, spoken) for spoken in LANGUAGES}
    scripts = (engine(), drawing(), _file("switching.js"))
    chosen = "body:has(#language-{code}:checked) .report[lang={code}] {{ display: block; }}\n"  # without a script too
    sheet = style() + "".join(chosen.format(code=code) for code in LANGUAGES)
    return (
        _templates()
        .get_template("page.html")
        .render(
            language=language,
            texts={"skip": say(Message("To the content"), language), "language": say(Message("Language"), language)},
            version=version("stepwatch"),
            languages=list(LANGUAGE_NAMES.items()),
            title=say(document.title, language) if document.title is not None else "stepwatch",
            bodies={spoken: Markup(found.html) for spoken, found in bodies.items()},
            policy=_policy(scripts, sheet),
            style=Markup(sheet),
            charts=Markup(_charts_json(bodies)),
            engine=Markup(scripts[0]),
            drawing=Markup(scripts[1]),
            switching=Markup(scripts[2]),
        )
    )


def _policy(scripts: Iterable[str], sheet: str) -> str:
    """Nothing may be fetched, and no script may run but ours."""
    allowed = " ".join(f"'{_digest(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {allowed}; style-src '{_digest(sheet)}'; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _charts_json(bodies: Mapping[str, Body]) -> str:
    """The data once, since they hold no words; the rest in each language."""
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

    environment = Environment(autoescape=True, loader=FunctionLoader(_file), undefined=StrictUndefined)
    environment.filters["typed"] = text_and_code
    return environment


@cache
def _file(name: str) -> str:
    return (files("stepwatch.presenters") / "page" / name).read_text(encoding="utf-8")
