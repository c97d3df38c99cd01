"""The plugin that counts skips, and forbids them where STEPWATCH_NO_SKIP=1."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools import ROOT


def run(directory: Path, *, no_skip: str) -> subprocess.CompletedProcess[str]:
    (directory / "test_it.py").write_text("import pytest\ndef test_a(): pytest.skip('no card')\ndef test_b(): pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.no_skip", "-p", "no:cacheprovider", "-rs", str(directory)]
    environment = os.environ | {"STEPWATCH_NO_SKIP": no_skip, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*command, "--rootdir", str(directory)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=directory,
        check=False,
    )


@pytest.mark.parametrize(
    ("no_skip", "code", "said"), [("", 0, "SKIPPED: 1,"), ("0", 0, "SKIPPED: 1,"), ("1", 1, "FAILED: 1 skipped")]
)
def test_skips_are_counted_and_forbidden_on_demand(tmp_path: Path, no_skip: str, code: int, said: str) -> None:
    done = run(tmp_path, no_skip=no_skip)
    assert done.returncode == code
    assert said in done.stdout
    assert "no card" in done.stdout
