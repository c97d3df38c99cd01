"""Regular expressions that are compiled when first used: a log needs few of the many that are known."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Pattern = re.compile
else:

    class Pattern:
        """Like re.compile, but costs no more than a string until one of its methods is used for the first time."""

        def __init__(self, source: str | bytes, flags: int = 0) -> None:
            self._given = source, flags

        def __getattr__(self, name: str) -> Any:
            method = getattr(re.compile(*self._given), name)
            setattr(self, name, method)
            return method
