"""Checkpoints of a model with two tied weights, for tests of what keeps and reads them; needs torch."""

from __future__ import annotations

from typing import Any

import torch

SHAPE = {"n_layer": 1, "n_head": 2, "n_embd": 8, "block_size": 16, "bias": False, "vocab_size": 65}


def a_checkpoint(at: int = 1, **changed: Any) -> dict[str, Any]:
    model = torch.nn.ModuleDict({"wte": torch.nn.Embedding(65, 8), "lm_head": torch.nn.Linear(8, 65, bias=False)})
    model["lm_head"].weight = model["wte"].weight
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model["lm_head"](model["wte"](torch.arange(5))).sum().backward()
    optimizer.step()
    whole = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "model_args": SHAPE, "iter_num": at}
    return whole | {"best_val_loss": torch.tensor(2.5), "config": {"dataset": "it"}} | changed
