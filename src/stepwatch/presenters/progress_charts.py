"""Charts over the course of a run: how fast it was, and when it will end."""

from __future__ import annotations

import numpy as np

from stepwatch import i18n
from stepwatch.analysis import Analysis
from stepwatch.analysis.throughput import tokens_per_iteration
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.presenters import vega
from stepwatch.presenters.document import Table, count, time
from stepwatch.presenters.run_sentences import rows_between
from stepwatch.presenters.thinning import stretches
from stepwatch.presenters.vega import Plot, Spec, rounded
from stepwatch.units import Interval

_MOST_STRETCHES = 150
_NINE_OF_TEN = (5, 50, 95)
_ROOM = 1.05  # above the highest value
_LINE = {"type": "line", "strokeWidth": 2}
_DASHED = {"strokeWidth": 2, "strokeDash": [6, 3], "color": vega.ORANGE}
_TOUCHED = {"type": "point", "filled": True, "size": 90, "opacity": vega.UNSEEN}
"""Invisible points: they let the pointer find a line."""
_PER_SECOND = Message("iterations/s")


def throughput(a: Analysis, language: str) -> Plot | None:
    """Tokens per second if the log shows how many an iteration has, else iterations per second."""
    numbers_, times = a.run.iterations.number, a.run.iterations.time_s
    normal = np.flatnonzero(a.phases.normal & (times > 0))
    if len(normal) < 2:
        return None
    tokens = tokens_per_iteration(a.run)
    rates = []
    for part in stretches(normal, _MOST_STRETCHES):
        low, mid, high = map(rounded, np.percentile((tokens or 1.0) / times[part], _NINE_OF_TEN).tolist())
        first, last = int(numbers_[part[0]]), int(numbers_[part[-1]])
        rates.append({"from": first, "i": last, "low": low, "mid": mid, "high": high})
    levels = [
        {"from": level.from_iteration, "to": level.to_iteration, "rate": rounded((tokens or 1.0) / level.step_s)}
        for level in a.regimes.regimes
        if level.step_s > 0 and len(a.regimes.regimes) > 1
    ]
    rows = []
    for part in stretches(normal, 12):  # rows of the table
        step = float(np.median(times[part]))
        rate = Message("{rate:rate}", {"rate": tokens / step}) if tokens else Message("{rate:x}", {"rate": 1 / step})
        rows.append((rows_between(a, part[0], part[-1]), rate, time(step)))
    head = (Message("Iterations"), Message("Speed") if tokens else _PER_SECOND, Message("Normal iteration"))

    unit = "tokens/s" if tokens else say(_PER_SECOND, language)
    top = _ROOM * max(row["high"] for row in rates)
    axis = {**vega.count_axis(top), "title": unit}
    y: Spec = {"type": "quantitative", "scale": {"domain": [0, rounded(top)], "nice": False}, "axis": axis}
    x = {"field": "i", **vega.iteration_axis(rates[0]["from"], rates[-1]["i"], language)}
    middle = {"x": x, "y": {"field": "mid", **y}}
    band = {"x": x, "y": {"field": "low", **y}, "y2": {"field": "high"}}
    level = {"x": {"field": "from", "type": "quantitative"}, "x2": {"field": "to"}, "y": {"field": "rate", **y}}
    span = f"{vega.integer('datum.from', language)} + '–' + {vega.integer('datum.i', language)}"
    hover = vega.tooltip(span, [(unit, "format(datum.mid, ',.3~r')")])
    layers = [
        {"mark": {"type": "area", "color": vega.BLUE, "opacity": 0.2}, "encoding": band},
        {"mark": {**_LINE, "color": vega.BLUE}, "encoding": middle},
        {"mark": {**_TOUCHED, "tooltip": hover}, "encoding": middle},
    ]
    about = [Message("The line is the median of the normal iterations; the band contains nine of ten of them.")]
    if levels:
        layers.append({"data": {"name": "levels"}, "mark": {"type": "rule", **_DASHED}, "encoding": level})
        about.append(Message("The dashed lines are the levels of speed that were found."))
    spec = vega.spec_of(language, {"rates": rates, "levels": levels}, height=220, layer=layers)
    table = Table(head, "lrr", tuple(rows))
    return vega.plot("throughput", Message("Speed over the run"), about, spec, table, language)


_MACHINE = {
    "cards": (Message("Graphics cards"), vega.BLUE),
    "cpu": (Message("Processors"), vega.ORANGE),
    "disk_busy": (Message("Disk"), vega.GREEN),
}


def machine(a: Analysis, language: str) -> Plot | None:
    """The share of the time that cards, processors and disk were busy, over the course of the run."""
    course = a.machine.course(_MOST_STRETCHES) if a.machine is not None else []
    if len(course) < 2:
        return None
    number = a.run.iterations.number
    points = [
        {"i": int(number[row]), "k": name, "share": rounded(share), name: rounded(share)}
        for row, means in course
        for name, share in means.items()
    ]
    present = [name for name in _MACHINE if any(point["k"] == name for point in points)]
    titles = {name: say(_MACHINE[name][0], language) for name in present}
    colours = [_MACHINE[name][1] for name in present]
    x = {"field": "i", **vega.iteration_axis(int(number[course[0][0]]), int(number[course[-1][0]]), language)}
    axis = {"tickCount": 5, "labelExpr": "format(datum.value, '.0%')", "title": None}
    y: Spec = {"field": "share", "type": "quantitative", "scale": {"domain": [0, _ROOM]}, "axis": axis}
    scale = {"domain": present, "range": colours}
    legend = vega.legend(titles, symbolType="square", symbolOpacity=1)
    colour = {"field": "k", "type": "nominal", "scale": scale, "legend": legend, "title": None}
    drawn = {"x": x, "y": y, "color": colour}
    said = "isValid(datum.{0}) ? format(datum.{0}, '.0%') : datum.{0}"  # only for the point's own line
    shares = [(title, said.format(name)) for name, title in titles.items()]
    hover = vega.tooltip(vega.iteration_title(language), shares)
    layers = [{"mark": _LINE, "encoding": drawn}, {"mark": {**_TOUCHED, "tooltip": hover}, "encoding": drawn}]
    spec = vega.spec_of(language, {"machine": points}, height=200, layer=layers)
    rows = []
    for row, means in course[:: max(len(course) // 12, 1)]:  # rows of the table
        busy = (Message("{share:pct}", {"share": means[name]}) if name in means else None for name in present)
        rows.append((count(int(number[row])), *busy))
    head = (Message("Iteration"), *(_MACHINE[name][0] for name in present))
    about = (Message("The share of the time in which each was busy, as the samples of the machine have it."),)
    table = Table(head, "r" * len(head), tuple(rows))
    return vega.plot("machine", Message("How busy the machine was"), about, spec, table, language)


def forecast(a: Analysis, language: str) -> Plot | None:
    """The time that has passed at each iteration, and the forecast; None if nothing is ahead or known."""
    f = a.forecast
    if f.done or not (a.costs.step_known or f.basis == "estimate"):
        return None
    if f.max_iters is not None and f.remaining_s is not None and f.max_iters > f.last_iteration:
        end, remaining = f.max_iters, f.remaining_s
    elif f.per_thousand_s is not None:
        end, remaining = f.last_iteration + 1000, f.per_thousand_s
    else:
        return None
    past = _elapsed(a)
    now = past[-1]["s"] if past else 0.0
    whole = f.total_s  # the time taken so far is not known exactly either
    if whole is None or not past:
        whole = Interval(now + remaining.low, now + remaining.mid, now + remaining.high)
    if not whole.high > 0:
        return None
    band = [
        {"i": f.last_iteration, "low": now, "mid": now, "high": now},
        {"i": end, "low": rounded(whole.low), "mid": rounded(whole.mid), "high": rounded(whole.high)},
    ]
    top = _ROOM * whole.high
    x = {"field": "i", **vega.iteration_axis(past[0]["i"] if past else f.last_iteration, end, language)}
    signals, axis = vega.time_axis("y", language)
    y: Spec = {"type": "quantitative", "scale": {"domain": [0, rounded(top)], "nice": False}, "axis": axis}
    name, title = say(Message("Time"), language), vega.iteration_title(language)
    hover = vega.tooltip(title, [(name, vega.duration("datum.s", language))])
    at_end = vega.tooltip(title, [(name, vega.text(i18n.duration_range(whole, language)))])
    passed, middle = {"x": x, "y": {"field": "s", **y}}, {"x": x, "y": {"field": "mid", **y}}
    between = {"x": x, "y": {"field": "low", **y}, "y2": {"field": "high"}}
    ahead = {"data": {"name": "ahead"}}
    last = {"type": "point", "filled": True, "color": vega.ORANGE, "size": 60, "tooltip": at_end}
    layers = [
        {**ahead, "mark": {"type": "area", "color": vega.ORANGE, "opacity": 0.3}, "encoding": between},
        {**ahead, "mark": {**_LINE, **_DASHED}, "encoding": middle},
        {"mark": {**_LINE, "color": vega.BLUE}, "encoding": passed},
        {"mark": {**_TOUCHED, "tooltip": hover}, "encoding": passed},
        {**ahead, "transform": [{"filter": f"datum.i === {end}"}], "encoding": middle, "mark": last},
    ]
    spec = vega.spec_of(language, {"elapsed": past, "ahead": band}, height=240, params=signals, layer=layers)
    about = (Message("The line is the time so far; the band is where it leads in nine of ten cases."),)
    rows = ((count(f.last_iteration), time(now)), (count(end), time(whole)))
    since = Message("Time since the start")
    return vega.plot("forecast", since, about, spec, Table((Message("Iteration"), since), "rr", rows), language)


def _elapsed(a: Analysis) -> list[dict[str, float]]:
    """The time since the first logged iteration, at some of the rows; at the last one it is the whole wall time."""
    if not a.goodput.iterations:
        return []
    rows, normal = a.run.iterations, a.phases.baseline
    unlogged = np.maximum(np.diff(rows.number, prepend=rows.number[0] - 1) - 1, 0)
    sums = np.cumsum(rows.time_s + unlogged * (np.asarray(normal.time_s) if normal is not None else 0.0))
    if not sums[-1] > 0:
        return []
    sums *= a.goodput.wall_s / sums[-1]
    chosen = [int(part[-1]) for part in stretches(np.arange(len(rows)), _MOST_STRETCHES)]
    return [{"i": int(rows.number[row]), "s": rounded(float(sums[row]))} for row in chosen]
