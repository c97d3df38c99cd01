"""Numbers by tag, each with its step and its time: what event files and the histories of trackers come to."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepwatch.readers.records import Records
from stepwatch.run import Floats, Ints

_TABLE = "tag "


class Track(NamedTuple):
    """One tag, by time."""

    step: Ints
    wall_s: Floats
    value: Floats


Tracks = dict[str, Track]
"""By tag, as they first come. Several may share their steps and times."""


def keep(records: Records, tag: str, track: Track) -> None:
    """Until all is read."""
    records.tables.setdefault(_TABLE + tag, []).append((track.wall_s, narrow(track.step), track.value))


def narrow(step: Ints) -> Ints:
    """In four bytes, where all of them fit."""
    return step.astype(np.int32) if bool((np.abs(step) < 1 << 30).all()) else step


def take(records: Records) -> Tracks:
    """All that were kept, which are not kept any longer."""
    tracks = {}
    for name in [name for name in records.tables if name.startswith(_TABLE)]:
        wall, step, value = records.take_columns(name, 3)
        if len(wall):
            tracks[name.removeprefix(_TABLE)] = Track(step, wall, value)
    return tracks
