"""Before the run: totals, counts, memory, claims, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwatch.errors import InputError, UsageError
from stepwatch.estimator.plan import Plan, named_shape, plan, plan_json
from stepwatch.gpus import find_gpu
from stepwatch.settings import Origin, Settings, Value

GPT2_ON_4070: dict[str, Value] = {
    "n_layer": 12, "n_head": 12, "n_embd": 768, "batch_size": 8, "gradient_accumulation_steps": 64, "max_iters": 12000,
    "eval_interval": 500,
}  # fmt: skip


def planned(gpu: str = "4070", claim: str | None = None, n_gpus: int | None = None, **values: Value) -> Plan:
    return plan(Settings.of(Origin.USER, {**GPT2_ON_4070, **values}), find_gpu(gpu), claim=claim, n_gpus=n_gpus)


def test_a_published_run_lies_in_the_interval() -> None:
    """GPT-2 124M with these settings took 9.35 s per iteration on a 4070 (published log)."""
    assert planned().estimate.step_s.holds(9.35)
    assert planned().fits is True


def test_iteration_0_evaluates_and_does_not_save() -> None:
    found = planned()
    assert found.evaluations == 25
    assert found.saves.mid == 24


def test_saves_only_on_improvement_are_fewer() -> None:
    assert planned(always_save_checkpoint=False).saves.mid < 24


def test_the_parts_sum_to_the_total() -> None:
    found = planned()
    parts = found.step_part_s.mid + found.evaluations * found.estimate.eval_s.mid
    parts += found.saves.mid * found.estimate.checkpoint_s.mid + found.estimate.compile_s.mid
    assert found.total_s.mid == pytest.approx(parts)


def test_doubling_the_iterations_doubles_the_step_part() -> None:
    assert planned(max_iters=24000).step_part_s.mid == pytest.approx(2 * planned().step_part_s.mid, rel=1e-3)


def test_what_is_missing_is_nanogpts_default_and_said_to_be() -> None:
    document = plan_json(plan(Settings({}), find_gpu("4090")))
    assert document["settings"]["eval_iters"] == 200
    assert document["origins"]["eval_iters"] == "default"


def test_more_cards_share_the_work() -> None:
    one, four = planned(), planned(n_gpus=4)
    assert four.n_gpus == 4
    assert one.estimate.step_s.mid / 4 < four.estimate.step_s.mid < one.estimate.step_s.mid


def test_a_batch_too_large_does_not_fit_and_the_largest_does() -> None:
    found = planned(batch_size=64)
    assert found.fits is False
    assert found.largest_batch_size is not None
    assert planned(batch_size=found.largest_batch_size).fits is True
    assert planned(batch_size=found.largest_batch_size + 1).fits is False


def test_bfloat16_without_hardware_is_told() -> None:
    assert planned("t4", dtype="bfloat16").emulated
    assert planned("t4").emulated  # torch tells nanoGPT that there is bfloat16, since 2.4
    assert not planned("t4", dtype="float16").emulated
    assert planned("t4", dtype="float16").estimate.step_s.high < planned("t4").estimate.step_s.low


def test_names_give_shapes() -> None:
    assert named_shape("gpt2-xl", None)["n_layer"] == 48
    assert named_shape(None, 12)["n_embd"] == 768


def test_of_the_parameters_alone_a_shape_is_guessed_and_attention_is_not_counted() -> None:
    """The promise that a chatbot made: 40M parameters, 524,288 tokens, 100 ms on a 4070."""
    settings = Settings.of(Origin.USER, {"n_params": 40e6, "tokens_per_iter": 524288})
    found = plan(settings, find_gpu("4070"), claim="100ms")
    assert found.shape_guessed
    assert found.claim is not None
    assert found.claim.verdict == "impossible"
    assert found.claim.needs_flops == pytest.approx(1258e12, rel=0.001)
    assert found.claim.of_peak == pytest.approx(21.6, rel=0.01)
    assert found.estimate.floor_step_s > 1.5
    assert found.estimate.step_s.low > 2


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        ("100ms", "impossible"), ("1s", "impossible"), ("8s", "implausible"), ("10s", "plausible"),
        ("60s", "plausible"),
        ("20min", "impossible"), ("40h", "plausible"), ("2 days", "plausible"), ("2M-tokens/s", "impossible"),
        ("2M tokens/s", "impossible"), ("50k-tokens/s", "plausible"), ("55000 tok/s", "plausible"),
    ],
)  # fmt: skip
def test_claims_are_judged(claim: str, verdict: str) -> None:
    found = planned(claim=claim).claim
    assert found is not None
    assert found.verdict == verdict


@pytest.mark.parametrize(
    ("claim", "step_s"),
    [
        ("1h30", 5400 / 12001), ("1 小时 30 分", 5400 / 12001), ("1時間30分", 5400 / 12001),
        ("1 h 30 min", 5400 / 12001), ("2 d 4 h", 187200 / 12001), ("20 mins", 1200 / 12001),
        ("3 heures", 10800 / 12001), ("2 Tage", 172800 / 12001), ("1.5 it/s", 1 / 1.5), ("2seconds", 2.0),
        ("100ms/iter", 0.1), ("0,5s", 0.5), ("100,000-tokens/s", 5.24288), ("1.000.000 tok/s", 0.524288),
        ("100k tokens/s", 5.24288), ("2weeks", 1209600 / 12001),
    ],
)  # fmt: skip
def test_claims_are_read_as_people_write_them(claim: str, step_s: float) -> None:
    found = planned(claim=claim).claim
    assert found is not None
    assert found.step_s == pytest.approx(step_s)


def test_rates_are_read_in_any_scale() -> None:
    claims = [planned(claim=f"{rate}tokens/s").claim for rate in ("2000000", "2000k", "2M", "2mio", "0.002G")]
    assert {claim.step_s for claim in claims if claim} == {524288 / 2e6}


@pytest.mark.parametrize(("n_params", "layers"), [(124e6, 12), (1e12, 273)])
def test_a_guessed_shape_has_the_size_that_was_given(n_params: float, layers: int) -> None:
    """GPT-2 small is 12 layers of 768; a model of any size has a shape of that size."""
    found = plan(Settings.of(Origin.USER, {"n_params": n_params}), find_gpu("a100")).workload
    assert (found.n_layer, found.n_embd) == (layers, 64 * layers)
    assert found.shape_params == pytest.approx(n_params, rel=0.02)


@pytest.mark.parametrize(("share", "refused"), [(0.75, True), (0.85, False), (1.2, False), (1.3, True)])
def test_a_size_that_is_not_the_shapes_is_refused(share: float, refused: bool) -> None:
    counted = planned().workload.shape_params
    if refused:
        with pytest.raises(UsageError):
            planned(n_params=counted / share)
    else:
        assert planned(n_params=counted / share).workload.n_params == counted / share


def test_the_largest_models_and_contexts_are_accepted() -> None:
    """Llama 4 Scout reads ten million tokens; models have passed 1.8 trillion parameters. More is a slip."""
    assert planned(block_size=10**7).workload.block_size == 10**7
    assert plan(Settings.of(Origin.USER, {"n_params": 1.8e12}), find_gpu("h100")).workload.n_params == 1.8e12
    for wrong in ({"block_size": 5 * 10**7}, {"n_params": 1e15}):
        with pytest.raises(UsageError):
            plan(Settings.of(Origin.USER, wrong), find_gpu("h100"))


def test_the_verdict_and_the_share_of_the_peak_agree() -> None:
    for claim in ("2s", "3s", "4s", "5s", "5.5s", "5.7s", "5.8s", "6s"):
        found = planned(claim=claim).claim
        assert found is not None
        assert (found.of_peak > 1.25) == (found.verdict == "impossible")


def test_a_character_level_dataset_has_a_small_vocabulary() -> None:
    assert planned(dataset="shakespeare_char").workload.vocab_size == 65
    assert planned(dataset="bundestag_char").notes
    assert not planned(dataset="shakespeare_char").notes
    assert planned(dataset="bundestag_char").workload.vocab_size == sum(chr(n).isascii() for n in range(256))
    assert planned(dataset="bundestag_char", vocab_size=200).workload.vocab_size == 200


@pytest.mark.parametrize("values", [{"n_params": 7e9}, {"tokens_per_iter": 1000000}, {"dropout": 7.0}])
def test_figures_that_contradict_each_other_are_refused(values: dict[str, Value]) -> None:
    with pytest.raises(UsageError):
        planned(**values)


@pytest.mark.parametrize(
    "claim", ["fast", "", "ms", "10 parsecs", "-5ms", "0s", "1e999s", "nan", "1h30x", "12x-tokens/s", f"{10**15}s"]
)
def test_a_claim_that_cannot_be_read_is_refused(claim: str) -> None:
    with pytest.raises(UsageError):
        planned(claim=claim)


def test_a_claim_of_any_size_below_ten_to_the_fifteenth_is_read() -> None:
    found = planned(claim=f"{9 * 10**14}s").claim
    assert found is not None
    assert found.verdict == "plausible"


@given(st.text(max_size=30))
def test_any_claim_is_judged_or_refused(claim: str) -> None:
    try:
        found = planned(claim=claim).claim
    except UsageError:
        return
    assert found is not None


@pytest.mark.parametrize(
    "values",
    [
        {"n_embd": 770},
        {"n_layer": 10**9},
        {"batch_size": 10**9},
        {"dtype": "int3"},
        {"max_iters": 10**15},
        {"n_head": 7},
    ],
)
def test_settings_that_make_no_sense_are_refused(values: dict[str, Value]) -> None:
    with pytest.raises(UsageError):
        planned(**values)


def test_nothing_is_known_of_a_cpu() -> None:
    with pytest.raises(InputError):
        planned("cpu")


def test_no_place_or_person_is_in_the_json() -> None:
    document = plan_json(planned(out_dir="/home/somebody/out", wandb_project="secret"))
    assert "secret" not in str(document)
    assert "somebody" not in str(document)


def test_what_a_laptop_and_several_cards_rest_on_is_said() -> None:
    assert not planned().notes
    assert "power limit" in planned("4070 laptop").notes[0].in_english()
    assert "--link" in planned(n_gpus=2).notes[0].in_english()
