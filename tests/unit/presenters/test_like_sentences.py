"""What is said before the answer of how the lines were read, in every form and language."""

from __future__ import annotations

import json

import pytest

from stepwatch.answers import ExplainRequest
from stepwatch.answers.from_logs import explain
from stepwatch.i18n import LANGUAGES
from stepwatch.presenters import render
from stepwatch.report import Report
from stepwatch.sources import from_text

LINES = [f"lap {n}/500 | loss 3.{n} | took 34{n % 7} ms" for n in range(1, 60)]


def the_report(lines: list[str]) -> Report:
    return explain(ExplainRequest(logs=(from_text("\n".join(lines)),), like=lines[3]))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("form", ["terminal", "md", "html"])
def test_two_lines_of_the_log_come_before_the_verdict(form: str, language: str) -> None:
    text = " ".join(render(the_report(LINES), form, language).split())
    first, last = text.index("lap 1/500"), text.index("lap 59/500")
    assert first < last < text.index("✔")
    assert "341" in text[first:last]


def test_english_says_what_each_figure_is() -> None:
    text = " ".join(render(the_report(LINES), "terminal", "en").split())
    assert "“lap 1/500 | loss 3.1 | took 341 ms”, is read as iteration 1, loss 3.1, 341.0 ms for one iteration." in text
    assert "The time is the figure behind “took”, in ms." in text


@pytest.mark.parametrize(
    ("shape", "said", "meaning"),
    [
        ("lap {n} | elapsed {s:.1f} s", "7.00 s since the start", "elapsed"),
        ("Epoch {n} | took 3.{m} s", "epoch 1, 3.10 s for one epoch", "step"),
        ("2024-05-04 09:30:{n:02d} lap {n} | loss 2", "its time by the timestamps of the lines", "clock"),
    ],
)
def test_every_meaning_of_a_time_has_its_words(shape: str, said: str, meaning: str) -> None:
    report = the_report([shape.format(n=n, s=7 * n, m=n % 7) for n in range(1, 60)])
    assert said in " ".join(render(report, "terminal", "en").split())
    assert json.loads(render(report, "json", "en"))["understood"]["time"] == meaning


def test_json_has_the_lines_and_their_figures() -> None:
    understood = json.loads(render(the_report(LINES), "json", "en"))["understood"]
    assert understood["lines"][0] == {"line": 1, "text": LINES[0], "iter": 1, "loss": 3.1, "time_s": 0.341}
    assert (understood["counts"], understood["word"], understood["unit"]) == ("iterations", "took", "ms")


@pytest.mark.parametrize(
    ("shape", "code"),
    [
        ("lap {n} | time 0.3{m}", "like_unit"),
        ("lap {n} | a 0.3{m} s | b 0.9{m} s", "like_doubt"),
        ("2024-05-04 09:30:{n:02d} lap {n} | time 0.003{m} s", "like_clock"),
    ],
)
def test_what_is_not_certain_is_a_finding(shape: str, code: str) -> None:
    report = the_report([shape.format(n=n, m=n % 7) for n in range(1, 60)])
    assert code in {remark.code for remark in report.remarks}
    assert not {remark.code for remark in the_report(LINES).remarks} & {"like_unit", "like_doubt", "like_clock"}
