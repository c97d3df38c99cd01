"""A card that the catalogue does not have, computed: SM count × operations per clock and SM × clock.

The rates are dense and depend on the architecture. Within one compute capability NVIDIA halves the tensor cores of
GeForce cards when they accumulate in fp32, so the name decides which class a card belongs to.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from stepwatch.gpus.catalogue import Gpu


class Rates(NamedTuple):
    """Operations per clock and SM; a product and a sum are two. None: the hardware has no such unit."""

    fp32: int
    tf32: int | None = None
    fp16: int | None = None
    fp16_accumulate16: int | None = None
    fp8: int | None = None
    fp8_accumulate16: int | None = None
    int8: int | None = None


class _Class(NamedTuple):
    """Cards of one compute capability that share their rates; the first class whose pattern matches the name counts."""

    name: re.Pattern[str]
    rates: Rates


_ANY = re.compile("")
# "RTX 3060" is GeForce even if the brand is left out; numbers such as 4000 and 4500 are workstation cards.
_GEFORCE = re.compile(r"geforce|\b[rg]tx ?(?:10[1-8]0|16[1-6]0|[2-5]0[5-9]0)")
_GEFORCE_RTX = re.compile(r"geforce rtx|\brtx ?20[5-9]0")

_ARCHITECTURES = {
    (6, 0): "Pascal",
    (6, 1): "Pascal",
    (7, 0): "Volta",
    (7, 5): "Turing",
    (8, 0): "Ampere",
    (8, 6): "Ampere",
    (8, 9): "Ada Lovelace",
    (9, 0): "Hopper",
    (10, 0): "Blackwell",
    (12, 0): "Blackwell",
}

# From NVIDIA's whitepapers of each architecture; checked against every card of the catalogue in the tests.
_RATES: dict[tuple[int, int], tuple[_Class, ...]] = {
    (6, 0): (_Class(_ANY, Rates(128)),),
    (6, 1): (_Class(_ANY, Rates(256)),),
    (7, 0): (_Class(_ANY, Rates(128, None, 1024, 1024)),),
    (7, 5): (
        _Class(_GEFORCE_RTX, Rates(128, None, 512, 1024, int8=2048)),
        _Class(re.compile(r"\brtx|\bt(?:4|4g|10|40)\b"), Rates(128, None, 1024, 1024, int8=2048)),
        _Class(_ANY, Rates(128)),  # GTX 16xx, MX450, T400 to T2000: Turing without tensor cores
    ),
    (8, 0): (_Class(_ANY, Rates(128, 1024, 2048, 2048, int8=4096)),),
    (8, 6): (
        _Class(_GEFORCE, Rates(256, 256, 512, 1024, int8=2048)),
        _Class(re.compile(r"\ba10g\b"), Rates(256, 256, 512, 512, int8=1024)),  # not an A10; its datasheet halves all
        _Class(_ANY, Rates(256, 512, 1024, 1024, int8=2048)),
    ),
    (8, 9): (
        _Class(_GEFORCE, Rates(256, 256, 512, 1024, 1024, 2048, 2048)),
        _Class(re.compile(r"\bl[24]0\b"), Rates(256, 256, 512, 1024, 1024, 1024, 1024)),  # but not the L40S
        _Class(_ANY, Rates(256, 512, 1024, 1024, 2048, 2048, 2048)),
    ),
    (9, 0): (
        # Cut down for export: 148 dense TFLOPS from 78 SMs.
        _Class(re.compile(r"\bh20\b"), Rates(256, 512, 1024, 1024, 2048, 2048, 2048)),
        _Class(_ANY, Rates(256, 2048, 4096, 4096, 8192, 8192, 8192)),
    ),
    (10, 0): (_Class(_ANY, Rates(256, 4096, 8192, 8192, 16384, 16384, 16384)),),
    (12, 0): (
        _Class(_GEFORCE, Rates(256, 256, 512, 1024, 1024, 2048, 2048)),
        _Class(_ANY, Rates(256, 512, 1024, 1024, 2048, 2048, 2048)),
    ),
}

FIRST_WITH_BF16 = (8, 0)
_LAPTOP = re.compile(r"laptop|mobile|max-q|\bmx\d{3}")
_WORKSTATION = re.compile(r"quadro|\brtx|\bt\d{3,4}\b")
_OWN_BRAND = re.compile(r"^nvidia (?=geforce|titan|quadro|tesla)")


def gpu_by_formula(
    name: str,
    *,
    compute_capability: tuple[int, int],
    sm_count: int,
    sm_clock_hz: float,
    vram_bytes: float | None,
    bandwidth_bytes_per_s: float | None = None,
    tdp_w: float | None = None,
) -> Gpu | None:
    """The card with computed peaks; None for a compute capability whose rates are not known."""
    rates = _rates(name, compute_capability)
    if rates is None:
        return None

    def peak(rate: int | None) -> float | None:
        return None if rate is None else sm_count * rate * sm_clock_hz

    has_bf16 = compute_capability >= FIRST_WITH_BF16
    return Gpu(
        name=plain_name(name),
        vendor="NVIDIA",
        segment=segment(name),
        architecture=_ARCHITECTURES[compute_capability],
        compute_capability=compute_capability,
        sm_count=sm_count,
        boost_hz=sm_clock_hz,
        vram_bytes=vram_bytes,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        fp32_flops=peak(rates.fp32),
        tf32_flops=peak(rates.tf32),
        fp16_flops=peak(rates.fp16),
        fp16_accumulate16_flops=peak(rates.fp16_accumulate16),
        bf16_flops=peak(rates.fp16) if has_bf16 else None,
        fp8_flops=peak(rates.fp8),
        fp8_accumulate16_flops=peak(rates.fp8_accumulate16),
        int8_ops=peak(rates.int8),
        tdp_w=tdp_w,
        has_bf16=has_bf16,
        confidence="C",
        sources=f"[SM] computed: {sm_count} SMs x {rates.fp16 or rates.fp32} x {sm_clock_hz / 1e9:.3f} GHz",
    )


def cores_per_sm(compute_capability: tuple[int, int]) -> int | None:
    """How many of the cores that drivers and datasheets count make one SM: each does a product and a sum per clock."""
    rates = _rates("", compute_capability)
    return None if rates is None else rates.fp32 // 2


def plain_name(name: str) -> str:
    """The name as in the catalogue: without NVIDIA in front of a brand such as GeForce."""
    name = " ".join(name.split())
    return name[len("nvidia ") :] if _OWN_BRAND.search(name.lower()) else name


def segment(name: str) -> str:
    """The market segment of a card by its name; a bare letter and number is a data-centre card."""
    name = name.lower()
    if _GEFORCE.search(name):
        return "laptop" if _LAPTOP.search(name) else "geforce"
    if "titan" in name:
        return "titan"
    return "workstation" if _WORKSTATION.search(name) else "datacentre"


def _rates(name: str, compute_capability: tuple[int, int]) -> Rates | None:
    classes = _RATES.get(compute_capability, ())
    return next((each.rates for each in classes if each.name.search(name.lower())), None)
