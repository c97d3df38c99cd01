"""results.csv of Ultralytics' YOLO: a row for each epoch, whose batches nothing in the file shows.

`time` runs since the process began to train, and is taken after the epoch's validation and before its save: a row holds
training and validation, and the save of the row before. A process that goes on writes into the same file, by a clock
that starts again. YOLOv5 writes no time, and neither did the first of its successors.
"""

from __future__ import annotations

import math
import re
from itertools import islice, pairwise

import numpy as np

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.formats.json_rows import first_of_each, lone_row
from stepwatch.readers.levers import ULTRALYTICS
from stepwatch.readers.reader import BOTH, MOST_SNIFFED, Reader
from stepwatch.readers.records import LARGEST_KEPT, Records
from stepwatch.readers.text.cells import PIECE_BYTES, read_cells
from stepwatch.run import Evaluation, Fact, Floats, Ints, Timing, Traits

_HEADER = Pattern(
    rb"(?m)^ *epoch *, *(?:time *,[^\n]{0,2000})?(?:train|metrics)/[^\n]{1,4000}", holds=(b"train/", b"metrics/")
)
_NAMES = Pattern(rb"epoch *,")
_PADDING = re.compile(rb"(?m)^ +| +$| *(,) *")
_ROW = Pattern(rb"(?m)^ *\d{1,7} *,[-+\d.,eEnaif ]{1,4000}$")


def sniff(head: bytes) -> float:
    """How many rows stand under its header, which no other trainer writes."""
    header = _HEADER.search(head) if _NAMES.search(head) else None
    return float(sum(1 for _ in islice(_ROW.finditer(head[header.end() :]), MOST_SNIFFED))) if header else 0.0


def parse(text: bytes, first_line: int, records: Records) -> None:
    records.held += text


def finish(first_line: int, records: Records) -> None:
    """A header may stand there again, where somebody put two files together."""
    text, records.held = records.held, b""
    named = [(text.rfind(b"\n", 0, found.start()) + 1, found.start()) for found in _NAMES.finditer(text)]
    headers = [begin for begin, end in named if not text[begin:end].strip(b" ")]
    tables = [np.zeros((0, 5))]
    for begin, end in pairwise([*headers, len(text)]):
        tables.append(_rows(text[begin:end], text.count(b"\n", 0, begin)))
    line, epoch, clock, loss, validated = np.concatenate(tables).T
    epoch, clock, loss = (np.where(np.abs(column) <= LARGEST_KEPT, column, np.nan) for column in (epoch, clock, loss))
    known = np.isfinite(epoch)
    known[known] = first_of_each(epoch[known], clock[known], loss[known])
    line, epoch, clock, loss, validated = (column[known] for column in (line, epoch, clock, loss, validated))
    if not len(line):
        return
    epoch = epoch + (epoch == 0).any()
    starts = np.flatnonzero((np.diff(clock, prepend=np.inf) <= 0) | (np.diff(epoch, prepend=np.inf) <= 0))
    times = np.diff(clock, prepend=0.0)
    times[starts] = clock[starts]
    apart = np.diff(epoch, prepend=0.0)
    apart[starts] = 1.0
    records.events += [Fact(int(line[row]), "process", int(row), header=True) for row in starts.tolist()]
    ends = [*starts[1:].tolist(), len(line)]
    records.events += [
        lone_row(line[row], epoch[row], 1.0) for row, end in zip(starts.tolist(), ends, strict=True) if end == row + 1
    ]
    number, lines = epoch.astype(np.int64), line.astype(np.int64)
    rows = validated > 0
    records.add_events(Evaluation, lines[rows], at=number[rows])
    loss = np.where(np.isnan(loss), np.inf, loss)
    records.add_rows(number=number, time_s=times / np.maximum(apart, 1.0), loss=loss, line=lines)


def _rows(text: bytes, first_line: int) -> Floats:
    """Line, epoch, clock, loss and whether it was validated, of the rows below a header."""
    header, _, body = text.partition(b"\n")
    names = [name.strip() for name in header.split(b",")]
    losses = [at for at, name in enumerate(names) if name.startswith(b"train/") and name.endswith(b"loss")]
    clock_at = names.index(b"time") if b"time" in names else None
    validates = any(name.startswith((b"val/", b"metrics/")) for name in names)
    wanted = [0, *losses, *([clock_at] if clock_at is not None else [])]
    found = [np.zeros((0, 5))]
    begin, line = 0, first_line + 1
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
            whole = [[_number(cell) for cell in row] for row in rows if len(row) == len(names)]
            cells = np.array(whole).reshape(-1, len(names))
        nothing = np.full(len(cells), np.nan)
        loss = sum((cells[:, at] for at in losses), np.zeros(len(cells))) if losses else nothing
        clock = cells[:, clock_at] if clock_at is not None else nothing
        found.append(np.stack((lines, cells[:, 0], clock, loss, np.full(len(cells), float(validates))), axis=1))
        begin, line = end, line + body.count(b"\n", begin, end)
    return np.concatenate(found)


def _number(cell: bytes) -> float:
    try:
        value = float(cell)
    except ValueError:
        return math.nan
    return value if abs(value) <= LARGEST_KEPT else math.nan


READER = Reader(
    name="ultralytics-csv",
    timing=Timing.SPANS_LOG_INTERVAL,
    holds=BOTH,
    about=Message(
        "results.csv of YOLO: a row is an epoch with its validation and the checkpoint before it. What is called an "
        "iteration is such an epoch: the file does not show its batches. Files of YOLOv5 have no times."
    ),
    example="""\
epoch,time,train/box_loss,train/cls_loss,metrics/mAP50(B),val/box_loss,val/cls_loss
1,38.77,1.9208,2.572,0.2295,1.8597,2.5824
2,70.74,1.9463,2.4112,0.1771,1.9748,3.2741
3,102.8,1.9102,2.3804,0.2514,1.8911,2.6077""",
    sniff=sniff,
    parse=parse,
    finish=finish,
    traits=Traits(counts_epochs=True, levers=ULTRALYTICS),
)
