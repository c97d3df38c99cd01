"""What a run costs: energy if it was sampled, money if a price is given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from stepwatch.analysis.findings import INFO, Finding
from stepwatch.messages import Message
from stepwatch.units import HOUR_S, MEGA, Interval

if TYPE_CHECKING:
    from stepwatch.analysis import Analysis

KWH_J = 1000 * HOUR_S


class Tariff(NamedTuple):
    """Prices in any currency, the same for both."""

    per_hour: float | None = None
    """For the machine, or for all its cards."""
    per_kwh: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """Energy and cost of what the log covers."""

    energy_j: Interval | None = None
    cost: Interval | None = None
    cost_per_million_tokens: Interval | None = None


def find_bill(a: Analysis, prices: Tariff) -> Bill | None:
    energy_j = a.machine.energy_j if a.machine is not None else None
    cost = None
    if prices.per_hour is not None:
        cost = a.goodput.interval_s.scaled(prices.per_hour / HOUR_S)
    if prices.per_kwh is not None and energy_j is not None:
        powered = energy_j.scaled(prices.per_kwh / KWH_J)
        cost = powered if cost is None else cost + powered
    if energy_j is None and cost is None:
        return None
    tokens = a.run.settings.number("tokens_per_iter")
    millions = a.goodput.iterations * tokens / MEGA if tokens else 0.0
    each = cost.scaled(1 / millions) if cost is not None and millions else None
    return Bill(energy_j=energy_j, cost=cost, cost_per_million_tokens=each)


def bill_findings(a: Analysis) -> Iterator[Finding]:
    bill = a.bill
    if bill is None:
        return
    if bill.energy_j is not None:
        seconds = max(a.goodput.wall_s, 1e-9)
        facts = {
            "kwh": bill.energy_j.mid / KWH_J,
            "low": bill.energy_j.low / KWH_J,
            "high": bill.energy_j.high / KWH_J,
            "watts": bill.energy_j.mid / seconds,
        }
        text = Message("The cards used {kwh:figure} kWh ({low:figure}–{high:figure}), {watts:n} W on average.", facts)
        yield Finding("energy", INFO, text)
    if bill.cost is not None:
        facts = {"cost": bill.cost.mid}
        text = Message("At the given price the logged part of the run costs {cost:figure}.", facts)
        if bill.cost_per_million_tokens is not None:
            facts["each"] = bill.cost_per_million_tokens.mid
            text = Message(
                "At the given price the logged part of the run costs {cost:figure}, {each:figure} for a million tokens.",
                facts,
            )
        yield Finding("cost", INFO, text)
