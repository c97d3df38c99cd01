"""What the advice would change, as a Vega-Lite specification. Nothing here loads numpy."""

from __future__ import annotations

from stepwatch.advice import AdviceList
from stepwatch.messages import Message
from stepwatch.presenters import vega
from stepwatch.presenters.plan_charts import Bar, bar_chart
from stepwatch.presenters.vega import Chart
from stepwatch.units import Interval


def changes_chart(advised: AdviceList | None, language: str) -> tuple[Chart, ...]:
    """The run as it is, and with one change after the other; nothing where none is chosen."""
    if advised is None or not any(advised.chosen):
        return ()
    now = advised.before.total_s.mid
    bars = [Bar("now", Message("As it is"), Interval.exactly(now), _time(Interval.exactly(now)), vega.SLATE)]
    for number, (advice, saved, goes) in enumerate(
        zip(advised.advice, advised.together_s, advised.chosen, strict=True), start=1
    ):
        if goes:
            left = Interval(*(max(now - end, 0.0) for end in (saved.high, saved.mid, saved.low)))
            bars.append(Bar(f"change-{number}", advice.what, left, _time(left), vega.BLUE))
    about = (Message("Each change on top of those above it. A thin line marks the range of a total."),)
    head = (Message("Change"), Message("Whole run"))
    return (bar_chart("changes", Message("What the changes give"), about, bars, head, language),)


def _time(of: Interval) -> Message:
    return Message("{cost:range}", {"cost": of})
