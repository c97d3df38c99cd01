"""Samples of the machine during a run: figures on one clock, as columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from stepwatch.run import Floats, Ints


class Card(NamedTuple):
    """One graphics card, with one value per sample, nan if unknown; columns that were never seen are absent."""

    number: int
    name: str
    columns: Mapping[str, Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Figures of the machine at rising times."""

    at_s: Floats
    """Seconds since 1970, or since the first sample if the file has no clock."""
    machine: Mapping[str, Floats] = field(default_factory=dict)
    cards: tuple[Card, ...] = ()
    has_clock: bool = True
    arrivals: tuple[Floats, Ints] | None = None
    """When lines of the log came, and how many there were by then; only for runs that we started."""
    source: str = ""
    outside: tuple[str, ...] = ()
    """Columns with values that no machine can have: these values count as unknown."""

    def __len__(self) -> int:
        return len(self.at_s)
