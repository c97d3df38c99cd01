"""Loops of one's own that print a line for each epoch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from stepwatch.analysis import analyse
from stepwatch.errors import NoIterations
from stepwatch.readers import read
from stepwatch.run import Run
from stepwatch.sources import from_text

BEGIN = datetime(2026, 3, 4, 9, 0, 0, tzinfo=UTC)
DATED, POINTED = "%Y-%m-%d %H:%M:%S,250 - INFO - ", "[%m.%d.%y|%H:%M:%S] "


def dated(form: str, epochs: int, *, first: int = 1, every_s: float = 60.0, begin_s: float = 0.0, more: str = "",
          clock: str = DATED) -> list[str]:  # fmt: skip
    lines = []
    for n in range(epochs):
        at = BEGIN + timedelta(seconds=begin_s + every_s * (n + 1))
        lines.append(at.strftime(clock) + form.format(n=first + n, loss=2 - n / 100))
        lines += [at.strftime(clock) + more.format(loss=2 - n / 100)] * bool(more)
    return lines


def runs_of(*lines: str) -> tuple[Run, ...]:
    return read(from_text("\n".join(lines)))


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(
    "form",
    ["Epoch {n}: train loss {loss}, test acc 0.7", "Epoch {n}: {{'loss': {loss}}}", "Epoch [{n}/40] Loss: {loss}"],
)
def test_the_clock_from_line_to_line_is_the_time_of_an_epoch(form: str, first: int) -> None:
    (run,) = runs_of("loading data", *dated(form, 12, first=first))
    assert (run.format, run.traits.counts_epochs) == ("epoch-lines", True)
    assert run.iterations.number.tolist() == list(range(1, 13))
    assert run.iterations.time_s[1:].tolist() == pytest.approx([60.0] * 11)
    assert run.iterations.loss.tolist() == pytest.approx([2 - n / 100 for n in range(12)])
    assert run.settings.count("max_iters") == (40 if "/40" in form else None)


def test_a_million_epochs_are_not_the_end() -> None:
    (run,) = runs_of(*dated("Epoch {n}/20000000: loss {loss}", 12, first=999_995))
    assert run.iterations.number.tolist() == list(range(999_995, 1_000_007))
    assert run.settings.count("max_iters") == 20_000_000


@pytest.mark.parametrize("clock", [DATED, POINTED])
@pytest.mark.parametrize("form", ["Starting epoch {n}/8", "Training epoch: {n}"])
def test_lines_at_the_beginning_of_an_epoch_time_the_one_before(form: str, clock: str) -> None:
    results = "Iter 0 Done. | loss: {loss}"
    (run,) = runs_of(*dated(form, 8, more=results, clock=clock))
    assert run.iterations.number.tolist() == list(range(1, 8))  # the last has not ended
    assert run.iterations.time_s.tolist() == pytest.approx([60.0] * 7)
    with pytest.raises(NoIterations):
        runs_of(*dated(form, 8))


def test_results_end_an_epoch_whose_beginning_is_a_line_too() -> None:
    begins = dated("Starting epoch {n}/6", 6)
    ends = dated("Epoch {n} validation loss: {loss}", 6, begin_s=50.0)
    (run,) = runs_of(*(line for pair in zip(begins, ends, strict=True) for line in pair))
    assert run.iterations.number.tolist() == list(range(1, 7))
    assert run.settings.count("max_iters") == 6
    assert analyse(run).goodput.wall_s == pytest.approx(350.0, rel=0.01)


def test_epochs_that_begin_again_are_another_run() -> None:
    first = dated("Epoch {n}: loss {loss}", 6)
    runs = runs_of(*first, *dated("Epoch {n}: loss {loss}", 9, begin_s=1000.0, every_s=45.0))
    assert [run.iterations.number.tolist() for run in runs] == [list(range(1, 7)), list(range(1, 10))]
    assert runs[1].iterations.time_s[1:].tolist() == pytest.approx([45.0] * 8)


@pytest.mark.parametrize("took", ["Time taken: 0:00:45.250", "time: 45.25s", "took 45.25 seconds"])
def test_a_time_on_the_line_is_that_of_the_epoch(took: str) -> None:
    (run,) = runs_of(*(f"Epoch: {n}/100 Train accuracy: 0.5 Loss {2 - n / 100} {took}" for n in range(1, 11)))
    assert run.iterations.time_s.tolist() == pytest.approx([45.25] * 10)
    assert run.settings.count("max_iters") == 100


def test_a_time_since_the_beginning_is_not_that_of_an_epoch() -> None:
    with pytest.raises(NoIterations):
        runs_of(*(f"Epoch: {n}/100 Loss {2 - n / 100} time: {45 * n}s" for n in range(1, 11)))


@pytest.mark.parametrize(
    "lines",
    [
        dated("Epoch {n}: train loss {loss}", 2),  # too few
        dated("Epoch {n}: cleaned the cache", 12),  # nothing is learnt
        [f"Epoch {n}: train loss {2 - n / 100}" for n in range(12)],  # no time
        dated("Epoch 3: train loss {loss}", 12),
        dated("Epoch {n}: step 100, loss {loss}", 12),
        dated("Request {n}: loss {loss}", 12),
    ],
)
def test_other_lines_are_no_epochs(lines: list[str]) -> None:
    with pytest.raises(NoIterations):
        runs_of(*lines)


def test_any_other_format_is_the_better_one() -> None:
    steps = [f"iter {n}: loss 4.2000, time {100 + n % 3:.2f}ms, mfu 5.00%" for n in range(0, 300, 10)]
    (run,) = runs_of(*dated("Epoch {n}: loss {loss}", 40), *steps)
    assert run.format == "nanogpt"


def test_an_error_behind_the_epochs_ends_the_run() -> None:
    (run,) = runs_of(*dated("Epoch {n}: loss {loss}", 8), "RuntimeError: CUDA out of memory. Tried to allocate")
    assert len(run.faults) == 1


def tutorial(*trainings: str, epochs: int = 5) -> list[str]:
    """As PyTorch's tutorial prints it: epochs without a time, and the time of all behind them."""
    lines = []
    for total in trainings:
        for n in range(epochs):
            lines += [f"Epoch {n}/{epochs - 1}", "-" * 10, "train Loss: 0.51 Acc: 0.71", "val Loss: 0.42 Acc: 0.8", ""]
        lines += [total, "Best val Acc: 0.81", ""]
    return lines


@pytest.mark.parametrize(
    ("total", "seconds"),
    [
        ("Training complete in 26m 32s", 1592.0),
        ("Training completed in 1h 2m 3s", 3723.0),
        ("Total time taken 1:20:07.5", 4807.5),
        ("Total training time: 90.5 seconds", 90.5),
        ("Training finished! Total: 1.5 hours", 5400.0),
    ],
)
def test_a_total_behind_epochs_without_a_time_is_divided_among_them(total: str, seconds: float) -> None:
    first, second = runs_of(*tutorial(total, "Training complete in 1m 40s"))
    a = analyse(first)
    assert (first.format, a.goodput.iterations, a.goodput.wall_s) == ("epoch-lines", 5, pytest.approx(seconds))
    assert a.costs.step_s.mid == pytest.approx(seconds / 5)
    assert first.settings.count("max_iters") == 5
    assert analyse(second).costs.step_s.mid == pytest.approx(20.0)


def test_a_time_behind_every_epoch_or_behind_several_runs_is_no_total_of_one() -> None:
    lines = tutorial("Training done in 1m 0s")
    each = [line.replace("val Loss: 0.42 Acc: 0.8", "Training time: 12.5 s") for line in lines]
    with pytest.raises(NoIterations):
        runs_of(*each)
    with pytest.raises(NoIterations):
        runs_of(*tutorial("no time here", "Total time: 100 s"))


def test_what_the_total_has_beyond_the_times_of_the_epochs_is_in_the_time_of_the_run() -> None:
    epochs = [f"Epoch: {n}/6 Train accuracy: 0.7 Loss 0.05{n} Time taken: 0:00:45.5" for n in range(1, 7)]
    (run,) = runs_of(*epochs, "Total time taken 0:05:00.0")
    a = analyse(run)
    assert a.goodput.wall_s == pytest.approx(300.0)
    assert a.costs.step_s.mid == pytest.approx(45.5)
    assert a.goodput.parts_s["unexplained"] == pytest.approx(27.0)
    assert run.ended_by_plan


def test_a_run_is_timed_from_its_own_start_and_not_from_one_that_ended_in_its_first_epoch() -> None:
    broken = dated("Training epoch: {n}", 1, first=0, more="Iter 0 Done. | loss: {loss}")
    again = dated("Training epoch: {n}", 8, first=0, begin_s=7200.0, more="Iter 0 Done. | loss: {loss}")
    *_, run = runs_of(*broken, *again)
    assert analyse(run).goodput.wall_s == pytest.approx(7 * 60.0)


@pytest.mark.parametrize("form", ["Epoch {n}/9 [31.5s] | LR: 1e-5 | Train Loss: 0.5", "Epoch {n} (31.5 sec) loss: 0.5"])
def test_a_time_in_brackets_is_that_of_the_epoch(form: str) -> None:
    first, second = runs_of(*(form.format(n=n) for n in (1, 2, 1, 2, 3, 4, 5)))
    assert (len(first.iterations), second.iterations.time_s.tolist()) == (2, [31.5] * 5)


def test_one_slow_epoch_is_no_evaluation() -> None:
    lines = [f"Epoch {n}/20 | loss: 0.5 | time: {64 if n == 5 else 28}.5s" for n in range(1, 6)]
    (run,) = runs_of(*lines)
    a = analyse(run)
    assert (a.phases.evaluations, a.costs.eval_s) == (0, None)


@pytest.mark.parametrize(
    ("result", "saved"),
    [(" - {s}s - loss: 0.5 - val_loss: 0.7", "\nEpoch 0000{n}: val_acc improved, saving model to best.h5"),
     ("{s}s - loss: 0.5 - val_loss: 0.7", "")],
)  # fmt: skip
@pytest.mark.parametrize("save_first", [False, True])
@pytest.mark.parametrize("before", ["", "Epoch 1/9\n" + "conv2d (Conv2D)  (None, 28, 28, 256)\n" * 8000])
def test_results_below_the_number_of_the_epoch(result: str, saved: str, save_first: bool, before: str) -> None:
    """As Keras printed them with verbose=2; also where the first piece of the log has none of them."""
    lines = [before]
    for begin in (30, 50):
        for n in range(1, 6):
            parts = [result.format(s=begin + n), saved.format(n=n)]
            lines += [f"Epoch {n}/9", *(part for part in (reversed(parts) if save_first else parts) if part)]
    first, second = runs_of(*lines)
    for run, begin in ((first, 30), (second, 50)):
        assert (run.format, run.settings.count("max_iters")) == ("epoch-lines", 9)
        assert run.iterations.number.tolist() == [1, 2, 3, 4, 5]
        assert run.iterations.time_s.tolist() == [begin + n for n in range(1, 6)]
        assert run.iterations.loss.tolist() == [0.5] * 5


def test_results_without_the_number_of_an_epoch_are_none() -> None:
    with pytest.raises(NoIterations):
        runs_of(*[" - 30s - loss: 0.5 - val_loss: 0.7"] * 5)


@pytest.mark.parametrize("name", ["epoch time=", "epoch_time: "])
def test_a_time_that_was_not_rounded_is_in_seconds(name: str) -> None:
    form = "epoch={n}/12,total_loss=0.5, 1 {name}{took}, left time=0.2"
    (run,) = runs_of(*(form.format(n=n, name=name, took=f"{45 + n / 100:.3f}") for n in range(12)))
    assert run.iterations.number.tolist() == list(range(1, 13))
    assert run.iterations.time_s.tolist() == pytest.approx([45 + n / 100 for n in range(12)])
    assert run.settings.count("max_iters") == 12
    for took in ("45", "45.250 min", "45.250m"):  # may be minutes
        with pytest.raises(NoIterations):
            runs_of(*(form.format(n=n, name=name, took=took) for n in range(12)))


def test_one_epoch_of_a_start_is_not_that_of_the_next() -> None:
    form = "Epoch [{n}/40], Train Loss: {loss}"
    first, alone = dated(form, 6), dated("Epoch [{n}/80], Train Loss: {loss}", 1, begin_s=1000.0)
    runs = runs_of(*first, *alone, *dated(form, 9, begin_s=9000.0, every_s=45.0))
    assert [run.iterations.number.tolist() for run in runs] == [list(range(1, 7)), list(range(1, 10))]
    assert [run.settings.count("max_iters") for run in runs] == [40, 40]
    assert analyse(runs[1]).goodput.wall_s == pytest.approx(9 * 45.0)


def test_one_epoch_whose_beginning_is_known_is_a_run() -> None:
    lines = []
    for epochs, begin_s, every_s in ((6, 0.0, 60.0), (1, 1000.0, 50.0), (9, 9000.0, 45.0)):
        lines += dated("Starting epoch {n}/9", 1, begin_s=begin_s - every_s, every_s=every_s)
        lines += dated("Epoch {n}: loss {loss}", epochs, begin_s=begin_s, every_s=every_s)
    runs = runs_of(*lines)
    assert [len(run.iterations) for run in runs] == [6, 1, 9]
    assert [float(run.iterations.time_s.sum()) for run in runs] == pytest.approx([360.0, 50.0, 405.0])


def test_the_last_epoch_that_starts_ends_with_the_training() -> None:
    """As YOLOX prints it; every start of the program has such a line."""
    lines = []
    more = "iter: 10/47, total_loss: {loss}"
    for epochs, begin_s, every_s in ((5, 0.0, 60.0), (8, 5000.0, 45.0)):
        lines += dated("---> start train epoch{n}", epochs, begin_s=begin_s, every_s=every_s, more=more)
        end_s = begin_s + every_s * epochs
        lines += dated("Training of experiment is done and the best AP is 0.5", 1, begin_s=end_s, every_s=every_s)
    runs = runs_of(*lines)
    assert [run.iterations.number.tolist() for run in runs] == [list(range(1, 6)), list(range(1, 9))]
    assert [float(run.iterations.time_s.sum()) for run in runs] == pytest.approx([300.0, 360.0])


@pytest.mark.parametrize("form", [
    "[epoch:{n}/40] [loss:{loss}] [lr:0.1] [Time:[2026-03-04 09:00:00]] [total time:0:02:27]",
                                  "Train epoch {n}, total time 147.02, accuracy:{loss}"])  # fmt: skip
def test_a_total_of_the_epoch_is_its_time(form: str) -> None:
    (run,) = runs_of("loading data", *(form.format(n=n, loss=2 - n / 100) for n in range(1, 11)))
    assert run.iterations.number.tolist() == list(range(1, 11))
    assert run.iterations.time_s.tolist() == pytest.approx([147.0] * 10, abs=0.1)


def test_a_clock_shows_that_a_time_without_a_unit_is_not_in_seconds() -> None:
    (run,) = runs_of(*dated("Epoch {n}: loss {loss}, time 1.00", 12))
    assert run.iterations.time_s[1:].tolist() == pytest.approx([60.0] * 11)


@pytest.mark.parametrize("time", ["Time 0.321", "Time 3.211 (3.302)", "time: 147.02 ms", "time 3.21h"])
def test_the_time_of_a_batch_or_in_another_unit_is_not_that_of_the_epoch(time: str) -> None:
    with pytest.raises(NoIterations):
        runs_of(*(f"Epoch {n} {time} loss: 0.5" for n in range(1, 11)))


def test_epochs_that_took_no_second_have_no_time() -> None:
    with pytest.raises(NoIterations):
        runs_of(*(f"Epoch {n}/9 loss 0.5 took 0s" for n in range(1, 6)))


def test_results_of_a_cut_epoch_do_not_hide_those_that_follow() -> None:
    (run,) = runs_of("31s - loss: 0.5", *(line for n in range(2, 7) for line in (f"Epoch {n}/9", f"3{n}s - loss: 0.5")))
    assert run.iterations.time_s.tolist() == [32, 33, 34, 35, 36]
