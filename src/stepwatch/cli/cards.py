"""The card a command is about: named, in this machine, or unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwatch.settings import Origin

if TYPE_CHECKING:
    from stepwatch.gpus import Gpu

THIS = "this"


def named_card(name: str | None) -> tuple[Gpu, str] | None:
    """What --gpu says; the catalogue is loaded only where a card is named, the driver only where it is asked for."""
    if not name:
        return None
    if name.strip().lower() == THIS:
        return card_of_this_machine()
    from stepwatch.gpus import find_gpu

    return find_gpu(name), Origin.USER.value


def card_of_this_machine() -> tuple[Gpu, str]:
    from stepwatch.gpus import this_card

    return this_card().gpu, Origin.DRIVER.value
