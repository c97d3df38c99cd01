"""What a format means is said by its reader's traits: outside the readers no code asks for a format by name."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

import pytest
from tests.house.test_layers import room_of
from tests.house.trees import FILES, nodes_of

from stepwatch.readers.formats import FORMATS

MAY_ASK = {"readers", "run"}  # `run` only whether two runs have the same format
WITHOUT_NAMES = {"analysis", "advice", "watch", "presenters", "web", "cli", "answers", "report", "explanation"}
NAMES = set(FORMATS) - {"stepwatch"}  # which is also the name of this program


def _asks(nodes: Iterable[ast.AST]) -> Iterator[int]:
    """Lines where the format of a run is compared, looked for in something, or looked up."""
    for node in nodes:
        if isinstance(node, ast.Compare):
            parts: list[ast.expr] = [node.left, *node.comparators]
        elif isinstance(node, ast.Subscript):
            parts = [node.slice]
        elif isinstance(node, ast.Match):
            parts = [node.subject]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            parts = list(node.args)
        else:
            continue
        if any(isinstance(part, ast.Attribute) and part.attr == "format" for part in parts):
            yield node.lineno


def _names(nodes: Iterable[ast.AST]) -> Iterator[int]:
    """Lines where a string is the name of a format."""
    for node in nodes:
        if isinstance(node, ast.Constant) and node.value in NAMES:
            yield node.lineno


def test_nobody_asks_which_format_a_run_has() -> None:
    for path in (path for path in FILES if room_of(path) not in MAY_ASK):
        nodes = nodes_of(path)
        assert list(_asks(nodes)) == [], path
        if room_of(path) in WITHOUT_NAMES:
            assert list(_names(nodes)) == [], path


@pytest.mark.parametrize(
    "wrong",
    [
        "a.run.format == 'x'", "run.format in ('x', 'y')", "'x' != one.format", "TABLE[run.format]",
        "TABLE.get(a.run.format)", "match run.format:\n    case _: pass",
    ],
)  # fmt: skip
def test_the_law_sees_a_question(wrong: str) -> None:
    assert list(_asks(ast.walk(ast.parse(wrong)))) == [1]


def test_the_law_sees_a_name() -> None:
    assert list(_names(ast.walk(ast.parse("NAMES = ('keras',)")))) == [1]
    assert not list(_asks(ast.walk(ast.parse("shown = run.format"))))
