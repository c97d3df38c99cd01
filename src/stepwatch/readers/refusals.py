"""Why a log cannot be explained, said so that its reader sees what is missing."""

from __future__ import annotations

from collections.abc import Sequence

from stepwatch.errors import NoIterations
from stepwatch.messages import Message
from stepwatch.readers.configs import config_given
from stepwatch.readers.detection import nearness
from stepwatch.readers.formats import READERS
from stepwatch.run import Run
from stepwatch.sources import Source

_SHOWN_LETTERS = 80


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
    )


def nothing_found(source: Source) -> NoIterations:
    """No text at all; a config; a side file, or a stage that prints no times; else what came nearest."""
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
    remedy = Message(
        'formats read: {formats:list}; for another, show one of its lines: --like "it 12 | 0.34 s"',
        {"formats": ", ".join(READERS)},
    )
    nearest = max(text.split(b"\n"), key=nearness)
    if nearness(nearest) < 2:
        return NoIterations(Message("no iteration found in the log"), remedy)
    return NoIterations(
        Message("no iteration found; the nearest line is “{line:word}”", {"line": _shown(nearest)}), remedy
    )


def _shown(line: bytes) -> str:
    return line.decode("utf-8", "replace").strip()[:_SHOWN_LETTERS]
