"""Tokens for training, from the files that nanoGPT uses: train.bin, val.bin (uint16) and meta.pkl.

A batch is made in two parts. `draw` chooses where its sequences start, with torch's global generator and in the order
of the caller, so that a seed means what it means in nanoGPT. `gather` reads the tokens; with `prefetch` and `take` that
happens in one background thread while the step before is still computing.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stepwatch.messages import Message
from stepwatch.platforms import quoted_path
from stepwatch.trainer.hostile import LARGEST, Refused, plain
from stepwatch.trainer.input_errors import DataError

__all__ = ["Batches", "Data", "DataError", "open_data", "read_meta"]

SPLITS = ("train", "val")
_PIECE = 8_000_000  # tokens looked at in one go


def open_data(directory: Path, *, block_size: int, vocab_size: int | None = None) -> Data:
    """The data of a directory. A vocab_size given here is the model's; else that of meta.pkl holds, if there is one."""
    if not directory.is_dir():
        raise DataError(
            Message("there is no directory “{name:word}” with data", {"name": str(directory)}), _prepare(directory)
        )
    of_meta = _vocabulary(directory / "meta.pkl")
    tokens = {split: _tokens(directory / f"{split}.bin", block_size) for split in SPLITS}
    data = Data(directory, tokens, block_size, of_meta)
    known = vocab_size if vocab_size is not None else of_meta
    if known is not None:
        data.expect(known)
    return data


class Data:
    """The two splits, their vocabulary, and the thread that reads ahead."""

    def __init__(
        self, directory: Path, tokens: dict[str, np.memmap[Any, Any]], block_size: int, vocab_size: int | None
    ) -> None:
        self.directory = directory
        self.block_size = block_size
        self.vocab_size = vocab_size
        self.limit: int | None = None
        self._tokens = tokens
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="stepwatch-data")

    def expect(self, vocab_size: int) -> None:
        """From here on a token beyond this vocabulary is an error; files of common size are looked through at once."""
        if self.vocab_size is not None and self.vocab_size > vocab_size:
            raise _unfit(self.directory / "meta.pkl", self.vocab_size - 1, vocab_size)
        self.limit = vocab_size
        for split, tokens in self._tokens.items():
            if tokens.nbytes <= 256_000_000:  # bytes; a larger file is checked batch by batch, as it is read
                for start in range(0, len(tokens), _PIECE):
                    self.check(split, tokens[start : start + _PIECE])

    def check(self, split: str, tokens: np.ndarray[Any, Any]) -> None:
        if self.limit is not None and int(tokens.max()) >= self.limit:
            raise _unfit(self.directory / f"{split}.bin", int(tokens.max()), self.limit)

    def batches(self, split: str, device: torch.device | str) -> Batches:
        return Batches(self, split, self._tokens[split], torch.device(device), self._reader)

    def close(self) -> None:
        self._reader.shutdown(cancel_futures=True)


class Batches:
    """Batches of one split on one device."""

    def __init__(
        self,
        data: Data,
        split: str,
        tokens: np.memmap[Any, Any],
        device: torch.device,
        reader: ThreadPoolExecutor,
    ) -> None:
        self.data = data
        self.split = split
        self.tokens = tokens
        self.device = device
        self._pinned = device.type == "cuda"
        self._reader = reader
        self._ahead: deque[Future[Tensor]] = deque()

    def draw(self, batch_size: int) -> Tensor:
        """Where the sequences of a batch start: one call to the global generator, as nanoGPT makes it."""
        return torch.randint(self.beyond, (batch_size,))

    @property
    def beyond(self) -> int:
        """No sequence starts here or later."""
        return len(self.tokens) - self.data.block_size

    def gather(self, starts: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets, the targets one token further on."""
        return self._hand_over(self._read(starts))

    def prefetch(self, starts: Tensor) -> None:
        """Begin to read in the background; `take` hands over in the order of these calls."""
        self._ahead.append(self._reader.submit(self._read, starts))

    def take(self) -> tuple[Tensor, Tensor]:
        """The batch that was prefetched first; what went wrong while it was read is raised here."""
        return self._hand_over(self._ahead.popleft().result())

    def _read(self, starts: Tensor) -> Tensor:
        """Inputs and targets in one tensor, so that a card gets both in one transfer."""
        size = self.data.block_size
        rows = np.empty((len(starts), size + 1), dtype=np.uint16)
        for row, start in zip(rows, starts.tolist(), strict=True):
            row[:] = self.tokens[start : start + size + 1]
        self.data.check(self.split, rows)
        both = self._room(len(starts), size)
        both[0].numpy()[:] = rows[:, :-1]
        both[1].numpy()[:] = rows[:, 1:]
        return both

    def _room(self, count: int, size: int) -> Tensor:
        """Memory for a batch; page-locked for a card, where the system grants that."""
        if self._pinned:
            try:
                return torch.empty((2, count, size), dtype=torch.int64, pin_memory=True)
            except RuntimeError:  # WSL2 and some containers lock few pages; the copy is then slower, not wrong
                self._pinned = False
        return torch.empty((2, count, size), dtype=torch.int64)

    def _hand_over(self, both: Tensor) -> tuple[Tensor, Tensor]:
        inputs, targets = both.to(self.device, non_blocking=self._pinned)
        return inputs, targets


def _tokens(path: Path, block_size: int) -> np.memmap[Any, Any]:
    """The file as an array of tokens that stays on the disk; checked to hold at least one sequence."""
    try:
        size = path.stat().st_size
        if size % 2 == 0 and size // 2 > block_size:
            return np.memmap(path, dtype=np.uint16, mode="r")
    except OSError as error:
        raise _unreadable(path, error) from error
    if size % 2:
        raise DataError(
            Message("“{name:word}” has an odd number of bytes, and tokens take two each", {"name": str(path)}),
            _prepare(path.parent),
        )
    raise DataError(
        Message(
            "“{name:word}” holds {count:n} tokens, and block_size {block:n} needs at least {needed:n}",
            {"name": str(path), "count": size // 2, "block": block_size, "needed": block_size + 1},
        ),
        Message("use more text, or a smaller --block_size"),
    )


def read_meta(path: Path) -> Any:
    """What meta.pkl holds, as plain data; None where there is no such file, as for GPT-2's tokens."""
    try:
        if path.stat().st_size > LARGEST:
            raise Refused
        return plain(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(path, error) from error
    except Refused as error:
        raise DataError(_refused(path, error.asked), _prepare(path.parent)) from error


def _vocabulary(path: Path) -> int | None:
    meta = read_meta(path)
    if meta is None:
        return None
    size = meta.get("vocab_size") if isinstance(meta, dict) else None
    if type(size) is not int or not 0 < size <= 2**16:
        raise DataError(
            Message("“{name:word}” gives no vocab_size between 1 and 65536", {"name": str(path)}),
            _prepare(path.parent),
        )
    return size


def _refused(path: Path, asked: str | None) -> Message:
    if asked is None:
        return Message("“{name:word}” is damaged, or not a vocabulary", {"name": str(path)})
    return Message(
        "“{name:word}” is refused: it asks for {asked:word}, and a vocabulary is plain data",
        {"name": str(path), "asked": asked},
    )


def _unreadable(path: Path, error: OSError) -> DataError:
    if isinstance(error, FileNotFoundError):
        return DataError(Message("there is no file “{name:word}”", {"name": str(path)}), _prepare(path.parent))
    reason = {"name": str(path), "reason": error.strerror or type(error).__name__}
    return DataError(Message("“{name:word}” cannot be read: {reason:word}", reason), _prepare(path.parent))


def _unfit(path: Path, token: int, vocab_size: int) -> DataError:
    return DataError(
        Message(
            "“{name:word}” has token {token:n}, and the vocabulary ends at {last:n}",
            {"name": str(path), "token": token, "last": vocab_size - 1},
        ),
        Message("the data and the model, or meta.pkl, belong to different vocabularies: prepare the data again"),
    )


def _prepare(directory: Path) -> Message:
    place = {"directory": quoted_path(str(directory))}
    return Message("make it with: stepwatch prepare FILE.txt --out {directory:list}", place)
