"""One Run for each process start: no more, no less."""

from __future__ import annotations

import time

import pytest

from stepwatch.readers import read
from stepwatch.run import Run
from stepwatch.settings import Origin
from stepwatch.sources import from_text

HEADER = (
    "Overriding config with config/a.py:\nbatch_size = 12\ntokens per iteration will be: 16,384\n"
    "Initializing a new model from scratch\nnumber of parameters: 10.65M\n"
)
RESUMED = HEADER.replace("Initializing a new model from scratch", "Resuming training from out")


def rows(numbers: range | list[int], ms: float = 100.0, first_ms: float = 9000.0, mfu: bool = True) -> str:
    """Iterations of one process: a slow first one with mfu -100 %, then even ones."""
    lines = []
    for place, number in enumerate(numbers):
        took = first_ms if place == 0 else ms + place % 3
        share = (", mfu -100.00%" if place == 0 else ", mfu 5.00%") if mfu else ""
        lines.append(f"iter {number}: loss 4.0000, time {took:.2f}ms{share}\n")
    return "".join(lines)


def runs_of(text: str) -> tuple[Run, ...]:
    return read(from_text(text))


def spans(text: str) -> list[tuple[int, int]]:
    return [(int(run.iterations.number[0]), int(run.iterations.number[-1])) for run in runs_of(text)]


FIRST = rows(range(0, 100, 10))
SECOND = rows(range(0, 50, 10), first_ms=8000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(HEADER + FIRST + HEADER + SECOND, [(0, 90), (0, 40)], id="two headers"),
        pytest.param(FIRST + SECOND, [(0, 90), (0, 40)], id="no headers, -100 % twice"),
        pytest.param(
            rows(range(0, 100, 10), mfu=False) + rows(range(0, 50, 10), first_ms=8000, mfu=False),
            [(0, 90), (0, 40)], id="iteration 0 again with another time",
        ),
        pytest.param(
            HEADER + FIRST + RESUMED + rows(range(50, 200, 10), first_ms=8500),
            [(0, 90), (50, 190)], id="resumed",
        ),
        pytest.param(FIRST + rows(range(100, 200, 10), first_ms=8500), [(0, 90), (100, 190)], id="resumed, no header"),
        pytest.param(HEADER + FIRST + "".join([FIRST] * 3), [(0, 90)], id="exact repeats"),
        pytest.param(
            "".join(reversed(rows(range(0, 100, 10), mfu=False).splitlines(True))),
            [(0, 90)], id="turned round",
        ),
        pytest.param(
            rows(range(50, 90, 10)) + rows(range(10, 40, 10), mfu=False),
            [(10, 80)], id="excerpts out of order",
        ),
        pytest.param((HEADER + FIRST) * 3, [(0, 90)], id="pasted three times, header and all"),
        pytest.param(HEADER * 8 + FIRST, [(0, 90)], id="eight ranks"),
        pytest.param(HEADER + FIRST + HEADER * 7, [(0, 90)], id="ranks that flush at exit"),
        pytest.param(
            HEADER + "".join(FIRST.splitlines(True)[:2]) + HEADER * 7 + "".join(FIRST.splitlines(True)[2:]),
            [(0, 90)], id="ranks that flush between two iterations",
        ),
        pytest.param(
            HEADER + "Traceback (most recent call last):\nValueError\n" + HEADER + FIRST,
            [(0, 90)], id="a crash first",
        ),
        pytest.param(
            "".join(f"iter {i}: loss 4, time {9000 if i == 0 else 100}.00ms, mfu -100.00%\n" for i in range(5))
            + "".join(f"iter {i}: loss 4, time 100.00ms, mfu 5.00%\n" for i in range(5, 9)),
            [(0, 8)], id="five lines of -100 % of one process",
        ),
        pytest.param(
            "".join(HEADER + rows(range(0, 50, 10), first_ms=8000 + i) for i in range(4)),
            [(0, 40)] * 4, id="four runs",
        ),
        pytest.param(
            "iter 100: time 168ms\niter 200: time 170ms\niter 0: time 12543ms\n",
            [(0, 200)], id="iteration 0 late, once",
        ),
    ],
)  # fmt: skip
def test_runs_are_told_apart(text: str, expected: list[tuple[int, int]]) -> None:
    assert spans(text) == expected


def test_evaluation_and_header_go_with_the_run_that_they_begin() -> None:
    step = "step 0: train loss 4.3, val loss {}\n"
    first, second = runs_of(HEADER + step.format(4.1) + FIRST + HEADER.replace("12", "16") + step.format(4.2) + SECOND)
    assert [evaluation.val_loss for evaluation in first.evaluations] == [4.1]
    assert [evaluation.val_loss for evaluation in second.evaluations] == [4.2]
    assert (first.settings["batch_size"].value, second.settings["batch_size"].value) == (12, 16)


def test_evaluation_goes_with_a_run_that_has_no_header() -> None:
    first, second = runs_of(FIRST + "step 0: train loss 4.3, val loss 4.2\n" + SECOND)
    assert (len(first.evaluations), len(second.evaluations)) == (0, 1)


def test_resumed_run_is_marked() -> None:
    first, second = runs_of(HEADER + FIRST + RESUMED + rows(range(50, 200, 10), first_ms=8500))
    assert (first.resumed, second.resumed) == (False, True)


def test_ranks_are_counted_by_their_headers() -> None:
    (run,) = runs_of(HEADER * 8 + FIRST)
    assert (run.settings["world_size"].value, run.settings["world_size"].origin) == (8, Origin.INFERRED)
    assert run.distributed


def test_later_override_wins() -> None:
    (run,) = runs_of(HEADER + "Overriding: batch_size = 4\nOverriding: batch_size = 6\n" + FIRST)
    assert run.settings["batch_size"].value == 6


def test_what_follows_the_last_iteration_does_not_change_the_settings() -> None:
    (run,) = runs_of(HEADER + FIRST + "number of parameters: 1.00M\nbatch_size = 99\n")
    assert run.settings["n_params"].value == 10.65e6
    assert run.settings["batch_size"].value == 12


def test_log_interval_is_inferred_from_the_numbers() -> None:
    (run,) = runs_of(FIRST)
    assert (run.settings["log_interval"].value, run.settings["log_interval"].origin) == (10, Origin.INFERRED)


def test_clock_without_a_date_goes_on_after_midnight() -> None:
    stamps = ["23:59:50 ", "23:59:58 ", "00:00:06 ", "00:00:14 "]
    (run,) = runs_of("".join(f"{stamp}iter {i}: loss 4, time 8000ms\n" for i, stamp in enumerate(stamps)))
    assert (run.iterations.stamp_s - run.iterations.stamp_s[0]).tolist() == [0, 8, 16, 24]


def test_unread_lines_go_with_their_run() -> None:
    first, second = runs_of("hello\n" + FIRST + HEADER + "you there\nand you\n" + SECOND)
    assert (first.unread_count, second.unread_count) == (1, 2)
    assert [unread.text for unread in second.unread] == ["you there", "and you"]


@pytest.mark.parametrize("shape", ["runs", "zeros", "events", "falling"])
def test_time_grows_with_the_log_not_with_its_square(shape: str) -> None:
    def cost(count: int) -> float:
        line = {
            "runs": "iter 0: loss 4, time {i}.00ms, mfu -100.00%\nstep 5: train loss 1, val loss 1\nwhat\n",
            "zeros": "iter 9: time 5ms\niter 0: time {i}ms\nwhat\n",
            "events": "step {i}: train loss 1, val loss 1\nsaving checkpoint\niter {i}: time 5ms, mfu -100.00%\n",
            "falling": "step 1: train loss 1, val loss 1\niter 1: loss 4, time {i}ms, mfu -100.00%\n",
        }[shape]
        text = from_text("".join(line.format(i=i + 1) for i in range(count)))
        began = time.process_time()  # of this process alone: the machine may be busy with others
        read(text)
        return time.process_time() - began

    cost(100)
    assert cost(2000) < 16 * max(cost(250), 0.01)


@pytest.mark.parametrize("begin", [1, 10, 125])
def test_a_run_that_begins_again_with_its_first_number_is_another_run(begin: int) -> None:
    numbers = range(begin, begin + 40 * begin, begin)
    first, second = (rows(numbers, ms=ms, first_ms=first_ms, mfu=False) for ms, first_ms in ((100, 9000), (200, 8000)))
    assert spans(first + second) == [(numbers[0], numbers[-1])] * 2
    assert spans(first + first) == [(numbers[0], numbers[-1])]  # pasted twice


def test_one_row_that_is_alike_makes_no_copy_of_a_run() -> None:
    again = FIRST.replace("time 10", "time 15")  # all but the first, slow one
    assert spans(HEADER + FIRST + HEADER + again) == [(0, 90), (0, 90)]
    assert spans(HEADER + FIRST + HEADER + FIRST) == [(0, 90)]


def test_fits_that_differ_in_nothing_but_the_loss_are_runs_of_their_own() -> None:
    again = FIRST.replace("loss 4.0000", "loss 3.5000")
    assert spans(HEADER + FIRST + HEADER + again) == [(0, 90), (0, 90)]


def excerpt(numbers: range, ms: float) -> str:
    return "".join(f"iter {number}: loss 4.0, time {ms + number % 7 / 10:.2f}ms, mfu 12.00%\n" for number in numbers)


@pytest.mark.parametrize(
    ("second", "count"),
    [
        (excerpt(range(4990, 5000), 47.0), 2),
        (excerpt(range(4990, 5000), 20.0), 1),  # about as fast: the same run, logged more closely
        (excerpt(range(4990, 5080, 10), 47.0), 1),  # as far apart: one run that became slower
    ],
)
def test_excerpts_of_two_runs_in_one_paste_are_two_runs(second: str, count: int) -> None:
    assert len(read(from_text(excerpt(range(4900, 5000, 10), 16.0) + second))) == count
