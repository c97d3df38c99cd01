"""Prefixes are taken off, and the clock in them is kept."""

from __future__ import annotations

import numpy as np
import pytest

from stepwatch.readers.text.block import Block
from stepwatch.readers.text.clocks import Prefix
from stepwatch.readers.text.line import stamp_of, strip_prefix

LINE = "step 500: train loss 2.5000, val loss 2.6000"
DATED = [
    "2024-05-04 09:30:07,250 ", "2024-05-04T09:30:07.250Z ", "2024-05-04T09:30:07.250000+02:00 ",
    "[2024-05-04 09:30:07.250] ",
    "2024/05/04 09:30:07.250 - INFO - ", "2024-05-04 09:30:07,250 - __main__ - INFO - ",
    "[2024-05-04 09:30:07,250][INFO] - ", "[2024-05-04 09:30:07,250][__main__][INFO] - ",
    "2024-05-04 09:30:07.250 | INFO     | __main__:main:42 - ", "2024-05-04T09:30:07.250123456Z stdout F ",
    "2024-05-04T09:30:07.250-0500 ", "(2024-05-04 09:30:07.250) ", "2024-05-04 09:30:07.250 UTC ",
    "05/04/2024 09:30:07.250 - INFO - __main__ -   ", "[05/04/2024 09:30:07.250] ", "05/04/2024 09:30:07,250 ",
    "[2024-05-04 09:30:07.250 trainer.loop]: ",
    "2024-05-04 09:30:07,250 train.py ", "2024-05-04 09:30:07.250 [INFO] ", "2024-05-04 09:30:07,250 INFO: ",
    "[rank0]: 2024-05-04 09:30:07.250: ", "[05/04/24 09:30:07.250] INFO     ", "2024-05-04 09:30:07,250 AM - ",
    "[2024-05-04 09:30:07.250 AM-train.py-INFO:",
]  # fmt: skip
UNDATED = [
    "09:30:07.250 ", "[09:30:07.250] ", "May  4 09:30:07.250 ", "May 04 09:30:07.250 node-1 train[123]: ",
    "I0504 09:30:07.250000 123 train.py:55] ", "[Sat May  4 09:30:07.250 2024] ", "0: 09:30:07.250 ",
    "Sat May  4 09:30:07.250 2024: ", "[05/04 09:30:07.250 d2.engine.train_loop]: ",
    "05/04 09:30:07.250 - mmengine - INFO - ",
    "[05/04 09:30:07.250] d2.engine INFO: ", "[05/04 09:30:07.250 d2]: WARNING: ",
]  # fmt: skip
LAUNCHERS = [
    "[rank0]: ", "[rank0]:", "[default0]:", "0: ", " 12: ", "[1,0]<stdout>:", "[1,0]<stdout>: ", "(train pid=123) ",
    "(RayTrainWorker pid=123, ip=10.0.0.1) ", "INFO:root:", "INFO:__main__:", "[INFO] ", "INFO: ", "INFO ", "> ", ">> ",
    "    ", "\t", "```", "```text ", "trainer-1  | ", "node-3: ", "gpu01.cluster.local: ", "worker_0 | ", '"', '    "',
    "| ",
]  # fmt: skip


@pytest.mark.parametrize("prefix", [*DATED, *UNDATED, *LAUNCHERS])
def test_prefix_is_taken_off(prefix: str) -> None:
    rest, taken = strip_prefix(prefix + LINE)
    assert rest == LINE
    assert taken == prefix


@pytest.mark.parametrize("prefix", DATED)
def test_dated_clock_is_kept(prefix: str) -> None:
    assert stamp_of(prefix) == pytest.approx(1714815007.25)


def test_half_days_are_told_apart() -> None:
    times = ("12:00:01 AM", "11:59:59 AM", "12:00:00 PM", "01:00:00 PM")
    prefixes = [f"[2024-05-04 {time}-train.py-INFO:" for time in times]
    clocks = [stamp_of(prefix) or 0.0 for prefix in prefixes]
    assert np.diff(clocks).tolist() == [43198.0, 1.0, 3600.0]
    together = [f"[2024-05-04 {time}-train.py-INFO:{LINE}" for time in ("11:59:59 PM", "12:00:01 PM", "01:00:00 PM")]
    assert behind("\n".join(together).encode())[1] == [stamp_of(line) for line in together]


@pytest.mark.parametrize("prefix", UNDATED)
def test_clock_without_a_year_is_kept_on_a_steady_zero(prefix: str) -> None:
    later = prefix.replace("09:30:07", "09:31:09")
    first, second = stamp_of(prefix), stamp_of(later)
    assert first is not None
    assert second is not None
    assert second - first == pytest.approx(62.0)


@pytest.mark.parametrize("prefix", ["1714815007.25 ", "[1714815007.25] ", "1714815007.250000: "])
def test_seconds_since_1970_are_a_clock(prefix: str) -> None:
    assert stamp_of(prefix) == pytest.approx(1714815007.25)
    assert strip_prefix(prefix + LINE)[0] == LINE


@pytest.mark.parametrize(
    "prefix",
    [*LAUNCHERS, "12:34 ", "99:99:99 ", "2024-13-45 00:00:00 ", "13/45/2024 00:00:00 ", "1.2.3 ", "a 17148150079 "],
)
def test_what_is_no_clock_gives_none(prefix: str) -> None:
    assert stamp_of(prefix) is None


def test_a_date_with_the_day_first_is_taken_off_though_no_clock() -> None:
    prefix = "21/10/2024 18:23:00 - INFO - "
    assert strip_prefix(prefix + LINE) == (LINE, prefix)
    assert stamp_of(prefix) is None


@pytest.mark.parametrize("line", ["19/80 00:01:02 loss 3.2", "00/31 00:01:02", "[00:01:02 12] 0.3 s", "3/04 00:01:02"])
def test_a_count_and_its_end_are_no_date(line: str) -> None:
    assert not strip_prefix(line)[1].startswith(("19", "00/", "[00:01:02 1", "3/"))


@pytest.mark.parametrize(
    "line",
    ["[train] iter 30: loss 8.3, 2276 ms/iter", "[eval] iter 500: train 3.4 val 3.4", "batch_size = 12",
     "Overriding: batch_size = 8", "tokens per iteration will be: 16,384", "number of parameters: 10.65M",
     "train.py step 3", "Initializing a new model from scratch", "saving checkpoint to out",
     "Traceback (most recent call last):"],
)  # fmt: skip
def test_what_the_program_itself_printed_is_left_alone(line: str) -> None:
    assert strip_prefix(line) == (line, "")


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


@pytest.mark.parametrize("prefix", [*DATED, *UNDATED, "1714815007.25 ", "[1714815007.25] ", "1714815007.250000: "])
def test_clocks_of_any_form_are_read_together_as_one_by_one(prefix: str) -> None:
    changes = (("09:30:07", "23:59:59"), ("09:30:07", "00:00:00"), ("250", "118"), ("04", "05"), ("007", "099"))
    prefixes = [prefix, *(prefix.replace(*change) for change in changes)]
    lines, stamps = behind("\n".join(f"{each}step {n}" for n, each in enumerate(prefixes)).encode())
    assert lines == [b"step %d" % n for n in range(6)]
    assert stamps == [stamp_of(each) for each in prefixes]


@pytest.mark.parametrize("odd", ["13/04/2024 09:30:02", "02/30/2024 09:30:02", "05/04/2024 24:30:02"])
def test_lines_without_a_clock_are_read_apart_from_those_with_one(odd: str) -> None:
    lines = [f"{clock} step {n}" for n, clock in enumerate(("05/04/2024 09:30:00", odd, "02/29/2024 09:30:02", odd))]
    text = "\n".join(lines).encode()
    assert behind(text) == ([b"step 0", b"step 2"], [stamp_of(lines[0]), stamp_of(lines[2])])
    assert behind(text.partition(b"\n")[2]) == ([b"step 1", b"step 3"], None)


@pytest.mark.parametrize(
    ("clock", "odd"), [("1714815007.25", "2714815007.25"), ("[12/01 09:30:00 a]:", "[19/80 09:30:00 a]:")]
)
def test_digits_that_make_no_clock_are_left(clock: str, odd: str) -> None:
    assert behind(f"{clock} step 1\n{odd} step 2".encode()) == ([b"step 1"], [stamp_of(clock)])
    assert stamp_of(clock) != stamp_of(odd)


@pytest.mark.parametrize("more", [".5", ",25", " PM", ":07", "7"])
def test_a_clock_that_goes_on_is_left(more: str) -> None:
    assert behind(f"09:30:00 step 1\n09:30:00{more} step 2".encode())[0] == [b"step 1"]


def test_a_bar_shows_clocks_that_are_none_of_the_line() -> None:
    assert stamp_of("", "10%|# | 1/10 [01:02:03<09:10:11, 3.2s/it]") is None
    assert stamp_of("", "[INFO|2024-05-04 09:30:07] trainer.py:12 >> ") == stamp_of("2024-05-04 09:30:07")


def test_lines_that_begin_otherwise_are_left() -> None:
    assert behind(b"05/04/2024 09:30:00 step 1\n05/04/20x4 09:30:02 step 2\nstep 3")[0] == [b"step 1"]
    for text in (b"step 1\nstep 2", b"0: \n0: "):
        assert behind(text)[1] is None
