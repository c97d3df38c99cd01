"""A format taught by one example line."""

from __future__ import annotations

import time
from contextlib import suppress
from statistics import median

import pytest

from stepwatch.errors import NoIterations, UsageError
from stepwatch.readers import detect, read
from stepwatch.readers.formats.like import reader_like
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
        ("epoch 12: 0.34 s", 12, 0.34, None),
        ("step 000012 | loss 3.4 | lrm 1.0 | dt_ms 340.0", 12, 0.34, 3.4), ("12: 0.34 s, eta 3 min", 12, 0.34, None),
        ("[trainer] n=12 3f9a 0.34s/it", 12, 0.34, None), ("update 12: total 99 s, took 0.34 s", 12, 0.34, None),
        ("2024-05-04 09:30:00 INFO step 12 elapsed (ms): 340", 12, 0.34, None),
        ("Epoch [1][12/750]\tlr: 0.1, eta: 4:33:09, time: 0.34, data_time: 0.03, loss_a: 1, loss: 0.5", 12, 0.34, 0.5),
        ("Epoch: [0][  12/500]\tTime  0.340 ( 1.512)\tLoss 6.9e+00 (6.9e+00)", 12, 0.34, 6.9),
        ("| epoch   1 |    12/ 2610 batches | lr 0.00 | ms/batch 340.00 | loss  9.25", 12, 0.34, 9.25),
        ("epoch 0, iteration 12/149 | global_batch_size: 1 | step_timing in s: 0.34 | val_loss: 4.1", 12, 0.34, None),
        ("Train: 2 [  12/1251 (  4%)]  Loss: 6.9 (6.9)  Time: 0.34s,  300.02/s  Data: 0.01", 12, 0.34, 6.9),
        ('{"step": 12, "time_s": 0.34, "loss": 3.5}', 12, 0.34, 3.5),
        ('{"epoch": 1, "iter": 12, "memory": 6836, "data_time": 0.03, "loss": 0.5, "time": 0.34}', 12, 0.34, 0.5),
        ('{"at": "2024-05-04T09:30:07.25", "global_step": 12, "step_time": 0.34, "train_loss": 3.5}', 12, 0.34, 3.5),
        ("12,0.34s,3.2", 12, 0.34, None), ("100,340ms,3.2", 100, 0.34, None),
        ("step=12,time=0.34,loss=3.5", 12, 0.34, 3.5), ("Step 1,200/10,000 | 340.0 ms", 1200, 0.34, None),
        ("step 12 took 0:00:00.34", 12, 0.34, None), ("iter12: loss 3.5e+00, 3.4e-01 s", 12, 0.34, 3.5),
        ("step_000012 dt 0.34", 12, 0.34, None), ("steps/s: 2.5 step: 12", 12, 0.4, None),
        ("step 12 | s/it: 0.34 | tokens/s: 1234", 12, 0.34, None), ("Batch 12 of 500: 0.34 sec/batch", 12, 0.34, None),
        ("12/500 loss=3.5 time (ms): 340", 12, 0.34, 3.5), ("n: 12 sec: 0.34", 12, 0.34, None),
        ("step 12 | data 0.002 s | fwd 0.1 s | step 0.34 s", 12, 0.34, None), ("step 12. took 0.34 s.", 12, 0.34, None),
        ("step 12 eta 1h 2m 3s 0.34 s/it", 12, 0.34, None), ("gpu 0/8 step 12 0.34s", 12, 0.34, None),
        ("12 of 500 iterations, 340 ms per step", 12, 0.34, None),
        ("step: 12 | elapsed time per iteration (ms): 340.0 | 5 min left", 12, 0.34, None),
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


def test_only_what_follows_the_number_is_the_length_of_the_run() -> None:
    example = "[09/10 10:38:03 a.b]: iteration: 19/900  time: 7.5 s/iter  acc: 3/4"
    assert the_run(example, example).settings.count("max_iters") == 900
    example = "gpu 0/8 step 12 0.34s"
    assert the_run(example, example).settings.count("max_iters") is None


def of_epochs(shape: str, epochs: int, numbers: range, first_epoch: int = 1) -> str:
    return "".join(f"{shape.format(e=e, n=n)}\n" for e in range(first_epoch, first_epoch + epochs) for n in numbers)


@pytest.mark.parametrize("first_epoch", [0, 1])
def test_numbers_go_on_where_an_epoch_begins_its_own(first_epoch: int) -> None:
    text = of_epochs("Epoch [{e}][{n}/100] time: 0.5", 3, range(20, 101, 20), first_epoch)
    run = the_run(text, "Epoch [1][20/100] time: 0.5")
    assert run.iterations.number.tolist() == list(range(20, 301, 20))
    assert run.settings.count("max_iters") is None  # no line tells how many epochs there are


def test_the_length_of_an_epoch_is_seen_where_no_line_tells_it() -> None:
    text = of_epochs("epoch {e} batch {n} took 0.5 s", 2, range(0, 100, 10))
    run = the_run(text, "epoch 1 batch 0 took 0.5 s")
    assert run.iterations.number.tolist() == list(range(0, 200, 10))


def test_epochs_and_their_length_tell_that_of_the_run() -> None:
    text = of_epochs("Epoch {e}/4, step {n}/100, 0.5 s", 2, range(20, 101, 20))
    assert the_run(text, "Epoch 1/4, step 20/100, 0.5 s").settings.count("max_iters") == 400


def test_numbers_that_go_on_through_epochs_are_left() -> None:
    text = "".join(f"epoch {n // 100} step {n}/1000 0.5 s\n" for n in range(0, 500, 20))
    run = the_run(text, "epoch 0 step 20/1000 0.5 s")
    assert run.iterations.number.tolist() == list(range(0, 500, 20))
    assert run.settings.count("max_iters") == 1000


def test_the_end_of_the_only_epoch_in_the_log_is_not_that_of_the_run() -> None:
    text = of_epochs("epoch {e} step {n}/100 0.5 s", 1, range(20, 60, 20))
    assert the_run(text, "epoch 1 step 20/100 0.5 s").settings.count("max_iters") is None


@pytest.mark.parametrize("shape", ["step {n} elapsed {s:.1f} s", "step {n} | {s:.1f} s", "step {n} total time: {c}"])
def test_a_clock_that_runs_on_gives_the_times_between_its_lines(shape: str) -> None:
    lines = [shape.format(n=n, s=5 * n, c=f"{n // 12}:{5 * n % 60:02d}") for n in range(1, 40)]
    times = the_run("\n".join(lines), lines[20]).iterations.time_s
    assert len(times) == 39
    assert times.tolist() == pytest.approx([5.0] * 39, rel=0.15)


@pytest.mark.parametrize("shape", ["step {n} elapsed {s:.2f} s", "step {n} took 0:00:0{s:.2f}"])
def test_times_that_fall_are_those_of_iterations(shape: str) -> None:
    times = [0.5, 0.52, 0.51, 0.53, 0.54, 0.55, 0.5, 0.6]
    lines = [shape.format(n=n, s=s) for n, s in enumerate(times, 1)]
    assert the_run("\n".join(lines), lines[0]).iterations.time_s.tolist() == pytest.approx(times)


def test_a_step_that_slowly_grows_is_no_clock() -> None:
    lines = [f"step {n} took {0.5 + 0.01 * n:.2f} s" for n in range(30)]
    assert the_run("\n".join(lines), lines[0]).iterations.time_s[-1] == pytest.approx(0.79)


def test_evaluations_and_saves_that_lines_tell_are_known() -> None:
    text = "9 | 0.5 s\nstep 10: train loss 3.2, val loss 3.5\nsaving checkpoint to out\n10 | 9.5 s\n11 | 0.5 s\n"
    run = the_run(text, "9 | 0.5 s")
    assert [(e.at, e.val_loss) for e in run.evaluations] == [(10, 3.5)]
    assert [c.at for c in run.checkpoints] == [10]


def test_columns_and_patterns_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = of_epochs("Epoch: [{e}][{n:4d}/500]\tTime  0.3{n:02d} ( 1.512)\t{{x}} took 0:12", 2, range(10, 100, 10))
    example = text.splitlines()[3]
    fast = the_run(text, example).iterations
    monkeypatch.setattr("stepwatch.readers.text.line_format.alike", lambda *_, **__: ())
    slow = the_run(text, example).iterations
    for name in ("number", "time_s", "line"):
        assert getattr(fast, name).tolist() == getattr(slow, name).tolist()


def test_near_misses_are_shown_and_other_lines_are_not() -> None:
    run = the_run("it 12 | 0.34 s\nloading\nit 13 | n/a s\n", "it 12 | 0.34 s")
    assert [unread.text for unread in run.unread] == ["it 13 | n/a s"]


@pytest.mark.parametrize(
    "example", ["", "hello", "it 12", "0.34 s", "12 3.4", "it twelve | 0.34 s", "eta 3 min", "\x00", "((("]
)
def test_an_example_without_number_or_time_is_refused(example: str) -> None:
    with pytest.raises(UsageError):
        reader_like(example)


def test_a_log_without_such_lines_is_refused() -> None:
    with pytest.raises(NoIterations, match="no line of the log is like"):
        read(from_text("step 3: 4 ms\n"), like="it 12 | 0.34 s")


@pytest.mark.parametrize("example", ["it 12 | 0.34 s (a+)+$ [x", "it 12 {n} | 0.34 s", "it 12 .*.*.*.*.*.*.* 0.34 s"])
def test_what_means_something_to_a_pattern_is_taken_as_it_stands(example: str) -> None:
    assert len(the_run(example + "\n" + "it 12 " + "a" * 3000 + "\n", example).iterations) == 1


@pytest.mark.parametrize(
    "unit", ["1 ", "1,", "11,", "1.", "step ", "loss ", "eta 1h ", "a:", "9", "s/it ", "val loss "]
)
def test_no_line_takes_long(unit: str) -> None:
    hostile = unit * (3000 // len(unit))
    began = time.process_time()
    for example in ("1,2,3,4,5,6,7,8,0.3s", "step 1 2 3 4 5 6 7 8 9 0.3 s", hostile[:360] + " step 12 0.3 s"):
        with suppress(UsageError):  # the last example may show no number
            the_run((hostile + "\n") * 20 + example + "\n", example)
    assert time.process_time() - began < 5


def test_it_is_used_only_when_asked_for() -> None:
    assert detect(from_text("it 12 | 0.34 s\nit 13 | 0.34 s\n")) is None
    with pytest.raises(NoIterations) as error:
        read(from_text("it 12 | 0.34 s\n"))
    assert error.value.remedy is not None
    assert "--like" in error.value.remedy.in_english()


def test_a_decimal_comma_in_the_example_is_refused() -> None:
    with pytest.raises(UsageError, match="decimal comma"):
        read(from_text("Schritt 12: Verlust 3,21, Zeit 0,34 s\n"), like="Schritt 12: Verlust 3,21, Zeit 0,34 s")


def test_a_rate_before_the_time_is_not_taken_for_it() -> None:
    text = "".join(f"step {n} | 48,188 tok/s | 340 ms\n" for n in range(20))
    (run,) = read(from_text(text), like="step 12 | 48,188 tok/s | 340 ms")
    assert run.iterations.time_s.tolist() == [0.34] * 20
    assert run.iterations.reported_tokens_per_s.tolist() == [48188.0] * 20


def test_a_number_behind_any_word_is_taken_where_there_is_no_other() -> None:
    (run,) = read(
        from_text("".join(f"lap {n} took 0.2{n} seconds\n" for n in range(9))), like="lap 12 took 0.20 seconds"
    )
    assert run.iterations.number.tolist() == list(range(9))


# --- what the other lines of the log show -----------------------------------------------------------------------------


def stamped(second: float, line: str) -> str:
    return f"2024-05-04 {9 + int(second) // 3600:02d}:{int(second) % 3600 // 60:02d}:{second % 60:06.3f} {line}"


def usual(run: Run) -> float:
    return median(run.iterations.time_s.tolist())


@pytest.mark.parametrize(
    ("unit", "seconds"),
    [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("usec", 1e-6), ("ms", 1e-3), ("msec", 1e-3), ("milliseconds", 1e-3),
     ("s", 1), ("sec", 1), ("secs", 1), ("seconds", 1), ("m", 60), ("min", 60), ("mins", 60), ("minutes", 60),
     ("h", 3600), ("hr", 3600), ("hrs", 3600), ("hours", 3600), ("d", 86400), ("days", 86400)],
)  # fmt: skip
@pytest.mark.parametrize("gap", ["", " "])
def test_units_are_those_that_people_write(unit: str, seconds: float, gap: str) -> None:
    lines = [f"round {n} | took {2.5 + n % 2 / 10}{gap}{unit} | loss 3.{n}" for n in range(1, 9)]
    run = the_run("\n".join(lines), lines[3])
    assert run.iterations.time_s.tolist() == pytest.approx([(2.5 + n % 2 / 10) * seconds for n in range(1, 9)])


@pytest.mark.parametrize("amount", ["1.6M", "1.6M tok", "1.6B"])
def test_capitals_behind_a_number_are_no_unit_of_time(amount: str) -> None:
    with pytest.raises(UsageError):
        reader_like(f"round 12 | seen {amount}")


def test_a_time_that_counts_down_is_what_is_left() -> None:
    lines = [f"Lap:[1/1]({n}/4000) loss:4.{n % 10} round_time:{(4000 - n) / 100:.1f}min" for n in range(100, 4000, 100)]
    with pytest.raises(NoIterations, match="“round_time” counts down"):
        the_run("\n".join(lines), lines[7])
    dressed = [stamped(0.6 * n, line) for n, line in zip(range(100, 4000, 100), lines, strict=True)]
    run = the_run("\n".join(dressed), dressed[7])
    assert run.understood is not None
    assert run.understood.meaning == "clock"
    assert run.understood.disagrees
    assert usual(run) == pytest.approx(0.6, rel=0.01)


def test_a_step_that_becomes_faster_does_not_count_down() -> None:
    times = [9.0, 4.0, 2.1, 2.0, 2.05, 1.98, 2.02, 2.0, 1.99, 2.01]
    lines = [f"round {n} took {s:.2f} s" for n, s in enumerate(times)]
    assert the_run("\n".join(lines), lines[5]).iterations.time_s.tolist() == pytest.approx(times)


def test_minutes_since_the_start_give_the_times_between_lines() -> None:
    lines = [f"{n}/20000 loss: 3.{n % 10} train_time: {n * 0.12 / 60:.1f}m tok/s: 82{n}" for n in range(500, 9500, 500)]
    run = the_run("\n".join(lines), lines[4])
    assert usual(run) == pytest.approx(0.12, rel=0.03)
    assert run.understood is not None
    assert (run.understood.meaning, run.understood.word, run.understood.unit) == ("elapsed", "train_time", "min")


def test_all_of_a_long_line_is_looked_at() -> None:
    parts = " ".join(f"loss_{name}: 0.{place}" for place, name in enumerate("abcdefghijklmnopqrstuvwxyz" * 3))
    lines = [f"iter: {n} {parts} time: 0.{34 + n % 3} data_time: 0.002" for n in range(20)]
    assert len(lines[0]) > 800
    assert usual(the_run("\n".join(lines), lines[3])) == pytest.approx(0.35)
    with pytest.raises(UsageError, match="more than"):
        reader_like("it 12 | 0.34 s " + "x" * 4000)


def test_waiting_for_data_is_not_the_step() -> None:
    lines = [f'{{"data_time": 0.00{n % 3 + 1}, "iteration": {n}, "time": 2.{n % 5}}}' for n in range(20)]
    run = the_run("\n".join(lines), lines[3])
    assert usual(run) == pytest.approx(2.2)
    assert run.understood is not None
    assert run.understood.word == "time"


def test_epochs_are_called_so() -> None:
    lines = [f"Epoch {n}/100 | loss 0.{n} | time {20 + n % 3}.5s" for n in range(1, 20)]
    run = the_run("\n".join(lines), lines[3])
    assert run.traits.counts_epochs
    assert run.understood is not None
    assert run.understood.counts_epochs
    assert run.settings.count("max_iters") == 100


def test_the_time_of_a_batch_is_not_that_of_an_epoch() -> None:
    lines = [f"Epoch {n} done, 0.4{n % 3} s/it" for n in range(1, 20)]
    with pytest.raises(NoIterations, match="count epochs"):
        the_run("\n".join(lines), lines[3])


@pytest.mark.parametrize("drawn", [(500,), (100, 200, 300, 400, 500)])
def test_iterations_are_counted_within_a_number_that_counts_slower(drawn: tuple[int, ...]) -> None:
    lines = [f"  {e}/50  1.2G  {n}/500  0.4{n // 100} s/it" for e in range(1, 9) for n in drawn]
    run = the_run("\n".join(lines), lines[1])
    assert run.iterations.number.tolist() == [500 * e + n for e in range(8) for n in drawn]
    assert run.settings.count("max_iters") == 25000


@pytest.mark.parametrize(
    "shape",
    [
        "{stamp} step: {n}  loss: 3.{m}",
        '{{"timestamp": "{stamp}", "step": {n}, "loss": 3.{m}}}',
        '{{"step": {n}, "loss": 3.{m}, "ts": {unix:.3f}}}',
    ],
)
def test_the_clock_of_the_lines_is_enough(shape: str) -> None:
    lines = []
    for n in range(0, 400, 10):
        stamp = stamped(0.7 * n, "").strip()
        lines.append(shape.format(stamp=stamp, unix=1714813800 + 0.7 * n, n=n, m=n % 7))
    run = the_run("\n".join(lines), lines[5])
    assert usual(run) == pytest.approx(0.7, rel=0.01)
    assert run.understood is not None
    assert run.understood.meaning == "clock"
    assert not run.understood.disagrees


def test_a_clock_without_a_date_goes_on_after_midnight() -> None:
    seconds = [86400 - 200 + 10 * n for n in range(40)]
    lines = [f"{s // 3600 % 24:02d}:{s // 60 % 60:02d}:{s % 60:02d} step {n} loss 3.{n}" for n, s in enumerate(seconds)]
    assert usual(the_run("\n".join(lines), lines[5])) == pytest.approx(10.0)


def test_a_time_of_all_iterations_since_the_line_before_is_divided() -> None:
    lines = [stamped(0.34 * n, f"step {n} | {34 + n % 300 / 1000:.3f} s") for n in range(100, 3000, 100)]
    run = the_run("\n".join(lines), lines[5])
    assert usual(run) == pytest.approx(0.34, rel=0.02)
    assert run.understood is not None
    assert run.understood.meaning == "interval"
    bare = [line[24:] for line in lines]  # nothing then shows that it is not that of one iteration
    assert usual(the_run("\n".join(bare), bare[5])) == pytest.approx(34, rel=0.02)


def test_evaluations_between_the_lines_do_not_make_the_step_a_part() -> None:
    lines = [stamped(0.5 * n + 60 * (n // 100), f"step {n} time 0.{50 + n % 3} s") for n in range(0, 2000, 100)]
    run = the_run("\n".join(lines), lines[5])
    assert run.understood is not None
    assert run.understood.meaning == "step"


def test_a_unit_that_is_not_printed_is_shown_by_the_clock() -> None:
    lines = [stamped(0.34 * n, f"step {n} time {340 + n % 3}") for n in range(60)]
    run = the_run("\n".join(lines), lines[5])
    assert usual(run) == pytest.approx(0.341, rel=0.01)
    assert run.understood is not None
    assert (run.understood.unit, run.understood.unit_assumed) == ("ms", True)
    bare = the_run("\n".join(line[24:] for line in lines), lines[5][24:])
    assert bare.understood is not None
    assert (bare.understood.unit, bare.understood.unit_assumed) == ("s", True)


def test_no_run_takes_a_year() -> None:
    lines = [f"step {n}/500000 time {340 + n % 3}" for n in range(60)]
    assert usual(the_run("\n".join(lines), lines[5])) == pytest.approx(0.341, rel=0.01)
    lines = [f"step {n}/500000 time {340 + n % 3} s" for n in range(60)]
    with pytest.raises(NoIterations, match="no time in lines like"):
        the_run("\n".join(lines), lines[5])


def test_a_mean_since_the_start_is_undone() -> None:
    """Lines are far apart, and of the slow steps none is printed by itself: the mean in brackets has them."""
    lines = []
    for n in range(0, 1000, 10):
        mean = (0.5 * (n + 1) + 2.0 * (n // 5)) / (n + 1)
        lines.append(f"Epoch: [0][{n:4d}/1000]\tTime 0.5{n % 7} ( {mean:.5f})\tLoss 6.9 (6.9)")
    run = the_run("\n".join(lines), lines[5])
    assert run.understood is not None
    assert run.understood.meaning == "mean"
    assert usual(run) == pytest.approx(0.9, rel=0.02)


def test_a_timer_that_is_reset_is_still_a_clock() -> None:
    """As where compilation is not to count: the second column is the mean of the first."""
    passed = [0.4 * n if n < 10 else 0.2 * (n - 9) for n in range(1, 200)]
    lines = [f"lap:{n}/600 train_time:{1000 * s:.0f}ms lap_avg:{1000 * s / n:.2f}ms" for n, s in enumerate(passed, 1)]
    run = the_run("\n".join(lines), lines[100])
    assert usual(run) == pytest.approx(0.2, rel=0.01)
    late = lines[100:]  # where the clock has grown by little
    assert usual(the_run("\n".join(late), late[5])) == pytest.approx(0.2, rel=0.01)


def test_the_end_of_a_line_may_differ() -> None:
    lines = [f"it {n} | loss 3.{n} | 0.3{n % 5} s |{' eta 3 min' if n > 5 else ''} ok" for n in range(20)]
    assert len(the_run("\n".join(lines), lines[9]).iterations) == 20


def test_bars_are_drawn_differently_in_each_line() -> None:
    bars = [" " * 10, "██▉       ", "█████     ", "███████▎  ", "██████████"]
    lines = [f"Lap:  {20 * n}%|{bar}| {25 * n}/100 [00:10<00:20,  2.{n}s/it]" for n, bar in enumerate(bars)]
    assert the_run("\n".join(lines), lines[2]).iterations.number.tolist() == [0, 25, 50, 75, 100]


def test_numbers_that_do_not_count_are_refused() -> None:
    lines = [f"step {n * 7919 % 1009} 0.34 s" for n in range(60)]
    with pytest.raises(NoIterations, match="counts up"):
        the_run("\n".join(lines), lines[5])


def test_several_times_without_a_clock_are_a_doubt() -> None:
    lines = [f"step {n} | a 0.3{n % 3} s | b 0.9{n % 3} s" for n in range(20)]
    run = the_run("\n".join(lines), lines[5])
    assert run.understood is not None
    assert run.understood.doubtful
    settled = [stamped(0.95 * n, line) for n, line in enumerate(lines)]
    run = the_run("\n".join(settled), settled[5])
    assert run.understood is not None
    assert not run.understood.doubtful


def test_the_first_and_the_last_line_show_what_was_understood() -> None:
    lines = [f"it {n} | loss 3.{n} | 34{n} ms" for n in range(1, 10)]
    run = the_run("header\n" + "\n".join(lines), lines[4])
    assert run.understood is not None
    shown = [(line.line, line.text, line.number, line.loss, line.time_s) for line in run.understood.lines]
    assert shown == [(1, lines[0], 1, 3.1, pytest.approx(0.341)), (9, lines[8], 9, 3.9, pytest.approx(0.349))]


def test_what_comes_with_every_line_is_not_in_its_time() -> None:
    lines = [f"it {n} time 0.3{n % 3} s\nsaving checkpoint to out" for n in range(100, 2000, 100)]
    run = the_run("\n".join(lines), lines[0].splitlines()[0])
    assert run.holds == frozenset()


def test_a_log_that_stands_twice_in_a_file_is_one_run() -> None:
    text = "".join(stamped(0.5 * n, f"step {n} time 0.4{n % 3} s\n") for n in range(30))
    run = the_run(text + text, text.splitlines()[4])
    assert not run.reordered
    assert run.iterations.number.tolist() == list(range(30))
