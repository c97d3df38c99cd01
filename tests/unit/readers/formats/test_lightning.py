"""Lightning: batches and their times from its bars, and what metrics.csv tells."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.bars import drawing

from stepwatch.analysis import analyse
from stepwatch.errors import NoIterations
from stepwatch.readers import detect, read
from stepwatch.run import Run, Timing
from stepwatch.sources import from_text

HEAD = """\
GPU available: True (cuda), used: True
You are using a CUDA device ('NVIDIA GeForce RTX 4090') that has Tensor Cores.
124 M     Trainable params
124 M     Total params
"""


def the_run(text: str) -> Run:
    source = from_text(text)
    assert detect(source) == "lightning"
    (run,) = read(source)
    return run


def bars(
    *, epochs: int = 3, batches: int = 120, step_s: float = 0.23, val: int = 20, val_s: float = 0.1, every: int = 0,
    old: bool = False, slow: bool = False, start_s: float = 0.0, emptied: bool = False,
) -> tuple[list[str], dict[int, float]]:  # fmt: skip
    """The lines, and the time of each batch. `old`: the bar counts validation too. `every`: validation within.

    `start_s`: what a validation takes before its bar begins. `emptied`: the bar is drawn anew before its next title.
    """
    rng = random.Random(4)
    lines, times = [drawing("Sanity Checking DataLoader 0: ", 1, 2, 0.1, "10.00it/s")], {}
    checks = batches // every if every else 1
    total = batches + (val * checks if old else 0)

    def bar(epoch: int, done: int, elapsed: float, loss: str = "") -> str:
        shown = f"{elapsed / done:5.2f}s/it" if slow else f"{done / elapsed:5.2f}it/s"
        return drawing(f"Epoch {epoch}: ", done, total, elapsed, shown, f", v_num=0{loss}")

    for epoch in range(epochs):
        elapsed, done = 0.0, 0
        for batch in range(1, batches + 1):
            took = step_s * rng.uniform(0.95, 1.05)
            times[epoch * batches + batch] = took
            elapsed, done = elapsed + took, done + 1
            lines += [bar(epoch, done, elapsed), bar(epoch, done, elapsed, f", train_loss={3 - batch / 100:.3f}")]
            if batch == batches or (every and batch % every == 0):
                elapsed += start_s
                for i in range(1, val + 1):
                    lines.append(drawing("Validation DataLoader 0: ", i, val, i * val_s, f"{1 / val_s:5.2f}it/s"))
                    elapsed += val_s
                    if old:
                        done += 1
                        lines.append(bar(epoch, done, elapsed))
                if start_s:
                    lines.append(bar(epoch, done, elapsed, ", train_loss=1.800"))
        lines.append(bar(epoch, done, elapsed, ", train_loss=1.800, val_loss=2.010"))
        if emptied:
            lines.append(drawing(f"Epoch {epoch}: ", 0, total, 0.0, "?it/s", ", v_num=0"))
    return [*lines, f"`Trainer.fit` stopped: `max_epochs={epochs}` reached."], times


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("every", [0, 40])
def test_batches_and_validation_are_told_apart(old: bool, every: int) -> None:
    lines, times = bars(old=old, every=every)
    run = the_run(HEAD + "\n".join(lines))
    assert run.iterations.number.tolist() == list(range(1, 361))
    true = np.array(list(times.values()))
    assert abs(np.median(run.iterations.time_s) / np.median(true) - 1) < 0.01
    assert abs(run.iterations.time_s.sum() / true.sum() - 1) < 0.03
    places = [batch for batch in range(1, 361) if batch % (every or 120) == 0]
    assert [e.at for e in run.evaluations] == places
    assert np.mean([e.took_s or 0 for e in run.evaluations]) == pytest.approx(2.0, rel=0.05)
    assert run.settings.count("max_iters") == 360
    assert run.settings.number("n_params") == 124e6
    assert run.gpu_text == "NVIDIA GeForce RTX 4090"
    assert run.has_header


@pytest.mark.parametrize("every", [0, 40])
@pytest.mark.parametrize("emptied", [False, True])
def test_a_validation_has_what_its_own_bar_does_not_show(every: int, emptied: bool) -> None:
    lines, times = bars(every=every, start_s=1.0, emptied=emptied)
    run = the_run("\n".join(lines))
    assert [each.took_s for each in run.evaluations] == pytest.approx([3.0] * (9 if every else 3), rel=0.05)
    assert run.iterations.time_s.sum() == pytest.approx(sum(times.values()), rel=0.01)


def test_losses_are_those_of_their_batch() -> None:
    run = the_run("\n".join(bars()[0]))
    assert run.iterations.loss[:3].tolist() == [2.99, 2.98, 2.97]


def test_slow_batches_by_whole_seconds() -> None:
    lines, times = bars(step_s=21.0, val_s=2.0, slow=True)
    run = the_run("\n".join(lines))
    assert abs(np.median(run.iterations.time_s) / np.median(list(times.values())) - 1) < 0.02


def test_last_lines_of_epochs_alone() -> None:
    lines, times = bars(epochs=5)
    ends = [line for line in lines if "val_loss" in line]
    run = the_run("\n".join(ends))
    assert run.iterations.number.tolist() == [120, 240, 360, 480, 600]
    assert run.timing is Timing.SPANS_LOG_INTERVAL
    whole = (sum(times.values()) + 5 * 2.0) / 600  # nothing takes the validation out
    assert run.iterations.time_s.tolist() == pytest.approx([whole] * 5, rel=0.02)


def test_a_bar_that_stands_still_at_its_end_is_a_validation() -> None:
    text = """\
Epoch 49: 100%|██████████| 12/12 [00:02<00:00,  4.93it/s, v_num=0, train_loss_step=0.197, val_loss=0.3]
Epoch 49: 100%|██████████| 12/12 [00:03<00:00,  3.90it/s, v_num=0, train_loss_step=0.197, val_loss=0.3]
"""
    run = the_run(text)
    assert (run.evaluations[0].at, run.evaluations[0].took_s) == (600, pytest.approx(12 / 3.9 - 12 / 4.93))
    assert run.iterations.time_s.tolist() == pytest.approx([1 / 4.93])
    assert analyse(run).goodput.iterations == 12


def test_the_last_bars_that_a_notebook_keeps() -> None:
    lines, times = bars(epochs=4)
    drawn = [line for line in lines if line.startswith("Epoch")]
    kept = [each for each in drawn if each.startswith("Epoch 0") and ("119/120" in each or "120/120" in each)]
    kept += [each for each in drawn if each.startswith("Epoch 2") and "val_loss" in each]
    kept += [[each for each in drawn if each.startswith("Epoch 3") and " 70/120" in each][-1]]
    analysis = analyse(the_run(HEAD + "\n".join(kept)))
    assert analysis.goodput.iterations == 3 * 120 + 70
    true = sum(took for number, took in times.items() if number <= 430)
    assert true < analysis.goodput.wall_s == pytest.approx(true + 3 * 2.0, rel=0.02)
    assert analysis.costs.step_s.mid == pytest.approx(0.23, rel=0.1)
    coarse = (
        HEAD
        + """\
Epoch 0: 100%|█████████▉| 403/404 [01:54<00:00,  3.51it/s, v_num=0]
Epoch 0: 100%|██████████| 404/404 [01:54<00:00,  3.52it/s, v_num=0]
"""
    )
    assert the_run(coarse).iterations.time_s.tolist() == pytest.approx([0.285, 0.285], rel=0.01)


def test_saved_checkpoints_belong_to_the_batch_above() -> None:
    lines, _ = bars()
    lines.insert(
        241, "Epoch 0, global step 60: 'val_loss' reached 2.01000 (best 2.01000), saving model to 'x.ckpt' as top 1"
    )
    lines.insert(242, "Epoch 0, global step 60: 'val_loss' was not in top 1")
    assert [save.at for save in the_run("\n".join(lines)).checkpoints] == [120]


def test_two_fits_in_one_log_are_two_runs() -> None:
    text = "\n".join(bars(epochs=2)[0] + bars(epochs=2, step_s=0.5)[0])
    runs = read(from_text(text))
    assert [len(run.iterations) for run in runs] == [240, 240]


def test_a_cut_from_the_middle() -> None:
    lines, times = bars(epochs=2, batches=400)
    run = the_run("\n".join(lines[300:500]))
    true = [times[number] for number in run.iterations.number.tolist()]
    assert abs(np.median(run.iterations.time_s) / np.median(true) - 1) < 0.02
    assert not run.has_header


def test_the_other_bar() -> None:
    lines = [
        f"Epoch 0/9 ━━━━━╸━━━━ {n}/100 0:00:{n // 2:02d} • 0:00:40 2.00it/s v_num: 0.000 train_loss: 2.3"
        for n in range(1, 101)
    ]
    run = the_run("\n".join(lines))
    assert len(run.iterations) == 100
    assert np.median(run.iterations.time_s) == pytest.approx(0.5, rel=0.02)


# --- metrics.csv -----------------------------------------------------------------------------------------------------


def csv(names: str, rows: list[str]) -> str:
    return "\n".join([names, *rows]) + "\n"


def test_an_epoch_time_gives_the_mean_of_its_steps() -> None:
    rows = []
    for epoch in range(3):
        rows += [f"{epoch},,{epoch * 200 + step},{3 - step / 100}," for step in (49, 99, 149, 199)]
        rows += [f"{epoch},,{epoch * 200 + 199},,2.5", f"{epoch},{100.0 + 20 * epoch},{epoch * 200 + 199},,"]
    run = the_run(csv("epoch,epoch_time,step,train_loss,val_loss", rows))
    assert run.timing is Timing.SPANS_RUN
    assert run.iterations.number.tolist() == [49, 99, 149, 199, 249, 299, 349, 399, 449, 499, 549, 599]
    assert run.iterations.time_s.tolist() == pytest.approx([0.5] * 4 + [0.6] * 4 + [0.7] * 4)
    assert [(e.at, e.val_loss) for e in run.evaluations] == [(199, 2.5), (399, 2.5), (599, 2.5)]
    assert "eval" in run.holds  # the user's clock runs on in the validation


@pytest.mark.parametrize(
    ("name", "value"),
    [("step_time", "0.25"), ("train/step_time_ms", "250"), ("time_per_step", "0.25"), ("train|iter_time", "0.25")],
)
def test_a_time_of_steps_is_taken(name: str, value: str) -> None:
    rows = [f"0,{step},{2.0},{value}" for step in range(49, 1000, 50)]
    run = the_run(csv(f"epoch,step,train_loss,{name}", rows))
    assert run.iterations.time_s.tolist() == pytest.approx([0.25] * 20)


def test_a_clock_is_taken_apart() -> None:
    rows = [f"0,{step},2.0,{step * 0.25 + 7:.4f}" for step in range(49, 1000, 50)]
    run = the_run(csv("epoch,step,loss,train|time", rows))
    assert run.iterations.time_s.tolist() == pytest.approx([0.25] * 20)
    assert run.timing is Timing.SPANS_LOG_INTERVAL


def test_without_a_time_it_says_so() -> None:
    rows = [f"0,{step},2.0," for step in range(49, 1000, 50)] + ["0,999,,2.1"]
    for text in (csv("epoch,step,train_loss,val_loss", rows), "\n".join(rows)):
        source = from_text(text)
        assert detect(source) == "lightning"
        with pytest.raises(NoIterations, match="nothing in it shows their time"):
            read(source)


@pytest.mark.parametrize(
    "text",
    ["epoch,step\n", "epoch,step,loss\n1,2\n,,\n", "a,b,c\n1,,2\n", "epoch,step,x\n0,1e400,nan\n", "1,,2\n" * 30],
)
def test_strange_tables_never_raise(text: str) -> None:
    try:
        for run in read(from_text(text)):
            analyse(run)
    except NoIterations:
        pass


@pytest.mark.parametrize("seed", range(20))
def test_accidents_are_answered(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray("\n".join(bars(batches=30, old=bool(seed % 2))[0]).encode())
    for _ in range(20):
        place = rng.randrange(len(data))
        data[place : place + rng.randrange(30)] = bytes(rng.randrange(256) for _ in range(rng.randrange(12)))
    for run in read(from_text(data.decode("utf-8", "replace"))):
        assert np.isfinite(run.iterations.time_s).all()
        analyse(run)


def test_a_loss_that_only_late_bars_show_is_the_one() -> None:
    shown = [", v_num=0, train_acc=0.5"] * 1500 + [", v_num=0, train_acc=0.5, loss=1.25"] * 100
    bars = [f"{n / 16:3.0f}%|          | {n}/1600 [{n // 60:02d}:{n % 60:02d}<00:00,  1.00it/s" for n in range(1, 1601)]
    (run,) = read(
        from_text("\n".join(f"Epoch 0: {bar}{more}]" for bar, more in zip(bars, shown, strict=True))), "lightning"
    )
    assert np.isnan(run.iterations.loss[:1500]).all()
    assert (run.iterations.loss[1500:] == 1.25).all()


def without_length(kind: str, epochs: int = 4, batches: int = 60, step_s: float = 0.23) -> str:
    """Bars of data that does not tell its length."""
    counts = {"?": " |          | {n}/? [{clock}<00:00, ", "it": " {n}it [{clock}, "}[kind]
    lines = []
    for epoch in range(epochs):
        for n in range(1, batches + 1):
            seconds = n * step_s
            clock = f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
            lines.append(
                f"Epoch {epoch}:{counts.format(n=n, clock=clock)}{1 / step_s:5.2f}it/s, v_num=3, loss={n / 9:.3f}]"
            )
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("kind", ["?", "it"])
def test_data_of_unknown_length(kind: str) -> None:
    run = the_run(HEAD + without_length(kind))
    assert run.iterations.number.tolist() == list(range(1, 241))
    assert run.iterations.time_s.mean() == pytest.approx(0.23, rel=0.02)
    assert run.iterations.loss[:2].tolist() == [0.111, 0.222]
    assert run.settings.count("max_iters") is None


def test_the_other_bar_of_unknown_length() -> None:
    line = "Epoch 0/-2 ━━━━━━━━━━ 400/-- 0:02:00 • -:--:-- 3.33it/s v_num: 1 train_loss: 10.4\n"
    analysis = analyse(the_run(line))
    assert (analysis.goodput.iterations, analysis.goodput.wall_s) == (400, pytest.approx(120, abs=0.5))
    assert analysis.run.settings.count("max_iters") is None


def test_the_other_bar_tells_the_number_of_epochs() -> None:
    lines = [f"Epoch {n}/29 ━━━━━━━━━━ 400/400 0:02:00 • 0:00:00 3.33it/s v_num: 1\n" for n in range(3)]
    assert the_run("".join(lines)).settings.count("max_iters") == 30 * 400


def test_one_bar_alone_is_the_mean_of_its_batches() -> None:
    run = the_run("Epoch 0:   3%|▍         | 8/260 [16:00<8:00:00,  0.01it/s, v_num=2ch5]\n")
    assert run.timing is Timing.SPANS_RUN
    analysis = analyse(run)
    assert (analysis.goodput.iterations, analysis.goodput.wall_s) == (8, pytest.approx(960))
    assert analysis.costs.step_s.mid == pytest.approx(120)


def test_one_bar_from_a_later_epoch_covers_its_own_batches() -> None:
    analysis = analyse(the_run("Epoch 3:   3%|▍         | 8/260 [16:00<8:00:00,  0.01it/s, v_num=2ch5]\n"))
    assert (analysis.goodput.iterations, analysis.goodput.wall_s) == (8, pytest.approx(960))


def test_the_other_bar_behind_an_error_and_its_validation() -> None:
    drawn = "\u2501" * 40
    bar = "Epoch 0/0  {0} {1}/50 0:00:{2:02d} \u2022 0:00:01 10.00it/s v_num: 7\n"
    text = "".join(bar.format(drawn, n, n // 10) for n in range(10, 50, 10))
    text += f"Exception in thread Thread-2 (_loop)Epoch 0/0  {drawn} 50/50 0:00:05 \u2022 0:00:00 10.00it/s v_num: 7\n"
    text += f"Validation {drawn} 20/20 0:00:02 \u2022 0:00:00 10.00it/s\n"
    run = the_run(text)
    assert run.iterations.number[-1] == 50
    assert [(each.at, each.took_s) for each in run.evaluations] == [(50, pytest.approx(2.0, abs=0.6))]


def test_bars_with_a_smoothed_rate_or_epochs_from_1_are_of_another_loop() -> None:
    bar = "Epoch {0}: {1}%|###   | {1}/100 [00:{2:02d}<00:10,  5.00it/s]\n"
    text = "".join(bar.format(epoch, n, n // 5) for epoch in (1, 2) for n in range(20, 101, 20))
    (run,) = read(from_text(text))
    assert (run.format, run.iterations.number[-1]) == ("tqdm-loop", 200)
    assert the_run(text.replace("it/s]", "it/s, v_num=3]")).format == "lightning"
    from_zero = text.replace("Epoch 1", "Epoch 0").replace("Epoch 2", "Epoch 1")
    assert the_run(from_zero).format == "lightning"
    assert detect(from_text(from_zero.replace("5.00it/s", "9.00it/s"))) == "tqdm-loop"


def test_an_error_of_a_program_that_refuses_its_arguments_is_none_of_the_training() -> None:
    text = HEAD + "\n".join(bars()[0][:-1]) + "\n"
    error = "RuntimeError: something else\n"
    assert the_run(text + error).faults
    assert the_run(text + "usage: other.py [-h]\nother.py: error: unrecognized arguments\n" + error).faults == ()


@pytest.mark.parametrize(
    "line",
    [
        "Time limit reached. Elapsed time is 0:10:00. Signaling Trainer to stop.",
        "Monitored metric val_loss did not improve in the last 3 records. Best score: 0.4. Signaling Trainer to stop.",
    ],
)
def test_a_trainer_that_is_told_to_stop_has_ended(line: str) -> None:
    text = HEAD + "\n".join(bars()[0][:-1]) + "\n"
    assert not the_run(text).ended_by_plan
    assert the_run(text + line + "\n").ended_by_plan


@pytest.mark.parametrize("left", ["-1:59:58", "1e-05:12", "7.5:22", ""])
def test_a_time_left_that_is_none_hides_no_batch(left: str) -> None:
    """Nobody reads it. Among many lines such a bar was read, alone it was not."""
    line = f"Epoch 8:  39%|████      | 27/454 [12:52<{left},  8.54it/s, v_num=0, train_loss=2.519]\n"
    run = the_run(HEAD + line + line.replace("27/454 [12:52", "28/454 [12:53"))
    assert run.iterations.number.tolist() == [8 * 454 + 27, 8 * 454 + 28]
    assert not run.unread_count
