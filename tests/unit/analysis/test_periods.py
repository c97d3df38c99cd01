"""Evaluations at iterations that were not logged, as a sentence names them."""

from __future__ import annotations

import numpy as np

from stepwatch.analysis.phases import Unlogged


def test_five_are_all_named_and_of_many_the_first_five_and_the_last() -> None:
    tens = np.array([10, 20, 30, 40, 50])
    assert Unlogged(mentioned=tens).shown() == tens.tolist()
    many = Unlogged(first=np.array([10]), counts=np.array([100]), interval=10)
    assert many.shown() == [*tens.tolist(), 1000]
