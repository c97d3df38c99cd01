"""Regular expressions that are compiled when first used: a log needs few of the many that are known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import AnyStr, Generic


class Pattern(Generic[AnyStr]):
    """As re.compile, at the price of a string until it is needed.

    `holds` are letters of which every match has some: long texts without any are not searched, which takes a tenth.
    """

    __slots__ = ("_compiled", "_flags", "_holds", "_source")

    def __init__(self, source: AnyStr, flags: int = 0, *, holds: tuple[AnyStr, ...] = ()) -> None:
        self._source: AnyStr = source
        self._flags = flags
        self._holds: tuple[AnyStr, ...] = holds
        self._compiled: re.Pattern[AnyStr] | None = None

    @property
    def compiled(self) -> re.Pattern[AnyStr]:
        if self._compiled is None:
            self._compiled = re.compile(self._source, self._flags)
        return self._compiled

    def search(self, text: AnyStr, begin: int = 0) -> re.Match[AnyStr] | None:
        if self._holds and begin == 0 and not any(letters in text for letters in self._holds):
            return None
        return (self._compiled or self.compiled).search(text, begin)

    def match(self, text: AnyStr, begin: int = 0) -> re.Match[AnyStr] | None:
        return (self._compiled or self.compiled).match(text, begin)

    def fullmatch(self, text: AnyStr) -> re.Match[AnyStr] | None:
        return self.compiled.fullmatch(text)

    def sub(self, other: AnyStr, text: AnyStr) -> AnyStr:
        return self.compiled.sub(other, text)

    def finditer(self, text: AnyStr) -> Iterator[re.Match[AnyStr]]:
        if self._holds and not any(letters in text for letters in self._holds):
            return iter(())
        return self.compiled.finditer(text)
