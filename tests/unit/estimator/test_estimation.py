"""The estimate before a run: known cases, published memory, and where the answer must be None."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from stepwatch.estimator.ceilings import matmul_ceiling
from stepwatch.estimator.constants import fitted, widths
from stepwatch.estimator.estimation import estimate, floor_step_s, link_bytes_per_s
from stepwatch.estimator.memory import fits, largest_batch_size, vram_bytes
from stepwatch.estimator.workload import (
    MODELS,
    NANOGPT_DEFAULTS,
    Workload,
    flops_per_iteration,
    nanochat,
)
from stepwatch.gpus import find_gpu, gpus
from stepwatch.settings import Origin, Settings
from stepwatch.units import GIGA, TERA

RTX_4070 = find_gpu("4070")
GPT2 = Workload(batch_size=8, grad_accum=64)


def step_s(workload: Workload, card: str, n_gpus: int | None = None) -> float:
    answer = estimate(workload, find_gpu(card), n_gpus)
    assert answer is not None
    return answer.step_s.mid


# --- workloads --------------------------------------------------------------------------------------------------------


def test_nanogpt_counts_its_parameters_so() -> None:
    assert Workload().n_params == 124_373_760
    assert Workload().n_params - 1024 * 768 == 123_587_328  # as nanoGPT prints, positions left out


def test_flops_are_nanogpts() -> None:
    one_token = flops_per_iteration(Workload(batch_size=1, grad_accum=1)) / 1024
    assert one_token == pytest.approx(854.77e6, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "counted"),
    [("gpt2", 124_439_808), ("gpt2-medium", 354_823_168), ("gpt2-large", 774_030_080), ("gpt2-xl", 1_557_611_200)],
)
def test_models_by_name_have_their_size(name: str, counted: int) -> None:
    """As transformers counts them; heads are 64 wide in all four."""
    workload, _ = Workload.from_settings(Settings.of(Origin.USER, {"init_from": name}))
    assert workload.n_params == counted
    assert workload.n_embd == 64 * workload.n_head
    assert workload.vocab_size == MODELS[name]["vocab_size"]


def test_nanochat_depth_gives_its_shape() -> None:
    assert nanochat(20) == {"n_layer": 20, "n_head": 10, "n_embd": 1280, "block_size": 2048, "vocab_size": 32768}


def test_what_is_not_said_is_nanogpts_and_named() -> None:
    workload, assumed = Workload.from_settings(Settings.of(Origin.CONFIG, {"n_layer": 6, "batch_size": 4}))
    assert (workload.n_layer, workload.batch_size, workload.n_embd) == (6, 4, 768)
    assert "n_layer" not in assumed
    assert assumed["n_embd"] == 768
    assert set(assumed) == set(NANOGPT_DEFAULTS) - {"n_layer", "batch_size"}


def test_a_card_without_bf16_is_assumed_to_train_in_fp16() -> None:
    workload, assumed = Workload.from_settings(Settings.of(Origin.CONFIG, {}), has_bf16=False)
    assert workload.dtype == assumed["dtype"] == "float16"


def test_tokens_per_iteration_give_the_accumulation() -> None:
    workload, _ = Workload.from_settings(Settings.of(Origin.USER, {"tokens_per_iter": 524288, "batch_size": 8}))
    assert workload.grad_accum == 64


@pytest.mark.parametrize(
    "wrong", [{"n_embd": 770}, {"n_layer": 0}, {"batch_size": -1}, {"dtype": "int3"}], ids=lambda case: next(iter(case))
)
def test_nonsense_is_refused(wrong: dict[str, int | str]) -> None:
    with pytest.raises(ValueError, match=r"must be|not a dtype"):
        replace(Workload(), **wrong)  # type: ignore[arg-type]


# --- time -------------------------------------------------------------------------------------------------------------


def test_forty_million_parameters_on_a_4070_need_seconds_not_100_ms() -> None:
    workload = Workload(n_layer=6, n_head=8, n_embd=512, batch_size=16, grad_accum=32)
    assert workload.tokens_per_iteration == 524288
    floor = floor_step_s(workload, RTX_4070)
    assert floor is not None
    assert floor > 2
    assert step_s(workload, "4070") > floor


def test_the_4070_of_a_published_log_is_met() -> None:
    answer = estimate(GPT2, RTX_4070)
    assert answer is not None
    assert answer.step_s.holds(9.346)
    assert answer.step_s.mid == pytest.approx(9.346, rel=0.15)
    assert answer.bound == "compute"


def test_the_terms_sum_to_the_step() -> None:
    answer = estimate(GPT2, find_gpu("a100"), 8)
    assert answer is not None
    assert sum(term.seconds for term in answer.terms) == pytest.approx(answer.step_s.mid)


def test_a_tiny_batch_waits_for_launches() -> None:
    answer = estimate(Workload(batch_size=1, grad_accum=8, block_size=64, compile=False), find_gpu("h100"))
    assert answer is not None
    assert answer.bound == "launch"


@pytest.mark.parametrize(
    ("slower", "faster"),
    [
        ({"compile": False}, {}),
        ({"flash": False}, {}),
        ({"fused": False}, {}),
        ({"vocab_size": 50257}, {}),
        ({"dtype": "float32"}, {}),
        ({"dtype": "float32", "tf32": False}, {"dtype": "float32"}),
        ({"activation_checkpointing": True}, {}),
        ({"n_head": 24}, {}),
        ({"dropout": 0.1}, {}),
    ],
    ids=lambda case: ",".join(case) or "as it is",
)
def test_each_lever_moves_the_step_the_right_way(slower: dict[str, object], faster: dict[str, object]) -> None:
    base = Workload(grad_accum=4)
    assert step_s(replace(base, **slower), "a100") > step_s(replace(base, **faster), "a100")  # type: ignore[arg-type]


def test_emulated_bf16_is_many_times_slower_than_fp16() -> None:
    assert step_s(GPT2, "t4") > 3 * step_s(replace(GPT2, dtype="float16"), "t4")


def test_two_cards_share_the_work_and_pay_for_talking() -> None:
    one, two = step_s(GPT2, "4090"), step_s(GPT2, "4090", 2)
    assert one / 2 < two < one


def test_a_slow_link_costs() -> None:
    workload = replace(GPT2, grad_accum=8)
    fast, slow = (estimate(workload, find_gpu("a100"), 8, link) for link in (None, "ethernet"))
    assert fast is not None
    assert slow is not None
    assert slow.bound == "communication"
    assert slow.step_s.mid > 2 * fast.step_s.mid


def test_geforce_cards_talk_over_pcie_and_data_centre_cards_over_nvlink() -> None:
    assert link_bytes_per_s(find_gpu("4090"), 2) == 32 * GIGA
    assert link_bytes_per_s(find_gpu("a100"), 8) == 300 * GIGA
    assert link_bytes_per_s(find_gpu("a100"), 16) < 300 * GIGA


def test_an_unknown_stack_widens_the_interval() -> None:
    known, unknown = (estimate(replace(GPT2, compile=compiled), find_gpu("4090")) for compiled in (True, None))
    assert known is not None
    assert unknown is not None
    assert unknown.step_s.high / unknown.step_s.low > known.step_s.high / known.step_s.low


def test_a_card_without_kin_gets_a_wider_interval() -> None:
    ours, foreign = (estimate(GPT2, find_gpu(name)) for name in ("4070", "MI300X"))
    assert ours is not None
    assert foreign is not None
    assert ours.step_s.high / ours.step_s.low < foreign.step_s.high / foreign.step_s.low
    assert ours.step_s.high / ours.step_s.low < 1.8


def test_nothing_is_said_of_a_cpu() -> None:
    assert estimate(GPT2, find_gpu("cpu")) is None
    assert floor_step_s(GPT2, find_gpu("cpu")) is None


def test_evaluations_follow_their_count() -> None:
    few, many = (estimate(replace(GPT2, eval_iters=count), RTX_4070) for count in (20, 200))
    assert few is not None
    assert many is not None
    assert many.eval_s.mid == pytest.approx(10 * few.eval_s.mid)
    assert many.eval_s.holds(18.1)  # the published 19.8 s without its checkpoint


def test_a_checkpoint_is_twelve_bytes_per_parameter() -> None:
    answer = estimate(GPT2, RTX_4070)
    assert answer is not None
    assert answer.checkpoint_s.mid == pytest.approx(12 * GPT2.n_params / (0.65 * GIGA), rel=0.05)


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workload", "card", "fitting"),
    [
        (Workload(batch_size=8), "4070", True),
        (Workload(batch_size=16), "4070", False),
        (Workload(flash=False, vocab_size=50257), "V100 16GB", False),
        (Workload(compile=False), "3090", True),
    ],
)
def test_published_cases_fit_or_do_not(workload: Workload, card: str, fitting: bool) -> None:
    assert fits(workload, find_gpu(card)) is fitting


def test_nanochats_published_peak_is_met() -> None:
    """Embeddings and their moments in bf16 take 8 bytes, the matrices under Muon with one momentum 12."""
    shape = nanochat(12)
    workload = Workload(
        n_layer=12, n_head=6, n_embd=768, block_size=2048, vocab_size=int(shape["vocab_size"]), batch_size=8,
        stated_params=286e6, static_bytes_per_param=10.0,
    )  # fmt: skip
    allocated = vram_bytes(workload).mid - 0.5 * GIGA
    assert allocated == pytest.approx(9448 * 2**20, rel=0.2)


def test_the_largest_batch_fits_and_the_next_does_not() -> None:
    largest = largest_batch_size(Workload(), RTX_4070)
    assert largest is not None
    assert fits(Workload(batch_size=largest), RTX_4070)
    assert not fits(Workload(batch_size=largest + 1), RTX_4070)


def test_a_model_too_large_for_the_card_has_no_batch() -> None:
    assert largest_batch_size(Workload(n_layer=48, n_head=25, n_embd=1600), RTX_4070) == 0


# --- data -------------------------------------------------------------------------------------------------------------


def test_every_constant_and_width_is_written() -> None:
    assert fitted().matmul_efficiency == pytest.approx(1.0, abs=0.1)
    assert set(widths()) == {"single", "no_flash", "other", "several", "unknown_stack", "unknown_card"}
    assert all(low <= 1 <= high for low, high in widths().values())


def test_every_card_with_a_peak_has_a_ceiling_it_can_reach() -> None:
    for gpu in gpus():
        ceiling = matmul_ceiling(gpu, "bfloat16" if gpu.has_bf16 else "float16")
        limit = gpu.impossible_above_flops("bfloat16" if gpu.has_bf16 else "float16")
        if ceiling is not None and limit is not None:
            assert TERA / 10 < ceiling.flops <= limit, gpu.name


def test_the_same_chip_with_other_memory_has_the_same_ceiling() -> None:
    small, large = (matmul_ceiling(find_gpu(f"4060 Ti {size}GB"), "bfloat16") for size in (8, 16))
    assert small == large
    assert large is not None
    assert large.basis == "measured"


def test_the_estimator_loads_neither_numpy_nor_torch() -> None:
    code = "import stepwatch.estimator.estimation, sys; print({'numpy', 'torch'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
