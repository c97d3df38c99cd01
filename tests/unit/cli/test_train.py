"""`stepwatch train --help` and `--dry-run`, which need neither data nor PyTorch."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.calibrations import a_calibration

from stepwatch.cli.train import command
from stepwatch.gpus.calibration import save_calibration
from stepwatch.messages import Message
from stepwatch.trainer.config import MEANINGS, TrainConfig

SMALL = (
    "--device=cpu", "--n_layer=2", "--n_head=2", "--n_embd=128", "--block_size=128", "--batch_size=4",
    "--gradient_accumulation_steps=1", "--max_iters=100", "--eval_interval=50", "--eval_iters=2",
)  # fmt: skip


def test_every_setting_has_its_meaning_in_the_help() -> None:
    assert list(MEANINGS) == [field.name for field in fields(TrainConfig)]
    said = CliRunner().invoke(command, ["--help"]).output
    assert "batch_size=12" in said
    assert all(name in said for name in MEANINGS)


def test_a_dry_run_estimates_and_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    save_calibration(a_calibration())
    done = CliRunner().invoke(command, ["--dry-run", "--lang", "en", *SMALL])
    assert done.exit_code == 0, done.output
    assert "101" in done.output  # iterations, counted as nanoGPT does
    assert not (tmp_path / "out").exists()


def test_a_dry_run_on_an_unknown_machine_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    failed = CliRunner().invoke(command, ["--dry-run", "--lang", "en", *SMALL])
    assert failed.exception is not None
    assert "unknown" in str(failed.exception)
    remedy = getattr(failed.exception, "remedy", None)
    assert isinstance(remedy, Message)
    assert "stepwatch estimate --gpu" in remedy.in_english()  # `train` itself has no --gpu
