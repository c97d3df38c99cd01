"""Launchers' prefixes passed over for a whole block."""

from __future__ import annotations

import numpy as np

from stepwatch.readers.columns import Block
from stepwatch.readers.prefixes import behind_prefix
from stepwatch.readers.stamps import stamp_of


def behind(text: bytes) -> tuple[list[bytes], list[float] | None]:
    block = Block.of(text)
    plain, stamps = behind_prefix(text, block, np.arange(len(block.starts)))
    lines = [text[begin:end] for begin, end in zip(plain.starts, plain.ends, strict=True)]
    return lines, None if stamps is None else stamps.tolist()


def test_ranks_differ_by_their_digits() -> None:
    assert behind(b"[rank0]: step 1\n[rank3]: step 2\n[rank0]:  10%| x\nstep 4") == (
        [b"step 1", b"step 2", b" 10%| x", b"step 4"],
        None,
    )


def test_clocks_in_front_are_kept() -> None:
    text = b"2025-06-01 12:00:07,118 - INFO - step 1\n2025-06-01 12:01:08,250 - INFO - step 2\nstep 3"
    lines, stamps = behind(text)
    assert lines == [b"step 1", b"step 2", b"step 3"]
    assert stamps is not None
    assert stamps[:2] == [stamp_of("2025-06-01 12:00:07,118"), stamp_of("2025-06-01 12:01:08,250")]
    assert np.isnan(stamps[2])


def test_clocks_of_another_form_and_plain_lines_are_left() -> None:
    for text in (b"12:00:07 step 1\n12:00:08 step 2", b"step 1\nstep 2", b"0: \n0: "):
        assert behind(text)[1] is None
    assert behind(b"12:00:07 step 1\n12:00:08 step 2")[0] == [b"12:00:07 step 1", b"12:00:08 step 2"]
