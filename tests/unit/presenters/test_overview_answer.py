"""Several runs at a glance: how many have a problem, which is the worst, and a table in that order."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from tests.builders import Saves, Truth, a_log

from stepwatch.advice import advice_on_log
from stepwatch.analysis import analyse
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.presenters import document as doc
from stepwatch.presenters import document_of, render
from stepwatch.presenters.overview_answer import MOST_RUNS
from stepwatch.presenters.screen import plain
from stepwatch.presenters.terminal import TerminalWriter
from stepwatch.readers import read
from stepwatch.report import Report, RunReport
from stepwatch.sources import from_text
from stepwatch.verdict import judge

FINE = Truth(max_iters=1000, step_s=0.2, eval_interval=500, eval_s=1.0, saves=Saves.NEVER)
CRASH = "Traceback (most recent call last):\ntorch.OutOfMemoryError: CUDA out of memory.\n"
STALLED = replace(FINE, max_iters=2000, stall_share=0.05)


@cache
def a_report(*logs: str, directory: bool = True) -> Report:
    analyses = [analyse(run) for place, log in enumerate(logs) for run in read(from_text(log, f"{place + 1}.log"))]
    runs = tuple(RunReport(analysis=a, advice=advice_on_log(a), verdict=judge(a)) for a in analyses)
    return Report(runs=runs, directory=directory)


MIXED = a_report(a_log(FINE), a_log(STALLED), a_log(replace(FINE, max_iters=3000, kept=0.5)), a_log(FINE) + CRASH)


def overview(report: Report) -> tuple[str, doc.Table]:
    headline, table = document_of(report).blocks[:2]
    assert isinstance(headline, doc.Headline)
    assert isinstance(table, doc.Table)
    return " ".join(say(message, "en") for paragraph in headline.paragraphs for message in paragraph), table


def badges(table: doc.Table) -> list[str]:
    found = (row[table.judged or 0] for row in table.rows)
    return [f"{badge.sign} {say(badge.word, 'en')}" for badge in found if isinstance(badge, doc.Badge)]


def test_the_worst_comes_first_and_keeps_its_number() -> None:
    said, table = overview(MIXED)
    assert badges(table) == ["✖ Crashed", "▲ Stalling", "✔ Healthy", "✔ Healthy, done"]
    assert [say(row[0], "en") for row in table.rows if isinstance(row[0], Message)] == ["4", "2", "3", "1"]
    assert table.links == ("run-4", "run-2", "run-3", "run-1")
    assert said.startswith("4 runs were found, 2 with problems. The worst is run 4, 4.log: The run ran out of GPU")


def test_the_sections_are_in_the_order_of_the_table_and_have_the_anchors_of_its_links() -> None:
    sections = [section for section in document_of(MIXED).sections if section.name == "run"]
    assert tuple(section.anchor for section in sections) == overview(MIXED)[1].links
    assert say(sections[0].heading, "en") == "Run 4: 4.log"


@pytest.mark.parametrize(
    ("logs", "said"),
    [
        ((a_log(FINE),), "One run was found, without a problem."),
        ((a_log(FINE) + CRASH,), "One run was found, and it has a problem."),
        ((a_log(FINE), a_log(replace(FINE, seed=2))), "2 runs were found, none with a problem."),
        ((a_log(FINE), a_log(FINE) + CRASH), "2 runs were found, 1 with a problem."),
    ],
)
def test_the_headline_counts_the_runs_and_those_with_a_problem(logs: tuple[str, ...], said: str) -> None:
    assert overview(a_report(*logs))[0].startswith(said)


def test_a_column_of_which_nothing_is_known_is_not_there() -> None:
    heads = [say(head, "en") for head in overview(MIXED)[1].head]
    assert {"Run", "Log", "Status", "Step"} <= set(heads)
    assert "Card" not in heads


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_the_status_is_never_left_out(width: int) -> None:
    lines = [plain(line) for line in TerminalWriter("en", width, width)._table(overview(MIXED)[1])]
    assert any("✖ Crashed" in line for line in lines)
    assert max(map(len, (line.rstrip() for line in lines))) <= width


def test_a_note_has_the_badges_too() -> None:
    assert "| 4 | 4.log | ✖ Crashed |" in str(render(MIXED, "md", "en"))


def test_of_many_runs_in_a_log_the_worst_and_the_longest_are_on_the_first_screen() -> None:
    logs = [a_log(replace(FINE, max_iters=100 + 10 * number)) for number in range(9)]
    report = a_report("".join(logs) + CRASH, directory=False)
    said, table = overview(report)
    assert "The worst is run 9:" in said
    assert table.shown is not None
    assert len(table.shown) == MOST_RUNS
    text = str(render(report, "terminal", "en"))
    assert "… and 1 more. Below: run 9, the longest." in text
