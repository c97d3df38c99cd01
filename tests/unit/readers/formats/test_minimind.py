"""minimind: a countdown in whole minutes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.bars import drawing

from stepwatch.analysis import analyse
from stepwatch.errors import NoIterations
from stepwatch.readers import read
from stepwatch.run import Run
from stepwatch.sources import from_text


def _older(epoch: str, steps: list[float], every: int) -> str:
    lines = []
    for step in range(0, len(steps), every):
        spent = sum(steps[: step + 1])
        left = spent / (step + 1) * len(steps) // 60 - spent // 60
        lines.append(f"Epoch:[{epoch}]({step}/{len(steps)}) loss:7.319 lr:0.000199500000 epoch_Time:{left}min:")
    return "\n".join(lines) + "\n"


def _newer(epoch: str, steps: list[float], every: int) -> str:
    lines = []
    for step in [*range(every, len(steps), every), len(steps)]:
        left = sum(steps[:step]) / step * (len(steps) - step) // 60
        lines.append(
            f"Epoch:[{epoch}]({step}/{len(steps)}), loss: 8.5371, logits_loss: 8.5371, aux_loss: 0.0000, "
            f"lr: 0.00050000, epoch_time: {left}min"
        )
    return "\n".join(lines) + "\n"


def _with_bars(steps: list[float], every: int) -> str:
    """Two epochs with a bar in another stream, which is written at once; each begins with a line of its own step."""
    bars, lines = [], []
    for epoch in (1, 2):
        for done in range(1, len(steps) + 1):
            spent = sum(steps[:done])
            bars.append(drawing(f"Epoch [{epoch}/2]: ", done, len(steps), spent, f"{done / spent:5.2f}it/s"))
        lines += _older(f"{epoch}/2", steps, every).splitlines()[1:]
        lines.append(f"Epoch:[{epoch}/2]({len(steps) - 1}/{len(steps)}) loss:7.3 lr:0.0001 epoch_Time:0.0min:")
    return "\n".join(bars + lines) + "\n"


def test_the_bar_beside_it_is_the_clock() -> None:
    steps = [1.2, *[0.19] * 1401]
    run = _one(_with_bars(steps, 10))
    assert run.iterations.time_s[1:140] == pytest.approx(0.19, rel=0.03)
    analysis = analyse(run)
    assert analysis.goodput.iterations == 2 * len(steps)
    assert analysis.goodput.wall_s == pytest.approx(2 * sum(steps), rel=0.01)


def _one(text: str) -> Run:
    (run,) = read(from_text(text))
    assert run.format == "minimind"
    return run


@pytest.mark.parametrize("step_s", [0.11, 0.35, 2.4])
@pytest.mark.parametrize("written", [_older, _newer])
def test_a_step_is_found_in_the_minutes_that_are_left(written: object, step_s: float) -> None:
    assert callable(written)
    steps = [step_s + 1.5, *[step_s] * 19999]
    run = _one(written("1/1", steps, 100))
    assert np.median(run.iterations.time_s) == pytest.approx(step_s, rel=0.02)
    covers = np.diff(run.iterations.number, prepend=0)
    done = int(run.iterations.number[-1])
    assert float((run.iterations.time_s * covers).sum()) == pytest.approx(sum(steps[:done]), rel=0.02)


def test_a_change_of_speed_shows() -> None:
    run = _one(_newer("1/1", [0.3] * 10000 + [0.6] * 10000, 100))
    times = run.iterations.time_s
    assert np.median(times[20:90]) == pytest.approx(0.3, rel=0.1)
    assert np.median(times[110:180]) == pytest.approx(0.6, rel=0.1)


def test_epochs_go_on_and_the_last_is_planned() -> None:
    steps = [0.4] * 8000
    run = _one(_newer("1/3", steps, 100) + _newer("2/3", steps, 100))
    assert run.iterations.number[[0, -1]].tolist() == [100, 16000]
    assert run.settings.count("max_iters") == 24000
    assert np.allclose(run.iterations.time_s, 0.4, rtol=0.02)


@pytest.mark.parametrize("line", ["Model Params: 25.83M", "LLM\u603b\u53c2\u6570\u91cf\uff1a25.830 \u767e\u4e07"])
def test_the_size_of_the_model(line: str) -> None:
    run = _one(line + "\n" + _newer("1/1", [0.4] * 8000, 100))
    assert run.settings.number("n_params") == pytest.approx(25.83e6)


def test_lines_without_minutes_are_not_timed() -> None:
    with pytest.raises(NoIterations):
        read(from_text("Epoch:[1/1](10/800), Reward: 1.2034, KL_ref: 0.0012, Actor Loss: 0.1230, lr: 0.0001\n" * 5))
