"""NVIDIA's cards, as their driver reports them now."""

# ruff: noqa: N802, the functions bear NVIDIA's own names
from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from importlib import import_module
from typing import Any, Protocol, cast

from stepwatch.samples import slowed_by


class Driver(Protocol):
    """What we use of the module `pynvml`."""

    def nvmlInit(self) -> object: ...
    def nvmlShutdown(self) -> object: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int, /) -> Any: ...
    def nvmlDeviceGetName(self, handle: Any, /) -> str | bytes: ...
    def nvmlDeviceGetUtilizationRates(self, handle: Any, /) -> Any: ...
    def nvmlDeviceGetMemoryInfo(self, handle: Any, /) -> Any: ...
    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int, /) -> int: ...
    def nvmlDeviceGetMaxClockInfo(self, handle: Any, kind: int, /) -> int: ...
    def nvmlDeviceGetPowerUsage(self, handle: Any, /) -> int: ...
    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Any, /) -> int: ...
    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int, /) -> int: ...
    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any, /) -> int: ...
    def nvmlDeviceGetPcieThroughput(self, handle: Any, counter: int, /) -> int: ...
    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any, /) -> list[Any]: ...


class Cards:
    """The cards of this machine, none where there is no driver."""

    def __init__(self, driver: Driver | None = None) -> None:
        self._handles: list[Any] = []
        self.names: tuple[str, ...] = ()
        try:
            self._driver = driver or cast(Driver, import_module("pynvml"))
            self._driver.nvmlInit()
            self._handles = [
                self._driver.nvmlDeviceGetHandleByIndex(i) for i in range(self._driver.nvmlDeviceGetCount())
            ]
            names = (self._driver.nvmlDeviceGetName(handle) for handle in self._handles)
            self.names = tuple(_plain(name) for name in names)
        except Exception:  # no driver, no rights, no library: there are no cards to see
            self._handles = []

    def read(self, training: Collection[int] = ()) -> list[dict[str, float]]:
        """Of each card what the driver answers; `training` are the processes that belong there."""
        ask, cards = self._driver, []
        sm, temperature, both_ways = 1, 0, (0, 1)  # NVML_CLOCK_SM, NVML_TEMPERATURE_GPU, NVML_PCIE_UTIL_{TX,RX}_BYTES
        for handle in self._handles:
            memory = _answer(partial(ask.nvmlDeviceGetMemoryInfo, handle))
            reasons = _answer(partial(ask.nvmlDeviceGetCurrentClocksThrottleReasons, handle))
            hot, capped = (None, None) if reasons is None else slowed_by(reasons)
            rates = _answer(partial(ask.nvmlDeviceGetUtilizationRates, handle))
            moved = [_answer(partial(ask.nvmlDeviceGetPcieThroughput, handle, way)) for way in both_ways]
            processes = _answer(partial(ask.nvmlDeviceGetComputeRunningProcesses, handle))
            others = [one for one in processes or () if one.pid not in training]
            knows_others = processes is not None and bool(training)
            figures = {
                "utilisation": rates and rates.gpu * 0.01,
                "memory_used_bytes": memory and memory.used,
                "memory_total_bytes": memory and memory.total,
                "sm_clock_hz": _times(1e6, _answer(partial(ask.nvmlDeviceGetClockInfo, handle, sm))),
                "max_sm_clock_hz": _times(1e6, _answer(partial(ask.nvmlDeviceGetMaxClockInfo, handle, sm))),
                "power_w": _times(1e-3, _answer(partial(ask.nvmlDeviceGetPowerUsage, handle))),
                "power_limit_w": _times(1e-3, _answer(partial(ask.nvmlDeviceGetEnforcedPowerLimit, handle))),
                "temperature_c": _answer(partial(ask.nvmlDeviceGetTemperature, handle, temperature)),
                "hot": hot,
                "capped": capped,
                "pcie_bytes_per_s": None if None in moved else sum(moved) * 1024.0,  # from KB, as NVML counts them
                "other_memory_bytes": sum(one.usedGpuMemory or 0 for one in others) if knows_others else None,
                "other_processes": len(others) if knows_others else None,
            }
            cards.append({name: float(value) for name, value in figures.items() if value is not None})
        return cards

    def close(self) -> None:
        if self._handles:
            _answer(self._driver.nvmlShutdown)


def _plain(name: str | bytes) -> str:
    text = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
    return " ".join(text.split())


def _answer(question: Callable[[], Any]) -> Any:
    """None where the driver does not say, as on laptops, under WSL and in containers."""
    try:
        return question()
    except Exception:
        return None


def _times(factor: float, value: float | None) -> float | None:
    return None if value is None else value * factor
