"""Every card of the catalogue through every command; forms and languages in turn, so that each meets all kinds."""

from __future__ import annotations

from itertools import product

import pytest
from tools import ROOT

from stepwatch.answers import AdviseRequest, EstimateRequest, ExplainRequest, pasted
from stepwatch.answers.from_logs import explain
from stepwatch.answers.from_plans import advise, estimate
from stepwatch.errors import InputError
from stepwatch.gpus import gpus
from stepwatch.presenters import page_body, render

LOG = pasted((ROOT / "examples" / "resumed.log").read_text(), "a.log")
TURNS = [*product(("terminal", "md", "json", "page"), ("en", "fr", "de", "es"))]


@pytest.mark.parametrize("part", range(8))
def test_a_card_is_answered_for_by_every_command(part: int) -> None:
    for place, card in [*enumerate(gpus())][part::8]:
        form, language = TURNS[place % len(TURNS)]
        shown(card, form, language)
        shown(explain(ExplainRequest(logs=(LOG,), gpu=card.name)), form, language)
        shown(advise(AdviseRequest(log=LOG, gpu=card.name)), form, language)
        if card.peak_flops().flops is None:
            with pytest.raises(InputError, match="speed"):
                estimate(EstimateRequest(gpu=card.name))
            continue
        shown(estimate(EstimateRequest(gpu=card.name)), form, language)
        shown(advise(AdviseRequest(gpu=card.name)), form, language)


@pytest.mark.parametrize(("form", "language"), TURNS)
def test_a_card_without_memory_figures_gets_settings(form: str, language: str) -> None:
    card = next(card for card in gpus() if card.vram_bytes is None)
    shown(advise(AdviseRequest(gpu=card.name)), form, language)


def shown(answer: object, form: str, language: str) -> None:
    assert page_body(answer, language) if form == "page" else render(answer, form, language)  # type: ignore[arg-type]
