"""Saying a Message in a language: catalogues in gettext's format, numbers and durations by locale."""

from __future__ import annotations

import gettext
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from functools import cache
from string import Formatter
from time import localtime, strftime
from typing import Any, NamedTuple

from stepwatch.i18n import numbers
from stepwatch.i18n.languages import TABLE
from stepwatch.messages import Message

__all__ = ["EPOCHS", "LANGUAGES", "joined", "language_from_environment", "say", "say_all"]

LANGUAGES = tuple(TABLE)
_PLACE = os.path.join(os.path.dirname(__file__), "locales")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_BEFORE_NO_SPACE, _AFTER_NO_SPACE = "。，、：；？）」", "（「"
_HAN = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")
_PLACEHOLDER = re.compile(r"(\{[^}]*\})")
_catalogue = cache(gettext.translation)
EPOCHS = ContextVar("epochs", default=False)
"""Whether what is called an iteration elsewhere is called an epoch: where a log shows nothing smaller."""
_OF_EPOCHS = {"Step": Message("Epoch"), "Training step": Message("Training epoch")}


def say(message: Message, language: str = "en") -> str:
    """The message as text in a language."""
    catalogue = _catalogue("stepwatch", _PLACE, (language,), fallback=True)  # English is the key, and has none
    epochs = EPOCHS.get()
    if epochs and message.key in _OF_EPOCHS:
        message = _OF_EPOCHS[message.key]
    if message.many is not None and message.n is not None:
        template = catalogue.ngettext(message.key, message.many, message.n)
    else:
        template = catalogue.gettext(message.key)
    if epochs:
        pieces = _PLACEHOLDER.split(template)
        for word, epoch in TABLE[language].epochs:
            pieces[::2] = [piece.replace(word, epoch) for piece in pieces[::2]]
        template = "".join(pieces)
    spoken = {name: _Spoken(value, language) for name, value in message.params.items()}
    return template.format_map(spoken) if TABLE[language].clock[0].isascii() else _close_set(template, spoken)


def _close_set(template: str, spoken: dict[str, _Spoken]) -> str:
    """`{time} 的时间` has a space after 5 s and none after 5 秒: a unit of the script itself needs none."""
    text = ""
    for literal, name, kind, _ in Formatter().parse(template):
        text = _met(text, literal)
        if name is not None:
            text = _met(text, format(spoken[name], kind or ""))
    return text


def _met(text: str, following: str) -> str:
    if text[-1:] == " " and _HAN.match(text[-2:-1]) and _HAN.match(following):
        return text[:-1] + following
    if following[:1] == " " and _HAN.match(text[-1:]) and _HAN.match(following[1:]):
        return text + following[1:]
    return text + following


def say_all(messages: Iterable[Message], language: str) -> str:
    return joined(say(message, language) for message in messages)


def joined(texts: Iterable[str]) -> str:
    """Several on one line. Full-width punctuation has its space inside: none stands beside it."""
    line = ""
    for text in texts:
        apart = line and text and line[-1] not in _BEFORE_NO_SPACE and text[0] not in _AFTER_NO_SPACE
        line += (" " if apart else "") + text
    return line


def language_from_environment(environment: dict[str, str] | os._Environ[str] = os.environ) -> str:
    """The first language of the usual variables that we speak; English otherwise."""
    for name in ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG"):
        for part in environment.get(name, "").split(":"):
            code = part[:2].lower()
            if code in LANGUAGES and (len(part) == 2 or not part[2:3].isalpha()):
                return code
    return "en"


class _Spoken(NamedTuple):
    """A value for a placeholder; the kind after the colon says how it is written in the locale."""

    value: Any
    language: str

    def __format__(self, kind: str) -> str:
        if kind not in _KINDS:
            raise ValueError(f"unknown kind of placeholder: {kind!r}")
        return _KINDS[kind](self.value, self.language)


def clean(text: object) -> str:
    """Text from outside as it may be repeated: without control characters, on one line, not too long."""
    plain = _CONTROL.sub("", str(text).replace("\n", " ").replace("\t", " "))
    return plain if len(plain) <= 120 else plain[:119] + "…"


def _ints(values: Sequence[int], language: str) -> str:
    """Up to five numbers; of more the first three, an ellipsis and the last."""
    few = values if len(values) <= 5 else [*values[:3], values[-1]]  # there may be millions
    shown = [numbers.decimal(value, language) for value in few]
    if len(values) > 5:
        shown.insert(3, "…")
    return TABLE[language].comma.join(shown)


_KINDS: dict[str, Callable[[Any, str], str]] = {
    "word": lambda value, language: clean(say(value, language) if isinstance(value, Message) else value),
    "list": lambda value, _: _CONTROL.sub("", str(value)),  # words of our own, as long as they are
    "quote": lambda value, _: _CONTROL.sub("", str(value)),  # a line of the log, cut by who quotes it
    "clock": lambda value, _: strftime("%Y-%m-%d %H:%M", localtime(value)),
    "said": lambda value, language: TABLE[language].semicolon.join(say(message, language) for message in value),
    "sum": lambda value, language: " + ".join(say(message, language) for message in value),
    "ints": _ints,
    "n": numbers.decimal,
    "x": numbers.factor,
    "figure": numbers.figure,
    "ratio": numbers.ratio,
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
