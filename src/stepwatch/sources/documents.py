"""Logs inside JSON: notebook files and Kaggle's log, whole or cut short. They are read piece by piece."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import IO, TypeVar

from stepwatch.patterns import Pattern
from stepwatch.sources.contents import CELL_ENDS, READ_BYTES

_BETWEEN_CELLS = Pattern(r"</t[hd]>\s*<t[hd][^>]*>")
_TAG = Pattern(r"<[^<>]*>")
_END_OF_ROW = "</tr>\n"
_JSON_STRING = Pattern(rb'"((?:[^"\\]|\\.)*+)(?:"|\Z|\\\Z)', re.DOTALL)
_SPACE = Pattern(r"[ \t\n\r]*")
PIECE_LETTERS = 1 << 22
"""The letters of a longer list or string that are decoded together."""
_MOST_LETTERS = 1 << 28  # of a value that is needed as a whole, such as a picture
_LONGEST_HALF = 1 << 24  # bytes of a string or an entry whose end has not come yet
_Text = TypeVar("_Text")


def unpack(document: IO[bytes], kept: Callable[[Iterable[bytes]], _Text]) -> _Text:
    """The text inside a document, its parts collected by `kept`, in memory or in a file; empty if there is none."""
    is_kaggle = document.read(4000).lstrip().startswith(b"[")
    ways: list[Callable[[IO[bytes]], Iterator[str]]] = [_kaggle, _kaggle_lines] if is_kaggle else [_notebook]
    for way in ways:
        document.seek(0)
        try:
            return kept(part.encode("utf-8", "replace") for part in way(document))
        except (ValueError, RecursionError, MemoryError):  # cut short, or nested too deeply
            continue
    document.seek(0)
    return kept(part.encode("utf-8", "replace") for part in _json_strings(document))


def _parts(document: IO[bytes]) -> Iterator[tuple[bytes, bool]]:
    """The document in parts, each with whether it is the last; the last one is empty."""
    yield from ((part, False) for part in iter(lambda: document.read(READ_BYTES), b""))
    yield b"", True


def _json_strings(document: IO[bytes]) -> Iterator[str]:
    """The lines among the strings of a document that is cut short or nested too deeply to be read as a whole."""
    held = b""
    for part, is_last in _parts(document):
        held += part
        end = len(held)
        for string in _JSON_STRING.finditer(held):
            if string.end() == end and not is_last and end - string.start() < _LONGEST_HALF:
                end = string.start()
                break
            try:
                text = json.loads(b'"%s"' % string[1])
            except ValueError:
                text = string[1].decode("utf-8", "replace")
            yield text if text.endswith("\n") else text + "\n"
        held = held[end:]


class _Json:
    """A document of any length: the caller goes from value to value, and reads or enters each."""

    def __init__(self, document: IO[bytes]) -> None:
        self._document = document
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogatepass")
        self._decode = json.JSONDecoder().raw_decode
        self._text, self._at = "", 0

    def next(self) -> str:
        """The next letter that is not a space; empty at the end."""
        self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
        while self._at == len(self._text) and self._has_more():
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
        return self._text[self._at : self._at + 1]

    def value(self) -> object:
        self.next()
        while (found := self._whole()) is None:
            if len(self._text) > _MOST_LETTERS or not self._has_more():
                raise ValueError
        return found[0]

    def pieces(self) -> Iterator[object]:
        """A value; a long list or string in pieces, each of which is a list or a string itself."""
        opening, has_more = self.next(), True
        while (found := self._whole()) is None:
            if not has_more:
                raise ValueError
            if len(self._text) - self._at >= PIECE_LETTERS and opening in '["':
                yield from self._piece(opening)
            has_more = self._has_more()
        yield found[0]

    def items(self) -> Iterator[None]:
        """Goes to each item of a list."""
        self._take("[")
        while self.next() != "]":
            yield
            if self.next() != "]":
                self._take(",")
                if self.next() == "]":
                    raise ValueError
        self._take("]")

    def keys(self) -> Iterator[str]:
        """Goes to each value of an object."""
        self._take("{")
        while self.next() != "}":
            key = self.value()
            self._take(":")
            self.next()
            yield key if isinstance(key, str) else ""
            if self.next() != "}":
                self._take(",")
                if self.next() != '"':
                    raise ValueError
        self._take("}")

    def _take(self, letter: str) -> None:
        if self.next() != letter:
            raise ValueError
        self._at += 1

    def _has_more(self) -> bool:
        """Doubles the remaining text, so that a long value is not started too often. False at the end."""
        part = self._document.read(max(READ_BYTES, len(self._text) - self._at))
        self._text = self._text[self._at :] + self._decoder.decode(part, final=not part)
        self._at = 0
        return bool(part)

    def _whole(self) -> tuple[object] | None:
        """The value if its end has been read, else None. Raises ValueError if it is not valid."""
        try:
            value, end = self._decode(self._text, self._at)
        except json.JSONDecodeError as error:
            # Closer to the end, within the length of the longest escape, the value may just be incomplete.
            if error.pos < len(self._text) - 12 and not error.msg.startswith("Unterminated string"):
                raise
            return None
        if isinstance(value, (int, float)) and self._text[end : end + 1] in ("", *".eE") and self._has_more():
            return self._whole()  # there may be more digits
        self._at = end
        return (value,)

    def _piece(self, opening: str) -> Iterator[object]:
        """The part of a list or string that has been read; the rest then begins after it."""
        text = self._text[self._at :]
        if opening == '"':  # after the end of a line: no escape is split there, whatever comes before
            cuts = [max(text.rfind(end) for end in (r"\n", r"\r")) + 2]
            closing, behind = '"', 0
        else:
            ends = ('",\n', '",') if text[1:].lstrip()[:1] == '"' else ("}\n,", "},")
            cuts = [text.rfind(end) + end.index(",") for end in ends if end in text]
            closing, behind = "]", 1
        for cut in cuts:
            try:
                piece = json.loads(text[:cut] + closing)
            except ValueError:  # not the end of an item
                continue
            self._text, self._at = opening + text[cut + behind :], 0
            yield piece
            return


# --- notebooks ------------------------------------------------------------------------------------------------------


def _notebook(document: IO[bytes]) -> Iterator[str]:
    notebook = _Json(document)
    for key in notebook.keys():  # noqa: SIM118
        if key == "cells" and notebook.next() == "[":
            for _ in notebook.items():
                yield from _cell(notebook)
        else:
            notebook.value()
    if notebook.next():
        raise ValueError


def _cell(notebook: _Json) -> Iterator[str]:
    has_outputs = False
    for key in notebook.keys() if notebook.next() == "{" else _skipped(notebook):
        if key == "outputs" and notebook.next() == "[":
            for _ in notebook.items():
                has_outputs = True
                yield from _output(notebook)
                yield "\n"
        else:
            has_outputs |= bool(notebook.value()) and key == "outputs"
    if has_outputs:
        yield CELL_ENDS + "\n"


def _output(notebook: _Json) -> Iterator[str]:
    """Relies on the order of keys in all notebooks: if an output has several forms, text comes last."""
    plain: list[str] = []
    for key in notebook.keys() if notebook.next() == "{" else _skipped(notebook):
        if key == "data" and notebook.next() == "{":
            for form in notebook.keys():  # noqa: SIM118
                if form == "text/html":
                    yield from _table(notebook)
                elif form == "text/plain":
                    plain[:0] = _strings(notebook.value())
                else:
                    notebook.value()
        elif key == "text":
            for piece in notebook.pieces():
                yield "".join(_strings(piece))
        elif key == "traceback":
            plain.append("\n".join(_strings(notebook.value())))
        else:
            notebook.value()
    yield "".join(plain)


def _skipped(notebook: _Json) -> Iterator[str]:
    notebook.value()
    yield from ()


def _strings(value: object) -> list[str]:
    return [part for part in (value if isinstance(value, list) else [value]) if isinstance(part, str)]


def _table(notebook: _Json) -> Iterator[str]:
    """The table of the Hugging Face Trainer: its bar and losses are nowhere else.

    Written as a browser copies it: tabs between the cells, a line for each row.
    """
    html, is_trainers = "", False
    for piece in chain(notebook.pieces(), [None]):
        html += "".join(_strings(piece))
        is_trainers = is_trainers or "<progress" in html
        end = len(html)
        if piece is not None and end < _LONGEST_HALF:
            end = html.rfind(_END_OF_ROW) + len(_END_OF_ROW) if _END_OF_ROW in html else 0
        if is_trainers:
            rows = (_TAG.sub("", row).strip(" ") for row in _BETWEEN_CELLS.sub("\t", html[:end]).split("\n"))
            yield "".join(row + "\n" for row in rows if row)
        html = html[end:] if is_trainers or len(html) > PIECE_LETTERS else html


# --- Kaggle ---------------------------------------------------------------------------------------------------------


def _kaggle(document: IO[bytes]) -> Iterator[str]:
    log = _Json(document)
    yield from _texts(entry for piece in log.pieces() if isinstance(piece, list) for entry in piece)
    if log.next():
        raise ValueError


def _kaggle_lines(document: IO[bytes]) -> Iterator[str]:
    """Kaggle writes one entry per line: a truncated file still has whole entries. Raises ValueError if it has none."""
    found = ""
    for found in _texts(_entries(document)):
        yield found
    if not found:
        raise ValueError


def _entries(document: IO[bytes]) -> Iterator[object]:
    held = b""
    for part, is_last in _parts(document):
        *lines, held = (held + part).split(b"\n")
        if is_last or len(held) > _LONGEST_HALF:
            lines, held = [*lines, held], b""
        for line in lines:
            line = line.strip().lstrip(b"[,").rstrip(b"],")
            if line.startswith(b"{"):
                with suppress(ValueError, RecursionError):
                    yield json.loads(line)


def _texts(entries: Iterable[object]) -> Iterator[str]:
    """The text of the entries; an entry at the start of a line gets its time in front, as from a launcher."""
    begins_line = True
    for entry in entries:
        text = entry.get("data") if isinstance(entry, dict) else None
        if isinstance(entry, dict) and isinstance(text, str) and text:
            yield _clock(entry.get("time")) + text if begins_line else text
            begins_line = text.endswith(("\n", "\r"))


def _clock(seconds: object) -> str:
    # Sessions end after half a day; a whole one is 86400 s.
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < 86400:
        return ""
    minutes, rest = divmod(round(seconds, 3), 60)
    return f"{int(minutes) // 60:02d}:{int(minutes) % 60:02d}:{rest:06.3f} "
