"""What the analysis makes of a run: phases, costs, where the time went, speed, forecast."""

from __future__ import annotations

import numpy as np
import pytest
from tests.builders import Record, Saves, Truth, a_log, a_run

from stepwatch.analysis import Analysis, analyse, statistics
from stepwatch.analysis.costs import NOT_SEPARABLE
from stepwatch.analysis.phases import CERTAINTY_NAMES, PHASE_NAMES
from stepwatch.gpus import find_gpu
from stepwatch.readers import read, records
from stepwatch.run import Run
from stepwatch.settings import Origin, Settings, Value
from stepwatch.sources import from_text

from dataclasses import replace  # isort: skip


def the_run(text: str, **settings: Value) -> Run:
    run = read(from_text(text))[-1]
    return replace(run, settings=run.settings.overridden_by(Settings.of(Origin.USER, settings)))


def analysed(text: str, gpu: str | None = None, **settings: Value) -> Analysis:
    return analyse(the_run(text, **settings), find_gpu(gpu) if gpu else None, "user" if gpu else None)


def phases_of(a: Analysis) -> dict[int, tuple[str, str]]:
    rows = zip(a.run.iterations.number.tolist(), a.phases.phase, a.phases.certainty, strict=True)
    return {number: (PHASE_NAMES[phase], CERTAINTY_NAMES[certainty]) for number, phase, certainty in rows}


def lines(*times_ms: float, interval: int = 10, first: int = 0, mfu: str = "") -> str:
    return "".join(f"iter {first + i * interval}: loss 3.0, time {t:.2f}ms{mfu}\n" for i, t in enumerate(times_ms))


# --- phases -----------------------------------------------------------------------------------------------------


def test_what_the_lines_say_is_seen() -> None:
    text = (
        "step 0: train loss 4.2, val loss 4.2\niter 0: loss 4.2, time 9000.00ms, mfu -100.00%\n"
        + lines(100, 101, 99, 100, first=10, mfu=", mfu 12.00%")
        + "step 50: train loss 3.2, val loss 3.2\nsaving checkpoint to out\n"
        + "iter 50: loss 3.1, time 2100.00ms, mfu 11.00%\n"
        + lines(100, 101, 99, 100, first=60, mfu=", mfu 12.00%")
        + "step 100: train loss 3.1, val loss 3.3\niter 100: loss 3.1, time 1600.00ms, mfu 11.00%\n"
    )
    phases = phases_of(analysed(text))
    assert phases[0] == ("first", "seen")
    assert phases[50] == ("eval+checkpoint", "seen")
    assert phases[100] == ("eval", "seen")
    assert phases[60][0] == "step"


def test_a_log_that_starts_in_mid_run_has_no_first_iteration() -> None:
    text = (
        "step 1000: train loss 3, val loss 3\nsaving checkpoint to o\niter 1000: loss 3, time 5726.00ms, mfu 10.16%\n"
    )
    phases = phases_of(analysed(text + lines(168, 169, 168, first=1100, interval=100, mfu=", mfu 10.3%")))
    assert phases[1000] == ("eval+checkpoint", "seen")


def test_the_first_iteration_after_a_restart_is_first_although_its_number_is_high() -> None:
    text = "iter 155250: loss 3, time 9000.00ms, mfu -100.00%\n" + lines(100, 101, 100, first=155260, mfu=", mfu 1.00%")
    assert phases_of(analysed(text))[155250] == ("first", "seen")


@pytest.mark.parametrize("seed", range(4))
def test_evaluations_without_lines_are_deduced_from_their_period(seed: int) -> None:
    truth = Truth(seed=seed, with_step_lines=False, with_saving_lines=False, header=False, eval_s=0.3, noise=0.03)
    phases = phases_of(analysed(a_log(truth)))
    found = {number for number, (phase, _) in phases.items() if phase.startswith("eval")}
    assert found == set(range(250, 2001, 250))
    assert all(phases[number][1] == "deduced" for number in found)


def evaluated(a: Analysis) -> list[int]:
    return [number for number, (phase, _) in phases_of(a).items() if phase.startswith("eval")]


@pytest.mark.parametrize("seed", range(20))
def test_the_longest_of_many_noisy_iterations_are_no_evaluations(seed: int) -> None:
    """Of dozens of places some are twice another: without a test against chance they would be a period."""
    rng = np.random.default_rng(seed)
    times = rng.normal(287, 7, 1000)
    times[rng.choice(1000, 80, replace=False)] += rng.uniform(40, 90, 80)
    a = analysed(lines(*times, interval=1, first=1))
    assert evaluated(a) == []
    assert a.phases.periods == ()


def test_slow_iterations_of_very_different_size_are_no_evaluations() -> None:
    assert evaluated(analysed(lines(78, 76, 77, 1156, 75, 77, 76, 94, interval=100, first=100))) == []


def test_a_few_slow_iterations_are_evaluations_where_they_are_large_alike_and_at_round_numbers() -> None:
    times = [100.0 + n % 3 for n in range(25)]
    times[9] = times[19] = 900.0
    assert evaluated(analysed(lines(*times, first=10))) == [100, 200]
    times[19] = 108.0
    assert evaluated(analysed(lines(*times, first=10))) == []


@pytest.mark.parametrize("seed", range(4))
def test_stalls_of_another_size_do_not_hide_the_period_of_evaluations(seed: int) -> None:
    truth = Truth(seed=seed, with_step_lines=False, with_saving_lines=False, header=False, eval_s=0.1, log_interval=1)
    phases = phases_of(analysed(a_log(replace(truth, stall_share=0.002, saves=Saves.NEVER))))
    assert {250, 500, 750, 1000, 1250, 1500, 1750, 2000} <= {n for n, (p, _) in phases.items() if p == "eval"}


def test_evaluations_off_the_log_grid_are_imputed() -> None:
    record = a_run(Truth(log_interval=200, eval_interval=500, max_iters=6000, header=False))
    a = analyse(read(from_text(record.text))[0])
    assert a.phases.unlogged_evals.mentioned.tolist() == [500, 1500, 2500, 3500, 4500, 5500]
    assert a.goodput.wall_s == pytest.approx(record.wall_s, rel=0.02)


def test_the_ddp_artefact_is_neither_a_stall_nor_lost_time() -> None:
    times = [300.0 if n % 100 == 0 and n else 100.0 for n in range(0, 2000, 10)]
    launcher = "W1211 12:03:30.804250 1855927 torch/distributed/run.py:793] *****\n"
    first = "iter 0: loss 4, time 9000.00ms, mfu -100.00%\n"
    a = analysed(launcher + first + lines(*times[1:], first=10, mfu=", mfu 9.00%"))
    assert "stall" not in {phase for phase, _ in phases_of(a).values()}
    assert "ddp_artefact" in {finding.code for finding in a.findings}
    assert a.goodput.parts_s["step"] == pytest.approx(1991 * 0.1, rel=0.01)


def test_a_slower_regime_is_not_a_series_of_stalls() -> None:
    a = analysed(lines(*[100.0] * 200, *[240.0] * 150, *[100.0] * 200, first=10))
    assert {phase for phase, _ in phases_of(a).values()} == {"step"}
    assert "regime_change" in {finding.code for finding in a.findings}


def test_a_sleeping_machine_is_a_stall_with_its_own_finding_and_does_not_slow_the_run() -> None:
    times = [100.0] * 300
    times[150] = 6 * 3600e3
    a = analysed(lines(*times, interval=1, first=10))
    assert phases_of(a)[160][0] == "stall"
    assert "sleep" in {finding.code for finding in a.findings}
    assert a.costs.step_s.mid == pytest.approx(0.1, rel=0.001)
    assert a.goodput.parts_s["stall"] == pytest.approx(6 * 3600, rel=0.001)
    assert a.forecast.per_thousand_s is not None
    assert a.forecast.per_thousand_s.high < 110


def test_isolated_slow_iterations_are_stalls() -> None:
    times = list(np.random.default_rng(1).normal(100, 1, 200))
    times[77] = 500
    phases = phases_of(analysed(lines(*times, first=10)))
    assert [number for number, (phase, _) in phases.items() if phase == "stall"] == [780]


# --- costs ------------------------------------------------------------------------------------------------------


def planted(**changes: object) -> tuple[Record, Analysis]:
    record = a_run(replace(Truth(), **changes))  # type: ignore[arg-type]
    return record, analyse(read(from_text(record.text))[0])


def test_planted_costs_are_found_where_evaluations_save_and_do_not_save() -> None:
    record, a = planted(eval_s=3.0, checkpoint_s=0.8, seed=3)
    costs = a.costs
    assert costs.eval_s is not None
    assert costs.checkpoint_s is not None
    assert costs.compile_s is not None
    assert costs.step_s.mid == pytest.approx(record.true_step_s, rel=0.005)
    assert costs.eval_s.mid == pytest.approx(record.true_eval_s, rel=0.02)
    assert costs.checkpoint_s.mid == pytest.approx(record.true_checkpoint_s, rel=0.1)
    assert costs.compile_s.mid == pytest.approx(record.true_compile_s, rel=0.02)
    assert set(costs.how.values()) == {"measured"}


def test_without_header_and_with_a_save_at_each_evaluation_the_two_are_not_separable() -> None:
    _, a = planted(saves=Saves.ALWAYS, header=False)
    assert a.costs.how["checkpoint_s"] == NOT_SEPARABLE
    assert a.costs.checkpoint_s is not None
    assert a.costs.checkpoint_s.low == 0
    assert a.costs.pair_s is not None
    assert a.costs.pair_s.mid == pytest.approx(5.5, rel=0.03)


def test_with_a_header_the_cost_model_divides_what_was_only_measured_together() -> None:
    truth = Truth(saves=Saves.ALWAYS)
    eval_s = 2 * truth.eval_iters * 0.35 * truth.step_s
    record, a = planted(saves=Saves.ALWAYS, eval_s=eval_s, checkpoint_s=12 * truth.n_params / 0.5e9)
    assert a.costs.how["eval_s"] == "modelled"
    assert a.costs.eval_s is not None
    assert a.costs.checkpoint_s is not None
    assert a.costs.eval_s.holds(record.true_eval_s)
    assert a.costs.checkpoint_s.holds(record.true_checkpoint_s)


def test_a_run_that_never_saves_has_no_checkpoint_cost() -> None:
    _, a = planted(saves=Saves.NEVER)
    assert a.costs.checkpoint_s is None
    assert a.goodput.parts_s["checkpoint"] == 0


def test_iteration_0_never_holds_a_checkpoint_and_the_first_of_a_resumed_run_does() -> None:
    _, fresh = planted(saves=Saves.ALWAYS)
    assert fresh.split.column_s("checkpoint")[0] == 0
    _, resumed = planted(saves=Saves.ALWAYS, first_iter=1000)
    assert resumed.phases.first_saves
    assert resumed.split.column_s("checkpoint")[0] > 0


def test_no_compilation_is_said_as_none_and_never_negative() -> None:
    _, a = planted(compile_s=0.0, compiled=False)
    assert a.costs.compile_s is not None
    assert a.costs.compile_s.low == 0
    assert a.costs.compile_s.high < 1


@pytest.mark.parametrize("seed", range(5))
def test_compilation_is_no_longer_than_the_iteration_that_holds_it(seed: int) -> None:
    times = np.random.default_rng(seed).uniform(60, 500, 200)
    a = analysed("iter 0: loss 4, time 89.00ms, mfu -100.00%\n" + lines(*times, first=10, mfu=", mfu 9.00%"))
    assert a.costs.compile_s is not None
    assert a.costs.compile_s.high <= 0.089


def test_a_log_of_nothing_but_iteration_0_tells_nothing_apart() -> None:
    a = analysed("step 0: train loss 10.9, val loss 10.9\niter 0: loss 10.9, time 27000.00ms, mfu -100.00%\n")
    assert set(a.costs.how.values()) == {NOT_SEPARABLE}
    assert a.costs.compile_s is not None
    assert a.costs.compile_s.high == pytest.approx(27)


def test_times_of_zero_are_answered() -> None:
    a = analysed(lines(*[0.0] * 20))
    assert a.costs.step_s.mid < 1e-4


def test_every_row_an_evaluation_leaves_the_step_unknown() -> None:
    text = "".join(
        f"step {n}: train loss 3, val loss 3\niter {n}: loss 3, time 2000.00ms, mfu 5.00%\n"
        for n in range(250, 2000, 250)
    )
    a = analysed(text)
    assert a.costs.how["step_s"] == NOT_SEPARABLE
    assert a.throughput.achieved_flops is None


# --- where the time went ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_wall_time_counts_unlogged_iterations(seed: int) -> None:
    record, a = planted(seed=seed, log_interval=[1, 10, 50, 7, 125, 200][seed], max_iters=4000)
    assert a.goodput.wall_s == pytest.approx(record.wall_s, rel=0.02)
    assert a.goodput.interval_s.holds(record.wall_s)


def test_a_log_that_ends_with_an_evaluation_counts_the_steps_before_it() -> None:
    whole = a_run(Truth(max_iters=500, log_interval=50))
    text = whole.text
    cut = text[: text.index("iter 500:")]
    assert analysed(cut).goodput.wall_s == pytest.approx(whole.wall_s, rel=0.03)


def test_timestamps_are_a_wall_clock() -> None:
    record = a_run(Truth(timestamps=True, log_interval=10))
    a = analyse(read(from_text(record.text))[0])
    assert a.goodput.by_clock
    assert a.goodput.wall_s == pytest.approx(record.wall_s, rel=0.01)
    slower = analysed(
        "".join(f"2025-01-01 10:{m:02d}:00 iter {m * 10}: loss 3, time 3000.00ms, mfu 5.00%\n" for m in range(1, 30))
    )
    assert slower.goodput.wall_s == pytest.approx(28 * 60 + 3)  # 6 s per iteration by the clock, not the printed 3


def test_the_clock_measures_the_wall_where_times_are_means_too() -> None:
    line = "2024-05-04 09:{:02}:{:02} [train] iter {}: loss 8.3326 2000 ms/iter\n"
    a = analysed("".join(line.format(n * 3 // 60, n * 3 % 60, n) for n in range(10, 210, 10)))
    assert a.goodput.by_clock
    assert a.goodput.wall_s == pytest.approx(570 + 20)  # 3 s per iteration by the clock, not the printed 2


def test_averages_over_the_log_interval_count_for_all_of_it() -> None:
    text = "".join(f"[train] iter {n}: loss 8.3326 2276 ms/iter\n" for n in range(20, 210, 10))
    a = analysed("[train] tokens/iter = 393,216 | x\n" + text)
    assert a.goodput.wall_s == pytest.approx(19 * 10 * 2.276, rel=0.001)


# --- speed ------------------------------------------------------------------------------------------------------


def test_flops_are_found_behind_the_smoothed_mfu_without_a_header() -> None:
    record, a = planted(header=False, eval_s=8.0)
    assert a.throughput.flops_from == "mfu"
    expected = record.truth.flops_per_iter / a.costs.step_s.mid
    assert a.throughput.achieved_flops == pytest.approx(expected, rel=0.01)


def test_the_header_and_the_mfu_agree() -> None:
    _, with_header = planted()
    _, without = planted(header=False)
    assert with_header.throughput.flops_from == "header"
    assert with_header.throughput.achieved_flops == pytest.approx(without.throughput.achieved_flops, rel=0.01)


def test_mfu_is_of_the_users_own_card() -> None:
    record = a_run(Truth())
    a = analysed(record.text, gpu="4070")
    assert a.throughput.peak_flops == pytest.approx(58.3e12)
    assert a.throughput.mfu == pytest.approx(record.truth.flops_per_iter / a.costs.step_s.mid / 58.3e12, rel=0.001)
    assert "mfu_other_card" in {finding.code for finding in a.findings}


@pytest.mark.parametrize("begin", range(1, 20, 3))
def test_a_few_lines_show_the_least_mfu_of_the_users_card(begin: int) -> None:
    """Too few to undo the average, wherever they stand between two evaluations."""
    record = a_run(Truth(header=False))
    lines = [line for line in record.text.splitlines(keepends=True) if line.startswith("iter")]
    excerpt = lines[100 + begin : 104 + begin]
    a = analysed("".join(excerpt), gpu="4070")
    assert a.throughput.mfu is None
    assert a.throughput.least_mfu is not None
    exact = record.truth.flops_per_iter / record.true_step_s / 58.3e12
    assert 0.5 * exact < a.throughput.least_mfu < exact
    assert "mfu_other_card" in {finding.code for finding in a.findings}


def test_a_few_lines_can_show_that_the_card_is_another_one() -> None:
    excerpt = "".join(f"iter {n}: loss 3.0, time 100.00ms, mfu 41.00%\n" for n in range(10, 14))
    assert "impossible_figure" in {finding.code for finding in analysed(excerpt, gpu="3060").findings}
    assert "impossible_figure" not in {finding.code for finding in analysed(excerpt, gpu="4090").findings}


def test_where_the_work_is_known_nothing_is_a_bound() -> None:
    assert analysed(a_log(Truth()), gpu="4070").throughput.least_mfu is None
    assert analysed("iter 10: loss 3.0, time 100.00ms, mfu 9.00%\n").throughput.least_mfu is None


def test_tokens_per_second_come_from_normal_iterations_and_effective_ones_from_all() -> None:
    record, a = planted()
    assert a.throughput.tokens_per_s == pytest.approx(record.truth.tokens_per_iter / record.true_step_s, rel=0.01)
    effective = record.truth.tokens_per_iter * 2001 / record.wall_s
    assert a.throughput.effective_tokens_per_s == pytest.approx(effective, rel=0.02)


def test_nine_of_ten_normal_iterations_lie_in_the_spread_and_one_of_twenty_above_it() -> None:
    times = np.random.default_rng(0).normal(100, 3, 2000)
    a = analysed(lines(*times, first=10))
    assert a.step_spread_s is not None
    low, high = a.step_spread_s
    taken = a.run.iterations.time_s[a.phases.normal]
    assert np.mean(taken < low) == pytest.approx(0.05, abs=0.002)
    assert np.mean(taken > high) == pytest.approx(0.05, abs=0.002)


def test_more_than_the_card_can_do_is_called_impossible() -> None:
    text = a_log(Truth(step_s=0.001, log_interval=1))
    assert "impossible_figure" in {finding.code for finding in analysed(text, gpu="3060").findings}


# --- forecast ---------------------------------------------------------------------------------------------------


def test_the_forecast_counts_evaluations_and_saves_to_come() -> None:
    record = a_run(Truth(max_iters=20000, saves=Saves.ALWAYS, kept=0.1))
    whole = a_run(Truth(max_iters=20000, saves=Saves.ALWAYS))
    a = analyse(read(from_text(record.text))[0])
    assert a.forecast.total_s is not None
    assert a.forecast.total_s.mid == pytest.approx(whole.wall_s, rel=0.02)
    assert a.forecast.total_s.holds(whole.wall_s)
    assert a.forecast.evals_ahead == pytest.approx(72, abs=1)


def test_a_finished_run_has_nothing_left() -> None:
    _, a = planted()
    assert a.forecast.done
    assert a.forecast.remaining_s is not None
    assert a.forecast.remaining_s.high == 0


def test_without_a_length_the_forecast_is_per_thousand_iterations() -> None:
    _, a = planted(header=False)
    assert a.forecast.total_s is None
    assert a.forecast.per_thousand_s is not None
    assert a.forecast.per_thousand_s.holds(1000 * 0.1 + 4 * 5.0)


def test_a_resumed_run_counts_from_where_it_is() -> None:
    record, a = planted(first_iter=1000, max_iters=4000, kept=0.5)
    whole = a_run(Truth(first_iter=1000, max_iters=4000))
    assert a.forecast.total_s is not None
    assert a.forecast.total_s.holds(whole.wall_s)
    assert record.wall_s < whole.wall_s


def test_an_evaluation_that_ends_a_cut_log_does_not_halve_the_saves_to_come() -> None:
    text = a_log(Truth(saves=Saves.ALWAYS, header=False))
    cut = text[: text.index("saving checkpoint", text.index("step 500:"))]
    a = analysed(cut, max_iters=5000)
    whole = analysed(text[: text.index("step 750:")], max_iters=5000)
    assert a.forecast.total_s is not None
    assert whole.forecast.total_s is not None
    assert a.forecast.total_s.mid == pytest.approx(whole.forecast.total_s.mid, rel=0.02)


# --- how often a run evaluates ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("numbers", "interval"),
    [
        ([0, 250, 500], 250), ([1, 200, 400], 200), ([1], None), ([1, 200], 200), ([1000, 1250], 250),
        ([200, 400, 600, 650], 200), ([300, 400, 600], 100),
    ],
)  # fmt: skip
def test_the_interval_of_evaluations_is_that_of_most(numbers: list[int], interval: int | None) -> None:
    text = lines(*[100.0] * 70)
    for number in numbers:
        text += f"step {number}: train loss 3, val loss 3\n"
    assert analysed(text).phases.eval_interval == interval


# --- means of which lines were left out -------------------------------------------------------------------------


def megatron(rows: list[tuple[int, float]], *, clock: bool = False, interval: int | None = None) -> str:
    """Lines of iterations and the mean since the line before, in milliseconds."""
    told = f"  log_interval .................................... {interval}\n" if interval else ""
    at_s, written, before = 0.0, told, 0
    for number, ms in rows:
        at_s, before = at_s + (number - before) * ms / 1000, number
        stamp = f" [2024-05-04 09:{int(at_s) // 60:02}:{int(at_s) % 60:02}]" if clock else ""
        written += (
            f"{stamp} iteration {number:8d}/    5000 | consumed samples: {8 * number:12d} | elapsed time per iteration "
            f"(ms): {ms:.1f} | learning rate: 1.0E-04 | global batch size:     8 | lm loss: 1.0E+00 |\n"
        )
    return written


def with_lines_left_out(slow_ms: float) -> list[tuple[int, float]]:
    """Two lines of each thousand, and one slow one after an omission."""
    rows = [(n + k, 290.0 + k / 100) for n in range(1000, 5000, 1000) for k in (0, 100, 200)]
    return [(100, 291.0), *rows[:6], (2900, slow_ms), *rows[6:]]


@pytest.mark.parametrize("interval", [100, None])
def test_a_mean_is_not_of_the_lines_that_were_left_out_before_it(interval: int | None) -> None:
    a = analysed(megatron(with_lines_left_out(531.2), interval=interval))
    assert phases_of(a)[2900][0] == "stall"
    assert a.goodput.parts_s["stall"] == pytest.approx(100 * 0.2412, rel=0.05)
    assert a.goodput.iterations == 4200
    assert a.goodput.wall_s == pytest.approx(4200 * 0.29 + 24, rel=0.01)


def test_a_mean_that_the_clock_bears_out_is_of_all_since_the_line_before() -> None:
    a = analysed(megatron([(n, 100.0) for n in range(100, 1100, 100)] + [(1900, 200.0), (2000, 100.0)], clock=True))
    assert a.phases.covers.tolist() == [100] * 10 + [900, 100]


def test_an_interval_that_changes_leaves_no_line_out() -> None:
    numbers = [*range(1, 61), *range(70, 200, 10)]
    a = analysed(megatron([(n, 100.0) for n in numbers]))
    assert a.phases.covers.tolist() == [1] * 60 + [10] * 13


# --- what lies before the first line ----------------------------------------------------------------------------

MLX = "Iter {n}: Train loss 1.7, It/sec 0.150, Tokens/sec 235.8\n"


def test_an_evaluation_in_the_span_of_the_first_mean_is_timed() -> None:
    text = "Iter 1: Val loss 1.777, Val took 101.9s\n" + "".join(MLX.format(n=n) for n in (10, 20, 30))
    a = analysed(text)
    assert a.goodput.parts_s["eval"] == pytest.approx(101.9)
    assert a.goodput.wall_s == pytest.approx(30 / 0.15 + 101.9)


def test_an_evaluation_long_before_the_first_mean_is_not() -> None:
    text = "Iter 1: Val loss 1.777, Val took 101.9s\n" + "".join(MLX.format(n=n) for n in (110, 120, 130))
    assert analysed(text).goodput.parts_s["eval"] == 0


# --- levels -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "change"), [(40, 11), (50, 40), (300, 137), (4000, 1234)])
def test_a_change_of_speed_is_placed_at_its_row(count: int, change: int) -> None:
    rng = np.random.default_rng(count)
    times = 100 * np.exp(rng.normal(0, 0.04, count))
    times[change:] *= 1.4
    times[change - 5] *= 1.4
    regimes = analysed(lines(*times, first=10)).regimes.regimes
    assert [regime.from_iteration for regime in regimes] == [10, 10 * (change + 1)]


def test_what_a_clock_of_whole_seconds_cannot_tell_is_not_left_unexplained() -> None:
    stamps = ["10:00:00", "10:00:02", "10:00:04", "10:00:06", "10:00:08"]
    text = "".join(f"2025-01-01 {s} iter {n}: loss 3, time 1900.00ms\n" for n, s in enumerate(stamps, 10))
    a = analysed(text)
    assert a.goodput.by_clock
    assert a.goodput.parts_s["unexplained"] == 0
    finer = analysed(text.replace(" iter", ",250 iter").replace("10:00:08,250", "10:00:08,450"))
    assert finer.goodput.parts_s["unexplained"] == pytest.approx(4 * 0.1 + 0.2)


def test_a_clear_change_of_speed_shows_in_a_few_rows() -> None:
    times = [45, 47, 46, 48, 86, 88, 89, 89, 127, 126, 128, 131, 139, 139, 140, 140]
    a = analysed(lines(*times, interval=1, first=62))
    assert [regime.from_iteration for regime in a.regimes.regimes][:2] == [62, 66]
    assert "regime_change" in {finding.code for finding in a.findings}


@pytest.mark.parametrize("noise", [0.01, 0.05, 0.2])
def test_noise_in_a_few_rows_is_no_change_of_speed(noise: float) -> None:
    rng = np.random.default_rng(0)
    for count in [*range(8, 30), *range(8, 30)]:
        times = 100 * np.exp(rng.normal(0, noise, count))
        assert len(analysed(lines(*times, interval=1, first=62)).regimes.regimes) < 2


def test_times_of_zero_a_second_apart_are_answered() -> None:
    text = "".join(f"2025-01-01 10:00:0{n} iter {n}: loss 3, time 0.00ms\n" for n in (1, 2))
    assert analysed(text).goodput.parts_s["unexplained"] == pytest.approx(1)


# --- what is no change ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 16, 23, 34, 53, 61, 110])
def test_a_few_rows_are_no_stretch(seed: int) -> None:
    rng = np.random.default_rng(seed)
    times = rng.choice([100.0, 130.0], int(rng.integers(31, 90)), p=[0.6, 0.4])
    regimes = analysed(lines(*times, first=10, mfu=", mfu 12.00%")).regimes.regimes
    assert len(regimes) == 1 or min(regime.rows for regime in regimes) > 7


def whole_seconds(*epochs: int) -> str:
    shown = (
        f"Epoch {n}/{len(epochs)}\n127/127 [==============================] - {took}s - loss: 0.2 - val_loss: 0.1\n"
        for n, took in enumerate(epochs, start=1)
    )
    return "".join(shown)


@pytest.mark.parametrize("late", [1, 3, 20])
def test_what_the_rounding_of_the_print_can_make_is_no_change_of_speed(late: int) -> None:
    a = analysed(whole_seconds(10, *[7] * 39, *[8] * late))
    assert {finding.code for finding in a.findings} & {"regime_change", "stall", "drift"} == set()
    assert len(analysed(whole_seconds(10, *[7] * 39, *[9] * 20)).regimes.regimes) == 2


def test_the_interval_of_a_step_holds_what_its_digits_hide() -> None:
    step = analysed(whole_seconds(*[7] * 40)).costs.step_s
    assert step.low <= 6.51 / 127
    assert step.high >= 7.49 / 127
    mixed = analysed(whole_seconds(*[7, 8] * 20)).costs.step_s
    assert mixed.low <= 7.49 / 127 <= mixed.high <= 8.4 / 127


# --- long logs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "log",
    [
        a_log(Truth(max_iters=6000, stall_share=0.01, log_interval=1)),
        a_log(Truth(max_iters=4000, drift=0.2, log_interval=1, timestamps=True, with_step_lines=False)),
        a_log(Truth(max_iters=3000, log_interval=1))
        + a_log(Truth(first_iter=3000, max_iters=6000, step_s=0.2, header=False)),
        megatron([(row * 10, 500.0 + row % 7) for row in range(1, 900)], interval=10),
    ],
    ids=["stalls", "drift", "two speeds", "means"],
)  # fmt: skip
def test_a_long_log_is_analysed_in_pieces_as_at_once(monkeypatch: pytest.MonkeyPatch, log: str) -> None:
    def figures() -> tuple[list[object], list[float]]:
        a = analysed(log)
        intervals = (a.costs.step_s, a.costs.eval_s, a.costs.checkpoint_s, a.costs.compile_s, a.forecast.remaining_s)
        numbers = [end for each in intervals if each is not None for end in (each.low, each.mid, each.high)]
        numbers += [a.goodput.wall_s, *a.goodput.parts_s.values(), *(a.step_spread_s or ()), a.costs.mean_ratio]
        numbers += [number for regime in a.regimes.regimes for number in regime[:4]]
        return [a.phases.phase.tolist(), [finding.code for finding in a.findings]], numbers

    words, numbers = figures()
    monkeypatch.setattr(records, "MANY_ROWS", 100)
    monkeypatch.setattr(statistics, "PIECE", 256)
    monkeypatch.setattr(statistics, "_SAMPLED", 100)
    in_pieces = figures()
    assert in_pieces[0] == words
    assert in_pieces[1] == pytest.approx(numbers, rel=1e-9)
