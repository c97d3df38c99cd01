"""The device that the run computes on, its data type, and its peak speed."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from stepwatch.errors import InputError, UnknownGpu
from stepwatch.gpus import find_gpu
from stepwatch.gpus.driver import this_card
from stepwatch.gpus.this_machine import processor
from stepwatch.messages import Message
from stepwatch.platforms import allowed_processors, load_average, peak_memory_bytes
from stepwatch.settings import Origin
from stepwatch.trainer.config import TrainConfig
from stepwatch.units import TERA

FIRST_WITH_BF16 = (8, 0)  # compute capability; torch.cuda.is_bf16_supported() says yes to slow emulation as well


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The device of this process and its settings."""

    device: torch.device
    dtype: str
    compile: bool
    name: str
    peak_flops: float | None = None
    remarks: tuple[str, ...] = ()
    """What was asked for but is not done."""

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    def autocast(self) -> AbstractContextManager[object]:
        """Matrix products in the shorter data type; on a CPU everything is float32, as in nanoGPT."""
        if not self.is_cuda:
            return nullcontext()
        return torch.autocast(device_type="cuda", dtype=getattr(torch, self.dtype))

    def synchronize(self) -> None:
        """Waits for the work queued on the device; a CPU has none."""
        if self.is_cuda:
            torch.cuda.synchronize(self.device)
        elif self.device.type == "mps":
            torch.mps.synchronize()

    def peak_memory_bytes(self) -> int | None:
        """The most memory held by the training so far: on a card the card's, else the process's, including torch."""
        if self.is_cuda:
            return int(torch.cuda.max_memory_allocated(self.device))
        return peak_memory_bytes()

    def generator_state(self) -> Tensor | None:
        """The state of the card's own random numbers; a CPU only has the host's."""
        if self.is_cuda:
            return torch.cuda.get_rng_state(self.device)
        return torch.mps.get_rng_state() if self.device.type == "mps" else None

    def set_generator_state(self, state: Tensor) -> None:
        if self.is_cuda:
            torch.cuda.set_rng_state(state, self.device)
        elif self.device.type == "mps":
            torch.mps.set_rng_state(state)

    def said(self) -> str:
        """The description of the device for the first line of the log."""
        if self.peak_flops is None:
            return f"on {self.name} ({self.device.type}, {self.dtype}); mfu is unknown: no peak is known for it"
        peak = f"{self.peak_flops / TERA:.{1 if self.is_cuda else 4}f} TFLOPS"
        return f"on {self.name} ({self.device.type}, {self.dtype}); mfu of its {peak}"


def choose_device(config: TrainConfig, local_rank: int | None = None) -> Device:
    """The device in the config, else the best one available. Each rank on a machine has its own card."""
    device = _device(config.device, local_rank)
    if device.type != "cuda":
        remarks: list[str] = []
        if config.dtype not in (None, "float32"):
            remarks.append(f"dtype {config.dtype} is for CUDA cards: float32 here, as nanoGPT does")
        peak = None
        if device.type == "cpu":
            remarks += filter(None, [crowded(torch.get_num_threads())])
            card, _ = processor(Origin.DRIVER)
            known = card.calibration  # from `stepwatch calibrate` with as many threads, while nothing else was running
            usable = known is not None and known.threads == torch.get_num_threads() and not known.is_busy
            peak = card.fp32_flops if usable else None
        return Device(
            device=device, dtype="float32", compile=bool(config.compile), name=device.type, peak_flops=peak,
            remarks=tuple(remarks),
        )  # fmt: skip
    properties = torch.cuda.get_device_properties(device)
    capability = (properties.major, properties.minor)
    dtype = config.dtype or ("bfloat16" if capability >= FIRST_WITH_BF16 else "float16")
    return Device(
        device=device,
        dtype=dtype,
        compile=config.compile is not False,
        name=properties.name,
        peak_flops=_peak(properties.name, properties.total_memory, properties.multi_processor_count, dtype),
    )


def _device(asked: str | None, local_rank: int | None) -> torch.device:
    cuda = torch.cuda.is_available()
    if asked is None:
        asked = "cuda" if cuda else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(asked)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError(
            Message("there is no device “{name:word}” here", {"name": asked}),
            Message("--device=cpu works everywhere; without --device the best available one is used"),
        ) from error
    if device.type == "cuda":
        device = torch.device("cuda", local_rank if local_rank is not None else device.index or 0)
        torch.cuda.set_device(device)
    return device


def crowded(threads: int) -> str | None:
    """Warns if fewer processors are free than there are threads: every step waits for the slowest thread."""
    load, processors = load_average(), allowed_processors()
    if load is None or threads == 1 or processors - load >= threads - 0.5:
        return None
    return (
        f"{threads} threads that wait for each other share {processors} processors with other programs "
        f"(load {load:.1f}): OMP_NUM_THREADS={max(1, round(processors - load))} may be faster"
    )


def _peak(name: str, vram_bytes: float, sm_count: int, dtype: str) -> float | None:
    with suppress(UnknownGpu):
        return find_gpu(name, vram_bytes=vram_bytes, sm_count=sm_count).peak_flops(dtype).flops
    with suppress(UnknownGpu):
        card = this_card()
        return card.gpu.peak_flops(dtype).flops if card.name == name else None
    return None
