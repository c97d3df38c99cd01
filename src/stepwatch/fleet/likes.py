"""Runs that are slow against their like: same work on the same card, beyond what such runs differ anyway."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from stepwatch.fleet.schema import SETTINGS, VERSIONS
from stepwatch.fleet_report import Suspect
from stepwatch.units import HOUR_S

Run = Mapping[str, Any]
Floats = np.ndarray

LEAST_LIKE = 8  # runs of the same work: fewer do not show what is usual
LEAST_RUNS = 3  # of a node or a card, and nodes or cards beside each other
LEAST_SLOWER = 0.03  # less is not worth a ticket
SINGLE_SLOWER = 0.10  # one run alone
FAR = 4.0  # standard deviations: of a hundred nodes of a healthy fleet none in three hundred is that far
FAR_ALONE = 6.0  # one run of ten thousand, whose times are not quite normal
CHANGE_CHANCE = 1e-3  # that as much comes about in a fleet that did not change
MAD_TO_SIGMA = 1.4826
MEDIAN_ERROR = 1.2533  # of a median, over that of a mean
MOST_RUNS_NAMED = 10
_TOLD = ("work", "node", "gpu_index", "started_at", "step_s_mid", "wall_s", "world_size", "source")
_CANDIDATES = tuple(name for name in (*VERSIONS, "stepwatch_version", *SETTINGS) if name not in ("max_iters", "stepwatch_version"))
COLUMNS = (*_TOLD, *_CANDIDATES)
"""What a run must tell."""


def find_suspects(runs: Sequence[Run]) -> list[Suspect]:
    """Cards and nodes first, then what began on a day, then single runs: each without those that are explained already."""
    like = _with_like(runs)
    found: list[Suspect] = []
    slow = _slow_places(like)
    found += slow
    bad = {suspect.name for suspect in slow}
    like = [pair for pair in like if not {_node(pair[0]), _card(pair[0])} & bad]
    regression = _regression(like)
    if regression is not None:
        found.append(regression)
    else:
        found += _slow_runs(like)
    return sorted(found, key=lambda suspect: -suspect.hours)


def _with_like(runs: Sequence[Run]) -> list[tuple[Run, float]]:
    """Runs with how far their step is from that of their like, as a logarithm."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run["step_s_mid"] and run["work"]:
            groups.setdefault(run["work"], []).append(run)
    found = []
    for group in groups.values():
        if len(group) >= LEAST_LIKE:
            steps = np.log([run["step_s_mid"] for run in group])
            found += list(zip(group, (steps - np.median(steps)).tolist(), strict=True))
    return found


def _sigma(values: Floats) -> float:
    """As of a normal distribution, whatever a few of them are."""
    return max(float(np.median(np.abs(values - np.median(values)))) * MAD_TO_SIGMA, 1e-4)


# --- nodes and cards --------------------------------------------------------------------------------------------


def _node(run: Run) -> str | None:
    return run["node"]


def _card(run: Run) -> str | None:
    index = run["gpu_index"]
    return f"{run['node'] or ''}:{index}" if index is not None and "," not in index else None


def _slow_places(like: Sequence[tuple[Run, float]]) -> list[Suspect]:
    cards = list(_outliers(like, _card, "card"))
    slow = {suspect.name for suspect in cards}
    on: dict[str | None, set[str]] = {}
    for run, _ in like:
        if (card := _card(run)) is not None:
            on.setdefault(_node(run), set()).add(card)
    whole = {node for node, there in on.items() if len(there) > 1 and there <= slow}  # not its cards: all of it
    cards = [suspect for suspect in cards if suspect.name.rpartition(":")[0] not in whole]
    named = {suspect.name for suspect in cards}
    return [*cards, *_outliers([pair for pair in like if _card(pair[0]) not in named], _node, "node")]


def _outliers(like: Sequence[tuple[Run, float]], place_of: Any, kind: str) -> Iterator[Suspect]:
    """Places whose runs are slow, whoever's they are, against those of the other places."""
    places: dict[str, list[tuple[Run, float]]] = {}
    for run, residual in like:
        place = place_of(run)
        if place is not None:
            places.setdefault(place, []).append((run, residual))
    places = {place: there for place, there in places.items() if len(there) >= LEAST_RUNS}
    if len(places) < LEAST_RUNS:
        return
    within = _sigma(np.concatenate([_centred([residual for _, residual in there]) for there in places.values()]))
    medians = {place: float(np.median([residual for _, residual in there])) for place, there in places.items()}
    for place, there in places.items():
        others = np.array([median for other, median in medians.items() if other != place])
        between = _sigma(others) if len(others) > 2 else 0.0
        doubt = max(between, MEDIAN_ERROR * within / math.sqrt(len(there)))
        shift = medians[place] - float(np.median(others))
        slower = math.exp(shift) - 1
        if slower >= LEAST_SLOWER and shift > FAR * doubt:
            rest = [run for run, _ in like if place_of(run) != place]
            yield _suspect(kind, place, slower, [run for run, _ in there], rest)


def _centred(values: Sequence[float]) -> Floats:
    return np.asarray(values) - np.median(values)


# --- from a day on ----------------------------------------------------------------------------------------------


def _regression(like: Sequence[tuple[Run, float]]) -> Suspect | None:
    """The day from which on steps are slower, by Pettitt's test for a change at an unknown time."""
    dated = sorted(((run, residual) for run, residual in like if run["started_at"] is not None), key=lambda pair: pair[0]["started_at"])
    count = len(dated)
    if count < 2 * LEAST_LIKE:
        return None
    residuals = np.array([residual for _, residual in dated])
    ranks = residuals.argsort().argsort() + 1.0
    seen = np.arange(1, count + 1)
    sums = 2 * np.cumsum(ranks) - seen * (count + 1)
    chance = 2 * math.exp(-6 * float(np.abs(sums).max()) ** 2 / (count**3 + count**2))
    if chance > CHANGE_CHANCE:
        return None
    # Where the two levels fit best; single runs far off do not decide.
    sigma = _sigma(residuals)
    clipped = np.clip(residuals, *(np.median(residuals) + np.array([-FAR, FAR]) * sigma))
    total, sums = clipped.sum(), np.cumsum(clipped)[:-1]
    left = seen[:-1]
    gain = sums**2 / left + (total - sums) ** 2 / (count - left)
    gain[: LEAST_RUNS - 1] = gain[count - LEAST_RUNS :] = -np.inf
    split = int(np.argmax(gain)) + 1
    shift = float(np.median(residuals[split:]) - np.median(residuals[:split]))
    if math.exp(shift) - 1 < LEAST_SLOWER:
        return None
    before, after = [run for run, _ in dated[:split]], [run for run, _ in dated[split:]]
    day = datetime.fromtimestamp(after[0]["started_at"], UTC).date().isoformat()
    return _suspect("day", day, math.exp(shift) - 1, after, before)


# --- single runs ------------------------------------------------------------------------------------------------


def _slow_runs(like: Sequence[tuple[Run, float]]) -> Iterator[Suspect]:
    groups: dict[str, list[tuple[Run, float]]] = {}
    for run, residual in like:
        groups.setdefault(run["work"], []).append((run, residual))
    found = []
    for group in groups.values():
        sigma = _sigma(np.array([residual for _, residual in group]))
        for run, residual in group:
            if residual > max(FAR_ALONE * sigma, math.log1p(SINGLE_SLOWER)):
                found.append(_suspect("run", run["source"], math.exp(residual) - 1, [run], [other for other, _ in group if other is not run]))
    yield from sorted(found, key=lambda suspect: -suspect.hours)[:MOST_RUNS_NAMED]


# --- what else is different -------------------------------------------------------------------------------------


def _suspect(kind: str, name: str, slower: float, runs: Sequence[Run], like: Sequence[Run]) -> Suspect:
    hours = sum((run["wall_s"] or 0.0) * (run["world_size"] or 1) for run in runs) / HOUR_S
    lost = hours * slower / (1 + slower)
    return Suspect(kind, name, slower, len(runs), len(like), lost, tuple(_changes(runs, like)))


def _changes(runs: Sequence[Run], others: Sequence[Run]) -> Iterator[tuple[str, str, str]]:
    """Columns in which nearly all of these have a value that nearly none of the others has."""
    for column in _CANDIDATES:
        mine = Counter(run[column] for run in runs if run[column] is not None)
        theirs = Counter(run[column] for run in others if run[column] is not None)
        if not mine or not theirs:
            continue
        (value, count), (usual, _) = mine.most_common(1)[0], theirs.most_common(1)[0]
        if value != usual and count >= 0.8 * len(runs) and theirs[value] <= 0.2 * len(others):
            yield column, str(usual), str(value)
