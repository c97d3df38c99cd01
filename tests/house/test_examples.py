"""The example logs are those that examples/make_logs.py writes, and the example of the recorder runs.

Those of the recorder in a framework are run beside the tests of its callback, where the framework is loaded already.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from examples.make_logs import LOGS, PLACE
from tests.record_lines import lines_of, numbers
from tools.pages import answer


@pytest.mark.parametrize("name", LOGS)
def test_an_example_is_what_its_builder_writes(name: str) -> None:
    assert (PLACE / name).read_text(encoding="utf-8") == LOGS[name](), "run `make pages`"


def test_no_other_log_lies_among_the_examples() -> None:
    assert {path.name for path in PLACE.glob("*.log*")} == set(LOGS)


def test_the_short_example_fits_on_a_screen() -> None:
    assert LOGS["short.log"]().count("\n") <= 24


def test_the_recorder_in_a_plain_loop_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(PLACE / "record_plain_loop.py"))
    lines = lines_of(tmp_path / "run.jsonl")
    assert numbers(lines, "step") == list(range(40))
    assert numbers(lines, "eval") == numbers(lines, "checkpoint") == [9, 19, 29, 39]
    assert "for 40 iterations" in answer("explain", str(tmp_path / "run.jsonl"))
