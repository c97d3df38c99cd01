"""The run that advice is about: its settings, what its parts cost, and the same run with other settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from stepwatch.advice.gains import (
    PUBLISHED_GAINS,
    TINY_COMPILE_GAINS,
    TINY_PARAMS,
    combined_gain,
    inverse,
    modelled_factor,
)
from stepwatch.estimator.ceilings import SAVED_BYTES_PER_PARAM
from stepwatch.estimator.simulate import (
    NOTHING,
    UNCHANGED,
    Loop,
    Prices,
    Simulated,
    product,
    saving,
    simulate,
)
from stepwatch.gpus import Gpu
from stepwatch.messages import Message
from stepwatch.settings import Origin, Settings, Value
from stepwatch.units import GIGA, HOUR_S, MINUTE_S, Z90, Interval

if TYPE_CHECKING:
    from stepwatch.analysis import Analysis
    from stepwatch.estimator.estimation import Estimate
    from stepwatch.estimator.plan import Plan
    from stepwatch.estimator.workload import Workload
    from stepwatch.run import Levers


# --- what a rule proposes, and the same once it is priced -------------------------------------------------------


Basis = Literal["measured", "modelled"]


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What a change does to a run beyond its settings: code, a disk, a quieter machine. Factors, except the saves."""

    step: Interval = UNCHANGED
    evaluation: float = 1.0
    checkpoint: Interval = UNCHANGED
    lost: Interval = UNCHANGED
    save_every: int | None = None
    save_also: bool = False
    """The checkpoints of `save_every` come on top of those of the evaluations, for any loss."""

    def combined(self, other: Effect) -> Effect:
        """Both effects; of two ways to make checkpoints cheaper, the better one counts."""
        return Effect(
            step=product(self.step, other.step),
            evaluation=self.evaluation * other.evaluation,
            checkpoint=min(self.checkpoint, other.checkpoint, key=lambda factor: factor.mid),
            lost=product(self.lost, other.lost),
            save_every=other.save_every or self.save_every,
            save_also=other.save_also or self.save_also,
        )


NO_EFFECT = Effect()


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """One change. The engine finds out what it saves, and drops it if that is too little."""

    rule: str
    what: Message
    """In the imperative."""
    because: Message
    price: Message
    """The downside of the change."""
    new_settings: Mapping[str, Value] = field(default_factory=dict)
    own: Mapping[str, tuple[Value | None, Value]] | None = None
    """The old and the new value in the trainer's own settings, if it is not nanoGPT."""
    effect: Effect = NO_EFFECT
    patch: str | None = None
    """Code to paste, if no setting does it."""
    where: Message | None = None
    """Where the patch goes."""
    basis: Basis = "modelled"
    acts_on: str | None = None
    """Of two proposals that act on the same thing, only one is chosen."""
    most_s: float = math.inf
    """The most that it can save: the measured cost of what it removes."""
    required: bool = False
    """Given however little it saves: without it the run may not work at all."""
    remedy: bool = True
    """False if it says what to look at, not what to do: then it does not count in what the changes save together."""


@dataclass(frozen=True, kw_only=True)
class Advice(Proposal):
    """A change that is worth making, with what it saves."""

    saves_s: Interval
    change: Mapping[str, tuple[Value | None, Value]]
    """Each setting with its present value, None if unknown, and the new one; by nanoGPT's names."""

    @property
    def stated(self) -> Mapping[str, tuple[Value | None, Value]]:
        """The same as a user of this trainer writes it."""
        return self.change if self.own is None else self.own


# --- the run that advice is about -------------------------------------------------------------------------------


# Settings that change how fast a step is, by nanoGPT's names and in a Workload.
SPEED = {"gradient_accumulation_steps": "grad_accum"} | {
    name: name for name in ("batch_size", "dtype", "compile", "flash", "fused", "vocab_size", "world_size")
}
SINGLE_PRECISION = ("float32", "tf32")
# What spilled is moved at least twice in a micro-step, over PCIe 4.0 x16 at best (25 GB/s) and x8 at worst.
SPILL = ((2, 25 * GIGA), (4, 20 * GIGA), (8, 10 * GIGA))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run, planned (`plan`) or logged (`analysis`)."""

    settings: Settings
    prices: Prices
    loop: Loop
    measured: frozenset[str] = frozenset()
    """The parts whose cost a log shows: step, eval, checkpoint, compile."""
    gpu: Gpu | None = None
    workload: Workload | None = None
    lost_s: Interval = NOTHING
    """The time lost in stalls."""
    cards: int
    """Available, whether they are used or not."""
    n_params: float | None = None
    link: str | float | None = None
    analysis: Analysis | None = None
    plan: Plan | None = None
    levers: Levers | None = None
    """The names of its settings if the trainer is not nanoGPT: the advice uses these names."""
    windows: bool = False

    # --- what is known ------------------------------------------------------------------------------------------

    @cached_property
    def before(self) -> Simulated:
        """The run as it is."""
        return self.simulated(self.loop)

    @property
    def least_saving_s(self) -> float:
        """A smaller saving is not worth a restart, or a sentence to read."""
        return max(MINUTE_S, 0.01 * self.before.total_s.mid)

    @cached_property
    def estimate(self) -> Estimate | None:
        """The run as it is, by the estimator."""
        return self.estimate_with({})

    @property
    def mtbf_s(self) -> float | None:
        hours = self.settings.number("mtbf_hours")
        return hours * HOUR_S if hours else None

    @cached_property
    def improvements(self) -> Interval | None:
        """Share of the evaluations that would save if only a better loss did, if a log shows it."""
        if self.analysis is None:
            return None
        from stepwatch.advice.log_rules import improvements  # most changes do not need it

        return improvements(self.analysis)

    @property
    def checkpoint_bytes(self) -> float | None:
        return SAVED_BYTES_PER_PARAM * self.n_params if self.n_params else None

    @property
    def compile_gains(self) -> Interval:
        """As published for models of this size."""
        tiny = self.workload is not None and self.workload.n_params < TINY_PARAMS
        return TINY_COMPILE_GAINS if tiny else PUBLISHED_GAINS["compile"]

    @cached_property
    def spills(self) -> bool:
        """Whether it does not fit the card by the estimator; a log must also be slow, or the estimator is wrong."""
        return self._spilled_s({})[0] > 0 and (
            self.analysis is None or bool(self.analysis.noticed("slower_than_expected"))
        )

    def cannot_set(self, lever: str) -> bool:
        """Whether the trainer is known, and has no such setting."""
        return not lever and self.levers is not None and any(self.levers)

    def now_and(self, lever: str, name: str, new: Value) -> dict[str, tuple[Value | None, Value]]:
        """A lever with its present value, if the log states it, and the new one: an inferred value is no setting."""
        if not lever or self.levers is None or self.levers.other_units:
            return {}
        stated = name in self.settings and self.settings[name].origin is not Origin.INFERRED
        return {lever: (self.settings[name].value if stated else None, new)}

    def share(self, part: Interval) -> float:
        return part.mid / self.before.total_s.mid if self.before.total_s.mid > 0 else 0.0

    def assumed(self, name: str) -> bool:
        """Whether a setting is nanoGPT's default because nothing else is known."""
        return name in self.settings and self.settings[name].origin is Origin.FORMAT_DEFAULT

    def basis(self, part: str) -> Basis:
        return "measured" if part in self.measured else "modelled"

    # --- the run with other settings ----------------------------------------------------------------------------

    def simulated(self, loop: Loop) -> Simulated:
        return simulate(loop, self.prices, one_model=self.plan is not None)

    def saving(self, new: Mapping[str, Value], effect: Effect = NO_EFFECT) -> Interval:
        return saving(self.loop, self.changed(new, effect), self.prices)

    def workload_with(self, new: Mapping[str, Value]) -> Workload | None:
        if self.workload is None:
            return None
        fields = SPEED | {"eval_iters": "eval_iters"}
        values: dict[str, Any] = {fields[name]: value for name, value in new.items() if name in fields}
        return replace(self.workload, **values)

    def estimate_with(self, new: Mapping[str, Value]) -> Estimate | None:
        workload = self.workload_with(new)
        if workload is None or self.gpu is None:
            return None
        from stepwatch.estimator.estimation import estimate  # most logs do not say what they compute

        return estimate(workload, self.gpu, link=self.link)

    def vram_bytes(self, new: Mapping[str, Value]) -> Interval | None:
        if self.gpu is None or self.workload is None or (workload := self.workload_with(new)) is None:
            return None
        from stepwatch.estimator.memory import vram_bytes

        return vram_bytes(workload, self.gpu)

    def changed(self, new: Mapping[str, Value], effect: Effect = NO_EFFECT) -> Loop:
        """The loop with the change: how often each thing happens, and what it costs."""
        loop = self.loop
        if new.get("always_save_checkpoint") is False and self.improvements is not None:
            loop = loop._replace(share=self.improvements)
        old_interval, interval = self.settings.number("eval_interval"), new.get("eval_interval")
        if old_interval and interval:
            later = int((loop.evaluations - loop.never) * old_interval / float(interval))
            loop = loop._replace(evaluations=later + loop.never, share=_share_of_fewer(loop.share, later))
        if effect.save_every is not None:
            occasions = loop.iterations // effect.save_every
            saves = _share_of_fewer(loop.share, occasions).scaled(occasions)
            if self.loop.apart is not None:  # they already have a separate interval
                saves = Interval.exactly(float(occasions))
            if effect.save_also:
                saves = loop.saves + Interval.exactly(occasions)
            loop = loop._replace(apart=saves)
        rework = NOTHING
        if self.mtbf_s is not None and loop.saves.mid > 0:  # a failure loses half the time between two checkpoints
            running = self.prices.step_s.mid * loop.iterations
            rework = Interval.exactly(running / self.mtbf_s * running / loop.saves.mid / 2)
        sequences = 1.0  # of an evaluation, relative to now
        for name in ("eval_iters", "batch_size"):
            now = self.settings.number(name)
            if name in new and now:
                sequences *= float(new[name]) / now
        step, evaluation, spill, start = UNCHANGED, UNCHANGED, UNCHANGED, None
        if self.workload is not None:
            step, evaluation, start = self.speed_factors(new, sequences)
            spill = self._spill_factor(new)
        return loop._replace(
            step=product(step, effect.step),
            spill=spill,
            evaluation=evaluation.scaled(effect.evaluation * sequences),
            checkpoint=effect.checkpoint,
            start_s=start,
            lost_s=product(self.lost_s, effect.lost) + rework,
        )

    def speed_factors(
        self, new: Mapping[str, Value], sequences: float = 1.0
    ) -> tuple[Interval, Interval, Interval | None]:
        """Factors of a step and of a forward pass over one sequence, and the start if the change affects it."""
        if not SPEED.keys() & new.keys():
            return UNCHANGED, UNCHANGED, None
        now, then = self.estimate, self.estimate_with(new)
        if now is None or then is None:
            return UNCHANGED, UNCHANGED, None
        published = UNCHANGED
        for name in PUBLISHED_GAINS:
            if name in new:
                published = product(published, self._published_factor(name, new[name], now))
        others = self.estimate_with({name: new[name] for name in new if name not in PUBLISHED_GAINS}) or now
        step = modelled_factor(others.step_s.mid / now.step_s.mid)
        evaluation = modelled_factor(others.eval_s.mid / now.eval_s.mid / sequences)
        start = then.compile_s if "compile" in new else None
        return product(published, step), product(published, evaluation), start

    def _published_factor(self, name: str, value: Value, now: Estimate) -> Interval:
        """The factor of a lever with a published gain; the estimator says where in that range, or that it is less."""
        alone = self.estimate_with({name: value})
        if alone is None or self.workload is None or self.gpu is None:
            return UNCHANGED
        ratio = alone.step_s.mid / now.step_s.mid
        gains = PUBLISHED_GAINS[name]
        if name == "compile":
            gains = self.compile_gains
            if self.plan is None:
                # The estimator is not used for eager steps: it is off by up to 84 % if launches set the pace. An eager
                # step measured in a log, relative to the estimated compiled step, also shows a gain.
                if value and "step" in self.measured and not self.spills:
                    eager, step = self.prices.step_s.mid, alone.step_s
                    gains = combined_gain(gains, Interval(eager / step.high, eager / step.mid, eager / step.low))
                return inverse(gains) if value else gains
            if value and 1 / ratio < gains.low:
                return modelled_factor(ratio)  # the card waits for launches either way, or the optimizer takes most
        elif name == "dtype":
            if not self.gpu.tf32_flops:
                return modelled_factor(ratio)  # from real fp32, or from emulated bfloat16: far more than from TF32
        elif name == "flash" and self.workload.dtype in SINGLE_PRECISION:
            return UNCHANGED  # the one published case with TF32 gained nothing
        elif 1 / ratio < gains.low:
            return modelled_factor(ratio)  # what it acts on is a smaller part of this step than of the published ones
        faster = 1 / ratio if value else ratio
        likely = math.sqrt(gains.mid * max(gains.low, min(faster, gains.high)))  # between the published and the model's
        gains = Interval(gains.low, likely, gains.high)
        return inverse(gains) if value else gains

    def _spill_factor(self, new: Mapping[str, Value]) -> Interval:
        """How much longer a step is because some of it does not fit the card's memory and spills to the host's."""
        if not self.spills:
            return UNCHANGED
        step_s, then = self.prices.step_s.mid, self._spilled_s(new)
        if self.plan is not None:
            return Interval(*(1 + seconds / step_s for seconds in then))
        # The log was measured with the spill, and no run is faster than its card allows.
        estimated = self.estimate_with(new)
        least = estimated.step_s.low / step_s if estimated is not None else 0.0
        ends = [min(max(1 - (a - b) / step_s, least), 1.0) for a, b in zip(self._spilled_s({}), then, strict=True)]
        return Interval(*sorted(ends))

    def _spilled_s(self, new: Mapping[str, Value]) -> list[float]:
        """Seconds of a step for the bytes that do not fit the card: at best, most likely and at worst."""
        workload, needed = self.workload_with(new), self.vram_bytes(new)
        if workload is None or needed is None or self.gpu is None or not self.gpu.vram_bytes:
            return [0.0] * len(SPILL)
        moved = max(needed.mid - self.gpu.vram_bytes, 0.0) * workload.micro_steps
        return [moved * passes / rate for passes, rate in SPILL]


Rule = Callable[[Case], Iterator[Proposal]]


def _share_of_fewer(share: Interval, evaluations: int) -> Interval:
    """The share, widened: which of the remaining evaluations save is chance, unless all do or none does."""
    if share.mid in (0.0, 1.0) or evaluations < 1:
        return share
    chance = Z90 * math.sqrt(share.mid * (1 - share.mid) / evaluations)
    return Interval(max(share.low - chance, 0.0), share.mid, min(share.high + chance, 1.0))
