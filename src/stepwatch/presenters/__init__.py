"""Presenters turn an answer into text; they alone speak a language."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepwatch.errors import InputError
from stepwatch.messages import Message
from stepwatch.report import AdviceReport, PlanReport, Report

if TYPE_CHECKING:
    from stepwatch.analysis.comparison import Comparison
    from stepwatch.presenters.html import Body
    from stepwatch.presenters.vega import Chart

    Answer = Report | PlanReport | AdviceReport | Comparison

__all__ = ["CHARTS", "PLAN_CHARTS", "View", "page_body", "render"]

CHARTS = ("times", "anatomy", "throughput", "parts", "forecast")
"""What can be drawn of a run, by the names that `--chart` takes."""
PLAN_CHARTS = ("parts", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How much of an answer is shown, and how."""

    full: bool = False
    why: bool = False
    iterations: bool = True
    with_lines: bool = False
    front_matter: bool = False
    chart: str | None = None
    colour: bool | None = None
    """None: as standard output can take it. False for an answer that goes into a file."""


def render(answer: Answer, form: str, language: str, view: View | None = None) -> str | bytes:
    """The answer as terminal, md, json, html or png; a picture is bytes."""
    view = view or View()
    if form == "png":
        return _picture(answer, view.chart, language)
    if isinstance(answer, Report):
        return _render_report(answer, form, language, view)
    if isinstance(answer, PlanReport):
        return _render_plan(answer, form, language, view)
    if isinstance(answer, AdviceReport):
        return _render_advice(answer, form, language, view)
    from stepwatch.presenters.comparisons import as_json, as_note, on_terminal

    if form == "json":
        return as_json(answer, language)
    if form == "md":
        return as_note(answer, language)
    return on_terminal(answer, language, colour=view.colour)


def _render_report(answer: Report, form: str, language: str, view: View) -> str:
    if form == "json":
        from stepwatch.presenters.jsondoc import JsonPresenter

        return JsonPresenter(iterations=view.iterations, with_lines=view.with_lines).render(answer, language)
    if form == "md":
        from stepwatch.presenters.markdown import MarkdownPresenter

        return MarkdownPresenter(front_matter=view.front_matter, with_lines=view.with_lines).render(answer, language)
    if form == "html":
        from stepwatch.presenters.html import HtmlPresenter

        return HtmlPresenter(with_lines=view.with_lines).render(answer, language)
    from stepwatch.presenters.terminal import TerminalPresenter

    return TerminalPresenter(full=view.full, with_lines=view.with_lines, colour=view.colour).render(answer, language)


def _render_plan(answer: PlanReport, form: str, language: str, view: View) -> str:
    if form == "json":
        from stepwatch.estimator.plan import plan_json
        from stepwatch.i18n import say
        from stepwatch.presenters.advice_sentences import list_json

        said = {"language": language, "remarks": [say(remark, language) for remark in answer.remarks]}
        document = {**plan_json(answer.plan), "advice": list_json(answer.advice, language), **said}
        return json.dumps(document, ensure_ascii=False) + "\n"
    if form == "html":
        from stepwatch.presenters.html import PlanHtml

        return PlanHtml(why=view.why).render(answer.plan, answer.remarks, language)
    from stepwatch.presenters.plans import PlanMarkdown, PlanTerminal

    if form == "md":
        return PlanMarkdown(why=view.why).render(answer.plan, answer.remarks, language)
    return PlanTerminal(why=view.why, colour=view.colour).render(answer.plan, answer.remarks, language)


def _render_advice(answer: AdviceReport, form: str, language: str, view: View) -> str:
    from stepwatch.presenters.advices import AdviceMarkdown, AdviceTerminal, advice_json

    if form == "json":
        return advice_json(answer, language)
    if form == "html":
        from stepwatch.presenters.html import AdviceHtml

        return AdviceHtml().render(answer, language)
    if form == "md":
        return AdviceMarkdown().render(answer, language)
    return AdviceTerminal(colour=view.colour).render(answer, language)


def _picture(answer: Answer, name: str | None, language: str) -> bytes:
    """Of a report, the longest run, as on the first screen."""
    from stepwatch.i18n import say
    from stepwatch.presenters.pictures import png

    if isinstance(answer, PlanReport):
        from stepwatch.presenters.plan_charts import plan_charts_of
        from stepwatch.presenters.plan_sentences import headline as plan_headline

        charts = {found.name: found for found in plan_charts_of(answer.plan, language)}
        return png(_chosen(charts, name or PLAN_CHARTS[0]), say(plan_headline(answer.plan), language))
    assert isinstance(answer, Report)
    from stepwatch.presenters.charts import charts_of
    from stepwatch.presenters.sentences import headline, longest

    analysis = answer.analyses[longest(answer)]
    charts = {found.name: found for found in charts_of(analysis, language)}
    return png(_chosen(charts, name or CHARTS[0]), say(headline(analysis), language))


def _chosen(charts: Mapping[str, Chart], name: str) -> Chart:
    if name not in charts:
        raise InputError(
            Message("there is nothing to draw for the chart “{name:word}”", {"name": name}),
            Message("charts that can be drawn: {names:word}", {"names": ", ".join(charts) or "–"}),
        )
    return charts[name]


def page_body(answer: Answer, language: str) -> Body:
    """The answer as a part of the page: its HTML, and the charts that the page draws."""
    from stepwatch.presenters.html import answer_body, plan_body, report_body

    if isinstance(answer, Report):
        return report_body(answer, language, static=False)
    if isinstance(answer, PlanReport):
        return plan_body(answer.plan, answer.remarks, language, static=False)
    assert isinstance(answer, AdviceReport)
    return answer_body(answer, language, static=False)
