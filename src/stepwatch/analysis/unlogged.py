"""Evaluations at iterations that were not logged: counted gap by gap, never listed, since a gap has any length."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain, islice

import numpy as np

from stepwatch.run import Ints

_NONE = np.zeros(0, np.int64)
_SHOWN = 5  # a sentence has room for no more


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlogged:
    """Some that the log mentions, and stretches of those that must have run between two of its lines."""

    mentioned: Ints = field(default_factory=lambda: _NONE)
    first: Ints = field(default_factory=lambda: _NONE)
    """The first of each stretch; they rise."""
    counts: Ints = field(default_factory=lambda: _NONE)
    interval: int = 1

    @property
    def total(self) -> int:
        return len(self.mentioned) + int(self.counts.sum())

    def shown(self) -> list[int]:
        """The first ones and, where there are more, the last."""
        stretches = (
            range(first, first + count * self.interval, self.interval)
            for first, count in zip(self.first.tolist(), self.counts.tolist(), strict=True)
        )
        begin = sorted((*self.mentioned[:_SHOWN].tolist(), *islice(chain.from_iterable(stretches), _SHOWN)))[:_SHOWN]
        last = self.first[-1:] + (self.counts[-1:] - 1) * self.interval
        return begin if self.total <= _SHOWN else [*begin, int(np.concatenate((self.mentioned[-1:], last)).max())]

    def among(self, numbers: Ints) -> np.ndarray:
        """Which of these iterations are some of them."""
        mentioned = np.isin(numbers, self.mentioned)
        if not len(self.first):
            return mentioned
        stretch = np.maximum(np.searchsorted(self.first, numbers, side="right") - 1, 0)
        place, rest = np.divmod(numbers - self.first[stretch], self.interval)
        return np.asarray(mentioned | ((rest == 0) & (place >= 0) & (place < self.counts[stretch])))

    def at_rows(self, numbers: Ints) -> tuple[Ints, Ints]:
        """The rows before which they ran, and how many before each."""
        rows = np.searchsorted(numbers, np.concatenate((self.mentioned, self.first)))
        return rows, np.concatenate((np.ones(len(self.mentioned), np.int64), self.counts))


def between_rows(numbers: Ints, interval: int, gaps: np.ndarray, mentioned: Ints) -> Unlogged:
    """The multiples of the interval inside those gaps between rows, and those mentioned outside of them."""
    first = numbers[:-1] - numbers[:-1] % interval + interval
    counts = np.where(gaps, (numbers[1:] - 1) // interval - numbers[:-1] // interval, 0)
    some = counts > 0
    found = Unlogged(first=first[some], counts=counts[some], interval=interval)
    return replace(found, mentioned=mentioned[~found.among(mentioned)])
