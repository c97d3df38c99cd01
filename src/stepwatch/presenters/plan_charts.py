"""The charts of a plan as Vega-Lite specifications. Nothing here loads numpy."""

from __future__ import annotations

from typing import NamedTuple

from stepwatch.estimator.plan import Plan
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.presenters import plan_sentences as sentences
from stepwatch.presenters import vega
from stepwatch.presenters.blocks import Table
from stepwatch.presenters.vega import Chart, Spec, rounded
from stepwatch.units import Interval


def plan_charts_of(plan: Plan, language: str) -> tuple[Chart, ...]:
    return _parts(plan, language), _memory(plan, language)


def _parts(plan: Plan, language: str) -> Chart:
    bars = [
        Bar(
            part.code, part.name, part.total_s, Message("{cost:range}", {"cost": part.total_s}),
            vega.PART_COLOURS[part.code],
        )
        for part in sentences.parts(plan)
    ]  # fmt: skip
    about = (Message("A thin line marks the range."),)
    head = (Message("Part"), Message("Total"))
    return bar_chart("parts", Message("The time by part"), about, bars, head, language)


def _memory(plan: Plan, language: str) -> Chart:
    """What the run needs against what the card has."""
    need, size = plan.estimate.vram_bytes, plan.gpu.vram_bytes
    colour = vega.ORANGE if plan.fits is False else vega.BLUE
    range_ = Message("{low:size} – {high:size}", {"low": need.low, "high": need.high})
    bars = [Bar("need", Message("This run"), need, range_, colour)]
    if size is not None:
        name = Message("{name:word}", {"name": plan.gpu.name})
        bars.append(Bar("card", name, Interval.exactly(size), Message("{size:size}", {"size": size}), vega.SLATE))
    head = (Message("Memory"), Message("Total"))
    about = (Message("What the run needs, with a thin line for the range, and what a card has."),)
    return bar_chart("memory", Message("Memory of the card"), about, bars, head, language)


class Bar(NamedTuple):
    code: str
    name: Message
    amount: Interval
    figure: Message
    colour: str


def bar_chart(
    name: str, title: Message, about: tuple[Message, ...], bars: list[Bar], head: tuple[Message, ...], language: str
) -> Chart:
    names, figures = (
        {bar.code: say(bar.name, language) for bar in bars},
        {bar.code: say(bar.figure, language) for bar in bars},
    )
    data = [
        {"k": bar.code, **{side: rounded(getattr(bar.amount, side)) for side in ("low", "mid", "high")}} for bar in bars
    ]
    bar = vega.plain_bar("mid", names, figures, {bar.code: bar.colour for bar in bars})
    spec = vega.spec_of(language, {name: data}, **vega.bars(names, figures, bar, _ranges()))
    table = Table(head, "lr", tuple(((bar.name,), (bar.figure,)) for bar in bars))
    return vega.chart(name, title, about, spec, table, language)


def _ranges() -> list[Spec]:
    rule = {"type": "rule", "strokeWidth": 2, "yOffset": vega.BAR_OFFSET, "y2Offset": vega.BAR_OFFSET}
    return [{
        "transform": [{"filter": "datum.high > datum.low"}], "mark": rule,
        "encoding": {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}},
    }]  # fmt: skip
