"""Advice on checkpoints of trainers that save at an interval of their own."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.recorded import a_record

from stepwatch.advice import Advice, AdviceList, advice_on_log
from stepwatch.analysis import analyse
from stepwatch.i18n import say
from stepwatch.readers import read
from stepwatch.readers.formats import all_readers
from stepwatch.readers.levers import HUGGING_FACE, LIGHTNING, MMENGINE, ULTRALYTICS
from stepwatch.run import NO_LEVERS, Levers
from stepwatch.sources import from_text


def advised(levers: Levers, *, checkpoint_s: float = 10.0, mtbf_hours: float | None = None) -> AdviceList:
    """2,000 steps of 1 s; an evaluation of a tenth of a second and a save every 20 of them."""
    settings = {"max_iters": 1999} | ({} if mtbf_hours is None else {"mtbf_hours": mtbf_hours})
    planted = {"steps": 2000, "step_s": 1.0, "eval_s": 0.1, "compile_s": None, "settings": settings}
    (run,) = read(from_text(a_record(checkpoint_s=checkpoint_s, noise=0.0, **planted).text))
    found = advice_on_log(analyse(replace(run, traits=replace(run.traits, levers=levers))))
    assert found is not None
    return found


def test_saving_less_often_is_said_by_the_trainers_own_setting() -> None:
    """99 saves of 10 s; one failure a week asks for none, two are left."""
    (advice,) = (advice for advice in advised(HUGGING_FACE).advice if advice.rule == "save_less")
    assert say(advice.what, "en") == "Save every 1,000 iterations instead of every 20: save_steps."
    assert advice.saves_s.holds((99 - 2) * 10)
    assert advice.stated == {"save_steps": (None, 1000)}
    assert "one failure a week" in say(advice.because, "en")


def test_a_machine_that_fails_often_saves_more_often() -> None:
    """Young and Daly: the root of twice 10 s times half an hour is 190 s."""
    (advice,) = (advice for advice in advised(HUGGING_FACE, mtbf_hours=0.5).advice if advice.rule == "save_less")
    assert "every 100 iterations" in say(advice.what, "en")


def test_relative_where_the_interval_is_in_epochs() -> None:
    (advice,) = (advice for advice in advised(MMENGINE).advice if advice.rule == "save_less")
    assert say(advice.what, "en") == "Save 50 times less often: default_hooks.checkpoint.interval."
    assert advice.stated == {}


@pytest.mark.parametrize(("levers", "checkpoint_s"), [(HUGGING_FACE, 0.01), (Levers(batch="batch"), 10.0)])
def test_not_where_it_is_cheap_or_cannot_be_set(levers: Levers, checkpoint_s: float) -> None:
    assert "save_less" not in {advice.rule for advice in advised(levers, checkpoint_s=checkpoint_s).advice}


def test_the_change_is_in_the_trainers_own_settings_and_no_command_of_nanogpt() -> None:
    found = advised(HUGGING_FACE)
    assert found.change == {"save_steps": (None, 1000)}
    assert found.after.total_s.mid == pytest.approx(found.before.total_s.mid - 970, rel=0.01)
    assert not set(found.change) & {"eval_interval", "always_save_checkpoint"}
    assert "save_less" in {advice.rule for advice in advised(ULTRALYTICS).advice}


def mlx_lm(*, iterations: int = 4000, every: int = 100, eval_s: float = 10.0, step_s: float = 0.5) -> str:
    text = f"Starting training..., iters: {iterations}\n"
    for number in range(10, iterations + 1, 10):
        if number % every == 0:
            text += f"Iter {number}: Val loss 1.274, Val took {eval_s:.3f}s\n"
        text += (
            f"Iter {number}: Train loss 1.201, Learning Rate 1.000e-05, It/sec {1 / step_s:.3f}, Tokens/sec 400.0, "
            f"Trained Tokens {200 * number}, Peak mem 10.1 GB\n"
        )
    return text


def advised_by_rule(text: str, levers: Levers | None = None) -> dict[str, Advice]:
    (run,) = read(from_text(text))
    if levers is not None:
        run = replace(run, traits=replace(run.traits, levers=levers))
    found = advice_on_log(analyse(run))
    assert found is not None
    return {advice.rule: advice for advice in found.advice}


def test_evaluations_are_made_rarer_by_the_trainers_own_setting() -> None:
    """40 evaluations of 10 s in 2,000 s of steps: with ten of them 300 s less."""
    advice = advised_by_rule(mlx_lm())["evaluate_less"]
    assert say(advice.what, "en") == "Evaluate every 400 iterations instead of every 100: --steps-per-eval."
    assert say(advice.because, "en").startswith(
        "Evaluations every 100 iterations take 16.7 % of the run; every 400 iterations they take 4.8 %"
    )
    assert advice.saves_s.holds(300)
    assert advice.saves_s.high - advice.saves_s.low < 10
    assert advice.basis == "measured"
    assert advice.stated == {"--steps-per-eval": (None, 400)}  # the log shows a period, not a setting


def test_batches_are_halved_where_the_trainer_can() -> None:
    found = advised_by_rule(mlx_lm())
    assert say(found["fewer_eval_batches"].what, "en") == "Evaluate on half as many batches: halve --val-batches."
    assert found["fewer_eval_batches"].saves_s.holds(200)
    assert "fewer_eval_batches" not in advised_by_rule(mlx_lm(), HUGGING_FACE)


def test_cheap_evaluations_are_left_alone() -> None:
    assert not advised_by_rule(mlx_lm(eval_s=0.9))


@pytest.mark.parametrize(
    ("levers", "words"),
    [
        (HUGGING_FACE, "Evaluate every 400 iterations instead of every 100: eval_steps."),
        (LIGHTNING, "Evaluate 4 times less often: val_check_interval."),
        (NO_LEVERS, "Evaluate every 400 iterations instead of every 100."),
        (ULTRALYTICS, None),  # it validates after each epoch, or never
    ],
)
def test_one_rule_is_said_in_the_words_of_each_trainer(levers: Levers, words: str | None) -> None:
    advice = advised_by_rule(mlx_lm(), levers).get("evaluate_less")
    assert (None if advice is None else say(advice.what, "en")) == words
    if levers.other_units and advice is not None:
        assert advice.stated == {}  # a number of iterations is no value of it


def test_no_two_levers_of_a_trainer_have_the_same_name() -> None:
    for name, reader in all_readers().items():
        names = [word for word in reader.traits.levers if isinstance(word, str) and word]
        assert len(names) == len(set(names)), name
        assert not (reader.traits.levers.accumulates and reader.traits.levers.accumulation), name
