"""Makes the files of a log available on this machine: as they are, fetched, or taken out of an archive."""

from __future__ import annotations

import os
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager

from fsspec.core import url_to_fs

from stepwatch.errors import TooLarge, UnreadableInput
from stepwatch.fleet.logs import File, FileGroup, reason_of, retried
from stepwatch.messages import Message
from stepwatch.sources.contents import too_large


class Unreachable(OSError):
    """A file could not be fetched: that is not the log's fault, and may work next time."""


@contextmanager
def fetched_locally(log: FileGroup, *, limit: int) -> Iterator[tuple[str, ...]]:
    """The local paths of its files; a single path for a directory or an archive."""
    if log.size > limit:
        raise too_large(limit)
    local = not any("://" in file.path for file in log.files)
    if local and log.kind != "archive":
        yield (log.name,) if log.kind == "directory" else tuple(file.path for file in log.files)
        return
    with tempfile.TemporaryDirectory(prefix="stepwatch-") as place:
        above = log.name if log.kind == "directory" else log.files[0].path.rpartition("/")[0]
        paths = [file.path if local else _fetched(file, above, place) for file in log.files]
        if log.kind == "archive":
            inside = os.path.join(place, "inside")
            _unpack(paths[0], inside, limit)
            yield (inside,)
        else:
            yield (place,) if log.kind == "directory" else tuple(paths)


def _fetched(file: File, above: str, place: str) -> str:
    inner = file.path.removeprefix(above).strip("/").split("/")
    path = os.path.join(place, *(part for part in inner if part not in ("", ".", "..")))
    os.makedirs(os.path.dirname(path), exist_ok=True)

    def get() -> None:
        fs, remote = url_to_fs(file.path)
        fs.get_file(remote, path)
        if os.path.getsize(path) < file.size:  # the connection was closed too early
            raise OSError("incomplete")

    try:
        retried(get)
    except Exception as error:  # each file system has errors of its own
        raise Unreachable(reason_of(error)) from error
    if file.written_s is not None:
        os.utime(path, (file.written_s, file.written_s))
    return path


def _unpack(path: str, place: str, limit: int) -> None:
    """Raises TooLarge before writing more than the limit."""
    os.makedirs(place, exist_ok=True)
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as packed:
                if sum(member.file_size for member in packed.infolist()) > limit:
                    raise too_large(limit)
                packed.extractall(place)
            return
        with tarfile.open(path) as pieces:
            size = 0
            for member in pieces:
                size += member.size
                if size > limit:
                    raise too_large(limit)
                if member.isfile() or member.isdir():
                    pieces.extract(member, place, filter="data")
    except TooLarge:
        raise
    except (OSError, EOFError, RuntimeError, ValueError, tarfile.TarError, zipfile.BadZipFile) as error:
        name = {"name": os.path.basename(path), "reason": reason_of(error)}
        raise UnreadableInput(Message("“{name:word}” cannot be unpacked: {reason:word}", name)) from error
