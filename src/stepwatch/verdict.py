"""The verdict on a run: one status and one sentence, shown before everything else."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stepwatch.analysis.costs import MODELLED, NOT_SEPARABLE
from stepwatch.analysis.findings import cause_of_end
from stepwatch.analysis.phases import LARGE_RATIO, SPIKE_NOISES, SPIKE_RATIO, Phase
from stepwatch.analysis.statistics import median, pieces
from stepwatch.analysis.throughput import SMALLEST_CHANGE
from stepwatch.bounds import YEAR_S
from stepwatch.messages import Message
from stepwatch.run import Fault, Timing, iterations_of
from stepwatch.settings import Origin
from stepwatch.units import DAY_S, HOUR_S, Interval

if TYPE_CHECKING:
    from stepwatch.advice import Advice, AdviceList
    from stepwatch.analysis import Analysis

LEAST_DRIFT = 0.05  # from the first fifth of a run to its last; less is not clearly a drift
LOST_SHARE = 0.03  # of the wall time, in stalls
OVERHEAD_SHARE = 0.10  # of the time, as in the table of parts; for the start-up, of the whole run
YEARLESS_S = 949363200.0  # 2000-02-01: readers put dates without a year into 2000, times without a date into its start


class Status(StrEnum):
    """The most serious first."""

    CRASHED = "crashed"
    DIVERGED = "diverged"
    STOPPED = "stopped"
    ASLEEP = "asleep"
    STALLING = "stalling"
    SLOW = "slow"
    SLOWING = "slowing"
    UNSTEADY = "unsteady"
    OVERHEAD = "overhead"
    HEALTHY = "healthy"
    BEGUN = "begun"
    UNKNOWN = "unknown"


ENDED = frozenset({Status.CRASHED, Status.DIVERGED, Status.STOPPED})
"""Not worth waiting for the end of a run with one of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The one thing to say first, and what to do about it."""

    status: Status
    text: Message
    because: tuple[str, ...] = ()
    """Codes of the findings that it is based on."""
    remedy: Message | None = None
    saves_s: Interval | None = None
    line: int | None = None
    """The line of the log that shows it, counted from 1."""

    @property
    def gravity(self) -> int:
        """0 for the most serious status."""
        return list(Status).index(self.status)

    @property
    def is_problem(self) -> bool:
        return self.gravity < list(Status).index(Status.HEALTHY)


class Evidence(NamedTuple):
    """A run, and everything that its verdict is based on."""

    analysis: Analysis
    advice: AdviceList | None
    now_s: float | None = None
    followed: bool = False
    """Another process starts after this run in the same log."""
    ended: bool = False
    """No more lines will come."""
    fault: Fault | None = None
    """Why the process ended, if the log says so."""

    def sentence(self, code: str) -> Message:
        return next(finding.message for finding in self.analysis.findings if finding.code == code)

    def advised(self, *rules: str) -> Advice | None:
        """The first advice by one of these rules; without rules, the first that says what to change."""
        found = self.advice.advice if self.advice is not None else ()
        return next((one for one in found if (one.rule in rules if rules else one.remedy)), None)


def judge(
    analysis: Analysis,
    advice: AdviceList | None = None,
    *,
    now_s: float | None = None,
    followed: bool = False,
    ended: bool = False,
) -> Verdict:
    """The most serious verdict that applies; `now_s` is the current time, to see whether the log still grows."""
    fault = cause_of_end(analysis.run) if analysis.run.faults else None
    evidence = Evidence(analysis, advice, now_s, followed, ended, fault)
    codes, run = {finding.code for finding in analysis.findings}, analysis.run
    beside_steps_s = sum(analysis.goodput.parts_s[part] for part in ("eval", "checkpoint", "compile"))
    # The most serious first, each with its precondition: a finding, or another sign of it.
    rules: tuple[tuple[Callable[[Evidence], Verdict | None], object], ...] = (
        (crashed, fault is not None and fault.kind != "interrupted"),
        (diverged, "loss_nan" in codes),
        (stopped, fault is not None or "max_iters" in run.settings),
        (too_little, len(run.iterations) < 2 or not analysis.costs.step_measured),
        (asleep, "sleep" in codes),
        (stalling, codes & {"stall", "late_data", "late_ranks"}),
        (waiting, "data_wait" in codes),
        (slow, analysis.machine is not None or codes & {"slower_than_expected", "low_mfu"}),
        (slowing, codes & {"regime_change", "drift"}),
        (unsteady, codes & {"regime_change", "uneven_steps"}),
        (overhead, analysis.phases.periods or beside_steps_s > OVERHEAD_SHARE * analysis.goodput.wall_s),
        (doubtful, codes & {"impossible_figure", "few_iterations"}),
        (healthy, True),
    )
    asked = (rule for rule, there_is in rules if there_is)
    return next(verdict for rule in asked if (verdict := rule(evidence)) is not None)


# --- it ended ---------------------------------------------------------------------------------------------------

_ENDINGS = {
    "out of memory": Message("The run ran out of GPU memory after iteration {last:n}: “{quote:quote}”"),
    "disk full": Message("The disk was full after iteration {last:n}: “{quote:quote}”"),
    "cuda error": Message("The run crashed with a CUDA error after iteration {last:n}: “{quote:quote}”"),
    "nccl error": Message("The ranks lost contact after iteration {last:n}: “{quote:quote}”"),
    "killed": Message("The run was killed after iteration {last:n}: “{quote:quote}”"),
    "error": Message("The run crashed after iteration {last:n}: “{quote:quote}”"),
    "traceback": Message("The run crashed after iteration {last:n}; its traceback begins in line {line:n}."),
}
_ENDINGS_BEFORE = {
    "out of memory": Message("The run ran out of GPU memory before its first iteration: “{quote:quote}”"),
    "disk full": Message("The disk was full before the first iteration: “{quote:quote}”"),
    "cuda error": Message("The run crashed with a CUDA error before its first iteration: “{quote:quote}”"),
    "nccl error": Message("The ranks lost contact before the first iteration: “{quote:quote}”"),
    "killed": Message("The run was killed before its first iteration: “{quote:quote}”"),
    "error": Message("The run crashed before its first iteration: “{quote:quote}”"),
    "traceback": Message("The run crashed before its first iteration; its traceback begins in line {line:n}."),
}
_REMEDIES = {
    "disk full": Message("Free up disk space where the checkpoints are written."),
    "cuda error": Message(
        "If it happens again, run with CUDA_LAUNCH_BLOCKING=1: the traceback then names the call that failed."
    ),
    "nccl error": Message(
        "Look for the rank that failed first: the others only lost contact with it. NCCL_DEBUG=INFO shows more."
    ),
    "killed": Message("Find out what ended it: a time limit, too little host memory (see dmesg), or another user."),
    "error": Message("The lines above it in the log show where in the code it failed."),
    "traceback": Message("The last line of the traceback says what went wrong."),
}


def crashed(evidence: Evidence) -> Verdict | None:
    fault, run = evidence.fault, evidence.analysis.run
    if fault is None:
        return None
    last = evidence.analysis.forecast.last_iteration
    facts: dict[str, Any] = {"last": last, "quote": fault.text, "line": fault.line + 1}
    text = (_ENDINGS if len(run.iterations) else _ENDINGS_BEFORE)[fault.kind]
    remedy = _REMEDIES.get(fault.kind)
    if fault.kind == "out of memory":
        from stepwatch.advice.out_of_memory import shortage_of, smaller_batch  # needs the estimator

        remedy = smaller_batch(run, evidence.analysis.throughput.gpu, fault.text)
        shortage = shortage_of(fault.text)
        if shortage.asked_bytes is not None and shortage.card_bytes is not None:
            facts |= {"asked": shortage.asked_bytes, "has": shortage.card_bytes}
            text = Message(
                "The run ran out of GPU memory after iteration {last:n}: it asked for {asked:size} more, and the card has {has:size}. “{quote:quote}”"
            )
            if not len(run.iterations):
                text = Message(
                    "The run ran out of GPU memory before its first iteration: it asked for {asked:size} more, and the card has {has:size}. “{quote:quote}”"
                )
    return Verdict(
        status=Status.CRASHED,
        text=text._replace(params=facts),
        because=evidence.analysis.noticed("ended_early", "loss_nan"),
        remedy=remedy,
        line=fault.line + 1,
    )


def diverged(evidence: Evidence) -> Verdict | None:
    text = evidence.sentence("loss_nan")
    row = int(np.flatnonzero(evidence.analysis.run.iterations.number == text.params["at"])[0])
    saved = iterations_of(evidence.analysis.run.checkpoints)
    saved = saved[saved < text.params["at"]]
    remedy = Message("Start again with a lower learning rate or gradient clipping.")
    if len(saved):
        facts = {"at": int(saved[-1])}
        remedy = Message(
            "Resume from the checkpoint of iteration {at:n}, with a lower learning rate or gradient clipping.", facts
        )
    line = int(evidence.analysis.run.iterations.line[row]) + 1
    return Verdict(status=Status.DIVERGED, text=text, because=("loss_nan",), remedy=remedy, line=line)


def stopped(evidence: Evidence) -> Verdict | None:
    a, fault = evidence.analysis, evidence.fault
    last, end, numbers = a.forecast.last_iteration, a.forecast.max_iters, a.run.iterations.number
    # A length that the user gives is a question about the future, not a plan that was cut short.
    length = a.run.settings.get("max_iters")
    planned = length is not None and length.origin in (Origin.LOG, Origin.CONFIG) and not a.forecast.done
    if planned and end is not None and len(numbers):  # trainers that count from 0 never print the last number
        apart = median(np.diff(numbers)) if len(numbers) > 1 else 1.0
        planned = bool(numbers[-1] + max(apart, 2) <= end)
    if fault is None and not planned:
        return None
    saves = iterations_of(a.run.checkpoints)
    saved = int(saves[-1]) if len(saves) else None
    facts: dict[str, Any] = {"last": last, "end": end, "saved": saved}
    silent_s = _silent_s(evidence)
    if fault is not None and len(numbers):
        text = Message("The run was interrupted by hand after iteration {last:n}.")
    elif fault is not None:
        text = Message("The run was interrupted by hand before its first iteration.")
    elif evidence.followed:
        text = Message(
            "The run stopped after iteration {last:n} of {end:n}, and the log does not say why; another one follows."
        )
    elif silent_s is not None and math.isfinite(silent_s):
        facts["silent"] = silent_s
        text = Message(
            "The log ends at iteration {last:n} of {end:n} without giving a reason, and nothing has been written for {silent:time}."
        )
    elif evidence.ended or silent_s is not None:
        text = Message("The log ends at iteration {last:n} of {end:n}, and no line says why.")
    else:
        return None
    return Verdict(
        status=Status.STOPPED,
        text=text._replace(params=facts),
        because=evidence.analysis.noticed("ended_early"),
        remedy=None if saved is None else Message("Resume from the checkpoint of iteration {saved:n}.", facts),
        line=None if fault is None else fault.line + 1,
    )


def _silent_s(evidence: Evidence) -> float | None:
    """How long nothing has been written to the log; None unless that is far longer than its lines take.

    Measured by the timestamps in the log if it has any, since the file may be a copy. Infinite if they have no year
    but are from another day.
    """
    run = evidence.analysis.run
    if evidence.now_s is None or not len(run.iterations):
        return None
    times, phases, usual_s = run.iterations.time_s, evidence.analysis.phases, 0.0
    for rows in pieces(len(times)):
        printed = (times[rows] * phases.covers[rows])[phases.phase[rows] != Phase.STALL]
        usual_s = float(printed.max(initial=usual_s))
    silent_s = 20 * usual_s  # the time that 20 lines take
    stamp_s = float(run.iterations.stamp_s[-1])
    longest_s = max(silent_s, DAY_S)  # the timestamps may be of any time zone
    if stamp_s > YEARLESS_S + YEAR_S and evidence.now_s - stamp_s > longest_s:
        return evidence.now_s - stamp_s
    if YEARLESS_S < stamp_s < YEARLESS_S + YEAR_S:
        since_s = (evidence.now_s - stamp_s) % YEAR_S
        if longest_s + DAY_S < since_s < YEAR_S - 2 * DAY_S:  # for leap years
            return math.inf
    if run.written_s is not None and evidence.now_s - run.written_s > max(silent_s, HOUR_S):
        return evidence.now_s - run.written_s
    return None


# --- too little is known ----------------------------------------------------------------------------------------


def too_little(evidence: Evidence) -> Verdict | None:
    a, rows = evidence.analysis, len(evidence.analysis.run.iterations)
    evaluates = bool(a.phases.of(Phase.EVAL, Phase.EVAL_CHECKPOINT).any())
    if a.costs.how.get("step_s") == MODELLED and a.throughput.gpu is not None and rows < 2:
        facts: dict[str, Any] = {"step": a.costs.step_s, "gpu": a.throughput.gpu.name}
        text = Message("The run has only begun. On the {gpu:word} a step should take {step:range}.", facts)
        if rows:
            text = Message("The first iteration says little. On the {gpu:word} a step should take {step:range}.", facts)
        return Verdict(status=Status.BEGUN, text=text, because=evidence.analysis.noticed("only_begun"))
    if not a.costs.step_known or a.phases.covers.sum() == 1:
        facts = {"most": a.costs.step_s}
        status = Status.UNKNOWN
        text = Message("No logged iteration is a training step alone; a normal one takes at most {most:high}.", facts)
        if evaluates:
            text = Message(
                "Every iteration in this log includes an evaluation as well as its step; a normal one takes less than {most:high}.",
                facts,
            )
        elif rows == 1:
            status = Status.BEGUN if a.phases.first is not None else Status.UNKNOWN
            text = Message("The log has a single iteration: it does not show what a normal one takes.")
        return Verdict(status=status, text=text)
    return None


def doubtful(evidence: Evidence) -> Verdict | None:
    """Figures that are not possible or not certain: it was another card, or every line may include an evaluation."""
    code, *_ = evidence.analysis.noticed("impossible_figure", "few_iterations")
    remedy = Message("Name the card that it really ran on.") if code == "impossible_figure" else None
    return Verdict(status=Status.UNKNOWN, text=evidence.sentence(code), because=(code,), remedy=remedy)


# --- it runs, but ----------------------------------------------------------------------------------------------


def _running(status: Status, text: Message, because: tuple[str, ...], advice: Advice | None) -> Verdict:
    """A verdict on a run that is still running or has reached its end, with its remedy."""
    remedy, saves_s = (advice.what, advice.saves_s) if advice is not None else (None, None)
    return Verdict(status=status, text=text, because=because, remedy=remedy, saves_s=saves_s)


def asleep(evidence: Evidence) -> Verdict | None:
    slept = evidence.sentence("sleep").params
    facts = {"step": evidence.analysis.costs.step_s.mid, "lost": slept["lost"], "at": slept["at"]}
    message = Message(
        "The machine stood still for {lost:time} in iteration {at:ints}, as if asleep. A normal iteration takes {step:time}.",
        facts,
        "The machine stood still for {lost:time} in all in iterations {at:ints}, as if asleep. A normal iteration takes {step:time}.",
        len(slept["at"]),
    )
    remedy = Message(
        "Keep the machine awake while it trains: systemd-inhibit on Linux, caffeinate on macOS, the energy settings on Windows."
    )
    return Verdict(status=Status.ASLEEP, text=message, because=("sleep",), remedy=remedy)


def _regular_s(a: Analysis) -> float:
    """Time lost in slow iterations that recur at a fixed interval: regular work of the program, not stalls."""
    return float(a.phases.excess_s(a.run, a.phases.regular).sum())


def stalling(evidence: Evidence) -> Verdict | None:
    a, codes = evidence.analysis, evidence.analysis.noticed("stall", "late_data", "late_ranks")
    wall, regular_s = a.goodput.wall_s, _regular_s(a)
    lost_s = a.goodput.parts_s["stall"] + a.late_s - regular_s
    share = lost_s / wall if wall > 0 else 0.0
    stalled = a.phases.of(Phase.STALL)
    # Work at the end of a run is no stall: a last save, figures. Its last three rows may share a mean in whole seconds.
    ending = a.forecast.done and not stalled[:-3].any()
    if share <= LOST_SHARE or lost_s < regular_s or ending:
        return None
    facts: dict[str, Any] = {"step": a.costs.step_s.mid, "lost": lost_s, "share": share}
    text = Message(
        "A normal iteration takes {step:time}, but {share:pct} of the time, {lost:time}, was lost in stalls that the log does not explain."
    )
    advice = evidence.advised("find_stalls")
    if "stall" not in codes:
        text = Message(
            "A normal iteration takes {step:time}, but {share:pct} of the time, {lost:time}, was lost in slow ones that waited for their data or for another rank."
        )
        advice = evidence.advised("feed_faster", "look_at_rank")
    text = text._replace(params=facts)
    return _running(Status.STALLING, text, codes, advice)


def waiting(evidence: Evidence) -> Verdict | None:
    """The steps wait for data, and no other known cause costs more."""
    a, parts, share = evidence.analysis, evidence.analysis.goodput.parts_s, evidence.analysis.data_share
    if a.costs.data_s is None or share is None or share <= OVERHEAD_SHARE:
        return None
    without_s = a.costs.step_s.mid - a.costs.data_s.mid
    if (
        a.expected is not None
        and evidence.analysis.noticed("slower_than_expected")
        and without_s > a.expected.step_s.high
    ):
        return None  # it is slow even without the waits
    advice, other = evidence.advised("feed_faster"), evidence.advised("slow_stretch", "heat")
    if advice is not None and other is not None and other.saves_s.mid > advice.saves_s.mid:
        return None
    if parts["data"] >= parts["eval"] + parts["checkpoint"]:
        facts = {"step": a.costs.step_s.mid, "share": share}
        text = Message(
            "A normal iteration takes {step:time}, but the steps wait {share:pct} of their time for data.", facts
        )
        return _running(Status.OVERHEAD, text, ("data_wait",), advice)
    return None


def slow(evidence: Evidence) -> Verdict | None:
    """The machine slows the run down, if samples show it; or the run is slower than expected on this card."""
    use = evidence.analysis.machine
    cause = use.slowed_by if use is not None else None
    if cause is not None:
        return Verdict(status=Status.SLOW, text=cause.message, because=(cause.code,))
    for code in evidence.analysis.noticed("slower_than_expected", "low_mfu"):
        advice = evidence.advised("slower_than_normal", "dtype", "smaller_micro_batch", "compile", "fill_card")
        return _running(Status.SLOW, evidence.sentence(code), (code,), advice)
    return None


def _levels(a: Analysis) -> list[float]:
    """Step times of the stretches of a run; a stretch of few lines counts only if it is far from the last one."""
    regimes = a.regimes.regimes
    least = 0.05 * sum(regime.rows for regime in regimes)
    far = math.log(LARGE_RATIO)
    return [
        regime.step_s
        for regime in regimes
        if regime.rows >= least or abs(math.log(max(regime.step_s, 1e-9) / max(regimes[-1].step_s, 1e-9))) > far
    ]


def slowing(evidence: Evidence) -> Verdict | None:
    a = evidence.analysis
    if a.run.traits.schedules or a.regimes.announced:
        return None
    advice = evidence.advised("slow_stretch", "heat")
    levels = _levels(a)
    spread = evidence.sentence("uneven_steps").params["ratio"] if evidence.analysis.noticed("uneven_steps") else 1.0
    least = max(1 + SMALLEST_CHANGE, spread)  # a smaller change is lost in the spread
    if len(levels) > 1 and levels[-1] >= least * min(levels):
        facts: dict[str, Any] = {"fast": min(levels), "slow": levels[-1], "at": a.regimes.regimes[-1].from_iteration}
        text = Message(
            "The run has become slower: a normal iteration takes {slow:time} since iteration {at:n}, {fast:time} at best before.",
            facts,
        )
        return _running(Status.SLOWING, text, evidence.analysis.noticed("regime_change"), advice)
    if a.regimes.drift is not None and a.regimes.drift >= max(LEAST_DRIFT, spread - 1):
        facts = {"change": a.regimes.drift}
        text = Message(
            "The run is gradually slowing down: iterations are {change:pct} longer in the last fifth than in the first.",
            facts,
        )
        return _running(Status.SLOWING, text, evidence.analysis.noticed("drift"), advice)
    return None


def unsteady(evidence: Evidence) -> Verdict | None:
    codes = evidence.analysis.noticed("uneven_steps")
    levels = _levels(evidence.analysis)
    if codes:
        text = evidence.sentence("uneven_steps")
    elif len(levels) > 1 and levels[-1] > min(levels) and not evidence.analysis.noticed("schedule"):
        text = Message(
            "The speed changed during the run: a normal iteration takes {fast:time} at best and {slow:time} at worst.",
            {"fast": min(levels), "slow": max(levels)},
        )
    else:
        return None
    codes += evidence.analysis.noticed("regime_change")
    return _running(Status.UNSTEADY, text, codes, evidence.advised("slow_stretch", "feed_faster"))


def overhead(evidence: Evidence) -> Verdict | None:
    a, parts = evidence.analysis, evidence.analysis.goodput.parts_s
    between = parts["eval"] + parts["checkpoint"]
    if a.phases.evaluations == a.phases.first_evaluates and a.costs.how.get("compile_s") == NOT_SEPARABLE:
        between = parts["checkpoint"]  # the only evaluation may as well be compilation
    wall_s, cycle_s = a.goodput.wall_s, a.goodput.wall_s
    covered = a.phases.evaluations * (a.phases.eval_interval or math.inf)
    in_epochs = a.run.traits.levers.other_units
    excerpt = a.phases.first is None or not a.forecast.done
    if excerpt and a.goodput.iterations < covered and not in_epochs:  # it has more of the evaluations than of the steps
        cycle_s = between + covered * a.costs.step_s.mid
    whole_s = a.forecast.total_s.mid if a.forecast.total_s is not None else a.goodput.wall_s
    facts: dict[str, Any] = {"step": a.costs.step_s.mid}
    best = evidence.advised()
    if cycle_s > 0 and between / cycle_s > OVERHEAD_SHARE:
        facts["share"] = between / wall_s
        text = Message(
            "A normal iteration takes {step:time}, but evaluations and checkpoints take {share:pct} of the time."
        )
        together = a.costs.pair_s is not None and a.costs.how.get("checkpoint_s") == NOT_SEPARABLE
        if parts["checkpoint"] < 0.1 * between and not together:  # not worth mentioning
            facts["share"] = parts["eval"] / wall_s
            text = Message("A normal iteration takes {step:time}, but evaluations take {share:pct} of the time.")
        elif parts["eval"] < 0.1 * between:
            facts["share"] = parts["checkpoint"] / wall_s
            text = Message("A normal iteration takes {step:time}, but checkpoints take {share:pct} of the time.")
        codes = evidence.analysis.noticed(
            "evaluation_spikes", "silent_evaluations", "checkpoint_cost", "hidden_evaluations"
        )
        text = text._replace(params=facts)
        return _running(Status.OVERHEAD, text, codes, best)
    if a.phases.periods and _regular_s(a) > LOST_SHARE * a.goodput.wall_s:
        facts |= {"share": _regular_s(a) / a.goodput.wall_s, "period": a.phases.periods[0].every}
        text = Message(
            "A normal iteration takes {step:time}. Every {period:n} iterations one is slow, which costs {share:pct} of the time; the log does not say why.",
            facts,
        )
        others = [period.every for period in a.phases.periods if period.every != facts["period"]]
        if others:
            facts["other"] = others[0]
            text = Message(
                "A normal iteration takes {step:time}. Every {period:n} and every {other:n} iterations one is slow, which costs {share:pct} of the time; the log does not say why.",
                facts,
            )
        if not evidence.analysis.noticed("periodic_slowness"):
            text = Message(
                "A normal iteration takes {step:time}. Every {period:n} iterations one waits for its data, as where an epoch begins, which costs {share:pct} of the time.",
                facts,
            )
        codes = evidence.analysis.noticed("periodic_slowness", "late_data")
        return _running(Status.OVERHEAD, text, codes, evidence.advised("feed_faster"))
    if (a.forecast.done or a.forecast.total_s is not None) and parts["compile"] > OVERHEAD_SHARE * whole_s > 0:
        facts |= {"share": parts["compile"] / whole_s, "compile": parts["compile"]}
        text = Message(
            "A normal iteration takes {step:time}, but compilation and warm-up take {compile:time}, {share:pct} of the whole run.",
            facts,
        )
        return Verdict(status=Status.OVERHEAD, text=text, because=evidence.analysis.noticed("first_iteration"))
    return None


def healthy(evidence: Evidence) -> Verdict | None:
    a = evidence.analysis
    alone, saving = (bool(a.phases.of(phase).any()) for phase in (Phase.EVAL, Phase.EVAL_CHECKPOINT))
    stalled = int(a.phases.of(Phase.STALL).sum())
    facts: dict[str, Any] = {"step": a.costs.step_s.mid, "interval": a.phases.eval_interval, "count": stalled}
    spikes = np.flatnonzero(a.phases.of(Phase.EVAL) | a.phases.of(Phase.EVAL_CHECKPOINT))
    if len(spikes):
        facts |= {"at": int(a.run.iterations.number[spikes[0]]), "slow": float(a.run.iterations.time_s[spikes[0]])}
    levels, longest = _levels(a) if len(a.regimes.regimes) > 1 else [], 1.0
    if a.phases.baseline is not None and not a.run.traits.schedules:  # the longest mean, if it stands out
        means = a.phases.baseline.ratio(a.run.iterations, a.phases.normal & (a.phases.covers > 1))
        longest = float(means.max(initial=1.0))
        longest = longest if longest > max(SPIKE_RATIO, math.exp(SPIKE_NOISES * a.phases.baseline.noise)) else 1.0
    if len(levels) > 1 and a.run.traits.schedules:
        facts = {"fast": min(levels), "slow": max(levels)}
        text = Message(
            "The length of a step changed from {fast:time} to {slow:time}: this trainer changes batch size and attention window during the run. That is intended."
        )
    elif levels and a.regimes.announced:
        text, facts = evidence.sentence("schedule"), dict(evidence.sentence("schedule").params)
    elif len(levels) > 1:
        facts = {"fast": min(levels), "slow": max(levels)}
        text = Message(
            "The run has become faster: a normal iteration took {slow:time} at worst and takes {fast:time} now."
        )
    elif (alone or saving) and not a.run.evaluations:
        text = Message("A normal iteration takes {step:time}. The slow ones look like evaluations.")
        if len(spikes) == 1:
            text = Message(
                "A normal iteration takes {step:time}. Iteration {at:n} took {slow:time}: it looks like an evaluation, whose line stands above these."
            )
        elif a.phases.eval_interval is not None:
            text = Message(
                "A normal iteration takes {step:time}. The slow ones come every {interval:n} iterations, as evaluations do; this is not a fault."
            )
    elif saving and alone:
        text = Message(
            "A normal iteration takes {step:time}. The slow ones include an evaluation, some a checkpoint too; this is not a fault."
        )
    elif saving:
        text = Message(
            "A normal iteration takes {step:time}. The slow ones include an evaluation and a checkpoint; this is not a fault."
        )
        if len(spikes) == 1:
            text = Message(
                "A normal iteration takes {step:time}. Iteration {at:n} took {slow:time}: this includes an evaluation and a checkpoint, and is not a fault."
            )
    elif alone:
        text = Message(
            "A normal iteration takes {step:time}. The slow ones include an evaluation; this is not a fault."
        )
        if len(spikes) == 1:
            text = Message(
                "A normal iteration takes {step:time}. Iteration {at:n} took {slow:time}: this includes an evaluation, and is not a fault."
            )
    elif a.phases.of(Phase.CHECKPOINT).any() and a.costs.checkpoint_s is not None and a.costs.checkpoint_s.mid > 0:
        text = Message("A normal iteration takes {step:time}. The slow ones write a checkpoint; this is not a fault.")
    elif a.phases.periods:
        facts["period"] = a.phases.periods[0].every
        text = Message(
            "A normal iteration takes {step:time}. Every {period:n} iterations one is slow, and the log does not say why."
        )
        if not evidence.analysis.noticed("periodic_slowness"):
            text = Message(
                "A normal iteration takes {step:time}. Every {period:n} iterations one waits for its data, as where an epoch begins."
            )
    elif stalled and not evidence.analysis.noticed("stall"):
        text = Message(
            "A normal iteration takes {step:time}. One was slow: it waited for its data or for another rank.",
            facts,
            "A normal iteration takes {step:time}. {count:n} were slow: they waited for their data or for another rank.",
            stalled,
        )
    elif stalled:
        text = Message(
            "A normal iteration takes {step:time}. One was slow, and the log does not say why.",
            facts,
            "A normal iteration takes {step:time}. {count:n} were slow, and the log does not say why.",
            stalled,
        )
    elif a.phases.first is not None and a.run.iterations.time_s[a.phases.first] > 1.2 * a.costs.step_s.mid:
        text = Message("A normal iteration takes {step:time}. Only the first one is slow: it includes the warm-up.")
    elif a.run.timing is Timing.SPANS_RUN:
        text = Message("An iteration takes {step:time} on average. The log does not show single iterations.")
    elif longest > 1:
        facts["ratio"] = longest
        text = Message(
            "A normal iteration takes {step:time}. Of the means that the log shows, the longest is {ratio:x} times that; the log does not say why."
        )
    else:
        text = Message("A normal iteration takes {step:time}, and none in this log is slow.")
    text = text._replace(params=facts)
    return _running(Status.HEALTHY, text, evidence.analysis.noticed("speed_is_normal"), evidence.advised())
