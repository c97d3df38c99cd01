"""Pytest plugin (`-p tests.one_of_each`): a test with parameters runs with the first alone, but in some files."""

from __future__ import annotations

import pytest

# Where numbers can be too wide for 32 bits: the engine of the readers, sums over rows, what is found in them.
NUMBERS = ("analysis/test_costs.py", "analysis/test_goodput.py", "analysis/test_phases.py", "analysis/test_restarts.py",
           "analysis/test_statistics.py", "answers/test_from_logs.py", "presenters/test_text_chart.py",
           "readers/test_assemble.py", "readers/text/test_shape.py", "readers/text/test_line.py")  # fmt: skip


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    seen: set[str] = set()
    for item in items:
        name = item.nodeid.partition("[")[0]
        again = name in seen and not item.location[0].endswith(NUMBERS)
        (left_out if again else chosen).append(item)
        seen.add(name)
    config.hook.pytest_deselected(items=left_out)
    items[:] = chosen
