"""The page of recommended settings is what stepwatch answers today, and every rule is told of in docs/advice.md."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator

import pytest
from tools import SOURCE
from tools import recommended_page as recommended
from tools.pages import answer, page_path

from stepwatch.advice.gains import PUBLISHED_GAINS, TINY_COMPILE_GAINS
from stepwatch.gpus import find_gpu, gpus
from stepwatch.units import Interval

ADVICE = "docs/advice.md"
_FAMILY = re.compile(r"GeForce RTX 40[789]0(?!.*48GB)")  # cards rebuilt with twice the memory have no table
_HEADING = re.compile(r"^### `(?P<code>\w+)`$", re.MULTILINE)
_GAIN = re.compile(r"^\| `(?P<lever>[\w ,]+)` \| (?P<gain>[\d.]+ – [\d.]+ – [\d.]+) \|", re.MULTILINE)
_TOLD = ("Given", "Changes", "Saving", "Price", "Source")


# --- docs/recommended.md ----------------------------------------------------------------------------------------


def test_the_page_is_what_stepwatch_recommends_today() -> None:
    written = page_path(recommended.PAGE).read_text(encoding="utf-8")
    assert written == recommended.page(), f"{recommended.PAGE} is out of date: run `make pages`"


def test_every_sister_of_these_cards_has_its_row() -> None:
    assert {find_gpu(card).name for card in recommended.CARDS} == {
        gpu.name for gpu in gpus() if _FAMILY.match(gpu.name)
    }


@pytest.mark.parametrize("model", recommended.MODELS, ids=lambda model: model.title)
def test_a_command_of_the_page_gives_its_row(model: recommended.Model) -> None:
    card = recommended.CARDS[-1]
    told = json.loads(answer(*recommended.arguments(model, card), "--json"))
    found = recommended.recommended(model, card)
    assert told["recommended"] == found.settings
    assert told["plan"]["step_s"]["high"] == pytest.approx(found.plan.estimate.step_s.high, rel=1e-6)


# --- docs/advice.md ---------------------------------------------------------------------------------------------


def codes() -> Iterator[str]:
    """Every `rule="…"` of a proposal in the source."""
    for path in sorted((SOURCE / "advice").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "rule" and isinstance(node.value, ast.Constant):
                yield str(node.value.value)


def test_every_rule_has_its_section_and_every_section_its_rule() -> None:
    headings = _HEADING.findall(page_path(ADVICE).read_text(encoding="utf-8"))
    assert sorted(headings) == sorted(set(codes()))


def test_every_section_tells_when_what_how_much_at_what_price_and_from_where() -> None:
    text = page_path(ADVICE).read_text(encoding="utf-8")
    for found in _HEADING.finditer(text):
        section = re.split(r"^##", text[found.end() :], maxsplit=1, flags=re.MULTILINE)[0]
        assert re.findall(r"^- \*\*(\w+)\*\*", section, re.MULTILINE) == list(_TOLD), found["code"]


def test_the_published_gains_are_those_that_are_used() -> None:
    text = page_path(ADVICE).read_text(encoding="utf-8")
    told = {found["lever"]: Interval(*map(float, found["gain"].split(" – "))) for found in _GAIN.finditer(text)}
    assert told == {**PUBLISHED_GAINS, "compile, tiny": TINY_COMPILE_GAINS}
