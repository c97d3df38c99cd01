"""MLflow's files of metrics, mlruns/…/metrics/<name>: a line for each value, `unix_ms value step`.

Of a run's directory all of them are one text, each line with the name of its metric behind it, and parameters before.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import NamedTuple

import numpy as np

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.formats.event_files import Scalars
from stepwatch.readers.formats.recorder_run import with_inside
from stepwatch.readers.formats.wandb_file import add_history, add_scalars, counts_by_steps
from stepwatch.readers.reader import MOST_SNIFFED, NOTHING, Reader
from stepwatch.readers.records import Records
from stepwatch.readers.text.block import Block, read_int, read_number
from stepwatch.run import Floats, Ints, Timing

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


class _Values(NamedTuple):
    ms: Ints
    step: Ints
    name: Ints
    """Its place among the names."""
    value: Floats
    names: list[str]


def finish(first_line: int, records: Records) -> None:
    text, records.held = records.held, b""
    config: dict[str, object] = {}
    for found in _PARAMETER.finditer(text):
        config[found["name"].decode("utf-8", "replace")] = _plain(found["value"].decode("utf-8", "replace"))
    values = _values(text)
    order = np.lexsort((values.step, values.ms))
    ms, step, name = (column[order] for column in values[:3])
    value, names = values.value[order], values.names
    if counts_by_steps(names, config) and _are_different(ms, step, name):
        first = np.unique(name, return_index=True)[1]
        tags = name[np.sort(first)]  # as they come
        tag = np.argsort(tags)[np.searchsorted(np.sort(tags), name)]
        add_scalars(Scalars([names[i] for i in tags], tag, step, ms / 1e3, value), config, None, records)
        return
    rows: dict[tuple[int, int], dict[str, object]] = {}
    for at_ms, at, place, number in zip(*(column.tolist() for column in (ms, step, name, value)), strict=True):
        rows.setdefault((at_ms, at), {"_timestamp": at_ms / 1e3, "_step": at})[names[place]] = number
    add_history(list(rows.values()), config, None, records)


def _are_different(*columns: Ints) -> bool:
    """Whether no two rows are equal."""
    order = np.lexsort(columns)
    again = np.ones(max(len(order) - 1, 0), bool)
    for column in columns:
        again &= column[order[1:]] == column[order[:-1]]
    return not again.any()


def _values(text: bytes) -> _Values:
    """All lines at once; those with an odd number one by one."""
    block = Block.of(text)
    lines = block.filled
    at, ends = block.starts[lines], block.ends[lines]
    fits, behind, ms = read_int(block, at)
    fits &= (behind - at == 13) & (block.octets[behind] == ord(" "))
    begin = behind + 1
    plain, behind, value = read_number(block, begin)
    plain &= block.octets[behind] == ord(" ")
    stepped, end, step = read_int(block, behind + 1)
    plain &= fits & stepped & (end - behind <= 13) & ((end == ends) | (block.octets[end] == ord(" ")))
    known: dict[bytes, int] = {}
    place = np.zeros(len(lines), np.int64)
    place[plain] = [
        known.setdefault(text[begin:end].strip(), len(known))
        for begin, end in zip(end[plain].tolist(), ends[plain].tolist(), strict=True)
    ]
    odd = fits & ~plain
    for row in np.flatnonzero(odd).tolist():
        found = _VALUE.fullmatch(block.line(lines[row]))
        try:
            value[row] = float(found["value"]) if found is not None else math.nan
        except ValueError:
            found = None
        if found is not None:
            step[row], place[row] = int(found["step"]), known.setdefault(found["name"] or b"", len(known))
            plain[row] = True
    # Of one file alone the name is not known. No name has a space in it, or more than 250 letters.
    whole = np.array([len(name) <= 250 and len(name.split()) <= 1 for name in known], bool)
    plain[plain] &= whole[place[plain]]
    kept = np.flatnonzero(plain)
    names = [(name or b"loss").decode("utf-8", "replace") for name in known]
    return _Values(ms[kept].astype(np.int64), step[kept].astype(np.int64), place[kept], value[kept], names)


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
