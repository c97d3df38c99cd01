"""Waiting for data: what was planted in a record or in a trainer's log is found as a cost and as a part of the time."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from tests.recorded import a_record

from stepwatch.advice import advice_on_log
from stepwatch.analysis import Analysis, analyse
from stepwatch.presenters import render
from stepwatch.readers import read
from stepwatch.report import Report, RunReport
from stepwatch.sources import from_text
from stepwatch.verdict import Status, judge


def recorded(**planted: Any) -> Analysis:
    (run,) = read(from_text(a_record(**{"noise": 0.0, "compile_s": None, "between_s": 0.0, **planted}).text))
    return analyse(run)


def detectron2(data_s: float, *, lines: int = 40, step_s: float = 0.5) -> str:
    text = ""
    for number in range(1, lines + 1):
        minutes, seconds = divmod(int(20 * number * step_s), 60)
        text += (
            f"[11/16 09:{minutes:02d}:{seconds:02d}] d2.utils.events INFO:  eta: 0:10:00  iter: {20 * number - 1}  "
            f"total_loss: 1.234  time: {step_s:.4f}  last_time: {step_s:.4f}  "
            f"data_time: {data_s:.4f}  last_data_time: {data_s:.4f}  lr: 0.00025  max_mem: 5123M\n"
        )
    return text


def judged(a: Analysis) -> tuple[Status, tuple[str, ...]]:
    verdict = judge(a, advice_on_log(a))
    return verdict.status, verdict.because


def test_the_planted_wait_is_a_cost_and_a_part() -> None:
    a = recorded(steps=200, data_s=lambda number: 0.04 if number % 2 else 0.08)
    assert a.costs.data_s is not None
    assert a.costs.data_s.holds(0.06)
    assert a.costs.data_s.high - a.costs.data_s.low < 0.01
    assert a.costs.how["data_s"] == "measured"
    assert a.costs.step_s.mid == pytest.approx(0.2)  # as it is printed, with the waiting in it
    assert a.goodput.parts_s["data"] == pytest.approx(200 * 0.06, rel=0.01)
    assert a.goodput.parts_s["step"] == pytest.approx(200 * 0.14, rel=0.01)
    assert a.goodput.steps_s == pytest.approx(200 * 0.2, rel=0.001)
    assert a.split.column_s("data")[2] == pytest.approx(0.08)


def test_a_log_without_waiting_has_no_such_part() -> None:
    a = recorded()
    assert a.costs.data_s is None
    assert "data" not in a.goodput.parts_s
    assert not a.split.column_s("data").any()


def test_a_single_row_is_known_within_a_factor_of_two_at_most() -> None:
    a = recorded(steps=2, data_s=0.05)
    assert a.costs.data_s is not None
    assert (a.costs.data_s.low, a.costs.data_s.high) == (0.0, 0.1)


def test_the_start_of_the_loader_is_no_usual_wait() -> None:
    a = recorded(steps=50, step_s=lambda n: 5.2 if n == 0 else 0.2, data_s=lambda n: 5.0 if n == 0 else 0.02)
    assert a.goodput.parts_s["data"] == pytest.approx(50 * 0.02)
    assert a.goodput.parts_s["compile"] == pytest.approx(5.0, rel=0.01)


def test_late_data_are_waiting_and_no_stall() -> None:
    late = {30, 50, 70}
    a = recorded(steps=100, step_s=lambda n: 2.2 if n in late else 0.2, data_s=lambda n: 2.01 if n in late else 0.01)
    assert a.goodput.parts_s["data"] == pytest.approx(3 * 2.0 + 100 * 0.01, rel=0.01)
    assert a.goodput.parts_s["stall"] == pytest.approx(0.0, abs=1e-6)
    assert judged(a) == (Status.STALLING, ("late_data",))
    (stalled,) = {advice.rule for advice in advice_on_log(a).advice} & {"find_stalls"} or {None}  # type: ignore[union-attr]
    assert stalled is None  # nothing is left that is not known


def test_a_machine_asleep_while_it_loads_does_not_wait_for_data() -> None:
    a = recorded(steps=100, step_s=lambda n: 4000.0 if n == 50 else 0.2, data_s=lambda n: 3999.8 if n == 50 else 0.01)
    assert a.goodput.parts_s["data"] == pytest.approx(100 * 0.01)
    assert a.goodput.parts_s["stall"] == pytest.approx(3999.8, rel=0.001)
    assert judged(a)[0] is Status.ASLEEP


def test_a_trainer_that_prints_it_tells_the_same() -> None:
    (run,) = read(from_text(detectron2(0.2)))
    a = analyse(run)
    assert a.costs.data_s is not None
    assert a.costs.data_s.mid == pytest.approx(0.2)
    assert a.goodput.parts_s["data"] / a.goodput.steps_s == pytest.approx(0.4, rel=0.01)
    assert sum(a.goodput.parts_s.values()) == pytest.approx(a.goodput.wall_s)


@pytest.mark.parametrize(("share", "status"), [(0.05, Status.HEALTHY), (0.09, Status.HEALTHY), (0.11, Status.OVERHEAD)])
def test_the_verdict_names_a_wait_of_more_than_a_tenth(share: float, status: Status) -> None:
    found = judged(recorded(steps=400, eval_interval=None, data_s=0.2 * share))
    assert found[0] is status
    assert ("data_wait" in found[1]) == (status is Status.OVERHEAD)


def test_the_verdict_names_what_costs_more() -> None:
    """Evaluations of 40 s every 20 steps of 0.2 s cost more than the data do."""
    a = recorded(steps=400, data_s=0.08, eval_s=40.0)
    assert judged(a)[0] is Status.OVERHEAD
    assert "data_wait" not in judged(a)[1]


def test_advice_saves_no_more_than_the_steps_wait() -> None:
    a = recorded(steps=2000, eval_interval=None, data_s=0.08, settings={"max_iters": 2000})
    advised = advice_on_log(a)
    assert advised is not None
    (feed,) = (advice for advice in advised.advice if advice.rule == "feed_faster")
    assert 0 < feed.saves_s.low < feed.saves_s.mid < 2000 * 0.08
    assert feed.saves_s.high == pytest.approx(2000 * 0.08, rel=0.001)


def test_every_form_shows_it() -> None:
    a = recorded(steps=400, eval_interval=None, data_s=0.08)
    report = Report(runs=(RunReport(analysis=a, advice=advice_on_log(a), verdict=judge(a, advice_on_log(a))),))
    for form in ("terminal", "md", "html"):
        assert "Waiting for data" in render(report, form, "en")
    found = json.loads(render(report, "json", "en"))["runs"][0]
    assert found["costs"]["data_s"]["mid"] == pytest.approx(0.08)
    assert found["goodput"]["parts_s"]["data"] == pytest.approx(400 * 0.08, rel=0.01)
    parts = [row["parts"] for row in found["iterations"]]
    assert {round(row["data"], 9) for row in parts} == {0.08}
    np.testing.assert_allclose([math.fsum(row.values()) for row in parts], a.run.iterations.time_s)
