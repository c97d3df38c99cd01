"""Two runs side by side: what differs in settings and speed, whether that is more than noise, and why."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from stepwatch.analysis import Analysis
from stepwatch.analysis.costs import NOT_SEPARABLE
from stepwatch.analysis.phases import AVERAGES
from stepwatch.analysis.statistics import spread
from stepwatch.analysis.throughput import tokens_per_iteration
from stepwatch.errors import InputError, Notice, UsageError
from stepwatch.messages import Message
from stepwatch.settings import PRIVATE, Value
from stepwatch.units import MILLI, Interval, interval_json

SCHEMA = "stepwatch.comparison/1"
# Two equal runs on the same machine are not equally fast: other neighbours, another temperature.
BETWEEN_RUNS = 0.005
_UNKNOWN = math.log(1e9)  # a ratio with a larger uncertainty counts as unknown
Outcome = Literal["faster", "slower", "same", "not_comparable"]
SIDES = ("A", "B")
COMPARED_PARTS = ("step", "data", "eval", "checkpoint", "compile")
_PERCENT = re.compile(r"(?P<value>\d{1,4}(?:[.,]\d{1,4})?)\s?(?P<sign>%?)")
_NOT_SPEED = frozenset({  # settings without an effect on the speed of a step
    "learning_rate", "weight_decay", "beta1", "beta2", "grad_clip", "decay_lr", "warmup_iters", "lr_decay_iters",
    "min_lr", "max_iters", "eval_only", "log_interval", "eval_interval", "eval_iters", "always_save_checkpoint",
    "mtbf_hours",
})  # fmt: skip
_SIZES = ("batch_size", "block_size", "gradient_accumulation_steps", "world_size")


class Changed(NamedTuple):
    """A setting that differs."""

    name: str
    before: Value
    after: Value


class ComparedCost(NamedTuple):
    """What one part costs in either run; None if it does not occur or is unknown."""

    name: str
    before: Interval | None
    after: Interval | None
    ratio: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    before: Analysis
    after: Analysis
    names: tuple[str, str]
    ratio: Interval
    """The time for the same number of tokens, after over before: 1.05 is 5 % slower."""
    per_token: bool
    """Whether iterations of different size were made comparable by their tokens."""
    parts: tuple[ComparedCost, ...]
    changed: tuple[Changed, ...]
    verdict: Outcome = "not_comparable"
    doubts: tuple[Message, ...] = ()
    """Why the runs are not comparable: the ratio means nothing then."""
    reasons: tuple[Message, ...] = ()
    notes: tuple[Message, ...] = ()
    """What was assumed, left out or chosen."""
    limit: float | None = None
    notices: tuple[Notice, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether it is slower by more than allowed, and beyond noise."""
        return self.limit is not None and self.verdict == "slower" and _printed(self.ratio.mid) > 1 + self.limit

    @property
    def named(self) -> tuple[tuple[str, Analysis], ...]:
        return tuple(zip(self.names, (self.before, self.after), strict=True))


def compare(
    before: Analysis,
    after: Analysis,
    *,
    names: tuple[str, str] | None = None,
    limit: float | None = None,
    notes: Sequence[Message] = (),
) -> Comparison:
    """Compares two runs. Raises InputError if one does not show what a normal iteration takes."""
    names = names or (before.run.source or "-", after.run.source or "-")
    if names[0] == names[1]:  # for example in two directories
        names = f"{SIDES[0]}: {names[0]}", f"{SIDES[1]}: {names[1]}"
    for name, a in zip(names, (before, after), strict=True):
        if not a.costs.step_measured:
            raise InputError(
                Message("“{name:word}” does not show what a normal iteration takes", {"name": name}),
                Message("compare logs with some plain iterations in each"),
            )
    sizes = tokens_per_iteration(before.run), tokens_per_iteration(after.run)
    scale = sizes[0] / sizes[1] if sizes[0] and sizes[1] else 1.0
    # Settings that both logs state, except those that may name a person or a place.
    one, other = before.run.settings, after.run.settings
    shared = [name for name in one if name in other and name not in PRIVATE]
    parts = []
    for part in COMPARED_PARTS:
        first, second = (
            getattr(a.costs, f"{part}_s") if a.costs.how.get(f"{part}_s") != NOT_SEPARABLE else None
            for a in (before, after)
        )
        ratio = None
        if first is not None and second is not None and first.mid > 0 and second.mid > 0:
            ratio = _over(second, first)
        if first is not None or second is not None:
            parts.append(ComparedCost(part, first, second, ratio))
    found = Comparison(
        before=before,
        after=after,
        names=names,
        ratio=_over(_as_printed(after), _as_printed(before), scale),
        per_token=abs(scale - 1) > BETWEEN_RUNS,
        parts=tuple(parts),
        changed=tuple(
            Changed(name, one[name].value, other[name].value) for name in shared if one[name].value != other[name].value
        ),
        limit=limit,
    )
    doubts = tuple(_doubts(found))
    verdict: Outcome = "same"
    if doubts:
        verdict = "not_comparable"
    elif _printed(found.ratio.low) > 1:
        verdict = "slower"
    elif _printed(found.ratio.high) < 1:
        verdict = "faster"
    assumed = []
    if all(tokens_per_iteration(a.run) is None for _, a in found.named) and _sizes_seem_equal(found):
        assumed.append(
            Message(
                "Neither log shows how many tokens a step has: the steps are assumed to be the same size. If they are "
                "not, add both: --set A:tokens_per_iter=… --set B:tokens_per_iter=…"
            )
        )
    for name, a in found.named:
        t = a.throughput
        if not t.possible and t.gpu is not None:
            assumed.append(
                Message(
                    "The times of “{name:word}” would need {achieved:tflops}, more than the {gpu:word} can do "
                    "({peak:tflops}), so its MFU is left out. Either the card is another one, or several share the "
                    "work, or the printed time does not wait for the card.",
                    {"name": name, "achieved": t.achieved_flops, "gpu": t.gpu.name, "peak": t.peak_flops},
                )
            )
    return replace(found, verdict=verdict, doubts=doubts, reasons=tuple(_reasons(found)), notes=(*notes, *assumed))


def _as_printed(a: Analysis) -> Interval:
    """The step time. Keras rounds it to whole seconds or milliseconds, so that all rows may have the same error."""
    step, times = a.costs.step_s, a.run.iterations.time_s[a.phases.normal]
    digit = 1.0 if step.mid >= 1 else MILLI
    rounded = a.run.traits.rounds_times and spread(times) < digit
    rounded = rounded and np.allclose(times, digit * np.round(times / digit))
    half = digit / 2 / step.mid if rounded else 0.0
    return step.widened(down=half, up=half)


def _over(after: Interval, before: Interval, scale: float = 1.0) -> Interval:
    """The ratio of two times that were measured independently."""
    mid = after.mid / before.mid * scale
    down = math.hypot(BETWEEN_RUNS, (after.mid - after.low) / after.mid, (before.high - before.mid) / before.mid)
    up = math.hypot(BETWEEN_RUNS, (after.high - after.mid) / after.mid, (before.mid - before.low) / before.mid)
    return Interval(mid * math.exp(-down), mid, mid * math.exp(min(up, _UNKNOWN)))


def _printed(ratio: float) -> float:
    """The ratio as it is shown, so that the verdict agrees with the figures."""
    return round(ratio, 3)


# --- what cannot be compared ------------------------------------------------------------------------------------

# What a printed time is, by `Timing`: values with the same sentence mean the same.
_TIMES = {
    "iteration": Message("In “{name:word}” a time covers a whole iteration."),
    "step": Message("In “{name:word}” a time covers the training step alone."),
    "log interval": Message("In “{name:word}” a time is a mean over several steps."),
    "cumulative": Message("In “{name:word}” a time is a mean over several steps."),
    "run": Message("In “{name:word}” a time is the mean of a whole run or epoch."),
}
_HELD = {
    frozenset({"eval"}): Message("The times of “{name:word}” include evaluations, those of “{other:word}” do not."),
    frozenset({"checkpoint"}): Message(
        "The times of “{name:word}” include checkpoints, those of “{other:word}” do not."
    ),
    frozenset({"eval", "checkpoint"}): Message(
        "The times of “{name:word}” include evaluations and checkpoints, those of “{other:word}” do not."
    ),
}


def _doubts(c: Comparison) -> Iterator[Message]:
    single = [name for name, a in c.named if int(a.phases.normal.sum()) < 2]
    if len(single) > 1:
        yield Message("Each log has only one normal iteration, which says nothing about the noise: use longer logs.")
    elif single:
        yield Message(
            "“{name:word}” has only one normal iteration, which says nothing about the noise: use a longer log.",
            {"name": single[0]},
        )

    stated = [tokens_per_iteration(a.run) is not None for _, a in c.named]
    if any(stated) and not all(stated):
        facts = {"name": c.names[stated.index(True)], "other": c.names[stated.index(False)]}
        yield Message(
            "Only “{name:word}” shows how many tokens a step has, so the steps may differ in size. Add it for "
            "“{other:word}”: --set {side:word}:tokens_per_iter=…",
            {**facts, "side": SIDES[stated.index(False)]},
        )
    elif not any(stated) and not _sizes_seem_equal(c):
        yield Message(
            "Neither log shows how many tokens a step has, and the steps may differ in size. Add both: --set "
            "A:tokens_per_iter=… --set B:tokens_per_iter=…"
        )

    # Trainers time different things. What single rows include can be separated; what a mean includes cannot.
    one, other = c.before.run, c.after.run
    kinds_differ = _TIMES[one.timing] != _TIMES[other.timing]
    averages_differ = one.holds != other.holds and one.timing in AVERAGES
    if not kinds_differ and not averages_differ:
        return
    yield Message("The printed times of the two logs do not mean the same thing.")
    for name, a in c.named if kinds_differ else ():
        yield _TIMES[a.run.timing]._replace(params={"name": name})
    for (name, a), (another, b) in (c.named, c.named[::-1]):
        if a.run.holds - b.run.holds in _HELD:
            yield _HELD[a.run.holds - b.run.holds]._replace(params={"name": name, "other": another})


def _sizes_seem_equal(c: Comparison) -> bool:
    return c.before.run.same_format(c.after.run) and not any(changed.name in _SIZES for changed in c.changed)


# --- why --------------------------------------------------------------------------------------------------------


def _reasons(c: Comparison) -> Iterator[Message]:
    """As far as the logs show; the cause itself is in no log."""
    one, other = c.before.throughput, c.after.throughput
    if one.gpu is not None and other.gpu is not None and one.gpu.name != other.gpu.name:
        facts = {"one": one.gpu.name, "other": other.gpu.name, "peak": one.peak_flops, "peaks": other.peak_flops}
        text = Message("Another card: {other:word} instead of {one:word}.", facts)
        if one.peak_flops and other.peak_flops:
            text = Message(
                "Another card: {other:word} (peak {peaks:tflops}) instead of {one:word} (peak {peak:tflops}).", facts
            )
        yield text
    names = [changed.name for changed in c.changed if changed.name not in _NOT_SPEED]
    if names:
        yield Message("Settings that affect the speed differ: {names:list}.", {"names": ", ".join(names)})
    if c.before.expected is not None and c.after.expected is not None and one.possible and other.possible:
        expected = c.after.expected.step_s.mid / c.before.expected.step_s.mid
        if abs(expected - 1) >= 0.01:
            yield Message(
                "From settings and cards alone an iteration should take {expected:ratio} times as long; it takes "
                "{measured:ratio} times.",
                {"expected": expected, "measured": c.after.costs.step_s.mid / c.before.costs.step_s.mid},
            )
    for name, a in c.named:
        if len(a.regimes.regimes) > 1:
            yield Message("In “{name:word}” the speed changed during the run.", {"name": name})
        stalls, wall = a.goodput.parts_s["stall"], a.goodput.wall_s
        if wall > 0 and stalls > 0.02 * wall:  # a smaller share explains nothing
            facts = {"name": name, "share": stalls / wall}
            yield Message("In “{name:word}” {share:pct} of the time was lost in stalls.", facts)


# --- options, JSON ----------------------------------------------------------------------------------------------


def limit_of(text: str) -> float:
    """`5%` or `5` as a share; a bare fraction may mean either and is refused."""
    found = _PERCENT.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            Message("“{text:word}” is not a percentage", {"text": text}), Message("for example: --fail-over 5%")
        )
    value = float(found["value"].replace(",", "."))
    if 0 < value < 1 and not found["sign"]:
        raise UsageError(
            Message("“{text:word}” may be a share or a percentage", {"text": text}),
            Message("write --fail-over {share:word}% or --fail-over {percent:word}%",
                    {"share": f"{100 * value:g}", "percent": f"{value:g}"}),
        )  # fmt: skip
    return value / 100


def comparison_json(c: Comparison) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "runs": [
            {
                "name": name, "source": a.run.source, "format": a.run.format,
                "gpu": a.throughput.gpu.name if a.throughput.gpu else None,
                "timing": a.run.timing.value, "times_include": sorted(a.run.holds),
                "step_s": interval_json(a.costs.step_s), "tokens_per_iter": tokens_per_iteration(a.run),
                "tokens_per_s": a.throughput.tokens_per_s, "mfu": a.throughput.mfu if a.throughput.possible else None,
                "wall_s": a.goodput.wall_s, "iterations": a.goodput.iterations,
                "normal_iterations": int(a.phases.normal.sum()), "parts_s": a.parts_s,
            }
            for name, a in c.named
        ],
        "ratio": interval_json(c.ratio),
        "per_token": c.per_token, "limit": c.limit, "failed": c.failed,
        "parts": {
            part.name: {
                "before_s": interval_json(part.before), "after_s": interval_json(part.after),
                "ratio": interval_json(part.ratio),
            }
            for part in c.parts
        },
        "changed": {changed.name: [changed.before, changed.after] for changed in c.changed},
    }  # fmt: skip
