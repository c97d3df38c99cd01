"""Logs inside JSON: notebook files and Kaggle's log, whole or cut short."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from stepwatch.patterns import Pattern
from stepwatch.sources.contents import CELL_ENDS

_BETWEEN_CELLS = Pattern(r"</t[hd]>\s*<t[hd][^>]*>")
_TAG = Pattern(r"<[^<>]*>")
_JSON_STRING = Pattern(rb'"((?:[^"\\]|\\.)*+)(?:"|\Z|\\\Z)', re.DOTALL)


def unpack(data: bytes) -> bytes:
    """The text inside a document."""
    is_kaggle = data[:4000].lstrip().startswith(b"[")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError, MemoryError):
        return _kaggle_entries(data) if is_kaggle else _json_strings(data)
    text = "".join(_kaggle_parts(document) if is_kaggle else _notebook_parts(document))
    return text.encode("utf-8", "replace") or data


def _json_strings(data: bytes) -> bytes:
    """The lines among the strings of a document that is cut short or nested too deeply to be read as a whole."""
    lines = []
    for string in _JSON_STRING.finditer(data):
        try:
            text = json.loads(b'"%s"' % string[1])
        except ValueError:
            text = string[1].decode("utf-8", "replace")
        lines.append(text if text.endswith("\n") else text + "\n")
    return "".join(lines).encode("utf-8", "replace") or data


def _notebook_parts(document: object) -> Iterator[str]:
    cells = document.get("cells") if isinstance(document, dict) else None
    for cell in cells if isinstance(cells, list) else []:
        outputs = cell.get("outputs") if isinstance(cell, dict) else None
        for output in outputs if isinstance(outputs, list) else []:
            if isinstance(output, dict):
                data = output.get("data")
                shown = data if isinstance(data, dict) else {}
                html = "".join(part for part in _listed(shown.get("text/html")) if isinstance(part, str))
                if "<progress" in html:  # of the Hugging Face Trainer, whose bar and losses are nowhere else
                    # As a browser copies it: tabs between the cells of a table, a line for each row.
                    rows = (_TAG.sub("", row).strip(" ") for row in _BETWEEN_CELLS.sub("\t", html).split("\n"))
                    yield "".join(row + "\n" for row in rows if row)
                for text in (output.get("text"), shown.get("text/plain")):
                    yield from (part for part in _listed(text) if isinstance(part, str))
                yield "\n".join(part for part in _listed(output.get("traceback")) if isinstance(part, str))
            yield "\n"
        if outputs:
            yield CELL_ENDS + "\n"


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _kaggle_parts(document: object) -> Iterator[str]:
    """The text of the entries; each line that begins in one carries its clock, as from a launcher."""
    begins_line = True
    for entry in document if isinstance(document, list) else []:
        text = entry.get("data") if isinstance(entry, dict) else None
        if isinstance(text, str) and text:
            yield _clock(entry.get("time")) + text if begins_line else text
            begins_line = text.endswith(("\n", "\r"))


def _clock(seconds: object) -> str:
    # Sessions end after half a day; a whole one is 86400 s.
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < 86400:
        return ""
    minutes, rest = divmod(round(seconds, 3), 60)
    return f"{int(minutes) // 60:02d}:{int(minutes) % 60:02d}:{rest:06.3f} "


def _kaggle_entries(data: bytes) -> bytes:
    """Kaggle writes one entry per line: a file cut short still gives its whole entries."""
    entries: list[object] = []
    for line in data.split(b"\n"):
        line = line.strip().lstrip(b"[,").rstrip(b"],")
        if not line.startswith(b"{"):
            continue
        try:
            entries.append(json.loads(line))
        except (ValueError, RecursionError):
            continue
    return "".join(_kaggle_parts(entries)).encode("utf-8", "replace") or _json_strings(data)
