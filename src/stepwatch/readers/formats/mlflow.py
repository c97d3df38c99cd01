"""MLflow's files of metrics, mlruns/…/metrics/<name>: a line for each value, `unix_ms value step`.

All files in the directory of a run are one text: parameters first, then lines that end with the name of their metric.
"""

from __future__ import annotations

import math
from itertools import islice

import numpy as np

from stepwatch.patterns import Pattern
from stepwatch.readers.formats import Reader
from stepwatch.readers.formats.event_files import Scalars
from stepwatch.readers.formats.history import ROW, TIME, History, KeyColumn, add_history, add_tracks, counts_by_steps
from stepwatch.readers.formats.recorder_run import with_inside
from stepwatch.readers.formats.tracks import Track, Tracks, keep, narrow, take
from stepwatch.readers.records import Records, pieces, rows_where
from stepwatch.readers.text.block import Block, read_int, read_number
from stepwatch.readers.text.line import MOST_SNIFFED
from stepwatch.run import Floats, Ints, Timing

# A time in milliseconds has 13 digits from 2001 to 2286.
_VALUE = Pattern(rb"(?m)^(?P<ms>\d{13}) (?P<value>[-+\w.]{1,40}) (?P<step>\d{1,12})(?: (?P<name>\S{1,250}))?\s*$")
_STARTS = Pattern(rb"\n\d{13} ")  # found much faster than the beginnings of lines
_PARAMETER = Pattern(rb"(?m)^param (?P<name>\S{1,250}) (?P<value>[^\n]{0,250})$")


def sniff(head: bytes) -> float:
    if not _STARTS.search(b"\n" + head):
        return 0.0
    return float(sum(1 for _ in islice(_VALUE.finditer(head), MOST_SNIFFED)))


def parse(text: bytes, first_line: int, records: Records) -> None:
    """Adds values to the track of their name, and keeps parameters."""
    if not records.kept:
        records.kept = [{}]
    (config,) = records.kept
    for found in _PARAMETER.finditer(text):
        config[found["name"].decode("utf-8", "replace")] = _plain(found["value"].decode("utf-8", "replace"))
    for tag, track in _values(text).by_tag():
        keep(records, tag, track)


def finish(first_line: int, records: Records) -> None:
    (config,) = records.kept or ({},)
    records.kept = []
    tracks = {tag: _by_step(track) for tag, track in take(records).items()}
    begins = sorted(tracks, key=lambda tag: (tracks[tag].wall_s[0], tracks[tag].step[0]))
    tracks = {tag: tracks[tag] for tag in begins}
    if counts_by_steps(tracks, config):
        add_tracks(tracks, config, None, records)
    elif tracks:
        add_history(_history(tracks), config, None, records)


def _by_step(track: Track) -> Track:
    """Sorts values of one moment by step; of values that were logged twice, keeps the last."""
    step, wall, value = track
    pairs = step[:-1], step[1:], wall[:-1], wall[1:]  # there may be millions
    if len(rows_where(lambda before, after, since, at: (at <= since) & (after < before), *pairs)):
        order = np.lexsort((step, wall))
        return _by_step(Track(step[order], wall[order], value[order]))
    again = rows_where(lambda before, after, since, at: (at <= since) & (after == before), *pairs)
    return track.without(again)


def _history(tracks: Tracks) -> History:
    """One row for each step and moment at which anything was logged."""
    grids: list[tuple[Floats, Ints]] = []
    places: dict[tuple[float, ...], int] = {}
    used: dict[str, int] = {}
    for tag, (own, moments, _) in tracks.items():  # most are logged together
        place = places.setdefault((len(own), float(own.sum()), float(moments.sum())), len(grids))
        if place == len(grids) or not all(map(np.array_equal, grids[place], (moments, own))):
            place = len(grids)
            grids.append((moments, own))
        used[tag] = place
    wall, step, rows = _put_together(grids)
    everywhere, none = narrow(np.arange(len(wall))), rows[0][:0]
    columns = {TIME: KeyColumn(everywhere, wall, none), ROW: KeyColumn(everywhere, step, none)}
    told = {tag: KeyColumn(rows[used[tag]], track.value, none) for tag, track in tracks.items() if tag not in columns}
    return History(len(wall), columns | told)


def _put_together(grids: list[tuple[Floats, Ints]]) -> tuple[Floats, Ints, list[Ints]]:
    """The moments and steps of all rows by time, and the rows that belong to each grid."""
    wall, step = max(grids, key=lambda grid: len(grid[0]))
    if _rises(wall, step):  # most others are logged at some of these moments, and there may be too many to sort
        places = [place for grid in grids if (place := _places(wall, step, *grid)) is not None]
        if len(places) == len(grids):
            return wall, step, places
        del places
    ends = np.cumsum([len(moments) for moments, _ in grids])
    wall, step = map(np.concatenate, zip(*grids, strict=True))
    order = np.lexsort((step, wall))
    wall, step = wall[order], step[order]
    again = rows_where(
        lambda at, since, after, before: (at == since) & (after == before), wall[1:], wall[:-1], step[1:], step[:-1]
    )
    new = np.ones(len(wall), bool)
    new[again + 1] = False
    row: Ints = np.empty(len(order), np.int32)
    row[order] = np.cumsum(new, dtype=np.int32) - 1
    del order
    return wall[new], step[new], np.split(row, ends[:-1])


def _rises(wall: Floats, step: Ints) -> bool:
    return not len(
        rows_where(
            lambda at, since, after, before: (at < since) | ((at == since) & (after <= before)),
            wall[1:], wall[:-1], step[1:], step[:-1],
        )
    )  # fmt: skip


def _places(wall: Floats, step: Ints, moments: Floats, steps: Ints) -> Ints | None:
    """The places of these moments and steps among all; None if any is missing."""
    places: Ints = np.empty(len(steps), np.int32)
    for part in pieces(len(steps)):
        at = np.minimum(np.searchsorted(wall, moments[part]), len(wall) - 1)
        if (wall[at] != moments[part]).any() or (step[at] != steps[part]).any():
            return None
        places[part] = at
    return places


def _values(text: bytes) -> Scalars:
    """Reads all lines at once, and those with an odd value one by one."""
    known: dict[bytes, int] = {}
    block = Block.of(text)
    lines = block.filled
    at, ends = block.starts[lines], block.ends[lines]
    fits, behind, ms = read_int(block, at)
    fits &= (behind - at == 13) & (block.octets[behind] == ord(" "))
    begin = behind + 1
    plain, behind, value = read_number(block, begin)
    plain &= block.octets[behind] == ord(" ")
    stepped, end, step = read_int(block, behind + 1)
    plain &= fits & stepped & (end - behind <= 13) & ((end == ends) | (block.octets[end] == ord(" ")))
    place = np.zeros(len(lines), np.int64)
    if (plain & (end == ends)).any():
        known[b""] = 0
    named = np.flatnonzero(plain & (end < ends))
    place[named] = [
        known.setdefault(text[begin:end].strip(), len(known))
        for begin, end in zip(end[named].tolist(), ends[named].tolist(), strict=True)
    ]
    odd = fits & ~plain
    for row in np.flatnonzero(odd).tolist():
        found = _VALUE.fullmatch(block.line(lines[row]))
        try:
            value[row] = float(found["value"]) if found is not None else math.nan
        except ValueError:
            found = None
        if found is not None:
            step[row], place[row] = int(found["step"]), known.setdefault(found["name"] or b"", len(known))
            plain[row] = True
    # No name contains a space, or more than 250 letters.
    whole = np.array([len(name) <= 250 and len(name.split()) <= 1 for name in known], bool)
    plain[plain] &= whole[place[plain]]
    # A single file does not show the name.
    names = [(name or b"loss").decode("utf-8", "replace") for name in known]
    return Scalars(names, place[plain], step[plain].astype(np.int64), ms[plain] / 1e3, value[plain])


def _plain(text: str) -> object:
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if math.isfinite(number) and number == int(number) else number


READER = Reader(
    name="mlflow", timing=Timing.SPANS_LOG_INTERVAL,
    sniff=sniff, parse=parse, finish=finish, complete=with_inside,
)  # fmt: skip
