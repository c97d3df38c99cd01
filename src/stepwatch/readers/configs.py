"""A config that was handed in where a log was expected: what it sets, and the command that estimates it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from stepwatch.errors import InputError, NoIterations
from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.quoting import quoted, quoted_path
from stepwatch.readers.text.arguments import settings_from
from stepwatch.settings import Value, read_config
from stepwatch.sources import Source

LARGEST_BYTES = 1 << 18  # configs have a few kB
LONGEST_LINE = 1000  # of all but JSON: Python's own parsers take the square of a line of dots or of equals signs
_SUFFIXES = (".yaml", ".yml", ".toml")  # files of which nobody prints a log
_NAMES = {
    "num_hidden_layers": "n_layer", "num_layers": "n_layer", "hidden_size": "n_embd", "num_attention_heads": "n_head",
    "max_position_embeddings": "block_size", "sequence_len": "block_size", "max_seq_length": "block_size",
}  # fmt: skip
_YAML_LINE = Pattern(
    r"""\s*(?:\#.*|---|(?:-\s+)*["']?(?P<key>[A-Za-z_][\w.-]*)["']?\s*:(?:\s+(?P<value>[^#]*?))?\s*(?:\s\#.*)?|-\s.*)?"""
)


class ConfigGiven(NoIterations):
    """The input is a config; the remedy can be pasted."""

    def __init__(self, name: str, settings: Mapping[str, Value]) -> None:
        self.settings = settings
        super().__init__(Message("“{name:word}” is a config, not a log", {"name": name}), self.estimate())

    def estimate(self, *options: str, path: str | None = None) -> Message:
        """How to estimate it: the file where `estimate` reads it, else what it sets."""
        given = [f"--{name}={quoted(str(value))}" for name, value in self.settings.items()]
        if path is not None and path.lower().endswith(".py"):
            given = [quoted_path(path)]
        elif not given:
            example = {"command": "stepwatch estimate --n_layer=12 --n_head=12 --n_embd=768 --batch_size=8"}
            return Message("estimate takes its settings by nanoGPT's names, for example: {command:list}", example)
        command = {"command": " ".join(("stepwatch estimate", *given, *options))}
        return Message("to estimate it: {command:list}", command)


def config_given(source: Source) -> ConfigGiven | None:
    """None where the text is no config: Python, JSON, TOML or YAML that sets anything known, or named as one."""
    if len(source.text) > LARGEST_BYTES:
        return None
    text = source.text.decode("utf-8", "replace")
    import tomllib  # a log needs none

    by_line = (tomllib.loads, lambda text: read_config(text)[0], _yaml)
    for assigned in (json.loads, *(by_line if max(map(len, text.splitlines()), default=0) <= LONGEST_LINE else ())):
        try:
            flat = {_NAMES.get(name, name): value for name, value in _flat(assigned(text))}
        except (ValueError, RecursionError, InputError):
            continue
        settings = settings_from(flat)
        if settings or source.name.lower().endswith(_SUFFIXES):
            return ConfigGiven(source.name, settings)
    return None


def _yaml(text: str) -> dict[str, object]:
    """Keys with plain values, at any depth; ValueError where a line is none of YAML's usual ones."""
    found: dict[str, object] = {}
    for line in text.splitlines():
        match = _YAML_LINE.fullmatch(line)
        if match is None:
            raise ValueError(line)
        value = (match["value"] or "").strip("\"'")
        if match["key"] and value:
            found[match["key"]] = {"true": True, "false": False}.get(value.lower(), value)
    return found


def _flat(found: object) -> Iterator[tuple[str, object]]:
    for name, value in found.items() if isinstance(found, dict) else ():
        if isinstance(value, dict):
            yield from _flat(value)
        else:
            yield str(name), value
