"""`recipe=modern`: what the public speed runs of nanoGPT have found, as far as one machine can show it.

Read it from top to bottom: attention, the two-layer network, the whole, the optimizer. Each part names its source;
records are those of github.com/KellerJordan/modded-nanogpt by their number. `without=rotary` leaves a part out and
does what nanoGPT does instead, so that its gain can be measured (docs/train.md).

Its checkpoint has nanoGPT's form, but nanoGPT has no such model and cannot load it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from stepwatch.trainer.config import MODERN, RECIPE_PARTS, TrainConfig
from stepwatch.trainer.loss import capped, cross_entropy
from stepwatch.trainer.model import WEIGHT_STD, GPTConfig
from stepwatch.trainer.optimizer import AdamW, fused_if_possible

CAP = 15.0  # record 18; 30 in Gemma 2, arXiv 2408.00118
LOWEST_FREQUENCY = 1 / 1024  # record 17: radians per position; half of the pairs do not turn at all
SCORE_SCALE = 0.12  # record 20: queries and keys of length 1 need another scale than 1 / sqrt(width)
MOMENTUM = 0.95
# K. Jordan, kellerjordan.github.io/posts/muon: five iterations bring singular values of any size near 1.
ITERATION, TURNS = (3.4445, -4.7750, 2.0315), 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ModernConfig(GPTConfig):
    """The shape, and what is left out of the recipe; `bias` has no effect, as no part has one."""

    recipe: str = MODERN
    without: str = ""

    def __post_init__(self) -> None:
        if not set(self.without.split(",")) <= {"", *RECIPE_PARTS}:
            raise ValueError(self.without)

    def has(self, part: str) -> bool:
        return part not in self.without.split(",")


# --- the model --------------------------------------------------------------------------------------------------


def norm(x: Tensor) -> Tensor:
    """Scales each position to a mean square of 1, without learned parameters (Zhang and Sennrich, arXiv 1910.07467)."""
    return functional.rms_norm(x, x.shape[-1:])


class Rotary(nn.Module):
    """Positions as rotations of queries and keys: a score depends on the distance (Su et al., arXiv 2104.09864)."""

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        turning = LOWEST_FREQUENCY ** torch.linspace(0, 1, width // 4)
        frequencies = torch.cat((turning, torch.zeros(width // 2 - len(turning))))
        angles = torch.outer(torch.arange(length), frequencies)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[-2]
        cos, sin = self.get_buffer("cos")[:length], self.get_buffer("sin")[:length]
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cos + second * sin, second * cos - first * sin), dim=-1).type_as(x)


class Attention(nn.Module):
    """Like nanoGPT's, with normed queries and keys (Henry et al., arXiv 2010.04245; record 5) rotated by position."""

    def __init__(self, config: ModernConfig, *, takes_values: bool) -> None:
        super().__init__()
        self.n_head, self.dropout, self.normed = config.n_head, config.dropout, config.has("qk_norm")
        width = config.n_embd
        self.c_attn = nn.Linear(width, 3 * width, bias=False)
        self.c_proj = nn.Linear(width, width, bias=False)
        self.rotary = Rotary(width // config.n_head, config.block_size) if config.has("rotary") else None
        self.share = nn.Parameter(torch.tensor(0.5)) if takes_values else None

    def forward(self, x: Tensor, values: Tensor | None) -> Tensor:
        batch, length, width = x.shape
        query, key, value = self.c_attn(x).split(width, dim=2)
        if self.share is not None:
            value = value + self.share * values
        query, key, value = (
            part.view(batch, length, self.n_head, width // self.n_head).transpose(1, 2) for part in (query, key, value)
        )
        if self.normed:
            query, key = norm(query), norm(key)
        if self.rotary is not None:
            query, key = self.rotary(query), self.rotary(key)
        dropout = self.dropout if self.training else 0.0
        scale = SCORE_SCALE if self.normed else None
        seen = functional.scaled_dot_product_attention(
            query, key, value, dropout_p=dropout, is_causal=True, scale=scale
        )
        out: Tensor = self.c_proj(seen.transpose(1, 2).reshape(batch, length, width))
        return out


class MLP(nn.Module):
    """Like nanoGPT's, with the square of ReLU as activation (So et al., arXiv 2109.08668; record 5)."""

    def __init__(self, config: ModernConfig) -> None:
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=False)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=False)
        self.squared = config.has("relu2")

    def forward(self, x: Tensor) -> Tensor:
        wide = self.c_fc(x)
        out: Tensor = self.c_proj(functional.relu(wide).square() if self.squared else functional.gelu(wide))
        return out


class Block(nn.Module):
    def __init__(self, config: ModernConfig, *, takes_values: bool) -> None:
        super().__init__()
        self.attn = Attention(config, takes_values=takes_values)
        self.mlp = MLP(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, values: Tensor | None) -> Tensor:
        x = x + self.dropout(self.attn(norm(x), values))
        out: Tensor = x + self.dropout(self.mlp(norm(x)))
        return out


class ModernGPT(nn.Module):
    """Called like nanoGPT's GPT. Embedding and predicting tokens use two matrices (record 8)."""

    chunked_loss = True

    def __init__(self, config: ModernConfig) -> None:
        super().__init__()
        self.config = config
        # Tokens again, as values of the first and the last layer (record 14, after Zhou et al., arXiv 2410.17897).
        takes_values = {0, config.n_layer - 1} if config.has("value_embeddings") else set()
        parts: dict[str, nn.Module] = {
            "wte": nn.Embedding(config.vocab_size, config.n_embd),
            "drop": nn.Dropout(config.dropout),
            "h": nn.ModuleList(Block(config, takes_values=layer in takes_values) for layer in range(config.n_layer)),
        }
        if takes_values:
            parts["wve"] = nn.Embedding(config.vocab_size, config.n_embd)
        if not config.has("rotary"):
            parts["wpe"] = nn.Embedding(config.block_size, config.n_embd)
        self.transformer = nn.ModuleDict(parts)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        if not config.has("untied"):
            self.lm_head.weight = self.transformer["wte"].weight  # type: ignore[assignment]
        for name, parameter in self.named_parameters():
            self._initialise(name, parameter)

    def _initialise(self, name: str, weight: nn.Parameter) -> None:
        """What a layer adds to the stream, and the head, start at zero (Yang et al., arXiv 2203.03466; record 5)."""
        added = name.endswith("c_proj.weight")
        if (added or name == "lm_head.weight") and self.config.has("zero_init"):
            nn.init.zeros_(weight)
        elif added:
            nn.init.normal_(weight, std=WEIGHT_STD / math.sqrt(2 * self.config.n_layer))
        elif name == "transformer.wte.weight" and self.config.has("untied"):
            nn.init.normal_(weight)
        elif ".h." in name and weight.dim() == 2:
            nn.init.uniform_(weight, -(bound := math.sqrt(0.75 / self.config.n_embd)), bound)
        elif weight.dim() == 2:
            nn.init.normal_(weight, std=WEIGHT_STD)

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> tuple[Tensor | None, Tensor | None]:
        parts = self.transformer
        x = parts["wte"](tokens)
        if "wpe" in parts:
            x = x + parts["wpe"](torch.arange(tokens.shape[1], device=tokens.device))
        x = parts["drop"](norm(x))
        values = parts["wve"](tokens) if "wve" in parts else None
        for block in parts["h"]:  # type: ignore[attr-defined]
            x = block(x, values)
        x = norm(x)
        cap = CAP if self.config.has("cap") else None
        if targets is None:
            return capped(self.lm_head(x[:, [-1], :]), cap), None
        return None, cross_entropy(x, self.lm_head.weight, targets, cap, chunked=self.chunked_loss)

    def n_params(self) -> int:
        """Parameters that multiply something, as nanoGPT counts: lookup tables cost no arithmetic."""
        tables = (part.weight for part in self.transformer.values() if isinstance(part, nn.Embedding))
        looked_up = sum(table.numel() for table in tables if table is not self.lm_head.weight)
        return sum(parameter.numel() for parameter in self.parameters()) - looked_up

    def crop_block_size(self, block_size: int) -> None:
        self.config = replace(self.config, block_size=block_size)
        if "wpe" in self.transformer:
            positions = self.transformer["wpe"]
            positions.weight = nn.Parameter(positions.weight[:block_size])  # type: ignore[index]


# --- the optimizer ----------------------------------------------------------------------------------------------


class MuonAndAdamW(AdamW):
    """Muon for the matrices of the layers, AdamW for the rest (K. Jordan et al.; Liu et al., arXiv 2502.16982)."""

    def __init__(self, groups: list[dict[str, Any]], *, fused: bool) -> None:
        super().__init__(groups, betas=(0.8, 0.95), eps=1e-10, weight_decay=0.0, fused=fused)  # record 20
        self._step_supports_amp_scaling = False  # AdamW's fused kernels check for overflows themselves, Muon does not

    @torch.no_grad()  # type: ignore[untyped-decorator]  # torch's own has no types
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Muon first, for matrices of one shape together. They then have no gradient, so AdamW leaves them alone."""
        for group in (group for group in self.param_groups if group["muon"]):
            alike: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
            for weight in group["params"]:
                if weight.grad is not None:
                    alike[weight.shape].append(weight)
            for (rows, columns), weights in alike.items():
                directions = torch.stack([self._with_momentum(weight) for weight in weights])
                if rows == 3 * columns:  # queries, keys and values are three matrices in one
                    directions = directions.view(-1, columns, columns)
                turned = orthogonalised(directions)
                # A wide or square matrix takes a step as long as the rate; a tall one has more outputs than inputs.
                rate = group["lr"] * math.sqrt(max(1.0, turned.shape[-2] / turned.shape[-1]))
                for weight, step in zip(weights, turned.view(-1, rows, columns), strict=True):
                    weight.add_(step.type_as(weight), alpha=-rate)
                    weight.grad = None
        super().step(closure)

    def _with_momentum(self, weight: nn.Parameter) -> Tensor:
        """Nesterov momentum: the gradient, drawn towards the mean of previous ones."""
        assert weight.grad is not None
        state = self.state[weight]
        if not state:
            state |= {"step": torch.tensor(0.0), "exp_avg": torch.zeros_like(weight)}
        mean = state["exp_avg"].lerp_(weight.grad, 1 - MOMENTUM)
        return weight.grad.lerp(mean, MOMENTUM)


def orthogonalised(matrices: Tensor) -> Tensor:
    """Approximately the nearest orthogonal matrices: all singular values become about 1 (Newton-Schulz iteration)."""
    wide = matrices.mT if matrices.shape[-2] > matrices.shape[-1] else matrices
    x = wide.bfloat16() if wide.is_cuda else wide  # its author says that short numbers are enough
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    linear, cubic, quintic = ITERATION
    for _ in range(TURNS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=cubic, alpha=quintic), x, beta=linear)
    return x.mT if wide is not matrices else x


def optimizer_of(model: ModernGPT, config: TrainConfig) -> MuonAndAdamW:
    kinds: dict[str, list[nn.Parameter]] = defaultdict(list)
    for name, weight in model.named_parameters():
        if weight.dim() < 2:
            kinds["scalars"].append(weight)
        elif ".h." in name:
            kinds["matrices"].append(weight)
        else:
            kinds["head" if weight is model.lm_head.weight else "embeddings"].append(weight)
    by_muon = model.config.has("muon")
    # As multiples of learning_rate. Muon's steps are as long as the matrix is wide, regardless of the gradient, so its
    # rate is higher; record 8 has embeddings far above the head.
    rates = {"matrices": 30.0 if by_muon else 3.0, "embeddings": 100.0, "head": 5.0, "scalars": 10.0}

    groups = [
        {
            "params": weights,
            "lr": config.learning_rate * rates[kind],
            "times": rates[kind],
            "muon": by_muon and kind == "matrices",
        }
        for kind, weights in kinds.items()
    ]
    return fused_if_possible(MuonAndAdamW, groups)
