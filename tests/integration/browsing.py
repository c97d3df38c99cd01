"""The browser of the machine, for the tests that drive one."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from playwright.sync_api import Page

# The shell without windows first: it takes a fifth less processor time.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, _NAMES)), None)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="NO BROWSER: pages are not tested; on Debian: apt-get install chromium"
)
# Pages live for a second here: optimising their scripts, and Python, takes longer than it saves.
FLAGS = ["--no-sandbox", "--js-flags=--no-opt --no-maglev --liftoff-only --min-semi-space-size=16"]

OPEN = """
(link) => location.hash === link.hash || new Promise((opened) => {
  addEventListener("hashchange", opened, { once: true });
  link.click();
})
"""

PUT = """
(field, text) => {
  if (field.readOnly || field.disabled || !field.checkVisibility()) throw new Error("nothing can be entered here");
  field.focus();
  field.value = text;
  field.dispatchEvent(new Event("input", { bubbles: true }));
}
"""


def open_view(page: Page, name: str) -> None:
    """Another view of the page. Its opening forgets what was entered or answered before, so it is waited for."""
    page.locator(f".views a[href='#{name}']").evaluate(OPEN)


def put(page: Page, place: str, text: str) -> None:
    """As `fill`, but at once: Chromium breaks what is typed into lines one by one, each with a layout of the page."""
    page.locator(place).evaluate(PUT, text)


def violations(page: Page, *rules: str, place: str = "html") -> list[str]:
    """What axe-core finds, by all its rules or by these; its script comes with the package axe-playwright-python."""
    if not page.evaluate("'axe' in window"):
        spec = find_spec("axe_playwright_python")
        assert spec is not None
        assert spec.origin is not None
        page.evaluate(Path(spec.origin).with_name("axe.min.js").read_text(encoding="utf-8"))
    options = {"resultTypes": ["violations"], **({"runOnly": [*rules]} if rules else {})}
    run = "([place, options]) => axe.run(place, options)"
    found = page.evaluate(run, [place, options])["violations"]
    return [f"{each['impact']}: {each['id']}: {node['html'][:200]}" for each in found for node in each["nodes"]]
