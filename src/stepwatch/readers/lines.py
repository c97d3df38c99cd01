"""Readers by table: a format whose iterations are single lines is a few patterns and no code.

The groups of the patterns say what they find; see GROUPS. Lines of the usual shape go by numpy (columns.py), the others
one by one. A clock in front of a line is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.columns import MANY_LINES, Block, Floats, Template, some_of
from stepwatch.readers.prefixes import behind_prefix
from stepwatch.readers.reader import Reader, Untimed
from stepwatch.readers.records import Records
from stepwatch.readers.stamps import stamp_of, strip_prefix
from stepwatch.readers.words import Words
from stepwatch.run import Checkpoint, Evaluation, Fact, Fault, Timing, Traits

# Commas stand between thousands. As a decimal point a comma would make of 0,34 s a hundred times as much.
NUMBER = r"[-+]?(?:(?:[1-9]\d?\d?(?:,\d\d\d)+|\d+)(?:\.\d*)?|\.\d+)(?!,?\d)(?:[eE][-+]?\d+)?"
LOSS = rf"(?:{NUMBER}|[-+]?(?:nan|inf))"
# What a group of an iteration's pattern is in, by its name.
GROUPS: Mapping[str, tuple[str, float]] = {
    "time_us": ("time_s", 1e-6), "time_ms": ("time_s", 1e-3), "time_s": ("time_s", 1.0), "time_min": ("time_s", 60.0),
    "loss": ("loss", 1.0), "mfu_pct": ("reported_mfu", 1e-2), "mfu": ("reported_mfu", 1.0),
    "tokens_per_s": ("reported_tokens_per_s", 1.0),
}  # fmt: skip
FAULTS = (
    (Pattern(r"\bKeyboardInterrupt\b"), "interrupted"),
    (Pattern(r"CUDA (?:\w+ )?(?:error: )?out of memory|OutOfMemoryError"), "out of memory"),
    (Pattern(r"^(?:Killed|Terminated)\b|\bSIG(?:KILL|TERM)\b|DUE TO TIME LIMIT|oom-kill"), "killed"),
    (Pattern(r"^Traceback \(most recent call last\)|^\[\w+ ERROR\] at file"), "traceback"),
)
SURROUNDINGS = (
    b"KeyboardInterrupt", b"out of memory", b"OutOfMemory", b"Killed", b"Terminated", b"SIGKILL", b"SIGTERM",
    b"DUE TO TIME", b"oom-kill", b"Traceback (most", b" ERROR] at file", b"NVIDIA ", b"GeForce ", b"Tesla ",
    b"Quadro ", b"Instinct ", b"TITAN ",
)  # fmt: skip
_CARD = Pattern(r"\b(?:NVIDIA|GeForce|Tesla|Quadro|AMD Instinct|TITAN) [\w -]{0,30}\d")
_LONGEST_LINE = 4000
_LONGEST_TIME_S = 1e9
_LARGEST_NUMBER = 1e12
_MOST_SNIFFED = 60


Read = Callable[[str, int, Records], None]
"""Reads one line with its number into records, without a look at what these hold."""


def read_lines(
    read: Read, words: Words, text: bytes, block: Block, lines: np.ndarray, first_line: int, records: Records
) -> None:
    """Reads those of the lines that hold one of the words: where there are many, by what some of them tell."""
    if len(lines) < MANY_LINES:
        read_singly(read, words, text, block, lines, first_line, records)
    else:
        from stepwatch.readers import alike  # a small log has no need of it

        alike.read_lines(read, words, text, block, lines, first_line, records)


def read_singly(
    read: Read, words: Words, text: bytes, block: Block, lines: np.ndarray, first_line: int, records: Records
) -> None:
    for index in words.among(text, block, lines):
        line = text[block.starts[index] : block.ends[index]][:_LONGEST_LINE].decode("utf-8", "replace")
        read(line, index + first_line, records)


def read_surroundings(rest: str, number: int, records: Records) -> bool:
    """What stands in any trainer's log: a sign that the process was stopped, the name of a card."""
    kind = next((kind for pattern, kind in FAULTS if pattern.search(rest[:500])), None)
    if kind is not None:
        records.events.append(Fault(line=number, kind=kind))
        return True
    if _CARD.search(rest[:300]):
        records.events.append(Fact(line=number, name="gpu_text", value=rest[:200]))
        return True
    return False


@dataclass(frozen=True, slots=True)
class Told:
    """A line that tells facts: its groups are settings by name (or `gpu_text`); a header marks a process start."""

    pattern: Pattern[str]
    header: bool = False
    scale: float = 1.0
    says: tuple[tuple[str, str | float], ...] = ()
    """Settings that the line stands for, where it names them by another word."""


@dataclass(frozen=True, kw_only=True)
class LineFormat:
    name: str
    timing: Timing
    holds: frozenset[str]
    about: Message
    example: str
    mark: bytes
    """Letters that stand in every iteration line: only lines with them are tried."""
    iteration: Pattern[str]
    """Matched behind the prefix. Groups: `number`, one of the times or `per_s`, and what else GROUPS names; `last`."""
    templates: tuple[Template, ...] = ()
    evaluations: tuple[Pattern[str], ...] = ()
    """Groups: at, val_loss, train_loss, took_s, took_ms; all may be missing."""
    checkpoints: tuple[Pattern[str], ...] = ()
    """Groups: at, took_s, took_ms."""
    facts: tuple[Told, ...] = ()
    words: tuple[bytes, ...] = ()
    """Letters of which evaluations, checkpoints and facts have at least one; other lines are passed over."""
    events_first: bool = True
    """Lines of evaluations and checkpoints stand before that of their iteration, where they do not tell its number."""
    events_offset: int = 0
    """From the number of the iteration beside such a line to that of the event."""
    opening: Pattern[bytes] | None = None
    """What only this trainer prints at its start: tells the format of a log that has no iteration yet."""
    untimed: tuple[Untimed, ...] = ()
    traits: Traits = field(default_factory=Traits)
    prefixes: bool = True
    """What launchers and loggers put in front of a line is taken away before a pattern is tried."""
    last_offset: int = 0
    """From the number of iterations that the log prints to the number of the last one."""

    def reader(self) -> Reader:
        return Reader(
            self.name, self.timing, self.holds, self.about, self.example, self.sniff, self.parse, self.finish,
            traits=self.traits, untimed=self.untimed,
        )  # fmt: skip

    # --- is it this format? -----------------------------------------------------------------------------------

    def sniff(self, head: bytes) -> float:
        """How many of the first lines with the mark are iterations; below 1 where only the start of a run is there."""
        hits = begin = tried = 0
        while tried < _MOST_SNIFFED:
            at = head.find(self.mark, begin)
            if at < 0:
                break
            start, end = head.rfind(b"\n", 0, at) + 1, head.find(b"\n", at)
            end = len(head) if end < 0 else end
            line = head[start:end][:_LONGEST_LINE].decode("utf-8", "replace")
            hits += self.iteration.match(strip_prefix(line)[0]) is not None
            tried, begin = tried + 1, end
        return float(hits) or (0.5 if self.opening is not None and self.opening.search(head) else 0.0)

    # --- reading ----------------------------------------------------------------------------------------------

    def parse(self, text: bytes, first_line: int, records: Records) -> None:
        block = Block.of(text)
        left = np.flatnonzero(block.ends > block.starts)
        bound = self.prefixes and not (self.templates and all(template.anywhere for template in self.templates))
        plain, stamps = behind_prefix(text, block, left) if bound else (block, None)
        for template in self.templates:
            here = block if template.anywhere else plain
            if not len(template.match(here, some_of(left))[0]):
                continue
            lines, found = _timed(*template.match(here, left))
            if len(lines):
                if stamps is not None and not template.anywhere:
                    found["stamp_s"] = stamps[lines]
                self._add_columns(records, lines + first_line, found)
                left = block.without(left, lines)
        left = self._read_by_column(text, plain, stamps, left, first_line, records)
        read_lines(self._read, self._words, text, block, left, first_line, records)
        records.flush_rows()

    def _read_by_column(
        self, text: bytes, block: Block, stamps: Floats | None, left: np.ndarray, first_line: int, records: Records
    ) -> np.ndarray:
        """For formats with more than templates: reads lines together, and returns those that it leaves.

        The lines of the block begin behind their prefix; the clocks in it stand in `stamps`.
        """
        return left

    def finish(self, first_line: int, records: Records) -> None:
        records.place(after=self.events_first, offset=self.events_offset)

    @cached_property
    def _words(self) -> Words:
        return Words((self.mark, *self.words, *SURROUNDINGS))

    def _add_columns(self, records: Records, lines: np.ndarray, found: dict[str, np.ndarray]) -> None:
        columns = {name: found[group] * scale for group, (name, scale) in GROUPS.items() if group in found}
        if "per_s" in found:
            columns["time_s"] = 1 / np.maximum(found["per_s"], 1e-12)
        if "stamp_s" in found:
            columns["stamp_s"] = found["stamp_s"]
        if "last" in found:
            self._tell_last(records, int(lines[0]), float(found["last"][0]))
        timed = np.asarray(columns["time_s"] > 0 if "time_s" in columns else np.ones(len(lines), bool))
        if not timed.all():  # a first line before anything was timed
            lines, found, columns = lines[timed], _taken(found, timed), _taken(columns, timed)
        records.add_rows(number=found["number"].astype(np.int64), line=lines, **columns)

    def _tell_last(self, records: Records, line: int, last: float) -> None:
        if 0 < last <= _LARGEST_NUMBER:
            records.events.append(Fact(line=line, name="max_iters", value=int(last) + self.last_offset))

    def _read(self, line: str, number: int, records: Records) -> None:
        rest, prefix = strip_prefix(line) if self.prefixes else (line, "")
        found = self.iteration.match(rest)
        if found is not None and self._add_row(found.groupdict(), prefix, number, records):
            return
        if self._read_event(rest, prefix, number, records) or self._read_facts(rest, line, number, records):
            return
        unclear = self.mark.decode() in rest or self._tells_no_time(line)
        if not read_surroundings(rest, number, records) and unclear:
            records.add_unread(number, line)  # looked like an iteration, and is none that we understand

    def _tells_no_time(self, line: str) -> bool:
        return any(untimed.pattern.search(line.encode()) for untimed in self.untimed)

    def _add_row(self, groups: Mapping[str, str | None], prefix: str, number: int, records: Records) -> bool:
        values = {"number": _number(groups["number"]), "line": float(number)}
        for group, (name, scale) in GROUPS.items():
            if groups.get(group):
                values[name] = _number(groups[group]) * scale
        if groups.get("per_s"):
            values["time_s"] = 1 / max(_number(groups["per_s"]), 1e-12)
        if "loss" in values and not math.isfinite(values["loss"]):
            values["loss"] = math.inf  # nan is what was not printed
        if not 0 <= values.get("time_s", 0.0) <= _LONGEST_TIME_S or not values["number"] <= _LARGEST_NUMBER:
            return False
        if values.get("time_s") == 0:
            return True  # a first line before anything was timed
        stamp = stamp_of(prefix)
        if stamp is not None:
            values["stamp_s"] = stamp
        if groups.get("last"):
            self._tell_last(records, number, _number(groups["last"]))
        records.add_row(**values)
        return True

    def _read_event(self, rest: str, prefix: str, number: int, records: Records) -> bool:
        for pattern in self.evaluations:
            found = pattern.match(rest)
            if found is not None:
                groups = found.groupdict()
                at = _at(groups)
                evaluation = Evaluation(
                    line=number, at=at or 0, train_loss=_loss(groups.get("train_loss")),
                    val_loss=_loss(groups.get("val_loss")), took_s=_took(groups), stamp_s=stamp_of(prefix),
                )  # fmt: skip
                (records.events if at is not None else records.unplaced).append(evaluation)
                return True
        for pattern in self.checkpoints:
            found = pattern.match(rest)
            if found is not None:
                groups = found.groupdict()
                at = _at(groups)
                save = Checkpoint(line=number, at=at, took_s=_took(groups), stamp_s=stamp_of(prefix))
                (records.events if at is not None else records.unplaced).append(save)
                return True
        return False

    def _read_facts(self, rest: str, line: str, number: int, records: Records) -> bool:
        told = False
        for fact in self.facts:
            found = fact.pattern.search(rest)
            if found is None and len(rest) < len(line):  # a row of a table looks like a prefix
                found = fact.pattern.search(line)
            if found is None:
                continue
            told = True
            for name, stated in fact.says:
                records.events.append(Fact(line=number, name=name, value=stated, header=fact.header))
            for name, text in found.groupdict().items():
                value = text if name == "gpu_text" else _scaled(text, fact.scale)
                if value is not None:
                    records.events.append(Fact(line=number, name=name, value=value, header=fact.header))
        return told


def _timed(lines: np.ndarray, found: dict[str, np.ndarray]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Without lines whose time or rate is below zero: the patterns say what they are."""
    wrong = np.zeros(len(lines), bool)
    for name in ("time_s", "time_ms", "time_us", "per_s"):
        if name in found:
            wrong |= found[name] < 0
    return (lines[~wrong], {name: column[~wrong] for name, column in found.items()}) if wrong.any() else (lines, found)


def _taken(columns: dict[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
    return {name: column[rows] for name, column in columns.items()}


def _number(text: str | None) -> float:
    try:
        return float((text or "nan").replace(",", ""))
    except ValueError:  # nothing but commas
        return math.nan


def _loss(text: str | None) -> float | None:
    return None if text is None else _number(text)


def _at(groups: Mapping[str, str | None]) -> int | None:
    at = _number(groups.get("at"))
    return int(at) if 0 <= at <= _LARGEST_NUMBER else None


def _took(groups: Mapping[str, str | None]) -> float | None:
    took = _number(groups["took_s"]) if groups.get("took_s") else _number(groups.get("took_ms")) / 1e3
    return took if 0 <= took <= _LONGEST_TIME_S else None


_SCALES = {"K": 1e3, "M": 1e6, "B": 1e9}


def _scaled(text: str | None, scale: float) -> float | str | None:
    """`1,093,515`, `124M` or `1.24` with a scale as a number; a word as it is."""
    if text is None:
        return None
    plain = text.replace(",", "").strip()
    unit = _SCALES.get(plain[-1:].upper(), 1.0)
    try:
        value = float(plain.rstrip("KMBkmb ")) * unit * scale
    except ValueError:
        return plain
    return value if math.isfinite(value) else None
