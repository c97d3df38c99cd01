"""The real logs: each is answered, and what docs/accuracy.md says of them holds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import adapter, cut_runs, phases, walltime

PLACE = adapter.corpus()
needs_corpus = pytest.mark.skipif(
    PLACE is None, reason="no corpus of real logs: set STEPWATCH_CORPUS, or put it in ../shared/corpus"
)


@pytest.fixture(scope="module")
def place() -> Path:
    assert PLACE is not None
    return PLACE


@pytest.fixture(scope="module")
def phase_scores(place: Path) -> phases.Phases:
    return phases.measure(place)


@pytest.fixture(scope="module")
def wall_times(place: Path) -> walltime.WallTimes:
    return walltime.measure(place)


@pytest.fixture(scope="module")
def forecasts(place: Path) -> cut_runs.CutRuns:
    return cut_runs.measure(place)


@needs_corpus
def test_every_log_is_answered(phase_scores: phases.Phases) -> None:
    assert [log.failure for log in phase_scores.logs if log.failure is not None] == []
    assert len(phase_scores.logs) > 50


@needs_corpus
@pytest.mark.parametrize("phase", phases.PHASES)
def test_phases_agree_with_the_lines(phase_scores: phases.Phases, phase: str) -> None:
    score = phase_scores.total(phase)
    if phase == "checkpoint" and score.n == 0:
        assert score.fp == 0, "the corpus has no iteration that only saved a checkpoint"
        return
    assert (score.f1 or 0.0) >= 0.99, phases.table(phase_scores)


@needs_corpus
def test_visible_evaluations_are_found_without_their_lines(phase_scores: phases.Phases) -> None:
    assert (phase_scores.blind().f1 or 0.0) >= 0.97, phases.table(phase_scores)


@needs_corpus
def test_wall_time_is_near_the_measured_one(wall_times: walltime.WallTimes) -> None:
    count = len(wall_times.runs)
    assert wall_times.within(0.02) >= 13 / 21 * count, walltime.table(wall_times)
    assert wall_times.within(0.05) >= 17 / 21 * count, walltime.table(wall_times)


@needs_corpus
def test_wall_time_intervals_cover_and_are_narrow(wall_times: walltime.WallTimes) -> None:
    assert wall_times.covered() >= 17 / 21 * len(wall_times.runs), walltime.table(wall_times)
    assert wall_times.width() <= 1.1, walltime.table(wall_times)


@needs_corpus
@pytest.mark.parametrize("variant", ["with_header", "without_header"])
def test_cut_runs_are_forecast(forecasts: cut_runs.CutRuns, variant: str) -> None:
    result: cut_runs.Forecasts = getattr(forecasts, variant)
    assert result.error() <= 0.03, cut_runs.table(forecasts)
    assert result.covered() >= 0.8, cut_runs.table(forecasts)
    assert result.width() <= 1.25, cut_runs.table(forecasts)
