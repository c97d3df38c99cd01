"""An example line for a log of an unknown format, so that `--like` reads it."""

from __future__ import annotations

import re

from stepwatch.errors import NoIterations, UsageError
from stepwatch.messages import Message
from stepwatch.quoting import quoted, quoted_path
from stepwatch.readers.detection import nearness
from stepwatch.readers.text.shape import LONGEST_LINE
from stepwatch.sources import Source

_LEAST_LINES = 5  # of one shape, below which it may be anything
_DIGITS = re.compile(rb"\d[\d.,]*(?:[eE][-+]?\d+)?")


class LooksLike(NoIterations):
    """The format is unknown, but one of the log's own lines can be the example; the remedy can be pasted."""

    def __init__(self, name: str, example: str) -> None:
        self.example = example
        what = Message("no known format; the nearest line is “{line:word}”", {"line": example})
        super().__init__(what, about="like")
        self.remedy = self.command(name)

    def command(self, path: str) -> Message:
        facts = {
            "command": f"stepwatch explain {quoted_path(path)} --like {quoted(self.example)}",
            "example": self.example,
        }
        return Message("if such lines are its iterations: {command:list}", facts)


def example_in(source: Source) -> str | None:
    """A line that is most likely an iteration: one of many of its shape, which `--like` understands."""
    from stepwatch.readers.formats.like import reader_like
    from stepwatch.readers.reading import parse

    shapes: dict[bytes, list[bytes]] = {}
    for line in source.text.split(b"\n"):
        if 0 < len(line) <= LONGEST_LINE:
            shapes.setdefault(_DIGITS.sub(b"0", b" ".join(line.split())), []).append(line)
    near = [(nearness(lines[0]), len(lines), lines) for lines in shapes.values() if len(lines) >= _LEAST_LINES]
    near = sorted((each for each in near if each[0] > 1), key=lambda each: each[:2], reverse=True)
    for _, _, lines in near[:5]:  # to read a log once more takes its time
        example = lines[len(lines) // 2].decode("utf-8", "replace").strip()
        try:
            runs = parse(source, reader_like(example))
        except (UsageError, NoIterations):
            continue
        understood = next((run.understood for run in runs if len(run.iterations) >= _LEAST_LINES), None)
        if understood is not None and not understood.doubtful and "\ufffd" not in example:
            return example
    return None
