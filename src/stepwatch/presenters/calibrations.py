"""What `stepwatch calibrate` found, as a table with the spread of each figure, and the command that uses it."""

from __future__ import annotations

from collections.abc import Iterator

from stepwatch.gpus.calibration import Calibration, Figure
from stepwatch.i18n import say
from stepwatch.messages import Message

UNSTEADY = 0.1


def calibration_table(found: Calibration, language: str) -> str:
    rows = [(say(label, language), say(figure, language)) for label, figure in _rows(found)]
    width = max(len(label) for label, _ in rows)
    lines = [say(_title(found), language), *(f"  {label:<{width}}  {figure}" for label, figure in rows), ""]
    lines += [say(text, language) for text in _remarks(found)]
    return "\n".join(lines) + "\n"


def _title(found: Calibration) -> Message:
    facts = {"name": found.name, "threads": found.threads, "torch": found.torch, "driver": found.driver}
    if found.driver is not None:
        return Message("{name:word}, driver {driver:word}, torch {torch:word}", facts)
    return Message("{name:word}, {threads:n} threads, torch {torch:word}", facts)


def _rows(found: Calibration) -> Iterator[tuple[Message, Message]]:
    figures = found.figures
    for name, figure in figures.items():
        if name.startswith("matmul_"):
            yield Message("matrix products, {dtype:word}", {"dtype": name.removeprefix("matmul_")}), _flops(figure)
    yield Message("memory, read and written"), _rate(figures["bandwidth"])
    yield Message("one small operation"), _time(figures["launch"])
    yield Message("torch.save"), _rate(figures["save_rate"])
    compiled = figures.get("compile")
    label = Message("torch.compile of a small model")
    yield label, _time(compiled) if compiled else Message("does not work here, or was left out")


def _remarks(found: Calibration) -> Iterator[Message]:
    if found.noise > UNSTEADY:
        yield Message(
            "The machine was busy with other things: do not rely on these figures, measure again when it is at rest."
        )
    yield Message("Next: stepwatch estimate CONFIG.py --gpu this")


def _flops(figure: Figure) -> Message:
    return Message("{value:tflops} ± {spread:pct}", _facts(figure))


def _rate(figure: Figure) -> Message:
    return Message("{value:size} a second ± {spread:pct}", _facts(figure))


def _time(figure: Figure) -> Message:
    return Message("{value:time} ± {spread:pct}", _facts(figure))


def _facts(figure: Figure) -> dict[str, float]:
    return {"value": figure.value, "spread": figure.spread}
