"""`stepwatch explain runs/`: a table of what is there, and the one run that is asked for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.builders import Truth, a_log

from stepwatch.cli import main
from stepwatch.readers import READERS

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
    assert "2 runs were found." in done.stdout
    assert "deep/slow.log" in done.stdout
    assert "fast.log" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


def test_one_of_them_is_explained_when_asked_for(runs: str) -> None:
    assert "takes 99.9 ms" in run("explain", runs, "--run", "1").stdout
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
    path.write_text(READERS[name].example)
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
