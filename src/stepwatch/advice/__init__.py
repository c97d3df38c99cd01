"""What to change: rules, each a pure function of one run; a ranked list; the run before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from stepwatch.advice import checkpoints, evaluations, speed
from stepwatch.advice.case import NO_EFFECT, Case, Effect, case_of_plan
from stepwatch.advice.kinds import LEAST_S, LEAST_SHARE, Advice
from stepwatch.estimator.simulate import Simulated
from stepwatch.messages import Message
from stepwatch.settings import Value
from stepwatch.units import Interval

if TYPE_CHECKING:
    from stepwatch.analysis import Analysis
    from stepwatch.estimator.plan import Plan

__all__ = ["Advice", "AdviceList", "Case", "advice_on_case", "advice_on_log", "advice_on_plan", "advise", "rules"]

_RULES = (*evaluations.RULES, *checkpoints.RULES, *speed.RULES)


def rules(*, of_log: bool) -> tuple[Callable[[Case], Advice | None], ...]:
    """Signs of trouble are seen in a log only; reading them loads numpy, which a plan does without."""
    if not of_log:
        return _RULES
    from stepwatch.advice import symptoms

    return (*_RULES, *symptoms.RULES)


class AdviceList(NamedTuple):
    """The ranked list, and the run with all changes of it that go together."""

    advice: tuple[Advice, ...]
    together_s: tuple[Interval, ...]
    """What the first one, the first two, … save together: simulated at once, not added up."""
    chosen: tuple[bool, ...]
    """Whether each still adds something once those before it are done; one that does not is an alternative."""
    change: dict[str, tuple[Value | None, Value]]
    before: Simulated
    after: Simulated
    saves_s: Interval
    vram_before: Interval | None
    vram_after: Interval | None
    case: Case
    missing: tuple[Message, ...]
    """Facts that would allow more advice, each with the way to supply it."""


def advise(of: Analysis | Plan) -> tuple[Advice, ...]:
    """Changes that pay, the one that surely saves most first; empty where nothing is worth changing."""
    from stepwatch.estimator.plan import Plan

    found = advice_on_plan(of) if isinstance(of, Plan) else advice_on_log(of)
    return found.advice if found is not None else ()


def advice_on_log(analysis: Analysis, *, cards: int | None = None, windows: bool = False) -> AdviceList | None:
    """None where the log does not even tell what a normal iteration takes."""
    from stepwatch.advice.logs import case_of_log

    case = case_of_log(analysis, cards=cards, windows=windows)
    return None if case is None else advice_on_case(case)


def advice_on_plan(plan: Plan, *, cards: int | None = None, windows: bool = False) -> AdviceList:
    return advice_on_case(case_of_plan(plan, cards=cards, windows=windows))


def advice_on_case(case: Case) -> AdviceList:
    applied = (rule(case) for rule in _rules_for(case))
    found = sorted((advice for advice in applied if advice is not None), key=lambda one: -one.saves_s.low)
    together, chosen = _together(case, found)
    change, effect = _joined(case, [advice for advice, goes in zip(found, chosen, strict=True) if goes])
    new = {name: value for name, (_, value) in change.items()}
    return AdviceList(
        advice=tuple(found), together_s=together, chosen=chosen, change=change, before=case.simulated(case.loop),
        after=case.simulated(case.changed(new, effect)),
        saves_s=case.saving(new, effect) if found else Interval.exactly(0.0), vram_before=case.vram_bytes({}),
        vram_after=case.vram_bytes(new), case=case, missing=tuple(_missing(case)),
    )  # fmt: skip


def _rules_for(case: Case) -> tuple[Callable[[Case], Advice | None], ...]:
    """Rules on settings speak of nanoGPT's; of other trainers only the signs of a troubled machine are read."""
    if case.analysis is None or case.analysis.run.traits.has_nanogpt_settings:
        return rules(of_log=case.analysis is not None)
    from stepwatch.advice import symptoms

    return symptoms.RULES


def _together(case: Case, found: list[Advice]) -> tuple[tuple[Interval, ...], tuple[bool, ...]]:
    """Goes down the list and keeps what still pays on top of what was kept before, and still fits the card."""
    kept: list[Advice] = []
    together, chosen = [], []
    so_far = Interval.exactly(0.0)
    for advice in found:
        saved = _saved(case, [*kept, advice]) if advice.remedy else None
        pays = saved is not None and saved.mid - so_far.mid >= max(LEAST_S, LEAST_SHARE * case.total_s.mid)
        if pays and saved is not None:
            kept.append(advice)
            so_far = saved
        together.append(so_far)
        chosen.append(pays)
    return tuple(together), tuple(chosen)


def _saved(case: Case, all_of: list[Advice]) -> Interval | None:
    """None where two of them exclude each other, or the card's memory is too small for all."""
    names = [name for advice in all_of for name in advice.change if name != "eval_iters"]
    levers = [advice.lever for advice in all_of if advice.lever is not None]
    if len(names) != len(set(names)) or len(levers) != len(set(levers)):
        return None
    change, effect = _joined(case, all_of)
    new = {name: value for name, (_, value) in change.items()}
    return case.saving(new, effect) if _fits(case, new) and _same_tokens(case, new) else None


def _same_tokens(case: Case, new: dict[str, Value]) -> bool:
    """An iteration learns from as many tokens as before, and the cards can share its micro-steps."""
    now, then = case.workload, case.workload_with(new)
    if now is None or then is None:
        return True
    shared = then.grad_accum % then.world_size == 0 or then == now
    return shared and then.tokens_per_iteration == now.tokens_per_iteration


def _fits(case: Case, new: dict[str, Value]) -> bool:
    """No change may take memory that the card may not have; what needs no more than now is fine."""
    now, needed = case.vram_bytes({}), case.vram_bytes(new)
    if now is None or needed is None or case.gpu is None or not case.gpu.vram_bytes:
        return True
    return needed.high <= case.gpu.vram_bytes or needed.mid <= now.mid


def _joined(case: Case, all_of: list[Advice]) -> tuple[dict[str, tuple[Value | None, Value]], Effect]:
    """All settings and effects at once; two reductions of eval_iters multiply."""
    change: dict[str, tuple[Value | None, Value]] = {}
    effect = NO_EFFECT
    for advice in all_of:
        again = change.get("eval_iters"), advice.change.get("eval_iters")
        change.update(advice.change)
        if again[0] is not None and again[1] is not None:
            now = case.settings.number("eval_iters") or 1.0
            both = max(round(float(again[0][1]) * float(again[1][1]) / now), 1)
            change["eval_iters"] = (again[0][0], both)
        effect = effect.with_(advice.effect)
    return change, effect


def _missing(case: Case) -> Iterator[Message]:
    a = case.analysis
    if a is None or not a.run.traits.has_nanogpt_settings:
        return
    if case.gpu is None:
        yield Message("Name the card with --gpu to hear about micro-batch, compilation and arithmetic.")
    elif case.workload is None and not case.noticed("slower_than_expected"):
        yield Message(
            "The log tells too little of the model to judge micro-batch, compilation and arithmetic: add --config, or "
            "--set n_layer=… n_head=… n_embd=… batch_size=… gradient_accumulation_steps=…"
        )
    elif case.workload is not None and case.workload.compile is None:
        yield Message("Whether the run compiles is not known: --set compile=True or False.")
    elif (untold := speed.untold_gain(case)) is not None:
        yield untold
    if not case.settings.count("eval_interval") and a.evaluations_done:
        yield Message("How often the run evaluates is not known: --set eval_interval=…")
    if a.forecast.max_iters is None:
        yield Message(
            "The length of the run is not known, so only the iterations of this log count: --set max_iters=… tells it."
        )
