"""The house style of the charts: colours, axes and texts in Vega-Lite's terms. Nothing here draws."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from stepwatch.i18n import joined, say, say_all
from stepwatch.i18n.languages import TABLE
from stepwatch.messages import Message
from stepwatch.presenters.document import Badge, Table
from stepwatch.units import DAY_S, HOUR_S, MINUTE_S

Spec = dict[str, Any]


SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
INK, MUTED, GRID = "#1c2128", "#57606a", "#e1e5ea"
# From the palette of Okabe and Ito for every kind of colour vision; darkened to a contrast of 3:1 on white.
BLUE, ORANGE, GREEN, PURPLE, OCHRE, SLATE = "#0072b2", "#d05c00", "#008561", "#a8458a", "#8a6d00", "#4a5560"
CYAN = "#3596bd"
DARK = {
    INK: "#e6e9ed", MUTED: "#a6b0bb", GRID: "#333b45", BLUE: "#5ab4ec", ORANGE: "#ff9a52", GREEN: "#3ecf9f",
    PURPLE: "#e39bcb", OCHRE: "#e6cf4a", SLATE: "#b9c3ce", CYAN: "#a5e3f7",
}  # fmt: skip
"""The counterpart of each colour on a dark page. The stylesheet swaps them, only on screens."""

PART_COLOURS = {
    "step": BLUE, "data": CYAN, "eval": ORANGE, "checkpoint": GREEN, "pair": PURPLE, "compile": OCHRE, "warm-up": OCHRE,
    "start": PURPLE, "stall": SLATE, "regular": SLATE, "unexplained": SLATE,
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
"""The opacity of marks that only the pointer finds; at an opacity of 0 it would not."""


class Plot(NamedTuple):
    """A picture as data, its description, and a table of the same data."""

    name: str
    """The same in every language."""
    title: str
    description: str
    spec: Spec
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def spec_of(language: str, datasets: Mapping[str, Sequence[Mapping[str, Any]]], **content: Any) -> Spec:
    """A complete specification. The data contains no words, so all languages can share it."""
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
        "config": {"font": font_of(language), "locale": {"number": number}, **_CONFIG},
    }


def font_of(language: str) -> str:
    return ", ".join(filter(None, (TABLE[language].fonts, FONT)))


def plot(name: str, title: Message, about: Iterable[Message], spec: Spec, table: Table, language: str) -> Plot:
    said, description = say(title, language), say_all(about, language)
    cells = ([cell for cell in row if not isinstance(cell, Badge)] for row in table.rows)  # no chart has badges
    rows = tuple(tuple("" if cell is None else say(cell, language) for cell in row) for row in cells)
    head = tuple(say(cell, language) for cell in table.head)
    whole = joined((said + TABLE[language].colon, description))
    return Plot(name, said, description, {**spec, "description": whole}, head, rows)


def text(value: str) -> str:
    """A text as a Vega expression."""
    return json.dumps(value)


def one_of(table: Mapping[str, str], key: str) -> str:
    """The expression that looks up a text by its code; `key` is an expression too."""
    return f"({json.dumps(dict(table))})[{key}]"


def legend(titles: Mapping[str, str], **more: Any) -> Spec:
    """A legend above the chart, in as many columns as the width allows; `titles` are keyed by code."""
    narrow = 2 if max(map(len, titles.values())) <= 18 else 1  # characters; two columns of them fit on a phone
    columns = {"expr": f"width < 460 ? {narrow} : width < 600 ? 3 : {len(titles)}"}
    return {"labelExpr": one_of(titles, "datum.value"), "columns": columns, **more}


def rounded(value: float) -> float:
    """Rounded to as many digits as any answer shows, which keeps the page small."""
    return float(f"{value:.6g}")


# --- axes -------------------------------------------------------------------------------------------------------


def iteration_axis(first: float, last: float, language: str, *, zooms: bool = False) -> Spec:
    """An axis with room at both ends, long enough for three ticks; if it `zooms`, it follows the signal `zoom_i`."""
    room = 0.015 * max(last - first, 2)  # half a large mark
    ends = (first - room, max(last, first + 2) + room)
    scale: Spec = {"domain": list(ends), "nice": False, "zero": False}
    if zooms:
        low, high = (f"zoom_i ? zoom_i[{place}] : {end!r}" for place, end in enumerate(ends))
        scale = {"domainMin": {"expr": low}, "domainMax": {"expr": high}, "nice": False, "zero": False}
    axis = {
        "title": say(Message("Iteration"), language), "tickCount": {"expr": "width < 600 ? 5 : 8"}, "tickMinStep": 1,
        "labelExpr": integer("datum.value", language), "labelOverlap": "parity", "labelSeparation": 8,
    }  # fmt: skip
    return {"type": "quantitative", "scale": scale, "axis": axis}


_DAYS = tuple(DAY_S * count for count in (1, 2, 4, 10, 20, 40, 100, 200, 400, 1000, 2000, 4000))
_ROUND = (
    *(float(f"{digit}e{power}") for power in range(-6, 1) for digit in (1, 2, 5)), 10.0, 20.0, 30.0,
    *(MINUTE_S * count for count in (1, 2, 5, 10, 20, 30)), *(HOUR_S * count for count in (1, 2, 5, 10)), *_DAYS,
)  # fmt: skip
_ROUNDEST = (
    *(float(f"1e{power}") for power in range(-6, 2)), MINUTE_S, 10 * MINUTE_S, HOUR_S, 10 * HOUR_S, *_DAYS[2::3],
)  # fmt: skip
_ROUND_STEPS = (
    10.0, 15.0, 30.0, *(MINUTE_S * count for count in (1, 2, 5, 10, 15, 30)),
    *(HOUR_S * count for count in (1, 2, 3, 6, 12)),
)  # fmt: skip
"""Steps between the ticks of a linear scale; others are 1, 2 or 5 times a power of ten, of seconds or of days."""


def _rounded_down(seconds: str, unit_s: float) -> str:
    """The expression that rounds down to 1, 2 or 5 times a power of ten of the unit."""
    power = f"pow(10, floor(log({seconds} / {unit_s:.10g}) / LN10 + 1e-9)) * {unit_s:.10g}"
    return f"{power} * ({seconds} >= 5 * {power} ? 5 : {seconds} >= 2 * {power} ? 2 : 1)"


def time_axis(scale: str, language: str, *, log: bool = False, **more: Any) -> tuple[list[Spec], Spec]:
    """The signals that a time axis needs, and the axis: at least three round durations in any visible range."""
    low, high = f"domain('{scale}')[0]", f"domain('{scale}')[1]"
    step = _rounded_down("tick_most", 1.0)
    for longer in _ROUND_STEPS:
        step = f"tick_most < {longer:.10g} ? {step} : {longer:.10g}"
    step = f"tick_most < {DAY_S:.10g} ? {step} : {_rounded_down('tick_most', DAY_S)}"
    # A range contains at least three multiples of a step that is at most a third of the range.
    signals = [{"name": "tick_most", "expr": f"({high} - {low}) / 3"}, {"name": "tick_step", "expr": step}]
    ticks = f"sequence(ceil({low} / tick_step - 1e-6) * tick_step, {high} + 1e-6 * tick_step, tick_step)"
    if log:  # three ticks at least in a factor of ten and in a factor of a thousand
        ratio = f"{high} / {low}"
        ticks = f"{ratio} >= 1000 ? {list(_ROUNDEST)} : {ratio} >= 10 ? {list(_ROUND)} : {ticks}"
    value, space = "datum.value", text(TABLE[language].space)
    # Long durations as everywhere, unless two ticks would get the same text.
    long = (
        f"{value} >= 60 && tick_step >= ({value} < 3570 ? 1 : {value} < 84600 ? 60 : {value} < 8638200 ? 3600 : 86400)"
    )
    seconds = f"format({value}, '.6~r') + {space} + 's'"
    milliseconds = f"format({value} * 1000, '.6~r') + {space} + 'ms'"
    near = f"{value} > 0.9999 ? {seconds} : {value} > 1e-9 ? {milliseconds} : '0'"
    said = f"{long} ? {duration(value, language)} : {near}"
    apart = {"labelOverlap": "parity", "labelSeparation": 8}
    return signals, {"values": {"expr": ticks}, "labelExpr": said, "title": None, **apart, **more}


_SCALES = ((1e9, " G"), (1e6, " M"), (1e3, " k"))


def count_axis(high: float) -> Spec:
    """An axis from 0 to `high`, with Vega's own ticks: at least three if five are requested."""
    scale, unit = next(((scale, unit) for scale, unit in _SCALES if high >= scale), (1.0, ""))
    said = f"datum.value ? format(datum.value / {scale:g}, '.6~r') + {text(unit)} : '0'"
    return {"tickCount": 5, "labelExpr": said, "title": None}


# --- texts in a tooltip -----------------------------------------------------------------------------------------


def integer(value: str, language: str) -> str:
    """The expression that formats an integer as `i18n.decimal` does."""
    least = 10 ** (2 + TABLE[language].least_digits)
    return f"format({value}, {value} < {least} ? 'd' : ',d')"


def duration(value: str, language: str) -> str:
    """The expression that formats a duration as `i18n.duration` does."""

    locale = TABLE[language]
    day, hour, minute, second = locale.clock

    def unit(number: str, name: str) -> str:
        return f"{number} + {text(('' if name in locale.close else locale.space) + name)}"

    def two(small: float, count: int, big_name: str, small_name: str) -> str:
        whole = f"round({value} / {small:g})"
        first = unit(integer(f"floor({whole} / {count})", language), big_name)
        rest = unit(f"format({whole} % {count}, 'd')", small_name)
        return f"{first} + ({whole} % {count} ? {text(locale.joint)} + {rest} : '')"

    cases = (
        ("< 0.9995", unit(f"format({value} * 1000, {value} < 0.09995 ? ',.3r' : ',.1f')", "ms")),
        ("< 59.95", unit(f"format({value}, ',.3r')", "s")),
        ("< 3570", two(1.0, 60, minute, second)),
        ("< 84600", two(MINUTE_S, 60, hour, minute)),
        ("< 8638200", two(HOUR_S, 24, day, hour)),
    )
    many_days = unit(integer(f"round({value} / {DAY_S:g})", language), day)
    return "(" + "".join(f"{value} {limit} ? {said} : " for limit, said in cases) + many_days + ")"


def tooltip(title: str, rows: Iterable[tuple[str, str]]) -> Spec:
    """A title, and rows of a name and an expression; a row whose expression is undefined is left out."""
    entries = ", ".join(f"{text(name)}: {expression}" for name, expression in rows)
    return {"expr": f"{{title: {title}, {entries}}}"}


def iteration_title(language: str) -> str:
    """The expression that names the iteration in the field `i`."""
    return f"{text(say(Message('Iteration'), language) + ' ')} + {integer('datum.i', language)}"


# --- bars -------------------------------------------------------------------------------------------------------

BAR_OFFSET = 9  # the distance of a bar and of its text from the middle of the row
_BAR = {"type": "bar", "height": 12, "yOffset": BAR_OFFSET, "cornerRadius": 2}


def bars(
    names: Mapping[str, str], figures: Mapping[str, str], bar: Spec, over: Iterable[Spec] = (), *, row: int = 46
) -> Spec:
    """Bars with name and figure above them: they need no room at the side, so they fit on a phone too.

    `bar` is the layer that draws them, without y and height; the field `k` names the rows. Each row is `row` high: a
    bar, the text above it, and some space.
    """
    y = {"field": "k", "type": "nominal", "sort": list(names), "axis": None, "scale": {"paddingOuter": 0}}
    name = {"mark": _above("left"), "encoding": {"text": _text(names), "x": {"value": 0}}}
    figure = {"mark": _above("right"), "encoding": {"text": _text(figures), "x": {"value": "width"}}}
    labels = [{"transform": [{"aggregate": [], "groupby": ["k"]}], **label} for label in (name, figure)]
    return {
        "height": row * len(names), "encoding": {"y": y},
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
