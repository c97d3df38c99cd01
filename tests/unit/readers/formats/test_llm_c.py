"""llm.c: each of its programs, its table, its evaluations, and what a missing card makes of the MFU."""

from __future__ import annotations

import numpy as np
import pytest
from tools.formats_page import example_of

from stepwatch.analysis import analyse
from stepwatch.errors import NoIterations
from stepwatch.readers import read
from stepwatch.readers.formats.llm_c import FORMAT
from stepwatch.run import Run
from stepwatch.sources import from_text
from stepwatch.verdict import judge

ROWS = {
    "resume": "0", "micro batch size B": "32", "sequence length T": "1024", "total batch size": "524288",
    "max_steps": "-1", "val_loss_every": "50", "device": "NVIDIA A100-PCIE-40GB", "peak TFlops": "312.0",
    "precision": "BF16", "max_sequence_length T": "1024", "vocab_size V": "50257", "num_layers L": "12",
    "num_heads NH": "12", "channels C": "768", "num_parameters": "124475904", "train_num_batches": "300",
    "num_processes": "2",
}  # fmt: skip
HEADER = "".join(f"| {name:<21} | {value:<50} |\n" for name, value in ROWS.items())
HEADER += "num_parameters: 124475904 => bytes: 248951808\n=> setting grad_accum_steps=16\n"
LINE = (
    "step {n:4d}/300 | loss 4.094518 (-0.41z)| norm 0.4410 (+0.12z)| lr 2.15e-04 | {ms:.2f} ms"
    " | 51.2% bf16 MFU | 435201 tok/s\n"
)


def the_run(text: str) -> Run:
    (run,) = read(from_text(text))
    return run


def a_log(steps: int) -> str:
    text = HEADER + "val loss 11.0\n"
    for n in range(1, steps + 1):
        text += LINE.format(n=n, ms=1204.5)
        if n % 50 == 0:
            text += f"val loss {5 - n / 100:.6f}\nevaluating HellaSwag: 0/1256\revaluating HellaSwag: 10/1256\r"
            text += "HellaSwag: 2512/10042 = 0.250149\n"
        if n % 100 == 0:
            text += f"Writing checkpoint at step {n}\nWriting model to log/model_{n:08d}.bin\n"
    return text


@pytest.mark.parametrize(
    "line",
    [
        LINE, LINE.replace("4.094518 (-0.41z)", "    nan (+nanz)").replace("0.4410", "   nan"),
        LINE.replace("51.2%", "-100.0%"), LINE.replace("(-0.41z)", "(z -0.41)").replace(" (+0.12z)", " "),
        "step {n:4d}/300 | train loss 4.0945 | norm 0.4 | lr 2e-4 | {ms:.2f} ms | 51.2% A100 fp16 MFU | 435201 tok/s\n",
        "step {n:4d}/300 | train loss 4.094518 | norm 0.4410 | lr 2.15e-04 | ({ms:.2f} ms | 435201 tok/s)\n",
        "step {n:4d}/300 | train loss 4.0945 | lr_scale 1.00e+00 | ({ms:.2f} ms | 435201 tok/s)\n",
        "step {n:4d}/300: train loss 4.367631 ({ms:f} ms, 435201 tok/s)\n",
        "step {n:4d}/300: train loss 4.367631 (acc 4.367631) ({ms:f} ms, 435201 tok/s)\n",
        "step {n:4d}/300: train loss 4.367631 norm 0.4410 lr 2.15e-04 ({ms:.2f} ms, 435201 tok/s)\n",
        "step {n}: train loss 5.356189 (took {ms:f} ms)\n", "[1,0]<stdout>:" + LINE,
    ],
)  # fmt: skip
def test_every_program_is_read(line: str) -> None:
    run = the_run("".join(line.format(n=n, ms=1204.5) for n in range(1, 6)))
    assert run.format == "llm.c"
    assert run.iterations.number.tolist() == [1, 2, 3, 4, 5]
    assert run.iterations.time_s.round(6).tolist() == [1.2045] * 5
    assert not np.isnan(run.iterations.loss).any()
    assert run.unread_count == 0


def test_an_unknown_card_has_no_mfu() -> None:
    text = "".join(LINE.replace("51.2%", "-100.0%").format(n=n, ms=1204.5) for n in range(1, 30))
    run = the_run(text)
    assert np.isnan(run.iterations.reported_mfu).all()
    assert "mfu_sentinel" not in {finding.code for finding in analyse(run).findings}


def test_a_loss_that_is_no_number_is_said() -> None:
    line = LINE.replace("4.094518 (-0.41z)", "    nan (+nanz)")
    run = the_run("".join(line.format(n=n, ms=1204.5) for n in range(1, 30)))
    assert np.isinf(run.iterations.loss).all()
    assert "loss_nan" in {finding.code for finding in analyse(run).findings}


def test_the_table_becomes_settings() -> None:
    run = the_run(a_log(10))
    expected = {
        "batch_size": 32, "block_size": 1024, "tokens_per_iter": 524288, "eval_interval": 50, "vocab_size": 50257,
        "n_layer": 12, "n_head": 12, "n_embd": 768, "n_params": 124475904.0, "world_size": 2, "max_iters": 300,
        "gradient_accumulation_steps": 16,
    }  # fmt: skip
    assert {name: run.settings.number(name) for name in expected} == expected
    assert run.settings.text("dtype") == "bfloat16"
    assert (run.gpu_text, run.mfu_peak_flops) == ("NVIDIA A100-PCIE-40GB", 312e12)
    assert run.flops_per_token == 6 * 124475904 + 6 * 12 * 768 * 1024


def test_evaluations_and_checkpoints_have_the_steps_done() -> None:
    run = the_run(a_log(300))
    assert [e.at for e in run.evaluations] == [0, 50, 100, 150, 200, 250, 300]
    assert run.evaluations[1].val_loss == 4.5
    assert [save.at for save in run.checkpoints] == [100, 200, 300]
    analysis = analyse(run)
    assert analysis.forecast.done
    assert "stall" not in {finding.code for finding in analysis.findings}


def test_a_validation_loss_that_is_no_number_still_is_an_evaluation() -> None:
    run = the_run(a_log(60).replace("val loss 4.5", "val loss nan #").replace(" #00000", ""))
    assert [e.at for e in run.evaluations] == [0, 50]


def test_restarts_are_runs_of_their_own() -> None:
    runs = read(from_text(a_log(60) + a_log(40).replace("1204.50", "1203.10")))
    assert [len(run.iterations) for run in runs] == [60, 40]
    assert [[e.at for e in run.evaluations] for run in runs] == [[0, 50], [0]]


def test_power_lines_and_the_last_line_are_no_steps() -> None:
    text = (
        a_log(20)
        + " " * 18
        + "compute 99.0% | memory: 41.2% | fan: 30% | 1980 MHz / 1980 MHz | 330 W / 350 W | 64°C / 90°C | none\n"
    )
    run = the_run(text + "total average iteration time: 1204.500000 ms\n")
    assert len(run.iterations) == 20
    assert run.unread_count == 0


def test_a_line_that_the_scheduler_cut_ends_the_run() -> None:
    run = the_run(
        a_log(20) + "step   21/300 | loss 4.0 (+nanz)|slurmstepd: error: *** JOB 1 CANCELLED DUE TO TIME LIMIT ***\n"
    )
    assert [fault.kind for fault in run.faults] == ["killed"]


def test_the_side_file_gets_a_clear_answer() -> None:
    with pytest.raises(NoIterations) as caught:
        read(from_text("s:0 tel:11.0095\ns:0 trl:11.0116 lr:0.000001 norm:14.96\ns:250 eval:0.2512\n"))
    assert caught.value.what.params["name"] == "llm.c"


def test_a_run_that_failed_at_once_says_so() -> None:
    (run,) = read(from_text(HEADER + "[CUDA ERROR] at file train_gpt2.cu:754:\nmisaligned address\n"))
    assert "before its first iteration" in judge(analyse(run)).text.key


def test_its_example_is_read() -> None:
    run = the_run(example_of(FORMAT.name))
    assert len(run.iterations) == 2
    assert len(run.evaluations) == 1
    assert [save.at for save in run.checkpoints] == [5000]
