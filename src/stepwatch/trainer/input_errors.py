"""What can be wrong with the files that a training run is given."""

from __future__ import annotations

from stepwatch.errors import InputError


class DataError(InputError):
    """train.bin, val.bin or meta.pkl is missing, too short, or does not fit the vocabulary."""


class CheckpointError(InputError):
    """A checkpoint that is missing, damaged, of another shape, or asks for more than numbers."""
