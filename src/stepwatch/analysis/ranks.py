"""The processes of a run side by side: which one is slow, which ones wait, once or all the time.

Steps are matched by number and compared by how long they took, never by the clock: the clocks of several machines
differ. A rank's own time is its step without its waiting for the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stepwatch.analysis.findings import INFO, NOTICE, WARNING, Finding, Rule
from stepwatch.analysis.statistics import median, spread, standard_error
from stepwatch.messages import Message
from stepwatch.run import Floats, Ints, Run
from stepwatch.units import Z90, Interval, interval_json, plain_json

if TYPE_CHECKING:
    from stepwatch.analysis import Analysis

CLEAR_SKEW = 0.05


class RankRow(NamedTuple):
    rank: int
    steps: int
    last: int
    own_s: float | None
    """The median of its steps, without waiting; None if it has no step in common with the others."""
    wait_s: float | None
    """Its total waiting for the others; None if it was not recorded."""
    slowest: float
    """Share of the steps in which it was the slowest."""


class Hiccup(NamedTuple):
    rank: int
    at: int
    lost_s: float


class Ranks(NamedTuple):
    world_size: int
    rows: tuple[RankRow, ...]
    missing: tuple[int, ...]
    ended: tuple[RankRow, ...] = ()
    """Those that stopped before the others."""
    slowest: int | None = None
    skew: Interval | None = None
    """How much longer the slowest takes than the median of the others, as a share of theirs."""
    chronic: bool = False
    per_step_s: float = 0.0
    lost_s: float = 0.0
    """What the slowest makes the others wait, per step and in all."""
    hiccups: tuple[Hiccup, ...] = ()
    waits_known: bool = False


def find_ranks(run: Run) -> Ranks:
    size = max(run.settings.count("world_size") or 1, *(rank.rank + 1 for rank in run.ranks))
    last = max(int(rank.number[-1]) for rank in run.ranks)
    ended = {rank.rank for rank in run.ranks if int(rank.number[-1]) < last - 2}  # two lines may not be written yet
    going = [rank for rank in run.ranks if rank.rank not in ended]
    compared = going if len(going) > 1 else list(run.ranks)
    # Steps that all of them have, without the first, which warms up; if there are very many, an even sample.
    steps = reduce(np.intersect1d, (rank.number for rank in compared))
    steps = steps[1:] if len(steps) > 1 else steps
    steps = steps[:: len(steps) * len(compared) // 20_000_000 + 1]
    own: Floats = np.zeros((len(compared), len(steps)))
    for place, rank in enumerate(compared):
        at = np.searchsorted(rank.number, steps)
        own[place] = np.maximum(rank.time_s[at] - np.nan_to_num(rank.wait_s[at]), 0.0)

    numbers = [rank.rank for rank in compared]
    rows = []
    for rank in run.ranks:
        waited = rank.wait_s[np.isfinite(rank.wait_s)]
        known = rank.rank in numbers and len(steps) > 0
        place = numbers.index(rank.rank) if known else 0
        row = RankRow(
            rank=rank.rank,
            steps=len(rank.number),
            last=int(rank.number[-1]),
            own_s=median(own[place]) if known else None,
            wait_s=float(waited.sum()) if len(waited) else None,
            slowest=float(np.mean(own.argmax(axis=0) == place)) if known else 0.0,
        )
        rows.append(row)
    ranks = Ranks(
        world_size=size,
        rows=tuple(rows),
        missing=tuple(sorted(set(range(size)) - {rank.rank for rank in run.ranks})),
        ended=tuple(row for row in rows if row.rank in ended),
        waits_known=any(row.wait_s is not None for row in rows),
    )
    return _compared(ranks, numbers, steps, own) if len(steps) else ranks


def _compared(ranks: Ranks, numbers: list[int], steps: Ints, own: Floats) -> Ranks:
    """Adds the slowest, its skew, and the steps in which one rank alone was slow."""
    others = _others(own)
    beyond = own - others
    usual = np.array([median(row) for row in beyond])
    place = int(usual.argmax())
    relative = beyond[place] / np.maximum(others[place], 1e-9)
    skew, error = max(median(relative), 0.0), standard_error(relative)
    by_chance = error * (Z90 + math.sqrt(2 * math.log(len(own))))  # one of many equals is always the slowest
    of_all = max(row.steps for row in ranks.rows) / len(steps)

    # The worst of the steps in which a rank took half a step longer than the others, and than it usually does.
    once = beyond - usual[:, None]
    limit = max(0.5 * median(others.ravel()), 8 * spread(once.ravel()))
    cells = np.argwhere(once > limit)
    worst = np.sort(np.argsort(-once[tuple(cells.T)], kind="stable")[:200])
    hiccups = [
        Hiccup(rank=numbers[at], at=int(steps[step]), lost_s=float(once[at, step]))
        for at, step in cells[worst].tolist()
    ]
    return ranks._replace(
        slowest=numbers[place],
        skew=Interval.around(skew, Z90 * error),
        chronic=skew - by_chance > 0.02,  # ranks are never quite alike
        per_step_s=max(float(usual[place]), 0.0),
        lost_s=float(np.maximum(beyond[place], 0.0).sum()) * of_all,
        hiccups=tuple(sorted(hiccups, key=lambda hiccup: (hiccup.rank, hiccup.at))),
    )


def _others(own: Floats) -> Floats:
    """For each rank and step the median of the other ranks."""
    order = np.argsort(own, axis=0, kind="stable")
    place = np.argsort(order, axis=0, kind="stable")
    ordered = np.take_along_axis(own, order, axis=0)

    def left(index: int) -> Floats:
        """The value at this place in the order of the other ranks."""
        return np.asarray(np.where(place > index, ordered[index], ordered[index + 1]))

    count = len(own) - 1
    return left(count // 2) if count % 2 else (left(count // 2 - 1) + left(count // 2)) / 2


# --- findings ---------------------------------------------------------------------------------------------------


def slow_rank(a: Analysis) -> Iterator[Finding]:
    ranks = a.ranks
    if ranks is None or ranks.skew is None or not ranks.chronic:
        return
    row = next(row for row in ranks.rows if row.rank == ranks.slowest)
    waits = [other.wait_s for other in ranks.rows if other.rank != ranks.slowest and other.wait_s is not None]
    facts = {
        "rank": row.rank,
        "skew": ranks.skew.mid,
        "each": ranks.per_step_s,
        "lost": ranks.lost_s,
        "share": row.slowest,
        "waited": median(np.array(waits)) if waits else None,
    }
    text = Message(
        "Rank {rank:n} is the slowest in {share:pct} of the steps: its steps take {each:time} longer than those of the others, {skew:pct} more, {lost:time} in all. Look for heat, a power limit, another job, a slower link, or more data than the others have.",
        facts,
    )
    if waits:
        text = Message(
            "Rank {rank:n} is the slowest in {share:pct} of the steps: its steps take {each:time} longer than those of the others, {skew:pct} more, {lost:time} in all; the others waited {waited:time} each. Look for heat, a power limit, another job, a slower link, or more data than the others have.",
            facts,
        )
    yield Finding("slow_rank", WARNING if ranks.skew.mid >= CLEAR_SKEW else NOTICE, text)


def rank_hiccup(a: Analysis) -> Iterator[Finding]:
    hiccups = a.ranks.hiccups if a.ranks is not None else ()
    for rank in sorted({hiccup.rank for hiccup in hiccups}):
        own = [hiccup for hiccup in hiccups if hiccup.rank == rank]
        at, lost = [hiccup.at for hiccup in own], sum(hiccup.lost_s for hiccup in own)
        message = Message(
            "In step {at:ints} rank {rank:n} alone was slow: it took {lost:time} longer than it should, and the others waited for it.",
            {"rank": rank, "at": at, "lost": lost, "count": len(own)},
            "In {count:n} steps ({at:ints}) rank {rank:n} alone was slow: it took {lost:time} longer in all than it should, and the others waited for it.",
            len(own),
        )
        yield Finding("rank_hiccup", NOTICE, message)


def ranks_even(a: Analysis) -> Iterator[Finding]:
    ranks = a.ranks
    if ranks is None or ranks.skew is None or ranks.chronic:
        return
    own = np.array([row.own_s for row in ranks.rows if row.own_s is not None])
    apart = float(own.max() / max(own.min(), 1e-9) - 1)
    facts = {"count": len(own), "apart": apart}
    if apart >= CLEAR_SKEW:
        text = Message(
            "The median steps of the {count:n} ranks differ by {apart:pct}, no more than by chance: none is consistently slow.",
            facts,
        )
    elif ranks.waits_known:
        text = Message(
            "The {count:n} ranks take the same time for their steps, within {apart:pct}: none consistently delays the others.",
            facts,
        )
    else:
        text = Message(
            "The steps of the {count:n} ranks take the same time, within {apart:pct}; but their waiting for each other was not recorded, so a slow one would not be visible. Time the collective with the recorder's wait().",
            facts,
        )
    yield Finding("ranks_even", INFO, text)


def rank_missing(a: Analysis) -> Iterator[Finding]:
    if a.ranks is not None and a.ranks.missing:
        missing = a.ranks.missing
        message = Message(
            "The run has {size:n} ranks, but there is no record of rank {missing:ints}.",
            {"size": a.ranks.world_size, "missing": list(missing), "count": len(missing)},
            "The run has {size:n} ranks, but there is no record of ranks {missing:ints}.",
            len(missing),
        )
        yield Finding("rank_missing", NOTICE, message)


def rank_ended(a: Analysis) -> Iterator[Finding]:
    for row in a.ranks.ended if a.ranks is not None else ():
        facts = {
            "rank": row.rank,
            "last": row.last,
            "end": max(rank.last for rank in a.ranks.rows) if a.ranks else None,
        }
        text = Message("Rank {rank:n} recorded nothing after step {last:n}, while others continued to {end:n}.", facts)
        yield Finding("rank_ended", WARNING, text)


RULES: tuple[Rule, ...] = (slow_rank, rank_hiccup, ranks_even, rank_missing, rank_ended)


# --- for programs -----------------------------------------------------------------------------------------------


def ranks_json(ranks: Ranks) -> dict[str, Any]:
    return {
        "world_size": ranks.world_size, "missing": list(ranks.missing), "slowest": ranks.slowest,
        "skew": interval_json(ranks.skew), "chronic": ranks.chronic, "per_step_s": plain_json(ranks.per_step_s),
        "lost_s": plain_json(ranks.lost_s), "waits_known": ranks.waits_known,
        "each": [
            {
                "rank": row.rank, "steps": row.steps, "last": row.last, "slowest": row.slowest,
                "own_s": None if row.own_s is None else plain_json(row.own_s),
                "wait_s": None if row.wait_s is None else plain_json(row.wait_s),
            }
            for row in ranks.rows
        ],
        "hiccups": [{"rank": one.rank, "iter": one.at, "lost_s": plain_json(one.lost_s)} for one in ranks.hiccups],
        "ended": [row.rank for row in ranks.ended],
    }  # fmt: skip
