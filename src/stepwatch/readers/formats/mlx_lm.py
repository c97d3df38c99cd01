"""MLX-LM, and the older lora.py of mlx-examples.

A line shows the mean over the steps since the last one, each of which was waited for. Validation and the saving of
adapters are not included; the time of validation is printed. Since June 2026 a table replaces the lines, with tokens
per second and the tokens so far: the time is their quotient.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stepwatch.readers.records import Records
from stepwatch.readers.text.line import Line
from stepwatch.readers.text.line_format import LineFormat
from stepwatch.run import Floats, Ints, Levers, Timing, Traits

_TABLE = "rows of the table"


class _Mlx(LineFormat):
    """The lines, and the table that replaced them."""

    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        if "tokens" in found:
            columns = (found[name] for name in ("number", "loss", "tokens_per_s"))
            records.keep(_TABLE, lines, *columns, 1e3 * found["tokens"])
        else:
            super().add(records, lines, found)

    def finish(self, first_line: int, records: Records) -> None:
        super().finish(first_line, records)
        # The last line divides the usual number of steps by its time, even if it covers fewer.
        rows = records.iterations()
        gaps = np.diff(rows.number)
        usual = int(np.median(gaps[:-1])) if len(gaps) > 1 else 0
        if usual and 0 < gaps[-1] < usual and rows.number[-1] % usual:
            times = rows.time_s.copy()
            times[-1] *= usual / gaps[-1]
            records.replace_rows(replace(rows, time_s=times))
        _add(records)


FORMAT = _Mlx(
    name="mlx-lm",
    timing=Timing.SPANS_LOG_INTERVAL,
    traits=Traits(
        may_evaluate=True,
        prints_means=True,
        levers=Levers(
            evaluate_every="--steps-per-eval",
            evaluation_batches="--val-batches",
            save_every="--save-every",
            batch="--batch-size",
            accumulation="--grad-accumulation-steps",
            log_every="--steps-per-report",
            recompute="--grad-checkpoint",
            length="--max-seq-length",
        ),
    ),
    iterations=(
        Line(
            "Iter {number}: Train loss {loss},[ Learning Rate {word}] It/sec {per_s}, Tokens/sec {tokens_per_s}{rest}"
        ),
        Line("{pad}{number}  {loss} \u25bc  {tokens_per_s}  {tokens:decimal}k{end}"),
        Line("{pad}{number}  {loss} \u25b2  {tokens_per_s}  {tokens:decimal}k{end}"),
    ),
    evaluations=(
        Line("Iter {at}: Val loss {val_loss}, Val took {took_s}s"),
        Line("{pad}{at}  val {val_loss}  {took_s}s{end}"),
    ),
    checkpoints=(Line("Iter {at}: Saved [adapter ]weights to "), Line("{pad}save  {at}_adapters.safetensors")),
    settings=(
        Line("{any}Loading pretrained model", header=True, sets={"pretrained": "Loading"}),
        Line("{any}Starting training..., iters: {max_iters}", header=True),
        Line("{any}batch \u00b7 iters  {batch_size} \u00b7 {max_iters}", header=True),
        # If only adapters are trained, the size of the model shows neither the work nor what is saved.
        Line("{any}Trainable parameters: <100;100.0;100.00;100.000>% ({n_params:amount}/"),
        Line("{any}Node 0 of {world_size}"),
    ),
)


def _add(records: Records) -> None:
    """Adds the rows of the table, timed as the tokens of their steps divided by tokens per second."""
    line, number, loss, per_s, tokens = records.take_table(_TABLE, 5).T
    steps, spent = np.diff(number, prepend=np.nan), np.diff(tokens, prepend=np.nan)
    # Tokens are printed to the hundred: if few were added since the last row, dividing is too imprecise.
    follows = (steps > 0) & (spent >= 5000)
    steps, spent = np.where(follows, steps, number), np.where(follows, spent, tokens)
    known = (steps > 0) & (spent > 0) & (per_s > 0)
    if known.any():
        line, number, loss, per_s, time = (
            column[known] for column in (line, number, loss, per_s, spent / np.where(known, per_s * steps, 1.0))
        )
        whole = {"number": number.astype(np.int64), "line": line.astype(np.int64)}
        records.add_rows(**whole, loss=loss, reported_tokens_per_s=per_s, time_s=time)


READER = FORMAT.reader()
