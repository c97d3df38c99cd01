"""Regular expressions that are compiled when first used: a log needs few of the many that are known."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Pattern = re.compile
else:

    class Pattern:
        """As re.compile, at the price of a string until a method is asked for, which is then the compiled one's."""

        def __init__(self, source: str | bytes, flags: int = 0) -> None:
            self._given = source, flags

        def __getattr__(self, name: str) -> Any:
            method = getattr(re.compile(*self._given), name)
            setattr(self, name, method)
            return method
