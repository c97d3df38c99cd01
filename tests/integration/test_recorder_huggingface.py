"""The callback in a real Trainer that trains, evaluates and saves; sleeps are planted, and found where they are."""

from __future__ import annotations

import os
import runpy
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from tests.record_lines import agree, lines_of, numbers, phases, seconds, unaccounted, unwarned
from tools import ROOT
from tools.pages import answer

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="no torch: the callback for Hugging Face is not tested")
transformers = pytest.importorskip("transformers", reason="no transformers: their callback is not tested")
pytest.importorskip("accelerate", reason="no accelerate: the Trainer does not run without it")

from stepwatch.recorder.huggingface import FILE, StepwatchCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")

TOKENS = 16
SAMPLE_S, STEP_S, EVALUATION_S, SAVE_S = 0.005, 0.02, 0.15, 0.1


class Rows(torch.utils.data.Dataset):
    """So many rows of tokens; getting one takes time."""

    def __init__(self, count: int, takes_s: float = 0.0) -> None:
        self.count, self.takes_s = count, takes_s

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        time.sleep(self.takes_s)
        row = (torch.arange(TOKENS) + index) % 32
        return {"input_ids": row, "labels": row}


class Measured(transformers.Trainer):
    """A Trainer with sleeps, which takes its own times of what the callback has to find."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.evaluations: list[float] = []
        self.saves: list[float] = []
        self.fetches: list[float] = []

    def training_step(self, *args: Any, **named: Any) -> Any:
        time.sleep(STEP_S)
        return super().training_step(*args, **named)

    def get_batch_samples(self, *args: Any, **named: Any) -> Any:
        begun = time.perf_counter()
        batches = super().get_batch_samples(*args, **named)
        self.fetches.append(time.perf_counter() - begun)
        return batches

    def _evaluate(self, *args: Any, **named: Any) -> Any:
        begun = time.perf_counter()
        time.sleep(EVALUATION_S)
        metrics = super()._evaluate(*args, **named)
        self.evaluations.append(time.perf_counter() - begun)
        return metrics

    def _save_checkpoint(self, *args: Any, **named: Any) -> None:
        begun = time.perf_counter()
        time.sleep(SAVE_S)
        super()._save_checkpoint(*args, **named)
        self.saves.append(time.perf_counter() - begun)


def trainer_in(folder: Path, evaluated: Any, callback: Any, **arguments: Any) -> Measured:
    torch.set_num_threads(1)
    config = transformers.GPT2Config(
        n_layer=1, n_head=2, n_embd=16, vocab_size=32, n_positions=TOKENS, bos_token_id=0, eos_token_id=0
    )
    plain = {"per_device_train_batch_size": 2, "report_to": [], "use_cpu": True, "disable_tqdm": True}
    return Measured(
        transformers.GPT2LMHeadModel(config),
        transformers.TrainingArguments(str(folder), **plain | arguments),
        train_dataset=Rows(32, SAMPLE_S), eval_dataset=evaluated, callbacks=[callback],
    )  # fmt: skip


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Measured, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("trained")
    trainer = trainer_in(
        folder, Rows(4), StepwatchCallback, max_steps=7, gradient_accumulation_steps=2, eval_strategy="steps",
        eval_steps=3, save_steps=3, logging_steps=2,
    )  # fmt: skip
    with unwarned():
        trainer.train()
    return trainer, lines_of(folder / FILE)


def test_every_step_evaluation_and_checkpoint_has_its_line(ran: Any) -> None:
    _, lines = ran
    assert numbers(lines, "step") == list(range(7))
    assert numbers(lines, "eval") == [3, 6, 7]
    assert numbers(lines, "checkpoint") == [3, 6, 7]
    assert next(iter(lines[-1].items())) == ("end", 7)


def test_what_was_planted_is_found_in_its_place(ran: Any) -> None:
    trainer, lines = ran
    assert agree(seconds(lines, "eval"), trainer.evaluations)
    assert agree(seconds(lines, "checkpoint"), trainer.saves)
    assert agree(seconds(lines, "step", "data_s"), trainer.fetches)
    assert min(seconds(lines, "eval")) >= EVALUATION_S
    assert min(seconds(lines, "checkpoint")) >= SAVE_S
    assert min(seconds(lines, "step")) >= 2 * STEP_S + 4 * SAMPLE_S


def test_the_parts_sum_up_to_the_whole(ran: Any) -> None:
    assert -0.001 < unaccounted(ran[1]) < 0.05


def test_losses_are_those_that_were_logged(ran: Any) -> None:
    trainer, lines = ran
    logged = {row["step"] - 1: row["loss"] for row in trainer.state.log_history if "loss" in row}
    assert {step["step"]: step["loss"] for step in phases(lines, "step") if "loss" in step} == logged
    assert list(logged) == [1, 3, 5]
    evaluated = [row["eval_loss"] for row in trainer.state.log_history if "eval_loss" in row]
    assert [line["val_loss"] for line in phases(lines, "eval")] == evaluated


def test_settings_have_our_names(ran: Any) -> None:
    trainer, lines = ran
    expected = {
        "batch_size": 2, "gradient_accumulation_steps": 2, "max_iters": 7, "eval_interval": 3, "log_interval": 2,
        "dtype": "float32", "compile": False, "world_size": 1, "n_params": trainer.model.num_parameters(),
    }  # fmt: skip
    assert expected.items() <= lines[0]["settings"].items()
    assert [line["settings"] for line in phases(lines, "settings")] == [{"tokens_per_iter": 4 * TOKENS}]


def test_a_resumed_training_goes_on_in_the_same_file(ran: Any) -> None:
    trainer, before = ran
    trainer.args.max_steps = 8
    trainer.train(resume_from_checkpoint=str(Path(trainer.args.output_dir) / "checkpoint-6"))
    lines = lines_of(Path(trainer.args.output_dir) / FILE)[len(before) :]
    assert next(iter(lines[0])) == "stepwatch"
    assert numbers(lines, "step") == [6, 7]


def test_several_sets_are_one_evaluation_and_counted_tokens_are_told(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    trainer = trainer_in(
        tmp_path / "out", {"near": Rows(4), "far": Rows(2)}, StepwatchCallback(path), num_train_epochs=2, max_steps=-1,
        per_device_train_batch_size=8, eval_strategy="epoch", save_strategy="epoch", logging_steps=1,
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
    assert [step["tokens"] for step in phases(lines, "step")] == [8 * TOKENS] * 8
    assert -0.001 < unaccounted(lines) < 0.05


class EvaluatesInAStep(transformers.TrainerCallback):
    """What many do: an evaluation of one's own when a step ends."""

    trainer: Measured

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 2:
            self.trainer._evaluate(None, None)


@pytest.mark.parametrize("ours_first", [True, False])
def test_an_evaluation_of_another_callback_is_not_the_step(tmp_path: Path, ours_first: bool) -> None:
    path, other = tmp_path / "run.jsonl", EvaluatesInAStep()
    trainer = trainer_in(tmp_path, Rows(4), StepwatchCallback(path), max_steps=3, save_strategy="no")
    other.trainer = trainer
    place = trainer.callback_handler.callbacks
    place.insert(len(place) if ours_first else 0, other)
    trainer.train()
    lines = lines_of(path)
    assert numbers(lines, "step") == [0, 1, 2]
    assert agree(seconds(lines, "eval"), trainer.evaluations)
    assert unaccounted(lines) > -0.001  # else it is in the step as well


def test_events_in_any_order_never_reach_the_training(tmp_path: Path) -> None:
    callback = StepwatchCallback(tmp_path / "run.jsonl")
    arguments = transformers.TrainingArguments(str(tmp_path), report_to=[], use_cpu=True)
    state, control = transformers.TrainerState(), transformers.TrainerControl()
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
