"""Keras: bars of both ages and verbose=2; only what ends an epoch counts."""

from __future__ import annotations

import pytest
from tools.formats_page import example_of

from stepwatch.analysis import analyse
from stepwatch.readers import detect, read
from stepwatch.readers.formats.keras import READER
from stepwatch.readers.records import Records
from stepwatch.run import Run
from stepwatch.sources import from_text
from stepwatch.verdict import Status, judge

BAR = "\u2501" * 20
NEW = "500/500 " + BAR + " {elapsed}s {ms}ms/step - accuracy: 0.5 - loss: {loss} - val_accuracy: 0.5 - val_loss: 4.1\n"
OLD = "500/500 [==============================] - {elapsed}s {ms}ms/step - loss: {loss} - acc: 0.2 - val_loss: 4.1\n"
QUIET = "500/500 - {elapsed}s - {ms}ms/step - loss: {loss} - val_loss: 4.1\n"
LATE = "500/500 - {elapsed}s - loss: {loss} - val_loss: 4.1 - {elapsed}s/epoch - {ms}ms/step\n"


def fit(shape: str = NEW, epochs: int = 5, first_s: int = 75, elapsed: int = 50, ms: int = 100) -> str:
    text = ""
    for epoch in range(1, epochs + 1):
        text += f"Epoch {epoch}/{epochs}\n"
        text += f"  1/500 {BAR}  3:02 12s/step - loss: 10.3\n 99/500 {BAR} 40s 100ms/step - loss: 10.3\n"
        text += shape.format(elapsed=first_s if epoch == 1 else elapsed, ms=ms, loss=f"{6 - epoch / 10:.4f}")
    return text


def the_run(text: str) -> Run:
    (run,) = read(from_text(text))
    return run


@pytest.mark.parametrize("shape", [NEW, OLD])
def test_a_bar_leaves_the_first_step_out_and_elapsed_time_has_it(shape: str) -> None:
    run = the_run(fit(shape))
    assert run.format == "keras"
    assert run.iterations.number.tolist() == [1, 500, 1000, 1500, 2000, 2500]
    assert run.iterations.time_s.tolist() == pytest.approx([25.1, 0.1, 0.1, 0.1, 0.1, 0.1])
    assert run.iterations.loss[1] == 5.9
    assert [(e.at, e.val_loss) for e in run.evaluations] == [(500 * n, 4.1) for n in range(1, 6)]
    assert run.settings.count("max_iters") == 2500


@pytest.mark.parametrize("shape", [QUIET, LATE])
def test_verbose_2_is_read(shape: str) -> None:
    run = the_run(fit(shape, first_s=50))
    assert run.iterations.number.tolist() == [500, 1000, 1500, 2000, 2500]
    assert run.iterations.time_s.tolist() == pytest.approx([0.1] * 5)


def test_a_line_without_a_time_per_step_is_divided() -> None:
    run = the_run("Epoch 1/2\n100/100 [=====] - 5s - loss: 0.5\nEpoch 2/2\n100/100 [=====] - 4s - loss: nan\n")
    assert run.iterations.time_s.tolist() == [0.05, 0.04]
    assert run.iterations.loss[1] == float("inf")


@pytest.mark.parametrize(("unit", "time_s"), [("us", 90e-6), ("ms", 0.09), ("s", 90.0)])
def test_units(unit: str, time_s: float) -> None:
    run = the_run(f"Epoch 1/9\n10/10 {BAR} 0s 90{unit}/step - loss: 1e-05\n")
    assert run.iterations.time_s[0] == pytest.approx(time_s)
    assert run.iterations.loss[0] == 1e-5


def test_a_coarse_time_per_step_is_refined_by_the_elapsed_time() -> None:
    assert the_run(f"Epoch 1/9\n100/100 {BAR} 160s 2s/step - loss: 1.0\n").iterations.time_s[0] == 1.6


def test_a_bar_that_is_full_before_the_validation_is_written_again() -> None:
    text = f"Epoch 1/9\n16/16 {BAR} 0s 2s/step - loss: 1.1\n\n"
    text += "Epoch 1: val_loss improved from inf to 0.4, saving model to a.keras\n"
    text += f"16/16 {BAR} 40s 2s/step - loss: 1.1 - val_loss: 0.4\nEpoch 2/9\n16/16 {BAR} 0s 2s/step - loss: 1.1\n"
    run = the_run(text)
    assert run.iterations.number.tolist() == [16, 32]
    assert [(save.at) for save in run.checkpoints] == [16]
    assert len(run.evaluations) == 1


def test_bars_of_evaluate_and_predict_are_no_epochs() -> None:
    other = f"79/79 {BAR} 1s 9ms/step - loss: 0.2\n1/1 {BAR} 0s 20ms/step\n500/500 {BAR} 9s 9ms/step - loss: 9\n"
    text = fit().replace("Epoch 3/5\n", other + "Epoch 3/5\n") + other
    assert the_run(text).iterations.time_s.tolist() == pytest.approx([25.1, 0.1, 0.1, 0.1, 0.1, 0.1])


def test_an_excerpt_counts_back_from_its_first_header() -> None:
    text = fit(QUIET, first_s=50)
    run = the_run(text[text.index("500/500") :])
    assert run.iterations.number.tolist() == [500, 1000, 1500, 2000, 2500]
    bare = the_run("".join(line for line in fit(QUIET, first_s=50).splitlines(True) if "Epoch" not in line))
    assert bare.iterations.number.tolist() == [500, 1000, 1500, 2000, 2500]


def test_two_fits_are_two_runs() -> None:
    runs = read(from_text(fit() + "Total params: 99,661\n" + fit(OLD, epochs=3, ms=40, elapsed=20)))
    assert [int(run.iterations.number[-1]) for run in runs] == [2500, 1500]
    assert runs[1].settings.number("n_params") is None or runs[1].settings.number("n_params") == 99661


def test_clocks_in_front_are_kept() -> None:
    lines = fit(QUIET, first_s=50).splitlines()
    text = "".join(f"2024-05-04 09:{minute:02d}:00 {line}\n" for minute, line in enumerate(lines))
    run = the_run(text)
    assert len(run.iterations) == 5
    assert run.iterations.stamp_s[1] - run.iterations.stamp_s[0] == 240


def test_time_adds_up_to_what_elapsed() -> None:
    analysis = analyse(the_run(fit(elapsed=60)))
    assert sum(analysis.goodput.parts_s.values()) == pytest.approx(75 + 4 * 60, rel=0.01)


def test_the_first_step_of_a_later_epoch_is_in_its_mean_and_no_stall() -> None:
    analysis = analyse(the_run(fit(elapsed=60)))
    assert analysis.run.iterations.number.tolist() == [1, 500, 1000, 1500, 2000, 2500]
    assert analysis.run.iterations.time_s[2:].tolist() == pytest.approx([0.12] * 4)
    assert analysis.goodput.parts_s["stall"] == 0


def test_an_epoch_that_waited_long_is_still_a_stall() -> None:
    text = fit() + NEW.join(("Epoch 6/7\n", "Epoch 7/7\n")).format(elapsed=900, ms=100, loss=1.0)
    text += NEW.format(elapsed=50, ms=100, loss=1.0)
    assert analyse(the_run(text)).goodput.parts_s["stall"] == pytest.approx(850, rel=0.02)


@pytest.mark.parametrize(
    ("total", "elapsed", "printed", "low", "high"),
    [
        (1800, 3, "1ms", 2.5 / 1800, 1.5e-3),  # elapsed time is finer, and bounds the time per step from below
        (3, 4, "2s", 3.5 / 3, 1.5),  # the time per step is that of the two steps behind the first
        (3, 3, "2s", 1.0, 3.5 / 3),
        (500, 50, "99ms", 99e-3, 99.5e-3),  # the time per step is finer, and elapsed time bounds it
        (500, 51, "100ms", 101e-3, 103e-3),  # a first step that is longer, but not by much
    ],
)
def test_a_mean_is_one_that_both_printed_figures_allow(
    total: int, elapsed: int, printed: str, low: float, high: float
) -> None:
    lines = [f"Epoch {n}/4\n{total}/{total} {BAR} {elapsed}s {printed}/step - loss: 1.0\n" for n in range(1, 5)]
    run = the_run("".join(lines))
    assert all(low - 1e-9 <= time <= high + 1e-9 for time in run.iterations.time_s.tolist())
    wall = sum(analyse(run).goodput.parts_s.values())
    assert wall == pytest.approx(4 * elapsed, abs=4 * 0.5)


def test_a_fit_of_one_epoch_is_the_mean_of_its_steps() -> None:
    analysis = analyse(the_run("Epoch 1/1\n3500/3500 [=====] - 17s - loss: 0.5 - val_loss: 0.4\n"))
    assert (analysis.goodput.iterations, analysis.goodput.wall_s) == (3500, pytest.approx(17))
    assert analysis.costs.step_s.mid == pytest.approx(17 / 3500)


def test_one_epoch_from_the_middle_of_a_fit_covers_its_own_steps() -> None:
    analysis = analyse(the_run("Epoch 7/9\n350/350 [=====] - 17s - loss: 0.5\n"))
    assert (analysis.goodput.iterations, analysis.goodput.wall_s) == (350, pytest.approx(17))


def test_a_full_bar_in_progress_before_a_callback_speaks_is_no_iteration() -> None:
    text = fit(OLD).replace(
        "Epoch 3/5\n", "Epoch 3/5\n500/500 [=====] - ETA: 0s - loss: 1.1\nEpoch 3: reducing learning rate\n"
    )
    run = the_run(text)
    assert (len(run.iterations), run.unread_count) == (6, 0)


def test_a_validation_in_every_epoch_is_no_slow_iteration() -> None:
    analysis = analyse(the_run(fit(QUIET, first_s=50)))
    assert analysis.costs.step_s.mid == pytest.approx(0.1)
    assert analysis.costs.eval_s is None


def validated(saves: tuple[int, ...] = (), drawn: str = "100/100", epochs: int = 6) -> str:
    """Steps of 50 ms, then a validation of 1 s, then, in some epochs, a save of 3 s; a bar before and one behind it."""
    text = ""
    for epoch in range(1, epochs + 1):
        took = 6 + 3 * (epoch in saves)
        text += f"Epoch {epoch}/{epochs}\n {drawn} {BAR} 0s 50ms/step - loss: 1.5\n"
        if epoch in saves:
            text += f"Epoch {epoch}: val_loss improved from inf to 0.2, saving model to a.keras\n"
        text += f"100/100 {BAR} {took}s {10 * took}ms/step - loss: 1.5 - val_loss: 1.2\n"
    return text


@pytest.mark.parametrize("drawn", ["100/100", "99/100"])
def test_a_validation_is_what_the_last_bar_has_beyond_the_one_before_it(drawn: str) -> None:
    a = analyse(the_run(validated(drawn=drawn)))
    assert a.costs.step_s.mid == pytest.approx(0.05, rel=0.02)
    assert a.costs.eval_s is not None
    assert a.costs.eval_s.mid == pytest.approx(1.0, rel=0.02)
    assert (a.phases.evaluations, a.goodput.wall_s) == (6, pytest.approx(36, rel=0.01))
    assert a.goodput.parts_s["eval"] == pytest.approx(6, rel=0.02)


def test_a_save_behind_the_validation_is_none_of_it() -> None:
    a = analyse(the_run(validated(saves=(1, 2, 4))))
    assert a.costs.eval_s is not None
    assert a.costs.eval_s.mid == pytest.approx(1.0, rel=0.02)
    assert a.costs.checkpoint_s is not None
    assert a.costs.checkpoint_s.mid == pytest.approx(3.0, rel=0.1)


def test_a_bar_in_the_middle_of_an_epoch_shows_no_validation() -> None:
    run = the_run(validated(drawn="80/100"))
    assert {evaluation.took_s for evaluation in run.evaluations} == {None}
    assert run.iterations.time_s.tolist() == pytest.approx([0.06] * 6)


@pytest.mark.parametrize(("first_ms", "numbers"), [(105, [1, 500, 1000, 1500]), (300, [500, 1000, 1500])])
def test_a_first_epoch_that_is_slow_as_a_whole_is_the_first_row(first_ms: int, numbers: list[int]) -> None:
    """Compilation, and the first validation: no stall of the epoch's last iteration."""
    text = f"Epoch 1/3\n500/500 {BAR} {first_ms // 2 + 60}s {first_ms}ms/step - loss: 6.0\n"
    text += "".join(f"Epoch {n}/3\n500/500 {BAR} 50s 100ms/step - loss: 6.0\n" for n in (2, 3))
    run = the_run(text)
    assert run.iterations.number.tolist() == numbers
    a = analyse(run)
    assert "stall" not in {finding.code for finding in a.findings}
    assert a.goodput.parts_s["compile"] == pytest.approx(60 + first_ms // 2 - 50, abs=4)


def test_whole_milliseconds_leave_half_of_one_in_doubt() -> None:
    step = analyse(the_run(fit(ms=2, elapsed=1, first_s=1))).costs.step_s
    assert step.low <= 0.0015
    assert step.high >= 0.0025


def test_a_near_miss_is_shown() -> None:
    run = the_run(
        fit() + f"Epoch 6/6\n500/500 {BAR} soon - loss: 3.1\n" + f"500/500 {BAR} 9s 1.2.3ms/step - loss: 3.1\n"
    )
    assert run.unread_count == 2


@pytest.mark.parametrize("cut", range(0, len(fit(epochs=2)), 41))
def test_cut_anywhere_it_is_read_as_far_as_it_goes(cut: int) -> None:
    assert len(read(from_text(fit(epochs=2)[:cut] + "\n" + fit(QUIET, epochs=1)))[0].iterations) >= 1


def test_the_example_is_read() -> None:
    assert detect(from_text(example_of(READER.name))) == "keras"
    assert len(the_run(example_of(READER.name)).evaluations) == 2


SAMPLES = (
    "Train on 1000 samples, validate on 100 samples\nEpoch 1/2\n{bars}1000/1000 [=====] - 8s 8ms/{unit} - loss: 1.0\n"
)
SAMPLES += "Epoch 2/2\n{bars}1000/1000 [=====] - 6s 6ms/{unit} - loss: 0.9\n"
DRAWN = "  64/1000 [>....] - ETA: 20s - loss: 1.2\n 320/1000 [=>...] - ETA: 5s - loss: 1.1\n"


@pytest.mark.parametrize("unit", ["sample", "step"])
def test_samples_become_steps_where_the_bar_shows_the_batch(unit: str) -> None:
    run = the_run(SAMPLES.format(bars=DRAWN, unit=unit))
    assert run.iterations.number.tolist() == [16, 32]
    assert run.iterations.time_s.tolist() == pytest.approx([8 / 16, 6 / 16])
    assert (run.settings.count("batch_size"), run.settings.count("max_iters")) == (64, 32)


def test_samples_stay_samples_where_nothing_shows_the_batch() -> None:
    run = the_run(SAMPLES.format(bars="", unit="sample"))
    assert run.iterations.number.tolist() == [1000, 2000]
    assert run.settings.count("batch_size") is None


def test_each_fit_has_its_own_batch() -> None:
    text = SAMPLES.format(bars=DRAWN, unit="sample")
    runs = read(from_text(text + text.replace("  64/1000", "  32/1000").replace("- 8s", "- 9s")))
    assert [run.settings.count("batch_size") for run in runs] == [64, 32]


def test_steps_that_are_drawn_in_tens_are_no_samples() -> None:
    run = the_run("Epoch 1/2\n" + DRAWN + "1000/1000 [=====] - 8s 8ms/step - loss: 1.0\n")
    assert run.iterations.number.tolist() == [1000]


def test_line_by_line_samples_become_steps_too() -> None:
    text, records = SAMPLES.format(bars=DRAWN + DRAWN.replace("64/", "384/"), unit="sample"), Records()
    for number, line in enumerate(text.encode().splitlines(keepends=True)):
        READER.parse(line, number, records)
    READER.finish(0, records)
    assert records.iterations().number.tolist() == [16, 32]


def epochs_of(times_ms: list[int], steps: int = 25) -> Run:
    lines = (
        f"Epoch {n}/{len(times_ms)}\n{steps}/{steps} {BAR} {round(steps * ms / 1000)}s {ms}ms/step - loss: 0.5\n"
        for n, ms in enumerate(times_ms, 1)
    )
    return the_run("".join(lines))


def test_times_of_one_and_two_milliseconds_are_no_stalls() -> None:
    verdict = judge(analyse(epochs_of([1, 1, 1, 1, 1, 1, 1, 2, 3, 3, 2, 2, *[1] * 8])))
    assert verdict.status is Status.HEALTHY
    assert judge(analyse(epochs_of([50] * 7 + [150] * 2 + [50] * 11))).status is Status.STALLING


def test_long_epochs_that_are_no_stalls_are_not_passed_over() -> None:
    times = [1060 + 10 * (n % 3) for n in range(40)]
    steady = judge(analyse(epochs_of(times, 300)))
    for slow in (9, 17, 30):
        times[slow] = 1400
    verdict = judge(analyse(epochs_of(times, 300)))
    assert "none in this log is slow" in steady.text.key
    step_s = analyse(epochs_of(times, 300)).costs.step_s
    assert (step_s.high - step_s.low) / 2 < 0.03  # by what elapsed, not by whole seconds
    assert verdict.status is Status.HEALTHY
    assert verdict.text.params["ratio"] == pytest.approx(1.31, abs=0.02)


def test_early_stopping_is_an_end() -> None:
    cut = fit(epochs=3).replace("/3\n", "/9\n")
    assert not the_run(cut).ended_by_plan
    assert the_run(cut + "Epoch 3: early stopping\n").ended_by_plan


def fitted(took_s: tuple[int, ...], saves: tuple[int, ...]) -> str:
    """Epochs of 100 steps with a bar behind each, and above it the line of a save in some."""
    text = ""
    for epoch, took in enumerate(took_s, 1):
        text += f"Epoch {epoch}/{len(took_s)}\n"
        if epoch in saves:
            text += f"Epoch {epoch}: val_loss improved from inf to 0.2, saving model to a.keras\n"
        text += f"100/100 {BAR} {took}s {10 * took}ms/step - loss: 1.5 - val_loss: 1.2\n"
    return text


def test_saves_in_the_first_epochs_alone_are_not_what_makes_these_slow() -> None:
    early = analyse(the_run(fitted((90, 78, 80, 72, 64, 64, 64, 64), saves=(1, 2, 3))))
    assert early.costs.how["checkpoint_s"] != "measured"
    later = analyse(the_run(fitted((90, 78, 64, 80, 64, 64, 64, 64), saves=(1, 2, 4))))
    assert later.costs.checkpoint_s is not None
    assert later.costs.checkpoint_s.mid == pytest.approx(15, abs=2)


def test_where_every_epoch_saves_its_time_is_still_that_of_its_steps() -> None:
    a = analyse(the_run(fitted((171, 170, 172), saves=(1, 2, 3))))
    assert a.costs.step_known
    assert a.costs.step_s.mid == pytest.approx(1.71, rel=0.01)


def test_two_epochs_are_means_of_all_their_steps_and_no_lines_far_apart() -> None:
    a = analyse(the_run(fitted((90, 64), saves=())))
    assert "few_iterations" not in [finding.code for finding in a.findings]


@pytest.mark.parametrize("bar", ["29/29 {} 0s 4ms/step - accuracy: 0.9 - loss: 0.2", "157/157 {} 1s 2ms/step"])
def test_a_bar_of_evaluate_or_predict_behind_the_last_epoch_shows_that_the_fit_has_returned(bar: str) -> None:
    crash = "Traceback (most recent call last):\n  File a.py\nIndexError: list index out of range\n"
    epochs = fitted((8, 6, 6, 6), saves=()).replace("/4\n", "/50\n")
    crashed = the_run(epochs + crash)
    assert crashed.faults
    assert not analyse(crashed).forecast.done
    run = the_run(epochs + bar.format(BAR) + "\n" + crash)
    assert run.faults == ()
    assert analyse(run).forecast.done
    begun = the_run(epochs + "Epoch 5/50\n" + crash)
    assert begun.faults


def test_a_bar_above_the_first_epoch_with_another_length_is_none_of_the_fit() -> None:
    run = the_run(f"40/40 {BAR} 4s 100ms/step - loss: 1.5\n" + fitted((90, 64, 64, 64), saves=()))
    assert run.iterations.number.tolist() == [100, 200, 300, 400]
    assert analyse(run).goodput.wall_s == pytest.approx(282, abs=2)


def test_epochs_with_a_save_that_are_not_slow_are_not_why_others_are() -> None:
    took_s = (24, 15, 15, 15, 15, 15, 15, 15, 15, 16, 18, 17, 15, 15, 16, 16, 17, 17, 16, 15)
    a = analyse(the_run(fitted(took_s, saves=(1, 2, 3, 5, 10, 19))))
    assert "checkpoint" not in judge(a).text.key


def test_a_bar_below_an_epoch_that_was_broken_off_is_not_its_own_where_it_has_another_length() -> None:
    text = fitted((64, 64, 64), saves=()).replace("/3\n", "/9\n")
    run = the_run(f"{text}Epoch 4/9\n 30/100 {BAR[:9]} 44s - loss: 1.5\n40/40 {BAR} 4s 100ms/step - loss: 1.5\n")
    assert run.iterations.number.tolist() == [100, 200, 300]


def test_a_length_that_four_bytes_do_not_hold_is_read() -> None:
    """Of whole numbers in four bytes each, the product of epochs and steps is more."""
    log = "".join(f"Epoch {n}/1000000\n60000/60000 - {46 + n}s - 1ms/step - loss: 4.2{n}\n" for n in range(1, 6))
    (run,) = read(from_text(log))
    assert run.settings.count("max_iters") == 60_000_000_000
