"""Launchers' prefixes passed over for a whole block."""

from __future__ import annotations

import numpy as np
import pytest

from stepwatch.readers.text.block import Block
from stepwatch.readers.text.prefixes import Prefix
from stepwatch.readers.text.stamps import stamp_of, strip_prefix


def behind(text: bytes) -> tuple[list[bytes], list[float] | None]:
    """The lines that begin as the first one does, behind that prefix, and their clocks."""
    block = Block.of(text)
    prefix = strip_prefix(block.line(0).decode())[1]
    lines, begins, stamps = Prefix(prefix).skip(block, np.arange(len(block.starts)))
    return [text[begin : block.ends[line]] for line, begin in zip(lines.tolist(), begins.tolist(), strict=True)], (
        None if stamps is None else stamps.tolist()
    )


def test_ranks_differ_by_their_digits() -> None:
    text = b"[rank0]: step 1\n[rank3]: step 2\n[rank0]:  10%| x\nstep 4"
    assert behind(text) == ([b"step 1", b"step 2", b"10%| x"], None)


def test_clocks_in_front_are_kept() -> None:
    text = b"2025-06-01 12:00:07,118 - INFO - step 1\n2025-06-01 12:01:08,250 - INFO - step 2\nstep 3"
    lines, stamps = behind(text)
    assert lines == [b"step 1", b"step 2"]
    assert stamps == [stamp_of("2025-06-01 12:00:07,118"), stamp_of("2025-06-01 12:01:08,250")]


@pytest.mark.parametrize("form", ["05/04/2024 09:30:{:02d} - INFO - a.b - ", "[05/04 09:30:{:02d} d2.engine]: "])
def test_dates_with_the_month_first_are_kept(form: str) -> None:
    prefixes = [form.format(second) for second in (1, 2, 59)]
    lines, stamps = behind("\n".join(f"{prefix}step {n}" for n, prefix in enumerate(prefixes)).encode())
    assert lines == [b"step 0", b"step 1", b"step 2"]
    assert stamps == [stamp_of(prefix) for prefix in prefixes]


@pytest.mark.parametrize("odd", ["13/04/2024", "02/30/2024", "02/29/2024", "05/04/20x4"])
def test_a_date_that_is_none_is_left(odd: str) -> None:
    lines, _ = behind(f"05/04/2024 09:30:00 step 1\n05/04/2024 09:30:01 step 2\n{odd} 09:30:02 step 3".encode())
    assert lines == [b"step 1", b"step 2"]


def test_a_long_fraction_is_left_to_the_patterns() -> None:
    text = b"2025-06-01T12:00:07.118000000Z step 1\n2025-06-01T12:00:08.250000000Z step 2"
    assert behind(text)[0] == []


def test_clocks_of_another_form_and_plain_lines_are_left() -> None:
    for text in (b"12:00:07 step 1\n12:00:08 step 2", b"step 1\nstep 2", b"0: \n0: "):
        assert behind(text)[1] is None
    assert behind(b"12:00:07 step 1\n12:00:08 step 2")[0] == []
