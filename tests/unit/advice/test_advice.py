"""Each rule: where it is given, with its direction, change and saving; and where it is not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.builders import Saves, Shape, Truth, a_log, a_run

from stepwatch.advice import Advice, AdviceList, advice_on_log, advice_on_plan, advise
from stepwatch.advice.schedule import best_spacing_s, rounded
from stepwatch.analysis import Analysis, analyse
from stepwatch.estimator.plan import Plan, plan
from stepwatch.estimator.workload import Workload
from stepwatch.gpus import find_gpu
from stepwatch.readers import read
from stepwatch.settings import Origin, Settings, Value
from stepwatch.sources import from_text

GPT2: dict[str, Value] = {
    "n_layer": 12, "n_head": 12, "n_embd": 768, "batch_size": 8, "gradient_accumulation_steps": 64, "max_iters": 12000,
    "eval_interval": 500, "log_interval": 10,
}  # fmt: skip
TINY: dict[str, Value] = {
    "n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 64, "vocab_size": 65, "batch_size": 12,
    "gradient_accumulation_steps": 1, "max_iters": 600_000, "eval_interval": 2000,
}  # fmt: skip
GPT2_SHAPE = Shape(n_layer=12, n_head=12, n_embd=768, vocab_size=50304, block_size=1024)
TINY_SHAPE = Shape(n_layer=4, n_head=4, n_embd=128, vocab_size=65, block_size=64)
# 81 evaluations of 5 s in 40 minutes.
USUAL = Truth(max_iters=20000)
# A whole night of GPT-2: 201 evaluations of 6 s, and checkpoints of 30 s.
LARGE = Truth(
    max_iters=20000, eval_interval=100, step_s=1.0, eval_s=5.6, eval_iters=20, checkpoint_s=30.0, shape=GPT2_SHAPE,
    batch_size=8, gradient_accumulation=8,
)  # fmt: skip

# Evaluations and checkpoints as small as such a model has them.
SMALL = replace(USUAL, eval_iters=20, eval_s=1.4, checkpoint_s=0.2)


def planned(gpu: str = "4070", n_gpus: int | None = None, link: str | None = None, **values: Value) -> Plan:
    return plan(Settings.of(Origin.USER, {**GPT2, **values}), find_gpu(gpu), n_gpus=n_gpus, link=link)


def analysed(log: Truth | str, gpu: str | None = None, **values: Value) -> Analysis:
    text = log if isinstance(log, str) else a_log(log)
    run = read(from_text(text))[0]
    run = replace(run, settings=run.settings.overridden_by(Settings.of(Origin.USER, values)))
    return analyse(run, find_gpu(gpu) if gpu else None, "user" if gpu else None)


def on_log(log: Truth | str, gpu: str | None = None, cards: int | None = None, **values: Value) -> AdviceList:
    found = advice_on_log(analysed(log, gpu, **values), cards=cards)
    assert found is not None
    return found


def on_plan(gpu: str = "4070", cards: int | None = None, **values: Value) -> AdviceList:
    return advice_on_plan(planned(gpu, **values), cards=cards)


def given(rule: str, found: AdviceList) -> Advice:
    advice = [one for one in found.advice if one.rule == rule]
    assert len(advice) == 1, [one.rule for one in found.advice]
    assert advice[0].saves_s.low > 0
    assert advice[0].saves_s.mid < found.before.total_s.mid
    return advice[0]


def rules_of(found: AdviceList) -> list[str]:
    return [advice.rule for advice in found.advice]


# --- evaluations ------------------------------------------------------------------------------------------------


def test_evaluations_that_cost_much_are_to_be_fewer() -> None:
    advice = given("evaluate_less", on_log(USUAL))
    assert advice.change == {"eval_interval": (250, 2000)}
    assert advice.basis == "measured"
    record = a_run(USUAL)
    kept = record.number % 2000 == 0
    assert advice.saves_s.holds(float((record.eval_s + record.checkpoint_s)[~kept].sum()))


def test_before_the_run_the_estimator_tells_what_evaluations_cost() -> None:
    advice = given("evaluate_less", on_plan(eval_interval=50))
    assert advice.change == {"eval_interval": (50, 200)}
    assert advice.basis == "modelled"


@pytest.mark.parametrize(
    "truth",
    [
        replace(USUAL, eval_s=0.05, checkpoint_s=0.01),
        replace(USUAL, max_iters=4000),
        replace(USUAL, max_iters=200, eval_interval=10, log_interval=1),
    ],
    ids=["cheap already", "few already", "under a minute"],
)
def test_evaluations_stay_where_there_is_nothing_to_gain(truth: Truth) -> None:
    assert "evaluate_less" not in rules_of(on_log(truth))


def test_at_least_ten_evaluations_remain() -> None:
    advice = given("evaluate_less", on_log(replace(USUAL, max_iters=6000)))
    assert 6000 // int(advice.change["eval_interval"][1]) + 1 >= 10


def test_checkpoints_that_go_by_the_evaluations_do_not_become_hours_apart() -> None:
    found = on_log(replace(LARGE, step_s=9.0, eval_s=50.0, max_iters=20000))
    interval = int(given("evaluate_less", found).change["eval_interval"][1])
    assert interval * 9.0 <= 2 * 3600


def test_an_eval_interval_that_nothing_tells_is_not_raised() -> None:
    lines = [f"iter {k}: loss 2.0, time {5000 if k % 700 == 30 else 100}.00ms" for k in range(0, 20000, 10)]
    found = advice_on_log(analysed("\n".join(lines) + "\n"))
    assert found is None or "evaluate_less" not in rules_of(found)


def test_fewer_batches_cost_in_proportion_and_make_the_loss_noisier_by_the_root() -> None:
    advice = given("fewer_eval_batches", on_log(USUAL))
    assert advice.change == {"eval_iters": (200, 50)}
    assert advice.saves_s.holds(0.75 * float(a_run(USUAL).eval_s.sum()))
    assert advice.price.params["noisier"] == 2.0


def test_an_eval_iters_that_the_log_does_not_tell_is_assumed_and_said_to_be() -> None:
    advice = given("fewer_eval_batches", on_log(replace(USUAL, header=False)))
    assert advice.change == {"eval_iters": (None, 50)}
    assert "--set eval_iters" in advice.because.in_english()


def test_an_eval_iters_that_is_set_by_hand_is_known() -> None:
    advice = given("fewer_eval_batches", on_log(replace(USUAL, header=False), eval_iters=400))
    assert advice.change == {"eval_iters": (400, 100)}
    assert "--set" not in advice.because.in_english()


@pytest.mark.parametrize(
    "truth", [replace(USUAL, eval_iters=20), replace(USUAL, eval_s=0.05)], ids=["few already", "cheap already"]
)
def test_batches_of_an_evaluation_stay_where_there_is_nothing_to_gain(truth: Truth) -> None:
    assert "fewer_eval_batches" not in rules_of(on_log(truth))


def test_the_training_split_is_half_of_every_evaluation() -> None:
    advice = given("skip_train_split", on_log(USUAL))
    assert advice.saves_s.holds(0.5 * float(a_run(USUAL).eval_s.sum()))
    assert advice.change == {}
    assert advice.patch is not None
    assert "skip_train_split" not in rules_of(on_log(replace(USUAL, eval_s=0.05)))


# --- checkpoints ------------------------------------------------------------------------------------------------


def test_a_run_that_saves_always_may_save_its_best_only() -> None:
    always = replace(LARGE, saves=Saves.ALWAYS)
    advice = given("save_on_improvement", on_log(always))
    assert advice.change == {"always_save_checkpoint": (True, False)}
    every, better = (float(a_run(truth).checkpoint_s.sum()) for truth in (always, LARGE))
    assert advice.saves_s.holds(every - better)


@pytest.mark.parametrize(
    "truth",
    [LARGE, replace(SMALL, saves=Saves.ALWAYS), replace(LARGE, saves=Saves.NEVER)],
    ids=["does so already", "cheap", "never saves"],
)
def test_a_run_that_gains_nothing_by_it_saves_as_it_does(truth: Truth) -> None:
    assert "save_on_improvement" not in rules_of(on_log(truth))


def test_before_a_run_nobody_knows_which_evaluations_will_improve() -> None:
    assert "save_on_improvement" not in rules_of(on_plan(eval_interval=10))


def test_young_and_daly() -> None:
    assert best_spacing_s(30.0, 7 * 24 * 3600.0) == pytest.approx(6024, abs=1)


def test_dear_checkpoints_are_saved_apart_from_the_evaluations() -> None:
    advice = given("save_apart", on_log(LARGE))
    assert advice.effect.save_every == 5000  # the round multiple of eval_interval below 6,024 steps of a second
    assert "% 5000" in (advice.patch or "")
    record = a_run(LARGE)
    assert advice.saves_s.mid == pytest.approx(float(record.checkpoint_s.sum()), rel=0.1)
    assert "--set mtbf_hours" in advice.because.in_english()


def test_with_more_failures_checkpoints_come_more_often() -> None:
    advice = given("save_apart", on_log(LARGE, mtbf_hours=24))
    assert advice.effect.save_every is not None
    assert advice.effect.save_every < 5000
    assert "--set" not in advice.because.in_english()


@pytest.mark.parametrize(
    "truth",
    [replace(LARGE, checkpoint_s=0.01), replace(LARGE, max_iters=9000), replace(LARGE, saves=Saves.NEVER)],
    ids=["cheap", "the run ends first", "never saves"],
)
def test_checkpoints_stay_with_the_evaluations_where_it_does_not_pay(truth: Truth) -> None:
    assert "save_apart" not in rules_of(on_log(truth))


def test_a_machine_that_fails_often_must_save_more() -> None:
    found = on_plan(eval_interval=6000, mtbf_hours=24)
    advice = given("save_more", found)
    assert advice.effect.save_every is not None
    assert advice.effect.save_every < 6000
    assert found.before.lost_s.mid > found.after.lost_s.mid > 0
    assert "save_more" not in rules_of(on_plan(eval_interval=6000))  # nothing is known of failures
    assert "save_more" not in rules_of(on_plan(eval_interval=6000, mtbf_hours=100_000))


def test_failures_cost_half_the_time_between_checkpoints_each() -> None:
    """100 hours of steps, a failure every 10: ten times half of what lies between two of the twenty checkpoints."""
    found = on_plan(mtbf_hours=10)
    running = found.before.step_s.mid
    assert found.before.lost_s.mid == pytest.approx(running / 36000 * running / 24 / 2, rel=0.01)


def test_training_need_not_wait_for_the_disk() -> None:
    advice = given("async_saving", on_log(LARGE))
    assert advice.saves_s.mid < float(a_run(LARGE).checkpoint_s.sum())
    assert advice.change == {}
    assert "async_saving" not in rules_of(on_log(replace(LARGE, checkpoint_s=0.05)))
    assert "async_saving" not in rules_of(on_log(replace(LARGE, header=False)))  # the size is not known


def test_a_checkpoint_slower_than_any_local_disk_has_a_slow_one() -> None:
    """1.5 GB in 30 s."""
    found = on_log(LARGE)
    assert given("faster_storage", found).basis == "modelled"
    assert "faster_storage" not in rules_of(on_log(replace(LARGE, checkpoint_s=3.0)))
    assert "faster_storage" not in rules_of(on_plan(eval_interval=10))  # nothing was measured


# --- the micro-batch --------------------------------------------------------------------------------------------


def test_a_small_micro_batch_grows_and_keeps_the_tokens() -> None:
    found = on_plan("a100", **{**TINY, "batch_size": 1, "gradient_accumulation_steps": 64})
    advice = given("larger_micro_batch", found)
    batch, accumulation = (int(advice.change[name][1]) for name in ("batch_size", "gradient_accumulation_steps"))
    assert batch > 1
    assert batch * accumulation == 64
    assert found.case.vram_bytes(advice.new_settings).high <= found.case.gpu.vram_bytes  # type: ignore[union-attr, operator]


def test_an_evaluation_sees_as_many_sequences_as_before() -> None:
    values = {**TINY, "batch_size": 1, "gradient_accumulation_steps": 64}
    advice = given("larger_micro_batch", on_plan("a100", **values))
    sequences = int(advice.change["eval_iters"][1]) * int(advice.change["batch_size"][1])
    assert sequences == pytest.approx(200, rel=0.05)


def test_a_log_tells_the_micro_batch_too() -> None:
    slow = Truth(
        max_iters=60000, eval_s=1.0, step_s=0.3, eval_interval=10000, shape=TINY_SHAPE, batch_size=2,
        gradient_accumulation=40,
    )  # fmt: skip
    advice = given("larger_micro_batch", on_log(slow, "4070"))
    assert advice.change["batch_size"] == (2, 80)
    assert "larger_micro_batch" not in rules_of(on_log(slow))  # no card, no advice on it


@pytest.mark.parametrize("values", [{"batch_size": 8}, {"batch_size": 12, "gradient_accumulation_steps": 1}])
def test_a_card_that_is_busy_needs_no_larger_micro_batch(values: dict[str, Value]) -> None:
    assert "larger_micro_batch" not in rules_of(on_plan("4070", **values))


def test_a_micro_batch_that_does_not_fit_shrinks() -> None:
    found = on_plan(batch_size=64)
    advice = given("smaller_micro_batch", found)
    assert advice.change["batch_size"] == (64, 8)
    assert advice.change["gradient_accumulation_steps"] == (64, 512)
    assert planned(batch_size=8, gradient_accumulation_steps=512).fits
    assert found.before.total_s.mid > planned(batch_size=64).total_s.mid  # what spills is slow


SPILLING = Truth(
    max_iters=3000, eval_s=40.0, step_s=3.0, eval_interval=1000, shape=GPT2_SHAPE, batch_size=64,
    gradient_accumulation=1,
)  # fmt: skip


@pytest.mark.parametrize("step_s", [3.0, 7.0])
def test_a_log_shows_that_it_spills_by_being_slow(step_s: float) -> None:
    """1.3 s where it all fits; what spills makes it 3.5 to 25 s, 7 s most likely."""
    spilling = on_log(replace(SPILLING, step_s=step_s), "4070")
    assert given("smaller_micro_batch", spilling).change["batch_size"] == (64, 8)


def test_a_log_as_quick_as_its_card_does_not_spill_whatever_the_estimator_says() -> None:
    assert "smaller_micro_batch" not in rules_of(on_log(replace(SPILLING, step_s=1.5), "4070"))
    assert "smaller_micro_batch" not in rules_of(on_plan(batch_size=4))


def test_no_more_is_promised_of_a_run_that_spills_than_its_card_can_do() -> None:
    spilling = analysed(replace(SPILLING, step_s=2.0), "4070")
    assert spilling.expected is not None
    advice = given("smaller_micro_batch", on_log(replace(SPILLING, step_s=2.0), "4070"))
    assert advice.saves_s.mid <= 3001 * (2.0 - spilling.expected.floor_step_s)


# --- the compiler -----------------------------------------------------------------------------------------------


def test_an_eager_run_is_to_be_compiled() -> None:
    advice = given("compile", on_plan(compile=False))
    assert advice.change == {"compile": (False, True)}


def eager(gain: float) -> Truth:
    """GPT-2 on a 4090, so many times as slow as the estimator says that it is compiled."""
    step_s = gain * planned("4090", gradient_accumulation_steps=8).estimate.step_s.mid
    return replace(
        LARGE, compiled=False, compile_s=1.0, step_s=step_s, eval_s=2.8 * step_s, max_iters=5000, eval_interval=1000,
        checkpoint_s=3.0,
    )  # fmt: skip


@pytest.mark.parametrize("gain", [1.85, 2.0, 2.3])
def test_a_log_clearly_slower_than_compiled_is_told_what_compilation_gives(gain: float) -> None:
    found = on_log(eager(gain), "4090")
    advice = given("compile", found)
    assert advice.change == {"compile": (False, True)}
    record = a_run(eager(gain))
    computing = float(record.step_s.sum() + record.eval_s.sum())
    assert advice.saves_s.holds(computing * (1 - 1 / gain) - 20.0)
    assert not any("compilation" in message.in_english() for message in found.missing)


@pytest.mark.parametrize("gain", [0.85, 1.15, 1.3], ids=["faster than compiled", "hardly slower", "a little slower"])
def test_what_a_log_leaves_open_about_compilation_is_said_and_not_ranked(gain: float) -> None:
    found = on_log(eager(gain), "4090")
    assert "compile" not in rules_of(found)
    (said,) = (message.in_english() for message in found.missing if "compilation" in message.in_english())
    assert "1.15 to 2.3 times" in said
    assert "--compile=True" in said


def test_what_compilation_gives_is_not_told_of_a_run_too_short_for_it() -> None:
    found = on_log(replace(eager(1.2), max_iters=100, eval_interval=50), "4090")
    assert "compile" not in rules_of(found)
    assert not any("compilation" in message.in_english() for message in found.missing)


@pytest.mark.parametrize(
    "values",
    [{"compile": True}, {}, {"compile": False, "max_iters": 3}, {**TINY, "compile": False}],
    ids=["does so", "nanoGPT's default", "too short", "a tiny model: it may not help"],
)
def test_compilation_is_not_advised_where_it_gains_nothing(values: dict[str, Value]) -> None:
    assert "compile" not in rules_of(on_plan(**values))


def test_a_log_that_does_not_tell_whether_it_compiles_asks() -> None:
    told = {name: GPT2[name] for name in ("n_layer", "n_head", "n_embd", "batch_size")}
    told |= {"vocab_size": 50304, "block_size": 1024, "gradient_accumulation_steps": 8}
    found = on_log(replace(LARGE, max_iters=3000, header=False), "4070", **told)
    assert not {"compile", "no_compile"} & set(rules_of(found))
    assert any("--set compile" in message.in_english() for message in found.missing)


def test_compilation_that_never_pays_back_is_left_out() -> None:
    short = Truth(max_iters=300, compile_s=150.0, eval_interval=100, step_s=0.025, eval_s=3.5)
    advice = given("no_compile", on_log(short, "4090"))
    assert advice.change == {"compile": (True, False)}
    record = a_run(short)
    computing = float(record.step_s.sum() + record.eval_s.sum())
    for gain in (1.0, 1.4, 1.8):
        assert advice.saves_s.holds(150.0 - 1.0 - computing * (gain - 1))
    assert "no_compile" not in rules_of(on_log(replace(short, max_iters=30000, eval_interval=10000), "4090"))
    assert "no_compile" not in rules_of(on_log(replace(short, compile_s=20.0), "4090"))


def test_compilation_is_kept_where_what_it_gives_may_make_up_for_it() -> None:
    even = Truth(max_iters=1500, compile_s=150.0, eval_interval=500, step_s=0.06, eval_s=8.4)
    assert "no_compile" not in rules_of(on_log(even, "4090"))


def test_a_card_that_waits_for_launches_replays_them() -> None:
    advice = given("reduce_overhead", on_plan("a100", **TINY))
    assert "reduce-overhead" in (advice.patch or "")
    assert advice.change == {}


@pytest.mark.parametrize("values", [GPT2, {**TINY, "compile": False}], ids=["a busy card", "not compiled"])
def test_launches_are_left_alone_otherwise(values: dict[str, Value]) -> None:
    assert "reduce_overhead" not in rules_of(on_plan("a100", **values))


def test_two_ways_to_have_fewer_launches_are_not_both_chosen() -> None:
    found = on_plan("a100", **{**TINY, "batch_size": 1, "gradient_accumulation_steps": 64})
    chosen = dict(zip(rules_of(found), found.chosen, strict=True))
    assert chosen["larger_micro_batch"]
    assert not chosen["reduce_overhead"]


# --- arithmetic -------------------------------------------------------------------------------------------------


def test_single_precision_becomes_half_as_the_card_has_it() -> None:
    assert given("dtype", on_plan("4070", dtype="float32")).change == {"dtype": ("float32", "bfloat16")}
    assert given("dtype", on_plan("v100", dtype="float32")).change == {"dtype": ("float32", "float16")}


@pytest.mark.parametrize(
    ("gpu", "dtype"), [("4070", "bfloat16"), ("4070", "float16"), ("t4", "float16"), ("1080 ti", "float32")]
)
def test_arithmetic_that_suits_the_card_stays(gpu: str, dtype: str) -> None:
    assert "dtype" not in rules_of(on_plan(gpu, dtype=dtype, batch_size=4))


@pytest.mark.parametrize("values", [{"dtype": "bfloat16"}, {}], ids=["asked for", "nanoGPT's own choice"])
def test_bfloat16_that_is_only_emulated_becomes_float16(values: dict[str, Value]) -> None:
    found = on_plan("t4", **values)
    advice = given("dtype", found)
    assert advice.change["dtype"][1] == "float16"
    assert advice.saves_s.mid > 0.8 * found.before.total_s.mid
    assert "emulates" in advice.because.in_english()


def test_the_trap_shows_in_a_log_that_is_slow_on_a_card_without_bfloat16() -> None:
    """0.07 s in float16 on a T4; half a second where it is emulated."""
    slow = replace(USUAL, step_s=0.54, eval_s=1.0)
    advice = given("dtype", on_log(slow, "t4"))
    assert advice.change == {"dtype": (None, "float16")}
    assert "dtype" not in rules_of(on_log(replace(slow, step_s=0.075), "t4"))
    assert "dtype" not in rules_of(on_log(slow, "t4", dtype="float16"))
    assert given("dtype", on_log(slow, "t4", dtype="bfloat16")).change == {"dtype": ("bfloat16", "float16")}


def test_attention_that_writes_its_scores_is_replaced() -> None:
    assert given("flash", on_plan("a100", flash=False)).change == {"flash": (False, True)}
    assert "flash" not in rules_of(on_plan("a100", flash=True))
    assert "flash" not in rules_of(on_plan("a100"))


def test_an_odd_vocabulary_is_padded_to_64() -> None:
    assert given("pad_vocabulary", on_plan(vocab_size=50257)).change == {"vocab_size": (50257, 50304)}


@pytest.mark.parametrize(
    "values",
    [{"vocab_size": 50304}, {"vocab_size": 65}, {"vocab_size": 50257, "init_from": "gpt2"}],
    ids=["padded", "small", "its weights have that size"],
)
def test_other_vocabularies_stay(values: dict[str, Value]) -> None:
    assert "pad_vocabulary" not in rules_of(on_plan(**values))


WAITING: dict[str, Value] = {
    "n_layer": 1, "n_embd": 1536, "block_size": 256, "vocab_size": 50257, "batch_size": 3, "max_iters": 100_000,
    "flash": False, "eval_interval": 50_000,
}  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "now", "then"),
    [
        ("pad_vocabulary", {"compile": True}, {"vocab_size": 50304}),
        ("compile", {"compile": False}, {"compile": True}),
    ],
)
def test_a_published_gain_is_not_promised_where_the_estimator_sees_none(
    rule: str, now: dict[str, Value], then: dict[str, Value]
) -> None:
    """A card that waits for launches all the time: planned anew with the change the run is even a little longer."""
    before = planned("b300", **{**WAITING, **now})
    assert planned("b300", **{**WAITING, **now, **then}).total_s.mid > before.total_s.mid
    assert rule not in [advice.rule for advice in advise(before)]


def test_the_optimizer_is_fused_where_it_takes_much_of_the_step() -> None:
    assert given("fused_adamw", on_plan(fused=False, gradient_accumulation_steps=1)).change == {"fused": (False, True)}
    assert "fused_adamw" not in rules_of(on_plan(fused=True, gradient_accumulation_steps=1))
    assert "fused_adamw" not in rules_of(on_plan(fused=False, max_iters=100))


def test_the_modern_recipe_is_offered_to_small_models_from_scratch_and_counted_nowhere() -> None:
    small = {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 64, "vocab_size": 103, "max_iters": 50_000}
    for own in ({}, {"recipe": "nanogpt"}):
        found = on_plan(**small, **own)
        (offer,) = found.offers
        assert "recipe" not in found.change
        assert all("recipe" not in advice.change for advice in found.advice)
    others = ({"recipe": "modern"}, {"init_from": "resume"}, {"max_iters": 10}, {"n_layer": 12, "n_embd": 768})
    assert not any(on_plan(**{**small, **other}).offers for other in others)
    # The range is that of the page, which the benchmark writes.
    page = (Path(__file__).parents[3] / "docs" / "train.md").read_text(encoding="utf-8")
    measured = [float(share) for share in re.findall(r"^\| .*iterations, \d+ s \| \*\*([\d.]+)\*\* \|$", page, re.M)]
    assert len(measured) == 6
    assert (min(measured), max(measured)) == (offer.params["least"], offer.params["most"])
    shape = re.search(r"^\| ([\d,]+) tokens of .*, (\d+) layers of (\d+), batches of \d+ × (\d+) \|", page, re.M)
    assert shape is not None
    vocabulary, layers, width, block = (int(size.replace(",", "")) for size in shape.groups())
    largest = Workload(n_layer=layers, n_head=1, n_embd=width, block_size=block, vocab_size=vocabulary)
    assert offer.params["params"] == pytest.approx(largest.n_params, rel=0.05)


# --- logging, cards ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("interval", "every"), [(2000, 10), (30, 10), (7, 7), (12, 6), (250, 10)])
def test_short_steps_are_logged_less_and_every_evaluation_still_is(interval: int, every: int) -> None:
    values = {**TINY, "eval_interval": interval, "eval_iters": 1, "log_interval": 1}
    assert given("log_less", on_plan("4090", **values)).change == {"log_interval": (1, every)}


@pytest.mark.parametrize(
    "values",
    [{"log_interval": 10}, {"log_interval": 1, "eval_interval": 37}, {"log_interval": 1, "max_iters": 10000}],
    ids=["does so", "no divisor", "too short"],
)
def test_logging_stays_where_there_is_nothing_to_gain(values: dict[str, Value]) -> None:
    assert "log_less" not in rules_of(on_plan("4090", **{**TINY, "eval_iters": 1, **values}))


def test_long_steps_may_all_be_logged() -> None:
    assert "log_less" not in rules_of(on_plan(log_interval=1))


def test_a_log_interval_that_nothing_tells_is_not_raised() -> None:
    quick = Truth(max_iters=60000, log_interval=1, eval_s=0.5, step_s=0.006, eval_interval=10000, shape=TINY_SHAPE)
    assert given("log_less", on_log(quick, max_iters=600_000)).change == {"log_interval": (1, 10)}
    ten = replace(quick, log_interval=10, header=False)
    assert "log_less" not in rules_of(on_log(ten, max_iters=600_000))


def test_cards_that_are_there_are_used() -> None:
    found = on_plan(cards=4)
    advice = given("more_cards", found)
    assert advice.change == {"world_size": (None, 4)}
    assert advice.saves_s.mid < 0.75 * found.before.total_s.mid
    assert "more_cards" not in rules_of(on_plan())
    assert "more_cards" not in rules_of(advice_on_plan(planned(n_gpus=4)))


def test_a_micro_batch_is_divided_where_the_accumulation_cannot_be() -> None:
    advice = given("more_cards", on_plan(cards=4, gradient_accumulation_steps=2))
    batch, accumulation = (int(advice.change[name][1]) for name in ("batch_size", "gradient_accumulation_steps"))
    assert batch * accumulation == 16
    assert accumulation % 4 == 0


def test_cards_that_no_division_of_the_sequences_suits_are_not_used() -> None:
    assert "more_cards" not in rules_of(on_plan(cards=7))


def test_cards_on_a_slow_network_are_worse_than_one() -> None:
    few = {"gradient_accumulation_steps": 4, "eval_interval": 6000}
    slow = advice_on_plan(planned(n_gpus=4, link="ethernet", **few))
    assert given("fewer_cards", slow).change == {"world_size": (4, 1)}
    assert "fewer_cards" not in rules_of(advice_on_plan(planned(n_gpus=4, **few)))
    assert "fewer_cards" not in rules_of(on_plan(**few))


# --- signs of trouble -------------------------------------------------------------------------------------------

MACHINE = {"find_stalls", "slow_stretch", "heat", "slower_than_normal", "faster_storage"}


def slower_from_the_middle(truth: Truth, factor: float) -> str:
    def slowed(line: str) -> str:
        found = re.fullmatch(r"(iter (\d+): .* time )([\d.]+)(ms.*)", line)
        if found is None or int(found[2]) <= truth.max_iters // 2:
            return line
        return f"{found[1]}{float(found[3]) * factor:.2f}{found[4]}"

    return "\n".join(map(slowed, a_log(truth).splitlines())) + "\n"


def test_stalls_are_to_be_looked_for() -> None:
    stalling = replace(USUAL, log_interval=1, stall_share=0.02)
    found = on_log(stalling)
    advice = given("find_stalls", found)
    assert not advice.remedy
    lost = float(a_run(stalling).stall_s.sum())
    assert 0.2 * lost < advice.saves_s.low < advice.saves_s.high < 1.1 * lost


def test_a_stretch_that_is_slower_is_to_be_looked_at() -> None:
    quiet = replace(USUAL, with_mfu=False, eval_s=0.1)
    found = on_log(slower_from_the_middle(quiet, 1.5))
    assert given("slow_stretch", found).saves_s.holds(0.75 * 10000 * 0.05)
    assert "heat" not in rules_of(found)


def test_steps_that_become_longer_little_by_little_are_heat() -> None:
    found = on_log(replace(USUAL, drift=0.15))
    assert given("heat", found).saves_s.high < 0.15 * found.before.total_s.mid
    assert "heat" not in rules_of(on_log(replace(USUAL, drift=-0.15)))
    assert "heat" not in rules_of(on_log(replace(USUAL, drift=0.03)))


def modded(step_ms: Callable[[int], float], count: int = 4000) -> str:
    """A trainer that changes batch size and window during the run."""
    total = np.cumsum([step_ms(n) for n in range(1, count + 1)])
    return "".join(f"step:{n}/{count} train_time:{t:.0f}ms step_avg:{t / n:.2f}ms\n" for n, t in enumerate(total, 1))


@pytest.mark.parametrize("step_ms", [lambda n: 100 + 100 * (n > 2000), lambda n: 200 * (1 + 0.08 * n / 4000)])
def test_steps_that_a_schedule_makes_longer_are_nobodys_fault(step_ms: Callable[[int], float]) -> None:
    found = on_log(modded(step_ms))
    assert not {"heat", "slow_stretch"} & set(rules_of(found))
    assert found.before.total_s.mid > 500  # long enough for advice


def test_a_run_slower_than_its_card_is_to_be_looked_into() -> None:
    slow = replace(USUAL, eval_s=0.1)
    advice = given("slower_than_normal", on_log(slow, "4090"))
    assert advice.saves_s.holds(20000 * (0.1 - 0.02))
    assert "slower_than_normal" not in rules_of(on_log(slow))  # which card, nobody knows
    assert "slower_than_normal" not in rules_of(on_log(replace(slow, step_s=0.05), "4070"))


def test_where_a_log_shows_no_sign_nothing_is_said_of_the_machine() -> None:
    assert not MACHINE & set(rules_of(on_log(USUAL)))
    assert not MACHINE & set(rules_of(on_log(replace(USUAL, step_s=0.05, eval_s=0.1), "4070")))
    assert not MACHINE & set(rules_of(on_plan(eval_interval=10)))


def test_what_to_look_at_is_no_part_of_what_the_changes_give_together() -> None:
    found = on_log(USUAL, "4090")
    looked = [position for position, advice in enumerate(found.advice) if not advice.remedy]
    assert looked
    for position in looked:
        assert not found.chosen[position]
        assert found.together_s[position].mid == (found.together_s[position - 1].mid if position else 0.0)


# --- the list ---------------------------------------------------------------------------------------------------


def test_a_run_of_thirty_seconds_gets_no_advice() -> None:
    short = Truth(max_iters=200, eval_interval=20, step_s=0.05, eval_s=1.0, compile_s=3.0, stall_share=0.05)
    assert rules_of(on_log(short, "4090", cards=8)) == []


def test_nothing_worth_changing_is_an_answer() -> None:
    found = on_plan(max_iters=12000, eval_interval=2000)
    assert found.advice == ()
    assert found.saves_s.mid == 0.0
    assert found.before == found.after
    assert advise(planned(eval_interval=2000)) == ()


def test_changes_that_repeat_each_other_are_simulated_together_not_added_up() -> None:
    found = on_log(USUAL)
    assert found.saves_s.mid < sum(advice.saves_s.mid for advice in found.advice)
    assert found.before.total_s.mid - found.after.total_s.mid == pytest.approx(found.saves_s.mid, rel=0.01)
    assert found.saves_s == found.together_s[-1]


def test_an_advice_that_adds_little_is_an_alternative() -> None:
    found = on_log(USUAL)
    assert found.chosen == (True, False, False)
    assert set(found.change) == {"eval_interval"}


def test_changes_that_go_together_keep_the_tokens_and_divide_among_the_cards() -> None:
    """160 sequences in 3 micro-steps are well for one card and cannot be shared by four."""
    values = {**TINY, "gradient_accumulation_steps": 40, "max_iters": 60_000, "eval_interval": 6000}
    found = on_plan("t4", cards=4, dtype="float16", **values)
    assert {"larger_micro_batch", "more_cards"} <= set(rules_of(found))
    work = found.case.workload_with({name: new for name, (_, new) in found.change.items()})
    assert work is not None
    assert work.batch_size * work.grad_accum == 480
    assert work.grad_accum % work.world_size == 0


def test_an_accumulation_that_the_cards_cannot_share_does_not_become_fewer_tokens() -> None:
    """nanoGPT refuses it; where the plan takes it for one micro-step on each card, the advice must do so too."""
    before = planned(n_gpus=8, batch_size=64, gradient_accumulation_steps=1, block_size=2048, max_iters=5000)
    for advice in advise(before):
        if "batch_size" in advice.change:
            after = planned(n_gpus=8, block_size=2048, max_iters=5000, **advice.new_settings)
            assert after.workload.tokens_per_iteration == before.workload.tokens_per_iteration


def test_what_is_saved_apart_falls_on_an_evaluation_even_if_those_become_fewer() -> None:
    """The condition stands within the evaluation: every 2,500 and every 200 would save every 5,000 only."""
    deep = {"n_layer": 36, "block_size": 256, "gradient_accumulation_steps": 5, "max_iters": 5000}
    found = on_plan(**deep, eval_interval=10, eval_iters=50)
    chosen = {advice.rule: advice for advice, goes in zip(found.advice, found.chosen, strict=True) if goes}
    assert "evaluate_less" in chosen
    if "save_apart" in chosen:
        assert (chosen["save_apart"].effect.save_every or 0) % int(found.change["eval_interval"][1]) == 0


def test_a_log_without_a_card_says_what_is_missing() -> None:
    assert any("--gpu" in message.in_english() for message in on_log(USUAL).missing)
    assert not any("--gpu" in message.in_english() for message in on_log(USUAL, "4070").missing)
    unknown = on_log(replace(USUAL, header=False), "4070").missing
    assert any("n_layer" in message.in_english() for message in unknown)
    assert any("max_iters" in message.in_english() for message in unknown)


def test_a_log_that_shows_no_normal_iteration_gets_no_advice() -> None:
    assert advice_on_log(analysed("iter 0: loss 4.0, time 9000.00ms, mfu -100.00%\n")) is None


def test_intervals_are_round_as_people_set_them() -> None:
    assert [rounded(value) for value in (0.3, 1.0, 2.4, 9.9, 26.0, 49.9, 120.0, 7300.0)] == [
        1, 1, 2, 5, 25, 25, 100, 5000,
    ]  # fmt: skip


def test_of_a_run_far_slower_than_its_card_the_model_knows_nothing() -> None:
    """First find out why: a tenfold step is no matter of settings."""
    slow = Truth(max_iters=5000, step_s=0.5, eval_s=0.5, compiled=False)
    assert rules_of(on_log(slow, "4090", cards=4)) == ["slower_than_normal"]
