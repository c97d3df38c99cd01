"""The public verbs, as one would use them in a notebook; what the pages show of them runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.builders import Truth, a_log
from tools import ROOT

import stepwatch

LOG = a_log(Truth(max_iters=1000, step_s=0.2))
_SNIPPET = re.compile(r"```python\n(.*?)```", re.DOTALL)
SNIPPETS = [
    (page, code)
    for page in ("README.md", "docs/architecture.md", "docs/explain.md")
    for code in _SNIPPET.findall((ROOT / page).read_text(encoding="utf-8"))
]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.log"
    path.write_text(LOG)
    return path


def test_a_log_is_explained_in_one_call(log: Path) -> None:
    report = stepwatch.explain("train.log", gpu="4070", settings={"max_iters": 6000})
    assert report.analyses[0].costs.step_s.mid == pytest.approx(0.2, rel=0.02)
    assert report.analyses[0].run.settings["max_iters"].value == 6000
    assert "A step takes 199.7 ms" in str(stepwatch.render(report, "terminal", "en"))


def test_text_paths_and_several_logs_are_taken(log: Path) -> None:
    text = stepwatch.from_text(LOG, "pasted")
    assert [run.analysis.run.source for run in stepwatch.explain([log, text]).runs] == ["train.log", "pasted"]


def test_each_verb_takes_what_the_one_before_gives(log: Path) -> None:
    (run,) = stepwatch.read("train.log")
    analysis = stepwatch.analyse(run, "4070")
    assert stepwatch.advise(analysis) == stepwatch.advise(stepwatch.analyse(run, stepwatch.find_gpu("4070")))
    planned = stepwatch.plan({"n_layer": 6, "n_head": 6, "n_embd": 384, "compile": False}, "4070")
    assert planned.settings["compile"].value is False
    assert isinstance(stepwatch.advise(planned), tuple)


def test_a_setting_that_is_none_is_refused(log: Path) -> None:
    with pytest.raises(stepwatch.UsageError, match="max_iter"):
        stepwatch.explain("train.log", settings={"max_iter": 5})


@pytest.mark.parametrize(("page", "code"), SNIPPETS, ids=lambda value: value if value.endswith(".md") else "")
def test_what_a_page_shows_runs(page: str, code: str, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, page, "exec"), {})
    assert capsys.readouterr().out
