"""The contents of a log: its iterations as columns, its events, and the Run that contains both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args, overload

import numpy as np
import numpy.typing as npt

from stepwatch.settings import Settings

if TYPE_CHECKING:
    from stepwatch.run.more import Inside, Rank, Span, Understood

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Column = TypeVar("Column", bound=np.generic)

SENTINEL_MFU = -1.0  # nanoGPT prints -100 % until its fifth local iteration
IMPOSSIBLE_MFU = 10.0  # even the fastest card, measured against the A100 that trainers fall back to, stays below
SLEEP_S = 300.0  # a longer stall means that the machine stood still


def repeated(values: npt.NDArray[Column], counts: Ints) -> npt.NDArray[Column]:
    """Repeats each value by its count. Where numpy's indexes have 32 bits, as in a browser, it refuses int64 counts."""
    return np.repeat(values, counts.astype(np.intp))


def rows_from(column: npt.NDArray[Any], values: npt.ArrayLike) -> Ints:
    """For each value, the first row of a rising column that is not below it.

    Like np.searchsorted, which would copy a column whose type differs from that of the values.
    """
    values = np.asarray(values)
    if column.dtype.kind == "i" and values.dtype != column.dtype:
        most = min(np.iinfo(column.dtype).max, 1 << 53)
        values = np.clip(np.ceil(values), -most, most).astype(column.dtype)
    return np.searchsorted(column, values)


def usual_distance(numbers: Ints) -> int | None:
    """The distance between most rows; None if no distance is that common, or if there are only two rows."""
    apart = np.diff(np.sort(numbers[:5000]))  # the start of a long log is enough
    gaps = np.sort(apart[apart > 0])
    if len(apart) < 2 or not len(gaps):
        return None
    middle = gaps[len(gaps) // 2]  # a distance that most rows have is also the median
    return int(middle) if 2 * np.count_nonzero(gaps == middle) > len(gaps) else None


class Timing(StrEnum):
    """What the printed time covers; each reader declares it."""

    SPANS_ITERATION = "iteration"  # everything since the last iteration ended: evaluation and checkpoint included
    SPANS_STEP = "step"  # the training step alone
    SPANS_LOG_INTERVAL = "log interval"  # an average over the iterations since the last line
    CUMULATIVE = "cumulative"
    SPANS_RUN = "run"  # the log has only the time of the whole run, or of its epochs: the mean of all their steps


Start: TypeAlias = Literal["training", "process", "unknown"]
"""What the time of a run's first row starts with. If it is the start of the process or its log, the time includes what
came before the training; if unknown, the time is only assumed to be like that of the other rows."""
UnreadLines: TypeAlias = Literal["untimed", "all", "cut"]
"""The lines that a reader keeps as not understood: those that look like iterations but have no time, all lines that it
does not know, or a record that is cut off at the end of the file."""


class Levers(NamedTuple):
    """A trainer's own names for the settings that advice is about, as users write them; empty if it has none."""

    evaluate_every: str = ""
    evaluation_batches: str = ""
    save_every: str = ""
    other_units: bool = False
    """Intervals are set in epochs, optimizer steps or texts: not in what the log counts as iterations."""
    batch: str = ""
    """The batch of one card, or of all cards if the trainer divides it among them."""
    accumulation: str = ""
    accumulates: bool = False
    """The trainer accumulates as often as the samples of a step require, for any batch of a card."""
    workers: str = ""
    """Processes that load data."""
    prefetch: str = ""
    cache: str = ""
    """Keeps the data in memory."""
    log_every: str = ""
    precision: str = ""
    """Including the value for half precision."""
    compile: str = ""
    recompute: str = ""
    """Activations are computed again instead of kept."""
    length: str = ""
    """The length of a sequence, or the size of an image."""


NO_LEVERS = Levers()


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What is true of a trainer's logs beyond their lines; the defaults fit most. Each reader declares its own."""

    has_nanogpt_settings: bool = False
    """Settings are nanoGPT's, and so are the defaults of those that are not stated."""
    states_model: bool = False
    """Settings describe the model as nanoGPT's do, so that its work can be estimated."""
    announces_compile: bool = False
    """A header that does not mention compilation means that there is none."""
    mfu_of_a100: bool = False
    """The MFU is a moving average, relative to an A100 on any card."""
    mfu_marks_start: bool = False
    """The first iterations of a process print SENTINEL_MFU: a line with a real MFU is not the first."""
    evaluates_at_zero: bool = False
    """The first evaluation comes before the first step."""
    saves_with_evaluations: bool = False
    """If times include checkpoints, these have no separate interval."""
    schedules: bool = False
    """Batch size or window change during the run: steps of another length are no fault."""
    prints_means: bool = False
    """If times are means: each is of one log interval, even if lines are missing from the log."""
    rounds_times: bool = False
    """Times are whole seconds, or whole milliseconds below one second."""
    shows_events: bool = False
    """Evaluations and checkpoints have their own lines or are in no time: without a line, a time includes none."""
    counts_epochs: bool = False
    """The numbers are those of epochs: the log does not show their batches."""
    may_evaluate: bool = False
    """Most runs evaluate, within a time that counts: a run without an evaluation so far may still have one."""
    hides_saves: bool = False
    """The time between an evaluation and the next step is in no line before the end."""
    unread_lines: UnreadLines = "untimed"
    levers: Levers = NO_LEVERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Iterations:
    """The logged iterations as columns: a run has up to millions, so no object per line.

    Unknown values are nan; a loss that was printed as nan or inf is inf.
    """

    number: Ints
    time_s: Floats
    loss: Floats
    reported_mfu: Floats
    reported_tokens_per_s: Floats
    stamp_s: Floats
    line: Ints

    def __len__(self) -> int:
        return len(self.number)

    def take(self, rows: Any) -> Iterations:
        return Iterations(**{name: getattr(self, name)[rows] for name in COLUMNS})


COLUMNS = ("number", "time_s", "loss", "reported_mfu", "reported_tokens_per_s", "stamp_s", "line")


class Evaluation(NamedTuple):
    line: int
    at: int
    train_loss: float | None = None
    val_loss: float | None = None
    took_s: float | None = None
    stamp_s: float | None = None


class Checkpoint(NamedTuple):
    """A save; `at` is None if no line names the iteration."""

    line: int
    at: int | None = None
    took_s: float | None = None
    stamp_s: float | None = None


OneKind = TypeVar("OneKind", Evaluation, Checkpoint)


class EventColumns(Sequence[OneKind]):
    """Very many events of one kind by line, as columns: an object for each takes eight times the memory.

    Unknown values are nan in the columns and None in the events, which are created on demand.
    """

    __slots__ = ("columns", "kind")

    def __init__(self, kind: type[OneKind], columns: tuple[Floats, ...]) -> None:
        self.kind: Any = kind
        self.columns = columns

    @classmethod
    def of(cls, kind: type[OneKind], events: Sequence[OneKind]) -> EventColumns[OneKind]:
        if isinstance(events, EventColumns):
            return events
        columns = (np.array([event[place] for event in events], np.float64) for place in range(len(kind._fields)))
        return cls(kind, tuple(np.broadcast_to(np.nan, len(c)) if np.isnan(c).all() else c for c in columns))

    @classmethod
    def joined(cls, parts: Sequence[EventColumns[OneKind]]) -> EventColumns[OneKind]:
        columns = (joined(list(each)) for each in zip(*(part.columns for part in parts), strict=True))
        whole = cls(parts[0].kind, tuple(columns))
        line = whole.columns[0]
        return whole if bool((line[1:] >= line[:-1]).all()) else whole.take(np.argsort(line, kind="stable"))

    def take(self, rows: Any) -> EventColumns[OneKind]:
        return EventColumns(self.kind, tuple(column[rows] for column in self.columns))

    def with_column(self, name: str, column: Floats) -> EventColumns[OneKind]:
        place: int = self.kind._fields.index(name)
        return EventColumns(self.kind, (*self.columns[:place], column, *self.columns[place + 1 :]))

    def __len__(self) -> int:
        return len(self.columns[0])

    def __iter__(self) -> Iterator[OneKind]:
        for begin in range(0, len(self), 1 << 12):
            yield from self._made(slice(begin, begin + (1 << 12)))

    @overload
    def __getitem__(self, place: int) -> OneKind: ...
    @overload
    def __getitem__(self, place: slice) -> EventColumns[OneKind]: ...
    def __getitem__(self, place: int | slice) -> OneKind | EventColumns[OneKind]:
        if isinstance(place, slice):
            return self.take(place)
        at = range(len(self))[place]
        return next(self._made(slice(at, at + 1)))

    def _made(self, rows: slice) -> Iterator[OneKind]:
        line, at, *others = (column[rows].tolist() for column in self.columns)
        for number, iteration, *values in zip(line, at, *others, strict=True):
            place = int(iteration) if iteration == iteration else None
            yield self.kind(int(number), place, *(each if each == each else None for each in values))


def column_of(events: Sequence[Evaluation] | Sequence[Checkpoint], name: str) -> Floats:
    """One field of all events; nan if unknown."""
    if isinstance(events, EventColumns):
        column: Floats = events.columns[events.kind._fields.index(name)]
        return column
    return np.array([getattr(event, name) for event in events], np.float64)


def iterations_of(events: Sequence[Evaluation] | Sequence[Checkpoint]) -> Ints:
    """The iterations of those events that have one, in rising order, each once."""
    at = column_of(events, "at")
    if len(at) and at[0] >= 0 and bool((at[1:] > at[:-1]).all()):  # the usual case
        return at.astype(np.int64)
    numbers: Ints = np.sort(at[~np.isnan(at)]).astype(np.int64)
    return numbers[np.diff(numbers, prepend=-1) > 0]


def joined(parts: list[np.ndarray]) -> np.ndarray:
    """Joins the parts of a column; one that is constant throughout takes no memory."""
    filled = [part for part in parts if len(part)]
    if filled and all(part.strides == (0,) for part in filled):
        values = np.array([part[0] for part in filled])
        if bool((values == values[0]).all()) or bool(np.isnan(values).all()):
            return np.broadcast_to(values[0], sum(map(len, filled)))
    return filled[0] if len(filled) == 1 else np.concatenate(filled or parts)


class Fact(NamedTuple):
    """Something the log says about its settings. A header fact marks the start of a process."""

    line: int
    name: str
    value: Any
    header: bool = False


FaultKind: TypeAlias = Literal[
    "interrupted", "out of memory", "disk full", "cuda error", "error", "nccl error", "killed", "traceback"
]
"""Why a process ended, the most telling first: if several are logged, the others follow from it."""


class Fault(NamedTuple):
    """A sign that the process ended, with the line that says so."""

    line: int
    kind: FaultKind
    text: str = ""


def most_telling(faults: Sequence[Fault]) -> Fault | None:
    """The fault that the others follow from."""
    by_hand = min((fault.line for fault in faults if fault.kind == "interrupted"), default=0)
    # These do not result from an interruption: if one comes before it, somebody ended the ranks that hung.
    causes = ("out of memory", "disk full", "cuda error")
    before = [fault for fault in faults if fault.line < by_hand and fault.kind in causes]
    order = get_args(FaultKind)
    return min(before or faults, key=lambda fault: (order.index(fault.kind), fault.line), default=None)


class Unread(NamedTuple):
    """A line that no pattern matched."""

    line: int
    text: str


Event = Evaluation | Checkpoint | Fact | Fault | Unread


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One start of a process, and everything that its log shows."""

    format: str
    timing: Timing
    iterations: Iterations
    holds: frozenset[str] = frozenset({"eval", "checkpoint"})
    """What the printed times include besides the step."""
    traits: Traits = Traits()
    evaluations: Sequence[Evaluation] = ()
    checkpoints: Sequence[Checkpoint] = ()
    faults: tuple[Fault, ...] = ()
    settings: Settings = field(default_factory=lambda: Settings({}))
    source: str = ""
    gpu_text: str | None = None
    saved_params: float | None = None
    flops_per_token: float | None = None
    """As the trainer counts them."""
    mfu_peak_flops: float | None = None
    """What the trainer divides by for its MFU, if it says so."""
    has_header: bool = False
    resumed: bool = False
    distributed: bool = False
    busy_when_logging: bool = False
    reordered: bool = False
    unread: tuple[Unread, ...] = ()
    unread_count: int = 0
    outside: tuple[Unread, ...] = ()
    """Values that no training can have (stepwatch.bounds), with their lines: they were left out."""
    outside_count: int = 0
    span: Span | None = None
    """Set if a recorder timed every part separately: then nothing has to be deduced."""
    compile_s: float | None = None
    """Compilation, if it was timed separately."""
    inside: Inside | None = None
    parts: Mapping[str, Floats] = field(default_factory=dict)
    """The times of the named parts of each step, if the trainer prints them: they add up to the step."""
    rank: int | None = None
    bar_alone: bool = False
    """Nothing but a progress bar shows that this is a training."""
    start: Start = "training"
    announced: tuple[Unread, ...] = ()
    """Lines which say that steps are different from there on."""
    first_covers: int | None = None
    """Iterations that the first time covers, if times are means and the log shows the start of its process."""
    ranks: tuple[Rank, ...] = ()
    """All processes of the run that left a record, including this one, if there are several."""
    closed: bool = False
    """The program itself closed the record."""
    ended_by_plan: bool = False
    """The trainer says that it ends before its last iteration, for example at a time limit."""
    limit_s: float | None = None
    """The seconds of training after which the trainer stops, if that comes before its last iteration."""
    patience: int | None = None
    """The iterations without progress after which the trainer ends the run."""
    reported_s: float | None = None
    """What the run took, as the trainer itself says at the end."""
    lost_lines: int = 0
    """Lines of the record that could not be written."""
    written_s: float | None = None
    """When the file was last written to, if there is one."""
    understood: Understood | None = None
    """How the lines were read, if an example describes them."""
    left_out: int = 0
    """Logged iterations that are not among the rows: a watched run keeps only a sample of its normal ones."""

    @property
    def is_timed(self) -> bool:
        return bool(np.isfinite(self.iterations.time_s).any())

    @property
    def logged(self) -> int:
        """How many iterations the log printed."""
        return len(self.iterations) + self.left_out

    def same_format(self, other: Run) -> bool:
        return self.format == other.format
