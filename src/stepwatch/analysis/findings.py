"""What is worth saying, each with a code, a severity and a sentence that names its iterations and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stepwatch.analysis.costs import COMBINED, MEASURED, MODELLED, NOT_SEPARABLE
from stepwatch.analysis.phases import AVERAGES, SLEEP_S, Phase
from stepwatch.analysis.statistics import median
from stepwatch.analysis.throughput import flops_behind_mfu
from stepwatch.gpus.catalogue import A100_FLOPS
from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.run import IMPOSSIBLE_MFU, SENTINEL_MFU, Timing, UnreadLines
from stepwatch.units import TERA

if TYPE_CHECKING:
    from stepwatch.analysis import Analysis
    from stepwatch.units import Interval

INFO, NOTICE, WARNING = "info", "notice", "warning"

ONLY_BEGUN = Message(
    "The log has no iteration yet: every figure is what the estimator expects of this card, none was measured."
)
FEW_ROWS, FAR_APART = 3, 50
SLEEP_RATIO = 50.0


_NUMBERED = Pattern(r"(?<![\w*])iter(?:ation)?\s+\d{1,12}\s*:")


class Finding(NamedTuple):
    code: str
    severity: str
    message: Message


def find_findings(analysis: Analysis) -> tuple[Finding, ...]:
    if not len(analysis.run.iterations):
        return (Finding("only_begun", NOTICE, ONLY_BEGUN),)
    return tuple(finding for rule in _rules_for(analysis) for finding in rule(analysis))


def _rules_for(analysis: Analysis) -> Iterator[Callable[[Analysis], Iterator[Finding]]]:
    """Those of ranks and recorders are loaded where they have something to judge."""
    yield from RULES
    if analysis.run.span is not None:
        from stepwatch.analysis import recorded

        yield from recorded.RULES
    if analysis.ranks is not None:
        from stepwatch.analysis import ranks

        yield from ranks.RULES


# --- slow iterations --------------------------------------------------------------------------------------------


def first_iteration(a: Analysis) -> Iterator[Finding]:
    rows = np.flatnonzero(a.phases.of(Phase.FIRST))
    if not len(rows) or a.costs.compile_s is None:
        return
    row = int(rows[0])
    covers, last = int(a.phases.covers[row]), int(a.run.iterations.number[row])
    facts = {
        "at": last, "begin": last - covers + 1, "time": float(a.run.iterations.time_s[row] * covers),
        "compile": a.costs.compile_s, "eval": a.costs.eval_s,
    }  # fmt: skip
    if covers > 1 and a.run.compile_s is None:
        yield Finding("first_iteration", INFO, _of_a_first_mean(a, a.costs.compile_s, facts))
        return
    if a.run.compile_s is not None:
        text = Message("Compilation and warm-up took {compile:range}; the compilation was timed by itself. They do not count for the speed.", facts)
    elif a.costs.how.get("compile_s") == NOT_SEPARABLE and a.phases.first_evaluates:
        text = Message("Iteration {at:n} took {time:time}: compilation and warm-up plus the first evaluation, which this log cannot tell apart. It does not count for the speed.", facts)
    elif a.costs.compile_s.mid <= 0:
        text = (
            Message("Iteration {at:n} took {time:time}, no more than an evaluation and a step: no compilation is visible in it.", facts)
            if "eval" in a.run.holds
            else Message("Iteration {at:n} took {time:time}, no more than a step: no compilation is visible in it.", facts)
        )
    elif a.phases.first_saves:
        text = Message("Iteration {at:n} is the first after a restart and took {time:time}: {compile:range} of it is compilation and warm-up, the rest evaluation, checkpoint and step. It does not count for the speed.", facts)
    elif a.phases.first_evaluates and a.costs.eval_s is not None:
        text = Message("Iteration {at:n} took {time:time}: {compile:range} of it is compilation and warm-up, the rest is the first evaluation and one step. It does not count for the speed.", facts)
    else:
        text = Message("Iteration {at:n} is the first of its process and took {time:time}: {compile:range} of it is compilation and warm-up. It does not count for the speed.", facts)
    yield Finding("first_iteration", INFO, text)


def _of_a_first_mean(a: Analysis, compilation: Interval, facts: dict[str, object]) -> Message:
    """What to say of the first iterations where the log tells one time for all of them."""
    text = Message("Iterations {begin:n} to {at:n} are the first of their process and took {time:time} together: {compile:range} of it is compilation and warm-up. They do not count for the speed.", facts)
    if a.costs.how.get("compile_s") == NOT_SEPARABLE and a.phases.first_evaluates:
        text = Message("Iterations {begin:n} to {at:n} took {time:time} together: compilation and warm-up, the first evaluation and the steps, which this log cannot tell apart. They do not count for the speed.", facts)
    elif compilation.mid <= 0 and a.phases.first_evaluates:
        text = Message("Iterations {begin:n} to {at:n} took {time:time} together, no more than an evaluation and as many steps: no compilation is visible in them.", facts)
    elif compilation.mid <= 0:
        text = Message("Iterations {begin:n} to {at:n} took {time:time} together, no more than as many others: no compilation is visible in them.", facts)
    elif a.phases.first_evaluates and a.costs.eval_s is not None:
        text = Message("Iterations {begin:n} to {at:n} took {time:time} together: {compile:range} of it is compilation and warm-up, the rest is the first evaluation and the steps. They do not count for the speed.", facts)
    return text


def warm_up(a: Analysis) -> Iterator[Finding]:
    if a.regimes.stable_from is not None:
        facts = {"at": a.regimes.stable_from}
        yield Finding(
            "warm_up",
            INFO,
            Message(
                "The times are stable from iteration {at:n} on; before that the machine was still warming up.", facts
            ),
        )


def evaluation_spikes(a: Analysis) -> Iterator[Finding]:
    rows = a.phases.of(Phase.EVAL, Phase.EVAL_CHECKPOINT)
    if not rows.any() or a.phases.baseline is None or a.costs.eval_s is None:
        return
    times = a.run.iterations.time_s[rows]
    facts = {
        "at": a.run.iterations.number[rows].tolist(), "time": median(times), "cost": a.costs.pair_s or a.costs.eval_s,
        "ratio": median(times / a.phases.baseline.time_s[rows]), "interval": a.phases.eval_interval,
        "count": int(rows.sum()), "eval": a.costs.eval_s,
    }  # fmt: skip
    count = int(rows.sum())
    if not a.run.evaluations:
        yield Finding("silent_evaluations", NOTICE, Message(
            "Iteration {at:ints} took {time:time}, {ratio:x} times a normal one. No line says so, but its number and its size are those of an evaluation.",
            facts,
            "Iterations {at:ints} take about {time:time}, {ratio:x} times a normal one. No line says so, but their period of {interval:n} and their size are those of an evaluation.",
            count if a.phases.eval_interval else 1,
        ))  # fmt: skip
    elif a.phases.of(Phase.EVAL_CHECKPOINT).any():
        yield Finding("evaluation_spikes", INFO, Message(
            "Iteration {at:ints} took {time:time}, {ratio:x} times a normal one: the evaluation and the saving of the checkpoint are in the same printed time. That is normal.",
            facts,
            "Iterations {at:ints} take about {time:time}, {ratio:x} times a normal one: the evaluation, and where a checkpoint is written the saving, are in the same printed time. That is normal.",
            count,
        ))  # fmt: skip
    else:
        yield Finding("evaluation_spikes", INFO, Message(
            "Iteration {at:ints} took {time:time}, {ratio:x} times a normal one: the evaluation is in the same printed time. That is normal.",
            facts,
            "Iterations {at:ints} take about {time:time}, {ratio:x} times a normal one: the evaluation is in the same printed time. That is normal.",
            count,
        ))  # fmt: skip


def checkpoint_cost(a: Analysis) -> Iterator[Finding]:
    cost = a.costs.checkpoint_s
    if cost is None:
        return
    how = a.costs.how.get("checkpoint_s")
    facts = {"cost": cost, "pair": a.costs.pair_s, "saves": int(a.phases.of(Phase.EVAL_CHECKPOINT).sum())}
    if how == NOT_SEPARABLE and a.costs.pair_s is not None:
        text = Message("Evaluation and checkpoint together cost {pair:range}. This log cannot tell the two apart: the checkpoint is anything up to {cost:high}.", facts)
        yield Finding("checkpoint_cost", NOTICE, text)
    elif how == NOT_SEPARABLE:
        yield Finding(
            "checkpoint_cost",
            NOTICE,
            Message("Checkpoints were written, but nothing in this log shows what one costs.", facts),
        )
    elif how in (MODELLED, COMBINED):
        text = Message("A checkpoint costs about {cost:range}, judged by the size of the model and what disks usually manage.", facts)
        yield Finding("checkpoint_cost", INFO, text)
    else:
        text = Message("A checkpoint costs {cost:range}: the difference between evaluations with and without one.", facts)
        if not a.phases.of(Phase.EVAL).any():
            text = Message("A checkpoint costs {cost:range}.", facts)
        yield Finding("checkpoint_cost", INFO, text)


def hidden_evaluations(a: Analysis) -> Iterator[Finding]:
    hidden = a.phases.unlogged_evals
    if not hidden:
        return
    cost = a.costs.pair_s or a.costs.eval_s
    facts = {"at": list(hidden), "cost": cost}
    if cost is None or cost.high <= 0:
        message = Message(
            "The evaluation at iteration {at:ints} fell between two logged lines: no printed time shows it, and nothing in this log tells its cost.",
            facts,
            "The evaluations at iterations {at:ints} fell between two logged lines: no printed time shows them, and nothing in this log tells their cost.",
            len(hidden),
        )
    else:
        message = Message(
            "The evaluation at iteration {at:ints} fell between two logged lines: no printed time shows it. It is counted here at {cost:range}.",
            facts,
            "The evaluations at iterations {at:ints} fell between two logged lines: no printed time shows them. They are counted here at {cost:range} each.",
            len(hidden),
        )
    yield Finding("hidden_evaluations", NOTICE, message)


def stalls(a: Analysis) -> Iterator[Finding]:
    rows = np.flatnonzero(a.phases.of(Phase.STALL))
    if not len(rows) or a.phases.baseline is None:
        return
    excess = a.phases.excess_s(a.run, rows)
    ratio = a.run.iterations.time_s[rows] / a.phases.baseline.time_s[rows]
    asleep = (excess > SLEEP_S) & (ratio > SLEEP_RATIO)
    numbers = a.run.iterations.number[rows]
    if asleep.any():
        facts = {"at": numbers[asleep].tolist(), "lost": float(excess[asleep].sum()), "count": int(asleep.sum())}
        yield Finding("sleep", WARNING, Message(
            "The machine stood still for {lost:time} in iteration {at:ints}, as when it sleeps. That changes neither the normal speed nor the forecast.",
            facts, "The machine stood still for {lost:time} in all in iterations {at:ints}, as when it sleeps. That changes neither the normal speed nor the forecast.",
            facts["count"],
        ))  # fmt: skip
    awake = ~asleep
    if a.run.inside is not None:
        from stepwatch.analysis.recorded import explained_stalls

        awake &= ~explained_stalls(a, rows)  # findings of their own
    if a.phases.periodic is not None:
        on_period = awake & (numbers % a.phases.periodic == 0)
    if a.phases.periodic is not None and on_period.any():
        facts = {
            "period": a.phases.periodic,
            "ratio": median(ratio[on_period]),
            "at": numbers[on_period].tolist(),
            "lost": float(excess[on_period].sum()),
        }
        yield Finding("periodic_slowness", NOTICE, Message(
            "Every {period:n} iterations one takes {ratio:x} times a normal one (iterations {at:ints}), and nothing in the log says why: look for work of your own at that interval.", facts))  # fmt: skip
        awake &= ~on_period
    if awake.any():
        facts = {
            "at": numbers[awake].tolist(), "count": int(awake.sum()), "ratio": float(ratio[awake].max()), "of": a.run.logged,
            "lost": float(excess[awake].sum()),
        }  # fmt: skip
        yield Finding("stall", NOTICE, Message(
            "Iteration {at:ints} took {ratio:x} times as long as a normal one, without evaluation or checkpoint: something else held the machine for {lost:time}.",
            facts,
            "{count:n} of {of:n} logged iterations were slow without evaluation or checkpoint (up to {ratio:x} times normal; {at:ints}): something else held the machine for {lost:time} in all.",
            facts["count"],
        ))  # fmt: skip


def ddp_artefact(a: Analysis) -> Iterator[Finding]:
    rows = a.phases.artefact
    if not rows.any() or a.phases.baseline is None:
        return
    ratio = median(a.phases.baseline.ratio(a.run.iterations)[rows])
    yield Finding("ddp_artefact", INFO, Message(
        "Every 100th iteration prints {ratio:x} times the usual time. That is DDP's own sampling, which waits for the card there; no time is lost and none is added to the total.",
        {"ratio": ratio}))  # fmt: skip


# --- levels -----------------------------------------------------------------------------------------------------


def regime_change(a: Analysis) -> Iterator[Finding]:
    regimes = a.regimes.regimes
    if len(regimes) < 2:
        return
    fastest = min(regimes, key=lambda regime: regime.step_s)
    slowest = max(regimes, key=lambda regime: regime.step_s)
    facts = {
        "slow": slowest.step_s, "fast": fastest.step_s, "begin": slowest.from_iteration, "end": slowest.to_iteration,
        "ratio": slowest.step_s / fastest.step_s, "count": len(regimes),
    }  # fmt: skip
    if a.run.traits.schedules:
        yield Finding("schedule", INFO, Message(
            "The length of a step changed from {fast:time} to {slow:time}: this trainer changes batch size and attention window during the run. That is meant.",
            facts))  # fmt: skip
        return
    yield Finding("regime_change", NOTICE, Message(
        "The speed changed: {fast:time} per iteration at best, {slow:time} ({ratio:x} times as much) from iteration {begin:n} to {end:n}. A whole stretch is slow, not single iterations: another job on the card, a power limit or heat.",
        facts))  # fmt: skip


def drift(a: Analysis) -> Iterator[Finding]:
    change = a.regimes.drift
    if change is None:
        return
    text = Message("The iterations became {change:pct} longer from the first fifth of the run to the last, little by little, as when a card heats up.", {"change": abs(change)})
    if change < 0:
        text = Message("The iterations became {change:pct} shorter from the first fifth of the run to the last.", {"change": abs(change)})
    elif a.run.traits.schedules:
        text = Message("The iterations became {change:pct} longer from the first fifth of the run to the last; this trainer changes batch size and attention window during the run.", {"change": abs(change)})
    yield Finding("drift", INFO, text)


# --- what the figures mean --------------------------------------------------------------------------------------


def unsynchronised(a: Analysis) -> Iterator[Finding]:
    doubts = a.goodput.doubts
    if "ranks" in doubts:
        yield Finding("unsynchronised", NOTICE, Message(
            "With DDP the printed time does not wait for the cards: the real time per iteration may be up to {up:pct} longer than printed. Lines with timestamps would settle it.",
            {"up": a.goodput.unsynchronised}))  # fmt: skip
    elif "short steps" in doubts:
        yield Finding("unsynchronised", NOTICE, Message(
            "With steps this short the printed time may not wait for the card: the real time per iteration may be up to {up:pct} longer than printed. Lines with timestamps would settle it.",
            {"up": a.goodput.unsynchronised}))  # fmt: skip
    if "busy" in doubts:
        yield Finding("busy_when_logging", NOTICE, Message(
            "This trainer does extra work on the iterations that it logs, so the iterations between them are probably faster than the printed times.", {}))  # fmt: skip


def mfu_sentinel(a: Analysis) -> Iterator[Finding]:
    rows = a.run.iterations.reported_mfu == SENTINEL_MFU
    if rows.any():
        facts = {"at": a.run.iterations.number[rows].tolist(), "count": int(rows.sum())}
        yield Finding("mfu_sentinel", INFO, Message(
            "The MFU of -100 % at iteration {at:ints} is no measurement: nanoGPT prints it until it has done five iterations.", facts,
            "The MFU of -100 % at iterations {at:ints} is no measurement: nanoGPT prints it until it has done five iterations.", facts["count"],
        ))  # fmt: skip


def mfu_of_which_card(a: Analysis) -> Iterator[Finding]:
    t = a.throughput
    if t.reported_mfu is None or not a.run.traits.mfu_of_a100:
        return
    facts = {
        "printed": t.reported_mfu,
        "mfu": t.mfu,
        "peak": t.peak_flops,
        "gpu": t.gpu.name if t.gpu else None,
        "achieved": t.achieved_flops,
        "a100": A100_FLOPS,
    }
    if t.peak_flops is None or t.mfu is None:
        above = Message("The log prints an MFU of {printed:pct}, above 100 %: it is measured against an A100 ({a100:tflops}), whatever the card. Name yours with --gpu to get the real one.", facts)
        text = Message("The printed MFU of {printed:pct} is measured against an A100 ({a100:tflops}), whatever the card. Name yours with --gpu to get the real one.", facts)
        yield Finding("mfu_other_card", NOTICE, above if t.reported_mfu > 1 else text)
    elif not t.possible:  # a finding of its own
        return
    elif abs(t.peak_flops / A100_FLOPS - 1) > 0.01:
        text = Message("The printed MFU of {printed:pct} is measured against an A100 ({a100:tflops}) and smoothed over slow iterations. Of your {gpu:word} ({peak:tflops}) the normal iterations use {mfu:pct}.", facts)
        yield Finding("mfu_other_card", NOTICE, text)
    elif t.mfu > 1.08 * t.reported_mfu:
        text = Message("The printed MFU of {printed:pct} is a moving average that the slow iterations pull down; the normal iterations reach {mfu:pct}.", facts)
        yield Finding("mfu_smoothed", INFO, text)


def mfu_of_a_table(a: Analysis) -> Iterator[Finding]:
    """Trainers that look the card up: their peak may be another card's, or none."""
    t, peak = a.throughput, a.run.mfu_peak_flops
    if a.run.traits.mfu_of_a100 or t.reported_mfu is None or t.mfu is None or t.peak_flops is None or not peak:
        return
    if abs(peak / t.peak_flops - 1) > 0.02 and t.possible:
        facts = {
            "printed": t.reported_mfu,
            "peak": peak,
            "gpu": t.gpu.name if t.gpu else None,
            "own": t.peak_flops,
            "mfu": t.mfu,
        }
        yield Finding("mfu_other_peak", NOTICE, Message(
            "The printed MFU of {printed:pct} is measured against {peak:tflops}. Of your {gpu:word} ({own:tflops}) the normal iterations use {mfu:pct}.",
            facts))  # fmt: skip


def impossible_mfu(a: Analysis) -> Iterator[Finding]:
    """Some trainers count the work of a model that they do not know."""
    printed = a.run.iterations.reported_mfu[np.isfinite(a.run.iterations.reported_mfu)]
    if len(printed) and median(printed) >= IMPOSSIBLE_MFU:
        yield Finding("impossible_mfu", WARNING, Message(
            "The log prints an MFU of {printed:pct}, which no card can reach: the trainer miscounts the work of this model. Its figure is left out.",
            {"printed": median(printed)}))  # fmt: skip


def outside_the_time(a: Analysis) -> Iterator[Finding]:
    """What the printed times leave out, where nothing else tells it."""
    unseen = [
        name for name, events in (("eval", a.run.evaluations), ("checkpoint", a.run.checkpoints))
        if events and name not in a.run.holds and a.costs.how.get(f"{name}_s") == NOT_SEPARABLE
    ]  # fmt: skip
    if unseen and a.goodput.by_clock:
        yield Finding("invisible_evaluations" if "eval" in unseen else "invisible_checkpoints", NOTICE, Message(
            "The printed times leave evaluations and checkpoints out, and this log does not tell what each took. The total goes by the clock in front of the lines and includes them, as time that is not explained.", {}))  # fmt: skip
    elif unseen == ["eval"]:
        yield Finding("invisible_evaluations", NOTICE, Message(
            "The printed times leave evaluations out, and nothing in this log tells what they took: the total lacks them.", {}))  # fmt: skip
    elif unseen == ["checkpoint"]:
        yield Finding("invisible_checkpoints", NOTICE, Message(
            "The printed times leave checkpoints out, and nothing in this log tells what they took: the total lacks them.", {}))  # fmt: skip
    elif unseen:
        yield Finding("invisible_evaluations", NOTICE, Message(
            "The printed times leave evaluations and checkpoints out, and nothing in this log tells what they took: the total lacks them.", {}))  # fmt: skip


def speed_against_expectation(a: Analysis) -> Iterator[Finding]:
    """Is this normal?"""
    if a.expected is None or a.costs.how.get("step_s") != MEASURED or a.throughput.gpu is None:
        return
    step, expected = a.costs.step_s.mid, a.expected.step_s
    facts = {"step": step, "expected": expected, "ratio": step / expected.mid, "gpu": a.throughput.gpu.name}
    told = a.run.settings.text("dtype")
    if step > expected.high and not a.throughput.gpu.has_bf16 and told in (None, "bfloat16"):
        yield Finding("slower_than_expected", WARNING, Message(
            "A step takes {step:time}, {ratio:x} times what a {gpu:word} should need for this model ({expected:range}). The card has no bfloat16; where nanoGPT chose it all the same, it is emulated. Try --dtype=float16.",
            facts))  # fmt: skip
    elif step > expected.high:
        yield Finding("slower_than_expected", WARNING, Message(
            "A step takes {step:time}, {ratio:x} times what a {gpu:word} should need for this model ({expected:range}). Likely causes: another job on the card, a power limit or heat, memory that spilled to the host, no compilation, or slow data.",
            facts))  # fmt: skip
    elif step < expected.low:
        yield Finding("faster_than_expected", INFO, Message(
            "A step takes {step:time}, less than a {gpu:word} is expected to need for this model ({expected:range}).", facts))  # fmt: skip
    else:
        yield Finding("speed_is_normal", INFO, Message(
            "Your {step:time} per step is what a {gpu:word} gives for this model: {expected:range} was to be expected.", facts))  # fmt: skip


def few_iterations(a: Analysis) -> Iterator[Finding]:
    """Two or three lines far apart may all hold an evaluation: nothing shows what a normal iteration takes."""
    numbers = a.run.iterations.number[a.phases.normal]
    if a.run.span is not None:
        return
    if a.run.evaluations or not 1 <= len(numbers) <= FEW_ROWS or a.phases.of(Phase.EVAL, Phase.EVAL_CHECKPOINT).any():
        return
    if len(a.run.iterations) > 1 and int(np.diff(a.run.iterations.number).max()) >= FAR_APART:
        yield Finding("few_iterations", WARNING, Message(
            "Only iterations {at:ints} are in this log, far apart: each may hold an evaluation, and then a normal one is much shorter. Hand in the lines between them too.",
            {"at": numbers.tolist()}))  # fmt: skip


def figures_disagree(a: Analysis) -> Iterator[Finding]:
    """The work that the settings make of an iteration, against the work behind the printed MFU."""
    behind = flops_behind_mfu(a.run) if a.run.traits.mfu_of_a100 else None
    t = a.throughput
    if behind is None or t.achieved_flops is None or t.flops_from == "mfu" or a.costs.step_s.mid <= 0:
        return
    stated = t.achieved_flops * a.costs.step_s.mid
    if not 0.75 < stated / behind < 1.34:
        yield Finding("figures_disagree", WARNING, Message(
            "The settings make an iteration {stated:x} TFLOP, the printed MFU stands for {behind:x}: parameters, tokens per iteration or the number of cards are not those of this log.",
            {"stated": stated / TERA, "behind": behind / TERA}))  # fmt: skip


def beyond_the_end(a: Analysis) -> Iterator[Finding]:
    end, last = a.run.settings.count("max_iters"), int(a.run.iterations.number[-1])
    if end is not None and last > end:
        yield Finding("beyond_the_end", WARNING, Message(
            "The log goes on to iteration {last:n}, beyond max_iters = {end:n}.", {"last": last, "end": end}))  # fmt: skip


def impossible_figures(a: Analysis) -> Iterator[Finding]:
    t = a.throughput
    if t.possible or t.gpu is None:
        return
    yield Finding("impossible_figure", WARNING, Message(
        "These times would need {achieved:tflops}, more than a {gpu:word} can do ({peak:tflops}). Either the card is another one, or several share the work, or the printed time does not wait for the card.",
        {"achieved": t.achieved_flops, "gpu": t.gpu.name, "peak": t.peak_flops}))  # fmt: skip


def loss_nan(a: Analysis) -> Iterator[Finding]:
    known = np.flatnonzero(~np.isnan(a.run.iterations.loss))
    lost = np.isinf(a.run.iterations.loss[known])
    if not len(known) or not lost[-1]:
        return
    good = np.flatnonzero(~lost)
    begin = int(known[good[-1] + 1 if len(good) else 0])
    yield Finding("loss_nan", WARNING, Message(
        "The loss is not a number from iteration {at:n} on: the model learns nothing any more.", {"at": int(a.run.iterations.number[begin])}))  # fmt: skip


def ended_early(a: Analysis) -> Iterator[Finding]:
    last = int(a.run.iterations.number[-1])
    end = a.run.settings.count("max_iters")
    last_line = int(a.run.iterations.line[-1])
    fault = next((fault.kind for fault in reversed(a.run.faults) if fault.line > last_line), None)
    facts = {"last": last, "end": end}
    if fault == "interrupted":
        yield Finding(
            "ended_early", NOTICE, Message("The run was interrupted by hand after iteration {last:n}.", facts)
        )
    elif fault == "out of memory":
        yield Finding("ended_early", WARNING, Message("The run ran out of memory after iteration {last:n}.", facts))
    elif fault == "killed":
        yield Finding("ended_early", WARNING, Message("The run was killed after iteration {last:n}.", facts))
    elif fault == "traceback" and (end is None or last < end):
        yield Finding("ended_early", WARNING, Message("The run ended with an error after iteration {last:n}.", facts))


def averaged_times(a: Analysis) -> Iterator[Finding]:
    if a.run.timing is Timing.SPANS_RUN:
        yield Finding("averaged_times", NOTICE, Message(
            "The log tells the time of long stretches only, a whole run or an epoch: the time of a step is their mean, and no slow iteration can be seen.", {}))  # fmt: skip
    elif a.run.timing in AVERAGES and bool((a.phases.covers > 1).any()):
        yield Finding("averaged_times", NOTICE, Message(
            "The printed times are averages over the iterations since the line before; a slow iteration is spread over them.", {}))  # fmt: skip


def lines_without_time(a: Analysis) -> Iterator[Finding]:
    """A stage that prints no times, or lines that were cut: what is missing from the figures."""
    unread, count = a.run.unread, a.run.unread_count
    if unread and a.run.traits.unread_lines is UnreadLines.CUT:
        yield Finding("lines_without_time", NOTICE, Message(
            "The file ends in the middle of a record: the rest is not written yet, or was lost.", {}))  # fmt: skip
        return
    if a.run.traits.unread_lines is UnreadLines.ALL:
        unread = tuple(line for line in unread if _NUMBERED.search(line.text))
        count = len(unread)
    if not unread:
        return
    facts = {"count": count, "line": unread[0].line + 1}
    many = count > 0.01 * len(a.run.iterations)
    yield Finding("lines_without_time", WARNING if many else NOTICE, Message(
        "Line {line:n} looks like an iteration but tells no time that could be read: it is not counted.", facts,
        "{count:n} lines look like iterations but tell no time that could be read, the first in line {line:n}: they are not counted.",
        count,
    ))  # fmt: skip


RULES: tuple[Callable[[Analysis], Iterator[Finding]], ...] = (
    first_iteration, evaluation_spikes, checkpoint_cost, hidden_evaluations, stalls, regime_change, drift, warm_up,
    ddp_artefact, unsynchronised, mfu_of_which_card, mfu_of_a_table, impossible_mfu, mfu_sentinel, outside_the_time,
    few_iterations, figures_disagree,
    beyond_the_end, speed_against_expectation, impossible_figures, loss_nan, ended_early,
    averaged_times, lines_without_time,
)  # fmt: skip
