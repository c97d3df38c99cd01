"""The card a question is about: named, or the one of a config."""

from __future__ import annotations

import re

from stepwatch.gpus.catalogue import Gpu
from stepwatch.gpus.names import find_gpu
from stepwatch.settings import Origin, Settings

_COUNT = re.compile(r"^\s*(?P<before>\d{1,4})\s?[x×]\s?(?=\D|\d{4})|\s[x×]\s?(?P<after>\d{1,4})\s*$")


def named_card(name: str | None) -> tuple[Gpu, str] | None:
    """What --gpu says, and how the card is known."""
    if not name:
        return None
    if name.strip().lower() not in ("this", "cpu"):
        return find_gpu(name), Origin.USER.value
    from stepwatch.gpus import this_machine  # a card with a name needs neither the driver nor a calibration

    return this_machine.processor(Origin.USER) if name.strip().lower() == "cpu" else this_machine.card_of_this_machine()


def count_in(name: str | None) -> int | None:
    """`8xA100` and `A100 x8` are eight cards."""
    found = _COUNT.search(name or "")
    return int(found["before"] or found["after"]) if found else None


def card_of_config(settings: Settings) -> tuple[Gpu, str] | None:
    """`device = 'cpu'` names the card too."""
    if not (settings.text("device") or "").startswith("cpu"):
        return None
    from stepwatch.gpus.this_machine import processor

    return processor(settings["device"].origin)
