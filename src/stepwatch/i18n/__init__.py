"""Saying a Message in a language: catalogues in gettext's format, numbers and durations by locale."""

from __future__ import annotations

import gettext
import os
import re
import string
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from stepwatch.i18n import numbers
from stepwatch.messages import Message

__all__ = ["LANGUAGES", "language_from_environment", "say"]

LANGUAGES = ("en", "fr", "de", "es")
_CATALOGUES = Path(__file__).parent / "locales"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_LONGEST_WORD = 120


def say(message: Message, language: str = "en") -> str:
    catalogue = _catalogue(language)
    if message.many is not None and message.n is not None:
        template = catalogue.ngettext(message.key, message.many, message.n)
    else:
        template = catalogue.gettext(message.key)
    return _Speaker(language).vformat(template, (), dict(message.params))


def language_from_environment(environment: dict[str, str] | os._Environ[str] = os.environ) -> str:
    """The first language of the usual variables that we speak; English otherwise."""
    for name in ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG"):
        for part in environment.get(name, "").split(":"):
            code = part[:2].lower()
            if code in LANGUAGES and (len(part) == 2 or not part[2:3].isalpha()):
                return code
    return "en"


@cache
def _catalogue(language: str) -> gettext.NullTranslations:
    if language == "en":
        return gettext.NullTranslations()
    return gettext.translation("stepwatch", _CATALOGUES, [language])


class _Speaker(string.Formatter):
    """Fills the placeholders; the kind after the colon tells how a value is written in the locale."""

    def __init__(self, language: str) -> None:
        self.language = language

    def format_field(self, value: Any, format_spec: str) -> str:
        kind = _KINDS.get(format_spec)
        if kind is None:
            raise ValueError(f"unknown kind of placeholder: {format_spec!r}")
        return kind(value, self.language)


def clean(text: object) -> str:
    """Text from outside as it may be repeated: without control characters, on one line, not too long."""
    plain = _CONTROL.sub("", str(text).replace("\n", " ").replace("\t", " "))
    return plain if len(plain) <= _LONGEST_WORD else plain[: _LONGEST_WORD - 1] + "…"


def _word(value: object, language: str) -> str:
    return clean(value)


def _ints(values: Sequence[int], language: str) -> str:
    """Up to four numbers, then the last one after an ellipsis."""
    shown = [numbers.integer(value, language) for value in values]
    if len(shown) > 5:
        shown = [*shown[:3], "…", shown[-1]]
    return (", " if language == "en" or all("," not in text for text in shown) else "; ").join(shown).replace(", …,", ", …,")


_KINDS: dict[str, Callable[[Any, str], str]] = {
    "word": _word,
    "ints": _ints,
    "n": numbers.integer,
    "x": numbers.factor,
    "pct": numbers.percent,
    "time": numbers.duration,
    "range": numbers.duration_range,
    "high": lambda value, language: numbers.duration(value.high, language),
    "tflops": numbers.tflops,
    "rate": numbers.token_rate,
    "size": numbers.size,
    "big": numbers.big,
}
KIND_NAMES = frozenset(_KINDS)
