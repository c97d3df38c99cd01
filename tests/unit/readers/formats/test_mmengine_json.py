"""The .json logs of mmengine and mmcv: numbers over all epochs or within one, validation, copies, restarts."""

from __future__ import annotations

import json

import numpy as np
import pytest

from stepwatch.readers import detect, read
from stepwatch.run import Run
from stepwatch.sources import from_text


def lines(rows: list[dict[str, object]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def mmengine(epochs: int, time: float = 0.3) -> str:
    rows: list[dict[str, object]] = []
    for epoch in range(1, epochs + 1):
        for place in (50, 100):
            rows.append({
                "lr": 0.1, "data_time": 0.02, "loss": 3.5 - epoch / 10, "time": time + place / 1e6, "epoch": epoch,
                "iter": (epoch - 1) * 110 + place, "memory": 2928, "step": (epoch - 1) * 110 + place,
            })  # fmt: skip
        rows.append({"accuracy/top1": 4.875, "data_time": 0.01, "time": 0.04, "step": epoch})
    return lines(rows)


def mmcv(epochs: int, *, by_epoch: bool = True) -> str:
    rows: list[dict[str, object]] = [
        {"env_info": "GPU 0: some", "config": "runner = dict(type='EpochBasedRunner', max_epochs=12)\n", "seed": None}
    ]
    for epoch in range(1, epochs + 1):
        for place in (50, 100):
            number = place if by_epoch else (epoch - 1) * 100 + place
            rows.append({
                "mode": "train", "epoch": epoch, "iter": number, "lr": 0.002, "memory": 3790, "data_time": 0.059,
                "loss": 2.5, "time": 0.384,
            })  # fmt: skip
        rows.append({"mode": "val", "epoch": epoch, "iter": 500, "lr": 0.002, "bbox_mAP": 0.371})
    return lines(rows)


def the_run(text: str) -> Run:
    source = from_text(text)
    assert detect(source) == "mmengine-json"
    (run,) = read(source)
    return run


def test_mmengine() -> None:
    run = the_run(mmengine(3))
    assert run.iterations.number.tolist() == [50, 100, 160, 210, 270, 320]
    assert run.iterations.time_s == pytest.approx(0.3, rel=0.001)
    assert run.iterations.loss[0] == 3.4
    assert [event.at for event in run.evaluations] == [100, 210, 320]
    assert run.inside is not None
    assert run.inside.data_s[0] == 0.02


@pytest.mark.parametrize("by_epoch", [True, False])
def test_mmcv(by_epoch: bool) -> None:
    run = the_run(mmcv(3, by_epoch=by_epoch))
    assert run.iterations.number.tolist() == [50, 100, 150, 200, 250, 300]
    assert len(run.evaluations) == 3
    assert run.settings.count("max_iters") == (1200 if by_epoch else None)


def test_a_file_that_stands_there_twice_counts_once() -> None:
    assert len(the_run(f"<<<<<<< HEAD\n{mmengine(3)}=======\n{mmengine(3)}>>>>>>> main\n").iterations) == 6


def test_a_process_that_begins_again_is_a_run_of_its_own() -> None:
    first, second = read(from_text(mmengine(3) + mmengine(2, time=0.5)))
    assert (len(first.iterations), len(second.iterations)) == (6, 4)


@pytest.mark.parametrize(
    "line",
    [
        '{"loss": 2.5, "learning_rate": 1e-5, "epoch": 0.5}',
        '{"data_time": 0.1, "iteration": 19, "time": 0.5}',
        '{"mode": "train", "loss": 2.5}',
    ],
)
def test_other_objects_are_not(line: str) -> None:
    assert detect(from_text(line + "\n" + line)) != "mmengine-json"


@pytest.mark.parametrize("window", [10, 50])
def test_a_wait_at_the_start_counts_once_however_long_the_means_are(window: int) -> None:
    steps = np.full(400, 0.2)
    steps[0], steps[300] = 20.0, 5.0
    rows: list[dict[str, object]] = []
    for end in range(10, 401, 10):
        mean = float(steps[max(end - window, 0) : end].mean())
        means = {"data_time": mean - 0.15, "time": mean}
        rows.append({"lr": 0.1, "loss": 1.5, "epoch": 1, "iter": end, "step": end} | means)
    run = the_run(lines(rows))
    assert (run.iterations.time_s * 10).sum() == pytest.approx(steps.sum(), rel=0.001)
    assert run.inside is not None
    assert (run.inside.data_s * 10).sum() == pytest.approx(steps.sum() - 400 * 0.15, rel=0.001)
    assert run.iterations.time_s[:5] == pytest.approx([2.18, 0.2, 0.2, 0.2, 0.2])
