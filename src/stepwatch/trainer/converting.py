"""A checkpoint in its other form: everything in it is checked, and nothing of it changes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from threading import Event

from stepwatch.messages import Message
from stepwatch.trainer import CheckpointError
from stepwatch.trainer.keeper import no_room, reason_of, replace
from stepwatch.trainer.resuming import load, newest
from stepwatch.trainer.sharded import is_sharded, write_whole
from stepwatch.trainer.snapshot import size_of

_AT_ONCE = Event()
_AT_ONCE.set()


def convert(source: Path, target: Path) -> int:
    """The iteration of what was written."""
    if source.is_dir() and not is_sharded(source):
        source = newest(source)
    if target.exists():
        raise CheckpointError(
            Message("“{name:word}” already exists", {"name": str(target)}), Message("choose another name for it")
        )
    try:
        saved = load(source)
    except CheckpointError as error:  # what it advises is for a training
        raise CheckpointError(
            error.what, Message("name another checkpoint, or the directory of a training run")
        ) from error
    target.parent.mkdir(parents=True, exist_ok=True)
    failed = no_room(target.parent, size_of(saved))
    if failed is None:
        failed = replace(target, saved, _AT_ONCE) if target.suffix == ".pt" else _as_directory(saved, target)
    if failed is not None:
        raise CheckpointError(
            Message("“{name:word}” cannot be written: {reason:word}", {"name": str(target), "reason": failed}),
            Message("choose another place for it"),
        )
    return int(saved["iter_num"])


def _as_directory(saved: dict[str, object], target: Path) -> str | None:
    new = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        write_whole(new, saved)
        new.rename(target)
    except Exception as error:  # whatever it was, nothing is left of it
        shutil.rmtree(new, ignore_errors=True)
        return reason_of(error)
    return None
