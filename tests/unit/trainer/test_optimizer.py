"""The optimizer, and what it does not need."""

from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs torch")

from torch import nn  # noqa: E402

from stepwatch.trainer.optimizer import AdamW  # noqa: E402


def steps_of(kind: type[torch.optim.AdamW], *, fused: bool = True, room: bool = False) -> nn.Parameter:
    weight = nn.Parameter(torch.linspace(-1.0, 1.0, 12))
    optimizer = kind([{"params": [weight], "weight_decay": 0.1}], lr=0.01, fused=fused)
    if room:
        assert isinstance(optimizer, AdamW)
        optimizer.make_room()
    for turn in range(3):
        weight.square().sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if turn == 1:
            optimizer.load_state_dict(optimizer.state_dict())
    return weight


def test_it_is_torchs_and_needs_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = steps_of(torch.optim.AdamW)
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)  # to import it is an error from here on
    with pytest.raises(ImportError):
        steps_of(torch.optim.AdamW)
    assert torch.equal(steps_of(AdamW), expected)


@pytest.mark.parametrize("fused", [True, False])
def test_moments_that_are_made_before_the_first_step_are_torchs(fused: bool) -> None:
    assert torch.equal(steps_of(AdamW, fused=fused, room=True), steps_of(torch.optim.AdamW, fused=fused))
