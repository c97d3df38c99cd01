"""Rules on checkpoints: how often, when, and whether training waits for them."""

from __future__ import annotations

import math

from stepwatch.advice.case import Case, Effect
from stepwatch.advice.kinds import Advice, basis_of, changing, pays, rounded
from stepwatch.messages import Message
from stepwatch.units import GIGA, HOUR_S, Interval

USUAL_MTBF_S = 7 * 24 * HOUR_S  # where the user gives none: one failure a week
CLEARLY = 1.5
TOO_VAGUE = 3.0
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


def save_on_improvement(case: Case) -> Advice | None:
    """A checkpoint that is no better than the last one is seldom wanted."""
    cost = case.prices.checkpoint_s
    if case.settings.flag("always_save_checkpoint") is False or case.improvements is None or cost is None:
        return None
    if cost.high > TOO_VAGUE * cost.low:  # a log that saves at every evaluation hardly tells what a checkpoint costs
        return None
    change = {"always_save_checkpoint": False}
    saves = case.saving(change)
    if not pays(saves, case.total_s):
        return None
    facts = {
        "share": case.share(case.simulated(case.loop).checkpoint_s), "better": case.improvements.mid,
    }  # fmt: skip
    return Advice(
        "save_on_improvement", Message("Set always_save_checkpoint = False."),
        Message(
            "Checkpoints take {share:pct} of the run, and only {better:pct} of the evaluations had a better "
            "validation loss than all before.",
            facts,
        ),
        Message("After a crash the run goes back to its best checkpoint, not to its last."), saves,
        basis_of(case, "checkpoint"), changing(case, change),
    )  # fmt: skip


def best_spacing_s(cost_s: float, mtbf_s: float) -> float:
    """Young and Daly: the time between checkpoints at which saving and losing work cost the same."""
    return math.sqrt(2 * mtbf_s * cost_s)


def save_apart(case: Case) -> Advice | None:
    """Save as often as the cost of a checkpoint and the rate of failures ask for, not as often as one evaluates."""
    cost, spacing, step = case.prices.checkpoint_s, case.save_spacing, case.prices.step_s.mid
    if cost is None or cost.mid <= 0 or spacing is None or step <= 0:
        return None
    best = best_spacing_s(cost.mid, case.mtbf_s or USUAL_MTBF_S) / step
    if best > CLEARLY * spacing:
        return _save_less(case, best)
    if case.mtbf_s is not None and best < spacing / CLEARLY:
        return _save_more(case, best)
    return None


def _facts(case: Case, every: int) -> dict[str, object]:
    hours = (case.mtbf_s or USUAL_MTBF_S) / HOUR_S
    return {
        "every": every, "cost": case.prices.checkpoint_s, "hours": hours, "mtbf": hours * HOUR_S,
        "spacing": every * case.prices.step_s.mid, "now": (case.save_spacing or 0.0) * case.prices.step_s.mid,
        "share": case.share(case.simulated(case.loop).checkpoint_s),
    }  # fmt: skip


def _save_less(case: Case, best: float) -> Advice | None:
    interval = case.settings.count("eval_interval")
    if not interval:
        return None
    every = interval * max(rounded(best / interval), 2)
    if 2 * every > case.loop.iterations:
        return None
    effect = Effect(save_every=every)
    saves = case.saving({}, effect)
    if not pays(saves, case.total_s):
        return None
    facts = _facts(case, every)
    because = Message(
        "Checkpoints take {share:pct} of the run, one every {now:time}. At {cost:range} each and one failure in "
        "{mtbf:time}, {spacing:time} between two loses least (Young and Daly).",
        facts,
    )
    if case.mtbf_s is None:
        because = Message(
            "Checkpoints take {share:pct} of the run, one every {now:time}. At {cost:range} each and one failure a "
            "week (assumed; --set mtbf_hours=… changes it), {spacing:time} between two loses least (Young and Daly).",
            facts,
        )
    return Advice(
        "save_apart", Message("Save every {every:n} iterations instead of after every evaluation.", facts), because,
        Message("A crash costs up to {spacing:time} of training.", facts), saves, basis_of(case, "checkpoint"),
        patch=f"if iter_num % {every} == 0 and (losses['val'] < best_val_loss or always_save_checkpoint):",
        where=Message("In train.py, in place of the condition under which a checkpoint is saved:"), effect=effect,
        lever="pace",
    )  # fmt: skip


def _save_more(case: Case, best: float) -> Advice | None:
    every = max(rounded(best), 1)
    effect = Effect(save_every=every, save_also=True)
    saves = case.saving({}, effect)
    if not pays(saves, case.total_s):
        return None
    facts = _facts(case, every)
    return Advice(
        "save_more", Message("Save every {every:n} iterations, apart from the evaluations.", facts),
        Message(
            "With one failure in {mtbf:time} the run does more work again after each than its checkpoints cost: "
            "now one every {now:time}, at {cost:range} each.",
            facts,
        ),
        Message("More writing to the disk."), saves, "modelled", patch=_SEPARATE.format(every=every),
        where=Message("In train.py, before the evaluation:"), effect=effect,
    )  # fmt: skip


def async_saving(case: Case) -> Advice | None:
    """Training need wait only for the copy to host memory, not for the disk."""
    size, cost = case.checkpoint_bytes, case.prices.checkpoint_s
    if size is None or cost is None or cost.mid <= 0:
        return None
    waits = [min(size / rate / cost.mid, 1.0) for rate in (COPY_BYTES_PER_S.high, COPY_BYTES_PER_S.mid)]
    effect = Effect(checkpoint=Interval(waits[0], waits[1], min(size / COPY_BYTES_PER_S.low / cost.mid, 1.0)))
    saves = case.saving({}, effect)
    if not pays(saves, case.total_s):
        return None
    facts = {"share": case.share(case.simulated(case.loop).checkpoint_s), "size": size, "cost": cost}
    return Advice(
        "async_saving", Message("Write checkpoints in the background."),
        Message(
            "Checkpoints take {share:pct} of the run, {cost:range} each; copying {size:size} to host memory takes a "
            "fraction of that, and the disk can wait.",
            facts,
        ),
        Message("{size:size} of host memory while a checkpoint is written.", facts), saves, "modelled",
        patch=_BACKGROUND,
        where=Message("In train.py, before the loop; then call save_in_background() in place of torch.save():"),
        effect=effect,
    )  # fmt: skip


def faster_storage(case: Case) -> Advice | None:
    """A measured checkpoint that is slower than any local disk."""
    size, cost = case.checkpoint_bytes, case.prices.checkpoint_s
    if size is None or cost is None or "checkpoint" not in case.measured or cost.low <= 0:
        return None
    rate = size / cost.mid
    if rate >= SLOW_BYTES_PER_S:
        return None
    ends = (LOCAL_BYTES_PER_S.high, LOCAL_BYTES_PER_S.mid, LOCAL_BYTES_PER_S.low)
    effect = Effect(checkpoint=Interval(*(min(rate / local, 1.0) for local in ends)))
    saves = case.saving({}, effect)
    if not pays(saves, case.total_s):
        return None
    facts = {"rate": rate, "size": size, "cost": cost, "usual": LOCAL_BYTES_PER_S.mid}
    return Advice(
        "faster_storage", Message("Put out_dir on a local SSD."),
        Message(
            "A checkpoint of {size:size} takes {cost:range}, {rate:size} a second, as on network drives, hard disks "
            "and /mnt/c under WSL2; torch.save reaches {usual:size} a second on a local NVMe.",
            facts,
        ),
        Message("Copy the last checkpoint to a safe place yourself."), saves, "modelled", effect=effect,
    )  # fmt: skip


RULES = (save_on_improvement, save_apart, async_saving, faster_storage)
