"""nanochat: every version's lines, several stages in one file, and the stage that prints no times."""

from __future__ import annotations

import numpy as np
import pytest
from tools.formats_page import example_of

from stepwatch.analysis import analyse
from stepwatch.errors import NoIterations
from stepwatch.readers import detect, read
from stepwatch.readers.formats.nanochat import FORMAT
from stepwatch.run import Run, Timing
from stepwatch.sources import from_text
from stepwatch.verdict import judge

HEADER = """\
2026-02-01 10:00:00,100 - nanochat.common - \x1b[32m\x1b[1mINFO\x1b[0m - Distributed world size: 4
GPU: NVIDIA GeForce RTX 3090 | Peak FLOPS (BF16): 7.10e+13
Vocab size: 32,768
Model config:
{
  "sequence_len": 2048,
  "n_layer": 24,
  "n_head": 12,
  "n_embd": 1536,
}
Parameter counts:
wte                     : 50,331,648
total                   : 1,384,124,976
Estimated FLOPs per token: 4.945112e+09
Tokens / micro-batch / rank: 1 x 2048 = 2,048
Total batch size 1,048,576 => gradient accumulation steps: 128
"""
BASE = (
    "step {n:05d}/00400 (0.25%) | loss: 9.543680 | lrm: 1.00 | dt: {ms:.2f}ms | tok/sec: 21,407 | bf16_mfu: 37.28"
    " | epoch: 1 | total time: 0.82m | eta: 31.1m\n"
)
MID = (
    "step {n:05d} (0.28%) | loss: 1.274502 | lrm: 1.00 | dt: {ms:.2f}ms | tok/sec: 1,113,655 | mfu: 49.15"
    " | total time: 0.00m\n"
)
SFT = "Step {n:05d}/00651 | Training loss: 0.843050| lrm: 1.000000| num_tokens: 15,432\n"
SAVED = (
    "2026-02-01 11:00:00,165 - nanochat.checkpoint_manager - INFO - Saved model parameters to: /x/model_{n:06d}.pt\n"
)


def the_run(text: str) -> Run:
    (run,) = read(from_text(text))
    return run


@pytest.mark.parametrize(
    "line",
    [
        BASE, BASE.replace(" | eta: 31.1m", ""), BASE.replace("epoch: 1", "epoch: 1 pq: 3 rg: 44"),
        BASE.replace("bf16_mfu", "mfu"), BASE.replace(" | epoch: 1", "").replace("bf16_mfu", "mfu"),
        BASE.replace("| lrm", "| grad norm: 0.4112 | lrm"), MID, MID.replace("| total", "| epoch: 1 | total"),
        "[rank0]: " + BASE, "0: " + MID, BASE.replace("37.28", "0.00"),
    ],
)  # fmt: skip
def test_every_version_of_the_line_is_read(line: str) -> None:
    run = the_run("".join(line.format(n=n, ms=480.25 + n) for n in range(5)))
    assert run.format == "nanochat"
    assert run.timing is Timing.SPANS_STEP
    assert run.iterations.number.tolist() == list(range(5))
    assert run.iterations.time_s.round(6).tolist() == [0.48025 + n / 1000 for n in range(5)]
    assert not np.isnan(run.iterations.loss).any()
    assert (run.iterations.reported_tokens_per_s > 20_000).all()
    assert run.unread_count == 0


def test_header_becomes_settings() -> None:
    run = the_run(HEADER + BASE.format(n=0, ms=480) + BASE.format(n=1, ms=480))
    expected = {
        "world_size": 4, "vocab_size": 32768, "n_layer": 24, "n_head": 12, "n_embd": 1536, "n_params": 1384124976.0,
        "batch_size": 1, "block_size": 2048, "tokens_per_iter": 1048576, "gradient_accumulation_steps": 128,
        "max_iters": 399,
    }  # fmt: skip
    assert {name: run.settings.number(name) for name in expected} == expected
    assert (run.gpu_text, run.mfu_peak_flops) == ("NVIDIA GeForce RTX 3090", 7.1e13)
    assert run.flops_per_token == 4.945112e9


def test_a_card_without_a_known_peak_is_still_named() -> None:
    text = HEADER.replace("7.10e+13", "inf") + BASE.format(n=0, ms=480)
    assert the_run(text).gpu_text == "NVIDIA GeForce RTX 3090"
    assert the_run(text).mfu_peak_flops is None


def test_evaluations_and_checkpoints_are_outside_the_time() -> None:
    text = HEADER + "".join(
        (f"Step {n:05d} | Validation bpb: 1.0464\n" if n % 50 == 0 else "") + BASE.format(n=n, ms=480)
        for n in range(200)
    )
    text += "Step 00200 | Validation bpb: 0.9001\n" + SAVED.format(n=200)
    run = the_run(text)
    assert [e.at for e in run.evaluations] == [0, 50, 100, 150, 200]
    assert [c.at for c in run.checkpoints] == [200]
    assert run.checkpoints[0].stamp_s is not None
    codes = {finding.code for finding in analyse(run).findings}
    assert "invisible_evaluations" in codes
    assert "stall" not in codes


def test_a_line_whose_date_is_none_hides_no_others() -> None:
    steps = "".join(
        f"[{day} 10:00:{second:02d} a]: step {second:05d}/05742 (4.35%) | loss: 3.912004 | lrm: 1.00 | dt: 1177.31ms"
        " | tok/sec: 55,690 | bf16_mfu: 84.70 | epoch: 1 | total time: 4.71m\n"
        f"[{day} 10:00:{second:02d} a]: Step {second:05d} | Validation bpb: 1.046491\n"
        for second, day in enumerate(("19/80", "05/04", "05/04"))
    )
    run = the_run(steps)
    assert [evaluation.at for evaluation in run.evaluations] == [1, 2]


def test_an_evaluation_at_the_very_end_does_not_spoil_the_interval() -> None:
    text = "".join(
        (f"Step {n:05d} | Validation bpb: 1.0464\n" if n in (50, 100, 131) else "") + MID.format(n=n, ms=480)
        for n in range(40, 132)
    )
    assert analyse(the_run(text)).phases.eval_interval == 50


def test_stages_in_one_file_are_runs_of_their_own() -> None:
    first = HEADER + "".join(BASE.format(n=n, ms=480) for n in range(30)) + SAVED.format(n=30)
    second = HEADER + "".join(MID.format(n=n, ms=700) for n in range(1, 20)) + SAVED.format(n=19)
    runs = read(from_text(first + second))
    assert [len(run.iterations) for run in runs] == [30, 19]
    assert [[save.at for save in run.checkpoints] for run in runs] == [[30], [19]]
    assert runs[1].settings.count("max_iters") is None


def test_a_stage_without_times_after_others_is_named() -> None:
    text = HEADER + "".join(MID.format(n=n, ms=480) for n in range(1, 40)) + SAVED.format(n=39) + HEADER
    text += "Step 00000 | Validation loss: 1.009\n" + "".join(SFT.format(n=n) for n in range(60)) + SAVED.format(n=59)
    run = the_run(text)
    assert run.unread_count == 60
    assert [save.at for save in run.checkpoints] == [39]
    assert run.evaluations == ()
    assert "lines_without_time" in {finding.code for finding in analyse(run).findings}


@pytest.mark.parametrize(
    "line", [SFT.format(n=3), "Step 12/466 | Average reward: 0.25 | Average sequence length: 90.1\n"]
)
def test_a_log_of_that_stage_alone_gets_a_clear_answer(line: str) -> None:
    with pytest.raises(NoIterations) as caught:
        read(from_text(line * 3))
    assert caught.value.what.params["name"] == "nanochat"


def test_a_run_that_ended_before_its_first_step_says_so() -> None:
    source = from_text(HEADER + "RuntimeError: CUDA driver error: out of memory\n")
    assert detect(source) == "nanochat"
    (run,) = read(source)
    assert [fault.kind for fault in run.faults] == ["out of memory"]
    assert "before its first iteration" in judge(analyse(run)).text.key


@pytest.mark.parametrize(
    "line",
    ["step 00001/00400 (0.25%) | loss: 9.5 | lrm: 1.00 | dt: 48", "step 1 | loss: 9.5 | dt: 480.1ms | tok/sec: 5",
     "step 00001/00400 (0.25%) | loss: 9.5 | lrm: 1.00 | dt: -5.00ms | tok/sec: 1 | mfu: 1.0 | total time: 0.00m"],
)  # fmt: skip
def test_cut_and_foreign_lines_are_no_steps(line: str) -> None:
    run = the_run(BASE.format(n=0, ms=480) + BASE.format(n=1, ms=480) + line + "\n")
    assert len(run.iterations) == 2
    assert run.unread_count == 1


def test_its_example_is_read() -> None:
    run = the_run(example_of(FORMAT.name))
    assert len(run.iterations) == 2
    assert len(run.evaluations) == 1


@pytest.mark.parametrize(
    ("part", "instead"),
    [
        ("00001/", "9" * 30 + "/"),
        ("/00400", "/" + "9" * 400),
        ("21,407", ",,"),
        ("480.00", "9" * 400),
        ("9.5436", "1e999"),
    ],
)
def test_impossible_figures_do_no_harm(part: str, instead: str) -> None:
    text = BASE.format(n=0, ms=480) + BASE.format(n=1, ms=480).replace(part, instead) + BASE.format(n=2, ms=480)
    run = the_run(text)
    assert {0, 2} <= set(run.iterations.number.tolist()) <= {0, 1, 2}
    assert (run.iterations.time_s == 0.48).all()


@pytest.mark.parametrize(
    "fields",
    [
        "lrm: 0.01 | lr(adamw:7.9e-03, muon:2.0e-04) | dt: 500.00ms | tok/sec: 13,665 | bf16_mfu: 9.00 | epoch: 1",
        "lrm: 0.01 | grad_norm: 0.31 | dt: 500.00ms | tok/sec: 13,665 | bf16_mfu: 9.00 | total time: 0.00m",
        "lrm: 1.00 | dt: 500ms | tok/sec: 13,665 | mfu: 9.0% | epoch: 1 | remaining: 300s    ",
    ],
)
def test_fields_that_forks_add_are_passed_over(fields: str) -> None:
    text = "".join(f"step {n:05d} (0.{n}%) | loss: 9.010516 | {fields}\n" for n in range(9))
    (run,) = read(from_text(text))
    assert run.iterations.time_s.tolist() == [0.5] * 9
    assert run.iterations.reported_mfu.tolist() == pytest.approx([0.09] * 9)


def test_a_second_start_in_the_same_log_has_its_planned_length_too() -> None:
    text = "".join(BASE.format(n=n, ms=ms + n % 7) for ms in (500, 900) for n in range(60))
    assert [run.settings.count("max_iters") for run in read(from_text(text))] == [399, 399]
