"""Turns Messages into text in a language: catalogues in gettext's format, numbers and durations by locale."""

from __future__ import annotations

import gettext
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from functools import cache
from string import Formatter
from time import localtime, strftime
from typing import Any, NamedTuple

from stepwatch.i18n.languages import TABLE
from stepwatch.messages import Message
from stepwatch.units import DAY_S, HOUR_S, MINUTE_S, TERA, Interval

__all__ = ["EPOCHS", "LANGUAGES", "joined", "language_from_environment", "say", "say_all"]

LANGUAGES = tuple(TABLE)
_PLACE = os.path.join(os.path.dirname(__file__), "locales")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_BEFORE_NO_SPACE, _AFTER_NO_SPACE = "。，、：；？）」", "（「"
_HAN = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")
_PLACEHOLDER = re.compile(r"(\{[^}]*\})")
_catalogue = cache(gettext.translation)
EPOCHS = ContextVar("epochs", default=False)
"""Whether to say “epoch” instead of “iteration”: for logs that show nothing smaller."""
_OF_EPOCHS = {"Step": Message("Epoch"), "Training step": Message("Training epoch")}


def say(message: Message, language: str = "en") -> str:
    """The message as text in a language."""
    catalogue = _catalogue("stepwatch", _PLACE, (language,), fallback=True)  # English has none: it is the key
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
    return template.format_map(spoken) if TABLE[language].clock[0].isascii() else _without_cjk_spaces(template, spoken)


def _without_cjk_spaces(template: str, spoken: dict[str, _Spoken]) -> str:
    """Without spaces inside Chinese or Japanese: `{time} 的时间` has one after 5 s, but not after 5 秒."""
    text = ""
    for literal, name, kind, _ in Formatter().parse(template):
        text = _joined_without_space(text, literal)
        if name is not None:
            text = _joined_without_space(text, format(spoken[name], kind or ""))
    return text


def _joined_without_space(text: str, following: str) -> str:
    if text[-1:] == " " and _HAN.match(text[-2:-1]) and _HAN.match(following):
        return text[:-1] + following
    if following[:1] == " " and _HAN.match(text[-1:]) and _HAN.match(following[1:]):
        return text + following[1:]
    return text + following


def say_all(messages: Iterable[Message], language: str) -> str:
    return joined(say(message, language) for message in messages)


def joined(texts: Iterable[str]) -> str:
    """Joins texts on one line, without a space next to full-width punctuation, which includes its own."""
    line = ""
    for text in texts:
        apart = line and text and line[-1] not in _BEFORE_NO_SPACE and text[0] not in _AFTER_NO_SPACE
        line += (" " if apart else "") + text
    return line


def language_from_environment(environment: dict[str, str] | os._Environ[str] = os.environ) -> str:
    """The first supported language in the usual variables; English otherwise."""
    for name in ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG"):
        for part in environment.get(name, "").split(":"):
            code = part[:2].lower()
            if code in LANGUAGES and (len(part) == 2 or not part[2:3].isalpha()):
                return code
    return "en"


class _Spoken(NamedTuple):
    """A value for a placeholder; the kind after the colon says how to write it in the locale."""

    value: Any
    language: str

    def __format__(self, kind: str) -> str:
        if kind not in _KINDS:
            raise ValueError(f"unknown kind of placeholder: {kind!r}")
        return _KINDS[kind](self.value, self.language)


def clean(text: object) -> str:
    """Makes text from outside safe to print: without control characters, on one line, not too long."""
    plain = _CONTROL.sub("", str(text).replace("\n", " ").replace("\t", " "))
    return plain if len(plain) <= 120 else plain[:119] + "…"


# --- numbers, durations and units, as each language writes them -------------------------------------------------


def decimal(value: float, language: str, decimals: int = 0, unit: str = "") -> str:
    """A number with its unit, if it has one."""
    locale = TABLE[language]
    number = "–"
    if math.isfinite(value):
        whole, _, fraction = f"{value:z,.{decimals}f}".partition(".")
        if len(whole.lstrip("-").replace(",", "")) < 3 + locale.least_digits:
            whole = whole.replace(",", "")
        number = whole.replace(",", locale.group) + (locale.decimal + fraction if fraction else "")
    return number + ("" if not unit or unit in locale.close else locale.space) + unit


def significant(value: float, digits: int, language: str, unit: str = "") -> str:
    """At most `digits` significant digits, with no more decimals than they need."""
    if value == 0 or not math.isfinite(value):
        return decimal(value, language, 0, unit)
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])  # of what is shown: 9.996 is 10.0, not 10.00
    return decimal(value, language, min(max(0, digits - 1 - exponent), 6), unit)


def factor(value: float, language: str) -> str:
    return significant(value, 3 if value >= 100 else 2, language)


def figure(value: float, language: str) -> str:
    """Up to four digits, without trailing zeros: 12, 58.3."""
    short = float(f"{value:.4g}")
    return decimal(short, language, len(f"{short:g}".partition(".")[2]))


def ratio(value: float, language: str) -> str:
    """Three decimals around 1, so that a difference of a tenth of a per cent shows; three digits elsewhere."""
    return decimal(value, language, 3) if 0.1 <= abs(value) < 10 else significant(value, 3, language)


def percent(value: float, language: str) -> str:
    share = 100 * value
    return decimal(share, language, 0 if abs(share) >= 99.95 else 1, "%")


def duration(seconds: float, language: str) -> str:
    """Three significant digits below a minute, four from 100 ms to 1 s; two units above."""
    if not math.isfinite(seconds):
        return "–"
    if 0.09995 <= abs(seconds) < 0.9995:
        return decimal(seconds * 1e3, language, 1, "ms")
    if abs(seconds) < 0.9995:
        return significant(seconds * 1e3, 3, language, "ms")
    locale = TABLE[language]
    for big, small, names in (
        (DAY_S, HOUR_S, locale.clock[0:2]),
        (HOUR_S, MINUTE_S, locale.clock[1:3]),
        (MINUTE_S, 1.0, locale.clock[2:4]),
    ):
        if seconds >= max(big - small / 2, 59.95):
            whole, rest = divmod(round(seconds / small), round(big / small))
            if whole >= 100:
                return decimal(seconds / big, language, 0, names[0])
            text = decimal(whole, language, 0, names[0])
            return text + (locale.joint + decimal(rest, language, 0, names[1]) if rest else "")
    return significant(seconds, 3, language, "s")


def duration_range(interval: Interval, language: str) -> str:
    """`5.1–5.2 s`; one figure if both ends look the same, and only the upper end if the lower one is zero."""
    low, high = duration(interval.low, language), duration(interval.high, language)
    if low == high:
        return low
    if interval.low <= 0:
        return "≤ " + high
    locale = TABLE[language]
    unit_low, unit_high = low.rpartition(locale.space)[2], high.rpartition(locale.space)[2]
    if unit_low == unit_high and interval.high < 59.95:
        return low.rpartition(locale.space)[0] + locale.dash + high
    return low + locale.wide_dash + high


def tflops(flops: float, language: str) -> str:
    return significant(flops / TERA, 3, language, "TFLOPS")


def token_rate(tokens_per_s: float, language: str) -> str:
    return decimal(float(f"{tokens_per_s:.3g}"), language, 0, "tokens/s")


def size(count: float, language: str) -> str:
    byte = TABLE[language].byte
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= scale:
            return significant(count / scale, 3, language, prefix + byte)
    return decimal(count, language, 0, byte)


def big(value: float, language: str) -> str:
    """Parameter counts: 123.6 M."""
    for scale, unit in TABLE[language].scales:
        if value >= scale:
            return significant(value / scale, 4, language, unit)
    return decimal(value, language)


def _ints(values: Sequence[int], language: str) -> str:
    """Up to five numbers; if there are more, the first three, an ellipsis and the last."""
    few = values if len(values) <= 5 else [*values[:3], values[-1]]  # there may be millions
    shown = [decimal(value, language) for value in few]
    if len(values) > 5:
        shown.insert(3, "…")
    return TABLE[language].comma.join(shown)


_KINDS: dict[str, Callable[[Any, str], str]] = {
    "word": lambda value, language: clean(say(value, language) if isinstance(value, Message) else value),
    "list": lambda value, _: _CONTROL.sub("", str(value)),  # our own words, of any length
    "quote": lambda value, _: _CONTROL.sub("", str(value)),  # a line of the log, already cut by the caller
    "clock": lambda value, _: strftime("%Y-%m-%d %H:%M", localtime(value)),
    "said": lambda value, language: TABLE[language].semicolon.join(say(message, language) for message in value),
    "sum": lambda value, language: " + ".join(say(message, language) for message in value),
    "ints": _ints,
    "n": decimal,
    "x": factor,
    "figure": figure,
    "ratio": ratio,
    "pct": percent,
    "time": duration,
    "range": duration_range,
    "high": lambda value, language: duration(value.high, language),
    "tflops": tflops,
    "rate": token_rate,
    "size": size,
    "big": big,
}
KIND_NAMES = frozenset(_KINDS)
