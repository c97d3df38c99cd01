"""Laws of the estimators and of the search for periods, for any numbers that the door lets through."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.columns import seeds, step_times

from stepwatch.analysis import statistics
from stepwatch.analysis.comparison import limit_of
from stepwatch.analysis.periods import find_periods
from stepwatch.analysis.phases import between_rows, usual_gap
from stepwatch.analysis.statistics import (
    baseline_of,
    block_medians,
    chosen,
    every_nth,
    median,
    quantile,
    running_levels,
    spread,
    standard_error,
    t_quantile,
)
from stepwatch.errors import UsageError
from stepwatch.run import Iterations

times = step_times(80)


@given(times, st.floats(0.0, 1.0), st.integers(1, 99), st.integers(1, 30))
def test_what_stands_for_values_lies_among_them(values: np.ndarray, share: float, window: int, blocks: int) -> None:
    weights = np.arange(len(values)) % 7 + 1
    low, high = float(values.min()), float(values.max())
    assert median(values) == np.median(values)
    for found in (median(values), median(values, weights), quantile(values, share)):
        assert low <= found <= high
    assert (values <= quantile(values, share)).mean() >= share - 1e-9 or quantile(values, share) == high
    running = [np.asarray(running_levels(values, window, most)) for most in (2_000, 5)]
    for several in (*running, block_medians(values, blocks)):
        assert low <= several.min() <= several.max() <= high
    assert len(running[1]) == len(values)
    assert len(block_medians(values, blocks)) == min(blocks, len(values))


@given(times, st.floats(1e-3, 1e3))
def test_spreads_grow_with_the_values_and_not_with_a_shift(values: np.ndarray, factor: float) -> None:
    for of in (spread, standard_error):
        assert of(values) >= 0.0
        assert of(values * factor) == pytest.approx(factor * of(values), rel=1e-6, abs=1e-9 * factor * values.max())
        assert of(values + values.max()) == pytest.approx(of(values), rel=1e-6, abs=1e-9 * values.max())
    assert spread(np.full(len(values), factor)) == 0.0


@given(st.floats(0.0, 1e9), st.floats(1.0, 10.0))
def test_fewer_values_make_a_wider_interval(degrees: float, factor: float) -> None:
    assert 1.6448 <= t_quantile(degrees * factor) <= t_quantile(degrees) * (1 + 1e-3) <= 6.33


@given(times, seeds, st.sampled_from((0.0, 0.1, 0.9, 1.0)), st.floats(1e-5, 1.0))
def test_a_normal_time_is_known_at_every_row_and_its_noise_is_finite(
    values: np.ndarray, seed: int, share: float, digit_s: float
) -> None:
    normal = np.random.default_rng(seed).random(len(values)) < share
    nothing = np.full(len(values), math.nan)
    rows = Iterations(
        number=np.arange(len(values)), time_s=values, loss=nothing, reported_mfu=nothing, stamp_s=nothing,
        reported_tokens_per_s=nothing, line=np.arange(len(values)),
    )  # fmt: skip
    found = baseline_of(rows, normal, digit_s)
    assert (found is None) is (not normal.any())
    if found is not None:
        held = np.maximum(values[normal], digit_s / 2)
        everywhere = np.asarray(found.time_s)
        assert len(everywhere) == len(values)
        assert held.min() <= everywhere.min() <= everywhere.max() <= held.max()
        assert 0.0 <= found.noise < 70.0  # so that no power of it overflows


# --- periods ----------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=30).map(np.array))
def test_a_usual_gap_is_one_that_could_be(gaps: np.ndarray) -> None:
    assert 1 <= usual_gap(gaps) <= gaps.max()


@given(st.integers(2, 60), st.integers(0, 10**9), st.integers(0, 40), st.floats(1.0, 1e3))
def test_planted_periods_are_found(every: int, first: int, noise_seed: int, excess: float) -> None:
    numbers = first + np.arange(20 * every)
    beyond = np.abs(np.random.default_rng(noise_seed).normal(0, 1e-3, len(numbers)))
    spikes = np.arange(len(numbers)) % every == every // 2
    beyond[spikes] = excess
    (found,) = find_periods(numbers, np.ones_like(numbers), beyond.__getitem__, spikes, None)
    assert (found.every, found.first) == (every, int(numbers[spikes][0]))
    assert (found.rows == spikes).all()


@given(
    st.lists(st.integers(0, 10**12), min_size=2, max_size=30, unique=True).map(sorted), st.integers(1, 10**12),
    st.lists(st.integers(0, 10**12), max_size=5).map(sorted), st.integers(0, 10**12),
)  # fmt: skip
def test_unlogged_evaluations_are_counted_as_they_would_be_listed(
    numbers: list[int], interval: int, mentioned: list[int], beyond: int
) -> None:
    interval = max(interval, (numbers[-1] - numbers[0]) // 1000)  # else the list of the test were too long
    found = between_rows(np.array(numbers), interval, beyond, np.array(mentioned, np.int64))
    listed = {
        at for before, after in itertools.pairwise(numbers) if after - before > beyond
        for at in range(before - before % interval + interval, after, interval)
    }  # fmt: skip
    assert found.total == len(listed) + sum(at not in listed for at in mentioned)
    assert found.among(np.array(sorted(listed), np.int64)).all()
    assert not found.among(np.array([at + 1 for at in listed if at + 1 not in listed | {*mentioned}], np.int64)).any()
    assert {*found.shown()} <= listed | {*mentioned}


# --- limits of a comparison -------------------------------------------------------------------------------------


@given(st.integers(0, 10**7), st.sampled_from(("%", " %", "", "percent")))
def test_a_limit_is_a_share_or_is_refused(thousandths: int, unit: str) -> None:
    text = f"{thousandths / 1000:.3f}{unit}"
    if unit == "percent" or thousandths >= 10**7 or (not unit and 0 < thousandths < 1000):
        with pytest.raises(UsageError):
            limit_of(text)
    else:
        assert limit_of(text) == pytest.approx(thousandths / 1e5)


@given(
    st.lists(st.floats(-1e6, 1e6) | st.sampled_from([1.0, 2.0]), min_size=1, max_size=300).map(np.array),
    st.floats(0.0, 1.0), st.booleans(),
)  # fmt: skip
def test_a_column_in_pieces_gives_what_it_gives_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, values: np.ndarray, share: float, lost: bool
) -> None:
    """As columns of more than a million rows are worked on."""
    if lost:
        values[len(values) // 2] = math.nan
    with monkeypatch.context() as patch:
        whole = median(values), quantile(values, share), spread(values)
        patch.setattr(statistics, "PIECE", 7)
        patch.setattr(statistics, "_SAMPLED", 5)
        np.testing.assert_array_equal([median(values), quantile(values, share), spread(values)], whole)
        assert statistics.total(values) == pytest.approx(values.sum(), abs=1e-6, nan_ok=True)


@given(
    st.lists(st.tuples(st.floats(0.1, 10.0), st.integers(0, 9)), min_size=1, max_size=200),
    st.slices(150), st.integers(1, 30), st.integers(1, 9),
)  # fmt: skip
def test_rows_that_are_chosen_without_a_copy_are_those_of_one(
    monkeypatch: pytest.MonkeyPatch, rows: list[tuple[float, int]], asked: slice, window: int, nth: int
) -> None:
    values, mask = np.array([value for value, _ in rows]), np.array([kind > 0 for _, kind in rows])
    copy = values[mask]
    levels = running_levels(copy, window, least=1.0) if len(copy) else copy
    with monkeypatch.context() as patch:
        patch.setattr(statistics, "PIECE", 7)
        patch.setattr(statistics, "_SAMPLED", 5)
        found = chosen(values, mask)
        assert len(found) == len(copy)
        np.testing.assert_array_equal(np.asarray(found[abs(asked.start or 0) :]), copy[abs(asked.start or 0) :])
        np.testing.assert_array_equal(np.asarray(found[asked]), copy[asked])
        np.testing.assert_array_equal(every_nth(mask, nth), np.flatnonzero(mask)[::nth])
        if len(copy):
            assert found[len(copy) - 1] == copy[-1]
            np.testing.assert_array_equal(running_levels(found, window, least=1.0), levels)
            np.testing.assert_array_equal(block_medians(found[1:], 3), block_medians(copy[1:], 3))


@given(st.lists(st.tuples(st.floats(0.1, 10.0), st.booleans()), min_size=1, max_size=60), st.integers(1, 9))
def test_levels_between_rows_are_on_a_straight_line(rows: list[tuple[float, bool]], window: int) -> None:
    values, known = (np.array(column) for column in zip(*rows, strict=True))
    known[0] = True
    levels = running_levels(values[known], window)
    lines = np.interp(np.arange(len(known)), np.flatnonzero(known), np.asarray(levels))
    np.testing.assert_array_equal(np.asarray(levels.spread_over(known)), lines)
