"""AMD's cards, from the files that rocm-smi reads too: to start that program for each sample would cost too much.

The kernel documents them: docs.kernel.org/gpu/amdgpu/thermal.html. What a card does not have is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_FILES: Mapping[str, tuple[tuple[str, ...], float]] = {  # the first that is there, and what to multiply by
    "utilisation": (("gpu_busy_percent",), 0.01),
    "memory_used_bytes": (("mem_info_vram_used",), 1.0),
    "memory_total_bytes": (("mem_info_vram_total",), 1.0),
    "sm_clock_hz": (("hwmon/hwmon*/freq1_input",), 1.0),
    "power_w": (("hwmon/hwmon*/power1_average", "hwmon/hwmon*/power1_input"), 1e-6),
    "power_limit_w": (("hwmon/hwmon*/power1_cap",), 1e-6),
    "temperature_c": (("hwmon/hwmon*/temp1_input",), 1e-3),
}


class AmdCards:
    """None where the kernel has no such driver."""

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
    """Nothing where it cannot be read, as of a card that sleeps."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
