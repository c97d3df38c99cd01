"""Lines matched many at once give what they would give one by one."""

from __future__ import annotations

import numpy as np
import pytest

from stepwatch.readers.columns import Block, Template, numbers_behind

TEMPLATE = Template("iter {number}: loss {loss}, time {time}ms")


def matched(text: str) -> tuple[list[int], dict[str, list[float]]]:
    block = Block.of(text.encode())
    lines, found = TEMPLATE.match(block, np.arange(len(block.starts)))
    return lines.tolist(), {name: column.tolist() for name, column in found.items()}


def test_lines_of_the_shape_give_their_numbers() -> None:
    lines, found = matched("iter 10: loss 4.25, time 168.6ms\nother\niter 20: loss -1, time 0.07ms\n")
    assert lines == [0, 2]
    assert found == {"number": [10.0, 20.0], "loss": [4.25, -1.0], "time": [168.6, 0.07]}


@pytest.mark.parametrize("text", ["", "\n", "\n\n", "x", "iter ", "iter 1", "iter 1: loss 2, time 3m"])
def test_other_lines_give_nothing(text: str) -> None:
    assert matched(text) == ([], {"number": [], "loss": [], "time": []})


@pytest.mark.parametrize(
    "line",
    ["iter 10: loss 4.2, time 5ms ", " iter 10: loss 4.2, time 5ms", "iter 10: loss nan, time 5ms",
     "iter 10: loss 4.2e3, time 5ms", "iter 123456789: loss 4, time 5ms", "iter 10: loss 4.123456789, time 5ms",
     "iter 10: loss , time 5ms", "iter 10: loss ., time 5ms", "iter 10: loss 4., time 5ms",
     "iter 10: loss .4, time 5ms",
     "iter 10: loss --4, time 5ms", "iter 10: loss 4.2, time 5msec", "iter 1\xb2: loss 4, time 5ms"],
)  # fmt: skip
def test_a_line_that_only_resembles_is_left_to_the_patterns(line: str) -> None:
    assert matched(line)[0] == []


@pytest.mark.parametrize(
    "text", ["168.6", "0.1", "1234567.1234567", "9999999.9999999", "0.0000001", "5985", "12543.49"]
)
def test_numbers_are_what_python_reads(text: str) -> None:
    assert matched(f"iter 1: loss 1, time {text}ms")[1]["time"] == [float(text)]


def test_the_last_line_needs_no_end() -> None:
    assert matched("x\niter 1: loss 2, time 3ms")[0] == [1]
    assert matched("x\niter 1: loss 2, time 3ms\n")[0] == [1]


@pytest.mark.parametrize("tail", range(18))
def test_a_block_may_end_anywhere(tail: int) -> None:
    line = "iter 1: loss 2.5, time 3.5ms"
    assert matched(line[: len(line) - tail])[0] == ([0] if tail == 0 else [])


def test_a_literal_longer_than_the_block_does_not_fit() -> None:
    block = Block.of(b"a\nb")
    lines, _ = Template("a line of many letters that is longer than all of the block: {x}").match(block, np.arange(2))
    assert len(lines) == 0


def test_the_rest_of_a_line_may_be_anything() -> None:
    block = Block.of(b"n 1 and more\nn 2\nm 3")
    lines, found = Template("n {x}{...}").match(block, np.arange(3))
    assert (lines.tolist(), found["x"].tolist()) == ([0, 1], [1.0, 2.0])


def test_a_number_behind_letters_is_found_in_each_line() -> None:
    block = Block.of(b"a loss: 1.5 - b\nnone\nloss: 2e-3\nloss: nan\nloss: 4")
    values = numbers_behind(block, np.arange(5), b"loss: ")
    assert values.tolist()[0] == 1.5
    assert np.isnan(values[1])
    assert values.tolist()[2:] == [np.inf, np.inf, 4.0]
