"""The charts of a run's course: how fast it was all along, and when it will end."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepwatch.analysis import Analysis
from stepwatch.analysis.throughput import tokens_per_iteration
from stepwatch.i18n import numbers, say
from stepwatch.messages import Message
from stepwatch.presenters import vega
from stepwatch.presenters.document import Table, cells, count, time, time_range
from stepwatch.presenters.run_sentences import rows_between, step_known
from stepwatch.presenters.thinning import stretches
from stepwatch.presenters.vega import Plot, Spec, rounded
from stepwatch.run import Ints
from stepwatch.units import Interval

_MOST_STRETCHES = 150
_MOST_TABLE_ROWS = 12
_NINE_OF_TEN = (5, 50, 95)
_ROOM = 1.05  # above the highest value
_LINE = {"type": "line", "strokeWidth": 2}
_DASHED = {"strokeWidth": 2, "strokeDash": [6, 3], "color": vega.ORANGE}
_TOUCHED = {"type": "point", "filled": True, "size": 90, "opacity": vega.UNSEEN}
"""Not seen: what the pointer finds of a line."""


# --- speed ------------------------------------------------------------------------------------------------------


def throughput(a: Analysis, language: str) -> Plot | None:
    """Tokens a second where the log tells how many an iteration holds, else iterations a second."""
    normal = np.flatnonzero(a.phases.normal & (a.run.iterations.time_s > 0))
    if len(normal) < 2:
        return None
    tokens = tokens_per_iteration(a.run)
    rates = [_stretch(a, part, tokens or 1.0) for part in stretches(normal, _MOST_STRETCHES)]
    levels = _levels(a, tokens or 1.0)
    unit = "tokens/s" if tokens else say(_PER_SECOND, language)
    layers = _rate_layers(_ROOM * max(row["high"] for row in rates), unit, language)
    spec = vega.spec_of(
        language, {"rates": rates, "levels": levels}, height=220, layer=layers if levels else layers[:-1]
    )
    about = [Message("The line is the middle of the normal iterations; the band holds nine of ten of them.")]
    if levels:
        about.append(Message("The dashed lines are the levels of speed that were found."))
    table = _rate_table(a, normal, tokens)
    return vega.plot("throughput", Message("Speed over the run"), about, spec, table, language)


_PER_SECOND = Message("iterations/s")


def _stretch(a: Analysis, part: Ints, tokens: float) -> dict[str, Any]:
    low, mid, high = np.percentile(tokens / a.run.iterations.time_s[part], _NINE_OF_TEN).tolist()
    first, last = (int(a.run.iterations.number[row]) for row in (part[0], part[-1]))
    return {"from": first, "i": last, "low": rounded(low), "mid": rounded(mid), "high": rounded(high)}


def _levels(a: Analysis, tokens: float) -> list[dict[str, Any]]:
    """Where the speed changed, each level from where to where."""
    found = a.regimes.regimes if len(a.regimes.regimes) > 1 else ()
    return [
        {"from": level.from_iteration, "to": level.to_iteration, "rate": rounded(tokens / level.step_s)}
        for level in found
        if level.step_s > 0
    ]


def _rate_layers(high: float, unit: str, language: str) -> list[Spec]:
    """The band, the line, what the pointer finds, and last the levels."""
    x = {"field": "i", **vega.iteration_axis(language)}
    y: Spec = {
        "type": "quantitative", "scale": {"domain": [0, rounded(high)], "nice": False},
        "axis": {**vega.count_axis(vega.linear_counts(high), language), "title": unit},
    }  # fmt: skip
    span = f"{vega.integer('datum.from', language)} + '–' + {vega.integer('datum.i', language)}"
    hover = vega.tooltip(span, [(unit, "format(datum.mid, ',.3~r')")])
    middle = {"x": x, "y": {"field": "mid", **y}}
    level = {"x": {"field": "from", "type": "quantitative"}, "x2": {"field": "to"}, "y": {"field": "rate", **y}}
    return [
        {
            "mark": {"type": "area", "color": vega.BLUE, "opacity": 0.2},
            "encoding": {"x": x, "y": {"field": "low", **y}, "y2": {"field": "high"}},
        },
        {"mark": {**_LINE, "color": vega.BLUE}, "encoding": middle},
        {"mark": {**_TOUCHED, "tooltip": hover}, "encoding": middle},
        {"data": {"name": "levels"}, "mark": {"type": "rule", **_DASHED}, "encoding": level},
    ]


def _rate_table(a: Analysis, normal: Ints, tokens: float | None) -> Table:
    rows = []
    for part in stretches(normal, _MOST_TABLE_ROWS):
        step = float(np.median(a.run.iterations.time_s[part]))
        rate = Message("{rate:rate}", {"rate": tokens / step}) if tokens else Message("{rate:x}", {"rate": 1 / step})
        rows.append((rows_between(a, part[0], part[-1]), rate, time(step)))
    head = (Message("Iterations"), Message("Speed") if tokens else _PER_SECOND, Message("Normal iteration"))
    return Table(head, "lrr", cells(rows))


# --- the forecast -----------------------------------------------------------------------------------------------


def forecast(a: Analysis, language: str) -> Plot | None:
    """The time that has passed at each iteration, and how it will go on; None where nothing is ahead or can be told."""
    ahead = _ahead(a)
    if ahead is None:
        return None
    last, end, remaining = ahead
    past = _elapsed(a)
    now = float(past[-1]["s"]) if past else 0.0
    whole = a.forecast.total_s  # what was taken so far is not known exactly either
    if whole is None or not past:
        whole = Interval(now + remaining.low, now + remaining.mid, now + remaining.high)
    band = [
        {"i": last, "low": now, "mid": now, "high": now},
        {"i": end, "low": rounded(whole.low), "mid": rounded(whole.mid), "high": rounded(whole.high)},
    ]
    spec = vega.spec_of(
        language, {"elapsed": past, "ahead": band}, height=240, layer=_course_layers(whole, end, language)
    )
    about = (Message("The line is the time so far; the band is where it leads in nine of ten cases."),)
    rows = cells(((count(last), time(now)), (count(end), time_range(whole))))
    title = Message("Time since the start")
    return vega.plot("forecast", title, about, spec, Table((Message("Iteration"), title), "rr", rows), language)


def _ahead(a: Analysis) -> tuple[int, int, Interval] | None:
    """From which iteration to which, and the time between; a thousand of them where the end is not known."""
    f = a.forecast
    if f.done or not (step_known(a) or f.basis == "estimate"):
        return None
    if f.max_iters is not None and f.remaining_s is not None and f.max_iters > f.last_iteration:
        return f.last_iteration, f.max_iters, f.remaining_s
    if f.per_thousand_s is not None:
        return f.last_iteration, f.last_iteration + 1000, f.per_thousand_s
    return None


def _elapsed(a: Analysis) -> list[dict[str, Any]]:
    """The time since the first logged iteration at some of the rows; at the last one all of the wall time."""
    if not a.goodput.iterations:
        return []
    rows, normal = a.run.iterations, a.phases.baseline
    unlogged = np.maximum(np.diff(rows.number, prepend=rows.number[0] - 1) - 1, 0)
    sums = np.cumsum(rows.time_s + unlogged * (normal.time_s if normal is not None else 0.0))
    if not sums[-1] > 0:
        return []
    sums *= a.goodput.wall_s / sums[-1]
    chosen = [int(part[-1]) for part in stretches(np.arange(len(rows)), _MOST_STRETCHES)]
    return [{"i": int(rows.number[row]), "s": rounded(float(sums[row]))} for row in chosen]


def _course_layers(whole: Interval, end: int, language: str) -> list[Spec]:
    high = _ROOM * whole.high
    x = {"field": "i", **vega.iteration_axis(language)}
    y: Spec = {
        "type": "quantitative", "scale": {"domain": [0, rounded(high)], "nice": False},
        "axis": vega.time_axis(vega.linear_times(high), language),
    }  # fmt: skip
    name, title = say(Message("Time"), language), vega.iteration_title(language)
    hover = vega.tooltip(title, [(name, vega.duration("datum.s", language))])
    at_end = vega.tooltip(title, [(name, vega.text(numbers.duration_range(whole, language)))])
    passed, middle = {"x": x, "y": {"field": "s", **y}}, {"x": x, "y": {"field": "mid", **y}}
    ahead = {"data": {"name": "ahead"}}
    return [
        {
            **ahead, "mark": {"type": "area", "color": vega.ORANGE, "opacity": 0.3},
            "encoding": {"x": x, "y": {"field": "low", **y}, "y2": {"field": "high"}},
        },
        {**ahead, "mark": {**_LINE, **_DASHED}, "encoding": middle},
        {"mark": {**_LINE, "color": vega.BLUE}, "encoding": passed},
        {"mark": {**_TOUCHED, "tooltip": hover}, "encoding": passed},
        {
            **ahead, "transform": [{"filter": f"datum.i === {end}"}], "encoding": middle,
            "mark": {"type": "point", "filled": True, "color": vega.ORANGE, "size": 60, "tooltip": at_end},
        },
    ]  # fmt: skip
