"""Which lines are a crash, and which only look like one."""

from __future__ import annotations

import pytest

from stepwatch.readers.text.faults import FAULT_LETTERS, fault_in
from stepwatch.run import FaultKind


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("RuntimeError: the size of Weights 1024 must match", "error"),  # no stamp of a warning
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "cuda error"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "out of memory"),
        ("Traceback (most recent call last):", "traceback"),
        ("/lib/trainer/call.py:54: UserWarning: Detected KeyboardInterrupt, stopping...", "interrupted"),
    ],
)
def test_a_line_that_ends_a_process_is_a_fault(line: str, kind: FaultKind) -> None:
    found = fault_in(line, "", 7)
    assert found is not None
    assert (found.kind, found.line, found.text) == (kind, 7, line)
    assert any(letters in line.encode() for letters in FAULT_LETTERS)


@pytest.mark.parametrize(
    ("prefix", "line"),
    [
        ("W0728 15:54:54.664000 1326 torch/_dynamo/convert_frame.py:824] ", "Traceback (most recent call last):"),
        ("[rank0]:[W425 04:51:55.562279171 Utils.hpp:137] ", "NCCL error handling is deprecated"),
        ("", "except torch.OutOfMemoryError:"),
        ("", '  rank_zero_warn("Detected KeyboardInterrupt, stopping...")'),
    ],
)
def test_a_warning_or_printed_code_is_none(prefix: str, line: str) -> None:
    assert fault_in(line, prefix, 7) is None
