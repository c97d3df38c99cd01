"""Finds logs: all files below directories, globs and buckets, grouped into logs by their names alone.

No file is opened here: a listing must not open ten thousand files.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from fsspec.core import url_to_fs

from stepwatch.errors import InputError
from stepwatch.messages import Message
from stepwatch.readers.collection import BINARY, SOURCE_CODE
from stepwatch.readers.log_files import groups_of, name_of
from stepwatch.samples import LOG_FILE, PARQUET_FILE, RUN_FILES, SAMPLES_FILE
from stepwatch.sources import unreadable
from stepwatch.sources.contents import SUFFIXES
from stepwatch.sources.directories import EVENT_DIRECTORIES, EVENTS, OUTPUT, RANK, WANDB_FILES

T = TypeVar("T")

WAITS_S = (0.2, 0.8, 3.2)
"""Waits before the second, third and fourth attempt."""
FINAL = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError, ImportError, ValueError, TypeError)
"""Errors after which there is no further attempt."""
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
ENVIRONMENT_FILE = "environment.json"
MOST_PIECES = 100
"""The most pieces of a rotated log. If more files share a name before a number, each is a separate log."""
_DATABASES = (".db", ".sqlite")  # of trackio and MLflow
# How file systems name the time of writing, and a tag that changes with the file.
_TIMES = ("mtime", "LastModified", "last_modified", "Last-Modified", "updated", "created")
_TAGS = ("ETag", "etag", "md5Hash", "blob_id", "sha256", *_TIMES[:-1])


class File(NamedTuple):
    path: str
    """Absolute, or an address."""
    size: int
    tag: str
    written_s: float | None = None


class FileGroup(NamedTuple):
    """Files that are read together."""

    name: str
    """As found: the path or address of the file, of the newest of its pieces, or of the directory."""
    files: tuple[File, ...]
    kind: str = "files"
    """`files`, `directory` or `archive`."""

    @property
    def fingerprint(self) -> str:
        known = sorted((file.path, file.size, file.tag) for file in self.files)
        return hashlib.blake2b(repr(known).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def find_logs(places: Iterable[str]) -> list[FileGroup]:
    """Each log once, sorted by name; raises InputError if a place does not exist."""
    found: dict[str, FileGroup] = {}
    for place in places:
        for log in logs_among(files_at(place)):
            found.setdefault(log.name, log)
    return [found[name] for name in sorted(found)]


# --- listing ----------------------------------------------------------------------------------------------------


def files_at(place: str) -> list[File]:
    """The files below a directory, the files that match a glob, or the single file."""
    local = "://" not in place and "::" not in place
    if local and os.path.isdir(place):
        return list(_below(os.path.abspath(place)))
    try:
        return retried(lambda: _listed(os.path.abspath(place) if local else without_password(place)))
    except InputError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and local:
            raise unreadable(place, error) from error
        raise InputError(
            Message("“{name:word}” cannot be listed: {reason:word}", {"name": place, "reason": reason_of(error)}),
            Message(
                "check the address, the credentials and that the package for it is installed (s3fs, gcsfs, adlfs, …)"
            ),
        ) from error


def _below(top: str) -> Iterator[File]:
    """The files below a directory, without hidden ones; ignores links to directories and what may not be entered."""
    try:
        entries = sorted(os.scandir(top), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith((".", "__pycache__")):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _below(entry.path)
            continue
        try:
            if entry.is_file():
                state = entry.stat()
                yield File(entry.path, state.st_size, str(state.st_mtime), state.st_mtime)
        except OSError:  # a broken link
            continue


def _listed(place: str) -> list[File]:
    fs, path = url_to_fs(place)
    fs.invalidate_cache()
    if any(sign in path for sign in "*?["):
        listed: dict[str, Mapping[str, Any]] = {}
        for name, info in fs.glob(path, detail=True).items():
            listed |= fs.find(name, detail=True) if info.get("type") == "directory" else {name: info}
    else:
        listed = fs.find(path, detail=True)
    if not listed:
        raise FileNotFoundError(f"nothing is there: {place}")
    # Names come without protocol and host: add those of the place to get addresses again.
    before = place.rstrip("/").removesuffix(path.rstrip("/"))
    files = []
    for name, info in listed.items():
        if any(part.startswith((".", "__pycache__")) for part in name.removeprefix(path).split("/")):
            continue
        if not any(info.get(key) for key in _TAGS):  # the listing of a web server only has names
            info = fs.info(name)
        tag = next((str(info[key]) for key in _TAGS if info.get(key)), "")
        files.append(File(before + name, int(info.get("size") or 0), tag, _seconds(info)))
    return files


def _seconds(info: Mapping[str, Any]) -> float | None:
    value = next((info[key] for key in _TIMES if info.get(key)), None)
    if isinstance(value, str):
        try:
            value = parsedate_to_datetime(value) if "," in value else datetime.fromisoformat(value)
        except ValueError:
            return None
    return value.timestamp() if isinstance(value, datetime) else float(value) if value is not None else None


# --- which files are one log ------------------------------------------------------------------------------------


def logs_among(files: Iterable[File]) -> Iterator[FileGroup]:
    """Groups files into logs by the same rules as `explain` in a directory, but only by their names."""
    places: dict[str, dict[str, File]] = {}
    for file in files:
        place, _, name = file.path.replace(os.sep, "/").rpartition("/")
        places.setdefault(place, {})[name] = file
    measured = {place.partition("/metrics/")[0].removesuffix("/metrics") for place in places if "/metrics" in place}
    kinds: dict[str, str] = {}  # of the directories that are runs
    for place, names in places.items():
        above, _, own = place.rpartition("/")
        if LOG_FILE in names and (SAMPLES_FILE in names or PARQUET_FILE in names):
            kinds[place] = "recorded"
        elif any(name in names for name in WANDB_FILES[1:]) or (WANDB_FILES[0] in names and OUTPUT in names):
            kinds[above if own == "files" else place] = "wandb"
        elif "meta.yaml" in names and place in measured:
            kinds[place] = "mlflow"
        elif any(map(EVENTS.search, names)):
            kinds[above if own in EVENT_DIRECTORIES else place] = "events"
    runs: dict[str, list[File]] = {}
    for place, names in places.items():
        above, _, own = place.rpartition("/")
        owner: str | None = place  # the run directory that the place is in
        if place not in kinds:
            owner = above if kinds.get(above) == "events" and own in EVENT_DIRECTORIES else None
            while owner is None and above:
                owner = above if kinds.get(above) in ("wandb", "mlflow") else None
                above = above.rpartition("/")[0]
        if owner is None:
            yield from _loose(place, names)
        else:
            inner = place.removeprefix(owner).strip("/").split("/")[0]
            belongs = _BELONGS[kinds[owner]]
            runs.setdefault(owner, []).extend(file for name, file in names.items() if belongs(inner, name))
    for place, found in runs.items():
        yield FileGroup(place, tuple(found), "directory")


# Which files of a run are read (no checkpoints, media and so on), by the first part of the path inside the run and
# the file name.
_BELONGS: Mapping[str, Callable[[str, str], bool]] = {
    "recorded": lambda inner, name: not inner and name in (*RUN_FILES, ENVIRONMENT_FILE),
    "wandb": lambda inner, name: name in (OUTPUT, *WANDB_FILES) or name.endswith(".wandb"),
    "mlflow": lambda inner, name: name == "meta.yaml" or inner in ("params", "metrics"),
    "events": lambda inner, name: EVENTS.search(name) is not None,
}


def _loose(place: str, names: Mapping[str, File]) -> Iterator[FileGroup]:
    """The logs in a directory that is not a log itself; pieces, samples and ranks go with their log."""
    plain: dict[str, File] = {}
    for name, file in names.items():
        if name.startswith(".") or name == ENVIRONMENT_FILE:
            continue
        stem, ending = os.path.splitext(name)
        ending = (os.path.splitext(stem)[1] if ending in SUFFIXES else ending).lower()
        is_other = SOURCE_CODE.fullmatch(ending) or BINARY.fullmatch(ending)
        if not is_other or name.lower().endswith((*ARCHIVES, *_DATABASES)):
            plain[name] = file
    with_it: dict[str, list[File]] = {}
    for name in [*plain]:
        if name.lower().endswith(ARCHIVES):
            yield FileGroup(plain[name].path, (plain.pop(name),), "archive")
            continue
        rank = RANK.fullmatch(name_of(name).base) if ".rank" in name else None
        leader = rank["stem"] + (rank["suffix"] or "") if rank is not None else ""
        if rank is None and name.endswith(".samples.csv"):
            sampled = (name.removesuffix(".samples.csv") + ending for ending in (".jsonl", ".log", ".txt", ".out"))
            leader = next((log for log in sampled if log in plain), "")
        if leader in plain and leader != name:
            with_it.setdefault(leader, []).append(plain.pop(name))
    for members in groups_of(plain):
        groups = [members] if len(members) <= MOST_PIECES else [[member] for member in members]
        for group in groups:
            of_group = [file for _, name in group for file in (plain[name], *with_it.get(name, ()))]
            newest = plain[group[-1][1]].path
            base = f"{place}/{group[0][0].base}" if len(group) > 1 else newest
            yield FileGroup(base, tuple(of_group))


# --- places on other machines, which fail at times ---------------------------------------------------------------


def retried(attempt: Callable[[], T]) -> T:
    """Returns what the attempt returns; raises the last error. Each file system has errors of its own."""
    for wait_s in WAITS_S:
        try:
            return attempt()
        except FINAL:
            raise
        except Exception:
            time.sleep(wait_s)
    return attempt()


def reason_of(error: Exception) -> str:
    """The error in one line."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def without_password(place: str) -> str:
    """The place; raises InputError if it has a password, which the store would keep."""
    if "://" in place and urlsplit(place).password is not None:
        scheme = urlsplit(place).scheme.upper()  # fsspec reads FSSPEC_<SCHEME>_<OPTION>
        example = "AWS_SECRET_ACCESS_KEY=…" if scheme == "S3" else f"FSSPEC_{scheme}_PASSWORD=…"
        raise InputError(
            Message("there is a password in the address, which would be kept in the store"),
            Message("give it by the environment: {example:list}", {"example": example}),
        )
    return place
