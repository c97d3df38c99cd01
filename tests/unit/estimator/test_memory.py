"""What a loss in pieces saves: the logits of all positions but a few."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files

import pytest

from stepwatch.estimator.constants import MEMORY
from stepwatch.estimator.estimation import estimate
from stepwatch.estimator.memory import largest_batch_size, vram_bytes
from stepwatch.estimator.workload import Workload, flops_per_iteration
from stepwatch.gpus import find_gpu
from stepwatch.settings import Origin, Settings

GPT2 = Workload(batch_size=16, compile=False)
CHUNKED = replace(GPT2, chunked_loss=True)


def test_it_saves_the_logits_of_all_positions_but_some() -> None:
    """As many as the trainer makes at a time. Its source is read: to import it takes torch."""
    made = re.search(r"ON_CARD = \d+, (\d+)", (files("stepwatch") / "trainer/loss.py").read_text(encoding="utf-8"))
    assert made is not None
    saved = vram_bytes(GPT2).mid - vram_bytes(CHUNKED).mid
    positions = 16 * 1024 - int(made[1])
    added_gradient = 2 * 50304 * 768
    assert saved == pytest.approx(MEMORY.logit * positions * 50304 - added_gradient)


def test_with_few_positions_it_never_needs_more() -> None:
    short = replace(GPT2, batch_size=1, block_size=128)
    assert vram_bytes(replace(short, chunked_loss=True)).mid <= vram_bytes(short).mid


def test_the_largest_batch_is_the_last_that_fits() -> None:
    gpu = find_gpu("4070")
    for work in (GPT2, CHUNKED):
        largest = largest_batch_size(work, gpu)
        assert largest is not None
        assert gpu.vram_bytes is not None
        needs = [vram_bytes(replace(work, batch_size=size), gpu).mid for size in (largest, largest + 1)]
        assert needs[0] <= gpu.vram_bytes < needs[1]
    assert largest_batch_size(CHUNKED, gpu) > largest_batch_size(GPT2, gpu)  # type: ignore[operator]
    assert largest_batch_size(replace(GPT2, n_layer=1000), gpu) == 0


def test_the_largest_batch_of_tiny_sequences_is_the_last_that_fits_too() -> None:
    gpu = find_gpu("H100")
    tiny = Workload(n_layer=1, n_head=1, n_embd=1, block_size=1, vocab_size=1)
    largest = largest_batch_size(tiny, gpu)
    assert largest is not None
    assert gpu.vram_bytes is not None
    needs = [vram_bytes(replace(tiny, batch_size=size), gpu).mid for size in (largest, largest + 1)]
    assert needs[0] <= gpu.vram_bytes < needs[1]


def test_the_modern_recipe_has_two_more_tables_and_its_optimizer_computes() -> None:
    work, _ = Workload.from_settings(Settings.of(Origin.USER, {"recipe": "modern"}))
    plain = Workload()
    norms_and_positions = (2 * 12 + 1 + 1024) * 768
    assert work.n_params - plain.n_params == 2 * 50304 * 768 - norms_and_positions
    assert flops_per_iteration(work) == pytest.approx(flops_per_iteration(plain), rel=1e-3)  # tables are looked up
    assert plain.optimizer_flops == 0
    assert work.optimizer_flops == 300 * 12 * 768**3
    gpu = find_gpu("4070")
    steps = [estimate(one, gpu).step_s.mid for one in (plain, work)]  # type: ignore[union-attr]
    assert steps[0] < steps[1] < 1.1 * steps[0]


def test_a_setting_asks_for_it() -> None:
    work, assumed = Workload.from_settings(Settings.of(Origin.USER, {"chunked_loss": True}))
    assert work.chunked_loss
    assert "chunked_loss" not in assumed
    assert not Workload.from_settings(Settings.of(Origin.USER, {}))[0].chunked_loss
