"""The card a question is about: named, in this machine, or unknown."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from stepwatch.messages import Message
from stepwatch.settings import Origin, Settings

if TYPE_CHECKING:
    from stepwatch.errors import UnknownGpu
    from stepwatch.gpus import Gpu, ThisCard
    from stepwatch.gpus.calibration import Calibration

THIS, CPU = "this", "cpu"
_COUNT = re.compile(r"^\s*(?P<before>\d{1,4})\s?[x×]\s?(?=\D|\d{4})|\s[x×]\s?(?P<after>\d{1,4})\s*$")


def named_card(name: str | None) -> tuple[Gpu, str] | None:
    """What --gpu says; the catalogue is loaded only where a card is named, the driver only where it is asked for."""
    if not name:
        return None
    if name.strip().lower() == THIS:
        return card_of_this_machine()
    if name.strip().lower() == CPU:
        return processor(Origin.USER)
    from stepwatch.gpus import find_gpu

    return find_gpu(name), Origin.USER.value


def count_in(name: str | None) -> int | None:
    """`8xA100` and `A100 x8` are eight cards."""
    found = _COUNT.search(name or "")
    return int(found["before"] or found["after"]) if found else None


def card_of_this_machine() -> tuple[Gpu, str]:
    """As `stepwatch calibrate` measured it, else as the driver tells it; without a card, the processor."""
    from stepwatch.errors import UnknownGpu
    from stepwatch.gpus import this_card

    try:
        card = this_card()
    except UnknownGpu as error:
        return _measured_processor(error)
    return _measured_card(card)


def _measured_card(card: ThisCard) -> tuple[Gpu, str]:
    from stepwatch.gpus.calibration import NoCalibration, load_calibration

    try:
        known = load_calibration()
    except NoCalibration as error:
        return replace(card.gpu, remark=error.what), Origin.DRIVER.value
    if known is None or known.device == CPU:
        return card.gpu, Origin.DRIVER.value
    if known.name != card.name:
        facts = {"name": known.name, "here": card.name}
        text = Message("The calibration is of {name:word}, this is {here:word}: it was not used.", facts)
        return replace(card.gpu, remark=text), Origin.DRIVER.value
    return replace(card.gpu, calibration=known), Origin.CALIBRATED.value


def _measured_processor(no_card: UnknownGpu) -> tuple[Gpu, str]:
    from stepwatch.errors import UnknownGpu
    from stepwatch.gpus.calibration import check_processor, load_calibration

    known = load_calibration()
    if known is None or known.device != CPU:
        raise UnknownGpu(
            no_card.what, Message("name a graphics card with --gpu, or measure this machine: stepwatch calibrate")
        ) from no_card
    check_processor(known)
    return as_card(known), Origin.CALIBRATED.value


def processor(origin: Origin) -> tuple[Gpu, str]:
    """`cpu`: its speed is known only where this one was measured; why a calibration was not used is a remark."""
    from stepwatch.gpus import find_gpu
    from stepwatch.gpus.calibration import NoCalibration, check_processor, load_calibration

    try:
        known = load_calibration()
        if known is not None and known.device == CPU:
            check_processor(known)
            return as_card(known), Origin.CALIBRATED.value
    except NoCalibration as error:
        return replace(find_gpu(CPU), remark=error.what), origin.value
    return find_gpu(CPU), origin.value


def as_card(known: Calibration) -> Gpu:
    """Peaks are what was reached: of a processor nothing else is known."""
    from stepwatch.gpus import find_gpu

    return replace(
        find_gpu(CPU), vram_bytes=known.memory_bytes, bandwidth_bytes_per_s=known.figures["bandwidth"].value,
        fp32_flops=known.figures["matmul_float32"].value, calibration=known,
    )  # fmt: skip


def card_of_config(settings: Settings) -> tuple[Gpu, str] | None:
    """`device = 'cpu'` names the card too."""
    if not (settings.text("device") or "").startswith("cpu"):
        return None
    return processor(settings["device"].origin)
