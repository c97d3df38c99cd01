"""metrics.json of detectron2: medians of 20 iterations, results as objects of their own, the end from the first eta."""

from __future__ import annotations

import json

import numpy as np
import pytest

from stepwatch.analysis import analyse
from stepwatch.readers import detect, read
from stepwatch.run import Run
from stepwatch.sources import from_text


def log(
    until: int, *, start: int = 0, planned: int = 400, time: float = 0.5, results: tuple[int, ...] = (), older: int = 0
) -> str:
    rows = []
    for iteration in [*range(start + 19, until, 20), *[until - 1] * (until == planned and until % 20 > 0)]:
        median = time if iteration == start + 19 else time + iteration / 1e5
        row = {
            "data_time": 0.05, "eta_seconds": (planned - iteration - 1 + older) * time, "fast_rcnn/cls_accuracy": 0.5,
            "iteration": iteration, "loss_cls": 1.25, "lr": 1e-05, "time": median, "total_loss": 9 - iteration / 100,
        }  # fmt: skip
        rows.append({"bbox/AP": 31.5, **row} if iteration + 1 in results else row)
    return "".join(json.dumps(row) + "\n" for row in rows)


def the_run(text: str) -> Run:
    source = from_text(text)
    assert detect(source) == "detectron2-json"
    (run,) = read(source)
    return run


def test_rows() -> None:
    run = the_run(log(100))
    assert run.iterations.number.tolist() == [20, 40, 60, 80, 100]
    assert run.iterations.time_s == pytest.approx(0.5, rel=0.01)
    assert run.iterations.loss[0] == 9 - 0.19
    assert run.inside is not None
    assert np.allclose(run.inside.data_s, 0.05)
    assert analyse(run).goodput.wall_s == pytest.approx(50, rel=0.01)


def test_a_median_of_nearly_no_time_shows_no_end() -> None:
    run = the_run(log(100).replace('"time": 0.5,', '"time": 1e-308,', 1))
    assert run.settings.count("max_iters") is None


def test_the_first_eta_shows_the_end() -> None:
    assert the_run(log(100)).settings.count("max_iters") == 400
    assert the_run("\n".join(log(200).splitlines()[3:])).settings.count("max_iters") is None  # by another median
    assert analyse(the_run(log(400))).forecast.done


@pytest.mark.parametrize("planned", [400, 410, 407])
@pytest.mark.parametrize("older", [0, 1])
def test_older_versions_count_the_one_just_done_among_those_left(planned: int, older: int) -> None:
    whole = analyse(the_run(log(planned, planned=planned, older=older))).forecast
    assert (whole.done, whole.max_iters) == (True, planned)
    if planned % 10 == 0:  # nothing else shows it before the end
        assert the_run(log(100, planned=planned, older=older)).settings.count("max_iters") == planned


def test_results_are_evaluations() -> None:
    last = '{"bbox/AP": 40.5, "bbox/APs": NaN, "iteration": 400}\n'
    run = the_run(log(400, results=(100, 200)) + last)
    assert [event.at for event in run.evaluations] == [100, 200, 400]
    assert len(run.iterations) == 20


@pytest.mark.parametrize("left", ["eta_seconds", "data_time", "total_loss"])
def test_the_last_row_of_an_interrupted_process_is_no_evaluation(left: str) -> None:
    assert not the_run(log(100) + json.dumps({left: 0.5, "iteration": 107, "loss_cls": 1.2}) + "\n").evaluations
    results = the_run(log(100) + json.dumps({"iteration": 107, "validation_loss": 1.2}) + "\n")
    assert len(results.evaluations) == 1


def test_a_process_that_goes_on_is_a_run_of_its_own() -> None:
    first, second = read(from_text(log(200) + log(300, start=100, time=0.7)))
    assert (first.iterations.number[-1], second.iterations.number[0]) == (200, 120)
    assert second.iterations.time_s == pytest.approx(0.7, rel=0.01)


def test_a_file_that_stands_there_twice_counts_once() -> None:
    assert len(the_run(log(200) + log(200)).iterations) == 10


@pytest.mark.parametrize(
    "line",
    [
        '{"iteration": 19, "loss": 2.5}',
        '{"loss": 2.5, "learning_rate": 1e-5, "epoch": 0.5}',
        '{"data_time": 0.1, "epoch": 1, "iter": 50, "loss": 2.5, "time": 0.5}',
    ],
)
def test_other_objects_are_not(line: str) -> None:
    assert detect(from_text(line + "\n" + line)) != "detectron2-json"


def test_objects_that_nothing_can_be_said_of_are_passed_over() -> None:
    odd = '{"iteration": 99999999999999999999, "time": 1.0}\n{"iteration": 5, "time": 1.2.3, "total_loss": 1}\n{"a\n'
    assert len(the_run(log(200) + odd).iterations) == 10


def test_the_first_row_of_a_process_is_of_all_since_its_start_however_near_its_last_is() -> None:
    second = log(22, planned=22, time=2.0)
    first, run = read(from_text(log(400) + second))
    assert (run.iterations.number.tolist(), analyse(run).goodput.iterations) == ([20, 22], 22)
    assert analyse(run).goodput.wall_s == pytest.approx(44, rel=0.01)
    assert analyse(first).goodput.iterations == 400
