"""Runs of several processes, each with a record of its own, as the one run that they were."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from stepwatch.readers.formats.recorded_run import rank_of
from stepwatch.run import Rank, Run

LONGEST_APART_S = 3600.0  # between the starts of the ranks of one run, clocks that were never set alike included


def together(runs: Sequence[Run], *, by_name: bool = False) -> tuple[Run, ...]:
    """The runs, those of other ranks joined to the one of the lowest; `by_name` says that they surely belong."""
    ranked = [run for run in runs if run.span is not None and run.rank is not None and _size(run) > 1]
    lowest = min((run.rank for run in ranked if run.rank is not None), default=None)
    leaders = [run for run in ranked if run.rank == lowest]
    if len(leaders) == len(ranked):
        return tuple(runs)
    ranks = {id(run): _known_ranks(run) for run in leaders}
    joined: set[int] = set()
    for number in sorted({run.rank for run in ranked if run.rank is not None} - {lowest}):
        mine = [run for run in ranked if run.rank == number]
        for run, leader in _pairs(mine, leaders, by_name=by_name):
            rank = rank_of(run)
            if rank is not None and _joins(rank, ranks[id(leader)]):
                joined.add(id(run))
    return tuple(_with_ranks(run, ranks.get(id(run), {})) for run in runs if id(run) not in joined)


def _size(run: Run) -> int:
    return run.settings.count("world_size") or 1


def _known_ranks(run: Run) -> dict[int, Rank]:
    own = rank_of(run)
    return {rank.rank: rank for rank in (run.ranks or (() if own is None else (own,)))}


def _joins(rank: Rank, known: dict[int, Rank]) -> bool:
    """Whether it belongs to these, now or already: the same file may have been handed in twice."""
    return known.setdefault(rank.rank, rank).started_s == rank.started_s


def _pairs(mine: list[Run], leaders: list[Run], *, by_name: bool) -> Iterable[tuple[Run, Run]]:
    """Each run of a rank with the one that it is a part of: the same start of both, or the nearest."""
    if len(mine) == len(leaders):
        pairs = list(zip(mine, leaders, strict=True))
    else:
        pairs = [(run, min(leaders, key=lambda leader: _apart_s(run, leader))) for run in mine]
    return [
        (run, leader) for run, leader in pairs
        if _size(run) == _size(leader) and (by_name or _apart_s(run, leader) <= LONGEST_APART_S)
    ]  # fmt: skip


def _apart_s(run: Run, other: Run) -> float:
    known = run.span is not None and other.span is not None
    return abs(run.span.started_s - other.span.started_s) if known and run.span and other.span else math.inf


def _with_ranks(run: Run, ranks: dict[int, Rank]) -> Run:
    return replace(run, ranks=tuple(ranks[rank] for rank in sorted(ranks))) if len(ranks) > 1 else run
