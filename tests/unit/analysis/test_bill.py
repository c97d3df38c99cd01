"""What a run costs, by the hour and by the energy of its cards."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.analysis.test_machine import a_log, explained, samples

from stepwatch.analysis.bill import Tariff, bill_findings, find_bill


def test_an_hour_of_a_kilowatt_costs_what_a_kilowatt_hour_costs() -> None:
    analysis = explained(a_log(1800), samples(3600, {}, ({"power_w": 1000.0},)))  # steps of two seconds
    bill = find_bill(analysis, Tariff(per_kwh=0.3))
    assert bill is not None
    assert bill.cost is not None
    assert bill.cost.mid == pytest.approx(0.3, rel=0.02)
    energy = next(iter(bill_findings(replace(analysis, bill=bill))))
    assert energy.message.params["kwh"] == pytest.approx(1.0, rel=0.02)
