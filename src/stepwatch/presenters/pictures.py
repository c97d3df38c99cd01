"""Drawing a chart without a browser, by vl-convert: SVG to be printed, PNG to be sent."""

from __future__ import annotations

import re

from stepwatch.presenters.screen import wrapped
from stepwatch.presenters.vega import FONT, UNSEEN, Plot, Spec

WIDTH = 720
_ROOT = re.compile(r'<svg [^>]*?width="(?P<width>[\d.]+)" height="(?P<height>[\d.]+)"[^>]*>')
_CLIP = re.compile(r"(?<=[\"#])clip(?=\d)")
_NOTHING = re.compile(r'<path class="(?:background|foreground)" aria-hidden="true" d="[^"]*"(?: [\w-]+="[^"]*")*/>')
_SPARE = re.compile(
    r' (?:class|role|aria-\w+|pointer-events|font-family)="[^"]*"| opacity="1"| stroke-width="1"| font-weight="normal"'
)
_PLACE = re.compile(r' (?:transform|d|x2?|y2?|width|height)="[^"]*"')
_DIGITS = re.compile(r"(\d\.\d)\d+")


def svg(chart: Plot, name: str) -> str:
    """As wide as its place, without a style attribute or a script; `name` tells its inner names from others'."""
    import vl_convert

    drawn = vl_convert.vegalite_to_svg(_still(chart.spec))
    root = _ROOT.match(drawn)
    assert root is not None
    frame = f'aria-hidden="true" font-family="{FONT}" viewBox="0 0 {root["width"]} {root["height"]}"'
    # Without what nothing here needs: a page holds a drawing of each chart in every language.
    bare = _SPARE.sub("", _NOTHING.sub("", drawn[root.end() :]))
    short = _CLIP.sub(f"{name}-clip", _PLACE.sub(lambda found: _DIGITS.sub(r"\1", found[0]), bare))
    return f'<svg xmlns="http://www.w3.org/2000/svg" {frame}>{short}'


def png(chart: Plot, headline: str, source: str = "") -> bytes:
    import vl_convert

    return vl_convert.vegalite_to_png(titled(chart, headline, source), scale=2.0)  # for screens of high density


def titled(chart: Plot, headline: str, source: str) -> Spec:
    """Under what is said first of the run, with the name of the chart and of the log, on white."""
    below = " · ".join(filter(None, (chart.title, source)))
    title = {"text": wrapped(headline, 74), "subtitle": wrapped(below, 100)}  # letters in its width
    return {**_still(chart.spec), "title": title, "background": "white", "padding": 20}


def _still(spec: Spec) -> Spec:
    """Of a fixed width, and without what is there for the pointer alone."""
    # Room at the sides: the reader's font may be wider than the one that was measured.
    padding = {"left": 12, "right": 12, "top": 4, "bottom": 4}
    still = {**spec, "width": WIDTH, "padding": padding, "config": {**spec["config"], "aria": False}}
    if "layer" in spec:
        still["layer"] = [layer for layer in spec["layer"] if layer["mark"].get("opacity") != UNSEEN]
    return still
