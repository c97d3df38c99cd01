"""When a run that goes on ends, by the clock."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.builders import Saves, Truth, a_log

import stepwatch
from stepwatch.analysis.phases import Phase
from stepwatch.answers import pasted
from stepwatch.answers.from_logs import MOST_EXCERPTS, ExplainRequest, explain
from stepwatch.report import Excerpts, Report

NOW_S = 1.8e9


@pytest.mark.parametrize(("written_ago_s", "known"), [(10.0, True), (3e6, False)])
def test_the_end_by_the_clock_is_never_in_the_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written_ago_s: float, known: bool
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(int(NOW_S)))
    log = tmp_path / "train.log"
    log.write_text(a_log(Truth(header=False)))
    os.utime(log, (NOW_S - written_ago_s,) * 2)
    (run,) = stepwatch.explain(str(log), settings={"max_iters": 100_000}).runs
    assert (run.ends_s is not None) is known
    assert run.ends_s is None or run.ends_s.mid > NOW_S


@pytest.mark.parametrize(
    ("names", "gpu", "known"),
    [
        (("NVIDIA A100-SXM4-80GB",) * 2, None, ("A100", "driver")),
        (("NVIDIA A100-SXM4-80GB",) * 2, "4070", ("4070", "user")),
        (("NVIDIA A100-SXM4-80GB", "Tesla T4"), None, None),
    ],
)
def test_the_card_that_the_samples_name_is_used_where_nobody_names_one(
    tmp_path: Path, names: tuple[str, ...], gpu: str | None, known: tuple[str, str] | None
) -> None:
    log, samples = tmp_path / "train.log", tmp_path / "smi.csv"
    log.write_text(a_log(Truth(header=False)))
    rows = [f"{second}, {card}, {name}, 97 %" for second in range(5) for card, name in enumerate(names)]
    samples.write_text("\n".join(("timestamp, index, name, utilization.gpu [%]", *rows)))
    (run,) = explain(ExplainRequest(logs=(str(log),), samples=str(samples), gpu=gpu)).runs
    throughput = run.analysis.throughput
    assert (throughput.gpu is not None) == (known is not None)
    if known is not None and throughput.gpu is not None:
        assert known[0] in throughput.gpu.name
        assert throughput.gpu_origin == known[1]


def test_a_clock_that_is_no_number_is_left_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    log = tmp_path / "train.log"
    log.write_text(a_log(Truth()))
    assert stepwatch.explain(str(log)).runs


PLAIN = Truth(max_iters=2000, eval_interval=500, log_interval=10, saves=Saves.ALWAYS)
MANY = Truth(max_iters=20_000, eval_interval=100, log_interval=50)


def explained(text: str) -> Report:
    return explain(ExplainRequest(logs=(pasted(text, "train.log"),)))


def lines_of(excerpts: Excerpts) -> set[tuple[int, str]]:
    return {tuple(line) for lines in excerpts.values() for line in lines}


@pytest.mark.parametrize("truth", [PLAIN, replace(PLAIN, stall_share=0.05, seed=3)], ids=["plain", "stalling"])
def test_each_slow_iteration_has_its_own_lines(truth: Truth) -> None:
    text = a_log(truth)
    (run,) = explained(text).runs
    slow = np.flatnonzero(run.analysis.phases.phase != Phase.STEP).tolist()
    assert sorted(run.excerpts()) == slow
    numbers = run.analysis.run.iterations.number
    for row, lines in run.excerpts().items():
        assert any(f"iter {numbers[row]}:" in line.text for line in lines)
    logged = text.split("\n")
    assert all(logged[number - 1] == line for number, line in lines_of(run.excerpts()))


def test_the_evaluation_of_an_iteration_is_among_its_lines() -> None:
    (run,) = explained(a_log(PLAIN)).runs
    row = int(np.flatnonzero(run.analysis.run.iterations.number == 1000)[0])
    assert any(line.text.startswith("step 1000: train loss") for line in run.excerpts()[row])


def test_a_run_that_broke_off_has_the_lines_of_its_end() -> None:
    text = a_log(replace(PLAIN, kept=0.4)) + "Traceback (most recent call last):\n  File x\nRuntimeError: CUDA error\n"
    (run,) = explained(text).runs
    last = len(run.analysis.run.iterations) - 1
    assert any(line.text.startswith("Traceback") for line in run.excerpts()[last])


def test_of_many_slow_iterations_the_first_and_the_slowest_are_kept() -> None:
    (run,) = explained(a_log(MANY)).runs
    times = run.analysis.run.iterations.time_s
    assert len(run.excerpts()) <= MOST_EXCERPTS < int((run.analysis.phases.phase != Phase.STEP).sum())
    assert {0, int(times.argmax())} <= set(run.excerpts())


def test_a_long_line_is_cut_and_the_rest_of_the_log_is_not_kept() -> None:
    text = a_log(PLAIN).replace("iter 1000:", "secret " * 1000 + "\niter 1000:")
    (run,) = explained(text).runs
    kept = lines_of(run.excerpts())
    assert any("secret" in line for _, line in kept)
    assert max(len(line) for _, line in kept) <= 200
    assert len(kept) < len(text.split("\n")) / 3


def test_an_event_file_or_a_directory_has_none(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(a_log(PLAIN), encoding="utf-8")
    (tmp_path / "b.log").write_text(a_log(replace(PLAIN, seed=2)), encoding="utf-8")
    assert [dict(run.excerpts()) for run in explain(ExplainRequest(logs=(str(tmp_path),))).runs] == [{}, {}]
