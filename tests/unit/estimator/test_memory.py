"""What a loss in pieces saves: the logits of all positions but a few."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepwatch.estimator.constants import LOSS_POSITIONS, MEMORY
from stepwatch.estimator.memory import largest_batch_size, vram_bytes
from stepwatch.estimator.workload import Workload
from stepwatch.gpus import find_gpu
from stepwatch.settings import Origin, Settings

GPT2 = Workload(batch_size=16, compile=False)
CHUNKED = replace(GPT2, chunked_loss=True)


def test_it_saves_the_logits_of_all_positions_but_some() -> None:
    saved = vram_bytes(GPT2).mid - vram_bytes(CHUNKED).mid
    positions = 16 * 1024 - LOSS_POSITIONS
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


def test_a_setting_asks_for_it() -> None:
    work, assumed = Workload.from_settings(Settings.of(Origin.USER, {"chunked_loss": True}))
    assert work.chunked_loss
    assert "chunked_loss" not in assumed
    assert not Workload.from_settings(Settings.of(Origin.USER, {}))[0].chunked_loss
