"""MLX-LM and the lora.py of mlx-examples before it.

A line tells the mean over the steps since the last one, each waited for; validation and the saving of adapters are
outside, and what validation took is printed. Since June 2026 a table stands in place of the lines, with tokens per
second and the tokens so far: their quotient is the time.
"""

from __future__ import annotations

from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.columns import Template
from stepwatch.readers.lines import LOSS, NUMBER, LineFormat, Told
from stepwatch.readers.reader import NOTHING, Reader
from stepwatch.readers.records import Records
from stepwatch.run import Checkpoint, Evaluation, Fact, Timing

_LINES = LineFormat(
    name="mlx-lm",
    timing=Timing.SPANS_LOG_INTERVAL,
    holds=NOTHING,
    about=Message(
        "The mean of the steps since the last line, each waited for, without the loading of data. Validation is "
        "outside and printed; the saving of adapters is outside, and no line tells what it took."
    ),
    example="""\
Starting training..., iters: 600
Iter 200: Val loss 1.274, Val took 18.306s
Iter 200: Train loss 1.301, Learning Rate 1.000e-05, It/sec 0.812, Tokens/sec 402.117, \
Trained Tokens 98214, Peak mem 11.902 GB
Iter 200: Saved adapter weights to adapters/adapters.safetensors and adapters/0000200_adapters.safetensors.""",
    mark=b"It/sec ",
    iteration=Pattern(
        rf"Iter (?P<number>\d+): Train loss (?P<loss>{LOSS}),(?: Learning Rate \S+,)?"
        rf" It/sec (?P<per_s>{NUMBER}), Tokens/sec (?P<tokens_per_s>{NUMBER})"
    ),
    templates=(
        Template(
            "Iter {number}: Train loss {loss?}, Learning Rate {*} It/sec {per_s}, Tokens/sec {tokens_per_s},"
            " Trained Tokens {*} Peak mem {*} GB"
        ),
        Template("Iter {number}: Train loss {loss?}, It/sec {per_s}, Tokens/sec {tokens_per_s}"),
    ),
    evaluations=(Pattern(rf"Iter (?P<at>\d+): Val loss (?P<val_loss>{LOSS}), Val took (?P<took_s>{NUMBER})s"),),
    checkpoints=(Pattern(r"Iter (?P<at>\d+): Saved (?:adapter )?weights to "),),
    facts=(
        Told(Pattern(r"(?P<pretrained>Loading) pretrained model"), header=True),
        Told(Pattern(r"Starting training\.\.\., iters: (?P<max_iters>\d+)"), header=True),
        # Of a model of which only adapters are trained, the size tells neither the work nor what is saved.
        Told(Pattern(r"Trainable parameters: 100(?:\.0+)?% \((?P<n_params>[\d.]+M)/")),
        Told(Pattern(r"Node 0 of (?P<world_size>\d+)")),
    ),
    words=(b"Val took", b"Saved ", b"Loading pre", b"Starting training", b"Trainable param", b"Node 0 of"),
)

_ROW = Pattern(
    rb"(?m)^[ \t]*(?P<number>\d+) {2,}(?P<loss>[\d.]+|nan|inf) (?:\xe2\x96\xbc|\xe2\x96\xb2) +(?P<tokens_per_s>[\d,]+)"
    rb" +(?P<tokens>[\d.,]+)k[ \t]*$"
)
_VALUE = Pattern(rb"(?m)^[ \t]*(?P<at>\d+) {2,}val (?P<val_loss>[\d.]+|nan|inf) +(?P<took_s>[\d.]+)s[ \t]*$")
_SAVE = Pattern(rb"(?m)^[ \t]*save +(?P<at>\d+)_adapters\.safetensors")
_LAST = Pattern(rb"(?m)^\W*batch \xc2\xb7 iters +(?P<batch_size>[\d,]+) \xc2\xb7 (?P<max_iters>[\d,]+)")
_ARROWS = (b"\xe2\x96\xbc", b"\xe2\x96\xb2")
_MOST_SNIFFED = 60
_FINE_TOKENS = 5000.0  # printed to the hundred: a smaller number since the last row is too coarse to divide


class _Row(NamedTuple):
    number: int
    line: int
    loss: float
    tokens_per_s: float
    tokens: float


def sniff(head: bytes) -> float:
    return _LINES.sniff(head) + sum(1.0 for _ in islice(_ROW.finditer(head), _MOST_SNIFFED))


def parse(text: bytes, first_line: int, records: Records) -> None:
    _LINES.parse(text, first_line, records)
    if any(arrow in text for arrow in _ARROWS) or b"_adapters.saf" in text or b" val " in text or b"iters " in text:
        _parse_table(text, first_line, records)


def _parse_table(text: bytes, first_line: int, records: Records) -> None:
    def line_of(place: int) -> int:
        return first_line + text.count(b"\n", 0, place)

    for row in _ROW.finditer(text):
        loss, per_s, tokens = (_number(row[name]) for name in ("loss", "tokens_per_s", "tokens"))
        loss = loss if np.isfinite(loss) else np.inf
        records.kept.append(_Row(int(row["number"]), line_of(row.start("number")), loss, per_s, 1e3 * tokens))
    for value in _VALUE.finditer(text):
        line = line_of(value.start("at"))
        took, loss = _number(value["took_s"]), _number(value["val_loss"])
        if np.isfinite(took):
            records.events.append(Evaluation(line=line, at=int(value["at"]), val_loss=loss, took_s=took))
    for save in _SAVE.finditer(text):
        records.events.append(Checkpoint(line=line_of(save.start("at")), at=int(save["at"])))
    for told in _LAST.finditer(text):
        for name, header in (("max_iters", True), ("batch_size", False)):
            count = int(_number(told[name]))
            records.events.append(Fact(line=line_of(told.start(name)), name=name, value=count, header=header))


def _number(text: bytes) -> float:
    try:
        return float(text.replace(b",", b""))
    except ValueError:  # two points
        return np.nan


def finish(first_line: int, records: Records) -> None:
    _LINES.finish(first_line, records)
    _mend_last(records)
    for before, row in pairwise([None, *records.kept]):
        _add(row, before, records)
    records.kept.clear()


def _mend_last(records: Records) -> None:
    """The last line divides the usual number of steps by its time, also where it stands for fewer."""
    rows = records.iterations()
    gaps = np.diff(rows.number)
    if len(gaps) < 2 or gaps[-1] <= 0:
        return
    usual = int(np.median(gaps[:-1]))
    if gaps[-1] < usual and rows.number[-1] % usual:
        last = next(times for times in reversed(records.columns["time_s"]) if len(times))
        last[-1] *= usual / gaps[-1]


def _add(row: _Row, before: _Row | None, records: Records) -> None:
    """A row of the table: the tokens of its steps by its tokens per second."""
    follows = before is not None and row.number > before.number and row.tokens >= before.tokens
    steps = row.number - before.number if follows and before is not None else row.number
    tokens = row.tokens - before.tokens if follows and before is not None else row.tokens
    if tokens < _FINE_TOKENS:
        steps, tokens = row.number, row.tokens
    if not (steps > 0 and tokens > 0 and row.tokens_per_s > 0):
        return
    records.add_row(
        number=row.number, line=row.line, loss=row.loss, reported_tokens_per_s=row.tokens_per_s,
        time_s=tokens / row.tokens_per_s / steps,
    )  # fmt: skip


READER = Reader(_LINES.name, _LINES.timing, _LINES.holds, _LINES.about, _LINES.example, sniff, parse, finish)
