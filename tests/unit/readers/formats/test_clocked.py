"""From a clock to steps."""

from __future__ import annotations

import numpy as np

from stepwatch.readers.formats.clocked import ROWS, STARTS, add_clocked, losses
from stepwatch.readers.records import Records
from stepwatch.run import Checkpoint


def test_a_process_that_starts_again_has_a_first_step_of_its_own() -> None:
    records = Records()
    records.keep_row(STARTS, 0, 100.0)
    for place in range(5):
        records.keep_row(ROWS, 1 + place, 1 + place, 110.0 + 2 * place, np.nan)
    records.keep_row(STARTS, 7, 500.0)
    for place in range(5):
        records.keep_row(ROWS, 8 + place, 3 + place, 520.0 + 2 * place, np.nan)
    add_clocked(records, 0.001)
    rows = records.iterations()
    assert np.allclose(rows.time_s, [10, 2, 2, 2, 2, 20, 2, 2, 2, 2])


def test_a_save_between_two_rows_is_no_step() -> None:
    records = Records(events=[Checkpoint(3, 2, took_s=30.0)])
    for line, number, clock in ((1, 1, 0.0), (2, 2, 2.0), (4, 3, 34.0), (5, 4, 36.0)):
        records.keep_row(ROWS, line, number, clock, np.nan)
    add_clocked(records, 0.001)
    assert np.allclose(records.iterations().time_s, 2.0)


def test_a_loss_belongs_to_the_line_above_it() -> None:
    table = np.array([[2.0, 0.5], [9.0, 0.25]])
    assert np.array_equal(losses(np.array([1.0, 4.0, 8.0]), table), [0.5, np.nan, 0.25], equal_nan=True)
