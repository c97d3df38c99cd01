"""nanoGPT's training loop with a log that can be trusted: data, model, checkpoints. Only its commands import it."""

from __future__ import annotations

from stepwatch.errors import InputError


class DataError(InputError):
    """train.bin, val.bin or meta.pkl is missing, too short, or does not fit the vocabulary."""


class CheckpointError(InputError):
    """A checkpoint is missing, damaged, of another shape, or contains more than numbers."""
