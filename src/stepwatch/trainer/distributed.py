"""Several processes that train one model: each takes its share of the micro-batches, and gradients are averaged.

torchrun starts them and gives each its rank; without torchrun there is one. All ranks draw the same random numbers,
and each computes its part of them, so that a run has the same losses on any number of ranks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from stepwatch.errors import UsageError
from stepwatch.messages import Message
from stepwatch.trainer.hardware import Device

_STORE = "stepwatch/store"


@dataclass(slots=True)
class Ranks:
    """This process and its place among the others."""

    rank: int = 0
    world_size: int = 1
    local_rank: int | None = None
    on_cuda: bool = False
    shards: bool = False
    """Each rank has a part of every weight (FSDP), else each has all weights (DDP)."""
    _control: Any = None
    """For small messages between the processes through the host, without waiting for a card."""
    _group: Any = None
    """The group of all ranks. Outlives the model: torch would free it with the model while its thread waits for Python,
    a deadlock."""
    _asked: tuple[Any, Tensor] | None = None
    _store: Any = None
    """Through which the processes found each other; the first rank's store serves the others."""
    dropout_rng_state: Tensor | None = field(default=None, repr=False)
    """The state of this rank's random numbers for dropout, on CPUs with several ranks."""

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        return self.world_size == 1

    def share_of(self, micro_batches: int) -> int:
        """How many of a step's micro-batches this rank computes."""
        if micro_batches % self.world_size:
            facts = {"steps": micro_batches, "ranks": self.world_size}
            raise UsageError(
                Message("{steps:n} gradient_accumulation_steps cannot be divided among {ranks:n} ranks", facts),
                Message("choose gradient_accumulation_steps as a multiple of the number of ranks"),
            )
        return micro_batches // self.world_size

    def join(self, backend: str | None, sharding: str, on_cuda: bool) -> str | None:
        """Meets the other ranks; returns a remark if what was asked for is not done."""
        if self.is_alone:
            return None if sharding == "ddp" else "sharding=fsdp is for several ranks: this one has all weights"
        self.on_cuda, self.shards = on_cuda, sharding == "fsdp"
        wanted = backend or ("nccl" if on_cuda else "gloo")
        used = "gloo" if wanted == "nccl" and not on_cuda else wanted
        self._store = _store_of_this_start(self.rank, self.world_size)
        if self._store is None:
            dist.init_process_group(backend=used)
        else:
            dist.init_process_group(backend=used, store=self._store, rank=self.rank, world_size=self.world_size)
        self._group = dist.group.WORLD
        self._control = dist.new_group(backend="gloo") if on_cuda else None
        return None if used == wanted else f"backend {wanted} is for CUDA cards: {used} here"

    def wrap(self, model: nn.Module) -> nn.Module:
        if self.is_alone or self.shards:
            return model
        return nn.parallel.DistributedDataParallel(model, device_ids=[self.local_rank] if self.on_cuda else None)

    def share_gradients(self, raw: nn.Module, model: Any, *, now: bool) -> None:
        """Sets whether the next backward pass averages the gradients over the ranks: once per step, in the last."""
        if self.shards:
            raw.set_requires_gradient_sync(now)  # type: ignore[operator]
        elif not self.is_alone:
            model.require_backward_grad_sync = now

    def broadcast_from_first(self, word: str) -> str:
        """The first rank's value, on every rank."""
        if self.is_alone:
            return word
        words = [word]
        dist.broadcast_object_list(words, src=0, group=self._control)
        return words[0]

    def add_up(self, values: Tensor) -> None:
        """Sums up in place, over all ranks."""
        if not self.is_alone:
            dist.all_reduce(values)

    def gathered(self, own: Tensor | None) -> tuple[Tensor | None, ...]:
        """The values of all ranks, on every rank."""
        if self.is_alone:
            return (own,)
        all_of_them: list[Tensor | None] = [None] * self.world_size
        dist.all_gather_object(all_of_them, own, group=self._control)
        return tuple(all_of_them)

    def on_any_rank(self, yes: bool) -> bool:
        """Whether any rank says yes; all get the same answer in the same step.

        With cards it is the answer of the previous step, which has arrived by now, so that no rank waits.
        """
        if self.is_alone:
            return yes
        question = torch.tensor([int(yes)])
        if not self.on_cuda:
            dist.all_reduce(question, op=dist.ReduceOp.MAX)
            return bool(question.item())
        asking = dist.all_reduce(question, op=dist.ReduceOp.MAX, group=self._control, async_op=True)
        before, self._asked = self._asked, (asking, question)
        if before is None:
            return False
        before[0].wait()
        return bool(before[1].item())

    @contextmanager
    def own_dropout(self, dropout: float) -> Iterator[None]:
        """Different dropout on every rank, while the data is drawn alike. On CPUs both use one generator."""
        if self.is_alone or self.on_cuda or not dropout:
            yield
            return
        common = torch.get_rng_state()
        if self.dropout_rng_state is None:
            torch.manual_seed(torch.initial_seed() + 1 + self.rank)
        else:
            torch.set_rng_state(self.dropout_rng_state)
        yield
        self.dropout_rng_state = torch.get_rng_state()
        torch.set_rng_state(common)

    def leave(self) -> None:
        if not self.is_alone and dist.is_initialized():
            if self._asked is not None:
                self._asked[0].wait()
            dist.destroy_process_group()


def _store_of_this_start(rank: int, world_size: int) -> dist.Store | None:
    """The store in which the processes exchange their addresses; None if torch's own store works.

    torchrun's agent keeps one store for all restarts, with the addresses of processes that are gone (seen in 2.13), so
    that a second start may wait for them for ever. Here it is only used to find the first rank's new store. An address
    of the previous start does not answer, and is read again.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or os.environ.get("TORCHELASTIC_MAX_RESTARTS") == "0":
        return None
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    agents = dist.TCPStore(host, port, is_master=False)
    if rank == 0:
        own = dist.TCPStore(host, 0, world_size, is_master=True, wait_for_workers=False)
        agents.set(_STORE, str(own.port))
        return own
    deadline = time.monotonic() + 600.0  # torchrun's own join timeout
    while True:
        port = int(agents.get(_STORE))
        try:
            return dist.TCPStore(host, port, world_size, is_master=False, timeout=timedelta(seconds=2))
        except dist.DistError:
            if time.monotonic() > deadline:
                raise


def ranks_from_environment() -> Ranks:
    """The ranks as set by torchrun; without torchrun this process is alone."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return Ranks()
    return Ranks(
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        local_rank=int(os.environ.get("LOCAL_RANK", "0")),
    )


# --- FSDP2: each rank has a part of every weight and of its moments, and gathers a layer when it is computed ------


def check_sharding(device: Device) -> None:
    """Refuses what does not work with sharding before anything is created."""
    if device.dtype == "float16":
        raise UsageError(
            Message("sharding=fsdp does not work with float16"),
            Message("use --dtype=bfloat16 or --dtype=float32, or --sharding=ddp"),
        )


def shard(model: nn.Module, optimizer: torch.optim.Optimizer, ranks: Ranks, device: Device) -> None:
    """Divides the weights of the model, and what the optimizer keeps for each, among the ranks, in place.

    Both may be complete in host memory; a card gets one layer after the other and keeps its part.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(device.device.type, (ranks.world_size,))
    policy = MixedPrecisionPolicy()
    if device.is_cuda and device.dtype == "bfloat16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    # The optimizer must not hold the weights in the meantime, so that each is freed once it is divided.
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
    """This rank's part of a weight's value, if it has the weight's shape: a moment, not a count of steps."""
    from torch.distributed.tensor import DTensor

    if not isinstance(value, Tensor) or value.shape != weight.shape:
        return value
    mesh = weight.device_mesh
    parts = torch.chunk(value, mesh.size())  # as FSDP divides weights: the last parts may be shorter, or empty
    rank = mesh.get_local_rank()
    part = parts[rank] if rank < len(parts) else value[:0]
    return DTensor.from_local(
        part.clone().to(weight.device), mesh, weight.placements, shape=value.shape, stride=value.stride(),
        run_check=False,
    )  # fmt: skip


def joined(value: Tensor) -> Tensor:
    """The whole of a value of which each rank has a part."""
    whole: Tensor = value.full_tensor() if hasattr(value, "full_tensor") else value
    return whole
