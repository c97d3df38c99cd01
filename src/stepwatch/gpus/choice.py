"""The card a question is about: named, in this machine, or unknown."""

from __future__ import annotations

import re
from dataclasses import replace

from stepwatch.errors import UnknownGpu
from stepwatch.gpus.calibration import Calibration, NoCalibration, check_processor, load_calibration
from stepwatch.gpus.catalogue import CPU, Gpu
from stepwatch.gpus.names import find_gpu
from stepwatch.messages import Message
from stepwatch.settings import Origin, Settings

_COUNT = re.compile(r"^\s*(?P<before>\d{1,4})\s?[x×]\s?(?=\D|\d{4})|\s[x×]\s?(?P<after>\d{1,4})\s*$")


def named_card(name: str | None) -> tuple[Gpu, str] | None:
    """What --gpu says, and how the card is known."""
    if not name:
        return None
    match name.strip().lower():
        case "this":
            return card_of_this_machine()
        case "cpu":
            return processor(Origin.USER)
    return find_gpu(name), Origin.USER.value


def count_in(name: str | None) -> int | None:
    """`8xA100` and `A100 x8` are eight cards."""
    found = _COUNT.search(name or "")
    return int(found["before"] or found["after"]) if found else None


def card_of_this_machine() -> tuple[Gpu, str]:
    """As `stepwatch calibrate` measured it, else as the driver reports it; without a card, the measured processor."""
    from stepwatch.gpus.driver import this_card  # a card with a name does not need the driver

    try:
        card = this_card()
    except UnknownGpu as no_card:
        known = load_calibration()
        if known is None or known.device != "cpu":
            remedy = Message("name a graphics card with --gpu, or measure this machine: stepwatch calibrate")
            raise UnknownGpu(no_card.what, remedy) from no_card
        check_processor(known)
        return as_card(known), Origin.CALIBRATED.value
    try:
        known = load_calibration()
    except NoCalibration as error:
        return replace(card.gpu, remark=error.what), Origin.DRIVER.value
    if known is None or known.device == "cpu":
        return card.gpu, Origin.DRIVER.value
    if known.name != card.name:
        facts = {"name": known.name, "here": card.name}
        text = Message("The calibration is of {name:word}, this is {here:word}: it was not used.", facts)
        return replace(card.gpu, remark=text), Origin.DRIVER.value
    return replace(card.gpu, calibration=known), Origin.CALIBRATED.value


def processor(origin: Origin) -> tuple[Gpu, str]:
    """`cpu`: its speed is known only where this one was measured; why a calibration was not used is a remark."""
    try:
        known = load_calibration()
        if known is not None and known.device == "cpu":
            check_processor(known)
            return as_card(known), Origin.CALIBRATED.value
    except NoCalibration as error:
        return replace(CPU, remark=error.what), origin.value
    return CPU, origin.value


def as_card(known: Calibration) -> Gpu:
    """Peaks are what was reached: of a processor nothing else is known."""
    return replace(
        CPU,
        vram_bytes=known.memory_bytes,
        bandwidth_bytes_per_s=known.figures["bandwidth"].value,
        fp32_flops=known.figures["matmul_float32"].value,
        calibration=known,
    )


def card_of_config(settings: Settings) -> tuple[Gpu, str] | None:
    """`device = 'cpu'` names the card too."""
    if not (settings.text("device") or "").startswith("cpu"):
        return None
    return processor(settings["device"].origin)
