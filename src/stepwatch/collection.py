"""Several files as an input: which of them are logs, each run once, the pieces of a rotated log joined."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np

from stepwatch.errors import NoIterations, StepwatchError, UsageError
from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers import READERS, detect, joined_ranks, read
from stepwatch.run import Run
from stepwatch.settings import Origin
from stepwatch.sources import (
    LARGEST_EXPANSION_BYTES,
    RECORD,
    Source,
    from_event_files,
    from_file,
    from_pieces,
    head_of,
    plain_file,
    samples_of,
    unreadable,
)
from stepwatch.sources.directories import PARTS, event_files, wandb_files
from stepwatch.sources.packed import SUFFIXES
from stepwatch.sources.records import is_continued, leader_of
from stepwatch.sources.rotation import Name, groups_of, name_of

MOST_FILES = 20_000
DEEPEST = 12
_HEAD_BYTES, _MARK_BYTES, _EDGE_BYTES = 1 << 16, 1 << 10, 1 << 16
# Text that may quote a log without being one.
_SOURCE_CODE = frozenset({
    ".py", ".c", ".h", ".cu", ".cpp", ".js", ".ts", ".css", ".html", ".svg", ".toml", ".lock",
})  # fmt: skip
# Of files with these endings, of which there may be many large ones, only the beginning is looked at.
_BINARY = frozenset({
    ".pyc", ".so", ".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".npy", ".npz", ".pkl", ".parquet", ".arrow",
    ".png", ".jpg", ".jpeg", ".gif", ".pdf", ".zip", ".tar", ".whl", ".mp4", ".wav", ".model", ".db", ".sqlite",
    ".h5", ".onnx",
})  # fmt: skip
# What lines of every trainer have, and most other text has not: quicker to look for than all that they have.
_NUMBERED = Pattern(rb"(?i)(?:iter|step|epoch|batch|loss)[a-z_]{0,12}\W{0,8}\d|\d/\d+ \[|\d ?(?:it/s|s/it|ms)\b")
_NEAR = 3  # lines: as many may be lost where a log is cut in two
_DATED_S = 946684800.0 + 2 * 86400.0  # clocks without a date are put into the first days of 2000

Sniff = Callable[[bytes], bool]
Failure = tuple[str, StepwatchError]


class Wanted(NamedTuple):
    """How a log is to be read."""

    format_name: str | None = None
    like: str | None = None
    limit: int = LARGEST_EXPANSION_BYTES

    def read(self, source: Source) -> tuple[Run, ...]:
        """Says so where the format that is forced is not that of the log."""
        try:
            return read(source, self.format_name, like=self.like)
        except NoIterations as error:
            other = detect(source) if self.format_name is not None else None
            if other in (None, self.format_name):
                raise
            facts = {"forced": self.format_name, "other": other}
            raise NoIterations(
                Message("no iteration of the format {forced:word}; the log looks like {other:word}", facts),
                Message("leave --log-format out, or give the format of the log"),
            ) from error


ANYHOW = Wanted()


class Log(NamedTuple):
    """A log as its pieces, the oldest first."""

    paths: tuple[str, ...]
    missing: int = 0
    """Iterations that none of the pieces holds."""

    def runs(self, wanted: Wanted) -> tuple[Run, ...]:
        if len(self.paths) > 1:
            return wanted.read(from_pieces(self.paths, limit=wanted.limit))
        path = self.paths[0]
        several = _event_groups(path, wanted) if os.path.isdir(path) else []
        if len(several) < 2:
            return wanted.read(from_file(path, limit=wanted.limit))
        name = os.path.basename(os.path.normpath(path))
        found = (wanted.read(from_event_files(files, name, limit=wanted.limit)) for files in several)
        return tuple(run for runs in found for run in runs)


class Collection(NamedTuple):
    runs: tuple[Run, ...]
    passed_over: int
    """Files that are no log."""
    failed: tuple[Failure, ...]
    """What could not be read, and why."""
    more: bool
    """There were too many files to look at all of them."""
    gaps: tuple[tuple[str, int], ...] = ()
    """Logs of which a piece is missing, and how many iterations with it."""


def runs_in(path: str, wanted: Wanted = ANYHOW) -> Collection:
    """Raises NoIterations where nothing in the directory is a log, or the one error that there was."""
    search = _Search(path, wanted)
    found: list[Run] = []
    gaps = []
    for log in search.logs():
        name = search.name(log.paths[-1])
        try:
            found += [replace(run, source=name) for run in log.runs(wanted)]
        except UsageError:
            raise
        except StepwatchError as error:
            search.failed.append((name, error))
            continue
        if log.missing:
            gaps.append((name, log.missing))
    if not found and len(search.failed) < 2:
        raise search.failed[0][1] if search.failed else _nothing(path, search.passed_over)
    runs = _in_order(list(joined_ranks(found)))
    return Collection(tuple(runs), search.passed_over, tuple(search.failed), search.more, tuple(gaps))


def _nothing(path: str, looked_at: int) -> NoIterations:
    facts = {"name": os.path.basename(os.path.normpath(path)), "count": looked_at}
    return NoIterations(
        Message("no log was found in “{name:word}”; files looked at: {count:n}", facts),
        Message("name the log itself, or the directory that holds it"),
    )


def _in_order(runs: list[Run]) -> list[Run]:
    """By place; in one directory, runs that go on from others by the iterations, then by the clock."""
    spans: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for run in runs:
        if len(run.iterations):
            first, last = int(run.iterations.number[0]), int(run.iterations.number[-1])
            reach = last + _NEAR * max(int(_spacing(run.iterations.number)), 1)
            spans.setdefault((os.path.dirname(run.source), run.format), []).append((first, reach))

    def goes_on(run: Run, begin: int) -> bool:
        others = spans[os.path.dirname(run.source), run.format]
        return run.resumed or (not run.has_header and any(first < begin <= reach for first, reach in others))

    def place(run: Run) -> tuple[str, int, float, str]:
        where = os.path.dirname(run.source)
        first = int(run.iterations.number[0]) if len(run.iterations) else 0
        if not first or not goes_on(run, first):
            return where, 0, 0.0, run.source
        stamp = float(run.iterations.stamp_s[0])
        return where, first, stamp if np.isfinite(stamp) else 0.0, run.source

    return sorted(runs, key=place)


# --- what in a directory is a log -------------------------------------------------------------------------------


class _Search:
    """Looks through a directory, and keeps count of what is no log and what could not be read."""

    def __init__(self, top: str, wanted: Wanted) -> None:
        self.top, self.wanted = top, wanted
        self.looked = self.passed_over = 0
        self.failed: list[Failure] = []
        self.more = False
        self._sniff = _sniff_of(wanted)

    def name(self, path: str) -> str:
        return os.path.relpath(path, self.top).replace(os.sep, "/")

    def logs(self) -> Iterator[Log]:
        for place, names in self._places():
            if wandb_files(place) is not None or event_files(place):
                yield Log((place,))
                continue
            for members in groups_of(self._without_ranks(place, names)):
                self.looked += len(members)
                if self.looked > MOST_FILES:
                    self.more = True
                    return
                yield from self._logs_among([(name, os.path.join(place, file)) for name, file in members])

    def _logs_among(self, members: list[tuple[Name, str]]) -> Iterator[Log]:
        """A piece that shows no iteration, such as an empty one, belongs to its log if there is one."""
        are_logs = [self._is_log(path) for _, path in members]
        if not any(are_logs):
            self.passed_over += are_logs.count(False)
            return
        whole = [member for member, is_log in zip(members, are_logs, strict=True) if is_log is not None]
        yield from _chains(whole, self.wanted)

    def _is_log(self, path: str) -> bool | None:
        """None where it cannot be read."""
        try:
            return os.path.isfile(path) and _looks_like_log(path, self._sniff)
        except OSError as error:
            self.failed.append((self.name(path), unreadable(path, error)))
        except StepwatchError as error:
            self.failed.append((self.name(path), error))
        return None

    def _places(self) -> Iterator[tuple[str, list[str]]]:
        """Directories and their files, in order; links to directories and hidden ones are left alone."""
        deepest = self.top.rstrip(os.sep).count(os.sep) + DEEPEST
        for place, directories, names in os.walk(self.top, onerror=self._no_entry):
            directories[:] = sorted(name for name in directories if not name.startswith((".", "__pycache__")))
            if place.count(os.sep) >= deepest or wandb_files(place) is not None:
                directories.clear()
            if event_files(place):  # those of its parts are among them
                directories[:] = [name for name in directories if name not in PARTS]
            yield place, sorted(name for name in names if not name.startswith("."))

    def _no_entry(self, error: OSError) -> None:
        path = str(error.filename or self.top)
        self.failed.append((self.name(path), unreadable(path, error)))

    def _without_ranks(self, place: str, names: list[str]) -> Iterator[str]:
        """The names, without the records of other ranks, which are read with the one of rank 0."""
        there = set(names)
        for name in names:
            leader = leader_of(name_of(name).base) if ".rank" in name else None
            if leader not in there or not _is_record(os.path.join(place, leader)):
                yield name


def _is_record(path: str) -> bool:
    try:
        return head_of(path, _MARK_BYTES).startswith(RECORD)
    except (OSError, StepwatchError):  # told where it is itself looked at
        return False


def _sniff_of(wanted: Wanted) -> Sniff:
    if wanted.like is not None:
        from stepwatch.readers.formats import like  # only where it is asked for

        reader = like.like(wanted.like)
        return lambda head: reader.sniff(head) > 0
    return lambda head: any(sniff(head) > 0 for sniff in _sniffs())


@cache
def _sniffs() -> list[Callable[[bytes], float]]:
    return [reader.sniff for reader in READERS.values()]


def _looks_like_log(path: str, sniff: Sniff) -> bool:
    """By its beginning, and by some places further on: headers may be longer than any beginning."""
    ending = _ending(path)
    if ending in _SOURCE_CODE:
        return False
    for number, sample in enumerate(samples_of(path, _HEAD_BYTES)):
        if (number == 0 or _NUMBERED.search(sample)) and sniff(sample):
            return True
        if ending in _BINARY:
            return False
    return False


def _ending(path: str) -> str:
    stem, ending = os.path.splitext(path)
    return os.path.splitext(stem)[1].lower() if ending in SUFFIXES else ending.lower()


# --- the pieces of a rotated log --------------------------------------------------------------------------------


def logs_among(paths: Sequence[str], wanted: Wanted) -> list[Log]:
    """What was named, in that order; the pieces of one log joined, where the first of them stood."""
    places = {path: place for place, path in reversed(list(enumerate(paths)))}
    logs = [(place, Log((path,))) for place, path in enumerate(paths) if places[path] != place]  # named again
    for directory in dict.fromkeys(map(os.path.dirname, places)):
        files = {os.path.basename(path): path for path in places if os.path.dirname(path) == directory}
        for members in groups_of(files):
            chains = _chains([(name, files[file]) for name, file in members], wanted)
            logs += [(min(places[path] for path in log.paths), log) for log in chains]
    return [log for _, log in sorted(logs, key=lambda found: found[0])]


def _event_groups(directory: str, wanted: Wanted) -> list[list[str]]:
    """The event files of a directory, by run: one that begins at the first step again is of another."""
    files = event_files(directory) if wandb_files(directory) is None else []
    groups: list[list[str]] = [[]]
    trained: set[str] = set()  # the places of files with training steps: those beside them are evaluations
    for file in files if len(files) > 1 else ():
        place = os.path.dirname(file)
        begins = _begins_at_the_first_step(file, wanted)
        if begins and place in trained:
            groups.append([])
            trained.clear()
        if begins is not None:
            trained.add(place)
        groups[-1].append(file)
    return groups


def _begins_at_the_first_step(file: str, wanted: Wanted) -> bool | None:
    """None where it holds no steps."""
    try:
        first = wanted.read(plain_file(file, limit=wanted.limit))[0].iterations.number
    except StepwatchError:  # told where all are read
        return None
    return int(first[0]) <= 2 * max(_spacing(first), 1) if len(first) else None


class _Piece(NamedTuple):
    name: Name
    path: str
    continues: bool | None = None
    """Of a record, which says so itself."""
    first: Run | None = None
    last: Run | None = None


def _chains(members: Sequence[tuple[Name, str]], wanted: Wanted) -> list[Log]:
    """Files with names like pieces of one log, as logs: joined where one goes on from the other."""
    if len(members) == 1:
        return [Log((members[0][1],))]
    pieces = [_piece(name, path, wanted) for name, path in members]
    # The highest number is the oldest where a log is rotated; where one is split, the lowest.
    return min((_chained(order) for order in (pieces, pieces[::-1])), key=len)


def _piece(name: Name, path: str, wanted: Wanted) -> _Piece:
    try:
        text = plain_file(path, limit=wanted.limit).text
    except StepwatchError:  # told where it is read
        return _Piece(name, path, continues=False)
    if text.startswith(RECORD):
        return _Piece(name, path, continues=is_continued(text))
    return _Piece(name, path, None, _edge(text, wanted, last=False), _edge(text, wanted, last=True))


def _edge(text: bytes, wanted: Wanted, *, last: bool) -> Run | None:
    """The first or the last run, from as little of the text as shows it."""
    size = _EDGE_BYTES
    while True:
        part = text[-size:] if last else text[:size]
        try:
            runs = read(Source("-", part), wanted.format_name, like=wanted.like)
        except NoIterations:
            runs = ()
        if size >= len(text) or any(len(run.iterations) for run in runs):
            return runs[-1 if last else 0] if runs else None
        size *= 8


def _chained(pieces: Sequence[_Piece]) -> list[Log]:
    logs: list[Log] = []
    before: _Piece | None = None  # the last that tells anything
    for piece in pieces:
        missing = _missing(before, piece) if before is not None else None
        if missing is None and (before is not None or not logs):
            logs.append(Log((piece.path,)))
        else:
            logs[-1] = Log((*logs[-1].paths, piece.path), logs[-1].missing + (missing or 0))
        if piece.continues is not None or piece.last is not None:
            before = piece
    return logs


def _missing(before: _Piece, after: _Piece) -> int | None:
    """How many iterations are missing between two pieces of one log; None where they are none."""
    if before.continues is not None or after.continues is not None:
        return 0 if after.continues and before.continues is not None else None
    one, other = before.last, after.first
    if other is None:  # nothing to explain by itself
        return 0
    if one is None or one.format != other.format or not len(other.iterations):
        return None
    if not len(one.iterations):  # a header alone, whole or cut in two
        return None if one.faults or _says_again(one, other) else 0
    if other.has_header:
        return None
    return _numbers_between(one, other, _is_gap(before.name, after.name))


def _says_again(one: Run, other: Run) -> bool:
    """Whether a header tells nothing but what another has told: that of the next process, not the rest of the same."""
    told = {name for name, setting in other.settings.items() if setting.origin is Origin.LOG}
    return other.has_header and told <= set(one.settings)


def _is_gap(before: Name, after: Name) -> bool:
    """Whether a number between the two is not there."""
    if before.number is None and after.number is None:
        return False
    return abs((before.number or 0) - (after.number or 0)) > 1


def _numbers_between(one: Run, other: Run, gap: bool) -> int | None:
    last, first = int(one.iterations.number[-1]), int(other.iterations.number[0])
    spacing = max(_spacing(one.iterations.number), _spacing(other.iterations.number))
    elapsed_s = _elapsed_s(one, other)
    if first == last and len(one.iterations) > 1:
        return 0  # a progress bar is drawn again
    if first <= last:  # as where iterations are only counted: then the clock must go on at once
        usual_s = _spacing(one.iterations.stamp_s)
        return 0 if elapsed_s is not None and 0 <= elapsed_s <= 2 * usual_s else None
    if elapsed_s is not None and elapsed_s < 0:
        return None
    if not spacing or first - last <= _NEAR * spacing:  # of one line each nothing can be told
        return 0
    return int(first - last - spacing) if gap or _at_the_same_pace(one, last, first, elapsed_s) else None


def _spacing(values: np.ndarray) -> float:
    steps = np.diff(values)
    steps = steps[np.isfinite(steps)]
    return float(np.median(steps)) if len(steps) else 0.0


def _elapsed_s(one: Run, other: Run) -> float | None:
    """By the clocks of the two, where they have a date."""
    last, first = float(one.iterations.stamp_s[-1]), float(other.iterations.stamp_s[0])
    return first - last if last > _DATED_S and first > _DATED_S else None


def _at_the_same_pace(one: Run, last: int, first: int, elapsed_s: float | None) -> bool:
    numbers, stamps = _spacing(one.iterations.number), _spacing(one.iterations.stamp_s)
    if elapsed_s is None or not numbers > 0 or not stamps > 0:
        return False
    return 0.5 < elapsed_s / (first - last) / (stamps / numbers) < 2
