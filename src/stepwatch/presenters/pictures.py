"""Draws a chart without a browser: a PNG to send, an SVG for a notebook. Needs vl-convert, a large extra."""

from __future__ import annotations

from stepwatch.errors import UsageError
from stepwatch.messages import Message
from stepwatch.presenters.screen import wrapped
from stepwatch.presenters.vega import UNSEEN, Plot, Spec


def png(chart: Plot, headline: str, source: str = "") -> bytes:
    try:
        import vl_convert
    except ImportError:
        raise UsageError(
            Message("to draw a picture, stepwatch needs vl-convert"), Message('pip install "stepwatch[pictures]"')
        ) from None
    if any(map(has_no_font, chart.title[:1])):
        raise UsageError(
            Message("no font of this machine has the letters of this language"),
            Message("install one, fonts-noto-cjk on Debian and Ubuntu, or draw it in another language"),
        )
    return vl_convert.vegalite_to_png(titled(chart, headline, source), scale=2.0)  # for high-density screens


def svg(chart: Plot) -> str | None:
    """The chart as SVG; None if vl-convert is missing: then the table has to do."""
    try:
        import vl_convert
    except ImportError:
        return None
    return vl_convert.vegalite_to_svg({**_still(chart.spec), "background": "transparent"})


def has_no_font(letter: str) -> bool:
    """Whether the letter would be drawn as an empty box, like a letter that no font contains."""
    import vl_convert

    def drawn(text: str) -> bytes:
        text = f'<text x="2" y="15" font-family="sans-serif" font-size="14">{text}</text>'
        return vl_convert.svg_to_png(f'<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">{text}</svg>')

    return not letter.isascii() and drawn(letter) == drawn("\U0010fffd")


def titled(chart: Plot, headline: str, source: str) -> Spec:
    """The chart on white under the headline of the run, with the names of the chart and the log."""
    below = " · ".join(filter(None, (chart.title, source)))
    title = {"text": wrapped(headline, 74), "subtitle": wrapped(below, 100)}  # letters per line
    return {**_still(chart.spec), "title": title, "background": "white"}


def _still(spec: Spec) -> Spec:
    """The specification with a fixed width and room for the labels, without what only the pointer can find."""
    still = {**spec, "width": 720, "padding": 20}
    if "layer" in still:
        still["layer"] = [layer for layer in still["layer"] if layer["mark"].get("opacity") != UNSEEN]
    return still
