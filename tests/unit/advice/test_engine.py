"""Where the thresholds of the rules lie, and the figures that their savings rest on (docs/advice.md says why)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pytest
from tests.builders import Saves, Truth
from tests.unit.advice.test_advice import (
    GPT2_SHAPE,
    LARGE,
    SPILLING,
    TINY,
    USUAL,
    analysed,
    eager,
    on_log,
    on_plan,
    rules_of,
)

from stepwatch.advice.case import Case, Proposal
from stepwatch.advice.log_rules import heat
from stepwatch.advice.schedule import (
    async_saving,
    evaluate_less,
    faster_storage,
    fewer_eval_batches,
    log_less,
    save_apart,
    save_on_improvement,
)
from stepwatch.advice.speed import pad_vocabulary, reduce_overhead
from stepwatch.settings import Value
from stepwatch.units import Interval

Rule = Callable[[Case], Iterator[Proposal]]


def proposed(rule: Rule, case: Case) -> Proposal | None:
    found = list(rule(case))
    assert len(found) <= 1
    return found[0] if found else None


def certainly(rule: Rule, case: Case) -> Proposal:
    found = proposed(rule, case)
    assert found is not None
    return found


def assert_border(outcomes: Iterable[tuple[float, bool]], limit: float) -> None:
    """False below the limit and True from it on, tried within a tenth on either side."""
    below, above = [], []
    for value, outcome in outcomes:
        (above if outcome else below).append(value)
    assert limit / 1.1 < max(below) < limit <= min(above) < limit * 1.1


def with_checkpoint(case: Case, cost_s: Interval, n_params: float = 124e6) -> Case:
    return replace(case, prices=case.prices._replace(checkpoint_s=cost_s), n_params=n_params)


# --- the list ---------------------------------------------------------------------------------------------------


def worth_it(**values: Value) -> tuple[float, float, bool]:
    """What skipping the training split saves, the whole run, and whether it is advised."""
    found = on_plan(**values)
    return found.before.eval_s.mid / 2, found.before.total_s.mid, "skip_train_split" in rules_of(found)


def test_a_change_saves_a_hundredth_of_a_long_run() -> None:
    found = [worth_it(eval_iters=batches) for batches in range(700, 1300, 20)]
    assert min(total for _, total, _ in found) > 6000
    assert_border([(saved / total, given) for saved, total, given in found], 0.01)


def test_a_change_saves_a_minute_of_a_short_run() -> None:
    found = [worth_it(max_iters=200, eval_interval=20, eval_iters=batches) for batches in range(20, 400, 2)]
    assert max(total for _, total, given in found if not given) < 6000
    assert_border([(saved, given) for saved, _, given in found], 60.0)


# --- evaluations ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interval", [1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200, 300])
def test_evaluations_become_fewer_until_they_take_two_hundredths(interval: int) -> None:
    case = on_plan("4070", eval_interval=interval, always_save_checkpoint=False, max_iters=4000).case
    expected = None
    for multiple in (2, 4, 5, 8, 10, 20):
        loop = case.changed({"eval_interval": multiple * interval})
        if loop.evaluations < 10:
            break
        expected = multiple * interval
        run = case.simulated(loop)
        if (run.eval_s.mid + run.checkpoint_s.mid) / case.before.total_s.mid <= 0.02:
            break
    if case.loop.evaluations < 20:
        expected = None
    found = proposed(evaluate_less, case)
    assert (found.new_settings["eval_interval"] if found is not None else None) == expected


def test_no_more_than_two_hours_lie_between_two_checkpoints() -> None:
    case = on_log(replace(LARGE, step_s=8.9, eval_s=300.0)).case
    assert certainly(evaluate_less, case).new_settings == {"eval_interval": 800}


@pytest.mark.parametrize(("batches", "fewer"), [(38, None), (40, 20), (78, 39), (80, 20), (200, 50)])
def test_twenty_batches_of_an_evaluation_stay(batches: int, fewer: int | None) -> None:
    found = proposed(fewer_eval_batches, on_log(USUAL, eval_iters=batches).case)
    assert (found.new_settings["eval_iters"] if found is not None else None) == fewer


def test_half_the_batches_are_enough_where_evaluations_then_take_two_hundredths() -> None:
    outcomes = []
    for interval in range(30, 80):
        case = on_plan(eval_interval=interval).case
        share = case.share(case.before.eval_s) / 2
        outcomes.append((share, certainly(fewer_eval_batches, case).new_settings["eval_iters"] == 50))
    assert_border(outcomes, 0.02)


# --- checkpoints ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("losses", "known"), [(3, False), (4, True)])
def test_four_losses_show_how_many_improve(losses: int, known: bool) -> None:
    case = on_log(replace(USUAL, max_iters=250 * (losses - 1), saves=Saves.ALWAYS)).case
    assert (case.improvements is not None) == known


def test_a_checkpoint_is_known_within_a_factor_of_three() -> None:
    case = on_log(replace(LARGE, saves=Saves.ALWAYS)).case
    for high, known in ((2.8, True), (3.2, False)):
        found = proposed(save_on_improvement, with_checkpoint(case, Interval(1.0, 2.0, high)))
        assert (found is not None) == known


def test_where_nothing_is_said_of_failures_there_is_one_a_week() -> None:
    found = certainly(save_apart, on_log(LARGE).case)
    assert found.because.params["mtbf"] == 7 * 24 * 3600


def test_checkpoints_move_where_they_come_half_as_often_again_as_loses_least() -> None:
    outcomes = []
    for interval in range(200, 1000, 20):
        case = on_plan(eval_interval=interval, max_iters=100_000, mtbf_hours=1.0).case
        cost_s, step_s = case.prices.checkpoint_s, case.prices.step_s.mid
        assert cost_s is not None
        best = math.sqrt(2 * 3600 * cost_s.mid) / step_s
        outcomes.append((best, case.loop.iterations / case.loop.saves.mid, proposed(save_apart, case)))
    assert outcomes
    for best, spacing, found in outcomes:
        assert (found is not None and found.rule == "save_more") == (best < spacing / 1.5)
    for factor in (1.4, 1.6):
        case = on_plan(eval_interval=100, max_iters=100_000).case
        spacing_s = case.loop.iterations / case.loop.saves.mid * case.prices.step_s.mid
        cost = (factor * spacing_s) ** 2 / (2 * 7 * 24 * 3600)
        assert (proposed(save_apart, with_checkpoint(case, Interval.exactly(cost))) is not None) == (factor > 1.5)
        rare = with_checkpoint(on_plan(eval_interval=100, max_iters=100_000, mtbf_hours=168.0).case, Interval.exactly(
            (spacing_s / factor) ** 2 / (2 * 7 * 24 * 3600)
        ))  # fmt: skip
        assert (proposed(save_apart, rare) is not None) == (factor > 1.5)


def test_a_checkpoint_is_copied_at_the_speed_of_the_bus() -> None:
    """12 bytes per parameter, at 6 to 25 GB/s."""
    case = with_checkpoint(on_log(LARGE).case, Interval.exactly(30.0), n_params=1e9)
    found = certainly(async_saving, case)
    assert found.because.params["size"] == 12e9
    kept = found.effect.checkpoint.scaled(30.0)
    assert (kept.low, kept.mid, kept.high) == pytest.approx((12 / 25, 12 / 12, 12 / 6))


def test_a_slow_disk_writes_a_fifth_of_a_gigabyte_a_second_and_a_local_one_three_times_that() -> None:
    case = on_log(LARGE).case
    outcomes = []
    for rate in (0.15e9, 0.19e9, 0.2e9, 0.21e9, 0.25e9):
        found = proposed(faster_storage, with_checkpoint(case, Interval.exactly(12e9 / rate), n_params=1e9))
        outcomes.append((rate, found is None))
    assert_border(outcomes, 0.2e9)
    found = certainly(faster_storage, with_checkpoint(case, Interval.exactly(120.0), n_params=1e9))
    kept = found.effect.checkpoint.scaled(120.0)
    assert (kept.low, kept.mid, kept.high) == pytest.approx((12 / 0.9, 12 / 0.65, 12 / 0.45))


# --- speed ------------------------------------------------------------------------------------------------------


def test_what_spills_is_moved_twice_at_best_and_eight_times_at_worst() -> None:
    case = on_plan(batch_size=64).case
    needed, gpu, work = case.vram_bytes({}), case.gpu, case.workload
    assert needed is not None
    assert gpu is not None
    assert work is not None
    moved = (needed.mid - (gpu.vram_bytes or 0)) * work.micro_steps / case.prices.step_s.mid
    spill = case.loop.spill
    assert (spill.low, spill.mid, spill.high) == pytest.approx(
        (1 + moved * 2 / 25e9, 1 + moved * 4 / 20e9, 1 + moved * 8 / 10e9)
    )
    assert on_log(SPILLING, "4070").case.spills


@pytest.mark.parametrize(
    ("lever", "now", "new", "published"),
    [
        ("compile", False, True, (1.15, 1.6, 2.3)),
        ("flash", False, True, (1.2, 1.4, 1.66)),
        ("vocab_size", 50257, 50304, (1.03, 1.07, 1.3)),
        ("fused", False, True, (1.01, 1.02, 1.04)),
        ("dtype", "float32", "bfloat16", (1.11, 1.4, 1.71)),
    ],
)
def test_a_published_gain_is_placed_by_the_estimator(
    lever: str, now: Value, new: Value, published: tuple[float, float, float]
) -> None:
    case = on_plan("a100", gradient_accumulation_steps=1, **{lever: now}).case
    low, mid, high = published
    alone = case.estimate_with({lever: new})
    assert alone is not None
    assert case.estimate is not None
    model = min(max(case.estimate.step_s.mid / alone.step_s.mid, low), high)
    factor = case.speed_factors({lever: new})[0]
    assert (1 / factor.high, 1 / factor.mid, 1 / factor.low) == pytest.approx((low, math.sqrt(mid * model), high))


def test_below_fifteen_million_parameters_compilation_may_not_help() -> None:
    shape: dict[str, Value] = {"n_layer": 8, "n_head": 8, "n_embd": 384, "block_size": 256, "compile": False}
    for vocab_size, tiny in ((1024, True), (2560, False)):
        case = on_plan("a100", **shape, vocab_size=vocab_size).case
        assert case.compile_gains == (Interval(0.9, 1.2, 1.85) if tiny else Interval(1.15, 1.6, 2.3))
        assert case.workload is not None
        assert (14e6 < case.workload.n_params < 15e6) == tiny
        assert (15e6 <= case.workload.n_params < 16e6) != tiny


@pytest.mark.parametrize(("gain", "widest"), [(1.6, 3.1), (1.85, 2.5)])
def test_a_saving_by_compilation_is_ranked_if_its_ends_are_near(gain: float, widest: float) -> None:
    found = on_log(eager(gain), "4090")
    saves = found.case.saving({"compile": True})
    assert 0.8 * widest < saves.high / saves.low <= widest
    assert ("compile" in rules_of(found)) == (widest == 2.5)


def test_launches_count_from_a_twentieth_of_the_step_and_three_quarters_of_them_go() -> None:
    outcomes = []
    for batch_size in range(560, 660, 2):
        case = on_plan("a100", **{**TINY, "batch_size": batch_size}).case
        assert case.estimate is not None
        seconds = {term.name: term.seconds for term in case.estimate.terms}
        share = sum(term.seconds for term in case.estimate.terms if term.name == "launch") / sum(seconds.values())
        found = proposed(reduce_overhead, case)
        outcomes.append((share, found is not None))
        if found is not None:
            assert found.effect.step.mid == pytest.approx(1 - 0.75 * share)
    assert_border(outcomes, 0.05)


@pytest.mark.parametrize(("vocab_size", "padded"), [(1000, None), (1023, None), (1025, 1088), (50257, 50304)])
def test_vocabularies_above_a_thousand_are_padded(vocab_size: int, padded: int | None) -> None:
    found = proposed(pad_vocabulary, on_plan(vocab_size=vocab_size).case)
    assert (found.new_settings["vocab_size"] if found is not None else None) == padded


def test_a_logged_line_costs_a_fraction_of_a_millisecond() -> None:
    case = on_plan("4090", **{**TINY, "log_interval": 1}).case
    step = certainly(log_less, case).effect.step
    waits = [(1 - end) / 0.9 * case.prices.step_s.mid for end in (step.high, step.mid, step.low)]
    assert waits == pytest.approx([0.05e-3, 0.2e-3, 0.6e-3])


# --- logs -------------------------------------------------------------------------------------------------------


def test_of_a_run_twice_as_slow_as_its_card_the_model_knows_nothing() -> None:
    usual = Truth(max_iters=5000, eval_s=0.5, shape=GPT2_SHAPE, batch_size=8, gradient_accumulation=8)
    expected = analysed(usual, "4090").expected
    assert expected is not None
    slow = [replace(usual, step_s=factor * expected.step_s.high) for factor in (1.85, 1.95, 2.05, 2.15)]
    found = [on_log(truth, "4090").case for truth in slow]
    assert [case.workload is None for case in found] == [False, False, True, True]


def test_what_was_measured_differs_by_a_hundredth_in_another_run() -> None:
    a = analysed(LARGE)
    case = on_log(LARGE).case
    for cost, price in ((a.costs.eval_s, case.prices.eval_s), (a.costs.checkpoint_s, case.prices.checkpoint_s)):
        assert cost is not None
        assert price is not None
        assert (price.low, price.high) == pytest.approx((cost.low - 0.01 * cost.mid, cost.high + 0.01 * cost.mid))


def test_of_the_checkpoints_still_to_come_half_to_one_and_a_half_times_as_many_come() -> None:
    a = analysed(replace(LARGE, kept=0.5))
    case = on_log(replace(LARGE, kept=0.5)).case
    assert a.forecast.saves_ahead > 0
    later = case.loop.evaluations - case.loop.never
    expected = [(a.phases.checkpoints + a.forecast.saves_ahead * part) / later for part in (0.5, 1.0, 1.4)]
    share = case.loop.share
    assert (share.low, share.mid, share.high) == pytest.approx(expected)


# --- the machine ------------------------------------------------------------------------------------------------


def test_steps_that_became_a_twentieth_longer_are_heat_of_which_a_part_comes_back() -> None:
    outcomes = []
    for drift in (0.066, 0.068, 0.072, 0.074, 0.076):
        case = on_log(replace(USUAL, drift=drift)).case
        found = proposed(heat, case)
        assert case.analysis is not None
        measured = case.analysis.regimes.drift or 0.0
        outcomes.append((measured, found is not None))
        if found is not None:
            lost = measured / (1 + measured)
            step = found.effect.step
            assert (step.low, step.mid, step.high) == pytest.approx((1 - lost, 1 - 0.75 * lost, 1 - 0.25 * lost))
    assert_border(outcomes, 0.05)
