"""Checkpoints that training does not wait for, and that are whole whenever the process dies.

The tensors are copied to memory while training computes the next gradients; a thread writes the copy to a new file
beside ckpt.pt and puts it in its place once it is safe on the disk. What is written is nanoGPT's checkpoint: model,
optimizer, model_args, iter_num, best_val_loss, config.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from io import BytesIO, FileIO
from pathlib import Path
from threading import Event
from typing import IO, Any, NamedTuple, cast

import torch
from torch import Tensor

from stepwatch.messages import Message
from stepwatch.trainer.input_errors import CheckpointError
from stepwatch.trainer.snapshot import Copy, Snapshot, size_of

__all__ = ["CheckpointError", "Keeper", "Saved", "check_shape", "load", "model_state"]

NAME = "ckpt.pt"
SHAPE = ("n_layer", "n_head", "n_embd", "block_size", "bias", "vocab_size")
_KINDS: dict[str, type | tuple[type, ...]] = {
    "model": dict,
    "optimizer": dict,
    "model_args": dict,
    "iter_num": int,
    "best_val_loss": (int, float, Tensor),
}
_MARGIN = 4_000_000  # bytes beyond the tensors: names, the zip's directory, and some for others on the disk
_PIECE = 1 << 20  # bytes written in one go
_ASKED_FOR = re.compile(r"(?:GLOBAL|global|class|function|Unsupported class) (?P<name>\w+(?:\.\w+)+)")


class Saved(NamedTuple):
    """What became of one save: how long the writing took, or why it failed and the older file stayed."""

    at: int
    seconds: float
    size: int
    failed: str | None = None


class Keeper:
    """Keeps ckpt.pt of a directory; never two writes at once, and the last good one is always there."""

    def __init__(
        self, directory: Path, *, background: bool = True, on_written: Callable[[Saved], object] | None = None
    ) -> None:
        """on_written is called after each write, from the thread that wrote."""
        self.path = directory / NAME
        self._report = on_written or (lambda saved: None)
        self._snapshot = Snapshot()
        self._writer = ThreadPoolExecutor(1, "stepwatch-keeper", _step_back) if background else None
        self._writing: Future[None] | None = None
        self._copy: Copy | None = None
        self._hurry = Event()
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for leftover in directory.glob(f"{NAME}.*.tmp"):
                leftover.unlink(missing_ok=True)
        except OSError as error:
            facts = {"name": str(directory), "reason": error.strerror or type(error).__name__}
            raise CheckpointError(
                Message("“{name:word}” cannot be written: {reason:word}", facts), Message("choose another --out_dir")
            ) from error

    def expect(self, checkpoint: Mapping[str, Any]) -> None:
        """Make ready for such checkpoints meanwhile: a first save takes fresh memory, and code that was never run."""
        if self._writer is not None:
            self.wait()
            self._writing = self._writer.submit(self._make_ready, checkpoint)

    def _make_ready(self, checkpoint: Mapping[str, Any]) -> None:
        self._snapshot.make_room(checkpoint)
        torch.save({"w": torch.zeros(1)}, BytesIO())

    def begin(self, checkpoint: Mapping[str, Any], at: int) -> float:
        """Have the checkpoint copied and written; the seconds waited so far. To be settled before a tensor changes."""
        began = time.perf_counter()
        self.wait()
        size = size_of(checkpoint)
        lacking = _no_room(self.path.parent, size)
        if lacking is not None:
            self._report(Saved(at, 0.0, size, lacking))
        elif self._writer is None:
            self._hurry.set()
            self._write(dict(checkpoint), at, size)
        else:
            self._copy = self._snapshot.begin(checkpoint)
            self._writing = self._writer.submit(self._write_copy, self._copy, at, size)
        return time.perf_counter() - began

    def settle(self) -> float:
        """Wait until the copy that was begun is made; the seconds that it took."""
        copy, self._copy = self._copy, None
        if copy is None:
            return 0.0
        began = time.perf_counter()
        copy.settle()
        return time.perf_counter() - began

    def save(self, checkpoint: Mapping[str, Any], at: int) -> float:
        """Copy the checkpoint and have it written; the seconds that the caller waited."""
        return self.begin(checkpoint, at) + self.settle()

    def wait(self) -> None:
        """Until nothing is being written."""
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

    def _write_copy(self, copy: Copy, at: int, size: int) -> None:
        try:
            copy.finish()
        except Exception as error:  # a card that fails, for one: the training will say so itself
            self._report(Saved(at, 0.0, size, _reason(error)))
            return
        self._write(copy.values, at, size)

    def _write(self, checkpoint: dict[str, Any], at: int, size: int) -> None:
        began = time.perf_counter()
        failed = replace(self.path, checkpoint, self._hurry)
        self._report(Saved(at, time.perf_counter() - began, size, failed))


class _Gentle:
    """A file written in pieces with pauses, so that training keeps its processors, until someone waits for it."""

    def __init__(self, stream: FileIO, hurry: Event) -> None:
        self.stream = stream
        self.hurry = hurry
        self.used_s = time.thread_time()

    def write(self, data: bytes) -> int:
        view = memoryview(data)
        while view:
            view = view[self.stream.write(view[:_PIECE]) :]
            self.pause()
        return len(data)

    def pause(self) -> None:
        """For what this thread has used of a processor since the last pause; waiting for the disk disturbs nobody."""
        # Three times what a piece took of the processor: no more than a quarter of one is used.
        self.hurry.wait(3.0 * (time.thread_time() - self.used_s))
        self.used_s = time.thread_time()

    def flush(self) -> None:
        """Nothing is held back."""


def replace(path: Path, checkpoint: dict[str, Any], hurry: Event) -> str | None:
    """Write a new file beside `path`, then put it in its place; the reason if that failed, and the old file stays."""
    new = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(new, "wb", buffering=0) as stream:
            torch.save(checkpoint, cast(IO[bytes], _Gentle(stream, hurry)))
            os.fsync(stream.fileno())
        os.replace(new, path)
        if os.name != "nt":  # a rename is safe once its directory is; Windows cannot open one and needs it not
            descriptor = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    except Exception as error:  # whatever it was, training goes on and the older checkpoint is whole
        with suppress(OSError):
            new.unlink(missing_ok=True)
        return _reason(error)
    return None


def _step_back() -> None:
    """The thread that writes yields the processor to training; elsewhere than on Linux that would slow down both."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.nice(10)  # a tenth of the weight of a thread that trains: enough to get done


def _no_room(directory: Path, size: int) -> str | None:
    try:
        free = shutil.disk_usage(directory).free
    except OSError as error:
        return _reason(error)
    if free >= size + _MARGIN:
        return None
    return f"no room on the disk: {(size + _MARGIN) / 1e6:,.0f} MB are needed, {free / 1e6:,.0f} MB are free"


def _reason(error: BaseException) -> str:
    """What the system said, also where torch wrapped it."""
    inner = error if isinstance(error, OSError) else error.__context__
    if isinstance(inner, OSError):
        return (inner.strerror or type(inner).__name__).lower()
    return (str(error).splitlines() or [type(error).__name__])[0]


def load(path: Path) -> dict[str, Any]:
    """A checkpoint, ours or nanoGPT's, as numbers and nothing that could run."""
    try:
        with open(path, "rb") as stream:
            begins = stream.read(2)
    except FileNotFoundError as error:
        raise _refused(Message("there is no file “{name:word}”", {"name": str(path)})) from error
    except OSError as error:
        facts = {"name": str(path), "reason": error.strerror or type(error).__name__}
        raise _refused(Message("“{name:word}” cannot be read: {reason:word}", facts)) from error
    if not begins:
        raise _refused(Message("“{name:word}” is empty", {"name": str(path)}))
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # a damaged file makes torch raise nearly anything
        asked = _ASKED_FOR.search(str(error))
        what = Message("“{name:word}” is no checkpoint", {"name": str(path)})
        if asked is not None:
            what = Message(
                "“{name:word}” is refused: it asks for {asked:word}, and a checkpoint is tensors and plain data",
                {"name": str(path), "asked": asked["name"]},
            )
        elif begins == b"PK":
            what = Message("“{name:word}” is cut off or damaged", {"name": str(path)})
        raise _refused(what) from error
    if not isinstance(loaded, dict):
        raise _refused(Message("“{name:word}” is no checkpoint", {"name": str(path)}))
    lacking = [key for key, kind in _KINDS.items() if not isinstance(loaded.get(key), kind)]
    lacking += [f"model_args.{key}" for key in SHAPE if not lacking and key not in loaded["model_args"]]
    if lacking:
        raise _refused(
            Message(
                "“{name:word}” is no whole checkpoint: it lacks {keys:word}",
                {"name": str(path), "keys": ", ".join(lacking)},
            )
        )
    return cast(dict[str, Any], loaded)


def _refused(what: Message) -> CheckpointError:
    return CheckpointError(
        what, Message("name the directory of another run with --out_dir, or begin anew with --init_from=scratch")
    )


def model_state(loaded: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights by the names of the plain model: a compiled one puts a prefix in front of each."""
    return {name.removeprefix("_orig_mod."): tensor for name, tensor in loaded["model"].items()}


def check_shape(model_args: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """What was asked for must be what the checkpoint has; a shorter block_size the model can be cut to."""
    differing = []
    for key in (key for key in SHAPE if key in wanted):
        fits = model_args[key] == wanted[key] or (key == "block_size" and wanted[key] < model_args[key])
        if not fits:
            differing.append(f"{key} {model_args[key]} ≠ {wanted[key]}")
    if differing:
        raise CheckpointError(
            Message(
                "the checkpoint has another shape than the settings: {differing:list}",
                {"differing": ", ".join(differing)},
            ),
            Message("leave these settings out to go on with the checkpoint's own, or begin anew: --init_from=scratch"),
        )
