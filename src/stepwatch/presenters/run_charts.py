"""The charts of a run as Vega-Lite specifications: data, not drawing; each with the table behind it."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepwatch.analysis import Analysis
from stepwatch.analysis.phases import PHASE_NAMES, Phase
from stepwatch.i18n import numbers, say
from stepwatch.messages import Message
from stepwatch.presenters import vega
from stepwatch.presenters.bar_charts import changes
from stepwatch.presenters.document import Table, cells, count, time
from stepwatch.presenters.progress_charts import forecast, throughput
from stepwatch.presenters.run_sentences import (
    PART_NAMES,
    part_rows,
    rows_between,
    share_text,
    slow_parts,
    slow_row,
    step_known,
    time_by_part,
)
from stepwatch.presenters.thinning import MOST_POINTS, STILL_POINTS, drawn_rows, stretches
from stepwatch.presenters.vega import Plot, one_of, rounded
from stepwatch.report import RunReport

_ROOM = 1.25  # above the slowest iteration and below the fastest

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
_TOOLTIP_PARTS = ("step", "eval", "checkpoint", "pair", "compile", "stall", "unexplained")


def plot(name: str, run: RunReport, sharing: int, language: str, still: bool) -> Plot | None:
    """One of the charts, None where the run cannot fill it; the runs of a page share the points that it may have."""
    if name == "times":
        return times(run.analysis, language, (STILL_POINTS if still else MOST_POINTS) // sharing)
    if name == "changes":
        return changes(run.advice, language)
    drawn = {"anatomy": anatomy, "throughput": throughput, "parts": parts, "forecast": forecast}
    return drawn[name](run.analysis, language)


def times(a: Analysis, language: str, most: int) -> Plot | None:
    """The time of every iteration on a logarithmic scale; `most` is the number of points."""
    drawn = drawn_rows(a, most)
    if not len(drawn.rows):
        return None
    number, taken, phases = a.run.iterations.number, a.run.iterations.time_s, a.phases.phase
    points: list[dict[str, Any]] = []
    # Normal iterations first, so that the slow ones are drawn over them.
    for row in drawn.rows[np.argsort(phases[drawn.rows] != Phase.STEP, kind="stable")].tolist():
        point = {"i": int(number[row]), "t": rounded(float(taken[row])), "p": PHASE_NAMES[int(phases[row])]}
        if phases[row] != Phase.STEP and step_known(a):
            point |= {part: rounded(seconds) for part, seconds in slow_parts(a, row).items()}
        points.append(point)

    # Colour and shape tell the phases apart, for those who see no difference in one of them.
    present = [phase for phase in Phase if (phases[drawn.rows] == phase).any()]
    titles = {PHASE_NAMES[phase]: say(PHASE_TITLES[phase], language) for phase in present}
    colours, shapes = zip(*(_PHASE_MARKS[code] for code in titles), strict=True)
    legend = vega.legend(titles, symbolSize=70, symbolOpacity=1)
    phase_field = {"field": "p", "type": "nominal", "legend": legend}
    step = "datum.p === 'step'"
    small = 40 if len(drawn.rows) < 300 else 22  # larger dots where there are few
    low, high = float(taken[drawn.rows].min()) / _ROOM, float(taken[drawn.rows].max()) * _ROOM
    scale = {"type": "log", "domain": [rounded(low), rounded(high)], "nice": False}
    axis = vega.time_axis(vega.log_times(low, high), language)
    encoding = {
        "x": {"field": "i", **vega.iteration_axis(language)},
        "y": {"field": "t", "type": "quantitative", "axis": axis, "scale": scale},
        "color": {**phase_field, "scale": {"domain": list(titles), "range": list(colours)}},
        "shape": {**phase_field, "scale": {"domain": list(titles), "range": list(shapes)}},
        "size": {"condition": {"test": step, "value": small}, "value": 80},
        "opacity": {"condition": {"test": step, "value": 0.6}, "value": 0.95},
    }
    tips = [(say(Message("Time"), language), vega.duration("datum.t", language))]
    for part in _TOOLTIP_PARTS:
        field = f"datum[{part!r}]"
        tips.append((_part_name(a, part, language), f"{field} ? {vega.duration(field, language)} : datum.none"))
    tip = vega.tooltip(f"{vega.iteration_title(language)} + ' · ' + {one_of(titles, 'datum.p')}", tips)
    wheel = "wheel![event.ctrlKey || event.shiftKey]"  # the wheel alone moves the page
    select = {"type": "interval", "encodings": ["x"], "zoom": wheel}
    spec = vega.spec_of(
        language,
        {"times": points},
        height=320,
        params=[{"name": "zoom", "bind": "scales", "select": select}],
        # Made once for each point: an expression of the mark would be made anew for all of them while the reader zooms.
        transform=[{"calculate": tip["expr"], "as": "tip"}],
        mark={"type": "point", "filled": True, "clip": True, "aria": False, "tooltip": {"expr": "datum.tip"}},
        encoding=encoding,
    )

    about = [Message("Each mark is a logged iteration; the scale is logarithmic.")]
    facts = {"rows": len(number), "shown": len(drawn.rows)}
    if drawn.slow_left_out:
        text = Message(
            "Of {rows:n} iterations {shown:n} are drawn: the slowest, the first and the last of each stretch, for each kind."
        )
        about.append(text._replace(params=facts))
    elif drawn.steps_left_out:
        text = Message(
            "Of {rows:n} iterations {shown:n} are drawn: every slow one, and of the others the fastest, the middle and the slowest of each stretch."
        )
        about.append(text._replace(params=facts))
    head = (Message("Iterations"), Message("Fastest"), Message("Median"), Message("Slowest"))
    rows = []
    for stretch in stretches(np.arange(len(number)), 12):  # rows of the table
        of = taken[stretch]
        figures = (float(of.min()), float(np.median(of)), float(of.max()))
        rows.append((rows_between(a, stretch[0], stretch[-1]), *map(time, figures)))
    title = Message("Time of each logged iteration")
    return vega.plot("times", title, about, spec, Table(head, "lrrr", cells(rows)), language)


def _part_name(a: Analysis, part: str, language: str) -> str:
    warm_up = part == "compile" and a.run.settings.flag("compile") is False
    return say(PART_NAMES["warm-up" if warm_up else part], language)


def anatomy(a: Analysis, language: str) -> Plot | None:
    """What the middle one of each kind of slow iteration is made of."""
    names: dict[str, str] = {}
    figures: dict[str, str] = {}
    data: list[dict[str, Any]] = []
    rows = []
    taken = a.run.iterations.time_s
    for phase in (Phase.FIRST, Phase.EVAL, Phase.EVAL_CHECKPOINT, Phase.CHECKPOINT, Phase.STALL):
        found = np.flatnonzero((a.phases.phase == phase) & (taken > 0))
        if not len(found) or not step_known(a):
            continue
        row = int(found[np.argsort(taken[found], kind="stable")[len(found) // 2]])
        slow, code = slow_row(a, row), PHASE_NAMES[phase]
        names[code] = f"{say(PHASE_TITLES[phase], language)} ({numbers.integer(slow.iteration, language)})"
        figures[code] = numbers.duration(slow.time_s, language)
        data += [{"k": code, "part": part, "s": rounded(seconds)} for part, seconds in slow_parts(a, row).items()]
        rows.append(((count(slow.iteration),), (time(slow.time_s),), slow.holds))
    if not rows:
        return None
    used = [part for part in vega.PART_COLOURS if any(piece["part"] == part for piece in data)]
    data = [{**piece, "order": used.index(piece["part"])} for piece in data]
    titles = {part: _part_name(a, part, language) for part in used}
    tips = [
        (say(Message("Part"), language), one_of(titles, "datum.part")),
        (say(Message("Time"), language), vega.duration("datum.s", language)),
    ]
    scale = {"domain": used, "range": [vega.PART_COLOURS[part] for part in used]}
    legend = vega.legend(titles, symbolType="square")
    bar = {
        "mark": {"tooltip": vega.tooltip(one_of(names, "datum.k"), tips)},
        "encoding": {
            "x": {"field": "s", "type": "quantitative", "stack": "normalize", "axis": None},
            "order": {"field": "order", "type": "quantitative"},
            "color": {"field": "part", "type": "nominal", "scale": scale, "legend": legend},
        },
    }
    spec = vega.spec_of(language, {"anatomy": data}, **vega.bars(names, figures, bar))
    about = (Message("A typical one of each kind, with its number; the whole bar is its time."),)
    table = Table((Message("Iteration"), Message("Time"), Message("What it includes")), "rrl", tuple(rows))
    return vega.plot("anatomy", Message("What a slow iteration is made of"), about, spec, table, language)


def parts(a: Analysis, language: str) -> Plot | None:
    """Where the time went."""
    found = part_rows(a) if a.goodput.iterations else ()
    if not found:
        return None
    names = {row.part: say(row.name, language) for row in found}
    figures = {
        row.part: f"{numbers.duration(row.seconds, language)} · {say(share_text(row.share), language)}" for row in found
    }
    data = [{"k": row.part, "s": rounded(row.seconds)} for row in found]
    bar = vega.plain_bar("s", names, figures, {row.part: vega.PART_COLOURS[row.part] for row in found})
    spec = vega.spec_of(language, {"parts": data}, **vega.bars(names, figures, bar))
    about = (Message("Each bar is the time of one part over the whole log."),)
    return vega.plot("parts", Message("The time by part"), about, spec, time_by_part(a), language)
