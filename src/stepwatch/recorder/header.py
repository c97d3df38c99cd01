"""The first line of a record: the machine, the versions and the settings. Imports nothing that may be missing."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
from collections.abc import Mapping
from typing import Any

VERSION = 1


def rank_of_process() -> tuple[int, int]:
    """Rank and number of ranks of this process, if torchrun, accelerate or srun started it."""
    for rank, size in (
        ("RANK", "WORLD_SIZE"),
        ("SLURM_PROCID", "SLURM_NTASKS"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ):
        if os.environ.get(rank, "").isdecimal() and os.environ.get(size, "").isdecimal():
            return int(os.environ[rank]), int(os.environ[size])
    return 0, 1


def machine() -> dict[str, Any]:
    """Card, driver and clocks as reported by torch or the driver; None if unknown."""
    found: dict[str, Any] = {"gpu": None, "driver": None, "clocks_mhz": None}
    torch = sys.modules.get("torch")
    version = str(getattr(torch, "__version__", "")) or None
    if torch is not None:
        # Only if the training already uses the card: asking would initialise it.
        with contextlib.suppress(Exception):
            found["gpu"] = str(torch.cuda.get_device_name()) if torch.cuda.is_initialized() else None
    cuda_build = getattr(getattr(torch, "version", None), "cuda", None) is not None
    if torch is None or found["gpu"] is not None or cuda_build:
        found.update({name: value for name, value in _asked_of_driver().items() if value is not None})
    return {**found, "torch": version, "python": platform.python_version()}


def _asked_of_driver() -> dict[str, Any]:
    """The card that this process would use, if there is one."""
    # LOCAL_RANK counts among the visible cards; a list of UUIDs does not show their order.
    try:
        local = int(os.environ.get("LOCAL_RANK") or 0)
        visible = [part.strip() for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part.strip()]
        chosen = visible[local] if local < len(visible) else str(local)
        index = int(chosen) if chosen.isdecimal() else local
        import pynvml  # type: ignore[import-untyped,unused-ignore]

        pynvml.nvmlInit()
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            return {
                "gpu": _text(pynvml.nvmlDeviceGetName(handle)), "driver": _text(pynvml.nvmlSystemGetDriverVersion()),
                "clocks_mhz": {
                    "sm": pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM),
                    "memory": pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM),
                },
            }  # fmt: skip
        finally:
            pynvml.nvmlShutdown()
    except Exception:  # no driver, no library, or a hidden card: it makes no difference to a record
        return {}


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def plain_settings(settings: Any) -> dict[str, Any]:
    """The plain values in a mapping, a namespace or a dataclass."""
    if settings is None:
        return {}
    entries = settings if isinstance(settings, Mapping) else getattr(settings, "__dict__", {})
    return {
        str(name): value[:500] if isinstance(value, str) else value
        for name, value in entries.items()
        if isinstance(value, (bool, int, float, str)) and not str(name).startswith("_")
    }


def line_of(entries: Mapping[str, Any]) -> bytes:
    """One JSON object without spaces; nan and inf, which JSON lacks, are written as text."""
    plain = {
        name: str(value) if isinstance(value, float) and value - value != 0 else value
        for name, value in entries.items()
    }
    return json.dumps(plain, separators=(",", ":"), default=str).encode("utf-8", "replace") + b"\n"
