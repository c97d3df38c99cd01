"""Advice on evaluations in the words of the trainer, from what its log shows: the saving is what was planted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepwatch.advice import Advice, advice_on_log
from stepwatch.analysis import analyse
from stepwatch.i18n import say
from stepwatch.readers import READERS, read
from stepwatch.readers.levers import HUGGING_FACE, LIGHTNING, ULTRALYTICS
from stepwatch.run import NO_LEVERS, Levers
from stepwatch.sources import from_text


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


def advised(text: str, levers: Levers | None = None) -> dict[str, Advice]:
    (run,) = read(from_text(text))
    if levers is not None:
        run = replace(run, traits=replace(run.traits, levers=levers))
    found = advice_on_log(analyse(run))
    assert found is not None
    return {advice.rule: advice for advice in found.advice}


def test_evaluations_are_made_rarer_by_the_trainers_own_setting() -> None:
    """40 evaluations of 10 s in 2,000 s of steps: with ten of them 300 s less."""
    advice = advised(mlx_lm())["evaluate_less"]
    assert say(advice.what, "en") == "Evaluate every 400 iterations instead of every 100: --steps-per-eval."
    assert say(advice.because, "en").startswith(
        "Evaluations every 100 iterations take 16.7 % of the run; every 400 iterations they take 4.8 %"
    )
    assert advice.saves_s.holds(300)
    assert advice.saves_s.high - advice.saves_s.low < 10
    assert advice.basis == "measured"
    assert advice.stated == {"--steps-per-eval": (None, 400)}  # the log shows a period, not a setting


def test_batches_are_halved_where_the_trainer_can() -> None:
    found = advised(mlx_lm())
    assert say(found["fewer_eval_batches"].what, "en") == "Evaluate on half as many batches: halve --val-batches."
    assert found["fewer_eval_batches"].saves_s.holds(200)
    assert "fewer_eval_batches" not in advised(mlx_lm(), HUGGING_FACE)


def test_cheap_evaluations_are_left_alone() -> None:
    assert not advised(mlx_lm(eval_s=0.9))


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
    advice = advised(mlx_lm(), levers).get("evaluate_less")
    assert (None if advice is None else say(advice.what, "en")) == words
    if levers.other_units and advice is not None:
        assert advice.stated == {}  # a number of iterations is no value of it


def test_no_two_levers_of_a_trainer_have_the_same_name() -> None:
    for name, reader in READERS.items():
        names = [word for word in reader.traits.levers if isinstance(word, str) and word]
        assert len(names) == len(set(names)), name
        assert not (reader.traits.levers.accumulates and reader.traits.levers.accumulation), name
