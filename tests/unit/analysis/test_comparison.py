"""Two runs side by side: a difference is told where it is more than noise, and only there."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import Truth, a_log

from stepwatch import i18n
from stepwatch.analysis import Analysis, analyse
from stepwatch.analysis.comparison import Comparison, compare, comparison_json, limit_of
from stepwatch.errors import InputError, UsageError
from stepwatch.gpus import find_gpu
from stepwatch.i18n import LANGUAGES
from stepwatch.presenters.comparison_answer import certainty, headline, rows, settings_rows
from stepwatch.readers import read
from stepwatch.run import Timing
from stepwatch.settings import Origin, Settings
from stepwatch.sources import from_text

BASE = Truth(max_iters=2000, step_s=0.2, noise=0.02)


@cache
def analysed(truth: Truth, gpu: str | None = None, name: str = "a.log") -> Analysis:
    (run,) = read(from_text(a_log(truth), name))
    return analyse(run, find_gpu(gpu) if gpu else None, "user")


def of_times(*times_ms: float, tokens: int | None = 16384, name: str = "a.log") -> Analysis:
    head = "" if tokens is None else f"tokens per iteration will be: {tokens:,}\n"
    lines = (f"iter {500 + 10 * at}: loss 3.1, time {time:.2f}ms, mfu 30.00%\n" for at, time in enumerate(times_ms))
    (run,) = read(from_text(head + "".join(lines), name))
    return analyse(run)


def said(messages: tuple[object, ...]) -> str:
    return " ".join(message.in_english() for message in messages)  # type: ignore[attr-defined]


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


@settings(max_examples=30, deadline=None)
@given(factor=st.floats(0.9, 1.1))
def test_the_verdict_can_be_seen_in_the_printed_figures(factor: float) -> None:
    found = compare(analysed(BASE), analysed(replace(BASE, seed=3, step_s=BASE.step_s * factor)))
    for language in LANGUAGES:
        low, one, high = (i18n.ratio(value, language) for value in (found.ratio.low, 1.0, found.ratio.high))
        assert found.verdict == ("slower" if low > one else "faster" if high < one else "same")


def test_one_row_is_never_more_than_noise() -> None:
    many = of_times(*(100 + at % 3 for at in range(40)))
    for one, other in ((of_times(100), of_times(107)), (of_times(50), many), (many, of_times(300))):
        found = compare(one, other, limit=0.05)
        assert found.verdict == "not_comparable"
        assert not found.failed
        assert "only one normal iteration" in said(found.doubts)
        assert "not judged" in said(certainty(found))
    assert compare(many, of_times(*(150 + at % 3 for at in range(40)))).verdict == "slower"


def test_steps_of_unknown_size_are_not_compared() -> None:
    told, untold = of_times(*[100.0, 101.0] * 20), of_times(*[190.0, 191.0] * 20, tokens=None, name="b.log")
    for one, other, side in ((told, untold, "B"), (untold, told, "A")):
        found = compare(one, other, limit=0.05)
        assert (found.verdict, found.failed) == ("not_comparable", False)
        assert f"--set {side}:tokens_per_iter" in said(found.doubts)
    double = of_times(*[190.0, 191.0] * 20, tokens=32768, name="b.log")
    assert compare(told, double).verdict == "faster"


def test_where_neither_log_tells_sizes_they_are_taken_to_be_equal_and_that_is_said() -> None:
    runs = [of_times(*[time, time + 1] * 20, tokens=None) for time in (100.0, 190.0)]
    found = compare(runs[0], runs[1], limit=0.05)
    assert found.failed
    assert "the same size" in said(found.notes)


def test_no_difference_per_token_speaks_of_tokens() -> None:
    double = replace(BASE, seed=2, batch_size=2 * BASE.batch_size, step_s=2 * BASE.step_s)
    assert "a token of" in headline(compare(analysed(BASE), analysed(double))).in_english()


def timed(a: Analysis, timing: Timing, holds: frozenset[str]) -> Analysis:
    return replace(a, run=replace(a.run, timing=timing, holds=holds))


def test_times_that_mean_different_things_give_no_verdict() -> None:
    base = analysed(BASE)
    step = timed(analysed(replace(BASE, step_s=0.5)), Timing.SPANS_STEP, frozenset())
    found = compare(base, step, names=("one", "two"), limit=0.05)
    assert (found.verdict, found.failed) == ("not_comparable", False)
    assert "In “one” a time covers a whole iteration." in said(found.doubts).replace("{", "")
    assert "evaluations and checkpoints" in said(found.doubts)


def test_a_mean_with_evaluations_is_not_one_without() -> None:
    mean = timed(analysed(BASE), Timing.SPANS_LOG_INTERVAL, frozenset({"eval"}))
    without = timed(mean, Timing.CUMULATIVE, frozenset())
    assert "include evaluations" in said(compare(mean, without).doubts)
    assert compare(without, timed(without, Timing.SPANS_LOG_INTERVAL, frozenset())).verdict == "same"


def test_single_rows_are_comparable_whatever_they_hold_since_parts_are_told_apart() -> None:
    base = analysed(BASE)
    assert compare(base, timed(base, base.run.timing, frozenset())).verdict == "same"


def of_epochs(step: str) -> Analysis:
    lines = (f"Epoch {at}/9\n500/500 - 5s - {step}/step - loss: 0.5\n" for at in range(1, 10))
    (run,) = read(from_text("".join(lines), "keras.log"))
    return analyse(run)


def test_rounded_times_are_no_surer_than_their_last_digit() -> None:
    assert compare(of_epochs("10ms"), of_epochs("10ms")).ratio.holds(10.4 / 9.8)
    assert not compare(of_epochs("100ms"), of_epochs("100ms")).ratio.holds(1.02)


def test_an_mfu_that_no_card_reaches_is_left_out_and_said() -> None:
    found = compare(analysed(replace(BASE, step_s=0.001), "4070"), analysed(BASE, "4070"))
    cells = {name.key: (before, after) for name, before, after, _ in rows(found) if name is not None}
    before, after = cells["MFU"]
    assert before is None
    assert after is not None
    assert "MFU is left out" in said(found.notes)
    assert [run["mfu"] is None for run in comparison_json(found)["runs"]] == [True, False]  # type: ignore[attr-defined]
    assert "From settings" not in said(found.reasons)


def test_counts_are_shown_whole() -> None:
    def with_params(count: float) -> Analysis:
        a = analysed(BASE)
        return replace(a, run=replace(a.run, settings=Settings.of(Origin.LOG, {"n_params": count, "dropout": 0.0})))

    found = compare(with_params(124e6), with_params(1_201_563_550.0))
    assert ("n_params", "124000000", "1201563550") in settings_rows(found)


def test_logs_of_one_name_are_told_apart() -> None:
    assert compare(analysed(BASE), analysed(BASE)).names == ("A: a.log", "B: a.log")


@pytest.mark.parametrize(
    ("factor", "noise", "limit", "text"),
    [
        (1.03, 0.02, 0.05, "within the"), (1.10, 0.02, 0.05, "more than the"), (0.8, 0.02, 0.05, "nine of ten"),
        (1.0, 0.3, 0.001, "It may be over"), (1.0, 0.02, 0.05, "within the"),
    ],
)  # fmt: skip
def test_what_becomes_of_the_limit_is_said(factor: float, noise: float, limit: float, text: str) -> None:
    other = replace(BASE, seed=2, noise=noise, step_s=factor * BASE.step_s)
    found: Comparison = compare(analysed(BASE), analysed(other), limit=limit)
    assert text in said(certainty(found))
    assert found.failed == ("more than" in text)


def test_another_card_and_other_settings_are_named_as_reasons() -> None:
    eager = replace(BASE, seed=2, compiled=False, step_s=2 * BASE.step_s)
    found = compare(analysed(BASE, "4070"), analysed(eager, "4090"))
    assert "Another card" in said(found.reasons)
    assert "compile" in said(found.reasons)


def test_how_often_a_run_evaluates_does_not_explain_its_step() -> None:
    found = compare(analysed(BASE), analysed(replace(BASE, seed=2, eval_interval=500, eval_iters=20)))
    assert "Settings" not in said(found.reasons)


def test_a_log_without_a_normal_iteration_is_refused() -> None:
    (run,) = read(from_text("iter 0: loss 4, time 9000ms, mfu -100.00%\n"))
    with pytest.raises(InputError):
        compare(analysed(BASE), analyse(run))


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("5", 0.05), ("2,5 %", 0.025), ("0.5%", 0.005), ("0", 0.0)])
def test_a_limit_is_read_as_people_write_it(text: str, share: float) -> None:
    assert limit_of(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "five", "-5%", "5%%", "nan", "1e9", "0.05", "0,5"])
def test_what_is_no_percentage_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        limit_of(text)
