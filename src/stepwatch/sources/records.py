"""What belongs to a file of the recorder: older pieces of it, and the files of other ranks beside it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from stepwatch.patterns import Pattern
from stepwatch.sources import RECORD, Source, printable
from stepwatch.sources.packed import SUFFIXES

_RANK = Pattern(r"(?P<stem>.+)\.rank\d{1,6}(?P<suffix>\.[^.]+)?")
_CONTINUED = b'"continued":true}'
_MOST_PIECES = 10_000
_MOST_RANKS = 4096

Texts = Callable[[str], bytes]
"""The text of a file, by its path."""


def completed(source: Source, path: str, text_of: Texts) -> Source:
    """A record from its start, where older pieces of it are there, with the files of the other ranks."""
    return with_ranks(source._replace(text=_whole(source.text, path, text_of)), path, text_of)


def with_ranks(source: Source, path: str, text_of: Texts) -> Source:
    beside = []
    for file in rank_files(path):
        text = text_of(file)
        if text.startswith(RECORD):
            beside.append(Source(printable(os.path.basename(file)), _whole(text, file, text_of)))
    return source._replace(beside=tuple(beside))


def _whole(text: bytes, path: str, text_of: Texts) -> bytes:
    """With the pieces before it: run.jsonl goes on from run.jsonl.1, and that from run.jsonl.2."""
    pieces = [text]
    while is_continued(pieces[0]) and len(pieces) < _MOST_PIECES:
        names = (f"{path}.{len(pieces)}{packed}" for packed in ("", *SUFFIXES))
        older = next((name for name in names if os.path.isfile(name)), None)
        before = text_of(older) if older is not None else b""
        if not before.startswith(RECORD):
            break
        pieces.insert(0, before if before.endswith(b"\n") else before + b"\n")
    return b"".join(pieces)


def is_continued(text: bytes) -> bool:
    """Whether a record goes on from an older piece."""
    return text[: text.find(b"\n")].rstrip().endswith(_CONTINUED)


def rank_files(path: str) -> list[str]:
    """run.rank1.jsonl, run.rank2.jsonl, … beside run.jsonl, by rank."""
    place, name = os.path.split(path)
    stem, suffix = os.path.splitext(name)
    pattern = re.compile(rf"{re.escape(stem)}\.rank(\d{{1,6}}){re.escape(suffix)}")
    found = [(int(match[1]), other) for other in os.listdir(place or ".") if (match := pattern.fullmatch(other))]
    return [os.path.join(place, other) for _, other in sorted(found)[:_MOST_RANKS]]


def leader_of(name: str) -> str | None:
    """run.jsonl for run.rank3.jsonl; None for any other name."""
    found = _RANK.fullmatch(name)
    return None if found is None else found["stem"] + (found["suffix"] or "")
