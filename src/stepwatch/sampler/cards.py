"""The current figures of this machine's cards, from their drivers: NVIDIA's by NVML, AMD's by files of the kernel."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from stepwatch.errors import UnknownGpu
from stepwatch.gpus.driver import DriverDevice, DriverLibrary, Sensors
from stepwatch.gpus.formula import plain_name
from stepwatch.sampler.host import processor_of
from stepwatch.samples import slowed_by

# For AMD cards, docs.kernel.org/gpu/amdgpu/thermal.html: the first of these files that exists, and its factor.
_FILES: Mapping[str, tuple[tuple[str, ...], float]] = {
    "utilisation": (("gpu_busy_percent",), 0.01),
    "memory_used_bytes": (("mem_info_vram_used",), 1.0),
    "memory_total_bytes": (("mem_info_vram_total",), 1.0),
    "sm_clock_hz": (("hwmon/hwmon*/freq1_input",), 1.0),
    "power_w": (("hwmon/hwmon*/power1_average", "hwmon/hwmon*/power1_input"), 1e-6),
    "power_limit_w": (("hwmon/hwmon*/power1_cap",), 1e-6),
    "temperature_c": (("hwmon/hwmon*/temp1_input",), 1e-3),
}


class Cards:
    """No cards if there is no driver."""

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
        """What the driver reports for each card; `training` are the processes of the training."""
        return [*(self._figures(device, training) for device in self._devices), *self._amd.read()]

    def close(self) -> None:
        if self._sensors is not None:
            self._sensors.close()

    def _figures(self, device: DriverDevice, training: Collection[int]) -> dict[str, float]:
        reasons, processes = device.clock_reasons, device.processes or {}
        hot, capped = (None, None) if reasons is None else slowed_by(reasons)
        own = [pid for pid in processes if pid in training]
        others = far = None
        if own:  # in a container the driver may use the host's process ids: then none of these is known
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


class AmdCards:
    """No cards without their kernel driver. Starting rocm-smi, which reads the same files, would cost too much."""

    def __init__(self, root: str = "/sys/class/drm") -> None:
        places = [place for place in Path(root).glob("card*/device") if (place / "gpu_busy_percent").exists()]
        places.sort(key=lambda place: int(re.sub(r"\D", "", place.parent.name) or 0))
        self.names = tuple(_text(place / "product_name") or "AMD" for place in places)
        self._cards = []
        for place in places:
            files = {}
            for name, (patterns, unit) in _FILES.items():
                found = next((file for pattern in patterns for file in sorted(place.glob(pattern))), None)
                if found is not None:
                    files[name] = found, unit
            # The levels of the clock, lowest first: "2: 2482Mhz *".
            levels = re.findall(r"(\d+)Mhz", _text(place / "pp_dpm_sclk"), re.IGNORECASE)
            self._cards.append((files, {"max_sm_clock_hz": max(map(float, levels)) * 1e6} if levels else {}))

    def read(self) -> list[dict[str, float]]:
        found = []
        for files, fixed in self._cards:
            texts = ((name, _text(file), unit) for name, (file, unit) in files.items())
            found.append(fixed | {name: float(text) * unit for name, text, unit in texts if text.isdecimal()})
        return found


def _text(file: Path) -> str:
    """Empty if the file cannot be read, for example while the card sleeps."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
