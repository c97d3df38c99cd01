"""What a rule proposes, and the same once it is priced."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from stepwatch.estimator.simulate import UNCHANGED, product
from stepwatch.messages import Message
from stepwatch.settings import Value
from stepwatch.units import Interval

Basis = Literal["measured", "modelled"]


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What a change does to a run beyond its settings: code, a disk, a quieter machine. Factors, but for the saves."""

    step: Interval = UNCHANGED
    evaluation: float = 1.0
    checkpoint: Interval = UNCHANGED
    lost: Interval = UNCHANGED
    save_every: int | None = None
    save_also: bool = False
    """The checkpoints of `save_every` come on top of those of the evaluations, whatever the loss."""

    def combined(self, other: Effect) -> Effect:
        """Both; of two ways to make checkpoints cheaper the better one counts."""
        return Effect(
            step=product(self.step, other.step),
            evaluation=self.evaluation * other.evaluation,
            checkpoint=min(self.checkpoint, other.checkpoint, key=lambda factor: factor.mid),
            lost=product(self.lost, other.lost),
            save_every=other.save_every or self.save_every,
            save_also=other.save_also or self.save_also,
        )


NO_EFFECT = Effect()


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """One change. The engine finds out what it saves, and drops it where that is too little."""

    rule: str
    what: Message
    """In the imperative."""
    because: Message
    price: Message
    """What one gives up for it."""
    new_settings: Mapping[str, Value] = field(default_factory=dict)
    own: Mapping[str, tuple[Value | None, Value]] | None = None
    """The old and the new value in the trainer's own settings, where it is not nanoGPT."""
    effect: Effect = NO_EFFECT
    patch: str | None = None
    """Code to paste, where no setting does it."""
    where: Message | None = None
    """Where the patch goes."""
    basis: Basis = "modelled"
    acts_on: str | None = None
    """Of two proposals that act on the same thing only one is chosen."""
    most_s: float = math.inf
    """No more can come back: what was measured of the thing that it removes."""
    required: bool = False
    """Given however little it saves: without it there may be no run."""
    remedy: bool = True
    """False where it says what to look at, not what to do: then it is no part of what the changes save together."""


@dataclass(frozen=True, kw_only=True)
class Advice(Proposal):
    """A proposal that is worth it."""

    saves_s: Interval
    change: Mapping[str, tuple[Value | None, Value]]
    """Each setting with its value now, None where that is not known, and the new one; by nanoGPT's names."""

    @property
    def stated(self) -> Mapping[str, tuple[Value | None, Value]]:
        """The same as the user of this trainer writes it."""
        return self.change if self.own is None else self.own
