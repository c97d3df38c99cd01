from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stepwatch.analysis import analyse
from stepwatch.analysis.comparison import Comparison, compare
from stepwatch.i18n import LANGUAGES
from stepwatch.presenters.bar_charts import compared_parts, compared_steps
from stepwatch.readers import read
from stepwatch.sources import from_text

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.builders import Truth, a_log

BEFORE = Truth(max_iters=2000, eval_interval=500, log_interval=10)


def compared() -> Comparison:
    logs = (BEFORE, replace(BEFORE, step_s=0.2, seed=1))
    before, after = (analyse(read(from_text(a_log(truth)))[0]) for truth in logs)
    return compare(before, after, names=("before.log", "after.log"), limit=None, notes=())


def test_the_spread_of_a_step_is_that_of_the_iterations_not_of_their_mean() -> None:
    c = compared()
    data = compared_steps(c, "en", False).spec["datasets"]["step"]
    for row, a in zip(data, (c.before, c.after), strict=True):
        times = a.run.iterations.time_s[a.phases.normal]
        within = np.mean((times >= row["low"] * 0.99999) & (times <= row["high"] * 1.00001))
        assert 0.88 <= within <= 0.92
        assert row["high"] - row["low"] > a.costs.step_s.high - a.costs.step_s.low
    assert data[1]["mid"] == pytest.approx(2 * data[0]["mid"], rel=0.02)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_parts_of_a_run_are_all_of_its_time(language: str) -> None:
    c = compared()
    plot = compared_parts(c, language, False)
    for code, a in zip(("before", "after"), (c.before, c.after), strict=True):
        drawn = sum(row["s"] for row in plot.spec["datasets"]["parts"] if row["k"] == code)
        assert drawn == pytest.approx(a.goodput.wall_s, rel=1e-3)
    assert all(all(row) for row in plot.rows)
