"""The pages of the site that need no script: example logs with their answers, and answers to common questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from stepwatch.answers import pasted
from stepwatch.answers.from_logs import ExplainRequest, explain
from stepwatch.answers.from_plans import AdviseRequest, EstimateRequest, advise, estimate
from stepwatch.gpus import find_gpu
from stepwatch.i18n.languages import TABLE
from stepwatch.presenters import View, page_body, render
from stepwatch.report import AdviceReport, PlanReport, Report
from stepwatch.web.page_text import words
from tools import ROOT

# The logs of examples/ with the cards that they ran on.
EXAMPLES = {
    "nanogpt-4070.log": "4070",
    "gpt2-124m-4070.log": "4070",
    "short.log": "4070",
    "resumed.log": "4070",
    "laptop-sleep.log": "",
}
CARDS = ("4070", "4080", "4090")
POLICY = "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'none'; base-uri 'none'"


class Part(NamedTuple):
    title: str = ""
    text: str = ""
    html: Markup = Markup()
    links: Mapping[str, str] = {}


class Standing(NamedTuple):
    """An answer that stands by itself: the word for its question, and the card if it is about one."""

    word: str
    name: str
    answer: Report | PlanReport | AdviceReport
    card: str = ""


def write(place: Path) -> None:
    template = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    ).get_template("page.html")  # fmt: skip
    reports = {name: _explained(name, gpu) for name, gpu in EXAMPLES.items()}
    answers = [*_answers(reports["short.log"])]
    for name in ("answers", "examples"):
        (place / name).mkdir(exist_ok=True)
    for name in EXAMPLES:
        (place / "examples" / name).write_bytes((ROOT / "examples" / name).read_bytes())
    for language in TABLE:
        own = words(language)
        pages = {f"examples/{_file('index', language)}": (own["examples"], [*_gallery(reports, answers, language)])}
        for each in answers:
            body = Part(html=Markup(page_body(each.answer, language).html))
            pages[f"answers/{_file(each.name, language)}"] = (_title(each, own), [body])
        for address, (title, parts) in pages.items():
            stem = Path(address).name.removesuffix(".html").removesuffix(f".{language}")
            text = template.render(
                language=language, words=own, title=title, parts=parts, policy=POLICY,
                examples=f"../examples/{_file('index', language)}",
                languages=[(code, each.name, _file(stem, code)) for code, each in TABLE.items()],
            )  # fmt: skip
            (place / address).write_text(text, encoding="utf-8")


def _explained(name: str, gpu: str) -> Report:
    log = pasted((ROOT / "examples" / name).read_bytes(), name)
    return explain(ExplainRequest(logs=(log,), gpu=gpu or None))


def _answers(slow: Report) -> Iterator[Standing]:
    yield Standing("why_slow", "why-is-this-iteration-slow", slow)
    for card in CARDS:
        called = find_gpu(card).name
        yield Standing("how_long", f"how-long-{card}", estimate(EstimateRequest(model="gpt2", gpu=card)), called)
    for card in CARDS:
        called = find_gpu(card).name
        yield Standing("which_settings", f"which-settings-{card}", advise(AdviseRequest(gpu=card)), called)


def _gallery(reports: Mapping[str, Report], answers: list[Standing], language: str) -> Iterator[Part]:
    own = words(language)
    yield Part(links={_title(each, own): f"../answers/{_file(each.name, language)}" for each in answers})
    for name, report in reports.items():
        text = str(render(report, "terminal", language, View(colour=False)))
        address = f"../index.html?lang={language}#explain?example={name}&gpu={EXAMPLES[name]}"
        yield Part(name, text, links={own["open_in_page"]: address, name: name})


def _title(each: Standing, own: Mapping[str, str]) -> str:
    return f"{own[each.word]} {each.card}".strip()


def _file(stem: str, language: str) -> str:
    return f"{stem}.html" if language == "en" else f"{stem}.{language}.html"
