"""The callback in a real Trainer of Lightning; sleeps are planted, and found where they are."""

from __future__ import annotations

import importlib
import runpy
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.record_lines import agree, lines_of, numbers, phases, seconds, unaccounted, unwarned
from tools import ROOT
from tools.pages import answer

MISSING = [name for name in ("torch", "lightning") if find_spec(name) is None]
pytestmark = [
    pytest.mark.filterwarnings("default", "ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)}: the callback for Lightning is not tested"),
]
BATCHES, FIRST = (2, 2, 2, 1, 2, 2, 2, 1), (0, 2, 4, 6, 7, 9, 11, 13)  # of the steps of the training below


@pytest.fixture(scope="module")
def lit() -> Any:
    """Imported by the process that runs these tests, not by each that collects them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("tests.integration.lightning_training")


class Ran(NamedTuple):
    """A training, its record, and the times that were taken beside it."""

    trainer: Any
    lines: list[dict[str, Any]]
    fetches: list[float]
    evaluations: list[float]
    saves: list[float]


@pytest.fixture(scope="module")
def ran(lit: Any, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Two epochs of seven batches, two to a step, so that each epoch ends with a step of one."""
    for _ in range(3):  # a busy machine may stop one between two looks at the clock, hardly three
        folder, train, files = tmp_path_factory.mktemp("trained"), lit.loader(14, lit.SAMPLE_S), lit.SlowFiles()
        saves = lit.pl.callbacks.ModelCheckpoint(str(folder), every_n_train_steps=3, save_top_k=-1, filename="{step}")
        trainer = lit.trainer_in(
            folder, lit.StepwatchCallback(), saves, max_epochs=2, accumulate_grad_batches=2, plugins=[files]
        )
        evaluation, evaluations = trainer.fit_loop.epoch_loop.val_loop, list[float]()
        evaluation.run = lit.measured(evaluation.run, evaluations)
        with unwarned():
            trainer.fit(lit.Slow(), train, lit.loader(2))
        lines = lines_of(folder / lit.FILE)
        if agree(seconds(lines, "step", "data_s"), fetches_of_steps(train.fetches)):
            break
    return Ran(trainer, lines, train.fetches, evaluations[1:], files.saves)  # without the sanity check


def fetches_of_steps(fetches: list[float]) -> list[float]:
    return [sum(fetches[at : at + count]) for at, count in zip(FIRST, BATCHES, strict=True)]


def test_every_step_evaluation_and_checkpoint_has_its_line(ran: Ran) -> None:
    lines = ran.lines
    assert numbers(lines, "step") == list(range(8))
    assert numbers(lines, "eval") == [4, 8]  # and the sanity check before the training is none
    assert numbers(lines, "checkpoint") == [3, 6]
    assert all(Path(line["path"]).is_file() for line in phases(lines, "checkpoint"))
    assert next(iter(lines[-1].items())) == ("end", 8)


def test_what_was_planted_is_found_in_its_place(lit: Any, ran: Ran) -> None:
    assert agree(seconds(ran.lines, "step", "data_s"), fetches_of_steps(ran.fetches))
    assert agree(seconds(ran.lines, "eval"), ran.evaluations)
    assert agree(seconds(ran.lines, "checkpoint"), ran.saves)
    assert min(seconds(ran.lines, "eval")) >= lit.EVALUATION_S
    assert min(seconds(ran.lines, "checkpoint")) >= lit.SAVE_S
    for step, batches in zip(phases(ran.lines, "step"), BATCHES, strict=True):
        assert step["s"] - step["data_s"] >= batches * lit.STEP_S


def test_the_parts_sum_up_to_the_whole(ran: Ran) -> None:
    assert -0.001 < unaccounted(ran.lines) < 0.05


def test_losses_in_this_machines_memory_are_noted(ran: Ran) -> None:
    trainer, lines = ran.trainer, ran.lines
    assert all(step["loss"] > 0 for step in phases(lines, "step"))
    assert phases(lines, "eval")[-1]["val_loss"] == pytest.approx(float(trainer.callback_metrics["val_loss"]))


def test_settings_have_our_names_and_an_odd_step_its_tokens(lit: Any, ran: Ran) -> None:
    lines = ran.lines
    expected = {
        "batch_size": 2, "gradient_accumulation_steps": 2, "max_iters": 8, "dtype": "float32", "compile": False,
        "world_size": 1, "n_params": lit.TOKENS * lit.TOKENS + lit.TOKENS,
    }  # fmt: skip
    assert expected.items() <= lines[0]["settings"].items()
    assert "eval_interval" not in lines[0]["settings"]  # every 7 batches, which is no number of steps
    assert [line["settings"] for line in phases(lines, "settings")] == [{"tokens_per_iter": 4 * lit.TOKENS}]
    assert {step["step"]: step["tokens"] for step in phases(lines, "step") if "tokens" in step} == {
        3: 2 * lit.TOKENS, 7: 2 * lit.TOKENS,
    }  # fmt: skip


def test_the_trainer_gets_its_methods_back(ran: Ran) -> None:
    trainer = ran.trainer
    assert "save_checkpoint" not in vars(trainer)
    assert not {"start", "stop"} & vars(trainer.profiler).keys()


def test_a_resumed_training_goes_on_in_the_same_file(lit: Any, ran: Ran) -> None:
    trainer, before = ran.trainer, ran.lines
    folder = Path(trainer.default_root_dir)
    again = lit.trainer_in(folder, lit.StepwatchCallback(), max_steps=8, accumulate_grad_batches=2, limit_val_batches=0)
    again.fit(lit.Slow(), lit.loader(14), ckpt_path=str(folder / "step=6.ckpt"))
    lines = lines_of(folder / lit.FILE)[len(before) :]
    assert next(iter(lines[0])) == "stepwatch"
    assert numbers(lines, "step") == [6, 7]


def test_a_batch_optimised_by_hand_is_a_step(lit: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    trainer = lit.trainer_in(
        tmp_path, lit.StepwatchCallback(path), max_epochs=1, val_check_interval=2, num_sanity_val_steps=0
    )
    module = lit.ByHand()
    trainer.validate(module, lit.loader(2), verbose=False)
    assert not path.exists()  # there is no training to be recorded
    trainer.fit(module, lit.loader(8), lit.loader(2))
    lines = lines_of(path)
    assert numbers(lines, "step") == [0, 1, 2, 3]
    assert numbers(lines, "eval") == [2, 4]
    assert {"max_iters": 4, "eval_interval": 2}.items() <= lines[0]["settings"].items()


def test_a_training_that_fails_ends_its_record(lit: Any, tmp_path: Path) -> None:
    class Failing(lit.Slow):
        def training_step(self, batch: Any, index: int) -> Any:
            if index == 2:
                raise ValueError("the training's own")
            return super().training_step(batch, index)

    path = tmp_path / "run.jsonl"
    trainer = lit.trainer_in(tmp_path, lit.StepwatchCallback(path), max_epochs=1)
    with pytest.raises(ValueError, match="the training's own"):
        trainer.fit(Failing(), lit.loader(8))
    lines = lines_of(path)
    assert numbers(lines, "step") == [0, 1]
    assert "end" in lines[-1]
    assert "save_checkpoint" not in vars(trainer)


def test_events_in_any_order_never_reach_the_training(lit: Any, tmp_path: Path) -> None:
    callback = lit.StepwatchCallback(tmp_path / "run.jsonl")
    trainer, module = lit.trainer_in(tmp_path, callback, max_steps=2), lit.Slow()
    trainer.fit(module, lit.loader(8))
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
