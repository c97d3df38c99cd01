"""The loss in pieces is the loss: its value, its gradients, and no more than a piece of the logits at a time."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from stepwatch.estimator.constants import LOSS_POSITIONS  # noqa: E402
from stepwatch.trainer import loss  # noqa: E402

POSITIONS, VOCABULARY, WIDTH = 50, 300, 16


@pytest.fixture(autouse=True)
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 16 positions; the last one is shorter."""
    monkeypatch.setattr(loss, "MANY", 1)
    monkeypatch.setattr(loss, "ON_CPU", 16)


def inputs(ignored: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    draws = torch.Generator().manual_seed(1)
    hidden = torch.randn(2, POSITIONS // 2, WIDTH, generator=draws, dtype=torch.float64).requires_grad_()
    head = torch.randn(VOCABULARY, WIDTH, generator=draws, dtype=torch.float64).requires_grad_()
    targets = torch.randint(VOCABULARY, (2, POSITIONS // 2), generator=draws)
    targets.view(-1)[:ignored] = loss.IGNORED
    return hidden, head, targets


def plain(hidden: torch.Tensor, head: torch.Tensor, targets: torch.Tensor, cap: float | None = None) -> torch.Tensor:
    logits = hidden @ head.t()
    if cap is not None:
        logits = cap * torch.tanh(logits / cap)
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=loss.IGNORED)


@pytest.mark.parametrize("ignored", [0, 5, 20])
@pytest.mark.parametrize("cap", [None, 3.0])
def test_loss_and_gradients_are_those_of_all_logits_at_once(ignored: int, cap: float | None) -> None:
    hidden, head, targets = inputs(ignored)
    found = loss.cross_entropy(hidden, head, targets, cap)
    wanted = plain(hidden, head, targets, cap)
    scale = 0.25  # as one of four micro-batches
    of_found = torch.autograd.grad(found * scale, (hidden, head))
    of_wanted = torch.autograd.grad(wanted * scale, (hidden, head))
    # The softmax is in float32.
    assert found.item() == pytest.approx(wanted.item(), rel=1e-6)
    for ours, theirs in zip(of_found, of_wanted, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-8)


def test_without_gradients_it_is_the_same_loss() -> None:
    hidden, head, targets = inputs()
    with torch.no_grad():
        found = loss.cross_entropy(hidden, head, targets)
    assert found.item() == pytest.approx(plain(hidden, head, targets).item(), rel=1e-6)


def test_in_short_numbers_the_gradient_of_the_head_is_summed_in_long_ones() -> None:
    hidden, head, targets = (part.float() if part.is_floating_point() else part for part in inputs())
    hidden, head = hidden.detach().requires_grad_(), head.detach().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = loss.cross_entropy(hidden, head, targets)
    (of_head,) = torch.autograd.grad(found, (head,))
    (exact,) = torch.autograd.grad(plain(hidden, head, targets), (head,))
    assert of_head.dtype == torch.float32
    assert (of_head - exact).norm() < 0.02 * exact.norm()


def test_no_more_than_a_piece_of_the_logits_is_ever_made(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    linear = torch.nn.functional.linear

    def watched(part: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
        sizes.append(len(part))
        made: torch.Tensor = linear(part, head)
        return made

    monkeypatch.setattr(loss.functional, "linear", watched)
    loss.cross_entropy(*inputs()).backward()
    assert sizes == [16, 16, 16, 2]


def test_small_vocabularies_keep_nanogpts_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "MANY", POSITIONS * VOCABULARY + 1)
    hidden, head, targets = inputs()
    assert torch.equal(loss.cross_entropy(hidden, head, targets), plain(hidden, head, targets))


def test_the_estimator_counts_the_positions_of_a_card() -> None:
    assert loss.ON_CARD == LOSS_POSITIONS
