"""MLflow's files of metrics, mlruns/…/metrics/<name>: a line for each value, `unix_ms value step`.

Of a run's directory all of them are one text, each line with the name of its metric behind it, and parameters before.
"""

from __future__ import annotations

import math
from itertools import islice

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.formats.recorder_run import with_inside
from stepwatch.readers.formats.wandb_file import tell
from stepwatch.readers.reader import MOST_SNIFFED, NOTHING, Reader
from stepwatch.readers.records import Records
from stepwatch.run import Timing

# A time in milliseconds has 13 digits from 2001 to 2286.
_VALUE = Pattern(rb"(?m)^(?P<ms>\d{13}) (?P<value>[-+\w.]{1,40}) (?P<step>\d{1,12})(?: (?P<name>\S{1,250}))?\s*$")
_STARTS = Pattern(rb"\n\d{13} ")  # found much quicker than by the beginnings of lines
_PARAMETER = Pattern(rb"(?m)^param (?P<name>\S{1,250}) (?P<value>[^\n]{0,250})$")


def sniff(head: bytes) -> float:
    if not _STARTS.search(b"\n" + head):
        return 0.0
    return float(sum(1 for _ in islice(_VALUE.finditer(head), MOST_SNIFFED)))


def parse(text: bytes, first_line: int, records: Records) -> None:
    records.held += text


def finish(first_line: int, records: Records) -> None:
    text, records.held = records.held, b""
    rows: dict[tuple[int, int], dict[str, object]] = {}
    for found in _VALUE.finditer(text):
        ms, step = int(found["ms"]), int(found["step"])
        try:
            value = float(found["value"])
        except ValueError:
            continue
        row = rows.setdefault((ms, step), {"_timestamp": ms / 1e3, "_step": step})
        row[(found["name"] or b"loss").decode("utf-8", "replace")] = value  # of one file alone the name is not known
    config: dict[str, object] = {}
    for found in _PARAMETER.finditer(text):
        config[found["name"].decode("utf-8", "replace")] = _plain(found["value"].decode("utf-8", "replace"))
    tell([rows[key] for key in sorted(rows)], config, None, records)


def _plain(text: str) -> object:
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if math.isfinite(number) and number == int(number) else number


READER = Reader(
    name="mlflow", timing=Timing.SPANS_LOG_INTERVAL, holds=NOTHING,
    about=Message(
        "The mean of the steps between two values of the training loss, by the times at which they were logged, "
        "without the evaluations between them. A run's directory gives all of its metrics and parameters."
    ),
    example="1745377456120 2.4113 100\n1745377488310 2.2051 200\n1745377520480 2.1190 300",
    sniff=sniff, parse=parse, finish=finish, complete=with_inside,
)  # fmt: skip
