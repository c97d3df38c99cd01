"""What a user names, as runs: files, directories, standard input; with what was noticed on the way."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stepwatch.errors import NoIterations, NothingRead, Notice, StepwatchError
from stepwatch.messages import Message
from stepwatch.readers.detection import detect
from stepwatch.readers.rank_joining import joined_ranks
from stepwatch.readers.reading import read
from stepwatch.run import Run
from stepwatch.sources import LARGEST_EXPANSION_BYTES, Source, from_file, from_stdin, is_binary
from stepwatch.sources.directories import is_collection


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The runs in what was named, in its order, and what is to be said beside them."""

    runs: tuple[Run, ...]
    notices: tuple[Notice, ...] = ()
    """Logs that could not be read, files that are no logs."""
    gaps: tuple[Message, ...] = ()
    """Logs of which a piece is missing."""
    text: bytes = b""
    """Where all runs are of one text: its lines are those that the runs count."""


def read_all(
    logs: Sequence[str | Source],
    *,
    log_format: str | None = None,
    like: str | None = None,
    limit: int = LARGEST_EXPANSION_BYTES,
) -> Found:
    """Files, directories, `-` for standard input, or sources at hand.

    One bad log among several is a notice; alone it is the error. Raises NothingRead where all of several are bad.
    """
    wanted = Wanted(log_format, like, limit)
    if len(logs) == 1 and not (isinstance(logs[0], str) and os.path.isdir(logs[0])):
        source = _opened(logs[0], limit)
        text = b"" if source.beside or is_binary(source.text) else source.text
        return Found(runs=joined_ranks(wanted.read(source)), text=text)
    from stepwatch.readers.collection import notices_of, runs_in
    from stepwatch.readers.log_files import Log, logs_among

    runs: list[Run] = []
    notices: list[Notice] = []
    gaps: list[tuple[str, int]] = []
    names = [log for log in logs if isinstance(log, str)]
    for log in logs_among(names, wanted) if len(names) == len(logs) > 1 else logs:
        path = log if isinstance(log, str) else log.paths[-1] if isinstance(log, Log) else None
        try:
            if isinstance(log, Source):
                runs += wanted.read(log)
            elif path == "-":
                runs += wanted.read(_opened(path, limit))
            elif path is not None and is_collection(path):
                found = runs_in(path, wanted)
                runs += found.runs
                notices += notices_of(found)
                gaps += found.gaps
            else:
                whole = log if isinstance(log, Log) else Log((log,))
                runs += whole.runs(wanted)
                gaps.append((whole.paths[-1], whole.missing))
        except StepwatchError as error:
            if len(logs) < 2:
                raise
            notices.append(Notice(error.what, error.remedy, is_failure=True))
    if not runs:
        failure = next(notice for notice in notices if notice.is_failure)
        nothing = NothingRead(failure.what, failure.remedy)
        nothing.notices = tuple(notices)
        raise nothing
    pieces = (
        Message(
            "A piece of “{name:word}” is missing, with {count:n} iterations.",
            {"name": os.path.basename(name), "count": missing},
        )
        for name, missing in gaps
        if missing
    )
    return Found(runs=joined_ranks(runs), notices=tuple(notices), gaps=tuple(pieces))


def _opened(log: str | Source, limit: int) -> Source:
    if isinstance(log, Source):
        return log
    return from_stdin(limit=limit) if log == "-" else from_file(log, limit=limit)
