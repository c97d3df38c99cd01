"""`explain` and `estimate` as a page and as a picture, called as people call them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.commands import stepwatch

from stepwatch.presenters import CHARTS, COMPARISON_CHARTS

ROOT = Path(__file__).parents[2]
LOG = ROOT / "examples" / "gpt2-124m-4070.log"
CONFIG = ROOT / "examples" / "train_gpt2_small.py"
PNG = b"\x89PNG\r\n\x1a\n"
ENVIRONMENT = {**{k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG"))}, "PYTHONUTF8": "1"}


def told(done: subprocess.CompletedProcess[bytes], code: int) -> str:
    error = done.stderr.decode()
    assert done.returncode == code, error
    assert len(error.splitlines()) == 2, error
    assert done.stdout == b""
    return error


def test_explain_writes_a_page(tmp_path: Path) -> None:
    target = tmp_path / "run.html"
    done = stepwatch("explain", LOG, "--gpu", "4070", "--html", "-o", target, "--lang", "fr")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.decode().splitlines() == [f"écrit dans {target}"]
    text = target.read_text(encoding="utf-8")
    assert text.startswith('<!DOCTYPE html>\n<html lang="fr">')
    assert text.rstrip().endswith("</html>")


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["explain", LOG, "--html"], "run.html"), (["explain", LOG, "--png"], "run.png"),
        (["explain", LOG, "--md"], "run.md"),
        (["explain", LOG, "--json"], "run.json"), (["estimate", CONFIG, "--gpu", "4070", "--html"], "plan.html"),
        (["advise", CONFIG, "--gpu", "4070", "--md"], "advice.md"), (["compare", LOG, LOG, "--png"], "both.png"),
    ],
)  # fmt: skip
def test_a_file_behind_the_form_is_written_and_named(arguments: list[str | Path], name: str, tmp_path: Path) -> None:
    target = tmp_path / name
    for _ in range(1 if name.endswith("json") else 2):  # the second time it is there already
        done = stepwatch(*arguments, target)
        assert (done.returncode, done.stdout) == (0, b""), done.stderr
        assert done.stderr.decode().splitlines() == [f"written to {target}"]
        assert target.stat().st_size > 0


def test_json_that_is_there_is_never_written_over_unasked(tmp_path: Path) -> None:
    state = tmp_path / "trainer_state.json"
    state.write_text('{"log_history": []}')
    stepwatch("explain", LOG, state, "--json")
    assert state.read_text() == '{"log_history": []}'


def test_a_dash_is_standard_output_and_nothing_is_said_of_it() -> None:
    done = stepwatch("explain", LOG, "--json", "-o", "-")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b'{"schema"')


def test_compare_writes_a_page_with_both_logs_and_their_charts(tmp_path: Path) -> None:
    target = tmp_path / "both.html"
    other = ROOT / "examples" / "short.log"
    assert stepwatch("compare", LOG, other, "--html", "-o", target).returncode == 0
    text = target.read_text(encoding="utf-8")
    assert {LOG.name, other.name} <= set(re.findall(r"[\w-]+\.log", text))
    assert '"step"' in text
    assert '"parts"' in text


@pytest.mark.parametrize("chart", COMPARISON_CHARTS)
def test_compare_draws_each_chart_as_a_picture(chart: str, tmp_path: Path) -> None:
    target = tmp_path / "both.png"
    assert stepwatch("compare", LOG, LOG, "--png", "--chart", chart, "-o", target).returncode == 0
    assert target.read_bytes().startswith(PNG)


def test_a_page_may_go_into_a_pipe_and_is_utf_8_whatever_the_locale() -> None:
    command = [sys.executable, "-m", "stepwatch", "estimate", str(CONFIG), "--gpu", "4070", "--format", "html"]
    plain = {**ENVIRONMENT, "PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, env=plain, check=False)
    assert done.returncode == 0, done.stderr
    assert "Français" in done.stdout.decode("utf-8")


@pytest.mark.parametrize("chart", [None, *(chart for chart in CHARTS if chart != "machine")])  # that needs samples
def test_explain_draws_each_chart_as_a_picture(chart: str | None, tmp_path: Path) -> None:
    target = tmp_path / "chart.png"
    chosen = () if chart is None else ("--chart", chart)
    done = stepwatch("explain", LOG, "--format", "png", "-o", target, *chosen)
    assert done.returncode == 0, done.stderr
    assert target.read_bytes().startswith(PNG)


def test_a_picture_may_go_into_a_pipe() -> None:
    done = stepwatch("estimate", CONFIG, "--gpu", "4070", "--format", "png", "--chart", "memory")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(PNG)


def test_a_chart_that_cannot_be_drawn_is_told() -> None:
    finished = ROOT / "examples" / "laptop-sleep.log"
    error = told(stepwatch("explain", finished, "--format", "png", "--chart", "forecast"), 1)
    assert "forecast" in error
    assert "times, anatomy, throughput, parts" in error


def test_a_chart_without_a_picture_is_told() -> None:
    assert "--format png" in told(stepwatch("explain", LOG, "--chart", "times"), 2)


def test_an_impossible_claim_is_told_by_the_exit_code_of_a_page_too(tmp_path: Path) -> None:
    target = tmp_path / "plan.html"
    done = stepwatch("estimate", CONFIG, "--gpu", "4070", "--claim", "1ms", "--html", "-o", target)
    assert done.returncode == 3
    assert "Impossible" in target.read_text(encoding="utf-8")


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    assert "cannot be written" in told(stepwatch("explain", LOG, "--format", "png", "-o", tmp_path / "no" / "x.png"), 1)


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of our own needs a pseudo-terminal")
@pytest.mark.parametrize("form", ["html", "png"])
def test_a_terminal_gets_neither_page_nor_picture(form: str) -> None:
    import pty

    master, slave = pty.openpty()
    command = [sys.executable, "-m", "stepwatch", "explain", str(LOG), "--format", form]
    done = subprocess.run(command, stdout=slave, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False)
    os.close(slave)
    os.close(master)
    assert done.returncode == 2
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 2
    assert f"-o answer.{form}" in lines[1]
