"""YOLOX: means since the line before, epochs whose last iterations have no line, evaluations by the clock."""

from __future__ import annotations

import pytest

from stepwatch.analysis import analyse
from stepwatch.readers import detect, read
from stepwatch.run import Run
from stepwatch.sources import from_text


def clock(seconds: float, module: str = "yolox.core.trainer:261") -> str:
    whole = int(seconds)
    return f"2025-03-02 {10 + whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02} | INFO     | {module} - "


def log(epochs: int = 3, total: int = 45, step_s: float = 1.5, evaluate_s: float = 20.0, planned: int = 3) -> str:
    lines = [clock(0) + "Training start..."]
    now = 0.0
    for epoch in range(1, epochs + 1):
        lines.append(clock(now) + f"---> start train epoch{epoch}")
        for done in range(1, total + 1):
            now += step_s
            if done % 10 == 0:
                lines.append(
                    f"{clock(now)}epoch: {epoch}/{planned}, iter: {done}/{total}, mem: 5578Mb, iter_time: {step_s:.3f}s"
                    ", data_time: 0.300s, total_loss: 9.1, iou_loss: 2.4, lr: 2.193e-07, size: 640, ETA: 6:06:13"
                )
        lines.append(clock(now) + "Save weights to ./YOLOX_outputs/yolox_s")
        lines.append("100%|##########| 63/63 [00:18<00:00,  3.47it/s]")
        now += evaluate_s
        lines += [
            clock(now),
            "Average forward time: 7.79 ms, Average NMS time: 0.57 ms, Average inference time: 8.36 ms",
            " Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 0.002",
            clock(now) + "Save weights to ./YOLOX_outputs/yolox_s",
        ]
    return "\n".join(lines) + "\n"


def the_run(text: str) -> Run:
    source = from_text(text)
    assert detect(source) == "yolox"
    (run,) = read(source)
    return run


def test_steps_evaluations_and_the_end() -> None:
    run = the_run(log())
    analysis = analyse(run)
    assert run.iterations.number[-1] == 135
    assert [event.at for event in run.evaluations] == [45, 90, 135]
    assert [event.took_s for event in run.evaluations] == pytest.approx([20.0] * 3, abs=1)
    assert len(run.checkpoints) == 3
    assert analysis.costs.step_s.mid == pytest.approx(1.5, rel=0.01)
    assert analysis.goodput.wall_s == pytest.approx(135 * 1.5 + 60, rel=0.02)
    assert analysis.goodput.parts_s["data"] == pytest.approx(135 * 0.3, rel=0.02)
    assert analysis.forecast is not None
    assert analysis.forecast.done


def test_what_is_left_is_forecast_with_its_evaluations() -> None:
    analysis = analyse(the_run(log(planned=10)))
    assert analysis.forecast is not None
    assert analysis.forecast.max_iters == 450
    assert analysis.forecast.total_s.mid == pytest.approx(10 * (45 * 1.5 + 20), rel=0.03)


def test_a_training_that_is_said_to_be_over_has_ended() -> None:
    over = clock(400) + "Training of experiment is done and the best AP is 0.01\n"
    analysis = analyse(the_run(log(planned=10) + over))
    assert analysis.forecast is not None
    assert analysis.forecast.done


def test_another_number_of_planned_epochs_counts_from_where_it_is_printed() -> None:
    text = log(epochs=1, planned=300) + log(epochs=2, planned=3).replace("2025-03-02", "2025-03-03")
    assert [run.settings.count("max_iters") for run in read(from_text(text))][-1] == 3 * 45
