"""The charts of a run as Vega-Lite specifications: data, not drawing; each with the table behind it."""

from __future__ import annotations

from collections.abc import Iterator
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
from stepwatch.presenters.thinning import MOST_POINTS, STILL_POINTS, Drawn, drawn_rows, stretches
from stepwatch.presenters.vega import Plot, Spec, one_of, rounded
from stepwatch.report import RunReport
from stepwatch.run import Floats, Ints

_FEW_POINTS = 300
_ROOM = 1.25  # above the slowest iteration and below the fastest
_MOST_TABLE_ROWS = 12

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
    a = run.analysis
    match name:
        case "times":
            return times(a, language, (STILL_POINTS if still else MOST_POINTS) // sharing)
        case "anatomy":
            return _anatomy(a, language)
        case "throughput":
            return throughput(a, language)
        case "parts":
            return _parts(a, language)
        case "forecast":
            return forecast(a, language)
    return changes(run.advice, language)


# --- the time of every iteration --------------------------------------------------------------------------------


def times(a: Analysis, language: str, most: int) -> Plot | None:
    drawn = drawn_rows(a, most)
    if not len(drawn.rows):
        return None
    data = {"times": list(_points(a, drawn.rows))}
    titles = {
        PHASE_NAMES[phase]: say(PHASE_TITLES[phase], language)
        for phase in Phase if (a.phases.phase[drawn.rows] == phase).any()
    }  # fmt: skip
    wheel = "wheel![event.ctrlKey || event.shiftKey]"  # the wheel alone moves the page
    select = {"type": "interval", "encodings": ["x"], "zoom": wheel}
    spec = vega.spec_of(
        language, data, height=320, params=[{"name": "zoom", "bind": "scales", "select": select}],
        # Made once for each point: an expression of the mark would be made anew for all of them while the reader zooms.
        transform=[{"calculate": _point_tooltip(a, titles, language), "as": "tip"}],
        mark={"type": "point", "filled": True, "clip": True, "aria": False, "tooltip": {"expr": "datum.tip"}},
        encoding={
            "x": {"field": "i", **vega.iteration_axis(language)},
            "y": {"field": "t", **_log_scale(a.run.iterations.time_s[drawn.rows], language)},
            **_by_phase(titles, few=len(drawn.rows) < _FEW_POINTS),
        },
    )  # fmt: skip
    title = Message("Time of each logged iteration")
    return vega.plot("times", title, _about_points(a, drawn), spec, _stretch_table(a), language)


def _log_scale(times: Floats, language: str) -> Spec:
    low, high = float(times.min()) / _ROOM, float(times.max()) * _ROOM
    return {
        "type": "quantitative", "axis": vega.time_axis(vega.log_times(low, high), language),
        "scale": {"type": "log", "domain": [rounded(low), rounded(high)], "nice": False},
    }  # fmt: skip


def _by_phase(titles: dict[str, str], *, few: bool) -> Spec:
    """Colour and shape tell the phases apart, for those who see no difference in one of them."""
    marks = [_PHASE_MARKS[code] for code in titles]
    legend = vega.legend(titles, symbolSize=70, symbolOpacity=1)
    common = {"field": "p", "type": "nominal", "legend": legend}
    step = "datum.p === 'step'"
    return {
        "color": {**common, "scale": {"domain": list(titles), "range": [colour for colour, _ in marks]}},
        "shape": {**common, "scale": {"domain": list(titles), "range": [shape for _, shape in marks]}},
        "size": {"condition": {"test": step, "value": 40 if few else 22}, "value": 80},
        "opacity": {"condition": {"test": step, "value": 0.6}, "value": 0.95},
    }


def _points(a: Analysis, rows: Ints) -> Iterator[dict[str, Any]]:
    """Normal iterations first, so that the slow ones are drawn over them; a part is there where it is not nothing."""
    order = rows[np.argsort(a.phases.phase[rows] != Phase.STEP, kind="stable")]
    numbers_, taken, phases = a.run.iterations.number, a.run.iterations.time_s, a.phases.phase
    for row in order.tolist():
        point = {"i": int(numbers_[row]), "t": rounded(float(taken[row])), "p": PHASE_NAMES[int(phases[row])]}
        if phases[row] != Phase.STEP and step_known(a):
            point |= {part: rounded(seconds) for part, seconds in slow_parts(a, row).items()}
        yield point


def _point_tooltip(a: Analysis, titles: dict[str, str], language: str) -> str:
    rows = [(say(Message("Time"), language), vega.duration("datum.t", language))]
    for part in _TOOLTIP_PARTS:
        field = f"datum[{part!r}]"
        rows.append((_part_name(a, part, language), f"{field} ? {vega.duration(field, language)} : datum.none"))
    title = f"{vega.iteration_title(language)} + ' · ' + {one_of(titles, 'datum.p')}"
    return str(vega.tooltip(title, rows)["expr"])


def _part_name(a: Analysis, part: str, language: str) -> str:
    warm_up = part == "compile" and a.run.settings.flag("compile") is False
    return say(PART_NAMES["warm-up" if warm_up else part], language)


def _about_points(a: Analysis, drawn: Drawn) -> tuple[Message, ...]:
    scale = Message("Each mark is a logged iteration; the scale is logarithmic.")
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
    head = (Message("Iterations"), Message("Fastest"), Message("Median"), Message("Slowest"))
    rows = []
    for part in stretches(np.arange(len(a.run.iterations)), _MOST_TABLE_ROWS):
        taken = a.run.iterations.time_s[part]
        figures = (float(taken.min()), float(np.median(taken)), float(taken.max()))
        rows.append((rows_between(a, part[0], part[-1]), *map(time, figures)))
    return Table(head, "lrrr", cells(rows))


# --- the anatomy of a slow iteration ----------------------------------------------------------------------------


def _anatomy(a: Analysis, language: str) -> Plot | None:
    typical = _typical_rows(a) if step_known(a) else {}
    if not typical:
        return None
    names: dict[str, str] = {}
    figures: dict[str, str] = {}
    data: list[dict[str, Any]] = []
    for phase, row in typical.items():
        code, number = PHASE_NAMES[phase], int(a.run.iterations.number[row])
        names[code] = f"{say(PHASE_TITLES[phase], language)} ({numbers.integer(number, language)})"
        figures[code] = numbers.duration(float(a.run.iterations.time_s[row]), language)
        data += [{"k": code, "part": part, "s": rounded(seconds)} for part, seconds in slow_parts(a, row).items()]
    used = [part for part in vega.PART_COLOURS if any(piece["part"] == part for piece in data)]
    data = [{**piece, "order": used.index(piece["part"])} for piece in data]
    bar = _stacked(names, {part: _part_name(a, part, language) for part in used}, language)
    spec = vega.spec_of(language, {"anatomy": data}, **vega.bars(names, figures, bar))
    about = (Message("A typical one of each kind, with its number; the whole bar is its time."),)
    title = Message("What a slow iteration is made of")
    return vega.plot("anatomy", title, about, spec, _anatomy_table(a, typical), language)


def _stacked(names: dict[str, str], titles: dict[str, str], language: str) -> Spec:
    hover = vega.tooltip(one_of(names, "datum.k"), [
        (say(Message("Part"), language), one_of(titles, "datum.part")),
        (say(Message("Time"), language), vega.duration("datum.s", language)),
    ])  # fmt: skip
    scale = {"domain": list(titles), "range": [vega.PART_COLOURS[part] for part in titles]}
    legend = vega.legend(titles, symbolType="square")
    return {
        "mark": {"tooltip": hover},
        "encoding": {
            "x": {"field": "s", "type": "quantitative", "stack": "normalize", "axis": None},
            "order": {"field": "order", "type": "quantitative"},
            "color": {"field": "part", "type": "nominal", "scale": scale, "legend": legend},
        },
    }


def _typical_rows(a: Analysis) -> dict[Phase, int]:
    """Of each slow phase the row in the middle."""
    found = {}
    for phase in (Phase.FIRST, Phase.EVAL, Phase.EVAL_CHECKPOINT, Phase.CHECKPOINT, Phase.STALL):
        rows = np.flatnonzero((a.phases.phase == phase) & (a.run.iterations.time_s > 0))
        if len(rows):
            order = np.argsort(a.run.iterations.time_s[rows], kind="stable")
            found[phase] = int(rows[order[len(rows) // 2]])
    return found


def _anatomy_table(a: Analysis, typical: dict[Phase, int]) -> Table:
    slow = [slow_row(a, row) for row in typical.values()]
    rows = tuple(((count(row.iteration),), (time(row.time_s),), row.holds) for row in slow)
    return Table((Message("Iteration"), Message("Time"), Message("What it includes")), "rrl", rows)


# --- where the time went ----------------------------------------------------------------------------------------


def _parts(a: Analysis, language: str) -> Plot | None:
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
