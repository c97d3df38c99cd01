"""Charts as Vega-Lite specifications (data, no drawing), here those of a run; each has a table of the same data."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepwatch import i18n
from stepwatch.advice import AdviceList
from stepwatch.analysis import Analysis
from stepwatch.analysis.comparison import Comparison
from stepwatch.analysis.phases import PHASE_NAMES, Phase
from stepwatch.estimator.plan import Plan
from stepwatch.i18n import clean, say
from stepwatch.messages import Message
from stepwatch.presenters import run_sentences as sentences
from stepwatch.presenters import vega
from stepwatch.presenters.bar_charts import changes, compared_parts, compared_steps, plan_memory, plan_parts
from stepwatch.presenters.document import Chart, Table, time
from stepwatch.presenters.progress_charts import forecast, machine, throughput
from stepwatch.presenters.run_sentences import PART_NAMES
from stepwatch.presenters.thinning import MOST_POINTS, drawn_rows, stretches
from stepwatch.presenters.vega import Plot, one_of, rounded
from stepwatch.report import Excerpts

PHASE_TITLES = {
    Phase.STEP: PART_NAMES["step"],
    Phase.EVAL: PART_NAMES["eval"],
    Phase.EVAL_CHECKPOINT: PART_NAMES["pair"],
    Phase.CHECKPOINT: PART_NAMES["checkpoint"],
    Phase.FIRST: Message("First iteration"),
    Phase.STALL: PART_NAMES["stall"],
}
_PHASE_MARKS = {
    "step": (vega.BLUE, "circle"),
    "eval": (vega.ORANGE, "triangle-up"),
    "eval+checkpoint": (vega.PURPLE, "diamond"),
    "checkpoint": (vega.GREEN, "square"),
    "first": (vega.OCHRE, "triangle-right"),
    "stall": (vega.SLATE, "cross"),
}
_TOOLTIP_PARTS = ("step", "data", "eval", "checkpoint", "pair", "compile", "stall", "unexplained")


def plot(chart: Chart, language: str) -> Plot | None:
    """A chart in a language; None if there is too little data."""
    name, shown = chart.name.partition("-")[0], chart.of
    if shown is None:
        return None
    if isinstance(shown, Plan):
        return {"parts": plan_parts, "memory": plan_memory}[name](shown, language)
    if isinstance(shown, Comparison):
        return {"step": compared_steps, "parts": compared_parts}[name](shown, language)
    if isinstance(shown, AdviceList):
        return changes(shown, language)
    if name == "times":
        return times(shown.analysis, language, MOST_POINTS // chart.sharing, shown.excerpts())
    if name == "changes":
        return changes(shown.advice, language)
    drawn = {"anatomy": anatomy, "throughput": throughput, "parts": parts, "forecast": forecast, "machine": machine}
    return drawn[name](shown.analysis, language)


def times(a: Analysis, language: str, most: int, excerpts: Excerpts | None = None) -> Plot | None:
    """The time of every iteration on a logarithmic scale; `most` is the number of points."""
    excerpts = excerpts or {}
    drawn = drawn_rows(a, most)
    if not len(drawn.rows):
        return None
    number, taken, phases = a.run.iterations.number, a.run.iterations.time_s, a.phases.phase
    points: list[dict[str, Any]] = []
    # Normal iterations first, so that the slow ones are drawn over them.
    in_turn = drawn.rows[np.argsort(phases[drawn.rows] != Phase.STEP, kind="stable")]
    columns = (column[in_turn].tolist() for column in (number, taken, phases))
    for row, at, seconds, phase in zip(in_turn.tolist(), *columns, strict=True):
        point = {"i": at, "t": rounded(seconds), "p": PHASE_NAMES[phase]}
        if phase != Phase.STEP and a.costs.step_known:
            point |= {part: rounded(part_s) for part, part_s in sentences.slow_parts(a, row).items()}
        points.append(point)

    # Phases differ in both colour and shape, for readers who can tell only one of them.
    present = [phase for phase in Phase if (phases[drawn.rows] == phase).any()]
    titles = {PHASE_NAMES[phase]: say(PHASE_TITLES[phase], language) for phase in present}
    colours, shapes = zip(*(_PHASE_MARKS[code] for code in titles), strict=True)
    legend = vega.legend(titles, symbolSize=70, symbolOpacity=1)
    phase_field = {"field": "p", "type": "nominal", "legend": legend}
    step, chosen = "datum.p === 'step'", "datum.i === chosen"
    small = 40 if len(drawn.rows) < 300 else 22  # larger dots if there are few
    tips = [(say(Message("Time"), language), vega.duration("datum.t", language))]
    for part in _TOOLTIP_PARTS:
        field = f"datum[{part!r}]"
        tips.append((_part_name(a, part, language), f"{field} ? {vega.duration(field, language)} : datum.none"))
    tip = vega.tooltip(f"{vega.iteration_title(language)} + ' · ' + {one_of(titles, 'datum.p')}", tips)
    signals, axis = vega.time_axis("y", language, log=True)
    y = {"type": "quantitative", "axis": axis, "scale": {"type": "log", "nice": False}}
    # Extends the scale beyond the visible marks. It is a separate layer because a scale follows what is drawn.
    room = "max(pow(datum.high / datum.low, 0.06), 1.01)"
    reach = {
        "transform": [
            {"aggregate": [{"op": "min", "field": "t", "as": "low"}, {"op": "max", "field": "t", "as": "high"}]},
            {"calculate": f"datum.low / {room}", "as": "from"},
            {"calculate": f"datum.high * {room}", "as": "to"},
        ],
        "mark": {"type": "rule", "opacity": 0},
        "encoding": {"x": {"value": 0}, "y": {"field": "from", **y}, "y2": {"field": "to"}},
    }
    marks = {
        "mark": {"type": "point", "filled": True, "aria": False, "tooltip": {"expr": "datum.tip"}},
        "encoding": {
            "y": {"field": "t", **y},
            "color": {**phase_field, "scale": {"domain": list(titles), "range": list(colours)}},
            "shape": {**phase_field, "scale": {"domain": list(titles), "range": list(shapes)}},
            "size": {"condition": [{"test": chosen, "value": 220}, {"test": step, "value": small}], "value": 80},
            "stroke": {"condition": {"test": chosen, "value": vega.INK}, "value": "transparent"},
            "opacity": {"condition": {"test": step, "value": 0.6}, "value": 0.95},
        },
    }
    quoted = [  # what a click on a mark shows: the log's own lines, each with its number
        {
            "i": int(number[row]),
            "t": rounded(float(taken[row])),
            "p": PHASE_NAMES[int(phases[row])],
            "lines": [f"{line.number}: {clean(line.text)}" for line in lines],
        }
        for row, lines in sorted(excerpts.items())
    ]
    spec = vega.spec_of(
        language,
        {"times": points, "lines": quoted},
        height=320,
        params=[{"name": "zoom_i", "value": None}, {"name": "chosen", "value": None}, *signals],
        # Computed once per point: as an expression of the mark it would be evaluated for all of them while zooming.
        transform=[{"calculate": tip["expr"], "as": "tip"}, {"filter": "!zoom_i || inrange(datum.i, zoom_i)"}],
        encoding={"x": {"field": "i", **vega.iteration_axis(int(number[0]), int(number[-1]), language, zooms=True)}},
        layer=[reach, marks],
    )
    spec["usermeta"] = {"phases": titles, "lines": say(Message("The log around iteration"), language)}

    about = [Message("Each mark is a logged iteration; the scale is logarithmic.")]
    facts = {"rows": len(number), "shown": len(drawn.rows)}
    if drawn.slow_left_out:
        text = Message(
            "{shown:n} of {rows:n} iterations are drawn: the slowest, the first and the last of each stretch, for "
            "each kind."
        )
        about.append(text._replace(params=facts))
    elif drawn.steps_left_out:
        text = Message(
            "{shown:n} of {rows:n} iterations are drawn: every slow one, and of the others the fastest, the middle "
            "and the slowest of each stretch."
        )
        about.append(text._replace(params=facts))
    head = (Message("Iterations"), Message("Fastest"), Message("Median"), Message("Slowest"))
    rows = []
    for stretch in stretches(np.arange(len(number)), 12):  # rows of the table
        of = taken[stretch]
        figures = (float(of.min()), float(np.median(of)), float(of.max()))
        rows.append((sentences.rows_between(a, stretch[0], stretch[-1]), *map(time, figures)))
    title = Message("Time of each logged iteration")
    return vega.plot("times", title, about, spec, Table(head, "lrrr", tuple(rows)), language)


def _part_name(a: Analysis, part: str, language: str) -> str:
    warm_up = part == "compile" and a.run.settings.flag("compile") is False
    return say(PART_NAMES["warm-up" if warm_up else part], language)


def anatomy(a: Analysis, language: str) -> Plot | None:
    """The parts of a normal iteration and of the median slow iteration of each kind, on one scale."""
    taken = a.run.iterations.time_s
    typical: dict[Phase, int] = {}
    for phase in (Phase.CHECKPOINT, Phase.EVAL, Phase.EVAL_CHECKPOINT, Phase.FIRST, Phase.STALL):
        found = np.flatnonzero((a.phases.phase == phase) & (taken > 0))
        if len(found):
            typical[phase] = int(found[np.argsort(taken[found], kind="stable")[len(found) // 2]])
    if not typical or not a.costs.step_known:
        return None
    step_s = a.costs.step_s.mid
    names = {"step": say(Message("Normal iteration"), language)}
    figures = {"step": i18n.duration(step_s, language)}
    waited = min(a.costs.data_s.mid, step_s) if a.costs.data_s is not None else 0.0
    pieces = {"step": {"step": step_s - waited, "data": waited}}
    pieces["step"] = {
        part: taken for part, taken in pieces["step"].items() if taken > sentences.SMALLEST_SHOWN * step_s
    }
    holds = Message("{parts:sum}", {"parts": [PART_NAMES[part] for part in pieces["step"]]})
    rows = [(Message("Normal iteration"), time(step_s), holds)]
    for phase, row in typical.items():
        code = PHASE_NAMES[phase]
        rows.append(sentences.slow_row(a, row))
        number, seconds = (say(cell, language) for cell in rows[-1][:2])
        names[code], figures[code] = f"{say(PHASE_TITLES[phase], language)} ({number})", seconds
        pieces[code] = sentences.slow_parts(a, row)
    data: list[dict[str, Any]] = []
    for code, found_parts in pieces.items():
        end = 0.0
        for part in vega.PART_COLOURS:
            if part in found_parts:
                begin, end = end, end + found_parts[part]
                ends = {"from": rounded(begin), "to": rounded(end)}
                data.append({"k": code, "part": part, "s": rounded(found_parts[part]), **ends})
    used = [part for part in vega.PART_COLOURS if any(piece["part"] == part for piece in data)]
    titles = {part: _part_name(a, part, language) for part in used}
    tips = [
        (say(Message("Part"), language), one_of(titles, "datum.part")),
        (say(Message("Time"), language), vega.duration("datum.s", language)),
    ]
    scale = {"domain": used, "range": [vega.PART_COLOURS[part] for part in used]}
    signals, axis = vega.time_axis("x", language, grid=True)
    top = max(piece["to"] for piece in data)
    x: dict[str, Any] = {"type": "quantitative", "scale": {"domain": [0, top], "nice": False}, "axis": axis}
    color = {"field": "part", "type": "nominal", "scale": scale, "legend": vega.legend(titles, symbolType="square")}
    bar = {
        "mark": {
            "tooltip": vega.tooltip(one_of(names, "datum.k"), tips),
            "cornerRadius": 0,
            # So that a step next to a minute is a line, not nothing.
            "stroke": {"expr": one_of(vega.PART_COLOURS, "datum.part")},
        },
        "encoding": {"x": {"field": "from", **x}, "x2": {"field": "to"}, "color": color},
    }
    # Under each bar its parts with their times; on a phone only the times.
    amounts = {code: [i18n.duration(p["s"], language) for p in data if p["k"] == code] for code in names}
    named = {code: [titles[p["part"]] for p in data if p["k"] == code] for code in names}
    short = {code: " + ".join(of) for code, of in amounts.items()}
    long = {code: " + ".join(map(" ".join, zip(named[code], amounts[code], strict=True))) for code in names}
    fits = f"width > {7 * max(map(len, long.values()))}"  # pixels per letter
    under = {
        "transform": [{"aggregate": [], "groupby": ["k"]}],
        "mark": {
            "type": "text",
            "align": "left",
            "baseline": "top",
            "yOffset": vega.BAR_OFFSET + 10,
            "fontSize": 12,
            "color": vega.MUTED,
        },
        "encoding": {
            "x": {"value": 0},
            "text": {"value": {"expr": f"{fits} ? {one_of(long, 'datum.k')} : {one_of(short, 'datum.k')}"}},
        },
    }
    drawn = vega.bars(names, figures, bar, [under], row=68)
    spec = vega.spec_of(language, {"anatomy": data}, params=signals, **drawn)
    about = (
        Message("A typical one of each kind, with its number, next to a normal one; all bars have the same scale."),
    )
    table = Table((Message("Iteration"), Message("Time"), Message("What it includes")), "rrl", tuple(rows))
    return vega.plot("anatomy", Message("What a slow iteration is made of"), about, spec, table, language)


def parts(a: Analysis, language: str) -> Plot | None:
    """Where the time went."""
    found = sentences.part_rows(a) if a.goodput.iterations else ()
    if not found:
        return None
    names = {row.part: say(PART_NAMES[row.part], language) for row in found}
    figures = {
        row.part: f"{i18n.duration(row.seconds, language)} · {say(sentences.share_text(row.share), language)}"
        for row in found
    }
    data = [{"k": row.part, "s": rounded(row.seconds)} for row in found]
    bar = vega.plain_bar("s", names, figures, {row.part: vega.PART_COLOURS[row.part] for row in found})
    spec = vega.spec_of(language, {"parts": data}, **vega.bars(names, figures, bar))
    about = (Message("Each bar is the time of one part over the whole log."),)
    return vega.plot("parts", Message("The time by part"), about, spec, sentences.time_by_part(a), language)
