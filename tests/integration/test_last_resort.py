"""Whatever escapes is two lines and an exit code; a full disk and a closed pipe too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.commands import stepwatch
from tools import ROOT

LOG = ROOT / "examples" / "short.log"
QUIET = {**os.environ, "STEPWATCH_DEBUG": "", "PYTHONPATH": str(ROOT / "src")}


def test_what_nothing_catches_is_two_lines_and_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr("stepwatch.cli.explain.explain", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = stepwatch("explain", LOG, STEPWATCH_DEBUG="")
    what, remedy = done.stderr.decode().strip().split("\n")
    assert (done.returncode, done.stdout) == (1, b"")
    assert what == "stepwatch: a bug in stepwatch: ZeroDivisionError: a mistake of ours"
    (file,) = tmp_path.iterdir()
    assert remedy.endswith(str(file))
    assert "Traceback" in file.read_text()
    with pytest.raises(ZeroDivisionError):
        stepwatch("explain", LOG)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", [[str(LOG)], ["gpus"], ["--help"]])
def test_a_full_disk_is_named(arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "stepwatch", *arguments], stdout=full, stderr=subprocess.PIPE, env=QUIET, check=False
        )
    assert done.returncode == 1
    assert done.stderr.decode().startswith("stepwatch: the answer cannot be written: No space left on device\n")
    assert done.stderr.count(b"\n") == 2


def test_a_closed_pipe_is_no_matter() -> None:
    command = f"'{sys.executable}' -m stepwatch '{LOG}' --json | head -c 10"
    done = subprocess.run(["sh", "-c", command], capture_output=True, env=QUIET, check=False)
    assert (done.stdout, done.stderr) == (b'{"schema":', b"")
