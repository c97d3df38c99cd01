"""From planted logs through the store to the answers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.commands import stepwatch
from tests.fleets import a_chain, a_fleet, write_fleet
from tools import ROOT

from stepwatch.fleet.collect import CollectRequest, collect
from stepwatch.fleet.questions import FleetRequest, ask
from stepwatch.fleet_report import FleetReport
from stepwatch.i18n import LANGUAGES
from stepwatch.presenters import render


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    top = tmp_path_factory.mktemp("chains")
    for seed in range(8):
        (top / f"job{seed}").mkdir()
        for name, text in a_chain(seed).files.items():
            (top / f"job{seed}" / name).write_text(text)
    store = str(tmp_path_factory.mktemp("store"))
    collect(CollectRequest(places=(str(top),), into=store, gpu="4070"))
    return top, store


@pytest.fixture(scope="module")
def whole(chains: tuple[Path, str]) -> FleetReport:
    return ask(FleetRequest(store=chains[1], by=("card", "project")))


def test_restarts_are_chained_into_jobs(whole: FleetReport) -> None:
    assert whole.job_count == 8
    jobs = {Path(job.name).parent.name: job for job in whole.jobs}
    for seed in range(8):
        truth, job = a_chain(seed), jobs[f"job{seed}"]
        assert (job.starts, job.redone) == (truth.starts, truth.redone), seed
        assert job.goodput == pytest.approx(truth.goodput, rel=0.01), seed
        assert job.gap_s == pytest.approx(truth.gap_s, rel=0.01), seed


def test_the_parts_of_a_fleet_are_all_its_hours(whole: FleetReport) -> None:
    assert sum(share.share for share in whole.shares) == pytest.approx(1)
    assert {"redone", "restart"} <= {share.part for share in whole.shares}


def test_restrictions_and_groups(chains: tuple[Path, str], whole: FleetReport) -> None:
    assert sum(group.runs for group in whole.groups) == whole.runs
    some = ask(FleetRequest(store=chains[1], where="project = 'job3'"))
    assert {Path(job.name).parent.name for job in some.jobs} == {"job3"}
    assert some.runs < whole.runs
    assert ask(FleetRequest(store=chains[1], since="2026-03-04")).runs < whole.runs


@pytest.mark.parametrize(
    "options",
    [("--where", "nothing = 1"), ("--where", "1 = 1); drop table runs; --"), ("--since", "soon"), ("--by", "moon")],
)
def test_a_wrong_restriction_is_two_lines(options: tuple[str, str], chains: tuple[Path, str]) -> None:
    done = stepwatch("fleet", chains[1], *options)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 2


def test_a_condition_reaches_nothing_outside(chains: tuple[Path, str], tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    done = stepwatch("fleet", chains[1], "--where", f"1 in (select a from '{secret}')")
    assert done.returncode == 2


def test_a_regression_is_named_with_its_day_and_what_changed(tmp_path: Path) -> None:
    planted = a_fleet(2, "day")
    (tmp_path / "logs").mkdir()
    write_fleet(planted._replace(runs=planted.runs[::3]), tmp_path / "logs")
    collect(CollectRequest(places=(str(tmp_path / "logs"),), into=str(tmp_path / "store")))
    days = [suspect for suspect in ask(FleetRequest(store=str(tmp_path / "store"))).suspects if suspect.kind == "day"]
    first = next(run["started"] for run in planted.runs[::3] if run["torch"] == "2.6.0")
    assert [(suspect.name, suspect.changed) for suspect in days] == [
        (first.date().isoformat(), (("torch_version", "2.5.1", "2.6.0"),))  # type: ignore[attr-defined]
    ]


@pytest.mark.parametrize("form", ["terminal", "md", "html", "json"])
def test_every_form_in_every_language(form: str, whole: FleetReport) -> None:
    for language in LANGUAGES if form != "html" else ("en",):  # a page holds them all
        text = str(render(whole, form, language))
        assert form == "html" or not re.search(r"\{\w+:\w+\}", text)
        if form == "json":
            told = json.loads(text)
            assert (told["schema"], told["language"]) == ("stepwatch.fleet/1", language)
            assert told["verdict"]["text"]


def test_the_command_answers_in_the_language_asked_for(chains: tuple[Path, str]) -> None:
    done = stepwatch("fleet", chains[1], "--by", "card", "--json", "--lang", "ja")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["language"] == "ja"


def test_the_three_questions_of_the_page_have_one_answer_each(chains: tuple[Path, str]) -> None:
    page = (ROOT / "docs" / "fleet.md").read_text(encoding="utf-8")
    answers = []
    for code in re.findall(r"<!-- question:\w+ -->\n```python\n(.*?)```", page, re.DOTALL):
        names: dict[str, Any] = {"store": chains[1]}
        exec(code, names)
        answers.append([names[name] for name in ("hours", "slowest", "failed")])
    assert len(answers) == 3
    for answer in answers[1:]:
        for one, other in zip(answers[0], answer, strict=True):
            assert [row[0] for row in one] == [row[0] for row in other]
            assert [row[1] for row in one] == pytest.approx([row[1] for row in other])
    assert answers[0][2]
