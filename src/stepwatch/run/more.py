"""What few logs show of a run: the inside of its steps, its ranks, how lines like an example were read."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from stepwatch.run import Floats, Ints


class Span(NamedTuple):
    """The time that a recorder watched, by the clock of its machine."""

    started_s: float
    """The start of the process, or of what is left of its record."""
    begun_s: float
    """When the first of its phases began."""
    ended_s: float


class Inside(NamedTuple):
    """What a recorder saw inside the steps, a value for each row of the iterations; unknown is nan."""

    data_s: Floats
    wait_s: Floats
    """For other ranks."""
    device_s: Floats


class Rank(NamedTuple):
    """The steps of one of the processes that train together."""

    rank: int
    started_s: float
    number: Ints
    time_s: Floats
    wait_s: Floats


TimeMeaning: TypeAlias = Literal["step", "interval", "elapsed", "mean", "clock"]
"""What the times are in lines that an example describes: of a step, of all since the line before, since the start, the
mean of all since the start, or the timestamps of the lines."""


class ReadLine(NamedTuple):
    """A line of the log, and what was understood of it."""

    line: int
    text: str
    number: int
    loss: float | None
    time_s: float | None
    """As it is printed; None where the clock in front of the lines is used."""


class Understood(NamedTuple):
    """How lines were read that an example describes."""

    meaning: TimeMeaning
    word: str
    """What the log calls its time; empty where it has no name."""
    unit: str
    counts_epochs: bool
    unit_assumed: bool
    doubtful: bool
    """The lines have another time of which as much can be said."""
    disagrees: bool
    """The lines print a time, but their timestamps say that it is none of an iteration."""
    lines: tuple[ReadLine, ...]
