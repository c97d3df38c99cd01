"""Lines matched many at once give what they would give one by one."""

from __future__ import annotations

import numpy as np
import pytest

from stepwatch.readers.columns import Block, Template

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


# --- further pieces of a shape -----------------------------------------------------------------------------------


def matched_by(shape: str, text: str, *, anywhere: bool = False) -> tuple[list[int], dict[str, list[float]]]:
    block = Block.of(text.encode())
    lines, found = Template(shape, anywhere=anywhere).match(block, np.arange(len(block.starts)))
    return lines.tolist(), {name: column.tolist() for name, column in found.items()}


@pytest.mark.parametrize("text", ["1", "1234567", "12345678", "123456789", "12345678901234"])
def test_a_long_number_may_have_fourteen_digits(text: str) -> None:
    assert matched_by("at {time+}ms", f"at {text}ms\n") == ([0], {"time": [float(text)]})


@pytest.mark.parametrize("text", ["123456789012345", "12345678.5", "1234567890123456789"])
def test_a_longer_one_is_left_to_the_patterns(text: str) -> None:
    assert matched_by("at {time+}ms", f"at {text}ms\n")[0] == []


@pytest.mark.parametrize("word", ["a", "abcdefg", "abcdefgh", "2.1063e-04", "(+0.12z)|", "x" * 60])
def test_a_word_ends_at_the_next_space_or_with_the_line(word: str) -> None:
    assert matched_by("lr {*} | {n}", f"lr {word} | 5\n") == ([0], {"n": [5.0]})
    assert matched_by("{n} lr {*}", f"5 lr {word}\n6 lr {word}") == ([0, 1], {"n": [5.0, 6.0]})


def test_no_word_is_none() -> None:
    assert matched_by("lr {*} | {n}", "lr  | 5\n")[0] == []


def test_the_rest_of_a_line_may_be_anything() -> None:
    assert matched_by("n {n} |{**}", "n 1 | x y\nn 2 |\nn 3\n") == ([0, 1], {"n": [1.0, 2.0]})


def test_a_shape_may_stand_behind_prefixes_of_different_lengths() -> None:
    text = "a step 1 ms\nlonger step 2 ms\nstep 3 ms\nno\n"
    assert matched_by("step {n} ms", text.replace("longer", "b"), anywhere=True)[1]["n"][:2] == [1.0, 2.0]


def test_a_short_last_line_behind_long_prefixes_is_no_harm() -> None:
    text = "x" * 60 + "2026-01-10 08:00:07 step 1\n" + "step 2"
    assert matched_by("step {n}", text, anywhere=True)[1]["n"] == [1.0]
