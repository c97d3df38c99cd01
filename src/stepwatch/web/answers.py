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
from stepwatch.estimator.plan import MODEL_NAMES, named_shape, plan
from stepwatch.explanation import explain
from stepwatch.gpus.choice import card_of_config, card_of_this_machine, count_in, named_card
from stepwatch.gpus.links import checked_link
from stepwatch.messages import Message
from stepwatch.presenters import View, page_body, render
from stepwatch.presenters.html import Body
from stepwatch.presenters.sentences import longest
from stepwatch.readers import detect, read, settings_of
from stepwatch.report import AdviceReport, PlanReport, Report
from stepwatch.settings import Origin, Settings, config_settings
from stepwatch.sources import Source, from_bytes, from_text
from stepwatch.web.questions import Question, one_of, understood, unfit
from stepwatch.web.wire import JSON, Answer, Wire, complaint, too_large

MEDIA = {"json": JSON, "md": "text/markdown; charset=utf-8", "html": "text/html; charset=utf-8"}
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
    return _in_form(replace(report, inputs=(runs[0].source,)), question, form)


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
    return _in_form(
        PlanReport(plan=found, advice=advice_on_plan(found), remarks=(*remarks, *found.notes)), question, form
    )


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
        return _in_form(AdviceReport(advice=advice_on_log(analysis, cards=cards)), question)
    settings, remarks = config_settings(given or source.text.decode("utf-8", "replace"))
    settings = settings.beneath(_shape(question)).beneath(question.settings())
    card, origin = named_card(name) or card_of_config(settings) or card_of_this_machine()
    link = checked_link(question.word("link"), card)
    if not given and not source.text.strip():
        found = recommend(settings, card, gpu_origin=origin, n_gpus=cards, link=link)
        return _in_form(AdviceReport(recommended=found), question)
    planned = plan(settings, card, gpu_origin=origin, link=link)
    return _in_form(AdviceReport(advice=advice_on_plan(planned, cards=cards), remarks=remarks), question)


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


ANSWERS: dict[str, Callable[[Question], Answer]] = {
    "explain": _explained, "estimate": _estimated, "advise": _advised,
}  # fmt: skip


def _in_form(found: Report | PlanReport | AdviceReport, question: Question, form: str | None = None) -> Answer:
    form = form or question.form
    if form == "page":
        return _page(page_body(found, question.language))
    view = View(why=question.flag("why", default=False), iterations=question.flag("iterations", default=True))
    text = render(found, form, question.language, view)
    assert isinstance(text, str)
    return _text(MEDIA[form], text)


def _text(media: str, text: str, status: int = 200) -> Answer:
    return Answer(status, media, text.encode("utf-8", "replace"))


def _page(body: Body) -> Answer:
    return _text(JSON, json.dumps({"html": body.html, "specs": body.specs}, ensure_ascii=False, allow_nan=False))
