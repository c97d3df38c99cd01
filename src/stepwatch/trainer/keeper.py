"""Checkpoints that are written in the background, and are complete whenever the process dies.

A thread takes the tensors while training computes the next gradients (snapshot.py), writes them to a new file next to
ckpt.pt, and moves that into place once it is safe on the disk. A small one is written at once if the disk is fast: a
thread would take about as much time from the step. The file is a checkpoint of nanoGPT: model, optimizer, model_args,
iter_num, best_val_loss, config. A save at a stop never replaces another run's checkpoint, nor the best one if only the
best is kept: it is then written next to ckpt.pt.
"""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from io import BufferedWriter, BytesIO, FileIO, RawIOBase
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import torch

from stepwatch.messages import Message
from stepwatch.platforms import drop_from_cache, lower_priority, replace_durably
from stepwatch.trainer import CheckpointError
from stepwatch.trainer.resuming import KEPT, NAME, STOPPED
from stepwatch.trainer.snapshot import Packed, PendingSnapshot, Snapshot

_MARGIN = 4_000_000  # bytes beyond the tensors: names, the zip's directory, and some for other files on the disk
_PIECE = 1 << 20  # bytes written at a time
# Bytes and seconds: a smaller checkpoint is written at once, unless the disk took longer for the previous one, which
# would be several steps of such a model.
_AT_ONCE, _QUICK_S = 1 << 20, 0.01


class Saved(NamedTuple):
    """The result of a save: how long the writing took, or why it failed and the previous file was kept."""

    at: int
    seconds: float
    size: int
    path: Path
    failed: str | None = None
    was_waited_for: bool = False


class CheckpointWriter:
    """Writes ckpt.pt of a directory; never two writes at the same time, and the last good one always exists."""

    _packs = True
    """The checkpoint is a single file."""

    def __init__(
        self,
        directory: Path,
        *,
        background: bool = True,
        on_written: Callable[[Saved], object] | None = None,
        resumed_from: Path | None = None,
        keeps_best: bool = False,
        copies: int = 0,
    ) -> None:
        """on_written is called after each write, from the thread that wrote; `copies` of the newest files are kept."""
        self.path = directory / NAME
        self.is_ours = not self.path.exists() or resumed_from == self.path
        """Whether ckpt.pt, if there is one, belongs to this run."""
        self._keeps_best, self._copies = keeps_best, copies
        self._resumed_from = resumed_from
        self._report = on_written or (lambda saved: None)
        self._snapshot = Snapshot(packs=self._packs)
        self._writer = ThreadPoolExecutor(1, "stepwatch-keeper") if background else None
        self._writing: Future[None] | None = None
        self._copy: PendingSnapshot | None = None
        self._hurry = Event()
        began = time.perf_counter()
        probe(directory)
        self._last_s = time.perf_counter() - began
        """How long writing the last file took."""
        for leftover in directory.glob(f"{NAME}.*.tmp"):
            with suppress(OSError):
                leftover.unlink(missing_ok=True)

    def expect(self, checkpoint: Mapping[str, Any]) -> None:
        """Prepares for checkpoints of this size: a first save takes fresh memory, and runs code for the first time."""
        if self._writer is None:
            return
        if self._snapshot.make_room(checkpoint):
            # A copy is written at low priority; without a copy the training waits for the writing.
            self._writer.submit(lower_priority)
        torch.save({"w": torch.zeros(1)}, BytesIO())

    def begin(self, checkpoint: Mapping[str, Any], at: int, *, stopped: bool = False) -> float:
        """Has the checkpoint taken and written; returns the seconds waited. Call `settle` before a tensor changes."""
        began = time.perf_counter()
        self.wait()
        try:
            self._copy = copy = self._snapshot.begin(checkpoint)
        except Exception as error:  # of a small checkpoint, the file is made there
            self._report(Saved(at, 0.0, 0, self.path, reason_of(error)))
            return time.perf_counter() - began
        is_small = isinstance(copy, Packed) and copy.size < _AT_ONCE
        if self._writer is None or (is_small and self._last_s < _QUICK_S):
            self._copy = None
            self._hurry.set()
            self._write(copy, at, stopped, was_waited_for=True)
            self._hurry.clear()
        else:
            self._writing = self._writer.submit(self._write, copy, at, stopped)
        return time.perf_counter() - began

    def settle(self) -> float:
        """Waits until the current copy is complete; returns the seconds waited."""
        copy, self._copy = self._copy, None
        if copy is None:
            return 0.0
        began = time.perf_counter()
        copy.settle()
        return time.perf_counter() - began

    def save(self, checkpoint: Mapping[str, Any], at: int) -> float:
        """Copies the checkpoint and has it written; returns the seconds that the caller waited."""
        return self.begin(checkpoint, at) + self.settle()

    def wait(self) -> None:
        """Waits until nothing is being written."""
        if self._writing is None:
            return
        self._hurry.set()
        try:
            self._writing.result()
        finally:
            self._hurry.clear()

    def close(self) -> None:
        self.wait()
        if self._writer is not None:
            self._writer.shutdown()

    def _write(self, copy: PendingSnapshot, at: int, stopped: bool, was_waited_for: bool = False) -> None:
        size = copy.size
        try:
            copy.finish()
            began = time.perf_counter()
            path, failed = self._put(copy, at, size, stopped)
        except Exception as error:  # for example a failing card: the training will report that itself
            self._report(Saved(at, 0.0, size, self.path, reason_of(error)))
            return
        finally:
            copy.release()
        if failed is None:
            self._forget_older(path)
        self._last_s = time.perf_counter() - began
        self._report(Saved(at, self._last_s, size, path, failed, was_waited_for))
        if failed is None and self._copies:
            self._keep(path, at, size)

    def _put(self, copy: PendingSnapshot, at: int, size: int, stopped: bool) -> tuple[Path, str | None]:
        """The file that is written, and the reason if that failed."""
        keeps_other = self._keeps_best or not self.is_ours
        path = unused(self.path.parent, STOPPED, at) if stopped and keeps_other and self.path.exists() else self.path
        failed = no_room(self.path.parent, size)
        if failed is None:
            failed = replace(path, copy.values, copy.hurry or self._hurry, copy.release)
        self.is_ours = self.is_ours or (failed is None and path == self.path)
        return path, failed

    def _forget_older(self, path: Path) -> None:
        """Removes what this run resumed from, unless it is ckpt.pt, which may be another run's, or the best."""
        older, self._resumed_from = self._resumed_from, None
        if older is not None and older not in (self.path, path):
            remove(older)

    def _keep(self, path: Path, at: int, size: int) -> None:
        """Gives the file a second name, which takes no room until ckpt.pt is replaced; removes the oldest ones."""
        kept = path.with_name(KEPT.format(at))
        try:
            kept.unlink(missing_ok=True)
            try:
                os.link(path, kept)
            except OSError:  # a file system without hard links
                shutil.copyfile(path, kept)
            found = sorted(path.parent.glob(KEPT.format("[0-9]*")), key=lambda one: one.stat().st_mtime_ns)
            for old in found[: -self._copies]:
                old.unlink(missing_ok=True)
        except OSError as error:
            self._report(Saved(at, 0.0, size, kept, reason_of(error)))


class _ThrottledFile(RawIOBase):
    """A file written in pieces with pauses, so that training keeps its processors, until the training waits for it."""

    def __init__(self, stream: FileIO, hurry: Event) -> None:
        self.stream = stream
        self.hurry = hurry
        self.used_s = time.thread_time()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Writes a piece; the caller calls again for the rest."""
        written = self.stream.write(memoryview(data)[:_PIECE])
        # Three times the processor time of a piece: at most a quarter of one is used. Waiting for the disk costs
        # the training nothing.
        self.hurry.wait(3.0 * (time.thread_time() - self.used_s))
        self.used_s = time.thread_time()
        return written


def replace(
    path: Path, checkpoint: Mapping[str, Any] | memoryview, hurry: Event, on_read: Callable[[], object] = lambda: None
) -> str | None:
    """Writes a new file next to `path`, then moves it into place. Returns why that failed; the old file then stays.

    A checkpoint may be the bytes of its file. on_read is called when the tensors are no longer needed, which is before
    the disk has everything.
    """
    new = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(new, "wb", buffering=0) as stream:
            # Collected into large pieces: torch writes hundreds of small ones, each of which would delay the training.
            with BufferedWriter(_ThrottledFile(stream, hurry), _PIECE) as pieces:
                if isinstance(checkpoint, memoryview):
                    pieces.write(checkpoint)
                else:
                    torch.save(checkpoint, pieces)
            on_read()
            os.fsync(stream.fileno())
            drop_from_cache(stream.fileno())
        replace_durably(new, path)
    except Exception as error:  # whatever happened, training goes on and the previous checkpoint is intact
        with suppress(OSError):
            new.unlink(missing_ok=True)
        return reason_of(error)
    return None


def unused(directory: Path, form: str, at: int) -> Path:
    """An unused name: another run may have saved at the same iteration, or this one before a restart."""
    names = (form.format(f"{at}_{again}" if again else at) for again in itertools.count())
    return next(path for name in names if not (path := directory / name).exists())


def remove(path: Path) -> None:
    """Removes a checkpoint that is no longer needed, a file or a directory; one that cannot be removed stays."""
    with suppress(OSError):
        if path.is_dir():
            # Rename it first: if killed halfway, what remains is not taken for a checkpoint.
            shutil.rmtree(path.rename(path.with_name(f"{path.name}.{os.getpid()}.tmp")))
        else:
            path.unlink(missing_ok=True)


def probe(directory: Path) -> None:
    """Writes a little and removes it, so that a write error is found before the training, not after it."""
    trial = directory / f"{NAME}.{os.getpid()}.tmp"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        try:
            with open(trial, "wb") as stream:
                stream.write(bytes(4096))  # a block: an empty file needs none, and can be created on a full disk
                stream.flush()
                os.fsync(stream.fileno())
        finally:
            trial.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(directory, error.strerror or type(error).__name__) from error


def unwritable(directory: Path, reason: str) -> CheckpointError:
    facts = {"name": str(directory), "reason": reason}
    what = Message("“{name:word}” cannot be written: {reason:word}", facts)
    return CheckpointError(what, Message("choose another --out_dir"))


def no_room(directory: Path, size: int) -> str | None:
    """Why a checkpoint of this size cannot be written there; None if it can."""
    try:
        free = shutil.disk_usage(directory).free
    except OSError as error:
        return reason_of(error)
    if free >= size + _MARGIN:
        return None
    return f"no room on the disk: {(size + _MARGIN) / 1e6:,.0f} MB are needed, {free / 1e6:,.0f} MB are free"


def reason_of(error: BaseException) -> str:
    """What the system said, even if torch wrapped it."""
    inner = error if isinstance(error, OSError) else error.__context__
    if isinstance(inner, OSError):
        return (inner.strerror or type(inner).__name__).lower()
    return (str(error).splitlines() or [type(error).__name__])[0]
