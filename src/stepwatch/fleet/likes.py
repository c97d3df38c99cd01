"""Runs that are slower than comparable runs (same work, same card) by more than these usually differ."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from stepwatch.analysis.statistics import MEDIAN_ERROR, spread
from stepwatch.fleet.schema import SETTINGS, VERSIONS
from stepwatch.fleet_report import Suspect
from stepwatch.units import HOUR_S

Run = Mapping[str, Any]
Floats = np.ndarray

LEAST_LIKE = 8  # runs of the same work: fewer do not show what is usual
LEAST_RUNS = 3  # per node or card, and number of nodes or cards to compare
LEAST_SLOWER = 0.03  # less is not worth a ticket
SINGLE_SLOWER = 0.10  # for a single run
FAR = 4.0  # standard deviations: one in 300 healthy fleets of a hundred nodes has a node that far off
FAR_ALONE = 6.0  # for one run of ten thousand, whose times are not quite normally distributed
MOST_BESIDE = 0.25  # share of runs that may contradict a finding: if more do, there are two speeds side by side
CHANGE_CHANCE = 1e-3  # the probability of as large a change in a fleet that did not change
_SHOWN = ("work", "node", "gpu_index", "started_at", "step_s_mid", "wall_s", "world_size", "source")
_CANDIDATES = tuple(name for name in (*VERSIONS, *SETTINGS) if name != "max_iters")
COLUMNS = (*_SHOWN, *_CANDIDATES)
"""The columns that a run must have."""


def find_suspects(runs: Sequence[Run]) -> list[Suspect]:
    """Slow cards, slow nodes, what began on a day, and single runs; each without runs that are already explained."""
    like = _relative_to_peers(runs)
    change = _change(like)  # else a node would look slow if it was mostly busy after the change
    level = _levelled(like, change)
    slow_cards = list(_outliers(level, _card, "card"))
    slow = {suspect.name for suspect in slow_cards}
    cards_on: dict[str | None, set[str]] = {}
    for run, _ in level:
        if (card := _card(run)) is not None:
            cards_on.setdefault(_node(run), set()).add(card)
    whole = {node for node, there in cards_on.items() if len(there) > 1 and there <= slow}  # not only its cards
    places = [suspect for suspect in slow_cards if suspect.name.rpartition(":")[0] not in whole]
    named = {suspect.name for suspect in places}
    places += _outliers([pair for pair in level if _card(pair[0]) not in named], _node, "node")
    bad = {suspect.name for suspect in places}
    like = _relative_to_peers([run for run, _ in like if not {_node(run), _card(run)} & bad])
    change = _change(like)
    if change is None:
        return sorted([*places, *_slow_runs(like)], key=lambda suspect: -suspect.hours)
    after = [run for run, _ in like if change.is_after(run)]
    before = [run for run, _ in like if not change.is_after(run)]
    day = datetime.fromtimestamp(change.at_s, UTC).date().isoformat()
    found = [*places, _suspect("day", day, math.exp(change.shift) - 1, after, before)]
    return sorted([*found, *_slow_runs(_levelled(like, change))], key=lambda suspect: -suspect.hours)


Pairs = Sequence[tuple[Run, float]]
"""Runs with the ratio of their step to the median of comparable runs, as a logarithm."""


def _grouped(pairs: Pairs, key_of: Callable[[Run], str | None]) -> dict[str, list[tuple[Run, float]]]:
    """The pairs that have a key, grouped by it."""
    groups: dict[str, list[tuple[Run, float]]] = {}
    for run, value in pairs:
        if key := key_of(run):
            groups.setdefault(key, []).append((run, value))
    return groups


_work, _node = itemgetter("work"), itemgetter("node")


def _relative_to_peers(runs: Sequence[Run]) -> Pairs:
    groups = _grouped([(run, math.log(run["step_s_mid"])) for run in runs if run["step_s_mid"]], _work)
    return _centred_by_work([pair for group in groups.values() if len(group) >= LEAST_LIKE for pair in group])


def _centred_by_work(pairs: Pairs) -> Pairs:
    groups = _grouped(pairs, _work).items()
    middle = {work: float(np.median([value for _, value in group])) for work, group in groups}
    return [(run, value - middle[run["work"]]) for run, value in pairs]


class _Change(NamedTuple):
    """The moment since when steps are slower."""

    at_s: float
    shift: float
    """By how much, as a logarithm."""

    def is_after(self, run: Run) -> bool:
        return run["started_at"] is not None and run["started_at"] >= self.at_s


def _levelled(like: Pairs, change: _Change | None) -> Pairs:
    """The runs without the effect of the change."""
    if change is None:
        return like
    return _centred_by_work([(run, residual - change.shift * change.is_after(run)) for run, residual in like])


def _sigma(values: Floats) -> float:
    """The standard deviation of a normal distribution; a few outliers do not matter."""
    return max(spread(values), 1e-4)


# --- nodes and cards --------------------------------------------------------------------------------------------


def _card(run: Run) -> str | None:
    index = run["gpu_index"]
    return f"{run['node'] or ''}:{index}" if index is not None and "," not in index else None


def _outliers(like: Pairs, place_of: Callable[[Run], str | None], kind: str) -> Iterator[Suspect]:
    """Places whose runs are slow compared with those of the other places."""
    places = {place: there for place, there in _grouped(like, place_of).items() if len(there) >= LEAST_RUNS}
    if len(places) < LEAST_RUNS:
        return
    residuals = {place: np.array([residual for _, residual in there]) for place, there in places.items()}
    medians = {place: float(np.median(values)) for place, values in residuals.items()}
    within = _sigma(np.concatenate([values - medians[place] for place, values in residuals.items()]))
    for place, there in places.items():
        others = np.array([median for other, median in medians.items() if other != place])
        between = _sigma(others) if len(others) > 2 else 0.0
        doubt = max(between, MEDIAN_ERROR * within / math.sqrt(len(there)))
        shift = medians[place] - float(np.median(others))
        slower = math.exp(shift) - 1
        if slower < LEAST_SLOWER or shift <= FAR * doubt:
            continue
        # The Mann-Whitney test, as far as few runs can pass it: if runs have several speeds by choice, as in a sweep,
        # the median of a few of them is one of these speeds by chance.
        own = residuals[place]
        rest = np.concatenate([values for other, values in residuals.items() if other != place])
        pairs, ranks = len(own) * len(rest), np.concatenate((own, rest)).argsort().argsort()[: len(own)]
        score, most = float(ranks.sum()) - len(own) * (len(own) - 1) / 2 - pairs / 2, pairs / 2
        sigma = math.sqrt(pairs * (len(own) + len(rest) + 1) / 12)
        if score > min(FAR * sigma, (1 - MOST_BESIDE) * most):
            elsewhere = [run for run, _ in like if place_of(run) != place]
            yield _suspect(kind, place, slower, [run for run, _ in there], elsewhere)


# --- changes on a day -------------------------------------------------------------------------------------------


def _change(like: Pairs) -> _Change | None:
    """Finds a change at an unknown time by Pettitt's test, then the moment where two levels fit best."""
    dated = sorted((pair for pair in like if pair[0]["started_at"] is not None), key=lambda pair: pair[0]["started_at"])
    count = len(dated)
    if count < 2 * LEAST_LIKE:
        return None
    found: _Change | None = None
    for _ in range(3):
        # The median of a kind of work may be from before or after the change: move the other runs to its level.
        level = [found.shift * found.is_after(run) if found is not None else 0.0 for run, _ in dated]
        even = _centred_by_work([(run, residual - own) for (run, residual), own in zip(dated, level, strict=True)])
        residuals = np.array([residual + own for (_, residual), own in zip(even, level, strict=True)])
        split, chance = _split(residuals)
        shift = float(np.median(residuals[split:]) - np.median(residuals[:split]))
        if chance > CHANGE_CHANCE or math.exp(shift) - 1 < LEAST_SLOWER:
            return None
        found = _Change(dated[split][0]["started_at"], shift)
    return found if found is not None and _is_regression(dated, found) else None


def _is_regression(dated: Pairs, change: _Change) -> bool:
    """Tells a regression from a sweep, whose runs are slow by choice: it affects most works, lasts, and is single."""
    works: dict[str, tuple[list[float], list[float]]] = {}
    for run, residual in dated:
        works.setdefault(run["work"], ([], []))[change.is_after(run)].append(residual)
    medians = {
        work: np.array([*map(np.median, sides)]) for work, sides in works.items() if min(map(len, sides)) >= LEAST_RUNS
    }
    middles = {work: float(both.mean()) for work, both in medians.items() if both[1] - both[0] > change.shift / 2}
    slower = [(run, residual - middles[run["work"]]) for run, residual in dated if run["work"] in middles]
    before, after = ([pair for pair in slower if change.is_after(pair[0]) is late] for late in (False, True))
    for side, sign in ((before, 1), (after, -1)):
        residuals = np.array([residual for _, residual in side])
        if not len(residuals) or np.mean(sign * residuals > 0) > MOST_BESIDE:
            return False
        split, chance = _split(residuals)
        further = abs(float(np.median(residuals[split:]) - np.median(residuals[:split])))
        if chance < CHANGE_CHANCE and math.exp(further) - 1 > LEAST_SLOWER:
            return False
    changed = {column for column, *_ in _changes([run for run, _ in after], [run for run, _ in before])}
    if changed & {*VERSIONS}:
        return True
    return 2 * len(middles) > len(medians) and not (changed and len(middles) == 1)


def _split(residuals: Floats) -> tuple[int, float]:
    """Where the second level begins, and how probable that is without a change."""
    count = len(residuals)
    ranks, seen = residuals.argsort().argsort() + 1.0, np.arange(1, count + 1)
    sums = 2 * np.cumsum(ranks) - seen * (count + 1)
    chance = 2 * math.exp(-6 * float(np.abs(sums).max()) ** 2 / (count**3 + count**2))
    reach = np.array([-FAR, FAR]) * _sigma(residuals)
    clipped = np.clip(residuals, *(np.median(residuals) + reach))  # so that single runs do not decide
    total, sums, left = clipped.sum(), np.cumsum(clipped)[:-1], seen[:-1]
    gain = sums**2 / left + (total - sums) ** 2 / (count - left)
    gain[: LEAST_RUNS - 1] = gain[count - LEAST_RUNS :] = -np.inf
    return int(np.argmax(gain)) + 1, chance


# --- single runs ------------------------------------------------------------------------------------------------


def _slow_runs(like: Pairs) -> Iterator[Suspect]:
    found = []
    for group in _grouped(like, _work).values():
        sigma = _sigma(np.array([residual for _, residual in group]))
        for run, residual in group:
            if residual > max(FAR_ALONE * sigma, math.log1p(SINGLE_SLOWER)):
                others = [other for other, _ in group if other is not run]
                found.append(_suspect("run", run["source"], math.exp(residual) - 1, [run], others))
    yield from sorted(found, key=lambda suspect: -suspect.hours)[:10]


# --- what else is different -------------------------------------------------------------------------------------


def _suspect(kind: str, name: str, slower: float, runs: Sequence[Run], like: Sequence[Run]) -> Suspect:
    hours = sum((run["wall_s"] or 0.0) * (run["world_size"] or 1) for run in runs) / HOUR_S
    lost = hours * slower / (1 + slower)
    return Suspect(kind, name, slower, len(runs), len(like), lost, tuple(_changes(runs, like)))


def _changes(runs: Sequence[Run], others: Sequence[Run]) -> Iterator[tuple[str, str, str]]:
    """Columns in which nearly all `runs` have a value that nearly none of the others has."""
    for column in _CANDIDATES:
        mine = Counter(run[column] for run in runs if run[column] is not None)
        theirs = Counter(run[column] for run in others if run[column] is not None)
        if not mine or not theirs:
            continue
        (value, count), (usual, _) = mine.most_common(1)[0], theirs.most_common(1)[0]
        if value != usual and count >= 0.8 * len(runs) and theirs[value] <= 0.2 * len(others):
            yield column, str(usual), str(value)
