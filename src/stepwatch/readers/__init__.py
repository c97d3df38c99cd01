"""Reading a log: detect the format, then call the same function with the format fixed."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from operator import itemgetter

import numpy as np

from stepwatch.errors import NoIterations, UsageError
from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.assemble import assemble
from stepwatch.readers.formats import FORMATS, READERS
from stepwatch.readers.reader import Reader
from stepwatch.readers.records import Records
from stepwatch.run import Run
from stepwatch.settings import Settings
from stepwatch.sources import RECORD, Source

__all__ = ["FORMATS", "READERS", "Reader", "detect", "joined_ranks", "read", "settings_of"]

BLOCK_BYTES = 1 << 22
_SNIFFED_BYTES, _MOST_SNIFFED_BYTES = 1 << 18, 1 << 22
_SAMPLED_BYTES = 1 << 16
_SEARCHED_BYTES = 2_000_000
_SEARCHED_LINE_BYTES = 400
_MARKS = (
    (Pattern(rb"(?i)\b(?:iter|iteration|step)s?\b\W{0,8}\d"), 3),
    (Pattern(rb"(?i)\b(?:loss|mfu|lr|tok(?:ens)?/s)\b"), 1),
    (Pattern(rb"(?i)\d\s?(?:ms|s|sec|s/it|it/s)\b"), 1),
    (Pattern(rb"(?i)\b(?:iter|time|dt)"), 1),
)
_LEAST_LINES_OF_A_LOG = 3
_HINTS = (b"loss", b"time", b"/s", b"s/it", b"PerSec")  # one of which stands in every trainer's lines
_BARS_ALONE = ("hf-trainer", "axolotl")  # a bar of any loop before the training looks like theirs
_SURELY_AN_ITERATION = 5  # of the weights above
_PLAIN_NANOGPT = Pattern(rb"(?m)^iter \d{1,12}: loss [\d.naif-]{1,16}, time [\d.]{1,16}ms")
_SNIFFED_OVERLAP = 4096  # so that a line across the edge is seen whole


def detect(source: Source) -> str | None:
    """The name of the format that most of the first lines belong to, by content alone."""
    text = source.text
    begin, size = 0, _SNIFFED_BYTES
    traces: tuple[str, float] | None = None
    while begin < max(len(text), 1):
        head = text[max(0, begin - _SNIFFED_OVERLAP) : begin + size]
        if begin == 0 and head.startswith(RECORD):
            return "stepwatch"
        if len(_PLAIN_NANOGPT.compiled.findall(head[:_SAMPLED_BYTES])) > 1:  # no other trainer writes such lines
            return "nanogpt"
        name, hits = max(((name, reader.sniff(head)) for name, reader in READERS.items()), key=itemgetter(1))
        if hits >= 1:
            return name
        if hits > 0 and (traces is None or hits > traces[1]):
            traces = name, hits
        begin, size = begin + size, min(4 * size, _MOST_SNIFFED_BYTES)
    return traces[0] if traces else None


def read(source: Source, format_name: str | None = None, *, like: str | None = None) -> tuple[Run, ...]:
    """All runs in a source, in order; with `like`, of lines like that one. Raises NoIterations where none is timed."""
    if like is not None:
        return _read_like(source, like)
    if format_name is not None and format_name not in READERS:
        raise UsageError(
            Message("there is no log format “{name:word}”", {"name": format_name}),
            Message("formats: {names:list}", {"names": ", ".join(READERS)}),
        )
    if source.beside:
        return _read_with_files(source, format_name)
    return _read_text(source, format_name)


def _read_with_files(source: Source, format_name: str | None) -> tuple[Run, ...]:
    """A log with files of W&B beside it, which tell more of the run, or all where the log tells of no iteration."""
    if source.text.startswith(RECORD):
        return _read_ranks(source, format_name)
    from stepwatch.readers.formats import wandb

    source = wandb.with_summary(source) if detect(source) is None else source
    return wandb.completed(_read_text(source, format_name), source.beside)


def _read_ranks(source: Source, format_name: str | None) -> tuple[Run, ...]:
    """The record of one rank with those of the others; one that holds no step is as good as missing."""
    runs = list(_read_text(source, format_name))
    for file in source.beside:
        with suppress(NoIterations):
            runs += _read_text(file, format_name)
    return joined_ranks(runs, by_name=True)


def joined_ranks(runs: Sequence[Run], *, by_name: bool = False) -> tuple[Run, ...]:
    """Runs that were ranks of one run, as that run; `by_name` says that they surely were."""
    if len(runs) < 2 or all(run.span is None for run in runs):
        return tuple(runs)
    from stepwatch.readers.ranks import together

    return together(runs, by_name=by_name)


def _read_text(source: Source, format_name: str | None) -> tuple[Run, ...]:
    if not source.text or source.text.isspace():
        raise NoIterations(
            Message("the log is empty"), Message("hand in a log file, or paste the log with: stepwatch -")
        )
    name = format_name or detect(source)
    if name is None:
        raise _nothing_found(source)
    runs = tuple(run for run in _parse(source, READERS[name]) if len(run.iterations))
    timed = _timed(runs) or (() if format_name else _by_another(source, name))
    if runs and not timed:
        raise _no_times(runs)
    if not timed:
        return _begun(source, name)
    return joined_ranks(timed) if format_name else _with_another_log(source, timed)


def _timed(runs: Sequence[Run]) -> tuple[Run, ...]:
    return tuple(run for run in runs if np.isfinite(run.iterations.time_s).any())


def _by_another(source: Source, name: str) -> tuple[Run, ...]:
    """Where lines of two programs stand together: those of the other, if most lines tell no time and its lines do."""
    head = source.text[:_SNIFFED_BYTES]
    hits = {other: reader.sniff(head) for other, reader in READERS.items() if other != name}
    for other in sorted((other for other in hits if hits[other] > 0), key=lambda other: -hits[other]):
        with suppress(NoIterations):
            timed = _timed(_parse(source, READERS[other]))
            if timed:
                return timed
    return ()


def _with_another_log(source: Source, runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """With the runs of another format before the first iteration or behind the last: two logs in one file."""
    text = source.text
    lines = [line for run in runs for line in (run.iterations.line.min(), run.iterations.line.max() + 1)]
    first, last = int(min(lines)), int(max(lines))
    begin, end = place_of_line(text, first), place_of_line(text, last)
    before = _another_log(source, runs[0].format, 0, begin, 0)
    behind = _another_log(source, runs[0].format, end, len(text), last)
    if not before and not behind:
        return joined_ranks(runs)
    # What the other log says, an error at its end for example, is not of this one.
    own = int(before[-1].iterations.line.max()) + 1 if before else 0
    part = source._replace(text=text[place_of_line(text, own) : end if behind else len(text)])
    runs = _timed(_parse(part, READERS[runs[0].format], own))
    if before:
        runs = tuple(replace(run, faults=tuple(fault for fault in run.faults if fault.line >= first)) for run in runs)
    return (*before, *joined_ranks(runs), *behind)


def _another_log(source: Source, name: str, begin: int, end: int, first_line: int) -> tuple[Run, ...]:
    text = source.text[begin:end]
    head = text[:_SNIFFED_BYTES]
    hinting = [line[:_SEARCHED_LINE_BYTES] for line in head.split(b"\n") if any(hint in line for hint in _HINTS)]
    # The patterns, and the readers of all formats, need not be loaded for what no log can be.
    if len(hinting) < _LEAST_LINES_OF_A_LOG or sum(_nearness(line) > 1 for line in hinting) < _LEAST_LINES_OF_A_LOG:
        return ()
    hits = {other: reader.sniff(head) for other, reader in READERS.items() if other not in (name, *_BARS_ALONE)}
    other = max(hits, key=lambda other: hits[other])
    if hits[other] < _LEAST_LINES_OF_A_LOG:
        return ()
    with suppress(NoIterations):
        runs = _timed(_parse(source._replace(text=text), READERS[other], first_line))
        return joined_ranks([run for run in runs if len(run.iterations) >= _LEAST_LINES_OF_A_LOG])
    return ()


def place_of_line(text: bytes, line: int) -> int:
    """Where a line begins."""
    begin = 0
    while line > 0:
        found = text.count(b"\n", begin, begin + _SAMPLED_BYTES)
        if found < line and begin + _SAMPLED_BYTES < len(text):
            line, begin = line - found, begin + _SAMPLED_BYTES
            continue
        for _ in range(line):
            begin = text.find(b"\n", begin) + 1 or len(text)
        break
    return begin


def _read_like(source: Source, example: str) -> tuple[Run, ...]:
    from stepwatch.readers.formats import like  # only where it is asked for

    runs = tuple(run for run in _parse(source, like.like(example)) if len(run.iterations))
    if not runs:
        raise NoIterations(
            Message("no line of the log is like “{line:word}”", {"line": example[:80]}),
            Message("copy a line of the log, with its number and its time"),
        )
    return runs


def _no_times(runs: tuple[Run, ...]) -> NoIterations:
    count = sum(len(run.iterations) for run in runs)
    return NoIterations(
        Message(
            "the log has {rows:n} logged step, but nothing in it tells its time",
            {"rows": count},
            "the log has {rows:n} logged steps, but nothing in it tells their time",
            count,
        ),
        Message("hand in what the trainer printed, or its TensorBoard event file: those have a clock"),
    )


def _begun(source: Source, name: str) -> tuple[Run, ...]:
    """The last header of a log without iterations: a run that has only begun."""
    begun = [run for run in _parse(source, READERS[name]) if run.has_header]
    unread = (line for run in begun for line in run.unread)
    if not begun or any(_nearness(line.text.encode()) >= _SURELY_AN_ITERATION for line in unread):
        raise _nothing_found(source)
    return (begun[-1],)


def settings_of(source: Source) -> Settings:
    """What a log says of its settings, whether or not it has iterations yet."""
    name = detect(source)
    runs = _parse(source, READERS[name]) if name is not None else ()
    if not runs or not (runs[0].has_header or len(runs[0].iterations)):
        raise _nothing_found(source)
    return runs[0].settings


@contextmanager
def _without_collection() -> Iterator[None]:
    """What is read holds no cycles: to look for them among millions of events takes longer than to make these."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # of a program that has frozen its own, which would thaw
            gc.freeze()  # and back, which puts them with the old ones: else the next object made has all looked at
            gc.unfreeze()
        gc.enable()


def _parse(source: Source, reader: Reader, line: int = 0) -> tuple[Run, ...]:
    """The runs in a text, whose first line has this number."""
    if len(source.text) < BLOCK_BYTES:  # a small one makes few objects, and to count those that are frozen takes longer
        return _parsed(source, reader, line)
    with _without_collection():
        return _parsed(source, reader, line)


def _parsed(source: Source, reader: Reader, line: int) -> tuple[Run, ...]:
    records = Records()
    text = source.text
    begin = 0
    while begin < len(text):
        end = text.rfind(b"\n", begin, begin + BLOCK_BYTES) + 1
        if end <= begin or begin + BLOCK_BYTES >= len(text):
            end = len(text) if begin + BLOCK_BYTES >= len(text) else text.find(b"\n", begin) + 1 or len(text)
        block = text[begin:end]
        reader.parse(block, line, records)
        line += block.count(b"\n") + (not block.endswith(b"\n"))
        begin = end
    reader.finish(line, records)
    return assemble(records, reader, source.name)


def _nothing_found(source: Source) -> NoIterations:
    """Says what came nearest, so that the reader of the message sees why it is not enough."""
    if not _mostly_text(source.text[:_SAMPLED_BYTES]):
        return NoIterations(
            Message("“{name:word}” is not text", {"name": source.name}),
            Message("hand in the log that the training printed, for example train.log"),
        )
    without_times = _without_times(source.text)
    if without_times is not None:
        return without_times
    near = _nearest_line(source.text)
    formats = {"formats": ", ".join(READERS)}
    remedy = Message(
        "formats read: {formats:list}; for another, show one of its lines: --like 'it 12 | 0.34 s'", formats
    )
    if near:
        return NoIterations(Message("no iteration found; the nearest line is “{line:word}”", {"line": near}), remedy)
    return NoIterations(Message("no iteration found in the log"), remedy)


def _without_times(text: bytes) -> NoIterations | None:
    """A side file, or a stage that prints no times: what is missing, and where it may be."""
    for name, reader in READERS.items():
        for pattern, remedy in reader.untimed:
            found = pattern.search(text[:_SEARCHED_BYTES])
            if found is not None:
                line = {"name": name, "line": found[0].decode("utf-8", "replace").strip()[:80]}
                return NoIterations(
                    Message("the lines are those of {name:word} but tell no time: “{line:word}”", line), remedy
                )
    return None


def _mostly_text(sample: bytes) -> bool:
    text = sample.decode("utf-8", "replace")
    return text.count("\ufffd") <= 0.1 * len(text)


def _nearest_line(text: bytes) -> str | None:
    """The first of the lines that have most of what an iteration line has."""
    lines = [line for line in text[:_SEARCHED_BYTES].split(b"\n") if line] or [b""]
    best = max(lines, key=lambda line: _nearness(line[:_SEARCHED_LINE_BYTES]))
    if _nearness(best[:_SEARCHED_LINE_BYTES]) < 2:
        return None
    return best[:_SEARCHED_LINE_BYTES].decode("utf-8", "replace").strip()[:80]


def _nearness(line: bytes) -> int:
    """How many of the marks of an iteration line are there; its word and number count most."""
    return sum(weight for pattern, weight in _MARKS if pattern.search(line))
