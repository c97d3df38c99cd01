"""A short round of `make fuzz` on our own examples, and that its faults are made small and kept."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tools.fuzz import campaign
from tools.fuzz.__main__ import summary
from tools.fuzz.campaign import Campaign, fewest, named
from tools.fuzz.roads import QUESTIONS, BrokenLaw, Case, case_of, check, check_json, run_case

from stepwatch.answers import pasted
from stepwatch.answers.from_logs import ExplainRequest, explain
from stepwatch.presenters import render
from stepwatch.units import Interval

SEED = 20


@pytest.mark.parametrize("part", range(4))
def test_damaged_inputs_are_answered_or_refused(part: int) -> None:
    for number in range(40 * part, 40 * part + 40):
        run_case(case_of(SEED, number, None))


def test_a_case_is_made_from_its_seed_and_number_alone() -> None:
    assert case_of(SEED, 3, None) == case_of(SEED, 3, None)
    assert case_of(SEED, 3, None) != case_of(SEED + 1, 3, None)
    assert {case_of(SEED, number, None).question for number in range(200)} == set(QUESTIONS)


def test_broken_laws_are_found() -> None:
    with pytest.raises(BrokenLaw, match="below zero"):
        check((Interval(-1.0, 0.0, 1.0),))
    with pytest.raises(BrokenLaw, match="wall_s"):
        check_json({"runs": [{"wall_s": -1.0}]})
    with pytest.raises(BrokenLaw, match="order"):
        check_json({"step_s": {"low": 2.0, "mid": 1.0, "high": 3.0}})


def test_of_many_lines_those_are_left_that_show_the_fault() -> None:
    assert fewest([*range(100)], lambda lines: {13, 77} <= set(lines)) == [13, 77]


def test_a_fault_is_named_by_its_place_in_the_project() -> None:
    with pytest.raises(ValueError, match="not an interval") as raised:
        Interval(2.0, 1.0, 0.0)
    assert named(raised.value).startswith("ValueError in stepwatch/units.py")


def test_a_campaign_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "ROUND", 2)
    told: list[str] = []
    Campaign(SEED, None, tmp_path).run(3, 300.0, told.append)
    again = Campaign(SEED, None, tmp_path)
    assert (again.done, again.faults, told) == (3, {}, [])
    assert summary([again]).startswith("3 damaged inputs (seed 20; no real logs")
    assert (sum(again.questions.values()), sum(again.commits.values())) == (3, 3)


class Busy(Campaign):
    """Whose workers do not listen to any timer."""

    def command(self, end: int) -> list[str]:
        return [sys.executable, "-c", "while True: pass"]

    def minimise(self, report: Callable[[str], None]) -> None:
        """There is nothing to be made smaller."""


def test_a_worker_that_cannot_be_interrupted_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "HANGS_S", 0.3)
    found = Busy(SEED, None, tmp_path)
    found.run(1, 300.0, lambda line: None)
    assert (found.faults, found.done) == ({"hangs": [0]}, 1)


def test_a_kept_fault_is_tried_again_and_may_be_mended(tmp_path: Path) -> None:
    faults = {"ValueError in x": [3], "not kept": [4]}
    state = {"done": 9, "faults": faults, "mended": [], "questions": {"explain": 9}, "commits": {"abc": 9}}
    (tmp_path / f"seed-{SEED}.json").write_text(json.dumps(state))
    (tmp_path / f"{SEED}-3.case").write_bytes(pickle.dumps(case_of(SEED, 3, None)))
    kept = Campaign(SEED, None, tmp_path)
    kept.try_again()
    assert (kept.faults, kept.mended) == ({"not kept": [4]}, ["ValueError in x"])
    assert "1 faults of 1 kinds; 1 kinds more" in summary([kept])


def test_a_watched_run_without_times_that_begins_anew_is_not_explained() -> None:
    """Found by the campaign: between two looks a run ended of which no time was known."""
    row = "2026-01-02 18:{}:05 | INFO | train_inner | epoch 001: {:6} / 481 loss=9.1, wps=5, ups=.5, num_updates={}, "
    places = ((47, 200, 200), (53, 400, 400))
    rows = [row.format(*at) + f"lr=3e-06, train_wall={at[0]}4, wall={at[0]}5" for at in places]
    start = "2026--01-02 18:40:00 | INFO | fairseq_cli.train | Start iterating over samples"
    run_case(Case("watch", "\n".join([start, *rows, rows[0]]).encode(), seed=593484746))


@pytest.mark.parametrize(("ends_s", "dated"), [(1.8e9, True), (1e20, False)])
def test_an_end_in_some_million_years_has_no_date(ends_s: float, dated: bool) -> None:
    """Found by the campaign: evaluations of 479437294147518 batches after each iteration."""
    log = "iter 220: loss 2.49, time 40.84ms, mfu 10.11%\niter 230: loss 2.51, time 40.76ms, mfu 10.10%\n"
    report = explain(ExplainRequest(logs=(pasted(log),), settings=("max_iters=600000",)))
    late = replace(report, runs=(replace(report.runs[0], ends_s=Interval(ends_s, ends_s, ends_s)),))
    assert ("(ends about" in str(render(late, "html", "en"))) is dated
