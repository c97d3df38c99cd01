"""Drawing a chart without a browser, by vl-convert: SVG to be printed, PNG to be sent."""

from __future__ import annotations

import re
import textwrap

from stepwatch.presenters.vega import Chart, Spec

WIDTH = 720
_PNG_SCALE = 2.0
_LINE_LENGTH = 110
_ROOT = re.compile(r'<svg [^>]*?width="(?P<width>[\d.]+)" height="(?P<height>[\d.]+)"[^>]*>')
_CLIP = re.compile(r"(?<=[\"#])clip(?=\d)")
_NOTHING = re.compile(r'<path class="(?:background|foreground)" aria-hidden="true" d="[^"]*"(?: [\w-]+="[^"]*")*/>')


def svg(chart: Chart, name: str) -> str:
    """As wide as its place, without a style attribute or a script; `name` tells its inner names from others'."""
    import vl_convert

    drawn = vl_convert.vegalite_to_svg(_still(chart.spec))
    root = _ROOT.match(drawn)
    assert root is not None
    start = (
        f'<svg xmlns="http://www.w3.org/2000/svg" aria-hidden="true" viewBox="0 0 {root["width"]} {root["height"]}">'
    )
    return start + _CLIP.sub(f"{name}-clip", _NOTHING.sub("", drawn[root.end() :]))


def png(chart: Chart) -> bytes:
    """With its title and what it shows, on white."""
    import vl_convert

    title = {"text": chart.title, "subtitle": textwrap.wrap(chart.description, _LINE_LENGTH)}
    spec = {**_still(chart.spec), "title": title, "background": "white", "padding": 20}
    return vl_convert.vegalite_to_png(spec, scale=_PNG_SCALE)


def _still(spec: Spec) -> Spec:
    return {**spec, "width": WIDTH, "config": {**spec["config"], "aria": False}}
