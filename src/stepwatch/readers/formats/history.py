"""The history of a run as trackers keep it: rows of values by key, each with a step and a time; here as columns."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from stepwatch.readers.formats.event_files import TextEvent
from stepwatch.readers.formats.tensorboard import EVALUATION, EventHistory
from stepwatch.readers.formats.tracks import Track, Tracks, narrow
from stepwatch.readers.formats.wandb import step_key
from stepwatch.readers.records import Records, pieces, rows_where, whole_numbers
from stepwatch.run import Floats, Ints

TIME, ROW = "_timestamp", "_step"
_EPOCHS = ("epochs", "num_epochs", "n_epochs", "max_epochs", "num_train_epochs")
_NUMBERS, _OTHERS = "number ", "other "  # tables of rows in which a key has a number, or something else


class KeyColumn(NamedTuple):
    """The values under one key."""

    rows: Ints
    """The rows of the history in which it is a number, rising."""
    values: np.ndarray
    others: Ints
    """The rows in which it is something else."""

    @property
    def all_rows(self) -> Ints:
        return np.union1d(self.rows, self.others) if len(self.others) else self.rows


class History(NamedTuple):
    length: int
    columns: dict[str, KeyColumn]
    """By key, in order of first appearance."""

    @classmethod
    def of(cls, rows: list[dict[str, object]]) -> History:
        records = Records()
        keep_rows(rows, 0, records)
        return cls.kept(len(rows), records)

    @classmethod
    def kept(cls, length: int, records: Records) -> History:
        """The history of all kept rows, which are removed from the records."""
        columns = {}
        for key in dict.fromkeys(name.partition(" ")[2] for name in [*records.tables]):
            rows, values = records.take_columns(_NUMBERS + key, 2)
            (others,) = records.take_columns(_OTHERS + key, 1)
            columns[key] = KeyColumn(rows, values, others)
        return cls(length, columns)

    def of_rows(self, key: str) -> Floats:
        """The number in each row; nan if there is none."""
        column = self.columns.get(key)
        if column is not None and len(column.rows) == self.length:
            return column.values
        whole = np.full(self.length, math.nan)
        if column is not None:
            whole[column.rows] = column.values
        return whole

    def with_any(self, keys: Iterable[str]) -> Ints:
        """The rows that have one of these keys."""
        has = np.zeros(self.length, bool)
        for key in keys:
            has[self.columns[key].all_rows] = True
        return np.flatnonzero(has)

    def tracks(self, step: np.ndarray) -> Tracks:
        """The history as tracks, with the step of each row; rows without a step or a time are left out."""
        wall = self.of_rows(TIME)
        strange = rows_where(lambda wall_s, at: ~(np.isfinite(wall_s) & (np.abs(at) < 1e15)), wall, step)
        plain = not len(strange) and not len(rows_where(np.less, wall[1:], wall[:-1]))
        good = np.ones(0 if plain else self.length, bool)
        good[strange] = False
        whole = narrow(whole_numbers(step if plain else np.where(good, step, 0.0)))
        found: Tracks = {}
        for key, (rows, values, _) in self.columns.items():
            if key.startswith("_") or not len(rows):
                continue
            if plain and len(rows) == self.length:
                found[key] = Track(whole, wall, values)
                continue
            if not plain:
                values, rows = values[good[rows]], rows[good[rows]]
                order = np.argsort(wall[rows], kind="stable")
                values, rows = values[order], rows[order]
            found[key] = Track(whole[rows], wall[rows], values)
        return found

    def counted_by(self, key: str) -> Floats:
        """The step of each row; a row that does not state it has that of the row before."""
        column = self.columns.get(key)
        if column is None or not len(column.rows):
            return np.zeros(self.length)
        if len(column.rows) == self.length:
            return column.values
        stated = np.searchsorted(column.rows, np.arange(self.length), side="right")
        return np.append(0.0, column.values)[stated]

    def epochs(self) -> Floats | None:
        """The epoch of each row, or nan; None if no key counts epochs, or if the loss is logged more often."""
        key = next((key for key in self.columns if key.lower() == "epoch"), None)
        if key is None:
            return None
        rows, known, _ = self.columns[key]
        if any(bool((known[part] % 1 != 0).any()) for part in pieces(len(known))):
            return None
        each = known[np.append(np.ones(1, bool), known[1:] != known[:-1])[: len(known)]]
        trained = self.with_any(name for name in self.columns if "loss" in name.lower() and not EVALUATION.search(name))
        # A fall to the first is another training; the last epoch may have no row with its number yet.
        rises = bool(((each[1:] > each[:-1]) | (each[1:] <= each[:1])).all())
        if len(each) < 2 or not rises or not 0 < len(trained) <= len(each) + 1:
            return None
        if trained[0] < rows[0]:  # the number comes after the rows of its epoch
            return np.append(known, math.nan)[np.searchsorted(rows, np.arange(self.length))]
        return np.append(math.nan, known)[np.searchsorted(rows, np.arange(self.length), side="right")]

    def counts_epochs(self, config: dict[str, object]) -> bool:
        """Whether there is one row per epoch: such rows cannot show how long a step takes."""
        if self.epochs() is not None:
            return True
        planned = planned_epochs(config)
        if planned is None:
            return False
        losses = self.with_any(key for key in self.columns if "loss" in key.lower())
        if not len(losses) or (len(losses) > 1 and np.isfinite(self.of_rows("epoch")[losses]).all()):
            return False
        return bool(self.of_rows(ROW)[losses[-1]] <= planned)


def keep_rows(rows: list[dict[str, object]], first: int, records: Records) -> None:
    """Keeps rows as columns; the first row has the number `first`, and most rows have the same keys."""
    alike: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        alike[(*row,)].append(place)
    places: dict[str, list[int]] = defaultdict(list)
    values: dict[str, list[Any]] = defaultdict(list)
    for keys, own in alike.items():
        for key, column in zip(keys, zip(*[rows[place].values() for place in own], strict=True), strict=True):
            places[key] += own
            values[key] += column
    for key, stated in values.items():
        numbers, others = _numbers(np.array(places[key], np.int32) + np.int32(first), stated)
        records.tables.setdefault(_NUMBERS + key, []).append(numbers)
        records.tables.setdefault(_OTHERS + key, []).append((others,))


def _numbers(rows: Ints, values: list[Any]) -> tuple[tuple[Ints, Floats], Ints]:
    """The numbers with their rows, and the rows of all other values."""
    if {*map(type, values)} <= {float, int}:  # most are
        try:
            return (rows, np.array(values, np.float64)), rows[:0]
        except OverflowError:  # an integer too large for a float
            pass
    fits = np.array([type(value) in (float, int) and not abs(value) > 1e300 for value in values], bool)
    kept = [value for value, fit in zip(values, fits.tolist(), strict=True) if fit]
    return (rows[fits], np.array(kept, np.float64)), rows[~fits]


def planned_epochs(config: dict[str, object]) -> int | None:
    """The number of epochs that the configuration asks for."""
    planned = (config[name] for name in _EPOCHS if isinstance(config.get(name), (int, float)))
    return next((int(count) for count in planned if isinstance(count, (int, float)) and 0 < count < 1e6), None)


def counts_by_steps(keys: Iterable[str], config: dict[str, object]) -> bool:
    """Whether it is clear, without the rows, that a row is numbered by its step."""
    named = set(keys)
    plain = all(key.lower() != "epoch" and not key.startswith("_") for key in named)
    return plain and step_key(named) is None and planned_epochs(config) is None


def add_history(
    history: History, config: dict[str, object], started_s: float | None, records: Records, first_line: int = 0
) -> None:
    """Adds the rows of a history: numbers by name, each row with its step and its time."""
    counter = step_key(history.columns)
    if counter is None and history.counts_epochs(config):
        return
    add_tracks(history.tracks(history.counted_by(counter or ROW)), config, started_s, records, first_line)


def add_tracks(
    tracks: Tracks, config: dict[str, object], started_s: float | None, records: Records, first_line: int = 0
) -> None:
    first_s = min((float(track.wall_s[0]) for track in tracks.values() if len(track.wall_s)), default=None)
    if first_s is not None:
        begun = started_s if started_s is not None else first_s
        EventHistory(tracks, [settings_text(config, begun)], first_line).add_to(records)


def settings_text(config: dict[str, object], wall_s: float) -> TextEvent:
    return TextEvent("config", 0, wall_s, json.dumps(config).encode())
