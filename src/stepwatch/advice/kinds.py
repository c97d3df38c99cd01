"""What a rule gives: one change, what it saves, what it costs, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

from stepwatch.advice.case import NO_EFFECT, Case, Effect
from stepwatch.messages import Message
from stepwatch.settings import Value
from stepwatch.units import MINUTE_S, Interval

Basis = Literal["measured", "modelled"]
# Less than this is not worth a restart, nor the reading of a sentence.
LEAST_SHARE, LEAST_S = 0.01, MINUTE_S


class Advice(NamedTuple):
    rule: str
    what: Message
    """In the imperative."""
    because: Message
    price: Message
    """What one gives up for it."""
    saves_s: Interval
    basis: Basis
    change: Mapping[str, tuple[Value | None, Value]] = {}
    patch: str | None = None
    """Code to paste, where no setting does it."""
    where: Message | None = None
    """Where the patch goes."""
    effect: Effect = NO_EFFECT
    lever: str | None = None
    """What it acts on, where two ways to act on the same thing exclude each other."""
    remedy: bool = True
    """False where it tells what to look at, not what to do: its saving is no part of what the changes give together."""

    @property
    def new_settings(self) -> dict[str, Value]:
        return {name: new for name, (_, new) in self.change.items()}


def pays(saved_s: Interval, total_s: Interval) -> bool:
    """Worth a change: surely something, and probably more than a minute and a hundredth of the run."""
    return saved_s.low > 0 and worth(saved_s, total_s)


def worth(saved_s: Interval, total_s: Interval) -> bool:
    """Enough to be spoken of, if it is true."""
    return saved_s.mid >= max(LEAST_S, LEAST_SHARE * total_s.mid)


def changing(case: Case, new: Mapping[str, Value]) -> dict[str, tuple[Value | None, Value]]:
    """Each setting with its value now; a default that nothing confirms counts as unknown."""
    return {name: (None if case.assumed(name) else _value(case, name), value) for name, value in new.items()}


def _value(case: Case, name: str) -> Value | None:
    return case.settings[name].value if name in case.settings else None


def basis_of(case: Case, *parts: str) -> Basis:
    return "measured" if all(part in case.measured for part in parts) else "modelled"


def rounded(value: float) -> int:
    """1, 2, 2.5 or 5 times a power of ten: the nearest below, as people set intervals."""
    if value < 1:
        return 1
    unit = 10.0 ** math.floor(math.log10(value))
    return max(int(max(step for step in (1.0, 2.0, 2.5, 5.0) if step * unit <= value * (1 + 1e-9)) * unit), 1)
