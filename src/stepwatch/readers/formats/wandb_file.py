"""W&B's own file of a run, run-….wandb, which contains its history even if nothing was uploaded.

Every row of the history has the time at which it was logged, like the numbers of an event file: it is read in the same
way. If no row shows steps, the console output in the file is read instead (reading.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from stepwatch.readers.formats import Reader
from stepwatch.readers.formats.history import History, add_history, keep_rows, planned_epochs, settings_text
from stepwatch.readers.formats.recorder_run import with_inside
from stepwatch.readers.formats.tensorboard import EventHistory
from stepwatch.readers.formats.wandb import CARD, with_settings
from stepwatch.readers.formats.wandb_records import Decoder, Recorded
from stepwatch.readers.records import Records
from stepwatch.run import Evaluation, Fact, Run, Timing, Traits
from stepwatch.settings import KINDS
from stepwatch.sources import kind_of


def sniff(head: bytes) -> float:
    return math.inf if kind_of(head) == "wandb" else 0.0  # nothing else begins like one


class Whole(NamedTuple):
    """What a file contains besides the console output."""

    history: History
    found: Recorded

    def add_steps(self, first_line: int, records: Records) -> None:
        for _ in range(self.found.damaged):
            records.add_unread(0, "a damaged record, or one that is cut off")
        add_history(self.history, self.found.config, self.found.started_s, records)
        records.events += facts_of(self.found)

    def add_epochs(self, first_line: int, records: Records) -> None:
        """Adds epochs: what can be timed if neither the history nor the console output shows steps."""
        epochs = self.history.epochs()
        if epochs is not None:
            begun = self.found.started_s if self.found.started_s is not None else math.nan
            events = EventHistory(self.history.tracks(epochs), [settings_text(self.found.config, begun)])
            events.add_epochs(records, planned_epochs(self.found.config))
            records.events += facts_of(self.found)

    def facts(self) -> list[Fact]:
        """What the file shows about the run besides what it printed."""
        return EventHistory({}, [settings_text(self.found.config, 0.0)]).facts() + facts_of(self.found)

    @property
    def counts_epochs(self) -> bool:
        """Whether the history has one row for each epoch."""
        return self.history.counts_epochs(self.found.config)


@dataclass(slots=True)
class _PartlyRead:
    """A file that is partly read."""

    decoder: Decoder = field(default_factory=Decoder)
    rows: int = 0


def parse(text: bytes, first_line: int, records: Records) -> None:
    """Turns rows of the history into columns as they come: there may be millions."""
    if not records.kept:
        records.kept.append(_PartlyRead())
    (begun,) = records.kept
    begun.decoder.feed(text)
    found = begun.decoder.found
    keep_rows(found.history, begun.rows, records)
    begun.rows += len(found.history)
    found.history.clear()
    found.console.clear()  # it is read again if it is needed


def finish(first_line: int, records: Records) -> None:
    _whole(records).add_steps(first_line, records)


def read_whole(blocks: Iterable[bytes]) -> Whole:
    records = Records()
    for block in blocks:
        parse(block, 0, records)
        records.narrow()
    return _whole(records)


def _whole(records: Records) -> Whole:
    (begun,) = records.kept or (_PartlyRead(),)
    records.kept = []
    found = begun.decoder.found
    found = replace(found, damaged=found.damaged + begun.decoder.is_cut)
    return Whole(History.kept(begun.rows, records), found)


def completed(runs: tuple[Run, ...], facts: list[Fact]) -> tuple[Run, ...]:
    """Adds what else the file shows to the runs of its console output; the output takes precedence."""
    named = {fact.name: fact.value for fact in facts}
    return with_settings(runs, {name: named[name] for name in named if name in KINDS}, named.get("gpu_text"))


def with_evaluations(run: Run, epochs: Run) -> Run:
    """Adds an evaluation after each epoch to a run of the console's bars: the history's clock shows its time."""
    number, times, last = run.iterations.number, run.iterations.time_s, len(epochs.iterations)
    steps, rest = divmod(int(number[-1]), last)
    evaluated = len(epochs.evaluations) == last and int(epochs.iterations.number[-1]) == last
    if run.evaluations or not evaluated or rest or number[0] > steps or (np.diff(number) <= 0).any():
        return run
    ends = steps * np.arange(1, last + 1)
    trained = np.interp(ends, number, np.cumsum(times * np.diff(number, prepend=0)))
    took = np.diff(epochs.iterations.stamp_s) - np.diff(trained)
    usual = float(np.median(took)) if len(took) else math.nan
    if not usual > 0:
        return run
    lines = run.iterations.line[np.searchsorted(number, ends)].tolist()
    costs = (usual, *np.maximum(took, 0.0).tolist())  # what precedes the first epoch is unknown
    found = zip(lines, ends.tolist(), costs, epochs.evaluations, strict=True)
    return replace(
        run, evaluations=tuple(Evaluation(line, at, val_loss=each.val_loss, took_s=s) for line, at, s, each in found)
    )


def facts_of(recorded: Recorded) -> list[Fact]:
    facts = []
    if recorded.cards and CARD.fullmatch(recorded.cards[0]):
        facts.append(Fact(0, "gpu_text", recorded.cards[0]))
    if len(recorded.cards) == 1:  # if several are there, a run may use fewer
        facts.append(Fact(0, "world_size", 1))
    if recorded.exit_code == 0:
        facts.append(Fact(0, "ended", True))
    return facts


READER = Reader(
    name="wandb-file", timing=Timing.SPANS_LOG_INTERVAL,
    sniff=sniff, parse=parse, finish=finish, complete=with_inside, strongest=math.inf,
    traits=Traits(may_evaluate=True, unread_lines="cut"),
)  # fmt: skip
