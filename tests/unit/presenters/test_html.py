"""The page: one file, nothing of it fetched, nothing run that is not ours, every language, a table for each chart."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tools.engine import NOTICES

from stepwatch.advice import advice_on_log, advice_on_plan
from stepwatch.analysis import analyse
from stepwatch.analysis.findings import WARNING, Finding
from stepwatch.estimator.plan import Plan, plan
from stepwatch.gpus import find_gpu
from stepwatch.i18n import LANGUAGES, say
from stepwatch.messages import Message
from stepwatch.presenters import View, document_of, render
from stepwatch.presenters import html as page
from stepwatch.presenters.document import Bullets, Document, Headline, Section, Text
from stepwatch.presenters.html import Body, body_of
from stepwatch.presenters.run_answer import MOST_OPEN_RUNS
from stepwatch.presenters.screen import held
from stepwatch.presenters.thinning import MOST_POINTS
from stepwatch.readers import read
from stepwatch.report import PlanReport, Report, RunReport
from stepwatch.run import Unread
from stepwatch.settings import Origin, Settings
from stepwatch.sources import from_file, from_text
from stepwatch.verdict import judge

sys.path.insert(0, str(Path(__file__).parents[3]))
import itertools

from tests.builders import Truth, a_log

EXAMPLES = Path(__file__).parents[3] / "examples"
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{7*7}}</script>"
CUT = Truth(max_iters=2000, eval_interval=500, log_interval=10, kept=0.5, stall_share=0.02)
MIB = 2**20
VOID = {"meta", "input", "br", "img", "link", "hr"}


@cache
def a_report(text: str, source: str = "train.log") -> Report:
    runs = read(from_text(text, source))
    analyses = [analyse(run, find_gpu("4070"), "user") for run in runs]
    return Report(runs=tuple(RunReport(analysis=a, advice=advice_on_log(a), verdict=judge(a)) for a in analyses))


def a_plan(**settings: int | str) -> Plan:
    return plan(Settings.of(Origin.USER, dict(settings)), find_gpu("4070"), claim="20ms")


BODIES: dict[object, Body] = {}


def the_body(language: str) -> Body:
    """Of the usual run; written once."""
    if language not in BODIES:
        BODIES[language] = report_body(a_report(a_log(CUT)), language)
    return BODIES[language]


def report_body(report: Report, language: str, **options: bool) -> Body:
    return body_of(document_of(report, View(**options)), language)


def plan_report(found: Plan, *remarks: Message) -> PlanReport:
    return PlanReport(plan=found, advice=advice_on_plan(found), remarks=remarks)


def whole_page(answer: Report | PlanReport, language: str, **options: bool) -> str:
    return str(render(answer, "html", language, View(**options)))


class Seen(HTMLParser):
    """Elements with their attributes, what stands in scripts, and what a reader sees."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            self.scripts[-1] += data
        elif self.open[-1:] != ["style"]:
            self.texts.append(data)

    def all(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        return [
            found for name, found in self.elements
            if name == tag and all(found.get(key.rstrip("_")) == value for key, value in attributes.items())
        ]  # fmt: skip

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split(" ")).replace("\n", " ")


@pytest.fixture(scope="module")
def whole() -> str:
    return whole_page(a_report(a_log(CUT)), "de")


@pytest.fixture(scope="module")
def seen(whole: str) -> Seen:
    return Seen(whole)


# --- one file ---------------------------------------------------------------------------------------------------


def test_the_page_fetches_nothing(seen: Seen) -> None:
    for tag, attributes in seen.elements:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "form"}
        for name in ("src", "href", "xlink:href", "action", "data", "srcset"):
            value = attributes.get(name)
            assert value is None or value.startswith("#"), (tag, value)


def test_the_page_forbids_what_it_does_not_bring(whole: str, seen: Seen) -> None:
    """By the digests of its own scripts and styles; no code is made from text."""
    (policy,) = seen.all("meta", **{"http-equiv": "Content-Security-Policy"})
    rules = policy["content"] or ""
    assert "default-src 'none'" in rules
    assert "unsafe" not in rules
    code = [text for text, found in zip(seen.scripts, seen.all("script"), strict=True) if not found.get("type")]
    style = whole.split("<style>")[1].split("</style>")[0]
    for text in (*code, style):
        assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in rules


def test_no_style_or_event_is_set_inside_an_element(seen: Seen) -> None:
    for tag, attributes in seen.elements:
        assert not [name for name in attributes if name == "style" or name.startswith("on")], tag


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.log")), ids=lambda path: path.stem)
def test_the_page_of_an_ordinary_log_is_below_two_megabytes(example: Path) -> None:
    analyses = [analyse(run) for run in read(from_file(str(example)))]
    report = Report(runs=tuple(RunReport(analysis=a, advice=advice_on_log(a), verdict=judge(a)) for a in analyses))
    text = whole_page(report, "en")
    assert len(text.encode()) < 2 * MIB
    Seen(text)


def test_the_page_of_a_run_ten_times_as_long_as_is_drawn_is_below_four_megabytes() -> None:
    long = Truth(max_iters=10 * MOST_POINTS, log_interval=1, eval_interval=250, stall_share=0.02, noise=0.02)
    assert len(whole_page(a_report(a_log(long)), "en").encode()) < 4 * MIB


@cache
def many_runs(count: int) -> Report:
    """Of one log; the second is the longest, and the last one crashed."""
    lengths = [200 if seed == 1 else 100 for seed in range(count)]
    logs = [a_log(replace(CUT, max_iters=n, log_interval=1, seed=seed)) for seed, n in enumerate(lengths)]
    return a_report("".join(logs) + "Traceback (most recent call last):\nRuntimeError: CUDA error\n")


def test_of_many_runs_none_is_left_out_and_the_worst_and_the_longest_are_open_and_drawn() -> None:
    """On purpose without the drawings for paper, which take longest."""
    report = many_runs(23)
    body = report_body(report, "en")
    found = Seen(body.html)
    assert len(report.analyses) == len(found.all("section", class_="run")) == 23
    assert [name for name in body.specs if name.startswith("times-")] == ["times-23", "times-2"]
    folded = re.findall(r"<section class=\"run\" id=\"en-run-(\d+)\" tabindex=\"-1\">\s*<details>", body.html)
    assert sorted(map(int, folded)) == [1, *range(3, 23)]
    assert "<h3>Every iteration</h3>" not in body.html.split('id="en-run-1"')[1].split('class="run"')[0]


def test_a_few_runs_are_all_open_and_drawn() -> None:
    body = report_body(many_runs(MOST_OPEN_RUNS), "en")
    assert len([name for name in body.specs if name.startswith("times-")]) == MOST_OPEN_RUNS
    assert not re.search(r"<section class=\"run\"[^>]*>\s*<details>", body.html)


def test_the_page_of_fifty_runs_is_below_four_and_a_half_megabytes() -> None:
    text = whole_page(many_runs(50), "en")
    assert len(text.encode()) < 4.5 * MIB
    assert text.count('<section class="run"') == 50 * len(LANGUAGES)


def test_each_row_of_an_overview_leads_to_its_run_and_can_be_sorted() -> None:
    body = report_body(many_runs(5), "en")
    found = Seen(body.html)
    links = [item["href"] for item in found.all("a", class_="to")]
    assert links[0] == "#en-run-5"
    assert sorted(links) == sorted(f"#{item['id']}" for item in found.all("section", class_="run"))
    heads = [item for item in found.all("th") if "aria-sort" in item]
    assert [item["aria-sort"] for item in heads] == ["descending"]
    assert len(found.all("button", class_="sort")) == 5  # one for each column
    keys = re.findall(r'<td class="number" data-key="(\d+)"><a class="to"', body.html)
    assert keys[0] == "5"
    assert sorted(keys) == list("12345")


# --- nothing from outside becomes markup ------------------------------------------------------------------------


def hostile_report() -> Report:
    report = a_report(a_log(CUT), source=HOSTILE)
    user = Settings.of(Origin.USER, {"dataset": HOSTILE, "dtype": HOSTILE})
    finding = Finding("x", WARNING, Message("The log says {name:word}.", {"name": HOSTILE}))
    analyses = tuple(
        replace(
            a,
            run=replace(
                a.run, settings=a.run.settings.overridden_by(user), unread=(Unread(3, HOSTILE),), unread_count=1
            ),
            findings=(*a.findings, finding),
        )
        for a in report.analyses
    )
    runs = tuple(RunReport(analysis=a, advice=advice_on_log(a), verdict=judge(a)) for a in analyses)
    return replace(report, runs=runs, remarks=(finding,))


def test_hostile_text_stays_text(seen: Seen) -> None:
    hostile = Seen(whole_page(hostile_report(), "en", with_lines=True))
    assert len(hostile.all("script")) == len(seen.all("script"))
    assert hostile.all("img") == []
    assert "<script>alert(1)</script>" in hostile.text  # as text, where a reader sees it
    assert "{{7*7}}" in hostile.text
    assert not any("alert(1)" in script for script in hostile.scripts)


def test_the_body_holds_no_script() -> None:
    body = report_body(hostile_report(), "fr")
    found = Seen(body.html)
    assert {tag for tag, _ in found.elements} & {"script", "style", "img", "iframe"} == set()
    assert not [name for _, attributes in found.elements for name in attributes if name == "style" or name[:2] == "on"]


def test_a_hostile_name_of_a_setting_stays_text_in_a_plan() -> None:
    report = plan_report(a_plan(dataset=HOSTILE), Message("{a:word}", {"a": HOSTILE}))
    body = body_of(document_of(report, View(why=True)), "es")
    assert Seen(body.html).all("script") == []
    assert "<script>alert(1)" in Seen(body.html).text


def test_the_data_block_cannot_be_closed_from_inside() -> None:
    text = page._charts_json({"en": page.Body("", {"x": {"datasets": {}, "title": "</script><script>"}})})
    assert "<" not in text
    assert json.loads(text)["specs"]["en"]["x"]["title"] == "</script><script>"


# --- languages --------------------------------------------------------------------------------------------------


def test_every_language_is_there_and_one_is_chosen(seen: Seen) -> None:
    assert [found["lang"] for found in seen.all("article")] == list(LANGUAGES)
    assert [found["value"] for found in seen.all("input", type="radio")] == list(LANGUAGES)
    assert [found["value"] for found in seen.all("input") if "checked" in found] == ["de"]
    assert seen.all("html")[0]["lang"] == "de"


def test_the_data_are_there_once_and_the_words_in_each_language(seen: Seen) -> None:
    (place,) = [place for place, found in enumerate(seen.all("script")) if found.get("id") == "charts"]
    block: dict[str, Any] = json.loads(seen.scripts[place])
    assert set(block["specs"]) == set(LANGUAGES)
    for language in LANGUAGES:
        assert set(block["specs"][language]) == set(block["datasets"])
        assert not any("datasets" in spec for spec in block["specs"][language].values())
    drawn = {found["data-chart"] for found in seen.all("div", class_="drawing")}
    assert drawn == set(block["datasets"])


def test_no_id_is_given_twice(seen: Seen) -> None:
    names = [attributes["id"] for _, attributes in seen.elements if "id" in attributes]
    assert len(names) == len(set(names))


# --- the same facts as the note ---------------------------------------------------------------------------------


def sentences_of(part: Document | Section) -> list[Message]:
    """All that stands in sentences, but for what only a reader at a prompt is told."""
    said = [part.heading] if isinstance(part, Section) else [part.title] if part.title else []
    for block in part.blocks:
        if isinstance(block, Headline):
            said += [message for paragraph in block.paragraphs for message in paragraph]
        texts = block.items if isinstance(block, Bullets) else [block] if isinstance(block, Text) else []
        said += [message for text in texts for message in text.messages]
    return said + [message for inner in part.sections if not inner.prompt for message in sentences_of(inner)]


def plainly(text: str) -> str:
    return re.sub(r"\s+", "", text)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_says_what_the_note_says(language: str) -> None:
    report = a_report(a_log(CUT))
    text = plainly(Seen(the_body(language).html).text)
    told = sentences_of(document_of(report))
    assert len(told) > 20
    assert [message.key for message in told if plainly(say(message, language)) not in text] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_of_a_plan_says_what_its_note_says(language: str) -> None:
    found = a_plan()
    document = document_of(plan_report(found, *found.notes), View(why=True))
    text = plainly(Seen(body_of(document, language).html).text)
    for message in sentences_of(document):
        assert plainly(say(message, language)) in text, message.key


def test_a_plan_has_a_page_of_its_own() -> None:
    found = a_plan()
    text = whole_page(plan_report(found, *found.notes), "en")
    assert len(text.encode()) < 2 * MIB
    assert {item["data-chart"] for item in Seen(text).all("div", class_="drawing")} == {"parts", "memory"}


def test_lines_that_were_not_understood_are_shown_on_request() -> None:
    report = hostile_report()
    shown = report_body(report, "en", with_lines=True).html.partition('<section class="part unread">')[2]
    assert shown.split("<pre>")[1].startswith("4: ")
    assert 'class="part unread"' not in report_body(report, "en").html


# --- for every reader -------------------------------------------------------------------------------------------


def test_each_chart_has_a_title_a_drawing_and_a_table() -> None:
    body = the_body("en")
    found = Seen(body.html)
    figures = found.all("figure", class_="chart")
    assert [item["data-chart"] for item in found.all("div", class_="drawing")]
    assert len(figures) == len(body.specs) == len(found.all("figcaption"))
    assert {item["data-chart"] for item in found.all("div", class_="drawing")} == set(body.specs)
    # Without a script the table stands for the drawing.
    assert len([each for each in found.all("details") if "open" in each]) >= len(figures)
    assert len(found.all("caption")) == len(found.all("table")) >= len(figures)
    assert all(item["scope"] == "col" for item in found.all("th"))


def test_headings_do_not_skip_a_level(seen: Seen) -> None:
    levels = [int(tag[1]) for tag, _ in seen.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_the_keyboard_reaches_the_content_at_once(seen: Seen) -> None:
    assert [found["href"] for found in seen.all("a", class_="skip")] == ["#content"]
    assert seen.all("main", id="content")


def test_a_figure_is_not_parted_from_its_unit() -> None:
    report = a_report(a_log(CUT))
    shown = say(report.runs[0].verdict.text, "en")
    assert held(shown) != shown
    assert held(shown) in the_body("en").html


def test_the_style_knows_dark_and_paper_and_swaps_every_colour_of_a_drawing() -> None:
    sheet = page.style()
    assert "@media print" in sheet
    assert "prefers-color-scheme: dark" in sheet
    used = set(re.findall(r'"(#[0-9a-f]{6})"', json.dumps(the_body("en").specs)))
    assert used
    assert used <= set(re.findall(r'\[(?:fill|stroke)="(#[0-9a-f]+)"\]', sheet))


def test_the_engine_brings_an_interpreter_and_cannot_close_its_script() -> None:
    assert "</script" not in page.engine().lower()
    assert "window.vegaEmbed" in page.engine()
    assert page.engine().startswith(f"/*\n{NOTICES.read_text(encoding='utf-8')}*/\n")
    assert "ast: true" in page.drawing()
