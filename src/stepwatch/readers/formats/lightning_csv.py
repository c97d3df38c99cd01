"""metrics.csv of Lightning's CSVLogger: whatever the user logs, by step; a time only where the user logs one."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import islice

import numpy as np

from stepwatch.patterns import Pattern
from stepwatch.readers.formats.running import WHOLE_SECONDS, Clock, median, step_times
from stepwatch.readers.reader import BOTH, MOST_SNIFFED
from stepwatch.readers.records import LARGEST_KEPT, Records
from stepwatch.readers.text.block import PIECE_BYTES, read_cells
from stepwatch.run import Evaluation, Fact, Floats, Ints

_HEADER = Pattern(
    rb"(?=[^\n]{0,2000}\bstep\b)(?=[^\n]{0,2000}\bepoch\b)[\w|/. :-]{1,80}(?:,[\w|/. :-]{0,80}){1,200}\s*\n"
)
_CELL = rb"(?:-?\d{1,20}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,3})?|nan|inf)?"
_ROW = Pattern(rb"(?m)^%s(?:,%s){2,200}$" % (_CELL, _CELL))

_PER_STEP = Pattern(
    r"(?:^|[/_|. ])(?:(?:step|iter|iteration|batch)_?time|time_per_(?:step|iter|iteration|batch)"
    r"|sec(?:ond)?s?_per_(?:step|iter|iteration|batch))(?P<unit>_ms|_s)?$", re.IGNORECASE
)  # fmt: skip
_PER_EPOCH = Pattern(r"(?:^|[/_|. ])epoch_?(?:time|duration)(?:_s)?$", re.IGNORECASE)
_SINCE_START = Pattern(
    r"(?:^|[/_|. ])(?:elapsed|(?:elapsed_|total_|train_|wall_)?time|runtime|timestamp)(?:_s)?$", re.IGNORECASE
)
_VALIDATION = Pattern(r"(?:^|[/_|. ])(?:val|valid|validation|eval)(?:[/_|. ]|$)", re.IGNORECASE)
_LOSS = Pattern(r"(?:^|[/_|. ])loss(?:_step)?$|^loss", re.IGNORECASE)


def sniff(head: bytes) -> float:
    header = _HEADER.match(head)
    if header is not None:
        return float(sum(1 for _ in islice(_ROW.finditer(head[header.end() :]), MOST_SNIFFED)))
    # Rows without a header: with one number of cells, some of them empty as this logger leaves them, and nothing else.
    lines = [line for line in head[:8000].split(b"\n") if line][1:-1]  # the first may be cut
    if len(lines) < 5 or not all(_ROW.fullmatch(line) for line in lines):
        return 0.0
    empty = any(b",," in line or line.endswith(b",") for line in lines)
    return 0.4 if empty and len({line.count(b",") for line in lines}) == 1 else 0.0


def add_table(text: bytes, records: Records) -> None:
    header = _HEADER.match(text)
    names = [name.strip() for name in header[0].decode("utf-8", "replace").split(",")] if header else []
    lines, table = _table(text, names)
    if not len(table):
        return
    if not names:  # the fullest rising column of whole numbers with the largest is the step
        names = [f"column {i}" for i in range(table.shape[1])]
        filled = [i for i in range(table.shape[1]) if not np.isnan(table[:, i]).any()]
        whole = [i for i in filled if (table[:, i] % 1 == 0).all() and (np.diff(table[:, i]) >= 0).all()]
        if whole:
            names[max(whole, key=lambda i: table[-1, i])] = "step"
    _add_rows(names, lines, table, records)


def _table(text: bytes, names: Sequence[str]) -> tuple[Ints, Floats]:
    """The cells as numbers, nan where empty; lines of another width are left out."""
    width, skip = len(names), int(bool(names))
    if not names:
        cells = (line.count(b",") + 1 for line in text[:PIECE_BYTES].split(b"\n")[1:])
        width = next((count for count in cells if count > 2), 0)
    # The columns whose numbers show something; of others it counts at most whether there is one.
    telling = (_LOSS, _PER_STEP, _PER_EPOCH, _SINCE_START)
    wanted = [
        place
        for place, name in enumerate(names)
        if name in ("step", "epoch") or any(pattern.search(name) for pattern in telling)
    ]
    numbers, tables = [np.zeros(0, np.int64)], [np.zeros((0, width))]
    begin = line = 0
    while begin < len(text):
        end = text.find(b"\n", begin + (PIECE_BYTES if line >= skip else 0)) + 1 or len(text)
        if line >= skip:
            table = read_cells(text[begin:end], width, wanted or range(width))
            if table is not None:
                numbers.append(np.arange(len(table)) + line)
            else:  # line by line
                split = [row.strip() for row in text[begin:end].split(b"\n")]
                fits = [row.count(b",") + 1 == width and _ROW.fullmatch(row) is not None for row in split]
                rows = [row.split(b",") for row, whole in zip(split, fits, strict=True) if whole]
                table = np.array([[float(cell) if cell else math.nan for cell in row] for row in rows])
                table = table.reshape(len(rows), width)
                numbers.append(np.flatnonzero(fits) + line)
            tables.append(np.where(np.abs(table) <= LARGEST_KEPT, table, np.nan))
        begin, line = end, line + text.count(b"\n", begin, end)
    return np.concatenate(numbers), np.concatenate(tables)


def _add_rows(names: Sequence[str], lines: Ints, table: Floats, records: Records) -> None:
    columns = {name: table[:, i] for i, name in enumerate(names)}
    step = columns.get("step", np.full(len(table), np.nan))
    losses = [name for name in names if _LOSS.search(name) and not _VALIDATION.search(name)]
    loss = np.full(len(table), np.nan)
    for name in losses:
        loss = np.where(np.isnan(loss), columns[name], loss)
    trained = ~np.isnan(loss)
    if not losses:  # rows in which any column but epoch and step, and none of a validation, has a value
        for name in names:
            if name not in ("epoch", "step") and not _VALIDATION.search(name):
                trained |= ~np.isnan(columns[name])
    evaluated = next((columns[name] for name in names if _LOSS.search(name) and _VALIDATION.search(name)), None)
    if evaluated is not None:
        rows = np.flatnonzero(~np.isnan(evaluated) & np.isfinite(step))
        records.add_events(Evaluation, lines[rows], at=step[rows].astype(np.int64), val_loss=evaluated[rows])
    rows = np.flatnonzero(trained & np.isfinite(step))
    rows = rows[np.concatenate(([True], np.diff(step[rows]) != 0))] if len(rows) else rows
    if len(rows):
        number = step[rows].astype(np.int64)
        times = _times(columns, rows, number, int(lines[rows[0]]), records)
        records.add_rows(number=number, time_s=times, loss=loss[rows], line=lines[rows])


# --- times ------------------------------------------------------------------------------------------------------


def _times(columns: dict[str, Floats], rows: Ints, number: Ints, line: int, records: Records) -> Floats:
    """Of a step, from the first of the columns that a user may have logged; nan where there is none."""
    for name, column in columns.items():
        found = _PER_STEP.search(name)
        if found and np.isfinite(column[rows]).mean() > 0.5:
            scale = 1e-3 if found["unit"] == "_ms" else 1.0
            known = np.isfinite(column[rows])
            return np.asarray(np.interp(number, number[known], column[rows][known])) * scale
    for name, column in columns.items():
        if _SINCE_START.search(name) and len(rows) > 2 and bool((np.diff(column[rows]) > 0).all()):
            records.events.append(Fact(line=line, name="averaged", value=True))
            clock = column[rows] - min(float(column[rows][0]), 0.0)
            elapsed = Clock(number, clock, np.full(len(rows), WHOLE_SECONDS / 1e3), np.full(len(rows), np.nan), 0)
            return step_times(elapsed, [])[0]
    for name, column in columns.items():
        if _PER_EPOCH.search(name) and np.isfinite(column).any():
            return _by_epoch(columns, column, rows, line, records)
    return np.full(len(rows), np.nan)


def _by_epoch(columns: dict[str, Floats], column: Floats, rows: Ints, line: int, records: Records) -> Floats:
    """Each epoch's time over its steps; the user's clock has the validation in it."""
    ends = np.flatnonzero(np.isfinite(column))
    steps = columns["step"][ends] + 1
    done = np.diff(steps, prepend=0.0)
    per_step = np.where(done > 0, column[ends] / np.maximum(done, 1), np.nan)
    usual = median(per_step[np.isfinite(per_step)]) if np.isfinite(per_step).any() else math.nan
    if columns["step"][rows[0]] > done[0] * 2 or columns.get("epoch", np.zeros(len(column)))[rows[0]] > 0:
        per_step[0] = per_step[1] if len(per_step) > 1 else math.nan  # the log begins within a run
    places = np.searchsorted(ends, rows)
    found = np.append(per_step, usual)[places]
    records.events.append(Fact(line=line, name="mean_of_run", value=True))
    records.events.append(Fact(line=line, name="holds", value=BOTH))
    return np.where(np.isfinite(found), found, usual)
