"""How far the sum of printed times may be from the wall, and why."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.unit.analysis.test_costs import a_run, plain

from stepwatch.analysis import Goodput, analyse
from stepwatch.analysis.statistics import total_s
from stepwatch.units import plain_json


def goodput(step_ms: float = 100.0, interval: int = 10, **run: Any) -> Goodput:
    return analyse(replace(a_run(plain(*[step_ms] * 300, interval=interval)), **run)).goodput


def doubts(found: Goodput) -> tuple[float, float]:
    return 1 - found.interval_s.low / found.wall_s, found.interval_s.high / found.wall_s - 1


def test_where_every_iteration_is_printed_their_sum_is_the_wall_time_within_a_hundredth() -> None:
    """Runs with an independent clock: 1 %."""
    assert doubts(goodput(interval=1)) == pytest.approx((0.012, 0.012), abs=0.001)


def test_iterations_that_are_not_printed_may_be_two_per_cent_longer() -> None:
    assert doubts(goodput()) == pytest.approx((0.012, 0.032), abs=0.001)


def test_several_ranks_may_run_a_tenth_behind_the_printed_times() -> None:
    """9 % on runs with an independent clock; nine of ten iterations are not printed."""
    found = goodput(distributed=True)
    assert found.doubts == ("ranks",)
    assert doubts(found) == pytest.approx((0.012, 0.032 + 0.10 * 0.9), abs=0.001)


@pytest.mark.parametrize(("step_ms", "above"), [(14.0, 0.032 + 0.06 * 0.9), (16.0, 0.032)])
def test_very_short_steps_may_run_behind_the_printed_times(step_ms: float, above: float) -> None:
    assert doubts(goodput(step_ms)) == pytest.approx((0.012, above), abs=0.001)


def test_work_on_the_printed_iterations_makes_the_sum_up_to_a_third_too_long() -> None:
    """28 % on runs with an independent clock."""
    found = goodput(busy_when_logging=True)
    assert found.doubts == ("busy",)
    assert doubts(found) == pytest.approx((0.012 + 0.33, 0.032), abs=0.001)


def test_a_clock_in_front_of_the_lines_is_right_within_a_second_and_two_thousandths() -> None:
    line = "2025-01-01 10:{:02}:{:02} iter {}: loss 3, time 1000.00ms\n"
    found = analyse(a_run("".join(line.format(at // 60, at % 60, at) for at in range(1, 1001)))).goodput
    assert found.by_clock
    assert found.interval_s.high - found.wall_s == pytest.approx(1 + 0.002 * 1000)


def test_a_total_does_not_depend_on_the_order_of_its_terms() -> None:
    """Processors add four or eight at once, a browser two; the JSON shows nine digits of the sum."""
    generator = np.random.default_rng(7)
    times = np.round(generator.lognormal(-1.0, 0.5, 10_000), 4)
    assert {total_s(generator.permutation(times)) for _ in range(50)} == {math.fsum(times)}


def test_the_last_bit_of_a_sum_does_not_show_in_nine_digits() -> None:
    between = 12459.58255  # two of nine digits
    noisy = [between, *(math.nextafter(between, towards) for towards in (0.0, math.inf)), between * (1 - 2e-15)]
    assert {plain_json(value) for value in noisy} == {12459.5826}
    assert plain_json(-0.1) == -0.1
    assert plain_json(math.inf) == math.inf
