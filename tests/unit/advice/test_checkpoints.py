"""Advice on checkpoints of trainers that save at an interval of their own."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.recorded import a_record

from stepwatch.advice import AdviceList, advice_on_log
from stepwatch.analysis import analyse
from stepwatch.i18n import say
from stepwatch.readers import read
from stepwatch.readers.levers import HUGGING_FACE, MMENGINE, ULTRALYTICS
from stepwatch.run import Levers
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
