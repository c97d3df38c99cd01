"""The card in this machine, as NVIDIA's driver reports it through nvidia-ml-py.

Any single figure may be unavailable, on laptops, under WSL, in containers: it is None then, and the rest is still used.
"""

# ruff: noqa: N802, the functions have NVIDIA's own names
from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from stepwatch.errors import UnknownGpu
from stepwatch.gpus.catalogue import BOOST_SLACK, Gpu
from stepwatch.gpus.formula import FIRST_WITH_BF16, cores_per_sm, gpu_by_formula, plain_name, segment
from stepwatch.gpus.names import VRAM_TOLERANCE, find_gpu
from stepwatch.messages import Message
from stepwatch.units import MEGA, MILLI

_T = TypeVar("_T")

_SM_CLOCK, _MEMORY_CLOCK = 1, 2  # NVML_CLOCK_SM, NVML_CLOCK_MEM
_MEMORY_SLICES = 8  # of a card that is split by MIG; an A30 has 4

_MIG = re.compile(r" +MIG +(\S+)$")
_PEAKS = tuple(figure.name for figure in fields(Gpu) if figure.name.endswith(("_flops", "_ops")))


class DriverLibrary(Protocol):
    """The part of the module `pynvml` that we use."""

    def nvmlInit(self) -> object: ...
    def nvmlShutdown(self) -> object: ...
    def nvmlSystemGetDriverVersion(self) -> str | bytes: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int, /) -> Any: ...
    def nvmlDeviceGetName(self, handle: Any, /) -> str | bytes: ...
    def nvmlDeviceGetMemoryInfo(self, handle: Any, /) -> Any: ...
    def nvmlDeviceGetCudaComputeCapability(self, handle: Any, /) -> tuple[int, int]: ...
    def nvmlDeviceGetNumGpuCores(self, handle: Any, /) -> int: ...
    def nvmlDeviceGetMemoryBusWidth(self, handle: Any, /) -> int: ...
    def nvmlDeviceGetMaxClockInfo(self, handle: Any, kind: int, /) -> int: ...
    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int, /) -> int: ...
    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Any, /) -> int: ...
    def nvmlDeviceGetPowerManagementLimit(self, handle: Any, /) -> int: ...
    def nvmlDeviceGetPowerManagementDefaultLimit(self, handle: Any, /) -> int: ...
    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any, /) -> int: ...
    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: int, /) -> Any: ...
    def nvmlDeviceGetAttributes(self, handle: Any, /) -> Any: ...
    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int, /) -> int: ...
    def nvmlDeviceGetPowerUsage(self, handle: Any, /) -> int: ...
    def nvmlDeviceGetUtilizationRates(self, handle: Any, /) -> Any: ...
    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any, /) -> int: ...
    def nvmlDeviceGetPcieThroughput(self, handle: Any, counter: int, /) -> int: ...
    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any, /) -> list[Any]: ...
    def nvmlDeviceGetCpuAffinity(self, handle: Any, words: int, /) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ThisCard:
    """A card in this machine.

    The peaks of `gpu` are nominal: a power limit below the default makes the card slower than they promise.
    """

    gpu: Gpu
    name: str  # as the driver spells it
    count: int  # of cards in the machine, of any kind
    driver_version: str | None = None


def this_card(library: DriverLibrary | None = None) -> ThisCard:
    """The card that training would use here: the fastest, CUDA's first. Raises UnknownGpu if there is none."""
    sensors = Sensors(library)
    try:
        version, count = _text(sensors.library.nvmlSystemGetDriverVersion), sensors.count
        named = ((device, device.name) for device in sensors.devices)
        cards = [_card(device, name, count, version) for device, name in named if name is not None]
    finally:
        sensors.close()
    if not cards:
        raise _no_card()
    return max(cards, key=lambda card: card.gpu.peak_flops().flops or 0.0)


class CardState(NamedTuple):
    """What a card is doing now; None for what the driver does not report."""

    name: str
    sm_clock_hz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    used_vram_bytes: float | None = None
    vram_bytes: float | None = None


class Sensors:
    """The cards of this machine, kept open for repeated reading. Raises UnknownGpu if there is none."""

    def __init__(self, library: DriverLibrary | None = None) -> None:
        self.library = library or _installed()
        try:
            self.library.nvmlInit()
        except Exception as error:
            raise _no_card() from error
        self.count = _asked(self.library.nvmlDeviceGetCount) or 0
        handles = [_asked(partial(self.library.nvmlDeviceGetHandleByIndex, index)) for index in range(self.count)]
        self.devices = [DriverDevice(self.library, handle) for handle in handles if handle is not None]
        if not self.devices:
            self.close()
            raise _no_card()

    def read(self) -> CardState:
        """The state of the card with the most memory in use: the training runs there."""
        device = max(self.devices, key=lambda device: device.used_vram_bytes or 0.0)
        return CardState(
            name=plain_name(device.name or ""),
            sm_clock_hz=device.current_sm_clock_hz,
            temperature_c=device.temperature_c,
            power_w=device.power_w,
            used_vram_bytes=device.used_vram_bytes,
            vram_bytes=device.vram_bytes,
        )

    def close(self) -> None:
        _asked(self.library.nvmlShutdown)


def _installed() -> DriverLibrary:
    from importlib import import_module

    try:
        return cast(DriverLibrary, import_module("pynvml"))
    except ImportError as error:
        raise _no_card() from error


def _no_card() -> UnknownGpu:
    return UnknownGpu(
        Message("no NVIDIA card was found in this machine"),
        Message("name a graphics card with --gpu; `stepwatch gpus` lists them"),
    )


def _asked(question: Callable[[], _T]) -> _T | None:
    """The answer, or None on any error: NVMLError, but also names that are not text and missing functions."""
    try:
        return question()
    except Exception:
        return None


def _figure(question: Callable[[], float], unit: float = 1.0) -> float | None:
    value = _asked(question)
    return value * unit if value is not None and 0 < value != 2**32 - 1 else None  # NVML_VALUE_NOT_AVAILABLE


def _text(question: Callable[[], str | bytes]) -> str | None:
    value = _asked(question)
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return (text or "").strip() or None


class DriverDevice:
    """A device of the driver, a whole card or a MIG part of one, in our units."""

    def __init__(self, library: DriverLibrary, handle: object) -> None:
        self.library = library
        self.handle = handle

    @cached_property
    def name(self) -> str | None:
        return _text(lambda: self.library.nvmlDeviceGetName(self.handle))

    @cached_property
    def vram_bytes(self) -> float | None:
        return _figure(lambda: float(self.library.nvmlDeviceGetMemoryInfo(self.handle).total))

    @property
    def free_vram_bytes(self) -> float | None:
        return _asked(lambda: float(self.library.nvmlDeviceGetMemoryInfo(self.handle).free))

    @cached_property
    def compute_capability(self) -> tuple[int, int] | None:
        found = _asked(lambda: self.library.nvmlDeviceGetCudaComputeCapability(self.handle))
        return (found[0], found[1]) if found is not None else None

    @cached_property
    def sm_count(self) -> int | None:
        """The driver counts SMs only for MIG parts, and cores only for whole cards."""
        counted = _figure(lambda: self.library.nvmlDeviceGetAttributes(self.handle).multiprocessorCount)
        if counted is not None:
            return int(counted)
        cores = _figure(lambda: self.library.nvmlDeviceGetNumGpuCores(self.handle))
        each = cores_per_sm(self.compute_capability) if self.compute_capability is not None else None
        return int(cores // each) if cores is not None and each is not None and cores % each == 0 else None

    @cached_property
    def max_sm_clock_hz(self) -> float | None:
        return _figure(lambda: self.library.nvmlDeviceGetMaxClockInfo(self.handle, _SM_CLOCK), MEGA)

    @property
    def current_sm_clock_hz(self) -> float | None:
        return _figure(lambda: self.library.nvmlDeviceGetClockInfo(self.handle, _SM_CLOCK), MEGA)

    @property
    def used_vram_bytes(self) -> float | None:
        free = self.free_vram_bytes
        return None if free is None or self.vram_bytes is None else self.vram_bytes - free

    @property
    def temperature_c(self) -> float | None:
        return _figure(lambda: self.library.nvmlDeviceGetTemperature(self.handle, 0))  # NVML_TEMPERATURE_GPU

    @property
    def power_w(self) -> float | None:
        return _figure(lambda: self.library.nvmlDeviceGetPowerUsage(self.handle), MILLI)

    @property
    def utilisation(self) -> float | None:
        """The share of the time in which a kernel ran."""
        return _asked(lambda: self.library.nvmlDeviceGetUtilizationRates(self.handle).gpu * 0.01)

    @property
    def clock_reasons(self) -> int | None:
        """Bits of nvmlClocksEventReason."""
        return _asked(lambda: self.library.nvmlDeviceGetCurrentClocksThrottleReasons(self.handle))

    @property
    def pcie_bytes_per_s(self) -> float | None:
        """Sent and received: NVML_PCIE_UTIL_TX_BYTES and RX_BYTES, which are in KB."""
        ask = self.library.nvmlDeviceGetPcieThroughput
        return _asked(lambda: (ask(self.handle, 0) + ask(self.handle, 1)) * 1024.0)

    @property
    def processes(self) -> dict[int, float] | None:
        """The processes that compute on the card, by their id, with the memory they use, 0 if unknown."""
        found = _asked(lambda: self.library.nvmlDeviceGetComputeRunningProcesses(self.handle))
        return None if found is None else {one.pid: float(one.usedGpuMemory or 0) for one in found}

    @cached_property
    def near_processors(self) -> frozenset[int]:
        """The processors on the card's own NUMA node; empty if the driver does not report them."""
        count = -(-(os.cpu_count() or 1) // 64)  # words of 64 bits
        words = _asked(lambda: list(self.library.nvmlDeviceGetCpuAffinity(self.handle, count))) or ()
        return frozenset(64 * place + bit for place, word in enumerate(words) for bit in range(64) if word >> bit & 1)

    @property
    def bandwidth_bytes_per_s(self) -> float | None:
        clock_hz = _figure(lambda: self.library.nvmlDeviceGetMaxClockInfo(self.handle, _MEMORY_CLOCK), MEGA)
        bits = _figure(lambda: self.library.nvmlDeviceGetMemoryBusWidth(self.handle))
        # Two transfers per clock in every kind of memory since GDDR3; a 4090: 384 bit x 2 x 10501 MHz = 1008 GB/s.
        return None if clock_hz is None or bits is None else clock_hz * 2 * bits / 8

    @property
    def power_limit_w(self) -> float | None:
        """The limit in force; laptops often report no other."""
        enforced = _figure(lambda: self.library.nvmlDeviceGetEnforcedPowerLimit(self.handle), MILLI)
        return enforced or _figure(lambda: self.library.nvmlDeviceGetPowerManagementLimit(self.handle), MILLI)

    @cached_property
    def default_power_limit_w(self) -> float | None:
        return _figure(lambda: self.library.nvmlDeviceGetPowerManagementDefaultLimit(self.handle), MILLI)

    def first_part(self) -> DriverDevice | None:
        """The MIG part that a process gets; slots of parts that were never created are empty."""
        places = _asked(lambda: self.library.nvmlDeviceGetMaxMigDeviceCount(self.handle)) or 0
        for place in range(places):
            handle = _asked(partial(self.library.nvmlDeviceGetMigDeviceHandleByIndex, self.handle, place))
            if handle is not None:
                return DriverDevice(self.library, handle)
        return None


def _card(device: DriverDevice, name: str, count: int, driver_version: str | None) -> ThisCard:
    gpu = _gpu(device, _MIG.sub("", name))
    used = device if _MIG.search(name) else device.first_part()
    if used is not None:
        name = used.name or name
        gpu = _part_of(gpu, name, used)
    return ThisCard(gpu=gpu, name=name, count=count, driver_version=driver_version)


def _gpu(device: DriverDevice, name: str) -> Gpu:
    """From the catalogue, else computed, else with what the driver reports: unknown peaks stay unknown."""
    is_whole = device.name == name
    vram_bytes, sm_count = (device.vram_bytes, device.sm_count) if is_whole else (None, None)
    try:
        gpu = find_gpu(name, vram_bytes=vram_bytes, sm_count=sm_count)
    except UnknownGpu:
        return _computed(device, name) or Gpu(
            name=plain_name(name),
            vendor="NVIDIA",
            segment=segment(name),
            compute_capability=device.compute_capability,
            sm_count=sm_count,
            vram_bytes=vram_bytes,
            bandwidth_bytes_per_s=device.bandwidth_bytes_per_s,
            tdp_w=device.default_power_limit_w,
            has_bf16=device.compute_capability is not None and device.compute_capability >= FIRST_WITH_BF16,
        )
    # Some names also belong to cards that the catalogue lacks, such as an RTX 3050 Laptop GPU with 20 SMs and 6 GB.
    if vram_bytes and gpu.vram_bytes and abs(vram_bytes / gpu.vram_bytes - 1) > VRAM_TOLERANCE:
        gpu = replace(gpu, vram_bytes=vram_bytes)
    return gpu if sm_count is None or gpu.sm_count in (None, sm_count) else _with_sm_count(gpu, sm_count)


def _computed(device: DriverDevice, name: str) -> Gpu | None:
    if device.compute_capability is None or device.sm_count is None or device.max_sm_clock_hz is None:
        return None
    # Only data-centre cards advertise their highest clock (A100: 1410 MHz both). Others advertise about BOOST_SLACK
    # less: an RTX 3090 1695 of 2100 MHz, an RTX A6000 1800 of 2100. So what is impossible stays impossible.
    slack = 1.0 if segment(name) == "datacentre" else BOOST_SLACK
    return gpu_by_formula(
        name,
        compute_capability=device.compute_capability,
        sm_count=device.sm_count,
        sm_clock_hz=device.max_sm_clock_hz / slack,
        vram_bytes=device.vram_bytes,
        bandwidth_bytes_per_s=device.bandwidth_bytes_per_s,
        tdp_w=device.default_power_limit_w,
    )


def _with_sm_count(gpu: Gpu, sm_count: int | None) -> Gpu:
    """Scales the peaks to the SMs, unknown without their number, and renames the card: measurements do not apply."""
    share = sm_count / gpu.sm_count if sm_count and gpu.sm_count else None
    changes: dict[str, Any] = {peak: _share_of(getattr(gpu, peak), share) for peak in _PEAKS}
    sources = f"{gpu.sources}; computed for {sm_count or '?'} of {gpu.sm_count or '?'} SMs"
    name = f"{gpu.name} ({sm_count or '?'} SMs)"
    return replace(gpu, **changes, name=name, sm_count=sm_count, confidence="C", sources=sources)


def _part_of(gpu: Gpu, name: str, part: DriverDevice) -> Gpu:
    """A MIG part has its own SMs and memory slices, but neither a link nor a power limit."""
    share = part.vram_bytes / gpu.vram_bytes if part.vram_bytes and gpu.vram_bytes else None
    slices = None if share is None else round(share * _MEMORY_SLICES) / _MEMORY_SLICES
    profile = _MIG.search(name)
    return replace(
        _with_sm_count(gpu, part.sm_count),
        name=f"{gpu.name} MIG {profile[1]}" if profile else f"{gpu.name} MIG",
        vram_bytes=part.vram_bytes,
        bandwidth_bytes_per_s=_share_of(gpu.bandwidth_bytes_per_s, slices),
        link_bytes_per_s=None,
        link=None,
        tdp_w=None,
        aliases=(),
    )


def _share_of(whole: float | None, share: float | None) -> float | None:
    return None if whole is None or share is None else whole * share
