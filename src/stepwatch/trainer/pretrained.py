"""OpenAI's GPT-2 from a local copy of its weights: a safetensors or PyTorch file, read as plain data.

Nothing is downloaded and nothing in the file is executed. Linear layers are stored transposed there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stepwatch.errors import InputError
from stepwatch.messages import Message
from stepwatch.trainer.model import GPT, GPTConfig

NAMES = ("model.safetensors", "pytorch_model.bin")
# layers, heads and width, by OpenAI's hparams.json
_SHAPES = {
    "gpt2": (12, 12, 768),
    "gpt2-medium": (24, 16, 1024),
    "gpt2-large": (36, 20, 1280),
    "gpt2-xl": (48, 25, 1600),
}
_TRANSPOSED = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64}
_LONGEST_HEADER = 100_000_000  # bytes, the limit of the safetensors package


def gpt2(name: str, weights: str, dropout: float) -> GPT:
    """`weights` is a file, or a directory that contains one; if it is empty, the cache of Hugging Face is searched."""
    path = _find(name, weights)
    layers, heads, width = _SHAPES[name]
    model = GPT(
        GPTConfig(n_layer=layers, n_head=heads, n_embd=width, block_size=1024, vocab_size=50257, dropout=dropout)
    )
    try:
        if path.suffix == ".safetensors":
            stored = _safetensors(path)
        else:
            stored = torch.load(path, map_location="cpu", weights_only=True)
        found = {key.removeprefix("transformer."): tensor for key, tensor in stored.items()}
        with torch.no_grad():
            for key, weight in model.state_dict().items():
                theirs = found["wte.weight" if key == "lm_head.weight" else key.removeprefix("transformer.")]
                theirs = theirs.t() if key.endswith(_TRANSPOSED) else theirs
                if theirs.shape != weight.shape:
                    raise ValueError(key)
                weight.copy_(theirs)
    except Exception as error:  # a damaged file may raise anything
        facts = {"path": str(path), "name": name}
        raise InputError(
            Message("“{path:word}” does not contain the weights of {name:word}", facts),
            Message("check the file, or name another one: --weights=FILE"),
        ) from error
    return model


def _find(name: str, weights: str) -> Path:
    places = [Path(weights)]
    if not weights:  # where huggingface_hub keeps downloads
        home = os.environ.get("HF_HOME") or os.path.join(os.path.expanduser("~"), ".cache", "huggingface")
        hub = Path(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub"))
        models = (hub / f"models--{owner}{name}" / "snapshots" for owner in ("openai-community--", ""))
        places = [place for model in models for place in sorted(model.glob("*"))]
    for place in places:
        for path in (place, *(place / file for file in NAMES)):
            if path.is_file():
                return path
    raise InputError(
        Message("there is no copy of the weights of {name:word} on this machine", {"name": name}),
        Message(
            "name a directory with model.safetensors or pytorch_model.bin, as Hugging Face has them: --weights=DIR"
        ),
    )


def _safetensors(path: Path) -> dict[str, Tensor]:
    """Eight bytes for the length of a JSON header, the header, then the tensors at the offsets that it lists."""
    with open(path, "rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > _LONGEST_HEADER:
            raise ValueError(length)
        header: dict[str, Any] = json.loads(stream.read(length))
    octets = np.memmap(path, np.uint8, "c", offset=8 + length)
    found = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] in _DTYPES:
            begin, end = entry["data_offsets"]
            found[name] = torch.from_numpy(octets[begin:end]).view(_DTYPES[entry["dtype"]]).view(entry["shape"])
    return found
