"""Laws that all advice keeps, whatever the settings, the card and the log."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import pytest
from benchmarks.savings import COMPILATION, Outcome, measure
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tests.builders import a_log, random_truth
from tests.recorded import a_record

from stepwatch.advice import AdviceList, advice_on_log, advice_on_plan
from stepwatch.advice.recommended import recommend
from stepwatch.analysis import Analysis, analyse
from stepwatch.errors import InputError, StepwatchError
from stepwatch.estimator.plan import Plan, plan
from stepwatch.gpus import Gpu, find_gpu, gpus
from stepwatch.i18n import LANGUAGES
from stepwatch.presenters import render
from stepwatch.readers import read
from stepwatch.readers.formats import all_readers
from stepwatch.report import AdviceReport
from stepwatch.run import Levers
from stepwatch.settings import Origin, Settings, Value
from stepwatch.sources import from_text

CARDS = [card for card in gpus() if card.vram_bytes and card.name != "cpu"]
LOGGED_ON = (None, "4070", "4090", "t4", "a100", "v100", "1080 ti", "3060")
# What is learned, or how long: no advice may touch it.
LEARNED = {"n_layer", "n_head", "n_embd", "block_size", "max_iters", "dropout", "bias", "tokens_per_iter", "dataset"}
# Neither a card nor a restart of the whole run is needed for these; plan() sees no difference in a log_interval.
UNSEEN = {"log_interval"}
EVALUATIONS = ("evaluate_less", "fewer_eval_batches", "skip_train_split")

cards = st.sampled_from(CARDS)

# Found once by chance, tried always.
ONE_LAYER: dict[str, Value] = {
    "n_layer": 1, "n_head": 1, "n_embd": 16, "block_size": 256, "vocab_size": 2048, "world_size": 1, "batch_size": 3,
    "gradient_accumulation_steps": 64, "max_iters": 20_000, "eval_interval": 1, "eval_iters": 1, "log_interval": 1,
}  # fmt: skip
TOO_LARGE = {**ONE_LAYER, "block_size": 512, "vocab_size": 50257, "batch_size": 128, "gradient_accumulation_steps": 1}
WAITING: dict[str, Value] = {
    **ONE_LAYER, "n_head": 12, "n_embd": 1536, "vocab_size": 50304, "max_iters": 100_000, "eval_interval": 50_000,
    "compile": False, "flash": False,
}  # fmt: skip
FULL: dict[str, Value] = {  # weights alone nearly fill the card, and half precision keeps two kinds of them
    **ONE_LAYER, "n_layer": 12, "n_head": 12, "n_embd": 1536, "block_size": 64, "vocab_size": 50257, "batch_size": 1,
    "gradient_accumulation_steps": 40, "max_iters": 1000, "eval_interval": 5, "dtype": "float32", "compile": False,
}  # fmt: skip
TOO_LARGE_FOR_BOTH: dict[str, Value] = {  # smaller micro-batches fit, and half precision with them does not
    **ONE_LAYER, "n_layer": 12, "n_head": 16, "n_embd": 2048, "block_size": 512, "vocab_size": 50257, "batch_size": 7,
    "gradient_accumulation_steps": 2, "max_iters": 1000, "dtype": "float32", "activation_checkpointing": True,
}  # fmt: skip
OLD, NEW = find_gpu("gtx 1080"), find_gpu("b300")


@st.composite
def shapes(draw: st.DrawFn) -> dict[str, Value]:
    heads = draw(st.sampled_from([1, 2, 4, 6, 12, 16]))
    return {
        "n_layer": draw(st.sampled_from([1, 2, 4, 6, 12, 24, 36])), "n_head": heads,
        "n_embd": heads * draw(st.sampled_from([16, 32, 64, 128])),
        "block_size": draw(st.sampled_from([64, 256, 512, 1024, 2048])),
        "vocab_size": draw(st.sampled_from([65, 2048, 50257, 50304])),
    }  # fmt: skip


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Value]:
    """As nanoGPT takes them: the accumulation can be shared by the cards."""
    cards = draw(st.sampled_from([1, 1, 1, 2, 4, 8]))
    values: dict[str, Value] = {
        **draw(shapes()), "world_size": cards, "batch_size": draw(st.sampled_from([1, 2, 3, 7, 8, 12, 16, 64, 128])),
        "gradient_accumulation_steps": cards * draw(st.sampled_from([1, 2, 3, 5, 8, 40, 64])),
        "max_iters": draw(st.sampled_from([10, 100, 1000, 5000, 20_000, 100_000, 600_000])),
        "eval_interval": draw(st.sampled_from([1, 5, 10, 37, 50, 100, 250, 500, 2000])),
        "eval_iters": draw(st.sampled_from([1, 5, 20, 40, 50, 100, 200, 500])),
        "log_interval": draw(st.sampled_from([1, 10, 100])),
    }  # fmt: skip
    maybe: dict[str, list[Value]] = {
        "dtype": ["bfloat16", "float16", "float32"], "compile": [True, False], "flash": [True, False],
        "fused": [True, False], "always_save_checkpoint": [True, False], "activation_checkpointing": [True, False],
        "dropout": [0.0, 0.2], "mtbf_hours": [2.0, 24.0, 1000.0],
    }  # fmt: skip
    for name, options in maybe.items():
        if draw(st.booleans()):
            values[name] = draw(st.sampled_from(options))
    return values


def planned(values: dict[str, Value], gpu: Gpu) -> Plan:
    try:
        return plan(Settings.of(Origin.USER, values), gpu)
    except StepwatchError:  # nothing is known of the card's speed, or the tokens cannot be shared
        assume(False)
        raise


def analysed(text: str, card: str | None) -> Analysis:
    return analyse(read(from_text(text))[0], find_gpu(card) if card else None, "user" if card else None)


def assert_worth_it(found: AdviceList) -> None:
    """Each surely saves something and probably a minute and a hundredth; the surest first; never more than there is."""
    total = found.before.total_s
    lows = [advice.saves_s.low for advice in found.advice]
    assert lows == sorted(lows, reverse=True)
    for advice in found.advice:
        saved = advice.saves_s
        assert saved.low > 0, advice.rule
        assert saved.mid < total.mid, advice.rule
        assert saved.high <= total.high * 1.001, advice.rule
        if advice.rule != "smaller_micro_batch":  # without it there may be no run at all
            assert saved.mid >= 60.0, advice.rule
            assert saved.mid >= 0.01 * total.mid, advice.rule
    rules = [advice.rule for advice in found.advice]
    assert len(rules) == len(set(rules))


def assert_adds_up(found: AdviceList) -> None:
    """The first k together save no less than the first k - 1, and all of them what the two runs differ by."""
    so_far = 0.0
    for saved in found.together_s:
        assert saved.mid >= so_far
        so_far = saved.mid
    assert found.saves_s.mid == pytest.approx(so_far)
    assert found.after.total_s.mid <= found.before.total_s.mid
    difference = found.before.total_s.mid - found.after.total_s.mid
    assert difference == pytest.approx(found.saves_s.mid, abs=0.02 * found.before.total_s.mid)


def assert_harmless(found: AdviceList, eval_interval: int, last: int) -> None:
    """Nothing that changes what is learned, nor an interval that makes no sense, one by one and all at once."""
    joined = {name: new for name, (_, new) in found.change.items()}
    for new in (*(advice.new_settings for advice in found.advice), joined):
        assert not LEARNED & set(new)
        now, then = found.case.workload, found.case.workload_with(new)
        if now is not None and then is not None:
            assert then.batch_size * then.grad_accum == now.batch_size * now.grad_accum
            assert then.tokens_per_iteration == now.tokens_per_iteration
            assert then.grad_accum % then.world_size == 0
        if "eval_interval" in new:
            assert eval_interval < int(new["eval_interval"]) <= last
        if "log_interval" in new:
            assert int(new.get("eval_interval", eval_interval)) % int(new["log_interval"]) == 0


def assert_fits(found: AdviceList) -> None:
    room = found.case.gpu.vram_bytes if found.case.gpu is not None else None
    now = found.case.vram_bytes({})
    if room is None or now is None:
        return
    joined = {name: new for name, (_, new) in found.change.items()}
    for new in (*(advice.new_settings for advice in found.advice), joined):
        needed = found.case.vram_bytes(new)
        assert needed is not None
        if "batch_size" in new or now.mid <= room:
            assert needed.mid <= room, new


# --- before a run -----------------------------------------------------------------------------------------------


there = st.sampled_from([1, 2, 4, 8])


@given(configs(), cards, there)
@example(ONE_LAYER, OLD, 2)
@example(TOO_LARGE, OLD, 2)
@example(FULL, OLD, 1)
@example(TOO_LARGE_FOR_BOTH, find_gpu("rtx a2000 12gb"), 2)
def test_advice_on_a_plan_is_worth_it_adds_up_is_harmless_and_fits(
    values: dict[str, Value], gpu: Gpu, there: int
) -> None:
    found = advice_on_plan(planned(values, gpu), cards=there)
    assert_worth_it(found)
    assert_adds_up(found)
    assert_harmless(found, int(values["eval_interval"]), int(values["max_iters"]))
    assert_fits(found)


@given(configs(), cards)
@example(WAITING, NEW)
@example(FULL, OLD)
@example({**FULL, "gradient_accumulation_steps": 5}, OLD)
def test_planned_anew_with_the_change_no_run_is_longer_nor_advised_the_same_again(
    values: dict[str, Value], gpu: Gpu
) -> None:
    before = planned(values, gpu)
    for advice in advice_on_plan(before, cards=8).advice:
        if not advice.change or UNSEEN & set(advice.change):
            continue
        after = planned({**values, **advice.new_settings}, gpu)
        if before.fits:
            assert after.total_s.mid <= before.total_s.mid * (1 + 1e-9), advice.rule
            assert after.fits, advice.rule
        if advice.rule in ("smaller_micro_batch", "compile", "dtype", "flash", "pad_vocabulary", "fused_adamw"):
            assert advice.rule not in [one.rule for one in advice_on_plan(after, cards=8).advice]


@given(configs(), cards)
def test_planned_anew_with_all_changes_no_run_is_longer(values: dict[str, Value], gpu: Gpu) -> None:
    before = planned(values, gpu)
    assume(before.fits)
    found = advice_on_plan(before, cards=2)
    after = planned({**values, **{name: new for name, (_, new) in found.change.items()}}, gpu)
    assert after.total_s.mid <= before.total_s.mid * (1 + 1e-9)


@given(configs(), cards, st.sampled_from(LANGUAGES), st.sampled_from(("json", "md", "terminal")))
def test_the_same_input_gives_the_same_bytes(values: dict[str, Value], gpu: Gpu, language: str, form: str) -> None:
    one, two = (AdviceReport(advice=advice_on_plan(planned(values, gpu), cards=4)) for _ in range(2))
    assert render(one, form, language) == render(two, form, language)


# --- on a log ---------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.sampled_from(LOGGED_ON), st.sampled_from([1, 1, 2, 4]), st.sampled_from([1, 5]))
@example(9346, "a100", 1, 5)
def test_advice_on_a_log_is_worth_it_harmless_and_fits(seed: int, card: str | None, there: int, longer: int) -> None:
    truth = random_truth(np.random.default_rng(seed))
    truth = replace(truth, max_iters=truth.first_iter + min(longer * (truth.max_iters - truth.first_iter), 40_000))
    found = advice_on_log(analysed(a_log(truth), card), cards=there)
    if found is None:
        return
    assert_worth_it(found)
    assert_adds_up(found)
    assert_fits(found)
    assert_harmless(found, truth.eval_interval, truth.max_iters)


@given(st.integers(0, 10**6), st.sampled_from(LOGGED_ON))
def test_the_same_log_gives_the_same_bytes(seed: int, card: str | None) -> None:
    text = a_log(random_truth(np.random.default_rng(seed)))
    one, two = (AdviceReport(advice=advice_on_log(analysed(text, card))) for _ in range(2))
    assert render(one, "json", "de") == render(two, "json", "de")


@pytest.fixture(scope="module")
def savings() -> list[Outcome]:
    return list(measure(runs=60, seed=7))


def test_planted_savings_on_evaluations_hold_the_truth(savings: list[Outcome]) -> None:
    outcomes = [outcome for outcome in savings if outcome.rule in EVALUATIONS]
    assert len(outcomes) >= 20
    assert {outcome.rule for outcome in outcomes} == set(EVALUATIONS)
    assert sum(outcome.covers for outcome in outcomes) >= 0.85 * len(outcomes)
    assert median(outcome.error for outcome in outcomes) <= 0.10


def test_planted_savings_on_compilation_hold_the_truth(savings: list[Outcome]) -> None:
    outcomes = [outcome for outcome in savings if outcome.rule in COMPILATION]
    assert {outcome.rule for outcome in outcomes} == set(COMPILATION)
    assert sum(outcome.covers for outcome in outcomes) >= 0.85 * len(outcomes)


# --- recommended settings ---------------------------------------------------------------------------------------


@st.composite
def wanted(draw: st.DrawFn) -> dict[str, Value]:
    """A shape, a length, and the tokens of an iteration in one of the ways to say them."""
    cards = draw(st.sampled_from([1, 1, 2, 4, 8]))
    values: dict[str, Value] = {**draw(shapes()), "world_size": cards}
    if draw(st.booleans()):
        values["max_iters"] = draw(st.sampled_from([1, 10, 100, 1000, 5000, 100_000]))
    said = draw(st.sampled_from(["not", "tokens", "batch"]))
    if said == "tokens":
        values["tokens_per_iter"] = int(values["block_size"]) * cards * draw(st.sampled_from([1, 7, 12, 64, 480]))
    elif said == "batch":
        values["batch_size"] = draw(st.sampled_from([1, 2, 3, 8, 12, 64]))
        values["gradient_accumulation_steps"] = cards * draw(st.sampled_from([1, 2, 5, 8, 40]))
    return values


def sequences(of: Plan) -> int:
    return of.workload.batch_size * of.workload.grad_accum


@given(wanted(), cards)
def test_a_recommended_config_fits_keeps_the_tokens_and_is_no_slower_or_is_refused(
    values: dict[str, Value], gpu: Gpu
) -> None:
    usual = planned(values, gpu)
    assume(usual.workload.grad_accum % usual.workload.world_size == 0)
    try:
        found = recommend(Settings.of(Origin.USER, values), gpu)
    except InputError:
        assert not usual.fits
        return
    assert found.plan.fits
    assert sequences(found.plan) == sequences(usual)
    assert found.plan.workload.tokens_per_iteration == usual.workload.tokens_per_iteration
    assert found.plan.workload.grad_accum % found.plan.n_gpus == 0
    assert int(found.settings["eval_interval"]) % int(found.settings["log_interval"]) == 0
    assert found.settings.items() >= shape_of(values).items()
    if usual.fits:
        assert found.plan.total_s.mid <= usual.total_s.mid * (1 + 1e-9)  # never slower than the defaults


def shape_of(values: dict[str, Value]) -> dict[str, Value]:
    return {name: values[name] for name in ("n_layer", "n_head", "n_embd", "block_size", "vocab_size")}


@given(configs(), cards)
def test_whatever_is_given_a_config_is_recommended_or_does_not_fit(values: dict[str, Value], gpu: Gpu) -> None:
    usual = planned(values, gpu)
    try:
        found = recommend(Settings.of(Origin.USER, values), gpu)
    except InputError:
        assert not usual.fits
        return
    assert found.plan.fits
    assert sequences(found.plan) == int(values["batch_size"]) * int(values["gradient_accumulation_steps"])


# --- other trainers ---------------------------------------------------------------------------------------------

RECORDED = st.fixed_dictionaries({
    "steps": st.integers(12, 400), "step_s": st.floats(0.002, 30.0), "eval_s": st.floats(0.0, 60.0),
    "checkpoint_s": st.floats(0.0, 60.0), "compile_s": st.none() | st.floats(0.1, 60.0),
    "eval_interval": st.sampled_from([1, 2, 5, 10, 50]), "noise": st.floats(0.0, 0.3), "seed": st.integers(0, 99),
})  # fmt: skip
TABLES = sorted({reader.traits.levers for reader in all_readers().values()})


@given(RECORDED, st.sampled_from(TABLES), st.floats(0.0, 1.0), st.sampled_from([None, 0.01, 1.0, 168.0]))
def test_no_trainer_is_promised_more_than_its_run_takes(
    planted: dict[str, Any], levers: Levers, waiting: float, mtbf_hours: float | None
) -> None:
    known: dict[str, Value] = {"max_iters": 3 * planted["steps"]}
    known |= {} if mtbf_hours is None else {"mtbf_hours": mtbf_hours}
    record = a_record(**planted, data_s=waiting * planted["step_s"], settings=known, closed=False)
    (run,) = read(from_text(record.text))
    found = advice_on_log(analyse(replace(run, traits=replace(run.traits, levers=levers))))
    if found is None:
        return
    total_s = found.before.total_s.mid
    for advice, together in zip(found.advice, found.together_s, strict=True):
        assert 0 < advice.saves_s.low <= advice.saves_s.mid <= total_s * 1.001
        assert advice.saves_s.high <= found.before.total_s.high * 1.001 or advice.basis == "modelled"
        assert together.mid <= total_s * 1.001
        assert set(advice.stated) <= set(levers)  # a setting of this trainer, and of no other
    assert found.after.total_s.low >= 0
    assert found.saves_s.mid == pytest.approx(total_s - found.after.total_s.mid, abs=1e-6 + 0.02 * total_s)
