"""Own runs of a store as a prior of the estimator."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow.compute as pc

from stepwatch.estimator.own_runs import History, learning_from
from stepwatch.estimator.workload import Workload
from stepwatch.fleet.store import Store
from stepwatch.gpus import Gpu

SIMILAR = math.log(2)
"""Half to twice the parameters: where a card is as efficient as with this model."""


class _Seen(NamedTuple):
    gpu: str
    dtype: str | None
    several: bool
    size: float
    ratio: float


@contextmanager
def learning_from_store(place: str) -> Iterator[None]:
    """Meanwhile every estimate takes the runs of a store into account."""
    with learning_from(history_of(place)):
        yield


def history_of(place: str) -> History:
    """What the runs of a store took against what was expected of them; raises InputError where there is no store."""
    columns = ("gpu", "dtype", "world_size", "n_params", "n_layer", "n_embd", "vocab_size", "step_s_mid")
    found = Store(place).table("runs", (*columns, "expected_step_s_mid"))
    rows = found.filter(pc.is_valid(pc.field("expected_step_s_mid")) & pc.is_valid(pc.field("gpu"))).to_pylist()
    seen = []
    for row in rows:
        layers, width = row["n_layer"] or 0, row["n_embd"] or 0
        size = row["n_params"] or 12 * layers * width**2 + (row["vocab_size"] or 0) * width
        if size and row["step_s_mid"] and row["expected_step_s_mid"]:
            ratio = row["step_s_mid"] / row["expected_step_s_mid"]
            seen.append(_Seen(row["gpu"], row["dtype"], (row["world_size"] or 1) > 1, math.log(size), ratio))

    def ratios(workload: Workload, gpu: Gpu) -> Sequence[float]:
        size = math.log(workload.n_params)
        return [
            run.ratio
            for run in seen
            if run.gpu == gpu.name
            and run.dtype in (None, workload.dtype)
            and run.several == (workload.world_size > 1)
            and abs(run.size - size) <= SIMILAR
        ]

    return ratios
