"""Lines read many at once give what they would give one by one."""

from __future__ import annotations

import numpy as np
import pytest

from stepwatch.readers.text.block import Block
from stepwatch.readers.text.line import Line, lines_with_marks
from stepwatch.readers.text.shape import alike

STATEMENT = "iter {number}: loss {loss}, time {time_ms}ms"


def matched(text: str, statement: str = STATEMENT) -> dict[int, dict[str, float]]:
    """By line, what was read of it together with others."""
    block = Block.of(text.encode())
    return {
        line: {name: float(column[row]) for name, column in found.items()}
        for _, lines, found in alike(block, block.filled, (Line(statement),))
        for row, line in enumerate(lines.tolist())
    }


def test_lines_of_the_shape_give_their_numbers() -> None:
    found = matched("iter 10: loss 4.25, time 168.6ms\nother\niter 20: loss -1, time 0.07ms\n")
    assert found == {
        0: {"number": 10.0, "loss": 4.25, "time_ms": 168.6},
        2: {"number": 20.0, "loss": -1.0, "time_ms": 0.07},
    }


@pytest.mark.parametrize("text", ["", "\n", "\n\n", "x", "iter ", "iter 1", "iter 1: loss 2, time 3m"])
def test_other_lines_give_nothing(text: str) -> None:
    assert matched(text) == {}


@pytest.mark.parametrize(
    "text",
    ["168.6", "0.1", "1234567.1234567", "9999999.9999999", "0.0000001", "5985", "2.916119E+00", "9.375e-08", "3E+05",
     "12345678", "123456789012345", "1234567890123456789", "12345678.12345678", "0.123456789012345678", "1,234.5",
     "1E-30", "1e5", "4."],
)  # fmt: skip
def test_numbers_are_what_python_reads(text: str) -> None:
    assert matched(f"iter 1: loss 1, time {text}ms")[0]["time_ms"] == float(text.replace(",", ""))


@pytest.mark.parametrize("number", [7, 12345678, 123456789012])
def test_no_number_of_an_iteration_is_too_long_to_be_read_together(number: int) -> None:
    assert matched(f"iter {number}: loss 1, time 2ms\niter {number + 1}: loss 1, time 2ms").keys() == {0, 1}


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "+nan"])
def test_a_loss_that_is_no_number_is_infinite(text: str) -> None:
    assert matched(f"iter 1: loss {text}, time 3ms\niter 2: loss 2.5, time 3ms")[0]["loss"] == np.inf


def test_the_last_line_needs_no_end() -> None:
    assert matched("x\niter 1: loss 2, time 3ms").keys() == {1}
    assert matched("x\niter 1: loss 2, time 3ms\n").keys() == {1}


@pytest.mark.parametrize("tail", range(1, 18))
def test_a_block_may_end_anywhere(tail: int) -> None:
    line = "iter 1: loss 2.5, time 3.5ms"
    assert matched(line[: len(line) - tail]) == {}


# --- the pieces of a statement -----------------------------------------------------------------------------------


def test_a_piece_may_be_missing() -> None:
    found = matched("n 1, x 2%\nn 3\nn 4, x 5%", "n {number}[, x {mfu}%]")
    assert found == {0: {"number": 1.0, "mfu": 2.0}, 2: {"number": 4.0, "mfu": 5.0}, 1: {"number": 3.0}}


def test_one_of_several_stands_there() -> None:
    found = matched("step 1 took 2ms\nstep 2 took 3s", "step {number} took <{time_ms}ms;{time_s}s>")
    assert found == {0: {"number": 1.0, "time_ms": 2.0}, 1: {"number": 2.0, "time_s": 3.0}}


def test_pieces_stand_in_any_order() -> None:
    block = Block.of(b"it 1: b 2 a 3\nit 4: a 5 x b 6\nit 7: a 8")
    statement = Line("it {number}:", "a {first}", "b {second}")
    read = {int(line): found for _, lines, found in alike(block, block.filled, (statement,)) for line in lines}
    assert {line: (found.get("first"), found.get("second")) for line, found in read.items()} == {
        0: (3.0, 2.0), 1: (5.0, 6.0), 2: (8.0, None)
    }  # fmt: skip


@pytest.mark.parametrize("word", ["a", "abcdefg", "abcdefgh", "2.1063e-04", "(+0.12z)|", "x" * 60])
def test_a_word_ends_at_the_next_space_or_with_the_line(word: str) -> None:
    assert matched(f"lr {word} | 5", "lr {word} | {number}") == {0: {"number": 5.0}}
    assert matched(f"5 lr {word}\n6 lr {word}", "{number} lr {word}").keys() == {0, 1}


def test_no_word_is_none() -> None:
    assert matched("lr  | 5", "lr {word} | {number}") == {}


def test_what_follows_may_be_anything_but_has_the_same_words() -> None:
    found = matched("n 1 ms, gpu 3\nn 2 ms, gpu 45\nn 3 ms", "n {number} ms")
    assert found.keys() == {0, 1, 2}


def test_lines_may_stand_behind_prefixes_of_different_lengths() -> None:
    text = "[rank9]: step 1 ms\n[rank10]: step 2 ms\nstep 3 ms\nno\n"
    assert matched(text, "step {number} ms").keys() == {0, 1, 2}


def test_clocks_in_front_are_kept() -> None:
    text = "x\n2025-01-01 00:00:01,500 step: 1 ms\n" + "step: 2 ms\n" * 3
    found = matched(text, "step: {number} ms")
    assert found[1] == {"stamp_s": 1735689601.5, "number": 1.0}
    assert found.keys() == {1, 2, 3, 4}


@pytest.mark.parametrize(("text", "seconds"), [("02:03", 123.0), ("1:02:03", 3723.0), ("100:00:01.5", 360001.5)])
def test_clocks_are_in_seconds(text: str, seconds: float) -> None:
    assert matched(f"at {text} it", "at {elapsed:clock} it")[0]["elapsed"] == seconds


@pytest.mark.parametrize(("text", "seconds"), [("5s", 5.0), ("1h 2m 3s", 3723.0), ("2d 1h 0m 5s", 176405.0)])
def test_durations_are_in_seconds(text: str, seconds: float) -> None:
    assert matched(f"at {text}, it", "at {elapsed:duration}, it")[0]["elapsed"] == seconds


# --- no log is read line by line for what stands at its top -----------------------------------------------------


def test_lines_that_only_look_alike_hide_no_others() -> None:
    warnings = [f"W{number} loss of {'x' * number}, time {number}" for number in range(200)]
    lines = [f"iter {number}: loss 2.5, time 3ms" for number in range(200)]
    assert len(matched("\n".join(warnings + lines))) == 200


def test_rare_shapes_at_the_top_hide_no_common_one() -> None:
    rare = [f"iter {number}: loss 2.5, time 3ms, {'y' * (number + 1)}" for number in range(20)]
    lines = [f"iter {number}: loss 2.5, time 3ms" for number in range(300)]
    assert len(matched("\n".join(rare + lines))) >= 300


def test_hours_and_minutes_behind_the_statement_are_figures() -> None:
    eta = 'eta: {0}:{1:02d}:00 left: "0:{1:02d}:39"'
    lines = [f"iter {n}: loss 2.5, time 3ms " + eta.format(n // 60, n % 60) for n in range(600)]
    block = Block.of("\n".join(lines).encode())
    assert len([lines for _, lines, _ in alike(block, block.filled, (Line(STATEMENT),))]) == 1


def test_letters_are_found_in_one_of_the_lines_that_differ_in_digits() -> None:
    block = Block.of(b"step 1 Error\nstep 22 Error\nstep 3\n\nother")
    assert block.holding(block.filled, (b"Error", b"oth")).tolist() == [0, 1, 4]
    assert block.holding(block.filled, (b"nothing",)).tolist() == []


# --- the statement itself ----------------------------------------------------------------------------------------


def test_a_statement_that_is_no_statement_is_refused() -> None:
    for wrong in ("a [b", "a <b", "{number} {loss}"):
        with pytest.raises(ValueError, match=r"bracket|letters"):
            Line(wrong).find("a b")


def test_a_text_can_be_stated_literally() -> None:
    text = "[1] {x}; <y>  | 5"
    assert Line(Line.literally(text)).fits(text)
    assert not Line(Line.literally(text)).fits("[1] {x}; <y> | 5")


def test_what_is_stated_at_the_time_marks_such_lines() -> None:
    assert Line("step {number} | dt: {time_ms}ms | x").marks == (b" | dt: ",)
    assert Line("step {number} | {time_ms} ms").marks == (b" ms",)


def test_the_first_lines_with_a_mark_are_found_whatever_digits_it_has() -> None:
    steps = [f"step {number} of bf16" for number in range(100)]
    text = "\n".join([*steps, "last bf8", "bf16 at last"]).encode()
    assert lines_with_marks(text, (b"bf8", b"16 at"), prefixes=False) == ["last bf8", "bf16 at last"]
    assert lines_with_marks(text, (b"bf16",), prefixes=False) == steps[:60]
    assert lines_with_marks(text, (b"bf32",)) == []


@pytest.mark.parametrize(
    "first", ["iter 1: loss 2, time 3 ms", "iter   1 : loss   2, time 3ms", "iter 1: loss 2, time 3ms  "]
)
def test_any_number_of_spaces_may_stand_where_the_statement_has_a_gap(first: str) -> None:
    padded = "iter  {number}{pad}: loss  {loss}, time {time_ms}{pad}ms"
    others = "iter 10: loss 4, time 5ms\niter     20   : loss      4,5, time 5ms\niter 30  : loss  4, time 5   ms   "
    found = matched(f"{first}\n{others}", padded)
    assert found[0] == {"number": 1.0, "loss": 2.0, "time_ms": 3.0}
    assert {line: values["number"] for line, values in found.items()} == {0: 1.0, 1: 10.0, 3: 30.0}
