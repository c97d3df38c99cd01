"""The loss of a large vocabulary, without its logits: those of a few positions at a time, and never all of them.

GPT-2 guesses among 50,304 tokens, so the logits of a batch are the largest tensor of a small model, and training holds
them three times over. Here their gradients are made as soon as they are, in the forward pass, and only what remains of
them is kept: the gradient of the last layer's output and that of its matrix. The idea is known as fused linear
cross-entropy (Liger Kernel, arXiv 2410.10989; Wijmans et al., arXiv 2411.09009).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

IGNORED = -1  # a target that does not count, as in nanoGPT
# Positions at a time. On a CPU the logits of so few stay in the cache; a card needs more to have all its cores at work.
ON_CPU, ON_CARD = 64, 2048
# Logits of a batch from which on it is done: smaller ones, those of characters and bytes, cost nothing to speak of.
MANY = 1 << 23


def capped(logits: Tensor, cap: float | None) -> Tensor:
    """Bent so that none is beyond the cap."""
    return logits if cap is None else torch.tanh(logits / cap) * cap


def cross_entropy(
    hidden: Tensor, head: Tensor, targets: Tensor, cap: float | None = None, *, chunked: bool = True
) -> Tensor:
    """The mean loss of all positions; `hidden` is the last layer's output, `head` makes logits of it."""
    hidden, targets = hidden.reshape(-1, hidden.shape[-1]), targets.reshape(-1)
    if chunked and len(targets) * len(head) >= MANY:
        loss: Tensor = _ChunkedCrossEntropy.apply(hidden, head, targets, cap)
        return loss
    logits = capped(functional.linear(hidden, head), cap)
    return functional.cross_entropy(logits, targets, ignore_index=IGNORED)


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Forward does all the work, since the logits would have to be made again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, head: Tensor, targets: Tensor, cap: float | None) -> Tensor:
        learns = any(ctx.needs_input_grad)
        size = ON_CARD if hidden.is_cuda else ON_CPU
        counted = (targets != IGNORED).sum()
        picked, of_hidden = [], []
        # Summed in float32 at least; with FSDP the head itself may be in shorter numbers.
        of_head = torch.zeros_like(head, dtype=torch.promote_types(head.dtype, torch.float32)) if learns else None
        for part, wanted in zip(hidden.split(size), targets.split(size), strict=True):
            logits = functional.linear(part, head)  # in the shorter numbers where autocast is on
            bent = None if cap is None else torch.tanh(logits / cap)
            guessed = functional.log_softmax(logits if bent is None else bent * cap, dim=-1, dtype=torch.float32)
            dtype = logits.dtype
            del logits  # or the next ones would be made beside them
            picked.append(guessed.gather(1, wanted.clamp(min=0).unsqueeze(1)))
            if of_head is None:
                continue
            counts = (wanted != IGNORED).unsqueeze(1)
            # d loss / d logits: what was guessed, less 1 where the target is; nothing where none counts.
            gradient = guessed.exp_().mul_(counts / counted)
            gradient.scatter_add_(1, wanted.clamp(min=0).unsqueeze(1), -(counts / counted))
            if bent is not None:
                gradient *= 1 - bent.square()  # the slope of the bend
            gradient = gradient.to(dtype)
            of_hidden.append(gradient @ head.to(dtype))
            if dtype == of_head.dtype:
                of_head.addmm_(gradient.t(), part)
            else:  # products in short numbers, their sum in long ones
                of_head += gradient.t() @ part.to(dtype)
            del guessed, gradient
        if of_head is not None:
            ctx.save_for_backward(torch.cat(of_hidden).to(hidden.dtype), of_head)
            ctx.dtype = head.dtype
        # Summed as torch sums the loss of all logits at once: the printed digits are the same.
        only = torch.where(targets == IGNORED, IGNORED, 0)
        return functional.nll_loss(torch.cat(picked), only, ignore_index=IGNORED)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]  # torch's own has no types
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        of_hidden, of_head = ctx.saved_tensors
        return of_hidden * gradient, of_head.mul_(gradient).to(ctx.dtype), None, None
