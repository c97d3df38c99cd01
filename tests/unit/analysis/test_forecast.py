"""What a forecast doubts, and what it makes of the evaluations and saves that a log shows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from tests.unit.analysis.test_costs import a_run, begun, plain

from stepwatch.analysis import Analysis, Costs, Forecast, analyse
from stepwatch.analysis.costs import MEASURED, MODELLED
from stepwatch.analysis.forecast import _prices_ahead, _share_that_saves
from stepwatch.gpus import find_gpu
from stepwatch.readers import read
from stepwatch.run import Run, Traits
from stepwatch.settings import Origin, Settings, Value
from stepwatch.sources import from_text
from stepwatch.units import Interval

STEP = Interval.exactly(0.1)


def steps(*times_ms: float, interval: int = 1, max_iters: int = 50_000) -> Analysis:
    return analyse(a_run(plain(*times_ms, interval=interval), max_iters=max_iters))


def test_a_machine_that_was_steady_may_become_slower_more_than_faster() -> None:
    remaining = steps(*[100.0] * 300).forecast.remaining_s
    assert remaining is not None
    assert remaining.low / remaining.mid == pytest.approx(1 - 0.06, abs=0.001)
    assert remaining.high / remaining.mid == pytest.approx(1 + 0.08, abs=0.001)


@pytest.mark.parametrize(("rows", "wanders"), [(15, False), (16, True)])
def test_a_level_wanders_from_two_parts_of_eight_rows_on(rows: int, wanders: bool) -> None:
    times = [*[100.0] * 8, *[108.0] * 8]
    one_after_the_other, mixed = (steps(*order[:rows]).forecast.remaining_s for order in (times, times[::8] * 8))
    assert one_after_the_other is not None
    assert mixed is not None
    assert (one_after_the_other.high > 1.002 * mixed.high) == wanders


@pytest.mark.parametrize(("rows", "basis"), [(19, "both"), (20, "log")])
def test_twenty_normal_iterations_outweigh_the_estimate(rows: int, basis: str) -> None:
    a = begun(rows + 1)
    assert int(a.phases.normal.sum()) == rows
    assert a.forecast.basis == basis


def test_later_evaluations_may_differ_as_later_steps_may() -> None:
    costs = Costs(step_s=STEP, mean_ratio=1.0, eval_s=Interval.exactly(5.0), how={"eval_s": MEASURED})
    assert _prices_ahead(costs, STEP).eval_s == Interval(4.7, 5.0, 5.4)


@pytest.mark.parametrize(("how", "least"), [(MEASURED, 1.0), (MODELLED, 20 / 3)])
def test_an_evaluation_that_was_not_measured_is_two_thirds_of_it_and_its_save_at_least(how: str, least: float) -> None:
    costs = Costs(
        step_s=STEP,
        mean_ratio=1.0,
        eval_s=Interval(1.0, 7.0, 8.0),
        checkpoint_s=Interval(2.0, 3.0, 9.0),
        pair_s=Interval.exactly(10.0),
        how={"eval_s": how},
    )
    alone = _prices_ahead(costs, STEP).eval_s
    assert alone is not None
    assert alone.low == pytest.approx(least - 0.06 * 7.0)


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
    assert found.reasons == ("slower",)
    assert left(found).mid == pytest.approx(1.2 * left(steady).mid, rel=0.01)
    assert left(found).high == pytest.approx(1.2**1.5 * left(steady).high, rel=0.02)
    assert left(found).low == pytest.approx(1.02 * left(steady).low, rel=0.03)  # back to the first fifth


def test_a_warm_up_that_is_not_over_is_in_the_forecast() -> None:
    found, steady = forecast(*drifting(-0.05)), forecast(*STEADY)
    assert found.reasons == ("faster",)
    assert left(found).mid == pytest.approx(0.95 * left(steady).mid, rel=0.01)
    assert left(found).low == pytest.approx(0.95**1.5 * left(steady).low, rel=0.01)
    assert left(found).high == pytest.approx(0.995 * left(steady).high, rel=0.01)  # back to the first fifth


@pytest.mark.parametrize(
    ("rows", "change", "drifts"), [(16, 0.1, True), (15, 0.1, False), (100, 0.023, False), (100, 0.028, True)]
)
def test_a_short_or_small_drift_is_none(rows: int, change: float, drifts: bool) -> None:
    assert bool(forecast(*drifting(change, rows)).reasons) == drifts


def test_a_drift_that_goes_back_is_none() -> None:
    up = drifting(0.05, 50)
    assert "slower" not in forecast(*up, *reversed(up)).reasons


@pytest.mark.parametrize(("back", "drifts"), [(0.09, True), (0.11, False)])
def test_a_drift_may_go_back_by_a_tenth_of_itself_on_its_way(back: float, drifts: bool) -> None:
    levels = [0.0, 0.03, 0.03 - back * 0.08, 0.06, 0.08]
    times = [100 * math.exp(level) for level in levels for _ in range(20)]
    assert ("slower" in forecast(*times).reasons) is drifts


@pytest.mark.parametrize(("errors", "drifts"), [(4.4, False), (5.25, True)])
def test_in_noise_a_drift_is_five_errors_of_a_fifth(errors: float, drifts: bool) -> None:
    quantiles, rng = [NormalDist().inv_cdf((place + 0.5) / 20) for place in range(20)], np.random.default_rng(0)
    error = math.sqrt(math.pi / 2) * 0.03 / math.sqrt(20)  # of a median of twenty
    times = [
        100 * math.exp(errors * error * fifth / 4 + 0.03 * quantile)
        for fifth in range(5)
        for quantile in rng.permutation(quantiles)
    ]
    assert ("slower" in forecast(*times).reasons) is drifts


def test_a_drift_that_dies_away_is_taken_at_its_end() -> None:
    times = [108 - 8 * 0.98**place for place in range(200)]
    found, steady = forecast(*times), forecast(*[108.0] * 200)
    assert found.reasons == ("slower",)
    assert left(found).high < 1.03 * left(steady).high  # 1.06 at the mean pace


def wandering(rng: np.random.Generator) -> list[float]:
    """A level that wanders by 4 % of itself and forgets it in 300 iterations."""
    shocks, level, times = rng.normal(0, 0.04 * (1 - 0.9967**2) ** 0.5, 1000), 0.0, []
    for shock in shocks:
        level = 0.9967 * level + shock
        times.append(100 * math.exp(level))
    return times


def alternating(rng: np.random.Generator) -> list[float]:
    """Two speeds, a stranger's job on the card or not, for 40 to 400 iterations each; the first 100 show both."""
    times, slow = [], float(rng.uniform(1.2, 2.0))
    for count in (50, 50, *rng.integers(40, 400, 25)):
        times += [100.0 * (slow if len(times) and times[-1] == 100.0 else 1.0)] * int(count)
    return times[:1000]


@pytest.mark.parametrize("make", [wandering, alternating])
@pytest.mark.parametrize("share", [0.1, 0.3])
def test_nine_of_ten_planted_runs_are_covered(make: Callable[[np.random.Generator], list[float]], share: float) -> None:
    covered = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        times = [time * math.exp(rng.normal(0, 0.02)) for time in make(rng)]
        seen = round(share * len(times))
        covered += left(forecast(*times[:seen], max_iters=1010)).holds(sum(times[seen:]) / 1000)
    assert covered >= 0.9 * 60


@pytest.mark.parametrize("level_ms", [200.0, 50.0])
@pytest.mark.parametrize("rows", [30, 100])
def test_what_has_changed_may_change_back_however_short_it_was(level_ms: float, rows: int) -> None:
    found, steady = forecast(*[level_ms] * rows, *[100.0] * 170), forecast(*[100.0] * (170 + rows))
    assert found.reasons == ("levels",)
    assert left(found).mid == pytest.approx(left(steady).mid, rel=0.01)
    end, usual = ends(left(found)), ends(left(steady))
    side = 2 if level_ms > 100 else 0
    assert end[side] == pytest.approx(level_ms / 100 * usual[side], rel=0.08)


def test_a_first_row_has_the_start_in_it() -> None:
    """The mean of the first twenty iterations, 100 ms: those after it take a quarter to six fifths of that."""
    line = "[{stamp} d2.utils.events]:  eta: 0:10:00  iter: {at}  total_loss: 1.0  time: 0.1000  lr: 0.1  max_mem: 1M\n"
    rows = [line.format(stamp=f"01/01 10:00:{2 * place:02d}", at=20 * place - 1) for place in (1, 2)]
    (alone,), (followed,) = (read(from_text("".join(rows[:count]))) for count in (1, 2))
    settings = Settings.of(Origin.USER, {"max_iters": 1000})
    found, later = (left(analyse(replace(run, settings=settings)).forecast) for run in (alone, followed))
    assert ends(found) == pytest.approx([0.25 * 98.0, 0.95 * 98.0, 1.2 * 98.0], rel=0.02)
    assert later.low > 0.6 * 96.0


def test_saves_that_no_line_shows_take_half_a_second_and_seldom_two() -> None:
    """YOLO saves after each evaluation: 0.3 to 1.7 s in 19 of 22 public logs, in short epochs mostly below 0.5 s."""
    text = "".join(
        f"step {n}: train loss 3, val loss 3\n" * (n % 20 == 0) + plain(2000.0 if n % 20 == 0 else 100.0, first=n)
        for n in range(1, 101)
    )
    run = a_run(text, max_iters=200)
    hidden, seen = (analyse(replace(run, traits=Traits(hides_saves=hides))).forecast for hides in (True, False))
    assert hidden.reasons == ("hidden",)
    added = [each - plain for each, plain in zip(ends(left(hidden)), ends(left(seen)), strict=True)]
    assert added == pytest.approx([0.0, 5 * 0.5, 5 * 1.7])


def test_steps_of_a_schedule_may_become_half_as_long_again() -> None:
    found, steady = forecast(*STEADY, traits=Traits(schedules=True)), forecast(*STEADY, traits=Traits())
    assert found.reasons == ("schedule",)
    assert left(found).high - left(steady).high == pytest.approx(0.5 * left(steady).mid, rel=0.001)
    assert left(found).mid == left(steady).mid
    late = forecast(*STEADY, max_iters=135, traits=Traits(schedules=True))
    assert left(late).high < 1.4 * left(late).mid


def test_evaluations_that_no_line_shows_yet_may_take_a_fifth_of_the_rest() -> None:
    found, steady = forecast(*STEADY, traits=Traits(may_evaluate=True)), forecast(*STEADY, traits=Traits())
    assert found.reasons == ("evaluations",)
    assert left(found).high - left(steady).high == pytest.approx(0.2 * left(steady).mid, rel=0.001)


def evaluating(max_iters: int) -> Analysis:
    """Every 50th of 110 iterations evaluates."""
    text = plain(*[100.0] * 50, first=1, interval=1)
    for at in (50, 100):
        text += f"step {at}: train loss 3.0, val loss 3.0\niter {at}: loss 3.0, time 5100.00ms\n"
        text += plain(*[100.0] * (49 if at == 50 else 10), first=at + 1, interval=1)
    return analyse(a_run(text, max_iters=max_iters, eval_interval=50))


def test_a_trainer_may_evaluate_after_its_last_step_too() -> None:
    at_the_end, between = evaluating(500), evaluating(501)
    assert between.costs.eval_s is not None
    assert left(between.forecast).mid - left(at_the_end.forecast).mid == pytest.approx(0.1, abs=0.01)
    more = left(between.forecast).high - left(at_the_end.forecast).high
    assert more == pytest.approx(between.costs.eval_s.mid, abs=0.2)


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
    assert found.reasons == ("limit",)
    assert found.total_s is not None
    assert (found.total_s.low, found.total_s.mid) == (60.0, 60.0)
    assert found.total_s.high == pytest.approx(60.15, abs=0.1)
    assert left(found).mid == pytest.approx(50.0, rel=0.01)


def test_patience_may_end_a_run_early() -> None:
    found, steady = forecast(*STEADY, patience=555), forecast(*STEADY)
    assert found.reasons == ("patience",)
    assert left(found).low == pytest.approx(left(steady).low / 2, rel=0.01)
    assert (left(found).mid, left(found).high) == (left(steady).mid, left(steady).high)
    assert forecast(*STEADY, patience=2000).reasons == ()


def test_nothing_is_left_of_a_run_that_says_that_it_has_ended() -> None:
    log = a_log(*STEADY, ended_by_plan=True)
    planned = replace(log, settings=log.settings.overridden_by(Settings.of(Origin.LOG, {"max_iters": 1000})))
    for run in (planned, replace(log, settings=Settings({}))):
        found = analyse(run).forecast
        assert (found.done, found.last_iteration, found.max_iters) == (True, 110, 110)
        assert left(found).high == 0.0
    assert not analyse(log).forecast.done  # its length is the reader's question


def test_no_step_is_below_the_limit_of_the_card() -> None:
    gpu = find_gpu("4070")
    peak = gpu.peak_flops().flops
    assert peak is not None
    settings = {"n_params": 0.099 * peak / 6 / 1e6, "tokens_per_iter": 10**6}  # 99 ms at the peak
    run = a_run(plain(*STEADY, first=11, interval=1), max_iters=1000, **settings)
    found, unknown = left(analyse(run, gpu).forecast), left(analyse(run).forecast)
    assert unknown.low < 0.98 * unknown.mid
    assert found.low == pytest.approx(0.99 * found.mid, rel=0.001)
