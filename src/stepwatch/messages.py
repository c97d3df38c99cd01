"""Something to be said, not yet in any language."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Message(NamedTuple):
    """An English template with named placeholders and the values for them.

    A placeholder may carry a kind, `{cost:time}`, that says how the value is written in the reader's
    locale; `stepwatch.i18n` knows the kinds. With `many`, the English plural, and `n`, the count that
    chooses between them.
    """

    key: str
    params: Mapping[str, Any] = MappingProxyType({})
    many: str | None = None
    n: int | None = None

    def in_english(self) -> str:
        """Plain English without locale formatting: for exceptions and debugging, not for reports."""
        template = self.many if self.many is not None and self.n != 1 else self.key
        return template.format_map({name: _Plain(value) for name, value in self.params.items()})


class _Plain(NamedTuple):
    value: Any

    def __format__(self, kind: str) -> str:
        return self.value.in_english() if isinstance(self.value, Message) else str(self.value)
