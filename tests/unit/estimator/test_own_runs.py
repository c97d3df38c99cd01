"""Own runs move an estimate towards what they took, and narrow it; nobody else's do."""

from __future__ import annotations

import random

import pytest

from stepwatch.estimator.estimation import estimate
from stepwatch.estimator.own_runs import History, learning_from, note, posterior
from stepwatch.estimator.workload import NANOGPT
from stepwatch.gpus import find_gpu

CARD = find_gpu("4090")


def of(*ratios: float) -> History:
    return lambda workload, gpu: ratios


def width(history: History | None) -> float:
    with learning_from(history):
        found = estimate(NANOGPT, CARD)
    assert found is not None
    return found.step_s.high / found.step_s.low


def test_the_interval_shrinks_with_every_own_run_and_moves_to_them() -> None:
    before = estimate(NANOGPT, CARD)
    assert before is not None
    with learning_from(of(*[1.3] * 20)):
        after = estimate(NANOGPT, CARD)
    assert after is not None
    assert after.step_s.mid == pytest.approx(1.3 * before.step_s.mid, rel=0.02)
    assert after.eval_s.mid / before.eval_s.mid == pytest.approx(after.step_s.mid / before.step_s.mid)
    widths = [width(None), width(of(1.3)), width(of(1.3, 1.31, 1.29)), width(of(*[1.3, 1.31, 1.29] * 5))]
    assert widths == sorted(widths, reverse=True)
    assert after.own_runs == 20
    assert note(before) is None
    assert "20 own runs" in note(after).in_english()  # type: ignore[union-attr]


def test_without_runs_like_it_nothing_changes() -> None:
    assert width(of()) == width(None)


def test_never_below_what_the_card_can_do() -> None:
    with learning_from(of(*[0.01] * 30)):
        found = estimate(NANOGPT, CARD)
    assert found is not None
    assert found.step_s.low >= found.floor_step_s


@pytest.mark.parametrize("count", [1, 3, 10, 40])
def test_nine_of_ten_next_runs_lie_inside(count: int) -> None:
    """Fleets whose middle is somewhere in the prior, and whose runs differ by 5 %."""
    rng, inside = random.Random(count), 0
    for _ in range(2000):
        middle = rng.gauss(0, 0.15)
        shift, spread = posterior([rng.gauss(middle, 0.05) for _ in range(count)], 0.15)
        inside += abs(rng.gauss(middle, 0.05) - shift) <= 1.6449 * spread
    assert 0.86 <= inside / 2000 <= 0.94


def test_runs_all_alike_leave_what_a_healthy_fleet_differs_by() -> None:
    """2 % from run to run, as the logarithm's standard deviation (tests/fleets.py): the next one may differ by it."""
    rng = random.Random(0)
    shift, spread = posterior([0.1] * 1000, 0.15)
    inside = sum(abs(rng.gauss(0.1, 0.02) - shift) <= 1.6449 * spread for _ in range(2000))
    assert 0.88 <= inside / 2000 <= 0.92
