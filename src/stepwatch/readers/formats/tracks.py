"""Numbers by tag, each with its step and time: the common form of event files and the histories of trackers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepwatch.readers import records
from stepwatch.readers.records import Records
from stepwatch.run import Floats, Ints

_TABLE = "tag "


class Track(NamedTuple):
    """The numbers of one tag, by time."""

    step: Ints
    wall_s: Floats
    value: Floats

    def without(self, rows: Ints) -> Track:
        """Drops these rows; makes no copy if there are none."""
        return Track(*(np.delete(column, rows) for column in self)) if len(rows) else self  # type: ignore[arg-type]


Tracks = dict[str, Track]
"""Tracks by tag, in order of first appearance. Several may share their steps and times."""


def keep(into: Records, tag: str, track: Track) -> None:
    """Keeps a track until everything is read; a long loss is kept with seven digits, like that of rows."""
    parts = into.tables.setdefault(_TABLE + tag, [])
    parts.append((track.wall_s, narrow(track.step), track.value))
    if "loss" in tag.lower() and len(parts[0][0]) > records.MANY_ROWS:
        parts[:] = [(wall, step, value.astype(np.float32, copy=False)) for wall, step, value in parts]


def narrow(step: Ints) -> Ints:
    """The steps in four bytes, if all of them fit."""
    large = records.rows_where(lambda each: np.abs(each) >= 1 << 30, step)
    return step if len(large) else step.astype(np.int32, copy=False)


def take(kept: Records) -> Tracks:
    """Returns all kept tracks, and removes them from the records."""
    tracks = {}
    for name in [name for name in kept.tables if name.startswith(_TABLE)]:
        wall, step, value = kept.take_columns(name, 3)
        if len(wall):
            tracks[name.removeprefix(_TABLE)] = Track(step, wall, value)
    return tracks
