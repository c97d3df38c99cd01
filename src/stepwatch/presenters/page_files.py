"""What a page needs besides its body: styles and scripts. A server only sends these, so nothing here analyses."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from stepwatch.i18n.languages import TABLE
from stepwatch.presenters import vega


def style() -> str:
    """The stylesheet of a body, and of the whole page around it."""
    swaps = "\n".join(
        f'  .report svg [fill="{light}"] {{ fill: {dark}; }} .report svg [stroke="{light}"] {{ stroke: {dark}; }}'
        for light, dark in vega.DARK.items()
    )
    fonts = "\n".join(
        f":is(.whole, .report, .app):lang({code}) {{ font-family: {vega.font_of(code)}; }}"
        for code, row in TABLE.items()
        if row.fonts
    )
    return f"{page_file('report.css')}\n{fonts}\n@media screen and (prefers-color-scheme: dark) {{\n{swaps}\n}}\n"


def engine() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script, with Vega's interpreter; written by tools/engine.py."""
    return page_file("vega.js")


def drawing() -> str:
    """The script that draws, `stepwatchCharts.draw(element, specs)`, and the script that sorts tables."""
    return page_file("charts.js") + page_file("tables.js")


@cache
def page_file(name: str) -> str:
    return (files("stepwatch.presenters") / "page" / name).read_text(encoding="utf-8")
