"""The run that advice is about: what it is set to, what its parts cost, and the same run with other settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from stepwatch.advice.witnesses import Z90, borne_out
from stepwatch.estimator.simulate import NOTHING, UNCHANGED, Loop, Prices, Simulated, product, saving, simulate
from stepwatch.settings import Origin, Settings, Value
from stepwatch.units import GIGA, HOUR_S, Interval

if TYPE_CHECKING:
    from stepwatch.analysis import Analysis
    from stepwatch.estimator.estimate import Estimate
    from stepwatch.estimator.plan import Plan
    from stepwatch.estimator.workload import Workload
    from stepwatch.gpus import Gpu

# How many times as fast a step became, as published (docs/advice.md names the sources). The lever itself is sure, how
# much it gives on another card is not.
PUBLISHED_GAINS = {
    "compile": Interval(1.15, 1.6, 2.3), "flash": Interval(1.2, 1.4, 1.66), "vocab_size": Interval(1.03, 1.07, 1.3),
    "fused": Interval(1.01, 1.02, 1.04), "dtype": Interval(1.11, 1.4, 1.71),
}  # fmt: skip
TINY_PARAMS, TINY_COMPILE_GAINS = 15e6, Interval(0.9, 1.2, 1.85)
# Of a gain that only the estimator computes, as a power of it.
LEAST_OF_GAIN, MOST_OF_GAIN = 0.4, 1.6
# What the estimator needs to know of a run to say what another setting does to its speed.
_FIELDS = {
    "batch_size": "batch_size", "gradient_accumulation_steps": "grad_accum", "dtype": "dtype", "compile": "compile",
    "flash": "flash", "fused": "fused", "vocab_size": "vocab_size", "world_size": "world_size",
    "eval_iters": "eval_iters",
}  # fmt: skip
# What spilled is moved at least twice in a micro-step, over PCIe 4.0 x16 at best (25 GB/s) and x8 at worst.
SPILL = ((2, 25 * GIGA), (4, 20 * GIGA), (8, 10 * GIGA))
BYTES_SAVED_PER_PARAM = 12.0  # weights and Adam's two moments in fp32


class Effect(NamedTuple):
    """What a change does to a run beyond its settings: code, a disk, a quieter machine."""

    evaluation: float = 1.0
    checkpoint: Interval = UNCHANGED
    step: Interval = UNCHANGED
    save_every: int | None = None
    save_also: bool = False
    """The checkpoints of `save_every` come on top of those of the evaluations, whatever the loss."""
    lost: Interval = UNCHANGED

    def with_(self, other: Effect) -> Effect:
        """Both; of two ways to make checkpoints cheaper the better one counts."""
        cheaper = min(self.checkpoint, other.checkpoint, key=lambda factor: factor.mid)
        return Effect(
            self.evaluation * other.evaluation, cheaper, product(self.step, other.step),
            other.save_every or self.save_every, other.save_also or self.save_also, product(self.lost, other.lost),
        )  # fmt: skip


NO_EFFECT = Effect()


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run before or after it ran; `done` and `analysis` are of a log, `plan` is of a config."""

    settings: Settings
    prices: Prices
    loop: Loop
    measured: frozenset[str]
    """The parts of which a log shows the cost: step, eval, checkpoint, compile."""
    gpu: Gpu | None = None
    workload: Workload | None = None
    lost_s: Interval = NOTHING
    """In stalls."""
    cards: int = 1
    """That there are, whether they are used or not."""
    n_params: float | None = None
    link: str | float | None = None
    improvements: Interval | None = None
    """Share of the evaluations that bettered the validation loss, where a log shows it."""
    analysis: Analysis | None = None
    plan: Plan | None = None
    windows: bool = False

    # --- what is known ------------------------------------------------------------------------------------------

    @cached_property
    def total_s(self) -> Interval:
        return self.simulated(self.loop).total_s

    @cached_property
    def estimate(self) -> Estimate | None:
        """The run as it is, by the estimator."""
        return self._estimate(())

    @property
    def mtbf_s(self) -> float | None:
        hours = self.settings.number("mtbf_hours")
        return hours * HOUR_S if hours else None

    @property
    def checkpoint_bytes(self) -> float | None:
        return BYTES_SAVED_PER_PARAM * self.n_params if self.n_params else None

    @property
    def save_spacing(self) -> float | None:
        """Iterations from one checkpoint to the next."""
        saves = self.loop.saves.mid
        return self.loop.iterations / saves if saves > 0 else None

    def share(self, part: Interval) -> float:
        return part.mid / self.total_s.mid if self.total_s.mid > 0 else 0.0

    def assumed(self, name: str) -> bool:
        """Whether a setting is nanoGPT's default because nothing tells it."""
        return name in self.settings and self.settings[name].origin is Origin.FORMAT_DEFAULT

    # --- the run with other settings ----------------------------------------------------------------------------

    def simulated(self, loop: Loop) -> Simulated:
        return simulate(loop, self.prices, one_model=self.plan is not None)

    def saving(self, change: Mapping[str, Value], effect: Effect = NO_EFFECT) -> Interval:
        return saving(self.loop, self.changed(change, effect), self.prices)

    def changed(self, change: Mapping[str, Value], effect: Effect = NO_EFFECT) -> Loop:
        """How often each thing happens and what it costs, with the change."""
        loop = self._paced(self.loop, change)
        if effect.save_every is not None:
            occasions = self.loop.iterations // effect.save_every
            saves = _share_of_fewer(loop.share, occasions).scaled(occasions)
            if effect.save_also:
                saves = loop.saves + Interval.exactly(occasions)
            loop = loop._replace(apart=saves)
        factor = effect.evaluation * self._batches(change)
        step, evaluation, start = self.modelled(change)
        lost = product(self.lost_s, effect.lost)
        return loop._replace(
            step=product(step, effect.step), spill=self._spill(change), evaluation=evaluation.scaled(factor),
            checkpoint=effect.checkpoint, start_s=start, lost_s=lost + self._rework(loop),
        )  # fmt: skip

    def _paced(self, loop: Loop, change: Mapping[str, Value]) -> Loop:
        """Evaluations and checkpoints, by how often the settings ask for them."""
        always = change.get("always_save_checkpoint")
        if always is False and self.improvements is not None:
            loop = loop._replace(share=self.improvements)
        interval, now = change.get("eval_interval"), self.settings.number("eval_interval")
        if not interval or not now:
            return loop
        later = int((loop.evaluations - loop.never) * now / float(interval))
        return loop._replace(evaluations=later + loop.never, share=_share_of_fewer(loop.share, later))

    def _batches(self, change: Mapping[str, Value]) -> float:
        """Forward passes of an evaluation, against now; a larger micro-batch makes each of them longer."""
        factor = 1.0
        for name in ("eval_iters", "batch_size"):
            now = self.settings.number(name)
            if name in change and now:
                factor *= float(change[name]) / now
        return factor

    def modelled(self, change: Mapping[str, Value]) -> tuple[Interval, Interval, Interval | None]:
        """Factors of step and of a forward pass over one sequence, and the start where it becomes another one."""
        if not any(name in change for name in _FIELDS if name != "eval_iters"):
            return UNCHANGED, UNCHANGED, None
        now, then = self.estimate, self._estimate(tuple(sorted(change.items())))
        if now is None or then is None:
            return UNCHANGED, UNCHANGED, None
        known, rest = UNCHANGED, {name: value for name, value in change.items() if name not in PUBLISHED_GAINS}
        for name in PUBLISHED_GAINS:
            if name in change:
                known = product(known, self._published(name, change[name]))
        left = self._estimate(tuple(sorted(rest.items()))) or now
        evaluation = left.eval_s.mid / now.eval_s.mid / self._batches(change)
        start = then.compile_s if "compile" in change else None
        return product(known, gain(left.step_s.mid / now.step_s.mid)), product(known, gain(evaluation)), start

    def _published(self, name: str, value: Value) -> Interval:
        """The gain of one lever as published; the estimator says where in that range, or that it is less here."""
        alone = self._estimate(((name, value),))
        if alone is None or self.estimate is None or self.workload is None:
            return UNCHANGED
        if name == "compile" and self.plan is None:
            return self._compiled(bool(value))
        ratio = alone.step_s.mid / self.estimate.step_s.mid
        gains = PUBLISHED_GAINS[name]
        if name == "flash" and self.workload.dtype in ("float32", "tf32"):
            return UNCHANGED  # the one published case with TF32 gained nothing
        if name == "compile" and value and ratio >= 1:
            return gain(ratio)  # the card waits for launches either way
        if name in ("flash", "fused", "vocab_size") and 1 / ratio < gains.low:
            return gain(ratio)  # what it acts on is a smaller part of this step than of the published ones
        if name == "compile":
            gains = self.published_compile_gains
        if name == "dtype" and not (self.gpu is not None and self.gpu.tf32_flops):
            return gain(ratio)  # from real fp32, or from emulated bfloat16: far more than from TF32
        faster = ratio if not value else 1 / ratio
        likely = math.sqrt(gains.mid * max(gains.low, min(faster, gains.high)))  # between the published and the model's
        if not value:  # the lever let go
            return Interval(gains.low, likely, gains.high)
        return Interval(1 / gains.high, 1 / likely, 1 / gains.low)

    @property
    def published_compile_gains(self) -> Interval:
        tiny = self.workload is not None and self.workload.n_params < TINY_PARAMS
        return TINY_COMPILE_GAINS if tiny else PUBLISHED_GAINS["compile"]

    def _compiled(self, compiled: bool) -> Interval:
        """Of a log: the eager step that it measured, over the compiled one as estimated, bears out the published gain.

        Nothing is asked of the estimator about eager steps: it is off by up to 84 % where launches set the pace.
        """
        gains = self.published_compile_gains
        if not compiled:
            return gains
        then = self._estimate((("compile", True),))
        if then is not None and "step" in self.measured and not self.spills:
            eager, step = self.prices.step_s.mid, then.step_s
            gains = borne_out(gains, Interval(eager / step.high, eager / step.mid, eager / step.low))
        return Interval(1 / gains.high, 1 / gains.mid, 1 / gains.low)

    def _spill(self, change: Mapping[str, Value]) -> Interval:
        """How much longer a step is for what does not fit into the card's memory and goes to the host's instead."""
        if not self.spills:
            return UNCHANGED
        then = self._spilled_s(change)
        if self.plan is None:  # the log was measured with it
            now, step = self._spilled_s({}), self.prices.step_s.mid
            least = self._least_s(change) / step  # no run is faster than its card lets it be
            ends = [min(max(1 - (a - b) / step, least), 1.0) for a, b in zip(now, then, strict=True)]
            return Interval(*sorted(ends))
        return Interval(*(1 + seconds / self.prices.step_s.mid for seconds in then))

    def _least_s(self, change: Mapping[str, Value]) -> float:
        found = self._estimate(tuple(sorted(change.items())))
        return found.step_s.low if found is not None else 0.0

    def _spilled_s(self, change: Mapping[str, Value]) -> tuple[float, float, float]:
        workload, needed = self.workload_with(change), self.vram_bytes(change)
        if workload is None or needed is None or self.gpu is None or not self.gpu.vram_bytes:
            return 0.0, 0.0, 0.0
        beyond = max(needed.mid - self.gpu.vram_bytes, 0.0) * workload.micro_steps
        return tuple(beyond * passes / rate for passes, rate in SPILL)  # type: ignore[return-value]

    @cached_property
    def spills(self) -> bool:
        """It does not fit by the estimator; a log must be slow too, or the estimator is wrong."""
        needed = self.vram_bytes({})
        if needed is None or self.gpu is None or not self.gpu.vram_bytes or needed.mid <= self.gpu.vram_bytes:
            return False
        return self.analysis is None or self.noticed("slower_than_expected")

    def noticed(self, code: str) -> bool:
        return self.analysis is not None and any(finding.code == code for finding in self.analysis.findings)

    def _rework(self, loop: Loop) -> Interval:
        """Work done again after failures, at the rate that the user gave; half the time between checkpoints each."""
        saves = loop.saves.mid
        if self.mtbf_s is None or saves <= 0:
            return NOTHING
        running = self.prices.step_s.mid * loop.iterations
        return Interval.exactly(running / self.mtbf_s * running / saves / 2)

    def workload_with(self, change: Mapping[str, Value]) -> Workload | None:
        if self.workload is None:
            return None
        new: dict[str, Any] = {field: change[name] for name, field in _FIELDS.items() if name in change}
        return replace(self.workload, **new)

    def _estimate(self, change: tuple[tuple[str, Value], ...]) -> Estimate | None:
        workload = self.workload_with(dict(change))
        if workload is None or self.gpu is None:
            return None
        from stepwatch.estimator.estimate import estimate

        return estimate(workload, self.gpu, link=self.link)

    def vram_bytes(self, change: Mapping[str, Value]) -> Interval | None:
        workload = self.workload_with(change)
        if workload is None or self.gpu is None:
            return None
        from stepwatch.estimator.memory import vram_bytes

        return vram_bytes(workload, self.gpu)


def gain(ratio: float) -> Interval:
    """A modelled ratio of two times as an interval that never crosses 1: its direction is sure, its size is not."""
    if ratio <= 0:
        return UNCHANGED
    ends = sorted(math.exp(power * math.log(ratio)) for power in (LEAST_OF_GAIN, MOST_OF_GAIN))
    return Interval(min(ends[0], ratio), ratio, max(ends[1], ratio))


def _share_of_fewer(share: Interval, evaluations: int) -> Interval:
    """Which of the evaluations that remain save is chance, unless all do or none does."""
    if share.mid in (0.0, 1.0) or evaluations < 1:
        return share
    chance = Z90 * math.sqrt(share.mid * (1 - share.mid) / evaluations)
    return Interval(max(share.low - chance, 0.0), share.mid, min(share.high + chance, 1.0))


def case_of_plan(plan: Plan, *, cards: int | None = None, windows: bool = False) -> Case:
    from stepwatch.estimator.simulate import loop_of, prices_of

    case = Case(
        settings=plan.settings, prices=prices_of(plan.estimate), loop=loop_of(plan.settings), measured=frozenset(),
        gpu=plan.gpu, workload=plan.workload, cards=max(cards or 1, plan.n_gpus), n_params=plan.workload.n_params,
        link=plan.link, plan=plan, windows=windows,
    )  # fmt: skip
    return replace(case, loop=case.changed({}))
