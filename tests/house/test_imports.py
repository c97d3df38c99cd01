"""The public names, and what importing them costs."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest
from tests.house.trees import FILES, tree_of
from tools import ROOT

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
    assert loaded_by("import stepwatch.cli.explain") == {"click", "numpy"}
    assert loaded_by("import stepwatch.cli.estimate") == {"click"}
    assert loaded_by("import stepwatch.presenters.html") <= {"numpy"}


def modules_of(*arguments: str) -> set[str]:
    """All that a command loads, with packages by their own name."""
    code = f"""import sys
from stepwatch.cli import main
try:
    main({list(arguments)!r})
except SystemExit as end:
    assert not end.code, end.code
print(*sys.modules, file=sys.stderr)"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name.removeprefix("stepwatch.") for name in done.stderr.split()}


def test_explaining_a_log_loads_its_format_and_what_a_terminal_shows() -> None:
    loaded = modules_of("examples/short.log", "--gpu", "4070")
    formats = {name for name in loaded if name.startswith("readers.formats.")}
    assert formats == {"readers.formats.nanogpt"}
    unused = {
        "advice.recommended",
        "analysis.comparison",
        "answers.from_plans",
        "estimator.measured",
        "estimator.plan",
        "gpus.calibration",
        "gpus.driver",
        "presenters.bar_charts",
        "presenters.comparison_answer",
        "presenters.html",
        "presenters.look_answer",
        "presenters.plan_answer",
        "presenters.run_charts",
        "presenters.vega",
        "readers.collection",
        "readers.following",
        "readers.log_files",
        "readers.text.line_format",
        "readers.text.shape",
        "sources.follow",
        "watch",
        "numpy.ma",
        "tempfile",
    }
    assert not loaded & unused


@pytest.mark.parametrize("arguments", [("estimate", "--gpu", "4070"), ("gpus", "4070"), ("gpus",)])
def test_answers_without_a_log_load_no_readers_and_no_analysis(arguments: tuple[str, ...]) -> None:
    loaded = {name.partition(".")[0] for name in modules_of(*arguments)}
    assert not loaded & {"analysis", "numpy", "readers", "run", "watch"}


def test_every_public_name_is_there() -> None:
    for name in stepwatch.__all__:
        assert getattr(stepwatch, name) is not None
        assert name in dir(stepwatch)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = stepwatch.nonsense


def test_public_names_are_sorted_and_named_once() -> None:
    for path in FILES:
        for node in tree_of(path).body:
            if isinstance(node, ast.Assign) and any(
                isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets
            ):
                names = ast.literal_eval(node.value)
                assert list(names) == sorted(set(names)), path
