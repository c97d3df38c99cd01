"""What the terminal and the note say alike: the same sentences and rows, still as Messages."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stepwatch.advice import AdviceList
from stepwatch.analysis import Analysis
from stepwatch.analysis.costs import MEASURED, NOT_SEPARABLE
from stepwatch.analysis.findings import INFO, NOTICE, WARNING, Finding
from stepwatch.analysis.phases import Phase
from stepwatch.i18n import clean
from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.presenters import advice_sentences
from stepwatch.report import Report, settings_json
from stepwatch.run import Run
from stepwatch.settings import Origin
from stepwatch.units import Interval

WORTH_SAYING = 0.03
"""Stalls below this share of the wall time do not make the headline."""
SMALLEST_SHOWN = 0.0005
SMALLEST_STALLS = 0.005
SLOW_RATIO = 1.2
_PLAIN_ARGUMENT = Pattern(r"[\w.+-]+(?: [\w.+-]+)*")
_LONGEST_NAME = 60

PART_NAMES = {
    "step": Message("Training step"),
    "eval": Message("Evaluation"),
    "checkpoint": Message("Checkpoint"),
    "pair": Message("Evaluation and checkpoint"),
    "compile": Message("Compilation, warm-up"),
    "warm-up": Message("Warm-up"),
    "stall": Message("Stalls"),
    "unexplained": Message("Not explained"),
}
HOW = {
    "measured": Message("measured"),
    "modelled": Message("estimated"),
    "combined": Message("partly estimated"),
    NOT_SEPARABLE: Message("not separable"),
}
INFERRED = Message("inferred")
ORIGINS = {
    "log": Message("from the log"),
    "config": Message("from the config"),
    "user": Message("given by you"),
    "driver": Message("from the driver"),
    "calibrated": Message("measured on this machine"),
    "default": Message("default of the format"),
    "inferred": Message("inferred from the log"),
}
PHASE_MARKS = {Phase.EVAL: "e", Phase.EVAL_CHECKPOINT: "c", Phase.CHECKPOINT: "c", Phase.FIRST: "0", Phase.STALL: "!"}
_RANK = {WARNING: 0, NOTICE: 1, INFO: 2}


# --- what is known ----------------------------------------------------------------------------------------------


def step_known(a: Analysis) -> bool:
    return bool(a.costs.how.get("step_s") != NOT_SEPARABLE)


def share_of(a: Analysis, *parts: str) -> float:
    wall = a.goodput.wall_s
    return sum(a.goodput.parts_s.get(part, 0.0) for part in parts) / wall if wall > 0 else 0.0


def told_apart(a: Analysis) -> bool:
    """Whether evaluation and checkpoint may be shown as two costs."""
    return a.costs.pair_s is None or a.costs.how.get("eval_s") != NOT_SEPARABLE


def longest(report: Report) -> int:
    """The position of the run that took longest."""
    walls = [a.goodput.wall_s if math.isfinite(a.goodput.wall_s) else 0.0 for a in report.analyses]
    return walls.index(max(walls))


# --- the answer in one sentence ---------------------------------------------------------------------------------


def headline(a: Analysis) -> Message:
    facts = {
        "step": a.costs.step_s.mid, "most": a.costs.step_s, "interval": a.phases.eval_interval,
        "period": a.phases.periodic, "lost": a.goodput.parts_s["stall"], "share": share_of(a, "stall"),
    }  # fmt: skip
    if a.expected is not None and a.throughput.gpu is not None and len(a.run.iterations) < 2:
        return _headline_of_a_beginning(a, a.expected.step_s, a.throughput.gpu.name)
    if not step_known(a):
        if a.phases.of(Phase.EVAL, Phase.EVAL_CHECKPOINT).any():
            return Message(
                "Every iteration in this log holds an evaluation besides its step; "
                "a normal one takes less than {most:high}.",
                facts,
            )
        if len(a.run.iterations) == 1:
            return Message("The log holds a single iteration: what a normal one takes cannot be told from it.")
        return Message("No logged iteration is a training step alone; a normal one takes at most {most:high}.", facts)
    if _stalls_are_told(a):
        return Message(
            "A normal iteration takes {step:time}. The slow ones waited for their data or for another rank.", facts
        )
    if share_of(a, "stall") > WORTH_SAYING:
        on_period = _periodic_s(a)
        if 2 * on_period > a.goodput.parts_s["stall"]:
            return Message(
                "A normal iteration takes {step:time}. Every {period:n} iterations one is slow, which costs "
                "{share:pct} of the time; the log does not say why.",
                {**facts, "share": on_period / a.goodput.wall_s},
            )
        return Message(
            "A normal iteration takes {step:time}, but {share:pct} of the time, {lost:time}, "
            "was lost in stalls that the log does not explain.",
            facts,
        )
    if len(a.regimes.regimes) > 1:
        return _headline_of_regimes(a)
    return _headline_of_evaluations(a, facts) or _headline_without(a, facts)


def _periodic_s(a: Analysis) -> float:
    """What slow iterations that come at a period took beyond a normal one."""
    if a.phases.periodic is None:
        return 0.0
    rows = a.phases.of(Phase.STALL) & (a.run.iterations.number % a.phases.periodic == 0)
    return float((a.split.unexplained_s * a.phases.covers)[rows].sum())


def _stalls_are_told(a: Analysis) -> bool:
    """Whether a record tells of every slow iteration what it waited for."""
    codes = {finding.code for finding in a.findings}
    return bool(codes & {"late_data", "late_ranks"}) and not codes & {"stall", "sleep", "periodic_slowness"}


def _headline_of_a_beginning(a: Analysis, step: Interval, gpu: str) -> Message:
    facts = {"step": step, "gpu": gpu}
    if not len(a.run.iterations):
        return Message("The run has only begun. On a {gpu:word} a step should take {step:range}.", facts)
    return Message("The first iteration says little. On a {gpu:word} a step should take {step:range}.", facts)


def _headline_of_regimes(a: Analysis) -> Message:
    levels = [regime.step_s for regime in a.regimes.regimes]
    facts = {"fast": min(levels), "slow": max(levels), "count": len(levels)}
    if a.run.traits.schedules:
        return Message(
            "The length of a step changed from {fast:time} to {slow:time}: this trainer changes batch size and "
            "attention window during the run. That is meant.",
            facts,
        )
    return Message(
        "The speed changed during the run: a normal iteration takes {fast:time} at best and {slow:time} at worst.",
        facts,
    )


def _headline_of_evaluations(a: Analysis, facts: dict[str, object]) -> Message | None:
    alone = bool(a.phases.of(Phase.EVAL).any())
    saving = bool(a.phases.of(Phase.EVAL_CHECKPOINT).any())
    if not alone and not saving:
        if a.phases.of(Phase.CHECKPOINT).any():
            return Message(
                "A normal iteration takes {step:time}. The slow ones write a checkpoint; this is not a fault.", facts
            )
        return None
    if not a.run.evaluations:
        if a.phases.eval_interval is None:
            return Message("A normal iteration takes {step:time}. The slow ones have the size of evaluations.", facts)
        return Message(
            "A normal iteration takes {step:time}. The slow ones come every {interval:n} iterations, "
            "as evaluations do; this is not a fault.",
            facts,
        )
    if saving and alone:
        return Message(
            "A normal iteration takes {step:time}. The slow ones include an evaluation, some a checkpoint too; "
            "this is not a fault.",
            facts,
        )
    if saving:
        return Message(
            "A normal iteration takes {step:time}. The slow ones include an evaluation and a checkpoint; "
            "this is not a fault.",
            facts,
        )
    return Message(
        "A normal iteration takes {step:time}. The slow ones include an evaluation; this is not a fault.", facts
    )


def _headline_without(a: Analysis, facts: dict[str, object]) -> Message:
    if a.phases.periodic is not None:
        return Message(
            "A normal iteration takes {step:time}. Every {period:n} iterations one is slow, "
            "and the log does not say why.",
            facts,
        )
    stalled = int(a.phases.of(Phase.STALL).sum())
    if stalled:
        return Message(
            "A normal iteration takes {step:time}. One was slow, and the log does not say why.",
            {**facts, "count": stalled},
            "A normal iteration takes {step:time}. {count:n} were slow, and the log does not say why.",
            stalled,
        )
    if (a.run.iterations.time_s[a.phases.of(Phase.FIRST)] > SLOW_RATIO * a.costs.step_s.mid).any():
        return Message(
            "A normal iteration takes {step:time}. Only the first one is slow: it includes the warm-up.", facts
        )
    return Message("A normal iteration takes {step:time}, and none in this log is slow.", facts)


# --- the ranks of a run -----------------------------------------------------------------------------------------

RANKS = (Message("Rank"), Message("Own time of a step"), Message("Waited"), Message("Steps as the slowest"))
MOST_RANKS = 64


def rank_cells(a: Analysis) -> Iterator[tuple[Message, ...]]:
    """A row for each rank: its own time of a step, what it waited for others, and how often it was the slowest."""
    for row in (a.ranks.rows if a.ranks is not None else ())[:MOST_RANKS]:
        yield (
            Message("{rank:n}", {"rank": row.rank}),
            Message("{time:time}", {"time": row.own_s}) if row.own_s is not None else Message("–"),
            Message("{time:time}", {"time": row.wait_s}) if row.wait_s is not None else Message("–"),
            Message("{share:pct}", {"share": row.slowest}),
        )


# --- what each part costs ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRow:
    """One line of the table of parts; `seconds` and `share` are of the wall time."""

    part: str
    """The key of its name in PART_NAMES."""
    name: Message
    cost: Message
    how: Message | None
    count: int
    seconds: float
    share: float


def part_rows(a: Analysis) -> tuple[PartRow, ...]:
    """Empty where no normal iteration was seen: then nothing can be told apart from it."""
    return tuple(row for row in _part_rows(a) if row is not None) if step_known(a) else ()


def _part_rows(a: Analysis) -> Iterator[PartRow | None]:
    costs = a.costs
    yield _row(a, "step", costs.step_s, "step_s", a.goodput.iterations)
    if told_apart(a):
        yield _row(a, "eval", costs.eval_s, "eval_s", a.evaluations_done)
        yield _row(a, "checkpoint", costs.checkpoint_s, "checkpoint_s", a.checkpoints_done)
    else:
        yield _pair_row(a)
    warm_up = a.run.settings.flag("compile") is False
    yield _row(a, "compile", costs.compile_s, "compile_s", 1, "warm-up" if warm_up else None)
    yield _lost_row(a, "stall", int(a.phases.of(Phase.STALL).sum()))
    yield _lost_row(a, "unexplained", 0)


def _row(
    a: Analysis, part: str, cost: Interval | None, key: str, count: int, name: str | None = None
) -> PartRow | None:
    if cost is None:
        return None
    share = share_of(a, part) if cost.high > 0 or a.costs.how.get(key) != NOT_SEPARABLE else math.nan
    return PartRow(
        part=name or part, name=PART_NAMES[name or part], cost=cost_text(cost),
        how=_how(a, key), count=count, seconds=a.goodput.parts_s[part], share=share,
    )  # fmt: skip


def _how(a: Analysis, key: str) -> Message | None:
    """The time of rows that only their period makes evaluations is measured; that it is one's is not."""
    how = a.costs.how.get(key, "")
    silent = key == "eval_s" and not a.run.evaluations and a.phases.eval_interval_inferred
    return INFERRED if silent and how == MEASURED else HOW.get(how)


def _pair_row(a: Analysis) -> PartRow:
    assert a.costs.pair_s is not None
    parts = a.goodput.parts_s
    return PartRow(
        part="pair", name=PART_NAMES["pair"], cost=cost_text(a.costs.pair_s), how=HOW["measured"],
        count=a.checkpoints_done, seconds=parts["eval"] + parts["checkpoint"], share=share_of(a, "eval", "checkpoint"),
    )  # fmt: skip


def _lost_row(a: Analysis, part: str, count: int) -> PartRow | None:
    lost = a.goodput.parts_s[part]
    if share_of(a, part) < SMALLEST_SHOWN:
        return None
    cost = Message("{lost:time} in all", {"lost": lost})
    return PartRow(
        part=part, name=PART_NAMES[part], cost=cost, how=None, count=count, seconds=lost, share=share_of(a, part)
    )


def cost_text(cost: Interval) -> Message:
    if not cost.high > 0:
        return Message("unknown")
    return Message("{cost:range}", {"cost": cost})


def share_text(share: float) -> Message:
    if math.isnan(share):
        return Message("–")
    if 0 < share < SMALLEST_SHOWN:
        return Message("< {limit:pct}", {"limit": 2 * SMALLEST_SHOWN})
    return Message("{share:pct}", {"share": share})


# --- speed, time, forecast --------------------------------------------------------------------------------------


def speed(a: Analysis, *, short: bool = False) -> tuple[Message, ...]:
    """`short` is for a line with a label in front, otherwise whole sentences."""
    if not len(a.run.iterations):
        return (Message("Nothing is measured yet."),)
    said = (*_tokens_short(a), *_compute_short(a), *_normal(a)) if short else (*_tokens(a), *_compute(a))
    return said or (
        Message(
            "The log does not tell how many tokens an iteration holds: "
            "add --set tokens_per_iter=… for tokens per second."
        ),
    )


def _normal(a: Analysis) -> Iterator[Message]:
    """Is this speed normal? Slower is a warning of its own."""
    if any(finding.code == "speed_is_normal" for finding in a.findings):
        yield Message("That is normal for this card.")


def _rates(a: Analysis) -> tuple[dict[str, float | None], bool, bool]:
    t = a.throughput
    rates = {"normal": t.tokens_per_s, "overall": t.effective_tokens_per_s}
    normal, overall = (rate is not None and math.isfinite(rate) for rate in rates.values())
    return rates, normal, overall


def _tokens_short(a: Analysis) -> Iterator[Message]:
    rates, normal, overall = _rates(a)
    if normal and overall:
        yield Message("{normal:rate} ({overall:rate} overall).", rates)
    elif overall:
        yield Message("{overall:rate} overall.", rates)


def _tokens(a: Analysis) -> Iterator[Message]:
    rates, normal, overall = _rates(a)
    if normal and overall:
        yield Message(
            "The normal iterations process {normal:rate}. With everything counted it is {overall:rate}.", rates
        )
    elif overall:
        yield Message("With everything counted the run processes {overall:rate}.", rates)


def _flops(a: Analysis) -> dict[str, object] | None:
    t = a.throughput
    if t.achieved_flops is None or not math.isfinite(t.achieved_flops):
        return None
    believed = t.mfu is not None and t.possible  # else a finding says that it cannot be
    peak = t.peak_flops if believed else None
    name = t.gpu.name if t.gpu and (believed or t.mfu is None) else None
    return {"achieved": t.achieved_flops, "gpu": name, "peak": peak, "mfu": t.mfu, "cards": t.cards}


def _compute_short(a: Analysis) -> Iterator[Message]:
    facts = _flops(a)
    if facts is None:
        return
    several = a.throughput.cards > 1
    if facts["peak"] is None and several:
        yield Message("{achieved:tflops} on each of {cards:n} cards.", facts)
    elif facts["peak"] is None:
        yield Message("{achieved:tflops}.", facts)
    elif several:
        yield Message(
            "{achieved:tflops} on each of {cards:n} cards: MFU {mfu:pct}, {gpu:word} (peak {peak:tflops}).", facts
        )
    else:
        yield Message("{achieved:tflops}, an MFU of {mfu:pct} on {gpu:word} (peak {peak:tflops}).", facts)


def _compute(a: Analysis) -> Iterator[Message]:
    facts = _flops(a)
    if facts is None:
        return
    if a.throughput.cards > 1:
        yield Message("The work is shared by {cards:n} cards; the figures that follow are those of one.", facts)
    if facts["peak"] is not None:
        yield Message(
            "The normal iterations compute at {achieved:tflops}, an MFU of {mfu:pct} "
            "on the {gpu:word} (peak {peak:tflops}).",
            facts,
        )
    elif facts["gpu"] is not None:
        yield Message("The normal iterations compute at {achieved:tflops}. For the {gpu:word} no peak is known.", facts)
    else:
        yield Message("The normal iterations compute at {achieved:tflops}.", facts)


def time_spent(a: Analysis) -> Message:
    if not a.goodput.iterations:
        return Message("No iteration is done yet.")
    facts = {
        "wall": a.goodput.wall_s, "count": a.goodput.iterations, "share": share_of(a, "step"),
    }  # fmt: skip
    if not step_known(a):
        return Message(
            "{wall:time} for {count:n} iteration.", facts, "{wall:time} for {count:n} iterations.", a.goodput.iterations
        )
    return Message(
        "{wall:time} for {count:n} iteration; the training step took {share:pct} of it.", facts,
        "{wall:time} for {count:n} iterations; training steps took {share:pct} of it.", a.goodput.iterations,
    )  # fmt: skip


def forecast(a: Analysis) -> Message:
    f = a.forecast
    left = (f.max_iters or 0) - f.last_iteration
    facts = {
        "last": f.last_iteration, "end": f.max_iters, "total": f.total_s, "remaining": f.remaining_s,
        "left": left, "thousand": f.per_thousand_s, "count": 1000,
    }  # fmt: skip
    if f.done:
        return Message("The run reached its last iteration, {end:n}.", facts)
    if f.basis == "estimate" and f.total_s is not None:
        return Message("The whole run should take {total:range}, as far as can be told before it runs.", facts)
    if f.remaining_s is not None and f.total_s is not None:
        return Message(
            "{left:n} of {end:n} iterations is left: {remaining:range}; with the time in this log, {total:range}.",
            facts,
            "{left:n} of {end:n} iterations are left: {remaining:range}; with the time in this log, {total:range}.",
            left,
        )
    if f.per_thousand_s is None or not step_known(a):
        return Message("The log shows too little to tell how long the run will take.")
    return Message("{count:n} more iterations take {thousand:range}.", facts)


def forecast_notes(a: Analysis) -> tuple[Message, ...]:
    """What the forecast rests on."""
    f = a.forecast
    if f.done or not step_known(a):
        return ()
    notes = [Message("The ranges hold in nine of ten cases, if the machine goes on as it did.")]
    if a.costs.eval_s is not None and not a.costs.eval_s.high > 0:
        return tuple(notes)  # a finding says that evaluations are left out
    if f.assumed_no_evals:
        notes.append(Message("The log does not show how often the run evaluates, so the range is wide."))
    elif f.remaining_s is None and a.evaluations_done:
        notes.append(Message("They include the evaluations, as often as in this log."))
    elif f.evals_ahead:
        notes.append(Message(
            "They include {count:n} evaluation to come.", {"count": f.evals_ahead},
            "They include {count:n} evaluations to come.", f.evals_ahead,
        ))  # fmt: skip
    return tuple(notes)


# --- findings ---------------------------------------------------------------------------------------------------


def ranked(report: Report, a: Analysis) -> list[Finding]:
    """Warnings, then notices, then the rest; in the order of the analysis within each."""
    return sorted((*report.remarks, *a.findings), key=lambda finding: _RANK.get(finding.severity, 3))


def in_brief(finding: Finding, a: Analysis) -> Message:
    """For the first screen, where the line on speed and the next command say the rest."""
    printed = a.throughput.reported_mfu
    if finding.code != "mfu_other_card" or printed is None:
        return finding.message
    return Message(
        "The MFU of {printed:pct} in the log is measured against an A100, whatever the card.", {"printed": printed}
    )


def is_pressing(finding: Finding, a: Analysis) -> bool:
    """Warnings and notices, but no stalls that cost next to nothing."""
    if finding.code in ("stall", "periodic_slowness") and share_of(a, "stall") < SMALLEST_STALLS:
        return False
    return finding.severity in (WARNING, NOTICE)


# --- what to change ---------------------------------------------------------------------------------------------


def worthwhile(advised: AdviceList | None) -> tuple[Message, ...]:
    """The first change, in short: what, and what it saves."""
    chosen = [advice for advice in advised.advice if advice.remedy] if advised is not None else []
    if advised is None or not chosen:
        return ()
    return chosen[0].what, advice_sentences.saves(chosen[0], advised.before.total_s)


def changes(advised: AdviceList | None) -> Iterator[tuple[Message, ...]]:
    """A paragraph for each change that pays, or that there is nothing to gain."""
    if advised is None or not advised.advice:
        yield advice_sentences.headline(advised), *advice_sentences.nothing(advised)
        return
    for advice in advised.advice:
        yield *advice_sentences.sentence(advice, advised), advice_sentences.PRICE, advice.price


# --- slow iterations --------------------------------------------------------------------------------------------


class SlowRow(NamedTuple):
    iteration: int
    time_s: float
    mark: str
    holds: tuple[Message, ...]


def slow_rows(a: Analysis, most: int) -> tuple[tuple[SlowRow, ...], int]:
    """The slow iterations in order, and how many were left out: the first ones and the slowest stay."""
    if not step_known(a):
        return (), 0  # no normal iteration: nothing divides them into parts
    slow = np.flatnonzero(~a.phases.of(Phase.STEP))
    kept = slow
    if len(slow) > most:
        head, rest = slow[: most - most // 3], slow[most - most // 3 :]
        worst = rest[np.argsort(-a.run.iterations.time_s[rest], kind="stable")[: most // 3]]
        kept = np.sort(np.concatenate((head, worst)))
    return tuple(slow_row(a, row) for row in kept.tolist()), len(slow) - len(kept)


def slow_row(a: Analysis, row: int) -> SlowRow:
    return SlowRow(
        iteration=int(a.run.iterations.number[row]), time_s=float(a.run.iterations.time_s[row]),
        mark=PHASE_MARKS[Phase(int(a.phases.phase[row]))], holds=tuple(_holds(a, row)),
    )  # fmt: skip


def _holds(a: Analysis, row: int) -> Iterator[Message]:
    split = a.split
    step, evaluation, checkpoint = (float(column[row]) for column in (split.step_s, split.eval_s, split.checkpoint_s))
    compilation, rest = float(split.compile_s[row]), float(split.unexplained_s[row])
    shown = SMALLEST_SHOWN * float(a.run.iterations.time_s[row])
    if step > shown:
        yield Message("step {time:time}", {"time": step})
    if not told_apart(a) and checkpoint > 0:
        yield Message("evaluation and checkpoint {time:time}", {"time": evaluation + checkpoint})
    else:
        if evaluation > shown:
            yield Message("evaluation {time:time}", {"time": evaluation})
        if checkpoint > shown:
            yield Message("checkpoint {time:time}", {"time": checkpoint})
    if compilation > shown:
        yield Message("compilation and warm-up {time:time}", {"time": compilation})
    if rest > shown and a.phases.phase[row] == Phase.STALL:
        yield Message("stall {time:time}", {"time": rest})
    elif rest > shown:
        yield Message("not explained {time:time}", {"time": rest})


# --- the rest ---------------------------------------------------------------------------------------------------


def regime_sentences(a: Analysis) -> tuple[Message, ...]:
    return tuple(
        Message(
            "Iterations {begin:n} to {end:n}: {step:time}",
            {"begin": regime.from_iteration, "end": regime.to_iteration, "step": regime.step_s},
        )
        for regime in a.regimes.regimes
    )


def span(a: Analysis, first: int, last: int) -> Message:
    """The iterations between two rows."""
    begin, end = (int(a.run.iterations.number[row]) for row in (first, last))
    return Message("{first:n}–{last:n}", {"first": begin, "last": end})


def known_settings(a: Analysis) -> Iterator[tuple[str, str, Message]]:
    """Name, value and where it is known from; never one that may name a person or a place."""
    if len(a.run.iterations):
        first = {"line": int(a.run.iterations.line.min()) + 1}
        yield "format", a.run.format, Message("told by its lines, the first of them line {line:n}", first)
    values, origins = settings_json(a)
    for name, value in values.items():
        if value is not None:
            text = f"{value:.9g}" if isinstance(value, float) else clean(value)
            yield name, text, ORIGINS.get(origins.get(name, ""), ORIGINS["inferred"])


def run_cells(number: int, a: Analysis) -> tuple[Message, ...]:
    """One row of the table of runs: number, iterations, step, wall time, state."""
    step = Message("{step:time}", {"step": a.costs.step_s.mid}) if step_known(a) else Message("unknown")
    return (
        Message("{number:n}", {"number": number}),
        Message("{first:n}–{last:n}", {"first": int(a.run.iterations.number[0]), "last": a.forecast.last_iteration}),
        step,
        Message("{wall:time}", {"wall": a.goodput.wall_s}),
        run_state(a),
    )


def unstarted_cells(number: int, run: Run) -> tuple[Message, ...]:
    """The row, in the same table, of a run that has no iteration."""
    nothing = Message("–")
    return Message("{number:n}", {"number": number}), nothing, nothing, nothing, unstarted_state(run)


def run_rows(report: Report) -> Iterator[tuple[Message, ...]]:
    """The table of runs: those that came to an iteration first, as `--run` counts them."""
    for number, a in enumerate(report.analyses, start=1):
        yield run_cells(number, a)
    for number, run in enumerate(report.unstarted, start=len(report.analyses) + 1):
        yield unstarted_cells(number, run)


def overview_rows(report: Report) -> Iterator[tuple[Message, ...]]:
    """The same of a directory's runs, in which each has its name."""
    for number, a in enumerate(report.analyses, start=1):
        yield overview_cells(number, a)
    for number, run in enumerate(report.unstarted, start=len(report.analyses) + 1):
        count, *unknown, state = unstarted_cells(number, run)
        names = (Message("{name:word}", {"name": name}) for name in (run.source, run.format))
        yield count, *names, *unknown, *unknown, state


OVERVIEW = (
    Message("Run"), Message("Log"), Message("Format"), Message("Card"), Message("Iterations"), Message("Step"),
    Message("tokens/s"), Message("MFU"), Message("Steps’ share"), Message("State"),
)  # fmt: skip


def overview_cells(number: int, a: Analysis) -> tuple[Message, ...]:
    """One row of the table of a directory's runs."""
    t, nothing = a.throughput, Message("–")
    rates, normal, _ = _rates(a)
    return (
        Message("{number:n}", {"number": number}),
        Message("{name:word}", {"name": a.run.source}),
        Message("{name:word}", {"name": a.run.format}),
        Message("{name:word}", {"name": t.gpu.name}) if t.gpu is not None else nothing,
        Message("{count:n}", {"count": a.goodput.iterations}),
        Message("{step:time}", {"step": a.costs.step_s.mid}) if step_known(a) else nothing,
        Message("{rate:n}", {"rate": float(f"{rates['normal'] or 0:.3g}")}) if normal else nothing,
        Message("{share:pct}", {"share": t.mfu}) if t.mfu is not None and t.possible else nothing,
        Message("{share:pct}", {"share": share_of(a, "step")}) if step_known(a) else nothing,
        run_state(a),
    )


def unstarted_state(run: Run) -> Message:
    return Message("ended before its first iteration") if run.faults else Message("no iteration yet")


def run_state(a: Analysis) -> Message:
    if a.forecast.done:
        return Message("finished")
    if a.forecast.max_iters is not None:
        return Message("not finished")
    return Message("length unknown")


# --- what to ask next -------------------------------------------------------------------------------------------


class Next(NamedTuple):
    why: Message
    arguments: tuple[str, ...]
    """The command, to be joined by spaces; each is quoted already."""


def next_command(report: Report, a: Analysis, *, full: bool) -> Next | None:
    """The one command that would tell most more; None where there is nothing left to ask."""
    start = (report.command, _sources(report), *_given(a))
    if report.directory and not full:
        why = Message("To see it explained:") if report.count == 1 else Message("To see one of them:")
        return Next(why=why, arguments=(*start, f"--run {longest(report) + 1}"))
    if len(report.analyses) > 1 and not full:
        return Next(why=Message("To see another run:"), arguments=(*start, f"--run {1 if longest(report) else 2}"))
    if a.throughput.gpu is None and a.throughput.achieved_flops is not None:
        example = "cpu" if (a.run.settings.text("device") or "").startswith("cpu") else _example_card(a)
        why = Message("To see how much of your card is used, name it, for example:")
        return Next(why=why, arguments=(*start, f"--gpu {example}"))
    if a.forecast.max_iters is None and step_known(a):
        argument = f"--set max_iters={_round_number(2 * a.forecast.last_iteration)}"
        why = Message("To see when the run ends, give its length, for example:")
        return Next(why=why, arguments=(*start, argument))
    if not full:
        return Next(why=Message("To see everything:"), arguments=(*start, "--full"))
    if report.advice_of(a) is not None:
        advise = report.command.replace("explain", "advise", 1)
        why = Message("To see what to change, with the lines to paste:")
        return Next(why=why, arguments=(advise, *start[1:]))
    return None


def _example_card(a: Analysis) -> str:
    """One that could do what was measured."""
    needed = a.throughput.achieved_flops or 0.0
    return next((name for name, peak in (("4070", 58e12), ("4090", 165e12), ("h100", 989e12)) if needed < peak), "b200")


def _round_number(value: int) -> int:
    """One significant digit, so that it reads as an example."""
    return max(int(float(f"{value:.0e}")), 1000)


def _sources(report: Report) -> str:
    names = list(report.inputs or dict.fromkeys(a.run.source or "-" for a in report.analyses))
    if len(names) > 3 or any(len(name) > _LONGEST_NAME or clean(name) != name for name in names):
        return "LOG"
    return " ".join(_quoted(name) for name in names)


def _given(a: Analysis) -> Iterator[str]:
    """What the reader had given already, so that the next answer does not forget it."""
    if a.throughput.gpu is not None and a.throughput.gpu_origin == Origin.USER.value:
        yield f"--gpu {_quoted(clean(a.throughput.gpu.name))}"
    for name, setting in a.run.settings.items():
        if setting.origin is Origin.USER:
            value = setting.value
            whole = isinstance(value, float) and value == int(value)
            yield f"--set {_quoted(f'{name}={int(value) if whole else value}')}"


def _quoted(text: str) -> str:
    # Double quotes where they are enough: they work in every shell, single ones do not in cmd.exe.
    if " " in text and _PLAIN_ARGUMENT.fullmatch(text):
        return f'"{text}"'
    return text if text == "-" or _PLAIN_ARGUMENT.fullmatch(text) else shlex.quote(text)


def unread_lines(a: Analysis, most: int = 20) -> list[tuple[int, str]]:
    """Lines that no pattern understood, counted from 1, cleaned; shown only where the reader asked for them."""
    return [(unread.line + 1, clean(unread.text)) for unread in a.run.unread[:most]]


def title(a: Analysis) -> Message:
    if a.phases.of(Phase.STEP).all():
        return Message("What an iteration takes")
    return Message("Why some iterations are slow")
