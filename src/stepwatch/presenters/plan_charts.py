"""The charts of a plan as Vega-Lite specifications. Nothing here loads numpy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from stepwatch.i18n import clean, numbers, say
from stepwatch.messages import Message
from stepwatch.plan import Plan
from stepwatch.presenters import plan_sentences as sentences
from stepwatch.presenters import vega
from stepwatch.presenters.vega import Chart, Spec, one_of, rounded
from stepwatch.units import Interval

NAMES = ("parts", "memory")


def plan_charts_of(plan: Plan, language: str) -> tuple[Chart, ...]:
    return _parts(plan, language), _memory(plan, language)


def _parts(plan: Plan, language: str) -> Chart:
    bars = [
        _Bar(
            part.code, say(part.name, language), part.total_s, numbers.duration_range(part.total_s, language),
            vega.PART_COLOURS[part.code],
        )
        for part in sentences.parts(plan)
    ]  # fmt: skip
    about = (Message("A thin line marks the range of a total."), sentences.RANGES)
    head = (Message("Part"), Message("Total"))
    return _chart("parts", Message("Where the time will go"), about, bars, head, language)


def _memory(plan: Plan, language: str) -> Chart:
    """What the run needs against what the card has."""
    need, size = plan.estimate.vram_bytes, plan.gpu.vram_bytes
    colour = vega.ORANGE if plan.fits is False else vega.BLUE
    range_ = " – ".join(numbers.size(end, language) for end in (need.low, need.high))
    bars = [_Bar("need", say(Message("This run"), language), need, range_, colour)]
    if size is not None:
        name, figure = clean(plan.gpu.name), numbers.size(size, language)
        bars.append(_Bar("card", name, Interval.exactly(size), figure, vega.SLATE))
    head = (Message("Memory"), Message("Total"))
    about = (Message("What the run needs, with a thin line for the range, and what a card has."),)
    return _chart("memory", Message("Memory of the card"), about, bars, head, language)


class _Bar(NamedTuple):
    code: str
    name: str
    amount: Interval
    figure: str
    colour: str


def _chart(
    name: str, title: Message, about: tuple[Message, ...], bars: list[_Bar], head: tuple[Message, ...], language: str
) -> Chart:
    names, figures = {bar.code: bar.name for bar in bars}, {bar.code: bar.figure for bar in bars}
    data = [
        {"k": bar.code, **{side: rounded(getattr(bar.amount, side)) for side in ("low", "mid", "high")}} for bar in bars
    ]
    spec = vega.spec_of(language, {name: data}, **vega.bars(names, figures, _bar(bars, names, figures), _ranges()))
    rows = tuple((bar.name, bar.figure) for bar in bars)
    return vega.chart(name, title, about, spec, tuple(say(cell, language) for cell in head), rows, language)


def _bar(bars: list[_Bar], names: Mapping[str, str], figures: Mapping[str, str]) -> Spec:
    colours = {"domain": [bar.code for bar in bars], "range": [bar.colour for bar in bars]}
    hover = {"expr": f"{one_of(names, 'datum.k')} + ': ' + {one_of(figures, 'datum.k')}"}
    return {
        "mark": {"tooltip": hover},
        "encoding": {
            "x": {"field": "mid", "type": "quantitative", "axis": None, "scale": {"nice": False}},
            "color": {"field": "k", "type": "nominal", "legend": None, "scale": colours},
        },
    }  # fmt: skip


def _ranges() -> list[Spec]:
    rule = {"type": "rule", "strokeWidth": 2, "yOffset": vega.BAR_OFFSET, "y2Offset": vega.BAR_OFFSET}
    return [{
        "transform": [{"filter": "datum.high > datum.low"}], "mark": rule,
        "encoding": {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}},
    }]  # fmt: skip
