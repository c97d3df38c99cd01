"""GPT-2 from a copy of its weights: both kinds of file, by name or from the cache, and what is no such file."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest

from stepwatch.errors import InputError
from stepwatch.i18n import say

torch = pytest.importorskip("torch", reason="the trainer needs torch")

from torch import Tensor  # noqa: E402

from stepwatch.trainer import pretrained  # noqa: E402
from stepwatch.trainer.model import GPT, GPTConfig  # noqa: E402
from stepwatch.trainer.pretrained import gpt2  # noqa: E402

LINEAR = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pretrained, "_SHAPES", {"gpt2": (1, 2, 4)})
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)


@pytest.fixture
def model() -> GPT:
    torch.manual_seed(1)
    return GPT(GPTConfig(n_layer=1, n_head=2, n_embd=4, block_size=1024, vocab_size=50257, bias=True))


def as_published(model: GPT) -> dict[str, Tensor]:
    """Hugging Face's names: linear layers the other way round, the last layer left out, a mask beside."""
    state = {name.removeprefix("transformer."): weight for name, weight in model.state_dict().items()}
    del state["lm_head.weight"]
    found = {name: weight.t().contiguous() if name.endswith(LINEAR) else weight for name, weight in state.items()}
    return {**found, "h.0.attn.bias": torch.ones(1, 1, 4, 4, dtype=torch.bool)}


def write_safetensors(path: Path, tensors: dict[str, Tensor]) -> None:
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors.items():
        octets = tensor.numpy().tobytes()
        kind = "F32" if tensor.dtype == torch.float32 else "BOOL"
        place = [len(body), len(body) + len(octets)]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": place}
        body += octets
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def same(one: GPT, other: GPT) -> bool:
    return all(torch.equal(weight, other.state_dict()[name]) for name, weight in one.state_dict().items())


def test_both_kinds_of_file_give_the_model(model: GPT, tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", as_published(model))
    assert same(gpt2("gpt2", str(tmp_path), 0.0), model)
    (tmp_path / "other").mkdir()
    torch.save(as_published(model), tmp_path / "other" / "pytorch_model.bin")
    assert same(gpt2("gpt2", str(tmp_path / "other" / "pytorch_model.bin"), 0.0), model)
    cached = tmp_path / "home" / "hub" / "models--openai-community--gpt2" / "snapshots" / "abc"
    cached.mkdir(parents=True)
    write_safetensors(cached / "model.safetensors", as_published(model))
    assert same(gpt2("gpt2", "", 0.0), model)


def told(weights: str) -> str:
    with pytest.raises(InputError) as caught:
        gpt2("gpt2", weights, 0.0)
    return say(caught.value.what)


class Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("trap",)


def test_what_is_no_such_file(model: GPT, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "no copy of the weights of gpt2" in told("")
    path = tmp_path / "model.safetensors"
    for content in (b"", b"\xff" * 40, b"\x02" + bytes(7) + b"{}"):
        path.write_bytes(content)
        assert "does not contain the weights" in told(str(path))
    state = as_published(model)
    state["wpe.weight"] = state["wpe.weight"][:10].contiguous()
    write_safetensors(path, state)
    assert "does not contain the weights" in told(str(path))
    (tmp_path / "weights.bin").write_bytes(pickle.dumps({"wte.weight": Trap()}))
    assert "does not contain the weights" in told("weights.bin")
    assert not (tmp_path / "trap").exists()
