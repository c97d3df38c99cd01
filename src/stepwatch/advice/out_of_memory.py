"""Out of memory: the batch size that fits, with as many tokens in a step as before."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from stepwatch.advice.speed import MOST_SEQUENCES, sequences_of
from stepwatch.analysis.throughput import workload_of
from stepwatch.estimator.memory import vram_bytes
from stepwatch.messages import Message

if TYPE_CHECKING:
    from stepwatch.gpus import Gpu
    from stepwatch.run import Run

_SIZE = r"(\d{1,9}(?:\.\d{1,9})?) ([KMGT])i?B"


class Shortage(NamedTuple):
    """What PyTorch reports when the memory of a card is not enough."""

    asked_bytes: float | None
    card_bytes: float | None


def shortage_of(text: str) -> Shortage:
    def size(before: str) -> float | None:
        found = re.search(before + _SIZE, text)
        return float(found[1]) * 1024.0 ** " KMGT".index(found[2]) if found else None

    card = size("total capacity of ") or size(r"GPU \d+; ")  # as PyTorch 2 says it, and as PyTorch 1 did
    return Shortage(asked_bytes=size("[Tt]ried to allocate "), card_bytes=card)


def smaller_batch(run: Run, gpu: Gpu | None, text: str) -> Message:
    """What to set so that the run fits; `text` is its out-of-memory message."""
    workload = workload_of(run, gpu)
    card_bytes = shortage_of(text).card_bytes or (gpu.vram_bytes if gpu is not None else None)
    if workload is None or card_bytes is None:
        return _by_half(run)
    # The run did not fit, even if it should by the model.
    factor = max(card_bytes / vram_bytes(workload, gpu).mid, 1.0)
    sequences = sequences_of(workload)
    smaller = range(min(workload.batch_size - 1, MOST_SEQUENCES), 0, -1)
    for size in (size for size in smaller if sequences % (size * workload.world_size) == 0):
        needs = vram_bytes(replace(workload, batch_size=size), gpu).scaled(factor)
        if needs.high < card_bytes:
            facts = {
                "old": workload.batch_size,
                "new": size,
                "before": workload.grad_accum,
                "after": sequences // size,
                "needs": needs.mid,
                "has": card_bytes,
            }
            return Message(
                "Set batch_size to {new:n} instead of {old:n} and gradient_accumulation_steps to {after:n} instead of {before:n}: that needs about {needs:size} of the card's {has:size}, and a step has as many tokens as before.",
                facts,
            )
    return Message(
        "Not even one sequence at a time fits into the card's {has:size}: use a smaller model, a shorter block_size, or recompute activations.",
        {"has": card_bytes},
    )


def _by_half(run: Run) -> Message:
    """The advice if the memory of the run cannot be estimated, in the terms of its trainer."""
    levers = run.traits.levers
    words = {"size": levers.batch, "times": levers.accumulation, "recompute": levers.recompute, "length": levers.length}
    if run.settings.count("batch_size") == 1:
        if levers.recompute and levers.length:
            return Message(
                "Each card takes one sequence at a time already: recompute activations ({recompute:word}), lower {length:word}, or use a smaller model.",
                words,
            )
        return Message(
            "Each card takes one sequence at a time already: use a smaller model, shorter sequences, or recompute activations."
        )
    if levers.batch and levers.accumulation:
        return Message(
            "Halve {size:word} and double {times:word}: a step then has as many tokens as before, and needs less memory.",
            words,
        )
    if levers.batch and levers.accumulates:
        return Message(
            "Halve {size:word}: the trainer then accumulates twice as often, so that a step has as many tokens as before, and needs less memory.",
            words,
        )
    if levers.batch:
        return Message(
            "Halve {size:word}: a step then needs less memory, and has half as many samples: adapt the learning rate and the number of iterations.",
            words,
        )
    return Message(
        "Halve the batch size and double the gradient accumulation: a step then has as many tokens as before, and needs less memory."
    )
