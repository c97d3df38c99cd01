"""Megatron's lines of all ages, what their means hide, and what stands around them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tools.formats_page import example_of

from stepwatch.analysis import analyse
from stepwatch.readers import detect, read
from stepwatch.readers.formats.megatron import READER
from stepwatch.run import Run, Timing
from stepwatch.sources import from_text

TAIL = "loss scale: 1.0 | grad norm: 0.209 | number of skipped iterations:   0 | number of nan iterations:   0 |"
ARGUMENTS = """\
using world size: 8, data-parallel-size: 4, tensor-model-parallel size: 2, pipeline-model-parallel size: 1
using torch.bfloat16 for parameters ...
------------------------ arguments ------------------------
  eval_interval ................................... 100
  hidden_size ..................................... 1024
  log_interval .................................... 10
  micro_batch_size ................................ 4
  num_attention_heads ............................. 16
  num_layers ...................................... 24
  seq_length ...................................... 2048
  train_iters ..................................... 500
  world_size ...................................... 8
 > number of parameters on (tensor, pipeline) model parallel rank (0, 0): 200000000
 > number of parameters on (tensor, pipeline) model parallel rank (1, 0): 200000000
[before the start of training step] datetime: 2025-01-01 00:00:00
"""


def clock(second: float) -> str:
    return f"2025-01-01 {int(second) // 3600:02}:{int(second) // 60 % 60:02}:{second % 60:09.6f}"


def line(number: int, ms: float, at: float | None = None, *, batch: int = 32, tflops: float | None = None) -> str:
    stamp = f" [{clock(at)}]" if at is not None else ""
    work = f" throughput per GPU (TFLOP/s/GPU): {tflops:.1f} |" if tflops else ""
    return (
        f"{stamp} iteration {number:8d}/     500 | consumed samples: {number * batch:12d} | "
        f"elapsed time per iteration (ms): {ms:.1f} |{work} learning rate: 2.950000E-04 | "
        f"global batch size: {batch:5d} | lm loss: 2.8{number % 10}0000E+00 | {TAIL}\n"
    )


def the_run(text: str) -> Run:
    assert detect(from_text(text)) == "megatron"
    (run,) = read(from_text(text))
    return run


def test_the_example_is_read_and_is_of_this_format() -> None:
    run = the_run(example_of(READER.name))
    assert run.iterations.number.tolist() == [1000, 1010]
    assert run.iterations.time_s.tolist() == pytest.approx([1.2046, 1.2039])
    assert run.iterations.loss.tolist() == [2.811904, 2.807713]
    assert [(e.at, e.val_loss) for e in run.evaluations] == [(1000, 2.790112)]
    assert run.timing is Timing.SPANS_LOG_INTERVAL
    assert run.settings.count("max_iters") == 20000
    assert run.holds == frozenset()


BARE = line(20, 1234.5)


@pytest.mark.parametrize(
    "text",
    [
        BARE, f"55: {BARE}", f"192.168.1.20: {BARE}", f"[default7]:{BARE}", f"localhost: {BARE}",
        f"7: {line(20, 1234.5, 100.0)}", line(20, 1234.5, tflops=99.9),
        " iteration       20/     500 | elapsed time per iteration (ms): 1234.5 | learning rate: 1.0E-04 | "
        "lm loss: 2.800000E+00 | loss scale: 1.0 |",
        " iteration       20/     500 | consumed samples: 640 | consumed tokens: 32768 | elapsed time per iteration "
        f"(ms): 1234.5 | learning rate: 5.263E-07 | global batch size:    16 | lm loss: 2.800000E+00 | {TAIL}",
        " iteration       20/     500 | consumed samples: 640 | consumed tokens: 32768 | elapsed time per iteration "
        f"(s): 1.2345 | learning rate: 5.263E-07 | global batch size:    16 | lm loss: 2.800000E+00 | {TAIL} "
        "samples per second: 19.41 | TFLOPs: 148.20 |",
        " samples/sec: 7.799 | iteration       20/     500 | elapsed time per iteration (ms): 1234.5 | learning rate: "
        "2.111E-06 | approx flops per GPU: 112.9TFLOPS | lm_loss: 2.800000E+00 | number of skipped iterations:   0 |",
    ],
)  # fmt: skip
def test_lines_of_every_version_and_launcher(text: str) -> None:
    rows = the_run(text).iterations
    assert (rows.number.tolist(), rows.time_s.tolist(), rows.loss.tolist()) == ([20], [1.2345], [2.8])


def test_a_loss_that_is_no_number_is_kept_as_such() -> None:
    rows = the_run(BARE.replace("2.800000E+00", "nan")).iterations
    assert math.isinf(rows.loss[0])


def test_templates_and_patterns_give_the_same() -> None:
    fast = the_run(line(20, 1234.5, 100.0) + line(21, 1234.5, 101.25)).iterations
    slow = the_run((line(20, 1234.5, 100.0) + line(21, 1234.5, 101.25)).replace("| lm loss", "|  lm loss")).iterations
    for name in ("number", "time_s", "loss", "stamp_s"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(slow, name))


def test_the_first_iteration_is_taken_out_of_the_mean_that_counts_it_again() -> None:
    text = line(101, 5400.0, 5.4) + line(102, (5400 + 1500) / 2, 6.9) + line(103, 1400.0, 8.3) + line(104, 1450.0, 9.75)
    assert the_run(text).iterations.time_s.tolist() == pytest.approx([5.4, 1.5, 1.4, 1.45])


def test_the_same_with_a_log_interval_of_ten() -> None:
    means = [(1, 6000.0, 6.0), (10, (6000 + 9 * 1000) / 10, 15.0), (20, 1000.0, 25.0), (30, 1000.0, 35.0)]
    rows = the_run(ARGUMENTS + "".join(line(*mean) for mean in means))
    assert rows.iterations.time_s.tolist() == pytest.approx([6.0, 1.0, 1.0, 1.0])
    assert analyse(rows).costs.compile_s.mid == pytest.approx(5.0, rel=0.02)  # type: ignore[union-attr]


def test_a_version_that_starts_its_mean_anew_is_left_alone() -> None:
    text = line(1, 5400.0, 5.4) + line(2, 1500.0, 6.9) + line(3, 1500.0, 8.4)
    assert the_run(text).iterations.time_s.tolist() == [5.4, 1.5, 1.5]


def test_a_stall_is_no_first_iteration() -> None:
    text = "".join(line(n, 1000.0 + 4000 * (n == 5), n + 4.0 * (n >= 5)) for n in range(2, 12))
    assert the_run(text).iterations.time_s.tolist() == [1.0, 1.0, 1.0, 5.0, *[1.0] * 6]


def test_settings_come_from_arguments_batch_and_shards() -> None:
    settings = the_run(ARGUMENTS + line(10, 1000.0, 10.0, tflops=50.0) + line(20, 1000.0, 20.0, tflops=50.0)).settings
    expected = {
        "world_size": 8, "block_size": 2048, "batch_size": 4, "n_layer": 24, "n_head": 16, "n_embd": 1024,
        "eval_interval": 100, "log_interval": 10, "max_iters": 500, "tokens_per_iter": 65536, "n_params": 4e8,
    }  # fmt: skip
    assert {name: settings.number(name) for name in expected} == expected
    assert settings.text("dtype") == "bfloat16"


def test_an_interval_of_evaluations_that_evaluate_nothing_is_none() -> None:
    settings = the_run(
        ARGUMENTS.replace("eval_interval .", "eval_iters ..... 0\n  eval_interval .") + line(10, 1.0)
    ).settings
    assert "eval_interval" not in settings


def test_the_work_of_a_token_comes_from_the_printed_throughput() -> None:
    run = the_run(ARGUMENTS + line(10, 1000.0, 10.0, tflops=50.0) + line(20, 500.0, 15.0, tflops=100.0))
    assert run.flops_per_token == pytest.approx(50e12 * 8 / 65536)


def test_a_total_beats_the_shards() -> None:
    text = ARGUMENTS + "Total number of parameters in billions: 0.35\n" + line(10, 1000.0)
    assert the_run(text).settings.number("n_params") == pytest.approx(0.35e9)


def test_batches_that_grow_are_a_schedule() -> None:
    grown = "".join(line(n, 100.0 * n, batch=8 * n) for n in (1, 2, 3))
    assert the_run(ARGUMENTS + grown).traits.schedules
    assert not the_run(ARGUMENTS + "".join(line(n, 100.0) for n in (1, 2, 3))).traits.schedules


DASHES = "-" * 100 + "\n"
VALIDATION = DASHES + " validation loss at iteration 20 | lm loss value: 2.7E+00 | lm loss PPL: 1.4E+01 |\n" + DASHES
SAVE = (
    "saving checkpoint at iteration      20 to /x in torch_dist format\n"
    "  successfully saved checkpoint from iteration      20 to /x [ t 1/2, p 1/1 ]\n"
)
TIMER = "(min, max) time across ranks (ms):\n    {} ................................: ({:.2f}, {:.2f})\n"


def test_newer_versions_leave_both_out_of_the_time_and_timers_tell_what_they_took() -> None:
    text = "".join(line(n, 1000.0, float(n)) for n in range(11, 21))
    text += TIMER.format("evaluate", 3990, 4000) + VALIDATION + SAVE + TIMER.format("save-checkpoint", 7000, 7500)
    run = the_run(text + "".join(line(n, 1000.0, n + 11.5) for n in range(21, 31)))
    assert run.holds == frozenset()
    assert [(e.at, e.val_loss, e.took_s) for e in run.evaluations] == [(20, 2.7, 4.0)]
    assert [(save.at, save.took_s) for save in run.checkpoints] == [(20, 7.5)]
    assert run.iterations.time_s.tolist() == [1.0] * 20
    costs = analyse(run).costs
    assert costs.eval_s is not None
    assert costs.checkpoint_s is not None
    assert (costs.eval_s.mid, costs.checkpoint_s.mid) == pytest.approx((4.0, 7.5))


def test_data_sets_of_one_validation_are_one_evaluation() -> None:
    part = TIMER.format("evaluate", 1, 2000) + VALIDATION.replace("validation", "validation-{}")
    run = the_run(line(20, 1000.0, 20.0) + part.format(0) + part.format(1) + line(21, 1000.0, 25.0))
    assert [(e.at, e.took_s) for e in run.evaluations] == [(20, 4.0)]


def test_without_timers_the_clocks_of_a_save_tell_what_it_took() -> None:
    begin, end = SAVE.splitlines(keepends=True)
    text = (
        line(20, 1000.0, 20.0) + f" [{clock(20.5)}] {begin}  [{clock(24.0)}] {end.strip()}\n" + line(21, 1000.0, 25.0)
    )
    assert [save.took_s for save in the_run(text).checkpoints] == [pytest.approx(3.5)]


def test_a_save_beside_the_steps_has_no_cost_by_the_clock() -> None:
    begin, end = SAVE.splitlines(keepends=True)
    text = line(20, 1000.0, 20.0) + f" [{clock(20.5)}] {begin}" + line(21, 1000.0, 21.0)
    run = the_run(text + f"  [{clock(24.0)}] {end.strip()}\n" + line(22, 1000.0, 22.0))
    assert [(save.at, save.took_s) for save in run.checkpoints] == [(20, None)]


def test_older_versions_have_an_evaluation_in_the_next_line() -> None:
    text = "".join(line(n, 1000.0 + n) for n in range(11, 21)) + VALIDATION + line(21, 9000.0)
    run = the_run(text + "".join(line(n, 1000.0 + n) for n in range(22, 31)))
    analysis = analyse(run)
    assert run.holds == frozenset({"eval", "checkpoint"})
    assert analysis.costs.eval_s is not None
    assert analysis.costs.eval_s.mid == pytest.approx(8.0, rel=0.01)
    assert not {"stall"} & {finding.code for finding in analysis.findings}


def test_a_save_of_known_cost_is_taken_out_of_the_next_mean() -> None:
    text = "".join(line(n, 1000.0) for n in (10, 20)) + SAVE + TIMER.format("save-checkpoint", 4900, 5000)
    run = the_run(text + line(30, 1500.0) + line(40, 1000.0))
    assert run.iterations.time_s.tolist() == pytest.approx([1.0] * 4)
    assert run.holds == frozenset({"eval"})


def test_results_of_a_task_are_an_evaluation_without_a_loss() -> None:
    text = line(20, 1000.0) + " validation results on LAMBADA | number correct: 3.5E+03 |\n" + line(21, 9000.0)
    assert [(e.at, e.val_loss) for e in the_run(text).evaluations] == [(20, None)]


def test_a_restart_is_a_run_of_its_own() -> None:
    first, second = (ARGUMENTS + "".join(line(n, ms) for n in (10, 20, 30)) for ms in (1000.0, 1100.0))
    assert [run.iterations.time_s.tolist() for run in read(from_text(first + second))] == [[1.0] * 3, [1.1] * 3]


@pytest.mark.parametrize(
    "text",
    [
        " iteration       20/     500 | consumed samples: 640 | elapsed time per iteration (ms): ",
        " iteration       20/     500 | consumed samples: 640 | elapsed time per iteration (ms): much | lm loss: 1 |",
        " iteration          /     500 | elapsed time per iteration (ms): 12.0 |",
    ],
)
def test_half_lines_are_named_and_not_read(text: str) -> None:
    (run,) = read(from_text(BARE + text + "\n"))
    assert run.iterations.number.tolist() == [20]
    assert run.unread_count == 1


def test_noise_is_survived() -> None:
    noise = np.random.default_rng(3).integers(0, 256, 20000, dtype=np.uint8).tobytes().decode("latin-1")
    run = the_run(
        BARE + noise + "\n" + line(21, 1000.0) + SAVE[:30] + "\n(min, max) time across ranks (ms):\n    save-"
    )
    assert run.iterations.number.tolist() == [20, 21]


def test_a_fork_that_writes_its_fields_with_equals_signs() -> None:
    text = "".join(
        f"[2024-04-19 13:2{n}:38][INFO][training:1251] -  iteration=       {n}/   10000 | consumed_samples= {n} | "
        f"consumed_tokens=  {n * 4096} | elapsed_time_per_iteration_ms={60000 + n}.5 | learning_rate=0.000006 | "
        f"global_batch_size=   96 | lm loss=11.{n}98063 | loss_scale=1.0 | TFLOPs=72.3 |\n"
        for n in range(1, 6)
    )
    run = the_run(text)
    assert run.iterations.number.tolist() == [1, 2, 3, 4, 5]
    assert run.iterations.time_s.tolist() == pytest.approx([60.0005 + n * 1e-3 for n in range(1, 6)])
    assert run.iterations.loss[0] == 11.198063
    assert run.iterations.stamp_s[1] - run.iterations.stamp_s[0] == 60
    assert run.settings.count("max_iters") == 10000
