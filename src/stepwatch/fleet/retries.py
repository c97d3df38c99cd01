"""Places elsewhere: they answer with errors, and slowly, so that what may go well a moment later is tried again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

from stepwatch.errors import InputError
from stepwatch.messages import Message

T = TypeVar("T")

WAITS_S = (0.2, 0.8, 3.2)
"""Before the second, third and fourth attempt."""
FINAL = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError, ImportError, ValueError, TypeError)
"""Would be the same again."""


def retried(attempt: Callable[[], T]) -> T:
    """What the attempt returns; raises what it raised at last. Each file system has errors of its own."""
    for wait_s in WAITS_S:
        try:
            return attempt()
        except FINAL:
            raise
        except Exception:
            time.sleep(wait_s)
    return attempt()


def reason_of(error: Exception) -> str:
    """In one line."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def without_password(place: str) -> str:
    """The place; raises InputError where a password stands in it, which the store would keep."""
    if "://" in place and urlsplit(place).password is not None:
        raise InputError(
            Message("there is a password in the address, which would be kept in the store"),
            Message("give it by the environment: {example:list}", {"example": "FSSPEC_SFTP_PASSWORD=…"}),
        )
    return place
