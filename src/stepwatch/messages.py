"""A sentence for the user, not yet in any language."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Message(NamedTuple):
    """An English template with named placeholders and the values for them.

    A placeholder may have a kind, `{cost:time}`, that says how to write the value in the user's
    locale; `stepwatch.i18n` has the kinds. `many` is the English plural, and `n` the count that
    selects it.
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
