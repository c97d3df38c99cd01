"""The syntax trees of the package, parsed once for all laws on the source."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tools import SOURCE

FILES = sorted(SOURCE.rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree_of(path)))
