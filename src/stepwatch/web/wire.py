"""The messages between server and workers: a question as it arrived, its answer, and the frames of both.

A frame is the length of a JSON head, the length of a body, the head, the body.
"""

from __future__ import annotations

import json
import struct
from typing import Any, NamedTuple

from stepwatch.i18n import LANGUAGES, say
from stepwatch.messages import Message

JSON = "application/json"
LENGTHS = struct.Struct(">II")
UNKNOWN_VIEW = 410  # the worker that kept the run is gone


class Asked(NamedTuple):
    """A question as it arrived, not yet interpreted."""

    kind: str
    media: str
    query: list[list[str]]
    body: bytes
    limit: int
    language: str

    def spoken(self) -> str:
        """The language for complaints about a question that cannot be understood."""
        return spoken(dict(self.query).get("lang"), self.language)


class LogUpdate(NamedTuple):
    """An update of a watched log: which log it is, and what is new since the last one. Sent as head of the body."""

    view: str
    name: str
    age_s: float = 0.0
    """How long ago the log was last written to."""
    first: bool = False
    """The first update of this view: the worker cannot know it yet."""
    anew: bool = False
    """The log was truncated or replaced."""
    more: bool = False
    """More text follows: nothing is answered yet."""
    report: bool = False
    """The full report is wanted too."""
    samples: str | None = None
    """Where the samples of the machine are, if the log has any."""
    ended: bool = False
    """Nobody is watching any more."""

    def before(self, text: bytes) -> bytes:
        return json.dumps(self._asdict()).encode() + b"\n" + text

    @classmethod
    def of(cls, body: bytes) -> tuple[LogUpdate, bytes]:
        head, _, text = body.partition(b"\n")
        return cls(**json.loads(head)), text


class Reply(NamedTuple):
    status: int
    media: str
    body: bytes


def spoken(asked: str | None, otherwise: str) -> str:
    return asked if asked in LANGUAGES else otherwise


def packed(head: dict[str, Any], body: bytes) -> bytes:
    """The beginning of a frame; its body follows."""
    text = json.dumps(head).encode()
    return LENGTHS.pack(len(text), len(body)) + text


def complaint(status: int, what: Message, remedy: Message | None, language: str, *, about: str | None = None) -> Reply:
    """`about`: the parameter or the input that is wrong."""
    hint = say(remedy, language) if remedy is not None else None
    said = {"error": say(what, language), "hint": hint, "field": about}
    return Reply(status, JSON, json.dumps(said, ensure_ascii=False).encode("utf-8", "replace"))


def too_large(limit: int, language: str) -> Reply:
    what = Message("the log is larger than {limit:size}", {"limit": limit})
    return complaint(413, what, Message("cut out the part you want explained"), language, about="log")
