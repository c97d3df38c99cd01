"""The plugin that counts skips, and forbids them where STEPWATCH_NO_SKIP=1."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools import ROOT


def run(directory: Path, *parallel: str, no_skip: str) -> subprocess.CompletedProcess[str]:
    (directory / "test_it.py").write_text("import pytest\ndef test_a(): pytest.skip('no card')\ndef test_b(): pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.no_skip", "-p", "no:cacheprovider", "-rs", str(directory)]
    outer = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = outer | {
        "STEPWATCH_NO_SKIP": no_skip, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }  # fmt: skip
    return subprocess.run(
        [*command, *parallel, "--rootdir", str(directory)],
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


def test_skips_of_several_processes_are_counted_by_the_one_that_reports(tmp_path: Path) -> None:
    done = run(tmp_path, "-p", "xdist.plugin", "-n", "2", no_skip="1")
    assert done.returncode == 1
    assert done.stdout.count("FAILED: 1 skipped") == 1
    assert done.stdout.splitlines()[-1].startswith("FAILED: 1 skipped")
    assert "1 passed, 1 skipped" in done.stdout
    assert "no card" in done.stdout
