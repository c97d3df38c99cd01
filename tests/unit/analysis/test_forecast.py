"""What a forecast doubts, and what it makes of the evaluations and saves that a log shows."""

from __future__ import annotations

import pytest
from tests.unit.analysis.test_costs import a_run, begun, plain

from stepwatch.analysis import Analysis, Costs, analyse
from stepwatch.analysis.costs import MEASURED, MODELLED
from stepwatch.analysis.forecast import _prices_ahead, _share_that_saves
from stepwatch.gpus import find_gpu
from stepwatch.readers import read
from stepwatch.settings import Value
from stepwatch.sources import from_text
from stepwatch.units import Interval

STEP = Interval.exactly(0.1)


def steps(*times_ms: float, interval: int = 1, max_iters: int = 50_000) -> Analysis:
    return analyse(a_run(plain(*times_ms, interval=interval), max_iters=max_iters))


def test_a_machine_that_was_steady_may_become_slower_more_than_faster() -> None:
    remaining = steps(*[100.0] * 300).forecast.remaining_s
    assert remaining is not None
    assert remaining.low / remaining.mid == pytest.approx(1 - 0.025, abs=0.001)
    assert remaining.high / remaining.mid == pytest.approx(1 + 0.035, abs=0.001)


@pytest.mark.parametrize(("rows", "wanders"), [(15, False), (16, True)])
def test_a_level_wanders_from_two_parts_of_eight_rows_on(rows: int, wanders: bool) -> None:
    times = [*[100.0] * 8, *[104.0] * 8]
    one_after_the_other, mixed = (steps(*order[:rows]).forecast.remaining_s for order in (times, times[::8] * 8))
    assert one_after_the_other is not None
    assert mixed is not None
    assert (one_after_the_other.high > 1.002 * mixed.high) == wanders


@pytest.mark.parametrize(("rows", "basis"), [(19, "both"), (20, "log")])
def test_twenty_normal_iterations_outweigh_the_estimate(rows: int, basis: str) -> None:
    a = begun(rows + 1)
    assert int(a.phases.normal.sum()) == rows
    assert a.forecast.basis == basis


def test_later_evaluations_may_differ_by_a_fiftieth() -> None:
    costs = Costs(step_s=STEP, mean_ratio=1.0, eval_s=Interval.exactly(5.0), how={"eval_s": MEASURED})
    assert _prices_ahead(costs, STEP).eval_s == Interval(4.9, 5.0, 5.1)


@pytest.mark.parametrize(("how", "least"), [(MEASURED, 1.0), (MODELLED, 5.0)])
def test_an_evaluation_that_was_not_measured_is_at_least_half_of_it_and_its_save(how: str, least: float) -> None:
    costs = Costs(
        step_s=STEP,
        mean_ratio=1.0,
        eval_s=Interval(1.0, 6.0, 8.0),
        checkpoint_s=Interval(2.0, 4.0, 9.0),
        pair_s=Interval.exactly(10.0),
        how={"eval_s": how},
    )
    alone = _prices_ahead(costs, STEP).eval_s
    assert alone is not None
    assert alone.low == pytest.approx(least - 0.02 * 6.0)


def saving(*saves: bool, **settings: Value) -> Interval:
    text = plain(*[100.0] * 10, interval=1)
    for place, saved in enumerate(saves, 1):
        text += f"step {50 * place}: train loss 3.0, val loss 3.0\n" + "saving checkpoint to out\n" * saved
        text += f"iter {50 * place}: loss 3.0, time 5000.00ms\n" + plain(
            *[100.0] * 10, first=50 * place + 1, interval=1
        )
    a = analyse(a_run(text, **settings))
    return _share_that_saves(a.run, a.phases)


def ends(interval: Interval) -> list[float]:
    return [interval.low, interval.mid, interval.high]


def test_where_all_have_saved_later_ones_may_not() -> None:
    assert ends(saving(*[True] * 3)) == pytest.approx([1 - 3 / 5, 5 / 6, 1.0])
    assert ends(saving(*[True] * 3, always_save_checkpoint=False)) == pytest.approx([1 - 3 / 5, 3.8 / 5, 1.0])
    assert ends(saving(*[True] * 3, always_save_checkpoint=True)) == [1.0, 1.0, 1.0]


def test_where_saves_become_rare_they_become_rarer() -> None:
    """All of the first two, one of the last two: half of half at least, a fifth and a tenth more at most."""
    assert ends(saving(True, True, True, False)) == pytest.approx([1 / 6, 1 / 3, 1.2 * 0.5 + 0.1])


def test_where_none_has_saved_the_next_may() -> None:
    assert ends(saving(*[False] * 3)) == pytest.approx([0.0, 0.0, 1 / 4])


def test_stalls_that_keep_coming_may_be_half_as_many_again() -> None:
    """Five of a second in 300 iterations; 3,000 are to come."""
    times = [1100.0 if place % 60 == 47 else 100.0 for place in range(300)]
    with_stalls, without = (
        analyse(a_run(plain(*rows, first=11, interval=1), max_iters=3310, eval_interval=10**6)).forecast.remaining_s
        for rows in (times, [100.0] * 300)
    )
    assert with_stalls is not None
    assert without is not None
    assert with_stalls.mid - without.mid == pytest.approx(50.0, rel=0.01)
    above, usual = with_stalls.high - with_stalls.mid, without.high - without.mid
    assert (above**2 - usual**2) ** 0.5 == pytest.approx(0.5 * 50.0, rel=0.05)


ITERATION_0 = (
    "tokens per iteration will be: 524,288\nnumber of parameters: 40.60M\n"
    "step 0: train loss 10.9, val loss 10.9\niter 0: loss 10.9, time 65000.00ms, mfu -100.00%\n"
)


def test_nothing_is_promised_below_what_the_card_can_do() -> None:
    """6ND and the card alone: 40.6M parameters, 524,288 tokens, an RTX 4070."""
    (run,) = read(from_text("max_iters = 6000\n" + ITERATION_0))
    gpu = find_gpu("4070")
    found = analyse(run, gpu).forecast.remaining_s
    peak = gpu.peak_flops().flops
    assert found is not None
    assert peak is not None
    assert found.low > 6000 * 6 * 40.6e6 * 524_288 / peak
    assert found.high < 2 * 24 * 3600
    assert found.low < 4 * 3600 * 3 < found.high  # hours, as it was


def test_a_first_iteration_shorter_than_its_work_is_left_alone() -> None:
    (run,) = read(from_text("max_iters = 6000\n" + ITERATION_0.replace("65000", "650")))
    assert analyse(run, find_gpu("4070")).costs.how["step_s"] == "not separable"
