"""Keras 2 and 3: the last line of an epoch, from the progress bar or from verbose=2.

What follows the bar is an average over the epoch, rounded to a whole number, that includes the validation. If the bar
was also drawn before the validation, the validation is what the last drawing adds. The bar may leave the epoch's first
step out of the average, but elapsed time includes it: the first step is the difference of the two. The first step of a
fit becomes a separate row; those of later epochs stay in their mean, which is what both figures allow. If all of the
first epoch was slow, due to compilation and the first validation, it is one row.
Numbers count steps over all epochs. Versions before TensorFlow 2.2 count samples if all data is passed at once: the
first drawing of a bar then shows the batch size, and thus the steps.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from stepwatch.patterns import Pattern
from stepwatch.readers.formats import BOTH
from stepwatch.readers.formats.running import WHOLE_SECONDS, as_slice
from stepwatch.readers.records import LONGEST_TIME_S, OTHER_PROGRAM, Kinds, Records, pieces, rows_of
from stepwatch.readers.text.block import Block, Floats, Ints
from stepwatch.readers.text.line import LONGEST_LINE, MOST_SNIFFED, Line, strip_prefix
from stepwatch.readers.text.line_format import Kept, LineFormat
from stepwatch.readers.text.shape import alike
from stepwatch.run import Checkpoint, Evaluation, Fact, Levers, Run, Timing, Traits, repeated

_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "\u00b5s": 1e-6}
_FINAL = Line(
    "{pad}{n:int}/{total:int}  {drawing}{pad}{whole_s:int}s",
    "loss: {loss}",
    "val_loss: {val_loss}",
    *(f" {{mean_{place}:figure}}{unit}/<step;sample>" for place, unit in enumerate(_UNITS)),
    needs=("loss",),
)
_DRAWN_BAR = Line("{pad}{n:int}/{total:int} {rest}")
_NEARLY = Line("{pad}{n:int}/{total:int} {any}loss: ")
_EPOCH = Line("Epoch {epoch:int}/{last}{end}")
_SAVE = Line("Epoch {epoch:int}: {any}saving model to ")
_SAMPLES = Line("Train on {count:int} samples")
_PER_SAMPLE = b"s/sample"
_BAR_OF = Pattern(rb"/(\d{1,9}) (?:\[=|\xe2\x94\x81|- )")
_NUMBER_BEFORE = Pattern(rb"\b(\d{1,9})\Z")
_SAVES, _OF_SAMPLES, _DRAWN, _HEADERS, _FINALS, _LATE = "save", "samples", "drawn", "epochs", "finals", "late"
_FULL = "full"
_NEARLY_ALL = 0.95  # of an epoch: its mean is known by then


class _Finals(NamedTuple):
    """The last lines of epochs, as columns."""

    line: np.ndarray
    total: np.ndarray
    elapsed_s: np.ndarray
    time_s: np.ndarray
    unit_s: np.ndarray
    """The last digit of the time."""
    loss: np.ndarray
    val_loss: np.ndarray
    stamp_s: np.ndarray


class _Epochs(NamedTuple):
    """The header lines of epochs."""

    line: np.ndarray
    epoch: np.ndarray
    last: np.ndarray


# --- reading ----------------------------------------------------------------------------------------------------


class _Keras(LineFormat):
    def sniff(self, head: bytes) -> float:
        """How many last lines of epochs there are: a bar that is not full is not an iteration."""
        hits = begin = 0
        for found in _BAR_OF.finditer(head):
            number = _NUMBER_BEFORE.search(head[max(found.start() - 10, 0) : found.start()])
            if found.start() < begin or number is None or number[1] != found[1]:
                continue
            start, end = head.rfind(b"\n", 0, found.start()) + 1, head.find(b"\n", found.end())
            begin = end if end >= 0 else len(head)
            hits += _FINAL.fits(strip_prefix(head[start:begin][:LONGEST_LINE].decode("utf-8", "replace"))[0])
            if hits == MOST_SNIFFED:
                break
        return float(hits)

    def read_block(self, block: Block, left: Ints, numbers: np.ndarray, records: Records) -> None:
        if _PER_SAMPLE in block.text:
            records.keep_row(_OF_SAMPLES, numbers[0], 0.0)
        for _, lines, found in alike(block, left, (_DRAWN_BAR,)):
            going = found["n"] != found["total"]
            records.keep(_FULL, numbers[lines[~going]])
            lines, n, total = lines[going], found["n"][going], found["total"][going]
            # The first two drawings of each bar; the beginning of a block may continue a bar.
            first = np.flatnonzero(np.diff(n, prepend=np.inf) <= 0)
            if len(first):
                some = np.union1d(first, np.minimum(first + 1, len(n) - 1))
                records.keep(_DRAWN, numbers[lines[some]], n[some], total[some])
            left = block.without(left, lines[n < _NEARLY_ALL * total])
        super().read_block(block, left, numbers, records)

    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        total, elapsed = found["total"], found["whole_s"]
        unknown = np.full(len(lines), np.nan)
        time, unit = elapsed / np.maximum(total, 1.0), 1 / np.maximum(total, 1.0)
        for place, scale in enumerate(_UNITS.values()):
            if f"mean_{place}" in found:  # else elapsed time divided by the steps
                time, unit = found[f"mean_{place}"] * scale, np.full(len(lines), scale)
                break
        val_loss = np.where(np.isnan(found["val_loss"]), np.inf, found["val_loss"]) if "val_loss" in found else unknown
        known = (total > 0) & (time <= LONGEST_TIME_S)
        fits = known & (found["n"] == total)
        late = known & (found["n"] < total) & (found["n"] >= _NEARLY_ALL * total)
        if late.any():
            records.keep(_LATE, lines[late], total[late], time[late], unit[late])
        if fits.any():
            finals = _Finals(lines, total, elapsed, time, unit, found["loss"], val_loss, found.get("stamp_s", unknown))
            records.keep(_FINALS, *(column[fits] for column in finals))

    def read_settings(self, rest: str, line: str, number: int, records: Records) -> bool:
        nearly = _NEARLY.find(rest) if "ETA: " not in rest else None
        if nearly is None or nearly.texts["n"] != nearly.texts["total"]:
            return super().read_settings(rest, line, number, records)
        records.add_unread(number, line)
        return True

    def finish(self, first_line: int, records: Records) -> None:
        finals = _Finals(*records.take_columns(_FINALS, len(_Finals._fields)))
        epochs = _Epochs(*records.take_columns(_HEADERS, len(_Epochs._fields)))
        late = records.take_table(_LATE, 4)
        if len(finals.line):
            bare = np.isnan(finals.val_loss)
            shown = (finals.line, finals.total, finals.time_s, finals.unit_s)
            late = np.concatenate((late, np.stack([column[bare] for column in shown], axis=1)))
            own_rows, epoch = _one_of_each(finals, epochs)
            rows = as_slice(own_rows)
            del own_rows
            (full,) = records.take_columns(_FULL, 1)
            if not np.array_equal(full, finals.line):  # there may be millions
                full = np.union1d(finals.line, full)
            # If a full bar of evaluate or predict follows the last epoch of a fit, that fit has returned.
            own, begins = finals.line[rows], epochs.line[epochs.epoch == 1]
            ends = np.append(begins[1:], np.inf)[: len(begins)]
            last = np.append(own, -1)[np.searchsorted(own, ends) - 1]
            behind = np.append(full, np.inf)[np.searchsorted(full, last, side="right")]
            header = epochs.line[np.searchsorted(epochs.line, ends) - 1]
            returned = (last > begins) & (behind < ends) & (header < last)  # no other epoch has begun
            for line in behind[returned].astype(np.int64).tolist():
                records.events += [Fact(line, name, True) for name in ("ended", OTHER_PROGRAM)]
            del full, own
            finals = _Finals(*(column[rows] for column in finals))
            took_s = _validations(finals, late[np.argsort(late[:, 0], kind="stable")], records.table(_SAVES, 2)[:, 0])
            if not np.isnan(took_s).all():
                shorter = np.where(np.isnan(took_s), 0.0, took_s)
                time_s = finals.time_s - shorter / np.maximum(finals.total - 1, 1)
                finals = finals._replace(elapsed_s=finals.elapsed_s - shorter, time_s=time_s)
            finals = _in_steps(finals, epochs, records)
            # A header whose epoch does not follow the previous one begins a fit.
            begins = np.flatnonzero(np.diff(epochs.epoch, prepend=np.inf) <= 0)
            lines = epochs.line[begins]
            total = finals.total[np.minimum(np.searchsorted(finals.line, lines), len(finals.line) - 1)]
            planned = epochs.last[begins].astype(np.float64) * total  # may need more than four bytes
            stated = lines.astype(np.int64), planned.astype(np.int64), epochs.epoch[begins] == 1
            records.events += [
                Fact(line=line, name="max_iters", value=value, header=header)
                for line, value, header in zip(*(column.tolist() for column in stated), strict=True)
            ]
            _add_events(finals, epoch, took_s, records)
            with_first = _add_rows(finals, epoch, records)
            # For a fit with a single row, state how many steps it covers: no distance to another row shows it.
            edges = np.searchsorted(finals.line, epochs.line[epochs.epoch == 1])
            edges = np.concatenate(([0], edges, [len(finals.line)]))
            alone = edges[:-1][np.diff(edges) == 1]
            for row in sorted({*alone.tolist()}.difference(with_first.tolist())):
                whole = epoch[row] == 1
                name, value = ("mean_of_run", 1) if whole else ("log_interval", int(finals.total[row]))
                records.events.append(Fact(line=int(finals.line[row]), name=name, value=value))
        for name, width in ((_SAVES, 2), (_OF_SAMPLES, 2), (_DRAWN, 3), (_FULL, 1)):
            records.take_columns(name, width)


# --- from lines to epochs ---------------------------------------------------------------------------------------


def _one_of_each(finals: _Finals, epochs: _Epochs) -> tuple[np.ndarray, np.ndarray]:
    """The line that ends each epoch, and the number of that epoch.

    The first bar under a header is that of the fit; bars of other lengths, and later ones, are of evaluate and predict.
    """
    above = (np.searchsorted(epochs.line, finals.line) - 1).astype(np.int32)
    # A bar that is full before the validation shows the remaining time, 0 s, and is drawn again after it.
    again = finals.elapsed_s == 0
    if again.any():
        again &= finals.time_s * finals.total >= 1
        again[:-1] &= (above[1:] == above[:-1]) & (finals.total[1:] == finals.total[:-1])
        again[-1:] = False
    rows = np.flatnonzero(~again).astype(np.int32)
    headed = rows[above[rows] >= 0]
    headed = headed[np.diff(above[headed], prepend=-1) > 0]
    # The last epoch may have been interrupted: what is below its header is then of something else.
    fit = np.cumsum(np.diff(epochs.epoch, prepend=np.inf) <= 0, dtype=np.int32)[above[headed]]
    first = np.searchsorted(fit, fit).astype(np.int32)
    headed = headed[finals.total[headed] == finals.total[headed[first]]]
    del fit, first
    bare = rows[above[rows] < 0]
    if len(bare) and len(headed):  # epochs of the fit that continues below; others are of evaluate and predict
        bare = bare[finals.total[bare] == finals.total[headed[0]]]
    if len(bare):
        totals, counts = np.unique(finals.total[bare], return_counts=True)
        bare = bare[finals.total[bare] == totals[np.argmax(counts)]]
    begin = int(epochs.epoch[0]) - len(bare) if len(epochs.line) and epochs.epoch[0] > len(bare) else 1
    numbers = np.concatenate((begin + np.arange(len(bare)), epochs.epoch[above[headed]]))
    return np.concatenate((bare, headed)), numbers.astype(np.int64)


def _validations(finals: _Finals, late: np.ndarray, saves: np.ndarray) -> Floats:
    """How long each validation took: the epoch's last mean minus the previous one; nan if that is not shown.

    If an epoch saves, its last mean includes the checkpoint: its validation is assumed to be like the others.
    """
    if not len(late):
        return np.broadcast_to(np.nan, len(finals.line))
    evaluated = ~np.isnan(finals.val_loss)
    place = np.searchsorted(late[:, 0], finals.line) - 1
    rows = np.concatenate((late, [[-1.0, np.nan, np.nan, np.nan]]))[place]
    own = (rows[:, 0] > np.concatenate(([-1.0], finals.line[:-1]))) & (rows[:, 1] == finals.total) & evaluated
    beyond = np.where(own, finals.time_s - rows[:, 2], np.nan)
    known = own & (beyond > finals.unit_s)  # more than the last digits may hide
    if 2 * int(known.sum()) <= int(evaluated.sum()):
        return np.full(len(beyond), np.nan)
    took = np.where(known, beyond * (finals.total - 1), np.nan)
    alone = known & (np.diff(np.searchsorted(saves, finals.line), prepend=0) == 0)
    usual = np.median(took[alone] if alone.any() else took[known])
    return np.where(alone | (known & ~alone.any()), took, np.where(evaluated, usual, np.nan))


def _in_steps(finals: _Finals, epochs: _Epochs, records: Records) -> _Finals:
    """Converts epochs that count samples to steps, by the batch size that the log shows; else they stay as they are."""
    stated = records.table(_OF_SAMPLES, 2)[:, 1]
    if not len(stated):
        return finals
    counts = np.isin(finals.total, stated) | (stated == 0).any()
    batch = np.where(counts, _batches(finals, epochs, records.table(_DRAWN, 3)), np.nan)
    for row in np.flatnonzero(counts & (np.nan_to_num(np.diff(batch, prepend=-1), nan=1) != 0)).tolist():
        name, value = ("samples", True) if np.isnan(batch[row]) else ("batch_size", int(batch[row]))
        records.events.append(Fact(line=int(finals.line[row]), name=name, value=value))
    steps = np.where(np.isnan(batch), finals.total, np.ceil(finals.total / batch))
    longer = finals.total / steps
    return finals._replace(total=steps, time_s=finals.time_s * longer, unit_s=finals.unit_s * longer)


def _batches(finals: _Finals, epochs: _Epochs, drawn: np.ndarray) -> np.ndarray:
    """The batch size of each epoch's fit: the start of its first bar, if the next drawing is a multiple of it."""
    above = np.searchsorted(epochs.line, finals.line) - 1
    begun = np.where(above >= 0, np.append(epochs.line, -1)[above], -1)
    place = np.searchsorted(drawn[:, 0], begun)
    whole = np.concatenate((drawn, np.full((2, 3), np.inf)))
    (_, first, total), (line, second, _) = whole[place].T, whole[place + 1].T
    with np.errstate(invalid="ignore"):
        known = (line < finals.line) & (total == finals.total) & (second > first) & (second % first == 0) & (first > 0)
    begins = np.flatnonzero(np.diff(np.searchsorted(epochs.line[epochs.epoch == 1], finals.line), prepend=-1))
    rows = np.minimum.reduceat(np.where(known, np.arange(len(line)), len(line)), begins)
    return repeated(np.append(first, np.nan)[rows], np.diff(begins, append=len(line)))


def _add_events(finals: _Finals, epoch: np.ndarray, took_s: Floats, records: Records) -> None:
    at = (epoch * finals.total).astype(np.int64)
    columns = [finals.line, at, finals.val_loss, took_s, finals.stamp_s]
    line, *own = rows_of(columns, ~np.isnan(finals.val_loss))
    stated = dict(zip(("at", "val_loss", "took_s", "stamp_s"), own, strict=True))
    records.add_events(Evaluation, line.astype(np.int64), **stated)
    lines, epochs = records.table(_SAVES, 2).T
    after = np.minimum(np.searchsorted(finals.line, lines), len(finals.line) - 1)
    records.add_events(Checkpoint, lines.astype(np.int64), at=(epochs * finals.total[after]).astype(np.int64))


def _add_rows(finals: _Finals, epoch: np.ndarray, records: Records) -> np.ndarray:
    """Adds a row per epoch, and one for a fit's first step if that was notably slow; returns which epochs have one.

    The first step of a later epoch fills the pipeline again, as in each epoch: it is part of their mean.
    """
    begins = np.flatnonzero(np.diff(epoch, prepend=epoch[0]) != 1)
    total, elapsed, time, unit = (column[begins] for column in _rates(finals))
    first = elapsed - time * (total - 1)
    doubt = WHOLE_SECONDS + unit / 2 * (total - 1)
    notable = (total > 1) & (first > 2 * doubt) & (first > 10 * time)
    for place, (begin, end) in enumerate(pairwise([*begins.tolist(), len(epoch)])):
        if end > begin + 1 and time[place] > 1.1 * np.median(finals.time_s[begin + 1 : end]) + unit[place]:
            notable[place] = False  # this epoch is slow as a whole
    slow: np.ndarray = begins[notable]
    times = np.empty(len(epoch))
    for rows in pieces(len(epoch)):
        times[rows] = _means(*(column[rows] for column in _rates(finals)))
    times[slow] = finals.time_s[slow]
    columns = [
        finals.line.astype(np.int64),
        (epoch * finals.total).astype(np.int64),
        times,
        finals.loss,
        finals.stamp_s,
    ]
    if len(slow):  # a first step precedes its epoch
        began = ((epoch[slow] - 1) * finals.total[slow]).astype(np.int64) + 1
        unknown = np.full(len(slow), np.nan)
        firsts = (np.maximum(columns[0][slow] - 1, 0), began, first[notable], unknown, unknown)
        columns = [np.concatenate(pair) for pair in zip(firsts, columns, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        columns = [column[order] for column in columns]
    named = dict(zip(("line", "number", "time_s", "loss", "stamp_s"), columns, strict=True))
    if np.isnan(finals.stamp_s).all():
        del named["stamp_s"]
    records.add_rows(**named)
    return slow


def _rates(finals: _Finals) -> tuple[np.ndarray, ...]:
    return finals.total, finals.elapsed_s, finals.time_s, finals.unit_s


def _means(total: Floats, elapsed: Floats, time: Floats, unit: Floats) -> Floats:
    """The mean of each epoch's steps, including the first: what both printed figures allow, by the finer of the two.

    The time per step may leave out the first step, which is only known not to be negative.
    """
    mean, half = elapsed / total, WHOLE_SECONDS / total
    least, most = (time - unit / 2) * (total - 1) / total, time + unit / 2
    finer = np.where(unit / 2 < half, time, mean)
    both = np.clip(finer, np.maximum(least, mean - half), np.minimum(most, mean + half))
    later = np.where(most < mean - half, mean, both)  # the time per step leaves out part of the first step
    return np.where(least > mean + half, time, later)  # what looks like elapsed time is the remaining time


FORMAT = _Keras(
    name="keras",
    timing=Timing.SPANS_LOG_INTERVAL,
    holds=BOTH,
    iterations=(_FINAL,),
    settings=(Line("Total params: {n_params}"), Line("Epoch {int}: early stopping", sets={"ended": "by plan"})),
    tables=(
        Kept(_HEADERS, (_EPOCH,), ("epoch", "last")),
        Kept(_SAVES, (_SAVE,), ("epoch",)),
        Kept(_OF_SAMPLES, (_SAMPLES,), ("count",)),
    ),
    own=(_NEARLY,),
    traits=Traits(
        rounds_times=True,
        levers=Levers(
            evaluate_every="validation_freq",
            save_every="ModelCheckpoint(save_freq=…)",
            other_units=True,
            batch="batch_size",
            precision="keras.mixed_precision.set_global_policy('mixed_float16')",
            compile="jit_compile=True",
        ),
    ),
)


def _without_validation(run: Run, kinds: Kinds, records: Records) -> Run:
    """Marks the run as free of evaluations if all validations were subtracted from its times."""
    apart = bool(run.evaluations) and all(evaluation.took_s is not None for evaluation in run.evaluations)
    return replace(run, holds=run.holds - {"eval"}) if apart else run


READER = FORMAT.reader()._replace(complete=_without_validation)
