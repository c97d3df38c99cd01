"""`stepwatch compare` as CI calls it: exit codes, forms and languages."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.builders import Truth, a_log

from stepwatch.cli import main
from stepwatch.i18n import LANGUAGES

BASE = Truth(max_iters=2000, step_s=0.2, noise=0.02)


@pytest.fixture
def logs(tmp_path: Path) -> tuple[str, str]:
    for name, truth in (("a", BASE), ("b", replace(BASE, seed=2, step_s=0.23))):
        (tmp_path / f"{name}.log").write_text(a_log(truth))
    return str(tmp_path / "a.log"), str(tmp_path / "b.log")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["compare", *arguments])


def test_a_regression_beyond_the_limit_is_exit_code_3_and_still_answered(logs: tuple[str, str]) -> None:
    done = run(*logs, "--fail-over", "5%")
    assert done.exit_code == 3
    assert "slower" in done.stdout
    assert run(*logs, "--fail-over", "20%").exit_code == 0
    assert run(*reversed(logs), "--fail-over", "5%").exit_code == 0


def test_the_json_holds_both_runs_the_ratio_and_the_verdict(logs: tuple[str, str]) -> None:
    found = json.loads(run(*logs, "--json").stdout)
    assert found["schema"] == "stepwatch.comparison/1"
    assert found["verdict"]["status"] == "slower"
    assert found["ratio"]["low"] < 1.15 < found["ratio"]["high"]
    assert [side["source"] for side in found["runs"]] == ["a.log", "b.log"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_form_speaks_every_language(logs: tuple[str, str], language: str) -> None:
    for form in ("terminal", "md"):
        done = run(*logs, "--lang", language, "--format", form)
        assert done.exit_code == 0
        assert ("slower" in done.stdout) == (language == "en")


@pytest.mark.parametrize("arguments", [("nope.log", "nope.log"), (), ("-", "-"), ("a.log",), ("a", "b", "c")])
def test_bad_input_is_two_lines_and_an_exit_code(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.exit_code in (1, 2)
    assert len(done.stderr.strip().splitlines()) == 2
    assert done.stdout == ""


def test_a_limit_that_is_none_is_wrong_usage(logs: tuple[str, str]) -> None:
    assert run(*logs, "--fail-over", "much").exit_code == 2


@pytest.mark.parametrize("arguments", [("-", "-"), ("a.log",), (), ("a.log", "b.log", "--run", "x")])
def test_wrong_usage_is_told_in_the_readers_language(arguments: tuple[str, ...]) -> None:
    told = {run(*arguments, "--lang", language).stderr for language in LANGUAGES}
    assert len(told) == len(LANGUAGES)
    assert not any("Missing" in text for text in told)


def test_an_option_may_count_for_one_run_only(logs: tuple[str, str]) -> None:
    found = json.loads(
        run(*logs, "--gpu", "A:4070", "--gpu", "4090", "--set", "B:tokens_per_iter=8192", "--json").stdout
    )
    assert [side["gpu"] for side in found["runs"]] == ["GeForce RTX 4090", "GeForce RTX 4090"]
    assert [side["tokens_per_iter"] for side in found["runs"]] == [16384, 8192]
    found = json.loads(run(*logs, "--gpu", "A:4070", "--gpu", "B:4090", "--json").stdout)
    assert [side["gpu"] for side in found["runs"]] == ["GeForce RTX 4070", "GeForce RTX 4090"]


def test_of_several_runs_the_choice_is_told_and_may_be_made(tmp_path: Path) -> None:
    both = tmp_path / "both.log"
    both.write_text(a_log(replace(BASE, max_iters=1000)) + a_log(replace(BASE, seed=2, step_s=0.4)))
    told = run(str(both), str(both)).stdout
    assert "holds 2 runs; the longest, number 2" in told
    assert "--run A:1" in told
    assert "--run B:1" in told
    chosen = run(str(both), str(both), "--run", "1", "--run", "B:2", "--fail-over", "5%")
    assert chosen.exit_code == 3
    assert "holds 2 runs" not in chosen.stdout
    assert run(str(both), str(both), "--run", "A:3").exit_code == 2


def test_lines_of_an_unknown_format_are_learned_for_one_log(logs: tuple[str, str], tmp_path: Path) -> None:
    toy = tmp_path / "toy.log"
    toy.write_text("".join(f"lap {at} took 0.{200 + at % 3} seconds\n" for at in range(60)))
    unread = run(logs[0], str(toy))
    assert unread.exit_code == 1
    assert unread.stderr.startswith("stepwatch: toy.log: ")
    assert run(logs[0], str(toy), "--like", "B:lap 12 took 0.200 seconds").exit_code == 0
    assert run(*logs, "--log-format", "nanogpt").exit_code == 0
    assert run(*logs, "--log-format", "B:keras").exit_code == 1


def test_one_row_in_each_passes_and_says_why(tmp_path: Path) -> None:
    for name, time in (("a", 100), ("b", 107)):
        (tmp_path / name).write_text(f"iter 500: loss 3.1, time {time}.00ms, mfu 30.00%\n")
    done = run(str(tmp_path / "a"), str(tmp_path / "b"), "--fail-over", "5%")
    assert done.exit_code == 0
    assert "only one normal iteration" in " ".join(done.stdout.split())
    found = json.loads(run(str(tmp_path / "a"), str(tmp_path / "b"), "--json").stdout)
    assert found["verdict"]["status"] == "not_comparable"


def test_one_of_the_logs_may_be_a_pipe(logs: tuple[str, str]) -> None:
    done = CliRunner().invoke(main, ["compare", "-", logs[1]], input=Path(logs[0]).read_text())
    assert done.exit_code == 0
    assert "slower" in done.stdout
