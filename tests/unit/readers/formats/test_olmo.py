"""OLMo: blocks of metrics, timed by the clock."""

from __future__ import annotations

import numpy as np
import pytest

from stepwatch.readers import read
from stepwatch.run import Run, Timing
from stepwatch.sources import from_text


class _Log:
    def __init__(self, *, clock: bool = True) -> None:
        self.clock, self.now, self.lines = clock, 0.0, list[str]()

    def say(self, text: str) -> None:
        minutes, seconds = divmod(self.now, 60)
        stamp = (
            f"2025-12-12 11:{int(minutes):02d}:{seconds:06.3f}\thost:0\tolmo.train:979\tINFO\t" if self.clock else ""
        )
        self.lines.append(stamp + text)

    def step(self, number: int, *, took: float = 0.0) -> None:
        self.now += took
        self.say(f"[step={number}/15000,epoch=0]")
        self.lines += ["    optim/total_grad_norm=0.2051", f"    train/CrossEntropyLoss={3 - number / 1000:.3f}"]
        self.lines += ["    throughput/total_tokens=4,194,304", "    throughput/device/batches_per_second=0.4000"]

    def run(self) -> Run:
        (run,) = read(from_text("\n".join(self.lines) + "\n"))
        assert run.format == "olmo"
        return run


def test_steps_are_timed_by_the_clock() -> None:
    log = _Log()
    log.say("Total number of parameters: 1,279,787,008")
    log.say("Starting training...")
    for number in range(1, 41):
        log.step(number, took=12.0 if number == 1 else 2.0)
    run = log.run()
    assert run.timing is Timing.SPANS_STEP
    assert run.iterations.time_s[0] == pytest.approx(12.0)
    assert np.allclose(run.iterations.time_s[1:], 2.0)
    assert run.iterations.loss[1] == pytest.approx(2.998)
    assert run.settings.count("max_iters") == 15000
    assert run.settings.number("n_params") == 1279787008


def test_saves_and_evaluations_are_taken_out() -> None:
    log = _Log()
    log.say("Starting training...")
    for number in range(1, 61):
        log.step(number, took=2.0)
        if number % 20 == 0:
            log.say("Saving unsharded checkpoint...")
            log.now += 36.0
            log.say(f"Unsharded checkpoint saved to /data/step{number}-unsharded")
        if number % 30 == 0:
            log.say("Running evaluation for 'c4-val'...")
            log.now += 9.0
            log.step(number)
    run = log.run()
    assert np.allclose(run.iterations.time_s, 2.0)
    assert [(each.at, each.took_s) for each in run.checkpoints] == [(n, pytest.approx(36.0)) for n in (20, 40, 60)]
    assert [(each.at, each.took_s) for each in run.evaluations] == [(n, pytest.approx(9.0)) for n in (30, 60)]


def test_a_longer_log_interval_is_a_mean() -> None:
    log = _Log()
    log.say("Starting training...")
    for number in range(10, 201, 10):
        log.step(number, took=20.0)
    run = log.run()
    assert run.timing is Timing.SPANS_LOG_INTERVAL
    assert np.allclose(run.iterations.time_s, 2.0)


def test_without_a_clock_the_window_tells() -> None:
    log = _Log(clock=False)
    for number in range(1, 21):
        log.step(number)
    assert np.allclose(log.run().iterations.time_s, 2.5)
