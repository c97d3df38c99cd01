"""Time-Series-Library: means of a hundred, costs of epochs, the validation in what is between them."""

from __future__ import annotations

import pytest

from stepwatch.analysis import analyse
from stepwatch.readers import detect, read
from stepwatch.run import Run
from stepwatch.sources import from_text


def training(
    epochs: int = 5, steps: int = 264, step_s: float = 0.05, check_s: float = 6.0, planned: int = 10, name: str = "a"
) -> str:
    lines = [f">>>>>>>start training : long_term_forecast_{name}>>>>>>>>>>>>>>>>>>>>>>>>>>", "train 8449", "val 2785"]
    since = 0.0
    for epoch in range(1, epochs + 1):
        for done in range(1, steps + 1):
            since += step_s
            if done % 100 == 0:
                speed = since / 100
                left = speed * ((planned - epoch + 1) * steps - (done - 1))
                lines.append(f"\titers: {done}, epoch: {epoch} | loss: 0.5521043")
                lines.append(f"\tspeed: {speed:.4f}s/iter; left time: {left:.4f}s")
                since = 0.0
        since += check_s
        lines += [
            f"Epoch: {epoch} cost time: {steps * step_s}",
            f"Epoch: {epoch}, Steps: {steps} | Train Loss: 0.6012345 Vali Loss: 1.0123456 Test Loss: 0.5432101",
            "Validation loss decreased (inf --> 1.012346).  Saving model ...",
            "Updating learning rate to 0.0001",
        ]
    return "\n".join(lines) + "\n"


def runs_of(text: str) -> tuple[Run, ...]:
    source = from_text(text)
    assert detect(source) == "time-series-library"
    return read(source)


@pytest.mark.parametrize("steps", [264, 300, 70])
def test_steps_and_epochs(steps: int) -> None:
    (run,) = runs_of(training(steps=steps))
    assert run.iterations.number[-1] == 5 * steps
    analysis = analyse(run)
    assert analysis.costs.step_s.mid == pytest.approx(0.05, rel=0.01)
    assert analysis.goodput.parts_s["step"] == pytest.approx(5 * steps * 0.05, rel=0.02)


def test_the_validation_is_what_lies_between_two_epochs() -> None:
    (run,) = runs_of(training())
    assert [event.at for event in run.evaluations] == [264, 528, 792, 1056, 1320]
    assert [event.took_s for event in run.evaluations[:-1]] == pytest.approx([6.0] * 4, rel=0.02)
    assert run.evaluations[-1].took_s is None
    assert analyse(run).goodput.wall_s == pytest.approx(5 * (264 * 0.05 + 6.0), rel=0.02)


def test_the_plan_follows_from_the_time_that_is_left() -> None:
    (run,) = runs_of(training())
    forecast = analyse(run).forecast
    assert forecast is not None
    assert forecast.max_iters == 2640
    assert forecast.total_s.mid == pytest.approx(10 * (264 * 0.05 + 6.0), rel=0.03)


def test_each_training_is_a_run_and_may_stop_early() -> None:
    early = "EarlyStopping counter: 3 out of 3\nEarly stopping\n>>>>>>>testing : long_term_forecast_a<<<<<<<\n"
    first, second = runs_of(training() + early + training(step_s=0.2, name="b"))
    assert analyse(first).forecast.done
    assert not analyse(second).forecast.done
    assert analyse(second).costs.step_s.mid == pytest.approx(0.2, rel=0.01)


def test_a_log_that_ends_within_an_epoch() -> None:
    text = training().split("\titers: 200, epoch: 3")[0]
    (run,) = runs_of(text)
    assert run.iterations.number[-1] == 628
    assert analyse(run).costs.step_s.mid == pytest.approx(0.05, rel=0.01)


def test_a_time_left_that_cannot_be_plans_nothing() -> None:
    """Found by damaging logs: as many digits as nobody counts."""
    lines = "\titers: 100, epoch: 1 | loss: 0.5\n\tspeed: 0.0534s/iter; left time: {}s\n"
    (run,) = runs_of(lines.format("9" * 60))
    assert (len(run.iterations), run.settings.count("max_iters")) == (1, None)


def test_a_step_of_no_time_plans_nothing() -> None:
    """Found by damaging logs: a time left of two minutes is more steps than a float holds."""
    lines = "\titers: 100, epoch: 1 | loss: 0.5\n\tspeed: 1e-308s/iter; left time: 136.1232s\n"
    (run,) = runs_of(lines)
    assert run.settings.count("max_iters") is None
