"""Which files are one run: directories, the pieces of a rotated log, the records of several ranks."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from stepwatch.errors import StepwatchError
from stepwatch.patterns import Pattern
from stepwatch.samples import LOG_FILE, PARQUET_FILE, RUN_FILES, SAMPLES_FILE, beside
from stepwatch.sources.contents import SUFFIXES, head_of

# --- names of the pieces of a rotated log -----------------------------------------------------------------------


_DATE = r"\d{4}-?[01]\d-?[0-3]\d(?:[-_T.]?\d\d[-:.]?\d\d(?:[-:.]?\d\d)?)?"
_INDEX = rf"(?:[.-](?P<date>{_DATE})|\.(?P<number>\d{{1,4}}))"
_PACKED = r"(?:\.(?:gz|xz|bz2|zst))?"
_BEHIND = Pattern(rf"(?P<base>.+?){_INDEX}?(?P<suffix>){_PACKED}")
_BEFORE = Pattern(rf"(?P<base>.+?){_INDEX}(?P<suffix>\.[A-Za-z]{{2,6}}){_PACKED}")


class Name(NamedTuple):
    base: str
    """What the pieces of a log have in common: the name of its newest."""
    date: str = ""
    number: int | None = None

    @property
    def age(self) -> tuple[bool, str, int]:
        """Sorts the oldest first: dates rise, numbers fall, and what has neither is the newest."""
        return not self.date and self.number is None, self.date, -(self.number or 0)


def name_of(name: str) -> Name:
    """By the number or date behind the name, which is usual, else by one before its ending."""
    behind = _BEHIND.fullmatch(name)
    found = behind if behind is not None and (behind["date"] or behind["number"]) else _BEFORE.fullmatch(name) or behind
    if found is None:
        return Name(name)
    date = "".join(letter for letter in found["date"] or "" if letter.isdigit())
    return Name(found["base"] + found["suffix"], date, int(found["number"]) if found["number"] else None)


def groups_of(names: Iterable[str]) -> list[list[tuple[Name, str]]]:
    """Names that may be pieces of one log, the oldest first; whether they are, only their content shows."""
    known = {name: name_of(name) for name in names}
    bases = {found.base for name, found in known.items() if name.startswith(found.base)}
    groups: dict[str, list[tuple[Name, str]]] = {}
    for name, found in known.items():
        own = found if name.startswith(found.base) or name not in bases else Name(name)  # a.1.log, beside a.1.log.2
        groups.setdefault(own.base, []).append((own, name))
    return [sorted(members, key=lambda member: member[0].age) for members in groups.values()]


# --- directories ------------------------------------------------------------------------------------------------


OUTPUT = "output.log"
BESIDE = ("config.yaml", "wandb-metadata.json", "wandb-summary.json")
EVENTS = Pattern(r"\.tfevents\.\d")
PARTS = ("train", "validation", "val", "eval")  # Keras keeps the files of a run in two directories


def wandb_files(path: str) -> tuple[str | None, list[str]] | None:
    """The console output of a W&B run and the files that say more about it; None where the directory is no such run."""
    inner = os.path.join(path, "files")
    place = inner if os.path.isdir(inner) else path
    beside = [file for name in BESIDE if os.path.isfile(file := os.path.join(place, name))]
    output = os.path.join(place, OUTPUT)
    if not any(file.endswith(BESIDE[1:]) for file in beside) and not (beside and os.path.isfile(output)):
        return None
    records = sorted(name for name in os.listdir(path) if name.endswith(".wandb"))
    beside += [os.path.join(path, name) for name in records[:1]]
    return output if os.path.isfile(output) else None, beside


def event_files(path: str) -> list[str]:
    """The event files of one run, by name, which begins with their time."""
    found = []
    for place in (path, *(os.path.join(path, part) for part in PARTS)):
        if os.path.isdir(place):
            with os.scandir(place) as entries:
                some = islice(entries, 10_000)  # a directory of more is none of logs
                found += [entry.path for entry in some if EVENTS.search(entry.name) and entry.is_file()]
    return sorted(found, key=lambda file: (os.path.basename(file), file))


def mlflow_files(path: str) -> list[tuple[str, str]]:
    """The parameters and metrics of an MLflow run, each with its name; nothing where the directory is no such run."""
    if not os.path.isfile(os.path.join(path, "meta.yaml")) or not os.path.isdir(os.path.join(path, "metrics")):
        return []
    found = []
    for kind in ("params", "metrics"):  # a name may hold slashes, and is a place then
        top = os.path.join(path, kind)
        for place, _, names in os.walk(top):
            files = filter(os.path.isfile, (os.path.join(place, name) for name in sorted(names)))
            found += [(file, os.path.relpath(file, path).replace(os.sep, "/")) for file in islice(files, 10_000)]
    return found


def is_run_directory(path: str) -> bool:
    """Whether `stepwatch run` has made it."""
    return os.path.isfile(os.path.join(path, LOG_FILE)) and samples_in(path) is not None


def log_in(path: str) -> str:
    """The log of a directory that `stepwatch run` has made, else the path itself."""
    return os.path.join(path, LOG_FILE) if is_run_directory(path) else path


def samples_in(path: str) -> str | None:
    """Of the directory of a run; its lines where both are there, since those are written up to the end."""
    files = (os.path.join(path, name) for name in (SAMPLES_FILE, PARQUET_FILE))
    return next(filter(os.path.isfile, files), None)


def samples_of_log(path: str) -> str | None:
    """Where the samples are that belong to a log, or to the directory of a run."""
    if is_run_directory(path):
        return path
    if os.path.basename(path) == LOG_FILE and is_run_directory(os.path.dirname(path) or "."):
        return os.path.dirname(path) or "."
    return found if os.path.isfile(path) and os.path.isfile(found := beside(path)) else None


def files_of_samples(found: str) -> list[str]:
    """All that is read with them, there or not."""
    return [os.path.join(found, name) for name in RUN_FILES] if os.path.isdir(found) else [found]


def is_collection(path: str) -> bool:
    """A directory that is not itself one run."""
    if not os.path.isdir(path) or mlflow_files(path) or is_run_directory(path):
        return False
    return wandb_files(path) is None and not event_files(path)


def places_below(top: str, on_error: Callable[[OSError], None]) -> Iterator[tuple[str, list[str]]]:
    """Directories and their files, in order; links to directories and hidden ones are left alone."""
    deepest = top.rstrip(os.sep).count(os.sep) + 12  # levels below
    for place, directories, names in os.walk(top, onerror=on_error):
        directories[:] = sorted(name for name in directories if not name.startswith((".", "__pycache__")))
        if place.count(os.sep) >= deepest or wandb_files(place) is not None or mlflow_files(place):
            directories.clear()
        if event_files(place):  # those of its parts are among them
            directories[:] = [name for name in directories if name not in PARTS]
        own = is_run_directory(place)  # beside its log are samples, which are no logs
        yield place, [LOG_FILE] if own else sorted(name for name in names if not name.startswith("."))


# --- what belongs to a file of the recorder ---------------------------------------------------------------------


RECORD = b'{"stepwatch":'  # how a file of the recorder begins
RANK = Pattern(r"(?P<stem>.+)\.rank\d{1,6}(?P<suffix>\.[^.]+)?")
_CONTINUED = b'"continued":true}'

Texts = Callable[[str], bytes]
"""The text of a file, by its path."""


def whole_record(text: bytes, path: str, text_of: Texts) -> bytes:
    """With the pieces before it: run.jsonl goes on from run.jsonl.1, and that from run.jsonl.2."""
    pieces = [text]
    while is_continued(pieces[0]) and len(pieces) < 10_000:
        names = (f"{path}.{len(pieces)}{packed}" for packed in ("", *SUFFIXES))
        older = next((name for name in names if os.path.isfile(name)), None)
        before = text_of(older) if older is not None else b""
        if not before.startswith(RECORD):
            break
        pieces.insert(0, before if before.endswith(b"\n") else before + b"\n")
    return b"".join(pieces)


def is_continued(text: bytes) -> bool:
    """Whether a record goes on from an older piece."""
    return text[: text.find(b"\n")].rstrip().endswith(_CONTINUED)


def ranks_beside(path: str) -> list[str]:
    """run.rank1.jsonl, run.rank2.jsonl, … beside run.jsonl, by rank."""
    place, name = os.path.split(path)
    stem, suffix = os.path.splitext(name)
    pattern = re.compile(rf"{re.escape(stem)}\.rank(\d{{1,6}}){re.escape(suffix)}")
    found = [(int(match[1]), other) for other in os.listdir(place or ".") if (match := pattern.fullmatch(other))]
    files = (os.path.join(place, other) for _, other in sorted(found)[:4096])  # ranks
    return [file for file in files if os.path.isfile(file)]  # a pipe that nobody writes to would be waited for


def without_ranks(place: str, names: Sequence[str]) -> Iterator[str]:
    """The names of files, without the records of other ranks, which are read with the one of rank 0."""
    there = set(names)
    for name in names:
        found = RANK.fullmatch(name_of(name).base) if ".rank" in name else None
        leader = found["stem"] + (found["suffix"] or "") if found is not None else ""
        try:
            file = os.path.join(place, leader) if leader in there else ""
            beside = os.path.isfile(file) and head_of(file, 1024).startswith(RECORD)
        except (OSError, StepwatchError):  # reported where it is read itself
            beside = False
        if not beside:
            yield name
