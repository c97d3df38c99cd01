"""What is worth saying, each with a code, a severity and a sentence that names its iterations and figures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stepwatch.analysis.costs import COMBINED, MEASURED, MODELLED, NOT_SEPARABLE
from stepwatch.analysis.phases import AVERAGES, Phase
from stepwatch.analysis.statistics import chosen, median, nine_in_ten, series
from stepwatch.analysis.throughput import Throughput, flops_behind_mfu
from stepwatch.gpus.catalogue import A100_FLOPS
from stepwatch.messages import Message
from stepwatch.run import (
    IMPOSSIBLE_MFU,
    SENTINEL_MFU,
    SLEEP_S,
    Fault,
    Floats,
    Ints,
    Run,
    Timing,
    iterations_of,
    most_telling,
    rows_from,
)
from stepwatch.units import TERA

if TYPE_CHECKING:
    from stepwatch.analysis import Analysis
    from stepwatch.gpus import Gpu
    from stepwatch.units import Interval


INFO, NOTICE, WARNING = "info", "notice", "warning"

SLEEP_RATIO = 50.0
LEAST_SPREAD_ROWS = 20
PUBLISHED_PARAMS = 100e6  # of the smallest models among the runs that the normal MFU of a card is based on


class Finding(NamedTuple):
    code: str
    severity: str
    message: Message


Rule = Callable[["Analysis"], Iterator[Finding]]


# --- slow iterations --------------------------------------------------------------------------------------------


def first_iteration(a: Analysis) -> Iterator[Finding]:
    row = a.phases.first
    if row is None or a.costs.compile_s is None:
        return
    covers, last = int(a.phases.covers[row]), int(a.run.iterations.number[row])
    facts = {
        "at": last,
        "begin": last - covers + 1,
        "time": float(a.run.iterations.time_s[row] * covers),
        "compile": a.costs.compile_s,
        "eval": a.costs.eval_s,
    }
    mixed = a.costs.how.get("compile_s") == NOT_SEPARABLE and a.phases.first_evaluates
    compiles, evaluates = a.costs.compile_s.mid > 0, a.phases.first_evaluates and a.costs.eval_s is not None
    if a.run.compile_s is not None:
        text = Message(
            "Compilation and warm-up took {compile:range}; the compilation was timed separately. They do not count towards the speed."
        )
    elif covers > 1:  # one time for all of the first iterations
        text = Message(
            "Iterations {begin:n} to {at:n} are the first of their process and took {time:time} together: {compile:range} of it is compilation and warm-up. They do not count towards the speed."
        )
        if mixed:
            text = Message(
                "Iterations {begin:n} to {at:n} took {time:time} together: compilation and warm-up, the first evaluation and the steps, which this log cannot separate. They do not count towards the speed."
            )
        elif not compiles and a.phases.first_evaluates:
            text = Message(
                "Iterations {begin:n} to {at:n} took {time:time} together, no more than an evaluation and as many steps: no compilation is visible in them."
            )
        elif not compiles:
            text = Message(
                "Iterations {begin:n} to {at:n} took {time:time} together, no more than as many others: no compilation is visible in them."
            )
        elif evaluates:
            text = Message(
                "Iterations {begin:n} to {at:n} took {time:time} together: {compile:range} of it is compilation and warm-up, the rest is the first evaluation and the steps. They do not count towards the speed."
            )
        elif a.run.start == "process":
            text = Message(
                "Iterations {begin:n} to {at:n} took {time:time} together since the log was begun: {compile:range} of it is what came before the training, compilation and warm-up. They do not count towards the speed."
            )
    elif mixed:
        text = Message(
            "Iteration {at:n} took {time:time}: compilation and warm-up plus the first evaluation, which this log cannot separate. It does not count towards the speed."
        )
    elif not compiles and "eval" in a.run.holds:
        text = Message(
            "Iteration {at:n} took {time:time}, no more than an evaluation and a step: no compilation is visible in it."
        )
    elif not compiles:
        text = Message("Iteration {at:n} took {time:time}, no more than a step: no compilation is visible in it.")
    elif a.phases.first_saves:
        text = Message(
            "Iteration {at:n} is the first after a restart and took {time:time}: {compile:range} of it is compilation and warm-up, the rest evaluation, checkpoint and step. It does not count towards the speed."
        )
    elif evaluates:
        text = Message(
            "Iteration {at:n} took {time:time}: {compile:range} of it is compilation and warm-up, the rest is the first evaluation and one step. It does not count towards the speed."
        )
    elif a.run.start == "process":
        text = Message(
            "Iteration {at:n} took {time:time} since the log was begun: {compile:range} of it is what came before the training, compilation and warm-up. It does not count towards the speed."
        )
    else:
        text = Message(
            "Iteration {at:n} is the first of its process and took {time:time}: {compile:range} of it is compilation and warm-up. It does not count towards the speed."
        )
    yield Finding("first_iteration", INFO, text._replace(params=facts))


def _first_five_and_last(numbers: Ints) -> list[int]:
    """The numbers that a sentence lists one by one, and the last."""
    return [*numbers[:5].tolist(), *numbers[5:][-1:].tolist()]


def evaluation_spikes(a: Analysis) -> Iterator[Finding]:
    rows = a.phases.of(Phase.EVAL, Phase.EVAL_CHECKPOINT)
    if not rows.any() or a.phases.baseline is None or a.costs.eval_s is None:
        return
    times, count = a.run.iterations.time_s[rows], int(rows.sum())
    facts = {
        "at": _first_five_and_last(a.run.iterations.number[rows]),
        "time": median(times),
        "cost": a.costs.pair_s or a.costs.eval_s,
        "ratio": median(times / a.phases.baseline.time_s[rows]),
        "interval": a.phases.eval_interval,
        "count": count,
        "eval": a.costs.eval_s,
    }
    if not a.run.evaluations:
        message = Message(
            "Iteration {at:ints} took {time:time}, {ratio:x} times a normal one. No line says so, but its number and its duration match an evaluation.",
            facts,
        )
        if count > 1 and a.phases.eval_interval:
            message = Message(
                "Iterations {at:ints} take about {time:time}, {ratio:x} times a normal one. No line says so, but their period of {interval:n} and their duration match an evaluation.",
                facts,
            )
        yield Finding("silent_evaluations", NOTICE, message)
        return
    message = Message(
        "Iteration {at:ints} took {time:time}, {ratio:x} times a normal one: the printed time includes the evaluation. That is normal.",
        facts,
        "Iterations {at:ints} take about {time:time}, {ratio:x} times a normal one: the printed time includes the evaluation. That is normal.",
        count,
    )
    if a.phases.of(Phase.EVAL_CHECKPOINT).any():
        message = Message(
            "Iteration {at:ints} took {time:time}, {ratio:x} times a normal one: the printed time includes the evaluation and the saving of the checkpoint. That is normal.",
            facts,
            "Iterations {at:ints} take about {time:time}, {ratio:x} times a normal one: the printed time includes the evaluation and, where one is written, the checkpoint. That is normal.",
            count,
        )
    yield Finding("evaluation_spikes", INFO, message)


def checkpoint_cost(a: Analysis) -> Iterator[Finding]:
    if a.costs.checkpoint_s is None:
        return
    saves = int(a.phases.of(Phase.EVAL_CHECKPOINT).sum())
    facts = {"cost": a.costs.checkpoint_s, "pair": a.costs.pair_s, "saves": saves}
    how = a.costs.how.get("checkpoint_s")
    if how == NOT_SEPARABLE and a.costs.pair_s is not None:
        text = Message(
            "Evaluation and checkpoint together cost {pair:range}. This log cannot separate the two: the checkpoint may take up to {cost:high}."
        )
    elif how == NOT_SEPARABLE:
        text = Message("Checkpoints were written, but nothing in this log shows what one costs.")
    elif how in (MODELLED, COMBINED):
        text = Message(
            "A checkpoint costs about {cost:range}, estimated from the size of the model and usual disk speeds."
        )
    elif a.phases.of(Phase.EVAL).any():
        text = Message("A checkpoint costs {cost:range}: the difference between evaluations with and without one.")
    else:
        text = Message("A checkpoint costs {cost:range}.")
    yield Finding("checkpoint_cost", NOTICE if how == NOT_SEPARABLE else INFO, text._replace(params=facts))


def hidden_evaluations(a: Analysis) -> Iterator[Finding]:
    hidden = a.phases.unlogged_evals.total
    cost = a.costs.pair_s or a.costs.eval_s
    facts = {"at": a.phases.unlogged_evals.shown(), "cost": cost}
    message = Message(
        "The evaluation at iteration {at:ints} fell between two logged lines: no printed time shows it. It is counted here at {cost:range}.",
        facts,
        "The evaluations at iterations {at:ints} fell between two logged lines: no printed time shows them. They are counted here at {cost:range} each.",
        hidden,
    )
    if cost is None or cost.high <= 0:
        message = Message(
            "The evaluation at iteration {at:ints} fell between two logged lines: no printed time shows it, and nothing in this log shows its cost.",
            facts,
            "The evaluations at iterations {at:ints} fell between two logged lines: no printed time shows them, and nothing in this log shows their cost.",
            hidden,
        )
    yield Finding("hidden_evaluations", NOTICE, message)


def stalls(a: Analysis) -> Iterator[Finding]:
    rows = np.flatnonzero(a.phases.of(Phase.STALL))
    if a.phases.baseline is None:
        return
    numbers, excess = a.run.iterations.number[rows], a.phases.excess_s(a.run, rows)
    ratio = a.run.iterations.time_s[rows] / a.phases.baseline.time_s[rows]
    asleep = (excess > SLEEP_S) & (ratio > SLEEP_RATIO)
    if asleep.any():
        count = int(asleep.sum())
        facts = {"at": _first_five_and_last(numbers[asleep]), "lost": float(excess[asleep].sum()), "count": count}
        message = Message(
            "The machine stood still for {lost:time} in iteration {at:ints}, as if asleep. This affects neither the normal speed nor the forecast.",
            facts,
            "The machine stood still for {lost:time} in all in iterations {at:ints}, as if asleep. This affects neither the normal speed nor the forecast.",
            count,
        )
        yield Finding("sleep", WARNING, message)
    awake = ~asleep
    if a.run.inside is not None:  # these have separate findings
        awake &= ~(held_up_by(a, rows, a.run.inside.data_s) | held_up_by(a, rows, a.run.inside.wait_s))
    for period in a.phases.periods:
        own = awake & period.rows[rows]
        if own.any():
            facts = {
                "period": period.every,
                "first": period.first,
                "count": int(own.sum()),
                "ratio": median(ratio[own]),
                "each": median(excess[own]),
                "lost": float(excess[own].sum()),
            }
            message = Message(
                "Every {period:n} iterations one is slow: {count:n} times from iteration {first:n} on, {each:time} more each time and {lost:time} in all. The log does not say why; a checkpoint, an evaluation, the end of an epoch or the next file of data comes back like this.",
                facts,
            )
            places = np.concatenate([iterations_of(events) for events in (a.run.evaluations, a.run.checkpoints)])
            fitting = np.count_nonzero((places - period.first) % period.every == 0)
            # If a single line fits, the log has only some of them: the others were filtered out.
            if shows_events(a.run) and fitting != 1:
                message = Message(
                    "Every {period:n} iterations one is slow, without evaluation or checkpoint: {count:n} times from iteration {first:n} on, {each:time} more each time and {lost:time} in all. Check for work that your own code does at that interval.",
                    facts,
                )
            yield Finding("periodic_slowness", NOTICE, message)
    awake &= ~a.phases.regular[rows]
    if awake.any():
        largest, lost = float(ratio[awake].max()), float(excess[awake].sum())
        yield Finding("stall", NOTICE, stall_message(a.run, numbers[awake].tolist(), largest, lost))


def shows_events(run: Run) -> bool:
    """Whether the log has a line for every evaluation or checkpoint in a time, so that without one there is none."""
    apart = run.timing in (Timing.SPANS_STEP, Timing.CUMULATIVE) and not run.holds
    # A mean over an epoch may include the evaluation printed after it: then no row is known to be without one.
    in_means = run.timing in AVERAGES and "eval" in run.holds and 2 * len(run.evaluations) > len(run.iterations)
    return apart or run.traits.shows_events or (bool(run.evaluations and run.checkpoints) and not in_means)


def stall_message(run: Run, at: list[int], ratio: float, lost_s: float) -> Message:
    facts = {"at": at, "count": len(at), "ratio": ratio, "of": run.logged, "lost": lost_s}
    if shows_events(run):
        return Message(
            "Iteration {at:ints} took {ratio:x} times as long as a normal one, without evaluation or checkpoint: something else blocked the machine for {lost:time}.",
            facts,
            "{count:n} of {of:n} logged iterations were slow without evaluation or checkpoint (up to {ratio:x} times normal; {at:ints}): something else blocked the machine for {lost:time} in all.",
            len(at),
        )
    return Message(
        "Iteration {at:ints} took {ratio:x} times as long as a normal one, {lost:time} more. The log does not show why; it may be an evaluation or a checkpoint.",
        facts,
        "{count:n} of {of:n} logged iterations were slow (up to {ratio:x} times normal; {at:ints}), {lost:time} more in all. The log does not show why; evaluations or checkpoints may be among them.",
        len(at),
    )


def held_up_by(a: Analysis, rows: Ints, inside: Floats) -> np.ndarray:
    """Whether most of what the rows took beyond a normal step was this waiting, as it was recorded."""
    known = inside[np.isfinite(inside)]
    beyond: Floats = np.nan_to_num(inside[rows] - median(known)) * a.phases.covers[rows]
    return np.asarray(beyond > 0.5 * a.phases.excess_s(a.run, rows)) & (len(known) > 0)


# --- levels -----------------------------------------------------------------------------------------------------


def levels(a: Analysis) -> Iterator[Finding]:
    """How the time of a normal iteration changed: in steps, from one to the next, gradually, at the beginning."""
    schedules, change, spread_s = a.run.traits.schedules, a.regimes.drift, a.step_spread_s
    if len(a.regimes.regimes) > 1:
        yield change_of_level(a)
    if spread_s is not None and a.regimes.regimes and not schedules and not a.run.traits.rounds_times:
        yield from uneven_steps(a, *spread_s)
    if change is not None:
        facts = {"change": abs(change)}
        text = Message(
            "The iterations became {change:pct} longer from the first fifth of the run to the last, gradually, as when a card heats up.",
            facts,
        )
        if change < 0:
            text = Message(
                "The iterations became {change:pct} shorter from the first fifth of the run to the last.", facts
            )
        elif schedules:
            text = Message(
                "The iterations became {change:pct} longer from the first fifth of the run to the last; this trainer changes batch size and attention window during the run.",
                facts,
            )
        yield Finding("drift", INFO, text)
    if a.regimes.stable_from is not None:
        text = Message(
            "The times are stable from iteration {at:n} on; before that the machine was still warming up.",
            {"at": a.regimes.stable_from},
        )
        yield Finding("warm_up", INFO, text)


def change_of_level(a: Analysis) -> Finding:
    regimes = a.regimes.regimes
    fastest = min(regimes, key=lambda regime: regime.step_s)
    slowest = max(regimes, key=lambda regime: regime.step_s)
    facts: dict[str, object] = {
        "slow": slowest.step_s,
        "fast": fastest.step_s,
        "begin": slowest.from_iteration,
        "end": slowest.to_iteration,
        "ratio": slowest.step_s / fastest.step_s,
        "count": len(regimes),
    }
    if a.run.traits.schedules:
        text = Message(
            "The length of a step changed from {fast:time} to {slow:time}: this trainer changes batch size and attention window during the run. That is intended."
        )
        return Finding("schedule", INFO, text._replace(params=facts))
    if a.regimes.announced:
        last, before = regimes[-1], regimes[-2]
        facts = {"before": before.step_s, "now": last.step_s, "at": last.from_iteration, "quote": last.announced}
        text = Message(
            "The length of a step changed from {before:time} to {now:time} at iteration {at:n}, where the log says “{quote:quote}”. That is intended."
        )
        return Finding("schedule", INFO, text._replace(params=facts))
    text = Message(
        "The speed changed: {fast:time} per iteration at best, {slow:time} ({ratio:x} times as much) from iteration {begin:n} to {end:n}. A whole stretch is slow, not single iterations: another job on the card, a power limit or heat."
    )
    return Finding("regime_change", NOTICE, text._replace(params=facts))


def uneven_steps(a: Analysis, low: float, high: float) -> Iterator[Finding]:
    """A wide spread of normal steps; not for times in whole seconds or a schedule, which cause one by themselves."""
    most = 1.5  # p95 over p5; steady public runs stay below 1.3
    if low <= 0 or high / max(low, 1e-9) <= most:
        return
    rows, regimes = a.phases.normal, a.regimes.regimes
    times = chosen(a.run.iterations.time_s, rows)
    # Also relative to the level of their stretch: a run with two speeds is not uneven.
    begins = rows_from(a.run.iterations.number, [regime.from_iteration for regime in regimes[1:]]).tolist()
    places = [np.count_nonzero(rows[:begin]) for begin in begins]
    levels = np.array([max(regime.step_s, 1e-9) for regime in regimes])

    def part(asked: slice) -> Floats:
        stretches = np.searchsorted(places, np.arange(*asked.indices(len(times))), side="right")
        return np.asarray(times[asked] / levels[stretches])

    fast, slow = nine_in_ten(series(len(times), part))
    ratio = min(high / max(low, 1e-9), slow / max(fast, 1e-9))
    if ratio > most:
        mid = median(times, np.asarray(chosen(a.phases.covers, rows)))
        facts = {"low": low, "mid": mid, "high": high, "ratio": ratio}
        text = Message(
            "The steps are uneven: half of the normal iterations take less than {mid:time}, nine in ten between {low:time} and {high:time}. Likely causes: inputs of different length, waiting for data, or another job on the card.",
            facts,
        )
        yield Finding("uneven_steps", NOTICE, text)


# --- what the figures mean --------------------------------------------------------------------------------------


def printed_times(a: Analysis) -> Iterator[Finding]:
    """Times that are printed longer or shorter than they are."""
    rows, doubts = a.phases.artefact, a.goodput.doubts
    if rows.any() and a.phases.baseline is not None:
        ratio = median(a.phases.baseline.ratio(a.run.iterations, rows))
        text = Message(
            "Every 100th iteration prints {ratio:x} times the usual time. That is DDP's own sampling, which waits for the card there; no time is lost and none is added to the total.",
            {"ratio": ratio},
        )
        yield Finding("ddp_artefact", INFO, text)
    facts = {"up": a.goodput.unsynchronised}
    if "ranks" in doubts:
        text = Message(
            "With DDP the printed time does not wait for the cards: the real time per iteration may be up to {up:pct} longer than printed. Lines with timestamps would settle it.",
            facts,
        )
        yield Finding("unsynchronised", NOTICE, text)
    elif "short steps" in doubts:
        text = Message(
            "With steps this short the printed time may not wait for the card: the real time per iteration may be up to {up:pct} longer than printed. Lines with timestamps would settle it.",
            facts,
        )
        yield Finding("unsynchronised", NOTICE, text)
    if "busy" in doubts:
        text = Message(
            "This trainer does extra work on the iterations that it logs, so the iterations between them are probably faster than the printed times."
        )
        yield Finding("busy_when_logging", NOTICE, text)


def printed_mfu(a: Analysis) -> Iterator[Finding]:
    """Which card the printed MFU is relative to, and where it is not an MFU at all."""
    t, peak, column = a.throughput, a.run.mfu_peak_flops, a.run.iterations.reported_mfu
    if t.reported_mfu is not None and a.run.traits.mfu_of_a100:
        yield from mfu_of_an_a100(t, t.reported_mfu)
    elif t.reported_mfu is not None and t.mfu is not None and t.possible and peak and t.peak_flops:
        # Trainers that look up the card: their peak may be that of another card, or of none.
        gpu = t.gpu.name if t.gpu else None
        facts = {"printed": t.reported_mfu, "peak": peak, "gpu": gpu, "own": t.peak_flops, "mfu": t.mfu}
        text = Message(
            "The printed MFU of {printed:pct} is measured against {peak:tflops}. The normal iterations use {mfu:pct} of your {gpu:word} ({own:tflops}).",
            facts,
        )
        if abs(peak / t.peak_flops - 1) > 0.02:
            yield Finding("mfu_other_peak", NOTICE, text)
    printed = median(chosen(column, np.isfinite(column)))
    if printed >= IMPOSSIBLE_MFU:  # some trainers count the work of a model that they do not know
        text = Message(
            "The log prints an MFU of {printed:pct}, which no card can reach: the trainer miscounts the work of this model. Its figure is left out.",
            {"printed": printed},
        )
        yield Finding("impossible_mfu", WARNING, text)
    rows = column == SENTINEL_MFU
    if rows.any():
        count = int(rows.sum())
        message = Message(
            "The MFU of -100 % at iteration {at:ints} is not a measurement: nanoGPT prints it until it has completed five iterations.",
            {"at": _first_five_and_last(a.run.iterations.number[rows]), "count": count},
            "The MFU of -100 % at iterations {at:ints} is not a measurement: nanoGPT prints it until it has completed five iterations.",
            count,
        )
        yield Finding("mfu_sentinel", INFO, message)


def mfu_of_an_a100(t: Throughput, printed: float) -> Iterator[Finding]:
    """nanoGPT's MFU is relative to an A100 on every card."""
    facts = {
        "printed": printed,
        "mfu": t.mfu,
        "peak": t.peak_flops,
        "gpu": t.gpu.name if t.gpu else None,
        "achieved": t.achieved_flops,
        "a100": A100_FLOPS,
    }
    if t.mfu is None and t.least_mfu is not None and t.possible and t.peak_flops != A100_FLOPS:
        text = Message(
            "The printed MFU is a moving average against an A100 ({a100:tflops}), and these lines are too few to undo it. If the iterations before them were as fast, the normal ones use at least {mfu:pct} of your {gpu:word} ({peak:tflops})."
        )
        yield Finding("mfu_other_card", NOTICE, text._replace(params={**facts, "mfu": t.least_mfu}))
    elif t.gpu is not None and t.peak_flops is None:
        text = Message(
            "The printed MFU of {printed:pct} is measured against an A100 ({a100:tflops}), whatever the card. The peak of the {gpu:word} is unknown."
        )
        yield Finding("mfu_other_card", NOTICE, text._replace(params=facts))
    elif t.gpu is None:
        text = Message(
            "The printed MFU of {printed:pct} is measured against an A100 ({a100:tflops}), whatever the card. Name yours with --gpu to get the real one."
        )
        if printed > 1:
            text = Message(
                "The log prints an MFU of {printed:pct}, above 100 %: it is measured against an A100 ({a100:tflops}), whatever the card. Name yours with --gpu to get the real one."
            )
        yield Finding("mfu_other_card", NOTICE, text._replace(params=facts))
    elif t.mfu is None or not t.possible:  # the latter has a separate finding
        return
    elif t.peak_flops != A100_FLOPS:
        text = Message(
            "The printed MFU of {printed:pct} is measured against an A100 ({a100:tflops}) and smoothed over slow iterations. The normal iterations use {mfu:pct} of your {gpu:word} ({peak:tflops})."
        )
        yield Finding("mfu_other_card", NOTICE, text._replace(params=facts))
    elif t.mfu > 1.08 * printed:
        text = Message(
            "The printed MFU of {printed:pct} is a moving average that the slow iterations pull down; the normal iterations reach {mfu:pct}."
        )
        yield Finding("mfu_smoothed", INFO, text._replace(params=facts))


def not_shown(a: Analysis) -> Iterator[Finding]:
    """What the printed times leave out and nothing else shows, and what there are too few lines for."""
    unseen = [
        name
        for name, events in (("eval", a.run.evaluations), ("checkpoint", a.run.checkpoints))
        if events and name not in a.run.holds and a.costs.how.get(f"{name}_s") == NOT_SEPARABLE
    ]
    if unseen:
        text = Message(
            "The printed times exclude evaluations and checkpoints, and nothing in this log shows how long they took: the total does not include them."
        )
        if a.goodput.by_clock:
            text = Message(
                "The printed times exclude evaluations and checkpoints, and this log does not show how long each took. The total follows the timestamps of the lines and includes them, as unexplained time."
            )
        elif unseen == ["eval"]:
            text = Message(
                "The printed times exclude evaluations, and nothing in this log shows how long they took: the total does not include them."
            )
        elif unseen == ["checkpoint"]:
            text = Message(
                "The printed times exclude checkpoints, and nothing in this log shows how long they took: the total does not include them."
            )
        if "eval" in unseen:
            yield Finding("invisible_evaluations", NOTICE, text)
        else:
            yield Finding("invisible_checkpoints", NOTICE, text)
    if a.run.traits.counts_epochs:
        text = Message(
            "This log has one line per epoch and does not show its batches: every figure is of a whole epoch, with its validation and its checkpoint."
        )
        yield Finding("epochs", NOTICE, text)
    # Two or three lines far apart may all include an evaluation: nothing shows what a normal iteration takes. Means
    # skip no iteration, and what their trainer does not count is in none of them.
    numbers = chosen(a.run.iterations.number, a.phases.normal)
    apart = int(np.diff(a.run.iterations.number).max(initial=0))
    evaluates = a.run.evaluations or a.phases.of(Phase.EVAL, Phase.EVAL_CHECKPOINT).any()
    single = a.run.timing not in AVERAGES and a.run.span is None and "eval" in a.run.holds
    if single and 1 <= len(numbers) <= 3 and apart >= 50 and not evaluates:
        text = Message(
            "This log has only iterations {at:ints}, far apart: each may include an evaluation, and then a normal one is much shorter. Include the lines between them too."
        )
        if len(numbers) == 1:
            text = Message(
                "Only iteration {at:ints} of this log can be a normal one. It may include an evaluation, and then a normal one is much shorter. Include the lines around it too."
            )
        yield Finding("few_iterations", WARNING, text._replace(params={"at": numbers.tolist()}))


def against_the_settings(a: Analysis) -> Iterator[Finding]:
    """Compares the work of an iteration by the settings with that by the printed MFU; and the length with the log."""
    t, step = a.throughput, a.costs.step_s.mid
    stated = t.achieved_flops * step if t.achieved_flops is not None and t.flops_from != "mfu" else 0.0
    behind = flops_behind_mfu(a.run) if a.run.traits.mfu_of_a100 and stated > 0 else None
    if behind is not None and not 0.75 < stated / behind < 1 / 0.75:
        text = Message(
            "By the settings an iteration is {stated:x} TFLOP, by the printed MFU {behind:x}: the parameters, the tokens per iteration or the number of cards do not match this log.",
            {"stated": stated / TERA, "behind": behind / TERA},
        )
        yield Finding("figures_disagree", WARNING, text)
    end, last = a.run.settings.count("max_iters"), int(a.run.iterations.number[-1])
    if end is not None and last > end:
        text = Message(
            "The log continues to iteration {last:n}, beyond max_iters = {end:n}.", {"last": last, "end": end}
        )
        yield Finding("beyond_the_end", WARNING, text)


def against_the_card(a: Analysis) -> Iterator[Finding]:
    """Whether the speed is normal for this card."""
    t, gpu = a.throughput, a.throughput.gpu
    if gpu is None:
        return
    if a.expected is not None and a.costs.how.get("step_s") == MEASURED:
        yield against_the_model(a, a.expected.step_s, gpu)
    # Far below what others reach on this card, although the model is not small, which would explain it.
    n_params = a.run.settings.number("n_params") or (a.run.flops_per_token or 0.0) / 6
    if t.normal_mfu is not None and t.mfu is not None and a.expected is None and n_params >= PUBLISHED_PARAMS:
        facts = {"mfu": t.mfu, "gpu": gpu.name, "low": t.normal_mfu.low, "high": t.normal_mfu.high}
        if t.mfu < t.normal_mfu.low / 2:
            text = Message(
                "The normal iterations use {mfu:pct} of the {gpu:word}; {low:pct} to {high:pct} is usual for models of this size. Either the card is another one, or it waits: for other cards over a slow link, for data, for another job, or micro-batches are too small.",
                facts,
            )
            yield Finding("low_mfu", WARNING, text)
    if not t.possible:
        facts = {"achieved": t.achieved_flops or t.least_flops, "gpu": gpu.name, "peak": t.peak_flops}
        text = Message(
            "These times would need {achieved:tflops}, more than the {gpu:word} can do ({peak:tflops}). Either the card is another one, or several share the work, or the printed time does not wait for the card.",
            facts,
        )
        yield Finding("impossible_figure", WARNING, text)


def against_the_model(a: Analysis, expected: Interval, gpu: Gpu) -> Finding:
    step = a.costs.step_s.mid
    facts = {"step": step, "expected": expected, "ratio": step / expected.mid, "gpu": gpu.name}
    if step > expected.high:
        text = Message(
            "A step takes {step:time}, {ratio:x} times what the {gpu:word} should need for this model ({expected:range}). Likely causes: another job on the card, a power limit or heat, memory that spilled to the host, no compilation, or slow data."
        )
        if not gpu.has_bf16 and a.run.settings.text("dtype") in (None, "bfloat16"):
            text = Message(
                "A step takes {step:time}, {ratio:x} times what the {gpu:word} should need for this model ({expected:range}). The card has no bfloat16; where nanoGPT selected it anyway, it is emulated. Try --dtype=float16."
            )
        return Finding("slower_than_expected", WARNING, text._replace(params=facts))
    if step < expected.low:
        text = Message(
            "A step takes {step:time}, less than the {gpu:word} is expected to need for this model ({expected:range})."
        )
        return Finding("faster_than_expected", INFO, text._replace(params=facts))
    text = Message(
        "Your {step:time} per step is normal for the {gpu:word} and this model: {expected:range} is expected."
    )
    return Finding("speed_is_normal", INFO, text._replace(params=facts))


# --- how it ended, and how it was read --------------------------------------------------------------------------


def end(a: Analysis) -> Iterator[Finding]:
    loss = a.run.iterations.loss
    good, lost = np.isfinite(loss), np.isinf(loss)  # nan means that it was not printed
    begin = len(good) - int(np.argmax(good[::-1])) if good.any() else 0  # after the last good one
    if lost[begin:].any():
        begin += int(np.argmax(lost[begin:]))
        text = Message(
            "The loss is not a number from iteration {at:n} on: the model no longer learns.",
            {"at": int(a.run.iterations.number[begin])},
        )
        yield Finding("loss_nan", WARNING, text)
    fault = cause_of_end(a.run)
    if fault is not None:
        text = {
            "interrupted": Message("The run was interrupted by hand after iteration {last:n}."),
            "out of memory": Message("The run ran out of memory after iteration {last:n}."),
            "killed": Message("The run was killed after iteration {last:n}."),
        }.get(fault.kind, Message("The run ended with an error after iteration {last:n}."))
        severity = NOTICE if fault.kind == "interrupted" else WARNING
        yield Finding("ended_early", severity, text._replace(params={"last": int(a.run.iterations.number[-1])}))


def cause_of_end(run: Run) -> Fault | None:
    """Why the process ended, if lines after its last iteration say so: the one that the others follow from."""
    rows = run.iterations
    last = int(rows.line[-1]) if len(rows) else -1
    end = run.settings.count("max_iters")
    done = len(rows) > 0 and end is not None and int(rows.number[-1]) >= end
    cause = most_telling([fault for fault in run.faults if fault.line > last])
    # A process that has done its work may be killed or lose its ranks while it ends.
    harmless = done and cause is not None and cause.kind in ("interrupted", "killed", "nccl error")
    return None if harmless else cause


def how_it_was_read(a: Analysis) -> Iterator[Finding]:
    """Means, bars, and lines that were left out: what the figures are based on."""
    run = a.run
    if run.bar_alone:
        facts = {"last": int(run.iterations.number[-1])}
        text = Message(
            "Nothing but a progress bar up to {last:n} shows that this is a training: it could be of loading or inference too.",
            facts,
        )
        yield Finding("bar_alone", NOTICE, text)
    holds_evaluations = bool(run.evaluations) and "eval" in run.holds
    if run.timing is Timing.SPANS_RUN:
        text = Message(
            "The log shows only the time of a whole run or epoch: the step time is the mean over it, and slow iterations are not visible."
        )
        if holds_evaluations:
            text = Message(
                "The log shows only the time of a whole run or epoch: the step time is the mean over it, evaluations included, and slow iterations are not visible."
            )
        yield Finding("averaged_times", NOTICE, text)
    elif run.timing in AVERAGES and bool((a.phases.covers > 1).any()):
        text = Message(
            "The printed times are averages over the iterations since the line before; a slow iteration is spread over them."
        )
        apart = a.phases.first_evaluates or a.phases.of(Phase.EVAL, Phase.EVAL_CHECKPOINT).any()
        if holds_evaluations and not apart:
            text = Message(
                "The printed times are averages over the iterations since the line before, each with an evaluation that this log cannot separate: the step time includes it."
            )
        yield Finding("averaged_times", NOTICE, text)
    if run.unread:
        yield from lines_without_time(run)
    if run.outside:  # outside stepwatch.bounds: a broken trainer, or lines that are not of a training
        message = Message(
            "Line {line:n} contains an impossible value ({what:word}): it is not used.",
            {"count": run.outside_count, "line": run.outside[0].line + 1, "what": run.outside[0].text},
            "{count:n} lines contain impossible values, the first in line {line:n} ({what:word}): they are not used.",
            run.outside_count,
        )
        yield Finding("outside_values", WARNING, message)


def lines_without_time(run: Run) -> Iterator[Finding]:
    """A stage that prints no times, or lines that were cut: what is missing from the figures."""
    unread, count = run.unread, run.unread_count
    if run.traits.unread_lines == "cut":
        text = Message("The file ends in the middle of a record: the rest is not written yet, or was lost.")
        yield Finding("lines_without_time", NOTICE, text)
        return
    if run.traits.unread_lines == "all":
        numbered = re.compile(r"(?<![\w*])iter(?:ation)?\s+\d{1,12}\s*:")
        unread = tuple(line for line in unread if numbered.search(line.text))
        count = len(unread)
    if unread:
        message = Message(
            "Line {line:n} looks like an iteration but has no readable time: it is not counted.",
            {"count": count, "line": unread[0].line + 1},
            "{count:n} lines look like iterations but have no readable time, the first in line {line:n}: they are not counted.",
            count,
        )
        yield Finding("lines_without_time", WARNING if count > 0.01 * len(run.iterations) else NOTICE, message)


def rules_for(a: Analysis) -> list[Rule]:
    """The rules that have something to look at, in the order in which their findings are shown."""
    run, regimes, t = a.run, a.regimes, a.throughput
    rows = int(np.count_nonzero(a.phases.normal))
    far_below = t.mfu is not None and t.normal_mfu is not None and t.mfu < t.normal_mfu.low / 2
    asked: tuple[tuple[Rule, object], ...] = (
        (first_iteration, a.costs.compile_s is not None),
        (evaluation_spikes, a.costs.eval_s is not None),
        (checkpoint_cost, a.costs.checkpoint_s is not None),
        (hidden_evaluations, a.phases.unlogged_evals.total),
        (stalls, a.phases.of(Phase.STALL).any()),
        (levels, rows >= LEAST_SPREAD_ROWS or len(regimes.regimes) > 1 or regimes.stable_from is not None),
        (printed_times, a.goodput.doubts or a.phases.artefact.any()),
        (printed_mfu, not np.isnan(run.iterations.reported_mfu).all()),
        (not_shown, rows <= 3 or run.traits.counts_epochs or not run.holds >= {"eval", "checkpoint"}),
        (against_the_settings, t.flops_from != "mfu" or "max_iters" in run.settings),
        (against_the_card, a.expected is not None or far_below or not t.possible),
        (end, run.faults or np.isinf(run.iterations.loss).any()),
        (how_it_was_read, run.timing in AVERAGES or run.bar_alone or run.unread or run.outside),
    )
    return [rule for rule, there_is in asked if there_is]


# --- what was checked and is fine: said in one line, so that nobody looks there ---------------------------------


SMALL_SHARE = 0.05  # of the time of steps, evaluations and checkpoints


def passed(a: Analysis) -> Iterator[Message]:
    """Only what this log can show: a run of means hides its stalls."""
    codes = {finding.code for finding in a.findings}
    rows, parts = int(a.phases.normal.sum()), a.goodput.parts_s
    single = a.run.timing not in (Timing.SPANS_LOG_INTERVAL, Timing.SPANS_RUN)
    if codes & {"speed_is_normal", "faster_than_expected"}:
        yield Message("good speed for this card")
    differ = a.run.timing is not Timing.SPANS_RUN  # else all are the same mean
    if rows >= LEAST_SPREAD_ROWS and differ and not codes & {"uneven_steps", "regime_change", "drift", "schedule"}:
        yield Message("even pace")
    if rows >= LEAST_SPREAD_ROWS and single and not codes & {"stall", "sleep", "periodic_slowness", "late_data"}:
        yield Message("no stalls")
    between = parts["eval"] + parts["checkpoint"]
    if a.phases.evaluations and 0 < between < SMALL_SHARE * (between + a.goodput.steps_s):
        yield Message("little time in evaluations and checkpoints")
    loss = a.run.iterations.loss  # nan means that it was not printed
    if np.isfinite(loss).any() and not np.isinf(loss).any():
        yield Message("finite loss throughout")
