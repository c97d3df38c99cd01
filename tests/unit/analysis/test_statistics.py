"""Long columns: what is computed at a time, and what is kept as a whole."""

from __future__ import annotations

import numpy as np
import pytest

from stepwatch.analysis.long_columns import Series
from stepwatch.analysis.statistics import chosen, total
from stepwatch.units import MEGA


def test_of_a_long_column_eight_megabytes_are_computed_at_a_time() -> None:
    """Not more, or the memory grows with the log; not much less, or calls of numpy take longer than their work."""
    asked: list[int] = []

    def part(rows: slice) -> np.ndarray:
        asked.append(rows.stop - rows.start)
        return np.broadcast_to(1.0, rows.stop - rows.start)

    assert total(Series(5_000_000, part)) == 5_000_000
    assert 8 * max(asked) < 10 * MEGA
    assert len(asked) < 6


@pytest.mark.parametrize(("rows", "whole"), [(4_000_000, True), (4_500_000, False)])
def test_what_is_chosen_from_up_to_four_million_rows_is_kept(rows: int, whole: bool) -> None:
    column = np.zeros(rows, np.int8)
    assert isinstance(chosen(column, np.ones(rows, bool)), np.ndarray) is whole
