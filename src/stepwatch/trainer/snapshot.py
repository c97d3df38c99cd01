"""A checkpoint of one moment, taken while training computes the next gradients.

Weights change only at the end of a step. Until then they are copied: by a card on a separate stream, in host memory by
the thread that writes the file. Large tensors in host memory are not copied, which would need half as much memory
again: the thread writes the tensors themselves, and the step waits for that before its update.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from threading import Event
from typing import Any, NamedTuple

import torch
from torch import Tensor

_AT_ONCE = 1 << 16  # bytes: a smaller tensor is copied faster than a thread would start
# Bytes: the file of a smaller checkpoint is made at once. A thread would need as much of the interpreter's time for
# it, and the steps of such a model are short: with 2.4 MB the next step took 7 ms longer, made at once it is 3 ms.
SMALLEST_COPY = 4 << 20
LARGEST_COPY = 32 << 20  # bytes: a tenth of what Python uses once torch is imported


class PendingSnapshot:
    """A checkpoint taken for a save. It is settled before the tensors change, and finished before it is read."""

    hurry: Event | None = None
    """Set if the training waits for the writing, which then makes no pauses."""

    def __init__(self, values: Any, size: int) -> None:
        self.values, self.size = values, size

    def finish(self) -> None:
        """Completes the values, in the thread that writes them."""

    def settle(self) -> None:
        """Waits until the tensors may change."""

    def release(self) -> None:
        """Called when the values are written."""


class Copy(PendingSnapshot):
    """A copy in buffers, which are reused for the next one."""

    def __init__(
        self, values: dict[str, Any], size: int, pairs: list[tuple[Tensor, Tensor]], events: list[torch.cuda.Event]
    ) -> None:
        super().__init__(values, size)
        self._pairs, self._events = pairs, events
        self._made = Event()

    def finish(self) -> None:
        """Copies what is in host memory, and waits for the copies from cards."""
        try:
            for buffer, tensor in self._pairs:
                _octets(buffer)[:] = _octets(tensor)
            for event in self._events:
                event.synchronize()
        finally:
            self._made.set()

    def settle(self) -> None:
        """Waits for what is in host memory; a card waits by itself before it changes its memory."""
        for event in self._events:
            event.wait()
        if self._pairs:
            self._made.wait()


class InPlace(PendingSnapshot):
    """No copy: the tensors must not change until they are written."""

    def __init__(self, values: Mapping[str, Any], size: int) -> None:
        super().__init__(dict(values), size)
        self._read = Event()
        self.hurry = Event()
        self.hurry.set()

    def settle(self) -> None:
        self._read.wait()

    def release(self) -> None:
        self._read.set()


class Packed(PendingSnapshot):
    """The bytes of the file itself, for a small checkpoint."""

    def __init__(self, values: Mapping[str, Any], size: int) -> None:
        stream = BytesIO()
        torch.save(dict(values), stream)
        super().__init__(stream.getbuffer(), size)


class Snapshot:
    """Copies nested tensors into buffers that are created once and reused: fresh memory is what makes a copy slow."""

    def __init__(self, *, packs: bool = False) -> None:
        """`packs`: whether small checkpoints may become the bytes of a file."""
        self._packs = packs
        self._buffers: list[Tensor] = []
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def make_room(self, values: Mapping[str, Any]) -> bool:
        """Creates buffers for these tensors, touched so that the system provides their memory; copies nothing.

        Returns whether they will be copied at all.
        """
        if self._without_copy(sizes_of(values)) is not None:
            return False

        def touched(buffer: Tensor, tensor: Tensor) -> Tensor:
            _octets(buffer).fill(0)
            return buffer

        self._in_buffers(values, touched)
        return True

    def begin(self, values: Mapping[str, Any]) -> PendingSnapshot:
        """Takes these values. A copy reuses the buffers of the previous one, which must no longer be in use."""
        sizes = sizes_of(values)
        without_copy = self._without_copy(sizes)
        if without_copy is not None:
            return without_copy(values, sizes.whole)
        pairs: list[tuple[Tensor, Tensor]] = []
        for card in {tensor.device for tensor in tensors_of(values) if tensor.device.type == "cuda"}:
            # A stream next to the training's, which starts after the work that is already queued there.
            if card not in self._streams:
                self._streams[card] = torch.cuda.Stream(card)
            self._streams[card].wait_stream(torch.cuda.current_stream(card))

        def copied(buffer: Tensor, tensor: Tensor) -> Tensor:
            if tensor.device in self._streams:
                with torch.cuda.stream(self._streams[tensor.device]):
                    return buffer.copy_(tensor, non_blocking=True)
            if tensor.is_contiguous() and tensor.nbytes > _AT_ONCE:
                pairs.append((buffer, tensor))
                return buffer
            return buffer.copy_(tensor)

        copy: dict[str, Any] = self._in_buffers(values, copied)
        return Copy(copy, sizes.whole, pairs, [stream.record_event() for stream in self._streams.values()])

    def _without_copy(self, sizes: Sizes) -> type[InPlace | Packed] | None:
        if sizes.on_card:  # a card must not wait for the disk, so its memory is copied, regardless of the size
            return None
        if sizes.here > LARGEST_COPY:
            return InPlace
        return Packed if self._packs and sizes.here < SMALLEST_COPY else None

    def _in_buffers(self, values: Any, fill: Callable[[Tensor, Tensor], Tensor]) -> Any:
        """The values with a filled buffer for each tensor. One that occurs twice, like tied weights, stays shared."""
        made: list[Tensor] = []
        seen: dict[tuple[object, ...], Tensor] = {}

        def copied(tensor: Any, _: str) -> Tensor:
            part = local(tensor)
            identity = _identity(part)
            if identity not in seen:
                buffer = self._buffers[len(made)] if len(made) < len(self._buffers) else None
                if buffer is None or buffer.shape != part.shape or buffer.dtype != part.dtype:
                    buffer = _host_memory(part)
                made.append(buffer)
                seen[identity] = fill(buffer, part)
            if not hasattr(tensor, "to_local"):
                return seen[identity]
            form = {"shape": tensor.shape, "stride": tensor.stride(), "run_check": False}
            divided: Tensor = type(tensor.detach()).from_local(
                seen[identity], tensor.device_mesh, tensor.placements, **form
            )
            return divided

        filled = mapped(values, copied)
        self._buffers = made
        return filled


def mapped(value: Any, change: Callable[[Tensor, str], Any], name: str = "") -> Any:
    """Nested values with every tensor changed; its name is the path of keys and indexes that leads to it."""
    if isinstance(value, Tensor):
        return change(value, name)
    if isinstance(value, Mapping):
        return {key: mapped(inner, change, f"{name}/{key}" if name else str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([mapped(inner, change, f"{name}/{place}") for place, inner in enumerate(value)])
    return value


def tensors_of(value: Any) -> list[Tensor]:
    found: list[Tensor] = []
    mapped(value, lambda tensor, _: found.append(tensor))
    return found


def local(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor: all of it, or a part if it is divided among ranks."""
    tensor = tensor.detach()
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part


class Sizes(NamedTuple):
    whole: int
    """Bytes of all tensors on all ranks; shared ones are counted once."""
    here: int
    """The bytes that this process holds."""
    on_card: bool
    """Whether any of it is on a card."""


def sizes_of(value: Any) -> Sizes:
    once = {_identity(part): (tensor, part) for tensor in tensors_of(value) for part in (local(tensor),)}
    whole = sum(tensor.numel() * tensor.element_size() for tensor, _ in once.values())
    here = sum(part.nbytes for _, part in once.values())
    return Sizes(whole, here, any(part.is_cuda for _, part in once.values()))


def _identity(tensor: Tensor) -> tuple[object, ...]:
    """Equal for two tensors that are the same one; empty ones have no place in memory."""
    place = tensor.data_ptr() if tensor.numel() else id(tensor)
    return tensor.device, place, tensor.dtype, tensor.shape, tensor.stride()


def _octets(tensor: Tensor) -> Any:
    """Its memory for numpy: torch operations in a second thread start more threads, which slow down the first."""
    return tensor.reshape(-1).view(torch.uint8).numpy()


def _host_memory(tensor: Tensor) -> Tensor:
    try:
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.device.type == "cuda")
    except RuntimeError:  # WSL2 and some containers allow few locked pages
        return torch.empty(tensor.shape, dtype=tensor.dtype)
