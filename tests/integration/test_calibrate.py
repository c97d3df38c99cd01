"""`stepwatch calibrate` with real torch, on grids small enough for a test."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from stepwatch.cli import main
from stepwatch.estimator.estimation import estimate
from stepwatch.estimator.workload import Workload
from stepwatch.gpus import calibration
from stepwatch.gpus.calibration import Axis, load_calibration

NO_TORCH = (
    "import sys; sys.modules['torch'] = None\nfrom stepwatch.cli import main\nmain(['calibrate', '--lang', 'en'])"
)


def test_without_torch_it_names_the_pip_command() -> None:
    done = subprocess.run([sys.executable, "-c", NO_TORCH], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[1].strip() == 'pip install "stepwatch[train]"'
    assert len(done.stderr.splitlines()) == 2


def test_waiting_for_a_processor_is_counted_by_the_system_or_guessed_from_the_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch", reason="torch is not installed: nothing to calibrate with")
    from stepwatch.trainer import measuring

    monkeypatch.setattr(measuring, "_waited_and_ran_s", lambda: (7.0, 4.0))  # four times as long as it ran since then
    assert measuring.waiting((1.0, 2.5), load=0.0) == pytest.approx(5.0)
    assert measuring.waiting(None, load=0.3) == pytest.approx(1.3)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A config directory and a working directory of its own, and grids of the least size."""
    torch = pytest.importorskip("torch", reason="torch is not installed: nothing to calibrate with")
    from stepwatch.trainer import measuring

    monkeypatch.setattr(calibration, "config_directory", lambda: str(tmp_path / "config"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for name, value in {"ROUNDS": 1, "ROUND_S": 0.0, "COPY_BYTES": {"cpu": 2**20}, "SAVE_BYTES": 2**21}.items():
        monkeypatch.setattr(measuring, name, value)
    for name in ("LAYER", "ATTENTION", "HEAD", "EMBEDDING"):
        axes = getattr(measuring, name)
        monkeypatch.setattr(measuring, name, tuple(Axis(axis.name, axis.points[:2]) for axis in axes))
    monkeypatch.setattr(measuring, "OPTIMIZER", Axis("elements", (64, 4096)))
    monkeypatch.setattr(measuring, "MATMUL_SIZES", {"cpu": (64, 128)})
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # two wait for each other where others work too
    yield tmp_path
    torch.set_num_threads(threads)


def test_it_measures_writes_and_is_used(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = CliRunner().invoke(main, ["calibrate", "--device", "cpu", "--no-compile", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["schema"] == "stepwatch.calibration/1"
    assert list((place / "work").iterdir()) == []
    known = load_calibration()
    assert known is not None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    from stepwatch.gpus.this_machine import card_of_this_machine

    card, origin = card_of_this_machine()
    assert origin == "calibrated"
    answer = estimate(Workload(n_layer=2, n_head=2, n_embd=64, block_size=64, batch_size=2, compile=False), card)
    assert answer is not None
    assert 0 < answer.step_s.mid < 3600


def test_interrupted_it_leaves_nothing_behind(place: Path) -> None:
    from stepwatch.trainer.measuring import calibrate

    ticks = itertools.count()

    def interrupted() -> float:
        if next(ticks) > 60:
            raise KeyboardInterrupt
        return time.perf_counter()

    with pytest.raises(KeyboardInterrupt):
        calibrate("cpu", str(place / "work"), compiles=False, clock=interrupted)
    assert list((place / "work").iterdir()) == []
    assert not (place / "config").exists()


def test_torch_save_interrupted_leaves_no_file(place: Path) -> None:
    from stepwatch.trainer.measuring import Timer, saving

    ticks = itertools.count()

    def interrupted() -> float:
        if next(ticks) > 3:
            raise KeyboardInterrupt
        return time.perf_counter()

    with pytest.raises(KeyboardInterrupt):
        saving(Timer(interrupted, lambda: None), str(place / "work"))
    assert list((place / "work").iterdir()) == []


def test_a_directory_that_is_not_there_is_told(place: Path) -> None:
    done = CliRunner().invoke(main, ["calibrate", "--device", "cpu", "--no-compile", "--directory", "nowhere"])
    assert done.exit_code == 1
    assert "--directory" in done.output
