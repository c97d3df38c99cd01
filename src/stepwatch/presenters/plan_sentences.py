"""The sentences and rows of a plan: what its document and its charts share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from stepwatch.gpus.catalogue import A100_FLOPS, GIB
from stepwatch.messages import Message
from stepwatch.presenters.document import Badge, Command, count, time, word
from stepwatch.settings import PRIVATE, Origin, Setting
from stepwatch.units import TERA, Interval

if TYPE_CHECKING:
    from stepwatch.estimator.plan import Plan


SHAPE = ("n_layer", "n_head", "n_embd")
# Defaults that determine the speed or the length, the most important first.
WEIGHTY = (
    *("max_iters", *SHAPE, "batch_size", "gradient_accumulation_steps", "block_size", "dtype", "compile", "flash"),
    *("eval_interval", "eval_iters", "vocab_size"),
)
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
RANGES = Message("The ranges hold in nine of ten cases.")


# --- the answer -------------------------------------------------------------------------------------------------

BADGES = {
    "fits": Badge("✔", Message("Fits"), "good"),
    "does_not_fit": Badge("✖", Message("Does not fit"), "bad"),
    "impossible": Badge("✖", Message("Impossible"), "bad"),
    "unknown": Badge("?", Message("Unknown"), "open"),
}


def status(plan: Plan) -> str:
    if plan.claim is not None and plan.claim.verdict == "impossible":
        return "impossible"
    return {True: "fits", False: "does_not_fit", None: "unknown"}[plan.fits]


def headline(plan: Plan) -> Message:
    several = plan.n_gpus > 1
    if plan.fits is False and several:
        text = Message(
            "This run does not fit into the memory of {cards:n} × {gpu:word}; if it did, it would take {total:range}, {step:range} per iteration."
        )
    elif plan.fits is False:
        text = Message(
            "This run does not fit into the memory of the {gpu:word}; if it did, it would take {total:range}, {step:range} per iteration."
        )
    elif several:
        text = Message("On {cards:n} × {gpu:word} this run takes {total:range}, {step:range} per iteration.")
    else:
        text = Message("On the {gpu:word} this run takes {total:range}, {step:range} per iteration.")
    facts = {"gpu": plan.gpu.name, "cards": plan.n_gpus, "total": plan.total_s, "step": plan.estimate.step_s}
    return text._replace(params=facts)


def verdict(plan: Plan) -> Iterator[Message]:
    """Whether the claimed figure is possible, and what it would take; nothing if nothing was claimed."""
    claim, found = plan.claim, plan.estimate
    if claim is None:
        return
    facts = {"claim": claim.text, "each": claim.step_s, "needs": claim.needs_flops, "times": claim.of_peak}
    facts |= {"gpu": plan.gpu.name, "peak": plan.peak_flops, "step": found.step_s, "floor": found.floor_step_s}
    several = plan.n_gpus > 1
    if claim.verdict == "impossible":
        if claim.of_peak <= 1:
            text = Message("Impossible: {claim:word} is faster than the {gpu:word} can compute.")
        elif several:
            text = Message(
                "Impossible: {claim:word} would need {needs:tflops} of each {gpu:word}, {times:x} times its peak of {peak:tflops}."
            )
        else:
            text = Message(
                "Impossible: {claim:word} would need {needs:tflops}, {times:x} times the peak of the {gpu:word}, {peak:tflops}."
            )
        yield text._replace(params=facts)
        yield Message("It means {each:time} per iteration; the physical limit here is {floor:time}.", facts)
    elif claim.verdict == "implausible":
        fast = Message(
            "Implausible: {claim:word} means {each:time} per iteration, faster than such runs are; expect {step:range}."
        )
        yield fast._replace(params=facts)
        if several:
            yield Message("It would need {needs:tflops} of each card, {times:pct} of its peak.", facts)
        else:
            yield Message("It would need {needs:tflops}, {times:pct} of the card's peak.", facts)
    elif claim.step_s > found.step_s.high:
        slow = Message("Possible: {claim:word} means {each:time} per iteration, slower than the expected {step:range}.")
        yield slow._replace(params=facts)
    else:
        yield Message("Plausible: {claim:word} means {each:time} per iteration; {step:range} is expected.", facts)


# --- the parts --------------------------------------------------------------------------------------------------


class PlanPart(NamedTuple):
    code: str
    name: Message
    each_s: Interval
    times: Message
    total_s: Interval


def parts(plan: Plan) -> Iterator[PlanPart]:
    found = plan.estimate
    yield PlanPart("step", Message("Training step"), found.step_s, count(iterations(plan)), plan.step_part_s)
    evaluations = found.eval_s.scaled(plan.evaluations)
    yield PlanPart("eval", Message("Evaluation"), found.eval_s, count(plan.evaluations), evaluations)
    saves, each = plan.saves, found.checkpoint_s
    if saves.high > 0:
        low, high = round(saves.low), round(saves.high)
        times = count(high) if low == high else Message("{low:n}–{high:n}", {"low": low, "high": high})
        total = Interval(saves.low * each.low, saves.mid * each.mid, saves.high * each.high)
        yield PlanPart("checkpoint", Message("Checkpoint"), each, times, total)
    start = Message("Warm-up") if plan.workload.compile is False else Message("Compilation, warm-up")
    yield PlanPart("compile", start, found.compile_s, count(1), found.compile_s)


def part_rows(plan: Plan) -> Iterator[tuple[Message | None, ...]]:
    """Rows of name, each, count and total; the whole run comes last."""
    for part in parts(plan):
        yield part.name, time(part.each_s), part.times, time(part.total_s)
    yield Message("Whole run"), None, None, time(plan.total_s)


def last_iteration(plan: Plan) -> int:
    return plan.settings.count("max_iters") or 600_000


def iterations(plan: Plan) -> int:
    """nanoGPT runs both iteration 0 and iteration max_iters."""
    return last_iteration(plan) + 1


# --- speed and memory -------------------------------------------------------------------------------------------


def speed(plan: Plan) -> tuple[Message, ...]:
    rate, mfu = plan.tokens_per_s, plan.mfu
    facts = {"low": float(f"{rate.low:.3g}"), "high": rate.high, "cards": plan.n_gpus}
    facts |= {"least": mfu.low, "most": mfu.high, "peak": plan.peak_flops}
    if plan.n_gpus > 1:
        rates = Message("{low:n}–{high:rate} on {cards:n} cards together.", facts)
        share = Message("MFU of each: {least:pct} to {most:pct} of its peak, {peak:tflops}.", facts)
    else:
        rates = Message("{low:n}–{high:rate}.", facts)
        share = Message("MFU: {least:pct} to {most:pct} of the card's peak, {peak:tflops}.", facts)
    return rates, share, BOUNDS[plan.estimate.bound]


def memory(plan: Plan) -> tuple[Message, ...]:
    """How much memory the run needs, whether it fits, and the micro-batch that would fit."""
    need, size = plan.estimate.vram_bytes, plan.gpu.vram_bytes
    facts = {"low": need.low, "high": need.high, "size": size, "gib": (size or 0.0) / GIB}
    if size is None:
        return (Message("{low:size} to {high:size}; the memory of the card is unknown.", facts),)
    if plan.n_gpus > 1:
        amount = Message("{low:size} to {high:size} of each card's {size:size} ({gib:x} GiB).", facts)
    else:
        amount = Message("{low:size} to {high:size} of the card's {size:size} ({gib:x} GiB).", facts)
    if plan.fits is None:
        return (amount,)
    if plan.fits:
        fit = Message("It fits.") if need.high <= size else Message("It should fit, but only just.")
    else:
        fit = Message("It does not fit.") if need.low > size else Message("It most likely does not fit.")
    if plan.largest_batch_size is None:
        return amount, fit
    if plan.largest_batch_size < 1:
        return amount, fit, Message("Not even a batch_size of 1 does.")
    largest = {"largest": plan.largest_batch_size}
    return amount, fit, Message("The largest batch_size that does: {largest:n}.", largest)


# --- what it is based on ----------------------------------------------------------------------------------------


def assumed(plan: Plan) -> Iterator[Message]:
    """The defaults that matter, and what was guessed."""
    defaults = [name for name in WEIGHTY if _origin(plan, name) is Origin.FORMAT_DEFAULT]
    if defaults:
        names, left_out = _listed(plan, defaults)
        if left_out:
            yield Message("nanoGPT's defaults: {names:word} and {count:n} more.", {"names": names, "count": left_out})
        else:
            yield Message("nanoGPT's defaults: {names:word}.", {"names": names})
    guessed = [name for name, setting in plan.settings.items() if setting.origin is Origin.INFERRED]
    if guessed:
        yield Message("Guessed: {names:word}.", {"names": _listed(plan, guessed)[0]})
    if plan.shape_guessed and _repair(plan) is not None:  # else `next_option` asks for the fix
        yield Message("For a narrower answer, give {names:word}.", {"names": ", ".join(SHAPE)})


def _listed(plan: Plan, names: list[str]) -> tuple[str, int]:
    """As many names as fit into a sentence, and how many are left out."""
    text = ""
    for position, name in enumerate(names):
        typed = f"{name}={value_text(plan.settings[name])}"
        longer = f"{text}, {typed}" if text else typed
        if text and len(longer) > 100:  # characters; a longer word would be cut in the middle of a name
            return text, len(names) - position
        text = longer
    return text, 0


def _origin(plan: Plan, name: str) -> Origin | None:
    return plan.settings[name].origin if name in plan.settings else None


def value_text(setting: Setting) -> str:
    value = setting.value
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def known_settings(plan: Plan) -> Iterator[tuple[Message, Message, Message]]:
    """Rows of name, value and origin."""
    for name, setting in plan.settings.items():
        if name not in PRIVATE:
            yield word(name), word(value_text(setting)), ORIGINS[setting.origin]


# --- what else to know ------------------------------------------------------------------------------------------


def warnings(plan: Plan) -> Iterator[Message]:
    facts = {"gpu": plan.gpu.name, "steps": plan.workload.grad_accum, "cards": plan.n_gpus}
    if plan.emulated:
        yield Message("The {gpu:word} has no bfloat16 and emulates it, which is slow. Use --dtype=float16.", facts)
    if plan.workload.grad_accum % plan.n_gpus:
        text = Message(
            "nanoGPT will not start: it cannot divide gradient_accumulation_steps, {steps:n}, among {cards:n} cards."
        )
        yield text._replace(params=facts)


def notices(plan: Plan) -> Iterator[Message]:
    if plan.n_gpus > 1 and plan.workload.grad_accum % plan.n_gpus == 0:
        facts = {"steps": plan.workload.grad_accum, "each": plan.workload.micro_steps}
        text = Message(
            "The cards share gradient_accumulation_steps, {steps:n}: micro-steps of each per iteration: {each:n}."
        )
        yield text._replace(params=facts)
    elsewhere = abs(plan.peak_flops / A100_FLOPS - 1) > 0.02  # within 2 %, the peak is the A100's
    if elsewhere and not plan.shape_guessed:
        logged = plan.mfu.scaled(plan.peak_flops / A100_FLOPS)
        text = Message(
            "nanoGPT's log will show an MFU of {low:pct} to {high:pct}: it compares every card with an A100."
        )
        yield text._replace(params={"low": logged.low, "high": logged.high})


# --- the sum ----------------------------------------------------------------------------------------------------


def term_rows(plan: Plan) -> Iterator[tuple[Message, Message, Message]]:
    """The terms of one iteration in order with their shares, without the terms that are zero, and their sum."""
    whole = sum(term.seconds for term in plan.estimate.terms)
    for term in plan.estimate.terms:
        if term.seconds > 0:
            share = Message("{share:pct}", {"share": term.seconds / whole})
            yield TERMS.get(term.name) or word(term.name), time(term.seconds), share
    yield Message("Sum: one iteration"), time(whole), Message("{share:pct}", {"share": 1.0})


def reckoning(plan: Plan) -> Iterator[tuple[Message, tuple[Message, ...]]]:
    """What the sum is based on: labels, and what is said under each."""
    found, work = plan.estimate, plan.workload
    facts: dict[str, Any] = {
        "tera": plan.flops_per_iter / TERA,
        "tokens": work.tokens_per_iteration,
        "params": work.n_params,
        "step": found.step_s,
        "mid": found.step_s.mid,
        "floor": found.floor_step_s,
        "count": iterations(plan),
        "last": last_iteration(plan),
        "interval": plan.settings.count("eval_interval") or 2000,
        "passes": 2 * work.eval_iters,
        "low": round(plan.saves.low),
        "high": round(plan.saves.high),
    }
    amount = Message("{tera:x} TFLOP per iteration, for {tokens:n} tokens and {params:big} parameters.", facts)
    if plan.shape_guessed:
        yield Message("Work"), (amount, Message("Counted as 6 for each parameter and token, without attention."))
    else:
        yield Message("Work"), (amount, Message("Counted as nanoGPT does, attention included."))
    spread = Message("{step:range} per iteration, most likely {mid:time}.", facts)
    if sum(term.seconds for term in found.terms) < found.floor_step_s:
        yield Message("Range"), (spread, Message("The sum is below the floor, so the floor counts."), RANGES)
    else:
        yield Message("Range"), (spread, RANGES)
    least = Message(
        "{floor:time} per iteration: the least arithmetic that it needs, at the highest clock of such cards."
    )
    yield Message("Floor"), (least._replace(params=facts),)
    every = Message("{count:n}: from iteration 0 to max_iters, {last:n}, both included.", facts)
    yield Message("Iterations"), (every,)
    evaluations = facts | {"count": plan.evaluations}
    often = Message("{count:n}: at iteration 0 and each multiple of eval_interval, {interval:n}.", evaluations)
    passes = Message("Forward passes in each: {passes:n}, twice eval_iters.", facts)
    yield Message("Evaluations"), (often, passes)
    if facts["low"] != facts["high"]:
        saves = Message("{low:n} to {high:n}: after evaluations with a better validation loss, never at iteration 0.")
    else:
        saves = Message("{high:n}: after every evaluation but that of iteration 0.")
    yield Message("Checkpoints"), (saves._replace(params=facts),)


# --- what to ask next -------------------------------------------------------------------------------------------


def next_option(plan: Plan, *, why: bool) -> Command | None:
    """The one option that would add most to the answer; contains only our own names and numbers."""
    repair = _repair(plan)
    if repair is not None:
        return repair
    if plan.shape_guessed:
        shape = " ".join(f"--{name}={getattr(plan.workload, name)}" for name in SHAPE)
        return Command((shape,), Message("For a narrower answer, give the shape of the model, for example:"))
    if _origin(plan, "max_iters") is Origin.FORMAT_DEFAULT:
        length = Message("To see how long your own run takes, give its length, for example:")
        return Command(("--max_iters=20000",), length)  # an example of a length
    if not why:
        return Command(("--why",), Message("To see how these figures are computed, add to the command:"))
    if plan.claim is None:
        claim = Message("To check a figure that you were promised, add it to the command, for example:")
        return Command(("--claim 2h",), claim)
    return None


def _repair(plan: Plan) -> Command | None:
    if plan.emulated:
        return Command(("--dtype=float16",), Message("To see it in float16, add to the command:"))
    if plan.fits is False and plan.largest_batch_size:
        # The largest micro-batch that fits, divides the sequences of an iteration and gives each card as many.
        cards, sequences = plan.n_gpus, plan.workload.batch_size * plan.workload.grad_accum
        sizes = range(min(plan.largest_batch_size, sequences), 0, -1)
        batch = next((size for size in sizes if sequences % size == 0 and sequences // size % cards == 0), 1)
        option = f"--batch_size={batch} --gradient_accumulation_steps={sequences // batch}"
        fits = Message("To see it with a micro-batch that fits, and as many tokens per iteration, add to the command:")
        return Command((option,), fits)
    return None
