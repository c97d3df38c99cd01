"""What the tests of the callbacks ask of a recorder's file."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

KINDS = ("step", "eval", "checkpoint")


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def phases(lines: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [line for line in lines if next(iter(line)) == kind]


def numbers(lines: Sequence[dict[str, Any]], kind: str) -> list[int]:
    return [line[kind] for line in phases(lines, kind)]


def seconds(lines: Sequence[dict[str, Any]], kind: str, part: str = "s") -> list[float]:
    return [line[part] for line in phases(lines, kind)]


def unaccounted(lines: Sequence[dict[str, Any]]) -> float:
    """The share of the time from the header to the end that no phase claims; below 0, some is claimed twice."""
    wall = lines[-1]["t"] - lines[0]["started"]
    return 1 - sum(sum(seconds(lines, kind)) for kind in KINDS) / wall


def agree(recorded: Sequence[float], measured: Sequence[float]) -> bool:
    """Within 20 ms or a fifth, each."""
    return len(recorded) == len(measured) and all(
        abs(ours - theirs) <= max(0.02, 0.2 * theirs) for ours, theirs in zip(recorded, measured, strict=True)
    )


@contextmanager
def unwarned() -> Iterator[None]:
    """The recorder has nothing to complain of."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        yield
    assert not [str(one.message) for one in said if str(one.message).startswith("stepwatch:")]
