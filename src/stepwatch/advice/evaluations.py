"""Rules on evaluations: how often, how long, how much of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from stepwatch.advice.case import Case
from stepwatch.advice.proposals import Effect, Proposal
from stepwatch.messages import Message
from stepwatch.units import HOUR_S

CHEAP = 0.02  # of the run: evaluations below it are cheap enough
FEWEST_EVALUATIONS = 10  # a curve of the losses needs some points
MULTIPLES = (2, 4, 5, 8, 10, 20)
LONGEST_UNSAVED_S = 2 * HOUR_S  # checkpoints that go with the evaluations become rarer with them
DIVISORS = (2, 4)


def evaluate_less(case: Case) -> Iterator[Proposal]:
    """Raise eval_interval until evaluations are cheap, as far as enough of them remain."""
    interval = case.settings.count("eval_interval")
    if not interval or case.loop.evaluations < 2 * FEWEST_EVALUATIONS or case.prices.eval_s is None:
        return
    levers = case.levers
    if levers is not None and ("eval" not in case.measured or case.cannot_set(levers.evaluate_every)):
        return
    saving_too = case.loop.saves.mid > 0 and case.loop.apart is None
    chosen, then = None, 0
    for multiple in MULTIPLES:
        loop = case.changed({"eval_interval": multiple * interval})
        unsaved_s = multiple * interval * case.prices.step_s.mid
        if loop.evaluations < FEWEST_EVALUATIONS or (chosen and saving_too and unsaved_s > LONGEST_UNSAVED_S):
            break
        chosen, then = multiple * interval, loop.evaluations
        run = case.simulated(loop)
        if case.share(run.eval_s) + (case.share(run.checkpoint_s) if saving_too else 0.0) <= CHEAP:
            break
    if chosen is None:
        return
    share = case.share(case.before.eval_s)
    facts: dict[str, Any] = {"share": share, "now": case.loop.evaluations, "then": then, "old": interval, "new": chosen}
    because = Message(
        "Evaluations take {share:pct} of the run; {then:n} instead of {now:n} show the same curve.", facts
    )
    price = Message("Losses are reported less often.")
    if saving_too:
        facts |= {"both": share + case.share(case.before.checkpoint_s), "unsaved": chosen * case.prices.step_s.mid}
        because = Message(
            "Evaluations and the checkpoints that go with them take {both:pct} of the run; {then:n} instead of "
            "{now:n} show the same curve.",
            facts,
        )
        price = Message("Losses are reported less often, and a crash costs up to {unsaved:time} of training.", facts)
    what, own = Message("Raise eval_interval from {old:n} to {new:n}.", facts), None
    if levers is not None:
        own = case.now_and(levers.evaluate_every, "eval_interval", chosen)
        run = case.simulated(case.changed({"eval_interval": chosen}))
        facts |= {"less": run.eval_s.mid / run.total_s.mid, "setting": levers.evaluate_every}
        facts["times"] = chosen // interval
        because = because if interval == 1 else Message(
            "Evaluations every {old:n} iterations take {share:pct} of the run; every {new:n} iterations they take "
            "{less:pct}, and {then:n} instead of {now:n} show the same curve.",
            facts,
        )
        what = Message("Evaluate every {new:n} iterations instead of every {old:n}.", facts)
        if facts["setting"] and levers.other_units:
            what = Message("Evaluate {times:n} times less often: {setting:word}.", facts)
        elif facts["setting"]:
            what = Message("Evaluate every {new:n} iterations instead of every {old:n}: {setting:word}.", facts)
    yield Proposal(
        rule="evaluate_less",
        new_settings={"eval_interval": chosen},
        own=own,
        what=what,
        because=because,
        price=price,
        basis="measured" if case.prices.pair_s is not None else case.basis("eval"),
        acts_on="pace",
    )


def fewer_eval_batches(case: Case) -> Iterator[Proposal]:
    """Lower eval_iters: the cost falls with it, the error of the printed loss grows only as its square root."""
    if case.levers is not None:
        # The log does not show how many batches an evaluation has: half of them.
        setting, share = case.levers.evaluation_batches, case.share(case.before.eval_s)
        if setting and "eval" in case.measured and share > CHEAP and case.loop.evaluations >= 2:
            facts: dict[str, object] = {"setting": setting, "share": share}
            yield Proposal(
                rule="fewer_eval_batches",
                own={},
                effect=Effect(evaluation=0.5),
                what=Message("Evaluate on half as many batches: halve {setting:word}.", facts),
                because=Message(
                    "Evaluations take {share:pct} of the run, and their cost falls with the number of batches.", facts
                ),
                price=Message(
                    "The error of the printed losses grows by a factor of {noisier:x}.", {"noisier": math.sqrt(2)}
                ),
                basis="measured",
            )
        return
    batches = case.settings.count("eval_iters")
    if not batches or case.prices.eval_s is None or case.loop.evaluations < 2:
        return
    chosen = None
    for divisor in DIVISORS:
        if batches // divisor < 20:  # nanoGPT's own README goes no lower
            break
        chosen = batches // divisor
        if case.share(case.simulated(case.changed({"eval_iters": chosen})).eval_s) <= CHEAP:
            break
    if chosen is None:
        return
    facts = {"old": batches, "new": chosen, "share": case.share(case.before.eval_s)}
    because = Message(
        "Evaluations take {share:pct} of the run, and their cost falls with the number of batches.", facts
    )
    if case.assumed("eval_iters") and case.analysis is not None:
        because = Message(
            "Evaluations take {share:pct} of the run. The log does not show eval_iters; nanoGPT's default of {old:n} "
            "is assumed: override it with --set eval_iters=…",
            facts,
        )
    yield Proposal(
        rule="fewer_eval_batches",
        new_settings={"eval_iters": chosen},
        what=Message("Lower eval_iters from {old:n} to {new:n}.", facts),
        because=because,
        price=Message(
            "The error of the printed losses grows by a factor of {noisier:x}.",
            {"noisier": math.sqrt(batches / chosen)},
        ),
        basis=case.basis("eval"),
    )


def skip_train_split(case: Case) -> Iterator[Proposal]:
    """Half of each evaluation measures the training loss, which every logged line shows anyway."""
    if case.prices.eval_s is None:
        return
    yield Proposal(
        rule="skip_train_split",
        effect=Effect(evaluation=0.5),
        what=Message("Evaluate the validation split only."),
        because=Message(
            "Half of every evaluation, {share:pct} of the run, measures the loss on the training split, which every "
            "logged line already approximates.",
            {"share": case.share(case.before.eval_s) / 2},
        ),
        price=Message("The step lines no longer show the training loss."),
        patch="out['train'] = float('nan')\nfor split in ['val']:",
        where=Message("In estimate_loss() of train.py, in place of the line that loops over the splits:"),
        basis=case.basis("eval"),
    )


RULES = (evaluate_less, fewer_eval_batches, skip_train_split)
