"""litgpt: micro-batches, validation with its cost, saves; older lines too."""

from __future__ import annotations

import numpy as np
import pytest

from stepwatch.analysis import analyse
from stepwatch.errors import NoIterations
from stepwatch.readers import detect, read
from stepwatch.run import Run, Timing
from stepwatch.sources import from_text


def the_run(text: str) -> Run:
    source = from_text(text)
    assert detect(source) == "litgpt"
    (run,) = read(source)
    return run


@pytest.mark.parametrize(
    "line",
    [
        "Epoch 1 | iter 100 step 20 | loss train: 2.846, val: 3 | iter time: 112.20 ms (step) remaining time: 0:01:54",
        "Epoch 1 | iter 100 step 20 | loss train: 2.846, val: n/a | iter time: 112.20 ms (step)",
        "Epoch 1 | iter 100 step 20 | loss train: 2.846, val: n/a | iter time: 112.20 ms",
        "iter 100 step 20 | loss train: 2.846, val: 2.861 | iter time: 112.20 ms (step) remaining time: 1 day, 0:01:54",
        "Ep 1 | iter 100 | step 20: loss train (curr): 2.846, val (prev val iter): 2 | iter time: 112.20 ms (step)",
        "iter 100 step 20: loss 2.8460, iter time: 112.20ms (optimizer.step)",
        "iter 100 step 20: loss 2.846, iter time: 112.20ms remaining time: 35.10 hours.  or 1.46 days. ",
        "[rank0]: Epoch 1 | iter 100 step 20 | loss train: 2.846, val: n/a | iter time: 112.20 ms",
        "2024-05-04 09:30:00 Epoch 1 | iter 100 step 20 | loss train: 2.846, val: n/a | iter time: 112.20 ms",
    ],
)
def test_line_is_read(line: str) -> None:
    rows = the_run(line + "\n").iterations
    assert (rows.number[0], round(rows.time_s[0], 6), rows.loss[0]) == (100, 0.1122, 2.846)


@pytest.mark.parametrize(
    "line",
    [
        "iter 100: loss 4.2, time 168.6ms",
        "Epoch 1 | iter 100 step 20 | loss train: 2.846",
        "iter 100 step 20: loss 2",
        "iter time: 5 ms",
    ],
)
def test_other_lines_are_not(line: str) -> None:
    assert detect(from_text(line)) != "litgpt"


def pretraining() -> str:
    lines = [
        "{'devices': 1}",
        "train=TrainArgs(save_interval=1000, micro_batch_size=4, lr_warmup_steps=100)",
        "Total parameters: 124,439,808",
    ]
    for step in range(1, 41):
        taken = 2000 if step == 1 else 110 + step % 3
        lines.append(
            f"Epoch 1 | iter {step * 50} step {step * 10} | loss train: {5 - step / 40:.3f}, val: 4.5 | "
            f"iter time: {taken}.25 ms (step) remaining time: 0:20:10"
        )
        if step % 10 == 0:
            lines += ["Validating ...", f"iter {step * 50}: val loss 4.5100, val time: 5000.50 ms"]
            lines.append(f"Saving checkpoint to 'out/pretrain/step-{step * 10:08d}/lit_model.pth'")
    return "\n".join(lines) + "\n"


def test_a_pretraining() -> None:
    run = the_run(pretraining())
    assert run.timing is Timing.SPANS_STEP
    assert run.iterations.number.tolist() == list(range(50, 2001, 50))
    assert [(e.at, e.val_loss, e.took_s) for e in run.evaluations] == [
        (n, 4.51, 5.0005) for n in (500, 1000, 1500, 2000)
    ]
    assert [save.at for save in run.checkpoints] == [500, 1000, 1500, 2000]
    assert run.settings.number("n_params") == 124439808
    assert run.settings.count("batch_size") == 4
    answer = analyse(run)
    assert answer.costs.eval_s is not None
    assert answer.costs.eval_s.mid == pytest.approx(5.0005)
    assert {"invisible_checkpoints"} <= {finding.code for finding in answer.findings}


def test_columns_and_patterns_give_the_same() -> None:
    fast = the_run(pretraining()).iterations
    slow = the_run("".join(f"> {line}\n" for line in pretraining().splitlines())).iterations
    assert np.array_equal(fast.time_s, slow.time_s)
    assert np.array_equal(fast.loss, slow.loss)


def test_older_validation_lines() -> None:
    text = "iter 99 step 50: loss 2.8, iter time: 112.20ms\nstep 100: val loss 2.9000, val time: 1234.50ms\n"
    assert [(e.at, e.took_s) for e in the_run(text).evaluations] == [(100, 1.2345)]


def test_half_lines_are_named() -> None:
    run = the_run(pretraining() + "Epoch 1 | iter 2050 step 410 | loss train: 4.0, val: 4.5 | iter time: ")
    assert run.unread_count == 1


@pytest.mark.parametrize("cut", range(3, 300, 11))
def test_a_log_cut_anywhere_is_answered(cut: int) -> None:
    try:
        for run in read(from_text(pretraining()[:cut])):
            analyse(run)
    except NoIterations:
        pass


@pytest.mark.parametrize("prefix", ["", "[rank: 0] "])
def test_lines_without_a_loss_tell_their_time(prefix: str) -> None:
    text = "".join(f"{prefix}iter {n} step {n + 1}: iter time: 3372.20ms (optimizer.step)\n" for n in range(34, 38))
    run = the_run(text)
    assert run.iterations.time_s.tolist() == [3.3722] * 4
    assert np.isnan(run.iterations.loss).all()
