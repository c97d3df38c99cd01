"""Drawing a chart without a browser: a PNG to be sent, an SVG for a notebook. By vl-convert, a large extra."""

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
    return vl_convert.vegalite_to_png(titled(chart, headline, source), scale=2.0)  # for screens of high density


def svg(chart: Plot) -> str | None:
    """None where vl-convert is missing: there the table has to do."""
    try:
        import vl_convert
    except ImportError:
        return None
    return vl_convert.vegalite_to_svg({**_still(chart.spec), "background": "transparent"})


def has_no_font(letter: str) -> bool:
    """Whether it would be drawn as an empty box, like one that is in no font."""
    import vl_convert

    def drawn(text: str) -> bytes:
        text = f'<text x="2" y="15" font-family="sans-serif" font-size="14">{text}</text>'
        return vl_convert.svg_to_png(f'<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">{text}</svg>')

    return not letter.isascii() and drawn(letter) == drawn("\U0010fffd")


def titled(chart: Plot, headline: str, source: str) -> Spec:
    """Under what is said first of the run, with the name of the chart and of the log, on white."""
    below = " · ".join(filter(None, (chart.title, source)))
    title = {"text": wrapped(headline, 74), "subtitle": wrapped(below, 100)}  # letters in its width
    return {**_still(chart.spec), "title": title, "background": "white"}


def _still(spec: Spec) -> Spec:
    """Of a fixed width, with room for the labels, and without what is there for the pointer alone."""
    still = {**spec, "width": 720, "padding": 20}
    if "layer" in still:
        still["layer"] = [layer for layer in still["layer"] if layer["mark"].get("opacity") != UNSEEN]
    return still
