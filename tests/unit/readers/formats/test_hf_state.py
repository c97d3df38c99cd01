"""trainer_state.json: steps without times, and the mean of the run where the training has ended."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from stepwatch.analysis import analyse
from stepwatch.errors import NoIterations
from stepwatch.readers import detect, read
from stepwatch.run import Run, Timing
from stepwatch.sources import from_text


def state(*, steps: int = 200, ended: bool = True, tokens: bool = False, **more: Any) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for step in range(10, steps + 1, 10):
        row = {"epoch": step / 100, "grad_norm": 0.6, "learning_rate": 9e-05, "loss": 3 - step / 100, "step": step}
        rows.append(row | ({"num_tokens": 4096.0 * step} if tokens else {}))
        if step % 50 == 0:
            rows.append({"epoch": step / 100, "eval_loss": 2.5, "eval_runtime": 10.0, "step": step})
    if ended:
        rows.append(
            {"epoch": 2.0, "train_loss": 2.0, "train_runtime": 340.0, "train_steps_per_second": 0.588, "step": steps}
        )
    return {
        "best_metric": None, "epoch": 2.0, "eval_steps": 50, "global_step": steps, "is_world_process_zero": True,
        "log_history": rows, "logging_steps": 10, "max_steps": steps, "num_input_tokens_seen": 0,
        "stateful_callbacks": {"TrainerControl": {"args": {"should_log": False}, "attributes": {}}},
        "total_flos": 3.2e15, "train_batch_size": 2,
    } | more  # fmt: skip


def the_run(document: dict[str, Any], **how: Any) -> Run:
    source = from_text(json.dumps(document, **how))
    assert detect(source) == "hf-state"
    (run,) = read(source)
    return run


@pytest.mark.parametrize("indent", [None, 2])
def test_the_mean_of_the_run_is_said_as_such(indent: int | None) -> None:
    run = the_run(state(), indent=indent)
    assert run.timing is Timing.SPANS_RUN
    assert run.iterations.number.tolist() == list(range(10, 201, 10))
    assert run.iterations.time_s.tolist() == pytest.approx([1.5] * 20)  # (340 - 4 * 10) / 200
    assert run.iterations.loss[0] == 2.9
    assert [(e.at, e.took_s, e.val_loss) for e in run.evaluations] == [(n, 10.0, 2.5) for n in (50, 100, 150, 200)]
    assert (run.settings.count("max_iters"), run.settings.count("log_interval"), run.settings.count("batch_size")) == (
        200,
        10,
        2,
    )
    answer = analyse(run)
    assert "averaged_times" in {finding.code for finding in answer.findings}
    assert answer.goodput.wall_s == pytest.approx(340.0)  # with the evaluation after the last step
    assert answer.forecast.done


def test_evaluations_after_the_end_are_not_in_its_time() -> None:
    document = state()
    document["log_history"] += [{"epoch": 2.0, "eval_loss": 2.5, "eval_runtime": 40.0, "step": 200}] * 2
    assert the_run(document).iterations.time_s[0] == pytest.approx(1.5)


def test_an_evaluation_that_is_told_twice_was_done_once() -> None:
    document = state()
    document["log_history"] = [row for row in document["log_history"] for _ in range(1 + ("eval_loss" in row))]
    assert the_run(document).iterations.time_s[0] == pytest.approx(1.5)


@pytest.mark.parametrize(("steps", "planned"), [(203, 203), (203, 900), (200, 900)])
def test_a_run_that_ended_is_done_wherever_it_stopped(steps: int, planned: int) -> None:
    run = the_run(state(steps=steps, max_steps=planned))
    assert run.iterations.number[-1] == steps
    assert run.settings.count("max_iters") == steps
    assert analyse(run).forecast.done
    assert len(run.iterations) == 20 + (steps > 200)
    assert np.isnan(run.iterations.loss[-1]) == (steps > 200)


def test_evaluations_every_so_many_steps_are_told_only_where_there_are_any() -> None:
    assert the_run(state()).settings.count("eval_interval") == 50
    document = state(eval_steps=500)  # as it is where nobody has asked for evaluations
    document["log_history"] = [row for row in document["log_history"] if "eval_loss" not in row]
    assert the_run(document).settings.count("eval_interval") is None


def test_without_the_end_nothing_tells_a_time() -> None:
    with pytest.raises(NoIterations, match="20 logged steps, but nothing in it shows their time"):
        read(from_text(json.dumps(state(ended=False), indent=2)))


def test_an_empty_history_is_a_clear_answer() -> None:
    document = state() | {"log_history": [], "global_step": 6}
    with pytest.raises(NoIterations, match="log_history in this state is empty: nothing was logged in 6 steps"):
        read(from_text(json.dumps(document, indent=2)))


def test_tokens_and_work_are_counted() -> None:
    run = the_run(state(tokens=True))
    assert run.settings.count("tokens_per_iter") == 4096
    assert run.flops_per_token == pytest.approx(3.2e15 / (4096 * 200))
    assert the_run(state(num_input_tokens_seen=200 * 512)).settings.count("tokens_per_iter") == 512


def test_a_loss_that_is_no_number() -> None:
    document = state()
    document["log_history"][0]["loss"] = float("nan")
    assert np.isinf(the_run(document).iterations.loss[0])


@pytest.mark.parametrize("share", [0.1, 0.35, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_state_cut_short_is_still_this_format(share: float, indent: int | None) -> None:
    text = json.dumps(state(steps=1000), indent=indent)
    for part in (text[: int(len(text) * share)], text[int(len(text) * share / 2) : int(len(text) * share)]):
        source = from_text(part)
        assert detect(source) == "hf-state"
        with pytest.raises(NoIterations, match="nothing in it shows their time"):
            read(source)


@pytest.mark.parametrize(
    "text",
    [
        '{"log_history": [',
        '{"log_history": [{}]}',
        '{"log_history": [{"step": 1}]}',
        '{"a": {"step": 5, "loss": 1}}',
        "{" * 5000,
    ],
)
def test_strange_documents_never_raise(text: str) -> None:
    try:
        for run in read(from_text(text)):
            analyse(run)
    except NoIterations:
        pass


def test_a_state_cut_before_its_history_is_told_as_cut() -> None:
    text = json.dumps(state(steps=1000) | {"log_history": []}, indent=2)
    with pytest.raises(NoIterations, match="is cut off"):
        read(from_text(text[: len(text) * 3 // 4]))


@pytest.mark.parametrize("ended", [False, True])
def test_rows_of_trl_have_the_time_of_their_steps(ended: bool) -> None:
    document = state(ended=ended)
    for row in document["log_history"]:
        if "loss" in row:
            row["step_time"] = 1.2 + row["step"] / 1000
    run = the_run(document)
    assert run.timing is Timing.SPANS_LOG_INTERVAL
    assert run.iterations.time_s.tolist() == pytest.approx([1.2 + n / 1000 for n in range(10, 201, 10)])
    spent_s = 10 * float(run.iterations.time_s.sum()) + 40
    assert analyse(run).goodput.wall_s == pytest.approx(340.0 if ended else spent_s, rel=0.001)
    document["log_history"][0].pop("step_time")
    if not ended:
        with pytest.raises(NoIterations):
            analyse(the_run(document))


@pytest.mark.parametrize("written", [lambda value: value, str], ids=["numbers", "in quotes"])
def test_a_state_inside_another_text_tells_the_same(written: Any) -> None:
    document = state(tokens=True)
    document["log_history"] = [{key: written(value) for key, value in row.items()} for row in document["log_history"]]
    for row in document["log_history"]:
        row["step"] = int(row["step"])
    text = json.dumps(document, indent=2)
    (whole,), (torn,) = (read(from_text(each), "hf-state") for each in (text, f"cat trainer_state.json\n{text}"))
    assert whole.iterations.loss.tolist() == torn.iterations.loss.tolist()
    assert whole.iterations.time_s.tolist() == torn.iterations.time_s.tolist()
    assert (whole.evaluations, whole.settings) == (torn.evaluations, torn.settings)
