"""detectron2's console and log.txt: a running mean taken apart, what lies between the lines, several processes."""

from __future__ import annotations

import re

import numpy as np
import pytest

from stepwatch.analysis import analyse
from stepwatch.readers import detect, read
from stepwatch.run import Run, Timing
from stepwatch.sources import from_text

STEPS = 200


def clock(seconds: float) -> str:
    whole = int(seconds)
    return f"[03/02 {10 + whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"


def log(steps: list[float], *, start: int = 0, began: float = 0.0, evaluate: int = 0, form: str = "console") -> str:
    """Lines every 20 iterations of a process whose steps took so long; the two first are not in the mean."""
    name = {"console": "{} d2.utils.events]: ", "file": "{}] d2.utils.events INFO: "}[form]
    lines = [
        f"{clock(began)}] detectron2 INFO: Rank of current process: 0. World size: 2",
        f"{clock(began)}] d2.engine.train_loop INFO: Starting training from iteration {start}",
    ]
    now = began
    for done, step in enumerate(steps, start=1):
        now += step
        iteration = start + done
        if evaluate and iteration % evaluate == 0:
            lines.append(
                f"{clock(now)}] fvcore.common.checkpoint INFO: Saving checkpoint to out/model_{iteration - 1:07}.pth"
            )
            lines.append(f"{clock(now + 2)}] d2.evaluation.evaluator INFO: Start inference on 50 batches")
            now += 12
            lines.append(f"{clock(now)}] d2.evaluation.evaluator INFO: Total inference time: 0:00:09.500000 (0.19 s)")
        if iteration % 20 == 0:
            mean = sum(steps[2:done]) / (done - 2)
            lines.append(
                f"{name.format(clock(now))} eta: 1 day, 0:02:11  iter: {iteration - 1}  total_loss: {9 - done / 40:.3f}"
                f"  loss_cls: 0.81  time: {mean:.4f}  last_time: 9.0000  data_time: 0.1210  last_data_time: 8.0"
                "  lr: 1e-05  max_mem: 4012M"
            )
    return "\n".join(lines) + "\n"


def the_run(text: str) -> Run:
    source = from_text(text)
    assert detect(source) == "detectron2"
    (run,) = read(source)
    return run


@pytest.mark.parametrize("form", ["console", "file"])
def test_the_mean_of_each_line_is_taken_out_of_the_running_one(form: str) -> None:
    run = the_run(log([1.0] * 100 + [3.0] * 100, form=form))
    assert run.timing is Timing.SPANS_LOG_INTERVAL
    assert run.iterations.number.tolist() == list(range(20, 201, 20))
    assert np.allclose(run.iterations.time_s, [1.0] * 5 + [3.0] * 5, atol=0.02)
    assert run.iterations.loss[0] == 8.5
    assert run.settings.count("world_size") == 2


def test_what_the_mean_leaves_out_is_seen_by_the_clock() -> None:
    analysis = analyse(the_run(log([31.0, 1.0] + [1.0] * 198)))
    assert analysis.goodput.wall_s == pytest.approx(230, abs=2)
    assert analysis.goodput.parts_s["compile"] == pytest.approx(30, abs=2)


def test_a_printed_total_moves_the_start() -> None:
    """Loaders are built between the line that begins the training and the training."""
    text = log([1.0] * STEPS).replace(clock(0), "[03/02 09:59:00")
    text += f"{clock(200)} d2.engine.hooks]: Total training time: 0:03:20 (0:00:00 on hooks)\n"
    assert analyse(the_run(text)).goodput.wall_s == pytest.approx(200, abs=1)


def test_the_evaluation_behind_the_total_is_not_of_the_run() -> None:
    text = log([1.0] * STEPS)
    text += f"{clock(200)} d2.engine.hooks]: Total training time: 0:03:20 (0:00:00 on hooks)\n"
    text += f"{clock(201)} d2.evaluation.evaluator]: Start inference on 50 batches\n"
    text += f"{clock(901)} d2.evaluation.evaluator]: Total inference time: 0:11:39.50 (0.19 s)\n"
    run = the_run(text)
    assert [event.took_s for event in run.evaluations] == [700.0]
    assert analyse(run).goodput.wall_s == pytest.approx(200, abs=1)


def test_an_evaluation_by_hand_in_a_later_cell_is_none_of_the_run() -> None:
    def evaluated(begin: float, end: float) -> str:
        start = f"{clock(begin)} d2.evaluation.evaluator]: Start inference on 50 batches\n"
        return start + f"{clock(end)} d2.evaluation.evaluator]: Total inference time: 0:00:01.50 (0.19 s)\n"

    total = f"{clock(200)} d2.engine.hooks]: Total training time: 0:03:20 (0:00:00 on hooks)\n"
    text = log([1.0] * STEPS) + total + evaluated(200, 204)
    run = the_run(f"{text}--- end of cell ---\n{evaluated(330, 334)}")
    assert [event.took_s for event in run.evaluations] == [4.0]
    two_sets = the_run(log([1.0] * STEPS) + total + evaluated(200, 204) + evaluated(207, 210))
    assert [event.took_s for event in two_sets.evaluations] == [7.0]


def test_evaluations_and_saves_are_events_with_their_cost() -> None:
    run = the_run(log([1.0] * STEPS, evaluate=100))
    assert [(event.at, event.took_s) for event in run.evaluations] == [(100, 10.0), (200, 10.0)]
    assert [save.at for save in run.checkpoints] == [100, 200]
    analysis = analyse(run)
    assert analysis.goodput.wall_s == pytest.approx(200 + 2 * 12, abs=2)
    assert analysis.goodput.parts_s["eval"] == pytest.approx(20, abs=1)


def test_waiting_for_data_is_known() -> None:
    run = the_run(log([1.0] * STEPS))
    assert run.inside is not None
    assert np.allclose(run.inside.data_s, 0.121)
    wait = next(finding for finding in analyse(run).findings if finding.code == "data_wait")
    assert wait.message.params["lost"] == pytest.approx(0.121 * STEPS, rel=0.11)  # the first line is not counted


def test_each_process_is_a_run() -> None:
    first, second = read(from_text(log([1.0] * 100) + log([2.0] * 60, start=40, began=4000.0)))
    assert first.iterations.number.tolist() == [20, 40, 60, 80, 100]
    assert second.iterations.number.tolist() == [60, 80, 100]
    assert np.allclose(second.iterations.time_s, 2.0, atol=0.02)


def test_inference_of_another_process_is_not_of_this_one() -> None:
    later = f"{clock(9000)}] detectron2 INFO: Rank of current process: 0. World size: 2\n"
    later += f"{clock(9001)}] d2.evaluation.evaluator INFO: Start inference on 50 batches\n"
    run = the_run(log([1.0] * STEPS) + later + "AssertionError: ids are not unique!\n")
    assert run.evaluations == ()
    assert run.faults == ()


def test_a_log_that_stands_there_twice_counts_once() -> None:
    text = log([1.0] * STEPS, evaluate=100)
    run = the_run(text + text)
    assert len(run.iterations) == STEPS // 20
    assert not run.reordered


def test_an_excerpt_begins_in_the_middle() -> None:
    lines = log([1.0] * STEPS).splitlines()
    total = f"{clock(200)} d2.engine.hooks]: Total training time: 0:03:20 (0:00:00 on hooks)"
    run = the_run("\n".join([*lines[6:], total]))
    assert np.allclose(run.iterations.time_s, 1.0, atol=0.01)


def test_the_end_is_what_the_config_says_or_the_last_save() -> None:
    assert the_run("SOLVER:\n  MAX_ITER: 900\n" + log([1.0] * STEPS)).settings.count("max_iters") == 900
    lines = log([1.0] * STEPS).splitlines()
    lines.insert(-1, f"{clock(200)}] fvcore.common.checkpoint INFO: Saving checkpoint to out/model_final.pth")
    assert analyse(the_run("\n".join(lines))).forecast.done


@pytest.mark.parametrize(
    "line",
    ["iter: 19  total_loss: 2.7  lr: 1", "[03/02 10:14:40 d2.utils.events]:  eta: 0:01:02  iter: 19  data_time: 0.2  "],
)
def test_other_lines_are_not(line: str) -> None:
    assert detect(from_text(line)) != "detectron2"


def without_its_start(text: str, number: int) -> str:
    """The lines of a process without those that begin it, and without its first row."""
    return "".join(line for line in text.splitlines(keepends=True)[2:] if f"iter: {number}  " not in line)


@pytest.mark.parametrize("faster", [0.0, 0.02])
def test_behind_a_pause_a_mean_that_begins_anew_is_of_another_process(faster: float) -> None:
    rng = np.random.default_rng(3)
    parts = [rng.normal(0.7 - faster * k, 0.05, 2000).tolist() for k in range(3)]
    first = "MAX_ITER: 9000\n" + log(parts[0], evaluate=1000)
    later = [log(parts[k], start=2000 * k, began=3 * 3600.0 * k, evaluate=1000) for k in (1, 2)]
    runs = read(from_text(first + "".join(without_its_start(text, 0) for text in later)))
    assert [(int(run.iterations.number[0]), int(run.iterations.number[-1])) for run in runs] == [
        (20, 2000), (2020, 4000), (4020, 6000)
    ]  # fmt: skip
    for k, run in enumerate(runs):
        a = analyse(run)
        assert a.costs.step_s.mid == pytest.approx(0.7 - faster * k, rel=0.02)
        assert a.costs.checkpoint_s is not None
        assert a.costs.checkpoint_s.high < 30
        assert run.settings.count("max_iters") == 9000


def test_a_machine_that_slept_between_two_steps_is_no_other_process() -> None:
    text = log([1.0] * 1000)
    asleep = text.replace(clock(500), clock(500 + 3600))
    for second in range(501, 1001):
        asleep = asleep.replace(clock(second) + " ", clock(second + 3600) + " ")
    assert len(read(from_text(asleep))) == 1


def test_a_mean_of_the_last_lines_only_is_no_sign_of_another_process() -> None:
    rng = np.random.default_rng(5)
    lines, now = [f"{clock(0)}] d2.engine.train_loop INFO: Starting training from iteration 0"], 0.0
    for n in range(20, 4001, 20):
        mean = float(rng.normal(0.7, 0.05))
        now += 20 * mean + (400 if n % 1000 == 20 and n > 20 else 0)
        lines.append(f"{clock(now)} d2.utils.events]:  iter: {n - 1}  total_loss: 1.1  time: {mean:.4f}  lr: 1e-05")
    assert len(read(from_text("\n".join(lines) + "\n"))) == 1


def test_a_pause_is_not_the_price_of_the_save_that_it_fell_on() -> None:
    text = log([1.0] * 2000, evaluate=0).splitlines()
    at = {n: index for index, line in enumerate(text) for n in range(0, 2001, 200) if f"iter: {n - 1}  " in line}
    late = 0
    lines = []
    for index, line in enumerate(text):
        second = index - 1  # the two first lines stand at 0, the others are 20 s apart
        now = 20 * max(second, 0) + late
        lines.append(clock(now) + line[len("[03/02 10:00:00") :])
        if index in at.values():
            saved = next(n for n, place in at.items() if place == index)
            name = f"out/model_{saved - 1:07}.pth"
            lines.append(f"{clock(now)}] fvcore.common.checkpoint INFO: Saving checkpoint to {name}")
            late += 2 if saved != 1000 else 4000
    a = analyse(the_run("\n".join(lines) + "\n"))
    assert a.costs.checkpoint_s is not None
    assert a.costs.checkpoint_s.mid == pytest.approx(2, abs=0.6)
    assert a.goodput.parts_s["unexplained"] == pytest.approx(3998, abs=30)


def without_times(text: str) -> str:
    return re.sub(r"time: [\d.]+  last_time: .*(?=  lr: )", "", text)


@pytest.mark.parametrize("cut", [False, True])
def test_lines_without_a_time_are_read_by_their_clock(cut: bool) -> None:
    """An excerpt has nothing before its first line."""
    text = without_times(log([2.0] * STEPS, evaluate=100))
    text = "".join(text.splitlines(keepends=True)[2:]) if cut else text
    run = the_run(text + "KeyboardInterrupt\n")
    assert run.iterations.number.tolist() == list(range(40 if cut else 20, STEPS + 1, 20))
    after = np.isin(run.iterations.number, [100, 200])  # a save of two seconds stands before them too
    assert np.allclose(run.iterations.time_s, np.where(after, 2.1, 2.0), atol=0.01)
    assert analyse(run).goodput.iterations == STEPS - 20 * cut


def test_the_first_line_is_about_all_since_the_start_that_is_printed() -> None:
    """The last line is closer to the one before, and stands behind the total."""
    *lines, last = log([21.0] + [1.0] * 39).splitlines()
    total = f"{clock(52)} d2.engine.hooks]: Total training time: 0:00:30 (0:00:00 on hooks)"
    last = last.replace("iter: 39", "iter: 31").replace(clock(60), clock(52))
    a = analyse(the_run("\n".join([*lines, total, last])))
    assert a.goodput.iterations == 32
    assert a.goodput.wall_s == pytest.approx(52, abs=1)
    assert a.costs.step_s.mid == pytest.approx(1.0, rel=0.02)


def with_etas(text: str, end: int, step_s: float) -> str:
    """As of a median of the times that is this long."""

    def eta(row: re.Match[str]) -> str:
        left = int((end - 1 - int(row[1])) * step_s)
        days = f"{left // 86400} days, " if left >= 86400 else ""
        return f"eta: {days}{left % 86400 // 3600}:{left // 60 % 60:02}:{left % 60:02}  iter: {row[1]}  "

    return re.sub(r"eta: .* iter: (\d+)  ", eta, text)


@pytest.mark.parametrize("end", [1000, 1500, 90_000, 300_000])
@pytest.mark.parametrize("timed", [True, False])
def test_the_eta_shows_the_end(end: int, timed: bool) -> None:
    text = with_etas(log([1.0] * STEPS), end, 0.985)
    a = analyse(the_run(text if timed else without_times(text)))
    assert a.forecast.max_iters == end
    known = analyse(the_run("SOLVER:\n  MAX_ITER: 1310\n" + text))
    assert known.forecast.max_iters == 1310


def test_by_its_last_line_a_run_is_at_its_end_whatever_its_number() -> None:
    for end in (980, 981):  # older versions count the iteration of the line itself
        assert analyse(the_run(with_etas(log([1.0] * 980), end, 1.01))).forecast.done
    assert analyse(the_run(with_etas(log([1.0] * 980), 989, 1.01))).forecast.max_iters == 989


@pytest.mark.parametrize("one_more", [0, 1])  # older versions count the iteration of the line itself
def test_the_nearer_its_end_the_better_an_eta_shows_it(one_more: int) -> None:
    rows = log([1.0] * 1700).splitlines(keepends=True)
    early, late = "".join(rows[:40]), "".join(rows[40:])
    text = with_etas(early, 1900, 1.0) + with_etas(late, 1830 + one_more, 1.005)
    assert analyse(the_run(text)).forecast.max_iters == 1830


def test_a_printed_total_where_no_line_is_due_is_the_end() -> None:
    total = f"{clock(980)} d2.engine.hooks]: Total training time: 0:16:20 (0:00:00 on hooks)\n"
    text = with_etas(log([1.0] * 980), 989, 1.01)
    assert analyse(the_run(text)).forecast.max_iters == 989
    assert analyse(the_run(text + total)).forecast.done
    error = f"{clock(980)} d2.engine.train_loop]: ERROR: Exception during training:\nRuntimeError: CUDA out of memory\n"
    assert not analyse(the_run(text + error + total)).forecast.done
    assert not analyse(the_run(with_etas(log([1.0] * 980), 5000, 1.01) + total)).forecast.done


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("  Created wheel for antlr4-python3-runtime: filename=antlr4.whl", 0),
        ("Total wall clock time: 4m 56s", 0),
        ("[03/02 10:14:40 d2.utils.events]:  eta: 0:01:02  iter: 219  time: a while  data_time: 0.2", 1),
    ],
)
def test_a_time_alone_does_not_look_like_an_iteration(line: str, count: int) -> None:
    assert len(the_run(f"{log([1.0] * STEPS)}{line}\n").unread) == count


@pytest.mark.parametrize("later", [(31,), (31, 33, 35)])
@pytest.mark.parametrize(("start_s", "known"), [(35.0, True), (1.0, False)])
def test_a_first_line_that_is_most_of_the_run_holds_the_start_where_it_is_far_above_the_others(
    later: tuple[int, ...], start_s: float, known: bool
) -> None:
    lines = [f"{clock(0)} d2.engine.train_loop]: Starting training from iteration 0"]
    for number in (19, *later):
        lines.append(
            f"{clock(start_s + (number + 1) * 0.5)} d2.utils.events]:  iter: {number}  total_loss: 2.7  time: 0.5000"
            "  data_time: 0.0100  lr: 1e-05  max_mem: 4012M"
        )
    analysis = analyse(the_run("\n".join(lines) + "\n"))
    assert analysis.goodput.iterations == later[-1] + 1
    assert analysis.goodput.parts_s["compile"] == pytest.approx(start_s * known, abs=1.5)
    assert analysis.costs.step_s.mid == pytest.approx(0.5, rel=0.11)
