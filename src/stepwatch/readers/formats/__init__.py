"""The table of formats: a row for each, and its reader when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module

from stepwatch.readers.reader import Reader

# One row for each format: its name, and the module with its READER. Where two claim as many lines, the first wins.
FORMATS: dict[str, str] = {
    "nanogpt": "nanogpt", "nanochat": "nanochat", "nanoswe": "nanoswe", "build-nanogpt": "build_nanogpt",
    "modded-nanogpt": "modded_nanogpt", "llm.c": "llm_c", "mingpt": "mingpt", "hf-trainer": "hf_trainer",
    "hf-state": "hf_state", "axolotl": "axolotl", "lightning": "lightning", "litgpt": "litgpt", "megatron": "megatron",
    "torchtitan": "torchtitan", "deepspeed": "deepspeed", "composer": "composer", "mlx-lm": "mlx_lm", "keras": "keras",
    "tensorboard": "tensorboard", "wandb": "wandb", "stepwatch": "recorded",
}  # fmt: skip


class Readers(MutableMapping[str, Reader]):
    """By name. Most logs are nanoGPT's, and need not wait for the others to be loaded."""

    def __init__(self) -> None:
        self._loaded: dict[str, Reader] = {}
        self._names = dict.fromkeys(FORMATS)

    def __getitem__(self, name: str) -> Reader:
        if name not in self._loaded:
            if name not in FORMATS or name not in self._names:
                raise KeyError(name)
            self._loaded[name] = import_module(f"stepwatch.readers.formats.{FORMATS[name]}").READER
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __setitem__(self, name: str, reader: Reader) -> None:
        self._names[name] = None
        self._loaded[name] = reader

    def __delitem__(self, name: str) -> None:
        del self._names[name]
        self._loaded.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


READERS = Readers()
