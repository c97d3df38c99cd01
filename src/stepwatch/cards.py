"""The card a question is about: named, in this machine, or unknown; and how several of it are connected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwatch.errors import UsageError
from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.settings import Origin, Settings

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


def card_of_config(settings: Settings) -> tuple[Gpu, str] | None:
    """`device = 'cpu'` names the card too."""
    if not (settings.text("device") or "").startswith("cpu"):
        return None
    from stepwatch.gpus import find_gpu

    return find_gpu("cpu"), settings["device"].origin.value


def checked_link(name: str | None, card: Gpu) -> str | None:
    """How several of the card are connected; raises UsageError for what does not exist."""
    if name is None:
        return None
    from stepwatch.estimator.step import LINKS_BYTES_PER_S

    known = ("nvlink", "pcie", *LINKS_BYTES_PER_S)
    if name.lower() not in known:
        raise UsageError(
            Message("there is no link “{name:word}”", {"name": name}),
            Message("links: {names:word}", {"names": ", ".join(known)}),
        )
    if name.lower() == "nvlink" and not card.link_bytes_per_s:
        raise UsageError(
            Message("a {gpu:word} has no NVLink", {"gpu": card.name}),
            Message("leave --link out, or name pcie4 or pcie5"),
        )
    return name.lower()
