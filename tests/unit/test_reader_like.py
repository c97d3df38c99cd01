"""A format taught by one example line."""

from __future__ import annotations

import pytest

from stepwatch.errors import NoIterations, UsageError
from stepwatch.readers import detect, read
from stepwatch.readers.like import like
from stepwatch.run import Run
from stepwatch.sources import from_text


def the_run(text: str, example: str) -> Run:
    (run,) = read(from_text(text), like=example)
    return run


@pytest.mark.parametrize(
    ("line", "number", "time_s", "loss"),
    [
        ("it 12 | 0.34 s", 12, 0.34, None), ("it 12 | 340ms", 12, 0.34, None), ("it 12 | 340000 us", 12, 0.34, None),
        ("it 12 | 0.5 min", 12, 30.0, None), ("it 12 | 4 it/s", 12, 0.25, None),
        ("Step 12 took 340 ms", 12, 0.34, None),
        ("epoch 3 batch 12 loss 0.5 (2.5 steps/s)", 12, 0.4, 0.5), ("iteration 12, time 0.34", 12, 0.34, None),
        ("step 12/500 train_loss=9 loss: 3.21 dt=340.0ms tok/s 12,000", 12, 0.34, 3.21),
        ("step 000012 | loss 3.4 | lrm 1.0 | dt_ms 340.0", 12, 0.34, 3.4), ("12: 0.34 s, eta 3 min", 12, 0.34, None),
        ("[trainer] n=12 3f9a 0.34s/it", 12, 0.34, None), ("update 12: total 99 s, took 0.34 s", 12, 0.34, None),
        ("2024-05-04 09:30:00 INFO step 12 elapsed (ms): 340", 12, 0.34, None),
    ],
)  # fmt: skip
def test_the_example_itself_is_read(line: str, number: int, time_s: float, loss: float | None) -> None:
    run = the_run(line + "\n", line)
    assert run.iterations.number.tolist() == [number]
    assert run.iterations.time_s.tolist() == pytest.approx([time_s])
    if loss is not None:
        assert run.iterations.loss[0] == loss


def test_other_lines_of_the_shape_are_read_padded_or_not() -> None:
    text = "it 12 | 0.34 s\nit   13 |  0.35 s\nit 1000000 | 1e-1 s\n2024-05-04 09:30:00 it 14 | 0.36 s\n"
    run = the_run(text, "it 12 | 0.34 s")
    assert sorted(run.iterations.time_s.tolist()) == pytest.approx([0.1, 0.34, 0.35, 0.36])


def test_the_slow_and_the_fast_path_agree() -> None:
    text = "".join(f"it {n} | 0.{n % 90 + 10} s\n" for n in range(3000))
    dressed = "".join(f"[rank0]: {line}\n" for line in text.splitlines())
    example = "it 12 | 0.34 s"
    assert the_run(text, example).iterations.time_s.tolist() == the_run(dressed, example).iterations.time_s.tolist()


def test_the_length_of_the_run_and_its_tokens_are_read() -> None:
    example = "step 3/500 0.25 s 12,000 tok/s"
    run = the_run(example.replace("3/", "4/") + "\n" + example.replace("3/", "5/"), example)
    assert run.settings.count("max_iters") == 500
    assert run.iterations.reported_tokens_per_s[0] == 12000


def test_near_misses_are_shown_and_other_lines_are_not() -> None:
    run = the_run("it 12 | 0.34 s\nloading\nit 13 | n/a s\n", "it 12 | 0.34 s")
    assert [unread.text for unread in run.unread] == ["it 13 | n/a s"]


@pytest.mark.parametrize(
    "example", ["", "hello", "it 12", "0.34 s", "12 3.4", "it twelve | 0.34 s", "eta 3 min", "\x00", "((("]
)
def test_an_example_without_number_or_time_is_refused(example: str) -> None:
    with pytest.raises(UsageError):
        like(example)


def test_a_log_without_such_lines_is_refused() -> None:
    with pytest.raises(NoIterations, match="no line of the log is like"):
        read(from_text("step 3: 4 ms\n"), like="it 12 | 0.34 s")


@pytest.mark.parametrize("example", ["it 12 | 0.34 s (a+)+$ [x", "it 12 {n} | 0.34 s", "it 12 .*.*.*.*.*.*.* 0.34 s"])
def test_what_means_something_to_a_pattern_is_taken_as_it_stands(example: str) -> None:
    assert len(the_run(example + "\n" + "it 12 " + "a" * 3000 + "\n", example).iterations) == 1


def test_it_is_used_only_when_asked_for() -> None:
    assert detect(from_text("it 12 | 0.34 s\nit 13 | 0.34 s\n")) is None
    with pytest.raises(NoIterations) as error:
        read(from_text("it 12 | 0.34 s\n"))
    assert error.value.remedy is not None
    assert "--like" in error.value.remedy.in_english()
