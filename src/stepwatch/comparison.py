"""Two runs side by side: what differs in settings and speed, whether that is more than noise, and why."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from stepwatch.analysis import Analysis
from stepwatch.analysis.costs import NOT_SEPARABLE
from stepwatch.analysis.throughput import tokens_per_iteration
from stepwatch.errors import InputError, UsageError
from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.settings import PRIVATE, Value
from stepwatch.units import Interval, interval_json

SCHEMA = "stepwatch.comparison/1"
# Two runs of the same thing on the same machine are not equally fast: other neighbours, another temperature.
BETWEEN_RUNS = 0.005
SAME_TOKENS = 0.001
LARGE_PART = 0.02  # of the wall time: a smaller share of stalls explains nothing
Verdict = Literal["faster", "slower", "same"]
PARTS = ("step", "eval", "checkpoint", "compile")
_PERCENT = Pattern(r"(?P<value>\d{1,4}(?:[.,]\d{1,4})?)\s?%?")
_NOT_SPEED = frozenset({
    "learning_rate", "weight_decay", "beta1", "beta2", "grad_clip", "decay_lr", "warmup_iters", "lr_decay_iters",
    "min_lr", "max_iters", "eval_only", "log_interval",
})  # fmt: skip


class Changed(NamedTuple):
    """A setting that differs; None where one of the logs does not tell it."""

    name: str
    before: Value | None
    after: Value | None


class Part(NamedTuple):
    """What one part costs in either run; None where it does not occur or cannot be told."""

    name: str
    before: Interval | None
    after: Interval | None
    ratio: Interval | None


class Comparison(NamedTuple):
    before: Analysis
    after: Analysis
    ratio: Interval
    """Of the time that the same number of tokens takes, after over before: 1.05 is 5 % slower."""
    per_token: bool
    """Whether iterations of different size were made comparable by their tokens."""
    verdict: Verdict
    parts: tuple[Part, ...]
    changed: tuple[Changed, ...]
    reasons: tuple[Message, ...]
    limit: float | None = None

    @property
    def failed(self) -> bool:
        """Slower by more than was allowed, and surely slower."""
        return self.limit is not None and self.verdict == "slower" and self.ratio.mid > 1 + self.limit


def compare(before: Analysis, after: Analysis, *, limit: float | None = None) -> Comparison:
    """Raises InputError where one of the runs does not tell what a normal iteration takes."""
    for a in (before, after):
        if a.costs.how.get("step_s") == NOT_SEPARABLE or not a.costs.step_s.mid > 0:
            raise InputError(
                Message("“{name:word}” does not tell what a normal iteration takes", {"name": a.run.source or "-"}),
                Message("compare logs with some plain iterations in each"),
            )
    sizes = tokens_per_iteration(before.run), tokens_per_iteration(after.run)
    scale = sizes[0] / sizes[1] if sizes[0] and sizes[1] else 1.0
    per_token = abs(scale - 1) > SAME_TOKENS
    ratio = _over(after.costs.step_s, before.costs.step_s, scale)
    found = Comparison(
        before, after, ratio, per_token, _verdict(ratio), tuple(_parts(before, after)),
        tuple(_changed(before, after)), (), limit,
    )  # fmt: skip
    return found._replace(reasons=tuple(_reasons(found)))


def _over(after: Interval, before: Interval, scale: float = 1.0) -> Interval:
    """The ratio of two times that were measured apart."""
    mid = after.mid / before.mid * scale
    noise = [BETWEEN_RUNS**2 + _relative(after, side) ** 2 + _relative(before, -side) ** 2 for side in (-1, 1)]
    return Interval(mid * math.exp(-math.sqrt(noise[0])), mid, mid * math.exp(math.sqrt(noise[1])))


def _relative(of: Interval, side: int) -> float:
    return ((of.high - of.mid) if side > 0 else (of.mid - of.low)) / of.mid if of.mid > 0 else 0.0


def _verdict(ratio: Interval) -> Verdict:
    return "slower" if ratio.low > 1 else "faster" if ratio.high < 1 else "same"


def _parts(before: Analysis, after: Analysis) -> list[Part]:
    found = []
    for name in PARTS:
        costs = [getattr(a.costs, f"{name}_s") for a in (before, after)]
        known = [
            cost if cost is not None and a.costs.how.get(f"{name}_s") != NOT_SEPARABLE else None
            for cost, a in zip(costs, (before, after), strict=True)
        ]
        one, other = known
        ratio = _over(other, one) if one is not None and other is not None and one.mid > 0 and other.mid > 0 else None
        if one is not None or other is not None:
            found.append(Part(name, one, other, ratio))
    return found


def _changed(before: Analysis, after: Analysis) -> list[Changed]:
    """Settings that both logs tell, or one of them, with another value; never one that names a person or a place."""
    one, other = before.run.settings, after.run.settings
    names = [name for name in dict.fromkeys((*one, *other)) if name not in PRIVATE]
    values = ((name, _value(one, name), _value(other, name)) for name in names)
    return [Changed(name, a, b) for name, a, b in values if a is not None and b is not None and a != b]


def _value(settings: object, name: str) -> Value | None:
    found = settings.get(name) if hasattr(settings, "get") else None
    return found.value if found is not None else None


# --- why --------------------------------------------------------------------------------------------------------


def _reasons(c: Comparison) -> list[Message]:
    """As far as the logs tell; the cause itself stands in no log."""
    found = [*_of_cards(c), *_of_settings(c), *_of_model(c)]
    found += [message for a in (c.before, c.after) for message in _of_machine(a)]
    return found


def _of_cards(c: Comparison) -> list[Message]:
    one, other = c.before.throughput, c.after.throughput
    if one.gpu is None or other.gpu is None or one.gpu.name == other.gpu.name:
        return []
    facts = {"one": one.gpu.name, "other": other.gpu.name, "peak": one.peak_flops, "peaks": other.peak_flops}
    if not one.peak_flops or not other.peak_flops:
        return [Message("Another card: {other:word} instead of {one:word}.", facts)]
    return [
        Message("Another card: {other:word} (peak {peaks:tflops}) instead of {one:word} (peak {peak:tflops}).", facts)
    ]


def _of_settings(c: Comparison) -> list[Message]:
    names = [changed.name for changed in c.changed if changed.name not in _NOT_SPEED]
    if not names:
        return []
    return [Message("Settings that bear on the speed differ: {names:word}.", {"names": ", ".join(names)})]


def _of_model(c: Comparison) -> list[Message]:
    """What the estimator expects of the two, where it knows both."""
    if c.before.expected is None or c.after.expected is None:
        return []
    expected = c.after.expected.step_s.mid / c.before.expected.step_s.mid
    if abs(expected - 1) < 0.01:
        return []
    measured = c.after.costs.step_s.mid / c.before.costs.step_s.mid
    facts = {"expected": expected, "measured": measured}
    return [
        Message(
            "From settings and cards alone an iteration should take {expected:x} times as long; it takes {measured:x} "
            "times.",
            facts,
        )
    ]


def _of_machine(a: Analysis) -> list[Message]:
    name = {"name": a.run.source or "-"}
    found = []
    if len(a.regimes.regimes) > 1:
        found.append(Message("In “{name:word}” the speed changed during the run.", name))
    if a.goodput.wall_s > 0 and a.goodput.parts_s["stall"] > LARGE_PART * a.goodput.wall_s:
        share = a.goodput.parts_s["stall"] / a.goodput.wall_s
        found.append(Message("In “{name:word}” {share:pct} of the time was lost in stalls.", {**name, "share": share}))
    return found


# --- options, JSON ----------------------------------------------------------------------------------------------


def limit_of(text: str) -> float:
    """`5%` or `5` as a share."""
    found = _PERCENT.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            Message("“{text:word}” is no percentage", {"text": text}), Message("for example: --fail-over 5%")
        )
    return float(found["value"].replace(",", ".")) / 100


def comparison_json(c: Comparison) -> dict[str, object]:
    return {
        "schema": SCHEMA, "runs": [_run_json(c.before), _run_json(c.after)], "ratio": interval_json(c.ratio),
        "per_token": c.per_token, "verdict": c.verdict, "limit": c.limit, "failed": c.failed,
        "parts": {
            part.name: {
                "before_s": interval_json(part.before), "after_s": interval_json(part.after),
                "ratio": interval_json(part.ratio),
            }
            for part in c.parts
        },
        "changed": {changed.name: [changed.before, changed.after] for changed in c.changed},
    }  # fmt: skip


def _run_json(a: Analysis) -> dict[str, object]:
    t = a.throughput
    return {
        "source": a.run.source, "format": a.run.format, "gpu": t.gpu.name if t.gpu else None,
        "step_s": interval_json(a.costs.step_s), "tokens_per_s": t.tokens_per_s, "mfu": t.mfu,
        "wall_s": a.goodput.wall_s, "iterations": a.goodput.iterations,
        "parts_s": dict(a.goodput.parts_s),
    }  # fmt: skip
