"""W&B run directories: the trainer's own output, completed by the files beside it, and nothing private."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepwatch.analysis import analyse
from stepwatch.errors import NoIterations, StepwatchError
from stepwatch.readers import read
from stepwatch.run import Timing
from stepwatch.sources import from_file, from_text

LOG = "".join(f"iter {n}: loss 4.2000, time {100 + n % 3:.2f}ms, mfu 5.00%\n" for n in range(0, 300, 10))
CONFIG = """\
wandb_version: 1

_wandb:
  desc: null
  value: {python_version: 3.9.18}
batch_size:
  desc: null
  value: 64
block_size:
  value: 256
max_iters: {desc: null, value: 5000}
out_dir: {value: /home/someone/out}
dtype: {value: bfloat16}
"""
METADATA = {
    "host": "node7", "username": "someone", "email": "someone@example.org", "args": ["--key", "secret"],
    "program": "/home/someone/train.py", "gpu": "NVIDIA GeForce RTX 4090", "gpu_count": 1,
    "gpu_devices": [{"name": "NVIDIA GeForce RTX 4090", "memory_total": 25757220864}],
}  # fmt: skip
SUMMARY = {
    "_step": 153, "_runtime": 6483.7, "_timestamp": 1.73e9, "train/global_step": 20000, "train_runtime": 5000.0,
    "eval/loss": 1.36, "eval/runtime": 13.6, "_wandb": {"runtime": 6484},
}  # fmt: skip


def a_run(folder: Path, output: str | None = LOG, *, config: str | None = CONFIG, metadata: str | None = None) -> Path:
    files = folder / "run-20240215-abc" / "files"
    files.mkdir(parents=True)
    texts = {
        "output.log": output, "config.yaml": config, "wandb-summary.json": json.dumps(SUMMARY),
        "wandb-metadata.json": metadata if metadata is not None else json.dumps(METADATA),
    }  # fmt: skip
    for name, text in texts.items():
        if text is not None:
            (files / name).write_text(text, encoding="utf-8")
    return files.parent


@pytest.mark.parametrize("inner", [False, True])
def test_a_run_directory_is_its_output_with_settings_and_card(tmp_path: Path, inner: bool) -> None:
    path = a_run(tmp_path)
    (run,) = read(from_file(path / "files" if inner else path))
    assert (run.format, len(run.iterations), run.gpu_text) == ("nanogpt", 30, "NVIDIA GeForce RTX 4090")
    told = {name: setting.value for name, setting in run.settings.items()}
    assert told == {
        "batch_size": 64, "block_size": 256, "max_iters": 5000, "dtype": "bfloat16", "log_interval": 10,
        "world_size": 1,
    }  # fmt: skip


def test_nothing_private_is_kept(tmp_path: Path) -> None:
    said = repr(read(from_file(a_run(tmp_path))))
    assert not any(word in said for word in ("someone", "node7", "secret", "example.org"))


def test_what_the_log_says_wins_over_the_configuration(tmp_path: Path) -> None:
    (run,) = read(from_file(a_run(tmp_path, "batch_size = 12\n" + LOG)))
    assert run.settings.count("batch_size") == 12


def test_of_several_cards_no_count_of_processes_is_made(tmp_path: Path) -> None:
    metadata = json.dumps({"gpu_nvidia": [{"name": "NVIDIA A100-SXM4-80GB"}] * 3, "gpu_count": 3})
    (run,) = read(from_file(a_run(tmp_path, metadata=metadata)))
    assert run.gpu_text == "NVIDIA A100-SXM4-80GB"
    assert "world_size" not in run.settings


@pytest.mark.parametrize("output", [None, "", "warnings only\n"])
def test_where_the_output_is_silent_the_summary_gives_the_mean(tmp_path: Path, output: str | None) -> None:
    (run,) = read(from_file(a_run(tmp_path, output)))
    assert (run.format, run.iterations.number.tolist(), run.iterations.time_s.tolist()) == ("wandb", [20000], [0.25])
    assert [(e.val_loss, e.took_s) for e in run.evaluations] == [(1.36, 13.6)]
    assert run.gpu_text == "NVIDIA GeForce RTX 4090"


def test_a_summary_alone_is_answered() -> None:
    (run,) = read(from_text(json.dumps(SUMMARY)))
    assert run.format == "wandb"


def test_a_summary_is_about_all_steps_of_its_run() -> None:
    analysis = analyse(read(from_text(json.dumps(SUMMARY)))[0])
    assert analysis.run.timing is Timing.SPANS_RUN
    assert (analysis.goodput.iterations, analysis.goodput.wall_s) == (20000, pytest.approx(5000))
    assert analysis.run.settings.count("max_iters") == 20000  # the runtime is written at the end


def test_a_run_that_may_go_on_has_no_end() -> None:
    (run,) = read(from_text('{"_runtime": 500.0, "_step": 3, "global_step": 1000}'))
    assert run.settings.count("max_iters") is None


@pytest.mark.parametrize("name", ["update_step", "train/optimizer_steps", "train_iter", "trainer.step"])
def test_other_names_of_the_step(name: str) -> None:
    (run,) = read(from_text(json.dumps({"_runtime": 500.0, "_step": 3, "train_loss_step": 2.0, name: 1000})))
    assert run.iterations.number.tolist() == [1000]


@pytest.mark.parametrize("name", ["train_loss_step", "total_steps", "steps_per_second", "eval/step_time"])
def test_names_that_are_no_step(name: str) -> None:
    with pytest.raises(StepwatchError):
        read(from_text(json.dumps({"_runtime": 500.0, "_step": 3, name: 1000})))


@pytest.mark.parametrize(
    "config",
    ["", "a: [", "- 1\n- 2\n", "a: &a [*a]\n", "!!python/object/apply:os.system ['true']",
     "batch_size: {value: !!binary x}", "batch_size: {value: 1e999}\n", "batch_size: {value: -3}\n", "[" * 1200,
     "1: {value: 2}\n"],
)  # fmt: skip
def test_a_configuration_that_is_none_tells_nothing(tmp_path: Path, config: str) -> None:
    (run,) = read(from_file(a_run(tmp_path, config=config)))
    assert "batch_size" not in run.settings


@pytest.mark.parametrize("metadata", ["", "{", "[]", '{"gpu": 3}', '{"gpu_nvidia": ["x"]}', '{"gpu": "\\u001b[31m"}'])
def test_metadata_that_is_none_tells_no_card(tmp_path: Path, metadata: str) -> None:
    (run,) = read(from_file(a_run(tmp_path, metadata=metadata)))
    assert run.gpu_text is None


@pytest.mark.parametrize(
    "text", ['{"_runtime": 5, "_step": 3', '{"_runtime": 0, "_step": 3}', '{"_runtime": 1, "_step": true}']
)
def test_a_summary_without_steps_is_refused(text: str) -> None:
    with pytest.raises(StepwatchError):
        read(from_text(text))


def test_another_directory_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(StepwatchError, match="is a directory"):
        from_file(tmp_path)


def test_event_files_of_a_directory_join(tmp_path: Path) -> None:
    from tests.event_files import scalar, start

    for place, first in ((tmp_path, 1), (tmp_path / "train", 50)):
        place.mkdir(exist_ok=True)
        rows = b"".join(scalar(1.7e9 + n, n, "loss", 1.0) for n in range(first, first + 49))
        (place / f"events.out.tfevents.17000000{first:02d}.host.1.0").write_bytes(start(1.7e9 + first - 1) + rows)
    (tmp_path / "events.out.tfevents.1700000099.host.1.0").write_bytes(b"not one")
    (run,) = read(from_file(tmp_path))
    assert run.iterations.number.tolist() == list(range(1, 99))


def test_one_step_alone_is_no_mean() -> None:
    (run,) = read(from_text('{"_runtime": 41.6, "_step": 3, "train/global_step": 1, "train/train_runtime": 41.6}'))
    assert run.timing is not Timing.SPANS_RUN


def test_a_summary_that_is_cut_off_is_told_as_such(tmp_path: Path) -> None:
    whole = '{"train/global_step": 500, "_runtime": 610.4, "_step": 50, "_timestamp": 1745377456.2}'
    for size in (20, 80):
        (tmp_path / "wandb-summary.json").write_text(whole[:size])
        with pytest.raises(NoIterations, match="is cut off"):
            read(from_file(tmp_path))
