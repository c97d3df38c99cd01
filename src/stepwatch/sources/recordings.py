"""What belongs to a file of the recorder: older pieces of it, and the files of other ranks beside it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence

from stepwatch.errors import StepwatchError
from stepwatch.patterns import Pattern
from stepwatch.sources.contents import head_of
from stepwatch.sources.packed import SUFFIXES
from stepwatch.sources.rotation import name_of

RECORD = b'{"stepwatch":'  # how a file of the recorder begins
_RANK = Pattern(r"(?P<stem>.+)\.rank\d{1,6}(?P<suffix>\.[^.]+)?")
_CONTINUED = b'"continued":true}'
_MOST_PIECES = 10_000
_HEAD_BYTES = 1 << 10

Texts = Callable[[str], bytes]
"""The text of a file, by its path."""


def whole_record(text: bytes, path: str, text_of: Texts) -> bytes:
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


def ranks_beside(path: str, text_of: Texts) -> Iterator[tuple[str, bytes]]:
    """run.rank1.jsonl, run.rank2.jsonl, … beside run.jsonl, by rank: path and text of each that is a record."""
    place, name = os.path.split(path)
    stem, suffix = os.path.splitext(name)
    pattern = re.compile(rf"{re.escape(stem)}\.rank(\d{{1,6}}){re.escape(suffix)}")
    found = [(int(match[1]), other) for other in os.listdir(place or ".") if (match := pattern.fullmatch(other))]
    for _, other in sorted(found)[:4096]:  # ranks
        file = os.path.join(place, other)
        if not os.path.isfile(file):  # a pipe that nobody writes to would be waited for
            continue
        text = text_of(file)
        if text.startswith(RECORD):
            yield file, whole_record(text, file, text_of)


def without_ranks(place: str, names: Sequence[str]) -> Iterator[str]:
    """The names of files, without the records of other ranks, which are read with the one of rank 0."""
    there = set(names)
    for name in names:
        found = _RANK.fullmatch(name_of(name).base) if ".rank" in name else None
        leader = found["stem"] + (found["suffix"] or "") if found is not None else ""
        try:
            file = os.path.join(place, leader) if leader in there else ""
            beside = os.path.isfile(file) and head_of(file, _HEAD_BYTES).startswith(RECORD)
        except (OSError, StepwatchError):  # told where it is itself looked at
            beside = False
        if not beside:
            yield name
