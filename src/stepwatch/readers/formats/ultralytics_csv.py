"""results.csv of Ultralytics' YOLO: a row for each epoch; nothing in the file shows its batches.

`time` runs since the process began to train, and is taken after the epoch's validation and before its save: a row
includes training and validation, and the save of the previous row. A process that resumes writes into the same file,
with a clock that starts again. YOLOv5 writes no time, and neither did the first of its successors.
"""

from __future__ import annotations

import re
from itertools import islice, pairwise

import numpy as np

from stepwatch.patterns import Pattern
from stepwatch.readers.formats import BOTH, Reader
from stepwatch.readers.formats.json_rows import fact_of_single_row, first_of_each, number_in
from stepwatch.readers.levers import ULTRALYTICS
from stepwatch.readers.records import Records, rows_of
from stepwatch.readers.text.block import PIECE_BYTES, read_cells
from stepwatch.readers.text.line import MOST_SNIFFED
from stepwatch.run import Evaluation, Fact, Ints, Timing, Traits

_HEADER = Pattern(rb"(?m)^ *epoch *, *(?:time *,[^\n]{0,2000})?(?:train|metrics)/[^\n]{1,4000}")
_NAMES = Pattern(rb"epoch *,")
_PADDING = re.compile(rb"(?m)^ +| +$| *(,) *")
_ROWS = "rows"
_ROW = Pattern(rb"(?m)^ *\d{1,7} *,[-+\d.,eEnaif ]{1,4000}$")


def sniff(head: bytes) -> float:
    """How many rows are under its header, which no other trainer writes."""
    header = _HEADER.search(head) if _NAMES.search(head) else None
    return float(sum(1 for _ in islice(_ROW.finditer(head[header.end() :]), MOST_SNIFFED))) if header else 0.0


def parse(text: bytes, first_line: int, records: Records) -> None:
    """Reads the rows below the last header, which may be in another block.

    There may be several headers if somebody joined two files.
    """
    named = [(text.rfind(b"\n", 0, found.start()) + 1, found.start()) for found in _NAMES.finditer(text)]
    headers = [begin for begin, end in named if not text[begin:end].strip(b" ")]
    for begin, end in pairwise(dict.fromkeys((0, *headers, len(text)))):
        body = begin
        if begin in headers:
            body = text.find(b"\n", begin, end) + 1 or end
            records.kept = [text[begin:body].strip(b"\n")]
        for header in records.kept:
            _keep_rows(header, text[body:end], first_line + text.count(b"\n", 0, body), records)


def finish(first_line: int, records: Records) -> None:
    line, epoch, clock, loss, validated = records.take_columns(_ROWS, 5)
    records.kept = []
    known = np.isfinite(epoch)
    known[known] = first_of_each(*rows_of([epoch, clock, loss], known))
    line, epoch, clock, loss, validated = rows_of([line, epoch, clock, loss, validated], known)
    if not len(line):
        return
    if (epoch == 0).any():
        epoch = epoch + 1
    starts = np.flatnonzero((np.diff(clock, prepend=np.inf) <= 0) | (np.diff(epoch, prepend=np.inf) <= 0))
    times = np.diff(clock, prepend=0.0)
    times[starts] = clock[starts]
    apart = np.diff(epoch, prepend=0.0)
    apart[starts] = 1.0
    records.events += [Fact(int(line[row]), "process", int(row), header=True) for row in starts.tolist()]
    ends = [*starts[1:].tolist(), len(line)]
    records.events += [
        fact_of_single_row(line[row], epoch[row], 1.0)
        for row, end in zip(starts.tolist(), ends, strict=True)
        if end == row + 1
    ]
    times /= np.maximum(apart, 1.0, out=apart)
    del apart, clock  # there may be millions of rows
    number = epoch if epoch.dtype == np.int32 else epoch.astype(np.int64)
    at_line, at = rows_of([line, number], validated > 0)
    records.add_events(Evaluation, at_line, at=at)
    if np.isnan(loss).any():
        loss = np.where(np.isnan(loss), np.inf, loss)
    records.add_rows(number=number, time_s=times, loss=loss, line=line)


def _keep_rows(header: bytes, body: bytes, line: int, records: Records) -> None:
    """Keeps line, epoch, clock, loss and whether it was validated, for the rows below a header."""
    names = [name.strip() for name in header.split(b",")]
    losses = [at for at, name in enumerate(names) if name.startswith(b"train/") and name.endswith(b"loss")]
    clock_at = names.index(b"time") if b"time" in names else None
    validates = any(name.startswith((b"val/", b"metrics/")) for name in names)
    wanted = [0, *losses, *([clock_at] if clock_at is not None else [])]
    begin = 0
    while begin < len(body):
        end = body.find(b"\n", begin + PIECE_BYTES) + 1 or len(body)
        piece = body[begin:end]
        if b" " in piece:
            piece = _PADDING.sub(rb"\1", piece)
        cells = read_cells(piece, len(names), wanted)
        lines: Ints = np.arange(line, line + (0 if cells is None else len(cells)))
        if cells is None:  # line by line
            rows = [row.split(b",") for row in piece.split(b"\n")]
            lines = line + np.flatnonzero([len(row) == len(names) for row in rows])
            whole = [[number_in(cell) for cell in row] for row in rows if len(row) == len(names)]
            cells = np.array(whole).reshape(-1, len(names))
        nothing = np.full(len(cells), np.nan)
        loss = sum((cells[:, at] for at in losses), np.zeros(len(cells))) if losses else nothing
        clock = cells[:, clock_at] if clock_at is not None else nothing
        records.keep(_ROWS, lines, cells[:, 0], clock, loss, float(validates))
        begin, line = end, line + body.count(b"\n", begin, end)


READER = Reader(
    name="ultralytics-csv",
    timing=Timing.SPANS_LOG_INTERVAL,
    holds=BOTH,
    sniff=sniff,
    parse=parse,
    finish=finish,
    traits=Traits(counts_epochs=True, levers=ULTRALYTICS),
)
