"""Which files are pieces of one log: rotated files are joined if one continues another."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from stepwatch.errors import NoIterations, StepwatchError
from stepwatch.patterns import Pattern
from stepwatch.readers.reading import read
from stepwatch.readers.records import DATED_S
from stepwatch.run import Run
from stepwatch.settings import Origin
from stepwatch.sources import (
    LARGEST_EXPANSION_BYTES,
    RECORD,
    Source,
    from_event_files,
    from_file,
    from_pieces,
    plain_file,
)
from stepwatch.sources.contents import head_of
from stepwatch.sources.directories import RANK, event_files, is_continued, wandb_files

# --- names of the pieces of a rotated log -----------------------------------------------------------------------


_DATE = r"\d{4}-?[01]\d-?[0-3]\d(?:[-_T.]?\d\d[-:.]?\d\d(?:[-:.]?\d\d)?)?"
_INDEX = rf"(?:[.-](?P<date>{_DATE})|\.(?P<number>\d{{1,4}}))"
_PACKED = r"(?:\.(?:gz|xz|bz2|zst))?"
_BEHIND = Pattern(rf"(?P<base>.+?){_INDEX}?(?P<suffix>){_PACKED}")
_BEFORE = Pattern(rf"(?P<base>.+?){_INDEX}(?P<suffix>\.[A-Za-z]{{2,6}}){_PACKED}")


class Name(NamedTuple):
    base: str
    """The name that all pieces of a log share: that of the newest."""
    date: str = ""
    number: int | None = None

    @property
    def age(self) -> tuple[bool, str, int]:
        """Sorts the oldest first: dates rise, numbers fall, and a name with neither is the newest."""
        return not self.date and self.number is None, self.date, -(self.number or 0)


def name_of(name: str) -> Name:
    """Parses the number or date after the name, which is usual, or the one before its ending."""
    behind = _BEHIND.fullmatch(name)
    found = behind if behind is not None and (behind["date"] or behind["number"]) else _BEFORE.fullmatch(name) or behind
    if found is None:
        return Name(name)
    date = "".join(letter for letter in found["date"] or "" if letter.isdigit())
    return Name(found["base"] + found["suffix"], date, int(found["number"]) if found["number"] else None)


def groups_of(names: Iterable[str]) -> list[list[tuple[Name, str]]]:
    """Groups names that may be pieces of one log, the oldest first; only their content shows whether they are."""
    known = {name: name_of(name) for name in names}
    bases = {found.base for name, found in known.items() if name.startswith(found.base)}
    groups: dict[str, list[tuple[Name, str]]] = {}
    for name, found in known.items():
        own = found if name.startswith(found.base) or name not in bases else Name(name)  # a.1.log next to a.1.log.2
        groups.setdefault(own.base, []).append((own, name))
    return [sorted(members, key=lambda member: member[0].age) for members in groups.values()]


def without_ranks(place: str, names: Sequence[str]) -> Iterator[str]:
    """The file names without the records of other ranks, which are read together with that of rank 0."""
    there = set(names)
    for name in names:
        found = RANK.fullmatch(name_of(name).base) if ".rank" in name else None
        leader = found["stem"] + (found["suffix"] or "") if found is not None else ""
        try:
            file = os.path.join(place, leader) if leader in there else ""
            beside = os.path.isfile(file) and head_of(file, 1024).startswith(RECORD)
        except (OSError, StepwatchError):  # reported when the file itself is read
            beside = False
        if not beside:
            yield name


# --- logs named by the user --------------------------------------------------------------------------------------


NEAR = 3  # lines: this many may be lost where a log is cut in two


class ReadingOptions(NamedTuple):
    """How to read a log."""

    format_name: str | None = None
    like: str | None = None
    limit: int = LARGEST_EXPANSION_BYTES

    def read(self, source: Source) -> tuple[Run, ...]:
        return read(source, self.format_name, like=self.like)


class RotatedLog(NamedTuple):
    """A log as a list of pieces, the oldest first."""

    paths: tuple[str, ...]
    missing: int = 0
    """Iterations that are in none of the pieces."""

    def runs(self, wanted: ReadingOptions) -> tuple[Run, ...]:
        if len(self.paths) > 1:
            return wanted.read(from_pieces(self.paths, limit=wanted.limit))
        path = self.paths[0]
        several = _event_groups(path, wanted) if os.path.isdir(path) else []
        if len(several) < 2:
            return wanted.read(from_file(path, limit=wanted.limit))
        name = os.path.basename(os.path.normpath(path))
        found = (wanted.read(from_event_files(files, name, limit=wanted.limit)) for files in several)
        return tuple(run for runs in found for run in runs)


def logs_among(paths: Sequence[str], wanted: ReadingOptions) -> list[RotatedLog]:
    """The logs in the order they were given; the pieces of one log are joined, in the place of the first."""
    places = {path: place for place, path in reversed(list(enumerate(paths)))}
    logs = [(place, RotatedLog((path,))) for place, path in enumerate(paths) if places[path] != place]  # given twice
    for directory in dict.fromkeys(map(os.path.dirname, places)):
        files = {os.path.basename(path): path for path in places if os.path.dirname(path) == directory}
        for members in groups_of(files):
            joined = joined_pieces([(name, files[file]) for name, file in members], wanted)
            logs += [(min(places[path] for path in log.paths), log) for log in joined]
    return [log for _, log in sorted(logs, key=lambda found: found[0])]


def _event_groups(directory: str, wanted: ReadingOptions) -> list[list[str]]:
    """The event files of a directory, grouped by run: a file that begins at the first step again starts a new run."""
    files = event_files(directory) if wandb_files(directory) is None else []
    groups: list[list[str]] = [[]]
    trained: set[str] = set()  # directories of files with training steps; files in others are evaluations
    for file in files if len(files) > 1 else ():
        place = os.path.dirname(file)
        try:
            numbers = wanted.read(plain_file(file, limit=wanted.limit))[0].iterations.number
        except StepwatchError:  # reported when all are read
            numbers = np.empty(0, np.int64)
        if len(numbers) and place in trained and int(numbers[0]) <= 2 * max(spacing(numbers), 1):
            groups.append([])
            trained.clear()
        if len(numbers):
            trained.add(place)
        groups[-1].append(file)
    return groups


# --- the pieces of a rotated log --------------------------------------------------------------------------------


class _Piece(NamedTuple):
    name: Name
    path: str
    continues: bool | None = None
    """Only known for a stepwatch record, which says so itself."""
    first: Run | None = None
    last: Run | None = None


def joined_pieces(members: Sequence[tuple[Name, str]], wanted: ReadingOptions) -> list[RotatedLog]:
    """Joins files with names like pieces of one log, if one continues the other."""
    if len(members) == 1:
        return [RotatedLog((members[0][1],))]
    pieces = []
    for name, path in members:
        try:
            text = plain_file(path, limit=wanted.limit).text
        except StepwatchError:  # reported when the file is read
            pieces.append(_Piece(name, path, continues=False))
            continue
        if text.startswith(RECORD):
            pieces.append(_Piece(name, path, continues=is_continued(text)))
        else:
            edges = (_edge(text, wanted, last=last) for last in (False, True))
            pieces.append(_Piece(name, path, None, *edges))
    # In a rotated log the highest number is the oldest; in a split one, the lowest.
    found: list[list[RotatedLog]] = []
    for order in (pieces, pieces[::-1]):
        logs: list[RotatedLog] = []
        before: _Piece | None = None  # the last piece that contains anything
        for piece in order:
            missing = _missing(before, piece) if before is not None else None
            if missing is None and (before is not None or not logs):
                logs.append(RotatedLog((piece.path,)))
            else:
                logs[-1] = RotatedLog((*logs[-1].paths, piece.path), logs[-1].missing + (missing or 0))
            if piece.continues is not None or piece.last is not None:
                before = piece
        found.append(logs)
    return min(found, key=len)


def _edge(text: bytes, wanted: ReadingOptions, *, last: bool) -> Run | None:
    """The first or the last run, read from as little of the text as needed."""
    size = 1 << 16
    while True:
        part = text[-size:] if last else text[:size]
        try:
            runs = wanted.read(Source("-", part))
        except NoIterations:
            runs = ()
        if size >= len(text) or any(len(run.iterations) for run in runs):
            return runs[-1 if last else 0] if runs else None
        size *= 8


def _missing(before: _Piece, after: _Piece) -> int | None:
    """How many iterations are missing between two pieces of one log; None if they are from different logs."""
    if before.continues is not None or after.continues is not None:
        return 0 if after.continues and before.continues is not None else None
    one, other = before.last, after.first
    if other is None:  # nothing that can be explained on its own
        return 0
    if one is None or one.format != other.format or not len(other.iterations):
        return None
    if not len(one.iterations):  # only a header, whole or cut in two
        stated = {name for name, setting in other.settings.items() if setting.origin is Origin.LOG}
        repeats = other.has_header and stated <= set(one.settings)  # the next process's header, not more of this one
        return None if one.faults or repeats else 0
    if other.has_header:
        return None
    is_numbered = before.name.number is not None or after.name.number is not None
    gone = is_numbered and abs((before.name.number or 0) - (after.name.number or 0)) > 1
    last, first = int(one.iterations.number[-1]), int(other.iterations.number[0])
    stamps = float(one.iterations.stamp_s[-1]), float(other.iterations.stamp_s[0])
    elapsed_s = stamps[1] - stamps[0] if min(stamps) > DATED_S else None
    usual, usual_s = spacing(one.iterations.number), spacing(one.iterations.stamp_s)
    if first == last and len(one.iterations) > 1:
        return 0  # a redrawn progress bar
    if first <= last:  # as when iterations are only counted: then the clock must continue without a gap
        return 0 if elapsed_s is not None and 0 <= elapsed_s <= 2 * usual_s else None
    if elapsed_s is not None and elapsed_s < 0:
        return None
    distance = max(usual, spacing(other.iterations.number))
    if not distance or first - last <= NEAR * distance:  # with one line each, nothing is known
        return 0
    same_pace = False
    if elapsed_s is not None and usual > 0 and usual_s > 0:
        same_pace = 0.5 < elapsed_s / (first - last) / (usual_s / usual) < 2
    return int(first - last - distance) if gone or same_pace else None


def spacing(values: np.ndarray) -> float:
    """The median distance between neighbours."""
    steps = np.diff(values)
    steps = steps[np.isfinite(steps)]
    return float(np.median(steps)) if len(steps) else 0.0
