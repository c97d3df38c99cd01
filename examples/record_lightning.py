"""The recorder in Lightning, with a tiny random model: `python examples/record_lightning.py`.

Needs torch and lightning (or pytorch_lightning). Writes run.jsonl and checkpoints/ into the current directory; then:
`stepwatch explain run.jsonl`.
"""

from __future__ import annotations

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader


class Bigrams(LightningModule):
    """The next token from the one before it."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(64, 64)

    def loss(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        tokens = batch["input_ids"]
        return cross_entropy(self.table(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    def training_step(self, batch: dict[str, torch.Tensor], index: int) -> torch.Tensor:
        return self.loss(batch)

    def validation_step(self, batch: dict[str, torch.Tensor], index: int) -> None:
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


torch.set_num_threads(1)  # more would only get in each other's way
rows = [{"input_ids": row} for row in torch.randint(0, 64, (64, 32))]
model, batches, held_out = Bigrams(), DataLoader(rows, batch_size=4), DataLoader(rows[:16], batch_size=4)
saves = ModelCheckpoint("checkpoints", every_n_train_steps=20, save_top_k=-1)

# shown in docs/record.md:
from stepwatch.recorder.lightning import StepwatchCallback  # noqa: E402

trainer = Trainer(
    max_steps=40, accelerator="cpu", logger=False, enable_progress_bar=False,
    callbacks=[StepwatchCallback("run.jsonl"), saves],
)  # fmt: skip
trainer.fit(model, batches, held_out)
# so far
