"""What a restart cost: planted starts, with a clock in the log and without one."""

from __future__ import annotations

import json

import pytest

from stepwatch.answers.from_logs import ExplainRequest, explain
from stepwatch.i18n import LANGUAGES, say
from stepwatch.sources import from_text


def a_record(starts: list[tuple[float, range]], step_s: float = 2.0) -> str:
    """Each start at its second, with steps of the same length."""
    lines = []
    for at_s, numbers in starts:
        settings = {"max_iters": 100, "log_interval": 1}
        lines.append({"stepwatch": 1, "started": 1e9 + at_s, "rank": 0, "world_size": 1, "settings": settings})
        for place, number in enumerate(numbers):
            end_s = 1e9 + at_s + (place + 1) * step_s
            took_s = step_s + len(lines) * 1e-5  # no two are alike, else it would be a log that was pasted twice
            lines.append({"step": number, "s": took_s, "t": end_s, "loss": 3.0})
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def told(text: str, language: str = "en") -> list[str]:
    runs = explain(ExplainRequest(logs=(from_text(text),))).runs
    return [
        say(finding.message, language) for run in runs for finding in run.analysis.findings if finding.code == "restart"
    ]


def test_a_restart_tells_what_was_done_again_and_when_something_new_came() -> None:
    # Killed after iteration 40, at 82 s; taken up at 30 after a minute: 11 steps again, the twelfth is new.
    (said,) = told(a_record([(0, range(41)), (142, range(30, 60))]))
    assert said.startswith("This is a restart at iteration 30. It did 11 iterations again")
    assert "1 min 24 s after" in said, said


def test_a_restart_right_where_it_was_saved_does_nothing_again() -> None:
    (said,) = told(a_record([(0, range(41)), (100, range(41, 60))]))
    assert "It did nothing again, and its first iteration ended 20.0 s after" in said, said


def test_a_restart_that_has_not_come_further_says_so() -> None:
    (said,) = told(a_record([(0, range(41)), (100, range(30, 35))]))
    assert "which reached iteration 40" in said


def test_without_a_clock_the_steps_are_counted() -> None:
    def start(numbers: range) -> str:
        header = "max_iters = 100\nlog_interval = 1\nstep 0: train loss 4, val loss 4\n" * (numbers[0] == 0)
        for number in numbers:
            mfu = 12 if number - numbers[0] > 5 else -100
            header += f"iter {number}: loss 3.0, time {2000 + numbers[0] / 100:.2f}ms, mfu {mfu:.2f}%\n"
        return header

    (said,) = told(start(range(41)) + start(range(30, 60)))
    assert "It did 11 iterations again, about 22.0 s; the log does not say how long" in said, said


@pytest.mark.parametrize(
    "starts",
    [
        [(0, range(41))],
        [(0, range(41)), (100, range(60))],  # from the beginning: perhaps another training
        [(0, range(101)), (300, range(90, 101))],  # the first one was done
        [(0, range(41)), (100, range(70, 90))],  # from elsewhere
    ],
)
def test_what_is_no_restart_is_not_called_one(starts: list[tuple[float, range]]) -> None:
    assert told(a_record(starts)) == []


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_every_language_says_how_many_iterations(language: str) -> None:
    (said,) = told(a_record([(0, range(41)), (142, range(30, 60))]), language)
    assert "11" in said
    assert "30" in said
