"""The cards: what each can do at most, how we know it, and how to find one by any of its names.

The driver and the formula are loaded when they are first used: a card with a name needs neither.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stepwatch.gpus.catalogue import Gpu, Peak, gpus
from stepwatch.gpus.names import find_gpu, find_gpu_in_text

if TYPE_CHECKING:
    from stepwatch.gpus.driver import Reading, Sensors, ThisCard, this_card
    from stepwatch.gpus.formula import gpu_by_formula

__all__ = [
    "Gpu", "Peak", "Reading", "Sensors", "ThisCard", "find_gpu", "find_gpu_in_text", "gpu_by_formula", "gpus",
    "this_card",
]  # fmt: skip

_MODULE_OF = {
    "Reading": "driver", "Sensors": "driver", "ThisCard": "driver", "gpu_by_formula": "formula", "this_card": "driver",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value
