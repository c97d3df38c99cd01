"""Checkpoints that training does not wait for, and that are whole whenever the process dies.

Training waits while the tensors are copied to memory; a thread writes the copy to a new file beside ckpt.pt and puts
it in its place once it is safe on the disk. What is written is nanoGPT's checkpoint: model, optimizer, model_args,
iter_num, best_val_loss, config.
"""

from __future__ import annotations

import os
import re
import shutil
import time
import zipfile
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stepwatch.messages import Message
from stepwatch.trainer.errors import CheckpointError

__all__ = ["CheckpointError", "Keeper", "Saved", "check_shape", "load", "model_state"]

NAME = "ckpt.pt"
SHAPE = ("n_layer", "n_head", "n_embd", "block_size", "bias", "vocab_size")
_NEEDED = ("model", "optimizer", "model_args", "iter_num", "best_val_loss")
_MARGIN = 4_000_000  # bytes beyond the tensors: names, the zip's directory, and some for others on the disk
_ASKED_FOR = re.compile(r"(?:GLOBAL|global|class|function):? (?P<name>[\w.]+\.[\w.]+)")


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
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="stepwatch-keeper") if background else None
        self._writing: Future[None] | None = None
        directory.mkdir(parents=True, exist_ok=True)
        for leftover in directory.glob(f"{NAME}.*.tmp"):
            leftover.unlink(missing_ok=True)

    def save(self, checkpoint: Mapping[str, Any], at: int) -> float:
        """Copy the checkpoint and have it written; the seconds that the caller waited."""
        began = time.perf_counter()
        self.wait()
        size = _size(checkpoint)
        lacking = _no_room(self.path.parent, size)
        if lacking is not None:
            self._report(Saved(at, 0.0, size, lacking))
            return time.perf_counter() - began
        copy = self._snapshot.take(checkpoint)
        if self._writer is None:
            self._write(copy, at, size)
        else:
            self._writing = self._writer.submit(self._write, copy, at, size)
        return time.perf_counter() - began

    def wait(self) -> None:
        """Until nothing is being written."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def close(self) -> None:
        self.wait()
        if self._writer is not None:
            self._writer.shutdown()

    def _write(self, checkpoint: dict[str, Any], at: int, size: int) -> None:
        began = time.perf_counter()
        failed = replace(self.path, checkpoint)
        self._report(Saved(at, time.perf_counter() - began, size, failed))


class Snapshot:
    """A copy of nested tensors in host memory. Its buffers are made once and used again."""

    def __init__(self) -> None:
        self._buffers: list[Tensor] = []

    def take(self, values: Mapping[str, Any]) -> dict[str, Any]:
        copying = _Copying(self._buffers)
        copy: dict[str, Any] = copying.of(values)
        self._buffers = copying.made
        copying.finish()
        return copy


class _Copying:
    """One walk through a checkpoint; a tensor that is met twice is copied once and stays shared."""

    def __init__(self, buffers: list[Tensor]) -> None:
        self.old = buffers
        self.made: list[Tensor] = []
        self.seen: dict[tuple[object, ...], Tensor] = {}
        self.cards: set[torch.device] = set()

    def of(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self.tensor(value.detach())
        if isinstance(value, Mapping):
            return {key: self.of(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return type(value)([self.of(inner) for inner in value])
        return value

    def tensor(self, tensor: Tensor) -> Tensor:
        same = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if same not in self.seen or tensor.numel() == 0:
            self.seen[same] = self.buffer(tensor).copy_(tensor, non_blocking=True)
        return self.seen[same]

    def buffer(self, tensor: Tensor) -> Tensor:
        """The buffer of the last save in this place, where it fits: fresh memory is what makes a copy slow."""
        place = len(self.made)
        buffer = self.old[place] if place < len(self.old) else None
        if buffer is None or buffer.shape != tensor.shape or buffer.dtype != tensor.dtype:
            buffer = _host_memory(tensor)
        self.made.append(buffer)
        if tensor.device.type == "cuda":
            self.cards.add(tensor.device)
        return buffer

    def finish(self) -> None:
        """Wait until the cards have delivered."""
        for card in self.cards:
            torch.cuda.current_stream(card).synchronize()


def _host_memory(tensor: Tensor) -> Tensor:
    if tensor.device.type == "cuda":
        try:
            return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        except RuntimeError:  # few pages may be locked on WSL2 and in some containers
            pass
    return torch.empty(tensor.shape, dtype=tensor.dtype)


def _size(value: Any) -> int:
    """Bytes of all tensors, those that are shared counted once."""
    found: dict[tuple[object, ...], int] = {}

    def walk(value: Any) -> None:
        if isinstance(value, Tensor):
            found[value.device, value.data_ptr(), value.shape] = value.numel() * value.element_size()
        elif isinstance(value, Mapping):
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list | tuple):
            for inner in value:
                walk(inner)

    walk(value)
    return sum(found.values())


def _no_room(directory: Path, size: int) -> str | None:
    try:
        free = shutil.disk_usage(directory).free
    except OSError as error:
        return _reason(error)
    if free >= size + _MARGIN:
        return None
    return f"no room on the disk: {(size + _MARGIN) / 1e6:,.0f} MB are needed, {free / 1e6:,.0f} MB are free"


def replace(path: Path, checkpoint: dict[str, Any]) -> str | None:
    """Write a new file beside `path`, then put it in its place; the reason if that failed, and the old file stays."""
    new = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(new, "wb") as stream:
            torch.save(checkpoint, stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(new, path)
        _sync_directory(path.parent)
    except (OSError, RuntimeError) as error:  # torch wraps what the disk said
        new.unlink(missing_ok=True)
        return _reason(error)
    return None


def _reason(error: BaseException) -> str:
    inner = error if isinstance(error, OSError) else error.__context__
    if isinstance(inner, OSError):
        return (inner.strerror or type(inner).__name__).lower()
    return str(error).splitlines()[0]


def _sync_directory(directory: Path) -> None:
    """A rename is safe once its directory is; Windows cannot open one and needs it not."""
    if os.name == "nt":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def load(path: Path) -> dict[str, Any]:
    """A checkpoint, ours or nanoGPT's, as numbers and nothing that could run."""
    name = {"name": str(path)}
    try:
        zipped = zipfile.is_zipfile(path)
        if path.stat().st_size == 0:
            raise _no_checkpoint(path, "it is empty")
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except FileNotFoundError as error:
        raise CheckpointError(
            Message("there is no checkpoint “{name:word}”", name), Message("check --out_dir, or --init_from=scratch")
        ) from error
    except CheckpointError:
        raise
    except Exception as error:
        raise _no_checkpoint(path, _why_not(path, error)) from error
    return _whole(path, loaded)


def _why_not(path: Path, error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    asked = _ASKED_FOR.search(str(error))
    if asked is not None:
        return f"it asks for {asked['name']}, and only tensors and plain data are admitted"
    with open(path, "rb") as stream:
        return "it is cut off or damaged" if stream.read(2) == b"PK" else "it was not written by torch.save"


def _whole(path: Path, loaded: Any) -> dict[str, Any]:
    if not isinstance(loaded, dict):
        raise _no_checkpoint(path, f"it holds a {type(loaded).__name__}")
    missing = [key for key in _NEEDED if key not in loaded]
    if missing:
        raise _no_checkpoint(path, f"it lacks {', '.join(missing)}")
    lacking = [key for key in SHAPE if key not in loaded["model_args"]]
    if lacking:
        raise _no_checkpoint(path, f"its model_args lack {', '.join(lacking)}")
    return loaded


def _no_checkpoint(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(
        Message("“{name:word}” is no checkpoint to resume from: {reason:word}", {"name": str(path), "reason": reason}),
        Message("name another directory with --out_dir, or begin anew with --init_from=scratch"),
    )


def model_state(loaded: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights by the names of the plain model: a compiled one puts a prefix in front of each."""
    return {name.removeprefix("_orig_mod."): tensor for name, tensor in loaded["model"].items()}


def check_shape(model_args: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """What was asked for must be what the checkpoint has; a shorter block_size is cut to size by the model."""
    differing = [
        f"{key} {model_args[key]} (wanted: {wanted[key]})"
        for key in SHAPE
        if key in wanted and wanted[key] != model_args[key]
        and not (key == "block_size" and wanted[key] < model_args[key])
    ]  # fmt: skip
    if differing:
        raise CheckpointError(
            Message("the checkpoint is of another shape: it has {differing:word}", {"differing": ", ".join(differing)}),
            Message("leave these settings out to go on with the checkpoint's own, or use --init_from=scratch"),
        )
