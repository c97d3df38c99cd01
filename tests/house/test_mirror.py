"""Unit tests stand where the code stands: tests/unit/<room>/test_<module>.py for src/stepwatch/<room>/<module>.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools import ROOT, SOURCE

UNIT = ROOT / "tests" / "unit"


@pytest.mark.parametrize("path", sorted(UNIT.rglob("test_*.py")), ids=lambda path: str(path.relative_to(UNIT)))
def test_a_unit_test_names_a_module_of_its_room_or_the_room(path: Path) -> None:
    room = SOURCE / path.parent.relative_to(UNIT)
    name = path.stem.removeprefix("test_")
    assert (room / f"{name}.py").is_file() or (name == room.name and (room / "__init__.py").is_file())


def test_every_folder_of_tests_is_run_by_make() -> None:
    folders = {path.relative_to(ROOT).parts[:2] for path in (ROOT / "tests").rglob("test_*.py")}
    lists = re.findall(r"^(?:INTEGRATION|LAWS|UNIT) := (.*)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert folders == {("tests", name) for line in lists for name in re.findall(r"tests/(\w+)", line)}
