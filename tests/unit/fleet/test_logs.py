"""Which files are one log, by their names alone; and that the listing sees what changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stepwatch.errors import InputError
from stepwatch.fleet.logs import MOST_PIECES, File, find_logs, logs_among


def together(*paths: str) -> dict[str, tuple[str, list[str]]]:
    found = logs_among(File(path, 1, "tag") for path in paths)
    return {log.name: (log.kind, sorted(file.path for file in log.files)) for log in found}


def test_pieces_samples_and_ranks_are_read_with_their_log() -> None:
    pieces = ["/a/train.log", "/a/train.log.1", "/a/train.log.2.gz"]
    ranks = ["/a/run.jsonl", "/a/run.rank1.jsonl", "/a/run.samples.csv"]
    assert together(*pieces, *ranks) == {"/a/train.log": ("files", pieces), "/a/run.jsonl": ("files", ranks)}


def test_many_numbered_files_are_logs_of_their_own() -> None:
    names = [f"/a/run.{number}.log" for number in range(MOST_PIECES + 1)]
    assert set(together(*names)) == set(names)


def test_directories_that_are_one_run_are_one_log() -> None:
    wandb = ["/a/run-1/files/output.log", "/a/run-1/files/wandb-metadata.json", "/a/run-1/run-1.wandb"]
    mlflow = ["/a/ml/meta.yaml", "/a/ml/metrics/loss", "/a/ml/params/lr"]
    events = ["/a/tb/events.out.tfevents.17.x", "/a/tb/train/events.out.tfevents.18.x"]
    recorded = ["/a/rec/environment.json", "/a/rec/samples.csv", "/a/rec/train.log"]
    beside = ["/a/run-1/files/media/image.txt", "/a/ml/artifacts/model.txt", "/a/rec/notes.txt", "/a/tb/other/x.log"]
    assert together(*wandb, *mlflow, *events, *recorded, *beside) == {
        "/a/run-1": ("directory", wandb),
        "/a/ml": ("directory", mlflow),
        "/a/tb": ("directory", events),
        "/a/rec": ("directory", recorded),
        "/a/tb/other/x.log": ("files", ["/a/tb/other/x.log"]),
    }


def test_checkpoints_source_and_parquet_are_never_fetched() -> None:
    assert together("/a/ckpt.pt", "/a/train.py", "/a/part.parquet", "/a/model.safetensors", "/a/.hidden") == {}
    assert together("/a/logs.tar.gz", "/a/project.db") == {
        "/a/logs.tar.gz": ("archive", ["/a/logs.tar.gz"]),
        "/a/project.db": ("files", ["/a/project.db"]),
    }


def test_a_fingerprint_changes_with_the_file_and_with_nothing_else(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("iter 0\n")
    (first,) = find_logs([str(tmp_path)])
    assert find_logs([str(tmp_path / "*.log"), str(log)]) == [first]
    with log.open("a") as file:
        file.write("iter 1\n")
    (grown,) = find_logs([str(tmp_path)])
    assert grown.fingerprint != first.fingerprint
    os.utime(log, (1, 1))
    assert find_logs([str(tmp_path)])[0].fingerprint != grown.fingerprint


def test_a_link_in_a_circle_ends(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("x")
    (tmp_path / "again").symlink_to(tmp_path)
    (tmp_path / "nowhere.log").symlink_to(tmp_path / "gone")
    assert [os.path.basename(log.name) for log in find_logs([str(tmp_path)])] == ["train.log"]


@pytest.mark.parametrize("place", ["nowhere", "nothing/*.log", "strange://x/y"])
def test_a_place_that_is_not_there_is_one_clear_error(place: str) -> None:
    with pytest.raises(InputError):
        find_logs([place])


@pytest.mark.parametrize(
    ("place", "variable"),
    [
        ("s3://me:secret@bucket/runs", "AWS_SECRET_ACCESS_KEY=…"),
        ("sftp://me:secret@host/runs", "FSSPEC_SFTP_PASSWORD=…"),
    ],
)
def test_a_password_in_an_address_is_refused_with_the_variable_for_it(place: str, variable: str) -> None:
    with pytest.raises(InputError) as error:
        find_logs([place])
    assert error.value.remedy is not None
    assert variable in str(error.value.remedy.params["example"])
