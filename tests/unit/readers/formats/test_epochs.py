"""Which lines are one epoch, and which a new process."""

from __future__ import annotations

import numpy as np

from stepwatch.readers.formats.epochs import RESUMED, Epochs
from stepwatch.readers.records import Records
from stepwatch.run import Fact


def _epochs(*rows: tuple[int, int]) -> Epochs:
    epoch, done = np.array(rows, np.float64).T
    return Epochs.of(np.arange(len(rows), dtype=np.float64), epoch, done, np.full(len(rows), 30.0))


def test_numbers_go_on_from_epoch_to_epoch() -> None:
    epochs = _epochs((0, 1), (0, 11), (0, 21), (0, 30), (1, 1), (1, 11), (3, 11))
    assert epochs.numbers(Records()).tolist() == [1, 11, 21, 30, 31, 41, 101]
    assert epochs.process.tolist() == [True, False, False]


def test_lines_of_ranks_that_are_a_little_apart_count_once() -> None:
    epochs = _epochs((0, 1), (0, 11), (0, 1), (0, 21), (0, 11), (0, 30), (0, 21), (0, 30))
    assert epochs.done.tolist() == [1, 11, 21, 30]


def test_the_same_epoch_from_its_beginning_is_another_process() -> None:
    epochs = _epochs((0, 1), (0, 11), (0, 21), (0, 30), (0, 1), (0, 11))
    assert epochs.process.tolist() == [True, True]
    assert epochs.numbers(Records()).tolist() == [1, 11, 21, 30, 1, 11]


def test_epoch_one_is_the_first_unless_the_run_was_resumed() -> None:
    epochs = _epochs((1, 1), (1, 11))
    assert epochs.numbers(Records()).tolist() == [1, 11]
    assert epochs.numbers(Records(events=[Fact(line=0, name=RESUMED, value="last")])).tolist() == [1, 11]
    late = epochs._replace(line=epochs.line + 5)
    assert late.numbers(Records(events=[Fact(line=2, name=RESUMED, value="last")])).tolist() == [31, 41]


def test_the_first_step_of_a_later_epoch_joins_the_next_row() -> None:
    epochs, kept = _epochs((0, 1), (0, 11), (1, 1), (1, 11), (2, 1)).without_first_steps()
    assert kept.tolist() == [True, True, False, True, True]
    assert epochs.covers.tolist() == [1, 10, 11, 1]
