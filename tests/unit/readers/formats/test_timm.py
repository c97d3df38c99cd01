"""timm and its relatives: means since the epoch began, taken apart."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from stepwatch.errors import NoIterations
from stepwatch.readers import read
from stepwatch.run import Run
from stepwatch.sources import from_text

Loop = Callable[[int, list[float], list[float]], str]


def _timm(epoch: int, steps: list[float], data: list[float]) -> str:
    lines = []
    for i in range(len(steps)):
        if i % 50 == 0 or i == len(steps) - 1:
            time, mean, wait, waits = steps[i], np.mean(steps[: i + 1]), data[i], np.mean(data[: i + 1])
            lines.append(
                f"Train: {epoch} [{i:>4d}/{len(steps)} ({100 * i / (len(steps) - 1):>3.0f}%)]"
                f"  Loss: {6.9 - i / 999:>9.6f} (6.9021)"
                f"  Time: {time:.3f}s, {128 / time:>7.2f}/s  ({mean:.3f}s, {128 / mean:>7.2f}/s)"
                f"  LR: 1.000e-06  Data: {wait:.3f} ({waits:.3f})"
            )
    return "\n".join(lines) + "\n"


def _example(epoch: int, steps: list[float], data: list[float]) -> str:
    lines = []
    for i in range(0, len(steps), 10):
        mean, waits = np.mean(steps[: i + 1]), np.mean(data[: i + 1])
        lines.append(
            f"Epoch: [{epoch}][{i:4d}/{len(steps)}]\tTime {steps[i]:6.3f} ({mean:6.3f})"
            f"\tData {data[i]:6.3f} ({waits:6.3f})\tLoss 6.9291e+00 (6.9488e+00)\tAcc@1   0.39 (  0.13)"
        )
    return "\n".join(lines) + "\n"


def _swin(epoch: int, steps: list[float], data: list[float]) -> str:
    lines = []
    for i in range(0, len(steps), 10):
        mean = np.mean(steps[: i + 1])
        lines.append(
            f"[2024-03-23 17:02:{i % 60:02d} swin_tiny] (main.py 170): INFO Train: [{epoch}/300][{i}/{len(steps)}]\t"
            f"eta 0:03:04 lr 0.000010\ttime {steps[i]:.4f} ({mean:.4f})\tloss 6.9200 (6.9310)\tmem 9000MB"
        )
    return "\n".join(lines) + "\n"


def _test(batches: int, mean: float, name: str = "Test") -> str:
    return "".join(
        f"{name}: [{i:>4d}/{batches - 1}]  Time: {mean:.3f} ({mean:.3f})  Loss:  6.2366 (6.2366)  Acc@1:  0.0 ( 0.0)\n"
        for i in sorted({*range(0, batches, 50), batches - 1})
    )


def _steps(count: int) -> tuple[list[float], list[float]]:
    steps, data = [0.4] * count, [0.01] * count
    for place in (0, *range(25, count, 100)):  # between the lines
        steps[place] += 5.0
        data[place] += 5.0
    return steps, data


def _one(text: str) -> Run:
    (run,) = read(from_text(text))
    assert run.format == "timm"
    return run


@pytest.mark.parametrize("loop", [_timm, _example, _swin])
def test_stalls_between_the_lines_are_in_the_times(loop: Loop) -> None:
    steps, data = _steps(1001)
    run = _one("".join(loop(epoch, steps, data) for epoch in range(3)))
    covers = np.diff(run.iterations.number, prepend=0)
    assert int(run.iterations.number[-1]) == 3 * 1001
    assert float((run.iterations.time_s * covers).sum()) == pytest.approx(3 * sum(steps), rel=0.005)
    if loop is not _swin:
        assert run.inside is not None
        assert float((run.inside.data_s * covers).sum()) == pytest.approx(3 * sum(data), rel=0.02)


def test_images_per_second_have_the_digits_that_seconds_lack() -> None:
    run = _one(_timm(0, [9.0] + [0.0314] * 2000, [0.001] * 2001))
    assert np.allclose(run.iterations.time_s[1:], 0.0314, rtol=0.004)


def test_both_evaluations_of_an_epoch_are_one_with_the_time_of_both() -> None:
    steps, data = _steps(301)
    epoch = (
        _test(391, 0.25) + _test(391, 0.3, "Test (EMA)") + "Current checkpoints:\n ('out/checkpoint-0.pth.tar', 12.5)\n"
    )
    run = _one("".join(_timm(i, steps, data) + epoch for i in range(2)))
    assert [(each.at, each.took_s) for each in run.evaluations] == [
        (301, pytest.approx(391 * 0.55)), (602, pytest.approx(391 * 0.55)),
    ]  # fmt: skip
    assert [save.at for save in run.checkpoints] == [301, 602]


def test_planned_epochs_and_the_size_of_the_model() -> None:
    steps, data = _steps(301)
    head = "Training in distributed mode with multiple processes, 1 GPU per process. Process 0, total 8.\n"
    head += "Model tiny created, param count:24032136\nScheduled epochs: 10\n"
    run = _one(head + _timm(0, steps, data))
    assert run.settings.count("max_iters") == 3010
    assert run.settings.count("world_size") == 8
    assert run.settings.number("n_params") == 24032136


def test_a_log_that_begins_in_mid_epoch_has_no_first_step() -> None:
    steps, data = _steps(1001)
    run = _one("\n".join(_timm(4, steps, data).splitlines()[6:]))
    assert not run.has_header
    assert run.iterations.number[0] == 4 * 1001 + 301


def test_a_job_at_its_time_limit_was_killed() -> None:
    steps, data = _steps(301)
    run = _one(_timm(0, steps, data) + "=>> PBS: job killed: walltime 3642 exceeded limit 3600\n")
    assert [fault.kind for fault in run.faults] == ["killed"]


def test_an_evaluation_alone_is_no_training() -> None:
    with pytest.raises(NoIterations):
        read(from_text(_test(391, 0.25)))
