"""A checkpoint as it stands at one moment, taken while training computes the next gradients.

Weights change only at the end of a step. Until then a copy of them is made aside: by a card on a stream of its own, of
what is in host memory by the thread that writes the file. What is large and in host memory is not copied, which would
need half as much memory again: the thread writes it from where it lies, and the step waits for that before its update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from threading import Event
from typing import Any, NamedTuple

import torch
from torch import Tensor

_AT_ONCE = 1 << 16  # bytes: a smaller tensor is copied before a thread would have begun
# Bytes: of a smaller checkpoint the file is made at once. A thread would need as much of the interpreter's time for it,
# and the steps of such a model are short: with one of 2.4 MB the next step took 7 ms longer, made at once it is 3 ms.
SMALLEST_COPY = 4 << 20
LARGEST_COPY = 32 << 20  # bytes: a tenth of what Python takes that has imported torch


class Copy:
    """A copy under way. Whoever changes the tensors settles it first; whoever reads it has finished it."""

    hurry: Event | None = None
    """Nobody waits for the writing."""

    def __init__(
        self, values: dict[str, Any], size: int, pairs: list[tuple[Tensor, Tensor]], events: list[torch.cuda.Event]
    ) -> None:
        self.values, self.size = values, size
        self._pairs, self._events = pairs, events
        self._made = Event()

    def finish(self) -> None:
        """Copies what is in host memory, and waits for what comes from cards."""
        try:
            for buffer, tensor in self._pairs:
                _octets(buffer)[:] = _octets(tensor)
            for event in self._events:
                event.synchronize()
        finally:
            self._made.set()

    def settle(self) -> None:
        """Waits for what is in host memory; a card waits by itself before it changes its own."""
        for event in self._events:
            event.wait()
        if self._pairs:
            self._made.wait()

    def release(self) -> None:
        """Called when everything is written; the copy stays for the next one."""


class InPlace:
    """No copy: whoever changes the tensors waits until they are written, so that is done without pauses."""

    def __init__(self, values: Mapping[str, Any], size: int) -> None:
        self.values, self.size = dict(values), size
        self._read = Event()
        self.hurry = Event()
        self.hurry.set()

    def finish(self) -> None:
        """There is nothing to do."""

    def settle(self) -> None:
        self._read.wait()

    def release(self) -> None:
        self._read.set()


class Packed:
    """The bytes of the file itself, of a checkpoint that is small."""

    hurry: Event | None = None

    def __init__(self, values: Mapping[str, Any], size: int) -> None:
        stream = BytesIO()
        torch.save(dict(values), stream)
        self.values: Any = stream.getbuffer()
        self.size = size

    def finish(self) -> None:
        """There is nothing to do."""

    settle = release = finish


Taken = Copy | InPlace | Packed


class Snapshot:
    """Copies nested tensors into buffers that are made once and used again: fresh memory is what makes a copy slow."""

    def __init__(self, *, packs: bool = False) -> None:
        """Whether small checkpoints may become the bytes of a file."""
        self._packs = packs
        self._buffers: list[Tensor] = []
        self._asides: dict[torch.device, torch.cuda.Stream] = {}

    def make_room(self, values: Mapping[str, Any]) -> bool:
        """Buffers for these tensors, touched, so that the system has handed over their memory; nothing is copied.

        Whether they will be copied at all.
        """
        sizes = _sizes(values)
        if self._stays(sizes) or self._is_packed(sizes):
            return False
        walk = _Walk(self._buffers, _touch)
        walk.of(values)
        self._buffers = walk.made
        return True

    def begin(self, values: Mapping[str, Any]) -> Taken:
        """A copy in the buffers of the one before, which must not be in use any more."""
        sizes = _sizes(values)
        if self._stays(sizes):
            return InPlace(values, sizes.whole)
        if self._is_packed(sizes):
            return Packed(values, sizes.whole)
        pairs: list[tuple[Tensor, Tensor]] = []
        cards = {tensor.device for tensor in tensors_of(values) if tensor.device.type == "cuda"}
        asides = {card: self._aside(card) for card in cards}

        def copied(buffer: Tensor, tensor: Tensor) -> Tensor:
            if tensor.device in asides:
                with torch.cuda.stream(asides[tensor.device]):
                    return buffer.copy_(tensor, non_blocking=True)
            if tensor.is_contiguous() and tensor.nbytes > _AT_ONCE:
                pairs.append((buffer, tensor))
                return buffer
            return buffer.copy_(tensor)

        walk = _Walk(self._buffers, copied)
        copy: dict[str, Any] = walk.of(values)
        self._buffers = walk.made
        return Copy(copy, sizes.whole, pairs, [aside.record_event() for aside in asides.values()])

    def _stays(self, sizes: _Sizes) -> bool:
        return sizes.here > LARGEST_COPY and not sizes.on_card

    def _is_packed(self, sizes: _Sizes) -> bool:
        return self._packs and sizes.here < SMALLEST_COPY and not sizes.on_card

    def _aside(self, card: torch.device) -> torch.cuda.Stream:
        """A stream beside the training's, which begins after what that has in hand."""
        if card not in self._asides:
            self._asides[card] = torch.cuda.Stream(card)
        self._asides[card].wait_stream(torch.cuda.current_stream(card))
        return self._asides[card]


class _Walk:
    """One walk through a checkpoint. A tensor met twice, as tied weights are, is copied once and stays shared."""

    def __init__(self, buffers: list[Tensor], fill: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.old = buffers
        self.fill = fill
        self.made: list[Tensor] = []
        self.seen: dict[tuple[object, ...], Tensor] = {}

    def of(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return _like(value, self.tensor(local(value)))
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


def local(tensor: Tensor) -> Tensor:
    """What this process holds of it: all, or of a tensor that is divided among ranks a part."""
    tensor = tensor.detach()
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part


def _like(whole: Any, part: Tensor) -> Tensor:
    """The same tensor with another part here."""
    if not hasattr(whole, "to_local"):
        return part
    form = {"shape": whole.shape, "stride": whole.stride(), "run_check": False}
    divided: Tensor = type(whole.detach()).from_local(part, whole.device_mesh, whole.placements, **form)
    return divided


def size_of(value: Any) -> int:
    """Bytes of all tensors on all ranks, those that are shared counted once."""
    return _sizes(value).whole


class _Sizes(NamedTuple):
    """In bytes: on all ranks, and of that what this process holds; whether some of it is on a card."""

    whole: int
    here: int
    on_card: bool


def _sizes(value: Any) -> _Sizes:
    """A card's memory is copied, whatever its size, since a card waits for no disk."""
    once = {_identity(part): (tensor, part) for tensor in tensors_of(value) for part in (local(tensor),)}
    whole = sum(tensor.numel() * tensor.element_size() for tensor, _ in once.values())
    here = sum(part.nbytes for _, part in once.values())
    return _Sizes(whole, here, any(part.is_cuda for _, part in once.values()))


def _identity(tensor: Tensor) -> tuple[object, ...]:
    """What two tensors have in common if they are one; empty ones have no place in memory to tell them by."""
    place = tensor.data_ptr() if tensor.numel() else id(tensor)
    return tensor.device, place, tensor.dtype, tensor.shape, tensor.stride()


def _touch(buffer: Tensor, tensor: Tensor) -> Tensor:
    _octets(buffer).fill(0)
    return buffer


def _octets(tensor: Tensor) -> Any:
    """Its memory as numpy's: an operation of torch in a second thread starts a second pool of threads, which slows the
    first.
    """
    return tensor.reshape(-1).view(torch.uint8).numpy()


def _host_memory(tensor: Tensor) -> Tensor:
    if tensor.device.type == "cuda":
        try:
            return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        except RuntimeError:  # few pages may be locked on WSL2 and in some containers
            pass
    return torch.empty(tensor.shape, dtype=tensor.dtype)
