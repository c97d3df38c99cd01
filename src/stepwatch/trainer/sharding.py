"""FSDP2: each rank holds a part of every weight and of its moments, and gathers a layer when it is computed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from stepwatch.errors import UsageError
from stepwatch.messages import Message
from stepwatch.trainer.distributed import Ranks
from stepwatch.trainer.hardware import Device


def check(device: Device) -> None:
    """What does not go together with it is refused before anything is made."""
    if device.dtype == "float16":
        raise UsageError(
            Message("sharding=fsdp does not work with float16"),
            Message("use --dtype=bfloat16 or --dtype=float32, or --sharding=ddp"),
        )


def shard(model: nn.Module, optimizer: torch.optim.Optimizer, ranks: Ranks, device: Device) -> None:
    """In place: the weights of the model and what the optimizer holds of each are divided among the ranks.

    Both may be in host memory as a whole; a card gets one layer after the other and keeps its part.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(device.device.type, (ranks.world_size,))
    policy = MixedPrecisionPolicy()
    if device.is_cuda and device.dtype == "bfloat16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    # The optimizer lets go of the weights meanwhile, so that each whole one is freed once it is divided.
    places = {id(weight): place for place, weight in enumerate(model.parameters())}
    groups = [[places[id(weight)] for weight in group["params"]] for group in optimizer.param_groups]
    held = {places[id(weight)]: values for weight, values in optimizer.state.items()}
    optimizer.state.clear()
    for group in optimizer.param_groups:
        group["params"] = []
    for block in model.transformer["h"]:  # type: ignore[index,union-attr]
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    weights = list(model.parameters())
    for group, members in zip(optimizer.param_groups, groups, strict=True):
        group["params"] = [weights[place] for place in members]
    for place, values in held.items():
        optimizer.state[weights[place]] = {name: _divided(value, weights[place]) for name, value in values.items()}


def _divided(value: Any, weight: Any) -> Any:
    """This rank's part of what belongs to a weight, where it has the weight's shape: a moment, not a count of steps."""
    from torch.distributed.tensor import DTensor

    if not isinstance(value, Tensor) or value.shape != weight.shape:
        return value
    mesh = weight.device_mesh
    parts = torch.chunk(value, mesh.size())  # as FSDP divides the weights: the last ones may be shorter, or empty
    rank = mesh.get_local_rank()
    part = parts[rank] if rank < len(parts) else value[:0]
    return DTensor.from_local(
        part.clone().to(weight.device), mesh, weight.placements, shape=value.shape, stride=value.stride(),
        run_check=False,
    )  # fmt: skip


def whole(value: Tensor) -> Tensor:
    """A figure that the ranks have a part of each, as one."""
    joined: Tensor = value.full_tensor() if hasattr(value, "full_tensor") else value
    return joined
