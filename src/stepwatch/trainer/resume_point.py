"""Where the random numbers and the data stand: with it a run that goes on has the losses of one that never stopped.

It is taken at the top of a turn, before the evaluation of that turn, which is made again when the run goes on. Batches
are drawn ahead, so those that no step has had yet are part of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

KEY = "resume"
"""In a checkpoint, beside nanoGPT's names, which nanoGPT's own programs read without it."""


class ResumePoint(NamedTuple):
    seed: int
    generator: Tensor
    """The host's, common to all ranks: what is drawn of the data, and dropout on a single CPU."""
    own: tuple[Tensor | None, ...]
    """Each rank's own, for dropout: its card's, or on CPUs a second one."""
    batches: tuple[Tensor, ...]
    """Where the sequences of each batch start that is drawn and not yet trained on."""
    scaler: Mapping[str, Any]

    def as_plain(self) -> dict[str, Any]:
        """Names to tensors and plain data, as a checkpoint holds them."""
        return {**self._asdict(), "own": list(self.own), "batches": list(self.batches), "scaler": dict(self.scaler)}


def point_of(checkpoint: Mapping[str, Any]) -> ResumePoint | None:
    """The one in a checkpoint; None in nanoGPT's own. ValueError where it cannot be one."""
    if KEY not in checkpoint:
        return None
    held = checkpoint[KEY]
    try:
        point = ResumePoint(**{name: held[name] for name in ResumePoint._fields})
        point = point._replace(own=tuple(point.own), batches=tuple(point.batches))
        torch.Generator().set_state(point.generator)
        fits = (
            type(point.seed) is int
            and all(own is None or own.dtype == torch.uint8 for own in point.own)
            and all(starts.dtype == torch.int64 and starts.dim() == 1 and len(starts) for starts in point.batches)
            and (not point.scaler or set(point.scaler) == set(torch.amp.GradScaler("cpu").state_dict()))
            and all(isinstance(value, int | float) and math.isfinite(value) for value in point.scaler.values())
        )
    except (AttributeError, KeyError, RuntimeError, TypeError) as error:
        raise ValueError(KEY) from error
    if not fits:
        raise ValueError(KEY)
    return point
