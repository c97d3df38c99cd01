"""Every card of the catalogue through every command; forms and languages in turn, so that each meets all kinds."""

from __future__ import annotations

from dataclasses import astuple
from itertools import product

import pytest
from tools import ROOT

from stepwatch.answers import pasted
from stepwatch.answers.from_logs import ExplainRequest, explain
from stepwatch.answers.from_plans import AdviseRequest, EstimateRequest, advise, estimate
from stepwatch.errors import InputError
from stepwatch.gpus import gpus
from stepwatch.i18n import LANGUAGES
from stepwatch.presenters import page_body, render

LOG, TWO_RUNS = (pasted((ROOT / "examples" / name).read_text(), "a.log") for name in ("short.log", "resumed.log"))
TURNS = [*product(("terminal", "md", "json", "page"), LANGUAGES)]


# One card of each kind: what is known of it decides what can be said.
KINDS = {(card.architecture, *(figure is None for figure in astuple(card))): card for card in gpus()}


@pytest.mark.parametrize("part", range(4))
def test_a_card_is_answered_for_by_every_command(part: int) -> None:
    for place, card in [*enumerate(gpus())][part::4]:
        form, language = TURNS[(place // 4) % len(TURNS)]
        shown(card, form, language)
        shown(explain(ExplainRequest(logs=(LOG,), gpu=card.name)), form, language)
        if card.peak_flops().flops is None:
            with pytest.raises(InputError, match="speed"):
                estimate(EstimateRequest(gpu=card.name))
            continue
        shown(estimate(EstimateRequest(gpu=card.name)), form, language)
        shown(advise(AdviseRequest(gpu=card.name)), form, language)


def test_each_kind_of_card_gets_advice_on_a_log() -> None:
    """In which `explain` is contained."""
    assert {card.vram_bytes is None for card in KINDS.values()} == {True, False}
    for place, card in enumerate(KINDS.values()):
        form, language = TURNS[place % len(TURNS)]
        shown(advise(AdviseRequest(log=TWO_RUNS, gpu=card.name)), form, language)


@pytest.mark.parametrize(("form", "language"), TURNS)
def test_a_card_without_memory_figures_gets_settings(form: str, language: str) -> None:
    card = next(card for card in gpus() if card.vram_bytes is None)
    shown(advise(AdviseRequest(gpu=card.name)), form, language)


def shown(answer: object, form: str, language: str) -> None:
    assert page_body(answer, language) if form == "page" else render(answer, form, language)  # type: ignore[arg-type]
