"""GPT-2 as in nanoGPT: the names of its parts, its initial weights and their order are nanoGPT's.

So a state dict can be exchanged in both directions, and one seed gives both the same weights. Read it from top to
bottom: normalisation, attention, the two-layer network, a block of both, and the whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from stepwatch.settings import GPT2_VOCABULARY
from stepwatch.trainer.loss import cross_entropy

WEIGHT_STD = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class GPTConfig:
    """The shape of a GPT: what a checkpoint calls `model_args`."""

    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    block_size: int = 1024
    bias: bool = True
    vocab_size: int = GPT2_VOCABULARY
    dropout: float = 0.0


class LayerNorm(nn.Module):
    """Brings each position to mean 0 and variance 1, then applies a learned scale and, optionally, a learned shift."""

    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class CausalSelfAttention(nn.Module):
    """Each position attends to itself and those before it, with several heads in parallel."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.n_head = config.n_head
        self.dropout = config.dropout
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)  # query, key and value in one
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.resid_dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        # (batch, length, width) -> (batch, head, length, width of a head), for each of the three
        query, key, value = (
            part.view(batch, length, self.n_head, width // self.n_head).transpose(1, 2)
            for part in self.c_attn(x).split(width, dim=2)
        )
        # One fused kernel (flash attention, if the card has it): the length x length matrix is never stored.
        seen = functional.scaled_dot_product_attention(
            query, key, value, dropout_p=self.dropout if self.training else 0.0, is_causal=True
        )
        joined = seen.transpose(1, 2).contiguous().view(batch, length, width)
        out: Tensor = self.resid_dropout(self.c_proj(joined))
        return out


class MLP(nn.Module):
    """Two linear layers with a GELU between them, applied to each position."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.gelu = nn.GELU()
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.dropout(self.c_proj(self.gelu(self.c_fc(x))))
        return out


class TransformerBlock(nn.Module):
    """Attention, then the network; each adds to the residual stream."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.ln_1 = LayerNorm(config.n_embd, config.bias)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = LayerNorm(config.n_embd, config.bias)
        self.mlp = MLP(config)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """Tokens in, logits of the next token out; with targets, the loss instead."""

    chunked_loss = True

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        # The order of these lines is the order of the random draws: it is part of matching nanoGPT.
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.vocab_size, config.n_embd),
                "wpe": nn.Embedding(config.block_size, config.n_embd),
                "drop": nn.Dropout(config.dropout),
                "h": nn.ModuleList(TransformerBlock(config) for _ in range(config.n_layer)),
                "ln_f": LayerNorm(config.n_embd, config.bias),
            }
        )
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.transformer["wte"].weight = self.lm_head.weight  # one matrix both embeds and predicts tokens
        self.apply(_initialise)
        # Every block adds twice to the stream: smaller weights there keep its variance from growing with depth.
        for name, parameter in self.named_parameters():
            if name.endswith("c_proj.weight"):
                nn.init.normal_(parameter, std=WEIGHT_STD / math.sqrt(2 * config.n_layer))

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> tuple[Tensor | None, Tensor | None]:
        """The logits of the last position, or with targets the loss."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        parts = self.transformer
        x = parts["drop"](parts["wte"](tokens) + parts["wpe"](positions))
        for block in parts["h"]:  # type: ignore[attr-defined]
            x = block(x)
        x = parts["ln_f"](x)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None  # the last position is enough to continue
        return None, cross_entropy(x, self.lm_head.weight, targets, chunked=self.chunked_loss)

    def n_params(self) -> int:
        """Without position embeddings, as nanoGPT counts; token embeddings count, since they are the last layer too."""
        positions = self.transformer["wpe"].weight
        assert isinstance(positions, Tensor)
        return sum(parameter.numel() for parameter in self.parameters()) - positions.numel()

    def crop_block_size(self, block_size: int) -> None:
        """Reduces the number of positions below what the weights were trained for."""
        self.config = replace(self.config, block_size=block_size)
        positions = self.transformer["wpe"]
        positions.weight = nn.Parameter(positions.weight[:block_size])  # type: ignore[index]


def _initialise(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=WEIGHT_STD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
