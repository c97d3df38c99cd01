"""Laws that every estimate keeps, whatever the model and the card."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.calibrations import a_calibration

from stepwatch.estimator.estimation import Estimate, estimate
from stepwatch.estimator.workload import Workload
from stepwatch.gpus import Gpu, gpus
from stepwatch.gpus.this_machine import as_card

DTYPES = ("bfloat16", "float16", "float32")
# A TPU's peak is known for bf16 alone; of a CPU none is.
ESTIMABLE = [gpu for gpu in gpus() if all(estimate(Workload(dtype=dtype), gpu) is not None for dtype in DTYPES)]
ONCE = frozenset({"optimizer", "iteration", "communication"})

MEASURED = as_card(a_calibration())  # a processor, all of it measured
nominal = st.sampled_from(ESTIMABLE)
cards = st.one_of(nominal, st.just(MEASURED))
factors = st.floats(1.0, 4.0)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    heads, head_size = draw(st.integers(1, 32)), draw(st.sampled_from([32, 64, 128]))
    return Workload(
        n_layer=draw(st.integers(1, 48)), n_head=heads, n_embd=heads * head_size,
        block_size=draw(st.sampled_from([64, 256, 1024, 4096])), vocab_size=draw(st.sampled_from([65, 50257, 50304])),
        batch_size=draw(st.integers(1, 64)), grad_accum=draw(st.integers(1, 64)), world_size=1,
        dtype=draw(st.sampled_from(DTYPES)), compile=draw(st.sampled_from([True, False, None])),
        flash=draw(st.booleans()), fused=draw(st.booleans()), dropout=draw(st.sampled_from([0.0, 0.2])),
        activation_checkpointing=draw(st.booleans()),
    )  # fmt: skip


def answered(workload: Workload, gpu: Gpu, n_gpus: int | None = None) -> Estimate:
    answer = estimate(workload, gpu, n_gpus)
    assert answer is not None
    return answer


def faster(gpu: Gpu, compute: float, bandwidth: float) -> Gpu:
    """The card with more of both, and no other name's measurements."""
    peaks = {name: getattr(gpu, name) for name in ("fp32_flops", "tf32_flops", "fp16_flops", "bf16_flops")}
    assert gpu.bandwidth_bytes_per_s is not None
    return replace(
        gpu, name="a card that nobody measured", bandwidth_bytes_per_s=gpu.bandwidth_bytes_per_s * bandwidth,
        **{name: peak and peak * compute for name, peak in peaks.items()},
    )  # fmt: skip


@given(workloads(), nominal, factors, factors)
def test_a_faster_card_is_never_slower(workload: Workload, gpu: Gpu, compute: float, bandwidth: float) -> None:
    slow, fast = faster(gpu, 1.0, 1.0), faster(gpu, compute, bandwidth)
    assert answered(workload, fast).step_s.mid <= answered(workload, slow).step_s.mid * (1 + 1e-9)


@given(workloads(), cards, st.sampled_from([1, 2, 8, 64]))
def test_the_estimate_never_beats_the_floor(workload: Workload, gpu: Gpu, n_gpus: int) -> None:
    answer = answered(replace(workload, grad_accum=workload.grad_accum * n_gpus), gpu, n_gpus)
    assert answer.floor_step_s <= answer.step_s.low <= answer.step_s.mid <= answer.step_s.high


@given(workloads(), cards, st.sampled_from(["batch_size", "grad_accum", "block_size"]), st.integers(2, 4))
def test_more_tokens_never_cost_less(workload: Workload, gpu: Gpu, name: str, times: int) -> None:
    more = replace(workload, **{name: getattr(workload, name) * times})
    assert answered(more, gpu).step_s.mid >= answered(workload, gpu).step_s.mid * (1 - 1e-9)


@given(workloads(), cards, st.integers(1, 24))
def test_more_layers_are_never_cheaper(workload: Workload, gpu: Gpu, layers: int) -> None:
    deeper = replace(workload, n_layer=workload.n_layer + layers)
    assert answered(deeper, gpu).step_s.mid > answered(workload, gpu).step_s.mid
    assert answered(deeper, gpu).vram_bytes.mid > answered(workload, gpu).vram_bytes.mid


@given(workloads(), cards)
def test_doubling_the_accumulation_doubles_the_work(workload: Workload, gpu: Gpu) -> None:
    def work_s(one: Workload) -> float:
        return sum(term.seconds for term in answered(one, gpu).terms if term.name not in ONCE)

    assert work_s(replace(workload, grad_accum=2 * workload.grad_accum)) == pytest.approx(2 * work_s(workload))


@given(workloads(), cards, st.sampled_from([2, 4, 8]))
def test_no_number_of_cards_is_faster_than_its_share_of_one(workload: Workload, gpu: Gpu, n_gpus: int) -> None:
    shared = replace(workload, grad_accum=workload.grad_accum * n_gpus)
    assume(shared.grad_accum % n_gpus == 0)
    assert answered(shared, gpu, n_gpus).step_s.mid * n_gpus >= answered(shared, gpu, 1).step_s.mid * (1 - 1e-9)


@given(workloads(), cards)
def test_a_larger_micro_batch_needs_more_memory(workload: Workload, gpu: Gpu) -> None:
    larger = replace(workload, batch_size=workload.batch_size + 1)
    assert answered(larger, gpu).vram_bytes.mid > answered(workload, gpu).vram_bytes.mid


def surpasses(gpu: Gpu, other: Gpu) -> bool:
    """At least as good in every figure that a step depends on."""
    figures = ("fp32_flops", "tf32_flops", "fp16_flops", "bf16_flops", "bandwidth_bytes_per_s", "sm_count")
    return all((getattr(gpu, name) or 0.0) >= (getattr(other, name) or 0.0) for name in figures)


def test_in_the_catalogue_no_card_is_slower_than_its_inferior() -> None:
    """Same architecture, at least as good in every figure: then never slower, whatever single measurements say."""
    workload = Workload(batch_size=8, grad_accum=8)
    for dtype in ("bfloat16", "float32"):
        known = [(gpu, estimate(replace(workload, dtype=dtype), gpu)) for gpu in gpus()]
        steps = [(gpu, found.step_s.mid) for gpu, found in known if found is not None]
        for better, fast in steps:
            for worse, slow in steps:
                if better.architecture == worse.architecture and surpasses(better, worse):
                    assert fast <= slow * (1 + 1e-9), (better.name, worse.name, dtype)
