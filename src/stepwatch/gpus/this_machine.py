"""The card or the processor of this machine: as it was measured, or as the driver reports it."""

from __future__ import annotations

from dataclasses import replace

from stepwatch.errors import UnknownGpu
from stepwatch.gpus.calibration import Calibration, NoCalibration, check_processor, load_calibration
from stepwatch.gpus.catalogue import CPU, Gpu
from stepwatch.gpus.driver import this_card
from stepwatch.messages import Message
from stepwatch.settings import Origin

_BUSY = Message(
    "The calibration was made while the machine was busy, so that these times may be too long. Measure again when it "
    "is idle: stepwatch calibrate"
)


def card_of_this_machine() -> tuple[Gpu, str]:
    """As `stepwatch calibrate` measured it, else as the driver reports it; without a card, the measured processor."""
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
    return replace(card.gpu, calibration=known, remark=_BUSY if known.is_busy else None), Origin.CALIBRATED.value


def processor(origin: Origin) -> tuple[Gpu, str]:
    """The processor: its speed is known only if it was calibrated; a remark says why a calibration was not used."""
    try:
        known = load_calibration()
        if known is not None and known.device == "cpu":
            check_processor(known)
            return as_card(known), Origin.CALIBRATED.value
    except NoCalibration as error:
        return replace(CPU, remark=error.what), origin.value
    return CPU, origin.value


def as_card(known: Calibration) -> Gpu:
    """The processor as a card; its peaks are what was measured, since nothing else is known about a processor."""
    return replace(
        CPU,
        vram_bytes=known.memory_bytes,
        bandwidth_bytes_per_s=known.figures["bandwidth"].value,
        fp32_flops=known.figures["matmul_float32"].value,
        calibration=known,
        remark=_BUSY if known.is_busy else None,
    )
