"""From a question to its answer: what a worker does. Each kind of question is one function of ANSWERS."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from stepwatch.advice import advice_on_log, advice_on_plan
from stepwatch.advice.recommended import recommend
from stepwatch.analysis import Analysis
from stepwatch.analysis.findings import NOTICE, Finding
from stepwatch.errors import InputError, StepwatchError, TooLarge
from stepwatch.estimator.plan import MODEL_NAMES, Plan, named_shape, plan, plan_json
from stepwatch.explanation import explain
from stepwatch.gpus.choice import card_of_config, card_of_this_machine, count_in, named_card
from stepwatch.gpus.links import checked_link
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.presenters.advice_outline import Answer as Advised
from stepwatch.presenters.advice_sentences import list_json
from stepwatch.presenters.advices import AdviceMarkdown, advice_json
from stepwatch.presenters.html import AdviceHtml, Body, HtmlPresenter, PlanHtml, answer_body, plan_body, report_body
from stepwatch.presenters.jsondoc import JsonPresenter
from stepwatch.presenters.markdown import MarkdownPresenter
from stepwatch.presenters.plans import PlanMarkdown
from stepwatch.presenters.sentences import longest
from stepwatch.readers import detect, read, settings_of
from stepwatch.report import Report
from stepwatch.settings import Origin, Settings, config_settings
from stepwatch.sources import Source, from_bytes, from_text
from stepwatch.web.questions import Question, one_of, understood, unfit
from stepwatch.web.wire import JSON, Answer, Wire, complaint, too_large

MARKDOWN = "text/markdown; charset=utf-8"
HTML = "text/html; charset=utf-8"
DEEPEST = 200
MOST_CARDS = 100_000


def answer(wire: Wire) -> Answer:
    """A mistake in the question is answered too."""
    try:
        return ANSWERS[wire.kind](understood(wire))
    except (TooLarge, MemoryError):
        return too_large(wire.limit, wire.spoken())
    except StepwatchError as error:
        return complaint(400, error.what, error.remedy, wire.spoken())


# --- explain ----------------------------------------------------------------------------------------------------


def _explained(question: Question) -> Answer:
    form = question.form
    config, remarks = config_settings(question.word("config") or "")
    runs = read(_log(question), question.word("log_format"))
    chosen = question.number("run")
    if chosen is not None:
        if chosen > len(runs):
            raise unfit("run", Message("it takes a number from 1 to {most:n}", {"most": len(runs)}))
        runs = (runs[chosen - 1],)
    noticed = [Finding("config_skipped", NOTICE, remark) for remark in remarks]
    card = named_card(question.word("gpu"))
    report = explain(runs, card, config=config, user=question.settings(), remarks=noticed)
    return _report_as(form, replace(report, inputs=(runs[0].source,)), question)


def _report_as(form: str, report: Report, question: Question) -> Answer:
    if form == "json":
        presenter = JsonPresenter(iterations=question.flag("iterations", default=True))
        return _text(JSON, presenter.render(report, question.language))
    if form == "md":
        return _text(MARKDOWN, MarkdownPresenter().render(report, question.language))
    if form == "html":
        return _text(HTML, HtmlPresenter().render(report, question.language))
    return _page(report_body(report, question.language, static=False))


def _log(question: Question) -> Source:
    name = question.word("name") or "-"
    if "log" in question.values:
        return from_text(question.values["log"], name)
    return from_bytes(question.body, name, limit=question.limit)


# --- estimate ---------------------------------------------------------------------------------------------------


def _estimated(question: Question) -> Answer:
    form = question.form
    config, remarks = _config(question)
    settings = config.beneath(_shape(question)).beneath(question.settings())
    name = question.word("gpu")
    card, origin = named_card(name) or card_of_config(settings) or card_of_this_machine()
    found = plan(
        settings, card, gpu_origin=origin, n_gpus=question.number("gpus", MOST_CARDS) or count_in(name),
        link=checked_link(question.word("link"), card), claim=question.word("claim"),
    )  # fmt: skip
    return _plan_as(form, found, (*remarks, *found.notes), question)


def _plan_as(form: str, found: Plan, remarks: tuple[Message, ...], question: Question) -> Answer:
    language = question.language
    if form == "json":
        said = {"language": language, "remarks": [say(remark, language) for remark in remarks]}
        advice = list_json(advice_on_plan(found), language)
        return _text(JSON, json.dumps({**plan_json(found), "advice": advice, **said}, ensure_ascii=False))
    if form == "md":
        why = question.flag("why", default=False)
        return _text(MARKDOWN, PlanMarkdown(why=why).render(found, remarks, language))
    if form == "html":
        return _text(HTML, PlanHtml(why=question.flag("why", default=False)).render(found, remarks, language))
    return _page(plan_body(found, remarks, language, static=False))


def _shape(question: Question) -> Settings:
    model = question.word("model")
    if model is not None:
        one_of("model", model, MODEL_NAMES)
    return Settings.of(Origin.USER, named_shape(model, question.number("depth", DEEPEST)))


def _config(question: Question) -> tuple[Settings, tuple[Message, ...]]:
    """A config, or a log whose header tells the settings: a log is no Python."""
    given = question.word("config")
    source = from_text(given) if given else from_bytes(question.body, limit=question.limit)
    try:
        return config_settings(source.text.decode("utf-8", "replace"))
    except InputError:
        if detect(source) is None:
            raise
        return settings_of(source), ()


# --- advise -----------------------------------------------------------------------------------------------------


def _advised(question: Question) -> Answer:
    """On a log, on a config before its run, or a recommended config where there is neither."""
    source = _log(question)
    given = question.word("config")
    name, cards = question.word("gpu"), question.number("gpus", MOST_CARDS) or count_in(question.word("gpu"))
    if source.text.strip() and ("log" in question.values or detect(source) is not None):
        analysis = _chosen_run(question, source)
        return _advice_as(question, Advised(advised=advice_on_log(analysis, cards=cards)))
    settings, remarks = config_settings(given or source.text.decode("utf-8", "replace"))
    settings = settings.beneath(_shape(question)).beneath(question.settings())
    card, origin = named_card(name) or card_of_config(settings) or card_of_this_machine()
    link = checked_link(question.word("link"), card)
    if not given and not source.text.strip():
        found = recommend(settings, card, gpu_origin=origin, n_gpus=cards, link=link)
        return _advice_as(question, Advised(recommended=found))
    planned = plan(settings, card, gpu_origin=origin, link=link)
    return _advice_as(question, Advised(advised=advice_on_plan(planned, cards=cards), remarks=remarks))


def _chosen_run(question: Question, source: Source) -> Analysis:
    """The run that is asked for, else the longest."""
    config, _ = config_settings(question.word("config") or "")
    runs = read(source, question.word("log_format"))
    chosen = question.number("run")
    if chosen is not None:
        if chosen > len(runs):
            raise unfit("run", Message("it takes a number from 1 to {most:n}", {"most": len(runs)}))
        runs = (runs[chosen - 1],)
    report = explain(runs, named_card(question.word("gpu")), config=config, user=question.settings())
    return report.analyses[longest(report)]


def _advice_as(question: Question, found: Advised) -> Answer:
    form, language = question.form, question.language
    if form == "json":
        return _text(JSON, advice_json(found, language))
    if form == "md":
        return _text(MARKDOWN, AdviceMarkdown().render(found, language))
    if form == "html":
        return _text(HTML, AdviceHtml().render(found, language))
    return _page(answer_body(found, language, static=False))


ANSWERS: dict[str, Callable[[Question], Answer]] = {
    "explain": _explained, "estimate": _estimated, "advise": _advised,
}  # fmt: skip


def _text(media: str, text: str, status: int = 200) -> Answer:
    return Answer(status, media, text.encode("utf-8", "replace"))


def _page(body: Body) -> Answer:
    return _text(JSON, json.dumps({"html": body.html, "specs": body.specs}, ensure_ascii=False, allow_nan=False))
