"""W&B's own file of a run, run-….wandb, which holds its history also where nothing was uploaded.

Every row of the history has the time at which it was logged, as the numbers of an event file have: it is read as those
are. Where no row shows steps, the console output that the file holds is read instead (reading.py).
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np

from stepwatch.messages import Message
from stepwatch.readers.formats.event_files import Scalars, Text
from stepwatch.readers.formats.recorder_run import with_inside
from stepwatch.readers.formats.tensorboard import EVALUATION, Events
from stepwatch.readers.formats.tracks import Tracks
from stepwatch.readers.formats.wandb import CARD, step_key
from stepwatch.readers.formats.wandb_records import Recorded, decode
from stepwatch.readers.reader import NOTHING, Reader
from stepwatch.readers.records import Records
from stepwatch.run import Evaluation, Fact, Floats, Ints, Run, Timing, Traits, UnreadLines, repeated
from stepwatch.settings import KINDS, Origin, Settings
from stepwatch.sources import is_wandb_file

_TIME, _ROW, _EPOCH = "_timestamp", "_step", "_epoch"
_EPOCHS = ("epochs", "num_epochs", "n_epochs", "max_epochs", "num_train_epochs")


def sniff(head: bytes) -> float:
    return math.inf if is_wandb_file(head) else 0.0  # nothing else begins like one


def parse(text: bytes, first_line: int, records: Records) -> None:
    records.kept.append(text)


def finish(first_line: int, records: Records) -> None:
    recorded = decode(_whole(records))
    for _ in range(recorded.damaged):
        records.add_unread(0, "a damaged record, or one that is cut off")
    add_history(recorded.history, recorded.config, recorded.started_s, records)
    records.events += facts_of(recorded)


def finish_epochs(first_line: int, records: Records) -> None:
    """Where neither the history nor the console output shows steps, an epoch is what can be timed."""
    recorded = decode(_whole(records))
    of_rows = _epochs(recorded.history)
    rows = [{**row, _EPOCH: epoch} for row, epoch in zip(recorded.history, of_rows, strict=False) if epoch is not None]
    if rows:
        begun = recorded.started_s if recorded.started_s is not None else math.nan
        events = Events(_scalars(rows, _EPOCH), [_settings(recorded.config, begun)])
        events.add_epochs(records, _planned(recorded.config))
        records.events += facts_of(recorded)


def _whole(records: Records) -> bytes:
    parts, records.kept = records.kept, []
    return b"".join(parts)


def console(data: bytes) -> tuple[bytes, list[Fact]]:
    """What the program printed, and what else the file shows of the run."""
    recorded = decode(data)
    settings = Events(_scalars([], ""), [_settings(recorded.config, 0.0)]).facts()
    return "".join(recorded.console).encode("utf-8", "replace"), settings + facts_of(recorded)


def completed(runs: tuple[Run, ...], facts: list[Fact]) -> tuple[Run, ...]:
    """Runs of the console output with what the file shows beside it; what the output says wins."""
    named = {fact.name: fact.value for fact in facts}
    told = Settings.of(Origin.LOG, {name: value for name, value in named.items() if name in KINDS})
    whole = []
    for run in runs:
        said = Settings(
            {name: each for name, each in run.settings.items() if each.origin is Origin.LOG or name == "log_interval"}
        )  # how far rows are apart is seen
        card = run.gpu_text or named.get("gpu_text")
        whole.append(replace(run, settings=run.settings.overridden_by(told).overridden_by(said), gpu_text=card))
    return tuple(whole)


def with_evaluations(run: Run, epochs: Run) -> Run:
    """A run of the console's bars with what the history's clock shows between them: an evaluation after each epoch."""
    number, times, last = run.iterations.number, run.iterations.time_s, len(epochs.iterations)
    steps, rest = divmod(int(number[-1]), last)
    evaluated = len(epochs.evaluations) == last and int(epochs.iterations.number[-1]) == last
    if run.evaluations or not evaluated or rest or number[0] > steps or (np.diff(number) <= 0).any():
        return run
    ends = steps * np.arange(1, last + 1)
    trained = np.interp(ends, number, np.cumsum(times * np.diff(number, prepend=0)))
    took = np.diff(epochs.iterations.stamp_s) - np.diff(trained)
    usual = float(np.median(took)) if len(took) else math.nan
    if not usual > 0:
        return run
    lines = run.iterations.line[np.searchsorted(number, ends)].tolist()
    costs = (usual, *np.maximum(took, 0.0).tolist())  # what precedes the first epoch is unknown
    found = zip(lines, ends.tolist(), costs, epochs.evaluations, strict=True)
    return replace(
        run, evaluations=tuple(Evaluation(line, at, val_loss=each.val_loss, took_s=s) for line, at, s, each in found)
    )


def counts_epochs(data: bytes) -> bool:
    """Whether a file's history has one row for each epoch."""
    recorded = decode(data)
    return _counts_epochs(recorded.history, recorded.config)


def facts_of(recorded: Recorded) -> list[Fact]:
    facts = []
    if recorded.cards and CARD.fullmatch(recorded.cards[0]):
        facts.append(Fact(0, "gpu_text", recorded.cards[0]))
    if len(recorded.cards) == 1:  # of several that are there, a run may use fewer
        facts.append(Fact(0, "world_size", 1))
    if recorded.exit_code == 0:
        facts.append(Fact(0, "ended", True))
    return facts


def add_history(
    history: list[dict[str, object]],
    config: dict[str, object],
    started_s: float | None,
    records: Records,
    first_line: int = 0,
) -> None:
    """The rows of a history: numbers by name, each row with its step and its time."""
    counter = step_key(_keys(history))
    if counter is None:
        counter = _ROW
        if _counts_epochs(history, config):
            return
    add_scalars(_scalars(history, counter), config, started_s, records, first_line)


def _keys(history: list[dict[str, object]]) -> list[str]:
    """All of them, as they first come; most rows have the same."""
    return [*dict.fromkeys(key for keys in dict.fromkeys(map(tuple, history)) for key in keys)]


def counts_by_steps(keys: Iterable[str], config: dict[str, object]) -> bool:
    """Whether it is clear without the rows that the number of a row is that of a step."""
    named = set(keys)
    plain = all(key.lower() != "epoch" and not key.startswith("_") for key in named)
    return plain and step_key(named) is None and _planned(config) is None


def add_scalars(
    tracks: Tracks, config: dict[str, object], started_s: float | None, records: Records, first_line: int = 0
) -> None:
    if tracks:
        begun = started_s if started_s is not None else min(float(track.wall_s[0]) for track in tracks.values())
        Events(tracks, [_settings(config, begun)], first_line).add_to(records)


def _counts_epochs(history: list[dict[str, object]], config: dict[str, object]) -> bool:
    """Whether there is one row for each epoch: how long a step takes cannot be known from them."""
    if _epochs(history):
        return True
    planned = _planned(config)
    if planned is None:
        return False
    named = {key for key in _keys(history) if "loss" in key.lower()}
    losses = [row for row in history if not named.isdisjoint(row)]
    if len(losses) > 1 and all(isinstance(row.get("epoch"), (int, float)) for row in losses):
        return False
    last = losses[-1].get(_ROW) if losses else None
    return isinstance(last, (int, float)) and last <= planned


def _planned(config: dict[str, object]) -> int | None:
    """How many epochs the configuration asks for."""
    planned = (config[name] for name in _EPOCHS if isinstance(config.get(name), (int, float)))
    return next((int(count) for count in planned if isinstance(count, (int, float)) and 0 < count < 1e6), None)


def _epochs(history: list[dict[str, object]]) -> list[int | None]:
    """The epoch of each row; none where no key counts them, or the loss is logged more often."""
    keys = _keys(history)
    key = next((key for key in keys if key.lower() == "epoch"), None)
    if key is None:
        return []
    told = [row.get(key) for row in history]
    known = [epoch for epoch in told if isinstance(epoch, (int, float))]
    losses = {name for name in keys if "loss" in name.lower() and not EVALUATION.search(name)}
    trained = [place for place, row in enumerate(history) if not losses.isdisjoint(row)]
    each = [epoch for epoch, _ in groupby(known)]
    # A fall to the first is another training, and the last one may not have come to the row that has the number.
    rises = all(after > before or after <= each[0] for before, after in pairwise(each))
    if len(each) < 2 or not rises or any(epoch % 1 for epoch in known) or not 0 < len(trained) <= len(each) + 1:
        return []
    late = trained[0] < next(place for place, epoch in enumerate(told) if isinstance(epoch, (int, float)))
    filled: list[int | None] = []
    for epoch in reversed(told) if late else told:
        before = filled[-1] if filled else None
        filled.append(int(epoch) if isinstance(epoch, (int, float)) else before)
    return filled[::-1] if late else filled


class _Column(NamedTuple):
    """The numbers under one key of a history."""

    rows: Ints
    values: Floats

    @classmethod
    def of(cls, rows: list[int], values: list[Any]) -> _Column:
        if not {*map(type, values)} <= {float, int}:  # most are numbers
            kept = [(row, value) for row, value in zip(rows, values, strict=True) if type(value) in (float, int)]
            rows, values = [row for row, _ in kept], [value for _, value in kept]
        try:
            return cls(np.array(rows, np.int64), np.array(values, np.float64))
        except OverflowError:  # of a whole number
            return cls.of(rows, [str(value) if abs(value) > 1e300 else value for value in values])


def _columns(history: list[dict[str, object]]) -> dict[str, _Column]:
    """By key, as they first come."""
    alike: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, row in enumerate(history):
        alike[(*row,)].append(place)
    rows: dict[str, list[int]] = defaultdict(list)
    values: dict[str, list[object]] = defaultdict(list)
    for keys, places in alike.items():
        for key, column in zip(keys, zip(*[history[place].values() for place in places], strict=True), strict=True):
            rows[key] += places
            values[key] += column
    return {key: _Column.of(rows[key], values[key]) for key in rows}


def _scalars(history: list[dict[str, object]], counter: str) -> Tracks:
    """As of an event file. A row without its counter is at the step of the row before."""
    columns = _columns(history)
    none = _Column.of([], [])
    counts, times = columns.get(counter, none), columns.get(_TIME, none)
    known = np.zeros(len(history), np.int64)
    known[np.sort(counts.rows)] = np.arange(1, len(counts.rows) + 1)
    step = np.append(0.0, counts.values[np.argsort(counts.rows)])[np.maximum.accumulate(known)]
    wall = np.full(len(history), math.nan)
    wall[times.rows] = times.values
    tags = {key: column for key, column in columns.items() if not key.startswith("_") and len(column.rows)}
    tag = repeated(np.arange(len(tags)), np.array([len(column.rows) for column in tags.values()], np.int64))
    rows, value = (np.concatenate(parts) for parts in zip(none, *tags.values(), strict=True))
    kept = np.flatnonzero(np.isfinite(wall[rows]) & (np.abs(step[rows]) < 1e15))
    kept = kept[np.lexsort((rows[kept], wall[rows[kept]]))]
    rows = rows[kept]
    scalars = Scalars([*tags], tag[kept], step[rows].astype(np.int64), wall[rows], value[kept])
    return dict(scalars.by_tag())


def _settings(config: dict[str, object], wall_s: float) -> Text:
    return Text("config", 0, wall_s, json.dumps(config).encode())


READER = Reader(
    name="wandb-file", timing=Timing.SPANS_LOG_INTERVAL, holds=NOTHING,
    about=Message(
        "From the history in the file run-….wandb: the mean of the steps between two moments at which the training "
        "loss was logged, without the evaluations between them. Where the history tells of no steps, the console "
        "output in it."
    ),
    example="(binary: run-20260114_101500-k2m4x7pa/run-k2m4x7pa.wandb)",
    sniff=sniff, parse=parse, finish=finish, complete=with_inside, strongest=math.inf,
    traits=Traits(may_evaluate=True, unread_lines=UnreadLines.CUT),
)  # fmt: skip

OF_EPOCHS = READER._replace(finish=finish_epochs)
