"""Runs of several processes, each with a record of its own, as the one run that they were."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stepwatch.run import Rank, Run

LONGEST_APART_S = 3600.0  # between the starts of the ranks of one run, clocks that were never set alike included


def joined_ranks(runs: Sequence[Run], *, by_name: bool = False) -> tuple[Run, ...]:
    """The runs, those of other ranks joined to the one of the lowest; `by_name` says that they surely belong."""
    ranked = [run for run in runs if run.span is not None and run.rank is not None and _size(run) > 1]
    lowest = min((run.rank for run in ranked if run.rank is not None), default=None)
    leaders = [run for run in ranked if run.rank == lowest]
    if len(leaders) == len(ranked):
        return tuple(runs)
    ranks = {id(run): {rank.rank: rank for rank in run.ranks or _own_rank(run)} for run in leaders}
    joined: set[int] = set()
    for number in sorted({run.rank for run in ranked if run.rank is not None} - {lowest}):
        mine = [run for run in ranked if run.rank == number]
        # The same start of both where there are as many, else the nearest.
        same = len(mine) == len(leaders)
        nearest = leaders if same else [min(leaders, key=lambda leader: _apart_s(run, leader)) for run in mine]
        for run, leader in zip(mine, nearest, strict=True):
            if _size(run) != _size(leader) or not (by_name or _apart_s(run, leader) <= LONGEST_APART_S):
                continue
            for rank in _own_rank(run):  # it belongs to these, now or already: a file may have been handed in twice
                if ranks[id(leader)].setdefault(rank.rank, rank).started_s == rank.started_s:
                    joined.add(id(run))
    return tuple(_with_ranks(run, ranks.get(id(run), {})) for run in runs if id(run) not in joined)


def _size(run: Run) -> int:
    return run.settings.count("world_size") or 1


def _apart_s(run: Run, other: Run) -> float:
    if run.span is None or other.span is None:
        return math.inf
    return abs(run.span.started_s - other.span.started_s)


def _own_rank(run: Run) -> tuple[Rank, ...]:
    """The steps of the run as those of one rank; none where nothing tells which."""
    if run.rank is None or run.span is None:
        return ()
    rows = run.iterations
    wait = run.inside.wait_s if run.inside is not None else np.full(len(rows), np.nan)
    return (Rank(run.rank, run.span.started_s, rows.number, rows.time_s, wait),)


def _with_ranks(run: Run, ranks: dict[int, Rank]) -> Run:
    return replace(run, ranks=tuple(ranks[rank] for rank in sorted(ranks))) if len(ranks) > 1 else run
