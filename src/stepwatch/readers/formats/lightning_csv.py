"""metrics.csv of Lightning's CSVLogger: what the user logs, by step; a time only if the user logs one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from stepwatch.patterns import Pattern
from stepwatch.readers.formats import BOTH
from stepwatch.readers.formats.running import WHOLE_SECONDS, Clock, median, step_times
from stepwatch.readers.records import LARGEST_KEPT, MANY_ROWS, Records, pieces, rows_of
from stepwatch.readers.text.block import PIECE_BYTES, read_cells
from stepwatch.readers.text.line import MOST_SNIFFED
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
_NAMELESS = "?"
"""A column of rows without a header; no name contains this letter."""
_ROWS, _BEGIN, _EVALUATED, _EPOCHS = "rows", "begin", "evaluated", "epochs"


def sniff(head: bytes) -> float:
    header = _HEADER.match(head)
    if header is not None:
        return float(sum(1 for _ in islice(_ROW.finditer(head[header.end() :]), MOST_SNIFFED)))
    # Rows without a header: all with the same number of cells, some of them empty as this logger leaves them.
    lines = [line for line in head[:8000].split(b"\n") if line][1:-1]  # the first may be cut
    if len(lines) < 5 or not all(_ROW.fullmatch(line) for line in lines):
        return 0.0
    empty = any(b",," in line or line.endswith(b",") for line in lines)
    return 0.4 if empty and len({line.count(b",") for line in lines}) == 1 else 0.0


def parse(text: bytes, first_line: int, records: Records) -> None:
    """Reads the rows of a block; the first block shows the names of the columns, or how many there are."""
    begin = 0
    if not records.kept:
        header = _HEADER.match(text)
        begin = header.end() if header else 0
        records.kept = [_names(header[0]) if header else (_NAMELESS,) * _width(text)]
    (names,) = records.kept
    for lines, table in _tables(text, begin, names):
        lines += first_line
        if _NAMELESS in names:  # what they are becomes clear once everything is read
            records.keep(_ROWS, lines, *table.T)
        else:
            _keep_rows(names, lines, table, records)


def finish(records: Records) -> None:
    (names,), records.kept = records.kept, []
    clocks: dict[str, Floats] = {}
    if _NAMELESS in names:
        lines, number = _of_nameless(records.take_columns(_ROWS, 1 + len(names)))
        loss = np.broadcast_to(np.nan, len(lines))
    else:
        timed = _timed(names)
        lines, number, loss, *columns = records.take_columns(_ROWS, 3 + len(timed))
        clocks = dict(zip(timed, columns, strict=True))
        evaluated, at, val_loss = records.take_columns(_EVALUATED, 3)
        records.add_events(Evaluation, evaluated, at=_whole(at), val_loss=val_loss.astype(np.float64))
    new = np.append(True, number[1:] != number[:-1])[: len(number)]
    lines, number, loss, *columns = rows_of([lines, number, loss, *clocks.values()], new)
    if len(lines) > MANY_ROWS:
        loss = loss.astype(np.float32)  # as it will be stored: leaves memory for the times
    if len(lines):
        clocks, number = dict(zip(clocks, columns, strict=True)), _whole(number)
        goes_on = bool((records.take_columns(_BEGIN, 2)[1][:1] > 0).any())
        times = _times(clocks, lines, number, goes_on, records)
        records.add_rows(number=number, time_s=times, loss=loss, line=_whole(lines))


def _names(header: bytes) -> tuple[str, ...]:
    return tuple(name.strip() for name in header.decode("utf-8", "replace").split(","))


def _width(text: bytes) -> int:
    """How many cells a row without a header has; the first row may be cut off."""
    cells = (line.count(b",") + 1 for line in text[:PIECE_BYTES].split(b"\n")[1:])
    return next((count for count in cells if count > 2), 0)


def _timed(names: Sequence[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if _PER_STEP.search(name) or _SINCE_START.search(name)]


def _tables(text: bytes, begin: int, names: Sequence[str]) -> Iterator[tuple[Ints, Floats]]:
    """Lines and their cells as numbers, nan if empty; lines of another width are left out."""
    width = len(names)
    # The columns whose numbers are used; of others, at most their presence counts.
    telling = (_LOSS, _PER_STEP, _PER_EPOCH, _SINCE_START)
    wanted = [
        place
        for place, name in enumerate(names)
        if name in ("step", "epoch", _NAMELESS) or any(pattern.search(name) for pattern in telling)
    ]
    line = text.count(b"\n", 0, begin)
    while begin < len(text):
        end = text.find(b"\n", begin + PIECE_BYTES) + 1 or len(text)
        table = read_cells(text[begin:end], width, wanted or range(width))
        if table is not None:
            lines: Ints = np.arange(len(table)) + line
        else:  # line by line
            split = [row.strip() for row in text[begin:end].split(b"\n")]
            fits = [row.count(b",") + 1 == width and _ROW.fullmatch(row) is not None for row in split]
            rows = [row.split(b",") for row, whole in zip(split, fits, strict=True) if whole]
            table = np.array([[float(cell) if cell else math.nan for cell in row] for row in rows])
            table = table.reshape(len(rows), width)
            lines = np.flatnonzero(fits) + line
        yield lines, np.where(np.abs(table) <= LARGEST_KEPT, table, np.nan)
        begin, line = end, line + text.count(b"\n", begin, end)


def _keep_rows(names: Sequence[str], lines: Ints, table: Floats, records: Records) -> None:
    """Keeps rows of training, of a validation, and with the time of an epoch: most cells are empty."""
    columns = {name: table[:, i] for i, name in enumerate(names)}
    unknown = np.broadcast_to(np.nan, len(lines))
    step, epoch = (columns.get(name, unknown) for name in ("step", "epoch"))
    losses = [name for name in names if _LOSS.search(name) and not _VALIDATION.search(name)]
    loss = unknown
    for name in losses:
        loss = np.where(np.isnan(loss), columns[name], loss)
    trained = ~np.isnan(loss)
    if not losses:  # rows with a value in any column except epoch, step and those of a validation
        for name in names:
            if name not in ("epoch", "step") and not _VALIDATION.search(name):
                trained |= ~np.isnan(columns[name])
    known = np.isfinite(step)
    rows = np.flatnonzero(trained & known)
    kept = (step, loss, *(columns[name] for name in _timed(names)))
    records.keep(_ROWS, lines[rows], *(column[rows] for column in kept))
    records.keep(_BEGIN, lines[rows[:1]], epoch[rows[:1]])
    evaluated = next((columns[name] for name in names if _LOSS.search(name) and _VALIDATION.search(name)), unknown)
    rows = np.flatnonzero(~np.isnan(evaluated) & known)
    records.keep(_EVALUATED, lines[rows], step[rows], evaluated[rows])
    for place, name in enumerate(columns):
        rows = np.flatnonzero(np.isfinite(columns[name]) & (_PER_EPOCH.search(name) is not None))
        if len(rows):
            records.keep(_EPOCHS, lines[rows], place, columns[name][rows], step[rows])


def _of_nameless(columns: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Lines and steps: of the full, rising columns of whole numbers, the step is the one with the largest."""
    lines, *cells = columns
    filled = [column for column in cells if len(lines) and not np.isnan(column).any()]
    whole = [column for column in filled if (column % 1 == 0).all() and (column[1:] >= column[:-1]).all()]
    if not whole:
        return lines[:0], lines[:0]
    step = max(whole, key=lambda column: column[-1])
    trained = np.zeros(len(lines), bool)
    for column in cells:
        if column is not step:
            trained |= ~np.isnan(column)
    lines, step = rows_of([lines, step], trained)
    return lines, step


def _whole(column: np.ndarray) -> np.ndarray:
    return column if column.dtype.kind == "i" and column.strides != (0,) else column.astype(np.int64)


# --- times ------------------------------------------------------------------------------------------------------


def _times(clocks: dict[str, Floats], lines: Ints, number: Ints, goes_on: bool, records: Records) -> Floats:
    """Step times from the first suitable column that the user logged; nan if there is none."""
    line = int(lines[0])
    for name, column in clocks.items():
        found = _PER_STEP.search(name)
        if found and np.isfinite(column).mean() > 0.5:
            scale = 1e-3 if found["unit"] == "_ms" else 1.0
            known = np.isfinite(column)
            if not (known.all() and bool((number[1:] > number[:-1]).all())):
                column = np.interp(number, number[known], column[known])
            return np.asarray(column * scale)
    for name, column in clocks.items():
        if _SINCE_START.search(name) and len(lines) > 2 and bool((column[1:] > column[:-1]).all()):
            records.events.append(Fact(line=line, name="averaged", value=True))
            first = min(float(column[0]), 0.0)
            clock = column - first if first else column.astype(np.float64, copy=False)  # no copy of millions of rows
            error, rate = (np.broadcast_to(value, len(lines)) for value in (WHOLE_SECONDS / 1e3, np.nan))
            return step_times(Clock(number, clock, error, rate, 0), [])[0]
    if _EPOCHS in records.tables:
        return _by_epoch(lines, int(number[0]), goes_on, records)
    return np.broadcast_to(np.nan, len(lines))


def _by_epoch(lines: Ints, number: int, goes_on: bool, records: Records) -> Floats:
    """Each epoch's time divided by its steps; the user's clock includes the validation."""
    ends, place, took, steps = records.take_columns(_EPOCHS, 4)
    first = place == place.min()
    ends, took, steps = ends[first], took[first], steps[first] + 1
    done = np.diff(steps, prepend=0.0)
    per_step = np.where(done > 0, took / np.maximum(done, 1), np.nan)
    usual = median(per_step[np.isfinite(per_step)]) if np.isfinite(per_step).any() else math.nan
    if number > done[0] * 2 or goes_on:
        per_step[0] = per_step[1] if len(per_step) > 1 else math.nan  # the log begins in the middle of a run
    per_step = np.append(np.where(np.isfinite(per_step), per_step, usual), usual)
    times = np.empty(len(lines))
    for rows in pieces(len(lines)):  # there may be millions
        times[rows] = per_step[np.searchsorted(ends, lines[rows])]
    records.events.append(Fact(line=int(lines[0]), name="mean_of_run", value=True))
    records.events.append(Fact(line=int(lines[0]), name="holds", value=BOTH))
    return times
