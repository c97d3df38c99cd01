"""The answer to `advise`: changes to a run, or recommended settings if there is no run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from stepwatch.messages import Message
from stepwatch.platforms import quoted_path
from stepwatch.presenters import document as doc
from stepwatch.presenters.document import sections, texts, time
from stepwatch.settings import Origin, Value
from stepwatch.units import Interval

if TYPE_CHECKING:
    from stepwatch.advice import AdviceList
    from stepwatch.advice.recommended import Recommended
    from stepwatch.report import AdviceReport

# Settings that nanoGPT's train.py does not accept: they need a patch or another command.
NOT_TAKEN = {
    *("flash", "fused", "world_size", "vocab_size", "activation_checkpointing", "chunked_loss"),
    *("tokens_per_iter", "n_params", "mtbf_hours"),
}


# --- the document -----------------------------------------------------------------------------------------------


def advice_document(answer: AdviceReport) -> doc.Document:
    if answer.recommended is not None:
        return _recommended_document(answer, answer.recommended)
    advised = answer.advice
    if advised is None or not advised.advice:
        first, *why = nothing(advised)
        lead: tuple[doc.Block, ...] = (doc.Headline(((first,),), priority=None), *texts(why))
    else:
        largest = (advised.advice[0].what, saves(advised, 0))
        lead = (doc.Headline((largest, (headline(advised),)), priority=None),)
    notes: list[Message | None] = []
    parts: list[doc.Section] = []
    if advised is not None:
        parts += changes(advised)
        notes += [span(advised), *advised.offers, *advised.missing]
    if advised is not None and any(advised.chosen):
        diff = doc.Code("\n".join(config_diff(advised.change)), "diff")
        head = (Message("Part"), Message("Before"), Message("After"))
        compared = (doc.Table(head, "lrr", tuple(before_after(advised))), doc.Chart("changes", advised))
        parts += [
            doc.Section("compared", Message("Before and after"), compared),
            doc.Section("config", Message("In the config"), (diff,)),
            doc.Section("command", Message("On the command line"), (doc.Command(command_of(answer), priority=None),)),
        ]
    noticed = doc.Bullets((*texts(answer.remarks, "notice"), *texts(notes)))
    parts.append(doc.Section("noticed", Message("What else to know"), (noticed,)))
    source = advised.case.analysis.run.source if advised is not None and advised.case.analysis is not None else ""
    about = source if source not in ("", "-") else None
    return doc.Document(Message("What to change"), lead, sections(*parts), about)


def _recommended_document(answer: AdviceReport, found: Recommended) -> doc.Document:
    plan = found.plan
    work, settings = plan.workload, found.usual.settings
    facts = {
        "gpu": plan.gpu.name,
        "cards": plan.n_gpus,
        "params": work.n_params,
        "batch": work.batch_size,
        "accumulation": work.grad_accum,
        "dtype": work.dtype,
    }
    model = Message("For {params:big} parameters on the {gpu:word}:", facts)
    if plan.n_gpus > 1:
        model = Message("For {params:big} parameters on {cards:n} × {gpu:word}:", facts)
    chosen = Message(
        "batch_size = {batch:n}, gradient_accumulation_steps = {accumulation:n}, {dtype:word}, not compiled.", facts
    )
    if work.compile:
        chosen = Message(
            "batch_size = {batch:n}, gradient_accumulation_steps = {accumulation:n}, {dtype:word}, compiled.", facts
        )
    paragraphs: list[tuple[Message, ...]] = [(model, chosen)]
    if settings["n_layer"].origin is Origin.FORMAT_DEFAULT:
        paragraphs.append((Message("No model was given: this is nanoGPT's default, the size of the smallest GPT-2."),))
    length = {"count": settings.count("max_iters")}
    iterations = Message("for {count:n} iterations", length)
    if settings["max_iters"].origin is Origin.FORMAT_DEFAULT:
        iterations = Message("for the {count:n} iterations of nanoGPT's default run", length)
    takes = (
        doc.Text((time(plan.estimate.step_s),), label=Message("Training step")),
        doc.Text((time(plan.total_s), iterations), label=Message("Whole run")),
    )
    from stepwatch.presenters.plan_sentences import speed  # not needed for a log

    reasons = (*texts(recommended_reasons(found)), *texts(answer.remarks, "notice"), doc.Text(speed(plan)))
    return doc.Document(
        Message("Recommended settings"),
        (doc.Headline(tuple(paragraphs), priority=None), doc.Labelled(takes)),
        sections(
            doc.Section("config", Message("In the config"), (doc.Code("\n".join(config_lines(found)), "python"),)),
            doc.Section("reasons", Message("Why these"), (doc.Bullets(reasons),)),
            doc.Section("command", Message("On the command line"), (doc.Command(command_of(answer), priority=None),)),
        ),
    )


# --- the list ---------------------------------------------------------------------------------------------------


def headline(advised: AdviceList) -> Message:
    """What all changes save together; advice to look at the machine does not count."""
    chosen = sum(advised.chosen)
    if not chosen:
        return Message("No setting is worth changing, but the machine is worth a look.")
    before, saved = advised.before.total_s.mid, advised.saves_s
    facts = {
        "count": chosen,
        "before": before,
        "after": max(before - saved.mid, 0.0),
        "share": saved.mid / before if before > 0 else 0.0,
    }
    if not advised.advice[0].remedy:
        return Message(
            "Without that, one change makes this run {share:pct} shorter: {after:time} instead of {before:time}.",
            facts,
            "Without that, {count:n} changes make this run {share:pct} shorter: {after:time} instead of {before:time}.",
            chosen,
        )
    return Message(
        "One change makes this run {share:pct} shorter: {after:time} instead of {before:time}.",
        facts,
        "{count:n} changes make this run {share:pct} shorter: {after:time} instead of {before:time}.",
        chosen,
    )


def nothing(advised: AdviceList | None) -> tuple[Message, ...]:
    """Said instead of an empty list. The reason is added only if the cost of evaluations and checkpoints is known."""
    if advised is None:
        return (Message("The log shows too little to say what is worth changing."),)
    said = Message("Nothing is worth changing.")
    a = advised.case.analysis
    if a is not None and not a.shows_parts:
        return (said,)
    if a is not None and any(cost is not None and not cost.high > 0 for cost in (a.costs.eval_s, a.costs.checkpoint_s)):
        return (said,)
    run = advised.before
    share = (run.eval_s.mid + run.checkpoint_s.mid) / run.total_s.mid if run.total_s.mid > 0 else 0.0
    why = Message(
        "Evaluations and checkpoints take {share:pct} of the run; no change found saves at least a minute and 1 % of it."
    )
    if a is not None and a.forecast.max_iters is None:
        why = Message(
            "Evaluations and checkpoints take {share:pct} of the time in this log; no change found saves at least a minute and 1 % of it."
        )
    return said, why._replace(params={"share": share})


def changes(advised: AdviceList, *, pressing: bool = False) -> Iterator[doc.Section]:
    """One section per change: what it saves and the lines to paste, with its alternatives folded below.

    `pressing` puts the first change that has a remedy on the first screen.
    """
    alternatives = {position: advised.alternatives_to(position) for position in range(len(advised.advice))}
    inner = {other for others in alternatives.values() for other in others}
    shown = [position for position in alternatives if position not in inner]
    first = next((position for position in shown if pressing and advised.advice[position].remedy), None)
    for number, position in enumerate(shown, start=1):
        below = (_change(advised, other, folded=True) for other in alternatives[position])
        found = _change(advised, position, tuple(below), number=number)
        brief = doc.Text((), "change", brief=(found.heading, saves(advised, position)), priority=doc.Priority.PRESSING)
        yield found._replace(blocks=(brief, *found.blocks)) if position == first else found


def _change(advised: AdviceList, position: int, below: tuple[doc.Section, ...] = (), **shown: Any) -> doc.Section:
    advice = advised.advice[position]
    lines = [_setting(name, new) for name, (_, new) in advice.stated.items() if name not in NOT_TAKEN]
    blocks: list[doc.Block] = [
        doc.Text(together(advised, position)),
        doc.Text((advice.because,)),
        doc.Text((Message("Price:"), advice.price)),
        doc.Code("\n".join(lines), "python"),
    ]
    if advice.patch is not None and advice.where is not None:
        blocks += [doc.Text((advice.where,)), doc.Code(advice.patch, "python" if advice.remedy else "sh")]
    section = doc.Section("change", advice.what, tuple(blocks), below, beside=saves(advised, position), **shown)
    return sections(section)[0]


def saves(advised: AdviceList, position: int) -> Message:
    advice, total_s = advised.advice[position], advised.before.total_s
    facts = {"saved": advice.saves_s, "total": total_s.mid}
    if advice.basis == "measured":
        return Message("Saves {saved:range} of {total:time}.", facts)
    if advice.saves_s.high < total_s.mid:
        return Message("Saves {saved:range} of {total:time}, as estimated.", facts)
    # If the estimate is wide, a saving may exceed the midpoint of the total.
    return Message("Saves {saved:range} of {total:range}, as estimated.", {"saved": advice.saves_s, "total": total_s})


def together(advised: AdviceList, position: int) -> tuple[Message, ...]:
    """What the change saves together with the previous ones; empty for the first one that counts."""
    if not advised.advice[position].remedy or not any(advised.chosen):
        return ()
    if not advised.chosen[position]:
        return (Message("An alternative: with the changes above it adds little."),)
    if sum(advised.chosen[: position + 1]) < 2:
        return ()
    return (Message("With the changes above: {saved:range}.", {"saved": advised.together_s[position]}),)


def span(advised: AdviceList) -> Message | None:
    """Which run the savings refer to, if the log does not cover a whole run."""
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


def before_after(advised: AdviceList) -> Iterator[tuple[Message, Message, Message]]:
    before, after = advised.before, advised.after
    lost = Message("Stalls") if advised.case.mtbf_s is None else Message("Stalls, repeated work")
    for name, now, then in (
        (Message("Training step"), before.step_s, after.step_s),
        (Message("Evaluation"), before.eval_s, after.eval_s),
        (Message("Checkpoint"), before.checkpoint_s, after.checkpoint_s),
        (Message("Compilation, warm-up"), before.start_s, after.start_s),
        (lost, before.lost_s, after.lost_s),
        (Message("Whole run"), before.total_s, after.total_s),
    ):
        if now.high > 0 or then.high > 0:
            yield name, time(now), time(then)
    if advised.vram_before is not None and advised.vram_after is not None:
        yield Message("Video memory"), _size(advised.vram_before), _size(advised.vram_after)


def _size(of: Interval) -> Message:
    return Message("{low:size} – {high:size}", {"low": of.low, "high": of.high})


# --- what to type -----------------------------------------------------------------------------------------------


def command_of(answer: AdviceReport) -> tuple[str, ...]:
    """What to type to start the run with the changes, or with the recommended settings."""
    if answer.recommended is not None:
        return train_command(answer.recommended.settings, None, answer.recommended.plan.n_gpus)
    if answer.advice is None or answer.advice.case.levers is not None:
        return ()
    new = {name: value for name, (_, value) in answer.advice.change.items()}
    work = answer.advice.case.workload
    cards = int(new.get("world_size") or (work.world_size if work is not None else 1))
    return train_command(new, answer.config, cards)


def train_command(new: Mapping[str, Value], config: str | None, cards: int) -> tuple[str, ...]:
    """nanoGPT's own command with the changes; empty if none of its settings changes."""
    taken = [f"--{name}={value}" for name, value in new.items() if name not in NOT_TAKEN]
    if not taken and "world_size" not in new:
        return ()
    start = f"torchrun --standalone --nproc_per_node={cards} train.py" if cards > 1 else "python train.py"
    return (start, *([quoted_path(config)] if config else []), *taken)


def config_diff(change: Mapping[str, tuple[Value | None, Value]]) -> list[str]:
    """Lines of a config, old and new."""
    lines = []
    for name, (old, new) in change.items():
        if name not in NOT_TAKEN:
            lines += [f"- {_setting(name, old)}"] if old is not None else []
            lines.append(f"+ {_setting(name, new)}")
    return lines


def _setting(name: str, value: Value) -> str:
    """A setting as it is written: a line of a config, or an option of a command."""
    return f"{name} {value}" if name.startswith("-") else f"{name} = {value!r}"


def config_lines(found: Recommended) -> list[str]:
    """The lines of a config file; settings that train.py does not take are commented out."""
    return [f"{'# ' * (name in NOT_TAKEN)}{name} = {value!r}" for name, value in found.settings.items()]


# --- recommended settings ---------------------------------------------------------------------------------------


def recommended_reasons(found: Recommended) -> Iterator[Message]:
    plan, work, estimate = found.plan, found.plan.workload, found.plan.estimate
    interval = plan.settings.count("eval_interval")
    spent_s = estimate.eval_s.mid * plan.evaluations + estimate.checkpoint_s.mid * plan.saves.mid
    facts: dict[str, Any] = {
        "batch": work.batch_size,
        "accumulation": work.grad_accum,
        "tokens": int(work.tokens_per_iteration),
        "low": estimate.vram_bytes.low,
        "high": estimate.vram_bytes.high,
        "has": plan.gpu.vram_bytes,
        "gpu": plan.gpu.name,
        "interval": interval,
        "every": (interval or 0) * estimate.step_s.mid,
        "share": spent_s / plan.total_s.mid,
        "enough": found.enough_iterations,
        "time": found.enough_s,
    }
    memory = Message(
        "batch_size = {batch:n} with gradient_accumulation_steps = {accumulation:n} keeps {tokens:n} tokens per iteration and takes {low:size} to {high:size}; the memory of the card is unknown.",
        facts,
    )
    if plan.gpu.vram_bytes is not None:
        memory = Message(
            "batch_size = {batch:n} with gradient_accumulation_steps = {accumulation:n} keeps {tokens:n} tokens per iteration and takes {low:size} to {high:size} of the card's {has:size}.",
            facts,
        )
    yield memory
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
    yield Message(
        "An evaluation and a checkpoint every {interval:n} iterations, about every {every:time}: together {share:pct} of the run.",
        facts,
    )
    yield Message(
        "Twenty tokens per parameter, beyond which a larger model would learn more in the same time, are {enough:n} iterations: {time:range}.",
        facts,
    )
    usual = found.usual
    usually = {"usual": usual.total_s, "batch": usual.workload.batch_size}
    if usual.fits is False:
        yield Message("nanoGPT's defaults do not fit this card: batch_size = {batch:n} needs more memory.", usually)
    elif plan.total_s.mid < 0.99 * usual.total_s.mid:  # less than 1 % is no difference
        yield Message("With nanoGPT's defaults it would take {usual:range}.", usually)
