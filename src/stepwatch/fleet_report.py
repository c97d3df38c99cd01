"""The answer to `fleet`: what a store of runs shows, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from stepwatch.errors import Notice
from stepwatch.messages import Message
from stepwatch.units import Interval


class Share(NamedTuple):
    """Where GPU hours went."""

    part: str
    """A part of a run's time, or `redone` or `restart`."""
    hours: float
    share: float


class Group(NamedTuple):
    """Runs that have the same values in the requested columns."""

    names: tuple[str, ...]
    runs: int
    hours: float
    useful: float | None
    """The share of the hours in steps that count; None if the logs show no parts."""
    mfu: float | None
    troubled: int


class Job(NamedTuple):
    """One training with all its starts."""

    name: str
    starts: int
    iterations: int
    """Up to the last one reached."""
    redone: int
    """Iterations that were done again after a restart."""
    redone_s: float
    gap_s: float | None
    """Total time from each last sign of life to the first step after it; None without a clock."""
    wall_s: float
    """From the first start to the last sign of life."""
    goodput: float
    """The share of that time in steps that count."""
    cards: int = 1
    done: bool = False


class Suspect(NamedTuple):
    """Runs that are slower than comparable ones."""

    kind: str
    """`node`, `card`, `day` (all runs from then on) or `run`."""
    name: str
    """The name of the node, the card or the run; for a day, its date: 2026-11-17."""
    slower: float
    """0.1 if steps take a tenth longer."""
    runs: int
    like: int
    """How many runs they are compared with."""
    hours: float
    """GPU hours that they took longer."""
    changed: tuple[tuple[str, str, str], ...] = ()
    """What else differs: column, value of the others, value of these."""


class Scale(NamedTuple):
    """The same work on another number of cards."""

    work: str
    gpu: str | None
    cards: int
    runs: int
    tokens_per_s_per_card: float
    efficiency: float
    """Relative to the smallest number of cards."""


class Speed(NamedTuple):
    """One kind of card."""

    gpu: str
    runs: int
    hours: float
    mfu: float
    expected_mfu: float | None


class Cause(NamedTuple):
    """Why runs ended, or logs could not be read."""

    cause: str
    number: int
    hours: float
    example: str
    of_run: bool


class Change(NamedTuple):
    """One rule's advice over all runs."""

    rule: str
    text: Message
    runs: int
    hours: Interval


class ForecastAccuracy(NamedTuple):
    """How accurate the forecasts made at a tenth of a run were."""

    runs: int
    inside: float
    """Share of the runs that ended within the interval; the forecast claims 0.9."""
    error: float
    """Median error of the forecast's middle, as a share of the true time."""


@dataclass(frozen=True, kw_only=True)
class FleetReport:
    """The answer to `fleet`."""

    runs: int
    logs: int
    hours: float
    """GPU hours: wall time times cards."""
    asked: Mapping[str, str]
    """The filters, as they were typed."""
    by: tuple[str, ...] = ()
    shares: tuple[Share, ...] = ()
    statuses: Mapping[str, int]
    groups: tuple[Group, ...] = ()
    weeks: tuple[Group, ...] = ()
    """By the Monday of the week in which runs started, the latest first."""
    jobs: tuple[Job, ...] = ()
    """Those that were started more than once, the most GPU hours lost first."""
    job_count: int = 0
    suspects: tuple[Suspect, ...] = ()
    scaling: tuple[Scale, ...] = ()
    speeds: tuple[Speed, ...] = ()
    causes: tuple[Cause, ...] = ()
    changes: tuple[Change, ...] = ()
    held: ForecastAccuracy | None = None
    first_s: float | None = None
    last_s: float | None = None
    """When the first run started and the last one ended, seconds since 1970."""
    notices: tuple[Notice, ...] = ()

    @property
    def useful(self) -> float | None:
        """The share of the hours in steps that count."""
        return next((share.share for share in self.shares if share.part == "step"), None)
