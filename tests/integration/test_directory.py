"""`stepwatch explain runs/`: a table of what is there, and the one run that is asked for."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.builders import Truth, a_log
from tools.formats_page import example_of

from stepwatch.cli import main

BASE = Truth(max_iters=1000, step_s=0.2)


@pytest.fixture
def runs(tmp_path: Path) -> str:
    (tmp_path / "deep").mkdir()
    (tmp_path / "fast.log").write_text(a_log(replace(BASE, step_s=0.1)))
    (tmp_path / "deep" / "slow.log").write_text(a_log(BASE))
    (tmp_path / "readme.txt").write_text("nothing\n")
    return str(tmp_path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments])


def test_a_directory_is_shown_as_a_table_of_its_runs(runs: str) -> None:
    done = run("explain", runs)
    assert done.exit_code == 0
    assert "2 runs were found, 2 with problems." in done.stdout
    assert "deep/slow.log" in done.stdout
    assert "fast.log" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


def test_one_of_them_is_explained_when_asked_for(runs: str) -> None:
    assert "takes 99.8 ms" in run("explain", runs, "--run", "1").stdout
    assert "takes 199" in run("explain", runs, "--run", "2").stdout
    assert run("explain", runs, "--run", "3").exit_code == 2


def test_the_json_holds_every_run(runs: str) -> None:
    found = json.loads(run("explain", runs, "--json", "--no-iterations").stdout)
    assert [one["source"] for one in found["runs"]] == ["fast.log", "deep/slow.log"]


def test_the_note_has_the_table(runs: str) -> None:
    assert "| nanogpt |" in run("explain", runs, "--md").stdout


def test_a_directory_without_a_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello\n")
    done = run("explain", str(tmp_path))
    assert done.exit_code == 1
    assert len(done.stderr.strip().splitlines()) == 2


@pytest.mark.parametrize("name", ["llm.c", "megatron", "torchtitan", "hf-trainer", "keras"])
def test_other_trainers_are_explained_from_their_example(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text(example_of(name))
    done = run("explain", str(path), "--json", "--no-iterations")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["runs"][0]["format"] == name


def test_a_line_may_be_taught(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("".join(f"it {n} | 0.3{n % 10} s\n" for n in range(1, 60)))
    assert run("explain", str(path)).exit_code == 1
    done = run("explain", str(path), "--like", "it 12 | 0.34 s", "--json", "--no-iterations")
    assert done.exit_code == 0
    assert 0.3 < json.loads(done.stdout)["runs"][0]["costs"]["step_s"]["mid"] < 0.4


CRASH = """tokens per iteration will be: 16,384
number of parameters: 10.65M
Traceback (most recent call last):
torch.OutOfMemoryError: CUDA out of memory.
"""


def test_a_run_that_crashed_at_once_is_a_row_among_the_others(runs: str) -> None:
    Path(runs, "crashed.log").write_text(CRASH)
    done = run("explain", runs)
    assert done.exit_code == 0
    rows = [line for line in done.stdout.splitlines() if line.split()[:1] and line.split()[0].isdigit()]
    number, name, *badge = rows[1].split()  # the worst comes first; above it is the headline
    assert (name, badge[:2]) == ("crashed.log", ["✖", "Crashed"])
    alone = run("explain", runs, "--run", number)
    assert alone.exit_code == 0
    assert "ran out of GPU memory before its first iteration" in " ".join(alone.stdout.split())


def test_a_crashed_run_among_files_is_named_with_the_line_that_says_why(runs: str) -> None:
    crashed = Path(runs, "crashed.log")
    crashed.write_text(CRASH)
    done = run("explain", str(Path(runs, "fast.log")), str(crashed), "--json", "--no-iterations")
    assert done.exit_code == 0
    verdicts = {found["source"]: found["verdict"] for found in json.loads(done.stdout)["runs"]}
    assert verdicts["crashed.log"]["status"] == "crashed"
    assert verdicts["crashed.log"]["line"] == 4
    assert "CUDA out of memory" in verdicts["crashed.log"]["text"]


def test_runs_that_all_crashed_are_all_shown(tmp_path: Path) -> None:
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text(CRASH)
    done = run("explain", str(tmp_path))
    assert done.exit_code == 0
    assert "a.log" in done.stdout
    assert "b.log" in done.stdout


def test_what_was_passed_over_is_counted_in_one_line(runs: str) -> None:
    assert run("explain", runs).stderr == "stepwatch: 1 other file is not a log\n"


def test_an_example_line_counts_in_directories_too(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("".join(f"it {n} | 0.3{n % 10} s\n" for n in range(1, 60)))
    assert run("explain", str(tmp_path), "--like", "it 12 | 0.34 s").exit_code == 0


def test_a_known_format_and_an_example_line_exclude_each_other(runs: str) -> None:
    done = run("explain", runs, "--like", "it 12 | 0.34 s", "--log-format", "nanogpt")
    assert done.exit_code == 2
    assert "cannot be combined" in done.stderr


def test_pieces_that_are_named_are_one_run(tmp_path: Path) -> None:
    lines = a_log(BASE).splitlines(keepends=True)
    (tmp_path / "train.log.1").write_text("".join(lines[:60]))
    (tmp_path / "train.log").write_text("".join(lines[60:]))
    names = [str(tmp_path / name) for name in ("train.log", "train.log.1")]
    found = json.loads(run("explain", *names, "--json", "--no-iterations").stdout)
    assert [one["goodput"]["iterations"] for one in found["runs"]] == [1001]


def test_a_gap_in_a_rotated_log_is_a_warning(tmp_path: Path) -> None:
    lines = a_log(BASE).splitlines(keepends=True)
    (tmp_path / "train.log.3").write_text("".join(lines[:40]))
    (tmp_path / "train.log.1").write_text("".join(lines[80:]))
    assert "! A piece of “train.log.1” is missing, with" in run("explain", str(tmp_path)).stdout


@pytest.mark.parametrize(
    "shape",
    [
        '{{"lap": 3, "iter": {n}, "loss": 3.{m}, "dt_ms": 34{m}.5}}',
        "INFO:__main__:Lap {n} | Step {n:4d}/600 | Loss: 3.{m} | it's $5 | Time: 0.34{m}s",
        "2024-05-04 09:{minute:02d}:{second:02d},123 step: {n}  loss: 3.{m}",
    ],
)
def test_the_command_in_a_refusal_can_be_pasted(shape: str, tmp_path: Path) -> None:
    path = tmp_path / "own loop.log"
    path.write_text(
        "".join(shape.format(n=n, m=n % 7, minute=n // 60, second=n % 60) + "\n" for n in range(1, 200)) + "done\n"
    )
    refused = run("explain", str(path))
    assert refused.exit_code == 1
    assert len(refused.stderr.strip().splitlines()) == 2
    _, command, options = refused.stderr.strip().partition("stepwatch explain ")
    assert command
    done = run("explain", *shlex.split(options))
    assert done.exit_code == 0
    assert "is read as iteration 1" in " ".join(done.stdout.split())


def test_a_countdown_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    lines = [f"lap ({n}/400) left over: {400 - n}.0 min" for n in range(0, 400, 10)]
    path.write_text("\n".join(lines).replace("left over", "lap_time"))
    done = run("explain", str(path), "--like", lines[3].replace("left over", "lap_time"))
    assert done.exit_code == 1
    assert "“lap_time” counts down" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_among_the_pieces_of_a_log_is_passed_over(runs: str) -> None:
    os.mkfifo(f"{runs}/fast.log.1")
    done = run("explain", runs)
    assert "2 runs were found" in done.stdout


def test_a_file_of_the_kernel_that_never_ends_is_passed_over(runs: str) -> None:
    Path(runs, "kernel.log").symlink_to("/proc/kmsg")  # reading it waits for the next message of the kernel
    assert run("explain", runs).stderr == "stepwatch: 2 other files are not logs\n"
