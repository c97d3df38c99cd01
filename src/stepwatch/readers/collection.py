"""The runs in a directory: which files below it are logs, and which are pieces of one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from stepwatch.errors import NoIterations, Notice, StepwatchError, UsageError
from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.assemble import joined_ranks
from stepwatch.readers.formats import all_readers
from stepwatch.readers.formats.like import reader_like
from stepwatch.readers.log_files import (
    NEAR,
    ReadingOptions,
    RotatedLog,
    groups_of,
    joined_pieces,
    spacing,
    without_ranks,
)
from stepwatch.run import Run
from stepwatch.sources import unreadable
from stepwatch.sources.contents import SUFFIXES, samples_of
from stepwatch.sources.directories import event_files, mlflow_files, places_below, wandb_files

MOST_FILES = 20_000
_NAMED_FAILURES = 10  # of unreadable files in a directory; the others are only counted
# Text that may quote a log without being one.
SOURCE_CODE = Pattern(r"\.(?:py|c|h|cu|cpp|js|ts|css|html|svg|toml|lock)")
# There may be many large files with these endings: only their beginning is read.
BINARY = Pattern(
    r"\.(?:pyc|so|pt|pth|ckpt|bin|safetensors|npy|npz|pkl|parquet|arrow|png|jpg|jpeg|gif|pdf|zip|tar|whl|mp4|wav|model|db"
    r"|sqlite|h5|onnx)"
)
# Lines of every trainer match, most other text does not: quicker than asking every reader.
_NUMBERED = Pattern(rb"(?i)(?:iter|step|epoch|batch|loss)[a-z_]{0,12}\W{0,8}\d|\d/\d+ \[|\d ?(?:it/s|s/it|ms)\b")

Sniff = Callable[[bytes], float]


class Failure(NamedTuple):
    """A file below a directory that could not be read, and why."""

    name: str
    error: StepwatchError


class Collection(NamedTuple):
    """What is below a directory."""

    runs: tuple[Run, ...]
    passed_over: int
    """Files that are not logs."""
    failed: tuple[Failure, ...]
    more: bool
    """There were too many files to check them all."""
    gaps: tuple[tuple[str, int], ...] = ()
    """Logs with a missing piece, and how many iterations are missing."""


def notices_of(found: Collection) -> Iterator[Notice]:
    for name, error in found.failed[:_NAMED_FAILURES]:
        yield Notice(Message("{name:word}: {what:word}", {"name": name, "what": error.what}), is_failure=True)
    if len(found.failed) > _NAMED_FAILURES:
        yield Notice(Message("… and {count:n} more.", {"count": len(found.failed) - _NAMED_FAILURES}))
    if found.passed_over:
        count = {"count": found.passed_over}
        yield Notice(
            Message("{count:n} other file is not a log", count, "{count:n} other files are not logs", found.passed_over)
        )
    if found.more:
        yield Notice(Message("only the first {count:n} files were looked at", {"count": MOST_FILES}))


def runs_in(path: str, wanted: ReadingOptions) -> Collection:
    """Raises NoIterations if nothing in the directory is a log, or the error itself if there was only one."""
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
            search.failed.append(Failure(name, error))
            continue
        if log.missing:
            gaps.append((name, log.missing))
    if not found and len(search.failed) == 1:
        raise search.failed[0].error
    if not found and not search.failed:
        facts = {"name": os.path.basename(os.path.normpath(path)), "count": search.passed_over}
        raise NoIterations(
            Message("no log was found in “{name:word}”; files looked at: {count:n}", facts),
            Message("name the log itself, or the directory that contains it"),
        )
    runs = _in_order(joined_ranks(found))
    return Collection(tuple(runs), search.passed_over, tuple(search.failed), search.more, tuple(gaps))


def _in_order(runs: Sequence[Run]) -> list[Run]:
    """Sorts by directory; within one, runs that continue others by iteration, then by clock."""
    spans: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for run in runs:
        if len(run.iterations):
            first, last = int(run.iterations.number[0]), int(run.iterations.number[-1])
            reach = last + NEAR * max(int(spacing(run.iterations.number)), 1)
            spans.setdefault((os.path.dirname(run.source), run.format), []).append((first, reach))

    def place(run: Run) -> tuple[str, int, float, str]:
        where = os.path.dirname(run.source)
        begin = int(run.iterations.number[0]) if len(run.iterations) else 0
        others = spans.get((where, run.format), [])
        goes_on = run.resumed or (not run.has_header and any(first < begin <= reach for first, reach in others))
        if not begin or not goes_on:
            return where, 0, 0.0, run.source
        stamp = float(run.iterations.stamp_s[0])
        return where, begin, stamp if np.isfinite(stamp) else 0.0, run.source

    return sorted(runs, key=place)


@dataclass(slots=True)
class _Search:
    """Searches a directory, counts the files that are not logs, and collects failures."""

    top: str
    wanted: ReadingOptions
    looked: int = 0
    passed_over: int = 0
    failed: list[Failure] = field(default_factory=list)
    more: bool = False

    def name(self, path: str) -> str:
        return os.path.relpath(path, self.top).replace(os.sep, "/")

    def logs(self) -> Iterator[RotatedLog]:
        sniffs = sniffs_of(self.wanted)

        def no_entry(error: OSError) -> None:
            path = str(error.filename or self.top)
            self.failed.append(Failure(self.name(path), unreadable(path, error)))

        for place, names in places_below(self.top, no_entry):
            if wandb_files(place) is not None or mlflow_files(place) or event_files(place):
                yield RotatedLog((place,))
                continue
            for members in groups_of(without_ranks(place, names)):
                self.looked += len(members)
                if self.looked > MOST_FILES:
                    self.more = True
                    return
                paths = [(name, os.path.join(place, file)) for name, file in members]
                are_logs: list[bool | None] = []  # None if unreadable
                for _, file in paths:
                    if not os.path.isfile(file):  # reading a pipe that nobody writes to would block
                        self.passed_over += 1
                        are_logs.append(None)
                        continue
                    try:
                        are_logs.append(looks_like_log(file, sniffs))
                    except (OSError, StepwatchError) as error:
                        why = unreadable(file, error) if isinstance(error, OSError) else error
                        self.failed.append(Failure(self.name(file), why))
                        are_logs.append(None)
                if any(are_logs):  # a piece without iterations, such as an empty one, belongs to the log
                    readable = [found for found, is_log in zip(paths, are_logs, strict=True) if is_log is not None]
                    yield from joined_pieces(readable, self.wanted)
                else:
                    self.passed_over += are_logs.count(False)


def sniffs_of(wanted: ReadingOptions) -> list[Sniff]:
    readers = all_readers().values() if wanted.like is None else (reader_like(wanted.like),)
    return [reader.sniff for reader in readers]


def looks_like_log(path: str, sniffs: Sequence[Sniff]) -> bool:
    """Checks the beginning and some places further on: a header may be longer than any fixed beginning."""
    stem, ending = os.path.splitext(path)
    ending = (os.path.splitext(stem)[1] if ending in SUFFIXES else ending).lower()
    # The kernel's own files have no size, and reading some of them blocks forever.
    if SOURCE_CODE.fullmatch(ending) or not os.path.getsize(path):
        return False
    for number, sample in enumerate(samples_of(path, 1 << 16)):
        if (number == 0 or _NUMBERED.search(sample)) and any(sniff(sample) > 0 for sniff in sniffs):
            return True
        if BINARY.fullmatch(ending):
            return False
    return False
