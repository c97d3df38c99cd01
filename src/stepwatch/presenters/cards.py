"""The catalogue of cards as a table, and one card in detail: text, Markdown or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from stepwatch.gpus import Gpu
from stepwatch.i18n import say
from stepwatch.i18n.numbers import decimal
from stepwatch.messages import Message
from stepwatch.units import GIGA, TERA

SCHEMA = "stepwatch.gpus/1"
GIB = 2.0**30
UNKNOWN = "–"
_OF_THIS_MACHINE = ("calibration", "remark")

Row = list[str]


def _figure(value: float | None, unit: float, language: str) -> str:
    """Up to four digits, none of them a mere zero at the end: 12, 58.3."""
    if value is None:
        return UNKNOWN
    figure = float(f"{value / unit:.4g}")
    return decimal(figure, len(f"{figure:g}".partition(".")[2]), language)


def _text(value: object) -> str:
    return UNKNOWN if value in (None, "") else str(value)


# Heads carry the unit, so that the cells are bare figures.
COLUMNS: tuple[tuple[Message, Callable[[Gpu, str], str]], ...] = (
    (Message("card"), lambda gpu, language: gpu.name),
    (Message("memory GiB"), lambda gpu, language: _figure(gpu.vram_bytes, GIB, language)),
    (Message("GB/s"), lambda gpu, language: _figure(gpu.bandwidth_bytes_per_s, GIGA, language)),
    (Message("bf16 TFLOPS"), lambda gpu, language: _figure(gpu.bf16_flops, TERA, language)),
    (Message("fp16 TFLOPS"), lambda gpu, language: _figure(gpu.fp16_flops, TERA, language)),
    (Message("fp32 TFLOPS"), lambda gpu, language: _figure(gpu.fp32_flops, TERA, language)),
    (Message("watts"), lambda gpu, language: _figure(gpu.tdp_w, 1.0, language)),
    (Message("confidence"), lambda gpu, language: gpu.confidence),
)

DETAILS: tuple[tuple[Message, Callable[[Gpu, str], str]], ...] = (
    (Message("maker"), lambda gpu, language: _text(gpu.vendor)),
    (Message("architecture"), lambda gpu, language: _text(gpu.architecture)),
    (Message("compute capability"), lambda gpu, language: _text(_capability(gpu))),
    (Message("multiprocessors"), lambda gpu, language: _text(gpu.sm_count)),
    (Message("memory, GiB"), lambda gpu, language: _figure(gpu.vram_bytes, GIB, language)),
    (Message("memory bandwidth, GB/s"), lambda gpu, language: _figure(gpu.bandwidth_bytes_per_s, GIGA, language)),
    (Message("bf16, dense TFLOPS"), lambda gpu, language: _figure(gpu.bf16_flops, TERA, language)),
    (Message("fp16, dense TFLOPS"), lambda gpu, language: _figure(gpu.fp16_flops, TERA, language)),
    (Message("tf32, dense TFLOPS"), lambda gpu, language: _figure(gpu.tf32_flops, TERA, language)),
    (Message("fp32, dense TFLOPS"), lambda gpu, language: _figure(gpu.fp32_flops, TERA, language)),
    (Message("best dtype for training"), lambda gpu, language: gpu.peak_flops().dtype),
    (Message("power limit, watts"), lambda gpu, language: _figure(gpu.tdp_w, 1.0, language)),
    (Message("confidence"), lambda gpu, language: gpu.confidence),
    (Message("sources"), lambda gpu, language: _text(gpu.sources)),
)

LEGEND = Message(
    "Confidence: A read in official text, B computed from verified rates, C at least one figure not verified. "
    "The marks of the sources are explained in docs/gpus-sources.md."
)


def _capability(gpu: Gpu) -> str | None:
    return ".".join(map(str, gpu.compute_capability)) if gpu.compute_capability else None


def cards_json(cards: Sequence[Gpu]) -> str:
    return json.dumps({"schema": SCHEMA, "gpus": [_card_json(gpu) for gpu in cards]}, ensure_ascii=False) + "\n"


def _card_json(gpu: Gpu) -> dict[str, Any]:
    peak = gpu.peak_flops()
    known = {name: value for name, value in asdict(gpu).items() if name not in _OF_THIS_MACHINE}
    return known | {
        "compute_capability": _capability(gpu), "peak_flops": peak.flops, "peak_dtype": peak.dtype,
    }  # fmt: skip


def cards_table(cards: Sequence[Gpu], language: str, *, markdown: bool) -> str:
    """All cards, one line each."""
    heads = [say(head, language) for head, _ in COLUMNS]
    rows = [[cell(gpu, language) for _, cell in COLUMNS] for gpu in cards]
    lines = _markdown(heads, rows) if markdown else _aligned(heads, rows)
    return "\n".join([*lines, "", say(LEGEND, language)]) + "\n"


def card_details(gpu: Gpu, language: str, *, markdown: bool) -> str:
    """One card, one line per figure."""
    rows = [[say(label, language), cell(gpu, language)] for label, cell in DETAILS]
    if markdown:
        lines = [f"## {gpu.name}", "", *_markdown(["", ""], rows)]
    else:
        width = max(len(label) for label, _ in rows)
        lines = [gpu.name, *(f"  {label:<{width}}  {figure}" for label, figure in rows)]
    return "\n".join([*lines, "", say(LEGEND, language)]) + "\n"


def _aligned(heads: Row, rows: list[Row]) -> list[str]:
    """Names to the left, figures to the right; a head of two words takes two lines."""
    tops, bottoms = zip(*(head.split(" ", 1) if " " in head else ("", head) for head in heads), strict=True)
    table = [list(tops), list(bottoms), *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(heads))]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in table]


def _markdown(heads: Row, rows: list[Row]) -> list[str]:
    rule = ["---", *("---:" for _ in heads[1:])]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (heads, rule, *rows)]
