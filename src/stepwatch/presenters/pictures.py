"""Drawing a chart without a browser: a PNG to be sent. By vl-convert, which is large and an extra."""

from __future__ import annotations

from stepwatch.errors import UsageError
from stepwatch.messages import Message
from stepwatch.presenters.typesetting import wrapped
from stepwatch.presenters.vega import UNSEEN, Plot, Spec

WIDTH = 720


def png(chart: Plot, headline: str, source: str = "") -> bytes:
    try:
        import vl_convert
    except ImportError:
        raise UsageError(
            Message("to draw a picture, stepwatch needs vl-convert"), Message('pip install "stepwatch[pictures]"')
        ) from None
    return vl_convert.vegalite_to_png(titled(chart, headline, source), scale=2.0)  # for screens of high density


def titled(chart: Plot, headline: str, source: str) -> Spec:
    """Under what is said first of the run, with the name of the chart and of the log, on white.

    Of a fixed width, and without what is there for the pointer alone.
    """
    below = " · ".join(filter(None, (chart.title, source)))
    title = {"text": wrapped(headline, 74), "subtitle": wrapped(below, 100)}  # letters in its width
    spec = {**chart.spec, "width": WIDTH, "title": title, "background": "white", "padding": 20}
    if "layer" in spec:
        spec["layer"] = [layer for layer in spec["layer"] if layer["mark"].get("opacity") != UNSEEN]
    return spec
