"""Which format a text is in, by its content alone."""

from __future__ import annotations

from operator import itemgetter

from stepwatch.patterns import Pattern
from stepwatch.readers.formats import FORMATS, READERS
from stepwatch.sources import Source

SNIFFED_BYTES = 1 << 18
_VARYING = b"0123456789" + bytes(range(128, 256))  # digits, and the drawing of a bar
SURELY_AN_ITERATION = 5  # of the weights below: its word and number, and two more
_MARKS = (
    (Pattern(rb"(?i)\b(?:iter|iteration|step)s?\b\W{0,8}\d"), 3),
    (Pattern(rb"(?i)\b(?:loss|mfu|lr|tok(?:ens)?/s)\b"), 1),
    (Pattern(rb"(?i)\d\s?(?:ms|s|sec|s/it|it/s)\b"), 1),
    (Pattern(rb"(?i)\b(?:iter|time|dt)"), 1),
)


def detect(source: Source) -> str | None:
    """The name of the format that most of the first lines belong to."""
    text = source.text
    begin, size = 0, SNIFFED_BYTES
    traces: tuple[str | None, float] = None, 0.0
    seen: set[bytes] = set()
    while begin < max(len(text), 1):
        head = text[max(0, begin - 4096) : begin + size]  # so that a line across the edge is seen whole
        if begin:  # lines that no reader claimed are not claimed where they come again with other numbers
            lines = head.split(b"\n")
            kinds = head.translate(None, _VARYING).split(b"\n")
            head = b"\n".join(line for line, kind in zip(lines, kinds, strict=True) if kind not in seen)
        for name, row in FORMATS.items():
            if row.certain is not None and row.certain.search(head[: 1 << 16]):
                return name
        name, hits = max(((name, reader.sniff(head)) for name, reader in READERS.items()), key=itemgetter(1))
        if hits >= 1:
            return name
        if hits > traces[1]:
            traces = name, hits
        seen.update(text[begin : begin + size].translate(None, _VARYING).split(b"\n"))
        begin, size = begin + size, min(4 * size, 16 * SNIFFED_BYTES)
    return traces[0]


def nearness(line: bytes) -> int:
    """How many of the marks of an iteration line are there; its word and number count most."""
    return sum(weight for pattern, weight in _MARKS if pattern.search(line[:400]))
