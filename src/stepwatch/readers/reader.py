"""What a reader is: one format, what its times mean, and the functions that find it in a text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from stepwatch.messages import Message
from stepwatch.readers.records import Kinds, Records
from stepwatch.run import Run, Timing, Traits

MOST_SNIFFED = 60
"""Hits that a `sniff` counts: enough to distinguish formats."""
NOTHING: frozenset[str] = frozenset()
EVALUATION, CHECKPOINT = "eval", "checkpoint"
BOTH = frozenset({EVALUATION, CHECKPOINT})


Untimed: TypeAlias = tuple[re.Pattern[bytes], Message]


class Reader(NamedTuple):
    """One log format. `sniff` counts how many lines of a text are iterations of this format."""

    name: str
    timing: Timing
    sniff: Callable[[bytes], float]
    parse: Callable[[bytes, int, Records], None]
    finish: Callable[[int, Records], None]
    holds: frozenset[str] = NOTHING
    """What the printed time includes beside the step: evaluations, checkpoints, both or neither."""
    traits: Traits = Traits()
    strongest: float = MOST_SNIFFED
    """What `sniff` gives at most: where another format claims more, it need not be asked."""
    claims_any_bar: bool = False
    """The progress bar of any loop before the training looks like this format."""
    untimed: tuple[Untimed, ...] = ()
    """Lines that show steps but no times, of side files or of a stage that prints none, and what to give instead."""
    complete: Callable[[Run, Kinds, Records], Run] | None = None
    """Adds to a run what only this format shows; the events are those of the run."""
