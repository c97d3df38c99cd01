"""A checkpoint as a directory to which each rank writes its part, through torch.distributed.checkpoint (DCP).

    ckpt_sharded_2000/    complete: it gets this name when all of it is safe on the disk
      __0_0.distcp …      the parts of the ranks, DCP's files
      .metadata           DCP's: which part of which tensor is where
      rest.pt             what is not divided among ranks, in nanoGPT's form; each tensor is replaced by its DCP name
      manifest.json       the size and the CRC-32 of each file

One process, or each rank, reads it as a whole, for any number of ranks. Nothing in it is executed.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import secrets
import shutil
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePath
from threading import Event
from typing import Any, cast

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint import metadata as forms
from torch.distributed.checkpoint.filesystem import _StorageInfo

from stepwatch.messages import Message
from stepwatch.platforms import replace_durably, sync_names
from stepwatch.trainer import CheckpointError
from stepwatch.trainer.hostile import Refused
from stepwatch.trainer.keeper import CheckpointWriter, no_room, reason_of, remove, replace, unused
from stepwatch.trainer.resuming import MANIFEST, NAME, SHARDED, Damaged, load, newest, sharded_in
from stepwatch.trainer.snapshot import PendingSnapshot, local, mapped, sizes_of

REST, _METADATA = "rest.pt", ".metadata"
_MARK = "in DCP"
_LARGEST = 64_000_000  # bytes of the manifest and of DCP's metadata, which has some hundred per tensor and rank
_PIECE = 1 << 22
_AT_ONCE = Event()
_AT_ONCE.set()


def is_sharded(path: Path) -> bool:
    return (path / MANIFEST).is_file()


# --- writing ----------------------------------------------------------------------------------------------------


def write_part(directory: Path, checkpoint: Mapping[str, Any], group: Any) -> None:
    """Called by all ranks of the group; afterwards the tensors are no longer needed."""
    rest, tensors = _divided(checkpoint, lambda tensor: hasattr(tensor, "to_local"))
    dcp.save(tensors, storage_writer=dcp.FileSystemWriter(directory, sync_files=False), process_group=group)
    if dist.get_rank(group) == 0:
        torch.save(rest, directory / REST)


def write_whole(directory: Path, checkpoint: Mapping[str, Any]) -> None:
    """Called by one process; the result is complete except for its name."""
    rest, tensors = _divided(checkpoint, lambda tensor: tensor.dim() > 0 and tensor.is_floating_point())
    with _by_one_process():
        dcp.save(tensors, storage_writer=dcp.FileSystemWriter(directory, sync_files=False), no_dist=True)
    torch.save(rest, directory / REST)
    write_manifest(directory, checksums(directory, 0))


def checksums(directory: Path, rank: int) -> dict[str, list[int]]:
    """Size and CRC-32 of the files of a rank, once they are on the disk; the first rank's include the shared files."""
    names = {path.name for path in directory.glob(f"__{rank}_*")} | ({_METADATA, REST} if rank == 0 else set())
    for name in names:
        with open(directory / name, "rb+") as stream:
            os.fsync(stream.fileno())
    return {name: _checksum(directory / name) for name in sorted(names)}


def write_manifest(directory: Path, files: Mapping[str, list[int]]) -> None:
    with open(directory / MANIFEST, "w", encoding="utf-8") as stream:
        json.dump(files, stream)
        stream.flush()
        os.fsync(stream.fileno())


def _divided(checkpoint: Mapping[str, Any], in_parts: Callable[[Tensor], bool]) -> tuple[Any, dict[str, Tensor]]:
    """The checkpoint with names in place of some tensors, and these tensors; tied ones share a name."""
    tensors: dict[str, Tensor] = {}
    names: dict[int, str] = {}

    def named(tensor: Tensor, path: str) -> Any:
        if not in_parts(tensor):
            return tensor.detach()
        part = local(tensor)
        name = names.setdefault(part.data_ptr() if part.numel() else id(tensor), path)
        tensors.setdefault(name, tensor.detach())
        return (_MARK, name)

    return mapped(checkpoint, named), tensors


@contextmanager
def _by_one_process() -> Iterator[None]:
    """Silences DCP's warning that it assumes this is intended."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def _checksum(path: Path) -> list[int]:
    size = found = 0
    with open(path, "rb") as stream:
        while piece := stream.read(_PIECE):
            found = zlib.crc32(piece, found)
            size += len(piece)
    return [size, found]


# --- reading ----------------------------------------------------------------------------------------------------


def read(path: Path) -> dict[str, Any]:
    """The whole checkpoint in nanoGPT's form; raises Damaged, Refused or OSError if it is not as it was written."""
    if (path / MANIFEST).stat().st_size > _LARGEST:
        raise Damaged(MANIFEST)
    files = json.loads((path / MANIFEST).read_bytes())
    if not isinstance(files, dict) or not {_METADATA, REST} <= files.keys():
        raise Damaged(MANIFEST)
    for name, written in files.items():
        plain = isinstance(written, list) and len(written) == 2 and all(type(one) is int for one in written)
        if not plain or PurePath(name).name != name or name.startswith(".."):
            raise Damaged(MANIFEST)
    for name, written in files.items():
        if (path / name).stat().st_size != written[0] or _checksum(path / name) != written:
            raise Damaged(name)
    rest = torch.load(path / REST, map_location="cpu", weights_only=True, mmap=False)
    reader = _Reader(path, files)
    sizes = cast(dict[str, forms.TensorStorageMetadata], reader.read_metadata().state_dict_metadata)
    # Values that no part covers stay nan, and are detected as such.
    tensors = {name: torch.full(form.size, torch.nan, dtype=form.properties.dtype) for name, form in sizes.items()}
    with _by_one_process():
        dcp.load(tensors, storage_reader=reader, no_dist=True)
    return cast(dict[str, Any], _with_divided(rest, tensors))


def _with_divided(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, tuple) and len(value) == 2 and value[0] == _MARK:
        if value[1] not in tensors:
            raise Damaged(REST)
        return tensors[value[1]]
    if isinstance(value, Mapping):
        return {key: _with_divided(inner, tensors) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_with_divided(inner, tensors) for inner in value])
    return value


class _Reader(dcp.FileSystemReader):
    """DCP's reader, except that its metadata, a pickle, is read as figures and names only."""

    def __init__(self, path: Path, files: Mapping[str, list[int]]) -> None:
        super().__init__(path)
        self._files = files
        self._bytes = sum(size for size, _ in files.values())

    def read_metadata(self, *args: Any, **kwargs: Any) -> forms.Metadata:
        if self._files[_METADATA][0] > _LARGEST:
            raise Damaged(_METADATA)
        found = _Figures(io.BytesIO((Path(self.path) / _METADATA).read_bytes())).load()
        if not self._is_whole(found):
            raise Damaged(_METADATA)
        found.storage_meta = forms.StorageMeta()
        return cast(forms.Metadata, found)

    def _is_whole(self, found: Any) -> bool:
        """Only tensors, no larger than the files together, and each of their parts is in a file of this directory."""
        if not isinstance(found, forms.Metadata) or not isinstance(found.storage_data, dict):
            return False
        needed = 0
        for one in found.state_dict_metadata.values():
            if type(one) is not forms.TensorStorageMetadata or not one.properties.dtype.is_floating_point:
                return False
            needed += one.size.numel() * one.properties.dtype.itemsize
        if needed > self._bytes:
            return False
        places = found.storage_data.values()
        return all(one.relative_path in self._files and not one.transform_descriptors for one in places)


class _Figures(pickle.Unpickler):
    """Creates the records that DCP's metadata consists of, and nothing else."""

    _RECORDS = (
        forms.Metadata, forms.TensorStorageMetadata, forms.ChunkStorageMetadata, forms.TensorProperties,
        forms.MetadataIndex, forms.StorageMeta, forms._MEM_FORMAT_ENCODING, _StorageInfo, torch.Size,
    )  # fmt: skip

    def find_class(self, module: str, name: str) -> Any:
        for record in self._RECORDS:
            if (module, name) == (record.__module__, record.__qualname__):
                return record
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if (module, name) == ("torch.serialization", "_get_layout"):
            return {str(torch.strided): torch.strided}.__getitem__
        if module.partition(".")[0] == "pathlib" and name in ("PosixPath", "WindowsPath"):
            return PurePath  # where it was written; not used
        raise Refused(f"{module}.{name}")


# --- written by all ranks together, while they train -----------------------------------------------------------


class ShardedCheckpointWriter(CheckpointWriter):
    """One per rank. They communicate in a group of their own, since the training communicates at the same time.

    As with ckpt.pt a thread of each rank writes, here into a new directory next to the others. The first rank gives it
    its name when every rank has reported that its files are on the disk, and then removes older ones.
    """

    _packs = False

    def __init__(self, directory: Path, **given: Any) -> None:
        super().__init__(directory, **given)
        self._rank = dist.get_rank()
        self._is_first = self._rank == 0
        self._group = dist.new_group(backend="gloo")
        self._directory = directory
        older = sharded_in(directory)
        self.is_ours = self._resumed_from in older or not older
        self.path = directory / SHARDED.format("*")
        if self._is_first:
            for leftover in directory.glob(SHARDED.format("*.tmp")):
                shutil.rmtree(leftover, ignore_errors=True)

    def _put(self, copy: PendingSnapshot, at: int, size: int, stopped: bool) -> tuple[Path, str | None]:
        # Only the first rank looks at the disk, so that all ranks do the same even if the disk changes.
        agreed: list[Any] = [None]
        if self._is_first:
            agreed = [(unused(self._directory, SHARDED, at).name, secrets.token_hex(4), no_room(self._directory, size))]
        dist.broadcast_object_list(agreed, src=0, group=self._group)
        name, token, failed = agreed[0]
        path = self._directory / name
        if failed is None:
            failed = self._together(path.with_name(f"{name}.{token}.tmp"), path, copy)
        if failed is None:
            keeps_others = stopped and (self._keeps_best or not self.is_ours)
            self.is_ours = self.is_ours or not stopped
            if self._is_first and not keeps_others:
                found = [one for one in sharded_in(self._directory) if is_sharded(one) and one != path]
                found.sort(key=lambda one: (one / MANIFEST).stat().st_mtime_ns)
                for older in found[: len(found) - max(self._copies - 1, 0)]:
                    remove(older)
        return path, failed

    def _together(self, new: Path, path: Path, copy: PendingSnapshot) -> str | None:
        """Writes together; returns the reason if it failed on any rank, the same on all, and then leaves no files."""
        own: dict[str, list[int]] | str
        try:
            write_part(new, copy.values, self._group)
            copy.release()
            own = checksums(new, self._rank)
        except Exception as error:  # DCP reports the error of one rank to all
            own = reason_of(error)
        reports: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(reports, own, group=self._group)
        failed: str | None = next((one for one in reports if isinstance(one, str)), None)
        agreed: list[str | None] = [failed]
        if self._is_first:
            if failed is None:
                try:
                    write_manifest(new, {name: sums for one in reports for name, sums in one.items()})
                    sync_names(new)
                    replace_durably(new, path)
                except OSError as error:
                    agreed = [reason_of(error)]
            if agreed[0] is not None:
                shutil.rmtree(new, ignore_errors=True)
        dist.broadcast_object_list(agreed, src=0, group=self._group)
        return agreed[0]

    def _forget_older(self, path: Path) -> None:
        older, self._resumed_from = self._resumed_from, None
        if older is not None and self._is_first and older.is_file() and older.name != NAME:
            remove(older)

    def _keep(self, path: Path, at: int, size: int) -> None:
        """The directories have their names already."""


# --- one file or a directory ------------------------------------------------------------------------------------


def convert(source: Path, target: Path) -> int:
    """Writes a checkpoint in its other form, checked and unchanged; returns its iteration."""
    if source.is_dir() and not is_sharded(source):
        source = newest(source)
    if target.exists():
        raise CheckpointError(
            Message("“{name:word}” already exists", {"name": str(target)}), Message("choose another name for it")
        )
    try:
        saved = load(source)
    except CheckpointError as error:  # its advice is for a training
        raise CheckpointError(
            error.what, Message("name another checkpoint, or the directory of a training run")
        ) from error
    target.parent.mkdir(parents=True, exist_ok=True)
    failed = no_room(target.parent, sizes_of(saved).whole)
    if failed is None:
        if target.suffix == ".pt":
            failed = replace(target, saved, _AT_ONCE)
        else:
            new = target.with_name(f"{target.name}.{os.getpid()}.tmp")
            try:
                write_whole(new, saved)
                new.rename(target)
            except Exception as error:  # whatever happened, leave nothing behind
                shutil.rmtree(new, ignore_errors=True)
                failed = reason_of(error)
    if failed is not None:
        raise CheckpointError(
            Message("“{name:word}” cannot be written: {reason:word}", {"name": str(target), "reason": failed}),
            Message("choose another place for it"),
        )
    return int(saved["iter_num"])
