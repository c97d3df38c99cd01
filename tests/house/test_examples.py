"""The example logs are those that examples/make_logs.py writes."""

from __future__ import annotations

import pytest
from examples.make_logs import LOGS, PLACE


@pytest.mark.parametrize("name", LOGS)
def test_an_example_is_what_its_builder_writes(name: str) -> None:
    assert (PLACE / name).read_text(encoding="utf-8") == LOGS[name](), "run `make pages`"


def test_no_other_log_lies_among_the_examples() -> None:
    assert {path.name for path in PLACE.glob("*.log*")} == set(LOGS)


def test_the_short_example_fits_on_a_screen() -> None:
    assert LOGS["short.log"]().count("\n") <= 24
