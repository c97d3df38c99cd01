"""A whole config for a card and a shape: it fits, keeps the tokens, and says what is given as it was given."""

from __future__ import annotations

import pytest

from stepwatch.advice.recommended import Recommended, recommend
from stepwatch.errors import InputError, UsageError
from stepwatch.estimator.plan import plan
from stepwatch.gpus import find_gpu
from stepwatch.settings import Origin, Settings, Value

GPT2: dict[str, Value] = {"n_layer": 12, "n_head": 12, "n_embd": 768}
SMALL: dict[str, Value] = {"n_layer": 6, "n_head": 6, "n_embd": 384, "block_size": 256, "vocab_size": 65}


def recommended(gpu: str = "4070", n_gpus: int | None = None, **values: Value) -> Recommended:
    return recommend(Settings.of(Origin.USER, values), find_gpu(gpu), n_gpus=n_gpus)


@pytest.mark.parametrize("gpu", ["4070", "4070 ti super", "4080", "4090", "4090 laptop", "t4", "v100", "a100", "h100"])
@pytest.mark.parametrize("shape", [GPT2, SMALL])
def test_it_fits_keeps_the_tokens_and_is_no_slower_than_the_defaults(gpu: str, shape: dict[str, Value]) -> None:
    found = recommended(gpu, **shape)
    assert found.plan.fits is True
    assert found.plan.workload.tokens_per_iteration == 480 * int(shape.get("block_size", 1024))
    if found.usual.fits:
        assert found.plan.total_s.mid <= found.usual.total_s.mid


@pytest.mark.parametrize("tokens", [1024, 12 * 1024, 131_072, 524_288, 1021 * 1024])
def test_the_wanted_tokens_are_kept_exactly(tokens: int) -> None:
    found = recommended("4090", **GPT2, tokens_per_iter=tokens)
    assert found.plan.workload.tokens_per_iteration == tokens
    config = found.settings
    assert int(config["batch_size"]) * int(config["gradient_accumulation_steps"]) * 1024 == tokens


@pytest.mark.parametrize("cards", [2, 4, 8])
def test_the_accumulation_can_be_shared_by_the_cards(cards: int) -> None:
    found = recommended("a100", cards, **GPT2)
    assert found.plan.n_gpus == cards
    assert int(found.settings["gradient_accumulation_steps"]) % cards == 0
    assert found.plan.workload.tokens_per_iteration == 480 * 1024


def test_few_tokens_are_shared_by_many_cards() -> None:
    """16 sequences, 2 for each of the 8 cards."""
    found = recommended("a100", 8, **GPT2, tokens_per_iter=16 * 1024)
    assert found.plan.workload.tokens_per_iteration == 16 * 1024


def test_tokens_that_the_cards_cannot_share_are_refused_for_that_reason() -> None:
    """480 sequences among 7 cards: memory is not what is lacking."""
    with pytest.raises((InputError, UsageError)) as refused:
        recommended("a100", 7, **GPT2)
    assert "does not fit" not in str(refused.value)


@pytest.mark.parametrize(
    ("gpu", "dtype"),
    [("4070", "bfloat16"), ("a100", "bfloat16"), ("t4", "float16"), ("v100", "float16"), ("1080 ti", "float32")],
)
def test_arithmetic_is_what_the_card_has(gpu: str, dtype: str) -> None:
    assert recommended(gpu, **SMALL).settings["dtype"] == dtype


def test_a_run_of_a_few_steps_is_not_compiled_and_a_long_one_is() -> None:
    assert recommended(**GPT2).settings["compile"] is True
    assert recommended(**SMALL, max_iters=3).settings["compile"] is False


def test_what_is_given_stays() -> None:
    given: dict[str, Value] = {
        "batch_size": 4, "gradient_accumulation_steps": 10, "eval_interval": 300, "eval_iters": 77, "dtype": "float32",
        "compile": False, "max_iters": 9000, "always_save_checkpoint": False, "dropout": 0.1, "learning_rate": 1e-3,
    }  # fmt: skip
    assert given.items() <= recommended(**GPT2, **given).settings.items()


def test_a_log_interval_that_is_given_stays() -> None:
    assert recommended(**GPT2, log_interval=5, eval_interval=500).settings["log_interval"] == 5


def test_a_batch_that_is_given_and_does_not_fit_is_divided() -> None:
    found = recommended("4070", **GPT2, batch_size=64, gradient_accumulation_steps=8)
    assert int(found.settings["batch_size"]) < 64
    assert found.plan.workload.tokens_per_iteration == 512 * 1024
    assert found.plan.fits
    assert found.usual.fits is False


@pytest.mark.parametrize("values", [{"max_iters": 100}, {"max_iters": 100, "tokens_per_iter": 8192}])
def test_a_short_run_does_not_evaluate_and_save_more_than_the_defaults(values: dict[str, Value]) -> None:
    """nanoGPT's eval_interval lies beyond such a run: it evaluates once and saves nothing."""
    found = recommended("4090", **GPT2, **values)
    assert found.plan.total_s.mid <= found.usual.total_s.mid


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_a_small_batch_is_not_evaluated_longer_than_by_default(batch: int) -> None:
    found = recommended("4090", **GPT2, batch_size=batch, gradient_accumulation_steps=8, max_iters=2000)
    assert found.plan.total_s.mid <= found.usual.total_s.mid


def test_no_larger_micro_batch_is_clearly_faster() -> None:
    shape: dict[str, Value] = {**SMALL, "n_layer": 2, "n_head": 2, "n_embd": 64, "block_size": 1024}
    step_s = recommended("a100", **shape).plan.estimate.step_s.mid
    larger = (recommended("a100", **shape, batch_size=s, gradient_accumulation_steps=480 // s) for s in (160, 240, 480))
    assert step_s <= 1.02 * min(found.plan.estimate.step_s.mid for found in larger)


def test_a_large_batch_is_evaluated_on_as_many_sequences_as_nanogpt_does() -> None:
    """Its defaults are 200 batches of 12."""
    found = recommended("h100", **SMALL, batch_size=48, gradient_accumulation_steps=10, eval_interval=10_000)
    assert int(found.settings["eval_iters"]) * 48 == 200 * 12


def test_evaluations_and_checkpoints_take_next_to_nothing_of_a_long_run() -> None:
    found = recommended(**GPT2)
    estimate = found.plan.estimate
    spent = estimate.eval_s.mid * found.plan.evaluations + estimate.checkpoint_s.mid * found.plan.saves.mid
    assert spent <= 0.03 * found.plan.total_s.mid


@pytest.mark.parametrize("values", [{}, {"eval_interval": 37}, {"eval_interval": 250}, {"max_iters": 5}])
@pytest.mark.parametrize("gpu", ["t4", "4090"])
def test_every_evaluation_falls_on_a_logged_line(gpu: str, values: dict[str, Value]) -> None:
    settings = recommended(gpu, **SMALL, **values).settings
    assert int(settings["eval_interval"]) % int(settings["log_interval"]) == 0


def test_no_interval_lies_beyond_the_run() -> None:
    for last in (1, 7, 60, 3000):
        settings = recommended(**SMALL, max_iters=last).settings
        assert settings["max_iters"] == settings["lr_decay_iters"] == last


def test_the_config_is_nanogpts_and_planned_anew_it_is_the_same_run() -> None:
    found = recommended(**GPT2, max_iters=5000, fused=True, mtbf_hours=24.0)
    assert not {"flash", "fused", "mtbf_hours", "world_size", "tokens_per_iter", "n_params"} & set(found.settings)
    again = plan(Settings.of(Origin.CONFIG, found.settings), find_gpu("4070"))
    assert again.total_s == found.plan.total_s


def test_twenty_tokens_per_parameter() -> None:
    found = recommended(**GPT2)
    assert found.enough_iterations == -(-20 * int(found.plan.workload.n_params) // (480 * 1024))
    assert found.enough_s.mid == pytest.approx(found.enough_iterations * found.plan.estimate.step_s.mid)


def test_a_model_too_large_for_the_card_is_refused_with_its_size() -> None:
    with pytest.raises(InputError) as refused:
        recommended("4070", n_layer=48, n_head=25, n_embd=1600)
    assert refused.value.what.params["needs"] > refused.value.what.params["has"]
    assert refused.value.remedy is not None


@pytest.mark.parametrize("values", [{"n_embd": 100}, {"tokens_per_iter": 1000}, {"dtype": "int8"}, {"batch_size": 0}])
def test_nonsense_is_refused(values: dict[str, Value]) -> None:
    with pytest.raises(UsageError):
        recommended(**values)


def test_nothing_is_recommended_for_a_cpu() -> None:
    with pytest.raises(InputError):
        recommended("cpu", **GPT2)


@pytest.mark.parametrize(
    ("gpu", "shape", "values", "chosen"),
    [
        ("4070", GPT2, {}, (12, 500, 25, 1)),
        ("4070", GPT2, {"max_iters": 5000}, (12, 500, 25, 1)),
        ("4070", SMALL, {}, (80, 1000, 8, 1)),
        ("4090", GPT2, {}, (16, 1000, 38, 1)),
        ("4090", GPT2, {"tokens_per_iter": 2**22}, (16, 1000, 19, 1)),
        ("4090", SMALL, {"max_iters": 5000}, (80, 500, 8, 1)),
        ("4090", SMALL, {"eval_iters": 100, "max_iters": 20_000}, (80, 10_000, 100, 1)),
        ("4090", SMALL, {"tokens_per_iter": 2**19, "max_iters": 60}, (64, 50, 19, 1)),
        ("4090", SMALL, {"tokens_per_iter": 81_920}, (64, 500, 10, 10)),
        ("4090", SMALL, {"tokens_per_iter": 98_304}, (64, 500, 10, 1)),
        ("t4", GPT2, {}, (16, 50, 19, 1)),
        ("v100", GPT2, {"max_iters": 2000}, (16, 50, 19, 1)),
        ("a100", GPT2, {"max_iters": 20_000}, (16, 1000, 38, 1)),
        ("a100", GPT2, {"tokens_per_iter": 2**21}, (16, 1000, 19, 1)),
        ("a100", SMALL, {"tokens_per_iter": 114_688}, (64, 500, 10, 10)),
        ("h100", GPT2, {"max_iters": 300}, (16, 200, 19, 1)),
        ("h100", SMALL, {"tokens_per_iter": 2**18}, (128, 500, 13, 10)),
    ],
)
def test_micro_batch_evaluations_and_lines_suit_the_card_and_the_run(
    gpu: str, shape: dict[str, Value], values: dict[str, Value], chosen: tuple[int, int, int, int]
) -> None:
    """Next to nothing of the run goes into evaluations, and steps of more than 0.1 s are all logged."""
    found = recommended(gpu, **shape, **values).settings
    assert tuple(found[name] for name in ("batch_size", "eval_interval", "eval_iters", "log_interval")) == chosen
