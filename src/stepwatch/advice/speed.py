"""Rules on the step itself: micro-batch, compilation, arithmetic, cards. Their gains come from the estimator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from stepwatch.advice.case import SINGLE_PRECISION, Case, Effect, Proposal
from stepwatch.advice.gains import modelled_factor
from stepwatch.estimator.constants import PADDING, SMALL_VOCABULARY
from stepwatch.estimator.memory import largest_batch_size
from stepwatch.estimator.workload import Workload
from stepwatch.gpus import Gpu
from stepwatch.messages import Message
from stepwatch.settings import Value
from stepwatch.units import Interval

MOST_SEQUENCES = 1 << 16  # in a micro-batch: with 64 tokens each, they are 4 million tokens
_ENVIRONMENT = Message("In the environment of the run:")


# --- the micro-batch --------------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """A micro-batch with the accumulation that keeps the tokens of an iteration."""

    size: int
    accumulation: int


def sequences_of(work: Workload) -> int:
    """The sequences of an iteration, on all cards."""
    return round(work.tokens_per_iteration / work.block_size)


def batches(work: Workload, gpu: Gpu, cards: int) -> list[Batch]:
    """All ways to divide the sequences of an iteration that may fit the card, the smallest micro-batch first."""
    sequences = sequences_of(work)
    largest = largest_batch_size(work, gpu)
    most = min(sequences, MOST_SEQUENCES, MOST_SEQUENCES if largest is None else largest + 1)
    return [Batch(size, sequences // size) for size in range(1, most + 1) if sequences % (size * cards) == 0]


def with_batch(case: Case, work: Workload, batch: Batch) -> dict[str, Value]:
    """The settings for a batch; eval_iters changes too, so that an evaluation sees as many sequences as before."""
    new: dict[str, Value] = {"batch_size": batch.size, "gradient_accumulation_steps": batch.accumulation}
    if "eval_iters" in case.settings:
        new["eval_iters"] = max(round(work.eval_iters * work.batch_size / batch.size), 1)
    return new


def _launch_share(case: Case) -> float:
    """The share of a step in which the card waits for launches."""
    if case.estimate is None:
        return 0.0
    waiting = sum(term.seconds for term in case.estimate.terms if term.name == "launch")
    return waiting / sum(term.seconds for term in case.estimate.terms)


def micro_batch(case: Case) -> Iterator[Proposal]:
    """A smaller one if it does not fit; a larger one if fewer launches make it faster. The gradient is the same."""
    work, gpu, now = case.workload, case.gpu, case.vram_bytes({})
    if work is None or gpu is None or not gpu.vram_bytes or now is None:
        return
    needed = [(batch, case.vram_bytes({"batch_size": batch.size})) for batch in batches(work, gpu, work.world_size)]
    surely = [batch for batch, needs in needed if needs is not None and needs.high <= gpu.vram_bytes]
    likely = [batch for batch, needs in needed if needs is not None and needs.mid <= gpu.vram_bytes]
    if case.spills:
        options = [batch for batch in surely or likely if batch.size < work.batch_size][-1:]
    else:
        options = [batch for batch in surely if batch.size > work.batch_size]
    if not options:
        return
    new = min(
        (with_batch(case, work, batch) for batch in options),
        key=lambda settings: (case.speed_factors(settings)[0].mid, settings["batch_size"]),
    )
    needs = case.vram_bytes(new)
    facts = {
        "old": work.batch_size,
        "new": new["batch_size"],
        "before": work.grad_accum,
        "after": new["gradient_accumulation_steps"],
        "needs": needs.mid if needs is not None else 0.0,
        "has": gpu.vram_bytes,
    }
    what = Message(
        "Set batch_size to {new:n} instead of {old:n} and gradient_accumulation_steps to {after:n} instead of "
        "{before:n}.",
        facts,
    )
    if case.spills:
        yield Proposal(
            rule="smaller_micro_batch",
            new_settings=new,
            what=what,
            because=Message(
                "The run needs {now:size} and the {gpu:word} has {has:size}: it runs out of memory, or on Windows "
                "spills to host memory and becomes many times slower.",
                facts | {"now": now.mid, "gpu": gpu.name},
            ),
            price=Message("None; the gradient is the same, and eval_iters changes with it."),
            required=True,
        )
    else:
        yield Proposal(
            rule="larger_micro_batch",
            new_settings=new,
            what=what,
            because=Message(
                "The card waits for kernel launches in {launch:pct} of each step; larger micro-batches need fewer of "
                "them. The gradient is the same.",
                {"launch": _launch_share(case)},
            ),
            price=Message("It takes {needs:size} of {has:size} of memory, and eval_iters changes with it.", facts),
            acts_on="launches",
        )


# --- the compiler -----------------------------------------------------------------------------------------------


def _is_precise(case: Case, saves: Interval) -> bool:
    """Whether an estimated saving can be ranked among those that a log measured; in a plan, all are estimates."""
    # In planted runs (seeds 1 to 4) the middle of a wider saving by compilation is off by more than a tenth.
    return case.analysis is None or saves.high <= 2.5 * saves.low


def compile_gain_is_open(case: Case) -> bool:
    """Whether compilation may be worth it, and a log does not show by how much."""
    if case.analysis is None or case.workload is None or case.workload.compile is not False:
        return False
    saves = case.saving({"compile": True})
    return saves.mid >= case.least_saving_s and (saves.low <= 0 or not _is_precise(case, saves))


def use_compiler(case: Case) -> Iterator[Proposal]:
    """torch.compile fuses what eager mode moves through memory again and again."""
    new: dict[str, Value] = {"compile": True}
    if case.workload is None or case.workload.compile is not False or not _is_precise(case, case.saving(new)):
        return
    yield Proposal(
        rule="compile",
        new_settings=new,
        what=Message("Set compile = True."),
        because=Message(
            "Without compilation a good part of the step goes into moving intermediate results through memory; "
            "compilation pays back within this run."
        ),
        price=Message(
            "The first iteration takes {start:range} longer. Under Windows it needs WSL2 or triton-windows.",
            {"start": case.changed(new).start_s},
        ),
        # PyTorch brings no Triton for Windows, and cannot compile without it.
        patch="pip install triton-windows" if case.windows else None,
        where=_ENVIRONMENT if case.windows else None,
    )


def skip_compiler(case: Case) -> Iterator[Proposal]:
    """A run that ends before the compilation has paid back, and certainly has enough memory without it."""
    new: dict[str, Value] = {"compile": False}
    needs = case.vram_bytes(new)
    if case.workload is None or case.workload.compile is not True or case.gpu is None or needs is None:
        return
    if needs.high > (case.gpu.vram_bytes or 0.0) or not _is_precise(case, case.saving(new)):
        return
    facts = {"start": case.prices.start_s, "iterations": case.loop.iterations}
    yield Proposal(
        rule="no_compile",
        new_settings=new,
        what=Message("Set compile = False."),
        because=Message(
            "Compilation takes {start:range} and does not pay back within {iterations:n} iterations.", facts
        ),
        price=Message("Each step takes longer, so it pays for short runs only."),
    )


def reduce_overhead(case: Case) -> Iterator[Proposal]:
    """CUDA graphs take the launches off the processor."""
    share = _launch_share(case)
    # A change is worth it if the card waits for launches in at least a twentieth of the step.
    if case.workload is None or case.workload.compile is not True or share < 0.05:
        return
    yield Proposal(
        rule="reduce_overhead",
        effect=Effect(step=modelled_factor(1 - share * (1 - 0.25))),  # a quarter of it is left with CUDA graphs
        what=Message('Compile with mode="reduce-overhead".'),
        because=Message(
            "The card waits for kernel launches in {share:pct} of each step; CUDA graphs replay them at once.",
            {"share": share},
        ),
        price=Message("More memory, and a compilation that takes longer; check that the loss stays the same."),
        patch='model = torch.compile(model, mode="reduce-overhead")',
        where=Message("In train.py, in place of the call of torch.compile:"),
        acts_on="launches",
    )


# --- arithmetic -------------------------------------------------------------------------------------------------


def dtype(case: Case) -> Iterator[Proposal]:
    """Half precision if the card has it, and never bfloat16 if it is only emulated."""
    work, gpu = case.workload, case.gpu
    if work is None or gpu is None:
        return
    emulated = work.dtype == "bfloat16" and not gpu.has_bf16
    if not emulated and work.dtype not in SINGLE_PRECISION:
        return
    facts = {"dtype": "bfloat16" if gpu.has_bf16 else "float16", "gpu": gpu.name, "now": work.dtype}
    because = Message("The {gpu:word} computes faster in {dtype:word} than in {now:word}.", facts)
    if emulated:
        because = Message(
            "The {gpu:word} has no bfloat16; PyTorch emulates it there, several times slower than float16.", facts
        )
    price = Message("Less precision; weights and optimizer stay in float32.")
    if not gpu.has_bf16:
        price = Message("float16 needs loss scaling, which nanoGPT enables automatically.")
    yield Proposal(
        rule="dtype",
        new_settings={"dtype": facts["dtype"]},
        what=Message("Set dtype = '{dtype:word}'.", facts),
        because=because,
        price=price,
    )


def flash_attention(case: Case) -> Iterator[Proposal]:
    if case.workload is None or case.workload.flash is not False:
        return
    yield Proposal(
        rule="flash",
        new_settings={"flash": True},
        what=Message("Use flash attention: nanoGPT uses it automatically with PyTorch 2.0 or newer."),
        because=Message("Without it every attention score is written to memory and read again."),
        price=Message("None; the result is the same up to rounding."),
        patch="pip install --upgrade torch",
        where=_ENVIRONMENT,
    )


def pad_vocabulary(case: Case) -> Iterator[Proposal]:
    """A vocabulary that is no multiple of 64 misses the fast kernels of the last layer."""
    work = case.workload
    if work is None or work.vocab_size % PADDING == 0 or work.vocab_size <= SMALL_VOCABULARY:
        return
    if (case.settings.text("init_from") or "").startswith("gpt2"):
        return  # the size of its weights is fixed
    padded = -(-work.vocab_size // PADDING) * PADDING
    yield Proposal(
        rule="pad_vocabulary",
        new_settings={"vocab_size": padded},
        what=Message("Raise vocab_size from {old:n} to {new:n}.", {"old": work.vocab_size, "new": padded}),
        because=Message("A multiple of 64 lets the last layer use the card's fast kernels."),
        price=Message("Some rows of the embedding are never used; a checkpoint with the old size does not fit."),
        patch=f"meta_vocab_size = {padded}",
        where=Message("In train.py, after meta.pkl is read:"),
    )


def fused_adamw(case: Case) -> Iterator[Proposal]:
    if case.workload is None or case.workload.fused:
        return
    yield Proposal(
        rule="fused_adamw",
        new_settings={"fused": True},
        what=Message("Use the fused AdamW."),
        because=Message("One kernel then updates all weights, instead of several for each tensor."),
        price=Message("None known; measure it, since on a few cards it did not help."),
        patch="optimizer = torch.optim.AdamW(optim_groups, lr=learning_rate, betas=betas, fused=True)",
        where=Message("In model.py, in place of the call of torch.optim.AdamW:"),
    )


# --- cards -------------------------------------------------------------------------------------------------------


def more_cards(case: Case) -> Iterator[Proposal]:
    """DDP over the available cards, if the exchange of gradients leaves a gain."""
    work, gpu = case.workload, case.gpu
    if work is None or gpu is None or case.cards <= work.world_size:
        return
    options = []
    for batch in batches(work, gpu, case.cards):
        needs = case.vram_bytes({"batch_size": batch.size})
        fits = needs is None or not gpu.vram_bytes or needs.mid <= gpu.vram_bytes
        if batch.size <= work.batch_size and fits:
            options.append(batch)
    if not options:
        return
    new: dict[str, Value] = {"world_size": case.cards}
    if options[-1].size != work.batch_size:
        new |= with_batch(case, work, options[-1])
    facts = {"cards": case.cards, "ratio": 1 / case.speed_factors(new)[0].mid}
    yield Proposal(
        rule="more_cards",
        new_settings=new,
        what=Message("Train on all {cards:n} cards with DDP.", facts),
        because=Message(
            "Each card does its share of the micro-steps: an iteration is about {ratio:x} times as fast.", facts
        ),
        price=Message("None; the tokens of an iteration stay the same."),
    )


def fewer_cards(case: Case) -> Iterator[Proposal]:
    """One card, if the gradients take longer to exchange than to compute."""
    if case.workload is None or case.workload.world_size < 2:
        return
    yield Proposal(
        rule="fewer_cards",
        new_settings={"world_size": 1},
        what=Message("Train on one card instead of {cards:n}.", {"cards": case.workload.world_size}),
        because=Message("For a model this small the exchange of gradients takes longer than splitting the work saves."),
        price=Message("None; the other cards are free for other runs."),
    )


# All of them need to know the model.
RULES = (
    micro_batch,
    use_compiler,
    skip_compiler,
    reduce_overhead,
    dtype,
    flash_attention,
    pad_vocabulary,
    fused_adamw,
    more_cards,
    fewer_cards,
)
