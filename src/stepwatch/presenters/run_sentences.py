"""The sentences and figures of a run: what its document, its charts and the live screen share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from stepwatch.analysis import Analysis
from stepwatch.analysis.costs import MEASURED, MODELLED, NOT_SEPARABLE
from stepwatch.analysis.findings import SMALL_SHARE
from stepwatch.analysis.forecast import HIDDEN_S
from stepwatch.analysis.goodput import START
from stepwatch.analysis.phases import Phase
from stepwatch.bounds import CLOCK_S
from stepwatch.messages import Message
from stepwatch.presenters.document import STEP, UNKNOWN, Badge, Headline, Table, Text, count, time
from stepwatch.units import Interval
from stepwatch.verdict import ENDED, Status, Verdict

if TYPE_CHECKING:
    from stepwatch.report import RunReport


SMALLEST_SHOWN = 0.0005

PART_NAMES = {
    "step": Message("Training step"),
    "data": Message("Waiting for data"),
    "eval": Message("Evaluation"),
    "checkpoint": Message("Checkpoint"),
    "pair": Message("Evaluation and checkpoint"),
    "compile": Message("Compilation, warm-up"),
    "warm-up": Message("Warm-up"),
    "start": Message("Start-up"),
    "stall": Message("Stalls"),
    "regular": Message("Regularly slow"),
    "unexplained": Message("Not explained"),
}
HOW = {
    "measured": Message("measured"),
    "modelled": Message("estimated"),
    "combined": Message("partly estimated"),
    NOT_SEPARABLE: Message("not separable"),
}
# The letters of the text chart in drawing order: what the log explains is drawn over everything else.
MARKS = {
    "!": (Phase.STALL,),
    STEP: (Phase.STEP,),
    "e": (Phase.EVAL,),
    "c": (Phase.CHECKPOINT, Phase.EVAL_CHECKPOINT),
    "0": (Phase.FIRST,),
}
PART_MARKS = {
    "step": "█", "data": "d", "eval": "e", "checkpoint": "c", "pair": "c", "compile": "0", "warm-up": "0",
    "start": "s", "stall": "!", "regular": "!", "unexplained": "?",
}  # fmt: skip
"""The characters of a bar: the same as in the chart, so that readers learn only one legend."""


# --- what is known ----------------------------------------------------------------------------------------------


def share_of(a: Analysis, *parts: str) -> float:
    wall = a.goodput.wall_s
    return sum(a.goodput.parts_s.get(part, 0.0) for part in parts) / wall if wall > 0 else 0.0


def separable(a: Analysis) -> bool:
    """Whether evaluation and checkpoint may be shown as two costs."""
    return a.costs.pair_s is None or a.costs.how.get("eval_s") != NOT_SEPARABLE


# --- what each part costs ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRow:
    """One line of the table of parts; `seconds` and `share` are of the wall time."""

    part: str
    """The key of its name in PART_NAMES."""
    cost: Message
    how: Message | None
    count: int
    seconds: float
    share: float


def part_rows(a: Analysis) -> tuple[PartRow, ...]:
    """Empty if no normal iteration was seen: without one the parts cannot be separated."""
    if not a.costs.step_known:
        return ()
    costs, parts_s = a.costs, a.goodput.parts_s
    warm_up = a.run.settings.flag("compile") is False
    priced: list[tuple[str, str, Interval | None, int]] = [("step", "step", costs.step_s, a.goodput.iterations)]
    if share_of(a, "data") >= SMALLEST_SHOWN:
        priced.append(("data", "data", costs.data_s, a.goodput.iterations))
    if separable(a):
        priced.append(("eval", "eval", costs.eval_s, a.phases.evaluations))
        priced.append(("checkpoint", "checkpoint", costs.checkpoint_s, a.phases.checkpoints))
    priced.append(("compile", "warm-up" if warm_up else "compile", costs.compile_s, 1))
    rows = []
    for part, name, cost, times in priced:
        if cost is None or (part == "compile" and parts_s[part] == 0 and cost.high < costs.step_s.mid):
            continue  # no start is visible
        how = costs.how.get(f"{part}_s", "")
        # If rows are evaluations only by their period, their time is measured, but not that it is an evaluation's.
        silent = part == "eval" and not a.run.evaluations and a.phases.eval_interval_inferred
        known = cost.high > 0
        rows.append(
            PartRow(
                part=name,
                cost=time(cost) if known else Message("unknown"),
                how=Message("inferred") if silent and how == MEASURED else HOW.get(how),
                count=times,
                seconds=parts_s[part],
                # A part that cannot be separated and has no time has an unknown share.
                share=share_of(a, part)
                if a.goodput.iterations and (how != NOT_SEPARABLE or (known and parts_s[part] > 0))
                else math.nan,
            )
        )
    if not separable(a):
        assert costs.pair_s is not None
        pair = PartRow(
            part="pair",
            cost=time(costs.pair_s),
            how=HOW["measured"],
            count=a.phases.checkpoints,
            seconds=parts_s["eval"] + parts_s["checkpoint"],
            share=share_of(a, "eval", "checkpoint"),
        )
        rows.insert(sum(row.part in ("step", "data") for row in rows), pair)
    start_s, share = parts_s.get(START, 0.0), share_of(a, START)
    if share >= SMALLEST_SHOWN:
        seen = HOW["measured"]
        rows.append(PartRow(part=START, cost=time(start_s), how=seen, count=1, seconds=start_s, share=share))
    stalled = a.phases.of(Phase.STALL)
    slow = "stall" if stalled.any() and not a.phases.regular[stalled].all() else "regular"
    for part, name, times in (("stall", slow, int(stalled.sum())), ("unexplained", "unexplained", 0)):
        lost, share = parts_s[part], share_of(a, part)
        if share >= SMALLEST_SHOWN:
            cost_text = Message("{lost:time} in all", {"lost": lost})
            rows.append(PartRow(part=name, cost=cost_text, how=None, count=times, seconds=lost, share=share))
    return tuple(rows)


def share_text(share: float) -> Message:
    if math.isnan(share):
        return UNKNOWN
    if 0 < share < SMALLEST_SHOWN:
        return Message("< {limit:pct}", {"limit": 2 * SMALLEST_SHOWN})
    return Message("{share:pct}", {"share": share})


def time_by_part(a: Analysis) -> Table:
    """The parts with a known share."""
    rows = tuple(
        (PART_NAMES[row.part], time(row.seconds), share_text(row.share))
        for row in part_rows(a)
        if not math.isnan(row.share)
    )
    return Table((Message("Part"), Message("Time"), Message("Share")), "lrr", rows)


# --- the strip of figures ---------------------------------------------------------------------------------------


def figures(run: RunReport) -> Iterator[Text]:
    """Step with its spread, MFU with the usual range, overhead, and when the run ends or how long it took."""
    a, t = run.analysis, run.analysis.throughput
    no_step_seen = a.costs.how.get("step_s") == MODELLED
    if a.costs.step_known and len(a.run.iterations):
        low, high = a.step_spread_s or (0.0, 0.0)
        step: tuple[Message, ...] = (time(a.costs.step_s.mid),)
        if no_step_seen:
            step = (time(a.costs.step_s), HOW[MODELLED])
        elif f"{low:.3g}" != f"{high:.3g}":  # as displayed
            note = Message("(spread: nine in ten between {low:time} and {high:time})", {"low": low, "high": high})
            step = (*step, note)
        yield Text(step, label=Message("Step"))
    mfu = t.mfu if t.mfu is not None else t.least_mfu
    if mfu is not None and t.possible and t.gpu is not None:
        facts: dict[str, Any] = {"gpu": t.gpu.name, "normal": t.normal_mfu}
        note = Message("of the {gpu:word}", facts)
        if t.normal_mfu is not None:
            facts |= {"low": t.normal_mfu.low, "high": t.normal_mfu.high}
            note = Message("of the {gpu:word} (usual: {low:pct} to {high:pct})", facts)
            if t.mfu is not None and any(finding.code == "mfu_other_card" for finding in a.findings):
                facts["printed"] = t.reported_mfu
                note = Message(
                    "of the {gpu:word} (usual: {low:pct} to {high:pct}); {printed:pct} in the log is for an A100", facts
                )
        share = Message("{share:pct}") if t.mfu is not None else Message("≥ {share:pct}")
        yield Text((share._replace(params={"share": mfu}), note), label=Message("MFU"))
    if t.tokens_per_s is not None and math.isfinite(t.tokens_per_s):
        yield Text((Message("{rate:rate}", {"rate": t.tokens_per_s}),), label=Message("Speed"))
    other = 1 - share_of(a, "step")
    shown = a.shows_parts or other >= SMALL_SHARE
    if a.costs.step_known and not no_step_seen and a.goodput.wall_s > 0 and shown:
        share = Message("{share:pct}") if a.shows_parts else Message("≥ {share:pct}")
        note = Message("of the time is not spent on training steps")
        yield Text((share._replace(params={"share": other}), note), label=Message("Overhead"))
    if a.goodput.iterations:
        facts = {"wall": a.goodput.wall_s, "count": a.goodput.iterations}
        note = Message("for {count:n} iteration", facts, "for {count:n} iterations", a.goodput.iterations)
        yield Text((time(a.goodput.wall_s), note), label=Message("Took"))
    left, thousand = a.forecast.remaining_s, a.forecast.per_thousand_s
    if left is not None and not a.forecast.done:
        note = Message("(once it runs again)")
        if run.ends_s is not None:
            note = Message("(ends about {ends:clock})", {"ends": run.ends_s.mid})
        sayable = run.ends_s is None or CLOCK_S.holds(run.ends_s.mid)
        yield Text((time(left), note) if sayable else (time(left),), label=Message("Left"))
    elif not a.forecast.done and run.verdict.status not in ENDED and thousand is not None and a.costs.step_known:
        note = Message("for {count:n} more iterations", {"thousand": thousand, "count": 1000})
        yield Text((time(thousand), note), label=Message("Ahead"))


# --- speed, time, forecast --------------------------------------------------------------------------------------


def speed(a: Analysis, *, short: bool = False) -> tuple[Message, ...]:
    """`short` is for a line after a label; otherwise whole sentences."""
    if not len(a.run.iterations):
        return (Message("Nothing is measured yet."),)
    rates = {"normal": a.throughput.tokens_per_s, "overall": a.throughput.effective_tokens_per_s}
    normal, overall = (rate is not None and math.isfinite(rate) for rate in rates.values())
    said = []
    if normal and overall and short:
        said.append(Message("{normal:rate} ({overall:rate} overall).", rates))
    elif normal and overall:
        said.append(Message("The normal iterations process {normal:rate}. Overall it is {overall:rate}.", rates))
    elif overall and short:
        said.append(Message("{overall:rate} overall.", rates))
    elif overall:
        said.append(Message("Overall the run processes {overall:rate}.", rates))
    said += _compute(a, short=short)
    if short and any(finding.code == "speed_is_normal" for finding in a.findings):
        said.append(Message("That is normal for this card."))  # there is a separate warning if it is slower
    unknown = Message(
        "The log does not show how many tokens an iteration has: add --set tokens_per_iter=… for tokens per second."
    )
    return tuple(said) or (unknown,)


def _compute(a: Analysis, *, short: bool) -> Iterator[Message]:
    t = a.throughput
    if t.achieved_flops is None or not math.isfinite(t.achieved_flops):
        return
    believed = t.mfu is not None and t.possible and t.peak_flops is not None  # else a finding says it is impossible
    named = t.gpu is not None and t.mfu is None
    facts = {
        "achieved": t.achieved_flops,
        "gpu": t.gpu.name if t.gpu is not None else None,
        "peak": t.peak_flops,
        "mfu": t.mfu,
        "cards": t.cards,
    }
    if t.cards > 1 and not short:
        yield Message("The work is shared by {cards:n} cards; the figures that follow are those of one.", facts)
    if short and believed and t.cards > 1:
        text = Message("{achieved:tflops} on each of {cards:n} cards: MFU {mfu:pct}, {gpu:word} (peak {peak:tflops}).")
    elif short and believed:
        text = Message("{achieved:tflops}, an MFU of {mfu:pct} on {gpu:word} (peak {peak:tflops}).")
    elif short:
        text = (
            Message("{achieved:tflops} on each of {cards:n} cards.") if t.cards > 1 else Message("{achieved:tflops}.")
        )
    elif believed:
        text = Message(
            "The normal iterations compute at {achieved:tflops}, an MFU of {mfu:pct} on the {gpu:word} (peak {peak:tflops})."
        )
    elif named:
        text = Message("The normal iterations compute at {achieved:tflops}. The peak of the {gpu:word} is unknown.")
    else:
        text = Message("The normal iterations compute at {achieved:tflops}.")
    yield text._replace(params=facts)


def forecast(a: Analysis) -> Message:
    f = a.forecast
    left = (f.max_iters or 0) - f.last_iteration
    facts = {"end": f.max_iters, "total": f.total_s, "remaining": f.remaining_s, "left": left}
    if f.done:
        return Message("The run reached its last iteration, {end:n}.", facts)
    if f.basis == "estimate" and f.total_s is not None:
        return Message("The whole run should take {total:range}, by an estimate made before it runs.", facts)
    if f.remaining_s is not None and f.total_s is not None:
        return Message(
            "{left:n} of {end:n} iterations is left: {remaining:range}; with the time in this log, {total:range}.",
            facts,
            "{left:n} of {end:n} iterations are left: {remaining:range}; with the time in this log, {total:range}.",
            left,
        )
    if f.per_thousand_s is None or not a.costs.step_known:
        return Message("The log shows too little to say how long the run will take.")
    return Message("{count:n} more iterations take {thousand:range}.", {"thousand": f.per_thousand_s, "count": 1000})


def forecast_notes(a: Analysis) -> Iterator[Message]:
    """What the forecast is based on."""
    f = a.forecast
    if f.done or not a.costs.step_known:
        return
    yield Message("The ranges hold in nine of ten cases, if the machine keeps its speed.")
    if a.costs.eval_s is not None and not a.costs.eval_s.high > 0:
        return  # a finding says that evaluations are left out
    if f.assumed_no_evals:
        yield Message("The log does not show how often the run evaluates, so the range is wide.")
    elif f.remaining_s is None and a.phases.evaluations:
        yield Message("They include the evaluations, as often as in this log.")
    elif f.evals_ahead:
        ahead, facts = f.evals_ahead, {"count": f.evals_ahead}
        yield Message(
            "They include {count:n} evaluation to come.", facts, "They include {count:n} evaluations to come.", ahead
        )
    for reason in f.reasons:
        yield _REASONS[reason]._replace(params={"limit": a.run.limit_s, "hidden": HIDDEN_S.high})


_REASONS = {
    "limit": Message(
        "The trainer stops at its limit of {limit:time} of training; the number of iterations is what fits into it at the present speed."
    ),
    "schedule": Message(
        "The trainer makes its steps longer during the run (a larger batch or window), and the log does not say by how much: the upper end allows for steps that become half as long again."
    ),
    "evaluations": Message(
        "The log shows no evaluation yet. A run that evaluates later takes longer: the upper end allows for a fifth of the rest."
    ),
    "levels": Message(
        "The step time has changed during the run and may change back: the range covers the levels so far."
    ),
    "slower": Message(
        "Steps are becoming slower. The forecast is for the present speed; the range reaches from the speed at the beginning to the one if this goes on for as long again."
    ),
    "faster": Message(
        "Steps are becoming faster. The forecast is for the present speed; the range reaches from the speed at the beginning to the one if this goes on for as long again."
    ),
    "patience": Message(
        "The trainer stops early when the model no longer becomes better (patience): the lower end allows for it."
    ),
    "hidden": Message(
        "The log does not show what passes between two epochs (saving, starting the data loader): the range allows for up to {hidden:time} each time."
    ),
}


# --- slow iterations --------------------------------------------------------------------------------------------


def slow_rows(a: Analysis, most: int) -> tuple[list[int], int]:
    """The slow iterations in order, and how many were left out: the first ones and the slowest are kept."""
    if not a.costs.step_known:
        return [], 0  # without a normal iteration nothing can be divided into parts
    slow = np.flatnonzero(~a.phases.of(Phase.STEP))
    kept = slow
    if len(slow) > most:
        head, rest = slow[: most - most // 3], slow[most - most // 3 :]
        worst = rest[np.argsort(-a.run.iterations.time_s[rest], kind="stable")[: most // 3]]
        kept = np.sort(np.concatenate((head, worst)))
    return kept.tolist(), len(slow) - len(kept)


def slow_row(a: Analysis, row: int) -> tuple[Message, Message, Message]:
    """A slow iteration, its time, and what it includes."""
    parts = [_HOLDS[part]._replace(params={"time": seconds}) for part, seconds in slow_parts(a, row).items()]
    number, seconds = int(a.run.iterations.number[row]), float(a.run.iterations.time_s[row])
    return count(number), time(seconds), Message("{parts:sum}", {"parts": parts})


_HOLDS = {
    "step": Message("step {time:time}"),
    "data": Message("waiting for data {time:time}"),
    "pair": Message("evaluation and checkpoint {time:time}"),
    "eval": Message("evaluation {time:time}"),
    "checkpoint": Message("checkpoint {time:time}"),
    "compile": Message("compilation and warm-up {time:time}"),
    "stall": Message("stall {time:time}"),
    "unexplained": Message("not explained {time:time}"),
}


def slow_parts(a: Analysis, row: int) -> dict[str, float]:
    """The parts of a slow iteration that are worth mentioning, in seconds."""
    values = a.split.at(row)
    if not separable(a) and values.get("checkpoint", 0.0) > 0:
        values["pair"] = values.pop("eval") + values.pop("checkpoint")
    if a.phases.phase[row] == Phase.STALL:
        values["stall"] = values.pop("unexplained", 0.0)
    shown = SMALLEST_SHOWN * float(a.run.iterations.time_s[row])
    return {part: values[part] for part in _HOLDS if values.get(part, 0.0) > shown}


def rows_between(a: Analysis, first: int, last: int) -> Message:
    """The iterations between two rows."""
    begin, end = (int(a.run.iterations.number[row]) for row in (first, last))
    return Message("{first:n}–{last:n}", {"first": begin, "last": end})


def step_time(a: Analysis) -> Message | None:
    return time(a.costs.step_s.mid) if a.costs.step_known else None


# --- the verdict: a badge, one sentence, and the first thing to do ----------------------------------------------


# A shape for each tone: one reader in twelve cannot rely on colour alone.
BADGES = {
    Status.CRASHED: Badge("✖", Message("Crashed"), "bad"),
    Status.DIVERGED: Badge("✖", Message("Diverged"), "bad"),
    Status.STOPPED: Badge("■", Message("Stopped"), "bad"),
    Status.ASLEEP: Badge("▲", Message("Asleep"), "poor"),
    Status.STALLING: Badge("▲", Message("Stalling"), "poor"),
    Status.SLOW: Badge("▲", Message("Slow"), "poor"),
    Status.SLOWING: Badge("▲", Message("Slowing down"), "poor"),
    Status.UNSTEADY: Badge("▲", Message("Unsteady"), "poor"),
    Status.OVERHEAD: Badge("◆", Message("Overhead"), "poor"),
    Status.HEALTHY: Badge("✔", Message("Healthy"), "good"),
    Status.BEGUN: Badge("○", Message("Begun"), "open"),
    Status.UNKNOWN: Badge("?", Message("Unknown"), "open"),
}


def verdict_headline(verdict: Verdict) -> Headline:
    """The headline of a verdict; includes the remedy unless it is listed below with what it saves."""
    paragraphs = [(verdict.text,)]
    if verdict.remedy is not None and verdict.saves_s is None:
        paragraphs.append((verdict.remedy,))
    badge = BADGES[verdict.status]
    return Headline(tuple(paragraphs), alarm=badge.tone == "bad", badge=badge)
