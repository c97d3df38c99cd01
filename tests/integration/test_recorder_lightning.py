"""The callback in a real Trainer of Lightning; sleeps are planted, and found where they are."""

from __future__ import annotations

import runpy
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.record_lines import agree, lines_of, numbers, phases, seconds, unaccounted, unwarned
from tools import ROOT
from tools.pages import answer

torch = pytest.importorskip("torch", reason="no torch: the callback for Lightning is not tested")
pl = pytest.importorskip("lightning.pytorch", reason="no lightning: its callback is not tested")

from stepwatch.recorder.lightning import FILE, StepwatchCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default", "ignore::DeprecationWarning", "ignore::FutureWarning")

TOKENS = 16
SAMPLE_S, STEP_S, EVALUATION_S, SAVE_S = 0.005, 0.02, 0.15, 0.1
BATCHES, FIRST = (2, 2, 2, 1, 2, 2, 2, 1), (0, 2, 4, 6, 7, 9, 11, 13)  # of the steps of the training below


class Rows(torch.utils.data.Dataset):
    """So many rows of tokens; getting one takes time."""

    def __init__(self, count: int, takes_s: float = 0.0) -> None:
        self.count, self.takes_s = count, takes_s

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        time.sleep(self.takes_s)
        return {"input_ids": (torch.arange(TOKENS) + index) % 32}


class Loader(torch.utils.data.DataLoader):
    """Takes its own times of what the callback has to find."""

    fetches: list[float]

    def __iter__(self) -> Iterator[Any]:
        batches = super().__iter__()
        while True:
            begun = time.perf_counter()
            batch = next(batches, None)
            if batch is None:
                return
            self.fetches.append(time.perf_counter() - begun)
            yield batch


class Slow(pl.LightningModule):
    """A tiny module with sleeps in its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(TOKENS, TOKENS)

    def loss(self, batch: Any) -> Any:
        return self.layer(batch["input_ids"].float()).square().mean()

    def training_step(self, batch: Any, index: int) -> Any:
        time.sleep(STEP_S)
        return self.loss(batch)

    def validation_step(self, batch: Any, index: int) -> None:
        time.sleep(EVALUATION_S)
        self.log("val_loss", self.loss(batch), batch_size=2)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=1e-5)


class ByHand(Slow):
    """Optimised by hand, with two optimisers: Lightning counts two steps in a batch."""

    automatic_optimization = False

    def training_step(self, batch: Any, index: int) -> Any:
        for optimizer in self.optimizers():
            optimizer.zero_grad()
            self.manual_backward(self.loss(batch))
            optimizer.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(self.parameters(), lr=1e-5) for _ in range(2)]


class SlowFiles(pl.plugins.io.TorchCheckpointIO):
    def __init__(self) -> None:
        self.saves: list[float] = []

    def save_checkpoint(self, *args: Any, **named: Any) -> None:
        begun = time.perf_counter()
        time.sleep(SAVE_S)
        super().save_checkpoint(*args, **named)
        self.saves.append(time.perf_counter() - begun)


def measured(evaluate: Any, times: list[float]) -> Any:
    def run() -> Any:
        begun = time.perf_counter()
        answer = evaluate()
        times.append(time.perf_counter() - begun)
        return answer

    return run


class Ran(NamedTuple):
    """A training, its record, and the times that were taken beside it."""

    trainer: Any
    lines: list[dict[str, Any]]
    fetches: list[float]
    evaluations: list[float]
    saves: list[float]


def trainer_in(folder: Path, *callbacks: Any, **arguments: Any) -> Any:
    torch.set_num_threads(1)
    plain = {
        "accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False,
        "enable_checkpointing": any(isinstance(one, pl.callbacks.ModelCheckpoint) for one in callbacks),
    }  # fmt: skip
    return pl.Trainer(default_root_dir=str(folder), callbacks=list(callbacks), **plain | arguments)


def loader(count: int, takes_s: float = 0.0) -> Loader:
    batches = Loader(Rows(count, takes_s), batch_size=2)
    batches.fetches = []
    return batches


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Two epochs of seven batches, two to a step, so that each epoch ends with a step of one."""
    folder, train, files = tmp_path_factory.mktemp("trained"), loader(14, SAMPLE_S), SlowFiles()
    saves = pl.callbacks.ModelCheckpoint(str(folder), every_n_train_steps=3, save_top_k=-1, filename="{step}")
    trainer = trainer_in(folder, StepwatchCallback(), saves, max_epochs=2, accumulate_grad_batches=2, plugins=[files])
    evaluation, evaluations = trainer.fit_loop.epoch_loop.val_loop, list[float]()
    evaluation.run = measured(evaluation.run, evaluations)
    with unwarned():
        trainer.fit(Slow(), train, loader(2))
    return Ran(
        trainer, lines_of(folder / FILE), train.fetches, evaluations[1:], files.saves
    )  # without the sanity check


def test_every_step_evaluation_and_checkpoint_has_its_line(ran: Ran) -> None:
    lines = ran.lines
    assert numbers(lines, "step") == list(range(8))
    assert numbers(lines, "eval") == [4, 8]  # and the sanity check before the training is none
    assert numbers(lines, "checkpoint") == [3, 6]
    assert all(Path(line["path"]).is_file() for line in phases(lines, "checkpoint"))
    assert next(iter(lines[-1].items())) == ("end", 8)


def test_what_was_planted_is_found_in_its_place(ran: Ran) -> None:
    of_steps = [sum(ran.fetches[at : at + count]) for at, count in zip(FIRST, BATCHES, strict=True)]
    assert agree(seconds(ran.lines, "step", "data_s"), of_steps)
    assert agree(seconds(ran.lines, "eval"), ran.evaluations)
    assert agree(seconds(ran.lines, "checkpoint"), ran.saves)
    assert min(seconds(ran.lines, "eval")) >= EVALUATION_S
    assert min(seconds(ran.lines, "checkpoint")) >= SAVE_S
    for step, batches in zip(phases(ran.lines, "step"), BATCHES, strict=True):
        assert step["s"] - step["data_s"] >= batches * STEP_S


def test_the_parts_sum_up_to_the_whole(ran: Ran) -> None:
    assert -0.001 < unaccounted(ran.lines) < 0.05


def test_losses_in_this_machines_memory_are_noted(ran: Ran) -> None:
    trainer, lines = ran.trainer, ran.lines
    assert all(step["loss"] > 0 for step in phases(lines, "step"))
    assert phases(lines, "eval")[-1]["val_loss"] == pytest.approx(float(trainer.callback_metrics["val_loss"]))


def test_settings_have_our_names_and_an_odd_step_its_tokens(ran: Ran) -> None:
    lines = ran.lines
    expected = {
        "batch_size": 2, "gradient_accumulation_steps": 2, "max_iters": 8, "dtype": "float32", "compile": False,
        "world_size": 1, "n_params": TOKENS * TOKENS + TOKENS,
    }  # fmt: skip
    assert expected.items() <= lines[0]["settings"].items()
    assert "eval_interval" not in lines[0]["settings"]  # every 7 batches, which is no number of steps
    assert [line["settings"] for line in phases(lines, "settings")] == [{"tokens_per_iter": 4 * TOKENS}]
    assert {step["step"]: step["tokens"] for step in phases(lines, "step") if "tokens" in step} == {
        3: 2 * TOKENS, 7: 2 * TOKENS,
    }  # fmt: skip


def test_the_trainer_gets_its_methods_back(ran: Ran) -> None:
    trainer = ran.trainer
    assert "save_checkpoint" not in vars(trainer)
    assert not {"start", "stop"} & vars(trainer.profiler).keys()


def test_a_resumed_training_goes_on_in_the_same_file(ran: Ran) -> None:
    trainer, before = ran.trainer, ran.lines
    folder = Path(trainer.default_root_dir)
    again = trainer_in(folder, StepwatchCallback(), max_steps=8, accumulate_grad_batches=2, limit_val_batches=0)
    again.fit(Slow(), loader(14), ckpt_path=str(folder / "step=6.ckpt"))
    lines = lines_of(folder / FILE)[len(before) :]
    assert next(iter(lines[0])) == "stepwatch"
    assert numbers(lines, "step") == [6, 7]


def test_a_batch_optimised_by_hand_is_a_step(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    trainer = trainer_in(tmp_path, StepwatchCallback(path), max_epochs=1, val_check_interval=2, num_sanity_val_steps=0)
    module = ByHand()
    trainer.validate(module, loader(2), verbose=False)
    assert not path.exists()  # there is no training to be recorded
    trainer.fit(module, loader(8), loader(2))
    lines = lines_of(path)
    assert numbers(lines, "step") == [0, 1, 2, 3]
    assert numbers(lines, "eval") == [2, 4]
    assert {"max_iters": 4, "eval_interval": 2}.items() <= lines[0]["settings"].items()


def test_a_training_that_fails_ends_its_record(tmp_path: Path) -> None:
    class Failing(Slow):
        def training_step(self, batch: Any, index: int) -> Any:
            if index == 2:
                raise ValueError("the training's own")
            return super().training_step(batch, index)

    path = tmp_path / "run.jsonl"
    trainer = trainer_in(tmp_path, StepwatchCallback(path), max_epochs=1)
    with pytest.raises(ValueError, match="the training's own"):
        trainer.fit(Failing(), loader(8))
    lines = lines_of(path)
    assert numbers(lines, "step") == [0, 1]
    assert "end" in lines[-1]
    assert "save_checkpoint" not in vars(trainer)


def test_events_in_any_order_never_reach_the_training(tmp_path: Path) -> None:
    callback = StepwatchCallback(tmp_path / "run.jsonl")
    trainer, module = trainer_in(tmp_path, callback, max_steps=2), Slow()
    trainer.fit(module, loader(8))
    events = [name for name in dir(callback) if name.startswith(("on_train_", "on_validation_"))]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for order in (events, sorted(events, reverse=True), events[::2]):
            for name in order:
                more = (None, None, 0) if "batch" in name else ()
                getattr(callback, name)(trainer, module, *more)
        callback.on_train_start(None, None)
        callback.on_train_start(None, None)
    assert [str(one.message)[:36] for one in said] == ["stepwatch: on_train_start was not re"]


def test_the_example_runs_and_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with unwarned():
        runpy.run_path(str(ROOT / "examples" / "record_lightning.py"))
    lines = lines_of(tmp_path / "run.jsonl")
    assert numbers(lines, "step") == list(range(40))
    assert numbers(lines, "eval") == [16, 32]
    assert numbers(lines, "checkpoint") == [20, 40]
    assert "for 40 iterations" in answer("explain", str(tmp_path / "run.jsonl"))
