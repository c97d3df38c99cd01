"""A gain between what was published and what a log measured."""

from __future__ import annotations

import math

import pytest

from stepwatch.advice.gains import combined_gain, modelled_factor
from stepwatch.units import Interval

PUBLISHED = Interval(1.15, 1.6, 2.3)


@pytest.mark.parametrize("gain", [1.2, 1.6, 2.2])
def test_a_measurement_that_is_sure_is_believed(gain: float) -> None:
    found = combined_gain(PUBLISHED, Interval(gain * 0.99, gain, gain * 1.01))
    assert found.mid == pytest.approx(gain, rel=0.01)
    assert found.high / found.low < 1.04


def test_a_measurement_that_shows_nothing_leaves_the_published_range() -> None:
    found = combined_gain(PUBLISHED, Interval(0.01, 1.6, 256.0))
    assert (found.low, found.mid, found.high) == pytest.approx((1.15, 1.6, 2.3), rel=0.05)


def test_a_measurement_a_little_outside_puts_the_gain_at_the_end_of_the_range() -> None:
    found = combined_gain(PUBLISHED, Interval(2.0, 2.6, 3.2))
    assert 2.0 < found.mid < 2.4
    assert found.high < 2.6


@pytest.mark.parametrize("measured", [Interval(0.4, 0.5, 0.6), Interval(5.0, 6.0, 7.0)], ids=["below", "above"])
def test_of_two_that_contradict_each_other_neither_is_believed(measured: Interval) -> None:
    found = combined_gain(PUBLISHED, measured)
    assert found.low <= min(PUBLISHED.low, measured.low)
    assert found.high >= max(PUBLISHED.high, measured.high)


def test_a_higher_measurement_never_lowers_the_gain() -> None:
    mids = [combined_gain(PUBLISHED, Interval(0.8 * at / 100, at / 100, 1.1 * at / 100)).mid for at in range(115, 240)]
    assert mids == sorted(mids)


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (Interval(1.5, 1.8, 2.0), (1.4992, 1.7997, 2.0016)),
        (Interval(2.0, 2.6, 3.2), (1.8605, 2.2409, 2.4922)),
        (Interval(1.0, 1.1, 1.3), (1.0613, 1.1571, 1.3303)),
        (Interval(0.01, 1.6, 256.0), (1.1267, 1.6236, 2.3475)),
    ],
    ids=["inside", "above", "below", "of little weight"],
)
def test_nine_tenths_of_what_both_allow_lie_inside(measured: Interval, expected: tuple[float, float, float]) -> None:
    """Any published gain is as likely as another, one beyond them less so by a twentieth as standard deviation."""
    found = combined_gain(PUBLISHED, measured)
    assert (found.low, found.mid, found.high) == pytest.approx(expected, abs=0.0002)


@pytest.mark.parametrize(("deviations", "believed"), [(1.8, True), (2.2, False)])
def test_two_standard_deviations_outside_the_range_are_a_contradiction(deviations: float, believed: bool) -> None:
    mid, sigma = 2.3 * 1.2, math.log(1.2) / deviations
    low, high = (mid * math.exp(sign * 1.6449 * sigma) for sign in (-1, 1))
    assert (combined_gain(PUBLISHED, Interval(low, mid, high)).low > PUBLISHED.low) == believed


@pytest.mark.parametrize("ratio", [0.3, 0.5, 0.9, 1.0, 1.5])
def test_a_gain_that_only_the_estimator_knows_keeps_its_direction(ratio: float) -> None:
    found = modelled_factor(ratio)
    assert (found.low, found.mid, found.high) == pytest.approx(sorted((ratio**1.6, ratio, ratio**0.4)))
