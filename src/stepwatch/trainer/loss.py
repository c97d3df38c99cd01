"""The loss of a large vocabulary without all of its logits in memory: they are computed for a few positions at a time.

GPT-2 chooses among 50,304 tokens, so the logits of a batch are the largest tensor of a small model, and training holds
them three times over. Here their gradients are computed right away, in the forward pass, and only their products are
kept: the gradient of the last layer's output and that of its matrix. The idea is known as fused linear cross-entropy
(Liger Kernel, arXiv 2410.10989; Wijmans et al., arXiv 2411.09009).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

IGNORED = -1  # a target that does not count, as in nanoGPT
# Positions at a time. On a CPU the logits of this few stay in the cache; a card needs more to keep all its cores busy.
ON_CPU, ON_CARD = 64, 2048
# Logits of a batch from which on this is done: smaller ones, those of characters and bytes, cost next to nothing.
MANY = 1 << 23


def capped(logits: Tensor, cap: float | None) -> Tensor:
    """The logits, bent smoothly so that none exceeds the cap."""
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
    """The forward pass does all the work, since the backward pass would have to compute the logits again."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, head: Tensor, targets: Tensor, cap: float | None) -> Tensor:
        learns = any(ctx.needs_input_grad)
        size = ON_CARD if hidden.is_cuda else ON_CPU
        counted = (targets != IGNORED).sum()
        picked, of_hidden = [], []
        # Summed in float32 at least; with FSDP the head itself may have a shorter type.
        of_head = torch.zeros_like(head, dtype=torch.promote_types(head.dtype, torch.float32)) if learns else None
        for part, wanted in zip(hidden.split(size), targets.split(size), strict=True):
            logits = functional.linear(part, head)  # in the shorter type if autocast is on
            bent = None if cap is None else torch.tanh(logits / cap)
            guessed = functional.log_softmax(logits if bent is None else bent * cap, dim=-1, dtype=torch.float32)
            dtype = logits.dtype
            del logits  # or the next ones would be made while these still exist
            picked.append(guessed.gather(1, wanted.clamp(min=0).unsqueeze(1)))
            if of_head is None:
                continue
            counts = (wanted != IGNORED).unsqueeze(1)
            # d loss / d logits: the probabilities, less 1 at the target; 0 where the target does not count.
            gradient = guessed.exp_().mul_(counts / counted)
            gradient.scatter_add_(1, wanted.clamp(min=0).unsqueeze(1), -(counts / counted))
            if bent is not None:
                gradient *= 1 - bent.square()  # the slope of the bend
            gradient = gradient.to(dtype)
            of_hidden.append(gradient @ head.to(dtype))
            if dtype == of_head.dtype:
                of_head.addmm_(gradient.t(), part)
            else:  # products in the short type, their sum in the long one
                of_head += gradient.t() @ part.to(dtype)
            del guessed, gradient
        if of_head is not None:
            ctx.save_for_backward(torch.cat(of_hidden).to(hidden.dtype), of_head)
            ctx.dtype = head.dtype
        # Summed as torch sums the loss of all logits at once, so that the printed digits are the same.
        only = torch.where(targets == IGNORED, IGNORED, 0)
        return functional.nll_loss(torch.cat(picked), only, ignore_index=IGNORED)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]  # torch's own has no types
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        of_hidden, of_head = ctx.saved_tensors
        return of_hidden * gradient, of_head.mul_(gradient).to(ctx.dtype), None, None
