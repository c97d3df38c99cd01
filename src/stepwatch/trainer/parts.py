"""The parts of a training step of a GPT, each by itself, to be timed at several sizes.

Measured with autograd as in training, so that the time includes allocation, page faults and the calls of operations.
A step then consists of n_layer layers, their attention, the two ends of the model and the optimizer.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

Act = Callable[[], object]
HEAD_SIZE = 64


class Pair:
    """A part: its forward pass alone, and together with its backward pass."""

    def __init__(self, forward: Callable[[], Tensor], leaves: list[Tensor]) -> None:
        self._forward, self._leaves = forward, leaves
        with torch.no_grad():
            self._gradient = torch.randn_like(forward())

    def forward(self) -> None:
        with torch.no_grad():
            self._forward()

    def both(self) -> None:
        for leaf in self._leaves:
            leaf.grad = None
        self._forward().backward(self._gradient)


class Layer(nn.Module):
    """A layer of GPT-2 without its attention, which is timed separately."""

    def __init__(self, width: int, *, bias: bool = False) -> None:
        super().__init__()
        self.before_attention, self.before_mlp = (nn.LayerNorm(width, bias=bias) for _ in range(2))
        self.attention, self.project = nn.Linear(width, 3 * width, bias=bias), nn.Linear(width, width, bias=bias)
        self.widen, self.narrow = nn.Linear(width, 4 * width, bias=bias), nn.Linear(4 * width, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        batch, positions, width = x.shape
        parts = self.attention(self.before_attention(x)).split(width, dim=2)
        heads = max(1, width // HEAD_SIZE)
        _, _, value = (part.view(batch, positions, heads, -1).transpose(1, 2) for part in parts)
        x = x + self.project(value.transpose(1, 2).contiguous().view(batch, positions, width))
        return x + self.narrow(functional.gelu(self.widen(self.before_mlp(x))))


def layer(tokens: int, width: int, *, bias: bool = False) -> Pair:
    """Products, norms, GELU and residuals of one layer; of its attention only the parts around it."""
    module, x = Layer(width, bias=bias), torch.randn(1, tokens, width, requires_grad=True)
    return Pair(lambda: module(x), [x, *module.parameters()])


def attention(positions: int, head_size: int, *, sequences: int, dropout: float = 0.0) -> Pair:
    """Causal attention over this many sequences and heads; with dropout the scores are stored."""
    heads = [torch.randn(1, positions, sequences * head_size, requires_grad=True) for _ in range(3)]

    def forward() -> Tensor:
        query, key, value = (head.view(1, positions, sequences, head_size).transpose(1, 2) for head in heads)
        return functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)

    return Pair(forward, heads)


def head(logits: int, vocabulary: int, width: int) -> Pair:
    """The last norm, the product with the vocabulary, and the loss; long rows leave the cache between its passes."""
    tokens = max(1, logits // vocabulary)
    norm, product = nn.LayerNorm(width, bias=False), nn.Linear(width, vocabulary, bias=False)
    x, targets = torch.randn(tokens, width, requires_grad=True), torch.randint(vocabulary, (tokens,))
    return Pair(
        lambda: functional.cross_entropy(product(norm(x)), targets, ignore_index=-1),
        [x, *norm.parameters(), *product.parameters()],
    )


def embedding(elements: int) -> Pair:
    """The embedding; its gradient is as large as itself and is added to that of the head, which shares its weights."""
    table = nn.Embedding(elements // HEAD_SIZE, HEAD_SIZE)
    table.weight.grad = torch.zeros_like(table.weight)
    tokens = torch.randint(table.num_embeddings, (256,))
    return Pair(lambda: table(tokens), [])


def dropout(elements: int) -> Pair:
    x = torch.randn(elements, requires_grad=True)
    return Pair(lambda: functional.dropout(x, 0.1), [x])


def optimizer(sizes: list[int]) -> Act:
    """Clipping, AdamW as nanoGPT uses it on a CPU, and freeing the gradients."""
    weights = [nn.Parameter(torch.randn(size)) for size in sizes]
    gradients = [torch.randn(size) for size in sizes]
    adamw = torch.optim.AdamW(weights, lr=1e-4, weight_decay=0.1)

    def step() -> None:
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient
        nn.utils.clip_grad_norm_(weights, 1.0)
        adamw.step()
        adamw.zero_grad(set_to_none=True)

    return step


def checkpoint(weights: int, device: str) -> Callable[[], dict[str, object]]:
    """What nanoGPT saves, for small weights: each with AdamW's two moments and step count, collected anew each time."""
    model = nn.ParameterDict({str(place): torch.zeros(64, device=device) for place in range(weights)})
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    adamw.step()
    return lambda: {"model": model.state_dict(), "optimizer": adamw.state_dict()}


def batch(sequences: int, positions: int) -> Act:
    """Windows of a token file, cut out and widened to the integers that an embedding takes."""
    import numpy as np

    text = np.zeros(1_000_000, dtype=np.uint16)

    def cut() -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(text) - positions - 1, (sequences,)).tolist()
        x, y = (
            torch.stack([torch.from_numpy(text[at + ahead : at + ahead + positions].astype(np.int64)) for at in starts])
            for ahead in (0, 1)
        )
        return x, y

    return cut
