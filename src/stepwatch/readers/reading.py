"""From what a user names to runs: detects the format of a log, then reads the log in that format."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np

from stepwatch.errors import NoIterations, NothingRead, Notice, StepwatchError, UsageError
from stepwatch.messages import Message
from stepwatch.readers.assemble import assemble, joined_ranks
from stepwatch.readers.formats import CERTAIN, FORMATS, Reader, all_readers, reader_of
from stepwatch.readers.records import OTHER_PROGRAM, Records
from stepwatch.readers.refusals import SURELY_AN_ITERATION, iteration_likeness, no_times, not_like, nothing_found
from stepwatch.run import Fact, Run
from stepwatch.settings import Settings
from stepwatch.sources import (
    LARGEST_EXPANSION_BYTES,
    RECORD,
    Source,
    from_file,
    from_stdin,
    kind_of,
)
from stepwatch.sources.contents import BLOCK_BYTES, CELL_ENDS, content_of_parts, lines_in
from stepwatch.sources.directories import is_collection

SNIFFED_BYTES = 1 << 18
_VARYING = b"0123456789" + bytes(range(128, 256))  # digits, and the drawing of a bar
# What another program's output follows: the end of a notebook cell, or rejected arguments.
_END_OF_PROGRAM = re.compile(rb"\n(?:%b\n|usage: \S)" % CELL_ENDS.encode())
_ENDS_OF_PROGRAMS = (CELL_ENDS.encode(), b"\nusage: ")
_LEAST_LINES_OF_A_LOG = 3
_HINTS = (b"loss", b"time", b"/s", b"s/it", b"PerSec")  # every trainer's lines contain one of these


def detect(source: Source) -> str | None:
    """The name of the format that most of the first lines belong to.

    Searches growing pieces of the text, each with the end of the previous one, so that a line across the edge is seen
    whole. A line that no reader claimed is not tried again with other numbers.
    """
    traces: tuple[str | None, float] = None, 0.0
    seen: set[bytes] = set()
    looked_at, size, before = 0, SNIFFED_BYTES, b""
    for block in source.blocks():
        begin = 0
        while begin < len(block):
            new = block[begin : begin + size]
            begin, size = begin + size, min(4 * size, 16 * SNIFFED_BYTES)
            head, before = before + new, new[-4096:]
            if looked_at:
                kinds = head.translate(None, _VARYING).split(b"\n")
                head = b"\n".join(line for line, kind in zip(head.split(b"\n"), kinds, strict=True) if kind not in seen)
            for name, certain in CERTAIN.items():
                if certain.search(head[: 1 << 16]):
                    return name
            name, hits = strongest_claim(head, all_readers())
            if hits >= 1:
                return name
            if hits > traces[1]:
                traces = name, hits
            if looked_at < BLOCK_BYTES:  # so that memory does not grow with the log
                seen.update(new.translate(None, _VARYING).split(b"\n"))
            looked_at += len(new)
    return traces[0]


def strongest_claim(head: bytes, readers: Mapping[str, Reader]) -> tuple[str, float]:
    """The format that claims the most lines, and how many; first of equals. Weak formats are asked last, if at all."""
    best = -1.0, 0, ""
    for place, (name, reader) in sorted(enumerate(readers.items()), key=lambda each: -each[1][1].strongest):
        if (reader.strongest, -place) > best[:2]:
            best = max(best, (reader.sniff(head), -place, name))
    return best[2], best[0]


def read(source: Source, format_name: str | None = None, *, like: str | None = None) -> tuple[Run, ...]:
    """All runs in a source, in order; with `like`, those of lines like it. Raises NoIterations if no run is timed."""
    if format_name is not None and format_name not in FORMATS:
        raise UsageError(
            Message("there is no log format “{name:word}”", {"name": format_name}),
            Message("formats: {names:list}", {"names": ", ".join(FORMATS)}),
        )
    collects = gc.isenabled()
    gc.disable()  # no cycles are created: searching millions of events for them takes a third of the time
    try:
        if like is not None:
            from stepwatch.readers.formats.like import reader_like

            runs = tuple(run for run in parse(source, reader_like(like)) if len(run.iterations))
            if not runs:
                raise not_like(like)
            return runs
        if source.beside or kind_of(source.head(64)) == "wandb":
            return _read_with_files(source, format_name)
        return _read_text(source, format_name)
    except NoIterations as error:
        other = detect(source) if format_name is not None else None
        if other in (None, format_name):
            raise
        facts = {"forced": format_name, "other": other}
        raise NoIterations(
            Message("no iteration of the format {forced:word}; the log looks like {other:word}", facts),
            Message("leave --log-format out, or give the format of the log"),
        ) from error
    finally:
        if collects:
            gc.enable()


def _read_with_files(source: Source, format_name: str | None) -> tuple[Run, ...]:
    """The runs of a W&B file, or of a text completed by the files that accompany it."""
    if kind_of(source.head(64)) == "wandb":
        return _read_wandb_file(source) if format_name in (None, "wandb-file") else _read_text(source, format_name)
    if source.head(len(RECORD)) == RECORD:  # the record of one rank, accompanied by those of the others
        found = list(_read_text(source, format_name))
        for file in source.beside:
            with suppress(NoIterations):  # a record without steps is as good as missing
                found += _read_text(file, format_name)
        return joined_ranks(found, by_name=True)
    from stepwatch.readers.formats import wandb

    # The W&B files complete the run; if the log has no iteration, they are all there is.
    if detect(source) is None:
        for file in source.beside:
            if kind_of(file.head(64)) == "wandb":
                with suppress(NoIterations):
                    return wandb.completed(_read_wandb_file(file), source.beside)
        source = wandb.with_summary(source)
    return wandb.completed(_read_text(source, format_name), source.beside)


def _read_wandb_file(source: Source) -> tuple[Run, ...]:
    """The runs of the history; if it shows no steps, those of the console output, or of the history's epochs."""
    from stepwatch.readers.formats import wandb_file, wandb_records

    whole = wandb_file.read_whole(source.blocks())

    def timed(finish: Callable[[int, Records], None]) -> tuple[Run, ...]:
        reader = reader_of("wandb-file")._replace(finish=finish)
        return tuple(run for run in parse(source.holding(b""), reader) if run.is_timed)

    runs = timed(whole.add_steps)
    if runs:
        return runs
    printed = source.holding(content_of_parts(wandb_records.console(source.blocks()), LARGEST_EXPANSION_BYTES))
    epochs = timed(whole.add_epochs)
    if all(block.isspace() for block in printed.blocks()):
        if epochs:
            return epochs
        raise NoIterations(
            Message("the W&B file contains neither steps in its history nor console output"),
            Message("give the output.log of that run, or wait until it has logged its first steps"),
        )
    try:
        runs = wandb_file.completed(_read_text(printed, None), whole.facts())
        if len(runs) == len(epochs):
            runs = tuple(map(wandb_file.with_evaluations, runs, epochs))
        return runs
    except NoIterations as error:
        if epochs:
            return epochs
        if not whole.counts_epochs:
            raise
        raise NoIterations(
            Message("the history in the W&B file has one row for each epoch, and no time of a step"),
            Message("give the trainer's console output or its TensorBoard event file: these have timestamps"),
        ) from error


def settings_of(source: Source) -> Settings:
    """The settings that a log states, whether or not it has iterations yet."""
    name = detect(source)
    runs = parse(source, reader_of(name)) if name is not None else ()
    if not runs or not (runs[0].has_header or len(runs[0].iterations)):
        raise nothing_found(source)
    return runs[0].settings


def parse(source: Source, reader: Reader, line: int = 0) -> tuple[Run, ...]:
    """The runs in a text, whose first line has this number."""
    return _parsed(source, reader, line)[0]


@np.errstate(all="ignore")  # a text may contain any number: assemble() admits only possible ones
def _parsed(source: Source, reader: Reader, line: int = 0) -> tuple[tuple[Run, ...], int]:
    """Reads block by block; also returns the number of the line after the last."""
    records = Records()
    for block in source.blocks():
        reader.parse(block, line, records)
        if any(letters in block for letters in _ENDS_OF_PROGRAMS):
            ends = (found.start() for found in _END_OF_PROGRAM.finditer(block))
            records.events += [Fact(line + block.count(b"\n", 0, end) + 1, OTHER_PROGRAM, True) for end in ends]
        records.narrow()
        line += lines_in(block)
    reader.finish(line, records)
    records.narrow()
    return tuple(replace(run, written_s=source.written_s) for run in assemble(records, reader, source.name)), line


def _read_text(source: Source, format_name: str | None) -> tuple[Run, ...]:
    if all(block.isspace() for block in source.blocks()):
        raise NoIterations(Message("the log is empty"), Message("give a log file, or paste the log with: stepwatch -"))
    name = format_name or detect(source)
    if name is None:
        raise nothing_found(source)
    runs, lines = _parsed(source, reader_of(name))
    timed = tuple(run for run in runs if run.is_timed)
    if not timed and not format_name:  # if most lines have no time, those of another program may have one
        head = source.head(SNIFFED_BYTES)
        hits = {other: reader.sniff(head) for other, reader in all_readers().items() if other != name}
        for other in sorted((other for other in hits if hits[other] > 0), key=lambda other: -hits[other]):
            with suppress(NoIterations):
                timed = tuple(run for run in parse(source, reader_of(other)) if run.is_timed)
            if timed:
                break
    if timed:
        alone = format_name is not None or kind_of(source.head(64)) is not None
        first = min(int(run.iterations.line.min()) for run in timed)
        last = max(int(run.iterations.line.max()) for run in timed) + 1
        if alone or (first < _LEAST_LINES_OF_A_LOG and last == lines):
            return joined_ranks(timed) if len(timed) > 1 else timed
        return _with_another_log(source, timed, first, last)
    if any(len(run.iterations) for run in runs):
        raise no_times(runs)
    # A log without iterations: its last header is a run that has only begun.
    begun = [run for run in runs if run.has_header]
    unread = (line for run in begun for line in run.unread)
    untimed = any(pattern.search(block) for block in source.blocks() for pattern, _ in reader_of(name).untimed)
    if not begun or untimed or any(iteration_likeness(line.text.encode()) >= SURELY_AN_ITERATION for line in unread):
        raise nothing_found(source)
    return (begun[-1],)


# --- lines of two programs in one text --------------------------------------------------------------------------


def _with_another_log(source: Source, runs: tuple[Run, ...], first: int, last: int) -> tuple[Run, ...]:
    """Adds runs of another format before the first iteration or after the last: two logs in one file."""
    name = runs[0].format
    before = _another_log(source.part(0, first), name, 0) if first >= _LEAST_LINES_OF_A_LOG else ()
    rest = source.part(last)
    behind = _another_log(rest, name, last) if rest.head(1) else ()
    if not before and not behind:
        return joined_ranks(runs) if len(runs) > 1 else runs
    # What the other log says, such as an error at its end, does not belong to this one.
    own = int(before[-1].iterations.line.max()) + 1 if before else 0
    part = source.part(own, last if behind else None)
    runs = tuple(run for run in parse(part, reader_of(name), own) if run.is_timed)
    if before:
        runs = tuple(replace(run, faults=tuple(fault for fault in run.faults if fault.line >= first)) for run in runs)
    return (*before, *joined_ranks(runs), *behind)


def _another_log(source: Source, name: str, first_line: int) -> tuple[Run, ...]:
    """Runs of any other format, in a text whose first line has this number."""
    head = source.head(SNIFFED_BYTES)
    hints = [hint for hint in _HINTS if hint in head]
    lines = head.split(b"\n") if hints else ()
    hinting = (line for line in lines if any(map(line.__contains__, hints)) and iteration_likeness(line) > 1)
    # Do not load the readers of all formats for text that cannot be a log.
    if len(list(islice(hinting, _LEAST_LINES_OF_A_LOG))) < _LEAST_LINES_OF_A_LOG:
        return ()
    others = {other: reader for other, reader in all_readers().items() if other != name and not reader.claims_any_bar}
    other, hits = strongest_claim(head, others)
    if hits < _LEAST_LINES_OF_A_LOG:
        return ()
    with suppress(NoIterations):
        runs = tuple(run for run in parse(source, reader_of(other), first_line) if run.is_timed)
        return joined_ranks([run for run in runs if len(run.iterations) >= _LEAST_LINES_OF_A_LOG])
    return ()


# --- what a user names ------------------------------------------------------------------------------------------


class RunsFound(NamedTuple):
    """The runs in the given logs, in the given order, and what to report about them."""

    runs: tuple[Run, ...]
    notices: tuple[Notice, ...] = ()
    """Logs that could not be read, and files that are not logs."""
    gaps: tuple[Message, ...] = ()
    """Logs with a missing piece."""
    source: Source | None = None
    """Set if all runs are from one text: line numbers in the runs refer to it."""


def read_all(
    logs: Sequence[str | Source],
    *,
    log_format: str | None = None,
    like: str | None = None,
    limit: int = LARGEST_EXPANSION_BYTES,
) -> RunsFound:
    """Reads files, directories, `-` for standard input, or sources.

    One bad log among several is a notice; a single one is an error. Raises NothingRead if all of several are bad.
    """
    if len(logs) == 1 and not (isinstance(logs[0], str) and os.path.isdir(logs[0])):
        only = logs[0]
        if isinstance(only, str):
            only = from_stdin(limit=limit) if only == "-" else from_file(only, limit=limit)
        found = read(only, log_format, like=like)
        return RunsFound(runs=found, source=None if only.beside or kind_of(only.head(64)) is not None else only)
    from stepwatch.readers.collection import notices_of, runs_in
    from stepwatch.readers.log_files import ReadingOptions, RotatedLog, logs_among

    wanted = ReadingOptions(log_format, like, limit)
    runs: list[Run] = []
    notices: list[Notice] = []
    gaps: list[tuple[str, int]] = []
    names = [log for log in logs if isinstance(log, str)]
    for log in logs_among(names, wanted) if len(names) == len(logs) > 1 else logs:
        path = log if isinstance(log, str) else log.paths[-1] if isinstance(log, RotatedLog) else None
        try:
            if isinstance(log, Source):
                runs += wanted.read(log)
            elif path == "-":
                runs += wanted.read(from_stdin(limit=limit))
            elif path is not None and is_collection(path):
                below = runs_in(path, wanted)
                runs += below.runs
                notices += notices_of(below)
                gaps += below.gaps
            else:
                whole = log if isinstance(log, RotatedLog) else RotatedLog((log,))
                runs += whole.runs(wanted)
                gaps.append((whole.paths[-1], whole.missing))
        except StepwatchError as error:
            if len(logs) < 2:
                raise
            what = error.what
            if isinstance(error, NoIterations):  # the error does not name the log
                name = log.name if isinstance(log, Source) else path
                what = Message("{name:word}: {what:word}", {"name": name, "what": what})
            notices.append(Notice(what, error.remedy, is_failure=True))
    if not runs:
        failure = next(notice for notice in notices if notice.is_failure)
        nothing = NothingRead(failure.what, failure.remedy)
        nothing.notices = tuple(notices)
        raise nothing
    pieces = (
        Message(
            "A piece of “{name:word}” is missing, with {count:n} iterations.",
            {"name": os.path.basename(name), "count": missing},
        )
        for name, missing in gaps
        if missing
    )
    return RunsFound(runs=joined_ranks(runs), notices=tuple(notices), gaps=tuple(pieces))
