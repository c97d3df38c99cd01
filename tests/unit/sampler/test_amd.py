"""Files as the kernel's amdgpu driver has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.gpus.test_driver import Driver

from stepwatch.sampler.amd import AmdCards
from stepwatch.sampler.cards import Cards

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


def test_a_card_in_our_units(tmp_path: Path) -> None:
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
