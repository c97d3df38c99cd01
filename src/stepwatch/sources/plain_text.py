"""Any bytes that hold a log as plain lines of UTF-8.

Everything downstream sees the same thing whatever was handed in: lines ended by `\\n`, without colours,
backspaces, carriage returns or NULs, and none behind a progress bar.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator

from stepwatch.patterns import Pattern

# Colours and cursor moves; titles and links, which end with their line at the latest; character sets; the rest.
_LINE_ABOVE = Pattern(rb"\x1b\[\d{0,2}A(?=[^\r\n\x1b])")  # what is printed behind a bar that was drawn below
_ANSI = Pattern(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)?|[ -/][0-9A-Za-z]|[0-?@-_c])")
_ENCODINGS = (  # UTF-32 first: its mark begins like that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Nobody but the recorder writes these keys and no spaces.
_LINE_OF_RECORD = Pattern(rb'\{"(?:stepwatch|step|eval|checkpoint|device|compile|lost|end)":\d|\{"settings":\{')
# tqdm's bar where something stands behind it: it ends no line, so that the program's next one may. No part of the
# pattern reaches over the mark that a bar begins with, so that any text costs its length.
_BAR = Pattern(
    rb"\d%\|[^|\n]{0,1200}\| {0,4}[\d.]{1,12}[kMGT]?/[\d.]{1,12}[kMGT]? "
    rb"\[[\d:]{4,12}<[^,\[\]\n]{1,24},[^\[\]\n]{0,400}\](?=[\w{\[(<*=#>+-])"
)
_CONTROLS = bytes(c for c in range(32) if c not in (9, 10))
LONGEST_HALF_LINE = 1 << 16
_TELLTALES = (b"\r", b"\x1b", b"\x08", b"\x00", b"\x07", b"\x0c", b"\x0b")


def normalise(data: bytes) -> bytes:
    """Any bytes that hold a log, as plain lines; files that are no text as they are. Never raises."""
    if is_binary(data):
        return data
    data = to_utf8(data)
    return to_lines(unpack(data) if is_document(data) else data)


def is_event_file(data: bytes) -> bool:
    """Whether it begins with the first record of a TensorBoard event file: a time, and the version."""
    return data[12:13] == b"\t" and b"brain.Event:" in data[20:64]


def is_wandb_file(data: bytes) -> bool:
    return data.startswith(b":W&B")


def is_sqlite(data: bytes) -> bool:
    return data.startswith(b"SQLite format 3\0")


def is_binary(data: bytes) -> bool:
    """Whether it is a file of records, without lines."""
    return is_event_file(data) or is_wandb_file(data) or is_sqlite(data)


def to_utf8(data: bytes) -> bytes:
    encoding = encoding_of(data)
    return data if encoding is None else data.decode(encoding, "replace").encode("utf-8", "replace")


def encoding_of(data: bytes) -> str | None:
    """What a text is written in, by how it begins; None for UTF-8 and what is like it."""
    for mark, encoding in _ENCODINGS:
        if data.startswith(mark):
            return encoding
    # UTF-16 that lost its mark, as when a PowerShell log was cut in two: every other byte is NUL.
    sample = data[:2000]
    if len(sample) > 20 and sample[1::2].count(0) > 0.8 * len(sample) / 2 > sample[0::2].count(0):
        return "utf-16-le"
    if len(sample) > 20 and sample[0::2].count(0) > 0.8 * len(sample) / 2 > sample[1::2].count(0):
        return "utf-16-be"
    return None


def to_lines(data: bytes) -> bytes:
    if codecs.BOM_UTF8 in data:  # also in the middle, where files were put together
        data = data.replace(codecs.BOM_UTF8, b"")
    if any(byte in data for byte in _TELLTALES):  # several memchr are faster than one regex over 100 MB
        if b"\x1b" in data:
            data = _ANSI.sub(b"", _LINE_ABOVE.sub(b"\n", data))
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\x08" in data:
            data = b"\n".join(_overstrike(line) if b"\x08" in line else line for line in data.split(b"\n"))
        data = data.translate(None, _CONTROLS)
    if b"<" in data and b"%|" in data:  # what was printed behind a progress bar on a line of its own
        data = _BAR.sub(rb"\g<0>\n", data)
    return data


def end_of_lines(data: bytes) -> int:
    """The place behind the last end of a line; a `\\r` at the very end may be half of `\\r\\n`."""
    return max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1


class Lines:
    """Bytes in any pieces to whole plain lines; of one that is too long both ends are kept."""

    def __init__(self, longest: int = LONGEST_HALF_LINE) -> None:
        self._longest = longest
        self._begun = False
        self._held = b""
        self._decoder: codecs.IncrementalDecoder | None = None

    def feed(self, data: bytes) -> bytes:
        if not self._begun:
            data = self._held + data
            if len(data) < 64 and b"\n" not in data:  # too little to tell the encoding by
                self._held = data
                return b""
            encoding = encoding_of(data)
            self._decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding is not None else None
            self._begun, self._held = True, b""
        if self._decoder is not None:
            data = self._decoder.decode(data).encode("utf-8", "replace")
        cut = end_of_lines(data)
        whole, rest = (self._held + data[:cut], data[cut:]) if cut else (b"", self._held + data)
        half = self._longest // 2
        # A line without an end is no log's own; both its ends are enough to see whether an iteration is in it.
        self._held = rest if len(rest) <= self._longest else rest[:half] + rest[-half:]
        return to_lines(whole)

    def rest(self) -> bytes:
        """What was held back; the next bytes are those of a new text."""
        rest = to_lines(self._held if self._begun else to_utf8(self._held))
        self._begun, self._held, self._decoder = False, b"", None
        return rest

    def end(self) -> bytes:
        """The same as a whole line."""
        rest = self.rest()
        return rest if not rest or rest.endswith(b"\n") else rest + b"\n"


def _overstrike(line: bytes) -> bytes:
    """What a terminal shows after backspaces: the byte before each is taken back."""
    shown = bytearray()
    for byte in line:
        if byte != 8:
            shown.append(byte)
        elif shown:
            shown.pop()
    return bytes(shown)


# --- logs inside JSON: notebook files and Kaggle's log, whole or cut short --------------------------------------


CELL_ENDS = "--- end of cell ---"
"""A line behind the output of each cell of a notebook: what follows is of another program."""

_BETWEEN_CELLS = Pattern(r"</t[hd]>\s*<t[hd][^>]*>")
_TAG = Pattern(r"<[^<>]*>")
_JSON_STRING = Pattern(rb'"((?:[^"\\]|\\.)*+)(?:"|\Z|\\\Z)', re.DOTALL)


def is_document(data: bytes) -> bool:
    """Whether it is a notebook file or Kaggle's JSON log. The recorder's file is JSON too, line by line."""
    head = data[:4000].lstrip()
    if head.startswith(b"["):
        return b'"stream_name"' in head
    return head.startswith(b"{") and not _LINE_OF_RECORD.match(data) and b'"cells"' in data


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
