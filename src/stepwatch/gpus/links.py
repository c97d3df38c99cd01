"""How several cards are connected, and how fast."""

from __future__ import annotations

from stepwatch.errors import UsageError
from stepwatch.gpus.catalogue import Gpu
from stepwatch.messages import Message
from stepwatch.units import GIGA

CARDS_PER_NODE = 8
# The eight rings of a node share its eight adapters, so that a ring gets what the whole node has: 1600 Gbit/s in the
# clusters of llm-foundry's table.
BETWEEN_NODES_BYTES_PER_S = 200 * GIGA
# One direction, of one ring.
LINKS_BYTES_PER_S = {
    "pcie3": 16 * GIGA,
    "pcie4": 32 * GIGA,
    "pcie5": 64 * GIGA,
    "pcie4x8": 16 * GIGA,
    "pcie5x8": 32 * GIGA,
    "infiniband": 400 * GIGA,
    "roce": 200 * GIGA,
    "ethernet": 1.25 * GIGA,
}


def link_bytes_per_s(gpu: Gpu, n_gpus: int, link: str | float | None = None) -> float:
    """One direction of the link used for the gradients: as given, else the fastest that connects so many cards."""
    if isinstance(link, (int, float)):
        return float(link)
    if link in LINKS_BYTES_PER_S:
        return LINKS_BYTES_PER_S[link]
    if n_gpus > CARDS_PER_NODE and link != "nvlink":
        return BETWEEN_NODES_BYTES_PER_S
    bridged = gpu.link is not None and "bridge" in gpu.link
    # A bridge joins two cards.
    if gpu.link_bytes_per_s and link != "pcie" and not (gpu.is_geforce or (bridged and n_gpus > 2)):
        return gpu.link_bytes_per_s / 2  # the catalogue counts both directions
    generation, _, lanes = (gpu.pcie or "4.0 x16").partition(" ")
    name = f"pcie{generation[0]}" + ("x8" if lanes == "x8" else "")
    return LINKS_BYTES_PER_S.get(name, LINKS_BYTES_PER_S["pcie4"])


def checked_link(name: str | None, card: Gpu) -> str | None:
    """The name of the link in lower case. Raises UsageError if it is unknown or the card does not have it."""
    if name is None:
        return None
    known = ("nvlink", "pcie", *LINKS_BYTES_PER_S)
    if name.lower() not in known:
        raise UsageError(
            Message("there is no link “{name:word}”", {"name": name}),
            Message("links: {names:word}", {"names": ", ".join(known)}),
            about="link",
        )
    if name.lower() == "nvlink" and not card.link_bytes_per_s:
        raise UsageError(
            Message("the {gpu:word} has no NVLink", {"gpu": card.name}),
            Message("leave --link out, or name pcie4 or pcie5"),
            about="link",
        )
    return name.lower()
