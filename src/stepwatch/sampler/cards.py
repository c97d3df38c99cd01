"""The cards of this machine, as their drivers report them now."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection

from stepwatch.errors import UnknownGpu
from stepwatch.gpus.driver import Device, DriverLibrary, Sensors
from stepwatch.gpus.formula import plain_name
from stepwatch.sampler.amd import AmdCards
from stepwatch.sampler.host import processor_of
from stepwatch.samples import slowed_by


class Cards:
    """None where there is no driver."""

    def __init__(
        self,
        library: DriverLibrary | None = None,
        amd: AmdCards | None = None,
        *,
        processors: int = os.cpu_count() or 1,
        processor_of: Callable[[int], int | None] = processor_of,
    ) -> None:
        self._processors, self._processor_of = processors, processor_of
        try:
            self._sensors: Sensors | None = Sensors(library)
        except UnknownGpu:
            self._sensors = None
        self._devices = self._sensors.devices if self._sensors is not None else []
        self._amd = amd or AmdCards()
        self.names = (*(plain_name(device.name or "") for device in self._devices), *self._amd.names)

    def read(self, training: Collection[int] = ()) -> list[dict[str, float]]:
        """Of each card what the driver answers; `training` are the processes that belong there."""
        return [*(self._figures(device, training) for device in self._devices), *self._amd.read()]

    def close(self) -> None:
        if self._sensors is not None:
            self._sensors.close()

    def _figures(self, device: Device, training: Collection[int]) -> dict[str, float]:
        reasons, processes = device.clock_reasons, device.processes or {}
        hot, capped = (None, None) if reasons is None else slowed_by(reasons)
        own = [pid for pid in processes if pid in training]
        others = far = None
        if own:  # in a container the driver may number processes as the host does: then nobody is known
            others = [size for pid, size in processes.items() if pid not in training]
            places = [place for pid in own if (place := self._processor_of(pid)) is not None]
            if places and 0 < len(device.near_processors) < self._processors:
                far = sum(place not in device.near_processors for place in places) / len(places)
        figures = {
            "utilisation": device.utilisation,
            "memory_used_bytes": device.used_vram_bytes,
            "memory_total_bytes": device.vram_bytes,
            "sm_clock_hz": device.current_sm_clock_hz,
            "max_sm_clock_hz": device.max_sm_clock_hz,
            "power_w": device.power_w,
            "power_limit_w": device.power_limit_w,
            "temperature_c": device.temperature_c,
            "hot": hot,
            "capped": capped,
            "pcie_bytes_per_s": device.pcie_bytes_per_s,
            "other_memory_bytes": None if others is None else sum(others),
            "other_processes": None if others is None else len(others),
            "far": far,
        }
        return {name: float(value) for name, value in figures.items() if value is not None}
