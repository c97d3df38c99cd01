"""Out of memory: the batch size that fits, with as many tokens in a step as before."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import SHAPES, Shape, Truth, a_log
from tests.planted import OOM_1, OOM_2, TRAINERS, traceback

from stepwatch.advice.out_of_memory import shortage_of, smaller_batch
from stepwatch.analysis.throughput import workload_of
from stepwatch.estimator.memory import fits, vram_bytes
from stepwatch.gpus import Gpu, find_gpu
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.readers import read
from stepwatch.run import Run
from stepwatch.sources import from_text

GIB = 2**30
CARDS = ("4070", "4090", "3060")
GPT2 = Shape(n_layer=12, n_head=12, n_embd=768, vocab_size=50304, block_size=1024)
PLAIN = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.07 GiB."


def the_run(*, shape: Shape = GPT2, batch_size: int = 64, accumulation: int = 8, ranks: int = 1) -> Run:
    """A run that ended before its first iteration; each rank prints the tokens of a step."""
    truth = Truth(shape=shape, batch_size=batch_size, gradient_accumulation=accumulation)
    header = a_log(truth).partition("step 0")[0]
    tokens = f"tokens per iteration will be: {truth.tokens_per_iter:,}\n"
    (run,) = read(from_text(header.replace(tokens, ranks * tokens) + traceback(PLAIN)))
    return run


def card(name: str) -> Gpu:
    gpu = find_gpu(name)
    assert gpu is not None
    return gpu


def checked(message: Message, run: Run, gpu: Gpu | None, card_bytes: float) -> None:
    """What every proposal has to be: smaller, of as many tokens, divisible among the cards, and one that fits."""
    work, facts = workload_of(run, gpu), message.params
    assert work is not None
    if "new" not in facts:
        assert "one sequence" in message.key
        return
    assert facts["old"] == work.batch_size
    assert facts["before"] == work.grad_accum
    assert 1 <= facts["new"] < facts["old"]
    assert facts["new"] * facts["after"] == work.batch_size * work.grad_accum
    assert facts["after"] % work.world_size == 0
    assert facts["needs"] < card_bytes
    smaller = replace(work, batch_size=facts["new"], grad_accum=facts["after"])
    assert vram_bytes(smaller, gpu).high < card_bytes
    assert smaller.tokens_per_iteration == work.tokens_per_iteration


@given(
    name=st.sampled_from(CARDS),
    shape=st.sampled_from([shape for shape, _ in SHAPES]),
    batch_size=st.integers(1, 256),
    accumulation=st.sampled_from((1, 2, 5, 8, 40)),
    ranks=st.sampled_from((1, 2, 4, 8)),
)
def test_what_is_proposed_fits_and_keeps_the_tokens(
    name: str, shape: Shape, batch_size: int, accumulation: int, ranks: int
) -> None:
    run, gpu = the_run(shape=shape, batch_size=batch_size, accumulation=ranks * accumulation, ranks=ranks), card(name)
    assert gpu.vram_bytes is not None
    checked(smaller_batch(run, gpu, PLAIN), run, gpu, gpu.vram_bytes)


@pytest.mark.parametrize("name", CARDS)
def test_gpt2_at_64_sequences_gets_a_size_for_each_card(name: str) -> None:
    run, gpu = the_run(), card(name)
    message = smaller_batch(run, gpu, PLAIN)
    work = workload_of(run, gpu)
    assert work is not None
    assert not fits(work, gpu)
    assert message.params["new"] >= 2
    assert f"batch_size to {message.params['new']} instead of 64" in say(message, "en")


def test_a_larger_card_is_proposed_no_smaller_size() -> None:
    sizes = [smaller_batch(the_run(), card(name), PLAIN).params["new"] for name in ("3060", "4090")]
    assert sizes == sorted(sizes)


def test_the_accumulation_of_several_ranks_is_the_total_that_nanogpt_divides() -> None:
    run = the_run(accumulation=8, ranks=8)
    message = smaller_batch(run, card("4090"), PLAIN)
    assert run.settings.count("world_size") == 8
    assert message.params["after"] % 8 == 0
    checked(message, run, card("4090"), 24 * GIB)


def test_a_run_that_should_have_fitted_is_made_smaller_all_the_same() -> None:
    small = Shape(n_layer=6, n_head=6, n_embd=384, vocab_size=65, block_size=256)
    run, gpu = the_run(shape=small, batch_size=16, accumulation=4), card("4090")
    work = workload_of(run, gpu)
    assert work is not None
    assert fits(work, gpu)
    message = smaller_batch(run, gpu, PLAIN)
    assert 1 <= message.params["new"] < 16


def test_the_capacity_in_the_message_serves_where_the_card_is_unknown() -> None:
    run = the_run()
    message = smaller_batch(run, None, OOM_2)
    assert message.params["has"] == pytest.approx(11.99 * GIB)
    checked(message, run, None, 11.99 * GIB)
    general = smaller_batch(run, None, PLAIN)
    assert "Halve batch_size and double gradient_accumulation_steps" in say(general, "en")


def test_a_model_that_is_too_large_for_the_card_is_said_to_be() -> None:
    huge = Shape(n_layer=48, n_head=25, n_embd=1600, vocab_size=50304, block_size=1024)
    for batch_size in (1, 8):
        message = smaller_batch(the_run(shape=huge, batch_size=batch_size), card("3060"), PLAIN)
        assert "Not even one sequence" in say(message, "en")


@pytest.mark.parametrize(
    ("trainer", "words"),
    [
        ("hf-trainer", "Halve per_device_train_batch_size and double gradient_accumulation_steps"),
        ("lightning", "Halve batch_size and double accumulate_grad_batches"),
        ("torchtitan", "Halve training.local_batch_size: the trainer then accumulates twice as often"),
        ("megatron", "Halve --micro-batch-size: the trainer"),
        ("nanochat", "Halve --device-batch-size: the trainer"),
        ("litgpt", "Halve train.micro_batch_size: the trainer"),
        ("llm.c", "Halve -b: the trainer"),
        ("build-nanogpt", "Halve B: the trainer"),
    ],
)
def test_other_trainers_are_answered_in_their_own_words(trainer: str, words: str) -> None:
    lines = TRAINERS[trainer].lines([2.0, 2.01, 1.99], end=500)
    (run,) = read(from_text("\n".join(lines) + "\n" + traceback(OOM_2)))
    assert words in say(smaller_batch(run, card("4090"), OOM_2), "en")


def test_a_trainer_without_words_of_its_own_gets_general_ones() -> None:
    lines = (f"[2026-01-10 08:00:0{n}] step {n:06d} | loss 3.2 | lrm 1.0000 | dt_ms 1001.{n}\n" for n in range(1, 9))
    (run,) = read(from_text("".join(lines)))
    assert "Halve the batch size and double the gradient accumulation" in say(smaller_batch(run, None, PLAIN), "en")


def test_one_sequence_is_not_halved() -> None:
    lines = ["  Instantaneous batch size per device = 1", *TRAINERS["hf-trainer"].lines([2.0, 2.01, 1.99], end=500)]
    (run,) = read(from_text("\n".join(lines) + "\n"))
    assert "one sequence at a time already" in say(smaller_batch(run, None, PLAIN), "en")


@pytest.mark.parametrize(
    ("text", "asked", "has"),
    [
        (OOM_2, 3.07 * GIB, 11.99 * GIB),
        (OOM_1, 2 * GIB, 23.69 * GIB),
        ("HIP out of memory. Tried to allocate 256.00 MiB.", 2**28, None),
        ("out of memory", None, None),
    ],
)
def test_the_message_is_read(text: str, asked: float | None, has: float | None) -> None:
    assert shortage_of(text) == (asked, has)


@pytest.mark.parametrize("size", ["1.2.3", "...", ".", "9" * 400])
def test_a_size_that_is_no_number_is_unknown(size: str) -> None:
    text = f"CUDA out of memory. Tried to allocate {size} GiB. GPU 0 has a total capacity of {size} GiB"
    assert shortage_of(text) == (None, None)


def test_a_batch_of_any_size_is_made_smaller_at_once() -> None:
    """A hundred million sizes were tried, one by one."""
    run = the_run(batch_size=10**8, accumulation=1)
    message = smaller_batch(run, card("4090"), PLAIN)
    checked(message, run, card("4090"), card("4090").vram_bytes or 0.0)
