"""Questions as they come over the wire: a JSON object, or a plain body with query parameters; both mean the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from stepwatch.errors import UsageError
from stepwatch.i18n import LANGUAGES
from stepwatch.messages import Message
from stepwatch.settings import Origin, Settings, parse_assignment
from stepwatch.sources import expanded
from stepwatch.web.wire import JSON, Wire

FORMATS = ("json", "md", "html", "page")
_WORDS = ("gpu", "lang", "format")
# What each question takes in its JSON body, and of which kind; all but the settings may stand in the query too.
TAKES: Mapping[str, Mapping[str, type]] = {
    "explain": {
        **dict.fromkeys(("log", "config", "name", "log_format", *_WORDS), str),
        "settings": dict, "run": int, "iterations": bool,
    },
    "estimate": {
        **dict.fromkeys(("config", "link", "claim", "model", *_WORDS), str),
        "settings": dict, "gpus": int, "depth": int, "why": bool,
    },
    "advise": {
        **dict.fromkeys(("log", "config", "name", "log_format", "link", "model", *_WORDS), str),
        "settings": dict, "run": int, "gpus": int, "depth": int,
    },
}  # fmt: skip
_FLAGS = {"true": True, "1": True, "false": False, "0": False}
_LARGEST_COUNT = 1_000_000


class Question(NamedTuple):
    values: Mapping[str, Any]
    body: bytes
    language: str
    limit: int

    @property
    def form(self) -> str:
        return one_of("format", self.values.get("format", "json"), FORMATS)

    def word(self, name: str) -> str | None:
        return self.values.get(name) or None

    def flag(self, name: str, *, default: bool) -> bool:
        value = str(self.values.get(name, default)).lower()
        if value not in _FLAGS:
            raise unfit(name, _KIND_NAMES[bool])
        return _FLAGS[value]

    def number(self, name: str, most: int = _LARGEST_COUNT) -> int | None:
        text = str(self.values.get(name, ""))
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most):
            raise unfit(name, Message("it takes a number from 1 to {most:n}", {"most": most}))
        return int(text)

    def settings(self) -> Settings:
        return Settings.of(Origin.USER, dict(parse_assignment(text) for text in self.values.get("settings", ())))


def understood(wire: Wire) -> Question:
    """Raises UsageError for what makes no sense, TooLarge for what expands too far."""
    values = _from_query(wire)
    body = wire.body
    if wire.media == JSON:
        values |= _from_json(wire)
        body = b""
    language = one_of("lang", values.get("lang") or wire.language, LANGUAGES)
    return Question(values, body, language, wire.limit)


def _from_query(wire: Wire) -> dict[str, Any]:
    takes = {name for name, kind in TAKES[wire.kind].items() if kind is not dict}
    values: dict[str, Any] = {}
    for name, value in wire.query:
        if name == "set":
            values.setdefault("settings", []).append(value)
        elif name in takes:
            values[name] = value
        else:
            raise _unknown(name, [*sorted(takes), "set"])
    return values


def _from_json(wire: Wire) -> dict[str, Any]:
    given = _object(expanded(wire.body, limit=wire.limit))
    takes = TAKES[wire.kind]
    for name, value in given.items():
        if name not in takes:
            raise _unknown(name, sorted(takes))
        if value is not None and not _is(value, takes[name]):
            raise unfit(name, _KIND_NAMES[takes[name]])
    if wire.kind == "explain" and given.get("log") is None:
        raise UsageError(Message("the question holds no log"), Message("give the text of the log as “log”"))
    if given.get("settings") is not None:
        given["settings"] = list(_assignments(given["settings"]))
    return {name: value for name, value in given.items() if value is not None}


def _object(body: bytes) -> dict[str, Any]:
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise UsageError(
            Message("the body is not a JSON object"), Message("send an object, or the plain log as text/plain")
        )
    return given


def _assignments(settings: Mapping[str, Any]) -> list[str]:
    for name, value in settings.items():
        if not isinstance(value, str | int | float | bool):
            raise unfit(name, Message("it takes a plain value"))
    return [f"{name}={value}" for name, value in settings.items()]


def _is(value: object, kind: type) -> bool:
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


_KIND_NAMES: Mapping[type, Message] = {
    str: Message("it takes a text"),
    int: Message("it takes a whole number"),
    bool: Message("it takes true or false"),
    dict: Message("it takes an object"),
}


def _unknown(name: str, known: list[str]) -> UsageError:
    return UsageError(
        Message("there is no parameter “{name:word}” here", {"name": name}),
        Message("parameters: {names:word}", {"names": ", ".join(known)}),
    )


def unfit(name: str, kind: Message) -> UsageError:
    return UsageError(Message("“{name:word}” cannot have this value", {"name": name}), kind)


def one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise UsageError(
            Message("“{value:word}” is not a value for {name:word}", {"value": value, "name": name}),
            Message("values: {names:word}", {"names": ", ".join(known)}),
        )
    return value
