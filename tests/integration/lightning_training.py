"""A real Trainer of Lightning with sleeps; apart from its tests, since importing it takes seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch

from stepwatch.recorder.lightning import FILE, StepwatchCallback  # noqa: F401 - the tests take them from here

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
