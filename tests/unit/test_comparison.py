"""Two runs side by side: a difference is told where it is more than noise, and only there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import Truth, a_log

from stepwatch.analysis import Analysis, analyse
from stepwatch.comparison import compare, limit_of
from stepwatch.errors import InputError, UsageError
from stepwatch.gpus import find_gpu
from stepwatch.readers import read
from stepwatch.sources import from_text

BASE = Truth(max_iters=2000, step_s=0.2, noise=0.02)


def analysed(truth: Truth, gpu: str | None = None, name: str = "a.log") -> Analysis:
    (run,) = read(from_text(a_log(truth), name))
    return analyse(run, find_gpu(gpu) if gpu else None, "user")


@pytest.mark.parametrize("factor", [0.8, 0.95, 1.05, 1.2, 2.0])
def test_a_planted_ratio_is_found_inside_its_interval(factor: float) -> None:
    found = compare(analysed(BASE), analysed(replace(BASE, seed=5, step_s=BASE.step_s * factor)))
    assert found.ratio.holds(factor)
    assert found.verdict == ("slower" if factor > 1 else "faster")


def test_the_same_run_again_is_no_difference_nearly_always() -> None:
    verdicts = [compare(analysed(BASE), analysed(replace(BASE, seed=seed))).verdict for seed in range(1, 31)]
    assert verdicts.count("same") >= 27


@settings(max_examples=20, deadline=None)
@given(factor=st.floats(0.5, 2.0))
def test_turned_round_the_ratio_is_turned_over(factor: float) -> None:
    one, other = analysed(BASE), analysed(replace(BASE, seed=3, step_s=BASE.step_s * factor))
    assert compare(one, other).ratio.mid == pytest.approx(1 / compare(other, one).ratio.mid)


def test_a_larger_batch_is_compared_by_its_tokens() -> None:
    double = replace(BASE, seed=2, batch_size=2 * BASE.batch_size, step_s=2 * BASE.step_s)
    found = compare(analysed(BASE), analysed(double))
    assert found.per_token
    assert found.verdict == "same"
    assert [changed.name for changed in found.changed] == ["batch_size", "tokens_per_iter"]


def test_only_a_sure_and_large_regression_fails() -> None:
    slower = analysed(replace(BASE, seed=2, step_s=1.03 * BASE.step_s))
    assert not compare(analysed(BASE), slower).failed
    assert not compare(analysed(BASE), slower, limit=0.05).failed
    assert compare(analysed(BASE), slower, limit=0.01).failed
    assert not compare(slower, analysed(BASE), limit=0.0).failed


def test_another_card_and_other_settings_are_named_as_reasons() -> None:
    eager = replace(BASE, seed=2, compiled=False, step_s=2 * BASE.step_s)
    found = compare(analysed(BASE, "4070"), analysed(eager, "4090"))
    said = [reason.in_english() for reason in found.reasons]
    assert any("Another card" in text for text in said)
    assert any("compile" in text for text in said)


def test_a_log_without_a_normal_iteration_is_refused() -> None:
    (run,) = read(from_text("iter 0: loss 4, time 9000ms, mfu -100.00%\n"))
    with pytest.raises(InputError):
        compare(analysed(BASE), analyse(run))


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("5", 0.05), ("2,5 %", 0.025), ("0.5%", 0.005), ("0", 0.0)])
def test_a_limit_is_read_as_people_write_it(text: str, share: float) -> None:
    assert limit_of(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "five", "-5%", "5%%", "nan", "1e9"])
def test_what_is_no_percentage_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        limit_of(text)
