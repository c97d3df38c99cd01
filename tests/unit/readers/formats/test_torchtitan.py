"""torchtitan prints no time: it comes from the clock or the rate, and what hides in it is taken out."""

from __future__ import annotations

import numpy as np
import pytest
from tools.formats_page import example_of

from stepwatch.analysis import analyse
from stepwatch.errors import NoIterations
from stepwatch.readers import detect, read
from stepwatch.readers.formats.torchtitan import READER
from stepwatch.run import Run, Timing
from stepwatch.sources import from_text

LOCAL = 16384  # tokens of a step on one card
HEADER = (
    "Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=4, cp=1, tp=2, ep=1, etp=1",
    "CUDA capacity: NVIDIA H100 80GB HBM3 with 79.11GiB memory",
    "Model llama3 1B size: 1,235,814,400 total parameters",
    "Peak FLOPS used for computing MFU: 9.890e+14",
    "Trainer is initialized with local batch size 4, global batch size 16, gradient accumulation steps 1, "
    "sequence length 8192, total steps 1000 (warmup 200)",
    "Training starts at step 1",
)


def said(text: str, at: float, rank: str = "[rank0]:") -> str:
    at += 0.118
    second = f"{int(at) // 3600:02}:{int(at) // 60 % 60:02}:{int(at) % 60:02},{round(at % 1 * 1000):03}"
    return f"{rank}[titan] 2025-01-01 {second} - root - INFO - {text}\n"


def line(number: int, at: float, step_s: float = 1.0, *, rank: str = "[rank0]:", mfu: str = "40.00%") -> str:
    tps = f"{round(LOCAL / step_s):,}"
    return said(
        f"step: {number:2}  loss:  3.50000  grad_norm:  0.4100  memory: 41.20GiB(51.50%)  tps: {tps}  "
        f"tflops: {LOCAL / step_s * 6e9 / 1e12:,.2f}  mfu: {mfu}", at, rank,
    )  # fmt: skip


def header(at: float = 0.0) -> str:
    return "".join(said(text, at) for text in HEADER)


def the_run(text: str) -> Run:
    assert detect(from_text(text)) == "torchtitan"
    (run,) = read(from_text(text))
    return run


def times(text: str) -> list[float]:
    return the_run(text).iterations.time_s.round(4).tolist()


def test_the_example_is_read_and_is_of_this_format() -> None:
    run = the_run(example_of(READER.name))
    assert run.iterations.number.tolist() == [1000, 1010, 1020]
    assert run.iterations.time_s.tolist() == pytest.approx([0.674, 0.674, 0.674], rel=0.01)
    assert [(save.at, save.took_s) for save in run.checkpoints] == [(1000, 4.52)]
    assert run.timing is Timing.SPANS_LOG_INTERVAL


@pytest.mark.parametrize(
    "fields",
    [
        "memory: 41.20GiB(51.50%)  tps: 16,384  tflops: 98.30  mfu: 40.00%",
        "memory: 41.20GiB(51.50%)  wps: 16,384  mfu: 40.00%", "wps:  16,384  peak_memory: 51.5%",
        "grad_norm:  0.41  memory: 41.20GiB(51.50%)  tps: 16,384  tflops: 98.30  mfu: N/A",
        "[32mmemory: 41.20GiB(51.50%)  [34mtps: 16,384  [36mtflops: 98.30  [35mmfu: 40.00%[39m",
    ],
)  # fmt: skip
def test_lines_of_every_version(fields: str) -> None:
    text = "".join(said(f"step: {n:2}  loss:  3.5000  {fields}", n) for n in (8, 9, 10))
    run = the_run(text)
    assert run.iterations.number.tolist() == [8, 9, 10]
    assert run.iterations.time_s.tolist() == [1.0] * 3
    assert run.iterations.loss.tolist() == [3.5] * 3


def test_colours_are_no_hindrance() -> None:
    text = line(1, 1.0) + line(2, 2.0)
    assert times(text.replace("step:", "\x1b[31mstep:").replace("loss:", "\x1b[32mloss:")) == [1.0, 1.0]


def test_without_a_clock_the_tokens_of_the_header_tell_the_time() -> None:
    bare = "".join(text + "\n" for text in HEADER)
    rows = "".join(line(n, 0.0, step).split("INFO - ")[1] for n, step in ((1, 8.0), (10, 2.0), (20, 2.5)))
    assert times(bare + rows) == pytest.approx([8.0, 2.0, 2.5], rel=1e-3)


def test_rows_that_nothing_times_are_no_rows() -> None:
    with pytest.raises(NoIterations):
        read(from_text(line(1, 0.0).split("INFO - ")[1]))


def test_a_clock_of_whole_seconds_only_scales_the_rate() -> None:
    rows = "".join(
        f"2025-01-01 00:{n // 60:02}:{n % 60:02} {line(n, 0.0, 1.0).split('INFO - ')[1]}" for n in range(1, 50)
    )
    assert times(rows) == [1.0] * 49


def test_facts_become_settings() -> None:
    run = the_run(header() + line(1, 9.0, 9.0) + line(10, 18.0))
    expected = {
        "world_size": 8, "batch_size": 4, "block_size": 8192, "gradient_accumulation_steps": 4, "max_iters": 1000,
        "tokens_per_iter": 131072, "n_params": 1235814400,
    }  # fmt: skip
    assert {name: run.settings.number(name) for name in expected} == expected
    assert run.gpu_text == "NVIDIA H100 80GB HBM3"
    assert run.mfu_peak_flops == pytest.approx(9.89e14)
    assert run.flops_per_token == pytest.approx(6e9, rel=1e-3)
    assert run.iterations.reported_tokens_per_s[-1] == 8 * LOCAL


@pytest.mark.parametrize(
    ("text", "tokens", "last"),
    [
        ("Training starts at step 1, with local batch size 8, global batch size 64, sequence length 2048, "
         "total steps 10 (warmup 2)", 131072, 10),
        ("Trainer is initialized with 8192 tokens per DP rank, 65536 tokens per train step, gradient accumulation "
         "steps 1, maximum context length 2048, total steps 500 (warmup 200)", 65536, 500),
    ],
)  # fmt: skip
def test_headers_of_other_versions(text: str, tokens: int, last: int) -> None:
    settings = the_run(
        said("Building 2-D device mesh with ['dp', 'tp'], [4, 2]", 0) + said(text, 0) + line(1, 1.0) + line(2, 2.0)
    ).settings
    assert (settings.count("tokens_per_iter"), settings.count("max_iters"), settings.count("world_size")) == (
        tokens,
        last,
        8,
    )


SAVING = "Saving the checkpoint (or staging if async is enabled)."
SAVED = "Finished saving the checkpoint (or staging if async is enabled) in 5.00 seconds."


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (SAVING, SAVED), ("Staging the checkpoint.", "Finished staging the checkpoint in 5.00 seconds."),
        ("Saving a full checkpoint at step 20", "Finished saving the checkpoint in 5.00 seconds"),
    ],
)  # fmt: skip
def test_a_checkpoint_is_taken_out_of_the_next_line(begin: str, end: str) -> None:
    text = line(10, 10.0) + line(20, 20.0) + said(begin, 20.0) + said(end, 25.0) + line(30, 35.0, 1.5) + line(40, 45.0)
    run = the_run(text)
    assert run.iterations.time_s.tolist() == pytest.approx([1.0] * 4)
    assert [(save.at, save.took_s) for save in run.checkpoints] == [(20, 5.0)]
    costs = analyse(run).costs
    assert costs.checkpoint_s is not None
    assert costs.checkpoint_s.mid == 5.0


def test_the_last_checkpoint_is_one_though_two_lines_tell_of_it() -> None:
    end = said(SAVING, 20.1) + said("Saving a full checkpoint at last step, step 20.", 20.1)
    assert [(save.at, save.took_s) for save in the_run(line(10, 10.0) + line(20, 20.0) + end).checkpoints] == [
        (20, None)
    ]
    done = said("Last step checkpoint completed in 3.21s", 23.0)
    assert [save.took_s for save in the_run(line(10, 10.0) + line(20, 20.0) + end + done).checkpoints] == [3.21]


VALIDATED = "validate step: 20  loss:  3.4000  memory: 41.20GiB(51.50%)  tps: 40,000"


def test_a_validation_is_outside_and_the_clock_tells_its_cost() -> None:
    text = line(10, 10.0) + line(20, 20.0) + said(VALIDATED, 27.0) + line(30, 37.0) + line(40, 47.0)
    run = the_run(text)
    assert run.iterations.time_s.tolist() == pytest.approx([1.0] * 4)
    assert [(e.at, e.val_loss, e.took_s) for e in run.evaluations] == [(20, 3.4, 7.0)]


def test_a_save_before_a_validation_is_in_no_row() -> None:
    between = said(SAVING, 20.0) + said(SAVED, 25.0) + said(VALIDATED, 32.0)
    run = the_run(line(10, 10.0) + line(20, 20.0) + between + line(30, 42.0) + line(40, 52.0))
    assert run.iterations.time_s.tolist() == pytest.approx([1.0] * 4)
    assert [e.took_s for e in run.evaluations] == [7.0]


def test_the_same_step_of_several_ranks_is_one() -> None:
    text = "".join(line(n, n + 0.001 * rank, rank=f"[rank{rank}]:") for n in range(1, 9) for rank in range(7))
    run = the_run(text)
    assert run.iterations.number.tolist() == [*range(1, 9)]
    assert run.iterations.time_s.tolist() == [1.0] * 8


def test_a_stage_that_does_not_know_the_loss_prints_minus_one() -> None:
    rows = the_run((line(1, 1.0) + line(2, 2.0)).replace("loss:  3.50000", "loss: -1.00000")).iterations
    assert np.isnan(rows.loss).all()


def test_an_mfu_that_cannot_be_is_left_out() -> None:
    run = the_run("".join(line(n, float(n), mfu="15131.59%") for n in range(1, 20)))
    analysis = analyse(run)
    assert run.flops_per_token is None
    assert analysis.throughput.reported_mfu is None
    assert "impossible_mfu" in {finding.code for finding in analysis.findings}


def test_a_resumed_run_begins_with_its_own_first_row() -> None:
    first = header() + "".join(line(n, float(n)) for n in (10, 20, 30))
    again = header(100.0) + said("Loading the checkpoint from x/step-20.", 100.0)
    runs = read(from_text(first + again + "".join(line(n, 1.1 * n + 100.0, 1.1) for n in (30, 40, 50))))
    assert [run.iterations.number.tolist() for run in runs] == [[10, 20, 30], [30, 40, 50]]
    assert runs[1].resumed


@pytest.mark.parametrize("cut", range(60, 130, 7))
def test_a_line_that_was_cut_is_not_read(cut: int) -> None:
    text = line(1, 1.0) + line(2, 2.0)
    half = line(3, 3.0)[:cut]
    assert the_run(text + half + "\n").iterations.number.tolist() == [1, 2]


def test_ranks_of_a_pipeline_give_one_clock_and_one_save() -> None:
    """Stages without the loss print a negative one, earlier than the last; a save ends with its slowest rank."""
    text = []
    for n in range(10, 110, 10):
        at = 2.5 * n + (30.0 if n > 50 else 0.0)
        for rank in range(4):
            row = line(n, at + 4 * (rank == 3), 2.5, rank=f"[rank{rank}]:")
            text.append(row if rank == 3 else row.replace("loss:  3.50000", "loss: -4.00000"))
        if n == 50:
            for rank in range(4):
                text.append(said("Saving the checkpoint (or staging if async is enabled).", at + 5, f"[rank{rank}]:"))
            for rank in (2, 0, 3, 1):
                ended = f"Finished saving the checkpoint (or staging if async is enabled)in {26 + rank}.00 seconds."
                text.append(said(ended, at + 31 + rank, f"[rank{rank}]:"))
    run = the_run("".join(text))
    assert run.iterations.number.tolist() == list(range(10, 110, 10))
    assert run.iterations.loss.tolist() == [3.5] * 10
    assert run.iterations.time_s[1:].tolist() == pytest.approx([2.5] * 9, rel=0.05)
    assert [(save.at, save.took_s) for save in run.checkpoints] == [(50, 29.0)]


def test_a_save_that_never_ends_hides_none_that_follows() -> None:
    saving = "Saving the checkpoint (or staging if async is enabled)."
    text = "".join(line(n, n) + (said(saving, n + 0.1) if n % 10 == 0 else "") for n in range(1, 41))
    assert [save.at for save in the_run(text).checkpoints] == [10, 20, 30, 40]
