"""The cards as data: `catalogue.tsv`, read once, and the `Gpu` that a row becomes.

docs/gpus-sources.md explains the columns and the source marks.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from stepwatch.messages import Message
from stepwatch.units import GIGA, MEGA, TERA

if TYPE_CHECKING:
    from stepwatch.gpus.calibration import Calibration

# Memory is sold in GB and built in GiB: an RTX 4070 of "12 GB" reports 12.0 GiB to the driver.
GIB = 2**30

# How far above the advertised peak a true figure can be. Desktop cards boost past the advertised clock (an RTX 5090
# reaches 113 %), power-capped data-centre cards stay below it (A100 85 %, H100 80 %, H20 96 %).
BOOST_SLACK = 1.25

A100_FLOPS = 312 * TERA  # bf16, dense: the peak that nanoGPT divides by on every card

DTYPES = {
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "float16": "float16",
    "fp16": "float16",
    "half": "float16",
    "float32": "float32",
    "fp32": "float32",
    "float": "float32",
    "tf32": "tf32",
    "tfloat32": "tf32",
}

Confidence = Literal["A", "B", "C"]


class Peak(NamedTuple):
    """A peak in FLOP/s and the arithmetic that it is for; None if no figure is known."""

    flops: float | None
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One device as torch sees it; peaks are dense, at the advertised boost clock, accumulating in fp32."""

    name: str
    vendor: str
    segment: str
    architecture: str | None = None
    compute_capability: tuple[int, int] | None = None
    sm_count: int | None = None
    boost_hz: float | None = None
    vram_bytes: float | None = None
    bandwidth_bytes_per_s: float | None = None
    fp32_flops: float | None = None
    tf32_flops: float | None = None
    fp16_flops: float | None = None
    fp16_accumulate16_flops: float | None = None
    bf16_flops: float | None = None
    fp8_flops: float | None = None
    fp8_accumulate16_flops: float | None = None
    int8_ops: float | None = None
    link_bytes_per_s: float | None = None
    link: str | None = None
    pcie: str | None = None
    tdp_w: float | None = None
    has_bf16: bool = False
    confidence: Confidence = "C"
    sources: str = ""
    aliases: tuple[str, ...] = field(default=(), repr=False)
    calibration: Calibration | None = field(default=None, repr=False, hash=False)
    """The calibration, for the card of this machine."""
    remark: Message | None = field(default=None, repr=False, compare=False)
    """A remark on the calibration, for example why it was not used."""

    @property
    def is_laptop(self) -> bool:
        return self.segment == "laptop"

    @property
    def is_geforce(self) -> bool:
        """A GeForce card, desktop or laptop."""
        return self.segment in ("geforce", "laptop")

    def peak_flops(self, dtype: str | None = None) -> Peak:
        """The peak for matrix products of a dtype, and the arithmetic that the card really uses for it.

        Without a dtype: the one to train in. `float32` means TF32 if the card has it, because nanoGPT allows TF32;
        `fp32_flops` is the figure without it. For a dtype that the card only emulates, such as bfloat16 before Ampere,
        the result is the fp32 peak and `float32`: emulation converts to fp32 and is never faster than that.
        """
        if dtype is not None:
            wanted = dtype.strip().lower().removeprefix("torch.")
        elif self.has_bf16:
            wanted = "bfloat16"
        else:  # tensor cores show in the rate: without them fp16 is at most as fast as fp32 (Apple, Pascal)
            wanted = "float16" if (self.fp16_flops or 0.0) > (self.fp32_flops or 0.0) else "float32"
        match DTYPES.get(wanted):
            case "bfloat16" if self.has_bf16:
                return Peak(self.bf16_flops, "bfloat16")
            case "float16" if self.fp16_flops is not None or self.has_bf16:
                return Peak(self.fp16_flops, "float16")
            case "float32" | "tf32" if self.tf32_flops is not None:
                return Peak(self.tf32_flops, "tf32")
            case None:
                return Peak(None, wanted)
            case _:
                return Peak(self.fp32_flops, "float32")

    def impossible_above_flops(self, dtype: str | None = None) -> float | None:
        """No correct measurement is above this; None if the peak is unknown."""
        peak = self.peak_flops(dtype).flops
        return None if peak is None else peak * self.boost_slack

    @property
    def boost_slack(self) -> float:
        """The factor by which this card may exceed its advertised peak."""
        return 1.05 if self.segment == "datacentre" else BOOST_SLACK


CPU = Gpu(name="cpu", vendor="", segment="cpu")


# The figures of a card: for each, its column in the table and the unit of that column.
_FIGURES = {
    "boost_hz": ("boost_mhz", MEGA),
    "vram_bytes": ("vram_gb", GIB),
    "bandwidth_bytes_per_s": ("bandwidth_gb_s", GIGA),
    "link_bytes_per_s": ("link_gb_s", GIGA),
    **{f"{kind}_flops": (f"{kind}_tflops", TERA) for kind in ("fp32", "tf32", "fp16", "bf16", "fp8")},
    **{f"{kind}_accumulate16_flops": (f"{kind}_accumulate16_tflops", TERA) for kind in ("fp16", "fp8")},
    "int8_ops": ("int8_tops", TERA),
}


@cache
def gpus() -> tuple[Gpu, ...]:
    """Every card that we know, in the order of the catalogue."""
    with open(os.path.join(os.path.dirname(__file__), "catalogue.tsv"), encoding="utf-8") as stream:
        header, *lines = (line.split("\t") for line in stream.read().splitlines())
    found = []
    for line in lines:
        row = dict(zip(header, line, strict=True))
        # AMD's gfx names are kept in the data file but are no compute capability.
        capability = re.fullmatch(r"(\d+)\.(\d+)", row["compute_capability"])
        watts = row["tdp_w"]  # laptop makers choose within a range such as 35-115; the peaks are of its upper end
        figures: dict[str, Any] = {
            name: float(row[column]) * unit if row[column] else None for name, (column, unit) in _FIGURES.items()
        }
        card = Gpu(
            name=row["name"],
            aliases=tuple(row["aliases"].split("; ")) if row["aliases"] else (),
            vendor=row["vendor"],
            segment=row["segment"],
            architecture=row["architecture"],
            compute_capability=(int(capability[1]), int(capability[2])) if capability else None,
            sm_count=int(row["sm_count"]) if row["sm_count"] else None,
            link=row["link"] or None,
            pcie=row["pcie"] or None,
            tdp_w=float(watts.rpartition("-")[2]) if watts else None,
            has_bf16=row["bf16_hw"] == "yes",
            confidence=cast(Confidence, row["confidence"]),
            sources=row["sources"],
            **figures,
        )
        found.append(card)
    return tuple(found)
