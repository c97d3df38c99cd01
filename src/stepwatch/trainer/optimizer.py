"""AdamW as nanoGPT sets it up, and the learning rate of each iteration."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from stepwatch.trainer import modern
from stepwatch.trainer.adamw import AdamW
from stepwatch.trainer.config import MODERN, TrainConfig


def learning_rate(iteration: int, config: TrainConfig) -> float:
    """A line up, half a cosine down, then flat."""
    if not config.decay_lr:
        return config.learning_rate
    if config.recipe == MODERN and "warm_down" not in config.without.split(","):
        return modern.learning_rate(iteration, config)
    if iteration < config.warmup_iters:
        return config.learning_rate * (iteration + 1) / (config.warmup_iters + 1)
    if iteration > config.lr_decay_iters:
        return config.min_lr
    way = (iteration - config.warmup_iters) / max(config.lr_decay_iters - config.warmup_iters, 1)
    return config.min_lr + 0.5 * (1.0 + math.cos(math.pi * way)) * (config.learning_rate - config.min_lr)


def groups_of(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Matrices, whose weights decay, and the rest (shifts and scales), whose do not."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [p for p in parameters if p.dim() >= 2], [p for p in parameters if p.dim() < 2]


def adamw(model: nn.Module, config: TrainConfig) -> tuple[AdamW, bool]:
    """The optimizer, and whether it is fused: one pass over the weights instead of a dozen, where torch has it."""
    matrices, rest = groups_of(model)
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": rest, "weight_decay": 0.0},
    ]
    given: dict[str, Any] = {"lr": config.learning_rate, "betas": (config.beta1, config.beta2)}
    try:
        return AdamW(groups, fused=True, **given), True
    except RuntimeError:  # not for this device, or not in this torch
        return AdamW(groups, **given), False


def resume(optimizer: AdamW, saved: dict[str, Any], positions: nn.Parameter | None) -> None:
    """Takes over the moments, each held against its weight, since fused AdamW trusts their sizes; what is anything else
    than AdamW's state of these weights raises what Python raises.

    Of the groups it takes what nanoGPT resumes with; how the arithmetic is done is this machine's affair. `positions`
    may have been cut to a smaller block_size, and its moments are cut with it.
    """
    state = optimizer.state_dict()
    for own, group in zip(state["param_groups"], saved["param_groups"], strict=True):
        betas = tuple(map(float, group["betas"]))
        decay, eps = float(group["weight_decay"]), float(group["eps"])
        if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas) or not (math.inf > decay >= 0 < eps < math.inf):
            raise ValueError(group)
        own |= {"betas": betas, "weight_decay": decay, "eps": eps}
        if len(group["params"]) != len(own["params"]):
            raise ValueError(len(group["params"]))
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    by_muon = {weight for group in optimizer.param_groups for weight in group["params"] if group.get("muon")}
    names = [name for group in saved["param_groups"] for name in group["params"]]
    for place, (name, weight) in enumerate(zip(names, weights, strict=True)):
        if name in saved["state"]:
            own = saved["state"][name]
            step, kinds = float(own["step"]), ("exp_avg",) if weight in by_muon else ("exp_avg", "exp_avg_sq")
            moments = {kind: own[kind] for kind in kinds}
            if positions is not None and weight is positions:
                moments = {kind: moment[: len(positions)] for kind, moment in moments.items()}
            for kind, moment in moments.items():
                if moment.shape != weight.shape or not moment.is_floating_point():
                    raise ValueError(moment.shape)
                if kind == "exp_avg_sq" and bool((moment < 0).any()):
                    raise ValueError(kind)
            if not 0 <= step < 2**53:
                raise ValueError(step)
            state["state"][place] = {"step": torch.tensor(step), **moments}
    optimizer.load_state_dict(state)


def scaler(enabled: bool) -> Any:
    """float16 has few exponents: gradients are scaled up for the backward pass and down for the step."""
    newer = getattr(torch.amp, "GradScaler", None)
    return newer("cuda", enabled=enabled) if newer is not None else torch.cuda.amp.GradScaler(enabled=enabled)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("times", 1.0)


def clip(parameters: list[nn.Parameter], limit: float) -> Tensor:
    """Gradients no longer than the limit, all together; how long they were."""
    return torch.nn.utils.clip_grad_norm_(parameters, limit)
