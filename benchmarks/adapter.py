"""Asks stepwatch for its answer as a script would: through the JSON contract and nothing else."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCE = REPOSITORY / "src"


class NoAnswer(Exception):
    """stepwatch did not answer: it failed, or its output is not the contract's JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one call of stepwatch; a traceback is an exception, not an exit code."""

    exit_code: int
    stdout: str
    stderr: str
    exception: BaseException | None = None


def corpus() -> Path | None:
    """The directory of the real logs: $STEPWATCH_CORPUS, else ../shared/corpus next to the repository."""
    named = os.environ.get("STEPWATCH_CORPUS")
    place = Path(named) if named else REPOSITORY.parent / "shared" / "corpus"
    return place if (place / "nanogpt").is_dir() else None


def corpus_or_exit() -> Path:
    """The corpus, or a clear message and exit code 0: its absence is no failure."""
    place = corpus()
    if place is None:
        print("No corpus of real logs: set STEPWATCH_CORPUS to it, or put it in ../shared/corpus. Nothing measured.")
        raise SystemExit(0)
    return place


def environment() -> dict[str, str]:
    """The environment of a child: the installed stepwatch, or the one in src/."""
    # A user's Python caches compiled modules, even if this environment prevents it.
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return own | {"PYTHONPATH": os.pathsep.join(part for part in (own.get("PYTHONPATH"), str(SOURCE)) if part)}


def command(*args: str) -> list[str]:
    """The command line that runs stepwatch in this environment."""
    return [sys.executable, "-m", "stepwatch", *args]


def _main() -> Any:
    """The click command of stepwatch, or None if it cannot be imported."""
    if str(SOURCE) not in sys.path:
        sys.path.append(str(SOURCE))
    try:
        return importlib.import_module("stepwatch.cli").main
    except (ImportError, AttributeError):
        return None  # the child process will report the error


def _call_inside(main: Any, args: list[str]) -> Outcome:
    from click.testing import CliRunner

    result = CliRunner().invoke(main, args, prog_name="stepwatch")
    failure = result.exception if not isinstance(result.exception, SystemExit) else None
    return Outcome(exit_code=result.exit_code, stdout=result.stdout, stderr=result.stderr, exception=failure)


def _call_outside(args: list[str]) -> Outcome:
    done = subprocess.run(
        command(*args), capture_output=True, encoding="utf-8", errors="replace", env=environment(), check=False
    )
    failure = RuntimeError(done.stderr[-500:]) if "Traceback (most recent call last)" in done.stderr else None
    return Outcome(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr, exception=failure)


def call(*args: str, inside: bool = True) -> Outcome:
    """Runs stepwatch with these arguments, in this process if possible (faster), else in a child."""
    main = _main() if inside else None
    return _call_inside(main, list(args)) if main is not None else _call_outside(list(args))


def explain(path: Path, *args: str, inside: bool = True) -> Outcome:
    """The outcome of `stepwatch explain PATH --json …`, even if it fails."""
    return call("explain", str(path), "--json", *args, inside=inside)


def _parsed(outcome: Outcome, name: str) -> dict[str, Any]:
    if outcome.exception is not None:
        raise NoAnswer(f"{name}: {type(outcome.exception).__name__}: {outcome.exception}") from outcome.exception
    if outcome.exit_code != 0:
        raise NoAnswer(f"{name}: exit code {outcome.exit_code}: {outcome.stderr.strip()[:300]}")
    try:
        report = json.loads(outcome.stdout)
    except ValueError as error:
        raise NoAnswer(f"{name}: not JSON: {error}") from error
    if not isinstance(report, dict) or report.get("schema") != "stepwatch.report/1":
        raise NoAnswer(f"{name}: not a stepwatch.report/1")
    return report


def explain_json(path_or_text: Path | str, *args: str, inside: bool = True) -> dict[str, Any]:
    """The report on a file (a Path) or on a text (a str); raises NoAnswer if there is none."""
    if isinstance(path_or_text, Path):
        return _parsed(explain(path_or_text, *args, inside=inside), path_or_text.name)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "train.log"
        path.write_text(path_or_text, encoding="utf-8", newline="")
        return _parsed(explain(path, *args, inside=inside), "text")
