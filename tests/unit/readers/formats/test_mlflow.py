"""MLflow's files of metrics, alone and as the directory of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepwatch.errors import NoIterations
from stepwatch.readers import read, read_all
from stepwatch.sources import from_file, from_text

BEGIN_MS = 1_750_000_000_000


def metric(step_ms: int, every: int = 10, rows: int = 20, late_ms: int = 0) -> str:
    return "".join(
        f"{BEGIN_MS + every * step_ms * n + late_ms} {2.5 - n / 100} {every * n}\n" for n in range(1, rows + 1)
    )


def a_run(place: Path) -> Path:
    (place / "metrics" / "eval").mkdir(parents=True)
    (place / "params").mkdir()
    (place / "meta.yaml").write_text("run_id: 1\n")
    (place / "metrics" / "loss").write_text(metric(400))
    (place / "metrics" / "eval" / "loss").write_text(metric(400, every=50, rows=3, late_ms=900))
    (place / "params" / "max_steps").write_text("500")
    return place


def test_times_are_those_between_two_lines() -> None:
    (run,) = read(from_text(metric(400)))
    assert run.format == "mlflow"
    assert run.iterations.number[-19:].tolist() == list(range(20, 210, 10))
    assert run.iterations.time_s[-19:].tolist() == pytest.approx([0.4] * 19)


def test_a_directory_has_evaluations_and_parameters_too(tmp_path: Path) -> None:
    (run,) = read(from_file(a_run(tmp_path / "run")))
    assert [each.at for each in run.evaluations] == [50, 100, 150]
    assert [each.took_s for each in run.evaluations] == pytest.approx([0.9] * 3)
    assert run.settings.count("max_iters") == 500


def test_runs_are_found_below_a_directory(tmp_path: Path) -> None:
    a_run(tmp_path / "mlruns" / "0" / "abc")
    a_run(tmp_path / "mlruns" / "0" / "def")
    assert [run.format for run in read_all([str(tmp_path / "mlruns")]).runs] == ["mlflow"] * 2


def test_one_line_has_no_time() -> None:
    with pytest.raises(NoIterations):
        read(from_text("1750000000000 0.5 0\n"))


def test_rows_of_epochs_are_not_called_iterations() -> None:
    with pytest.raises(NoIterations):
        read(from_text("param epochs 20\n" + metric(60_000, every=1)))


def test_odd_lines_change_no_other_row() -> None:
    """A value that is no number, a line twice, and one of another program: then rows are put together one by one."""
    lines = metric(400).splitlines(keepends=True)
    odd = [*lines, lines[-1], f"{BEGIN_MS + 999_999} nan 205\n", "param x 1\n", f"{BEGIN_MS} 1.0 9 two words\n"]
    (whole,), (other,) = read(from_text("".join(lines))), read(from_text("".join(odd)))
    assert other.iterations.time_s[: len(whole.iterations)].tolist() == whole.iterations.time_s.tolist()
    assert other.iterations.number[: len(whole.iterations)].tolist() == whole.iterations.number.tolist()
