"""Own loops with a bar for each epoch: which bars are the training, which its validation, which neither."""

from __future__ import annotations

import pytest

from stepwatch.analysis import analyse
from stepwatch.errors import NoIterations
from stepwatch.readers import read
from stepwatch.run import Run, Timing
from stepwatch.sources import from_text


def bar(title: str, number: int, last: int, step_s: float, behind: str = "") -> str:
    seconds = int(number * step_s)
    minutes, hours = seconds // 60, seconds // 3600
    clock = f"{hours}:{minutes % 60:02d}:{seconds % 60:02d}" if hours else f"{minutes:02d}:{seconds % 60:02d}"
    rate = f"{1 / step_s:.2f}it/s" if step_s < 1 else f"{step_s:.2f}s/it"
    return f"{title}{100 * number // last:3d}%|####      | {number}/{last} [{clock}<00:00, {rate}{behind}]"


def lap(title: str, last: int, step_s: float, behind: str = "", every: int = 10) -> list[str]:
    return [bar(title, n, last, step_s, behind) for n in (*range(every, last, every), last)]


def the_run(*lines: str) -> Run:
    (run,) = read(from_text("\n".join(lines)))
    return run


def test_equal_bars_that_follow_each_other_are_epochs_of_one_run() -> None:
    lines: list[str] = []
    for epoch in range(1, 6):
        lines += [*lap("", 150, 0.4), *lap("", 30, 0.2), f"[ Valid | {epoch:03d}/010 ] loss = 1.5, acc = 0.4"]
    run = the_run(*lines)
    assert run.format == "tqdm-loop"
    assert run.timing is Timing.SPANS_LOG_INTERVAL
    assert run.iterations.number[-1] == 5 * 150
    assert run.settings.count("max_iters") == 10 * 150
    assert [each.at for each in run.evaluations] == [150, 300, 450, 600, 750]
    assert [each.took_s for each in run.evaluations] == pytest.approx([6.0] * 5, abs=0.6)
    report = analyse(run)
    assert report.costs.step_s.mid == pytest.approx(0.4, rel=0.02)
    assert report.goodput.wall_s == pytest.approx(750 * 0.4 + 5 * 6, rel=0.02)


def test_epochs_whose_bars_were_not_kept_are_counted_by_the_lines_that_number_them() -> None:
    lines: list[str] = []
    for epoch in range(1, 11):
        if epoch not in (4, 7):
            lines += [bar("", 100, 100, 0.5), bar("", 20, 20, 0.2)]
        lines.append(f"[ Valid | {epoch}/10 ] loss = 1.5")
    run = the_run(*lines)
    assert run.iterations.number.tolist() == [100, 200, 300, 500, 600, 800, 900, 1000]
    assert len(run.evaluations) == 10
    assert analyse(run).goodput.wall_s == pytest.approx(1000 * 0.5 + 10 * 4, rel=0.02)


def test_lines_that_count_from_another_beginning_do_not_move_the_epochs_of_the_titles() -> None:
    lines: list[str] = []
    for epoch in (1, 2):
        lines += [*lap(f"Rank 0 Epoch {epoch}/3: ", 40, 1.0), f"===== Epoch {epoch - 1} memory (rank=0) ====="]
    run = the_run(*lines)
    assert (run.iterations.number[0], run.iterations.number[-1]) == (40, 80)
    assert run.settings.count("max_iters") == 120


def test_a_last_epoch_without_its_last_position_is_whole_where_a_validation_follows() -> None:
    whole = [*lap("Train: ", 100, 0.5), *lap("Val: ", 20, 0.2)]
    cut = [bar("Train: ", 93, 100, 0.5), bar("Val: ", 20, 20, 0.2)]
    assert the_run(*whole, *cut).iterations.number[-1] == 200
    assert the_run(*cut).iterations.number[-1] == 93  # it may evaluate in the midst of an epoch


def test_an_epoch_before_a_validation_that_lacks_less_than_its_clock_shows_is_whole() -> None:
    """Bars that are taken away at their end never show it."""
    train, check = [*lap("Train: ", 100, 0.5)[:-1], bar("Train: ", 99, 100, 0.5)], lap("Val: ", 20, 0.2)
    lines = [line for n in (1, 2, 3) for line in (f"Epoch {n}/3", *train, *check)]
    assert the_run(*lines).iterations.number[-1] == 300
    assert the_run(*lines[: -len(check)]).iterations.number[-1] == 299
    assert analyse(the_run(*lines)).forecast.done


def test_a_title_or_a_loss_makes_one_bar_a_training() -> None:
    for title, behind in (("Training: ", ""), ("Epoch 1/3: ", ""), ("", ", loss=0.69")):
        run = the_run("some line", bar(title, 26, 40, 76.0, behind))
        assert run.iterations.number.tolist() == [26]
        assert analyse(run).costs.step_s.mid == pytest.approx(76.0, rel=0.02)


@pytest.mark.parametrize(
    "title",
    ["", "Loading checkpoint shards: ", "Map: ", "Tokenizing train split: ", "Validation: ", "Predicting: ", "Test: "],
)
def test_one_bar_of_anything_else_is_no_training(title: str) -> None:
    with pytest.raises(NoIterations):
        the_run("Setting pad_token_id to eos_token_id", *lap(title, 500, 0.5))


def test_inference_twice_is_no_training() -> None:
    with pytest.raises(NoIterations):
        the_run("answers", *lap("", 500, 0.5), *lap("", 500, 0.5))


def test_a_bar_around_the_epochs_gives_their_number() -> None:
    lines: list[str] = []
    for epoch in range(1, 4):
        lines += [*lap("Iteration: ", 200, 0.5), bar("Epoch: ", epoch, 8, 110.0)]
    run = the_run(*lines)
    assert run.iterations.number[-1] == 600
    assert run.settings.count("max_iters") == 8 * 200


def test_a_bar_of_the_epochs_alone_tells_means_where_the_batches_are_known() -> None:
    outer = [bar("Epoch: ", n, 5, 2000.0) for n in range(1, 6)]
    with pytest.raises(NoIterations):
        the_run(*outer)
    run = the_run("warn(        | 0/4000 [00:00<?, ?it/s]", *outer)
    assert run.timing is Timing.SPANS_RUN
    assert run.iterations.number.tolist() == [4000, 8000, 12000, 16000, 20000]
    assert run.iterations.time_s.tolist() == pytest.approx([0.5] * 5, rel=0.001)


@pytest.mark.parametrize("first", [0, 1])
def test_a_bar_whose_title_names_the_epoch_that_it_counts_is_a_bar_of_epochs(first: int) -> None:
    def one(last: int, step_s: float) -> list[str]:
        titles = [f"Epoch {n + first} /250 of 1026 batches: " for n in range(last)]
        return [bar(title, n + more, 250, step_s) for n, title in enumerate(titles) for more in (0, 1)]

    broken_off, whole = read(from_text("\n".join([*one(90, 150.0), "L_total: 2.05", *one(250, 60.0)])))
    assert (broken_off.iterations.number[-1], whole.iterations.number[-1]) == (90, 250)
    assert whole.settings.count("max_iters") == broken_off.settings.count("max_iters") == 250
    assert whole.traits.counts_epochs
    assert analyse(broken_off).goodput.wall_s == pytest.approx(90 * 150, rel=0.01)
    assert analyse(whole).costs.step_s.mid == pytest.approx(60.0, rel=0.01)


def test_short_bars_of_each_epoch_are_no_bar_of_epochs() -> None:
    """Their positions are near the number of the epoch as well."""
    titles = [f"Epoch {epoch}/3: " for epoch in (1, 2, 3)]
    assert the_run(*(bar(title, 2, 2, 40.0) for title in titles)).iterations.number[-1] == 6
    assert the_run(*(bar(title, n, 2, 40.0) for title in titles for n in (1, 2))).iterations.number[-1] == 6


def test_evaluations_with_a_clock_are_taken_out_of_a_bar_of_the_epochs() -> None:
    """100 batches of 1 s and an evaluation of 20 s in each epoch, as the examples of Hugging Face print it."""
    lines = ["warn(        | 0/100 [00:00<?, ?it/s]"]
    for epoch in range(1, 5):
        seconds = 120 * epoch
        lines += [
            f"05/04/2024 09:{seconds // 60 - 1:02d}:30 - INFO - __main__ -   ***** Running evaluation  *****39it/s]",
            f"05/04/2024 09:{seconds // 60 - 1:02d}:50 - INFO - __main__ -     eval_acc = 0.28",
            f"05/04/2024 09:{seconds // 60 - 1:02d}:50 - INFO - __main__ -     eval_loss = 1.2",
            f"Epoch:  {25 * epoch}%|██  | {epoch}/4 [{seconds // 60:02d}:00<08:00, 120.00s/it]",
        ]
    a = analyse(the_run(*lines))
    assert a.costs.step_s.mid == pytest.approx(1.0, rel=0.01)
    assert (a.phases.evaluations, a.goodput.parts_s["eval"]) == (4, pytest.approx(80))
    assert a.goodput.wall_s == pytest.approx(480, rel=0.01)


def test_a_bar_alone_is_said_to_be_a_guess() -> None:
    report = analyse(the_run(*lap("", 500, 0.5)))
    assert "bar_alone" in {finding.code for finding in report.findings}


@pytest.mark.parametrize("every", [10, 40])  # all positions, or the last one alone
def test_a_title_may_hold_brackets_percentages_and_changing_figures(every: int) -> None:
    lines: list[str] = []
    for epoch in range(1, 6):
        for n in range(every, 41, every):
            lines.append(bar(f"Train Epoch: [{epoch}/8], lr: {3e-5 / n / epoch:.3g}, Loss: {4 / n:.4f}: ", n, 40, 0.5))
        lines.append(bar("Feature extracting: ", 98, 98, 0.05))
        lines.append(bar(f"Test Epoch: [{epoch}/8] Acc@1:{31.9 + epoch:.2f}%: ", 20, 20, 0.1))
    run = the_run(*lines)
    assert run.iterations.number[-1] == 200
    assert run.settings.count("max_iters") == 320
    assert [each.at for each in run.evaluations] == [40, 80, 120, 160, 200]
    a = analyse(run)
    assert a.costs.step_s.mid == pytest.approx(0.5, rel=0.03)
    assert a.goodput.wall_s == pytest.approx(5 * (20 + 4.9 + 2), rel=0.03)  # features are part of the evaluation


def test_bars_without_a_total_are_epochs_where_the_log_names_these() -> None:
    def counted(number: int, step_s: float) -> str:
        seconds = int(number * step_s)
        return f"{number}it [{seconds // 60:02d}:{seconds % 60:02d}, {step_s:.2f}s/it]"

    laps = [[f"Epoch {epoch}", *(counted(n, 30.5) for n in (2, 4)), "train loss 0.51"] for epoch in range(1, 7)]
    run = the_run(*(line for lap in laps for line in lap), "Epoch 7", counted(2, 30.5))
    assert run.iterations.number[-1] == 26
    assert analyse(run).costs.step_s.mid == pytest.approx(30.5, rel=0.01)
    with pytest.raises(NoIterations):
        the_run(*(line for lap in laps for line in lap if line.endswith("]")))


@pytest.mark.parametrize("titled", [True, False])
def test_a_last_position_that_is_drawn_again_later_is_no_other_epoch(titled: bool) -> None:
    lines = ["the loss of each epoch", *lap("Training: " if titled else "", 90, 1.5)]
    lines += ["", "done", "", "saved", lines[-1]]
    if titled:
        assert the_run(*lines).iterations.number[-1] == 90
    else:
        with pytest.raises(NoIterations):  # one bar, of which nothing says that it is a training
            the_run(*lines)


def test_untitled_bars_are_a_training_only_where_losses_or_epochs_stand_beside_them() -> None:
    bars = [[*lap("", 90, 1.5), "vectors of one layer", "", ""] for _ in range(4)]
    with pytest.raises(NoIterations):
        the_run("the loss is computed later", *(line for lap in bars for line in lap), "epoch 1")
    told = [line for number, lap in enumerate(bars) for line in (*lap, f"epoch {number}: loss 0.5")]
    assert the_run(*told).iterations.number[-1] == 360


def test_a_title_of_figures_that_change_is_a_training() -> None:
    """As of a GAN; the first drawings have no title yet."""
    lines = [bar("", 0, 4000, 2.0), bar("", 1, 4000, 2.0)]
    lines += [bar(f"d: {4 / n - 0.5:.3f};generator: {-n / 3:.3f}: ", n, 4000, 2.0) for n in range(1, 1500)]
    run = the_run("some line", *lines)
    assert (run.iterations.number[0], run.iterations.number[-1]) == (1, 1499)
    assert run.settings.count("max_iters") == 4000  # a bar of the whole training
    assert analyse(run).costs.step_s.mid == pytest.approx(2.0, rel=0.02)


@pytest.mark.parametrize("behind", [", loss=0.51", ", lr=1e-5", ", g_loss=0.1, d_loss=0.4", ", nll=2.5"])
def test_a_loss_behind_an_untitled_bar_is_a_training(behind: str) -> None:
    assert the_run("some line", *lap("", 500, 0.5, behind)).iterations.number[-1] == 500


@pytest.mark.parametrize(
    ("title", "behind"),
    [("acc: {}: ", ""), ("Processed prompts: ", ", est. input: {} toks/s"), ("val_loss: {}: ", ""), ("", ", acc={}")],
)
def test_figures_that_inference_shows_too_are_no_training(title: str, behind: str) -> None:
    lines = [bar(title.format(f"{n / 7:.3f}"), n, 400, 0.5, behind.format(f"{n / 7:.3f}")) for n in range(10, 401, 10)]
    with pytest.raises(NoIterations):
        the_run("some line", *lines)


def test_untitled_bars_above_lines_of_a_validation_are_those_of_the_validation() -> None:
    bars = [[*lap("", 46, 0.05), f"EPOCH {n} ... Validation Accuracy = 0.41", ""] for n in range(1, 9)]
    lines = [line for lap in bars for line in lap]
    with pytest.raises(NoIterations):
        the_run("Training...", *lines, "Training for 8 epochs took 273.1 seconds")
    headed = [line for n, lap in enumerate(bars, 1) for line in (f"Epoch {n}", *lap)]
    assert the_run(*headed).iterations.number[-1] == 8 * 46  # a bar right under the name of its epoch


def test_a_loss_on_a_line_that_begins_with_a_validation_is_of_that() -> None:
    lines = [line for n in range(4) for line in (*lap("", 46, 0.5), f"Validation_{n} Average Loss: 0.1279, mIoU: 0.5")]
    with pytest.raises(NoIterations):
        the_run("start_validation", *lines)


def test_a_first_epoch_without_a_visible_start_counts_as_the_others() -> None:
    steps = [*[0.2] * 6, 0.29, *(0.36 + 0.02 * (n // 2) for n in range(18))]
    lines = [line for n, s in enumerate(steps) for line in (f"epoch {n}", bar("", 1000, 1000, s), f"loss: {9 - n / 9}")]
    run = the_run(*lines, f"epoch {len(steps)}", bar("", 20, 1000, 0.53))
    assert analyse(run).costs.step_s.mid == pytest.approx(sorted(steps)[12], rel=0.01)


def test_bars_are_not_those_of_a_training_that_says_it_took_far_longer() -> None:
    bars = [[f"Epoch {n} loss 0.4", *lap("", 46, 0.05)] for n in range(1, 9)]
    lines = [line for lap in bars for line in lap]
    assert the_run(*lines).iterations.number[-1] == 8 * 46
    with pytest.raises(NoIterations):
        the_run(*lines, "Training of the model took 273.1 seconds")
    (run,) = read(from_text("\n".join([*lines, "Training took 273.1 seconds"])))
    assert (run.format, run.iterations.number.tolist()) == ("epoch-lines", [8])
    assert run.iterations.time_s.tolist() == pytest.approx([273.1 / 8])


@pytest.mark.parametrize("apart", [20, 100])
def test_bars_between_lines_of_more_steps_than_they_have_are_not_those_of_the_training(apart: int) -> None:
    lines: list[str] = []
    for epoch in range(1, 7):
        steps = range(5 * (epoch - 1) * apart, 5 * epoch * apart, apart)
        lines += [f"epoch: {epoch}  step: {step}  loss: 21.9360  batch: 0.5861" for step in steps]
        lines += [*lap("", 120, 0.25), "save best ap: 0.038"]
    if apart == 20:  # fewer steps than the bar has
        assert the_run(*lines).iterations.number[-1] == 6 * 120
    else:
        with pytest.raises(NoIterations):
            the_run(*lines)


@pytest.mark.parametrize("form", ["Epoch {}", "Epoch {}/3", "epoch: {}"])
def test_a_run_begins_where_the_epochs_are_counted_from_the_beginning_again(form: str) -> None:
    lines: list[str] = []
    for step_s in (0.4, 0.2, 0.8):
        for epoch in (1, 2, 3):
            lines += [form.format(epoch), *lap("", 60, step_s), "Loss: 12.9", "Evaluating..."]
    runs = read(from_text("\n".join(lines)))
    assert [run.iterations.number[-1] for run in runs] == [180] * 3
    assert [analyse(run).costs.step_s.mid for run in runs] == pytest.approx([0.4, 0.2, 0.8], rel=0.03)


def test_runs_whose_epochs_are_named_below_their_bars_begin_with_their_first() -> None:
    lines: list[str] = []
    for step_s in (0.4, 0.3):
        for epoch in (1, 2, 3):
            lines += [*lap("", 60, step_s), *lap("", 12, 0.2), f"Epoch: {epoch}, Train Loss: 2.5, Valid Loss: 1.7"]
    runs = read(from_text("\n".join(lines)))
    assert [(run.iterations.number[0], run.iterations.number[-1]) for run in runs] == [(60, 180)] * 2


def test_trainings_of_different_length_are_runs_of_their_own() -> None:
    lines: list[str] = []
    for last, step_s in ((100, 0.5), (40, 0.2)):
        for epoch in range(1, 5):
            lines += [f"Epoch {epoch}/4", *lap("Training: ", last, step_s), *lap("Validation: ", last // 10, 0.1)]
        lines += ["Early stopping triggered!" if last == 40 else "Training completed", *lap("Testing: ", 12, 0.1)]
    first, second = read(from_text("\n".join(lines)))
    assert (first.iterations.number[-1], second.iterations.number[-1]) == (400, 160)
    assert (first.settings.count("max_iters"), second.settings.count("max_iters")) == (400, 160)
    assert (len(first.evaluations), len(second.evaluations)) == (4, 4)
    assert second.ended_by_plan


def test_early_stopping_is_an_end_and_its_counter_is_none() -> None:
    laps = [[f"Epoch {n}/50", *lap("Training: ", 60, 0.4), "EarlyStopping counter: 1"] for n in (1, 2, 3)]
    lines = [line for lap in laps for line in lap]
    assert not the_run(*lines).ended_by_plan
    assert the_run(*lines, "Early stopping at epoch 3").ended_by_plan


def test_an_error_behind_the_end_of_a_training_is_no_crash_of_it() -> None:
    lines = [line for n in (1, 2) for line in (f"Epoch {n}/2", *lap("Training: ", 60, 0.4))]
    error = ("Traceback (most recent call last):", "NameError: name 'preds' is not defined")
    assert the_run(*lines, *error).faults == ()
    assert the_run(*lines[:-3], *error).faults


def test_a_bar_beyond_its_total_is_the_same_bar() -> None:
    over = ["Training: 401it [06:45, 1.01s/it]", "Training: 402it [06:50, 1.02s/it]"]
    assert the_run(*lap("Training: ", 400, 1.0), *over).iterations.number[-1] == 400


def test_a_date_is_no_epoch() -> None:
    run = the_run("Loading Training Cameras [12/01 14:10:44]", *lap("Training progress: ", 400, 1.0))
    assert run.iterations.number[-1] == 400


def test_several_bars_and_nothing_else_are_no_training() -> None:
    with pytest.raises(NoIterations):
        the_run(*lap("", 500, 0.5), *lap("", 800, 0.5))


def test_a_bar_that_was_broken_off_is_followed_by_another_run() -> None:
    ends = ((2, 30.0), (3, 31.0), (17, 29.0))
    bars = [[line for draw in lap("", 200, s)[:end] for line in (draw, "Epoch num| loss 0.4")] for end, s in ends]
    runs = read(from_text("\n".join(line for lap in bars for line in lap)))
    assert [run.iterations.number[-1] for run in runs] == [20, 30, 170]


def test_a_bar_that_is_closed_when_the_next_has_begun_is_not_another_one() -> None:
    lines: list[str] = []
    for epoch in range(1, 4):
        lines.append(bar(f"Epoch {epoch}/3: ", 0, 100, 0.5))
        lines += [bar(f"Epoch {epoch - 1}/3: ", 100, 100, 0.52, ", loss=1.2")] * (epoch > 1)
        lines += [f"Epoch {epoch - 1}: memory 3 GB", *lap(f"Epoch {epoch}/3: ", 100, 0.5, ", loss=1.2")]
    run = the_run(*lines)
    assert (run.iterations.number[-1], run.settings.count("max_iters")) == (300, 300)
    assert analyse(run).goodput.wall_s == pytest.approx(150, rel=0.02)


def test_a_bar_that_goes_on_while_lines_name_one_epoch_after_the_other_is_one_of_all_epochs() -> None:
    lines = ["num_train_epochs: 5"]
    for step in range(1, 1001):
        pause_s = 60.0 * ((step - 1) // 200)
        shown = bar("Training: ", step, 1000, 1.5 + pause_s / step)
        lines.append(shown if step % 200 else f"{shown}10:00:00 - INFO - Epoch {step // 200}/5 - Train Loss: 0.5")
        lines += ["10:01:00 - INFO - Validation - Loss: 0.2, F1: 0.9"] * (step % 200 == 0)
    lines += ["10:01:01 - INFO - Checkpoint saved", bar("Training: ", 1000, 1000, 1.8), "Training finished"]
    run = the_run(*lines)
    assert (run.iterations.number[-1], run.settings.count("max_iters")) == (1000, 1000)
    analysis = analyse(run)
    assert analysis.goodput.iterations == 1000
    assert analysis.goodput.wall_s == pytest.approx(1740, rel=0.01)
    assert analysis.costs.step_s.mid == pytest.approx(1.5, rel=0.02)


def test_epochs_that_lines_count_beside_bars_that_never_reached_their_end_are_not_laps_of_these() -> None:
    lines = [bar("Training: ", 1, 10000, 2.4), "Epoch: 1", "Epoch: 2"]
    lines.append("Training:   0%|          | 0/10000 [00:00<?, ?it/s]")
    lines += [bar("Training: ", 5, 10000, 1.4), "loss: 0.5", "Epoch: 13", bar("Training: ", 12, 10000, 1.4)]
    *_, run = read(from_text("\n".join(lines)))
    assert run.iterations.number[-1] == 12
    assert analyse(run).goodput.wall_s == pytest.approx(17, abs=1)


def test_an_epoch_far_beyond_all_others_is_not_filled_up_to() -> None:
    """Evaluations of a million million epochs would be listed."""
    lines = []
    for epoch in (1, 2, 3, 999_999_999_999):
        lines += [f"Epoch {epoch}/10: 100%|██████████| 187/187 [06:39<00:00,  2.13s/it, loss=0.4]"]
        lines += ["Validation: 100%|██████████| 21/21 [00:18<00:00,  1.12it/s]"]
    assert len(read(from_text("\n".join(lines)))[0].evaluations) <= 4


@pytest.mark.parametrize("unit", ["Batch", "batches", "Iter", "STEP"])
def test_the_unit_of_a_bar_may_be_written_in_another_way(unit: str) -> None:
    lines = [
        f"Epoch {epoch}: Training: 100%|██████████| 390/390 [00:33<00:00, 11.57{unit}/s, train_loss=0.2, val_loss=0.25]"
        for epoch in (1, 2, 3)
    ]
    run = the_run(*lines, bar("Epoch 4: Training: ", 30, 390, 2.0).replace("s/it", f"s/{unit}"))
    assert run.iterations.number[-1] == 3 * 390 + 30
    assert run.iterations.time_s[0] == pytest.approx(1 / 11.57, rel=0.001)
    with pytest.raises(NoIterations):
        the_run(*(line.replace(f"{unit}/s", "MB/s") for line in lines))


@pytest.mark.parametrize(
    "glued",
    ["Validation loss: 5.8{n}", "loss: 0.1{n}", "2026-05-01 20:24:13,368 - INFO - train:535 - Batch {n}, Loss: 3.3"],
)
def test_losses_along_one_bar_without_a_title_are_those_of_a_training(glued: str) -> None:
    lines = [bar("", n, 900, 1.5) + glued.format(n=n) for n in range(100, 1000, 100)]
    shards = "Loading checkpoint shards: 100%|██████████| 4/4 [00:02<00:00,  2.13it/s]"
    run = the_run(shards, bar("", 1, 900, 1.5), *lines)
    assert (run.iterations.number[-1], analyse(run).goodput.iterations) == (900, 900)
    assert analyse(run).goodput.wall_s == pytest.approx(1350, rel=0.01)


@pytest.mark.parametrize(
    "lines",
    [
        [bar("", n, 9, 60.0) + f"Validation loss: 5.8{n}" for n in range(1, 9)],  # of one model after the other
        [bar("", n, 900, 1.5) + f"Epoch {n // 100}, loss: 5.8{n}" for n in range(100, 1000, 100)],  # not one epoch
        [bar("", n, 900, 1.5) for n in range(100, 1000, 100)] + ["loss: 0.5"] * 9,
        [bar("", n, 900, 1.5) + "loss: 0.5" * (n < 300) for n in range(100, 1000, 100)],
    ],
)
def test_other_losses_beside_one_bar_show_no_training(lines: list[str]) -> None:
    with pytest.raises(NoIterations):
        the_run(*lines)


def test_a_bar_of_all_epochs_is_known_by_where_its_first_epoch_ends() -> None:
    def lines(every: int, end: int) -> list[str]:
        shown = ((step, bar("Training: ", step, 1000, 1.5)) for step in range(1, end))
        return [f"{each}Epoch 1/5 - Train Loss: 0.5" * (step % every == 0) or each for step, each in shown]

    assert the_run(*lines(200, 300)).settings.count("max_iters") == 1000
    assert the_run(*lines(50, 300)).settings.count("max_iters") == 5000  # losses within the first of 5 epochs
    assert the_run("Epoch 0/5 - Train Loss: 0.5", *lines(150, 200)).settings.count("max_iters") == 5000


def test_bars_of_rich_as_lightning_draws_them() -> None:
    def rich(title: str, number: int, last: int, step_s: float) -> str:
        spent, left = (f"0:{int(n * step_s) // 60:02}:{int(n * step_s) % 60:02}" for n in (number, last - number))
        figures = f"{1 / step_s:.2f}it/s v_num: 0.000 train_loss: {9 / number:.3f}"
        return f"{title} {'━' * 40} {number}/{last} {spent} • {left} {figures}"

    lines = []
    for epoch in range(5):
        lines += [rich(f"Epoch {epoch}/4 ", number, 235, 0.5) for number in (100, 200, 235)]
        lines += [rich("Validation", number, 40, 0.2) for number in (20, 40)]
    run = the_run("GPU available: True", *lines)
    assert run.iterations.number[-1] == 5 * 235
    assert the_run(*lines[:8]).settings.count("max_iters") == 5 * 235  # epochs from 0 to 4
    assert analyse(run).costs.step_s.mid == pytest.approx(0.5, rel=0.02)
    assert [event.took_s for event in run.evaluations] == pytest.approx([8.5] * 5, abs=0.6)
