"""`--like` with a line of each real log, against what the reader of its own format says."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import adapter
from tests.corpus.places import all_logs, format_of, runs_of, source_of

from stepwatch.analysis import analyse
from stepwatch.errors import StepwatchError
from stepwatch.readers import read
from stepwatch.run import Run

PLACE = adapter.corpus()
LARGEST_BYTES = 30_000_000
MOST_OF_A_FORMAT = 5  # most of the corpus is nanoGPT's
pytestmark = pytest.mark.skipif(
    PLACE is None, reason="no corpus of real logs: set STEPWATCH_CORPUS, or put it in ../shared/corpus"
)


class Figures(NamedTuple):
    iterations: int
    last: int
    step_s: float
    total_s: float

    @classmethod
    def of(cls, runs: tuple[Run, ...], line: int) -> Figures | None:
        """Of the run that the line belongs to."""
        for run in runs:
            if line in run.iterations.line:
                found = analyse(run)
                step_s = found.costs.step_s.mid if found.costs.step_s is not None else 0.0
                return cls(len(run.iterations), int(run.iterations.number.max()), step_s, found.goodput.wall_s)
        return None

    def near(self, other: Figures) -> bool:
        """Numbers may be counted from 0 or from 1."""
        within = (abs(a - b) <= 0.02 * b for a, b in zip(self, other, strict=True))
        return abs(self.last - other.last) <= 1 and all(within)


class Answer(NamedTuple):
    name: str
    format: str
    own: Figures
    like: Figures | None
    """None where the example was refused, or its line not read."""


@cache
def answers() -> tuple[Answer, ...]:
    assert PLACE is not None
    found = []
    for path in all_logs(PLACE):
        if path.suffix in (".tsv", ".bin", ".tfevents", ".wandb", ".ipynb") or path.stat().st_size > LARGEST_BYTES:
            continue
        source = source_of(path)
        try:
            runs = runs_of(path) if format_of(path) else ()
        except StepwatchError:
            continue
        run = max(runs, key=lambda run: len(run.iterations), default=None)
        lines = source.text.split(b"\n")
        if run is None or sum(answer.format == run.format for answer in found) == MOST_OF_A_FORMAT:
            continue
        if len(run.iterations) < 8 or run.iterations.line.max() >= len(lines):
            continue
        line = int(run.iterations.line[len(run.iterations) // 2])
        own = Figures.of(runs, line)
        if own is None:
            continue
        try:
            like = Figures.of(read(source, like=lines[line].decode("utf-8", "replace")), line)
        except StepwatchError:
            like = None
        found.append(Answer(f"{path.parent.name}/{path.name}", run.format, own, like))
    return tuple(found)


def share(answers: list[bool]) -> float:
    return sum(answers) / len(answers)


def test_most_examples_give_the_figures_of_the_log_s_own_reader() -> None:
    both = [(answer.like, answer.own) for answer in answers() if answer.like is not None]
    assert share([like.near(own) for like, own in both]) >= 0.6
    assert share([abs(like.step_s - own.step_s) <= 0.02 * own.step_s for like, own in both]) >= 0.8
    right = [answer for answer in answers() if answer.like is not None and answer.like.near(answer.own)]
    assert len(right) >= 25
    assert len({answer.format for answer in right}) >= 15


def test_no_example_gives_nonsense() -> None:
    """A wrong column or a wrong unit is a factor of two at least; a mean instead of a middle time is not."""
    wrong = [
        answer for answer in answers() if answer.like and not 0.7 <= answer.like.step_s / answer.own.step_s <= 1 / 0.7
    ]
    assert wrong == []
