"""MLX-LM and the lora.py of mlx-examples before it.

A line tells the mean over the steps since the last one, each waited for; validation and the saving of adapters are
outside, and what validation took is printed. Since June 2026 a table stands in place of the lines, with tokens per
second and the tokens so far: their quotient is the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.columns import Block, Template
from stepwatch.readers.lines import LOSS, NUMBER, LineFormat, Told
from stepwatch.readers.reader import NOTHING
from stepwatch.readers.records import Records
from stepwatch.run import Checkpoint, Evaluation, Fact, Floats, Ints, Timing, Traits

_ROWS = tuple(
    Template(f"{{ }}{{number}}  {{ }}{{loss?}} {arrow} {{ }}{{tokens_per_s,}} {{ }}{{tokens,}}k{{ }}")
    for arrow in ("\u25bc", "\u25b2")
)
_ROW = Pattern(
    r"[ \t]*(?P<number>\d+) {2,}(?P<loss>[\d.]+|nan|inf) [\u25bc\u25b2] +(?P<tokens_per_s>[\d,]+)"
    r" +(?P<tokens>[\d.,]+)k[ \t]*$"
)
_VALUE = Pattern(r"[ \t]*(?P<at>\d+) {2,}val (?P<val_loss>[\d.]+|nan|inf) +(?P<took_s>[\d.]+)s[ \t]*$")
_SAVE = Pattern(r"[ \t]*save +(?P<at>\d+)_adapters\.safetensors")
_LAST = Pattern(r"\W*batch \u00b7 iters +(?P<batch_size>[\d,]+) \u00b7 (?P<max_iters>[\d,]+)")
_TABLE_WORDS = (b"\xe2\x96\xbc", b"\xe2\x96\xb2", b"_adapters.saf", b" val ", b"iters ")
_ARROWS = Pattern(rb"\xe2\x96\xbc|\xe2\x96\xb2")
_MOST_SNIFFED = 60
_FINE_TOKENS = 5000.0  # printed to the hundred: a smaller number since the last row is too coarse to divide


@dataclass(frozen=True, kw_only=True)
class _Mlx(LineFormat):
    """The lines, and the table in their place."""

    def sniff(self, head: bytes) -> float:
        arrows = (line for line in head.split(b"\n") if _ARROWS.search(line))
        rows = (True for line in arrows if _ROW.match(line.decode("utf-8", "replace")))
        return super().sniff(head) + sum(islice(rows, _MOST_SNIFFED))

    def _read_by_column(
        self, text: bytes, block: Block, stamps: Floats | None, left: Ints, first_line: int, records: Records
    ) -> Ints:
        for template in _ROWS:
            lines, found = template.match(block, left)
            if len(lines):
                columns = (found[name] for name in ("number", "loss", "tokens_per_s"))
                records.keep("row", lines + first_line, *columns, 1e3 * found["tokens"])
                left = block.without(left, lines)
        return left

    def _read(self, line: str, number: int, records: Records) -> None:
        _read_table(line, number, records)
        super()._read(line, number, records)

    def finish(self, first_line: int, records: Records) -> None:
        super().finish(first_line, records)
        _mend_last(records)
        _add(records)


_LINES = _Mlx(
    name="mlx-lm",
    timing=Timing.SPANS_LOG_INTERVAL,
    traits=Traits(prints_means=True),
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
    words=(
        b"Val took",
        b"Saved ",
        b"Loading pre",
        b"Starting training",
        b"Trainable param",
        b"Node 0 of",
        *_TABLE_WORDS,
    ),
)  # fmt: skip


def _read_table(line: str, number: int, records: Records) -> None:
    row, value, save, told = (pattern.match(line) for pattern in (_ROW, _VALUE, _SAVE, _LAST))
    if row:
        loss, per_s, tokens = (_number(row[name]) for name in ("loss", "tokens_per_s", "tokens"))
        loss = loss if np.isfinite(loss) else np.inf
        records.keep_row("row", number, float(row["number"]), loss, per_s, 1e3 * tokens)
    if value and np.isfinite(_number(value["took_s"])):
        took, loss = _number(value["took_s"]), _number(value["val_loss"])
        records.events.append(Evaluation(line=number, at=int(value["at"]), val_loss=loss, took_s=took))
    if save:
        records.events.append(Checkpoint(line=number, at=int(save["at"])))
    if told:
        for name, header in (("max_iters", True), ("batch_size", False)):
            count = int(_number(told[name]))
            records.events.append(Fact(line=number, name=name, value=count, header=header))


def _number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:  # two points
        return np.nan


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


def _add(records: Records) -> None:
    """Rows of the table: the tokens of their steps by their tokens per second."""
    line, number, loss, per_s, tokens = records.table("row", 5).T
    for tables in (records.tables, records.table_rows):
        tables.pop("row", None)
    steps, spent = np.diff(number, prepend=np.nan), np.diff(tokens, prepend=np.nan)
    follows = (steps > 0) & (spent >= _FINE_TOKENS)
    steps, spent = np.where(follows, steps, number), np.where(follows, spent, tokens)
    known = (steps > 0) & (spent > 0) & (per_s > 0)
    if known.any():
        line, number, loss, per_s, time = (
            column[known] for column in (line, number, loss, per_s, spent / np.where(known, per_s * steps, 1.0))
        )
        whole = {"number": number.astype(np.int64), "line": line.astype(np.int64)}
        records.add_rows(**whole, loss=loss, reported_tokens_per_s=per_s, time_s=time)


READER = _LINES.reader()
