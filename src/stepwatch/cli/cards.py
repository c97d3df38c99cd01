"""The card a command is about: named, in this machine, or unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwatch.patterns import Pattern
from stepwatch.settings import Origin

if TYPE_CHECKING:
    from stepwatch.gpus import Gpu

THIS = "this"
_COUNT = Pattern(r"^\s*(?P<before>\d{1,4})\s?[x×]\s?(?=\D|\d{4})|\s[x×]\s?(?P<after>\d{1,4})\s*$")


def named_card(name: str | None) -> tuple[Gpu, str] | None:
    """What --gpu says; the catalogue is loaded only where a card is named, the driver only where it is asked for."""
    if not name:
        return None
    if name.strip().lower() == THIS:
        return card_of_this_machine()
    from stepwatch.gpus import find_gpu

    return find_gpu(name), Origin.USER.value


def count_in(name: str | None) -> int | None:
    """`8xA100` and `A100 x8` are eight cards."""
    found = _COUNT.search(name or "")
    return int(found["before"] or found["after"]) if found else None


def card_of_this_machine() -> tuple[Gpu, str]:
    from stepwatch.gpus import this_card

    return this_card().gpu, Origin.DRIVER.value
