"""modded-nanogpt: a running total becomes times, whatever its version does with its clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from tools.formats_page import example_of

from stepwatch.analysis import analyse
from stepwatch.errors import NoIterations
from stepwatch.readers import read
from stepwatch.readers.formats.modded_nanogpt import FORMAT
from stepwatch.run import Run, Timing
from stepwatch.sources import from_text

LISTING = """\
====================================================================================================
import torch
class Hyperparameters:
    # optimization
    {sizes}
    val_loss_every = 50 # every how many steps to evaluate val loss? 0 for only at the end
args = Hyperparameters()
{more}
try: pass
except torch.OutOfMemoryError: print("CUDA out of memory")
print0(f"step:{{step+1}}/{{train_steps}} train_time:{{approx:.0f}}ms step_avg:{{approx/(step + 1):.2f}}ms")
====================================================================================================
Running PyTorch 2.10.0+cu128 compiled for CUDA 12.8
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:8D:00.0 Off |                    0 |
"""
IN_TOKENS = "batch_size = 8*64*1024 # batch size in tokens"
IN_SEQUENCES = """batch_size : int = 8*64 # batch size, in sequences, across all devices
    sequence_length : int = 1024 # sequence length, in tokens"""


def lines(
    steps: int,
    *,
    step_ms: Callable[[int], float] = lambda n: 200.0,
    reset: bool = False,
    ahead: bool = False,
    val: int = 50,
) -> Iterator[str]:
    """The clock of each version: set to zero after ten steps, or printed one step ahead of the card."""
    done = launched = 0.0
    for n in range(steps + 1):
        if n % val == 0 or n == steps:
            yield f"step:{n}/{steps} val_loss:4.5{n % 10} train_time:{done:.0f}ms step_avg:nanms"
            launched = done
        if n == steps:
            return
        if reset and n == 10:
            done = launched = 0.0
        begun = max(done, launched)
        launched = begun + 20.0 if ahead and n % val == 0 else begun
        done = begun + step_ms(n + 1) if not ahead else (done + step_ms(n + 1))
        shown = (launched if n % val == 0 else done - step_ms(n + 1) + 20.0) if ahead else done
        yield f"step:{n + 1}/{steps} train_time:{shown:.0f}ms step_avg:200.00ms"


def the_run(text: str) -> Run:
    (run,) = read(from_text(text))
    return run


def test_a_step_is_the_difference_of_two_lines() -> None:
    run = the_run("\n".join(lines(120, step_ms=lambda n: 200.0 + n)))
    assert run.format == "modded-nanogpt"
    assert run.timing is Timing.CUMULATIVE
    assert run.iterations.number.tolist() == list(range(1, 121))
    assert run.iterations.time_s.round(6).tolist() == [round(0.2 + n / 1000, 6) for n in range(1, 121)]
    assert [e.at for e in run.evaluations] == [0, 50, 100, 120]
    assert [e.took_s for e in run.evaluations] == [None] * 4
    assert run.settings.count("max_iters") == 120


def test_the_clock_may_be_set_to_zero_after_ten_steps() -> None:
    run = the_run("\n".join(lines(100, step_ms=lambda n: 75000.0 if n == 1 else 214.0, reset=True)))
    assert run.iterations.time_s.round(6).tolist() == [75.0] + [0.214] * 99


@pytest.mark.parametrize("earlier_ms", [0, 1])
@pytest.mark.parametrize("unit", ["ms", "s"])
def test_a_validation_that_shows_the_moment_of_a_step_again_sets_no_clock_to_zero(unit: str, earlier_ms: int) -> None:
    text = ["step:0/4000 val_loss:6.9 train_time:0ms step_avg:nanms"]
    for n in range(200, 4001, 200):
        clock = round(169.457 * n)
        # Of milliseconds that have no exact double in seconds, some are read a digit apart.
        text.append(f"step:{n}/4000 train_loss:3.1 train_time:{clock}ms step_avg:169.46ms")
        shown = f"{clock - earlier_ms}ms" if unit == "ms" else f"{(clock - earlier_ms) / 1000:.3f}s"
        text.append(f"step:{n}/4000 val_loss:3.2 train_time:{shown} step_avg:169.46ms")
    run = the_run("\n".join(text))
    assert run.iterations.number.tolist() == list(range(200, 4001, 200))
    assert run.iterations.time_s == pytest.approx(0.169457, abs=2e-5)


def test_lines_that_run_ahead_of_the_card_are_put_back() -> None:
    run = the_run("\n".join(lines(200, step_ms=lambda n: 120.0, ahead=True)))
    assert len(run.iterations) == 200
    assert run.iterations.time_s.sum() == pytest.approx(24.0)
    assert np.abs(run.iterations.time_s / 0.12 - 1).max() < 0.2
    assert "stall" not in {finding.code for finding in analyse(run).findings}


@pytest.mark.parametrize(
    ("step", "validation"),
    [
        (
            "step:{n}/500 train_loss:3.4095 train_time:{ms}ms step_avg:214.00ms",
            "step:{n}/500 val_loss:3.3017 train_time:{ms}ms step_avg:214.00ms",
        ),
        (
            "step:{n}/500 train_time:{s}s step_avg:214.00ms",
            "step:{n}/500 val_loss:3.3 val_avg_loss:3.3 val_ema_loss:3.3 train_time:{s}s step_avg:nanms ema_beta:0.9",
        ),
        (
            "step: {n:3d}/500 | train_time:{s}s | step_avg:214.0ms | peak_vram:3840MB",
            "step: {n:3d}/500 | val_loss:5.4178 | train_time:{s}s | step_avg:214.0ms | peak_vram:3840MB",
        ),
    ],
)
def test_every_version_of_the_line_is_read(step: str, validation: str) -> None:
    def write(shape: str, n: int) -> str:
        return shape.format(n=n, ms=214 * n, s=f"{0.214 * n:.3f}")

    text = "\n".join(write(validation, n) if n % 50 == 0 else write(step, n) for n in range(200))
    run = the_run(text)
    assert run.iterations.number.tolist() == list(range(1, 200))
    assert run.iterations.time_s.round(6).tolist() == [0.214] * 199
    assert [e.at for e in run.evaluations] == [0, 50, 100, 150]
    assert run.unread_count == 0


def test_lines_of_validation_alone_are_stretches_of_steps() -> None:
    text = "\n".join(
        f"step:{n}/500 val_loss:4.5 train_time:{0.18 * n:.3f}s step_avg:180.00ms" for n in range(125, 501, 125)
    )
    run = the_run(text)
    assert run.iterations.number.tolist() == [125, 250, 375, 500]
    assert run.iterations.time_s.round(6).tolist() == [0.18] * 4
    assert analyse(run).goodput.iterations == 500


def test_a_log_cut_in_the_middle_begins_with_its_second_step() -> None:
    text = "\n".join(list(lines(300))[120:260])
    run = the_run(text)
    assert run.iterations.time_s.round(6).tolist() == [0.2] * len(run.iterations)
    assert run.settings.count("max_iters") == 300


def test_a_single_line_tells_the_mean_since_the_start() -> None:
    run = the_run("step:5000/6200 train_loss:3.4095 train_time:1000000ms step_avg:200.40ms\n")
    assert run.iterations.time_s.tolist() == [0.2]


def test_long_runs_go_by_columns_too() -> None:
    text = "\n".join(f"step:{n}/500 train_time:{1_234_567_890 + 200 * n}ms step_avg:200.00ms" for n in range(100, 120))
    assert the_run(text).iterations.time_s.round(6).tolist() == [0.2] * 19


@pytest.mark.parametrize("sizes", [IN_TOKENS, IN_SEQUENCES])
def test_the_listing_tells_the_tokens_and_is_no_run(sizes: str) -> None:
    run = the_run(LISTING.format(sizes=sizes, more="") + "\n".join(lines(100)))
    assert run.settings.count("tokens_per_iter") == 524288
    assert run.settings.count("eval_interval") == 50
    assert run.unread_count == 0
    assert run.faults == ()
    assert run.gpu_text is not None
    assert not run.traits.schedules


def test_a_schedule_is_no_fault() -> None:
    listing = LISTING.format(sizes="val_batch_size: int = 4", more="TRAINING_STAGES = [TrainingStage(batch_size=8)]")
    run = the_run(listing + "\n".join(lines(400, step_ms=lambda n: (30.0 if n < 150 else 57.0) + n % 2 * 5)))
    assert run.traits.schedules
    codes = {finding.code for finding in analyse(run).findings}
    assert "schedule" in codes
    assert not codes & {"regime_change", "stall", "averaged_times"}


def test_several_runs_in_a_file_are_told_apart() -> None:
    text = "\n".join(line for k in range(3) for line in lines(100 - 20 * k, step_ms=lambda n, k=k: 200.0 + k))
    assert [len(run.iterations) for run in read(from_text(text))] == [100, 80, 60]


def test_the_early_log_without_times_gets_a_clear_answer() -> None:
    with pytest.raises(NoIterations, match="have no time"):
        read(from_text("s:0 tel:10.968871\ns:0 trl:10.965596\ns:1 trl:10.814037\n"))


def test_half_a_line_is_named() -> None:
    run = the_run("\n".join([*lines(20), "step:21/20 train_time:42"]))
    assert len(run.iterations) == 20
    assert run.unread_count == 1


def test_its_example_is_read() -> None:
    run = the_run(example_of(FORMAT.name))
    assert run.iterations.time_s.round(6).tolist() == [0.033, 0.033]


@pytest.mark.parametrize("clock", ["1e400", "-1e400", "-5", "9" * 400, "", "nan"])
def test_an_impossible_clock_is_no_step(clock: str) -> None:
    wrong = f"step:21/30 train_time:{clock}ms step_avg:1ms\nstep:21/30 val_loss:4 train_time:{clock}ms step_avg:1ms\n"
    run = the_run("\n".join([*lines(20), wrong]))
    assert run.iterations.number.tolist() == list(range(1, 21))
    assert run.iterations.time_s.round(6).tolist() == [0.2] * 20


@pytest.mark.parametrize("ahead", [0.0, 0.3, 0.5, 0.9])
def test_lines_that_are_printed_some_part_of_a_step_early_are_put_back(ahead: float) -> None:
    text = []
    for n in range(1, 301):
        text.append(f"step:{n}/300 train_time:{200 * (n - ahead):.0f}ms step_avg:200.00ms")
        if n % 50 == 0:  # here the card is waited for
            text.append(f"step:{n}/300 val_loss:4.5 train_time:{200 * n}ms step_avg:200.00ms")
    times = the_run("\n".join(text)).iterations.time_s
    assert times[1:-1].tolist() == pytest.approx([0.2] * len(times[1:-1]), rel=0.01)


def test_first_steps_that_waited_for_the_card_are_as_printed() -> None:
    """82 and 100 ms, then the host gets ahead by a step; from there on a line is of the step before."""
    clocks = [82, 182, 205, *range(240, 240 + 60 * 300, 60)]
    text = ["step:0/303 val_loss:10.8 train_time:0ms step_avg:0.03ms"]
    for n, shown in enumerate(clocks, start=1):
        text.append(f"step:{n}/303 train_time:{shown}ms step_avg:60.00ms")
        if n % 100 == 0:
            text.append(f"step:{n}/303 val_loss:4.8 train_time:{shown + 60}ms step_avg:60.00ms")
    times = the_run("\n".join(text)).iterations.time_s
    assert times[:4].tolist() == pytest.approx([0.082, 0.1, 0.058, 0.06])


def test_one_line_of_a_whole_run_is_the_mean_of_all_its_steps() -> None:
    run = the_run("step:3175/3175 val_loss:3.27713 train_time:1134.603s step_avg:357.36ms\n")
    assert run.timing is Timing.SPANS_RUN
    assert run.iterations.time_s.tolist() == pytest.approx([1134.603 / 3175])


def test_a_slow_step_is_no_evaluation_where_the_clock_is_stopped_for_them() -> None:
    text = "\n".join(lines(400, step_ms=lambda n: 900.0 if n in (130, 277) else 200.0 + n % 3))
    stall = next(found for found in analyse(the_run(text)).findings if found.code == "stall")
    assert "without evaluation or checkpoint" in (stall.message.many or "")
