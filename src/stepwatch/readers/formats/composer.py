"""MosaicML Composer and LLM Foundry: a record of many lines for each batch that is logged.

    [batch=20/4800]:
             Train loss/train/total: 8.4213
             Train throughput/batches_per_sec: 0.1085

The clock of a batch starts at the end of the previous one and stops during evaluations; a checkpoint is part of the
next batch. A record shows the whole training time in hours, to a third of a second, and the mean of the last batches
(10 to 100). The time between two records is the difference of the training times if that is precise enough, else the
mean. New versions print the time of the last step.
"""

from __future__ import annotations

import math

import numpy as np

from stepwatch.readers.formats import CHECKPOINT
from stepwatch.readers.records import LONGEST_TIME_S, Records, pieces, rows_of
from stepwatch.readers.text.line import Line, lines_with_marks
from stepwatch.readers.text.line_format import LineFormat
from stepwatch.run import Evaluation, Fact, Floats, Ints, Levers, Timing, Traits
from stepwatch.units import DAY_S, HOUR_S, MINUTE_S

_KEYS = (
    "loss/train/total", "throughput/batches_per_sec", "throughput/samples_per_sec", "throughput/tokens_per_sec",
    "throughput/device/samples_per_sec", "throughput/device/mfu", "time/train", "time/val", "time/secs_per_step",
    "time/batch",
)  # fmt: skip
_VALUES = tuple(Line(f"Train {key}: {{value_{place}:float}}{{end}}") for place, key in enumerate(_KEYS))
_HEADS = tuple(
    Line(rf"[\[epoch={{epoch:int}}\]]\[{unit}={{{unit}:int}}[/{{last}}]\][:]{{end}}")
    for unit in ("batch", "sample", "token")
)
_EVAL_HEAD = Line(r"\[Eval batch={int}/{int}\] Eval on {any} data:")
_EVAL_LOSS = Line("Eval metrics/{any}{pad}CrossEntropy: {val_loss}{end}")
_SNIFFED = (
    *_VALUES, Line("Train throughput/device/batches_per_sec: {float}{end}"), Line("Train time/total: {float}{end}"),
)  # fmt: skip
_DTYPES = {"amp_bf16": "bfloat16", "amp_fp16": "float16", "fp32": "float32", "bf16": "bfloat16", "amp_fp8": "float8"}
# Lines of the configuration; durations count if they are in batches.
_SETTINGS = tuple(
    Line(f"{name}: {{{setting}:{kind}}}{unit}{{end}}")
    for name, setting, kind, unit in (
        ("max_seq_len", "block_size", "int", ""), ("d_model", "n_embd", "int", ""), ("n_heads", "n_head", "int", ""),
        ("n_layers", "n_layer", "int", ""), ("vocab_size", "vocab_size", "int", ""),
        ("device_train_microbatch_size", "batch_size", "int", ""),
        ("Train trainer/device_train_microbatch_size", "batch_size", "int", ""),
        ("global_train_batch_size", "global_train_batch_size", "int", ""), ("max_duration", "max_iters", "int", "[ba]"),
        ("eval_interval", "eval_interval", "int", "[ba]"),
    )
)  # fmt: skip
_UNIT_S = {"seconds": 1.0, "minutes": MINUTE_S, "days": DAY_S}
_UNITS = ("batch", "epoch", "sample", "token")
_HEAD, _ENDED, _HOUR = "head", "ended", "hour"
"""Tables: line, unit, epoch, number and last of each head; line and loss where evaluations end; the unit of times."""
_DIGIT = 1e-4  # all values have four decimals


class _Composer(LineFormat):
    def sniff(self, head: bytes) -> float:
        """The number of records: a third of their lines that show a speed, a time or a loss."""
        lines = lines_with_marks(head, (b"Train throughput/", b"Train time/", b"Train loss/train/total"))
        hits = sum(any(statement.fits(line) for statement in _SNIFFED) for line in lines)
        return float(-(-hits // 3))

    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        for place, key in enumerate(_KEYS):
            if f"value_{place}" in found:
                value = found[f"value_{place}"]
                shown = np.where(np.isfinite(value), value, np.inf if key == "loss/train/total" else np.nan)
                records.keep(key, lines, shown)
        for unit in ("batch", "sample", "token"):
            if unit in found:
                kind = _UNITS.index("epoch" if "epoch" in found else unit)
                records.keep(_HEAD, lines, kind, found.get("epoch", 1.0), found[unit], found.get("last", np.nan))

    def read_event(self, rest: str, prefix: str, number: int, records: Records) -> bool:
        loss = _EVAL_LOSS.find(rest)
        unit = next((unit for unit in _UNIT_S if rest.startswith(f"Train time_{unit}/train: ")), None)
        if loss is not None or _EVAL_HEAD.fits(rest):
            records.keep_row(_ENDED, number, loss.values()["val_loss"] if loss is not None else math.nan)
        elif unit is not None:
            records.keep_row(_HOUR, number, _UNIT_S[unit])
        elif any(statement.letters.decode() in rest for statement in _VALUES):
            records.add_unread(number, prefix + rest)
        else:
            return False
        return True

    def finish(self, first_line: int, records: Records) -> None:
        heads = records.take_columns(_HEAD, 5)
        hours = records.take_columns(_HOUR, 2)[1]
        values = {key: records.take_columns(key, 2) for key in _KEYS}
        if any(len(line) for line, _ in values.values()):
            starts = _starts(heads[0], [line for line, _ in values.values() if len(line)])
            table = {key: _column(starts, *values.pop(key)) for key in _KEYS}
            hour = float(hours[0]) if len(hours) else HOUR_S
            numbers = _numbers(starts, heads, table, hour, records)
            del heads  # there may be millions of lines
            _add(starts, table, numbers, hour, records)


# --- from lines to records --------------------------------------------------------------------------------------


def _starts(heads: np.ndarray, values: list[np.ndarray]) -> np.ndarray:
    """The first line of each record: its head or, without heads, the line of the key that always comes first."""
    first = min(values, key=lambda lines: float(lines[0]))
    before = first[: np.searchsorted(first, heads[0])] if len(heads) else first
    return np.concatenate((before, heads)) if len(before) else heads


def _column(starts: np.ndarray, lines: np.ndarray, values: np.ndarray) -> Floats:
    """The values of one key for all records; nan if missing."""
    if not len(lines):
        return np.broadcast_to(np.nan, len(starts))  # takes no memory
    column = np.full(len(starts), np.nan)
    for part in pieces(len(lines)):
        column[np.maximum(np.searchsorted(starts, lines[part], side="right") - 1, 0)] = values[part]
    return column


def _numbers(
    starts: np.ndarray, heads: list[np.ndarray], table: dict[str, Floats], hour: float, records: Records
) -> np.ndarray:
    """The batch number of each record: from its head, else from the time and the speed."""
    numbers = np.full(len(starts), np.nan)
    per_batch = 1.0, 1.0, _samples(table), _tokens(table)  # in the order of _UNITS
    for kind, unit in enumerate(per_batch):
        line, _, epoch, number, last = rows_of(heads, heads[1] == kind)
        rows = np.searchsorted(starts, line)
        numbers[rows] = np.rint(((epoch - 1) * np.nan_to_num(last) + number) / unit)
        if _UNITS[kind] != "epoch":
            planned = np.rint(last / unit)
            new = np.diff(planned, prepend=-1).astype(bool) | (np.diff(numbers[rows], prepend=0) < 0)
            for row in np.flatnonzero(new & np.isfinite(planned)).tolist():
                records.events.append(Fact(line=int(line[row]), name="max_iters", value=int(planned[row])))
    numbers = np.where(np.isnan(numbers), table["time/batch"] + 1, numbers)
    guessed = np.rint(table["time/train"] * hour * table["throughput/batches_per_sec"])
    numbers = np.where(np.isnan(numbers), guessed, numbers)
    unknown = np.isnan(numbers)
    numbers[unknown] = np.flatnonzero(unknown) + 1
    return np.asarray(np.maximum(numbers, 1).astype(np.int64))


def _samples(table: dict[str, Floats]) -> float:
    """Samples per batch: the roundest number that fits all records, since batches per second have few digits."""
    batches, samples = table["throughput/batches_per_sec"], table["throughput/samples_per_sec"]
    known = (batches > _DIGIT) & (samples > 0)
    if not known.any():
        return np.nan
    low = float(np.median(samples[known] / (batches[known] + _DIGIT / 2)))
    high = float(np.median(samples[known] / (batches[known] - _DIGIT / 2)))
    step = 1
    while np.ceil(low / (2 * step)) * 2 * step <= high and step < 1 << 30:
        step *= 2
    return max(float(np.ceil(low / step) * step), 1.0)


def _tokens(table: dict[str, Floats]) -> float:
    per_sample = table["throughput/tokens_per_sec"] / table["throughput/samples_per_sec"]
    return _samples(table) * float(np.nanmedian(per_sample)) if np.isfinite(per_sample).any() else np.nan


def _add(starts: np.ndarray, table: dict[str, Floats], numbers: np.ndarray, hour: float, records: Records) -> None:
    times = _times(table, numbers, hour)
    fits = (times > 0) & (times < LONGEST_TIME_S)
    columns = {
        "number": numbers, "line": starts, "time_s": times, "loss": table["loss/train/total"],
        "reported_mfu": table["throughput/device/mfu"], "reported_tokens_per_s": table["throughput/tokens_per_sec"],
    }  # fmt: skip
    records.add_rows(**dict(zip(columns, rows_of([*columns.values()], fits), strict=True)))
    del times, fits, columns
    ranks = table["throughput/samples_per_sec"] / table["throughput/device/samples_per_sec"]
    known = ranks[np.isfinite(ranks)]
    if len(known):
        count = int(np.rint(np.median(known)))
        records.events.append(Fact(line=int(starts[0]), name="world_size", value=max(count, 1)))
    # Tokens per batch, if the configuration, printed above each run, shows its samples and their length.
    stated = [fact for fact in records.events if isinstance(fact, Fact)]
    for batch in [fact for fact in stated if fact.name == "global_train_batch_size"]:
        near = min(
            (fact for fact in stated if fact.name == "block_size"),
            key=lambda fact: abs(fact.line - batch.line),
            default=None,
        )
        if near is not None:
            tokens = batch.value * near.value
            records.events.append(Fact(line=batch.line, name="tokens_per_iter", value=tokens, header=True))
    # Each evaluation belongs to the record above it; it took as long as the clock of evaluations advanced.
    spent = table["time/val"] * hour
    lines, losses = records.take_columns(_ENDED, 2)
    rows = np.searchsorted(starts, lines) - 1
    gained = np.append(np.diff(spent, append=np.nan), np.nan)  # nan if there is no record
    tooks, at = gained[np.where(rows < len(spent), rows, -1)].tolist(), np.append(numbers, 0)[rows].tolist()
    found: dict[int, Evaluation] = {}
    told = zip(lines.tolist(), losses.tolist(), rows.tolist(), tooks, at, strict=True)
    for line, val_loss, row, took, number in told:
        before, loss = found.get(row), None if math.isnan(val_loss) else val_loss
        if before is None:
            found[row] = Evaluation(line, int(number), None, loss, took if took > 0 else None)
        elif before.val_loss is None:
            found[row] = Evaluation(*before[:3], loss, before.took_s)
    records.events.extend(found.values())


def _times(table: dict[str, Floats], numbers: np.ndarray, hour: float) -> Floats:
    """Seconds per batch since the previous record, by the most precise clock."""
    trained = table["time/train"] * hour
    span = np.diff(trained, prepend=np.nan)
    steps = np.diff(numbers, prepend=0).astype(np.float64)
    if numbers[0] == 1:
        span[0] = trained[0]
    steps[steps <= 0] = np.nan
    between = span / steps
    coarse = ~(span * 0.01 > _DIGIT * hour)  # the last digit must be less than a hundredth of a figure
    # The mean of the last batches; from samples, which have more digits, if batches have too few.
    batches, samples = table["throughput/batches_per_sec"], table["throughput/samples_per_sec"]
    with np.errstate(divide="ignore", invalid="ignore"):
        by_samples = _samples(table) / samples
        few = ~(batches * 0.01 > _DIGIT)
        recent = np.where(few & np.isfinite(by_samples), by_samples, 1 / batches)
    recent = np.where(recent > 0, recent, np.nan)
    own = np.where(steps == 1, table["time/secs_per_step"], np.nan)
    early = ~np.isfinite(recent) & coarse & np.isfinite(trained) & (np.arange(len(numbers)) > 0)
    if early.any():  # before the mean of the last batches is printed, use the mean of all of these
        rows = np.flatnonzero(early)
        begin = max(int(rows[0]) - 1, 0)
        spent, count = trained[rows[-1]] - trained[begin], numbers[rows[-1]] - numbers[begin]
        between[early] = spent / count if count > 0 else np.nan
        coarse = coarse & ~early
    best = np.where(coarse, np.where(np.isfinite(recent), recent, between), between)
    best = np.where(np.isfinite(best), best, recent)
    best = np.where(np.isfinite(own) & (own > 0), own, best)
    return np.where(np.isfinite(best) & (best > 0), best, table["time/secs_per_step"])


FORMAT = _Composer(
    name="composer",
    timing=Timing.SPANS_LOG_INTERVAL,
    holds=frozenset({CHECKPOINT}),
    traits=Traits(may_evaluate=True, levers=Levers(
        evaluate_every="eval_interval", evaluation_batches="eval_subset_num_batches", save_every="save_interval",
        other_units=True, batch="device_train_microbatch_size", accumulates=True, log_every="console_log_interval",
        precision="precision: amp_bf16",
    )),
    iterations=(*_VALUES, *_HEADS),
    settings=(
        *_SETTINGS, *(Line(f"precision: {name}{{end}}", sets={"dtype": dtype}) for name, dtype in _DTYPES.items())
    ),
    own=(_EVAL_HEAD, _EVAL_LOSS, Line("Train time_")),
)  # fmt: skip
READER = FORMAT.reader()
