"""Which files make up one run: directories, its samples, the pieces and the ranks of a record."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from itertools import islice

from stepwatch.samples import LOG_FILE, PARQUET_FILE, RUN_FILES, SAMPLES_FILE
from stepwatch.sources.contents import SUFFIXES

# --- directories ------------------------------------------------------------------------------------------------


OUTPUT = "output.log"
WANDB_FILES = ("config.yaml", "wandb-metadata.json", "wandb-summary.json")
EVENTS = re.compile(r"\.tfevents\.\d")
EVENT_DIRECTORIES = ("train", "validation", "val", "eval")  # Keras keeps the files of a run in two directories


def wandb_files(path: str) -> tuple[str | None, list[str]] | None:
    """The console output of a W&B run and the files that say more about it; None for any other directory."""
    inner = os.path.join(path, "files")
    place = inner if os.path.isdir(inner) else path
    beside = [file for name in WANDB_FILES if os.path.isfile(file := os.path.join(place, name))]
    output = os.path.join(place, OUTPUT)
    if not any(file.endswith(WANDB_FILES[1:]) for file in beside) and not (beside and os.path.isfile(output)):
        return None
    records = sorted(name for name in os.listdir(path) if name.endswith(".wandb"))
    beside += [os.path.join(path, name) for name in records[:1]]
    return output if os.path.isfile(output) else None, beside


def event_files(path: str) -> list[str]:
    """The event files of one run, sorted by name, which begins with their time."""
    found = []
    for place in (path, *(os.path.join(path, part) for part in EVENT_DIRECTORIES)):
        if os.path.isdir(place):
            with os.scandir(place) as entries:
                some = islice(entries, 10_000)  # a directory with more entries does not contain logs
                found += [entry.path for entry in some if EVENTS.search(entry.name) and entry.is_file()]
    return sorted(found, key=lambda file: (os.path.basename(file), file))


def mlflow_files(path: str) -> list[tuple[str, str]]:
    """The parameters and metrics of an MLflow run, each with its name; empty for any other directory."""
    if not os.path.isfile(os.path.join(path, "meta.yaml")) or not os.path.isdir(os.path.join(path, "metrics")):
        return []
    found = []
    for kind in ("params", "metrics"):  # a name may contain slashes, and is a path then
        top = os.path.join(path, kind)
        for place, _, names in os.walk(top):
            files = filter(os.path.isfile, (os.path.join(place, name) for name in sorted(names)))
            found += [(file, os.path.relpath(file, path).replace(os.sep, "/")) for file in islice(files, 10_000)]
    return found


def is_run_directory(path: str) -> bool:
    """Whether `stepwatch run` made the directory."""
    return os.path.isfile(os.path.join(path, LOG_FILE)) and samples_in(path) is not None


def log_in(path: str) -> str:
    """The log in a directory made by `stepwatch run`, else the path itself."""
    return os.path.join(path, LOG_FILE) if is_run_directory(path) else path


def samples_in(path: str) -> str | None:
    """The samples in the directory of a run; CSV rather than Parquet, since it is written up to the end."""
    files = (os.path.join(path, name) for name in (SAMPLES_FILE, PARQUET_FILE))
    return next(filter(os.path.isfile, files), None)


def files_of_samples(found: str) -> list[str]:
    """All files that are read with the samples, whether they exist or not."""
    return [os.path.join(found, name) for name in RUN_FILES] if os.path.isdir(found) else [found]


def is_collection(path: str) -> bool:
    """Whether it is a directory that is not itself one run."""
    if not os.path.isdir(path) or mlflow_files(path) or is_run_directory(path):
        return False
    return wandb_files(path) is None and not event_files(path)


def places_below(top: str, on_error: Callable[[OSError], None]) -> Iterator[tuple[str, list[str]]]:
    """Directories and their files, in order; links to directories and hidden ones are skipped."""
    deepest = top.rstrip(os.sep).count(os.sep) + 12  # levels below
    for place, directories, names in os.walk(top, onerror=on_error):
        directories[:] = sorted(name for name in directories if not name.startswith((".", "__pycache__")))
        if place.count(os.sep) >= deepest or wandb_files(place) is not None or mlflow_files(place):
            directories.clear()
        if event_files(place):  # they include the files in EVENT_DIRECTORIES
            directories[:] = [name for name in directories if name not in EVENT_DIRECTORIES]
        own = is_run_directory(place)  # next to its log are samples, which are not logs
        yield place, [LOG_FILE] if own else sorted(name for name in names if not name.startswith("."))


# --- what belongs to a file of the recorder ---------------------------------------------------------------------


RECORD = b'{"stepwatch":'  # how a file of the recorder begins
RANK = re.compile(r"(?P<stem>.+)\.rank\d{1,6}(?P<suffix>\.[^.]+)?")
_CONTINUED = b'"continued":true}'

Texts = Callable[[str], bytes]
"""The text of a file, by its path."""


def whole_record(text: bytes, path: str, text_of: Texts) -> bytes:
    """The record with its older pieces: run.jsonl continues run.jsonl.1, which continues run.jsonl.2."""
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
    """Whether a record continues an older piece."""
    return text[: text.find(b"\n")].rstrip().endswith(_CONTINUED)


def ranks_beside(path: str) -> list[str]:
    """run.rank1.jsonl, run.rank2.jsonl, … next to run.jsonl, by rank."""
    place, name = os.path.split(path)
    stem, suffix = os.path.splitext(name)
    pattern = re.compile(rf"{re.escape(stem)}\.rank(\d{{1,6}}){re.escape(suffix)}")
    found = [(int(match[1]), other) for other in os.listdir(place or ".") if (match := pattern.fullmatch(other))]
    files = (os.path.join(place, other) for _, other in sorted(found)[:4096])  # ranks
    return [file for file in files if os.path.isfile(file)]  # opening a pipe without a writer would block
