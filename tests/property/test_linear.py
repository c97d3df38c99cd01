"""No line, however it is made, costs more than its length."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from stepwatch.errors import StepwatchError
from stepwatch.readers import read
from stepwatch.readers.formats import nanogpt
from stepwatch.readers.text.line import stamp_of, strip_prefix
from stepwatch.sources import Source, normalise

HEADS = [
    "", "iter 1: ", "step 1: ", "saving checkpoint ", "2024-05-04 09:30:00 ",
    "num decayed parameter tensors: ", "\x1b[",
]  # fmt: skip
UNITS = [
    "iter 1: ", "time ", "time 1", "time 1 ", "a=", "a = ", " ", "1", "1.", "1,", "[", "(", "{", '"', "\\", "'", ":",
    "step 1 ",
    "step 1:", "train loss ", "val loss ", "with 1 ", "ms/iter ", "mfu ", "mfu -", "-", "e", "ckpt0", "0", "iter ",
    "i", "saving ",
    "saving model ", "2024-05-04 ", "09:", "09:30:00", "May  4 ", "1714815007", "`", ">", "| ", "\x1b[", "\x1b]",
    "\x08", "x\x08",
    "\r", "\x00", "NVIDIA ", "tokens/s ", "é", "\x1b[0", "[1,0]<stdout>:", "INFO ", "a - ", "a:", "loss nan", "# ", "_",
]  # fmt: skip
SMALL, LARGE = 1 << 15, 1 << 17


def filled(head: str, unit: str, size: int, end: str = "") -> bytes:
    return (head + unit * (size // len(unit))).encode() + end.encode()


def cost(call: Callable[[bytes], object], data: bytes) -> float:
    began = time.process_time()
    with suppress(StepwatchError):
        call(data)
    return time.process_time() - began


def whole_road(data: bytes) -> object:
    return read(Source("x", normalise(data)), "nanogpt")


def sniff_alone(data: bytes) -> object:
    return nanogpt.sniff(data)


@pytest.mark.parametrize("unit", UNITS)
def test_one_endless_line_costs_its_length(unit: str) -> None:
    for head in HEADS[:3]:
        assert_linear(whole_road, lambda size, head=head: filled(head, unit, size))  # type: ignore[misc]
    assert_linear(sniff_alone, lambda size: filled("iter 1: ", unit, size))


@pytest.mark.parametrize("unit", UNITS)
def test_many_lines_of_the_longest_kind_cost_their_length(unit: str) -> None:
    """Below the length at which lines are shortened, each may be as bad as it can; without a head all are unread."""
    for heads in (HEADS[:1], HEADS[1:]):
        data = b"".join(filled(head, unit, 3900, "\n") for head in heads * (14 // len(heads)))
        assert cost(whole_road, data) < 0.4 or cost(whole_road, data) < 0.4, heads


def assert_linear(call: Callable[[bytes], object], make: Callable[[int], bytes]) -> None:
    """Four times the length, at most eight times the time; what takes no time is not measured."""
    large = cost(call, make(LARGE))
    if large > 0.05:
        small = min(cost(call, make(SMALL)) for _ in range(3))
        most = 8 * max(small, 0.01)
        assert large < most or cost(call, make(LARGE)) < most


@pytest.mark.parametrize("unit", UNITS)
def test_prefix_of_any_length_is_cheap(unit: str) -> None:
    text = unit * (LARGE // len(unit))
    began = time.process_time()
    strip_prefix(text)
    stamp_of(text)
    assert time.process_time() - began < 0.1


@pytest.mark.parametrize(
    "data",
    [
        b'{"cells": "' + b'\\"' * 200_000, b'{"cells": ' + b"[" * 400_000, b'[{"stream_name": "' + b"\\" * 400_000,
        b'[{"stream_name": 1}' + b",{" * 200_000, b'{"cells": [' + b'"a",' * 100_000, b"[" * 400_000 + b'"cells"',
        b'{"cells": ' + b'{"a":' * 200_000,
        b'[{"stream_name"\n' + b"[\n" * 120_000,
        b'[{"stream_name"\n' + b"{\n" * 100_000, b'{"cells": ' + b"9" * 400_000 + b"}",
    ],
    ids=range(10),
)  # fmt: skip
def test_hostile_json_is_read_at_once(data: bytes) -> None:
    began = time.process_time()
    normalise(data)
    assert time.process_time() - began < 2
