"""docs/recommended.md, by asking stepwatch for each card; `python -m tools.pages` writes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from stepwatch.advice.recommended import Recommended, recommend
from stepwatch.gpus import find_gpu
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.settings import Origin, Settings, Value

PAGE = "docs/recommended.md"
CARDS = (
    *("4070", "4070-super", "4070-ti", "4070-ti-super", "4070-laptop"),
    *("4080", "4080-super", "4080-laptop"),
    *("4090", "4090-d", "4090-laptop"),
)


class Model(NamedTuple):
    title: str
    given: Mapping[str, Value]


MODELS = (
    Model("GPT-2 124M", {}),
    Model(
        "A 40M-class model",
        {"n_layer": 8, "n_head": 8, "n_embd": 512, "block_size": 1024, "tokens_per_iter": 524_288},
    ),
)
SETTINGS = ("batch_size", "gradient_accumulation_steps", "dtype", "compile", "eval_interval", "eval_iters")
COLUMNS = ("card", *SETTINGS, "an iteration", "tokens/s", "memory", "stepwatch train", "20 tokens per parameter")

INTRODUCTION = """\
# Recommended settings

Written by stepwatch itself: `make pages`. How the settings are chosen is told in
[advice](advice.md#recommended-settings).

- **batch_size**, **gradient_accumulation_steps**: the smallest micro-batch that fits, is as fast as any and keeps the
  card busy; and the accumulation that keeps the tokens of an iteration.
- **dtype**, **compile**, **eval_interval**, **eval_iters**: as they go into the config. `eval_interval` is for
  nanoGPT's `max_iters` of 600,000; for your length add `--max_iters=…` to the command.
- **an iteration**, **tokens/s**: what to expect on one card.
- **memory**: what the run takes, CUDA's context and a display's share included, and what the card has.
- **stepwatch train**: batch_size and memory for stepwatch's own trainer, which never holds all logits of a large
  vocabulary; add `--chunked_loss=True` to the command.
- **20 tokens per parameter**: the training steps of a run that is as long as pays for a model of this size (Hoffmann
  et al. 2022, [arXiv 2203.15556](https://arxiv.org/abs/2203.15556)). Evaluations and checkpoints come on top.

The ranges hold in nine of ten cases. They are estimates: published training runs exist for few of these cards, and the
others follow from their relatives. How well that holds is in [accuracy](accuracy.md). A laptop's card is as fast as its
power limit lets it be, and its row is for the upper end of its range.
"""


def page() -> str:
    return INTRODUCTION + "".join(f"\n{part}\n" for model in MODELS for part in parts(model))


def parts(model: Model) -> Iterator[str]:
    found = {card: recommended(model, card) for card in CARDS}
    yield f"## {model.title}"
    yield shape(next(iter(found.values())))
    yield "\n".join(table(found, {card: recommended(model, card, chunked_loss=True) for card in CARDS}))
    yield "The commands:"
    yield "\n".join(["```console", *(f"$ stepwatch {' '.join(arguments(model, card))}" for card in CARDS), "```"])


def recommended(model: Model, card: str, **more: Value) -> Recommended:
    return recommend(Settings.of(Origin.USER, {**model.given, **more}), find_gpu(card))


def shape(of: Recommended) -> str:
    work = of.plan.workload
    facts = {
        "layers": work.n_layer,
        "heads": work.n_head,
        "width": work.n_embd,
        "length": work.block_size,
        "params": work.n_params,
        "embedded": (work.vocab_size + work.block_size) * work.n_embd,
        "tokens": work.tokens_per_iteration,
        "enough": of.enough_iterations,
    }
    text = (
        "`n_layer = {layers:n}`, `n_head = {heads:n}`, `n_embd = {width:n}`, `block_size = {length:word}`:\n"
        "{params:big} parameters, {embedded:big} of them embeddings. {tokens:n} tokens per iteration; 20 tokens per "
        "parameter\nare {enough:n} iterations."
    )
    return say(Message(text, facts))


def table(found: Mapping[str, Recommended], chunked: Mapping[str, Recommended]) -> Iterator[str]:
    yield f"| {' | '.join(COLUMNS)} |"
    yield f"|---|{'---:|' * (len(COLUMNS) - 1)}"
    for card, one in found.items():
        yield f"| {' | '.join(row(one, chunked[card]))} |"


def row(of: Recommended, chunked: Recommended) -> Iterator[str]:
    plan = of.plan
    yield plan.gpu.name
    for name in SETTINGS:
        yield say(Message("{value:word}", {"value": of.settings[name]}))
    rate, need = plan.tokens_per_s, plan.estimate.vram_bytes
    low, high = (float(f"{end:.3g}") for end in (rate.low, rate.high))  # the digits that stepwatch shows of a rate
    memory = {"low": need.low, "high": need.high, "has": plan.gpu.vram_bytes}
    yield say(Message("{step:range}", {"step": plan.estimate.step_s}))
    yield say(Message("{low:n}–{high:n}", {"low": low, "high": high}))
    yield say(Message("{low:size} – {high:size} of {has:size}", memory))
    need = chunked.plan.estimate.vram_bytes
    own = {"batch": chunked.settings["batch_size"], "low": need.low, "high": need.high}
    yield say(Message("{batch:n}: {low:size} – {high:size}", own))
    yield say(Message("{time:range}", {"time": of.enough_s}))


def arguments(model: Model, card: str) -> list[str]:
    return ["advise", "--gpu", card, *(f"--{name}={value}" for name, value in model.given.items())]
