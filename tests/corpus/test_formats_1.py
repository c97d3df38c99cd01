"""Real logs of nanochat, nanoswe, build-nanogpt, modded-nanogpt and llm.c: lines counted by patterns of its own."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import adapter
from tests.corpus.places import MIXED, ONE_OF_MANY, runs_of, source_of

from stepwatch import readers
from stepwatch.readers.formats import reader_of
from stepwatch.run import Run
from stepwatch.sources import Source

PLACE = adapter.corpus()


class Shape(NamedTuple):
    """What a line of each kind looks like at a glance."""

    format: str
    step: str
    evaluation: str = r"(?!)"
    checkpoint: str = r"(?!)"


SHAPES = (
    Shape(
        "nanochat",
        r"^step \S+ \([\d.]+%\).* dt: [\d.]+ms",
        r"^Step \d+ \| Validation bpb",
        r"Saved model .*model_\d+\.pt",
    ),
    Shape("nanoswe", r"^\[[-\d: ]+\] step (\d+) .* dt_ms [\d.]+$", checkpoint=r"saved checkpoint model_"),
    Shape("build-nanogpt", r"^step +\d+ \| .* dt: [\d.]+ms", r"^validation loss: "),
    Shape("modded-nanogpt", r"^step: *\d+/\d+ .*train_time:\d", r"^step: *\d+/\d+ .*val_loss:\d"),
    Shape("llm.c", r"^step +\d+/\d+ \| loss .* tok/s$", r"^val loss ", r"^Writing checkpoint at step"),
)
OWN_DIRECTORIES = ("nanochat", "build-nanogpt", "modded-nanogpt", "llm.c")


def _logs(*directories: str) -> list[Path]:
    return [path for name in directories for path in sorted((PLACE / name).glob("*"))] if PLACE is not None else []


def _counted(source: Source, pattern: str) -> int:
    return len(re.findall(pattern.encode(), source.text, re.MULTILINE))


def _shape_of(source: Source) -> Shape | None:
    counts = {shape: _counted(source, shape.step) for shape in SHAPES}
    best = max(counts, key=lambda shape: counts[shape])
    return best if counts[best] else None


OWN = _logs(*OWN_DIRECTORIES)
NAMES = [place.name for place in PLACE.iterdir() if place.is_dir() and place.name not in MIXED] if PLACE else []
OTHERS = [path for path in _logs(*NAMES) if path not in OWN and path.name not in ONE_OF_MANY] if PLACE else []
TIMED = [path for path in OWN if _shape_of(source_of(path)) is not None]
pytestmark = pytest.mark.skipif(
    PLACE is None, reason="no corpus of real logs: set STEPWATCH_CORPUS, or put it in ../shared/corpus"
)


def _runs(path: Path) -> tuple[Source, Shape, tuple[Run, ...]]:
    source = source_of(path)
    shape = _shape_of(source)
    assert shape is not None
    return source, shape, runs_of(path)


@pytest.mark.parametrize("path", TIMED, ids=lambda path: path.name)
def test_nearly_all_steps_are_read(path: Path) -> None:
    source, shape, runs = _runs(path)
    assert {run.format for run in runs} == {shape.format}
    counted = _counted(source, shape.step)
    if shape.format == "modded-nanogpt":  # validation repeats a step, and the first line of a cut log has no beginning
        numbers = {int(n) for n in re.findall(rb"^step: *(\d+)/\d+ .*train_time:", source.text, re.MULTILINE)} - {0}
        counted = len(numbers) - (min(numbers) > 125)
    assert sum(len(run.iterations) for run in runs) >= 0.995 * counted


@pytest.mark.parametrize("path", TIMED, ids=lambda path: path.name)
def test_evaluations_and_checkpoints_are_found(path: Path) -> None:
    source, shape, runs = _runs(path)
    text = source.text.split(b"\nStep 00000 | Validation loss:")[0]  # what follows is a stage without times
    assert sum(len(run.evaluations) for run in runs) == len(re.findall(shape.evaluation.encode(), text, re.MULTILINE))
    assert sum(len(run.checkpoints) for run in runs) == len(re.findall(shape.checkpoint.encode(), text, re.MULTILINE))


@pytest.mark.parametrize("path", [p for p in TIMED if "nanosweb" in p.name], ids=lambda path: path.name)
def test_step_time_agrees_with_the_clock(path: Path) -> None:
    (run,) = runs_of(path)
    between = np.diff(run.iterations.stamp_s)
    blocks = len(between) // 50  # the clock tells seconds
    by_clock = between[: blocks * 50].reshape(blocks, 50).mean(axis=1)
    printed = run.iterations.time_s[1 : 1 + blocks * 50].reshape(blocks, 50).mean(axis=1)
    assert float(np.median(np.abs(printed / by_clock - 1))) <= 0.01


@pytest.mark.parametrize("path", [p for p in TIMED if "KellerJordan" in p.name], ids=lambda path: path.name)
def test_times_add_up_to_the_running_total(path: Path) -> None:
    source = source_of(path)
    (run,) = runs_of(path)
    shown = re.findall(rb"^step:\d+/\d+ .*?train_time:([\d.]+)(ms|s) ", source.text, re.MULTILINE)
    clock = np.array([float(value) / (1000 if unit == b"ms" else 1) for value, unit in shown])
    steps = np.diff(clock)
    total = float(np.where(steps < 0, clock[1:], steps).sum())
    covered = np.diff(run.iterations.number, prepend=run.iterations.number[0] - run.settings.count("log_interval"))
    assert float((run.iterations.time_s * covered).sum()) == pytest.approx(total, rel=0.01)


@pytest.mark.parametrize("path", TIMED, ids=lambda path: path.name)
def test_any_200_lines_tell_the_format(path: Path) -> None:
    source, shape, _ = _runs(path)
    lines = source.text.split(b"\n")
    draw = random.Random(path.name)
    for begin in draw.sample(range(max(len(lines) - 200, 1)), min(12, max(len(lines) - 200, 1))):
        part = Source("part", b"\n".join(lines[begin : begin + 200]))
        if _counted(part, shape.step):
            assert readers.detect(part) == shape.format


def test_no_line_of_another_trainer_is_taken() -> None:
    for path in filter(Path.is_file, OTHERS):
        text = source_of(path).text
        taken = [shape.format for shape in SHAPES if reader_of(shape.format).sniff(text)]
        assert not taken, (path, taken)
