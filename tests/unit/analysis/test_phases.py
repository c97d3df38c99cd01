"""Where the analysis decides, from both sides: a little less and a little more than each threshold."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.builders import Truth, a_log
from tests.recorded import Planted, several_ranks
from tests.recorded import Record as Recorded

from stepwatch.analysis import Analysis, analyse
from stepwatch.analysis.comparison import compare, limit_of
from stepwatch.analysis.findings import mfu_of_an_a100, printed_mfu
from stepwatch.analysis.forecast import _share_that_saves
from stepwatch.analysis.phases import CERTAINTY_NAMES, PHASE_NAMES, Phase, Unlogged
from stepwatch.analysis.ranks import find_ranks
from stepwatch.analysis.statistics import (
    Levels,
    last_digit_s,
    median,
    quantile,
    running_levels,
    spread,
    standard_error,
    t_quantile,
)
from stepwatch.analysis.throughput import flops_behind_mfu
from stepwatch.errors import UsageError
from stepwatch.gpus import find_gpu
from stepwatch.readers import read
from stepwatch.run import Evaluation, Run, Traits, Unread
from stepwatch.settings import Origin, Settings, Value
from stepwatch.sources import from_text


def analysed(text: str, gpu: str | None = None, **settings: Value) -> Analysis:
    run = read(from_text(text))[-1]
    run = replace(run, settings=run.settings.overridden_by(Settings.of(Origin.USER, settings)))
    return analyse(run, find_gpu(gpu) if gpu else None)


def lines(times_ms: list[float], first: int = 11, interval: int = 1) -> str:
    return "".join(f"iter {first + i * interval}: loss 3.0, time {t:.2f}ms\n" for i, t in enumerate(times_ms))


def with_slow(at: dict[int, float], count: int = 300, noise: float = 0.0, level: float = 100.0) -> str:
    """Iterations 11, 12, … of a level, some of them so many times as long."""
    times = level * np.exp(np.random.default_rng(0).normal(0, noise, count))
    for number, ratio in at.items():
        times[number - 11] = level * ratio
    return lines(times.tolist())


def phase_at(a: Analysis, number: int) -> str:
    return PHASE_NAMES[int(a.phases.phase[int(np.searchsorted(a.run.iterations.number, number))])]


def codes(a: Analysis) -> dict[str, str]:
    return {finding.code: finding.severity for finding in a.findings}


# --- statistics -------------------------------------------------------------------------------------------------


def test_a_step_that_is_printed_as_nothing_is_as_long_as_half_a_digit() -> None:
    """An epoch of whole seconds and a step of 0 ms: its rounding is not a million times itself."""
    a = analysed("500/500 ━━━━━━━━━━ 71s 0ms/step - loss: 2.0 - val_loss: 4.5\n")
    assert a.phases.baseline is None or a.phases.baseline.noise < 1.0


@pytest.mark.parametrize(
    ("degrees", "value"),
    [(0.5, 6.314), (1, 6.314), (1.5, 3.847), (2, 2.920), (3, 2.353), (4, 2.132), (5, 2.015), (6, 1.943), (10, 1.812),
     (30, 1.697), (1000, 1.646)],
)  # fmt: skip
def test_the_quantile_is_that_of_students_table(degrees: float, value: float) -> None:
    assert t_quantile(degrees) == pytest.approx(value, abs=0.004)


def test_a_spread_is_the_standard_deviation_of_normal_noise() -> None:
    values = np.random.default_rng(0).normal(0, 1, 100_000)
    assert spread(values) == pytest.approx(1, rel=0.01)
    assert standard_error(values) == pytest.approx(math.sqrt(math.pi / 2 / 100_000), rel=0.25)


def test_the_error_of_a_wandering_series_is_that_of_its_blocks() -> None:
    wave = np.repeat([1.0, 2.0, 1.0, 2.0, 1.0, 2.0], 8)
    assert standard_error(wave) == pytest.approx(math.sqrt(0.3) / math.sqrt(6))
    assert standard_error(wave[:23]) == pytest.approx(1.2533 * spread(wave[:23]) / math.sqrt(23), rel=1e-3)
    long = np.repeat(np.arange(240.0) % 2, 20)
    assert standard_error(long) == pytest.approx(1.2533 * spread(long) / math.sqrt(len(long)), rel=1e-3)


def test_a_value_that_stands_for_many_weighs_as_many() -> None:
    values = np.array([5.0, 1.0, 2.0, 3.0])
    assert median(values, np.array([1, 1, 1, 1])) == 2.5
    assert median(values, np.array([900, 1, 1, 1])) == 5.0


def test_a_running_median_of_a_long_series_has_a_few_steps() -> None:
    assert len(np.unique(np.asarray(running_levels(np.arange(20_000.0), 51)))) == 1995
    assert quantile(np.arange(10.0), 0.3) == 3


def test_a_column_may_have_more_levels_than_two_bytes_count() -> None:
    values = np.arange(70_000.0)
    assert Levels(values, np.arange(70_000))[[0, 255, 256, 65_535, 65_536]].tolist() == [0, 255, 256, 65_535, 65_536]


# --- phases -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ratio", "phase"), [(1.45, "step"), (1.55, "stall")])
def test_half_as_long_again_is_a_stall(ratio: float, phase: str) -> None:
    assert phase_at(analysed(with_slow({87: ratio})), 87) == phase


@pytest.mark.parametrize(("noises", "phase"), [(7.2, "step"), (8.8, "stall")])
def test_in_noise_a_stall_is_eight_of_its_spreads(noises: float, phase: str) -> None:
    noise = analysed(with_slow({}, noise=0.1, count=1000)).phases.baseline.noise  # type: ignore[union-attr]
    a = analysed(with_slow({487: math.exp(noises * noise)}, noise=0.1, count=1000))
    assert phase_at(a, 487) == phase


@pytest.mark.parametrize(("ratio", "phase"), [(1.05, "step"), (1.07, "eval")])
def test_six_per_cent_on_the_grid_is_an_evaluation(ratio: float, phase: str) -> None:
    text = with_slow(dict.fromkeys(range(50, 300, 50), ratio))
    assert phase_at(analysed(text, eval_interval=50), 150) == phase


@pytest.mark.parametrize(("noises", "phase"), [(4.5, "step"), (5.5, "eval")])
def test_in_noise_an_evaluation_is_five_of_its_spreads(noises: float, phase: str) -> None:
    noise = analysed(with_slow({}, noise=0.05, count=1000)).phases.baseline.noise  # type: ignore[union-attr]
    text = with_slow({500: math.exp(noises * noise)}, noise=0.05, count=1000)
    assert phase_at(analysed(text, eval_interval=500), 500) == phase


@pytest.mark.parametrize(
    ("level_s", "ratio", "sleeps"), [(1, 290, False), (1, 310, True), (10, 45, False), (10, 55, True)]
)
def test_five_minutes_and_fifty_steps_are_a_sleep(level_s: float, ratio: float, sleeps: bool) -> None:
    a = analysed(with_slow({87: ratio}, level=1000 * level_s))
    assert ("sleep" in codes(a)) == sleeps


@pytest.mark.parametrize(("ratio", "places", "artefact"), [
    (5.5, 20, True), (6.5, 20, False), (3.0, 16, True), (3.0, 14, False), (3.0, 3, False),
])  # fmt: skip
def test_what_ddp_samples_is_every_hundredth_and_not_too_long(ratio: float, places: int, artefact: bool) -> None:
    text = with_slow(dict.fromkeys(range(100, 100 * places + 1, 100), ratio), count=2000)
    a = analysed("torch/distributed/run.py:793] *****\n" + text)
    assert bool(a.phases.artefact.any()) == artefact


@pytest.mark.parametrize(("count", "artefact"), [(220, False), (320, True)])
def test_two_hundredths_are_no_artefact(count: int, artefact: bool) -> None:
    text = with_slow(dict.fromkeys(range(100, count, 100), 3.0), count=count)
    assert bool(analysed(text, eval_interval=10_000).phases.artefact.any()) == artefact


@pytest.mark.parametrize(
    ("at", "ratio", "noise", "phase"),
    [
        (150, 400.0, 0.0, "eval"),
        (150, 600.0, 0.0, "stall"),
        (155, 20.0, 0.0, "eval"),
        (153, 20.0, 0.0, "stall"),
        (150, 3.1, 0.1, "eval"),
        (150, 2.6, 0.1, "stall"),
    ],
)
def test_one_slow_iteration_is_an_evaluation_where_large_and_at_a_round_number(
    at: int, ratio: float, noise: float, phase: str
) -> None:
    assert phase_at(analysed(with_slow({at: ratio}, noise=noise, count=250)), at) == phase


@pytest.mark.parametrize(("missing", "interval"), [(4, 20), (6, None)])
def test_a_period_is_slow_at_three_of_four_places(missing: int, interval: int | None) -> None:
    places = range(20, 420, 20)
    slow = {n: 30.0 for i, n in enumerate(places) if i % 3 != 1 or i // 3 >= missing}
    slow |= dict.fromkeys((33, 71), 30.0)  # not the only slow ones
    assert analysed(with_slow(slow, count=399)).phases.eval_interval == interval


@pytest.mark.parametrize(("gap", "trailing"), [(9, True), (11, False)])
def test_an_evaluation_long_after_the_last_line_does_not_end_the_log(gap: int, trailing: bool) -> None:
    text = lines([100.0] * 60, first=0, interval=10) + f"step {590 + 10 * gap}: train loss 3, val loss 3\n"
    assert (analysed(text, log_interval=10).phases.trailing is not None) == trailing


def megatron(rows: list[tuple[int, float]], clock_s: list[float] | None = None) -> str:
    text = "  log_interval .................................... 100\n"
    for place, (number, ms) in enumerate(rows):
        at = clock_s[place] if clock_s else None
        stamp = f" [2024-05-04 09:{int(at) // 60:02}:{int(at) % 60:02}]" if at is not None else ""
        text += (
            f"{stamp} iteration {number:8d}/    5000 | consumed samples: {8 * number:12d} | elapsed time per iteration "
            f"(ms): {ms:.1f} | learning rate: 1.0E-04 | global batch size:     8 | lm loss: 1.0E+00 |\n"
        )
    return text


@pytest.mark.parametrize(("beyond", "covers"), [(0.90, 100), (0.92, 500)])
def test_a_clock_bears_a_mean_out_within_a_tenth(beyond: float, covers: int) -> None:
    rows = [(n, 1000.0) for n in range(100, 1100, 100)] + [(1500, 1000.0), (1600, 1000.0)]
    stamps = [n for n, _ in rows[:10]] + [1000 + 500 * beyond, 1100 + 500 * beyond]
    a = analysed(megatron(rows, [float(stamp) for stamp in stamps]))
    assert int(a.phases.covers[10]) == covers


@pytest.mark.parametrize(("slow_ms", "phase"), [(0.04, "step"), (0.05, "eval")])
def test_times_of_two_printed_digits_are_rounded(slow_ms: float, phase: str) -> None:
    text = with_slow(dict.fromkeys(range(50, 300, 50), slow_ms / 0.02), level=0.02)
    assert phase_at(analysed(text, eval_interval=50), 150) == phase


@pytest.mark.parametrize(("larger", "phase"), [(3.7, "eval"), (4.3, "stall")])
def test_evaluations_are_of_like_size(larger: float, phase: str) -> None:
    text = with_slow({20: 11.0, 40: 1 + 10 * larger}, count=35)
    assert phase_at(analysed(text), 20) == phase


@pytest.mark.parametrize(("count", "phase"), [(37, "stall"), (46, "eval")])
def test_two_places_of_a_period_in_few_rows_are_chance(count: int, phase: str) -> None:
    text = with_slow({20: 11.0, 40: 54.0}, count=count)
    assert phase_at(analysed(text), 20) == phase


def test_one_evaluation_that_no_line_mentions_is_guessed() -> None:
    a = analysed(with_slow({150: 400.0}, count=250))
    assert CERTAINTY_NAMES[int(a.phases.certainty[139])] == "guessed"


@pytest.mark.parametrize(("times", "told"), [(2, False), (3, True)])
def test_slowness_is_periodic_from_three_times_on(times: int, told: bool) -> None:
    text = with_slow(dict.fromkeys(range(70, 70 * times + 1, 70), 3.0), count=70 * times)
    assert ("periodic_slowness" in codes(analysed(text, eval_interval=10_000))) == told


def periods(a: Analysis) -> list[tuple[int, int, int]]:
    return [(period.every, period.first, int(period.rows.sum())) for period in a.phases.periods]


def test_a_period_may_begin_anywhere() -> None:
    a = analysed(with_slow(dict.fromkeys(range(51, 300, 50), 3.0)), eval_interval=10_000)
    assert periods(a) == [(50, 51, 5)]
    assert "stall" not in codes(a)


def test_two_periods_at_once_are_two_findings_and_a_stall_beside_them_is_one() -> None:
    shards, saves = dict.fromkeys(range(189, 6000, 189), 4.0), dict.fromkeys(range(500, 6000, 500), 9.0)
    a = analysed(with_slow({**shards, **saves, 1234: 30.0}, count=6000, noise=0.01), eval_interval=100_000)
    assert sorted(every for every, _, _ in periods(a)) == [189, 500]
    assert [finding.code for finding in a.findings if finding.code.startswith(("periodic", "stall"))] == [
        "periodic_slowness", "periodic_slowness", "stall",
    ]  # fmt: skip
    assert next(finding for finding in a.findings if finding.code == "stall").message.params["at"] == [1234]


def test_means_of_ten_show_a_period_that_is_no_multiple_of_ten() -> None:
    """A save of 600 ms after every 128 iterations of 100 ms: in each mean that holds one it is 60 ms more."""
    saves = range(128, 3000, 128)
    rows = [(n, 100.0 + 60.0 * any(n - 10 < at <= n for at in saves)) for n in range(10, 3001, 10)]
    a = analysed(megatron(rows))
    [(every, first, times)] = periods(a)
    assert (every, first, times) == (128, 130, len(saves))


@pytest.mark.parametrize(("smaller", "times"), [(0.4, 4), (0.6, 5)])
def test_work_of_half_the_size_is_of_a_period_too(smaller: float, times: int) -> None:
    text = with_slow({**dict.fromkeys(range(52, 300, 50), 3.0), 52: 1 + 2 * smaller}, noise=0.15, count=290)
    assert periods(analysed(text, eval_interval=10_000)) == [(50, 52 + 50 * (times < 5), times)]


@pytest.mark.parametrize(("each", "told"), [(0.4, False), (0.6, True)])
def test_regular_slowness_is_half_a_step(each: float, told: bool) -> None:
    rows = [(n, 100.0 * (1 + each / 5 * (n % 100 == 15))) for n in range(5, 2001, 5)]
    assert bool(periods(analysed(megatron(rows)))) == told


def test_what_no_line_would_show_is_not_said_to_be_missing() -> None:
    """HF's lines tell of no save: "without evaluation or checkpoint" would be a guess."""
    slow = dict.fromkeys(range(51, 300, 50), 3.0)
    run = read(from_text(with_slow(slow)))[-1]
    other = replace(run, traits=Traits(), holds=frozenset({"checkpoint"}))
    filtered = replace(run, evaluations=(Evaluation(1, 1),))  # of those at 1, 51, 101 and so on the first is printed
    cases = (run, "without evaluation or checkpoint"), (other, "The log does not say why")
    for each, words in (*cases, (filtered, "The log does not say why")):
        [told] = [finding.message for finding in analyse(each).findings if finding.code == "periodic_slowness"]
        assert words in told.key


@pytest.mark.parametrize(("share", "marked"), [(0.7, True), (0.9, False)])
def test_where_nearly_every_mean_holds_an_evaluation_that_is_normal(share: float, marked: bool) -> None:
    run = read(from_text(megatron([(n, 1000.0) for n in range(100, 2100, 100)])))[-1]
    evaluations = tuple(Evaluation(int(run.iterations.line[row]), 100 * (row + 1)) for row in range(int(20 * share)))
    a = analyse(replace(run, holds=frozenset({"eval"}), evaluations=evaluations))
    assert bool(a.phases.of(Phase.EVAL).any()) == marked


@pytest.mark.parametrize(("steps", "phase"), [(9, "stall"), (11, "step")])
def test_a_mean_of_a_tenth_of_the_steps_shows_what_is_normal(steps: int, phase: str) -> None:
    rows = [(100 * place, 1000.0) for place in range(1, 61)]
    rows += [(6000 + steps * place, 2000.0) for place in range(1, 41)]
    assert phase_at(analysed(megatron(rows)), 6000 + 40 * steps) == phase


# --- costs, forecast ------------------------------------------------------------------------------------------------


def saving(first_s: float, pair_s: float, evaluations: int = 5) -> str:
    """Every evaluation but the one in the first iteration saves; no header."""
    text = ""
    for number in range(50 * evaluations + 20):
        slow = 0.0 if number % 50 else pair_s if number else first_s
        if number and number % 50 == 0:
            text += f"step {number}: train loss 3.0, val loss 3.0\nsaving checkpoint to out\n"
        text += f"iter {number}: loss 3.0, time {100 + 1000 * slow:.2f}ms, mfu {-100 if number < 5 else 10}.00%\n"
    return text


@pytest.mark.parametrize(("first", "how"), [(8.9, "combined"), (9.1, "not separable")])
def test_a_first_evaluation_nearly_as_long_as_those_that_save_divides_nothing(first: float, how: str) -> None:
    assert analysed(saving(first, 10.0)).costs.how["checkpoint_s"] == how


@pytest.mark.parametrize(("stalls", "lost_s"), [(4, 0.0), (5, 0.2 * 5)])
def test_stalls_go_on_from_five_on(stalls: int, lost_s: float) -> None:
    text = with_slow({37 + 50 * place: 3.0 for place in range(stalls)})
    remaining = analysed(text, max_iters=610, eval_interval=10_000).forecast.remaining_s
    assert remaining is not None
    assert remaining.mid == pytest.approx(30 + lost_s)


def test_after_one_save_a_tenth_of_the_evaluations_saves_at_least() -> None:
    a = analysed(saving(1.0, 10.0, evaluations=1), max_iters=50_000, eval_interval=50)
    assert _share_that_saves(a.run, a.phases).low == 0.1


def test_of_a_run_that_only_begun_a_thousand_iterations_are_told() -> None:
    header = a_log(Truth(max_iters=300)).split("iter 0")[0]
    run = read(from_text("\n".join(line for line in header.splitlines() if "max_iters" not in line)))[-1]
    a = analyse(run, find_gpu("4070"))
    assert a.forecast.per_thousand_s is not None
    assert a.forecast.per_thousand_s.mid == pytest.approx(1000 * a.costs.step_s.mid)


# --- levels -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("change", "count"), [(1.09, 1), (1.12, 2)])
def test_a_change_of_speed_is_a_tenth(change: float, count: int) -> None:
    assert len(analysed(lines([100.0] * 150 + [100.0 * change] * 150)).regimes.regimes) == count


@pytest.mark.parametrize(("change", "count"), [(1.20, 1), (1.24, 2)])
def test_in_few_rows_a_change_is_a_fifth(change: float, count: int) -> None:
    assert len(analysed(lines([100.0] * 10 + [100.0 * change] * 10)).regimes.regimes) == count


@pytest.mark.parametrize(("rows", "count"), [(3, 1), (4, 2)])
def test_a_level_has_four_rows(rows: int, count: int) -> None:
    assert len(analysed(lines([100.0] * 10 + [150.0] * rows)).regimes.regimes) == count


@pytest.mark.parametrize(
    ("total", "rows", "drifts"), [(0.024, 400, False), (0.029, 400, True), (0.1, 49, False), (0.1, 51, True)]
)
def test_a_drift_is_two_per_cent_from_the_first_fifth_to_the_last(total: float, rows: int, drifts: bool) -> None:
    times = np.linspace(100, 100 * (1 + total), rows)
    assert (analysed(lines(times.tolist())).regimes.drift is not None) == drifts


@pytest.mark.parametrize(("back", "drifts"), [(0.18, True), (0.22, False)])
def test_a_drift_goes_one_way(back: float, drifts: bool) -> None:
    fifths = [100.0, 102.0, 102.0 - 6 * back, 104.0, 106.0]
    assert (analysed(lines(np.repeat(fifths, 40).tolist())).regimes.drift is not None) == drifts


@pytest.mark.parametrize(("end", "drifts"), [(103.2, True), (102.8, False)])
def test_a_drift_is_none_where_most_of_it_has_passed_by_the_end(end: float, drifts: bool) -> None:
    times = [*np.repeat([100.0, 102.0, 104.0, 106.0], 40), *[106.0] * 21, *[end] * 19]
    assert (analysed(lines(times)).regimes.drift is not None) == drifts


@pytest.mark.parametrize(
    ("ratio", "count", "warms_up"), [(1.035, 60, False), (1.045, 60, True), (1.2, 7, False), (1.2, 9, True)]
)
def test_a_warm_up_is_four_per_cent(ratio: float, count: int, warms_up: bool) -> None:
    times = [9000.0, *[100.0 * ratio] * (count // 4), *[100.0] * (count - count // 4)]
    a = analysed(lines(times, first=0), eval_interval=10_000)
    assert ("warm_up" in codes(a)) == warms_up


@pytest.mark.parametrize(("rows", "at", "count"), [(14, 5980, 1), (18, 5978, 2)])
def test_in_a_long_log_a_level_is_half_of_a_two_hundredth(rows: int, at: int, count: int) -> None:
    times = [100.0] * 6000
    times[at : at + rows] = [130.0] * rows
    assert len(analysed(lines(times), eval_interval=10_000).regimes.regimes) == count


@pytest.mark.parametrize(("change", "count"), [(1.30, 1), (1.38, 2)])
def test_in_few_noisy_rows_a_change_is_six_errors(change: float, count: int) -> None:
    times = 100 * np.exp(np.tile([0.0, 0.05, 0.0, -0.05], 7)) * np.repeat([1.0, change], 14)
    assert len(analysed(lines(times.tolist())).regimes.regimes) == count


@pytest.mark.parametrize(("change", "count"), [(0.12, 1), (0.15, 2)])
def test_in_noise_between_blocks_a_change_is_three_of_its_spreads(change: float, count: int) -> None:
    noise = np.random.default_rng(3).normal(0, 0.1, 40)
    levels = 100 * np.exp(noise + np.repeat([0.0, change], 20))
    assert len(analysed(lines(np.repeat(levels, 15).tolist()), eval_interval=10_000).regimes.regimes) == count


def test_four_blocks_show_their_noise() -> None:
    assert len(analysed(lines(np.repeat([100.0, 110.0, 130.0, 110.0], 15).tolist())).regimes.regimes) == 1


@pytest.mark.parametrize(("ratio", "warms_up"), [(1.14, False), (1.19, True)])
def test_in_noise_a_warm_up_is_four_of_its_spreads(ratio: float, warms_up: bool) -> None:
    times = 100 * np.exp(np.random.default_rng(1).normal(0, 0.05, 120))
    text = lines([9000.0, 100 * ratio, 100 * ratio, *times], first=0)
    assert ("warm_up" in codes(analysed(text, eval_interval=10_000))) == warms_up


def test_a_warm_up_is_a_quarter_of_the_rows_at_most() -> None:
    a = analysed(lines([9000.0, *[120.0] * 12, *[100.0] * 28], first=0), eval_interval=10_000)
    assert a.regimes.stable_from == 11


@pytest.mark.parametrize(("change", "drifts"), [(0.043, False), (0.047, True)])
def test_a_drift_is_five_errors_of_the_first_fifth(change: float, drifts: bool) -> None:
    """Of its last rows too: the first fourteen do not waver."""
    apart = 4 * math.sqrt(20 / 6)
    first = [*[100.0] * 14, *[100 - apart, 100 + apart] * 3]
    times = [*first, *np.repeat(100 + 100 * change * np.arange(1, 5) / 4, 20)]
    assert (analysed(lines(times), eval_interval=10_000).regimes.drift is not None) == drifts


# --- where the time went, what the figures mean -------------------------------------------------------------------


@pytest.mark.parametrize(("missing", "doubted"), [(18, False), (23, True)])
def test_times_are_doubted_where_a_fifth_of_the_iterations_is_not_logged(missing: int, doubted: bool) -> None:
    text = lines([100.0] * (99 - missing)) + lines([100.0], first=110)
    run = replace(read(from_text(text))[-1], distributed=True)
    assert ("unsynchronised" in codes(analyse(run))) == doubted


@pytest.mark.parametrize(("count", "gap", "told"), [(3, 50, True), (4, 50, False), (3, 48, False)])
def test_three_iterations_far_apart_are_few(count: int, gap: int, told: bool) -> None:
    assert ("few_iterations" in codes(analysed(lines([100.0] * count, first=1000, interval=gap)))) == told


@pytest.mark.parametrize(("factor", "told"), [(0.70, True), (0.80, False), (1.28, False), (1.40, True)])
def test_work_that_differs_by_a_quarter_disagrees_with_the_mfu(factor: float, told: bool) -> None:
    truth = Truth(max_iters=300)
    stated = analysed(a_log(truth)).run.settings.number("n_params")
    assert stated is not None
    a = analysed(a_log(truth), n_params=stated + (factor - 1) * truth.shape.flops_per_token / 6)
    assert ("figures_disagree" in codes(a)) == told


@pytest.mark.parametrize(("times", "told"), [(1.06, False), (1.10, True)])
def test_an_mfu_is_smoothed_from_eight_per_cent_on(times: float, told: bool) -> None:
    a = analysed(a_log(Truth(max_iters=300)), "a100")
    assert a.throughput.reported_mfu is not None
    printed = a.throughput.reported_mfu
    found = mfu_of_an_a100(replace(a.throughput, mfu=times * printed), printed)
    assert [finding.code for finding in found] == ["mfu_smoothed"] * told


@pytest.mark.parametrize(("times", "told"), [(1.018, False), (1.022, True), (0.982, False), (0.978, True)])
def test_a_peak_is_another_from_two_per_cent_on(times: float, told: bool) -> None:
    a = analysed(a_log(Truth(max_iters=300)), "a100")
    traits = replace(a.run.traits, mfu_of_a100=False)
    a = replace(a, run=replace(a.run, traits=traits, mfu_peak_flops=312e12 * times))
    assert ("mfu_other_peak" in {finding.code for finding in printed_mfu(a)}) == told


def excerpt(work: list[float]) -> Run:
    """Lines from the middle of a run of 0.1 s per step, whose iterations need so many TFLOPs."""
    text, printed = "", work[0] / 31.2
    for place, tera in enumerate(work):
        printed = 0.9 * printed + 0.1 * tera / 31.2
        text += f"iter {1000 + place}: loss 3.0, time 100.00ms, mfu {100 * printed:.2f}%\n"
    return read(from_text(text))[-1]


@pytest.mark.parametrize(("rows", "known"), [(5, False), (6, True)])
def test_the_work_behind_a_smoothed_mfu_shows_after_five_lines(rows: int, known: bool) -> None:
    assert (flops_behind_mfu(excerpt([10.0] * rows)) is not None) == known


@pytest.mark.parametrize(("before", "tera"), [(220, 10), (180, 12)])
def test_the_work_behind_an_mfu_is_that_of_the_first_four_hundred_lines(before: int, tera: float) -> None:
    found = flops_behind_mfu(excerpt([10.0] * before + [14.0] * (700 - before)))
    assert found is not None
    assert (found > 10.5e12) == (tera > 10)


@pytest.mark.parametrize(("unread", "severity"), [(3, "warning"), (2, "notice")])
def test_one_line_of_a_hundred_without_a_time_is_a_warning(unread: int, severity: str) -> None:
    run = read(from_text(lines([100.0] * 240)))[-1]
    cut = tuple(Unread(line, f"iter {line}: loss 3.0, time") for line in range(unread))
    assert codes(analyse(replace(run, unread=cut)))["lines_without_time"] == severity


@pytest.mark.parametrize(("off", "expected"), [(1.025, True), (0.975, True), (1.036, False), (0.964, False)])
def test_a_model_of_another_size_is_not_the_one_that_is_expected(off: float, expected: bool) -> None:
    truth = Truth(max_iters=300)
    stated = analysed(a_log(truth)).run.settings.number("n_params")
    assert stated is not None
    assert (analysed(a_log(truth), "4070", n_params=stated * off).expected is not None) == expected


# --- recorders and ranks ------------------------------------------------------------------------------------------


def recorded(**planted: object) -> dict[str, str]:
    return codes(analysed(Recorded(Planted(noise=0.0, **planted)).text))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("share", "severity"), [(0.045, "info"), (0.055, "notice"), (0.19, "notice"), (0.21, "warning")]
)
def test_waiting_for_data_is_noticed_from_a_twentieth_on(share: float, severity: str) -> None:
    assert recorded(data_s=0.2 * share)["data_wait"] == severity


@pytest.mark.parametrize(("idle", "severity"), [(0.18, None), (0.22, "notice"), (0.48, "notice"), (0.52, "warning")])
def test_an_idle_device_is_noticed_from_a_fifth_on(idle: float, severity: str | None) -> None:
    assert recorded(device_s=0.2 * (1 - idle)).get("device_idle") == severity


@pytest.mark.parametrize(("behind", "told"), [(1.017, False), (1.024, True)])
def test_a_device_is_behind_its_host_from_two_per_cent_on(behind: float, told: bool) -> None:
    assert ("asynchronous_loop" in recorded(device_s=0.2 * behind)) == told


@pytest.mark.parametrize(("share", "told"), [(0.045, False), (0.055, True)])
def test_time_outside_of_all_phases_is_told_from_a_twentieth_on(share: float, told: bool) -> None:
    inside, with_pauses = (Recorded(Planted(noise=0.0, before_s=0.0, between_s=each)).wall_s for each in (0.0, 1.0))
    between = share / (1 - share) * inside / (with_pauses - inside)
    assert ("outside_phases" in recorded(before_s=0.0, between_s=between)) == told
    assert "outside_phases" not in recorded(before_s=inside, between_s=0.0)  # the start has a part of its own


def ranks(slowest: float) -> dict[str, str]:
    records = several_ranks([0.2, 0.2, 0.2, 0.2 * slowest], noise=0.0005)
    return codes(analyse(read(from_text("".join(record.text for record in records)))[0]))


@pytest.mark.parametrize(
    ("slower", "severity"), [(1.018, None), (1.023, "notice"), (1.046, "notice"), (1.054, "warning")]
)
def test_a_rank_is_slow_from_two_per_cent_on(slower: float, severity: str | None) -> None:
    assert ranks(slower).get("slow_rank") == severity


@pytest.mark.parametrize(("longer", "count"), [(1.45, 0), (1.55, 1)])
def test_a_hiccup_is_half_a_step(longer: float, count: int) -> None:
    records = several_ranks([0.2, 0.2, 0.2, lambda n: 0.2 * longer if n == 30 else 0.2], noise=0.0005)
    run = read(from_text("".join(record.text for record in records)))[0]
    assert len(find_ranks(run).hiccups) == count


@pytest.mark.parametrize(("longer", "count"), [(1.80, 0), (2.0, 1)])
def test_in_noise_a_hiccup_is_eight_of_its_spreads(longer: float, count: int) -> None:
    records = several_ranks([0.2, 0.2, 0.2, lambda n: 0.2 * longer if n == 30 else 0.2], noise=0.08, steps=200)
    run = read(from_text("".join(record.text for record in records)))[0]
    assert len(find_ranks(run).hiccups) == count


def test_the_two_hundred_worst_hiccups_are_told() -> None:
    records = several_ranks([0.2, 0.2, 0.2, lambda n: 0.4 if n % 3 == 0 else 0.2], noise=0.0005, steps=660)
    run = read(from_text("".join(record.text for record in records)))[0]
    assert len(find_ranks(run).hiccups) == 200


@pytest.mark.parametrize(("behind", "ended"), [(2, 0), (3, 1)])
def test_two_steps_of_a_rank_may_not_be_written_yet(behind: int, ended: int) -> None:
    records = several_ranks([0.2, 0.2, 0.2])
    run = read(from_text("".join(record.text for record in records)))[0]
    one, two, three = run.ranks
    short = two._replace(number=two.number[:-behind], time_s=two.time_s[:-behind], wait_s=two.wait_s[:-behind])
    assert len(find_ranks(replace(run, ranks=(one, short, three))).ended) == ended


# --- comparison ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "told"), [(0.018, False), (0.0225, True)])
def test_stalls_explain_a_difference_from_a_fiftieth_on(share: float, told: bool) -> None:
    a, b = analysed(with_slow({})), analysed(with_slow({87: 1 + 300 * share / (1 - share)}))
    assert any("stalls" in reason.key for reason in compare(a, b, names=("a", "b")).reasons) == told


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.0053, "same"), (1.0062, "slower"), (1 / 1.0053, "same"), (1 / 1.0062, "faster")]
)
def test_runs_differ_by_half_a_per_cent_anyway(factor: float, verdict: str) -> None:
    a, b = analysed(lines([1000.0] * 300)), analysed(lines([1000.0 * factor] * 300))
    assert compare(a, b, names=("a", "b")).verdict == verdict


@pytest.mark.parametrize(("expected", "told"), [(1.009, False), (1.011, True)])
def test_an_expected_difference_is_told_from_one_per_cent_on(expected: float, told: bool) -> None:
    a = analysed(a_log(Truth(max_iters=300)), "4070")
    assert a.expected is not None
    b = replace(a, expected=replace(a.expected, step_s=a.expected.step_s.scaled(expected)))
    assert any("alone an iteration should take" in reason.key for reason in compare(a, b).reasons) == told


def test_a_bare_fraction_may_be_either() -> None:
    with pytest.raises(UsageError) as caught:
        limit_of("0.05")
    assert caught.value.remedy is not None
    assert caught.value.remedy.params == {"share": "5", "percent": "0.05"}


@pytest.mark.parametrize(("apart", "iterations"), [(100, 2000), (50, 2000)])
def test_lines_that_are_visibly_apart_outweigh_the_interval_of_another_log(apart: int, iterations: int) -> None:
    """The header says 100; of lines 50 apart each is a mean of 50."""
    a = analysed(megatron([(n, 1000.0) for n in range(apart, 2001, apart)]))
    assert (a.goodput.iterations, a.goodput.wall_s) == (iterations, pytest.approx(iterations))
    assert a.phases.covers[1] == apart
    left_out = analysed(megatron([(n, 1000.0) for n in range(100, 2001, 100) if n % 300]))
    assert left_out.phases.covers.tolist() == [100] * 14


def test_a_mean_of_the_whole_run_shows_none_of_its_evaluations() -> None:
    """Lightning's metrics.csv with the seconds of an epoch: no row of it is an evaluation, and none has its cost."""
    text = "epoch,epoch_time,step,train_loss_step,val_loss\n"
    for epoch in range(4):
        text += "".join(f"{epoch},,{100 * epoch + step},2.5,\n" for step in range(9, 100, 10))
        text += f"{epoch},,{100 * epoch + 99},,2.4\n{epoch},{50 + epoch},{100 * epoch + 99},,\n"
    a = analysed(text)
    assert not a.phases.of(Phase.EVAL).any()
    assert (a.costs.eval_s, a.phases.evaluations) == (None, 4)


def test_levels_that_are_joined_are_compared_anew() -> None:
    """100, a while 111, then 103: all that follows the first level is, together, no more than 3 % above it."""
    times = [100.0] * 15 + [111.0] * 45 + [103.0] * 245
    assert len(analysed(lines(times)).regimes.regimes) == 1


def test_evaluations_at_the_ends_of_epochs_that_differ_by_one_have_their_distance_for_interval() -> None:
    ends = np.cumsum([92, 91, 92, 92, 91, 92])
    rows = "".join(
        (f"step {n}: train loss 3.0, val loss 3.0\n" if n in ends else "")
        + f"iter {n}: loss 3.0, time {1900 if n in ends else 100}.00ms, mfu 12.00%\n"
        for n in range(11, int(ends[-1]) + 40)
    )
    a = analysed(rows, max_iters=5500)
    assert a.phases.eval_interval == 92
    assert a.forecast.evals_ahead == 5500 // 92 - int(a.run.iterations.number[-1]) // 92


@pytest.mark.parametrize(
    ("times", "covers", "digit_s"),
    [
        ((0.062, 0.066), 500, 1e-3),  # whole seconds of an epoch and whole milliseconds of a step: the finer one
        ((0.0621, 0.0662), 10_000, 1e-4),  # no whole milliseconds: a second of an epoch
        ((1.2, 1.4), 10, 0.1),
    ],
)
def test_the_last_digit_of_rounded_times(times: tuple[float, ...], covers: int, digit_s: float) -> None:
    run = read(from_text(lines([100.0] * len(times))))[0]
    run = replace(
        run,
        traits=replace(run.traits, rounds_times=True),
        iterations=replace(run.iterations, time_s=np.array(times)),
    )
    assert last_digit_s(run, np.full(len(times), covers)) == pytest.approx(digit_s)


@pytest.mark.parametrize(("back", "drifts"), [(9, True), (12, False)])
def test_a_drift_that_most_of_the_last_tenth_has_lost_is_over(back: int, drifts: bool) -> None:
    times = np.linspace(100.0, 106.0, 200)
    times[-back:] = 100.0
    assert (analyse(read(from_text(lines(times.tolist())))[0]).regimes.drift is not None) == drifts


def test_five_are_all_named_and_of_many_the_first_five_and_the_last() -> None:
    tens = np.array([10, 20, 30, 40, 50])
    assert Unlogged(mentioned=tens).shown() == tens.tolist()
    many = Unlogged(first=np.array([10]), counts=np.array([100]), interval=10)
    assert many.shown() == [*tens.tolist(), 1000]
