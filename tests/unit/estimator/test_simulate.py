"""One simulator: the parts of a run, its total, and the difference of two runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwatch.estimator.simulate import Loop, Prices, product, saving, simulate
from stepwatch.units import Interval

STEP, EVALUATION, CHECKPOINT = Interval(0.9, 1.0, 1.2), Interval(9.0, 10.0, 12.0), Interval(2.0, 3.0, 5.0)
PRICES = Prices(STEP, EVALUATION, CHECKPOINT, start_s=Interval(20.0, 30.0, 50.0))
LOOP = Loop(1001, 11, never=1, share=Interval.exactly(1.0))
HALF = Interval.exactly(0.5)


def scaled(prices: Prices, factor: float) -> Prices:
    return Prices(*(None if price is None else price.scaled(factor) for price in prices))


def relative(of: Interval) -> tuple[float, float]:
    return of.low / of.mid, of.high / of.mid


# --- a run ------------------------------------------------------------------------------------------------------


def test_a_cheaper_evaluation_leaves_what_it_costs_together_with_its_checkpoint() -> None:
    prices = PRICES._replace(pair_s=Interval.exactly(15.0))  # of 13 by themselves
    after = LOOP._replace(evaluation=HALF)
    saved_s = simulate(LOOP, prices).total_s.mid - simulate(after, prices).total_s.mid
    assert saved_s == pytest.approx(11 * 5.0) == pytest.approx(saving(LOOP, after, prices).mid)


def test_each_part_is_its_count_times_its_price() -> None:
    run = simulate(LOOP, PRICES)
    assert run.step_s == STEP.scaled(1001)
    assert run.eval_s == EVALUATION.scaled(11)
    assert run.checkpoint_s == CHECKPOINT.scaled(10)
    assert run.start_s == PRICES.start_s
    assert run.lost_s == Interval.exactly(0.0)


@pytest.mark.parametrize("one_model", [True, False])
def test_the_middles_of_the_parts_sum_to_the_middle_of_the_total(one_model: bool) -> None:
    run = simulate(LOOP._replace(lost_s=Interval(1.0, 7.0, 9.0)), PRICES, one_model=one_model)
    assert run.total_s.mid == pytest.approx(sum(part.mid for part in run[:-1]))


def test_not_all_parts_err_at_once() -> None:
    run = simulate(LOOP, PRICES)
    assert run.total_s.low > sum(part.low for part in run[:-1])
    assert run.total_s.high < sum(part.high for part in run[:-1])


def test_step_and_evaluation_of_one_estimate_err_together() -> None:
    together, apart = simulate(LOOP, PRICES, one_model=True).total_s, simulate(LOOP, PRICES).total_s
    assert together.mid == pytest.approx(apart.mid)
    assert together.high - together.low > apart.high - apart.low


def test_the_first_evaluation_never_saves() -> None:
    assert LOOP.saves.mid == 10
    assert Loop(1001, 1, never=1, share=Interval.exactly(1.0)).saves.mid == 0
    assert Loop(1001, 0, never=1, share=Interval.exactly(1.0)).saves.mid == 0


def test_checkpoints_that_are_counted_apart_do_not_go_by_the_evaluations() -> None:
    run = simulate(LOOP._replace(apart=Interval.exactly(3.0)), PRICES)
    assert run.checkpoint_s == CHECKPOINT.scaled(3)
    assert run.eval_s == EVALUATION.scaled(11)


def test_a_run_without_evaluations_has_no_price_for_them() -> None:
    run = simulate(Loop(100), Prices(STEP))
    assert run.total_s == STEP.scaled(100)


def test_a_start_of_its_own_replaces_the_price() -> None:
    assert simulate(LOOP._replace(start_s=Interval.exactly(1.0)), PRICES).start_s.mid == 1.0


def test_a_pair_that_was_measured_as_one_is_narrower_than_its_two_parts() -> None:
    prices = PRICES._replace(eval_s=Interval(5.0, 10.0, 15.0), checkpoint_s=Interval(0.0, 3.0, 9.0))
    known = prices._replace(pair_s=Interval(12.8, 13.0, 13.3))
    apart, pairs = simulate(LOOP, prices).total_s, simulate(LOOP, known).total_s
    assert pairs.mid == pytest.approx(apart.mid)
    assert pairs.high - pairs.low < apart.high - apart.low


def test_of_more_saves_than_evaluations_not_all_are_pairs() -> None:
    often = LOOP._replace(apart=Interval.exactly(500.0))
    cheap = PRICES._replace(pair_s=Interval(1.0, 2.0, 3.0))  # a pair may be measured below an evaluation
    run = simulate(often, cheap)
    assert run.total_s.mid == pytest.approx(sum(part.mid for part in run[:-1]))
    assert run.total_s.low > 0


def test_a_share_that_is_uncertain_goes_with_the_price_low_with_low_and_high_with_high() -> None:
    loop = LOOP._replace(share=Interval(0.2, 0.5, 1.0))
    assert simulate(loop, PRICES).checkpoint_s == Interval(2 * 2.0, 5 * 3.0, 10 * 5.0)


def test_a_product_with_one_changes_nothing_and_is_never_negative() -> None:
    assert product(STEP, Interval.exactly(1.0)) == STEP
    assert product(Interval(0.0, 1.0, 5.0), Interval(0.0, 1.0, 5.0)).low == 0.0


# --- the difference of two runs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "loop",
    [
        LOOP, LOOP._replace(share=Interval(0.1, 0.5, 1.0)), LOOP._replace(apart=Interval(1.0, 2.0, 3.0)),
        LOOP._replace(step=Interval(0.5, 1.0, 2.0), evaluation=Interval(0.5, 1.0, 2.0)),
        LOOP._replace(lost_s=Interval(1.0, 2.0, 3.0), start_s=Interval(1.0, 2.0, 3.0)), Loop(1),
        LOOP._replace(checkpoint=HALF),
    ],
)  # fmt: skip
@pytest.mark.parametrize("prices", [PRICES, PRICES._replace(pair_s=Interval(11.0, 13.0, 14.0)), Prices(STEP)])
def test_no_change_saves_exactly_nothing_however_little_is_known(loop: Loop, prices: Prices) -> None:
    assert saving(loop, loop, prices) == Interval.exactly(0.0)


def test_fewer_evaluations_save_those_and_their_checkpoints() -> None:
    saved = saving(LOOP, LOOP._replace(evaluations=6), PRICES)
    assert saved.mid == pytest.approx(5 * 10.0 + 5 * 3.0)
    assert saved.low < saved.mid < saved.high


@given(st.floats(0.001, 1.0), st.floats(1.0, 100.0))
def test_what_fewer_evaluations_save_does_not_depend_on_the_step(low: float, high: float) -> None:
    vague = PRICES._replace(step_s=Interval(low, 1.0, high), start_s=Interval(0.0, 3.0, 900.0))
    fewer = LOOP._replace(evaluations=6)
    assert saving(LOOP, fewer, vague) == saving(LOOP, fewer, PRICES)


def test_evaluations_and_checkpoints_that_go_together_are_saved_at_the_price_of_the_pair() -> None:
    prices = Prices(STEP, Interval(5.0, 10.0, 15.0), Interval(0.0, 3.0, 9.0), Interval(12.8, 13.0, 13.3))
    saved = saving(LOOP, LOOP._replace(evaluations=6), prices)
    assert saved.mid == pytest.approx(5 * 13.0)
    assert (saved.low, saved.high) == pytest.approx((5 * 12.8, 5 * 13.3))


def test_a_share_that_stays_the_same_cancels() -> None:
    """Which evaluations save is unknown, but all of the run's it was and half of the run's it will be."""
    loop = LOOP._replace(share=Interval(0.4, 0.5, 0.6))
    saved = saving(loop, loop._replace(evaluations=6), PRICES)
    assert saved.mid == pytest.approx(5 * 10.0 + 2.5 * 3.0)
    other = saving(loop, loop._replace(evaluations=6, share=Interval(0.4, 0.5, 0.61)), PRICES)
    assert other.low < saved.low <= saved.high < other.high


def test_a_cheaper_step_saves_its_part_of_the_steps() -> None:
    saved = saving(LOOP, LOOP._replace(step=HALF), PRICES)
    assert saved.mid == pytest.approx(500.5)
    assert relative(saved) == pytest.approx(relative(STEP))


def test_a_dearer_step_saves_less_than_nothing() -> None:
    saved = saving(LOOP, LOOP._replace(step=Interval(1.1, 1.2, 1.3)), PRICES)
    assert saved.high < 0


def test_a_cheaper_checkpoint_saves_its_part_and_never_more_than_all() -> None:
    saved = saving(LOOP, LOOP._replace(checkpoint=Interval(0.0, 0.1, 0.2)), PRICES)
    assert saved.mid == pytest.approx(27.0)
    assert 0 < saved.low <= saved.mid <= saved.high <= 50.0


def test_half_an_evaluation_saves_half_of_all() -> None:
    assert saving(LOOP, LOOP._replace(evaluation=HALF), PRICES) == EVALUATION.scaled(5.5)


def test_what_is_not_known_of_a_cheaper_evaluation_widens_the_saving() -> None:
    sure = saving(LOOP, LOOP._replace(evaluation=HALF), PRICES)
    vague = saving(LOOP, LOOP._replace(evaluation=Interval(0.3, 0.5, 0.9)), PRICES)
    assert vague.mid == pytest.approx(sure.mid)
    assert vague.high - vague.low > sure.high - sure.low


def test_one_gain_of_step_and_evaluation_is_wrong_in_both_alike() -> None:
    gain = Interval(0.4, 0.5, 0.7)
    steps = saving(LOOP, LOOP._replace(step=gain), PRICES)
    evaluations = saving(LOOP, LOOP._replace(evaluation=gain), PRICES)
    both = saving(LOOP, LOOP._replace(step=gain, evaluation=gain), PRICES)
    assert both.low == pytest.approx(steps.low + evaluations.low)
    assert both.high == pytest.approx(steps.high + evaluations.high)


def test_a_later_start_and_lost_time_are_taken_off() -> None:
    after = LOOP._replace(start_s=Interval.exactly(10.0), lost_s=Interval.exactly(5.0))
    assert saving(LOOP, after, PRICES).mid == pytest.approx(30.0 - 10.0 - 5.0)


@st.composite
def loops(draw: st.DrawFn) -> Loop:
    return Loop(
        draw(st.integers(1, 10**6)), draw(st.integers(1, 1000)), never=draw(st.integers(0, 1)),
        share=draw(st.sampled_from([Interval.exactly(0.0), Interval(0.1, 0.4, 0.9), Interval.exactly(1.0)])),
        step=draw(st.sampled_from([Interval.exactly(1.0), Interval(0.5, 0.7, 0.9)])),
        evaluation=draw(st.sampled_from([Interval.exactly(1.0), HALF])),
        checkpoint=draw(st.sampled_from([Interval.exactly(1.0), Interval(0.1, 0.2, 0.5)])),
    )  # fmt: skip


@given(loops(), loops(), st.floats(0.001, 1000.0), st.booleans())
def test_a_saving_grows_with_all_prices(before: Loop, after: Loop, factor: float, pairs: bool) -> None:
    prices = PRICES._replace(pair_s=Interval(12.0, 13.0, 14.0) if pairs else None)
    once, times = saving(before, after, prices), saving(before, after, scaled(prices, factor))
    for end in ("low", "mid", "high"):
        expected = getattr(once, end) * factor
        assert getattr(times, end) == pytest.approx(expected, rel=1e-6, abs=1e-6 * factor * max(1.0, abs(once.mid)))


@given(loops(), loops())
def test_the_saving_is_the_difference_of_the_two_runs(before: Loop, after: Loop) -> None:
    after = after._replace(iterations=before.iterations)
    difference = simulate(before, PRICES).total_s.mid - simulate(after, PRICES).total_s.mid
    size = max(simulate(loop, PRICES).total_s.mid for loop in (before, after))
    assert saving(before, after, PRICES).mid == pytest.approx(difference, abs=1e-9 * size)
    assert saving(after, before, PRICES).mid == pytest.approx(-difference, abs=1e-9 * size)
