"""The logs of the corpus: each is read once for all tests of a process."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from stepwatch.errors import StepwatchError
from stepwatch.readers import detect, read
from stepwatch.run import Run
from stepwatch.sources import Source
from stepwatch.sources import from_file as _from_file

MIXED = {
    "unseen",  # several trainers, known ones among them
    "parameter-golf",  # prints the lines of modded-nanogpt, from which it comes
    "wandb-binary",  # no text: refused before any reader is asked
}
ONE_OF_MANY = {"02_facebookresearch.json.gz"}  # 15 MB of the same kind as the two beside it


def all_logs(place: Path) -> list[Path]:
    return sorted(path for path in place.glob("*/*") if path.is_file() and path.name not in ONE_OF_MANY)


@cache
def source_of(path: Path) -> Source:
    return _from_file(path)


@cache
def format_of(path: Path) -> str | None:
    return detect(source_of(path))


def runs_of(path: Path) -> tuple[Run, ...]:
    found = _runs_or_refusal(path)
    if isinstance(found, StepwatchError):
        raise found
    return found


@cache
def _runs_or_refusal(path: Path) -> tuple[Run, ...] | StepwatchError:
    """To say why there are none takes longer than to read them."""
    try:
        return read(source_of(path))
    except StepwatchError as error:
        return error
