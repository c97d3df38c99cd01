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


@pytest.mark.parametrize(
    "text", ["2.916119E+00", "1.264354E+01", "9.375E-08", "-1.5E+03", "3E+05", "9999999.9999999E-07"]
)
def test_powers_of_ten_are_what_python_reads(text: str) -> None:
    assert matched(f"iter 1: loss {text}, time 1ms")[1]["loss"] == [float(text)]


@pytest.mark.parametrize("text", ["1E5", "1E+5", "1e+05", "1E+005", "1E-30"])
def test_other_powers_are_left_to_the_patterns(text: str) -> None:
    assert matched(f"iter 1: loss {text}, time 1ms")[0] == []


# --- further pieces of a shape -----------------------------------------------------------------------------------


def matched_by(shape: str, text: str, *, anywhere: bool = False) -> tuple[list[int], dict[str, list[float]]]:
    block = Block.of(text.encode())
    lines, found = Template(shape, anywhere=anywhere).match(block, np.arange(len(block.starts)))
    return lines.tolist(), {name: column.tolist() for name, column in found.items()}


@pytest.mark.parametrize(
    "text",
    ["1", "1234567", "12345678", "123456789", "123456789012345", "12345678.5", "1234567.12345678", "-12345678901234.5",
     "0.12345678901234", "999999999999999", "9.99999999999999"],
)  # fmt: skip
def test_a_long_number_may_have_fifteen_digits(text: str) -> None:
    assert matched_by("at {time+}ms", f"at {text}ms\n") == ([0], {"time": [float(text)]})


@pytest.mark.parametrize("text", ["1234567890123456", "12345678.12345678", "0.123456789012345", "1234567890123456789"])
def test_a_longer_one_is_left_to_the_patterns(text: str) -> None:
    assert matched_by("at {time+}ms", f"at {text}ms\n")[0] == []


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "+nan"])
def test_a_number_that_may_be_unknown_is_infinite_then(text: str) -> None:
    assert matched_by("loss {loss?} |", f"loss {text} |\nloss 2.5 |\nloss no |\n") == ([0, 1], {"loss": [np.inf, 2.5]})


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


def test_a_free_rest_and_long_decimals() -> None:
    lines, found = matched_by("a={x~}, b={y} {**}", "a=1.23456789012345678, b=2 | c\na=0.5, b=3 \na=7, b=4\n")
    assert lines == [0, 1]
    assert found["x"] == pytest.approx([1.23456789, 0.5])
    assert found["y"] == [2.0, 3.0]


def test_a_word_ends_at_a_space_or_with_the_line() -> None:
    assert matched_by("a {*} {n}", "a b 1\na bcdefghijklmnop 2\na  3\na b\n")[0] == [0, 1]
    assert matched_by("a {*}", "a b\na \na bcd")[0] == [0, 2]


def test_a_short_line_at_the_end_of_a_block_has_no_clock_beyond_it() -> None:
    text = "x" * 300 + " 2025-01-01 00:00:01,500 step: 1\n" + "step: 2\n" * 3
    assert matched_by("step: {number}", text, anywhere=True)[1]["stamp_s"] == [1735689601.5]


def test_a_literal_longer_than_the_block_does_not_fit() -> None:
    block = Block.of(b"a\nb")
    lines, _ = Template("a line of many letters that is longer than all of the block: {x}").match(block, np.arange(2))
    assert len(lines) == 0


def test_a_number_behind_letters_is_found_in_each_line() -> None:
    block = Block.of(b"a loss: 1.5 - b\nnone\nloss: 2e-3\nloss: nan\nloss: 4")
    values = numbers_behind(block, np.arange(5), b"loss: ")
    assert values.tolist()[0] == 1.5
    assert np.isnan(values[1])
    assert values.tolist()[2:] == [np.inf, np.inf, 4.0]
