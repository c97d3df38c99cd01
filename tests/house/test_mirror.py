"""Unit tests stand where the code stands: tests/unit/<room>/test_<module>.py for src/stepwatch/<room>/<module>.py."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from tools import ROOT, SOURCE

UNIT = ROOT / "tests" / "unit"


@pytest.mark.parametrize("path", sorted(UNIT.rglob("test_*.py")), ids=lambda path: str(path.relative_to(UNIT)))
def test_a_unit_test_names_a_module_of_its_room_or_the_room(path: Path) -> None:
    room = SOURCE / path.parent.relative_to(UNIT)
    name = path.stem.removeprefix("test_")
    assert (room / f"{name}.py").is_file() or (name == room.name and (room / "__init__.py").is_file())


def test_every_file_of_tests_is_run_by_make_once() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    make = subprocess.run(["make", "-n", "test"], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    named = [place for line in re.findall(r" -m pytest .* -rs (.*)", make.stdout) for place in line.split()]
    run = [
        path for place in named for path in ([ROOT / place], (ROOT / place).rglob("test_*.py"))[(ROOT / place).is_dir()]
    ]
    assert sorted(run) == sorted((ROOT / "tests").rglob("test_*.py"))
