"""A trained model continues a text, as nanoGPT's sample.py does: the same draws, so the same tokens for a seed."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from stepwatch.errors import InputError
from stepwatch.messages import Message
from stepwatch.settings import GPT2_TOKENS
from stepwatch.trainer import CheckpointError
from stepwatch.trainer.data import read_meta
from stepwatch.trainer.hardware import Device
from stepwatch.trainer.resuming import MANIFEST, NAME, load, newest
from stepwatch.trainer.setup import Model, data_directory, model_of
from stepwatch.trainer.tokenizing import gpt2_table


class Vocabulary(NamedTuple):
    """Converts between text and tokens."""

    encode: Callable[[str], list[int]]
    pieces: Callable[[Iterator[int]], Iterator[str]]
    """The text of tokens as they come; a character made of several tokens comes with the last of them."""


def load_model(place: Path, seed: int, device: Device) -> tuple[Model, dict[str, Any]]:
    """The model of a checkpoint, ready to generate, and the checkpoint. `place` is the file or its directory."""
    if place.is_dir() and not (place / MANIFEST).is_file():
        place = place / NAME if (place / NAME).exists() else newest(place)
    try:
        saved = load(place)
        torch.manual_seed(seed)  # nanoGPT draws the weights that it then replaces: what follows depends on it
        model = model_of(saved, dropout=0.0)
    except InputError as error:  # its advice is for a training
        raise CheckpointError(error.what, Message("choose another --out_dir")) from error
    model.eval()
    model.to(device.device)
    return model, saved


def vocabulary_of(saved: dict[str, Any], dataset: str | None) -> Vocabulary:
    """The vocabulary of the data that the checkpoint was trained on; GPT-2's if that data has none."""
    config = saved.get("config")
    named = dataset or (config.get("dataset") if isinstance(config, dict) else None)
    meta = read_meta(data_directory(named) / "meta.pkl") if isinstance(named, str) else None
    if meta is None:
        if saved["model_args"]["vocab_size"] < GPT2_TOKENS:
            raise InputError(
                Message("the vocabulary of this model is not known: there is no meta.pkl of its data"),
                Message("name the directory of the data with --dataset"),
            )
        table = gpt2_table()
        return Vocabulary(
            lambda text: table.encode(text, allowed_special={"<|endoftext|>"}),
            lambda tokens: _decoded(table.decode_single_token_bytes(token) for token in tokens),
        )
    try:
        token_of: dict[str, int] = dict(meta["stoi"])
        text_of: dict[int, str] = dict(meta["itos"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            Message("“{name:word}” is damaged, or not a vocabulary", {"name": "meta.pkl"}),
            Message("prepare the data again"),
        ) from error
    if text_of == {code: chr(code) for code in range(256)}:  # bytes, as `stepwatch prepare --tokens byte` makes them
        return Vocabulary(
            lambda text: list(text.encode()), lambda tokens: _decoded(bytes((token,)) for token in tokens)
        )
    return Vocabulary(
        lambda text: _known(text, token_of), lambda tokens: (str(text_of.get(token, "�")) for token in tokens)
    )


def _decoded(pieces: Iterator[bytes]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for piece in pieces:
        yield decoder.decode(piece)
    yield decoder.decode(b"", final=True)


def _known(text: str, token_of: dict[str, int]) -> list[int]:
    missing = sorted(set(text) - token_of.keys())
    if missing:
        first = {"missing": repr(missing[0])[1:-1]}
        raise InputError(
            Message("the model does not know the character {missing:word} of the start", first),
            Message("it was trained on {count:n} characters; begin with those", {"count": len(token_of)}),
        )
    return [token_of[character] for character in text]


def continued(
    model: Model, start: list[int], count: int, *, temperature: float, top_k: int | None, device: Device
) -> Iterator[int]:
    """The tokens that follow, one by one, each drawn from the model's guesses."""
    tokens = torch.tensor(start, dtype=torch.int64, device=device.device)[None]
    for _ in range(count):
        with torch.no_grad(), device.autocast():
            logits, _ = model(tokens[:, -model.config.block_size :])
        guesses = logits[:, -1, :] / temperature
        if top_k is not None:
            best, _ = torch.topk(guesses, min(top_k, guesses.shape[-1]))
            guesses[guesses < best[:, [-1]]] = -torch.inf
        drawn = torch.multinomial(functional.softmax(guesses, dim=-1), num_samples=1)
        tokens = torch.cat((tokens, drawn), dim=1)
        yield int(drawn.item())
