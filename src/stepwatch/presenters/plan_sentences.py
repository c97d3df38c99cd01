"""What the terminal and the note say of a plan: the same sentences and rows, still as Messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from stepwatch.estimator.plan import Claim, Plan
from stepwatch.gpus.catalogue import A100_FLOPS
from stepwatch.messages import Message
from stepwatch.settings import PRIVATE, Origin, Setting
from stepwatch.units import TERA, Interval

GIB = 2.0**30
_SAME_PEAK = 0.02
_SHOWN_ITERATIONS = 20_000  # an example of a length, as the option is to be typed
_LONGEST_LIST = 100  # characters; a longer word would be cut in the middle of a name

SHAPE = ("n_layer", "n_head", "n_embd")
# Defaults that decide the speed or the length, the weightiest first.
WEIGHTY = (
    "max_iters", *SHAPE, "batch_size", "gradient_accumulation_steps", "block_size", "dtype", "compile", "flash",
    "eval_interval", "eval_iters", "vocab_size",
)  # fmt: skip
BOUNDS = {
    "compute": Message("The card's arithmetic sets the pace."),
    "memory": Message("The card's memory bandwidth sets the pace."),
    "launch": Message("The kernel launches set the pace: the card waits for them."),
    "communication": Message("The exchange of gradients between the cards sets the pace."),
}
TERMS = {
    "matmul": Message("Matrix products"),
    "attention": Message("Attention"),
    "elementwise": Message("Elementwise operations, norms"),
    "scores": Message("Attention scores in memory (no flash)"),
    "logits": Message("Logits and loss"),
    "launch": Message("Waiting for kernel launches"),
    "optimizer": Message("Optimizer (AdamW)"),
    "iteration": Message("Batch, clipping, logging"),
    "communication": Message("Exchange of gradients"),
}
ORIGINS = {
    Origin.LOG: Message("from the log"),
    Origin.CONFIG: Message("from the config"),
    Origin.USER: Message("given by you"),
    Origin.DRIVER: Message("from the driver"),
    Origin.CALIBRATED: Message("measured on this machine"),
    Origin.FORMAT_DEFAULT: Message("nanoGPT's default"),
    Origin.INFERRED: Message("guessed"),
}
TITLE = Message("How long this run will take")
RANGES = Message("The ranges hold in nine of ten cases.")


# --- the answer -------------------------------------------------------------------------------------------------


def headline(plan: Plan) -> Message:
    facts = _facts(plan)
    several = plan.n_gpus > 1
    if plan.fits is False and several:
        return Message(
            "This run does not fit into the memory of {cards:n} × {gpu:word}; if it did, it would take {total:range}, "
            "{step:range} per iteration.",
            facts,
        )
    if plan.fits is False:
        return Message(
            "This run does not fit into the memory of the {gpu:word}; if it did, it would take {total:range}, "
            "{step:range} per iteration.",
            facts,
        )
    if several:
        return Message("On {cards:n} × {gpu:word} this run takes {total:range}, {step:range} per iteration.", facts)
    return Message("On the {gpu:word} this run takes {total:range}, {step:range} per iteration.", facts)


def _facts(plan: Plan) -> dict[str, Any]:
    found = plan.estimate
    return {
        "gpu": plan.gpu.name, "cards": plan.n_gpus, "total": plan.total_s, "step": found.step_s,
        "peak": plan.peak_flops, "floor": found.floor_step_s,
    }  # fmt: skip


def verdict(plan: Plan) -> tuple[Message, ...]:
    """Whether the claimed figure can be, and what it would take; nothing where nothing was claimed."""
    claim = plan.claim
    if claim is None:
        return ()
    facts = _facts(plan) | {
        "claim": claim.text, "each": claim.step_s, "needs": claim.needs_flops, "times": claim.of_peak,
    }  # fmt: skip
    if claim.verdict == "impossible":
        return _impossible(plan, claim, facts)
    if claim.verdict == "implausible":
        return (
            Message(
                "Implausible: {claim:word} means {each:time} per iteration, faster than such runs are; "
                "expect {step:range}.",
                facts,
            ),
            _effort(plan, facts),
        )
    if claim.step_s > plan.estimate.step_s.high:
        return (
            Message(
                "Possible: {claim:word} means {each:time} per iteration, slower than the expected {step:range}.", facts
            ),
        )
    return (Message("Plausible: {claim:word} means {each:time} per iteration; expected are {step:range}.", facts),)


def _impossible(plan: Plan, claim: Claim, facts: dict[str, Any]) -> tuple[Message, ...]:
    floor = Message("It means {each:time} per iteration; physics allows none shorter than {floor:time} here.", facts)
    if claim.of_peak <= 1:
        return Message("Impossible: {claim:word} is faster than the {gpu:word} can compute.", facts), floor
    if plan.n_gpus > 1:
        need = Message(
            "Impossible: {claim:word} would need {needs:tflops} of each {gpu:word}, {times:x} times its peak "
            "of {peak:tflops}.",
            facts,
        )
    else:
        need = Message(
            "Impossible: {claim:word} would need {needs:tflops}, {times:x} times the peak of the {gpu:word}, "
            "{peak:tflops}.",
            facts,
        )
    return need, floor


def _effort(plan: Plan, facts: dict[str, Any]) -> Message:
    if plan.n_gpus > 1:
        return Message("It would need {needs:tflops} of each card, {times:pct} of its peak.", facts)
    return Message("It would need {needs:tflops}, {times:pct} of the card's peak.", facts)


# --- the parts --------------------------------------------------------------------------------------------------


class Part(NamedTuple):
    code: str
    name: Message
    each_s: Interval
    times: Message
    total_s: Interval


class PartRow(NamedTuple):
    name: Message
    each: Message | None
    times: Message | None
    total: Message


def parts(plan: Plan) -> Iterator[Part]:
    found = plan.estimate
    yield Part("step", Message("Training step"), found.step_s, _count(iterations(plan)), plan.step_part_s)
    evaluations = found.eval_s.scaled(plan.evaluations)
    yield Part("eval", Message("Evaluation"), found.eval_s, _count(plan.evaluations), evaluations)
    if plan.saves.high > 0:
        saves = _product(plan.saves, found.checkpoint_s)
        yield Part("checkpoint", Message("Checkpoint"), found.checkpoint_s, _saves(plan), saves)
    start = Message("Warm-up") if plan.workload.compile is False else Message("Compilation, warm-up")
    yield Part("compile", start, found.compile_s, _count(1), found.compile_s)


def part_rows(plan: Plan) -> Iterator[PartRow]:
    for part in parts(plan):
        yield PartRow(part.name, _range(part.each_s), part.times, _range(part.total_s))
    yield PartRow(Message("Whole run"), None, None, _range(plan.total_s))


def _range(interval: Interval) -> Message:
    return Message("{cost:range}", {"cost": interval})


def _count(count: int) -> Message:
    return Message("{count:n}", {"count": count})


def _saves(plan: Plan) -> Message:
    low, high = round(plan.saves.low), round(plan.saves.high)
    return _count(high) if low == high else Message("{low:n}–{high:n}", {"low": low, "high": high})


def _product(one: Interval, other: Interval) -> Interval:
    return Interval(one.low * other.low, one.mid * other.mid, one.high * other.high)


def last_iteration(plan: Plan) -> int:
    return plan.settings.count("max_iters") or 600_000


def iterations(plan: Plan) -> int:
    """nanoGPT runs iteration 0 and iteration max_iters, both."""
    return last_iteration(plan) + 1


# --- speed and memory -------------------------------------------------------------------------------------------


def speed(plan: Plan) -> tuple[Message, ...]:
    rate, mfu = plan.tokens_per_s, plan.mfu
    facts = {
        "low": float(f"{rate.low:.3g}"), "high": rate.high, "least": mfu.low, "most": mfu.high,
        "peak": plan.peak_flops, "cards": plan.n_gpus,
    }  # fmt: skip
    if plan.n_gpus > 1:
        rates = Message("{low:n}–{high:rate} on {cards:n} cards together.", facts)
        share = Message("MFU of each: {least:pct} to {most:pct} of its peak, {peak:tflops}.", facts)
    else:
        rates = Message("{low:n}–{high:rate}.", facts)
        share = Message("MFU: {least:pct} to {most:pct} of the card's peak, {peak:tflops}.", facts)
    return rates, share, BOUNDS[plan.estimate.bound]


def memory(plan: Plan) -> tuple[Message, ...]:
    """What it takes, whether it fits, and the micro-batch that would."""
    need, size = plan.estimate.vram_bytes, plan.gpu.vram_bytes
    facts = {"low": need.low, "high": need.high, "size": size, "gib": (size or 0.0) / GIB}
    if size is None:
        return (Message("{low:size} to {high:size}; how much the card has is not known.", facts),)
    if plan.n_gpus > 1:
        amount = Message("{low:size} to {high:size} of each card's {size:size} ({gib:x} GiB).", facts)
    else:
        amount = Message("{low:size} to {high:size} of the card's {size:size} ({gib:x} GiB).", facts)
    return (amount,) if plan.fits is None else (amount, _fit(plan, size), *_largest(plan))


def _fit(plan: Plan, size: float) -> Message:
    need = plan.estimate.vram_bytes
    if plan.fits:
        return Message("It fits.") if need.high <= size else Message("It should fit, but only just.")
    return Message("It does not fit.") if need.low > size else Message("It most likely does not fit.")


def _largest(plan: Plan) -> Iterator[Message]:
    if plan.largest_batch_size is None:
        return
    if plan.largest_batch_size < 1:
        yield Message("Not even a batch_size of 1 does.")
    else:
        yield Message("The largest batch_size that does: {largest:n}.", {"largest": plan.largest_batch_size})


# --- what it rests on -------------------------------------------------------------------------------------------


def assumed(plan: Plan) -> tuple[Message, ...]:
    """The defaults that matter, and what was guessed."""
    return tuple(message for message in (_defaults(plan), *_guesses(plan)) if message is not None)


def _defaults(plan: Plan) -> Message | None:
    chosen = [name for name in WEIGHTY if _origin(plan, name) is Origin.FORMAT_DEFAULT]
    if not chosen:
        return None
    names, left_out = _listed(plan, chosen)
    if left_out:
        return Message("nanoGPT's defaults: {names:word} and {count:n} more.", {"names": names, "count": left_out})
    return Message("nanoGPT's defaults: {names:word}.", {"names": names})


def _guesses(plan: Plan) -> Iterator[Message]:
    guessed = [name for name, setting in plan.settings.items() if setting.origin is Origin.INFERRED]
    if guessed:
        yield Message("Guessed: {names:word}.", {"names": _listed(plan, guessed)[0]})
    if plan.shape_guessed and _repair(plan) is not None:  # else it is what to ask next
        yield Message("To sharpen the answer, give {names:word}.", {"names": ", ".join(SHAPE)})


def _listed(plan: Plan, names: list[str]) -> tuple[str, int]:
    """As many as a sentence can hold, and how many are left out."""
    text = ""
    for position, name in enumerate(names):
        longer = f"{text}, {typed(name, plan.settings[name])}" if text else typed(name, plan.settings[name])
        if text and len(longer) > _LONGEST_LIST:
            return text, len(names) - position
        text = longer
    return text, 0


def _origin(plan: Plan, name: str) -> Origin | None:
    return plan.settings[name].origin if name in plan.settings.entries else None


def typed(name: str, setting: Setting) -> str:
    return f"{name}={value_text(setting)}"


def value_text(setting: Setting) -> str:
    value = setting.value
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def known_settings(plan: Plan) -> Iterator[tuple[Message, Message, Message]]:
    """Name, value and where it is known from."""
    for name, setting in plan.settings.items():
        if name in PRIVATE:
            continue
        value = Message("{value:word}", {"value": value_text(setting)})
        yield Message("{name:word}", {"name": name}), value, ORIGINS[setting.origin]


# --- what to know beside it -------------------------------------------------------------------------------------


def warnings(plan: Plan) -> Iterator[Message]:
    if plan.emulated:
        yield Message(
            "The {gpu:word} has no bfloat16 and emulates it, which is slow. Use --dtype=float16.",
            {"gpu": plan.gpu.name},
        )
    shared = plan.workload.grad_accum
    if shared % plan.n_gpus:
        yield Message(
            "nanoGPT will not start: it cannot divide gradient_accumulation_steps, {steps:n}, among {cards:n} cards.",
            {"steps": shared, "cards": plan.n_gpus},
        )


def notices(plan: Plan) -> Iterator[Message]:
    if plan.n_gpus > 1 and plan.workload.grad_accum % plan.n_gpus == 0:
        yield Message(
            "The cards share gradient_accumulation_steps, {steps:n}: micro-steps of each per iteration: {each:n}.",
            {"steps": plan.workload.grad_accum, "each": plan.workload.micro_steps},
        )
    elsewhere = abs(plan.peak_flops / A100_FLOPS - 1) > _SAME_PEAK
    if elsewhere and not plan.shape_guessed:
        logged = plan.mfu.scaled(plan.peak_flops / A100_FLOPS)
        yield Message(
            "nanoGPT's log will show an MFU of {low:pct} to {high:pct}: it compares every card with an A100.",
            {"low": logged.low, "high": logged.high},
        )


# --- the sum ----------------------------------------------------------------------------------------------------


class TermRow(NamedTuple):
    name: Message
    time: Message
    share: Message


def term_rows(plan: Plan) -> Iterator[TermRow]:
    """The summands of one iteration in order, without those that are nothing here, and their sum."""
    whole = sum(term.seconds for term in plan.estimate.terms)
    for term in plan.estimate.terms:
        if term.seconds > 0:
            name = TERMS.get(term.name) or Message("{name:word}", {"name": term.name})
            yield _term(name, term.seconds, term.seconds / whole)
    yield _term(Message("Sum: one iteration"), whole, 1.0)


def _term(name: Message, seconds: float, share: float) -> TermRow:
    return TermRow(name, Message("{time:time}", {"time": seconds}), Message("{share:pct}", {"share": share}))


def reckoning(plan: Plan) -> Iterator[tuple[Message, tuple[Message, ...]]]:
    """What the sum rests on: a label, and what is said under it."""
    yield Message("Work"), _work(plan)
    yield Message("Range"), _spread(plan)
    floor = {"floor": plan.estimate.floor_step_s}
    least = Message(
        "{floor:time} per iteration: the least arithmetic that it needs, at the highest clock of such cards.", floor
    )
    yield Message("Floor"), (least,)
    yield Message("Iterations"), _iterations(plan)
    yield Message("Evaluations"), _evaluations(plan)
    yield Message("Checkpoints"), _checkpoints(plan)


def _work(plan: Plan) -> tuple[Message, ...]:
    facts = {
        "tera": plan.flops_per_iter / TERA, "tokens": plan.workload.tokens_per_iteration,
        "params": plan.workload.n_params,
    }  # fmt: skip
    amount = Message("{tera:x} TFLOP per iteration, for {tokens:n} tokens and {params:big} parameters.", facts)
    if plan.shape_guessed:
        return amount, Message("Counted as 6 for each parameter and token, without attention.")
    return amount, Message("Counted as nanoGPT does, attention included.")


def _spread(plan: Plan) -> tuple[Message, ...]:
    found = plan.estimate
    said = Message(
        "{step:range} per iteration, most likely {mid:time}.", {"step": found.step_s, "mid": found.step_s.mid}
    )
    if sum(term.seconds for term in found.terms) < found.floor_step_s:
        return said, Message("The sum is below the floor, so the floor counts."), RANGES
    return said, RANGES


def _iterations(plan: Plan) -> tuple[Message, ...]:
    facts = {"count": iterations(plan), "last": last_iteration(plan)}
    return (Message("{count:n}: from iteration 0 to max_iters, {last:n}, both included.", facts),)


def _evaluations(plan: Plan) -> tuple[Message, ...]:
    facts = {
        "count": plan.evaluations, "interval": plan.settings.count("eval_interval") or 2000,
        "passes": 2 * plan.workload.eval_iters,
    }  # fmt: skip
    often = Message("{count:n}: at iteration 0 and each multiple of eval_interval, {interval:n}.", facts)
    return often, Message("Forward passes in each: {passes:n}, twice eval_iters.", facts)


def _checkpoints(plan: Plan) -> tuple[Message, ...]:
    low, high = round(plan.saves.low), round(plan.saves.high)
    facts = {"low": low, "high": high}
    if low != high:
        return (
            Message(
                "{low:n} to {high:n}: after evaluations with a better validation loss, never at iteration 0.", facts
            ),
        )
    return (Message("{high:n}: after every evaluation but that of iteration 0.", facts),)


# --- what to ask next -------------------------------------------------------------------------------------------


class Next(NamedTuple):
    why: Message
    option: str


def next_option(plan: Plan, *, why: bool) -> Next | None:
    """The one option that would tell most more; made of our own names and of numbers alone."""
    return _repair(plan) or _sharpen(plan) or _deepen(plan, why=why)


def _repair(plan: Plan) -> Next | None:
    if plan.emulated:
        return Next(Message("To see it in float16, add to the command:"), "--dtype=float16")
    if plan.fits is False and plan.largest_batch_size:
        why = Message("To see it with a micro-batch that fits, and as many tokens per iteration, add to the command:")
        return Next(why, _fitting_batch(plan, plan.largest_batch_size))
    return None


def _fitting_batch(plan: Plan, largest: int) -> str:
    """The largest that fits, divides what an iteration holds and leaves every card as much."""
    cards, sequences = plan.n_gpus, plan.workload.batch_size * plan.workload.grad_accum
    sizes = range(min(largest, sequences), 0, -1)
    batch = next((size for size in sizes if sequences % size == 0 and sequences // size % cards == 0), 1)
    return f"--batch_size={batch} --gradient_accumulation_steps={sequences // batch}"


def _sharpen(plan: Plan) -> Next | None:
    if plan.shape_guessed:
        why = Message("To sharpen the answer, give the shape of the model, for example:")
        return Next(why, " ".join(f"--{name}={getattr(plan.workload, name)}" for name in SHAPE))
    if _origin(plan, "max_iters") is Origin.FORMAT_DEFAULT:
        why = Message("To see how long your own run takes, give its length, for example:")
        return Next(why, f"--max_iters={_SHOWN_ITERATIONS}")
    return None


def _deepen(plan: Plan, *, why: bool) -> Next | None:
    if not why:
        return Next(Message("To see how these figures come about, add to the command:"), "--why")
    if plan.claim is None:
        return Next(Message("To check a figure that you were told, add it to the command, for example:"), "--claim 2h")
    return None
