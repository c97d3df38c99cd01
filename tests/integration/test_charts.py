"""The charts of a report in a real browser: ticks, zoom, fingers, and the log's own lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, CDPSession, Locator, Page, expect
from tests.builders import Saves, Truth, a_log
from tests.integration.browsing import needs_browser
from tests.integration.serving import PATIENCE_S

from stepwatch.answers.from_logs import ExplainRequest, explain
from stepwatch.i18n import LANGUAGES
from stepwatch.presenters import render

pytestmark = needs_browser
TRUTH = Truth(max_iters=6000, eval_interval=500, log_interval=20, step_s=0.2, eval_s=6.0, saves=Saves.NEVER, kept=0.8)
CRASH = "Traceback (most recent call last):\n<script>alert(1)</script><b>RuntimeError</b>: CUDA error\n"
VIEW = "stepwatchCharts.viewOf(document.querySelector('article:lang({lang}) [data-chart={chart}]'))"
CHOOSE = """
(button) => {
  button.checked = true;
  button.dispatchEvent(new Event("change"));
}
"""
OPEN = """
(place) => {
  for (let part = place.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
}
"""
TICKS = """
(view) => {
  const found = [];
  const look = (item) => {
    const seen = (item.items ?? []).filter((label) => label.opacity !== 0 && label.text !== "");
    if (item.role === "axis-label") found.push(seen.map((label) => label.text));
    for (const inner of item.items ?? []) look(inner);
  };
  look(view.scenegraph().root);
  return found;
}
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("charts")
    (place / "train.log").write_text(a_log(TRUTH) + CRASH, encoding="utf-8")
    page = render(explain(ExplainRequest(logs=(str(place / "train.log"),), gpu="4070")), "html", "en")
    assert isinstance(page, str)
    (place / "report.html").write_text(page, encoding="utf-8")
    return place / "report.html"


@pytest.fixture(scope="module", params=["desktop", "phone"])
def tab_and_faults(request: pytest.FixtureRequest, browser: Browser, report: Path) -> Iterator[tuple[Page, list[str]]]:
    sizes: dict[str, dict[str, Any]] = {
        "desktop": {"viewport": {"width": 1000, "height": 900}},
        "phone": {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True},
    }
    with browser.new_context(**sizes[request.param]) as context:
        context.set_default_timeout(PATIENCE_S * 1000)
        page = context.new_page()
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text))
        page.goto(report.as_uri())
        wait_for(page, "times")
        yield page, faults


on_a_desktop = pytest.mark.parametrize("tab_and_faults", ["desktop"], indirect=True)
on_a_phone = pytest.mark.parametrize("tab_and_faults", ["phone"], indirect=True)


@pytest.fixture
def page(tab_and_faults: tuple[Page, list[str]]) -> Iterator[Page]:
    """Its charts are drawn anew, as when the language is chosen, which takes a fifth of the time of loading it."""
    page, faults = tab_and_faults
    page.locator("#language-en").evaluate(CHOOSE)
    wait_for(page, "times")
    times(page).scroll_into_view_if_needed()
    yield page
    assert faults == []
    faults.clear()


def view(chart: str, language: str = "en") -> str:
    return VIEW.format(lang=language, chart=chart)


def wait_for(page: Page, chart: str, language: str = "en") -> None:
    """By asking again: the page's policy forbids what Playwright's own waiting does."""
    page.locator(f"article:lang({language}) [data-chart={chart}]").evaluate(OPEN)
    for _ in range(10 * int(PATIENCE_S)):
        if page.evaluate(f"!!{view(chart, language)}"):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"{chart} is not drawn")


def times(page: Page) -> Locator:
    return page.locator("article:lang(en) figure:has([data-chart=times])")


def domain(page: Page, scale: str) -> tuple[float, float]:
    page.wait_for_timeout(100)  # the view runs by itself after a gesture
    low, high = page.evaluate(f"{view('times')}.scale('{scale}').domain()")
    return low, high


def place_of(page: Page, number: int, seconds: float) -> tuple[float, float]:
    """Where a mark is on the screen."""
    x, y = page.evaluate(
        f"""([number, seconds]) => {{
          const view = {view("times")};
          const box = document.querySelector("article:lang(en) [data-chart=times] svg").getBoundingClientRect();
          return [box.x + view.origin()[0] + view.padding().left + view.scale("x")(number),
                  box.y + view.origin()[1] + view.padding().top + view.scale("y")(seconds)];
        }}""",
        [number, seconds],
    )
    return x, y


def time_of(page: Page, number: int) -> float:
    rows = page.evaluate("JSON.parse(document.getElementById('charts').textContent).datasets.times.times")
    return next(row["t"] for row in rows if row["i"] == number)


def pressed(page: Page, how: str, count: int = 1) -> None:
    for _ in range(count):
        times(page).locator(f"[data-zoom={how}]").press("Enter")


def drag(page: Page, begin: tuple[float, float], end: tuple[float, float]) -> None:
    page.mouse.move(*begin)
    page.mouse.down()
    page.mouse.move(*end, steps=4)
    page.mouse.up()


def fingers(session: CDPSession, kind: str, *places: tuple[float, float]) -> None:
    points = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(places)]
    session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})


# --- ticks ------------------------------------------------------------------------------------------------------


@on_a_phone  # where there is room for fewest; wider ones in tests/unit/presenters/test_run_charts.py
def test_every_axis_has_three_ticks_in_every_language(page: Page) -> None:
    for language in LANGUAGES:
        page.locator(f"#language-{language}").check(force=True)
        for chart in ("times", "anatomy", "throughput", "forecast"):
            wait_for(page, chart, language)
            axes = page.evaluate(f"({TICKS})({view(chart, language)})")
            assert axes
            assert all(len(set(ticks)) >= 3 for ticks in axes), (language, chart, axes)


def test_three_ticks_are_left_however_far_one_zooms(page: Page) -> None:
    for _ in range(12):
        pressed(page, "in")
        first, last = domain(page, "x")
        axes = page.evaluate(f"({TICKS})({view('times')})")
        assert all(len(set(ticks)) >= 3 for ticks in axes), axes
    assert last - first < 100


# --- zoom -------------------------------------------------------------------------------------------------------


@on_a_desktop
def test_the_scale_of_times_follows_what_is_seen(page: Page) -> None:
    whole = domain(page, "y")
    page.evaluate(f"void {view('times')}.signal('zoom_i', [1020, 1480]).runAsync()")  # between two evaluations
    low, high = domain(page, "y")
    assert whole[1] > 6.0
    assert 0.18 < low < 0.2 < high < 0.23
    page.evaluate(f"void {view('times')}.signal('zoom_i', [1020, 1520]).runAsync()")
    assert domain(page, "y")[1] > 6.0
    pressed(page, "all")
    assert domain(page, "y") == whole


@on_a_desktop
def test_a_drag_moves_the_range_and_stays_inside(page: Page) -> None:
    whole = domain(page, "x")
    pressed(page, "in", 2)
    first, last = domain(page, "x")
    x, y = place_of(page, round((first + last) / 2), 1.0)
    drag(page, (x, y), (x - 60, y))
    after = domain(page, "x")
    assert after[0] > first
    assert after[1] - after[0] == pytest.approx(last - first)
    for _ in range(4):
        drag(page, (x + 200, y), (x - 200, y))
    assert domain(page, "x")[1] == pytest.approx(whole[1])


@on_a_desktop
def test_the_wheel_zooms_with_a_key_and_moves_the_page_without(page: Page) -> None:
    whole = domain(page, "x")
    page.mouse.move(*place_of(page, 2500, 1.0))
    page.keyboard.down("Control")
    page.mouse.wheel(0, -400)
    page.keyboard.up("Control")
    first, last = domain(page, "x")
    assert last - first < 0.7 * (whole[1] - whole[0])
    assert first < 2500 < last


@on_a_phone  # before other touches: soon after one, Chromium takes a tap for half of a double tap
def test_a_tap_shows_the_lines_of_the_log(page: Page) -> None:
    x, y = place_of(page, 2000, time_of(page, 2000))
    page.touchscreen.tap(x - 6, y + 6)
    expect(times(page).locator(".lines pre")).to_contain_text("iter 2000:")


@on_a_phone
def test_two_fingers_zoom_and_one_moves(page: Page) -> None:
    whole, touch = domain(page, "x"), page.context.new_cdp_session(page)
    (left, y), (right, _) = place_of(page, 2000, 1.0), place_of(page, 2800, 1.0)
    fingers(touch, "touchStart", (left, y), (right, y))
    for far in (10, 20, 30, 40):
        fingers(touch, "touchMove", (left - far, y), (right + far, y))
    fingers(touch, "touchEnd")
    first, last = domain(page, "x")
    spread = (right - left + 80) / (right - left)
    assert last - first == pytest.approx((whole[1] - whole[0]) / spread, rel=0.05)
    assert first < 2000 < 2800 < last
    fingers(touch, "touchStart", (left + 80, y))
    for far in (20, 40, 60):
        fingers(touch, "touchMove", (left + 80 - far, y))
    fingers(touch, "touchEnd")
    moved = domain(page, "x")
    assert moved[0] > first
    assert moved[1] - moved[0] == pytest.approx(last - first, rel=1e-3)


# --- the log's own lines ----------------------------------------------------------------------------------------


def test_a_click_on_a_mark_shows_the_lines_of_the_log(page: Page) -> None:
    lines = times(page).locator(".lines pre")
    expect(lines).to_be_hidden()
    x, y = place_of(page, 1500, time_of(page, 1500))
    page.mouse.click(x + 5, y + 5)
    expect(lines).to_contain_text("step 1500: train loss")
    expect(lines).to_contain_text("iter 1500:")
    assert page.evaluate(f"{view('times')}.signal('chosen')") == 1500
    assert len(lines.inner_text().splitlines()) <= 6


@on_a_desktop
def test_the_keyboard_shows_them_too_and_brings_the_mark_into_view(page: Page) -> None:
    pressed(page, "in", 3)
    times(page).locator(".lines select").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(times(page).locator(".lines pre")).to_contain_text("iter 0:")
    first, last = domain(page, "x")
    assert first <= 0 <= last


@on_a_desktop
def test_a_click_beside_the_marks_and_a_drag_show_nothing(page: Page) -> None:
    x, y = place_of(page, 1500, 1.1)
    page.mouse.click(x, y)
    x, y = place_of(page, 1500, time_of(page, 1500))
    drag(page, (x - 80, y), (x, y))
    expect(times(page).locator(".lines pre")).to_be_hidden()


@on_a_desktop
def test_the_end_of_a_crashed_run_is_quoted_as_text(page: Page) -> None:
    select = times(page).locator(".lines select")
    select.select_option(index=select.locator("option").count() - 1)
    expect(times(page).locator(".lines pre")).to_contain_text("<script>alert(1)</script><b>RuntimeError</b>")
    assert times(page).locator(".lines b").count() == 0


def test_no_other_line_of_the_log_is_in_the_page(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    plain = [line for line in a_log(TRUTH).splitlines() if line.startswith("iter ")]
    assert sum(line in text for line in plain) < len(plain) / 3


def test_many_languages_share_one_copy_of_the_lines(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(a_log(replace(TRUTH, kept=1.0)), encoding="utf-8")
    page = render(explain(ExplainRequest(logs=(str(tmp_path / "train.log"),))), "html", "en")
    assert isinstance(page, str)
    assert page.count("step 1500: train loss") == 1
