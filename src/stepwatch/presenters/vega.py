"""The house style of the charts: colours, axes and texts in Vega-Lite's terms. Nothing here draws."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from stepwatch.i18n import numbers, say
from stepwatch.i18n.languages import TABLE
from stepwatch.messages import Message
from stepwatch.presenters.document import Table
from stepwatch.units import DAY_S, HOUR_S, MINUTE_S

Spec = dict[str, Any]


SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
INK, MUTED, GRID = "#1c2128", "#57606a", "#e1e5ea"
# After Okabe and Ito, who chose them for every kind of colour vision; darkened to 3:1 on white.
BLUE, ORANGE, GREEN, PURPLE, OCHRE, SLATE = "#0072b2", "#d05c00", "#008561", "#a8458a", "#8a6d00", "#4a5560"
DARK = {
    INK: "#e6e9ed", MUTED: "#a6b0bb", GRID: "#333b45", BLUE: "#5ab4ec", ORANGE: "#ff9a52", GREEN: "#3ecf9f",
    PURPLE: "#e39bcb", OCHRE: "#e6cf4a", SLATE: "#b9c3ce",
}  # fmt: skip
"""Each colour on a dark page. The drawing script and the stylesheet swap them."""

PART_COLOURS = {
    "step": BLUE, "eval": ORANGE, "checkpoint": GREEN, "pair": PURPLE, "compile": OCHRE, "warm-up": OCHRE,
    "stall": SLATE, "unexplained": SLATE,
}  # fmt: skip


_AXIS: Spec = {"labelColor": MUTED, "titleColor": MUTED, "gridColor": GRID, "domainColor": GRID, "tickColor": GRID}
_AXIS |= {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "labelPadding": 6, "titlePadding": 10}
_LEGEND: Spec = {"orient": "top", "title": None, "labelColor": INK, "labelFontSize": 12, "labelLimit": 260}
_LEGEND |= {"columnPadding": 24, "rowPadding": 6, "offset": 14}
_TITLE: Spec = {"anchor": "start", "frame": "group", "color": INK, "fontSize": 17, "offset": 18, "subtitleColor": MUTED}
_TITLE |= {"subtitleFontSize": 13, "subtitleLineHeight": 18, "subtitlePadding": 6, "lineHeight": 20}
_CONFIG = {
    "axis": _AXIS,
    "axisX": {"grid": False, "labelFlush": True},
    "axisY": {"domain": False, "ticks": False},
    "view": {"stroke": None},
    "legend": _LEGEND,
    "text": {"color": INK, "fontSize": 13},
    "rule": {"color": INK},
    "title": _TITLE,
}

UNSEEN = 0.001
"""The opacity of what only the pointer finds; of nothing at all it would not."""


class Plot(NamedTuple):
    """A picture as data, what it shows in words, and the table behind it."""

    name: str
    """The same in every language."""
    title: str
    description: str
    spec: Spec
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def spec_of(language: str, datasets: Mapping[str, Sequence[Mapping[str, Any]]], **content: Any) -> Spec:
    """A whole specification. The data hold no word of any language, so that four languages can share them."""
    separators = TABLE[language]
    number = {"decimal": separators.decimal, "thousands": separators.group, "grouping": [3], "currency": ["", ""]}
    return {
        "$schema": SCHEMA,
        "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
        "background": None,
        "padding": {"left": 2, "right": 2, "top": 4, "bottom": 4},
        "datasets": dict(datasets),
        "data": {"name": next(iter(datasets))},
        **content,
        "config": {"font": FONT, "locale": {"number": number}, **_CONFIG},
        "usermeta": {"dark": DARK},
    }


def plot(name: str, title: Message, about: Iterable[Message], spec: Spec, table: Table, language: str) -> Plot:
    said, description = say(title, language), " ".join(say(message, language) for message in about)
    rows = tuple(tuple(" + ".join(say(part, language) for part in cell) for cell in row) for row in table.rows)
    head = tuple(say(cell, language) for cell in table.head)
    return Plot(name, said, description, {**spec, "description": f"{said}. {description}"}, head, rows)


def text(value: str) -> str:
    """A text as an expression."""
    return json.dumps(value)


def one_of(table: Mapping[str, str], key: str) -> str:
    """The expression that finds a text by its code, `key` being an expression too."""
    return f"({json.dumps(dict(table))})[{key}]"


def legend(titles: Mapping[str, str], **more: Any) -> Spec:
    """Above the chart, in as many columns as a phone has room for; `titles` by their codes."""
    narrow = 2 if max(map(len, titles.values())) <= 18 else 1  # characters; two columns of them fit on a phone
    columns = {"expr": f"width < 460 ? {narrow} : width < 600 ? 3 : {len(titles)}"}
    return {"labelExpr": one_of(titles, "datum.value"), "columns": columns, **more}


def rounded(value: float) -> float:
    """As exact as any answer says it, and short in the page."""
    return float(f"{value:.6g}")


# --- axes -------------------------------------------------------------------------------------------------------


def iteration_axis(language: str) -> Spec:
    axis = {
        "title": say(Message("Iteration"), language), "tickCount": {"expr": "width < 460 ? 4 : 8"},
        "labelExpr": f"datum.value === floor(datum.value) ? {integer('datum.value', language)} : ''",
    }  # fmt: skip
    return {"type": "quantitative", "scale": {"zero": False, "nice": False, "padding": 12}, "axis": axis}


def time_axis(values: Sequence[float], language: str, **more: Any) -> Spec:
    """With lines where these durations are, said as everywhere else."""
    said = {_key(value): _round_duration(value, language) for value in values}
    return {"values": list(values), "labelExpr": one_of(said, "'' + datum.value"), "title": None, **more}


def _round_duration(value: float, language: str) -> str:
    """Without the zeros that would promise exactness."""
    if value >= MINUTE_S:
        return numbers.duration(value, language)
    amount, unit = (value, "s") if value >= 1 else (value * 1000, "ms")
    return numbers.with_unit(_shortest(amount, language), unit, language) if value else "0"


def _shortest(value: float, language: str) -> str:
    return numbers.decimal(value, len(f"{value:.6g}".partition(".")[2]), language)


_SCALES = ((1e9, " G"), (1e6, " M"), (1e3, " k"))


def count_axis(values: Sequence[float], language: str) -> Spec:
    scale, unit = next(((scale, unit) for scale, unit in _SCALES if values[-1] >= scale), (1.0, ""))
    said = {_key(value): _shortest(value / scale, language) + unit if value else "0" for value in values}
    return {"values": list(values), "labelExpr": one_of(said, "'' + datum.value"), "title": None}


def _key(value: float) -> str:
    """As JavaScript writes the number."""
    return str(int(value)) if value == int(value) else repr(value)


_WHOLE = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, MINUTE_S, 10 * MINUTE_S, HOUR_S, 10 * HOUR_S, 4 * DAY_S, 40 * DAY_S)
_BETWEEN = (
    *(digit * scale for scale in (1e-4, 1e-3, 1e-2, 0.1, 1.0) for digit in (2, 5)), 20.0, 30.0, 2 * MINUTE_S,
    5 * MINUTE_S, 20 * MINUTE_S, 30 * MINUTE_S, 2 * HOUR_S, 5 * HOUR_S, DAY_S, 2 * DAY_S, 10 * DAY_S, 100 * DAY_S,
)  # fmt: skip


def log_times(low: float, high: float) -> list[float]:
    """Round durations over a range, about evenly far apart on a logarithmic scale."""
    apart = math.log(high / low) / 7  # at most seven lines
    chosen: list[float] = []
    for value in (*_WHOLE, *(float(f"{value:.3g}") for value in _BETWEEN)):
        if low <= value <= high and all(abs(math.log(value / other)) >= apart for other in chosen):
            chosen.append(value)
    return sorted(chosen)


_STEPS = (
    *(float(f"{digit}e{power}") for power in range(-5, 1) for digit in (1, 2, 5)), 10.0, 15.0, 30.0,
    *(MINUTE_S * count for count in (1, 2, 5, 10, 15, 30)), *(HOUR_S * count for count in (1, 2, 3, 6, 12)),
    *(DAY_S * count for count in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)),
)  # fmt: skip


def linear_times(high: float) -> list[float]:
    """0 and up to six round durations above it."""
    step = next((step for step in _STEPS if high / step <= 6), high / 5)
    return [float(f"{step * count:.6g}") for count in range(int(high / step + 1e-9) + 1)]


def linear_counts(high: float) -> list[float]:
    scale = 10.0 ** math.floor(math.log10(high))
    step = next(step for step in (scale / 10, scale / 5, scale / 2, scale, 2 * scale) if high / step <= 6)
    return [float(f"{step * count:.6g}") for count in range(int(high / step + 1e-9) + 1)]


# --- texts in a tooltip -----------------------------------------------------------------------------------------


def integer(value: str, language: str) -> str:
    """The expression that says a whole number as `numbers.integer` does."""
    least = 10 ** (2 + TABLE[language].least_digits)
    return f"format({value}, {value} < {least} ? 'd' : ',d')"


def duration(value: str, language: str) -> str:
    """The expression that says a duration as `numbers.duration` does."""

    def unit(number: str, name: str) -> str:
        return f"{number} + {text(TABLE[language].space + name)}"

    def two(small: float, count: int, big_name: str, small_name: str) -> str:
        whole = f"round({value} / {small:g})"
        first = unit(integer(f"floor({whole} / {count})", language), big_name)
        rest = unit(f"format({whole} % {count}, 'd')", small_name)
        return f"{first} + ({whole} % {count} ? ' ' + {rest} : '')"

    cases = (
        ("< 0.9995", unit(f"format({value} * 1000, {value} < 0.1 ? ',.3r' : ',.4r')", "ms")),
        ("< 59.95", unit(f"format({value}, ',.3r')", "s")),
        ("< 3570", two(1.0, 60, "min", "s")),
        ("< 84600", two(MINUTE_S, 60, "h", "min")),
        ("< 8638200", two(HOUR_S, 24, TABLE[language].day, "h")),
    )
    many_days = unit(integer(f"round({value} / {DAY_S:g})", language), TABLE[language].day)
    return "(" + "".join(f"{value} {limit} ? {said} : " for limit, said in cases) + many_days + ")"


def tooltip(title: str, rows: Iterable[tuple[str, str]]) -> Spec:
    """A title and rows of a name and an expression; a row of which the expression is undefined is left out."""
    entries = ", ".join(f"{text(name)}: {expression}" for name, expression in rows)
    return {"expr": f"{{title: {title}, {entries}}}"}


def iteration_title(language: str) -> str:
    """The expression that names the iteration in the field `i`."""
    return f"{text(say(Message('Iteration'), language) + ' ')} + {integer('datum.i', language)}"


# --- bars -------------------------------------------------------------------------------------------------------

BAR_OFFSET = 9  # of a bar and its text from the middle of their row
_BAR = {"type": "bar", "height": 12, "yOffset": BAR_OFFSET, "cornerRadius": 2}


def bars(names: Mapping[str, str], figures: Mapping[str, str], bar: Spec, over: Iterable[Spec] = ()) -> Spec:
    """Bars with their name and their figure above them: these need no room beside, so they fit a phone too.

    `bar` is the layer that draws them, without y and its height; the rows are named by the field `k`.
    """
    y = {"field": "k", "type": "nominal", "sort": list(names), "axis": None, "scale": {"paddingOuter": 0}}
    name = {"mark": _above("left"), "encoding": {"text": _text(names), "x": {"value": 0}}}
    figure = {"mark": _above("right"), "encoding": {"text": _text(figures), "x": {"value": "width"}}}
    labels = [{"transform": [{"aggregate": [], "groupby": ["k"]}], **label} for label in (name, figure)]
    return {
        "height": 46 * len(names), "encoding": {"y": y},  # a bar, its text above, and some air
        "layer": [{**bar, "mark": {**_BAR, **bar["mark"]}}, *over, *labels],
    }  # fmt: skip


def plain_bar(field: str, names: Mapping[str, str], figures: Mapping[str, str], colours: Mapping[str, str]) -> Spec:
    """The layer for `bars` with one bar in each row."""
    scale = {"domain": list(colours), "range": list(colours.values())}
    return {
        "mark": {"tooltip": {"expr": f"{one_of(names, 'datum.k')} + ': ' + {one_of(figures, 'datum.k')}"}},
        "encoding": {
            "x": {"field": field, "type": "quantitative", "axis": None, "scale": {"nice": False}},
            "color": {"field": "k", "type": "nominal", "legend": None, "scale": scale},
        },
    }


def _above(side: str) -> Spec:
    return {"type": "text", "align": side, "baseline": "middle", "yOffset": -BAR_OFFSET}


def _text(table: Mapping[str, str]) -> Spec:
    return {"value": {"expr": one_of(table, "datum.k")}}
