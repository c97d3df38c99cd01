"""What the driver says of a card becomes figures; what it does not say is absent."""

# ruff: noqa: N802, the functions bear NVIDIA's own names
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from stepwatch.sampler.cards import Cards


class Driver:
    """Two cards; the second is a laptop's, whose driver says little."""

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int, /) -> int:
        return index

    def nvmlDeviceGetName(self, handle: Any, /) -> str | bytes:
        return ["Card  A", b"Card B"][handle]

    def nvmlDeviceGetUtilizationRates(self, handle: Any, /) -> Any:
        return SimpleNamespace(gpu=[97, 0][handle])

    def nvmlDeviceGetMemoryInfo(self, handle: Any, /) -> Any:
        return SimpleNamespace(used=10, total=12)

    def _only_first(self, handle: int, value: Any) -> Any:
        if handle:
            raise RuntimeError("not supported")
        return value

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int, /) -> int:
        return int(self._only_first(handle, 2475))

    def nvmlDeviceGetMaxClockInfo(self, handle: Any, kind: int, /) -> int:
        return int(self._only_first(handle, 2500))

    def nvmlDeviceGetPowerUsage(self, handle: Any, /) -> int:
        return int(self._only_first(handle, 181_000))

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Any, /) -> int:
        return int(self._only_first(handle, 200_000))

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int, /) -> int:
        return 64

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any, /) -> int:
        return int(self._only_first(handle, 0x20))

    def nvmlDeviceGetPcieThroughput(self, handle: Any, counter: int, /) -> int:
        return int(self._only_first(handle, 1000))

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any, /) -> list[Any]:
        return [SimpleNamespace(pid=7, usedGpuMemory=8), SimpleNamespace(pid=8, usedGpuMemory=None)]


def test_a_card_in_our_units() -> None:
    cards = Cards(Driver())
    first, second = cards.read({7})
    assert cards.names == ("Card A", "Card B")
    assert first == {
        "utilisation": 0.97, "memory_used_bytes": 10, "memory_total_bytes": 12, "sm_clock_hz": 2.475e9,
        "max_sm_clock_hz": 2.5e9, "power_w": 181, "power_limit_w": 200, "temperature_c": 64, "hot": 1, "capped": 0,
        "pcie_bytes_per_s": 2_048_000, "other_memory_bytes": 0, "other_processes": 1,
    }  # fmt: skip
    assert second.keys() == {
        "utilisation", "memory_used_bytes", "memory_total_bytes", "temperature_c", "other_memory_bytes",
        "other_processes",
    }  # fmt: skip


def test_without_knowing_the_training_no_process_is_called_another() -> None:
    assert "other_processes" not in Cards(Driver()).read()[0]


def test_no_driver_is_no_card() -> None:
    class Broken(Driver):
        def nvmlInit(self) -> None:
            raise OSError("no driver")

    cards = Cards(Broken())
    assert (cards.names, cards.read()) == ((), [])
    cards.close()
