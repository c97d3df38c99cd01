"""FLOPs of a GPT, counted as nanoGPT counts them."""

from __future__ import annotations

from stepwatch.settings import ModelShape

A100_FLOPS = 312e12  # the peak that nanoGPT divides by on every card (bf16, dense)


def flops_per_token(n_params: float, shape: ModelShape | None) -> float:
    """Forward and backward for one token: 6 N + 12 L H Q T (PaLM, appendix B); without a shape, 6 N."""
    attention = 0.0
    if shape is not None:
        attention = 12.0 * shape.n_layer * shape.n_embd * shape.block_size
    return 6.0 * n_params + attention
