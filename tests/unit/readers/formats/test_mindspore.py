"""MindSpore's TimeMonitor and LossMonitor."""

from __future__ import annotations

import pytest

from stepwatch.analysis import analyse
from stepwatch.readers import detect, read
from stepwatch.run import Run
from stepwatch.sources import from_text


def epochs(count: int, *, steps: int = 62, step_s: float = 0.143, first_s: float = 200.0, last: str = "") -> str:
    lines = []
    for epoch in range(1, count + 1):
        whole = 1000 * (steps * step_s + (first_s if epoch == 1 else 0.0))
        lines.append(f"epoch: {epoch}{last} step: {steps}, loss is {2.3 - epoch / 100}")
        lines.append(f"Train epoch time: {whole:.3f} ms, per step time: {whole / steps:.3f} ms")
        lines.append(f"epoch: {epoch} acc: 0.77, best acc is 0.77")
    return "\n".join(lines) + "\n"


def runs_of(text: str) -> tuple[Run, ...]:
    source = from_text(text)
    assert detect(source) == "mindspore"
    return read(source)


def test_steps_of_epochs_and_the_compilation() -> None:
    (run,) = runs_of("using amp_level O1\n" + epochs(30))
    assert run.iterations.number[-1] == 30 * 62
    assert run.iterations.loss[-1] == pytest.approx(2.0)
    analysis = analyse(run)
    assert analysis.costs.step_s.mid == pytest.approx(0.143, rel=0.01)
    assert analysis.goodput.wall_s == pytest.approx(30 * 62 * 0.143 + 200, rel=0.001)
    assert analysis.goodput.parts_s["compile"] == pytest.approx(200, rel=0.02)


def test_a_plan_and_another_run() -> None:
    first, second = runs_of(epochs(5, last="/90") + epochs(4, step_s=0.3, last="/90"))
    assert analyse(second).costs.step_s.mid == pytest.approx(0.3, rel=0.01)
    assert [run.settings.count("max_iters") for run in (first, second)] == [90 * 62] * 2


def test_times_alone_are_counted() -> None:
    text = "".join(line + "\n" for line in epochs(12).splitlines() if line.startswith("Train"))
    (run,) = runs_of(text)
    assert run.iterations.number.tolist() == [62 * n for n in range(1, 13)]
