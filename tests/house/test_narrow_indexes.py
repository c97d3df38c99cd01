"""The package runs where an index has 32 bits: Python in a browser (wasm32)."""

from __future__ import annotations

import ast

from tests.house.test_layers import room_of
from tests.house.trees import FILES, nodes_of


def test_readers_repeat_rows_by_the_function_that_takes_counts_of_any_width() -> None:
    found = [
        f"{path.name}:{node.lineno}"
        for path in FILES
        if room_of(path) == "readers"
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute) and node.attr == "repeat"
    ]
    assert not found, "use stepwatch.run.repeated instead of np.repeat: " + ", ".join(found)
