"""The page of a directory in a real browser: its table is sorted, its links open runs, and it prints whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.builders import Truth, a_log
from tests.integration.browsing import needs_browser
from tests.integration.serving import PATIENCE_S

from stepwatch.answers.from_logs import ExplainRequest, explain
from stepwatch.presenters import render

pytestmark = needs_browser
TRUTH = Truth(max_iters=1000, step_s=0.2)
CRASH = "Traceback (most recent call last):\nRuntimeError: CUDA error\n"
STEPS = {"a-rather-long-name-of-a-log-without-spaces.log": 0.9, "b.log": 0.1, "c.log": 0.5, "d.log": 0.3, "e.log": 0.2}
WORST = "d.log"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("overview")
    (place / "runs").mkdir()
    for name, step_s in STEPS.items():
        text = a_log(replace(TRUTH, step_s=step_s)) + (CRASH if name == WORST else "")
        (place / "runs" / name).write_text(text, encoding="utf-8")
    page = render(explain(ExplainRequest(logs=(str(place / "runs"),), gpu="4070")), "html", "en")
    assert isinstance(page, str)
    (place / "report.html").write_text(page, encoding="utf-8")
    return place / "report.html"


@pytest.fixture(scope="module")
def tab_and_faults(browser: Browser) -> Iterator[tuple[Page, list[str]]]:
    """A tab of its own costs three times what the page in it does."""
    with browser.new_context() as context:
        context.set_default_timeout(PATIENCE_S * 1000)
        page = context.new_page()
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text))
        yield page, faults


@pytest.fixture
def page(tab_and_faults: tuple[Page, list[str]], report: Path) -> Iterator[Page]:
    page, faults = tab_and_faults
    page.set_viewport_size({"width": 1200, "height": 900})
    page.emulate_media(media="screen")
    faults.clear()
    page.goto(report.as_uri())
    yield page
    assert faults == []


@pytest.fixture
def used(tab_and_faults: tuple[Page, list[str]], report: Path) -> Iterator[Page]:
    """The page as another test left it, for what holds anyway: loading it takes as long as three such tests."""
    page, faults = tab_and_faults
    if page.url == "about:blank":
        page.goto(report.as_uri())
    yield page
    assert faults == []


def names(page: Page) -> list[str]:
    return page.locator("article:lang(en) .overview tbody a").all_inner_texts()


def head(page: Page, name: str) -> tuple[str | None, list[str]]:
    """How the column is sorted, and the order of the rows."""
    cell = page.locator("article:lang(en) .overview th").filter(has_text=name)
    return cell.get_attribute("aria-sort"), names(page)


def test_the_worst_is_first_and_a_click_on_a_head_sorts_by_it(page: Page) -> None:
    sort, rows = head(page, "Status")
    assert (sort, rows[0]) == ("descending", WORST)
    by_step = sorted(STEPS, key=lambda name: STEPS[name])
    button = page.locator("article:lang(en) .overview").get_by_role("button", name="Step", exact=True)
    button.click()
    assert head(page, "Status")[0] is None
    assert names(page) == by_step
    button.focus()
    page.keyboard.press("Enter")
    assert names(page) == by_step[::-1]
    assert page.locator("article:lang(en) .overview th[aria-sort=descending]").inner_text().startswith("Step")
    page.locator("article:lang(en) .overview").get_by_role("button", name="Status").click()
    page.locator("article:lang(en) .overview").get_by_role("button", name="Status").click()
    assert head(page, "Status") == ("descending", rows)


def test_names_are_sorted_as_words_and_numbers_as_numbers(used: Page) -> None:
    for name, rows in (("Log", sorted(STEPS)), ("Run", sorted(STEPS))):  # numbered in the order of their names
        used.locator("article:lang(en) .overview").get_by_role("button", name=name, exact=True).click()
        assert names(used) == rows


def test_the_others_are_one_line_each_and_a_link_opens_the_one_that_it_leads_to(page: Page) -> None:
    folded = page.locator("article:lang(en) .run:has(> details)")
    assert folded.count() == len(STEPS) - 2  # the worst and the longest are open
    boxes = (folded.nth(place).bounding_box() for place in range(folded.count()))
    assert all(box is not None and box["height"] < 60 for box in boxes)
    section = page.locator("#en-run-5")
    expect(section.locator("> details")).not_to_have_attribute("open", "")
    page.locator("article:lang(en) .overview").get_by_role("link", name="e.log", exact=True).focus()
    page.keyboard.press("Enter")
    expect(section.locator("> details")).to_have_attribute("open", "")
    expect(section).to_be_in_viewport()
    expect(section).to_be_focused()


# When it is as wide as was asked for and all is drawn for that width: two frames, since a chart is drawn in the first.
LAID_OUT = """
(width) => new Promise((resolve) => {
  const look = () => {
    if (innerWidth !== width) setTimeout(look, 20);
    else requestAnimationFrame(() => requestAnimationFrame(resolve));
  };
  look();
})
"""


@pytest.mark.parametrize("width", [360, 718])  # a phone, and the text of an A4 page
def test_no_column_is_lost(used: Page, width: int) -> None:
    used.set_viewport_size({"width": width, "height": 900})
    used.evaluate(LAID_OUT, width)
    assert used.evaluate("document.documentElement.scrollWidth") <= width
    if width > 700:
        used.emulate_media(media="print")
        box = used.locator("article:lang(en) .overview table").bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= width
