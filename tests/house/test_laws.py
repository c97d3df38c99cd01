"""What `make laws` writes of laws whose results are gone stays true when others are added."""

from __future__ import annotations

import re

from tools.laws import BEGIN, END, PAGE, Tried, before_in, laws, summary


def tried(commit: str, seconds: float = 60.0) -> Tried:
    return Tried(values=100, seconds=seconds, passed=True, commit=commit, date="2030-01-02")


def test_laws_that_are_tried_later_are_added_to_what_the_page_says() -> None:
    first, second, *others = laws()
    begun = summary({first: tried("abcdef01", 600.0)}, 100)
    page = f"above\n{BEGIN}\n{begun}\n{END}\nbelow, 3 of test_reading.py"
    at_once = summary({first: tried("abcdef01", 600.0), second: tried("abcdef02")}, 100)
    assert summary({second: tried("abcdef02")}, 100, before_in(page)) == at_once
    assert f"2 of {len(others) + 2} laws" in at_once
    assert "11 minutes" in at_once
    assert at_once.endswith("By commit: abcdef01 1, abcdef02 1.")


def test_the_page_counts_each_law_once() -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, counted = before_in(page), re.search(r"^(\d+) of (\d+) laws were tried", page, re.M)
    assert counted is not None
    assert before.commits.total() == int(counted[1])
    assert before.left.total() == int(counted[2]) - int(counted[1])
