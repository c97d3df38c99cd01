"""Rules on evaluations: how often, how long, how much of them."""

from __future__ import annotations

import math

from stepwatch.advice.case import Case, Effect
from stepwatch.advice.kinds import Advice, Basis, basis_of, changing, pays
from stepwatch.messages import Message
from stepwatch.units import HOUR_S

# Below this share of the run evaluations are cheap enough.
CHEAP = 0.02
FEWEST_EVALUATIONS = 10  # a curve of the losses needs some points
MULTIPLES = (2, 4, 5, 8, 10, 20)
LONGEST_UNSAVED_S = 2 * HOUR_S  # checkpoints that go by the evaluations become rarer with them
FEWEST_BATCHES = 20  # nanoGPT's own README goes no lower
DIVISORS = (2, 4)

_ONE_SPLIT = "out['train'] = float('nan')\nfor split in ['val']:"


def evaluate_less(case: Case) -> Advice | None:
    """Raise eval_interval until evaluations are cheap, as far as enough of them remain."""
    interval = case.settings.count("eval_interval")
    if not interval or case.loop.evaluations < 2 * FEWEST_EVALUATIONS or case.prices.eval_s is None:
        return None
    tied = case.loop.saves.mid > 0 and case.loop.apart is None
    chosen = None
    for multiple in MULTIPLES:
        loop = case.changed({"eval_interval": multiple * interval})
        unsaved_s = multiple * interval * case.prices.step_s.mid
        if loop.evaluations < FEWEST_EVALUATIONS or (chosen and tied and unsaved_s > LONGEST_UNSAVED_S):
            break
        chosen = multiple * interval
        run = case.simulated(loop)
        if case.share(run.eval_s) + (case.share(run.checkpoint_s) if tied else 0.0) <= CHEAP:
            break
    if chosen is None:
        return None
    saves = case.saving({"eval_interval": chosen})
    if not pays(saves, case.total_s):
        return None
    now, then = case.loop.evaluations, case.changed({"eval_interval": chosen}).evaluations
    run = case.simulated(case.loop)
    facts = {
        "old": interval, "new": chosen, "now": now, "then": then, "share": case.share(run.eval_s),
        "both": case.share(run.eval_s) + case.share(run.checkpoint_s), "unsaved": chosen * case.prices.step_s.mid,
    }  # fmt: skip
    if tied:
        because = Message(
            "Evaluations and the checkpoints that go with them take {both:pct} of the run; {then:n} instead of {now:n} "
            "show the same course.",
            facts,
        )
        price = Message("The losses are known less often, and a crash costs up to {unsaved:time} of training.", facts)
    else:
        because = Message(
            "Evaluations take {share:pct} of the run; {then:n} instead of {now:n} show the same course.", facts
        )
        price = Message("The losses are known less often.", facts)
    basis: Basis = "measured" if "eval" in case.measured or case.prices.pair_s is not None else "modelled"
    return Advice(
        "evaluate_less", Message("Raise eval_interval from {old:n} to {new:n}.", facts), because, price, saves, basis,
        changing(case, {"eval_interval": chosen}), lever="pace",
    )  # fmt: skip


def fewer_eval_batches(case: Case) -> Advice | None:
    """Lower eval_iters: the cost falls with it, the error of the printed loss grows only as its square root."""
    batches = case.settings.count("eval_iters")
    if not batches or case.prices.eval_s is None or case.loop.evaluations < 2:
        return None
    chosen = None
    for divisor in DIVISORS:
        if batches // divisor < FEWEST_BATCHES:
            break
        chosen = batches // divisor
        if case.share(case.simulated(case.changed({"eval_iters": chosen})).eval_s) <= CHEAP:
            break
    if chosen is None:
        return None
    saves = case.saving({"eval_iters": chosen})
    if not pays(saves, case.total_s):
        return None
    facts = {
        "old": batches, "new": chosen, "share": case.share(case.simulated(case.loop).eval_s),
        "noisier": math.sqrt(batches / chosen),
    }  # fmt: skip
    because = Message(
        "Evaluations take {share:pct} of the run, and their cost falls with the number of batches.", facts
    )
    if case.assumed("eval_iters") and case.analysis is not None:
        because = Message(
            "Evaluations take {share:pct} of the run. The log does not tell eval_iters; nanoGPT's {old:n} was assumed: "
            "--set eval_iters=… corrects it.",
            facts,
        )
    return Advice(
        "fewer_eval_batches", Message("Lower eval_iters from {old:n} to {new:n}.", facts), because,
        Message("The error of the printed losses grows by a factor of {noisier:x}.", facts), saves,
        basis_of(case, "eval"), changing(case, {"eval_iters": chosen}),
    )  # fmt: skip


def skip_train_split(case: Case) -> Advice | None:
    """Half of each evaluation measures the training loss, which every logged line tells anyway."""
    effect = Effect(evaluation=0.5)
    saves = case.saving({}, effect)
    if case.prices.eval_s is None or not pays(saves, case.total_s):
        return None
    facts = {"share": case.share(case.simulated(case.loop).eval_s) / 2}
    return Advice(
        "skip_train_split", Message("Evaluate the validation split only."),
        Message(
            "Half of every evaluation, {share:pct} of the run, measures the loss on the training split, "
            "of which every logged line gives an idea.",
            facts,
        ),
        Message("The step lines no longer show the training loss."), saves, basis_of(case, "eval"), patch=_ONE_SPLIT,
        where=Message("In estimate_loss() of train.py, in place of the line that loops over the splits:"),
        effect=effect,
    )  # fmt: skip


RULES = (evaluate_less, fewer_eval_batches, skip_train_split)
