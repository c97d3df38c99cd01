"""Bars with ranges as Vega-Lite, for plans, advice and comparisons; and a run's time by part, as plain markup."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from stepwatch.advice import AdviceList
from stepwatch.analysis.comparison import Comparison
from stepwatch.analysis.statistics import quantile
from stepwatch.estimator.plan import Plan
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.presenters import vega
from stepwatch.presenters.document import Table, time, word
from stepwatch.presenters.plan_sentences import parts
from stepwatch.presenters.run_sentences import PART_NAMES, PartRow, part_rows, share_text
from stepwatch.presenters.screen import held
from stepwatch.presenters.text_chart import shared_out
from stepwatch.presenters.vega import Plot, rounded
from stepwatch.units import Interval

SPREAD = (0.05, 0.5, 0.95)


class Bar(NamedTuple):
    code: str
    name: Message
    amount: Interval
    figure: Message
    colour: str


def plan_parts(plan: Plan, language: str) -> Plot:
    bars = [
        Bar(part.code, part.name, part.total_s, time(part.total_s), vega.PART_COLOURS[part.code])
        for part in parts(plan)
    ]
    about = Message("A thin line marks the range.")
    return _bar_chart("parts", Message("The time by part"), about, bars, Message("Part"), Message("Total"), language)


def plan_memory(plan: Plan, language: str) -> Plot:
    """The memory that the run needs, next to what the card has."""
    need, size = plan.estimate.vram_bytes, plan.gpu.vram_bytes
    colour = vega.ORANGE if plan.fits is False else vega.BLUE
    range_ = Message("{low:size} – {high:size}", {"low": need.low, "high": need.high})
    bars = [Bar("need", Message("This run"), need, range_, colour)]
    if size is not None:
        figure = Message("{size:size}", {"size": size})
        bars.append(Bar("card", word(plan.gpu.name), Interval.exactly(size), figure, vega.SLATE))
    about = Message("What the run needs, with a thin line for the range, and what a card has.")
    title = Message("Memory of the card")
    return _bar_chart("memory", title, about, bars, Message("Memory"), Message("Total"), language)


def changes(advised: AdviceList | None, language: str) -> Plot | None:
    """The run as it is, then with one change added after the other; None if no change is chosen."""
    if advised is None or not any(advised.chosen):
        return None
    now = Interval.exactly(advised.before.total_s.mid)
    bars = [Bar("now", Message("As it is"), now, time(now), vega.SLATE)]
    found = zip(advised.advice, advised.together_s, advised.chosen, strict=True)
    for number, (advice, saved, chosen) in enumerate(found, start=1):
        if chosen:
            left = Interval(*(max(now.mid - end, 0.0) for end in (saved.high, saved.mid, saved.low)))
            bars.append(Bar(f"change-{number}", advice.what, left, time(left), vega.BLUE))
    about = Message("Each change on top of those above it. A thin line marks the range of a total.")
    title = Message("What the changes give")
    return _bar_chart("changes", title, about, bars, Message("Change"), Message("Whole run"), language)


# --- two runs side by side --------------------------------------------------------------------------------------


def compared_steps(c: Comparison, language: str) -> Plot:
    """The step times of both runs. The spread is that of the iterations, not of their mean."""
    bars = []
    for code, (name, a), colour in zip(("before", "after"), c.named, (vega.SLATE, vega.BLUE), strict=True):
        times = a.run.iterations.time_s[a.phases.normal]
        spread = Interval(*(quantile(times, share) for share in SPREAD)) if len(times) else a.costs.step_s
        figure = Message("{middle:time}, spread {spread:range}", {"middle": spread.mid, "spread": spread})
        bars.append(Bar(code, word(name), spread, figure, colour))
    about = Message(
        "The median of the normal iterations of each run. A thin line marks their spread: nine of ten are within it."
    )
    title = Message("The training step in both runs")
    return _bar_chart("step", title, about, bars, Message("Log"), Message("Training step"), language)


def compared_parts(c: Comparison, language: str) -> Plot:
    """Where the time of each run went, as shares of that run."""
    found = {code: part_rows(a) for code, (_, a) in zip(("before", "after"), c.named, strict=True)}
    used = [part for part in vega.PART_COLOURS if any(row.part == part for rows in found.values() for row in rows)]
    titles = {part: say(PART_NAMES[part], language) for part in used}
    names = {code: say(word(name), language) for code, (name, _) in zip(found, c.named, strict=True)}
    walls = {code: say(time(a.goodput.wall_s), language) for code, (_, a) in zip(found, c.named, strict=True)}
    data = [
        {"k": code, "part": row.part, "s": rounded(row.seconds), "order": used.index(row.part)}
        for code, rows in found.items()
        for row in rows
    ]
    scale = {"domain": used, "range": [vega.PART_COLOURS[part] for part in used]}
    tips = [
        (say(Message("Part"), language), vega.one_of(titles, "datum.part")),
        (say(Message("Time"), language), vega.duration("datum.s", language)),
    ]
    bar = {
        "mark": {"tooltip": vega.tooltip(vega.one_of(names, "datum.k"), tips)},
        "encoding": {
            "x": {"field": "s", "type": "quantitative", "stack": "normalize", "axis": None},
            "order": {"field": "order", "type": "quantitative"},
            "color": {
                "field": "part",
                "type": "nominal",
                "scale": scale,
                "legend": vega.legend({part: titles[part] for part in used}, symbolType="square"),
            },
        },
    }
    spec = vega.spec_of(language, {"parts": data}, **vega.bars(names, walls, bar))
    rows = []
    for part in used:
        shares = ({row.part: share_text(row.share) for row in rows}.get(part) for rows in found.values())
        rows.append((PART_NAMES[part], *shares))
    table = Table((Message("Part"), Message("Before"), Message("After")), "lrr", tuple(rows))
    about = (Message("The whole bar is the time of the log; its pieces are the shares of the parts."),)
    return vega.plot("parts", Message("Where the time went"), about, spec, table, language)


def _bar_chart(
    name: str, title: Message, about: Message, bars: list[Bar], label: Message, amount: Message, language: str
) -> Plot:
    """Bars, each with a thin line for its range; `label` and `amount` are the heads of the table of the same data."""
    names = {bar.code: say(bar.name, language) for bar in bars}
    figures = {bar.code: say(bar.figure, language) for bar in bars}
    data = [
        {"k": bar.code, **{side: rounded(getattr(bar.amount, side)) for side in ("low", "mid", "high")}} for bar in bars
    ]
    drawn = vega.plain_bar("mid", names, figures, {bar.code: bar.colour for bar in bars})
    ranges = {
        "transform": [{"filter": "datum.high > datum.low"}],
        "mark": {"type": "rule", "strokeWidth": 2, "yOffset": vega.BAR_OFFSET, "y2Offset": vega.BAR_OFFSET},
        "encoding": {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}},
    }
    spec = vega.spec_of(language, {name: data}, **vega.bars(names, figures, drawn, [ranges]))
    table = Table((label, amount), "lr", tuple((bar.name, bar.figure) for bar in bars))
    return vega.plot(name, title, (about,), spec, table, language)


# --- where the time went ----------------------------------------------------------------------------------------

_HATCHES = {
    "step": "", "data": "M4 0V8", "eval": "M-2 10L10 -2M-2 2L2 -2M6 10L10 6", "checkpoint": "M0 4H8",
    "stall": "M-2 -2L10 10", "regular": "M-2 6L10 6M-2 2L10 2", "pair": "M-2 10L10 -2M-2 -2L10 10",
    "compile": "M3 4H5", "warm-up": "M3 4H5", "start": "M0 2H8M0 6H8", "unexplained": "M4 0V8M0 4H8",
}  # fmt: skip
"""Hatching drawn over the colour of each part, in tiles of 8 pixels, for readers who cannot tell the colours apart."""


def stacked_bar(found: Sequence[PartRow], name: str, language: str) -> str:
    """The whole time of a run as one bar in SVG, and its parts with their time and share as text; needs no script.

    The texts are escaped. `name` keeps the ids of the hatch patterns unique if a page has several bars.
    """
    known = [part for part in found if part.share > 0]
    hatches, rects, items = [], [], []
    begin, finest = 0, 250  # parts of the width: two pixels each on a phone
    for part, length in zip(known, shared_out([part.share for part in known], finest), strict=True):
        own, colour = f"{name}-{part.part}", vega.PART_COLOURS[part.part]
        hatches.append(
            f'<pattern id="{own}" width="8" height="8" patternUnits="userSpaceOnUse">'
            f'<rect width="8" height="8" fill="{colour}"/><path class="hatch" d="{_HATCHES[part.part]}"/></pattern>'
        )
        place = f'x="{100 * begin / finest:g}%" width="{100 * length / finest:g}%"'
        rects.append(f'<rect {place} height="28" fill="url(#{own})"/>')
        begin += length
        said = (PART_NAMES[part.part], time(part.seconds), share_text(part.share))
        texts = (escape(held(say(text, language))) for text in said)
        label, seconds, share = texts
        swatch = (
            f'<svg aria-hidden="true" width="16" height="16"><rect width="16" height="16" fill="url(#{own})"/></svg>'
        )
        items.append(f"<li>{swatch} {label} <strong>{seconds}</strong> {share}</li>")
    if not known:
        return ""
    bar = f'<svg aria-hidden="true" width="100%" height="28"><defs>{"".join(hatches)}</defs>{"".join(rects)}</svg>'
    return f'<div class="spent">{bar}<ul>{"".join(items)}</ul></div>'
