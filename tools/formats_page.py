"""docs/formats.md, from the readers themselves; `python -m tools.pages` writes it."""

from __future__ import annotations

from stepwatch.i18n import say
from stepwatch.readers import READERS
from stepwatch.readers.reader import BOTH, NOTHING, Reader
from stepwatch.run import Levers, Timing

PAGE = "docs/formats.md"
HEAD = """\
# Formats

`stepwatch explain LOG` reads all of them. The format is detected from the lines of the log, not from its name;
`--log-format NAME` overrides it. What a printed time means differs between trainers, and the answer depends on it: the
times of one include evaluations, those of another do not. This page is generated from the readers.

For any other format give an example line: `stepwatch explain LOG --like "it 12 | 0.34 s"` reads all lines of that
shape; see [explain](explain.md#an-unknown-format).
Directories work too: `stepwatch explain runs/` lists the runs in it, and `--run N` explains one.

| format | a time is | it includes |
|---|---|---|
"""
TIMES = {
    Timing.SPANS_ITERATION: "one iteration",
    Timing.SPANS_STEP: "one step",
    Timing.SPANS_LOG_INTERVAL: "the mean since the previous line",
    Timing.CUMULATIVE: "a running total",
    Timing.SPANS_RUN: "the mean of a run or an epoch",
}
WORDS = {
    "evaluate_every": "evaluate every", "evaluation_batches": "batches of an evaluation", "save_every": "save every",
    "batch": "batch", "accumulation": "accumulation", "workers": "workers", "prefetch": "prefetching",
    "cache": "data in memory", "log_every": "log every", "precision": "half precision", "compile": "compilation",
    "recompute": "recomputed activations", "length": "length or size of a sample",
}  # fmt: skip
INCLUDED = {BOTH: "evaluation and checkpoint", NOTHING: "neither evaluation nor checkpoint"}


def page() -> str:
    readers = [READERS[name] for name in sorted(READERS)]
    rows = (
        f"| [{one.name}](#{one.name.replace('.', '')}) | {TIMES[one.timing]} | {_included(one)} |\n" for one in readers
    )
    sections = (
        f"\n## {one.name}\n\n{say(one.about)}\n\n```text\n{one.example.rstrip()}\n```\n{_levers(one.traits.levers)}"
        for one in readers
    )
    return HEAD + "".join(rows) + "".join(sections)


def _levers(levers: Levers) -> str:
    """The settings that advice names."""
    known = [f"{WORDS[name]} `{value}`" for name, value in levers._asdict().items() if value and name in WORDS]
    return f"\nIts settings in advice: {', '.join(known)}.\n" if known else ""


def _included(reader: Reader) -> str:
    return INCLUDED.get(reader.holds) or {"eval": "evaluation", "checkpoint": "checkpoint"}[next(iter(reader.holds))]
