"""Checkpoints that all ranks write together, each its part; training does not wait for them, and none is ever half.

As with ckpt.pt (keeper.py) a thread of each rank writes, here into a new directory beside the others. The first rank
gives it its name when every rank has reported that its files are on the disk, and removes what is older afterwards.
"""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path
from typing import Any

import torch.distributed as dist

from stepwatch.trainer import sharded
from stepwatch.trainer.keeper import Keeper, no_room, reason_of, remove, unused
from stepwatch.trainer.resuming import MANIFEST, NAME, SHARDED, sharded_in
from stepwatch.trainer.snapshot import Taken


class ShardedKeeper(Keeper):
    """One for each rank. They talk in a group of their own, since training talks meanwhile."""

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

    def _put(self, copy: Taken, at: int, size: int, stopped: bool) -> tuple[Path, str | None]:
        # Only the first rank looks at the disk: all do the same, whatever else happens there meanwhile.
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
                found = [one for one in sharded_in(self._directory) if sharded.is_sharded(one) and one != path]
                found.sort(key=lambda one: (one / MANIFEST).stat().st_mtime_ns)
                for older in found[: len(found) - max(self._copies - 1, 0)]:
                    remove(older)
        return path, failed

    def _together(self, new: Path, path: Path, copy: Taken) -> str | None:
        """The reason where it failed on some rank, the same on all; then nothing of it is left."""
        own: dict[str, list[int]] | str
        try:
            sharded.write_part(new, copy.values, self._group)
            copy.release()
            own = sharded.checksums(new, self._rank)
        except Exception as error:  # DCP reports to every rank what happened on one
            own = reason_of(error)
        reports: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(reports, own, group=self._group)
        failed: str | None = next((one for one in reports if isinstance(one, str)), None)
        agreed: list[str | None] = [failed]
        if self._is_first:
            if failed is None:
                try:
                    sharded.write_manifest(new, {name: sums for one in reports for name, sums in one.items()})
                    _sync(new)
                    new.rename(path)
                    _sync(path.parent)
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
        """Those that stay have their names already."""


def _sync(directory: Path) -> None:
    """So that the names in it are on the disk too; Windows knows no such thing."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
