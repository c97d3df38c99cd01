"""Logs on this machine: only regular files below the directories that the command line allows."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from stepwatch.errors import StepwatchError, TooLarge, UnreadableInput
from stepwatch.messages import Message


class Forbidden(StepwatchError):
    """Outside of what was allowed, by whatever road."""


class Grown(NamedTuple):
    """What tells whether a file has changed."""

    device: int
    inode: int
    size: int
    modified_ns: int


def grown(path: str, allowed: tuple[str, ...]) -> Grown:
    """The state of a file without reading it."""
    real = _within(path, allowed)
    try:
        found = os.stat(real)
    except OSError as error:
        raise _unreadable(path, error) from error
    return Grown(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def contents(path: str, allowed: tuple[str, ...], limit: int) -> bytes:
    """Opened first and asked for its place then: a link that is changed in between leads nowhere."""
    real = _within(path, allowed)
    try:
        # Without waiting: a pipe in the place of a log must not hold a thread.
        descriptor = os.open(real, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise _no_file(path)
        if not os.path.samestat(os.stat(_within(path, allowed)), found):
            raise _forbidden(path)
        if found.st_size > limit:
            raise _too_large(limit)
        with os.fdopen(os.dup(descriptor), "rb") as stream:
            text = stream.read(limit + 1)
    except OSError as error:
        raise _unreadable(path, error) from error
    finally:
        os.close(descriptor)
    if len(text) > limit:
        raise _too_large(limit)
    return text


def _within(path: str, allowed: tuple[str, ...]) -> str:
    """The real place of a path; relative ones are looked for in the first allowed directory."""
    if not path or "\0" in path or not allowed:
        raise _forbidden(path)
    try:
        real = os.path.realpath(os.path.join(allowed[0], path))
        for directory in allowed:
            if os.path.commonpath((real, os.path.realpath(directory))) == os.path.realpath(directory):
                return real
    except (OSError, ValueError):  # a loop of links, another drive
        pass
    raise _forbidden(path)


def _forbidden(path: str) -> Forbidden:
    return Forbidden(
        Message("“{name:word}” is not in a directory that may be read", {"name": os.path.basename(path)}),
        Message("allow its directory when you start the page: stepwatch serve --allow DIRECTORY"),
    )


def _too_large(limit: int) -> TooLarge:
    return TooLarge(Message("the log is larger than {limit:size}", {"limit": limit}))


def _no_file(path: str) -> UnreadableInput:
    return UnreadableInput(
        Message("“{name:word}” is not a file", {"name": os.path.basename(path)}),
        Message("name the log file in it, for example train.log"),
    )


def _unreadable(path: str, error: OSError) -> UnreadableInput:
    name = {"name": os.path.basename(path), "reason": error.strerror or type(error).__name__}
    if isinstance(error, FileNotFoundError):
        return UnreadableInput(Message("there is no file “{name:word}”", name))
    return UnreadableInput(Message("“{name:word}” cannot be read: {reason:word}", name))
