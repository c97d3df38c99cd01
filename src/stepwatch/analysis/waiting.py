"""Waiting for data, where a recorder or the trainer itself times it: a cost, a part of the time, and its findings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from stepwatch.analysis.costs import MEASURED, Costs
from stepwatch.analysis.findings import INFO, NOTICE, SLEEP_RATIO, WARNING, Finding, Rule, held_up_by
from stepwatch.analysis.goodput import DATA, Split
from stepwatch.analysis.phases import Phase, Phases
from stepwatch.analysis.statistics import median, t_quantile
from stepwatch.messages import Message
from stepwatch.run import SLEEP_S, Run
from stepwatch.units import Interval

if TYPE_CHECKING:
    from stepwatch.analysis import Analysis


def _known(run: Run, phases: Phases) -> np.ndarray:
    """Rows that show what a step waits: not the first, which starts the loader, nor those of a machine that slept."""
    if run.inside is None:
        return np.zeros(len(run.iterations), bool)
    known = np.isfinite(run.inside.data_s) & (phases.phase != Phase.FIRST)
    if phases.baseline is not None:
        excess, times = phases.excess_s(run, np.arange(len(known))), run.iterations.time_s
        known &= (excess <= SLEEP_S) | (times <= SLEEP_RATIO * np.asarray(phases.baseline.time_s))
    return np.asarray(known)


def with_data(run: Run, phases: Phases, costs: Costs) -> Costs:
    """The costs with what an iteration waits for its data in the mean: sums need the mean."""
    known = _known(run, phases)
    if run.inside is None or not known.any():
        return costs
    data, covers = run.inside.data_s[known], phases.covers[known]
    mean, rows = float(np.average(data, weights=covers)), len(data)
    half = mean  # of a single row nothing shows how far others are from it
    if rows > 1:
        spread = math.sqrt(float(np.average((data - mean) ** 2, weights=covers)) * rows / (rows - 1))
        half = t_quantile(rows - 1) * spread / math.sqrt(rows)
    return replace(costs, data_s=Interval.around(mean, half), how={**costs.how, "data_s": MEASURED})


def taken_off(run: Run, phases: Phases, costs: Costs, split: Split) -> Split:
    """The split with the waiting apart: late data are why a step stalled, what is usual is part of every step."""
    if run.inside is None or costs.data_s is None:
        return split
    known = _known(run, phases)
    data = np.where(known, run.inside.data_s, costs.data_s.mid)
    beyond = np.where(known, data - median(run.inside.data_s[known]), 0.0)
    step, unexplained = split.column_s("step"), split.column_s("unexplained")
    late = np.minimum(np.maximum(beyond, 0.0, out=beyond), unexplained, out=beyond)
    data -= late
    within = np.minimum(data, step, out=data)
    parts = {part: split.column_s(part) for part in ("eval", "checkpoint", "compile")}
    parts = {part: column if column.any() else np.broadcast_to(0.0, len(column)) for part, column in parts.items()}
    step -= within
    unexplained -= late
    parts |= {"step": step, "unexplained": unexplained, DATA: np.add(late, within, out=within)}
    return Split(run.iterations.time_s, np.arange(len(step)), parts)


def data_wait(a: Analysis) -> Iterator[Finding]:
    share = a.data_share
    if a.costs.data_s is None or share is None:
        return
    facts = {"share": share, "lost": a.goodput.parts_s[DATA], "each": a.costs.data_s.mid}
    severity = WARNING if share >= 0.20 else NOTICE if share >= 0.05 else INFO
    text = Message(
        "The steps wait {share:pct} of their time for data: {each:time} each, {lost:time} in this log. More workers or "
        "prefetching in the loader, data prepared beforehand or a faster disk would recover most of it.",
        facts,
    )
    if severity == INFO:
        text = Message("The steps wait {share:pct} of their time for data: the loader keeps up.", facts)
    yield Finding("data_wait", severity, text)


def late_steps(a: Analysis) -> Iterator[Finding]:
    """Slow steps of which the record shows why: their data came late, or another rank did."""
    rows = np.flatnonzero(a.phases.of(Phase.STALL))
    if a.run.inside is None or not len(rows) or a.phases.baseline is None:
        return

    def facts(late: np.ndarray) -> dict[str, object]:
        at, lost = a.run.iterations.number[late].tolist(), float(a.phases.excess_s(a.run, late).sum())
        return {"at": at, "count": len(late), "lost": lost}

    late = rows[held_up_by(a, rows, a.run.inside.data_s)]
    if len(late):
        message = Message(
            "Iteration {at:ints} was slow because its data came late: {lost:time} lost.",
            facts(late),
            "{count:n} iterations ({at:ints}) were slow because their data came late: {lost:time} lost in all.",
            len(late),
        )
        yield Finding("late_data", NOTICE, message)
    late = rows[held_up_by(a, rows, a.run.inside.wait_s)]
    if len(late):
        message = Message(
            "Iteration {at:ints} was slow because it waited for another rank: {lost:time} lost.",
            facts(late),
            "{count:n} iterations ({at:ints}) were slow because they waited for another rank: {lost:time} lost in all.",
            len(late),
        )
        yield Finding("late_ranks", NOTICE, message)


RULES: tuple[Rule, ...] = (data_wait, late_steps)
