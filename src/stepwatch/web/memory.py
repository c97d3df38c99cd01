"""Memory that large logs took goes back to the system when they are answered."""

from __future__ import annotations

import sys

_M_MMAP_THRESHOLD = -3  # of malloc.h
_LARGE_BYTES = 1 << 20  # left alone, the limit rises with the largest block that was ever freed


def give_large_blocks_back() -> None:
    """glibc would keep them for the next time; other systems decide for themselves."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    try:
        ctypes.CDLL("libc.so.6").mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
    except (OSError, AttributeError):  # another C library
        return
