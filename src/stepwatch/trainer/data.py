"""Tokens for training, from the files that nanoGPT uses (train.bin, val.bin and meta.pkl) or the shards of llm.c.

A batch is made in two parts. `draw` chooses where its sequences start, with torch's global generator and in the order
of the caller, so that a seed means the same as in nanoGPT. `gather` reads the tokens; with `prefetch` and `take` that
happens in one background thread while the previous step is still computing.
"""

from __future__ import annotations

import struct
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from stepwatch.messages import Message
from stepwatch.platforms import quoted_path
from stepwatch.trainer import DataError
from stepwatch.trainer.hostile import LARGEST, Refused, plain

__all__ = ["Batches", "Data", "DataError", "Shard", "open_data", "read_meta"]

SPLITS = ("train", "val")
_PIECE = 8_000_000  # tokens checked at a time
_LOOKED_THROUGH = 256_000_000  # bytes; larger files are checked batch by batch, as they are read
# llm.c's dev/data/data_common.py: 256 int32 before the tokens; the first tells the kind of token, the third their
# count.
_HEADER_BYTES = 1024
_OF_LLM_C: dict[int, np.dtype[Any]] = {20240520: np.dtype(np.uint16), 20240801: np.dtype(np.uint32)}


def open_data(directory: Path, *, block_size: int, vocab_size: int | None = None) -> Data:
    """The data of a directory. A given vocab_size is the model's; else that of meta.pkl applies, if there is one."""
    if not directory.is_dir():
        raise DataError(
            Message("there is no directory “{name:word}” with data", {"name": str(directory)}), _prepare(directory)
        )
    of_data = _vocabulary(directory / "meta.pkl")
    width = np.dtype(np.uint16 if of_data is None or of_data <= 2**16 else np.uint32)
    shards: dict[str, list[Shard]] = {}
    for split in SPLITS:
        # train.bin, else all files named after the split, like llm.c's shards: fineweb_train_000001.bin, …
        usual = directory / f"{split}.bin"
        named = sorted(path for path in directory.glob(f"*{split}*.bin") if path.is_file())
        found = [_shard(path, width) for path in ([usual] if usual.exists() or not named else named)]
        shards[split] = [shard for shard in found if len(shard.tokens) > block_size]
        if not shards[split]:
            longest = max(found, key=lambda shard: len(shard.tokens))
            sizes = {"count": len(longest.tokens), "block": block_size, "needed": block_size + 1}
            facts = {"name": str(longest.path), **sizes}
            raise DataError(
                Message(
                    "“{name:word}” has {count:n} tokens, and block_size {block:n} needs at least {needed:n}", facts
                ),
                Message("use more text, or a smaller --block_size"),
            )
        if of_data is None and any(shard.tokens.itemsize > 2 for shard in found):
            of_data = 128_256  # tokens of Llama 3, which need four bytes
    data = Data(directory, shards, block_size, of_data)
    known = vocab_size if vocab_size is not None else of_data
    if known is not None:
        data.expect(known)
    return data


class Shard(NamedTuple):
    """One file of tokens, which stays on the disk."""

    path: Path
    tokens: np.ndarray[Any, Any]


class Data:
    """The two splits, their vocabulary, and the thread that reads ahead."""

    def __init__(
        self, directory: Path, shards: dict[str, list[Shard]], block_size: int, vocab_size: int | None
    ) -> None:
        self.directory = directory
        self.block_size = block_size
        self.vocab_size = vocab_size
        self.limit: int | None = None
        self.shards = shards
        self.reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="stepwatch-data")

    def expect(self, vocab_size: int) -> None:
        """From now on a token beyond this vocabulary is an error; files of common size are checked at once."""
        if self.vocab_size is not None and self.vocab_size > vocab_size:
            raise _unfit(self.directory / "meta.pkl", self.vocab_size - 1, vocab_size)
        self.limit = vocab_size
        for shard in (shard for split in SPLITS if self.is_looked_through(split) for shard in self.shards[split]):
            for start in range(0, len(shard.tokens), _PIECE):
                self.check(shard.path, shard.tokens[start : start + _PIECE])

    def is_looked_through(self, split: str) -> bool:
        """Whether all tokens of the split are known to be in the vocabulary; then they have been in memory, too."""
        return self.limit is not None and sum(shard.tokens.nbytes for shard in self.shards[split]) <= _LOOKED_THROUGH

    def check(self, path: Path, tokens: np.ndarray[Any, Any]) -> None:
        if self.limit is not None and int(tokens.max()) >= self.limit:
            raise _unfit(path, int(tokens.max()), self.limit)

    def batches(self, split: str, device: torch.device | str) -> Batches:
        return Batches(self, split, torch.device(device))

    def close(self) -> None:
        self.reader.shutdown(cancel_futures=True)


class Batches:
    """Batches of one split on one device."""

    def __init__(self, data: Data, split: str, device: torch.device) -> None:
        self.data, self.device = data, device
        self._shards = shards = data.shards[split]
        # A sequence is within one shard: starts are numbered over all shards, leaving out the last ones of each.
        self._ends = np.cumsum([len(shard.tokens) - data.block_size for shard in shards])
        self.beyond = int(self._ends[-1])
        """No sequence starts here or later."""
        self._pinned = device.type == "cuda"
        self._checks = not data.is_looked_through(split)
        # A batch of tokens in memory takes microseconds, less than a thread costs; on a card the copy to it counts too.
        self._at_once = device.type == "cpu" and not self._checks
        self._ahead: deque[Future[Tensor] | Tensor] = deque()
        self._offsets = np.arange(data.block_size + 1)

    def draw(self, batch_size: int) -> Tensor:
        """Where the sequences of a batch start: one call to the global generator, as in nanoGPT."""
        return torch.randint(self.beyond, (batch_size,))

    def gather(self, starts: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets; the targets are one token further on."""
        return self._hand_over(self._read(starts))

    def prefetch(self, starts: Tensor) -> None:
        """Begins to read in the background; `take` returns batches in the order of these calls."""
        self._ahead.append(starts if self._at_once else self.data.reader.submit(self._read, starts))

    def take(self) -> tuple[Tensor, Tensor]:
        """The batch that was prefetched first; raises any error that occurred while it was read."""
        ahead = self._ahead.popleft()
        return self._hand_over(self._read(ahead) if isinstance(ahead, Tensor) else ahead.result())

    def _read(self, starts: Tensor) -> Tensor:
        """Inputs and targets in one tensor, so that a card gets both in one transfer."""
        places = starts.numpy()
        if len(self._shards) == 1:
            rows = self._rows(self._shards[0], places)
        else:
            rows = np.empty((len(places), len(self._offsets)), dtype=np.uint32)
            owners = np.searchsorted(self._ends, places, side="right")
            for owner in np.unique(owners):
                mine = owners == owner
                before = self._ends[owner - 1] if owner else 0
                rows[mine] = self._rows(self._shards[owner], places[mine] - before)
        size = (2, *rows[:, 1:].shape)
        try:
            both = torch.empty(size, dtype=torch.int64, pin_memory=self._pinned)
        except RuntimeError:  # WSL2 and some containers lock few pages; the copy to a card is then slower, not wrong
            self._pinned = False
            both = torch.empty(size, dtype=torch.int64)
        filled = both.numpy()
        filled[0] = rows[:, :-1]
        filled[1] = rows[:, 1:]
        return both

    def _rows(self, shard: Shard, starts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        rows = shard.tokens[starts[:, None] + self._offsets]
        if self._checks:
            self.data.check(shard.path, rows)
        return rows

    def _hand_over(self, both: Tensor) -> tuple[Tensor, Tensor]:
        inputs, targets = both.to(self.device, non_blocking=self._pinned)
        return inputs, targets


def _shard(path: Path, plain_width: np.dtype[Any]) -> Shard:
    """The file as an array of tokens that stays on the disk."""
    try:
        size = path.stat().st_size
        with open(path, "rb") as stream:
            head = stream.read(12)
        # Two tokens of a plain file cannot look like this: the first would be beyond GPT-2's vocabulary.
        magic, _, count = struct.unpack("<3i", head) if size >= _HEADER_BYTES else (0, 0, 0)
        width, begin = _OF_LLM_C.get(magic, plain_width), _HEADER_BYTES if magic in _OF_LLM_C else 0
        count = count if begin else size // width.itemsize
        if begin + count * width.itemsize == size:
            mapped = np.memmap(path, width, "r", begin, (count,)) if count else np.empty(0, width)
            return Shard(path, mapped.view(np.ndarray))
    except OSError as error:
        raise _unreadable(path, error) from error
    if not begin:
        facts = {"name": str(path), "width": width.itemsize}
        what = Message("“{name:word}” ends within a token: tokens take {width:n} bytes each", facts)
        raise DataError(what, _prepare(path.parent))
    facts = {"name": str(path), "count": count, "found": (size - begin) // width.itemsize}
    raise DataError(
        Message("“{name:word}” should contain {count:n} tokens according to its header, but contains {found:n}", facts),
        Message("the file is cut off or damaged: copy or make it again"),
    )


def read_meta(path: Path) -> Any:
    """The content of meta.pkl as plain data; None if there is no such file, as with GPT-2's tokens."""
    try:
        if path.stat().st_size > LARGEST:
            raise Refused
        return plain(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(path, error) from error
    except Refused as error:
        facts = {"name": str(path), "asked": error.asked or ""}
        what = Message("“{name:word}” is refused: it asks for {asked:word}, and a vocabulary is plain data", facts)
        if error.asked is None:
            what = Message("“{name:word}” is damaged, or not a vocabulary", {"name": str(path)})
        raise DataError(what, _prepare(path.parent)) from error


def _vocabulary(path: Path) -> int | None:
    meta = read_meta(path)
    if meta is None:
        return None
    size = meta.get("vocab_size") if isinstance(meta, dict) else None
    if type(size) is not int or not 0 < size <= 2**31:
        what = Message("“{name:word}” gives no vocab_size above zero", {"name": str(path)})
        raise DataError(what, _prepare(path.parent))
    return size


def _unreadable(path: Path, error: OSError) -> DataError:
    if isinstance(error, FileNotFoundError):
        return DataError(Message("there is no file “{name:word}”", {"name": str(path)}), _prepare(path.parent))
    reason = {"name": str(path), "reason": error.strerror or type(error).__name__}
    return DataError(Message("“{name:word}” cannot be read: {reason:word}", reason), _prepare(path.parent))


def _unfit(path: Path, token: int, vocab_size: int) -> DataError:
    facts = {"name": str(path), "token": token, "last": vocab_size - 1}
    return DataError(
        Message("“{name:word}” has token {token:n}, and the vocabulary ends at {last:n}", facts),
        Message("the data and the model, or meta.pkl, belong to different vocabularies: prepare the data again"),
    )


def _prepare(directory: Path) -> Message:
    place = {"directory": quoted_path(str(directory))}
    return Message("make it with: stepwatch prepare FILE.txt --out {directory:list}", place)
