"""AdamW as nanoGPT sets it up, and the learning rate of each iteration."""

from __future__ import annotations

import inspect
import math
from typing import Any, TypeVar

import torch
from torch import nn

from stepwatch.trainer.config import MODERN, TrainConfig

WARM_DOWN = 0.6  # share of the run, with recipe=modern


class AdamW(torch.optim.AdamW):
    """torch's AdamW without torch's compiler.

    torch imports the compiler, which takes a second of each start, only to mark these methods as not to be compiled.
    Without the marks they are the same methods. The model can still be compiled.
    """

    add_param_group = inspect.unwrap(torch.optim.AdamW.add_param_group)
    state_dict = inspect.unwrap(torch.optim.AdamW.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.AdamW.load_state_dict)
    zero_grad = inspect.unwrap(torch.optim.AdamW.zero_grad)
    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))

    def make_room(self) -> None:
        """Allocates the moments, as torch does in the first step.

        There they would take the memory that the step just freed, and the second step would have to get as much from
        the system, which takes time.
        """
        for group in self.param_groups:
            kinds = ("exp_avg",) if group.get("muon") else ("exp_avg", "exp_avg_sq")
            for weight in group["params"]:
                if not self.state[weight]:
                    moments = {kind: torch.zeros_like(weight) for kind in kinds}
                    self.state[weight] = {"step": torch.tensor(0.0), **moments}


A = TypeVar("A", bound=AdamW)


def fused_if_possible(kind: type[A], groups: list[dict[str, Any]], **options: Any) -> A:
    """Fused, the update is one pass over the weights instead of a dozen; not every torch and device supports it."""
    try:
        return kind([dict(group) for group in groups], fused=True, **options)  # torch writes into the groups
    except RuntimeError:
        return kind(groups, fused=False, **options)


def adamw(model: nn.Module, config: TrainConfig) -> AdamW:
    """Two groups: matrices, which get weight decay, and biases and scales, which do not."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return fused_if_possible(AdamW, groups, lr=config.learning_rate, betas=(config.beta1, config.beta2))


def learning_rate(iteration: int, config: TrainConfig) -> float:
    """As in nanoGPT: linear up, half a cosine down, then flat. With recipe=modern: linear up, flat, linear down."""
    if not config.decay_lr:
        return config.learning_rate
    if config.recipe == MODERN and "warm_down" not in config.without.split(","):  # Hägele et al., arXiv 2405.18392
        up = min(1.0, (iteration + 1) / (config.warmup_iters + 1))
        down = (config.lr_decay_iters - iteration) / max(WARM_DOWN * config.lr_decay_iters, 1)
        return up * (config.min_lr + (config.learning_rate - config.min_lr) * min(1.0, max(0.0, down)))
    if iteration < config.warmup_iters:
        return config.learning_rate * (iteration + 1) / (config.warmup_iters + 1)
    if iteration > config.lr_decay_iters:
        return config.min_lr
    way = (iteration - config.warmup_iters) / max(config.lr_decay_iters - config.warmup_iters, 1)
    return config.min_lr + 0.5 * (1.0 + math.cos(math.pi * way)) * (config.learning_rate - config.min_lr)


def resume(optimizer: AdamW, saved: dict[str, Any], positions: nn.Parameter | None) -> None:
    """Takes over the moments, each checked against its weight, since fused AdamW trusts their sizes.

    A state that is not AdamW's for these weights raises any exception. Of the groups it only takes what nanoGPT
    resumes with, not how the arithmetic is done. `positions` may have been cut to a smaller block_size; its moments are
    then cut too.
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
