"""Where the time went: the wall time of the logged span, by part, unlogged iterations included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from stepwatch.analysis.costs import MEASURED, NOT_SEPARABLE, Costs
from stepwatch.analysis.phases import AVERAGES, STALL_RATIO, Phase, Phases
from stepwatch.analysis.statistics import median, pieces, t_quantile, total_s
from stepwatch.bounds import STEP_S
from stepwatch.run import SLEEP_S, Checkpoint, Evaluation, Floats, Ints, Run, column_of, rows_from
from stepwatch.units import Interval

# --- evaluations and checkpoints outside the printed times ------------------------------------------------------


_Events = Sequence[Evaluation] | Sequence[Checkpoint]


def with_unprinted_events(run: Run, phases: Phases, costs: Costs) -> Costs:
    """Adds the costs of events that no printed time includes; unknown if nothing shows them."""
    events: dict[str, _Events] = {
        kind: found
        for kind, found in (("eval", run.evaluations), ("checkpoint", run.checkpoints))
        if kind not in run.holds and found
    }
    if not events:
        return costs
    by_clock = _by_clock(run, phases, costs, events)
    how, found = dict(costs.how), {"eval": costs.eval_s, "checkpoint": costs.checkpoint_s}
    for kind, each in events.items():
        reported = _reported(each)
        how[f"{kind}_s"] = MEASURED if reported or by_clock[kind] else NOT_SEPARABLE
        found[kind] = _mean(reported, 0.0) if reported else _mean(by_clock[kind], 0.5)  # half a second for the clock
    return replace(costs, eval_s=found["eval"], checkpoint_s=found["checkpoint"], how=how)


def _reported(events: _Events) -> list[float]:
    return [event.took_s for event in events if event.took_s is not None]


def _mean(values: list[float], doubt_s: float) -> Interval:
    """The mean of the values, since sums need it."""
    if not values:
        return Interval.exactly(0.0)
    mid = max(float(np.mean(values)), 0.0)
    if len(values) == 1:
        return Interval.around(mid, 0.1 * mid + doubt_s)
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5
    return Interval.around(mid, t_quantile(len(values) - 1) * error + doubt_s / len(values) ** 0.5)


def _by_clock(run: Run, phases: Phases, costs: Costs, events: dict[str, _Events]) -> dict[str, list[float]]:
    """Time that the clock shows between two rows beyond their steps, if only evaluations or only saves are there."""
    rows, stamps = run.iterations, run.iterations.stamp_s
    found: dict[str, list[float]] = {"eval": [], "checkpoint": []}
    if run.reordered or len(rows) < 2 or np.isnan(stamps).all():
        return found
    covers, apart = phases.covers[1:], np.maximum(np.diff(rows.number), 1)
    expected = covers * rows.time_s[1:] + (apart - covers) * costs.step_s.mid
    excess = np.diff(stamps) - np.where((covers > 1) | (apart == 1), expected, apart * costs.step_s.mid)
    counts = {kind: np.zeros(len(excess), np.int64) for kind in found}
    for kind, each in events.items():
        after = rows_from(rows.line, column_of(each, "line")) - 1
        after = after[(after >= 0) & (after < len(excess))]  # only those between two rows
        counts[kind] = np.bincount(after, minlength=len(excess))
    pairs = (("checkpoint", "eval"), ("eval", "checkpoint"))
    for kind, other in pairs:
        found[kind] = _each(excess, counts[kind], counts[other] == 0)
    for kind, other in pairs:
        known = _reported(run.evaluations if other == "eval" else run.checkpoints) or found[other]
        if not found[kind] and known:  # they are never alone: what remains besides the others
            found[kind] = _each(excess - counts[other] * float(np.mean(known)), counts[kind], counts[other] > 0)
    return found


def _each(excess: Floats, counts: Ints, where: np.ndarray) -> list[float]:
    rows = np.flatnonzero(where & (counts > 0) & np.isfinite(excess))
    found = excess[rows] / counts[rows]
    # A pause of the process is not part of the event it fell on: it stays unexplained.
    usual = max(median(found), 0.0)
    values: list[float] = found[(found <= STALL_RATIO * usual) | (found - usual <= SLEEP_S)].tolist()
    return values


def _unprinted_s(run: Run, phases: Phases, costs: Costs, end: int, number: int) -> dict[str, float]:
    """Seconds that these events took, by part: before line `end`, or after it for iterations up to `number`.

    The last evaluation follows its step; what follows a printed total is not part of the run.
    """
    last = int(run.iterations.number[-1])
    events: dict[str, _Events] = {"eval": run.evaluations, "checkpoint": run.checkpoints}
    # A mean also covers what came before its own line.
    begin, first, covers = int(run.iterations.line[0]), int(run.iterations.number[0]), int(phases.covers[0])
    if covers > 1 and not run.reordered:
        placed = ((event.line, event.at) for found in events.values() for event in found if event.at is not None)
        begin = min([begin, *(line - 1 for line, at in placed if first - covers <= at <= first)])
    # A save at the end has the number of the iteration that would have followed; after an evaluation it counts with it.
    saved_at_end = [save.line for save in run.checkpoints if save.took_s is not None and save.at == number + 1]
    if number < 0 or phases.trailing is not None:
        saved_at_end = []
    spent: dict[str, float] = {}
    for part, cost in (("eval", costs.eval_s), ("checkpoint", costs.checkpoint_s)):
        if part not in run.holds and cost is not None:
            spent[part] = sum(
                cost.mid if event.took_s is None else event.took_s
                for event in events[part]
                if begin < event.line
                if event.line < end or (event.at is not None and event.at <= number) or event.line in saved_at_end
                if part != "eval" or run.reported_s is None or event.at is None or event.at <= last
            )
    return spent


# --- where the time went ----------------------------------------------------------------------------------------


PARTS = ("step", "eval", "checkpoint", "compile", "stall", "unexplained")
DATA = "data"  # a separate part if the log shows how long the steps wait for it
WITH_DATA = (PARTS[0], DATA, *PARTS[1:])
START = "start"  # a separate part in a record: from the start of the program to its first phase

# How much the printed times of a synchronised single card differ from the wall time: 1 % with an independent clock.
BASE_DOUBT = 0.012


class Split(NamedTuple):
    """The time of every row by part; the parts sum to the time, none is negative.

    Most rows are a step and nothing else: the parts are kept only for the others.
    """

    times_s: Floats
    rows: Ints
    parts: Mapping[str, Floats]

    def column_s(self, part: str, rows: slice = slice(None)) -> Floats:
        """One part of every row, or of some; waiting for data is 0 if it is unknown."""
        begin, end, _ = rows.indices(len(self.times_s))
        column = self.times_s[rows].copy() if part == "step" else np.zeros(end - begin)
        if part in self.parts:
            own = slice(*np.searchsorted(self.rows, (begin, end)))
            column[self.rows[own] - begin] = self.parts[part][own]
        return column

    def at(self, row: int) -> dict[str, float]:
        """The parts of one row."""
        place = int(np.searchsorted(self.rows, row))
        if place == len(self.rows) or self.rows[place] != row:
            return {"step": float(self.times_s[row])}
        return {part: float(seconds[place]) for part, seconds in self.parts.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """The wall time by part; the parts sum to wall_s. Includes iterations and evaluations that were not logged."""

    wall_s: float
    interval_s: Interval
    parts_s: dict[str, float]
    iterations: int
    by_clock: bool
    doubts: tuple[str, ...] = ()
    unsynchronised: float = 0.0
    """How much longer than printed an iteration may be, since the printed time does not wait for the device."""

    @property
    def steps_s(self) -> float:
        """The steps including their waiting for data, as in the printed times."""
        return self.parts_s["step"] + self.parts_s.get(DATA, 0.0)


def split_rows(run: Run, phases: Phases, costs: Costs) -> Split:
    times = run.iterations.time_s
    rows = np.flatnonzero(phases.phase != Phase.STEP)  # few: all others are step and nothing else
    phase, covers, whole = phases.phase[rows], phases.covers[rows], times[rows]
    base = phases.baseline.time_s[rows] if phases.baseline is not None else np.minimum(whole, costs.step_s.mid)
    rest = whole - np.minimum(whole, base)

    cost_eval = (costs.eval_s.mid if costs.eval_s else 0.0) / covers
    cost_save = (costs.checkpoint_s.mid if costs.checkpoint_s else 0.0) / covers
    both = phase == Phase.EVAL_CHECKPOINT
    share = np.where(both, cost_eval / np.maximum(cost_eval + cost_save, 1e-12), 1.0)
    # A stall may fall on an evaluation: time far beyond both costs is left unexplained. The costs are those at a normal
    # step; what slows the steps also slows evaluations.
    alone = costs.eval_s.high if costs.eval_s else np.inf
    pair = costs.pair_s.high if costs.pair_s else alone + (costs.checkpoint_s.high if costs.checkpoint_s else 0.0)
    slower = np.maximum(base / max(costs.step_s.mid, 1e-12), 1.0)
    most = STALL_RATIO * slower * np.where(both, pair, alone) / covers
    known = np.where((phase == Phase.EVAL) | both, np.minimum(rest, most), 0.0)
    first = phase == Phase.FIRST
    inside = np.where(first & phases.first_evaluates, np.minimum(rest, cost_eval), 0.0)
    saved = np.where(first & phases.first_saves, np.minimum(rest - inside, cost_save), 0.0)
    evaluation = known * share + inside
    checkpoint = (known - known * share) + saved + np.where(phase == Phase.CHECKPOINT, rest, 0.0)
    compilation = np.where(first, rest - inside - saved, 0.0)
    explained = evaluation + checkpoint + compilation
    left = rest - explained
    unexplained = np.where(left > 1e-12 * whole, left, 0.0)  # less is a rounding error of the subtraction
    step = np.maximum(whole - explained - unexplained, 0.0)
    parts = {"step": step, "eval": evaluation, "checkpoint": checkpoint, "compile": compilation}
    return Split(times, rows, {**parts, "unexplained": unexplained})


def find_goodput(run: Run, phases: Phases, costs: Costs, split: Split) -> Goodput:
    """Where the time went. Timestamps take precedence over the sum; the difference is unexplained or step."""
    stamped = not run.reordered and not np.isnan(run.iterations.stamp_s[[0, -1]]).any()
    clock = clock_wall_s(run, int(phases.covers[0])) if stamped else None
    first_line, last_line = run.iterations.line[[0, -1]].tolist()
    # The total of a trainer that prints one ends with the last step, and so does the clock of the rows.
    last = -1 if clock is not None and run.reported_s is not None else int(run.iterations.number[-1])
    outside = {} if run.holds >= {"eval", "checkpoint"} else _unprinted_s(run, phases, costs, last_line, last)
    parts, iterations, unlogged = _sums(run, phases, costs, split)
    parts |= {part: parts[part] + seconds for part, seconds in outside.items()}
    wall = sum(parts.values())
    if clock is not None and outside:  # the clock does not show what is before the first row and after the last
        before, up_to = (sum(_unprinted_s(run, phases, costs, line, -1).values()) for line in (first_line, last_line))
        clock += before + (sum(outside.values()) - up_to)
    elif (
        clock is None and run.reported_s is not None and run.reported_s > wall
    ):  # the difference lies between the parts, where nothing else shows it
        clock = run.reported_s
    if clock is not None:
        ends = run.iterations.stamp_s[[0, -1]]
        resolution_s = 1.0 if bool((ends % 1.0 == 0).all()) else 0.0
        if clock - wall > resolution_s or wall <= STEP_S.low * iterations:  # the printed digits show no time at all
            parts["unexplained"] += clock - wall
        else:
            parts = {name: value * clock / wall for name, value in parts.items()}
        return Goodput(
            wall_s=clock,
            interval_s=Interval.around(clock, 1.0 + 0.002 * clock),
            parts_s=parts,
            iterations=iterations,
            by_clock=True,
        )

    # Why the sum of printed times may be off. On runs with an independent clock it is up to 9 % too low with several
    # ranks or very short steps, since the device runs behind the host, and up to 28 % too high in forks that do extra
    # work on the iterations they log.
    doubts: list[str] = []
    down, up = BASE_DOUBT, BASE_DOUBT
    unlogged_share = unlogged / max(iterations, 1)
    if unlogged_share > 0.2:
        up += 0.02
        if run.busy_when_logging:
            doubts.append("busy")
            down += 0.33
        if run.distributed or (run.settings.count("world_size") or 1) > 1 or bool(phases.artefact.any()):
            doubts.append("ranks")
            up += 0.10 * unlogged_share
        elif costs.step_s.mid < 0.015 and run.settings.text("dtype") != "float16":  # a GradScaler waits
            doubts.append("short steps")
            up += 0.06 * unlogged_share
    share = (parts["step"] + parts.get(DATA, 0.0)) / wall if wall > 0 else 1.0
    step = costs.step_s
    relative = ((step.high - step.low) / 2 / step.mid if step.mid > 0 else 1.0) * share
    interval = Interval.exactly(wall).widened(down=relative + down * share, up=relative + up * share)
    imputed, cost = phases.unlogged_evals.total + (phases.trailing is not None), costs.pair_s or costs.eval_s
    if imputed and cost is not None:
        interval += Interval((cost.low - cost.mid) * imputed, 0.0, (cost.high - cost.mid) * imputed)
    return Goodput(
        wall_s=wall,
        interval_s=Interval(max(interval.low, 0.0), wall, interval.high),
        parts_s=parts,
        iterations=iterations,
        by_clock=False,
        doubts=tuple(doubts),
        unsynchronised=max(up - BASE_DOUBT, 0.0),
    )


def _sums(run: Run, phases: Phases, costs: Costs, split: Split) -> tuple[dict[str, float], int, float]:
    """The seconds of each part, the iterations that they cover, and how many of these no line covers."""
    covers, last = phases.covers, int(run.iterations.number[-1])
    usual = phases.baseline.time_s if phases.baseline is not None else np.full(len(covers), costs.step_s.mid)
    parts = dict.fromkeys(PARTS if costs.data_s is None else WITH_DATA, 0.0)
    waited = 0.0
    for rows in pieces(len(covers)):
        about, steps = covers[rows], split.column_s("step", rows)
        if costs.data_s is not None:
            data = split.column_s(DATA, rows)
            steps += data
            waited += total_s(data * about)
        artefact = phases.artefact[rows]  # no time is lost in it
        parts["step"] += total_s(steps * about)
        beyond = steps[artefact] - costs.mean_ratio * usual[rows][artefact]
        parts["step"] -= total_s(beyond * about[artefact])
        for part in ("eval", "checkpoint", "compile"):
            parts[part] += total_s(split.column_s(part, rows) * about)
        stalls, unexplained = phases.phase[rows] == Phase.STALL, split.column_s("unexplained", rows)
        parts["stall"] += total_s(unexplained[stalls] * about[stalls])
        parts["unexplained"] += total_s(unexplained * about)
    parts["compile"] += run.compile_s or 0.0
    parts["unexplained"] = max(parts["unexplained"] - parts["stall"], 0.0)

    missing = unseen = 0.0
    if phases.baseline is not None:  # otherwise nothing shows what the unlogged ones took
        number, between = run.iterations.number, 0.0
        for rows in pieces(len(covers) - 1):
            after = slice(rows.start + 1, rows.stop + 1)
            gaps = np.maximum(number[after] - number[rows] - covers[after], 0)
            missing += float(gaps.sum())
            between += total_s(gaps * (usual[after] + usual[rows]))
        parts["step"] += between / 2 * costs.mean_ratio
    evals, saves = phases.unlogged_evals.total, phases.unlogged_saves
    if phases.trailing is not None:  # the log ends with an evaluation: the steps before it were done too
        unseen = float(phases.trailing - 1 - last)
        parts["step"] += float(usual[-1]) * costs.mean_ratio * unseen
        evals += 1
        saves += bool((column_of(run.checkpoints, "at") == phases.trailing).any())
    if costs.pair_s is not None and saves == evals:
        share = min(costs.eval_s.mid / max(costs.pair_s.mid, 1e-12), 1.0) if costs.eval_s else 1.0
        parts["eval"] += evals * costs.pair_s.mid * share
        parts["checkpoint"] += evals * costs.pair_s.mid * (1 - share)
    else:
        parts["eval"] += evals * (costs.eval_s.mid if costs.eval_s else 0.0)
        parts["checkpoint"] += saves * (costs.checkpoint_s.mid if costs.checkpoint_s else 0.0)
    if costs.data_s is not None:  # iterations without a line wait as the others do
        parts[DATA] = min(waited + (missing + unseen) * costs.data_s.mid, max(parts["step"], 0.0))
        parts["step"] -= parts[DATA]
    # A trainer that prints means waits for its card, even if lines are missing.
    unlogged = 0.0 if run.timing in AVERAGES else max(missing - run.left_out, 0.0)
    return parts, int(covers.sum() + missing), unlogged


def clock_wall_s(run: Run, first_covers: int) -> float | None:
    """Seconds from the start of what the first line covers to the end of the last line, by the lines' own clock."""
    stamps = run.iterations.stamp_s
    span = float(stamps[-1] - stamps[0])
    return span + float(run.iterations.time_s[0]) * first_covers if span > 0 else None
