"""Directories that are one run: that of Weights & Biases, and one of TensorBoard event files."""

from __future__ import annotations

import os
from collections.abc import Iterator

from stepwatch.patterns import Pattern

OUTPUT = "output.log"
BESIDE = ("config.yaml", "wandb-metadata.json", "wandb-summary.json")
_EVENTS = Pattern(r"\.tfevents\.\d")
PARTS = ("train", "validation", "val", "eval")  # Keras keeps the files of a run in two directories
_MOST_FILES = 10_000


def wandb_files(path: str) -> tuple[str | None, list[str]] | None:
    """The console output of a W&B run and the files that tell more of it; None where the directory is no such run."""
    inner = os.path.join(path, "files")
    place = inner if os.path.isdir(inner) else path
    beside = [file for name in BESIDE if os.path.isfile(file := os.path.join(place, name))]
    output = os.path.join(place, OUTPUT)
    if not any(file.endswith(BESIDE[1:]) for file in beside) and not (beside and os.path.isfile(output)):
        return None
    return output if os.path.isfile(output) else None, beside


def event_files(path: str) -> list[str]:
    """The event files of one run, by name, which begins with their time."""
    return sorted(
        (file for place in (path, *(os.path.join(path, part) for part in PARTS)) for file in _events_in(place)),
        key=lambda file: (os.path.basename(file), file),
    )


def _events_in(place: str) -> Iterator[str]:
    if not os.path.isdir(place):
        return
    with os.scandir(place) as entries:
        for count, entry in enumerate(entries):
            if count >= _MOST_FILES:
                return
            if _EVENTS.search(entry.name) and entry.is_file():
                yield entry.path
