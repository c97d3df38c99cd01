"""Hugging Face, axolotl, Lightning and litgpt on real logs: what is read, against a simple count of lines."""

from __future__ import annotations

import itertools
import json
import random
import re
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import adapter
from tests.corpus import places
from tests.corpus.places import MIXED, all_logs, format_of, source_of

from stepwatch.errors import NoIterations
from stepwatch.readers import detect
from stepwatch.readers.formats import reader_of
from stepwatch.run import Run
from stepwatch.sources import Source

PLACE = adapter.corpus()
FORMATS = ("hf-trainer", "hf-state", "axolotl", "lightning", "litgpt")
# Where they stand, and what shows that a line is an iteration.
KINDS = {
    "hf-trainer": re.compile(
        rb"""^(?:Train:)? *\d+%\|.*\| ([1-9]\d*)/\d+ \[|^\{['"]loss['"]: .*global_step/max_steps['"]: ['"](\d+)"""
    ),
    "axolotl": re.compile(rb"^ *\d+%\|.*\| ([1-9]\d*)/\d+ \["),
    "lightning": re.compile(rb"^(Epoch \d+): +\d+%\|.*\| ([1-9]\d*)/\d+ \[|^(\d+),,(\d+),,,(\d)"),
    "litgpt": re.compile(rb"iter (\d+) .*iter time: "),
}
needs_corpus = pytest.mark.skipif(
    PLACE is None, reason="no corpus of real logs: set STEPWATCH_CORPUS, or put it in ../shared/corpus"
)
LOGS = [path for kind in KINDS for path in sorted((PLACE / kind).glob("*"))] if PLACE is not None else []
TIMED = [path for path in LOGS if path.suffix in (".log", ".jsonl")] + [
    path for path in LOGS if path.name.startswith("01_0Xero7")
]


def runs_of(path: Path) -> tuple[Run, ...]:
    try:
        return places.runs_of(path)
    except NoIterations:
        return ()


@needs_corpus
@pytest.mark.parametrize("path", TIMED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_lines_that_are_iterations_are_read(path: Path) -> None:
    pattern = KINDS[path.parent.name]
    found = [pattern.search(line) for line in source_of(path).text.split(b"\n")]
    counted = {tuple(filter(None, match.groups())) for match in found if match}
    assert sum(len(run.iterations) for run in runs_of(path)) >= 0.995 * len(counted)


@needs_corpus
@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_format_is_told_by_any_part_of_the_log(path: Path) -> None:
    source = source_of(path)
    kinds = {"hf-trainer": ("hf-trainer", "hf-state")}.get(path.parent.name, (path.parent.name,))
    if path.suffix == ".yaml":
        assert format_of(path) is None
        return
    assert format_of(path) in kinds
    lines = source.text.split(b"\n")
    rng = random.Random(7)
    for _ in range(40):
        begin = rng.randrange(max(len(lines) - 200, 1))
        part = b"\n".join(lines[begin : begin + 200])
        if KINDS[path.parent.name].search(part):
            assert detect(Source("x", part)) in kinds


@needs_corpus
def test_no_line_of_another_trainer_is_taken() -> None:
    assert PLACE is not None
    theirs = {
        "hf-trainer": {"hf-trainer", "hf-state"},
        "axolotl": {"axolotl"},
        "lightning": {"lightning"},
        "litgpt": {"litgpt"},
        "hf-notebook": {"hf-trainer"},
        "rl": {"hf-trainer"},  # TRL prints as the Trainer does
        "mm": {"hf-trainer"},  # rows of JSON, which look like the Trainer's as long as no reader knows them
    }
    wrong = []
    for path in all_logs(PLACE):
        # One log in wandb is the Trainer's.
        if path.name.startswith("07_wisdom-pan") or path.parent.name in MIXED:
            continue
        text = source_of(path).text
        claims = {name for name in FORMATS if reader_of(name).sniff(text) > 0}
        if not claims <= theirs.get(path.parent.name, set()):
            wrong.append((path.name, claims))
    assert wrong == []


@needs_corpus
def test_times_from_the_bar_are_those_of_the_file_beside_it() -> None:
    """ms-swift writes the same run twice: bars on the console, a mean with six decimals into a file."""
    assert PLACE is not None
    bars = {
        int(n): float(t)
        for path in sorted((PLACE / "hf-trainer").glob("01_*"))
        for run in runs_of(path)
        for n, t in zip(run.iterations.number, run.iterations.time_s, strict=True)
    }
    told = {}
    for line in (PLACE / "hf-trainer" / "02_fyh2001.jsonl").read_text().splitlines():
        row = json.loads(line)
        if "loss" in row:
            step = int(row["global_step/max_steps"].partition("/")[0])
            told[step] = step * row["train_speed(s/it)"]
    true = {b: told[b] - told[a] for a, b in itertools.pairwise(sorted(told)) if b == a + 1}
    shared = sorted(bars.keys() & true.keys())
    assert len(shared) > 1800
    ours, theirs = (np.array([times[n] for n in shared]) for times in (bars, true))
    assert abs(np.median(ours) / np.median(theirs) - 1) < 0.01
    assert np.median(np.abs(ours - theirs) / theirs) < 0.01
