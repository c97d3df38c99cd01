"""The answer for many runs."""

from __future__ import annotations

import pytest

from stepwatch.fleet_report import Change, FleetReport
from stepwatch.messages import Message
from stepwatch.presenters import render
from stepwatch.units import Interval


@pytest.mark.parametrize(("runs", "counted"), [(1, "(1 run)."), (2, "(2 runs).")])
def test_the_runs_that_a_change_is_for_are_counted(runs: int, counted: str) -> None:
    change = Change("log_less", Message("Log less."), runs, Interval(1.0, 2.0, 3.0))
    report = FleetReport(runs=5, logs=5, hours=9.0, asked={}, statuses={}, job_count=5, changes=(change,))
    assert counted in str(render(report, "md", "en"))
