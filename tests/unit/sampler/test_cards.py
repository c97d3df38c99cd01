"""What the driver says of a card becomes figures; what it does not say is absent."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.gpus.test_driver import GIB, Device, Driver

from stepwatch.sampler.cards import AmdCards, Cards

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


# --- AMD: files as the kernel has them ---------------------------------------------------------------------------

FILES = {
    "gpu_busy_percent": "19", "mem_info_vram_used": "27856896", "mem_info_vram_total": "21458059264",
    "product_name": "Radeon RX 7900 XT", "pp_dpm_sclk": "0: 500Mhz\n1: 800Mhz *\n2: 2482Mhz",
    "hwmon/hwmon4/freq1_input": "800000000", "hwmon/hwmon4/power1_average": "7222000",
    "hwmon/hwmon4/power1_cap": "303000000", "hwmon/hwmon4/temp1_input": "31000",
}  # fmt: skip


def a_card(root: Path, number: int, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = root / f"card{number}" / "device" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")


def test_a_card_of_amd_in_our_units(tmp_path: Path) -> None:
    a_card(tmp_path, 10, {"gpu_busy_percent": "0", "hwmon/hwmon5/power1_input": "4000000"})
    a_card(tmp_path, 1, FILES)
    a_card(tmp_path, 0, {"vendor": "0x8086"})  # another maker's
    cards = AmdCards(str(tmp_path))
    first, second = cards.read()
    assert cards.names == ("Radeon RX 7900 XT", "AMD")
    assert first == pytest.approx({
        "utilisation": 0.19, "memory_used_bytes": 27856896, "memory_total_bytes": 21458059264, "sm_clock_hz": 8e8,
        "max_sm_clock_hz": 2.482e9, "power_w": 7.222, "power_limit_w": 303, "temperature_c": 31,
    })  # fmt: skip
    assert second == {"utilisation": 0, "power_w": 4}
    (tmp_path / "card1" / "device" / "gpu_busy_percent").write_text("")  # asleep
    assert "utilisation" not in cards.read()[0]


def test_they_come_after_those_of_nvidia(tmp_path: Path) -> None:
    a_card(tmp_path, 1, FILES)
    cards = Cards(Driver(starts=False), AmdCards(str(tmp_path)))
    assert cards.names == ("Radeon RX 7900 XT",)
    assert cards.read({7})[0]["utilisation"] == pytest.approx(0.19)


def test_without_the_driver_there_are_none(tmp_path: Path) -> None:
    assert (AmdCards(str(tmp_path)).names, AmdCards(str(tmp_path)).read()) == ((), [])
