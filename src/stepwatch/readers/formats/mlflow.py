"""MLflow's files of metrics, mlruns/…/metrics/<name>: a line for each value, `unix_ms value step`.

Of a run's directory all of them are one text, each line with the name of its metric behind it, and parameters before.
"""

from __future__ import annotations

import math
from itertools import islice

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


_VALUES = "values"


def sniff(head: bytes) -> float:
    if not _STARTS.search(b"\n" + head):
        return 0.0
    return float(sum(1 for _ in islice(_VALUE.finditer(head), MOST_SNIFFED)))


def parse(text: bytes, first_line: int, records: Records) -> None:
    """Values go into a table; the names that they have, and the parameters, are kept."""
    if not records.kept:
        records.kept = [{}, {}]
    names, config = records.kept
    for found in _PARAMETER.finditer(text):
        config[found["name"].decode("utf-8", "replace")] = _plain(found["value"].decode("utf-8", "replace"))
    columns = _values(text, first_line, names)
    records.tables.setdefault(_VALUES, []).append(tuple(map(_narrow, columns)))


def finish(first_line: int, records: Records) -> None:
    known, config = records.kept or ({}, {})
    records.kept = []
    # Of one file alone the name is not known.
    names = [(name or b"loss").decode("utf-8", "replace") for name in known]
    _, ms, step, name, value = records.take_columns(_VALUES, 5)
    rises = (ms[1:] > ms[:-1]) | ((ms[1:] == ms[:-1]) & (step[1:] >= step[:-1]))
    if not rises.all():
        order = np.lexsort((step, ms))
        ms, step, name, value = (column[order] for column in (ms, step, name, value))
        del order  # there may be millions of values
    del rises
    if counts_by_steps(names, config) and _are_different(ms, step, name):
        first = np.full(len(names), len(name))
        first[name[::-1]] = np.arange(len(name))[::-1]  # of several the last counts
        tags = np.argsort(first, kind="stable")[: np.count_nonzero(first < len(name))]  # as they come
        place = np.zeros(len(names), np.int32)
        place[tags] = np.arange(len(tags))
        tag = place[name]
        scalars = Scalars([names[i] for i in tags], tag, step, ms / 1e3, value)
        del ms, step, name, value, tag
        add_scalars(dict(scalars.by_tag()), config, None, records)
        return
    rows: dict[tuple[int, int], dict[str, object]] = {}
    for at_ms, at, place, number in zip(*(column.tolist() for column in (ms, step, name, value)), strict=True):
        rows.setdefault((at_ms, at), {"_timestamp": at_ms / 1e3, "_step": at})[names[place]] = number
    add_history(list(rows.values()), config, None, records)


def _are_different(*columns: Ints) -> bool:
    """Whether no two rows are equal."""
    if bool((columns[0][1:] > columns[0][:-1]).all()):
        return True
    order = np.lexsort(columns)
    again = np.ones(max(len(order) - 1, 0), bool)
    for column in columns:
        again &= column[order[1:]] == column[order[:-1]]
    return not again.any()


def _narrow(column: np.ndarray) -> np.ndarray:
    """Whole numbers in four bytes where all of them fit."""
    fits = column.dtype.kind == "i" and bool((np.abs(column) < 1 << 30).all())
    return column.astype(np.int32) if fits else column


def _values(text: bytes, first_line: int, known: dict[bytes, int]) -> tuple[Ints, Ints, Ints, Ints, Floats]:
    """Line, milliseconds, step, place among the names, and value: all lines at once, those with an odd one one by one.

    New names join those that are known.
    """
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
    # No name has a space in it, or more than 250 letters.
    whole = np.array([len(name) <= 250 and len(name.split()) <= 1 for name in known], bool)
    plain[plain] &= whole[place[plain]]
    kept = np.flatnonzero(plain)
    return first_line + lines[kept], ms[kept].astype(np.int64), step[kept].astype(np.int64), place[kept], value[kept]


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
