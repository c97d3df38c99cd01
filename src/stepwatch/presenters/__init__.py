"""Presenters turn an answer into text. Only they depend on the language.

`document_of` composes the content of an answer, the writers write any document, and JSON is the answer itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from stepwatch.errors import InputError
from stepwatch.gpus import Gpu
from stepwatch.i18n import EPOCHS, clean, say
from stepwatch.messages import Message
from stepwatch.presenters.document import Document, Headline, without_commands
from stepwatch.report import AdviceReport, PlanReport, Report

if TYPE_CHECKING:
    from stepwatch.analysis.comparison import Comparison
    from stepwatch.fleet_report import FleetReport
    from stepwatch.gpus.calibration import Calibration
    from stepwatch.presenters.html import Body

    Answer: TypeAlias = (
        Report | PlanReport | AdviceReport | Comparison | Calibration | FleetReport | Gpu | Sequence[Gpu]
    )

__all__ = [
    "CHARTS",
    "COMPARISON_CHARTS",
    "PLAN_CHARTS",
    "Typed",
    "View",
    "document_of",
    "page_body",
    "page_fragment",
    "render",
    "text_of",
]

CHARTS = ("times", "anatomy", "throughput", "forecast", "parts", "machine")
"""The charts of a run, by the names that `--chart` takes."""
PLAN_CHARTS = ("parts", "memory")
COMPARISON_CHARTS = ("step", "parts")


class Typed(NamedTuple):
    """What the user typed. Only for answers that nobody else sees: a report that is passed on must not name paths."""

    logs: tuple[str, ...]
    options: tuple[str, ...] = ()
    """Each option with its value, quoted."""


class View(NamedTuple):
    """How much of an answer is shown, and how."""

    full: bool = False
    why: bool = False
    iterations: bool = True
    with_lines: bool = False
    front_matter: bool = False
    chart: str | None = None
    typed: Typed | None = None
    """Repeated in the next command to ask; None: the command is built from what the answer knows."""
    colour: bool | None = None
    """None: depends on what standard output supports. False for an answer that is written to a file."""


def document_of(answer: Answer, view: View | None = None, *, brief: bool = False) -> Document:
    """What the answer says, in which order and how urgently; the same for every form. Imports only what it needs.

    `brief` is for the first screen of a terminal: content that it never shows may be missing.
    """
    view = view or View()
    if isinstance(answer, Report):
        from stepwatch.presenters.run_answer import report_document

        return report_document(answer, full=view.full, with_lines=view.with_lines, typed=view.typed, brief=brief)
    if isinstance(answer, PlanReport):
        from stepwatch.presenters.plan_answer import plan_document

        return plan_document(answer, why=view.why)
    if isinstance(answer, AdviceReport):
        from stepwatch.presenters.advice_answer import advice_document

        return advice_document(answer)
    from stepwatch.fleet_report import FleetReport

    if isinstance(answer, FleetReport):
        from stepwatch.presenters.fleet_answer import fleet_document

        return fleet_document(answer)
    from stepwatch.presenters import card_answer

    if isinstance(answer, Gpu):
        return card_answer.card_document(answer)
    if isinstance(answer, Sequence):
        return card_answer.card_list_document(answer)
    from stepwatch.gpus.calibration import Calibration

    if isinstance(answer, Calibration):
        return card_answer.calibration_document(answer)
    from stepwatch.presenters.comparison_answer import comparison_document

    return comparison_document(answer)


def render(answer: Answer, form: str, language: str, view: View | None = None) -> str | bytes:
    """The answer as terminal, md, json, html or png; a picture is bytes."""
    if form == "png":
        with _in_words_for(answer):
            return _picture(answer, (view or View()).chart, language)
    return "".join(text_of(answer, form, language, view))


def text_of(answer: Answer, form: str, language: str, view: View | None = None) -> Iterable[str]:
    """The answer in any form except a picture. JSON comes in pieces, as it may be much longer than the log."""
    view = view or View()
    with _in_words_for(answer):
        if form == "json":
            from stepwatch.presenters.json_forms import as_json

            return as_json(answer, language, iterations=view.iterations, with_lines=view.with_lines)
        whole = form != "terminal" or view.full or view.why
        document = document_of(answer, view, brief=not whole)
        if form == "md":
            from stepwatch.presenters.markdown import as_markdown

            return (as_markdown(document, language, front_matter=view.front_matter),)
        if form == "html":
            from stepwatch.presenters.html import as_page

            return (as_page(document, language),)
        from stepwatch.presenters.screen import WIDEST_TABLE, shown, width_of_output
        from stepwatch.presenters.terminal import TerminalWriter

        wide = width_of_output(WIDEST_TABLE)
        writer = TerminalWriter(language, width_of_output(), wide)
        return (shown(writer.whole(document) if whole else writer.screen(document), wide, view.colour),)


@contextmanager
def _in_words_for(answer: Answer) -> Iterator[None]:
    """Within this context iterations are called epochs if the log shows nothing smaller."""
    logged = answer.runs if isinstance(answer, Report) else ()
    before = EPOCHS.set(bool(logged) and all(run.analysis.run.traits.counts_epochs for run in logged))
    try:
        yield
    finally:
        EPOCHS.reset(before)


def page_body(answer: Answer, language: str) -> Body:
    """The answer as a part of the page: its HTML, and the charts that the page draws."""
    from stepwatch.presenters.html import body_of
    from stepwatch.presenters.page_wording import on_page

    with _in_words_for(answer):
        return body_of(without_commands(document_of(answer)), language, reword=on_page)


def page_fragment(answer: Answer, language: str) -> str:
    """The answer for a page that is not ours, such as a notebook: without script, its styles affect nothing else."""
    from stepwatch.presenters.html import as_fragment

    with _in_words_for(answer):
        return as_fragment(document_of(answer), language)


def _picture(answer: Answer, name: str | None, language: str) -> bytes:
    """One chart under the headline; of several runs the chart of the longest, as on the first screen."""
    from stepwatch.presenters.pictures import png
    from stepwatch.presenters.run_charts import plot

    known: tuple[str, ...] = PLAN_CHARTS if isinstance(answer, PlanReport) else COMPARISON_CHARTS
    if isinstance(answer, Report):
        known = CHARTS
        answer = replace(answer, runs=(answer.runs[answer.longest],), unstarted=(), directory=False)
    document = document_of(answer)
    plots = {key: plot(chart, language) for key, chart in document.charts().items() if key in known}
    drawn = {key: found for key, found in plots.items() if found is not None}
    chosen = drawn.get(name or known[0])
    if chosen is None:
        raise InputError(
            Message("there is nothing to draw for the chart “{name:word}”", {"name": name or known[0]}),
            Message("charts that can be drawn: {names:word}", {"names": ", ".join(drawn) or "–"}),
        )
    headline = next(block for block in document.blocks if isinstance(block, Headline))
    source = answer.analyses[0].run.source if isinstance(answer, Report) else ""
    return png(chosen, say(headline.paragraphs[0][0], language), clean(source) if source != "-" else "")
