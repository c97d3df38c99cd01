"""The command line in this process: what a new interpreter would answer, without the half second that one costs."""

from __future__ import annotations

import os
from pathlib import Path
from subprocess import CompletedProcess

from click.testing import CliRunner

from stepwatch.cli import main


def stepwatch(*arguments: str | Path, data: bytes = b"", **environment: str | None) -> CompletedProcess[bytes]:
    """In English unless the environment says otherwise. What the command does not catch is raised, as a traceback."""
    foreign = {name: None for name in os.environ if name.startswith(("LC_", "LANG"))}
    runner = CliRunner(env={**foreign, **environment})
    done = runner.invoke(main, [*map(str, arguments)], input=data, prog_name="stepwatch")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return CompletedProcess(["stepwatch"], done.exit_code, done.stdout_bytes, done.stderr_bytes)
