"""Laws that hold for any run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.builders import a_log, random_truth

from stepwatch.analysis import analyse
from stepwatch.readers import read
from stepwatch.run import Iterations
from stepwatch.settings import Origin, Settings
from stepwatch.sources import from_text

seeds = st.integers(0, 2**32 - 1)


def a_random_run(seed: int):  # type: ignore[no-untyped-def]
    return read(from_text(a_log(random_truth(np.random.default_rng(seed)))))[0]


@given(seeds)
def test_parts_sum_to_the_whole_and_the_same_input_gives_the_same_answer(seed: int) -> None:
    run = a_random_run(seed)
    analysis = analyse(run)
    split, goodput = analysis.split, analysis.goodput
    parts = np.stack([split.column_s(part) for part in ("step", "eval", "checkpoint", "compile", "unexplained")])
    assert not split.column_s("data").any()  # nothing in these logs is about data
    assert parts.min() >= 0
    np.testing.assert_allclose(parts.sum(axis=0), run.iterations.time_s, rtol=1e-9, atol=1e-12)

    assert sum(goodput.parts_s.values()) == pytest.approx(goodput.wall_s)
    assert min(goodput.parts_s.values()) >= 0
    assert goodput.interval_s.holds(goodput.wall_s)
    again = analyse(run)
    assert (again.costs, again.goodput) == (analysis.costs, goodput)


@given(seeds, st.floats(2.0, 50.0))
def test_all_times_times_k_gives_costs_times_k(seed: int, k: float) -> None:
    run = a_random_run(seed)
    iterations = run.iterations
    slower = replace(run, iterations=Iterations(
        number=iterations.number, time_s=iterations.time_s * k, loss=iterations.loss,
        reported_mfu=np.where(iterations.reported_mfu < 0, -1.0, iterations.reported_mfu / k),
        reported_tokens_per_s=iterations.reported_tokens_per_s,
        stamp_s=iterations.stamp_s * k, line=iterations.line,
    ))  # fmt: skip
    one, other = analyse(run), analyse(slower)
    assert other.costs.step_s.mid == pytest.approx(k * one.costs.step_s.mid, rel=1e-3)
    if one.costs.eval_s is not None and one.costs.how["eval_s"] == other.costs.how["eval_s"] == "measured":
        assert other.costs.eval_s is not None
        assert other.costs.eval_s.mid == pytest.approx(k * one.costs.eval_s.mid, rel=1e-2, abs=1e-4)


@given(seeds, st.sampled_from([2, 4, 5]))
@example(49276, 2)
def test_more_evaluations_never_shorten_a_forecast(seed: int, factor: int) -> None:
    run = a_random_run(seed)
    far = {"max_iters": 10 * int(run.iterations.number[-1] + 1)}
    interval = analyse(run).phases.eval_interval
    if interval is None or interval % factor or run.settings.get("eval_interval") is None:
        return
    often = run.settings.overridden_by(Settings.of(Origin.USER, {**far, "eval_interval": interval // factor}))
    seldom = run.settings.overridden_by(Settings.of(Origin.USER, far))
    one, other = analyse(replace(run, settings=seldom)), analyse(replace(run, settings=often))
    assert one.forecast.remaining_s is not None
    assert other.forecast.remaining_s is not None
    assert other.forecast.remaining_s.mid >= 0.999 * one.forecast.remaining_s.mid


def test_planted_costs_lie_in_their_intervals() -> None:
    """Of 120 random runs; the benchmark has the full table. Chance alone stays well within these bounds."""
    from benchmarks.planted import in_process, planted_runs, run_case

    trial = run_case(planted_runs(120, 7), 7, in_process)
    for cost in ("step_s", "eval_s", "checkpoint_s", "compile_s"):
        told = [outcome for outcome in trial.outcomes if outcome.cost == cost and outcome.separable]
        covered = sum(outcome.covers for outcome in told) / len(told)
        assert 0.85 <= covered <= 0.99, (cost, covered)
