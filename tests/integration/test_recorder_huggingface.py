"""The callback in a real Trainer that trains, evaluates and saves; sleeps are planted, and found where they are."""

from __future__ import annotations

import importlib
import os
import runpy
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.record_lines import agree, lines_of, numbers, phases, seconds, unaccounted, unwarned
from tools import ROOT
from tools.pages import answer

os.environ.setdefault("HF_HUB_OFFLINE", "1")
MISSING = [name for name in ("torch", "transformers", "accelerate") if find_spec(name) is None]
pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)}: the callback for Hugging Face is not tested"),
]


@pytest.fixture(scope="module")
def hf() -> Any:
    """Imported by the process that runs these tests, not by each that collects them."""
    return importlib.import_module("tests.integration.hf_training")


@pytest.fixture(scope="module")
def ran(hf: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[dict[str, Any]]]:
    for _ in range(3):  # a busy machine may stop one between two looks at the clock, hardly three
        folder = tmp_path_factory.mktemp("trained")
        trainer = hf.trainer_in(
            folder, hf.Rows(4), hf.StepwatchCallback, max_steps=7, gradient_accumulation_steps=2,
            eval_strategy="steps", eval_steps=3, save_steps=3, logging_steps=2,
        )  # fmt: skip
        with unwarned():
            trainer.train()
        lines = lines_of(folder / hf.FILE)
        if agree(seconds(lines, "step", "data_s"), trainer.fetches):
            break
    return trainer, lines


def test_every_step_evaluation_and_checkpoint_has_its_line(ran: Any) -> None:
    _, lines = ran
    assert numbers(lines, "step") == list(range(7))
    assert numbers(lines, "eval") == [3, 6, 7]
    assert numbers(lines, "checkpoint") == [3, 6, 7]
    assert next(iter(lines[-1].items())) == ("end", 7)


def test_what_was_planted_is_found_in_its_place(hf: Any, ran: Any) -> None:
    trainer, lines = ran
    assert agree(seconds(lines, "eval"), trainer.evaluations)
    assert agree(seconds(lines, "checkpoint"), trainer.saves)
    assert agree(seconds(lines, "step", "data_s"), trainer.fetches)
    assert min(seconds(lines, "eval")) >= hf.EVALUATION_S
    assert min(seconds(lines, "checkpoint")) >= hf.SAVE_S
    assert min(seconds(lines, "step")) >= 2 * hf.STEP_S + 4 * hf.SAMPLE_S


def test_the_parts_sum_up_to_the_whole(ran: Any) -> None:
    assert -0.001 < unaccounted(ran[1]) < 0.05


def test_losses_are_those_that_were_logged(ran: Any) -> None:
    trainer, lines = ran
    logged = {row["step"] - 1: row["loss"] for row in trainer.state.log_history if "loss" in row}
    assert {step["step"]: step["loss"] for step in phases(lines, "step") if "loss" in step} == logged
    assert list(logged) == [1, 3, 5]
    evaluated = [row["eval_loss"] for row in trainer.state.log_history if "eval_loss" in row]
    assert [line["val_loss"] for line in phases(lines, "eval")] == evaluated


def test_settings_have_our_names(hf: Any, ran: Any) -> None:
    trainer, lines = ran
    expected = {
        "batch_size": 2, "gradient_accumulation_steps": 2, "max_iters": 7, "eval_interval": 3, "log_interval": 2,
        "dtype": "float32", "compile": False, "world_size": 1, "n_params": trainer.model.num_parameters(),
    }  # fmt: skip
    assert expected.items() <= lines[0]["settings"].items()
    assert [line["settings"] for line in phases(lines, "settings")] == [{"tokens_per_iter": 4 * hf.TOKENS}]


def test_a_resumed_training_goes_on_in_the_same_file(hf: Any, ran: Any) -> None:
    trainer, before = ran
    trainer.args.max_steps = 8
    trainer.train(resume_from_checkpoint=str(Path(trainer.args.output_dir) / "checkpoint-6"))
    lines = lines_of(Path(trainer.args.output_dir) / hf.FILE)[len(before) :]
    assert next(iter(lines[0])) == "stepwatch"
    assert numbers(lines, "step") == [6, 7]


def test_several_sets_are_one_evaluation_and_counted_tokens_are_told(hf: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    trainer = hf.trainer_in(
        tmp_path / "out", {"near": hf.Rows(4), "far": hf.Rows(2)}, hf.StepwatchCallback(path), num_train_epochs=2,
        max_steps=-1, per_device_train_batch_size=8, eval_strategy="epoch", save_strategy="epoch", logging_steps=1,
        eval_on_start=True, include_num_input_tokens_seen="all",
    )  # fmt: skip
    with unwarned():
        trainer.train()
        trainer.evaluate()  # after the training: not its own
    lines = lines_of(path)
    assert numbers(lines, "eval") == [0, 4, 8]
    assert agree(seconds(lines, "eval"), trainer.evaluations)
    assert agree(seconds(lines, "checkpoint"), trainer.saves)
    assert {"eval_near_loss", "eval_far_loss"} <= phases(lines, "eval")[0].keys()
    assert [step["tokens"] for step in phases(lines, "step")] == [8 * hf.TOKENS] * 8
    assert -0.001 < unaccounted(lines) < 0.05


@pytest.mark.parametrize("ours_first", [True, False])
def test_an_evaluation_of_another_callback_is_not_the_step(hf: Any, tmp_path: Path, ours_first: bool) -> None:
    path, other = tmp_path / "run.jsonl", hf.EvaluatesInAStep()
    trainer = hf.trainer_in(tmp_path, hf.Rows(4), hf.StepwatchCallback(path), max_steps=3, save_strategy="no")
    other.trainer = trainer
    place = trainer.callback_handler.callbacks
    place.insert(len(place) if ours_first else 0, other)
    trainer.train()
    lines = lines_of(path)
    assert numbers(lines, "step") == [0, 1, 2]
    assert agree(seconds(lines, "eval"), trainer.evaluations)
    assert unaccounted(lines) > -0.001  # else it is in the step as well


def test_events_in_any_order_never_reach_the_training(hf: Any, tmp_path: Path) -> None:
    callback = hf.StepwatchCallback(tmp_path / "run.jsonl")
    arguments = hf.transformers.TrainingArguments(str(tmp_path), report_to=[], use_cpu=True)
    state, control = hf.transformers.TrainerState(), hf.transformers.TrainerControl()
    events = [name for name in dir(callback) if name.startswith("on_")]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for order in (events, sorted(events, reverse=True), events[::2], events):
            for name in order:
                getattr(callback, name)(arguments, state, control)
        callback.on_train_begin(None, None, None)
        callback.on_train_begin(None, None, None)
    assert [str(one.message)[:36] for one in said] == ["stepwatch: on_train_begin was not re"]


def test_the_example_runs_and_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with unwarned():
        runpy.run_path(str(ROOT / "examples" / "record_huggingface.py"))
    lines = lines_of(tmp_path / "run.jsonl")
    assert numbers(lines, "step") == list(range(40))
    assert numbers(lines, "eval") == [10, 20, 30, 40]
    assert numbers(lines, "checkpoint") == [20, 40]
    assert "for 40 iterations" in answer("explain", str(tmp_path / "run.jsonl"))
