"""What is said to be fine, and what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import Truth, a_log

from stepwatch.analysis import analyse
from stepwatch.analysis.checks import passed
from stepwatch.readers import read
from stepwatch.sources import from_text


@pytest.mark.parametrize(("share", "little"), [(0.047, True), (0.053, False)])
def test_evaluations_and_checkpoints_take_little_below_a_twentieth(share: float, little: bool) -> None:
    a = analyse(read(from_text(a_log(Truth(max_iters=600))))[0])
    parts = {**a.goodput.parts_s, "step": 1 - share, "eval": share / 2, "checkpoint": share / 2}
    a = replace(a, goodput=replace(a.goodput, parts_s=parts))
    assert any("little time in" in message.key for message in passed(a)) == little


def test_a_loss_that_was_infinite_once_is_not_called_finite() -> None:
    rows = [f"iter {n}: loss {'inf' if n == 30 else '4.0'}, time 100.00ms, mfu 5.00%\n" for n in range(60)]
    (run,) = read(from_text("".join(rows)))
    assert "finite loss throughout" not in {message.key for message in passed(analyse(run))}
