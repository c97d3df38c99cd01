"""Composer, MLX-LM, Keras, TensorBoard and W&B, as real runs wrote them; counted by patterns of their own."""

from __future__ import annotations

import random
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import adapter
from tests.corpus.places import MIXED, ONE_OF_MANY, format_of, runs_of, source_of

from stepwatch.analysis import analyse
from stepwatch.readers import detect, read
from stepwatch.run import Run
from stepwatch.sources import Source, from_file, normalise

PLACE = adapter.corpus()
FORMATS = ("composer", "mlx-lm", "keras", "tensorboard")
LINES = {
    "composer": rb"Train throughput/batches_per_sec: \d",
    "mlx-lm": rb"Iter \d+: Train loss",
    "keras": rb"(?m)^ *(\d+)/\1 [^\n]*step[^\n]*loss",
}
needs_corpus = pytest.mark.skipif(
    PLACE is None, reason="no corpus of real logs: set STEPWATCH_CORPUS, or put it in ../shared/corpus"
)


def logs(*names: str) -> list[Path]:
    return [] if PLACE is None else [path for name in names for path in sorted((PLACE / name).iterdir())]


def ours() -> list[Path]:
    return logs(*FORMATS)


def others() -> list[Path]:
    if PLACE is None:
        return []
    apart = {*FORMATS, *MIXED, "wandb"}
    names = sorted(place.name for place in PLACE.iterdir() if place.is_dir() and place.name not in apart)
    return [path for path in logs(*names) if path.name not in ONE_OF_MANY]


def rows(runs: tuple[Run, ...]) -> int:
    return sum(len(run.iterations) for run in runs)


@needs_corpus
@pytest.mark.parametrize("path", ours(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_each_is_found_and_explained(path: Path) -> None:
    assert format_of(path) == path.parent.name
    for run in runs_of(path):
        assert np.isfinite(run.iterations.time_s).all()
        assert (run.iterations.time_s > 0).all()
        analyse(run)


@needs_corpus
@pytest.mark.parametrize("path", logs(*LINES), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_nearly_all_iteration_lines_are_read(path: Path) -> None:
    source = source_of(path)
    counted = len(re.findall(LINES[path.parent.name], source.text))
    assert counted > 0
    assert rows(runs_of(path)) >= 0.995 * counted


@needs_corpus
@pytest.mark.parametrize("path", logs("mlx-lm", "keras"), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_evaluations_and_checkpoints_are_found(path: Path) -> None:
    source = source_of(path)
    runs = runs_of(path)
    evaluated = len(re.findall(rb"Val loss|(?m:^ *(\d+)/\1 [^\n]* val_loss: )", source.text))
    assert sum(len(run.evaluations) for run in runs) == evaluated
    assert sum(len(run.checkpoints) for run in runs) == len(re.findall(rb"Saved adapter|saving model to", source.text))


@needs_corpus
def test_no_log_of_another_trainer_is_taken() -> None:
    for path in others():
        assert format_of(path) not in {*FORMATS, "mingpt", "wandb"}, path


@needs_corpus
@pytest.mark.parametrize("path", logs(*LINES), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_two_hundred_lines_of_the_middle_are_known(path: Path) -> None:
    lines = source_of(path).text.splitlines(keepends=True)
    rng = random.Random(7)
    for _ in range(20):
        begin = rng.randrange(max(len(lines) - 200, 1))
        part = b"".join(lines[begin : begin + 200])
        if re.search(LINES[path.parent.name], part):
            assert detect(Source("part", part)) == path.parent.name


@needs_corpus
@pytest.mark.parametrize("path", logs("tensorboard"), ids=lambda path: path.name)
def test_an_event_file_cut_anywhere_is_read_as_far_as_it_goes(path: Path) -> None:
    data = path.read_bytes()
    whole = rows(read(Source("x", normalise(data))))
    for share in (0.5, 0.8, 0.95):
        if whole > 10:
            part = rows(read(Source("x", data[: int(share * len(data))])))
            assert part == pytest.approx(share * whole, rel=0.25)


@needs_corpus
@pytest.mark.parametrize("path", logs("tensorboard"), ids=lambda path: path.name)
def test_times_of_event_files_add_up_to_the_runtime_that_is_told(path: Path) -> None:
    """Hugging Face logs the runtime of the whole: the steps, the first one and the saves make it up."""
    from stepwatch.readers.formats.event_files import decode

    scalars, _, _, _ = decode(path.read_bytes())
    runtime = float(scalars.value[scalars.tag == scalars.tags.index("train/train_runtime")][0])
    (run,) = runs_of(path)
    assert sum(analyse(run).goodput.parts_s.values()) == pytest.approx(runtime, rel=0.02)


@needs_corpus
def test_a_wandb_directory_is_read_whole(tmp_path: Path) -> None:
    assert PLACE is not None
    files = tmp_path / "run" / "files"
    files.mkdir(parents=True)
    names = ("01_jackokeefe11.log", "02_jackokeefe11.json", "03_jackokeefe11.json", "04_jackokeefe11.yaml")
    for name, plain in zip(
        names, ("output.log", "wandb-summary.json", "wandb-metadata.json", "config.yaml"), strict=True
    ):
        shutil.copy(PLACE / "wandb" / name, files / plain)
    (run,) = read(from_file(tmp_path / "run"))
    assert (run.format, len(run.iterations), len(run.evaluations)) == ("nanogpt", 501, 21)
    assert run.gpu_text == "NVIDIA GeForce RTX 2080 Ti"
    assert run.settings.count("max_iters") == 5000
    assert sum(analyse(run).goodput.parts_s.values()) == pytest.approx(576, rel=0.02)  # _runtime of the summary
