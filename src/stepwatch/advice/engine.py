"""The one engine: it prices what the rules propose, drops what is not worth it, ranks the rest and puts it together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepwatch.advice import schedule
from stepwatch.advice.case import NO_EFFECT, Advice, Case, Effect, Proposal, case_of_plan
from stepwatch.advice.gains import MODERN_PARAMS, MODERN_TIME, TINY_PARAMS
from stepwatch.estimator.simulate import NOTHING, Simulated
from stepwatch.messages import Message
from stepwatch.settings import Value
from stepwatch.units import Interval

if TYPE_CHECKING:
    from stepwatch.analysis import Analysis
    from stepwatch.estimator.plan import Plan

Change = dict[str, tuple[Value | None, Value]]


@dataclass(frozen=True, kw_only=True)
class AdviceList:
    """The ranked list, and the run with all changes of it that go together."""

    advice: tuple[Advice, ...]
    together_s: tuple[Interval, ...]
    """What the first one, the first two, … save together: simulated at once, not added up."""
    chosen: tuple[bool, ...]
    """Whether each still adds something once those before it are done; one that does not is an alternative."""
    change: Change
    before: Simulated
    after: Simulated
    saves_s: Interval
    vram_before: Interval | None
    vram_after: Interval | None
    case: Case
    missing: tuple[Message, ...]
    """Facts that would allow more advice, each with the way to supply it."""
    offers: tuple[Message, ...] = ()
    """Another training instead of a change of this one: no part of what the list saves."""

    def alternatives_to(self, position: int) -> tuple[int, ...]:
        """The positions of those that add little once this one is done: it acts on the same, or was the last before."""
        found = []
        for other, advice in enumerate(self.advice):
            if not advice.remedy or self.chosen[other]:
                continue
            before = [(place, self.advice[place]) for place in range(other) if self.chosen[place]]
            same = [
                (place, one)
                for place, one in before
                if set(one.change) & set(advice.change) or one.acts_on == advice.acts_on is not None
            ]
            if any(place == position for place, _ in (same[:1] or before[-1:])):
                found.append(other)
        return tuple(found)


def advise(of: Analysis | Plan) -> tuple[Advice, ...]:
    """Changes worth making, sorted by their certain saving; empty if nothing is worth changing."""
    from stepwatch.estimator.plan import Plan

    found = advice_on_plan(of) if isinstance(of, Plan) else advice_on_log(of)
    return found.advice if found is not None else ()


def advice_on_log(analysis: Analysis, *, cards: int | None = None, windows: bool = False) -> AdviceList | None:
    """None where the log does not even show what a normal iteration takes."""
    from stepwatch.advice.log_rules import case_of_log  # with the analysis, which a plan does not need

    case = case_of_log(analysis, cards=cards, windows=windows)
    return None if case is None else advice_on_case(case)


def advice_on_plan(plan: Plan, *, cards: int | None = None, windows: bool = False) -> AdviceList:
    return advice_on_case(case_of_plan(plan, cards=cards, windows=windows))


def advice_on_case(case: Case) -> AdviceList:
    of_loop = schedule.RULES if case.levers is None else schedule.FOR_ANY_TRAINER  # in the words of the trainer
    spent_s = {part: cost.high for part, cost in case.before._asdict().items()}
    rules = [rule for rule, parts in of_loop.items() if sum(spent_s[part] for part in parts) >= case.least_saving_s]
    if case.settings.count("log_interval") == 1:
        rules.append(schedule.log_less)
    if case.levers is None and case.workload is not None:
        from stepwatch.advice import speed  # with the estimator

        rules += speed.RULES
    if case.analysis is not None:
        from stepwatch.advice import log_rules  # on the machine, whatever the trainer

        rules += [rule for rule, codes in log_rules.RULES.items() if case.analysis.noticed(*codes)]
    proposals = (proposal for rule in rules for proposal in rule(case))
    worthwhile = [advice for proposal in proposals if (advice := _priced(case, proposal)) is not None]
    ranked = sorted(worthwhile, key=lambda advice: -advice.saves_s.low)

    # Down the list: kept is what still pays on top of what was kept before.
    kept: list[Advice] = []
    together, chosen = [], []
    change: Change = {}
    effect, saved = NO_EFFECT, NOTHING
    for advice in ranked:
        found = _together(case, [*kept, advice]) if advice.remedy else None
        pays = found is not None and found[2].mid - saved.mid >= case.least_saving_s
        if found is not None and pays:
            kept.append(advice)
            change, effect, saved = found
        together.append(saved)
        chosen.append(pays)

    new = {name: value for name, (_, value) in change.items()}
    return AdviceList(
        advice=tuple(ranked),
        together_s=tuple(together),
        chosen=tuple(chosen),
        change=change if case.levers is None else {name: each for one in kept for name, each in one.stated.items()},
        before=case.before,
        after=case.simulated(case.changed(new, effect)),
        saves_s=saved,
        vram_before=case.vram_bytes({}) if case.workload is not None else None,
        vram_after=case.vram_bytes(new) if case.workload is not None else None,
        case=case,
        missing=tuple(_missing(case)),
        offers=tuple(_offers(case)) if case.workload is not None or case.n_params else (),
    )


def _priced(case: Case, proposal: Proposal) -> Advice | None:
    """None where it may save nothing or too little, or where the run would be another one or no longer fit."""
    saves = case.saving(proposal.new_settings, proposal.effect)
    saves = Interval(*(min(end, proposal.most_s) for end in (saves.low, saves.mid, saves.high)))
    least = 0.0 if proposal.required else case.least_saving_s
    if saves.low <= 0 or saves.mid < least or not _same_tokens(case, proposal.new_settings):
        return None
    room = (case.gpu.vram_bytes if case.gpu is not None else None) or math.inf
    used, needed = case.vram_bytes({}), case.vram_bytes(proposal.new_settings)
    if used is not None and needed is not None and used.mid <= room < needed.mid:
        return None
    change: Change = {}
    for name, new in proposal.new_settings.items():
        known = name in case.settings and not case.assumed(name)
        change[name] = (case.settings[name].value if known else None, new)
    return Advice(**vars(proposal), saves_s=saves, change=change)


def _same_tokens(case: Case, new: Mapping[str, Value]) -> bool:
    """An iteration learns from as many tokens as before, and the cards can share its micro-steps."""
    now, then = case.workload, case.workload_with(new)
    if now is None or then is None or then == now:
        return True
    return then.grad_accum % then.world_size == 0 and then.tokens_per_iteration == now.tokens_per_iteration


def _together(case: Case, all_of: Sequence[Advice]) -> tuple[Change, Effect, Interval] | None:
    """All at once; None where two of them exclude each other, or the card's memory is too small for all."""
    names = [name for advice in all_of for name in advice.change if name != "eval_iters"]
    acted_on = [advice.acts_on for advice in all_of if advice.acts_on is not None]
    if len(names) != len(set(names)) or len(acted_on) != len(set(acted_on)):
        return None
    change: Change = {}
    effect = NO_EFFECT
    for advice in all_of:
        before = change.get("eval_iters")
        change.update(advice.change)
        if before is not None and "eval_iters" in advice.change:  # two reductions multiply
            now, (old, reduced) = case.settings.number("eval_iters") or 1.0, before
            both = float(reduced) * float(advice.change["eval_iters"][1]) / now
            change["eval_iters"] = (old, max(round(both), 1))
        effect = effect.combined(advice.effect)
    new = {name: value for name, (_, value) in change.items()}
    used, needed = case.vram_bytes({}), case.vram_bytes(new)
    room = case.gpu.vram_bytes if case.gpu is not None else None
    if room and used is not None and needed is not None and needed.high > room:
        # What needs no more than now is fine, even if that does not fit; unless one of them alone would make it fit.
        alone = [case.vram_bytes(advice.new_settings) for advice in all_of]
        fits = any(one is not None and one.mid <= room for one in alone)
        if needed.mid > (min(used.mid, room) if fits else used.mid):
            return None
    return (change, effect, case.saving(new, effect)) if _same_tokens(case, new) else None


def _offers(case: Case) -> Iterator[Message]:
    """recipe=modern, to small models that nanoGPT's recipe trains from scratch: larger ones were not measured."""
    a, recipe = case.analysis, case.settings.text("recipe")
    params = case.workload.n_params if case.workload is not None else case.n_params
    begun = case.settings.text("init_from") or "scratch"
    if case.levers is not None or recipe == "modern" or begun != "scratch" or (a and a.run.resumed):
        return
    least, most = MODERN_TIME
    if params is None or params > TINY_PARAMS or (1 - most) * case.before.step_s.mid < case.least_saving_s:
        return
    facts = {"least": least, "most": most, "params": MODERN_PARAMS}
    yield Message(
        "To try: stepwatch train --recipe=modern, another model and optimizer. Models of up to {params:big} "
        "parameters reached the loss of nanoGPT's recipe in {least:pct} to {most:pct} of its time, with two texts on a "
        "CPU; on cards and with larger models it was not measured. Price: nanoGPT cannot load the checkpoints. It is "
        "another training, so no figure here counts it.",
        facts,
    )


def _missing(case: Case) -> Iterator[Message]:
    a = case.analysis
    if a is None or case.levers is not None:
        return
    if case.gpu is None:
        yield Message("Name the card with --gpu to get advice on micro-batch, compilation and precision.")
    elif case.workload is None and not a.noticed("slower_than_expected"):
        yield Message(
            "The log says too little about the model to judge micro-batch, compilation and precision: add --config, "
            "or --set n_layer=… n_head=… n_embd=… batch_size=… gradient_accumulation_steps=…"
        )
    elif case.workload is not None and case.workload.compile is None:
        yield Message("It is unknown whether the run is compiled: add --set compile=True or compile=False.")
    elif case.workload is not None:
        from stepwatch.advice.speed import compile_gain_is_open

        text = Message(
            "The log does not show what compilation would gain here; published runs of similar models became {low:x} "
            "to {high:x} times as fast. To find out, run a hundred iterations with --compile=True and compare both "
            "logs with stepwatch compare.",
            {"low": case.compile_gains.low, "high": case.compile_gains.high},
        )
        if compile_gain_is_open(case):
            yield text
    if not case.settings.count("eval_interval") and a.evaluations_done:
        yield Message("It is unknown how often the run evaluates: add --set eval_interval=…")
    if a.forecast.max_iters is None:
        yield Message(
            "The length of the run is unknown, so only the iterations in this log count: add --set max_iters=…"
        )
