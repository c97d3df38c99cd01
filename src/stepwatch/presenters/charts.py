"""The charts of a run as Vega-Lite specifications: data, not drawing; each with the table behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from stepwatch.analysis import Analysis
from stepwatch.analysis.phases import PHASE_NAMES, Phase
from stepwatch.analysis.throughput import tokens_per_iteration
from stepwatch.i18n import numbers, say
from stepwatch.messages import Message
from stepwatch.presenters import outline, sentences, vega
from stepwatch.presenters.blocks import Table
from stepwatch.presenters.sentences import PART_NAMES
from stepwatch.presenters.thinning import MOST_POINTS, Drawn, drawn_rows, stretches
from stepwatch.presenters.vega import Chart, Spec, one_of, rounded
from stepwatch.run import Floats, Ints
from stepwatch.units import Interval

NAMES = ("times", "anatomy", "throughput", "parts", "forecast")
_MOST_STRETCHES = 150
_MOST_TABLE_ROWS = 12
_NINE_OF_TEN = (5, 50, 95)

PHASE_TITLES = {
    Phase.STEP: PART_NAMES["step"],
    Phase.EVAL: PART_NAMES["eval"],
    Phase.EVAL_CHECKPOINT: PART_NAMES["pair"],
    Phase.CHECKPOINT: PART_NAMES["checkpoint"],
    Phase.FIRST: Message("First iteration"),
    Phase.STALL: PART_NAMES["stall"],
}
_PHASE_MARKS = {
    Phase.STEP: (vega.BLUE, "circle"),
    Phase.EVAL: (vega.ORANGE, "triangle-up"),
    Phase.EVAL_CHECKPOINT: (vega.PURPLE, "diamond"),
    Phase.CHECKPOINT: (vega.GREEN, "square"),
    Phase.FIRST: (vega.OCHRE, "triangle-right"),
    Phase.STALL: (vega.SLATE, "cross"),
}
_SPLIT = ("step", "eval", "checkpoint", "compile", "unexplained")


def charts_of(a: Analysis, language: str, *, most: int = MOST_POINTS) -> tuple[Chart, ...]:
    """All that the run can fill; `most` is the number of points that one of them may have."""
    charts = (
        _times(a, language, most), _anatomy(a, language), _throughput(a, language), _parts(a, language),
        _forecast(a, language),
    )  # fmt: skip
    return tuple(chart for chart in charts if chart is not None)


# --- the time of every iteration --------------------------------------------------------------------------------


def _times(a: Analysis, language: str, most: int) -> Chart | None:
    drawn = drawn_rows(a, most)
    if not len(drawn.rows):
        return None
    times = a.run.iterations.time_s[drawn.rows]
    low, high = float(times.min()) / 1.25, float(times.max()) * 1.25
    phases = [phase for phase in Phase if (a.phases.phase[drawn.rows] == phase).any()]
    titles = {PHASE_NAMES[phase]: say(PHASE_TITLES[phase], language) for phase in phases}
    legend = {"labelExpr": one_of(titles, "datum.value"), "symbolSize": 70, "symbolOpacity": 1}
    marks = [_PHASE_MARKS[phase] for phase in phases]
    spec = vega.spec_of(
        language, {"times": list(_points(a, drawn.rows))}, height=320,
        params=[{
            "name": "zoom", "bind": "scales",
            "select": {"type": "interval", "encodings": ["x"], "zoom": "wheel![event.ctrlKey || event.shiftKey]"},
        }],
        mark={"type": "point", "filled": True, "clip": True, "tooltip": _point_tooltip(a, titles, language)},
        encoding={
            "x": {"field": "i", **vega.iteration_axis(language)},
            "y": {
                "field": "t", "type": "quantitative", "axis": vega.time_axis(vega.log_times(low, high), language),
                "scale": {"type": "log", "domain": [rounded(low), rounded(high)], "nice": False},
            },
            "color": {
                "field": "p", "type": "nominal", "legend": legend,
                "scale": {"domain": list(titles), "range": [colour for colour, _ in marks]},
            },
            "shape": {
                "field": "p", "type": "nominal", "legend": legend,
                "scale": {"domain": list(titles), "range": [shape for _, shape in marks]},
            },
            "size": {"condition": {"test": "datum.p === 'step'", "value": 22}, "value": 80},
            "opacity": {"condition": {"test": "datum.p === 'step'", "value": 0.6}, "value": 0.95},
        },
    )  # fmt: skip
    title = Message("Time of each logged iteration")
    return _chart("times", title, _about_points(a, drawn), spec, _stretch_table(a), language)


def _points(a: Analysis, rows: Ints) -> Iterator[dict[str, Any]]:
    """Normal iterations first, so that the slow ones are drawn over them; a part is there where it is not nothing."""
    order = rows[np.argsort(a.phases.phase[rows] != Phase.STEP, kind="stable")]
    numbers_, times, phases = a.run.iterations.number, a.run.iterations.time_s, a.phases.phase
    for row in order.tolist():
        point = {"i": int(numbers_[row]), "t": rounded(float(times[row])), "p": PHASE_NAMES[int(phases[row])]}
        if phases[row] != Phase.STEP and sentences.step_known(a):
            point |= {part: rounded(seconds) for part, seconds in _parts_of(a, row).items()}
        yield point


def _parts_of(a: Analysis, row: int) -> dict[str, float]:
    """The parts of a slow iteration that are worth a word, as the table of slow iterations names them."""
    values = {part: float(column[row]) for part, column in zip(_SPLIT, a.split, strict=True)}
    if not sentences.told_apart(a) and values["checkpoint"] > 0:
        values["pair"] = values.pop("eval") + values.pop("checkpoint")
    if a.phases.phase[row] == Phase.STALL:
        values["stall"] = values.pop("unexplained")
    shown = sentences.SMALLEST_SHOWN * float(a.run.iterations.time_s[row])
    return {part: seconds for part, seconds in values.items() if seconds > shown}


def _point_tooltip(a: Analysis, titles: dict[str, str], language: str) -> Spec:
    rows = [(say(Message("Time"), language), vega.duration("datum.t", language))]
    for part in (*_SPLIT[:3], "pair", "compile", "stall", "unexplained"):
        field = f"datum[{part!r}]"
        rows.append((_part_name(a, part, language), f"{field} ? {vega.duration(field, language)} : datum.none"))
    title = f"{_iteration_title(language)} + ' · ' + {one_of(titles, 'datum.p')}"
    return vega.tooltip(title, rows)


def _part_name(a: Analysis, part: str, language: str) -> str:
    warm_up = part == "compile" and a.run.settings.flag("compile") is False
    return say(PART_NAMES["warm-up" if warm_up else part], language)


def _about_points(a: Analysis, drawn: Drawn) -> tuple[Message, ...]:
    scale = Message("Each mark is a logged iteration; each line of the scale is several times the one below it.")
    facts = {"rows": len(a.run.iterations), "shown": len(drawn.rows)}
    if drawn.slow_left_out:
        return scale, Message(
            "Of {rows:n} iterations {shown:n} are drawn: the slowest, the first and the last of each stretch, "
            "for each kind.",
            facts,
        )
    if drawn.steps_left_out:
        return scale, Message(
            "Of {rows:n} iterations {shown:n} are drawn: every slow one, and of the others the fastest, "
            "the middle and the slowest of each stretch.",
            facts,
        )
    return (scale,)


def _stretch_table(a: Analysis) -> Table:
    head = (Message("Iterations"), Message("Fastest"), Message("Middle"), Message("Slowest"))
    rows = []
    for part in stretches(np.arange(len(a.run.iterations)), _MOST_TABLE_ROWS):
        times = a.run.iterations.time_s[part]
        figures = (float(times.min()), float(np.median(times)), float(times.max()))
        rows.append(((_span(a, part),), *((_time(seconds),) for seconds in figures)))
    return Table(head, "lrrr", tuple(rows))


def _span(a: Analysis, part: Ints) -> Message:
    first, last = (int(a.run.iterations.number[row]) for row in (part[0], part[-1]))
    return Message("{first:n}–{last:n}", {"first": first, "last": last})


def _time(seconds: float) -> Message:
    return Message("{time:time}", {"time": seconds})


# --- the anatomy of a slow iteration ----------------------------------------------------------------------------


def _anatomy(a: Analysis, language: str) -> Chart | None:
    typical = _typical_rows(a) if sentences.step_known(a) else {}
    if not typical:
        return None
    parts = {PHASE_NAMES[phase]: _parts_of(a, row) for phase, row in typical.items()}
    names = {
        PHASE_NAMES[phase]: f"{say(PHASE_TITLES[phase], language)} ({_number(a, row, language)})"
        for phase, row in typical.items()
    }
    figures = {
        PHASE_NAMES[phase]: numbers.duration(float(a.run.iterations.time_s[row]), language)
        for phase, row in typical.items()
    }
    used = [part for part in vega.PART_COLOURS if any(part in holds for holds in parts.values())]
    titles = {part: _part_name(a, part, language) for part in used}
    rows = [
        {"k": kind, "part": part, "s": rounded(seconds), "order": used.index(part)}
        for kind, holds in parts.items() for part, seconds in holds.items()
    ]  # fmt: skip
    bar = {
        "mark": {"tooltip": vega.tooltip(one_of(names, "datum.k"), [
            (say(Message("Part"), language), one_of(titles, "datum.part")),
            (say(Message("Time"), language), vega.duration("datum.s", language)),
        ])},
        "encoding": {
            "x": {"field": "s", "type": "quantitative", "stack": "normalize", "axis": None},
            "order": {"field": "order", "type": "quantitative"},
            "color": {
                "field": "part", "type": "nominal",
                "scale": {"domain": used, "range": [vega.PART_COLOURS[part] for part in used]},
                "legend": {"labelExpr": one_of(titles, "datum.value"), "symbolType": "square"},
            },
        },
    }  # fmt: skip
    spec = vega.spec_of(language, {"anatomy": rows}, **vega.bars(names, figures, bar))
    title = Message("What a slow iteration is made of")
    about = (Message("A typical one of each kind, with its number; the whole bar is its time."),)
    return _chart("anatomy", title, about, spec, _anatomy_table(a, typical), language)


def _typical_rows(a: Analysis) -> dict[Phase, int]:
    """Of each slow phase the row in the middle."""
    found = {}
    for phase in (Phase.FIRST, Phase.EVAL, Phase.EVAL_CHECKPOINT, Phase.CHECKPOINT, Phase.STALL):
        rows = np.flatnonzero((a.phases.phase == phase) & (a.run.iterations.time_s > 0))
        if len(rows):
            order = np.argsort(a.run.iterations.time_s[rows], kind="stable")
            found[phase] = int(rows[order[len(rows) // 2]])
    return found


def _number(a: Analysis, row: int, language: str) -> str:
    return numbers.integer(int(a.run.iterations.number[row]), language)


def _anatomy_table(a: Analysis, typical: dict[Phase, int]) -> Table:
    head = (Message("Iteration"), Message("Time"), Message("What it includes"))
    rows = []
    for row in typical.values():
        slow = sentences.slow_row(a, row)
        rows.append(((Message("{iteration:n}", {"iteration": slow.iteration}),), (_time(slow.time_s),), slow.holds))
    return Table(head, "rrl", tuple(rows))


# --- speed ------------------------------------------------------------------------------------------------------


def _throughput(a: Analysis, language: str) -> Chart | None:
    normal = np.flatnonzero(a.phases.normal & (a.run.iterations.time_s > 0))
    if len(normal) < 2:
        return None
    tokens = tokens_per_iteration(a.run)
    rates = (tokens or 1.0) / a.run.iterations.time_s
    rows = [_stretch(a, part, rates) for part in stretches(normal, _MOST_STRETCHES)]
    levels = [
        {"from": regime.from_iteration, "to": regime.to_iteration, "rate": rounded((tokens or 1.0) / regime.step_s)}
        for regime in a.regimes.regimes if regime.step_s > 0
    ] if len(a.regimes.regimes) > 1 else []  # fmt: skip
    high = 1.05 * max(row["high"] for row in rows)
    unit = "tokens/s" if tokens else say(Message("iterations/s"), language)
    x = {"field": "i", **vega.iteration_axis(language)}
    y: Spec = {
        "type": "quantitative", "scale": {"domain": [0, rounded(high)], "nice": False},
        "axis": {**vega.count_axis(vega.linear_counts(high), language), "title": unit},
    }  # fmt: skip
    hover = vega.tooltip(
        f"{vega.integer('datum.from', language)} + '–' + {vega.integer('datum.i', language)}",
        [(unit, "format(datum.mid, ',.3~r')")],
    )
    line = {"type": "line", "color": vega.BLUE, "strokeWidth": 2}
    touched = {"type": "point", "filled": True, "color": vega.BLUE, "size": 90, "opacity": 0.001, "tooltip": hover}
    dashes = {"type": "rule", "color": vega.ORANGE, "strokeWidth": 2, "strokeDash": [6, 3]}
    level_x = {"x": {"field": "from", "type": "quantitative"}, "x2": {"field": "to"}}
    layers: list[Spec] = [
        {
            "mark": {"type": "area", "color": vega.BLUE, "opacity": 0.2},
            "encoding": {"x": x, "y": {"field": "low", **y}, "y2": {"field": "high"}},
        },
        {"mark": line, "encoding": {"x": x, "y": {"field": "mid", **y}}},
        {"mark": touched, "encoding": {"x": x, "y": {"field": "mid", **y}}},
        {"data": {"name": "levels"}, "mark": dashes, "encoding": {**level_x, "y": {"field": "rate", **y}}},
    ]
    spec = vega.spec_of(language, {"rates": rows, "levels": levels}, height=220, layer=layers[: 4 if levels else 3])
    about = [Message("The line is the middle of the normal iterations; the band holds nine of ten of them.")]
    if levels:
        about.append(Message("The dashed lines are the levels of speed that were found."))
    return _chart("throughput", Message("Speed over the run"), tuple(about), spec, _rate_table(a, tokens), language)


def _stretch(a: Analysis, part: Ints, rates: Floats) -> dict[str, Any]:
    low, mid, high = np.percentile(rates[part], _NINE_OF_TEN).tolist()
    first, last = (int(a.run.iterations.number[row]) for row in (part[0], part[-1]))
    return {"from": first, "i": last, "low": rounded(low), "mid": rounded(mid), "high": rounded(high)}


def _rate_table(a: Analysis, tokens: float | None) -> Table:
    normal = np.flatnonzero(a.phases.normal & (a.run.iterations.time_s > 0))
    rows = []
    for part in stretches(normal, _MOST_TABLE_ROWS):
        time = float(np.median(a.run.iterations.time_s[part]))
        rate = Message("{rate:rate}", {"rate": tokens / time}) if tokens else Message("{rate:x}", {"rate": 1 / time})
        rows.append(((_span(a, part),), (rate,), (_time(time),)))
    speed = Message("Speed") if tokens else Message("iterations/s")
    return Table((Message("Iterations"), speed, Message("Normal iteration")), "lrr", tuple(rows))


# --- where the time went ----------------------------------------------------------------------------------------


def _parts(a: Analysis, language: str) -> Chart | None:
    found = sentences.part_rows(a) if a.goodput.iterations else ()
    if not found:
        return None
    rows = {row.part: row for row in found}
    names = {part: say(row.name, language) for part, row in rows.items()}
    figures = {
        part: f"{numbers.duration(row.seconds, language)} · {say(sentences.share_text(row.share), language)}"
        for part, row in rows.items()
    }
    bar = {
        "mark": {"tooltip": {"expr": f"{one_of(names, 'datum.k')} + ': ' + {one_of(figures, 'datum.k')}"}},
        "encoding": {
            "x": {"field": "s", "type": "quantitative", "axis": None, "scale": {"nice": False}},
            "color": {
                "field": "k", "type": "nominal", "legend": None,
                "scale": {"domain": list(rows), "range": [vega.PART_COLOURS[part] for part in rows]},
            },
        },
    }  # fmt: skip
    data = [{"k": part, "s": rounded(row.seconds)} for part, row in rows.items()]
    spec = vega.spec_of(language, {"parts": data}, **vega.bars(names, figures, bar))
    about = (Message("Each bar is the time of one part over the whole log."),)
    return _chart("parts", Message("Where the time went"), about, spec, outline.time_by_part(a), language)


# --- the forecast -----------------------------------------------------------------------------------------------


def _forecast(a: Analysis, language: str) -> Chart | None:
    ahead = _ahead(a)
    if ahead is None:
        return None
    last, end, remaining = ahead
    past = _elapsed(a)
    now = past[-1]["s"] if past else 0.0
    band = [
        {"i": last, "low": now, "mid": now, "high": now},
        {"i": end, **{side: rounded(now + getattr(remaining, side)) for side in ("low", "mid", "high")}},
    ]
    high = 1.05 * band[-1]["high"]
    y: Spec = {
        "type": "quantitative", "scale": {"domain": [0, rounded(high)], "nice": False},
        "axis": vega.time_axis(vega.linear_times(high), language),
    }  # fmt: skip
    x = {"field": "i", **vega.iteration_axis(language)}
    line = {"type": "line", "color": vega.BLUE, "strokeWidth": 2}
    hover = vega.tooltip(_iteration_title(language), [
        (say(Message("Time"), language), vega.duration("datum.s", language)),
    ])  # fmt: skip
    said = numbers.duration_range(Interval(*(now + side for side in _sides(remaining))), language)
    layers: list[Spec] = [
        {"data": {"name": "ahead"}, "mark": {"type": "area", "color": vega.ORANGE, "opacity": 0.3}, "encoding": {
            "x": x, "y": {"field": "low", **y}, "y2": {"field": "high"},
        }},
        {"data": {"name": "ahead"}, "mark": {**line, "color": vega.ORANGE, "strokeDash": [6, 3]}, "encoding": {
            "x": x, "y": {"field": "mid", **y},
        }},
        {"mark": line, "encoding": {"x": x, "y": {"field": "s", **y}}},
        {"mark": {"type": "point", "filled": True, "color": vega.BLUE, "size": 90, "opacity": 0.001, "tooltip": hover},
         "encoding": {"x": x, "y": {"field": "s", **y}}},
        {"data": {"name": "ahead"}, "transform": [{"filter": f"datum.i === {end}"}],
         "mark": {"type": "point", "filled": True, "color": vega.ORANGE, "size": 60, "tooltip": vega.tooltip(
             _iteration_title(language),
             [(say(Message("Time"), language), vega.text(said))],
         )},
         "encoding": {"x": x, "y": {"field": "mid", **y}}},
    ]  # fmt: skip
    spec = vega.spec_of(language, {"elapsed": past, "ahead": band}, height=240, layer=layers)
    about = (Message("The line is the time so far; the band is where it leads in nine of ten cases."),)
    table = _forecast_table(last, end, now, remaining)
    return _chart("forecast", Message("Time since the start"), about, spec, table, language)


def _sides(interval: Interval) -> tuple[float, float, float]:
    return interval.low, interval.mid, interval.high


def _iteration_title(language: str) -> str:
    return f"{vega.text(say(Message('Iteration'), language) + ' ')} + {vega.integer('datum.i', language)}"


def _ahead(a: Analysis) -> tuple[int, int, Interval] | None:
    """From which iteration to which, and the time between; None where nothing is ahead or can be told."""
    f = a.forecast
    if f.done or not (sentences.step_known(a) or f.basis == "estimate"):
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
    gaps = np.diff(rows.number, prepend=rows.number[0] - 1) - 1
    between = np.maximum(gaps, 0) * (normal.time_s if normal is not None else 0.0)
    sums = np.cumsum(rows.time_s + between)
    if not sums[-1] > 0:
        return []
    sums *= a.goodput.wall_s / sums[-1]
    chosen = [int(part[-1]) for part in stretches(np.arange(len(rows)), _MOST_STRETCHES)]
    return [{"i": int(rows.number[row]), "s": rounded(float(sums[row]))} for row in chosen]


def _forecast_table(last: int, end: int, now: float, remaining: Interval) -> Table:
    whole = Message("{cost:range}", {"cost": Interval(*(now + side for side in _sides(remaining)))})
    rows = (
        ((Message("{iteration:n}", {"iteration": last}),), (_time(now),)),
        ((Message("{iteration:n}", {"iteration": end}),), (whole,)),
    )
    return Table((Message("Iteration"), Message("Time since the start")), "rr", rows)


# --- all of them ------------------------------------------------------------------------------------------------


def _chart(name: str, title: Message, about: tuple[Message, ...], spec: Spec, table: Table, language: str) -> Chart:
    rows = tuple(tuple(" + ".join(say(part, language) for part in cell) for cell in row) for row in table.rows)
    return vega.chart(name, title, about, spec, tuple(say(cell, language) for cell in table.head), rows, language)
