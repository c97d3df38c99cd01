"""A directory as an input: what in it can be read, each run once, the pieces of a rotated log joined."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from stepwatch.errors import NoIterations, StepwatchError
from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers import READERS, joined_ranks, read
from stepwatch.run import Run
from stepwatch.sources import LARGEST_EXPANSION_BYTES, RECORD, Source, from_file, from_pieces, head_of
from stepwatch.sources.directories import event_files, wandb_files
from stepwatch.sources.records import leader_of

MOST_FILES = 20_000
DEEPEST = 12
_HEAD_BYTES, _MARK_BYTES = 1 << 16, 1 << 10
# train.log, train.log.1, train.log.2.gz: the highest number is the oldest.
_ROTATED = Pattern(r"(?P<base>.+?)(?:\.(?P<number>\d{1,4}))?(?P<packed>\.gz)?")
_NO_LOGS = frozenset({
    ".py", ".pyc", ".so", ".c", ".h", ".cu", ".cpp", ".js", ".ts", ".css", ".html", ".pt", ".pth", ".ckpt", ".bin",
    ".safetensors", ".npy", ".npz", ".pkl", ".parquet", ".arrow", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".pdf",
    ".zip", ".tar", ".whl", ".mp4", ".wav", ".toml", ".lock", ".model", ".db", ".sqlite", ".h5", ".onnx",
})  # fmt: skip


class Collection(NamedTuple):
    runs: tuple[Run, ...]
    passed_over: int
    """Files that are no log."""
    failed: tuple[tuple[str, StepwatchError], ...]
    """Logs that could not be read, and why."""
    more: bool
    """There were too many files to look at all of them."""


def runs_in(path: str, *, format_name: str | None = None, limit: int = LARGEST_EXPANSION_BYTES) -> Collection:
    """Raises NoIterations where nothing in the directory is a log."""
    found: list[Run] = []
    failed: list[tuple[str, StepwatchError]] = []
    logs, passed_over, more = _logs(path)
    for pieces in logs:
        name = os.path.relpath(pieces[-1], path).replace(os.sep, "/")
        try:
            runs = read(_joined(pieces, limit), format_name)
            found += [replace(run, source=name) for run in runs]
        except StepwatchError as error:
            failed.append((name, error))
    if not found:
        raise failed[0][1] if len(failed) == 1 else _nothing(path, passed_over)
    return Collection(tuple(_in_order(list(joined_ranks(found)))), passed_over, tuple(failed), more)


def _nothing(path: str, looked_at: int) -> NoIterations:
    facts = {"name": os.path.basename(os.path.normpath(path)), "count": looked_at}
    return NoIterations(
        Message("no log was found in “{name:word}”; files looked at: {count:n}", facts),
        Message("name the log itself, or the directory that holds it"),
    )


def _in_order(runs: list[Run]) -> list[Run]:
    """By place; the pieces of a run that was resumed, in one directory, by the iterations that they hold."""

    def place(run: Run) -> tuple[str, int, str]:
        first = int(run.iterations.number[0]) if len(run.iterations) else 0
        return os.path.dirname(run.source), first if run.resumed else 0, run.source

    return sorted(runs, key=place)


def _joined(pieces: list[str], limit: int) -> Source:
    """The pieces of a rotated log as one text, the oldest first."""
    return from_file(pieces[0], limit=limit) if len(pieces) == 1 else from_pieces(pieces, limit=limit)


def _logs(top: str) -> tuple[list[list[str]], int, bool]:
    """The logs below a directory, each as its pieces; how many files are none; whether the search was cut short."""
    logs: list[list[str]] = []
    looked = passed_over = 0
    for place, names in _places(top):
        if wandb_files(place) is not None or event_files(place):
            logs.append([place])
            continue
        for pieces in _rotated(list(_without_ranks(place, names))):
            looked += len(pieces)
            if looked > MOST_FILES:
                return logs, passed_over, True
            paths = [os.path.join(place, name) for name in pieces]
            if _is_log(paths[-1]):
                logs.append(paths)
            else:
                passed_over += len(pieces)
    return logs, passed_over, False


def _places(top: str) -> Iterator[tuple[str, list[str]]]:
    """Directories and their files, in order; links to directories and hidden ones are left alone."""
    deepest = top.rstrip(os.sep).count(os.sep) + DEEPEST
    for place, directories, names in os.walk(top):
        directories[:] = sorted(name for name in directories if not name.startswith((".", "__pycache__")))
        if place.count(os.sep) >= deepest or wandb_files(place) is not None:
            directories.clear()
        yield place, sorted(name for name in names if not name.startswith("."))


def _without_ranks(place: str, names: list[str]) -> Iterator[str]:
    """The names, without the records of other ranks, which are read with the one of rank 0."""
    there = set(names)
    for name in names:
        leader = leader_of(_base(name))
        if leader not in there or not head_of(os.path.join(place, leader), _MARK_BYTES).startswith(RECORD):
            yield name


def _base(name: str) -> str:
    found = _ROTATED.fullmatch(name)
    return found["base"] if found else name


def _rotated(names: list[str]) -> list[list[str]]:
    """File names in groups: a log and its older pieces, oldest first; every other file alone."""
    groups: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        found = _ROTATED.fullmatch(name)
        base, number = (found["base"], int(found["number"] or 0)) if found else (name, 0)
        groups.setdefault(base, []).append((number, name))
    together: list[list[str]] = []
    for members in groups.values():
        numbers = sorted({number for number, _ in members}, reverse=True)
        if len(numbers) == len(members) and numbers[-1] <= 1:
            together.append([name for _, name in sorted(members, reverse=True)])
        else:
            together += [[name] for _, name in members]
    return together


def _is_log(path: str) -> bool:
    if os.path.splitext(path.removesuffix(".gz"))[1].lower() in _NO_LOGS or not os.path.isfile(path):
        return False
    head = head_of(path, _HEAD_BYTES)
    return any(reader.sniff(head) > 0 for reader in READERS.values())
