"""When a run that goes on ends, by the clock."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.builders import Truth, a_log

import stepwatch

NOW_S = 1.8e9


@pytest.mark.parametrize(("written_ago_s", "known"), [(10.0, True), (3e6, False)])
def test_the_end_by_the_clock_is_never_in_the_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written_ago_s: float, known: bool
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(int(NOW_S)))
    log = tmp_path / "train.log"
    log.write_text(a_log(Truth(header=False)))
    os.utime(log, (NOW_S - written_ago_s,) * 2)
    (run,) = stepwatch.explain(str(log), settings={"max_iters": 100_000}).runs
    assert (run.ends_s is not None) is known
    assert run.ends_s is None or run.ends_s.mid > NOW_S


def test_a_clock_that_is_no_number_is_left_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    log = tmp_path / "train.log"
    log.write_text(a_log(Truth()))
    assert stepwatch.explain(str(log)).runs
