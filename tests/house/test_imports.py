"""The public names, and what importing them costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from tools import SOURCE

import stepwatch

HEAVY = ("babel", "click", "jinja2", "numpy", "rich", "starlette", "uvicorn", "vl_convert")
FRAMEWORKS = ("lightning", "pytorch_lightning", "torch", "transformers")


def loaded_by(statement: str) -> set[str]:
    """The heavy packages that a statement loads in a fresh Python."""
    code = f"{statement}\nimport sys\nprint(*[name for name in {HEAVY + FRAMEWORKS!r} if name in sys.modules])"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_importing_stepwatch_loads_nothing_heavy() -> None:
    assert loaded_by("import stepwatch") == set()


def test_the_recorder_loads_no_framework() -> None:
    assert loaded_by("from stepwatch import Recorder\nRecorder('/dev/null').close()") == set()


def test_the_command_line_loads_only_click() -> None:
    assert loaded_by("import stepwatch.cli") == {"click"}


def test_help_loads_no_command() -> None:
    statement = "from stepwatch.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass\nprint()"
    assert "numpy" not in loaded_by(statement)


def test_only_a_page_or_a_picture_loads_what_draws() -> None:
    assert loaded_by("import stepwatch.cli.explain, stepwatch.cli.estimate") == {"click", "numpy"}
    assert loaded_by("import stepwatch.presenters.html") <= {"numpy"}


def test_every_public_name_is_there() -> None:
    for name in stepwatch.__all__:
        assert getattr(stepwatch, name) is not None
        assert name in dir(stepwatch)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = stepwatch.nonsense


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_public_names_are_sorted_and_named_once(path: Path) -> None:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            names = ast.literal_eval(node.value)
            assert list(names) == sorted(set(names))
