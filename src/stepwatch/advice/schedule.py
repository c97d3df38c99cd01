"""Rules on what a loop does besides its steps: evaluations, checkpoints, lines of the log."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from stepwatch.advice.case import Case, Effect, Proposal, Rule
from stepwatch.messages import Message
from stepwatch.units import GIGA, HOUR_S, Interval

# --- evaluations ------------------------------------------------------------------------------------------------


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
        because = (
            because
            if interval == 1
            else Message(
                "Evaluations every {old:n} iterations take {share:pct} of the run; every {new:n} iterations they take "
                "{less:pct}, and {then:n} instead of {now:n} show the same curve.",
                facts,
            )
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
        # The log does not show how many batches an evaluation has, so the advice is to halve them.
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


# --- checkpoints ------------------------------------------------------------------------------------------------


USUAL_MTBF_S = 7 * 24 * HOUR_S  # if the user gives none: one failure a week
CLEARLY = 1.5
# Copying to host memory: PCIe 3.0 x8 to 5.0 x16, less than the data sheets say.
COPY_BYTES_PER_S = Interval(6 * GIGA, 12 * GIGA, 25 * GIGA)
# torch.save on a local NVMe; slower than SLOW is a network drive, a hard disk or /mnt/c under WSL2.
LOCAL_BYTES_PER_S = Interval(0.45 * GIGA, 0.65 * GIGA, 0.9 * GIGA)
SLOW_BYTES_PER_S = 0.2 * GIGA

_BACKGROUND = """\
import threading

def on_host(x):
    if torch.is_tensor(x):
        return x.detach().to('cpu', copy=True)
    if isinstance(x, dict):
        return {key: on_host(value) for key, value in x.items()}
    return [on_host(value) for value in x] if isinstance(x, list) else x

writers = []

def save_in_background(checkpoint, path):
    for writer in writers:
        writer.join()
    state = on_host(checkpoint)

    def write():
        torch.save(state, path + '.part')
        os.replace(path + '.part', path)

    writers[:] = [threading.Thread(target=write)]
    writers[0].start()"""
_SEPARATE = """\
if iter_num % {every} == 0 and iter_num > 0 and master_process:
    torch.save({{'model': raw_model.state_dict(), 'optimizer': optimizer.state_dict(), 'model_args': model_args,
                'iter_num': iter_num, 'best_val_loss': best_val_loss, 'config': config}},
               os.path.join(out_dir, 'ckpt.pt'))"""


def save_on_improvement(case: Case) -> Iterator[Proposal]:
    """A checkpoint that is no better than the last one is seldom wanted."""
    cost = case.prices.checkpoint_s
    if case.settings.flag("always_save_checkpoint") is False or case.improvements is None or cost is None:
        return
    if cost.high > 3 * cost.low:  # a log that saves at every evaluation hardly shows what a checkpoint costs
        return
    facts = {"share": case.share(case.before.checkpoint_s), "better": case.improvements.mid}
    yield Proposal(
        rule="save_on_improvement",
        new_settings={"always_save_checkpoint": False},
        what=Message("Set always_save_checkpoint = False."),
        because=Message(
            "Checkpoints take {share:pct} of the run, and only {better:pct} of the evaluations improved on the best "
            "validation loss.",
            facts,
        ),
        price=Message("After a crash the run goes back to its best checkpoint, not to its last."),
        basis=case.basis("checkpoint"),
    )


def best_spacing_s(cost_s: float, mtbf_s: float) -> float:
    """Young and Daly: the time between checkpoints at which saving and losing work cost the same."""
    return math.sqrt(2 * mtbf_s * cost_s)


def rounded(value: float) -> int:
    """Rounds down to 1, 2, 2.5 or 5 times a power of ten, as people set intervals."""
    if value < 1:
        return 1
    unit = 10.0 ** math.floor(math.log10(value))
    return max(int(max(step for step in (1.0, 2.0, 2.5, 5.0) if step * unit <= value * (1 + 1e-9)) * unit), 1)


def save_apart(case: Case) -> Iterator[Proposal]:
    """Save as often as the cost of a checkpoint and the rate of failures require, not with every evaluation."""
    cost, step_s, saves = case.prices.checkpoint_s, case.prices.step_s.mid, case.loop.saves.mid
    if cost is None or cost.mid <= 0 or step_s <= 0 or saves <= 0:
        return
    mtbf_s = case.mtbf_s or USUAL_MTBF_S
    spacing, best = case.loop.iterations / saves, best_spacing_s(cost.mid, mtbf_s) / step_s
    facts = {"cost": cost, "mtbf": mtbf_s, "now": spacing * step_s, "share": case.share(case.before.checkpoint_s)}
    interval = case.settings.count("eval_interval")
    if best > CLEARLY * spacing and interval:
        every = interval * max(rounded(best / interval), 2)
        if 2 * every > case.loop.iterations:
            return
        facts |= {"every": every, "spacing": every * step_s}
        yield Proposal(
            rule="save_apart",
            effect=Effect(save_every=every),
            what=Message("Save every {every:n} iterations instead of after every evaluation.", facts),
            because=_too_often(case, facts),
            price=Message("A crash costs up to {spacing:time} of training.", facts),
            patch=f"if iter_num % {every} == 0 and (losses['val'] < best_val_loss or always_save_checkpoint):",
            where=Message("In train.py, in place of the condition under which a checkpoint is saved:"),
            basis=case.basis("checkpoint"),
            acts_on="pace",
        )
    elif best < spacing / CLEARLY and case.mtbf_s is not None:
        every = rounded(best)
        yield Proposal(
            rule="save_more",
            effect=Effect(save_every=every, save_also=True),
            what=Message("Save every {every:n} iterations, apart from the evaluations.", {"every": every}),
            because=Message(
                "With one failure every {mtbf:time}, the work repeated after each costs more than the checkpoints: "
                "now one every {now:time}, at {cost:range} each.",
                facts,
            ),
            price=Message("More writes to the disk."),
            patch=_SEPARATE.format(every=every),
            where=Message("In train.py, before the evaluation:"),
        )


def _too_often(case: Case, facts: Mapping[str, Any]) -> Message:
    if case.mtbf_s is None:
        return Message(
            "Checkpoints take {share:pct} of the run, one every {now:time}. At {cost:range} each and one failure "
            "a week (assumed; override it with --set mtbf_hours=…), saving every {spacing:time} loses the least "
            "time (Young and Daly).",
            facts,
        )
    return Message(
        "Checkpoints take {share:pct} of the run, one every {now:time}. At {cost:range} each and one failure "
        "every {mtbf:time}, saving every {spacing:time} loses the least time (Young and Daly).",
        facts,
    )


def save_less(case: Case) -> Iterator[Proposal]:
    """The same for trainers with a separate interval of saves: as rarely as failures allow, but at least twice."""
    cost, step_s, saves = case.prices.checkpoint_s, case.prices.step_s.mid, case.loop.saves.mid
    if cost is None or "checkpoint" not in case.measured or cost.mid <= 0 or step_s <= 0 or saves < 2:
        return
    if case.levers is None or case.cannot_set(case.levers.save_every):
        return
    mtbf_s, spacing = case.mtbf_s or USUAL_MTBF_S, case.loop.iterations / saves
    every = rounded(min(best_spacing_s(cost.mid, mtbf_s) / step_s, case.loop.iterations / 2))
    if every <= CLEARLY * spacing:
        return
    setting = case.levers.save_every
    facts = {
        "cost": cost, "mtbf": mtbf_s, "now": spacing * step_s, "share": case.share(case.before.checkpoint_s),
        "every": every, "spacing": every * step_s, "setting": setting, "old": round(spacing), "times": every / spacing,
    }  # fmt: skip
    what = Message("Save every {every:n} iterations instead of every {old:n}.", facts)
    if setting and case.levers.other_units:
        what = Message("Save {times:x} times less often: {setting:word}.", facts)
    elif setting:
        what = Message("Save every {every:n} iterations instead of every {old:n}: {setting:word}.", facts)
    yield Proposal(
        rule="save_less",
        own=case.now_and(setting, "save_interval", every),
        effect=Effect(save_every=every),
        what=what,
        because=_too_often(case, facts),
        price=Message("A crash costs up to {spacing:time} of training.", facts),
        basis="measured",
    )


def async_saving(case: Case) -> Iterator[Proposal]:
    """Training needs to wait only for the copy to host memory, not for the disk."""
    size, cost = case.checkpoint_bytes, case.prices.checkpoint_s
    if size is None or cost is None or cost.mid <= 0:
        return
    rates = (COPY_BYTES_PER_S.high, COPY_BYTES_PER_S.mid, COPY_BYTES_PER_S.low)
    facts = {"share": case.share(case.before.checkpoint_s), "size": size, "cost": cost}
    yield Proposal(
        rule="async_saving",
        effect=Effect(checkpoint=Interval(*(min(size / rate / cost.mid, 1.0) for rate in rates))),
        what=Message("Write checkpoints in the background."),
        because=Message(
            "Checkpoints take {share:pct} of the run, {cost:range} each; copying {size:size} to host memory takes a "
            "fraction of that, and the disk can be written later.",
            facts,
        ),
        price=Message("{size:size} of host memory while a checkpoint is written.", facts),
        patch=_BACKGROUND,
        where=Message("In train.py, before the loop; then call save_in_background() in place of torch.save():"),
    )


def faster_storage(case: Case) -> Iterator[Proposal]:
    """A measured checkpoint that is slower than any local disk."""
    size, cost = case.checkpoint_bytes, case.prices.checkpoint_s
    if size is None or cost is None or "checkpoint" not in case.measured or cost.low <= 0:
        return
    rate = size / cost.mid
    if rate >= SLOW_BYTES_PER_S:
        return
    local = (LOCAL_BYTES_PER_S.high, LOCAL_BYTES_PER_S.mid, LOCAL_BYTES_PER_S.low)
    yield Proposal(
        rule="faster_storage",
        effect=Effect(checkpoint=Interval(*(rate / usual for usual in local))),
        what=Message("Put out_dir on a local SSD."),
        because=Message(
            "A checkpoint of {size:size} takes {cost:range}, {rate:size} a second, as on network drives, hard disks "
            "and /mnt/c under WSL2; torch.save reaches {usual:size} a second on a local NVMe.",
            {"rate": rate, "size": size, "cost": cost, "usual": LOCAL_BYTES_PER_S.mid},
        ),
        price=Message("You have to copy the last checkpoint to a safe place yourself."),
    )


# --- logging ----------------------------------------------------------------------------------------------------


SYNC_S = Interval(0.05e-3, 0.2e-3, 0.6e-3)  # the card idles from loss.item() until the next launches reach it


def log_less(case: Case) -> Iterator[Proposal]:
    """Each logged line waits for the card, which then waits for the next launches."""
    step_s = case.prices.step_s.mid
    if case.assumed("log_interval") or step_s <= 0:
        return
    interval = case.settings.count("eval_interval") or 0
    every = next(size for size in range(10, 0, -1) if interval % size == 0)  # evaluations fall on a logged line
    setting = "log_interval"
    if case.levers is not None and case.analysis is not None:
        loss = case.analysis.run.iterations.loss
        prints = 2 * int((loss == loss).sum()) > len(loss)
        setting = case.levers.log_every if prints else ""
    if every == 1 or not setting:
        return
    facts = {"new": every, "step": step_s, "setting": setting}
    what, own = Message("Raise log_interval from 1 to {new:n}.", facts), None
    if case.levers is not None:
        own = case.now_and(setting, "log_interval", every)
        what = Message("Log every {new:n} iterations instead of each one: {setting:word}.", facts)
    waits = (SYNC_S.high, SYNC_S.mid, SYNC_S.low)
    yield Proposal(
        rule="log_less",
        new_settings={"log_interval": every},
        effect=Effect(step=Interval(*(1 - min(wait_s / step_s, 1.0) * (1 - 1 / every) for wait_s in waits))),
        own=own,
        what=what,
        because=Message(
            "A step takes {step:time}, and every logged line makes the card wait for the processor.", facts
        ),
        price=Message("Fewer lines; evaluations still fall on a logged one."),
    )


# Each rule with the parts of a run that it can shorten: if these take little, it has nothing to propose.
FOR_ANY_TRAINER: dict[Rule, tuple[str, ...]] = {
    evaluate_less: ("eval_s", "checkpoint_s"),
    fewer_eval_batches: ("eval_s",),
    save_less: ("checkpoint_s", "lost_s"),
}
RULES: dict[Rule, tuple[str, ...]] = {
    evaluate_less: ("eval_s", "checkpoint_s"),
    fewer_eval_batches: ("eval_s",),
    skip_train_split: ("eval_s",),
    save_on_improvement: ("checkpoint_s",),
    save_apart: ("checkpoint_s", "lost_s"),
    async_saving: ("checkpoint_s",),
    faster_storage: ("checkpoint_s",),
}
