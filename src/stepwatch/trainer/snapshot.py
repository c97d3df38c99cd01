"""A copy of a checkpoint in host memory, quick enough that training may wait for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor


class Snapshot:
    """Copies nested tensors into buffers that are made once and used again: fresh memory is what makes a copy slow."""

    def __init__(self) -> None:
        self._buffers: list[Tensor] = []

    def make_room(self, values: Mapping[str, Any]) -> None:
        """Buffers for these tensors, touched, so that the system has handed over their memory; nothing is copied."""
        walk = _Walk(self._buffers, _touch)
        walk.of(values)
        self._buffers = walk.made

    def take(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The copy, in the buffers of the one before: that must not be in use any more."""
        walk = _Walk(self._buffers, _copy)
        copy: dict[str, Any] = walk.of(values)
        self._buffers = walk.made
        for card in {tensor.device for tensor in tensors_of(values) if tensor.device.type == "cuda"}:
            torch.cuda.current_stream(card).synchronize()
        return copy


class _Walk:
    """One walk through a checkpoint. A tensor met twice, as tied weights are, is copied once and stays shared."""

    def __init__(self, buffers: list[Tensor], fill: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.old = buffers
        self.fill = fill
        self.made: list[Tensor] = []
        self.seen: dict[tuple[object, ...], Tensor] = {}

    def of(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self.tensor(value.detach())
        if isinstance(value, Mapping):
            return {key: self.of(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return type(value)([self.of(inner) for inner in value])
        return value

    def tensor(self, tensor: Tensor) -> Tensor:
        identity = _identity(tensor)
        if identity not in self.seen:
            self.seen[identity] = self.fill(self.buffer(tensor), tensor)
        return self.seen[identity]

    def buffer(self, tensor: Tensor) -> Tensor:
        """The buffer of the last save in this place, where it fits."""
        place = len(self.made)
        buffer = self.old[place] if place < len(self.old) else None
        if buffer is None or buffer.shape != tensor.shape or buffer.dtype != tensor.dtype:
            buffer = _host_memory(tensor)
        self.made.append(buffer)
        return buffer


def tensors_of(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from tensors_of(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from tensors_of(inner)


def size_of(value: Any) -> int:
    """Bytes of all tensors, those that are shared counted once."""
    return sum({_identity(tensor): tensor.numel() * tensor.element_size() for tensor in tensors_of(value)}.values())


def _identity(tensor: Tensor) -> tuple[object, ...]:
    """What two tensors have in common if they are one; empty ones have no place in memory to tell them by."""
    place = tensor.data_ptr() if tensor.numel() else id(tensor)
    return tensor.device, place, tensor.dtype, tensor.shape, tensor.stride()


def _copy(buffer: Tensor, tensor: Tensor) -> Tensor:
    return buffer.copy_(tensor, non_blocking=True)


def _touch(buffer: Tensor, tensor: Tensor) -> Tensor:
    """Zeros by numpy: an operation of torch in a second thread starts a second pool of threads, and slows the first."""
    buffer.reshape(-1).view(torch.uint8).numpy().fill(0)
    return buffer


def _host_memory(tensor: Tensor) -> Tensor:
    if tensor.device.type == "cuda":
        try:
            return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        except RuntimeError:  # few pages may be locked on WSL2 and in some containers
            pass
    return torch.empty(tensor.shape, dtype=tensor.dtype)
