"""Buckets answer with errors, and slowly: what may go well a moment later is tried again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

WAITS_S = (0.2, 0.8, 3.2)
"""Before the second, third and fourth attempt."""
FINAL = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
"""Would be the same again."""


def retried(attempt: Callable[[], T], *, waits_s: tuple[float, ...] = WAITS_S) -> T:
    """What the attempt returns; raises what it raised at last."""
    for wait_s in waits_s:
        try:
            return attempt()
        except FINAL:
            raise
        except OSError:
            time.sleep(wait_s)
    return attempt()
