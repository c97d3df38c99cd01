"""Activation checkpointing: the same gradients, with less kept for the backward pass."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs torch")

from stepwatch.trainer.model import GPT, GPTConfig  # noqa: E402
from stepwatch.trainer.setup import recompute_activations  # noqa: E402

SHAPE = GPTConfig(n_layer=4, n_head=2, n_embd=32, block_size=32, vocab_size=61, bias=False, dropout=0.1)


def test_activations_that_are_computed_again_give_the_same_gradients_for_less_memory() -> None:
    torch.manual_seed(1)
    plain, again = GPT(SHAPE), GPT(SHAPE)
    again.load_state_dict(plain.state_dict())
    recompute_activations(again)
    tokens = torch.randint(0, 61, (2, 4, 32))
    kept = []
    for model in (plain, again):
        sizes: dict[int, int] = {}

        def keep(tensor: Any, sizes: dict[int, int] = sizes) -> Any:
            sizes[tensor.data_ptr()] = tensor.nbytes
            return tensor

        torch.manual_seed(2)  # for dropout
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            _, loss = model(tokens[0], tokens[1])
        assert loss is not None
        loss.backward()
        kept.append(sum(sizes.values()))
    for one, other in zip(plain.parameters(), again.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad, other.grad)
    assert kept[1] < 0.5 * kept[0]
