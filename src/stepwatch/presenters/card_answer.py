"""Answers about cards: the catalogue, one card, and this machine as it was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from stepwatch.gpus import Gpu
from stepwatch.gpus.catalogue import GIB
from stepwatch.messages import Message
from stepwatch.presenters.document import UNKNOWN, Document, Table, Text, word
from stepwatch.units import GIGA, TERA

if TYPE_CHECKING:
    from stepwatch.gpus.calibration import Calibration

LEGEND = Message(
    "Confidence: A read in official text, B computed from verified rates, C at least one figure not verified. "
    "The marks of the sources are explained in docs/gpus-sources.md."
)


def card_list_document(cards: Sequence[Gpu]) -> Document:
    """One line per card. The heads carry the units, so that the cells are bare figures."""
    head = (
        *(Message("card"), Message("memory GiB"), Message("GB/s"), Message("bf16 TFLOPS"), Message("fp16 TFLOPS")),
        *(Message("fp32 TFLOPS"), Message("watts"), Message("conf.")),
    )
    rows = (
        (
            word(gpu.name),
            _figure(gpu.vram_bytes, GIB),
            _figure(gpu.bandwidth_bytes_per_s, GIGA),
            _figure(gpu.bf16_flops, TERA),
            _figure(gpu.fp16_flops, TERA),
            _figure(gpu.fp32_flops, TERA),
            _figure(gpu.tdp_w),
            word(gpu.confidence),
        )
        for gpu in cards
    )
    return Document(None, (Table(head, "lrrrrrrr", tuple(rows)), Text((LEGEND,))))


def card_document(gpu: Gpu) -> Document:
    """One line per figure."""
    rows = (
        (Message("maker"), _text(gpu.vendor)),
        (Message("architecture"), _text(gpu.architecture)),
        (Message("compute capability"), _text(".".join(map(str, gpu.compute_capability or ())))),
        (Message("multiprocessors"), _text(gpu.sm_count)),
        (Message("memory, GiB"), _figure(gpu.vram_bytes, GIB)),
        (Message("memory bandwidth, GB/s"), _figure(gpu.bandwidth_bytes_per_s, GIGA)),
        (Message("bf16, dense TFLOPS"), _figure(gpu.bf16_flops, TERA)),
        (Message("fp16, dense TFLOPS"), _figure(gpu.fp16_flops, TERA)),
        (Message("tf32, dense TFLOPS"), _figure(gpu.tf32_flops, TERA)),
        (Message("fp32, dense TFLOPS"), _figure(gpu.fp32_flops, TERA)),
        (Message("best dtype for training"), word(gpu.peak_flops().dtype)),
        (Message("power limit, watts"), _figure(gpu.tdp_w)),
        (Message("confidence"), word(gpu.confidence)),
        (Message("sources"), _text(gpu.sources)),
    )
    return Document(word(gpu.name), (Table((), "ll", tuple(rows)), Text((LEGEND,))))


def _figure(value: float | None, unit: float = 1.0) -> Message:
    return UNKNOWN if value is None else Message("{value:figure}", {"value": value / unit})


def _text(value: object) -> Message:
    return UNKNOWN if value in (None, "") else Message("{value:list}", {"value": value})


# --- this machine -----------------------------------------------------------------------------------------------


def calibration_document(found: Calibration) -> Document:
    """Each figure with its spread, and the command that uses them."""
    facts = {"name": found.name, "threads": found.threads, "torch": found.torch, "driver": found.driver}
    title = Message("{name:word}, {threads:n} threads, torch {torch:word}", facts)
    if found.driver is not None:
        title = Message("{name:word}, driver {driver:word}, torch {torch:word}", facts)
    busy = Message("The machine was busy: do not rely on these figures; measure again when it is idle.")
    remarks = (busy,) if found.is_busy else ()
    ask = Message("Next: stepwatch estimate CONFIG.py --gpu this")
    texts = (Text((message,)) for message in (*remarks, ask))
    return Document(title, (Table((), "ll", tuple(_measured(found))), *texts))


def _measured(found: Calibration) -> Iterator[tuple[Message, Message]]:
    def said(name: str, text: Message) -> Message:
        figure = found.figures[name]
        return text._replace(params={"value": figure.value, "spread": figure.spread})

    for name in found.figures:
        if name.startswith("matmul_"):
            label = Message("matrix products, {dtype:word}", {"dtype": name.removeprefix("matmul_")})
            yield label, said(name, Message("{value:tflops} ± {spread:pct}"))
    yield Message("memory, read and written"), said("bandwidth", Message("{value:size} a second ± {spread:pct}"))
    yield Message("one small operation"), said("launch", Message("{value:time} ± {spread:pct}"))
    yield Message("torch.save"), said("save_rate", Message("{value:size} a second ± {spread:pct}"))
    failed = Message("not available here, or left out")
    compiled = said("compile", Message("{value:time} ± {spread:pct}")) if found.figures.get("compile") else failed
    yield Message("torch.compile of a small model"), compiled
