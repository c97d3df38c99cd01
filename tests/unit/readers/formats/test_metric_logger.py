"""MetricLogger: means of 20 steps, epochs that count anew, and evaluations that are the same loop."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

from stepwatch.analysis import analyse
from stepwatch.errors import NoIterations
from stepwatch.readers import read
from stepwatch.run import Run, Timing
from stepwatch.sources import from_text
from stepwatch.verdict import judge


def _epoch(header: str, steps: list[float], data: list[float], every: int, *, total: bool = True) -> str:
    """What MetricLogger prints of a loop over these steps."""
    lines = []
    for i in range(len(steps)):
        if i % every == 0 or i == len(steps) - 1:
            eta = timedelta(seconds=int(np.mean(steps[: i + 1]) * (len(steps) - i)))
            time, wait = (np.mean(values[max(i - 19, 0) : i + 1]) for values in (steps, data))
            lines.append(
                f"{header}  [{i:4d}/{len(steps)}]  eta: {eta}  lr: 0.000100  class_error: 91.25  loss: 2.3100 (2.4000)"
                f"  loss_ce: 1.1000 (1.2000)  time: {time:.4f}  data: {wait:.4f}  max mem: 4096"
            )
    if total:
        whole = timedelta(seconds=int(sum(steps)))
        lines.append(f"{header} Total time: {whole} ({np.mean(steps):.4f} s / it)")
    return "\n".join(lines) + "\n"


def _steps(count: int, usual: float = 0.2) -> tuple[list[float], list[float]]:
    steps, data = [usual + 0.01 * (i % 7) for i in range(count)], [0.02] * count
    steps[0] += 3.0
    data[0] += 3.0
    return steps, data


def _one(text: str) -> Run:
    (run,) = read(from_text(text))
    assert run.format == "metric-logger"
    return run


def _whole(run: Run) -> float:
    return float((run.iterations.time_s * np.diff(run.iterations.number, prepend=0)).sum())


@pytest.mark.parametrize("every", [1, 10, 20, 50])
@pytest.mark.parametrize("total", [True, False])
def test_the_times_of_all_rows_make_up_the_epochs(every: int, total: bool) -> None:
    steps, data = _steps(208)
    run = _one("".join(_epoch(f"Epoch: [{epoch}]", steps, data, every, total=total) for epoch in range(3)))
    assert run.timing is Timing.SPANS_LOG_INTERVAL
    assert int(run.iterations.number[-1]) == 3 * 208
    assert _whole(run) == pytest.approx(3 * sum(steps), rel=0.002 if total else 0.02)
    assert np.median(run.iterations.time_s) == pytest.approx(0.23, rel=0.05)
    assert run.inside is not None
    waited = float((run.inside.data_s * np.diff(run.iterations.number, prepend=0)).sum())
    assert waited == pytest.approx(3 * sum(data), rel=0.02)


def test_a_stall_between_lines_is_in_the_total() -> None:
    steps, data = _steps(501)
    steps[130] += 40.0  # not among the last 20 of any line
    run = _one(_epoch("Epoch: [0]", steps, data, 100))
    assert _whole(run) == pytest.approx(sum(steps), rel=0.001)


@pytest.mark.parametrize(
    "header", ["Epoch: [{}]", "Epoch: [{}/3]", "Train Epoch: [{}]", "Train: [epoch:{}]", "Train Caption Epoch: [{}]"]
)
def test_headers_of_training(header: str) -> None:
    steps, data = _steps(60)
    run = _one("".join(_epoch(header.format(epoch), steps, data, 10) for epoch in range(3)))
    assert int(run.iterations.number[-1]) == 180
    assert run.evaluations == ()


@pytest.mark.parametrize("header", ["Test:", "Evaluation:", "Val: [1]", "Caption generation:", "Test Epoch: [0]"])
def test_other_loops_are_evaluations(header: str) -> None:
    steps, data = _steps(60)
    tests, _ = _steps(30)
    text = ""
    for epoch in range(2):
        text += _epoch(f"Epoch: [{epoch}]", steps, data, 10) + _epoch(header, tests, data[:30], 10)
    run = _one(text)
    assert len(run.iterations) == 7 + 6
    assert [(each.at, each.took_s) for each in run.evaluations] == [
        (60, pytest.approx(sum(tests), rel=0.001)), (120, pytest.approx(sum(tests), rel=0.001)),
    ]  # fmt: skip


def test_evaluations_alone_are_no_training() -> None:
    tests, data = _steps(30)
    with pytest.raises(NoIterations):
        read(from_text(_epoch("Test:", tests, data, 10)))


def test_two_evaluations_after_an_epoch_are_one_with_the_time_of_both() -> None:
    steps, data = _steps(60)
    text = _epoch("Epoch: [0]", steps, data, 10) + 2 * _epoch("Test:", steps, data, 10)
    run = _one(text + _epoch("Epoch: [1]", steps, data, 10))
    assert [each.took_s for each in run.evaluations] == [pytest.approx(2 * sum(steps), rel=0.001)]


def test_what_the_training_time_has_beyond_steps_and_evaluations_is_not_explained() -> None:
    steps, data = _steps(60)
    text = "".join(_epoch(f"Epoch: [{i}]", steps, data, 10) + _epoch("Test:", steps, data, 10) for i in range(4))
    run = _one(text + f"Training time {timedelta(seconds=round(8 * sum(steps) + 20))}\n")
    assert sum(each.took_s or 0.0 for each in run.evaluations) == pytest.approx(4 * sum(steps), abs=1)
    goodput = analyse(run).goodput
    assert goodput.wall_s == pytest.approx(8 * sum(steps) + 20, abs=1)
    assert goodput.parts_s["unexplained"] == pytest.approx(20, abs=1)


def test_planned_epochs_batch_and_ranks_are_in_the_arguments() -> None:
    steps, data = _steps(60)
    head = "Namespace(lr=0.0001, batch_size=4, epochs=12, resume='', start_epoch=0, world_size=2, warmup_epochs=5)\n"
    run = _one(head + "number of params: 41302368\nStart training\n" + _epoch("Epoch: [0]", steps, data, 10))
    assert run.settings.count("max_iters") == 720
    assert run.settings.count("batch_size") == 4
    assert run.settings.count("world_size") == 2
    assert run.settings.number("n_params") == 41302368


def test_epochs_from_one_begin_with_the_first_step() -> None:
    steps, data = _steps(60)
    run = _one("".join(_epoch(f"Epoch: [{epoch}/5]", steps, data, 10) for epoch in (1, 2)))
    assert run.iterations.number[[0, -1]].tolist() == [1, 120]
    assert run.settings.count("max_iters") == 300


def test_a_resumed_process_goes_on_where_it_was() -> None:
    steps, data = _steps(60)
    head = "Namespace(batch_size=4, epochs=12, resume='{}', start_epoch=0)\n"
    text = head.format("") + _epoch("Epoch: [0]", steps, data, 10) + _epoch("Epoch: [1]", steps[:31], data[:31], 10)
    text = text.replace("/31]", "/60]")
    runs = read(from_text(text + head.format("/out/last.pth") + _epoch("Epoch: [1]", steps, data, 10)))
    assert [int(run.iterations.number[0]) for run in runs] == [1, 61]


def test_lines_of_several_ranks_count_once() -> None:
    steps, data = _steps(60)
    lines = _epoch("Epoch: [0]", steps, data, 10).splitlines()
    run = _one("\n".join(line for line in lines for _ in range(3)))
    assert run.iterations.number.tolist() == [1, 11, 21, 31, 41, 51, 60]
    assert _whole(run) == pytest.approx(sum(steps), rel=0.001)


def test_a_line_behind_a_bar_counts() -> None:
    steps, data = _steps(60)
    lines = _epoch("Epoch: [0]", steps, data, 10).splitlines()
    bar = "Epoch: [0]:  12%|##  | {}/60 [00:03<1:33:38,  3.97s/it, loss=6.1392, lr=0.000010]"
    run = _one("\n".join(bar.format(i) + line for i, line in enumerate(lines)))
    assert len(run.iterations) == 7


def test_a_day_and_more_is_left() -> None:
    steps, data = [40.0] * 5001, [1.0] * 5001
    run = _one(_epoch("Epoch: [0]", steps, data, 500, total=False))
    assert np.allclose(run.iterations.time_s, 40.0, rtol=0.01)


def test_an_excerpt_from_the_middle_of_an_epoch() -> None:
    steps, data = _steps(208)
    lines = _epoch("Epoch: [4]", steps, data, 10).splitlines()[8:15]
    run = _one("\n".join(lines))
    assert run.iterations.number.tolist() == [4 * 208 + 81 + 10 * i for i in range(7)]
    assert np.allclose(run.iterations.time_s, 0.23, rtol=0.1)


def test_a_loop_without_a_name_behind_the_run_is_of_another_script() -> None:
    steps, data = _steps(60)
    test = ([0.1] * 40, [0.01] * 40)
    text = "".join(_epoch(f"Epoch: [{n}]", steps, data, 10) + _epoch("Test:", *test, 10) for n in range(4))
    features = _epoch("", [0.2] * 300, [0.01] * 300, 10) + _epoch("", *test, 10)  # one as long as an evaluation
    run = _one(text + features)
    assert [(each.at, each.took_s) for each in run.evaluations] == [(60 * n, pytest.approx(4.0)) for n in range(1, 5)]


def test_a_loop_without_a_name_that_comes_back_is_an_evaluation() -> None:
    steps, data = _steps(60)
    text = "".join(_epoch(f"Epoch: [{n}]", steps, data, 10) + _epoch("", [0.1] * 40, data, 10) for n in range(4))
    assert [each.at for each in _one(text).evaluations] == [60, 120, 180, 240]


@pytest.mark.parametrize(("batches", "said"), [(208, "which costs {share:pct}"), (1040, "one waits for its data")])
def test_the_start_of_the_loader_in_each_epoch_is_no_stall_without_a_reason(batches: int, said: str) -> None:
    steps, data = _steps(batches)
    data = [0.002 if wait < 1 else wait for wait in data]
    a = analyse(_one("".join(_epoch(f"Epoch: [{n}]", steps, data, 10) for n in range(12))))
    found = {finding.code: finding.message for finding in a.findings}
    assert "stall" not in found
    assert "periodic_slowness" not in found
    assert found["late_data"].params["lost"] == pytest.approx(11 * 3.0, rel=0.05)
    assert said in judge(a).text.key


def test_late_data_of_a_few_steps_are_why_these_were_slow() -> None:
    steps, data = [0.2] * 8000, [0.01] * 8000
    for late in (133, 5292):
        steps[late] += 9.0
        data[late] += 9.0
    a = analyse(_one(_epoch("Epoch: [0]", steps, data, 10)))
    assert "waited for their data" in (judge(a).text.many or "")
    assert "stall" not in {finding.code for finding in a.findings}
