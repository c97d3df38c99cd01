"""A real Trainer of Hugging Face with sleeps; apart from its tests, since importing it takes seconds."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
import transformers

from stepwatch.recorder.huggingface import FILE, StepwatchCallback  # noqa: F401 - the tests take them from here

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


class EvaluatesInAStep(transformers.TrainerCallback):
    """What many do: an evaluation of one's own when a step ends."""

    trainer: Measured

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 2:
            self.trainer._evaluate(None, None)
