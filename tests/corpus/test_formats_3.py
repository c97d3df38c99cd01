"""The real logs of Megatron, torchtitan and DeepSpeed, by the patterns of benchmarks/formats.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import adapter, formats

PLACE = adapter.corpus()
FORMATS = ("megatron", "torchtitan", "deepspeed")
needs_corpus = pytest.mark.skipif(
    PLACE is None, reason="no corpus of real logs: set STEPWATCH_CORPUS, or put it in ../shared/corpus"
)


@pytest.fixture(scope="module")
def scores() -> dict[str, list[formats.Score]]:
    assert PLACE is not None
    found: dict[str, list[formats.Score]] = {name: [] for name in FORMATS}
    for sample in formats.samples(PLACE, FORMATS):
        found[sample.kind.name].append(formats.score_of(sample))
    return found


@needs_corpus
@pytest.mark.parametrize("name", FORMATS)
def test_its_logs_are_there_and_read(scores: dict[str, list[formats.Score]], name: str) -> None:
    assert scores[name]
    for score in scores[name]:
        assert score.read >= formats.WANTED_SHARE * score.lines, score.name
        assert score.evaluations[0] == score.evaluations[1], score.name
        assert score.checkpoints[0] == score.checkpoints[1], score.name


@needs_corpus
@pytest.mark.parametrize("name", FORMATS)
def test_it_is_found_whole_and_cut_and_by_no_other_reader(scores: dict[str, list[formats.Score]], name: str) -> None:
    for score in scores[name]:
        assert score.taken_for == name, score.name
        assert not score.wrong_cuts, score.name
        assert not score.mistaken, score.name


@needs_corpus
@pytest.mark.parametrize("name", FORMATS)
def test_its_step_time_is_that_of_the_clock(scores: dict[str, list[formats.Score]], name: str) -> None:
    for score in scores[name]:
        assert score.difference is None or score.difference <= formats.WANTED_DIFFERENCE, score.name
