"""Advice on waiting for data in the words of the trainer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.recorded import a_record

from stepwatch.advice import Advice, advice_on_log
from stepwatch.analysis import analyse
from stepwatch.i18n import say
from stepwatch.readers import read
from stepwatch.readers.levers import HUGGING_FACE, ULTRALYTICS
from stepwatch.run import NO_LEVERS, Levers
from stepwatch.sources import from_text


def fed(levers: Levers, steps: int = 2000) -> Advice | None:
    planted = {"steps": steps, "step_s": 1.0, "data_s": 0.4, "eval_interval": None, "settings": {"max_iters": 1999}}
    (run,) = read(from_text(a_record(**planted).text))
    found = advice_on_log(analyse(replace(run, traits=replace(run.traits, levers=levers))))
    assert found is not None
    return next((advice for advice in found.advice if advice.rule == "feed_faster"), None)


@pytest.mark.parametrize(
    ("levers", "names"),
    [
        (HUGGING_FACE, ("dataloader_num_workers", "dataloader_prefetch_factor")),
        (ULTRALYTICS, ("workers", "cache=True")),
    ],
)
def test_the_settings_of_the_loader_are_named(levers: Levers, names: tuple[str, ...]) -> None:
    advice = fed(levers)
    assert advice is not None
    said = say(advice.what, "en")
    assert all(name in said for name in names)
    assert advice.patch is None
    assert advice.stated == {}  # how many there are now is not known


def test_a_loop_of_ones_own_gets_the_lines_of_a_loader() -> None:
    advice = fed(NO_LEVERS)
    assert advice is not None
    assert advice.patch is not None
    assert "num_workers" in advice.patch


def test_one_row_shows_too_little_for_a_saving() -> None:
    assert fed(NO_LEVERS, steps=2) is None
    assert fed(NO_LEVERS, steps=40) is not None


def test_the_advice_speaks_of_the_total_of_the_run_where_evaluations_are_uneven() -> None:
    costs = iter([3000, 2900, 3000, 3100, 4400, 4500])
    rows = "".join(
        (f"step {n}: train loss 3.0, val loss 3.0\n" if n % 50 == 0 else "")
        + f"iter {n}: loss 3.0, time {100 + (next(costs) if n % 50 == 0 else 0)}.00ms, mfu 12.00%\n"
        for n in range(11, 349)
    )
    a = analyse(read(from_text(rows))[0])
    found = advice_on_log(a)
    assert found is not None
    assert found.before.total_s.mid == pytest.approx(a.goodput.wall_s, rel=0.01)
