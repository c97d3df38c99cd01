"""What the driver says of a card becomes figures; what it does not say is absent."""

from __future__ import annotations

import pytest
from tests.unit.gpus.test_driver import GIB, Device, Driver

from stepwatch.sampler.cards import Cards

FIRST = Device(name="Card  A", total=12 * GIB, free=2 * GIB, mhz={1: 2475}, max_mhz={1: 2500}, celsius=64, reasons=0x20)
LAPTOP = Device(
    name=b"Card B", mhz=None, max_mhz=None, drawn_mw=None, enforced_mw=None, limit_mw=None, reasons=None, pcie_kb=None,
    processes={7: 8, 8: None}, busy_percent=0,
)  # fmt: skip


def test_a_card_in_our_units() -> None:
    FIRST.processes = {7: 8, 8: 5}
    driver = Driver(FIRST, LAPTOP)
    cards = Cards(driver)
    first, second = cards.read({7})
    assert cards.names == ("Card A", "Card B")
    assert first == {
        "utilisation": 0.97, "memory_used_bytes": 10 * GIB, "memory_total_bytes": 12 * GIB, "sm_clock_hz": 2.475e9,
        "max_sm_clock_hz": 2.5e9, "power_w": 187.4, "power_limit_w": 200, "temperature_c": 64, "hot": 1, "capped": 0,
        "pcie_bytes_per_s": 2_048_000, "other_memory_bytes": 5, "other_processes": 1,
    }  # fmt: skip
    assert second.keys() == {
        "utilisation", "memory_used_bytes", "memory_total_bytes", "temperature_c", "other_memory_bytes",
        "other_processes",
    }  # fmt: skip
    assert (second["utilisation"], second["other_memory_bytes"]) == (0, 0)
    cards.close()
    assert driver.open == 0


@pytest.mark.parametrize(("place", "far"), [(0, 0.0), (1, 0.0), (2, 1.0), (None, None)])
def test_a_process_on_another_node_than_its_card_is_far(place: int | None, far: float | None) -> None:
    card = Device(processes={7: 8, 9: 1}, near=(0b0011,))
    assert Cards(Driver(card), processors=4, processor_of=lambda pid: place).read({7})[0].get("far") == far


def test_a_machine_with_one_node_has_nothing_far() -> None:
    for near in ((0b1111,), (0,), None):
        card = Device(processes={7: 8}, near=near)
        assert "far" not in Cards(Driver(card), processors=4, processor_of=lambda pid: 3).read({7})[0]


def test_in_a_container_that_numbers_processes_otherwise_nobody_is_called_another() -> None:
    card = Device(processes={401_231: 9 * GIB}, near=(1,))
    figures = Cards(Driver(card)).read({7})[0]
    assert not {"other_processes", "other_memory_bytes", "far"} & figures.keys()


def test_without_knowing_the_training_no_process_is_called_another() -> None:
    assert "other_processes" not in Cards(Driver(FIRST)).read()[0]


def test_no_driver_is_no_card() -> None:
    cards = Cards(Driver(FIRST, starts=False))
    assert (cards.names, cards.read()) == ((), [])
    cards.close()
