"""Laws of what few answers hold: cards, measured machines, runs that have only begun or ran out of memory."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.calibrations import a_calibration
from tests.property.columns import inside, whole
from tests.property.test_door_laws import FORMS, explained
from tools.fuzz.roads import check_json

from stepwatch import bounds
from stepwatch.advice.engine import advise
from stepwatch.advice.out_of_memory import shortage_of, smaller_batch
from stepwatch.advice.recommended import too_large
from stepwatch.analysis import analyse
from stepwatch.answers import pasted
from stepwatch.answers.from_logs import ExplainRequest, explain
from stepwatch.errors import StepwatchError
from stepwatch.estimator.plan import plan
from stepwatch.gpus import Gpu, gpus
from stepwatch.gpus.calibration import Measurement
from stepwatch.i18n import LANGUAGES, say
from stepwatch.presenters import render
from stepwatch.readers.assemble import assemble
from stepwatch.readers.formats import reader_of
from stepwatch.readers.records import Records
from stepwatch.run import Fact, Run
from stepwatch.settings import Origin, Settings

SPOKEN = st.sampled_from(LANGUAGES)
CARDS, ENDS = st.sampled_from(gpus()), whole(bounds.SETTINGS["max_iters"])
SHAPES = st.fixed_dictionaries(
    {
        "n_layer": st.integers(1, 200), "n_head": st.integers(1, 64), "vocab_size": st.integers(1, 10**6),
        "block_size": st.integers(1, 10**5), "batch_size": whole(bounds.SETTINGS["batch_size"]),
        "gradient_accumulation_steps": st.integers(1, 1000),
    }
)  # fmt: skip


def named(shape: dict[str, int], head_size: int) -> dict[str, int]:
    return shape | {"n_embd": shape["n_head"] * head_size}


def begun(shape: dict[str, int], **more: int) -> Run:
    records = Records()
    records.events += [Fact(0, name, value, header=True) for name, value in (shape | more).items()]
    return assemble(records, reader_of("nanogpt"), "a.log")[-1]


@given(
    SHAPES, st.sampled_from((8, 64, 128)), st.sampled_from(gpus()), whole(bounds.SETTINGS["max_iters"]), SPOKEN, FORMS
)
def test_a_run_that_has_only_begun_expects_what_it_may(
    shape: dict[str, int], head_size: int, card: Gpu, end: int, language: str, form: str
) -> None:
    run = begun(named(shape, head_size), max_iters=end)
    with suppress(StepwatchError):  # a card whose speed is not known
        explained(analyse(run, card), language, form)


@given(SHAPES, st.sampled_from((8, 64)), CARDS, SPOKEN)
def test_a_plan_is_advised_or_too_large(shape: dict[str, int], head_size: int, card: Gpu, language: str) -> None:
    with suppress(StepwatchError):
        found = plan(Settings.of(Origin.USER, named(shape, head_size)), card)
        for advice in advise(found):
            assert say(advice.what, language)
            assert advice.saves_s.low <= advice.saves_s.mid <= advice.saves_s.high
        if card.vram_bytes:
            assert say(too_large(found).what, language)


SIZES = st.text("0123456789.", max_size=12) | st.floats(0.0, 1e9).map(str) | st.text(max_size=8)


@given(SIZES, SIZES, st.sampled_from("KMGTP"), SHAPES, st.none() | CARDS, SPOKEN)
def test_a_run_out_of_memory_is_told_what_to_set(
    asked: str, has: str, unit: str, shape: dict[str, int], card: Gpu | None, language: str
) -> None:
    text = f"CUDA out of memory. Tried to allocate {asked} {unit}iB. GPU 0 has a total capacity of {has} {unit}iB"
    for size in shortage_of(text):
        assert size is None or 0 <= size < 1e24
    message = smaller_batch(begun(named(shape, 64)), card, text)
    assert say(message, language)
    assert message.params.get("new", 1) <= shape["batch_size"]


FIGURES = {
    "vram_bytes": inside(bounds.of_sample("_bytes")), "bandwidth_bytes_per_s": inside(bounds.of_sample("_bytes_per_s")),
    "tdp_w": inside(bounds.of_sample("_w")), "fp32_flops": inside(bounds.FLOPS), "bf16_flops": inside(bounds.FLOPS),
}  # fmt: skip


@given(
    st.sampled_from(gpus()), st.fixed_dictionaries({}, optional=FIGURES), SPOKEN, st.sampled_from(("terminal", "md"))
)
def test_any_card_is_shown(card: Gpu, figures: dict[str, float], language: str, form: str) -> None:
    other = replace(card, **figures)
    assert card.name in str(render(other, form, language))
    assert render([other, card], form, language)


@given(
    inside(bounds.CALIBRATED),
    inside(bounds.CALIBRATED),
    st.sampled_from(("launch", "save_rate", "bandwidth")),
    SPOKEN,
)
def test_any_measured_machine_is_shown(one: float, other: float, name: str, language: str) -> None:
    low, high = sorted((one, other))
    known = a_calibration()
    changed = {**known.figures, name: Measurement((low + high) / 2, low, high)}
    assert render(a_calibration(figures=changed), "terminal", language)


@given(st.lists(inside(bounds.Range(1e-3, 1e5, "")), min_size=2, max_size=12), st.sampled_from((1, 10)), SPOKEN)
def test_how_lines_of_an_example_were_read_is_data(times: list[float], gap: int, language: str) -> None:
    log = "".join(f"it {gap * row} | {time_s:.3f} s\n" for row, time_s in enumerate(times, start=1))
    report = explain(ExplainRequest(logs=(pasted(log),), like="it 12 | 0.34 s"))
    told = json.loads(render(report, "json", language))
    check_json(told)
    assert told["understood"]["lines"]
