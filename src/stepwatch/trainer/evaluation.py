"""The loss on both splits, without waiting for the device after every batch.

The sequences are those that nanoGPT would draw, eval_iters batches of batch_size each; they may be computed in
batches of another size, and are shared among the ranks. The mean is the same either way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stepwatch.trainer.config import TrainConfig
from stepwatch.trainer.data import Batches
from stepwatch.trainer.distributed import Ranks
from stepwatch.trainer.hardware import Device


class Interrupted(Exception):
    """Someone asked to stop: the evaluation has no result."""


@dataclass(kw_only=True)
class Evaluator:
    """Evaluates the model; `model` may be compiled for full batches, `plain` takes a last, shorter one."""

    config: TrainConfig
    batches: Mapping[str, Batches]
    device: Device
    ranks: Ranks
    model: Callable[..., tuple[Tensor, Tensor | None]]
    plain: nn.Module
    asked_to_stop: Callable[[], bool] = lambda: False
    on_batch: Callable[[int, int], object] = lambda done, total: None
    """Called after each batch: how many of this rank's are done, of how many."""

    def evaluate(self) -> dict[str, float]:
        """The mean loss of each split; raises Interrupted on all ranks if one was asked to stop."""
        self.plain.eval()
        with torch.no_grad():
            # All draws come first and on every rank, so that the random numbers continue alike.
            drawn = {}
            for split in self.config.splits:
                starts = [self.batches[split].draw(self.config.batch_size) for _ in range(self.config.eval_iters)]
                drawn[split] = torch.cat(starts)
            sums = torch.stack(
                [self._summed(place, split, starts) for place, (split, starts) in enumerate(drawn.items())]
            )
            self.ranks.add_up(sums)
        self.plain.train()
        losses = (sums / (self.config.eval_iters * self.config.batch_size)).tolist()  # the one wait for the device
        return dict(zip(drawn, losses, strict=True))

    def _summed(self, place: int, split: str, drawn: Tensor) -> Tensor:
        """The losses of this rank's share, summed on the device; the next batch is gathered in the meantime."""
        batches = self.batches[split]
        batch_size = self.config.eval_batch_size or self.config.batch_size
        whole = torch.split(drawn, batch_size)
        mine = whole[self.ranks.rank :: self.ranks.world_size]
        own, turns = len(mine), math.ceil(len(whole) / self.ranks.world_size)
        if self.ranks.shards and own < turns:  # the others need this rank's part of each layer
            mine = (*mine, whole[-1])
        total = torch.zeros((), device=self.device.device)
        for starts in mine[:1]:
            batches.prefetch(starts)
        for turn in range(turns):
            if self.ranks.on_any_rank(self.asked_to_stop()):  # in the last turn some have no batch, but take part
                raise Interrupted
            if turn == len(mine):
                break
            tokens, targets = batches.take()
            for starts in mine[turn + 1 : turn + 2]:
                batches.prefetch(starts)
            model = self.model if len(tokens) == batch_size else self.plain
            with self.device.autocast():
                _, loss = model(tokens, targets)
            assert loss is not None
            total += loss * len(tokens) * (turn < own)
            self.on_batch(place * len(mine) + turn + 1, len(self.config.splits) * len(mine))
        return total
