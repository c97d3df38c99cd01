"""Why a log cannot be explained, said so that its reader sees what is missing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepwatch.errors import NoIterations
from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.configs import config_given
from stepwatch.readers.detection import SURELY_AN_ITERATION, nearness
from stepwatch.readers.formats import READERS
from stepwatch.readers.suggestions import LooksLike, example_in
from stepwatch.readers.text.faults import fault_in
from stepwatch.readers.text.shape import LONGEST_LINE
from stepwatch.readers.text.stamps import strip_prefix
from stepwatch.run import Fault, Run, most_telling
from stepwatch.sources import Source

_SHOWN_LETTERS = 80
_LAST_BYTES = 1 << 20  # in which the end of a process stands
_COUNTED = Pattern(rb"\b[1-9]\d{0,9}/\d{1,10} \[")  # a bar that has moved


def is_timed(run: Run) -> bool:
    return bool(np.isfinite(run.iterations.time_s).any())


def no_times(runs: Sequence[Run]) -> NoIterations:
    count = sum(len(run.iterations) for run in runs)
    return NoIterations(
        Message(
            "the log has {rows:n} logged step, but nothing in it shows its time",
            {"rows": count},
            "the log has {rows:n} logged steps, but nothing in it shows their time",
            count,
        ),
        Message("give the trainer's console output or its TensorBoard event file: these have timestamps"),
    )


def not_like(example: str) -> NoIterations:
    return NoIterations(
        Message("no line of the log is like “{line:word}”", {"line": example[:_SHOWN_LETTERS]}),
        Message("copy a line of the log, with its number and its time"),
        about="like",
    )


def nothing_found(source: Source) -> NoIterations:
    """No text at all; a config; a side file, or a stage that prints no times; a line to describe; else the nearest."""
    sample = source.text[: 1 << 16].decode("utf-8", "replace")
    if sample.count("\ufffd") > 0.1 * len(sample):
        return NoIterations(
            Message("“{name:word}” is not text", {"name": source.name}),
            Message("give the log that the training printed, for example train.log"),
        )
    config = config_given(source)
    if config is not None:
        return config
    text = source.text[:2_000_000]
    for name, reader in READERS.items():
        for pattern, remedy in reader.untimed:
            found = pattern.search(text)
            if found is not None:
                line = {"name": name, "line": _shown(found[0])}
                return NoIterations(
                    Message("the lines are those of {name:word} but have no time: “{line:word}”", line), remedy
                )
    example = example_in(source._replace(text=text))
    if example is not None:
        return LooksLike(source.name, example)
    remedy = Message(
        'formats read: {formats:list}; for another, show one of its lines: --like "it 12 | 0.34 s"',
        {"formats": ", ".join(READERS)},
    )
    nearest = max(dict.fromkeys(text.split(b"\n")), key=nearness)  # each different line once
    fault = fault_of(source.text)
    if fault is not None and nearness(nearest) < SURELY_AN_ITERATION and not _COUNTED.search(text):
        facts = {"line": fault.line + 1, "quote": fault.text}
        return NoIterations(
            Message("no iteration found; line {line:n} says why the run ended: “{quote:quote}”", facts),
            Message("the lines above it in the log show where in the code it failed"),
        )
    if nearness(nearest) < 2:
        return NoIterations(Message("no iteration found in the log"), remedy)
    return NoIterations(
        Message("no iteration found; the nearest line is “{line:word}”", {"line": _shown(nearest)}), remedy
    )


def fault_of(text: bytes) -> Fault | None:
    """Why a process ended that printed no iteration."""
    begin = text.rfind(b"\n", 0, max(len(text) - _LAST_BYTES, 0)) + 1
    lines = enumerate(text[begin:].split(b"\n"), start=text.count(b"\n", 0, begin))
    parted = ((*strip_prefix(line[:LONGEST_LINE].decode("utf-8", "replace")), number) for number, line in lines)
    faults = [fault for rest, prefix, number in parted if (fault := fault_in(rest, prefix, number)) is not None]
    return most_telling(faults)


def _shown(line: bytes) -> str:
    return line.decode("utf-8", "replace").strip()[:_SHOWN_LETTERS]
