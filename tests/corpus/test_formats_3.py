"""The real logs of Megatron, torchtitan and DeepSpeed, by the patterns of benchmarks/formats.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import adapter, formats

PLACE = adapter.corpus()
FORMATS = ("megatron", "torchtitan", "deepspeed")
SCORES = [formats.score_of(sample) for sample in formats.samples(PLACE) if sample.kind.name in FORMATS] if PLACE else []
needs_corpus = pytest.mark.skipif(
    PLACE is None, reason="no corpus of real logs: set STEPWATCH_CORPUS, or put it in ../shared/corpus"
)


@needs_corpus
def test_the_logs_are_there() -> None:
    assert {score.kind for score in SCORES} == set(FORMATS)


@needs_corpus
@pytest.mark.parametrize("score", SCORES, ids=lambda score: f"{score.kind}-{score.name}")
def test_a_log_is_read(score: formats.Score) -> None:
    assert score.read >= formats.WANTED_SHARE * score.lines
    assert score.evaluations[0] == score.evaluations[1]
    assert score.checkpoints[0] == score.checkpoints[1]


@needs_corpus
@pytest.mark.parametrize("score", SCORES, ids=lambda score: f"{score.kind}-{score.name}")
def test_its_format_is_found_whole_and_cut_and_by_no_other_reader(score: formats.Score) -> None:
    assert score.taken_for == score.kind
    assert not score.wrong_cuts
    assert not score.mistaken


@needs_corpus
@pytest.mark.parametrize("score", SCORES, ids=lambda score: f"{score.kind}-{score.name}")
def test_its_step_time_is_that_of_the_clock(score: formats.Score) -> None:
    assert score.difference is None or score.difference <= formats.WANTED_DIFFERENCE
