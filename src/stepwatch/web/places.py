"""Logs on this machine: only regular files below the directories that the command line allows."""

from __future__ import annotations

import os
import stat
from typing import BinaryIO

from stepwatch.errors import StepwatchError, TooLarge, UnreadableInput
from stepwatch.messages import Message
from stepwatch.platforms import opened_to_follow
from stepwatch.sources import samples_of_log
from stepwatch.sources.directories import files_of_samples


class Forbidden(StepwatchError):
    """The path is outside of the allowed directories."""


def opened(path: str, allowed: tuple[str, ...]) -> BinaryIO:
    """Opens first and checks the place afterwards: a link that is changed in between gains nothing."""
    # Does not block: a named pipe in place of a log must not hold a thread.
    stream = opened_to_follow(within(path, allowed), waiting=False)
    try:
        found = os.fstat(stream.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise UnreadableInput(
                Message("“{name:word}” is not a file", {"name": os.path.basename(path)}),
                Message("name the log file in it, for example train.log"),
            )
        if not os.path.samestat(os.stat(within(path, allowed)), found):
            raise _forbidden(path)
    except BaseException:
        stream.close()
        raise
    return stream


def contents(path: str, allowed: tuple[str, ...], limit: int) -> bytes:
    try:
        with opened(path, allowed) as stream:
            size = os.fstat(stream.fileno()).st_size
            text = stream.read(limit + 1) if size <= limit else b""
    except OSError as error:
        name = {"name": os.path.basename(path), "reason": error.strerror or type(error).__name__}
        if isinstance(error, FileNotFoundError):
            raise UnreadableInput(Message("there is no file “{name:word}”", name)) from error
        raise UnreadableInput(Message("“{name:word}” cannot be read: {reason:word}", name)) from error
    if max(size, len(text)) > limit:
        raise TooLarge(Message("the log is larger than {limit:size}", {"limit": limit}))
    return text


def within(path: str, allowed: tuple[str, ...]) -> str:
    """The real path; relative ones are looked up in the first allowed directory."""
    if not path or "\0" in path or not allowed:
        raise _forbidden(path)
    try:
        real = os.path.realpath(os.path.join(allowed[0], path))
        for directory in allowed:
            if os.path.commonpath((real, os.path.realpath(directory))) == os.path.realpath(directory):
                return real
    except (OSError, ValueError):  # a loop of links, or another drive
        pass
    raise _forbidden(path)


def samples_beside(path: str, allowed: tuple[str, ...]) -> str | None:
    """The samples of a watched log, if they are really there: links to other places are not followed."""
    try:
        found = samples_of_log(within(path, allowed))
        if found is None:
            return None
        return found if all(os.path.realpath(file) == file for file in files_of_samples(found)) else None
    except (OSError, StepwatchError):
        return None


def _forbidden(path: str) -> Forbidden:
    return Forbidden(
        Message("“{name:word}” is not in a directory that may be read", {"name": os.path.basename(path)}),
        Message("whoever starts the page allows its directory, with the option “allow”"),
    )
