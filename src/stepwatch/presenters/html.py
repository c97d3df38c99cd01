"""The report as a page: for a file of its own that needs no network, or to stand inside another page."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from stepwatch.i18n import LANGUAGES, say
from stepwatch.messages import Message
from stepwatch.presenters import vega
from stepwatch.presenters.blocks import Block, Bullets, Code, Section, Table, Text, Typed, text_and_code
from stepwatch.presenters.lines import held, printable
from stepwatch.presenters.vega import Chart, Spec

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from stepwatch.analysis import Analysis
    from stepwatch.estimator.plan import Plan
    from stepwatch.report import AdviceReport, Report

MOST_CHARTED_RUNS, MOST_RUNS = 4, 20
"""The longest get charts, and of many only these are written out; a page with all of fifty runs would help nobody."""
STILL_POINTS = 500
"""In the drawing for paper, which is there in every language."""
LANGUAGE_NAMES = {"en": "English", "fr": "Français", "de": "Deutsch", "es": "Español"}
_PLACES = {"anatomy": "slow", "throughput": "speed", "parts": "time", "forecast": "forecast", "changes": "changes"}
_PLAN_PLACES = {"parts": "parts", "memory": "memory"}
_ADVICE_PLACES = {"changes": "compared"}
_SAID_BY_CHART = frozenset({"time"})
"""Sections whose table is the one behind their chart."""


class Body(NamedTuple):
    """Escaped markup without script or style, and the specification of each chart by its name."""

    html: str
    specs: dict[str, Spec]


def report_body(report: Report, language: str, *, static: bool = True, with_lines: bool = False) -> Body:
    """`static` False leaves the drawings for paper out: a page with the engine may do without."""
    from stepwatch.presenters import outline

    writer = _Writer(language, static)
    if report.count == 1:
        runs, overview = [writer.run(report, report.analyses[0])], None
    else:
        longest = _longest(report)
        sharing = dict.fromkeys(longest[:MOST_CHARTED_RUNS], MOST_CHARTED_RUNS)
        runs = [
            writer.run(report, report.analyses[number - 1], number, sharing.get(number, 0))
            for number in sorted(longest[:MOST_RUNS])
        ]
        overview = writer.overview(report, len(longest) - len(runs))
    if with_lines:
        runs[-1]["sections"].append(writer.unread(report))
    return writer.body(outline.title(report), runs, overview)


def _longest(report: Report) -> list[int]:
    """The numbers of the runs, those that took longest first."""
    walls = {number: a.goodput.wall_s for number, a in enumerate(report.analyses, start=1)}
    return sorted(walls, key=lambda number: -walls[number])


def plan_body(
    plan: Plan, remarks: tuple[Message, ...], language: str, *, static: bool = True, why: bool = False
) -> Body:
    from stepwatch.presenters import plan_sentences

    writer = _Writer(language, static)
    return writer.body(plan_sentences.TITLE, [writer.plan(plan, remarks, why=why)])


def answer_body(answer: AdviceReport, language: str, *, static: bool = True) -> Body:
    """Of advice, or of recommended settings."""
    from stepwatch.presenters import advice_outline

    writer = _Writer(language, static)
    return writer.body(advice_outline.title(answer), [writer.answer(answer)])


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


@dataclass(frozen=True, slots=True, kw_only=True)
class HtmlPresenter:
    """One file with everything in it, in every language."""

    with_lines: bool = False
    name: str = "html"
    suffix: str = ".html"

    def render(self, report: Report, language: str) -> str:
        from stepwatch.presenters import outline

        return _page(
            lambda spoken: report_body(report, spoken, with_lines=self.with_lines),
            say(outline.title(report), language),
            language,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHtml:
    why: bool = False
    name: str = "html"
    suffix: str = ".html"

    def render(self, plan: Plan, remarks: tuple[Message, ...], language: str) -> str:
        from stepwatch.presenters import plan_sentences

        return _page(
            lambda spoken: plan_body(plan, remarks, spoken, why=self.why), say(plan_sentences.TITLE, language), language
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceHtml:
    name: str = "html"
    suffix: str = ".html"

    def render(self, answer: AdviceReport, language: str) -> str:
        from stepwatch.presenters import advice_outline

        return _page(lambda spoken: answer_body(answer, spoken), say(advice_outline.title(answer), language), language)


# --- one language -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Writer:
    """Says what the outline holds, in the form that the template takes."""

    language: str
    static: bool

    def body(self, title: Message, runs: list[dict[str, Any]], overview: dict[str, Any] | None = None) -> Body:
        charts = [chart for run in runs for chart in run.pop("all_charts")]
        html = _templates().get_template("body.html").render(
            language=self.language, title=self.say(title), runs=runs, overview=overview, texts=self.texts()
        )  # fmt: skip
        return Body(printable(html), {name: chart.spec for name, chart in charts})

    def run(self, report: Report, a: Analysis, number: int | None = None, sharing: int = 1) -> dict[str, Any]:
        """`sharing` is the number of runs that share the points; 0 for a run without charts."""
        from stepwatch.presenters import outline, sentences
        from stepwatch.presenters.advice_charts import changes_chart
        from stepwatch.presenters.charts import charts_of
        from stepwatch.presenters.thinning import MOST_POINTS

        saving = changes_chart(report.advice_of(a), self.language) if sharing else ()
        charts = (*charts_of(a, self.language, most=MOST_POINTS // sharing), *saving) if sharing else ()
        still = charts
        if sharing and self.static:
            still = (*charts_of(a, self.language, most=STILL_POINTS // sharing), *saving)
        source = Message("Log: {source:word}", {"source": a.run.source}) if a.run.source not in ("", "-") else None
        heading = None if number is None else self.say(Message("Run {number:n}", {"number": number}))
        return {
            "heading": heading, "level": 2 if number is None else 3, "answer": [self.say(sentences.headline(a))],
            "source": self.say(source) if source else None, "figures": list(self.figures(a)),
            **self.placed(outline.sections(report, a), charts, still, _PLACES, number),
        }  # fmt: skip

    def plan(self, plan: Plan, remarks: tuple[Message, ...], *, why: bool) -> dict[str, Any]:
        from stepwatch.presenters import plan_outline
        from stepwatch.presenters import plan_sentences as sentences
        from stepwatch.presenters.plan_charts import plan_charts_of

        charts = plan_charts_of(plan, self.language)
        verdict = self.said(sentences.verdict(plan))
        answer = [text for text in (verdict, self.say(sentences.headline(plan))) if text]
        return {
            "heading": None, "level": 2, "answer": answer, "source": None, "figures": list(self.plan_figures(plan)),
            **self.placed(plan_outline.sections(plan, remarks, why=why), charts, charts, _PLAN_PLACES, None),
        }  # fmt: skip

    def answer(self, answer: AdviceReport) -> dict[str, Any]:
        from stepwatch.presenters import advice_outline
        from stepwatch.presenters.advice_charts import changes_chart

        charts = changes_chart(answer.advice, self.language)
        return {
            "heading": None, "level": 2, "answer": [self.say(advice_outline.headline(answer))], "source": None,
            "figures": [], **self.placed(advice_outline.sections(answer), charts, charts, _ADVICE_PLACES, None),
        }  # fmt: skip

    def overview(self, report: Report, left_out: int) -> dict[str, Any]:
        from stepwatch.presenters import outline

        text = self.say(Message("The input holds {count:n} runs.", {"count": report.count}))
        rest = self.say(Message("… and {count:n} more.", {"count": left_out})) if left_out else None
        return {"text": text, "rest": rest, "table": self.block(outline.runs(report))}

    def unread(self, report: Report) -> dict[str, Any]:
        from stepwatch.presenters import sentences

        lines = [f"{number}: {text}" for a in report.analyses for number, text in sentences.unread_lines(a)][:20]
        text = "\n".join(lines) or self.say(Message("None."))
        heading = self.say(Message("Lines that were not understood"))
        return {"name": "unread", "heading": heading, "charts": [], "blocks": [{"kind": "lines", "text": text}]}

    # --- figures ----------------------------------------------------------------------------------------------

    def figures(self, a: Analysis) -> Iterator[tuple[str, str]]:
        """The few that most readers came for."""
        from stepwatch.presenters import sentences

        if sentences.step_known(a):
            yield self.figure(Message("Normal iteration"), Message("{step:time}", {"step": a.costs.step_s.mid}))
        if a.throughput.tokens_per_s is not None:
            yield self.figure(Message("Speed"), Message("{rate:rate}", {"rate": a.throughput.tokens_per_s}))
        if a.goodput.iterations:
            yield self.figure(Message("Time so far"), Message("{wall:time}", {"wall": a.goodput.wall_s}))
        if a.forecast.done:
            yield self.figure(Message("State"), sentences.run_state(a))
        elif a.forecast.remaining_s is not None:
            yield self.figure(Message("Time left"), Message("{cost:range}", {"cost": a.forecast.remaining_s}))

    def plan_figures(self, plan: Plan) -> Iterator[tuple[str, str]]:
        need = plan.estimate.vram_bytes
        yield self.figure(Message("Whole run"), Message("{cost:range}", {"cost": plan.total_s}))
        yield self.figure(Message("Training step"), Message("{cost:range}", {"cost": plan.estimate.step_s}))
        yield self.figure(Message("Speed"), Message("{rate:rate}", {"rate": plan.tokens_per_s.mid}))
        sizes = {"low": need.low, "high": need.high}
        yield self.figure(Message("Memory"), Message("{low:size} – {high:size}", sizes))

    def figure(self, label: Message, value: Message) -> tuple[str, str]:
        return self.say(label), self.say(value)

    # --- charts -----------------------------------------------------------------------------------------------

    def placed(
        self, sections: Iterable[Section], charts: tuple[Chart, ...], still: tuple[Chart, ...],
        places: Mapping[str, str], number: int | None,
    ) -> dict[str, Any]:  # fmt: skip
        """Each chart in its section; before them all those that have none."""
        found = list(sections)
        names = {section.name for section in found}
        drawn = {chart.name: chart for chart in still}
        at: dict[str, list[dict[str, Any]]] = {}
        for chart in charts:
            name = chart.name if number is None else f"{chart.name}-{number}"
            place = places.get(chart.name, "")
            shown = self.chart(chart, name, drawn[chart.name])
            at.setdefault(place if place in names else "", []).append(shown)
        parts = [
            {
                "name": section.name, "heading": self.numbered(section), "charts": at.get(section.name, []),
                "blocks": [
                    self.block(block) for block in section.blocks
                    if not (section.name in _SAID_BY_CHART and section.name in at and isinstance(block, Table))
                ],
            }
            for section in found
        ]  # fmt: skip
        suffix = "" if number is None else f"-{number}"
        return {
            "charts": at.get("", []), "sections": parts,
            "all_charts": [(chart.name + suffix, chart) for chart in charts],
        }  # fmt: skip

    def numbered(self, section: Section) -> str:
        said = self.say(section.heading)
        return said if section.number is None else f"{section.number}. {said}"

    def chart(self, chart: Chart, name: str, still: Chart) -> dict[str, Any]:
        return {
            "name": name, "title": chart.title, "description": chart.description, "head": chart.head,
            "align": "l" + "r" * (len(chart.head) - 1), "rows": chart.rows, "zooms": "params" in chart.spec,
            "still": _drawn(still, f"{self.language}-{name}") if self.static else None,
        }  # fmt: skip

    # --- blocks -----------------------------------------------------------------------------------------------

    def block(self, block: Block) -> dict[str, Any]:
        match block:
            case Text():
                return {"kind": "text", **self.text(block)}
            case Bullets():
                return {"kind": "bullets", "rows": [self.text(item) for item in block.items]}
            case Table():
                rows = [[" + ".join(map(self.say, cell)) for cell in row] for row in block.rows]
                return {"kind": "table", "head": [*map(self.say, block.head)], "align": block.align, "rows": rows}
            case Code():
                return {"kind": "lines", "text": block.text}
            case Typed():
                return {"kind": "typed", "text": self.say(block.why), "command": block.command}
            case _:
                return {
                    "kind": "labelled",
                    "rows": [(self.say(label), self.said(texts)) for label, texts in block.items],
                }

    def text(self, text: Text) -> dict[str, Any]:
        return {"text": self.said(text.messages), "warning": text.warning}

    def texts(self) -> dict[str, str]:
        return {
            "warning": self.say(Message("Warning")), "table": self.say(Message("The figures as a table")),
            "zoom_in": self.say(Message("Zoom in")), "zoom_out": self.say(Message("Zoom out")),
            "zoom_all": self.say(Message("Whole run")),
            "zoom_hint": self.say(Message("Drag to move; Ctrl and the wheel zoom.")),
        }  # fmt: skip

    def said(self, messages: Iterable[Message]) -> str:
        return " ".join(map(self.say, messages))

    def say(self, message: Message) -> str:
        return held(say(message, self.language))


# --- the whole page ---------------------------------------------------------------------------------------------


def _page(body: Callable[[str], Body], title: str, language: str) -> str:
    from markupsafe import Markup

    bodies = {spoken: body(spoken) for spoken in LANGUAGES}
    scripts = (engine(), drawing(), _file("switching.js"))
    sheet = style() + _shown_languages()
    texts = {"skip": say(Message("To the content"), language), "language": say(Message("Language"), language)}
    return _templates().get_template("page.html").render(
        language=language, texts=texts, version=version("stepwatch"), languages=list(LANGUAGE_NAMES.items()),
        title=title,
        bodies={spoken: Markup(found.html) for spoken, found in bodies.items()}, policy=_policy(scripts, sheet),
        style=Markup(sheet), charts=Markup(_charts_json(bodies)),
        engine=Markup(scripts[0]), drawing=Markup(scripts[1]), switching=Markup(scripts[2]),
    )  # fmt: skip


def _shown_languages() -> str:
    """Works without a script too."""
    return "".join(
        f"body:has(#language-{code}:checked) .report[lang={code}] {{ display: block; }}\n" for code in LANGUAGES
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


def _drawn(chart: Chart, name: str) -> Markup:
    from markupsafe import Markup

    from stepwatch.presenters.pictures import svg

    return Markup(svg(chart, name))


@cache
def _templates() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(autoescape=True, loader=FunctionLoader(_file), undefined=StrictUndefined)
    environment.filters["typed"] = text_and_code
    return environment


@cache
def _file(name: str) -> str:
    return (files("stepwatch.presenters") / "page" / name).read_text(encoding="utf-8")
