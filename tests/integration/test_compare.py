"""`stepwatch compare` as CI calls it: exit codes, forms and languages."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.builders import Truth, a_log

from stepwatch.cli import main

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
    assert found["verdict"] == "slower"
    assert found["ratio"]["low"] < 1.15 < found["ratio"]["high"]
    assert [side["source"] for side in found["runs"]] == ["a.log", "b.log"]


@pytest.mark.parametrize("language", ["en", "fr", "de", "es"])
def test_every_form_speaks_every_language(logs: tuple[str, str], language: str) -> None:
    for form in ("terminal", "md"):
        done = run(*logs, "--lang", language, "--format", form)
        assert done.exit_code == 0
        assert ("slower" in done.stdout) == (language == "en")


@pytest.mark.parametrize("arguments", [("nope.log", "nope.log"), ()])
def test_bad_input_is_two_lines_and_an_exit_code(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.exit_code in (1, 2)
    assert len(done.stderr.strip().splitlines()) == 2
    assert done.stdout == ""


def test_a_limit_that_is_none_is_wrong_usage(logs: tuple[str, str]) -> None:
    assert run(*logs, "--fail-over", "much").exit_code == 2
