"""recipe=modern: what each part does, and that a checkpoint of it goes on exactly."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stepwatch.errors import UsageError  # noqa: E402
from stepwatch.trainer import optimizer as optimizers  # noqa: E402
from stepwatch.trainer.config import RECIPE_PARTS, TrainConfig  # noqa: E402
from stepwatch.trainer.modern import CAP, ModernConfig, ModernGPT, Rotary, optimizer_of, orthogonalised  # noqa: E402
from stepwatch.trainer.setup import model_of  # noqa: E402

TINY = ModernConfig(n_layer=2, n_head=2, n_embd=8, block_size=6, vocab_size=11, bias=False)
CONFIG = TrainConfig(recipe="modern", learning_rate=1e-3, min_lr=1e-4, warmup_iters=0, lr_decay_iters=100)


def tokens(seed: int = 0, count: int = 6) -> torch.Tensor:
    return torch.randint(11, (3, count + 1), generator=torch.Generator().manual_seed(seed))


def trained(model: ModernGPT, optimizer: torch.optim.AdamW, seeds: range) -> list[float]:
    losses = []
    for seed in seeds:
        optimizers.set_learning_rate(optimizer, optimizers.learning_rate(seed, CONFIG))
        drawn = tokens(seed)
        loss = model(drawn[:, :-1], drawn[:, 1:])[1]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


def test_orthogonalised_matrices_have_singular_values_near_one() -> None:
    draws = torch.Generator().manual_seed(3)
    for shape in ((2, 24, 96), (2, 96, 24)):
        values = torch.linalg.svdvals(orthogonalised(torch.randn(shape, generator=draws)))
        assert values.min() > 0.5
        assert values.max() < 1.3


def test_orthogonalising_keeps_the_directions() -> None:
    first, _ = torch.linalg.qr(torch.randn(16, 16, generator=torch.Generator().manual_seed(1)))
    second, _ = torch.linalg.qr(torch.randn(16, 16, generator=torch.Generator().manual_seed(2)))
    stretched = first @ torch.diag(torch.linspace(0.3, 3.0, 16)) @ second
    turned = orthogonalised(stretched[None])[0]
    inside = first.mT @ turned @ second.mT
    assert (inside - torch.diag(inside.diagonal())).abs().max() < 1e-4


def test_rotary_scores_depend_on_the_distance_alone() -> None:
    rotary = Rotary(16, 12)
    query, key = torch.randn(2, 16, generator=torch.Generator().manual_seed(5))
    turned = rotary(query.expand(12, 16)) @ rotary(key.expand(12, 16)).mT
    for distance in (0, 1, 4):
        scores = turned.diagonal(-distance)
        assert torch.allclose(scores, scores[:1], rtol=1e-4, atol=1e-5)
    assert not math.isclose(turned[0, 0], turned[4, 0], rel_tol=1e-3)


def test_it_begins_by_guessing_all_tokens_alike() -> None:
    drawn = tokens()
    loss = ModernGPT(TINY)(drawn[:, :-1], drawn[:, 1:])[1]
    assert loss.item() == pytest.approx(math.log(11))


def test_no_position_sees_what_comes_after_it() -> None:
    model = ModernGPT(replace(TINY, without="zero_init"))
    drawn = tokens()
    changed = drawn[:, :-1].clone()
    changed[:, 4:] = (changed[:, 4:] + 1) % 11
    targets = drawn[:, 1:].clone()
    seen = []
    for counted in (slice(0, 4), slice(0, 5)):
        only = torch.full_like(targets, -1)
        only[:, counted] = targets[:, counted]
        seen.append([model(inputs, only)[1].item() for inputs in (drawn[:, :-1], changed)])
    assert seen[0][0] == pytest.approx(seen[0][1], rel=1e-6)
    assert seen[1][0] != pytest.approx(seen[1][1], rel=1e-6)


def test_logits_stay_within_the_cap() -> None:
    model = ModernGPT(replace(TINY, without="zero_init"))
    model.lm_head.weight.data *= 1e5
    assert model(tokens()[:, :-1])[0].abs().max() <= CAP


@pytest.mark.parametrize("part", RECIPE_PARTS)
def test_each_part_can_be_left_out_and_the_rest_learns(part: str) -> None:
    config = replace(CONFIG, without=part)
    torch.manual_seed(1)
    model = ModernGPT(replace(TINY, without=part))
    optimizer = optimizer_of(model, config)
    losses = [trained(model, optimizer, range(1))[0] for _ in range(12)]  # the same batch again and again
    assert losses[-1] < 0.9 * losses[0]


def test_muon_moves_a_matrix_by_its_rate_whatever_the_size_of_the_gradient() -> None:
    moved = []
    for size in (1.0, 1e-3):
        torch.manual_seed(1)
        model = ModernGPT(TINY)
        optimizer = optimizer_of(model, CONFIG)
        weight = model.transformer["h"][0].mlp.c_proj.weight
        before = weight.detach().clone()
        for one in model.parameters():
            one.grad = size * torch.randn(one.shape, generator=torch.Generator().manual_seed(2))
        optimizer.step()
        moved.append((weight - before).norm().item())
    assert moved[0] == pytest.approx(moved[1], rel=1e-3)
    assert moved[0] == pytest.approx(30 * CONFIG.learning_rate * math.sqrt(8), rel=0.3)


def test_a_saved_run_goes_on_to_the_last_digit() -> None:
    torch.manual_seed(1)
    model = ModernGPT(TINY)
    optimizer = optimizer_of(model, CONFIG)
    trained(model, optimizer, range(5))
    saved: dict[str, Any] = {
        "model": {name: weight.clone() for name, weight in model.state_dict().items()},
        "model_args": asdict(model.config),
    }
    state = optimizer.state_dict()
    moments = {place: {name: part.clone() for name, part in one.items()} for place, one in state["state"].items()}
    state = {"state": moments, "param_groups": state["param_groups"]}
    wanted = trained(model, optimizer, range(5, 9))

    again = model_of(saved, 0.0)
    assert isinstance(again, ModernGPT)
    new = optimizer_of(again, CONFIG)
    optimizers.resume(new, state, None)
    assert trained(again, new, range(5, 9)) == wanted


def test_an_optimizer_of_another_shape_is_refused() -> None:
    model = ModernGPT(TINY)
    optimizer = optimizer_of(model, CONFIG)
    trained(model, optimizer, range(1))
    other = optimizer_of(ModernGPT(replace(TINY, n_embd=16)), CONFIG)
    with pytest.raises(ValueError, match="Size"):
        optimizers.resume(other, optimizer.state_dict(), None)


def test_the_rate_stays_up_and_then_falls_to_the_lowest() -> None:
    config = replace(CONFIG, learning_rate=1.0, min_lr=0.1, warmup_iters=4)
    rates = [optimizers.learning_rate(number, config) for number in (0, 4, 40, 70, 100, 5000)]
    assert rates == pytest.approx([0.2, 1.0, 1.0, 0.55, 0.1, 0.1])
    nanogpts = replace(config, recipe="nanogpt")
    assert optimizers.learning_rate(70, replace(config, without="warm_down")) == optimizers.learning_rate(70, nanogpts)


def test_what_it_cannot_do_is_refused() -> None:
    for values in (
        {"without": "muon"},
        {"recipe": "modern", "without": "gelu"},
        {"recipe": "old"},
        {"recipe": "modern", "n_embd": 9, "n_head": 3},
        {"recipe": "modern", "init_from": "gpt2"},
        {"recipe": "modern", "sharding": "fsdp"},
    ):
        with pytest.raises(UsageError):
            TrainConfig(**values)  # type: ignore[arg-type]
