"""docs/formats.md: the meaning of a time and some lines of each format are written there by hand, in that place only.

`python -m tools.pages` adds what the readers say. Tests and benchmarks take the lines from the page.
"""

from __future__ import annotations

import re
from functools import cache

from stepwatch.readers.formats import BOTH, FORMATS, NOTHING, Reader, reader_of
from stepwatch.run import Levers, Timing
from tools import ROOT

PAGE = "docs/formats.md"
HEAD = """\
# Formats

`stepwatch explain LOG` reads all of them. The format is detected from the lines of the log, not from its name;
`--log-format NAME` overrides it. What a printed time means differs between trainers, and the answer depends on it: the
times of one include evaluations, those of another do not. The table and the names of settings are generated from the
readers.

For any other format give an example line: `stepwatch explain LOG --like "it 12 | 0.34 s"` reads all lines of that
shape; see [explain](explain.md#an-unknown-format). Directories work too: `stepwatch explain runs/` lists the runs in
it, and `--run N` explains one.

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
    readers = [reader_of(name) for name in sorted(FORMATS)]
    rows = (
        f"| [{one.name}](#{one.name.replace('.', '')}) | {TIMES[one.timing]} | {_included(one)} |\n" for one in readers
    )
    sections = (
        f"\n## {name}\n\n{about}\n\n```text\n{example}\n```\n{_levers(reader_of(name).traits.levers)}"
        for name, (about, example) in sorted(_described().items())
    )
    return HEAD + "".join(rows) + "".join(sections)


def example_of(name: str) -> str:
    """Some lines of the format."""
    return _described()[name][1]


@cache
def _described() -> dict[str, tuple[str, str]]:
    """What a time of each format means, and its example."""
    sections = re.findall(r"(?ms)^## (\S+)\n\n(.*?)\n\n```text\n(.*?)\n```$", (ROOT / PAGE).read_text(encoding="utf-8"))
    return {name: (about, example) for name, about, example in sections}


def _levers(levers: Levers) -> str:
    """The settings that advice names for the format."""
    known = [f"{WORDS[name]} `{value}`" for name, value in levers._asdict().items() if value and name in WORDS]
    return f"\nIts settings in advice: {', '.join(known)}.\n" if known else ""


def _included(reader: Reader) -> str:
    return INCLUDED.get(reader.holds) or {"eval": "evaluation", "checkpoint": "checkpoint"}[next(iter(reader.holds))]
