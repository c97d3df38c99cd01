"""Keras 2 and 3: the last line of an epoch, from the progress bar or from verbose=2.

What stands behind the bar is an average over the epoch, rounded to a whole number, and holds the validation. The bar
may leave the epoch's first step out of it; elapsed time has it, so the first step is what the one has beyond the other.
That of a fit is told apart, those of later epochs are in their mean, which is what both figures allow.
Numbers count steps over all epochs. Versions before TensorFlow 2.2 count samples where all data is handed over at
once: the first drawing of a bar then tells the batch, and with it the steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.columns import Block, Template, numbers_behind
from stepwatch.readers.lines import SURROUNDINGS, read_lines, read_surroundings
from stepwatch.readers.prefixes import behind_prefix
from stepwatch.readers.reader import BOTH, Reader
from stepwatch.readers.records import Records
from stepwatch.readers.stamps import stamp_of, strip_prefix
from stepwatch.readers.words import Words
from stepwatch.run import Checkpoint, Evaluation, Fact, Floats, Timing, Traits

_FINAL = Pattern(
    r"\s*(?P<total>\d{1,9})/(?P=total)\s+(?:\[[=>.\s]{5,80}\](?:\s*-)?|\u2501{2,80}|-)\s*(?P<elapsed>\d{1,9})s\b"
    r"(?P<rest>(?:\s+(?:-\s+)?(?P<time>[\d.]{1,12})(?P<unit>us|\u00b5s|ms|s)/(?:step|sample))?.*)"
)
_AT_THE_END = Pattern(r" - (?P<time>[\d.]{1,12})(?P<unit>us|\u00b5s|ms|s)/(?:step|sample)\b")
_LOSS = Pattern(r"(?<![\w.])loss: (?P<value>[-+]?(?:[\d.]+(?:e[-+]?\d+)?|nan|inf))")
_VAL_LOSS = Pattern(r"(?<![\w.])val_loss: (?P<value>[-+]?(?:[\d.]+(?:e[-+]?\d+)?|nan|inf))")
_EPOCH = Pattern(r"Epoch (?P<epoch>\d{1,9})/(?P<last>\d{1,9})\s*$")
_SAVE = Pattern(r"Epoch (?P<epoch>\d{1,9}): .{0,300}?\bsaving model to ")
_SAMPLES = Pattern(r"Train on (?P<count>\d{1,9}) samples\b")
_PARAMETERS = Pattern(r"Total params: (?P<count>[\d,]{1,20})")
_NEARLY = Pattern(r"\s*(?P<total>\d{1,9})/(?P=total)\s(?!.{0,100}\bETA: ).{0,200}loss: ")  # with ETA, in progress
_WORDS = Words((b"s/step", b"/sample", b"Epoch ", b"loss: ", b"Total params", b"Train on ", *SURROUNDINGS))
_PER_SAMPLE = b"s/sample"
_FULL_BAR = Pattern(rb"\b(\d{1,9})/\1 (?:\[=|\xe2\x94\x81|- )")
_UNITS = {"us": 1e-6, "\u00b5s": 1e-6, "ms": 1e-3, "s": 1.0}
_PROGRESS = Template("{ }{n}/{total} {**}")
_USUAL = tuple(
    (Template("{ }{n}/{total}" + shape), unit)
    for shape, unit in (
        (" {*} {elapsed}s {time}ms/step{**}", 1e-3), (" {*} - {elapsed}s {time}ms/step{**}", 1e-3),
        (" - {elapsed}s - {time}ms/step{**}", 1e-3), (" {*} {elapsed}s {time}s/step{**}", 1.0),
    )
)  # fmt: skip
_FIGURE = Pattern(r"(?<= )[-+]?\d\S*")
_SEARCHED = 1 << 16  # bytes; an epoch that is longer has few last lines
_HEADER = Template("Epoch {epoch}/{last}")
_SAVES, _OF_SAMPLES, _DRAWN = "save", "samples", "drawn"
_MOST_SNIFFED = 60
_LONGEST_LINE = 4000
_LONGEST_TIME_S = 1e9
_LEAST_STEPS = 10.0  # of a first step, to be told apart
_HALF_SECOND = 0.5  # what the elapsed time does not show


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
    """The lines above epochs."""

    line: np.ndarray
    epoch: np.ndarray
    last: np.ndarray


def sniff(head: bytes) -> float:
    """How many last lines of epochs: a bar that is not full is no iteration."""
    hits = begin = 0
    while hits < _MOST_SNIFFED:
        found = _FULL_BAR.search(head, begin)
        if found is None:
            break
        start, end = head.rfind(b"\n", 0, found.start()) + 1, head.find(b"\n", found.end())
        end = len(head) if end < 0 else end
        line = head[start:end][:_LONGEST_LINE].decode("utf-8", "replace")
        hits += _final(strip_prefix(line)[0]) is not None
        begin = end
    return float(hits)


def _final(rest: str) -> dict[str, float] | None:
    """The figures of a last line; None where it is another."""
    found = _FINAL.match(rest)
    loss = _LOSS.search(rest) if found else None
    if found is None or loss is None:
        return None
    timed = found if found["time"] else _AT_THE_END.search(found["rest"])
    total, elapsed, val_loss = float(found["total"]), float(found["elapsed"]), _VAL_LOSS.search(rest)
    try:
        unit = _UNITS[timed["unit"]] if timed else 1 / max(total, 1.0)
        time = float(timed["time"]) * unit if timed else elapsed * unit
        losses = float(loss["value"]), float(val_loss["value"]) if val_loss else None
    except ValueError:  # two points
        return None
    if total <= 0 or time > _LONGEST_TIME_S:
        return None
    values = {"total": total, "elapsed_s": elapsed, "time_s": time, "unit_s": unit, "loss": _shown(losses[0])}
    return values | {"val_loss": np.nan if losses[1] is None else _shown(losses[1])}


def _shown(loss: float) -> float:
    """Nan is what was not printed."""
    return loss if np.isfinite(loss) else np.inf


# --- reading ----------------------------------------------------------------------------------------------------


def parse(text: bytes, first_line: int, records: Records) -> None:
    whole = Block.of(text)
    left = np.flatnonzero(whole.ends > whole.starts)
    block, stamps = behind_prefix(text, whole, left)
    clocks = np.broadcast_to(np.nan, len(block.starts)) if stamps is None else stamps
    lines, found = _HEADER.match(block, left)
    if len(lines):
        records.kept.append(_Epochs(lines + first_line, found["epoch"], found["last"]))
        left = block.without(left, lines)
    left = _keep_alike(text, block, clocks, left, first_line, records)
    progress, found = _PROGRESS.match(block, left)
    full = found["n"] == found["total"]
    _keep_first_drawings(progress + first_line, found, records)
    if _PER_SAMPLE in block.letters(text, left):
        records.keep_row(_OF_SAMPLES, first_line, 0.0)
    left, ended = block.without(left, progress), progress[full]
    for template, unit in _USUAL:
        ended = _keep_usual(block, clocks, *template.match(block, ended), unit, ended, first_line, records)
    left = np.sort(np.concatenate((left, ended)))
    read_lines(_read, _WORDS, text, whole, left, first_line, records)


def _keep_first_drawings(lines: np.ndarray, found: dict[str, np.ndarray], records: Records) -> None:
    """Of each bar the first two drawings: line, position and total. Where a block begins may be more of a bar."""
    going = np.flatnonzero(found["n"] < found["total"])
    n, total = found["n"][going], found["total"][going]
    first = np.flatnonzero(np.diff(n, prepend=np.inf) <= 0)
    some = np.union1d(first, np.minimum(first + 1, len(n) - 1)) if len(n) else first
    if len(some):
        records.keep(_DRAWN, lines[going[some]], n[some], total[some])


def _keep_alike(
    text: bytes, block: Block, clocks: Floats, left: np.ndarray, first_line: int, records: Records
) -> np.ndarray:
    """Keeps the last lines of epochs that have the shape of the first; the lines that are left."""
    full = _FULL_BAR.search(text[:_SEARCHED])
    if full is None:
        return left
    model = int(np.searchsorted(block.starts, full.start(), side="right")) - 1
    line = text[block.starts[model] : block.ends[model]][:_LONGEST_LINE].decode("utf-8", "replace")
    shape, unit = _shape(line)
    if not shape:
        return left
    lines, found = Template(shape).match(block, left)
    if _PER_SAMPLE.decode() in line:
        records.keep_row(_OF_SAMPLES, first_line, 0.0)
    found["total"] = np.broadcast_to(float(full[1]), len(lines))
    return _keep_usual(block, clocks, lines, found, unit, left, first_line, records)


def _shape(line: str) -> tuple[str, float]:
    """The shape of a last line, whose other figures are passed over, and the unit of its time; else nothing."""
    found = _FINAL.match(line)
    timed = found if found is None or found["time"] else _AT_THE_END.search(line)
    if found is None or timed is None or _final(line) is None:
        return "", 0.0
    spans = {found.span("elapsed"): "{elapsed}", timed.span("time"): "{time}"}
    for name, pattern in (("loss", _LOSS), ("val_loss", _VAL_LOSS)):
        told = pattern.search(line)
        spans |= {told.span("value"): f"{{{name}}}"} if told else {}
    shape, begin = line[: found.start("elapsed")].replace("{", "{{"), found.start("elapsed")
    for (start, end), field in sorted(spans.items()):
        shape += _passed(line[begin:start]) + field
        begin = end
    return shape + _passed(line[begin:]), _UNITS[timed["unit"]]


def _passed(letters: str) -> str:
    return _FIGURE.sub("{*}", letters.replace("{", "{{"))


def _keep_usual(
    block: Block, clocks: Floats, lines: np.ndarray, found: dict[str, np.ndarray], unit: float, left: np.ndarray,
    first_line: int, records: Records,
) -> np.ndarray:  # fmt: skip
    """Keeps the last lines of a usual shape; the lines that are left."""
    if not len(lines):
        return left
    total, elapsed, time = (found[name] for name in ("total", "elapsed", "time"))
    units, unknown = np.broadcast_to(unit, len(lines)), np.broadcast_to(np.nan, len(lines))
    if "loss" in found:
        loss, val_loss = found["loss"], found.get("val_loss", unknown)
    else:
        loss, val_loss = (numbers_behind(block, lines, name) for name in (b" loss: ", b" val_loss: "))
    fits = np.isfinite(loss) & ~np.isinf(val_loss) & (time > 0) & (total > 0)
    stamps = clocks[lines] if clocks.strides != (0,) else unknown
    finals = _Finals(lines + first_line, total, elapsed, time * unit, units, loss, val_loss, stamps)
    if not fits.all():
        finals, lines = _Finals(*(column[fits] for column in finals)), lines[fits]
    records.kept.append(finals)
    return block.without(left, lines)


def _read(line: str, number: int, records: Records) -> None:
    rest, prefix = strip_prefix(line)
    values = _final(rest)
    if values is not None:
        stamp = stamp_of(prefix)
        columns = {"line": number, **values, "stamp_s": np.nan if stamp is None else stamp}
        records.kept.append(_Finals(**{name: np.array([columns[name]]) for name in _Finals._fields}))
        return
    header, save, parameters = _EPOCH.match(rest), _SAVE.match(rest), _PARAMETERS.match(rest.strip())
    samples = _SAMPLES.match(rest)
    if header:
        told = np.array([number]), np.array([float(header["epoch"])]), np.array([float(header["last"])])
        records.kept.append(_Epochs(*told))
    elif save:
        records.keep_row(_SAVES, number, float(save["epoch"]))
    elif samples:
        records.keep_row(_OF_SAMPLES, number, float(samples["count"]))
    elif parameters:
        value = float(parameters["count"].replace(",", "") or 0)
        records.events.append(Fact(line=number, name="n_params", value=value))
    elif not read_surroundings(rest, number, records) and _NEARLY.match(rest):
        records.add_unread(number, line)


# --- from lines to epochs ---------------------------------------------------------------------------------------


def finish(first_line: int, records: Records) -> None:
    finals, epochs = _joined_finals(records.kept), _joined_epochs(records.kept)
    if len(finals.line):
        rows, epoch = _one_of_each(finals, epochs)
        if len(rows) < len(finals.line):
            finals = _Finals(*(column[rows] for column in finals))
        finals = _in_steps(finals, epochs, records)
        _add_facts(finals, epochs, records)
        _add_events(finals, epoch, records)
        _tell_lone_rows(finals, epoch, _add_rows(finals, epoch, records), epochs, records)
    records.kept.clear()
    for tables in (records.tables, records.table_rows):
        for name in (_SAVES, _OF_SAMPLES, _DRAWN):
            tables.pop(name, None)


def _joined_finals(kept: list[object]) -> _Finals:
    return _Finals(*_joined([part for part in kept if isinstance(part, _Finals)], len(_Finals._fields)))


def _joined_epochs(kept: list[object]) -> _Epochs:
    return _Epochs(*_joined([part for part in kept if isinstance(part, _Epochs)], len(_Epochs._fields)))


def _joined(parts: Sequence[tuple[np.ndarray, ...]], width: int) -> list[np.ndarray]:
    if not parts:
        return [np.empty(0)] * width
    return _by_line([_whole(column) for column in zip(*parts, strict=True)])


def _whole(parts: Sequence[np.ndarray]) -> np.ndarray:
    """The parts of a column; where it is the same throughout, as the length of an epoch, without the memory for it."""
    parts = [part for part in parts if len(part)] or parts[:1]
    alike = all(part.strides == (0,) for part in parts) and len({str(part[:1]) for part in parts}) == 1
    if alike and len(parts[0]):
        return np.broadcast_to(parts[0][:1], sum(map(len, parts)))
    return np.concatenate(parts)


def _by_line(columns: list[np.ndarray]) -> list[np.ndarray]:
    """In the order of the first column, the line; mostly they are."""
    if bool((columns[0][1:] >= columns[0][:-1]).all()):
        return columns
    order = np.argsort(columns[0], kind="stable")
    return [column[order] for column in columns]


def _one_of_each(finals: _Finals, epochs: _Epochs) -> tuple[np.ndarray, np.ndarray]:
    """The line that ends each epoch, and the number of that epoch.

    Under a header the first bar is that of the fit; bars of other lengths, and later ones, are of evaluate and predict.
    """
    if _by_turns(epochs.line, finals.line) and not (finals.elapsed_s == 0).any():
        return np.arange(len(finals.line)), epochs.epoch.astype(np.int64)
    above = np.searchsorted(epochs.line, finals.line) - 1
    # A bar that is full before the validation tells what is left, 0 s, and is written again behind it.
    again = finals.elapsed_s == 0
    if again.any():
        again &= finals.time_s * finals.total >= 1
        again[:-1] &= (above[1:] == above[:-1]) & (finals.total[1:] == finals.total[:-1])
        again[-1:] = False
    rows = np.flatnonzero(~again)
    headed = rows[above[rows] >= 0]
    headed = headed[np.diff(above[headed], prepend=-1) > 0]
    bare = rows[above[rows] < 0]
    if len(bare):
        totals, counts = np.unique(finals.total[bare], return_counts=True)
        bare = bare[finals.total[bare] == totals[np.argmax(counts)]]
    begin = int(epochs.epoch[0]) - len(bare) if len(epochs.line) and epochs.epoch[0] > len(bare) else 1
    numbers = np.concatenate((begin + np.arange(len(bare)), epochs.epoch[above[headed]]))
    return np.concatenate((bare, headed)), numbers.astype(np.int64)


def _by_turns(some: np.ndarray, others: np.ndarray) -> bool:
    """Whether each of the others follows on one of some, as most logs have it."""
    return len(some) == len(others) and bool((some < others).all()) and bool((others[:-1] < some[1:]).all())


def _fits(finals: _Finals, epochs: _Epochs) -> np.ndarray:
    """For each epoch's last line the fit that it is of, counted by the headers that begin one."""
    return np.searchsorted(epochs.line[epochs.epoch == 1], finals.line)


def _in_steps(finals: _Finals, epochs: _Epochs, records: Records) -> _Finals:
    """Epochs that count samples, by the batch that the log shows, as epochs of steps; else they stay as they are."""
    told = records.table(_OF_SAMPLES, 2)[:, 1]
    if not len(told):
        return finals
    counts = np.isin(finals.total, told) | (told == 0).any()
    batch = np.where(counts, _batches(finals, epochs, records.table(_DRAWN, 3)), np.nan)
    for row in np.flatnonzero(counts & (np.nan_to_num(np.diff(batch, prepend=-1), nan=1) != 0)).tolist():
        name, value = ("samples", True) if np.isnan(batch[row]) else ("batch_size", int(batch[row]))
        records.events.append(Fact(line=int(finals.line[row]), name=name, value=value))
    steps = np.where(np.isnan(batch), finals.total, np.ceil(finals.total / batch))
    longer = finals.total / steps
    return finals._replace(total=steps, time_s=finals.time_s * longer, unit_s=finals.unit_s * longer)


def _batches(finals: _Finals, epochs: _Epochs, drawn: np.ndarray) -> np.ndarray:
    """The batch of each epoch's fit: where its first bar begins, if the next drawing is a whole number of batches."""
    above = np.searchsorted(epochs.line, finals.line) - 1
    begun = np.where(above >= 0, np.append(epochs.line, -1)[above], -1)
    place = np.searchsorted(drawn[:, 0], begun)
    whole = np.concatenate((drawn, np.full((2, 3), np.inf)))
    (_, first, total), (line, second, _) = whole[place].T, whole[place + 1].T
    with np.errstate(invalid="ignore"):
        known = (line < finals.line) & (total == finals.total) & (second > first) & (second % first == 0) & (first > 0)
    begins = np.flatnonzero(np.diff(_fits(finals, epochs), prepend=-1))
    rows = np.minimum.reduceat(np.where(known, np.arange(len(line)), len(line)), begins)
    return np.repeat(np.append(first, np.nan)[rows], np.diff(begins, append=len(line)))


def _add_facts(finals: _Finals, epochs: _Epochs, records: Records) -> None:
    """A header that does not count on from the one before it begins a fit."""
    begins = np.flatnonzero(np.diff(epochs.epoch, prepend=np.inf) <= 0)
    lines = epochs.line[begins]
    total = finals.total[np.minimum(np.searchsorted(finals.line, lines), len(finals.line) - 1)]
    told = lines.astype(np.int64), (epochs.last[begins] * total).astype(np.int64), epochs.epoch[begins] == 1
    records.events += [
        Fact(line=line, name="max_iters", value=value, header=header)
        for line, value, header in zip(*(column.tolist() for column in told), strict=True)
    ]


def _add_events(finals: _Finals, epoch: np.ndarray, records: Records) -> None:
    at = (epoch * finals.total).astype(np.int64)
    rows = ~np.isnan(finals.val_loss)
    told_by = (finals.line.astype(np.int64), at, finals.val_loss, finals.stamp_s)
    lines, numbers, losses, stamps = told_by if rows.all() else (column[rows] for column in told_by)
    unknown = np.isnan(stamps)
    told: Iterable[float | None] = repeat(None)
    if not unknown.all():
        told = [None if nan else stamp for stamp, nan in zip(stamps.tolist(), unknown.tolist(), strict=True)]
    # One for each epoch, which may be all that the log has: made without a call for each.
    columns = zip(lines.tolist(), numbers.tolist(), repeat(None), losses.tolist(), repeat(None), told, strict=False)
    records.events += map(tuple.__new__, repeat(Evaluation), columns)
    lines, epochs = records.table(_SAVES, 2).T
    after = np.minimum(np.searchsorted(finals.line, lines), len(finals.line) - 1)
    saved = lines.astype(np.int64).tolist(), (epochs * finals.total[after]).astype(np.int64).tolist()
    saves = zip(*saved, repeat(False), repeat(None), repeat(None), strict=False)
    records.events += map(tuple.__new__, repeat(Checkpoint), saves)


def _add_rows(finals: _Finals, epoch: np.ndarray, records: Records) -> np.ndarray:
    """A row for each epoch, and one for the first step of a fit where that took notably long; which epochs have one.

    The first step of a later epoch fills the pipeline again, as each epoch does: it is part of their mean.
    """
    total, elapsed, time, unit = _figures(finals)
    first = elapsed - time * (total - 1)
    doubt = _HALF_SECOND + unit / 2 * (total - 1)
    slow = (np.diff(epoch, prepend=epoch[0]) != 1) & (total > 1) & (first > 2 * doubt) & (first > _LEAST_STEPS * time)
    time = np.where(slow, time, _means(finals))
    slow = np.flatnonzero(slow)
    columns = [finals.line.astype(np.int64), (epoch * total).astype(np.int64), time, finals.loss, finals.stamp_s]
    if len(slow):  # a first step stands before its epoch
        began = ((epoch[slow] - 1) * finals.total[slow]).astype(np.int64) + 1
        unknown = np.full(len(slow), np.nan)
        firsts = (columns[0][slow], began, first[slow], unknown, unknown)
        columns = _by_line([np.concatenate(pair) for pair in zip(firsts, columns, strict=True)])
    named = dict(zip(("line", "number", "time_s", "loss", "stamp_s"), columns, strict=True))
    if np.isnan(finals.stamp_s).all():
        del named["stamp_s"]
    records.add_rows(**named)
    return slow


def _tell_lone_rows(
    finals: _Finals, epoch: np.ndarray, with_first: np.ndarray, epochs: _Epochs, records: Records
) -> None:
    """A fit of which there is one row is told how many steps that row is about: no distance to another shows it."""
    fit = _fits(finals, epochs)
    alone = np.diff(fit, prepend=-1) != 0
    alone &= np.diff(fit, append=fit[-1] + 1) != 0
    alone[with_first] = False
    for row in np.flatnonzero(alone).tolist():
        whole = epoch[row] == 1
        name, value = ("mean_of_run", 1) if whole else ("log_interval", int(finals.total[row]))
        records.events.append(Fact(line=int(finals.line[row]), name=name, value=value))


def _figures(finals: _Finals) -> tuple[np.ndarray, ...]:
    """Total, elapsed, time and unit, those that are the same throughout as one number."""
    columns = (finals.total, finals.elapsed_s, finals.time_s, finals.unit_s)
    return tuple(column[0] if column.strides == (0,) else column for column in columns)


def _means(finals: _Finals) -> np.ndarray:
    """The mean of each epoch's steps, the first among them: what both printed figures allow, by the finer of the two.

    The time per step may leave out the first step, of which only is known that it took no less than nothing.
    """
    total, elapsed, time, unit = _figures(finals)
    mean, half = elapsed / total, _HALF_SECOND / total
    least, most = (time - unit / 2) * (total - 1) / total, time + unit / 2
    finer = np.where(unit / 2 < half, time, mean)
    both = np.clip(finer, np.maximum(least, mean - half), np.minimum(most, mean + half))
    later = np.where(most < mean - half, mean, both)  # some of the first step is not in the time per step
    return np.where(least > mean + half, time, later)  # what looks like elapsed time is what was left


READER = Reader(
    name="keras", timing=Timing.SPANS_LOG_INTERVAL, holds=BOTH,
    about=Message(
        "The mean over an epoch, rounded, with its validation and its checkpoint; the bar leaves out the epoch's first "
        "step, which is what elapsed time has beyond it. Only the last line of an epoch counts."
    ),
    example="""\
Epoch 1/3
500/500 \u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501 71s 96ms/step - loss: 5.1204 - val_loss: 4.4310
Epoch 2/3
500/500 \u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501 46s 91ms/step - loss: 4.2087 - val_loss: 4.1175""",
    sniff=sniff, parse=parse, finish=finish, traits=Traits(rounds_times=True),
)  # fmt: skip
