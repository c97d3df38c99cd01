"""What a forecast allows for that the log has not shown: drifts, levels, schedules, evaluations, limits, patience."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.analysis.test_costs import a_run, plain

from stepwatch.analysis import Analysis, Forecast, analyse
from stepwatch.analysis.ahead import Reason
from stepwatch.gpus import find_gpu
from stepwatch.run import Run, Traits
from stepwatch.units import Interval


def a_log(*times_ms: float, max_iters: int = 1000, **changes: object) -> Run:
    run = a_run(plain(*times_ms, first=11, interval=1), max_iters=max_iters)
    return replace(run, **changes)


def forecast(*times_ms: float, **changes: object) -> Forecast:
    return analyse(a_log(*times_ms, **changes)).forecast


def left(found: Forecast) -> Interval:
    assert found.remaining_s is not None
    return found.remaining_s


STEADY = [100.0] * 100


def drifting(change: float, rows: int = 100) -> list[float]:
    return [100.0 * (1 + change) ** (place / rows) for place in range(rows)]


def test_a_slowdown_that_has_begun_is_in_the_forecast() -> None:
    """From 100 to 120 ms in a hundred rows: 120 ms from here on, and 120 ms x 1.2^0.5 if it goes on as long again."""
    found, steady = forecast(*drifting(0.2)), forecast(*STEADY)
    assert found.reasons == (Reason.SLOWER,)
    assert left(found).mid == pytest.approx(1.2 * left(steady).mid, rel=0.01)
    assert left(found).high == pytest.approx(1.2**1.5 * left(steady).high, rel=0.02)
    assert left(found).low > 1.15 * left(steady).low


def test_a_warm_up_that_is_not_over_is_in_the_forecast() -> None:
    found, steady = forecast(*drifting(-0.1)), forecast(*STEADY)
    assert found.reasons == (Reason.FASTER,)
    assert left(found).mid == pytest.approx(0.9 * left(steady).mid, rel=0.01)
    assert left(found).low == pytest.approx(0.9**1.5 * left(steady).low, rel=0.01)


@pytest.mark.parametrize(("rows", "change", "drifts"), [(16, 0.1, True), (15, 0.1, False), (100, 0.015, False)])
def test_a_short_or_small_drift_is_none(rows: int, change: float, drifts: bool) -> None:
    assert bool(forecast(*drifting(change, rows)).reasons) == drifts


def test_a_drift_that_goes_back_is_none() -> None:
    up = drifting(0.05, 50)
    assert Reason.SLOWER not in forecast(*up, *reversed(up)).reasons


def test_a_drift_that_dies_away_is_taken_at_its_end() -> None:
    times = [108 - 8 * 0.98**place for place in range(200)]
    found, steady = forecast(*times), forecast(*[108.0] * 200)
    assert found.reasons == (Reason.SLOWER,)
    assert left(found).high < 1.03 * left(steady).high  # 1.06 at the mean pace


def test_what_has_changed_may_change_back() -> None:
    found, steady = forecast(*[200.0] * 60, *STEADY), forecast(*[100.0] * 160)
    assert found.reasons == (Reason.LEVELS,)
    assert left(found).high == pytest.approx(2 * left(steady).mid, rel=0.02)


@pytest.mark.parametrize("level_ms", [900.0, 20.0])
def test_a_level_that_was_short_comes_back_for_its_share_only(level_ms: float) -> None:
    found, steady = forecast(*[level_ms] * 30, *[100.0] * 170), forecast(*[100.0] * 200)
    share = 30 / 200
    back = left(steady).mid * (1 + share * (level_ms / 100 - 1))
    edge = left(found).high if level_ms > 100 else left(found).low
    assert edge == pytest.approx(back, rel=0.05)
    assert left(found).mid == pytest.approx(left(steady).mid, rel=0.01)


def test_steps_of_a_schedule_may_become_half_as_long_again() -> None:
    found, steady = forecast(*STEADY, traits=Traits(schedules=True)), forecast(*STEADY, traits=Traits())
    assert found.reasons == (Reason.SCHEDULE,)
    assert left(found).high - left(steady).high == pytest.approx(0.5 * left(steady).mid, rel=0.001)
    assert left(found).mid == left(steady).mid
    late = forecast(*STEADY, max_iters=135, traits=Traits(schedules=True))
    assert left(late).high < 1.4 * left(late).mid


def test_evaluations_that_no_line_shows_yet_may_take_a_fifth_of_the_rest() -> None:
    found, steady = forecast(*STEADY, traits=Traits(may_evaluate=True)), forecast(*STEADY, traits=Traits())
    assert found.reasons == (Reason.EVALUATIONS,)
    assert left(found).high - left(steady).high == pytest.approx(0.2 * left(steady).mid, rel=0.001)


def in_mid_run(*, evaluated: bool) -> Analysis:
    """From iteration 1,900 to 2,099, with an evaluation of 5 s at 2,000 or without one."""
    before, after = plain(*STEADY, first=1900, interval=1), plain(*STEADY[1:], first=2001, interval=1)
    middle = "step 2000: train loss 3.0, val loss 3.0\n" * evaluated
    middle += f"iter 2000: loss 3.0, time {5100.0 if evaluated else 100.0:.2f}ms\n"
    return analyse(a_run(before + middle + after, max_iters=4000))


def test_the_only_evaluation_of_a_log_that_begins_in_mid_run_is_not_the_first() -> None:
    """250 is the shortest usual interval that is longer than the hundred iterations around it: 8 are to come."""
    found, without = left(in_mid_run(evaluated=True).forecast), left(in_mid_run(evaluated=False).forecast)
    assert found.mid - without.mid == pytest.approx(8 * 5.0, rel=0.01)
    assert found.high - without.mid > 15 * 5.0


def test_a_run_with_a_limit_ends_at_the_limit() -> None:
    found = forecast(*STEADY, limit_s=60.0, traits=Traits(schedules=True))
    assert found.reasons == (Reason.LIMIT,)
    assert found.total_s is not None
    assert (found.total_s.low, found.total_s.mid) == (60.0, 60.0)
    assert found.total_s.high == pytest.approx(60.15, abs=0.1)
    assert left(found).mid == pytest.approx(50.0, rel=0.01)


def test_patience_may_end_a_run_early() -> None:
    found, steady = forecast(*STEADY, patience=555), forecast(*STEADY)
    assert found.reasons == (Reason.PATIENCE,)
    assert left(found).low == pytest.approx(left(steady).low / 2, rel=0.01)
    assert (left(found).mid, left(found).high) == (left(steady).mid, left(steady).high)
    assert forecast(*STEADY, patience=2000).reasons == ()


def test_no_step_is_below_the_limit_of_the_card() -> None:
    gpu = find_gpu("4070")
    peak = gpu.peak_flops().flops
    assert peak is not None
    settings = {"n_params": 0.099 * peak / 6 / 1e6, "tokens_per_iter": 10**6}  # 99 ms at the peak
    run = a_run(plain(*STEADY, first=11, interval=1), max_iters=1000, **settings)
    found, unknown = left(analyse(run, gpu).forecast), left(analyse(run).forecast)
    assert unknown.low < 0.98 * unknown.mid
    assert found.low == pytest.approx(0.99 * found.mid, rel=0.001)
