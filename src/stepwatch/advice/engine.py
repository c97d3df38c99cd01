"""The one engine: it prices what the rules propose, drops what is not worth it, ranks and combines the rest."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepwatch.advice import schedule
from stepwatch.advice.case import NO_EFFECT, Advice, Case, Effect, Proposal
from stepwatch.advice.gains import MODERN_PARAMS, MODERN_TIME, TINY_PARAMS
from stepwatch.estimator.simulate import NOTHING, Loop, Prices, Simulated, loop_of, prices_of
from stepwatch.messages import Message
from stepwatch.settings import NANOGPT_DEFAULTS, Origin, Settings, Value
from stepwatch.units import Interval

if TYPE_CHECKING:
    from stepwatch.analysis import Analysis
    from stepwatch.estimator.plan import Plan

Change = dict[str, tuple[Value | None, Value]]


@dataclass(frozen=True, kw_only=True)
class AdviceList:
    """The ranked list, and the run with all of its changes that go together."""

    advice: tuple[Advice, ...]
    together_s: tuple[Interval, ...]
    """What the first one, the first two, … save together: simulated at once, not added up."""
    chosen: tuple[bool, ...]
    """Whether each still saves something once those before it are done; if not, it is an alternative."""
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
    """Another training instead of a change to this one: not counted in what the list saves."""

    def alternatives_to(self, position: int) -> tuple[int, ...]:
        """The positions of advice that adds little after this one: it acts on the same, or was the last one before."""
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
    """Advice on a log; None if it does not even show what a normal iteration takes."""
    case = case_of_log(analysis, cards=cards, windows=windows)
    return None if case is None else advice_on_case(case)


def advice_on_plan(plan: Plan, *, cards: int | None = None, windows: bool = False) -> AdviceList:
    return advice_on_case(case_of_plan(plan, cards=cards, windows=windows))


def advice_on_case(case: Case) -> AdviceList:
    of_loop = schedule.RULES if case.levers is None else schedule.FOR_ANY_TRAINER  # in the trainer's own terms
    spent_s = {part: cost.high for part, cost in case.before._asdict().items()}
    rules = [rule for rule, parts in of_loop.items() if sum(spent_s[part] for part in parts) >= case.least_saving_s]
    if case.settings.count("log_interval") == 1:
        rules.append(schedule.log_less)
    if case.levers is None and case.workload is not None:
        from stepwatch.advice import speed  # needs the estimator

        rules += speed.RULES
    if case.analysis is not None:
        from stepwatch.advice import log_rules  # on the machine, for any trainer

        rules += [rule for rule, codes in log_rules.RULES.items() if case.analysis.noticed(*codes)]
    proposals = (proposal for rule in rules for proposal in rule(case))
    worthwhile = [advice for proposal in proposals if (advice := _priced(case, proposal)) is not None]
    ranked = sorted(worthwhile, key=lambda advice: -advice.saves_s.low)

    # Down the list: keeps what still pays on top of what was kept before.
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
        after=case.simulated(case.changed(new, effect)) if kept else case.before,
        saves_s=saved,
        vram_before=case.vram_bytes({}) if case.workload is not None else None,
        vram_after=case.vram_bytes(new) if case.workload is not None else None,
        case=case,
        missing=tuple(_missing(case)),
        offers=tuple(_offers(case)) if case.workload is not None or case.n_params else (),
    )


def _priced(case: Case, proposal: Proposal) -> Advice | None:
    """The proposal with its saving; None if it may save too little, trains something else, or does not fit the card."""
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
    """Whether an iteration learns from as many tokens as before, and the cards can share its micro-steps."""
    now, then = case.workload, case.workload_with(new)
    if now is None or then is None or then == now:
        return True
    return then.grad_accum % then.world_size == 0 and then.tokens_per_iteration == now.tokens_per_iteration


def _together(case: Case, all_of: Sequence[Advice]) -> tuple[Change, Effect, Interval] | None:
    """All at once; None if two of them exclude each other, or the card's memory is too small for all."""
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
        # Needing no more than now is fine, even if that does not fit; unless one of them alone would make it fit.
        alone = [case.vram_bytes(advice.new_settings) for advice in all_of]
        fits = any(one is not None and one.mid <= room for one in alone)
        if needed.mid > (min(used.mid, room) if fits else used.mid):
            return None
    return (change, effect, case.saving(new, effect)) if _same_tokens(case, new) else None


def _offers(case: Case) -> Iterator[Message]:
    """Offers recipe=modern for small models that nanoGPT's recipe trains from scratch: only these were measured."""
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
    if not case.settings.count("eval_interval") and a.phases.evaluations:
        yield Message("It is unknown how often the run evaluates: add --set eval_interval=…")
    if a.forecast.max_iters is None:
        yield Message(
            "The length of the run is unknown, so only the iterations in this log count: add --set max_iters=…"
        )


# --- the case of a plan, and of a log: the whole run, at the prices that the log shows ---------------------------


def case_of_plan(plan: Plan, *, cards: int | None = None, windows: bool = False) -> Case:
    case = Case(
        settings=plan.settings,
        prices=prices_of(plan.estimate),
        loop=loop_of(plan.settings),
        gpu=plan.gpu,
        workload=plan.workload,
        cards=max(cards or 1, plan.n_gpus),
        n_params=plan.workload.n_params,
        link=plan.link,
        plan=plan,
        windows=windows,
    )
    return replace(case, loop=case.changed({}))


SAVES_AHEAD = (0.5, 1.0, 1.4)  # of the checkpoints that a forecast expects if only a better loss saves


def case_of_log(a: Analysis, *, cards: int | None = None, windows: bool = False) -> Case | None:
    """The case of a log; None if not even a normal iteration is known."""
    import numpy as np  # a plan needs neither this nor the analysis

    from stepwatch.analysis.costs import MEASURED
    from stepwatch.analysis.goodput import START
    from stepwatch.run import iterations_of

    known = a.costs.step_known and a.costs.step_s.mid > 0 and math.isfinite(a.goodput.wall_s)
    if not known or not len(a.run.iterations):
        return None
    settings, gpu, parts_s = a.run.settings, a.throughput.gpu, a.goodput.parts_s
    interval = a.phases.eval_interval
    if not interval and len(a.run.evaluations) > 2:
        gaps = np.diff(iterations_of(a.run.evaluations))
        interval = int(np.median(gaps)) if len(gaps) > 1 else None
    if interval and "eval_interval" not in settings:
        settings = settings.overridden_by(Settings.of(Origin.INFERRED, {"eval_interval": interval}))
    if a.run.traits.has_nanogpt_settings:
        if "always_save_checkpoint" not in settings and len(a.run.checkpoints) < a.phases.evaluations - 1:
            settings = settings.overridden_by(Settings.of(Origin.INFERRED, {"always_save_checkpoint": False}))
        assumed = {name: NANOGPT_DEFAULTS[name] for name in ("eval_iters", "always_save_checkpoint", "log_interval")}
        settings = Settings.of(Origin.FORMAT_DEFAULT, assumed).overridden_by(settings)
    workload = a.workload if a.throughput.possible else None
    far_slower = a.expected is not None and a.costs.step_s.mid > 2.0 * a.expected.step_s.high
    if workload is not None and gpu is not None and far_slower:
        from stepwatch.estimator.memory import fits

        if fits(workload, gpu) is not False:  # memory that spills would explain it
            workload = None  # the model does not know what slows this run down
    lost_s = max(parts_s["unexplained"], 0.0) + parts_s.get(START, 0.0)
    if parts_s["stall"] > 0:
        from stepwatch.advice.log_rules import stalled_s

        lost_s += stalled_s(a)
    case = Case(
        settings=settings,
        prices=_prices(a),
        loop=_loop(a)._replace(lost_s=Interval.exactly(lost_s)),
        measured=frozenset(name.removesuffix("_s") for name, how in a.costs.how.items() if how == MEASURED),
        gpu=gpu,
        workload=workload,
        lost_s=Interval.exactly(lost_s),
        cards=max(cards or 1, a.throughput.cards),
        n_params=a.run.saved_params or settings.number("n_params"),
        analysis=a,
        levers=None if a.run.traits.has_nanogpt_settings else a.run.traits.levers,
        windows=windows,
    )
    return replace(case, loop=case.changed({})) if case.settings.number("mtbf_hours") else case


def _prices(a: Analysis) -> Prices:
    costs, goodput = a.costs, a.goodput
    step = costs.step_s
    if goodput.iterations and goodput.wall_s > 0 and goodput.steps_s > 0:
        usual = goodput.steps_s / goodput.iterations
        down = math.hypot(1 - step.low / step.mid, 1 - goodput.interval_s.low / goodput.wall_s)
        up = math.hypot(step.high / step.mid - 1, goodput.interval_s.high / goodput.wall_s - 1)
        step = Interval(usual * max(1 - down, 0.0), usual, usual * (1 + up))

    # A typical evaluation is not the mean: prices are scaled so that evaluations and saves add up to their time.
    prices = ((costs.eval_s, a.phases.evaluations), (costs.checkpoint_s, a.phases.checkpoints))
    typical = sum(price.mid * count for price, count in prices if price is not None)
    spent = goodput.parts_s["eval"] + goodput.parts_s["checkpoint"]
    mean = spent / typical if spent > 0 and typical > 0 else 1.0

    again = [costs.eval_s, costs.checkpoint_s, costs.pair_s]  # the same in another run, or later in this one
    for place, price in enumerate(again):
        if price is not None:
            slack = 0.01 * price.mid  # how much evaluations and checkpoints differ from one run to the next
            mid = mean * price.mid
            again[place] = Interval(min(max(price.low - slack, 0.0), mid), mid, max(price.high + slack, mid))
    return Prices(step, again[0], again[1], again[2], costs.compile_s or NOTHING)


def _loop(a: Analysis) -> Loop:
    """The whole run: what is in the log and, if its length is known, what is still to come."""
    f, done = a.forecast, a.phases.evaluations
    first = 1 if a.phases.first_evaluates and done and not a.phases.first_saves else 0
    ahead = max((f.max_iters or 0) - f.last_iteration, 0) if not f.done else 0
    evaluations = done + f.evals_ahead
    later = evaluations - first
    saves = [a.phases.checkpoints + f.saves_ahead * share for share in SAVES_AHEAD]
    if a.phases.checkpoints >= done - first or not f.saves_ahead:  # all of them so far, or none to come
        saves = [saves[1]] * 3
    share = Interval(*(min(count / later, 1.0) for count in saves)) if later > 0 else NOTHING
    loop = Loop(a.goodput.iterations + ahead, evaluations, never=first, share=share)
    if a.run.traits.saves_with_evaluations:
        return loop
    return loop._replace(share=NOTHING, apart=Interval.exactly(float(saves[1])))
