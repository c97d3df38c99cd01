"""Rules on the step itself: micro-batch, compilation, arithmetic, cards. Their gains come from the estimator."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from stepwatch.advice.case import Case, Effect, gain
from stepwatch.advice.kinds import Advice, changing, pays, worth
from stepwatch.messages import Message
from stepwatch.settings import Value
from stepwatch.units import Interval

if TYPE_CHECKING:
    from stepwatch.estimator.workload import Workload

# From the low to the high end of a saving by compilation. In planted runs (seeds 1 to 4) the middle of a wider one is
# off by more than a tenth.
TOO_VAGUE = 2.5
LAUNCH_SHARE = 0.05  # of the step, in which the card waits for launches
OVERHEAD_LEFT = 0.25  # of that waiting, with CUDA graphs
PADDING, SMALL_VOCABULARY = 64, 1024
SHORT_STEP_S = 0.03
SYNC_S = Interval(0.05e-3, 0.2e-3, 0.6e-3)  # the card idles from loss.item() until the next launches reach it
LOGGED_EVERY = 10
_SINGLE = ("float32", "tf32")
_TRITON = "pip install triton-windows"  # PyTorch brings no Triton for Windows, and cannot compile without it
_ENVIRONMENT = Message("In the environment of the run:")


# --- the micro-batch --------------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """A micro-batch with the accumulation that keeps the tokens of an iteration."""

    size: int
    accumulation: int


def batches(sequences: int, cards: int) -> Iterator[Batch]:
    """All ways to divide the sequences of an iteration, the smallest micro-batch first."""
    for size in range(1, sequences + 1):
        if sequences % size == 0 and sequences // size % cards == 0:
            yield Batch(size, sequences // size)


def sequences_of(work: Workload) -> int:
    """Of an iteration, on all cards."""
    return round(work.tokens_per_iteration / work.block_size)


def with_batch(case: Case, batch: Batch) -> dict[str, Value]:
    """The settings for it; eval_iters moves along, so that an evaluation sees as many sequences as before."""
    assert case.workload is not None
    change: dict[str, Value] = {"batch_size": batch.size, "gradient_accumulation_steps": batch.accumulation}
    sequences = case.workload.eval_iters * case.workload.batch_size
    if "eval_iters" in case.settings:
        change["eval_iters"] = max(round(sequences / batch.size), 1)
    return change


def fitting(case: Case, *, surely: bool = True) -> list[Batch]:
    """Those that fit into the card's memory, by the high end of the estimate or by its middle."""
    work, gpu = case.workload, case.gpu
    if work is None or gpu is None or not gpu.vram_bytes:
        return []
    found = []
    for batch in batches(sequences_of(work), work.world_size):
        needed = case.vram_bytes({"batch_size": batch.size})
        if needed is None or (needed.high if surely else needed.mid) > gpu.vram_bytes:
            break
        found.append(batch)
    return found


def larger_micro_batch(case: Case) -> Advice | None:
    """More sequences at once and fewer micro-steps: the same gradient, fewer launches."""
    work, now = case.workload, case.estimate
    if work is None or now is None or case.spills:
        return None
    larger = [batch for batch in fitting(case) if batch.size > work.batch_size]
    timed = [(_step_s(case, batch), batch.size, batch) for batch in larger]
    if not timed:
        return None
    change = with_batch(case, min(timed)[2])
    saves = case.saving(change)
    if not pays(saves, case.total_s):
        return None
    facts = _batch_facts(case, change)
    return Advice(
        "larger_micro_batch", _set_batch(facts),
        Message(
            "The card waits for kernel launches in {launch:pct} of each step; larger micro-batches need fewer of them. "
            "The gradient is the same.",
            facts,
        ),
        Message("It takes {needs:size} of {has:size} of memory, and eval_iters moves along.", facts), saves,
        "modelled", changing(case, change),
        lever="launches",
    )  # fmt: skip


def smaller_micro_batch(case: Case) -> Advice | None:
    """What does not fit ends the run, or crawls through the host's memory."""
    work = case.workload
    if work is None or not case.spills:
        return None
    options = fitting(case) or fitting(case, surely=False)
    smaller = [batch for batch in options if batch.size < work.batch_size]
    if not smaller:
        return None
    change = with_batch(case, smaller[-1])
    saves = case.saving(change)
    if not saves.low > 0:  # worth it however little it saves: without it there may be no run
        return None
    facts = _batch_facts(case, change)
    needs = case.vram_bytes({})
    because = Message(
        "The run needs {now:size} and the {gpu:word} has {has:size}: it stops for lack of memory, or on Windows goes "
        "on many times slower through the host's memory.",
        facts | {"now": needs.mid if needs else 0.0},
    )
    return Advice(
        "smaller_micro_batch", _set_batch(facts), because,
        Message("None; the gradient is the same, and eval_iters moves along."), saves,
        "modelled", changing(case, change),
    )  # fmt: skip


def _needs(case: Case, batch: Batch) -> float:
    needed = case.vram_bytes({"batch_size": batch.size})
    return needed.mid if needed is not None else 0.0


def _step_s(case: Case, batch: Batch) -> float:
    factor, _, _ = case.modelled(with_batch(case, batch))
    return factor.mid


def _batch_facts(case: Case, change: dict[str, Value]) -> dict[str, object]:
    needs, gpu, work = case.vram_bytes(change), case.gpu, case.workload
    assert gpu is not None
    assert work is not None
    return {
        "old": work.batch_size, "new": change["batch_size"], "before": work.grad_accum,
        "after": change["gradient_accumulation_steps"], "needs": needs.mid if needs else 0.0, "has": gpu.vram_bytes,
        "gpu": gpu.name, "launch": _launch_share(case),
    }  # fmt: skip


def _set_batch(facts: dict[str, object]) -> Message:
    return Message(
        "Set batch_size to {new:n} instead of {old:n} and gradient_accumulation_steps to {after:n} instead of "
        "{before:n}.",
        facts,
    )


def _launch_share(case: Case) -> float:
    if case.estimate is None:
        return 0.0
    waiting = sum(term.seconds for term in case.estimate.terms if term.name == "launch")
    return waiting / sum(term.seconds for term in case.estimate.terms)


# --- the compiler -----------------------------------------------------------------------------------------------


def compile_it(case: Case) -> Advice | None:
    """torch.compile fuses what eager mode moves through memory again and again."""
    if case.workload is None or case.workload.compile is not False:
        return None
    change: dict[str, Value] = {"compile": True}
    saves = case.saving(change)
    if not pays(saves, case.total_s) or not _told(case, saves):
        return None
    facts = {"start": case.changed(change).start_s}
    return Advice(
        "compile", Message("Set compile = True."),
        Message(
            "Without compilation a good part of the step goes into moving intermediate results through memory; "
            "compilation pays back within this run."
        ),
        Message(
            "The first iteration takes {start:range} longer. Under Windows it needs WSL2 or triton-windows.", facts
        ),
        saves, "modelled", changing(case, change), patch=_TRITON if case.windows else None,
        where=_ENVIRONMENT if case.windows else None,
    )  # fmt: skip


def untold_gain(case: Case) -> Message | None:
    """In place of the advice to compile, where a log leaves open how much it would give."""
    if case.analysis is None or case.workload is None or case.workload.compile is not False:
        return None
    saves = case.saving({"compile": True})
    if not worth(saves, case.total_s) or (saves.low > 0 and _told(case, saves)):
        return None
    gains = case.published_compile_gains
    return Message(
        "What compilation would give here cannot be told from the log; published runs of such models became "
        "{low:x} to {high:x} times as fast. To see, run a hundred iterations with --compile=True and put both logs to "
        "stepwatch compare.",
        {"low": gains.low, "high": gains.high},
    )


def _told(case: Case, saves: Interval) -> bool:
    """Of a log only what it tells is ranked among what it measured; a plan is an estimate throughout."""
    return case.analysis is None or saves.high <= TOO_VAGUE * saves.low


def do_not_compile(case: Case) -> Advice | None:
    """A run that ends before the compilation has paid back."""
    if case.workload is None or case.workload.compile is not True:
        return None
    change: dict[str, Value] = {"compile": False}
    saves = case.saving(change)
    needs = case.vram_bytes(change)
    too_large = needs is not None and case.gpu is not None and needs.high > (case.gpu.vram_bytes or 0.0)
    if too_large or not pays(saves, case.total_s) or not _told(case, saves):
        return None
    facts = {"start": case.prices.start_s, "iterations": case.loop.iterations}
    return Advice(
        "no_compile", Message("Set compile = False."),
        Message("Compilation takes {start:range} and does not pay back within {iterations:n} iterations.", facts),
        Message("Each step takes longer, so it pays for short runs only."), saves,
        "modelled", changing(case, change),
    )  # fmt: skip


def reduce_overhead(case: Case) -> Advice | None:
    """CUDA graphs take the launches off the processor."""
    share = _launch_share(case)
    if case.workload is None or case.workload.compile is not True or share < LAUNCH_SHARE:
        return None
    effect = Effect(step=gain(1 - share * (1 - OVERHEAD_LEFT)))
    saves = case.saving({}, effect)
    if not pays(saves, case.total_s):
        return None
    return Advice(
        "reduce_overhead", Message("Compile with mode=\"reduce-overhead\"."),
        Message(
            "The card waits for kernel launches in {share:pct} of each step; CUDA graphs replay them at once.",
            {"share": share},
        ),
        Message("More memory, and a compilation that takes longer; look whether the loss stays the same."), saves,
        "modelled", patch='model = torch.compile(model, mode="reduce-overhead")',
        where=Message("In train.py, in place of the call of torch.compile:"), effect=effect, lever="launches",
    )  # fmt: skip


# --- arithmetic -------------------------------------------------------------------------------------------------


def dtype(case: Case) -> Advice | None:
    """Half precision where the card has it, and never bfloat16 where it is only emulated."""
    work, gpu = case.workload, case.gpu
    if work is None or gpu is None:
        return None
    best = "bfloat16" if gpu.has_bf16 else "float16"
    emulated = work.dtype == "bfloat16" and not gpu.has_bf16
    if emulated or work.dtype in _SINGLE:
        change: dict[str, Value] = {"dtype": best}
        saves = case.saving(change)
        return _in(case, change, saves, emulated) if pays(saves, case.total_s) else None
    return None


def _in(case: Case, change: dict[str, Value], saves: Interval, emulated: bool) -> Advice:
    assert case.gpu is not None
    assert case.workload is not None
    facts = {"dtype": change["dtype"], "gpu": case.gpu.name, "now": case.workload.dtype}
    because = Message("The {gpu:word} computes faster in {dtype:word} than in {now:word}.", facts)
    if emulated:
        because = Message(
            "The {gpu:word} has no bfloat16; PyTorch emulates it there, slower than float16 by a multiple.", facts
        )
    price = Message("Less precision; weights and optimizer stay in float32.")
    if change["dtype"] == "float16":
        price = Message("float16 needs loss scaling, which nanoGPT switches on with it.")
    return Advice(
        "dtype", Message("Set dtype = '{dtype:word}'.", facts), because, price, saves, "modelled",
        changing(case, change),
    )  # fmt: skip


def flash_attention(case: Case) -> Advice | None:
    if case.workload is None or case.workload.flash is not False:
        return None
    change: dict[str, Value] = {"flash": True}
    saves = case.saving(change)
    if not pays(saves, case.total_s):
        return None
    return Advice(
        "flash", Message("Use flash attention: nanoGPT takes it by itself with PyTorch 2.0 or newer."),
        Message("Without it every attention score is written to memory and read again."),
        Message("None; the result is the same up to rounding."), saves, "modelled", changing(case, change),
        patch="pip install --upgrade torch", where=_ENVIRONMENT,
    )  # fmt: skip


def pad_vocabulary(case: Case) -> Advice | None:
    """A vocabulary that is no multiple of 64 misses the fast kernels of the last layer."""
    work = case.workload
    if work is None or work.vocab_size % PADDING == 0 or work.vocab_size <= SMALL_VOCABULARY:
        return None
    if (case.settings.text("init_from") or "").startswith("gpt2"):
        return None  # its weights have the size that they have
    change: dict[str, Value] = {"vocab_size": -(-work.vocab_size // PADDING) * PADDING}
    saves = case.saving(change)
    if not pays(saves, case.total_s):
        return None
    facts = {"old": work.vocab_size, "new": change["vocab_size"]}
    return Advice(
        "pad_vocabulary", Message("Raise vocab_size from {old:n} to {new:n}.", facts),
        Message("A multiple of 64 lets the last layer use the card's fast kernels."),
        Message("Some rows of the embedding are never used; a checkpoint with the old size does not fit."), saves,
        "modelled", changing(case, change), patch=f"meta_vocab_size = {change['vocab_size']}",
        where=Message("In train.py, after meta.pkl is read:"),
    )  # fmt: skip


def fused_adamw(case: Case) -> Advice | None:
    if case.workload is None or case.workload.fused:
        return None
    change: dict[str, Value] = {"fused": True}
    saves = case.saving(change)
    if not pays(saves, case.total_s):
        return None
    return Advice(
        "fused_adamw", Message("Use the fused AdamW."),
        Message("One kernel then updates all weights, instead of several for each tensor."),
        Message("None known; measure it, since on a few cards it did not help."), saves, "modelled",
        changing(case, change),
        patch="optimizer = torch.optim.AdamW(optim_groups, lr=learning_rate, betas=betas, fused=True)",
        where=Message("In model.py, in place of the call of torch.optim.AdamW:"),
    )  # fmt: skip


# --- logging, cards ---------------------------------------------------------------------------------------------


def log_less(case: Case) -> Advice | None:
    """Each logged line waits for the card, which then waits for the next launches."""
    step = case.prices.step_s.mid
    if case.settings.count("log_interval") != 1 or case.assumed("log_interval") or not 0 < step < SHORT_STEP_S:
        return None
    interval = case.settings.count("eval_interval") or LOGGED_EVERY
    every = next(size for size in range(LOGGED_EVERY, 0, -1) if interval % size == 0)
    if every == 1:
        return None
    kept = 1 / every
    ends = (1 - waits * (1 - kept) / step for waits in (SYNC_S.high, SYNC_S.mid, SYNC_S.low))
    effect = Effect(step=Interval(*ends))
    saves = case.saving({}, effect)
    if not pays(saves, case.total_s):
        return None
    facts = {"new": every, "step": step}
    return Advice(
        "log_less", Message("Raise log_interval from 1 to {new:n}.", facts),
        Message("A step takes {step:time}, and every logged line makes the card wait for the processor.", facts),
        Message("Fewer lines; evaluations still fall on a logged one."), saves, "modelled",
        changing(case, {"log_interval": every}), effect=effect,
    )  # fmt: skip


def more_cards(case: Case) -> Advice | None:
    """DDP over the cards that there are, where the exchange of gradients leaves a gain."""
    work = case.workload
    if work is None or case.cards <= work.world_size:
        return None
    largest = case.gpu.vram_bytes if case.gpu is not None and case.gpu.vram_bytes else math.inf
    options = [
        batch for batch in batches(sequences_of(work), case.cards)
        if batch.size <= work.batch_size and _needs(case, batch) <= largest
    ]  # fmt: skip
    if not options:
        return None
    batch = options[-1]
    change: dict[str, Value] = {"world_size": case.cards}
    if batch.size != work.batch_size:
        change |= with_batch(case, batch)
    saves = case.saving(change)
    if not pays(saves, case.total_s):
        return None
    facts = {"cards": case.cards, "ratio": 1 / case.modelled(change)[0].mid}
    return Advice(
        "more_cards", Message("Train on all {cards:n} cards with DDP.", facts),
        Message("Each card does its part of the micro-steps: an iteration is about {ratio:x} times as fast.", facts),
        Message("None; the tokens of an iteration stay the same."), saves, "modelled", changing(case, change),
    )  # fmt: skip


def fewer_cards(case: Case) -> Advice | None:
    """Where the gradients take longer to exchange than to compute."""
    work = case.workload
    if work is None or work.world_size < 2 or work.grad_accum < work.world_size:
        return None
    change: dict[str, Value] = {"world_size": 1}
    saves = case.saving(change)
    if not pays(saves, case.total_s):
        return None
    facts = {"cards": work.world_size}
    return Advice(
        "fewer_cards", Message("Train on one card instead of {cards:n}.", facts),
        Message("For a model this small the exchange of gradients takes longer than sharing the computing saves."),
        Message("None; the other cards are free for other runs."), saves, "modelled", changing(case, change),
    )  # fmt: skip


RULES = (
    smaller_micro_batch, larger_micro_batch, compile_it, do_not_compile, reduce_overhead, dtype, flash_attention,
    pad_vocabulary, fused_adamw, log_less, more_cards, fewer_cards,
)  # fmt: skip
