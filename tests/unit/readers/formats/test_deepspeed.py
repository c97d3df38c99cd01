"""DeepSpeed's lines: rates, means, latencies; and the clock where they do not tell enough."""

from __future__ import annotations

import math

import pytest
from tools.formats_page import example_of

from stepwatch.analysis import analyse
from stepwatch.errors import NoIterations
from stepwatch.readers import detect, read
from stepwatch.readers.formats.deepspeed import READER
from stepwatch.run import Run, Timing
from stepwatch.sources import from_text


def clock(at: float) -> str:
    return (
        f"[2024-05-06 {int(at) // 3600:02}:{int(at) // 60 % 60:02}:{int(at) % 60:02},{round(at % 1 * 1000):03}] [INFO]"
    )


def config(name: str, value: int) -> str:
    return f"{clock(0)} [config.py:1003:print]   {name} {'.' * (28 - len(name))} {value}\n"


def line(step: int, rate: float, at: float, *, accumulation: int = 1) -> str:
    return (
        f"{clock(at)} [timer.py:260:stop] epoch=0/micro_step={step * accumulation}/global_step={step}, "
        f"RunningAvgSamplesPerSec={rate + 0.123456789012345}, CurrSamplesPerSec={rate:.14f}, MemAllocated=5.12GB, "
        "MaxMemAllocated=18.03GB\n"
    )


def the_run(text: str) -> Run:
    assert detect(from_text(text)) == "deepspeed"
    (run,) = read(from_text(text))
    return run


def test_the_example_is_read_and_is_of_this_format() -> None:
    run = the_run(example_of(READER.name))
    assert run.iterations.number.tolist() == [100, 110]
    assert run.iterations.time_s.tolist() == pytest.approx([64 / 91.51733021, 64 / 91.48004417])
    assert run.timing is Timing.SPANS_STEP


def test_the_step_is_the_batch_of_the_config_over_the_rate() -> None:
    text = config("train_batch_size", 128) + "".join(line(n, 128 / 0.7, 8.0 * n / 10) for n in (10, 20, 30))
    assert the_run(text).iterations.time_s.tolist() == pytest.approx([0.7] * 3)  # data are loaded in the rest


def test_without_a_config_the_clock_tells_the_batch() -> None:
    text = "".join(line(n, 160.0 + n % 20, n * 0.75) for n in range(10, 210, 10))
    run = the_run(text)
    assert run.iterations.time_s.tolist() == pytest.approx(
        [0.75 * 165 / (160 + n % 20) for n in range(10, 210, 10)], rel=0.05
    )


def test_a_batch_of_another_engine_is_not_believed() -> None:
    text = config("train_batch_size", 512) + "".join(line(n, 128 / 0.7, 0.7 * n) for n in (10, 20, 30))
    assert the_run(text).iterations.time_s.tolist() == pytest.approx([0.7] * 3, rel=1e-3)


def test_settings_from_the_config_and_the_command_line() -> None:
    command = (
        "cmd = deepspeed main.py --per_device_train_batch_size 8 --max_seq_len 512 --gradient_accumulation_steps 2\n"
    )
    run = the_run(command + "".join(line(n, 128 / 0.7, 0.7 * n, accumulation=2) for n in (10, 20, 30)))
    expected = {"world_size": 8, "batch_size": 8, "block_size": 512, "tokens_per_iter": 65536}
    assert {name: run.settings.count(name) for name in expected} == expected


@pytest.mark.parametrize(
    "text",
    [
        "[2022-03-11 02:0{}:00,000] [INFO] [timer.py:189:stop] 0/{}, SamplesPerSec=83.48, MemAllocated=0.26GB\n",
        "[INFO 2020-06-08 05:2{}:00] 0/{}, SamplesPerSec=13.197\n",
    ],
)
def test_old_lines_give_a_mean_of_the_run_so_the_clock_is_asked(text: str) -> None:
    run = the_run("".join(text.format(minute, 40 * minute) for minute in range(1, 9)))
    assert run.iterations.time_s.tolist()[1:] == [1.5] * (len(run.iterations) - 1)
    assert run.timing is Timing.SPANS_LOG_INTERVAL


def test_timers_tell_the_time_where_neither_batch_nor_clock_does() -> None:
    row = (
        "epoch=0/micro_step={0}/global_step={0}, RunningAvgSamplesPerSec=7.8, CurrSamplesPerSec=8.0, MemAllocated=1GB\n"
    )
    part = "time (ms) | fwd: 200.10 | bwd: 500.00 | bwd_inner: 400.00 | bwd_allreduce: 100.00 | step: 99.90\n"
    run = the_run("".join(row.format(n) + part for n in (1, 2, 3)))
    assert run.iterations.time_s.tolist() == pytest.approx([0.8] * 3)


MICRO = (
    "time (ms) | {0}_microstep: 200.10 | {1}_microstep: 300.00 | {1}_inner_microstep: 290.00 | "
    "{1}_allreduce_microstep: 10.00 | step_microstep: 99.90\n"
)


@pytest.mark.parametrize("names", [("fwd", "bwd"), ("forward", "backward")])
def test_timers_of_micro_steps_alone_are_their_time(names: tuple[str, str]) -> None:
    run = the_run("[INFO 2020-06-08 06:02:19] 0/450, SamplesPerSec=7.458824\n" + MICRO.format(*names) * 6)
    assert run.iterations.time_s.tolist() == pytest.approx([0.6] * 6)
    assert run.timing is Timing.SPANS_STEP


def test_micro_steps_are_summed_to_steps_where_the_log_tells_how_many() -> None:
    run = the_run('  "gradient_accumulation_steps": 3,\n' + MICRO.format("fwd", "bwd") * 6)
    assert run.iterations.number.tolist() == [1, 2]
    assert run.iterations.time_s.tolist() == pytest.approx([1.8] * 2)


def test_a_rate_alone_times_nothing() -> None:
    row = (
        "epoch=0/micro_step={0}/global_step={0}, RunningAvgSamplesPerSec=7.8, CurrSamplesPerSec=8.0, MemAllocated=1GB\n"
    )
    with pytest.raises(NoIterations):
        read(from_text("".join(row.format(n) for n in (1, 2, 3))))


def test_timers_alone_are_steps() -> None:
    part = "[Rank 0] rank=0 time (ms) | forward: 200.10 | backward: 500.00 | backward_inner: 400.00 | step: 99.90\n"
    assert the_run(part * 3).iterations.time_s.tolist() == pytest.approx([0.8] * 3)


def test_the_pipeline_engine_prints_means() -> None:
    run = the_run("".join(f"steps: {n} loss: 4.25 iter time (s): 2.500 samples/sec: 6.4\n" for n in (10, 20, 30)))
    assert run.iterations.time_s.tolist() == [2.5] * 3
    assert run.iterations.loss.tolist() == [4.25] * 3
    assert run.timing is Timing.SPANS_LOG_INTERVAL


def test_a_trainer_above_the_engine_is_read_instead() -> None:
    text = (
        "steps: 1 loss: 12.6435 iter time (s): 28.759 samples/sec: 0.556\n iteration        1/      20 | "
        "consumed samples: 16 | elapsed time per iteration (ms): 28771.1 | lm loss: 1.26E+01 |\n"
    )
    assert detect(from_text("steps: 9 loss: 1 iter time (s): 1.0 samples/sec: 1\n" + text * 3)) == "megatron"


LATENCY = (
    "Model Parameters: 0.331 B, Latency: {:.2f}s, TFLOPs: 0.57, Samples/sec: 4.06, Time/seq 0.25s, Batch Size: 2, "
    "Sequence Length: 512\n"
)


def test_latencies_alone_are_micro_steps_that_add_up() -> None:
    text = config("gradient_accumulation_steps", 2) + (LATENCY.format(0.55) + LATENCY.format(0.15)) * 4
    run = the_run(text)
    assert run.iterations.number.tolist() == [1, 2, 3, 4]
    assert run.iterations.time_s.tolist() == pytest.approx([0.7] * 4)
    assert run.settings.number("n_params") == pytest.approx(0.331e9)


def test_latencies_beside_rates_tell_the_batch_of_a_card() -> None:
    rows = (LATENCY.format(0.4) * 20 + line(10 * n, 32 / 0.8, 8.0 * n, accumulation=2) for n in range(1, 5))
    run = the_run("".join(rows))
    assert run.iterations.number.tolist() == [10, 20, 30, 40]
    assert (run.settings.count("world_size"), run.settings.count("tokens_per_iter")) == (8, 16384)


E2E = (
    "epoch: {}|step: {}|ppo_ep: 1|act_loss: 0.2|cri_loss: 0.1|unsuper_loss: 0.0\naverage reward score: -0.6\n"
    "|E2E latency={:.2f}s |Gather latency=0.00s (0.00%) |Generate time=2.6s (65.8%) |Training time=1.2s (31.5%) "
    "|Others=0.22 (2.7%)|CurSamplesPerSec=8.01 |AvgSamplesPerSec=8.01\n"
)


def test_rlhf_steps_hold_generation_and_go_on_over_epochs() -> None:
    head = "***** Running training *****\nBeginning of Epoch 1/2, Total Generation Batches 4\n"
    text = "".join(E2E.format(epoch, step, 4.0 + step) for epoch in (0, 1) for step in range(4))
    run = the_run(head + text.replace("epoch: 1|step: 0", line(10, 80.0, 10.0) + "epoch: 1|step: 0"))
    assert run.iterations.number.tolist() == [*range(8)]
    assert run.iterations.time_s.tolist() == [4.0, 5.0, 6.0, 7.0] * 2
    assert run.settings.count("max_iters") == 7


def test_newer_rlhf_lines() -> None:
    text = "".join(
        f"Epoch: 0 | Step: {n} | PPO Epoch: 1 | Actor Loss: 0.2 | Critic Loss: 0.1 | Unsupervised Loss: 0.0\n"
        "End-to-End => Latency: 3.50s, TFLOPs: 1.0, Samples/sec: 8.0, Time/seq 0.1s, Batch Size: 64, "
        "Total Seq. Length: 512\n"
        for n in range(5)
    )
    assert the_run(text).iterations.number.tolist() == [0, 1, 2, 3, 4]


def test_evaluations_of_epochs_are_gaps_of_the_clock() -> None:
    epoch = "Beginning of Epoch {}/3, Total Micro Batches 40\n"
    text = "***** Running training *****\n***** Evaluating perplexity, Epoch 0/3 *****\nppl: 4998.29\n"
    for number in range(3):
        rows = "".join(line(40 * number + n, 128.0, 40 * number + n + 9.0 * number) for n in (10, 20, 30, 40))
        text += epoch.format(number + 1) + rows + f"***** Evaluating perplexity, Epoch {number + 1}/3 *****\nppl: 2.5\n"
    run = the_run(text + "saving the final model ...\n")
    assert [evaluation.at for evaluation in run.evaluations] == [0, 40, 80, 120]
    assert run.evaluations[1].val_loss == pytest.approx(math.log(2.5))
    assert [save.at for save in run.checkpoints] == [120]
    assert run.settings.count("max_iters") == 120
    evaluation = analyse(run).costs.eval_s
    assert evaluation is not None
    assert evaluation.mid == pytest.approx(9.0, rel=0.01)


def test_checkpoints_of_the_engine_have_their_number() -> None:
    save = f"{clock(20.5)} [logging.py:96:log_dist] [Rank 0] [Torch] Checkpoint global_step20 is about to be saved!\n"
    run = the_run(line(10, 128.0, 10.0) + line(20, 128.0, 20.0) + save + line(30, 128.0, 37.0) + line(40, 128.0, 47.0))
    assert [checkpoint.at for checkpoint in run.checkpoints] == [20]
    cost = analyse(run).costs.checkpoint_s
    assert cost is not None
    assert cost.mid == pytest.approx(7.0, rel=0.01)


@pytest.mark.parametrize("cut", range(20, 180, 13))
def test_a_line_that_was_cut_is_survived(cut: int) -> None:
    text = "".join(line(n, 128.0, float(n)) for n in (10, 20, 30))
    assert the_run(text + line(40, 128.0, 40.0)[:cut] + "\n").iterations.number.tolist()[:3] == [10, 20, 30]


@pytest.mark.parametrize("text", ["ppl: nan", "CurrSamplesPerSec=", "|E2E latency=s", "steps: x loss: 1", "\x00\xff"])
def test_nothing_of_this_is_an_iteration(text: str) -> None:
    with pytest.raises(NoIterations):
        read(from_text(text), "deepspeed")


def test_the_pipeline_prints_more_losses_than_one() -> None:
    losses = "loss: 5.5508 lm loss: 5.5103 moe loss: 0.0405"
    text = "".join(f"steps: {n} {losses} iter time (s): 0.936 samples/sec: 68.4\n" for n in (100, 200, 300))
    run = the_run(text)
    assert run.iterations.number.tolist() == [100, 200, 300]
    assert run.iterations.time_s.tolist() == [0.936] * 3
    assert run.iterations.loss.tolist() == [5.5508] * 3


@pytest.mark.parametrize("name", ["gradient_accumulation_steps", "per_device_train_batch_size"])
def test_a_count_of_none_divides_nothing(name: str) -> None:
    """Found by damaging logs: a command line with a zero."""
    text = f"cmd = deepspeed main.py --{name} 0 --max_seq_len 256\n"
    for rows in (LATENCY.format(0.5) * 4, "".join(E2E.format(0, step, 3.77) for step in range(4))):
        assert len(the_run(text + rows).iterations) == 4
    rates = config("train_batch_size", 64) + "".join(line(step, 32.0, 2.0 * step) for step in range(1, 6))
    assert len(the_run(text + rates).iterations) == 5
