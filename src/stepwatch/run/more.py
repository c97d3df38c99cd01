"""What only few logs show about a run: the inside of its steps, its ranks, how lines like an example were read."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from stepwatch.run import Floats, Ints


class Span(NamedTuple):
    """The time that a recorder watched, by the clock of its machine."""

    started_s: float
    """The start of the process, or of what remains of its record."""
    begun_s: float
    """When the first of its phases began."""
    ended_s: float


class Inside(NamedTuple):
    """What a recorder saw inside the steps: one value per row of the iterations, nan if unknown."""

    data_s: Floats
    wait_s: Floats
    """Waiting for other ranks."""
    device_s: Floats


class Rank(NamedTuple):
    """The steps of one of the processes that train together."""

    rank: int
    started_s: float
    number: Ints
    time_s: Floats
    wait_s: Floats


TimeMeaning: TypeAlias = Literal["step", "interval", "elapsed", "mean", "clock"]
"""What the times mean in lines that an example describes: one step, everything since the previous line, everything
since the start, the mean since the start, or the timestamps of the lines."""


class ReadLine(NamedTuple):
    """A line of the log, and what was read from it."""

    line: int
    text: str
    number: int
    loss: float | None
    time_s: float | None
    """As it is printed; None if the timestamps in front of the lines are used."""


class Understood(NamedTuple):
    """How the lines that an example describes were read."""

    meaning: TimeMeaning
    word: str
    """The log's name for the time; empty if it has none."""
    unit: str
    counts_epochs: bool
    unit_assumed: bool
    doubtful: bool
    """The lines have another time that fits equally well."""
    disagrees: bool
    """The lines print a time, but according to their timestamps it is not that of an iteration."""
    lines: tuple[ReadLine, ...]
