"""The page has no prompt: nothing on it names an option or a command."""

from __future__ import annotations

import re

import pytest
from tools import ROOT
from tools.catalogues import extracted

from stepwatch.answers import pasted
from stepwatch.answers.from_logs import ExplainRequest, explain
from stepwatch.answers.from_plans import AdviseRequest, EstimateRequest, advise, estimate
from stepwatch.i18n import LANGUAGES
from stepwatch.messages import Message
from stepwatch.presenters import page_body
from stepwatch.presenters.page_wording import ON_PAGE, on_page

COMMAND_WORDS = re.compile(
    r"(?<![\w-])--[a-z]|`stepwatch|stepwatch (?:-|[a-z]+ [A-Z]|explain|calibrate|compare|serve|watch)"
)
# What nobody meets on the page: other rooms, options that it does not have, a section that it leaves out.
ELSEWHERE = {
    "cli",
    "fleet",
    "trainer",
    "recorder",
    "next_command.py",
    "card_answer.py",
    "watch.py",
    "security.py",
    "options.py",
}
NOT_OFFERED = ("--fail-over", "--like and --log-format", "--log-format names", "--price-per-hour", "gpustat --json")


def test_every_sentence_that_names_an_option_has_another_for_the_page() -> None:
    sentences = [
        sentence.id if isinstance(sentence.id, str) else sentence.id[0]
        for sentence in extracted()
        if not ELSEWHERE.issuperset(part for place, _ in sentence.locations for part in place.split("/")[:1])
        and not any(place.split("/")[-1] in ELSEWHERE for place, _ in sentence.locations)
    ]
    named = {text for text in sentences if COMMAND_WORDS.search(text) and not any(n in text for n in NOT_OFFERED)}
    assert named == {text for text in ON_PAGE if COMMAND_WORDS.search(text)}
    assert len(named) > 30


@pytest.mark.parametrize("text", ON_PAGE.values())
def test_the_sentences_for_the_page_name_none(text: Message) -> None:
    assert not COMMAND_WORDS.search(text.key)


def test_the_values_stay_and_so_does_every_other_sentence() -> None:
    said = on_page(
        Message("The log says {name:word} = {told:word}, --set says {given:word}: --set wins.", {"name": "a"})
    )
    assert (said.key, said.params) == (
        "The log says {name:word} = {told:word}, you say {given:word}: yours is used.",
        {"name": "a"},
    )
    assert on_page(Message("Anything else.")) == Message("Anything else.")
    within = Message("{name:word}: {what:word}", {"what": Message("for example: --set max_iters=6000")})
    assert on_page(within).params["what"] == Message("for example: max_iters and 6000")


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_answer_on_the_page_names_an_option(language: str) -> None:
    log = pasted((ROOT / "examples" / "nanogpt-4070.log").read_bytes())
    answers = (
        explain(ExplainRequest(logs=(log,), settings=("eval_interval=7",))),
        advise(AdviseRequest(log=log)),
        advise(AdviseRequest(gpu="4070", gpus=2)),
        estimate(EstimateRequest(gpu="v100", model="gpt2-xl", gpus=8)),
    )
    for answer in answers:
        html = page_body(answer, language).html
        assert not COMMAND_WORDS.search(re.sub(r"<pre>.*?</pre>", "", html, flags=re.DOTALL))
