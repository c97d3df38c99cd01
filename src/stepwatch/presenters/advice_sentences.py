"""What all presenters say of advice: the same sentences, rows, commands and diffs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from stepwatch.advice import Advice, AdviceList
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.settings import Value
from stepwatch.units import Interval, interval_json

if TYPE_CHECKING:
    from stepwatch.advice.recommended import Recommended

TITLE = Message("What to change")
TITLE_RECOMMENDED = Message("Recommended settings")
PRICE = Message("Price:")
# Settings that nanoGPT's train.py does not take: a patch or another command stands for them.
NOT_TAKEN = frozenset({
    "flash", "fused", "world_size", "vocab_size", "activation_checkpointing", "tokens_per_iter", "n_params",
    "mtbf_hours",
})  # fmt: skip


# --- the list ---------------------------------------------------------------------------------------------------


def headline(advised: AdviceList | None) -> Message:
    if advised is None:
        return Message("The log shows too little to say what is worth changing.")
    count = sum(advised.chosen)
    if count:
        before, saved = advised.before.total_s.mid, advised.saves_s
        facts = {
            "count": count, "before": before, "after": max(before - saved.mid, 0.0),
            "share": saved.mid / before if before > 0 else 0.0,
        }  # fmt: skip
        return Message(
            "One change makes this run {share:pct} shorter: {after:time} instead of {before:time}.", facts,
            "{count:n} changes make this run {share:pct} shorter: {after:time} instead of {before:time}.", count,
        )  # fmt: skip
    if advised.advice:
        return Message("No setting is worth changing, but the machine is worth a look.")
    return Message("Nothing is worth changing.")


def nothing(advised: AdviceList | None) -> tuple[Message, ...]:
    """Why the list is empty."""
    if advised is None or advised.advice or not _knows_evaluations(advised):
        return ()
    run = advised.before
    share = (run.eval_s.mid + run.checkpoint_s.mid) / run.total_s.mid if run.total_s.mid > 0 else 0.0
    facts = {"share": share}
    return (
        Message(
            "Evaluations and checkpoints take {share:pct} of the run; no change found saves at least a minute and 1 % "
            "of it.",
            facts,
        ),
    )


def _knows_evaluations(advised: AdviceList) -> bool:
    """Whether what evaluations and checkpoints take is known, where there are any."""
    a = advised.case.analysis
    return a is None or all(cost is None or cost.high > 0 for cost in (a.costs.eval_s, a.costs.checkpoint_s))


def saves(advice: Advice, total_s: Interval) -> Message:
    facts = {"saved": advice.saves_s, "total": total_s.mid}
    if advice.basis == "measured":
        return Message("Saves {saved:range} of {total:time}.", facts)
    if advice.saves_s.high < total_s.mid:
        return Message("Saves {saved:range} of {total:time}, as estimated.", facts)
    # Where the estimate is wide, a saving may exceed the middle of the whole.
    return Message("Saves {saved:range} of {total:range}, as estimated.", {"saved": advice.saves_s, "total": total_s})


def together(advised: AdviceList, position: int) -> Message | None:
    """What it gives with those before it; said from the second one on that counts."""
    if not advised.advice[position].remedy:
        return None
    if not advised.chosen[position]:
        return Message("An alternative: with the changes above it adds little.") if any(advised.chosen) else None
    if sum(advised.chosen[: position + 1]) < 2:
        return None
    return Message("With the changes above: {saved:range}.", {"saved": advised.together_s[position]})


def sentence(advice: Advice, advised: AdviceList) -> tuple[Message, ...]:
    """One advice as a paragraph."""
    return advice.what, advice.because, saves(advice, advised.before.total_s)


def span(advised: AdviceList) -> Message | None:
    """What run the savings are of, where a log is not a whole one."""
    a = advised.case.analysis
    if a is None or not advised.advice or a.forecast.done or a.forecast.max_iters is None:
        return None
    left = a.forecast.max_iters - a.forecast.last_iteration
    return Message(
        "The savings are for the whole run; {left:n} of its {end:n} iterations is still ahead.",
        {"left": left, "end": a.forecast.max_iters},
        "The savings are for the whole run; {left:n} of its {end:n} iterations are still ahead.",
        left,
    )


# --- before and after -------------------------------------------------------------------------------------------


class Row(NamedTuple):
    name: Message
    before: Message
    after: Message


def rows(advised: AdviceList) -> Iterator[Row]:
    before, after = advised.before, advised.after
    for name, now, then in (
        (Message("Training step"), before.step_s, after.step_s),
        (Message("Evaluation"), before.eval_s, after.eval_s),
        (Message("Checkpoint"), before.checkpoint_s, after.checkpoint_s),
        (Message("Compilation, warm-up"), before.start_s, after.start_s),
        (_lost(advised), before.lost_s, after.lost_s),
        (Message("Whole run"), before.total_s, after.total_s),
    ):
        if now.high > 0 or then.high > 0:
            yield Row(name, _time(now), _time(then))
    if advised.vram_before is not None and advised.vram_after is not None:
        yield Row(Message("Video memory"), _size(advised.vram_before), _size(advised.vram_after))


def _lost(advised: AdviceList) -> Message:
    return Message("Stalls") if advised.case.mtbf_s is None else Message("Stalls, repeated work")


def _time(of: Interval) -> Message:
    return Message("{cost:range}", {"cost": of})


def _size(of: Interval) -> Message:
    return Message("{low:size} – {high:size}", {"low": of.low, "high": of.high})


# --- what to type -----------------------------------------------------------------------------------------------


def command(new: Mapping[str, Value], config: str | None, cards: int) -> list[str]:
    """nanoGPT's own command with the changes; empty where no setting of its changes."""
    taken = [f"--{name}={value}" for name, value in new.items() if name not in NOT_TAKEN]
    if not taken and "world_size" not in new:
        return []
    start = f"torchrun --standalone --nproc_per_node={cards} train.py" if cards > 1 else "python train.py"
    return [start, *([config] if config else []), *taken]


def diff(change: Mapping[str, tuple[Value | None, Value]]) -> list[str]:
    """Lines of a config, old and new."""
    lines = []
    for name, (old, new) in change.items():
        if name in NOT_TAKEN:
            continue
        lines += [f"- {name} = {old!r}"] if old is not None else []
        lines.append(f"+ {name} = {new!r}")
    return lines


def config_lines(found: Recommended) -> list[str]:
    """A config file; what train.py takes from elsewhere is a comment."""
    return [
        f"# {name} = {value!r}" if name in NOT_TAKEN else f"{name} = {value!r}"
        for name, value in found.settings.items()
    ]


# --- recommended settings ---------------------------------------------------------------------------------------


def recommended_headline(found: Recommended) -> Message:
    plan = found.plan
    facts = {
        "gpu": plan.gpu.name, "cards": plan.n_gpus, "step": plan.estimate.step_s, "total": plan.total_s,
        "params": plan.workload.n_params,
    }  # fmt: skip
    if plan.n_gpus > 1:
        return Message(
            "For {params:big} parameters on {cards:n} × {gpu:word}: {step:range} per iteration, {total:range} in all.",
            facts,
        )
    return Message(
        "For {params:big} parameters on a {gpu:word}: {step:range} per iteration, {total:range} in all.", facts
    )


def reasons(found: Recommended) -> Iterator[Message]:
    plan, work = found.plan, found.plan.workload
    need = plan.estimate.vram_bytes
    facts: dict[str, Any] = {
        "batch": work.batch_size, "accumulation": work.grad_accum, "tokens": int(work.tokens_per_iteration),
        "low": need.low, "high": need.high, "has": plan.gpu.vram_bytes, "gpu": plan.gpu.name, "dtype": work.dtype,
        "interval": plan.settings.count("eval_interval"), "count": plan.evaluations,
    }  # fmt: skip
    yield Message(
        "batch_size = {batch:n} with gradient_accumulation_steps = {accumulation:n} keeps {tokens:n} tokens per "
        "iteration and takes {low:size} to {high:size} of the card's {has:size}.",
        facts,
    )
    if work.dtype == "bfloat16":
        yield Message("bfloat16: the {gpu:word} has it, and it needs no loss scaling.", facts)
    elif work.dtype == "float16":
        yield Message("float16: the {gpu:word} has no bfloat16 and would emulate it, many times slower.", facts)
    else:
        yield Message("float32: the {gpu:word} computes no faster in half precision.", facts)
    if work.compile:
        yield Message("Compiled: it pays back within this run. Under Windows it needs WSL2 or triton-windows.")
    else:
        yield Message("Not compiled: in a run this short compilation does not pay back.")
    yield from _course(found, facts)
    yield Message(
        "Twenty tokens per parameter, beyond which a larger model would learn more in the same time, are {enough:n} "
        "iterations: {time:range}.",
        {"enough": found.enough_iterations, "time": found.enough_s},
    )


def _course(found: Recommended, facts: dict[str, Any]) -> Iterator[Message]:
    plan = found.plan
    spent = plan.estimate.eval_s.mid * plan.evaluations + plan.estimate.checkpoint_s.mid * plan.saves.mid
    every = (facts["interval"] or 0) * plan.estimate.step_s.mid
    yield Message(
        "An evaluation and a checkpoint every {interval:n} iterations, about every {every:time}: together "
        "{share:pct} of the run.",
        facts | {"every": every, "share": spent / plan.total_s.mid},
    )


def against_defaults(found: Recommended) -> Message | None:
    """Only where it says something: the gain over nanoGPT's defaults on the same card."""
    usual = found.usual
    facts = {"usual": usual.total_s, "batch": usual.workload.batch_size}
    if usual.fits is False:
        return Message("nanoGPT's defaults do not fit this card: batch_size = {batch:n} needs more memory.", facts)
    if found.plan.total_s.mid < 0.99 * usual.total_s.mid:
        return Message("With nanoGPT's defaults it would take {usual:range}.", facts)
    return None


# --- as data ----------------------------------------------------------------------------------------------------


def advice_json(advice: Advice, language: str) -> dict[str, Any]:
    return {
        "rule": advice.rule, "change": {name: [old, new] for name, (old, new) in advice.change.items()},
        "patch": advice.patch, "saves_s": interval_json(advice.saves_s), "basis": advice.basis,
        "price": say(advice.price, language),
        "text": " ".join(say(message, language) for message in (advice.what, advice.because)),
    }  # fmt: skip


def list_json(advised: AdviceList | None, language: str) -> list[dict[str, Any]]:
    if advised is None:
        return []
    return [
        advice_json(advice, language) | {"together_s": interval_json(saved), "chosen": chosen}
        for advice, saved, chosen in zip(advised.advice, advised.together_s, advised.chosen, strict=True)
    ]


def joined(messages: Iterable[Message | None]) -> tuple[Message, ...]:
    return tuple(message for message in messages if message is not None)
