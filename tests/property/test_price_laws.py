"""Laws of what a run costs and what a change saves: the simulator, gains, memory, intervals as people set them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.calibrations import a_calibration
from tests.property.test_estimator_laws import DTYPES, cards, workloads
from tools.fuzz.roads import check

from stepwatch.advice.gains import PUBLISHED_GAINS, combined_gain, inverse, modelled_factor
from stepwatch.advice.schedule import best_spacing_s, rounded
from stepwatch.estimator.ceilings import checkpoint_prior, evaluation_prior, matmul_ceiling, normal_mfu
from stepwatch.estimator.measured import doubt, interpolated, rising
from stepwatch.estimator.memory import checkpoint_bytes, fits, largest_batch_size, vram_bytes
from stepwatch.estimator.simulate import Loop, Prices, loop_of, product, saving, simulate
from stepwatch.estimator.workload import Workload, flops_per_iteration, least_flops_per_iteration
from stepwatch.gpus import Gpu, gpus
from stepwatch.settings import Origin, Settings, Value
from stepwatch.units import Interval


def intervals(low: float, high: float) -> st.SearchStrategy[Interval]:
    return st.lists(st.floats(low, high), min_size=3, max_size=3).map(lambda ends: Interval(*sorted(ends)))


times = intervals(0.0, 1e9)
factors = intervals(0.1, 10.0)
prices = st.builds(
    Prices, step_s=intervals(1e-9, 1e6), eval_s=times, checkpoint_s=times, start_s=times, pair_s=st.none(),
)  # fmt: skip
loops = st.builds(
    Loop, iterations=st.integers(1, 10**9), evaluations=st.integers(0, 10**6), never=st.integers(0, 1),
    share=intervals(0.0, 1.0), step=factors, evaluation=factors, checkpoint=factors, lost_s=times,
    spill=factors, apart=st.none(), start_s=st.none(),
)  # fmt: skip


# --- the simulator ----------------------------------------------------------------------------------------------


@given(loops, prices, st.booleans())
def test_a_run_takes_its_parts_and_no_more(loop: Loop, price: Prices, one_model: bool) -> None:
    found = simulate(loop, price, one_model=one_model)
    check(tuple(found))
    parts = [found.step_s, found.eval_s, found.checkpoint_s, found.start_s, found.lost_s]
    assert found.total_s.mid == pytest.approx(sum(part.mid for part in parts))
    rounding = 1e-9 * found.total_s.high
    assert found.total_s.low >= sum(part.low for part in parts) - rounding
    assert found.total_s.high <= sum(part.high for part in parts) + rounding


@given(loops, prices, st.integers(0, 10**6))
def test_no_change_saves_nothing_and_fewer_evaluations_never_cost(loop: Loop, price: Prices, fewer: int) -> None:
    assert saving(loop, loop, price) == Interval.exactly(0.0)
    less = loop._replace(evaluations=max(loop.evaluations - fewer, 0))
    saved = saving(loop, less, price)
    assert saved.low <= saved.mid <= saved.high
    assert saved.mid >= 0.0
    both = simulate(loop, price).total_s.mid, simulate(less, price).total_s.mid
    assert saved.mid == pytest.approx(both[0] - both[1], abs=1e-9 * both[0])


@given(intervals(0.0, 1e12), intervals(0.0, 1e12))
def test_a_product_is_as_wide_as_its_factors_and_no_wider_than_both_at_once(one: Interval, other: Interval) -> None:
    likely = product(one, other)
    assert 0 <= likely.low <= likely.mid <= likely.high
    assert likely.mid == one.mid * other.mid
    assert likely.high <= one.high * other.high * (1 + 1e-9)


@given(st.integers(1, 10**12), st.integers(1, 10**12), st.sampled_from((True, False, None)))
def test_a_loop_evaluates_at_multiples_and_saves_no_more_often(last: int, interval: int, always: bool | None) -> None:
    values: dict[str, Value] = {"max_iters": last, "eval_interval": interval}
    values |= {} if always is None else {"always_save_checkpoint": always}
    loop = loop_of(Settings.of(Origin.USER, values))
    assert (loop.iterations, loop.evaluations) == (last + 1, last // interval + 1)
    assert 0 <= loop.saves.low <= loop.saves.high <= loop.evaluations - loop.never


# --- gains ------------------------------------------------------------------------------------------------------


@given(st.floats(1e-6, 1e6))
def test_a_modelled_factor_never_changes_its_direction(ratio: float) -> None:
    found = modelled_factor(ratio)
    assert (found.low <= found.high <= 1.0) if ratio <= 1 else (1.0 <= found.low <= found.high)
    back = inverse(inverse(found))
    assert (back.low, back.mid, back.high) == pytest.approx((found.low, found.mid, found.high))


@given(st.sampled_from(sorted(PUBLISHED_GAINS)), intervals(0.01, 100.0))
def test_a_gain_lies_within_what_was_published_and_measured(name: str, measured: Interval) -> None:
    published = PUBLISHED_GAINS[name]
    found = combined_gain(published, measured)
    assert 0 < found.low <= found.mid <= found.high
    assert min(published.low, measured.low) * 0.86 <= found.low  # three shoulders beyond the published ones
    assert found.high <= max(published.high, measured.high) * 1.17


# --- intervals as people set them -------------------------------------------------------------------------------


@given(st.floats(0.0, 1e15), st.floats(1e-3, 1e6), st.floats(1.0, 1e9))
def test_a_rounded_interval_is_below_and_near(value: float, cost_s: float, mtbf_s: float) -> None:
    assert rounded(value) <= max(value, 1) * (1 + 1e-9) <= 2.0 * 1.26 * rounded(value)
    assert rounded(rounded(value)) == rounded(value)
    best = best_spacing_s(cost_s, mtbf_s)
    overhead = [cost_s / spacing + spacing / (2 * mtbf_s) for spacing in (0.9 * best, best, 1.1 * best)]
    assert overhead[1] <= min(overhead)


# --- memory and work --------------------------------------------------------------------------------------------


@given(workloads(), st.sampled_from(gpus()), st.integers(1, 8))
def test_memory_grows_with_the_model_and_the_largest_batch_fits(workload: Workload, gpu: Gpu, layers: int) -> None:
    deeper = replace(workload, n_layer=workload.n_layer + layers)
    assert 0 < vram_bytes(workload, gpu).mid < vram_bytes(deeper, gpu).mid
    assert 0 < checkpoint_bytes(workload) < checkpoint_bytes(deeper)
    assert 0 < least_flops_per_iteration(workload) <= flops_per_iteration(workload) < flops_per_iteration(deeper)
    largest = largest_batch_size(workload, gpu)
    assert (largest is None) is (fits(workload, gpu) is None)
    if largest:
        assert fits(replace(workload, batch_size=largest), gpu)
        assert not fits(replace(workload, batch_size=largest + 2), gpu)


@given(cards, st.sampled_from(DTYPES), st.floats(1e-9, 604_800.0), st.integers(1, 10**9), st.floats(1.0, 1e12))
def test_ceilings_are_rates_and_beliefs_are_times(
    gpu: Gpu, dtype: str, step_s: float, eval_iters: int, n_params: float
) -> None:
    found = matmul_ceiling(gpu, dtype)
    assert found is None or 0 < found.flops < math.inf
    check(normal_mfu(gpu))
    evaluation, checkpoint = evaluation_prior(step_s, eval_iters, 1.0), checkpoint_prior(n_params)
    assert evaluation is not None
    assert checkpoint is not None
    assert 0 < evaluation.median_s < math.inf
    assert 0 < checkpoint.median_s < math.inf


CURVES = a_calibration().curves


@given(st.sampled_from(sorted(CURVES)), st.data(), st.floats(1.0, 10.0))
def test_more_work_never_takes_less_time_on_a_measured_machine(name: str, data: st.DataObject, factor: float) -> None:
    curve = CURVES[name]
    place = [data.draw(st.floats(0.0, 4.0 * axis.points[-1])) for axis in curve.axes]
    assert 0 <= interpolated(curve, place) <= interpolated(curve, [value * factor for value in place]) * (1 + 1e-9)
    assert all(one >= figure.value for one, figure in zip(rising(curve), curve.figures, strict=True))


@given(workloads(), st.floats(0.0, 10.0))
def test_doubt_is_a_share(workload: Workload, least: float) -> None:
    assert 0 <= doubt(workload, a_calibration(), least) < 1
    assert math.isfinite(doubt(workload, a_calibration(), least))
