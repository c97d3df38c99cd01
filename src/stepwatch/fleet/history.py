"""Own runs of a store as a prior of the estimator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager

import pyarrow.compute as pc

from stepwatch.estimator.own_runs import learning_from
from stepwatch.estimator.workload import Workload
from stepwatch.fleet.store import Store
from stepwatch.gpus import Gpu

SIMILAR = math.log(2)
"""Half to twice the parameters: where a card is as efficient as with this model."""


def learning_from_store(place: str) -> AbstractContextManager[None]:
    """Meanwhile every estimate takes into account what the runs of a store took, compared with what was expected.

    Raises InputError where there is no store.
    """
    columns = ("gpu", "dtype", "world_size", "n_params", "n_layer", "n_embd", "vocab_size", "step_s_mid")
    found = Store(place).table("runs", (*columns, "expected_step_s_mid"))
    rows = found.filter(pc.is_valid(pc.field("expected_step_s_mid")) & pc.is_valid(pc.field("gpu"))).to_pylist()
    seen = []
    for row in rows:
        layers, width = row["n_layer"] or 0, row["n_embd"] or 0
        size = row["n_params"] or 12 * layers * width**2 + (row["vocab_size"] or 0) * width
        if size and row["step_s_mid"] and row["expected_step_s_mid"]:
            ratio = row["step_s_mid"] / row["expected_step_s_mid"]
            seen.append((row["gpu"], row["dtype"], (row["world_size"] or 1) > 1, math.log(size), ratio))

    def ratios(workload: Workload, gpu: Gpu) -> Sequence[float]:
        size = math.log(workload.n_params)
        return [
            ratio
            for name, dtype, has_several_cards, its_size, ratio in seen
            if name == gpu.name
            and dtype in (None, workload.dtype)
            and has_several_cards == (workload.world_size > 1)
            and abs(its_size - size) <= SIMILAR
        ]

    return learning_from(ratios)
