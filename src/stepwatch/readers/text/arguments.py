"""Settings under nanoGPT's names, from a trainer's arguments that were stored next to a log."""

from __future__ import annotations

from collections.abc import Mapping

from stepwatch.settings import KINDS, PRIVATE, Value, as_kind

# Hugging Face's TrainingArguments first, then Megatron's.
_NAMES = {
    "per_device_train_batch_size": "batch_size", "logging_steps": "log_interval", "max_steps": "max_iters",
    "torch_compile": "compile", "gradient_checkpointing": "activation_checkpointing",
    "micro_batch_size": "batch_size", "seq_length": "block_size", "train_iters": "max_iters",
}  # fmt: skip


def settings_from(arguments: Mapping[str, object]) -> dict[str, Value]:
    """The settings among arguments, except those that may name a person, a machine or a place."""
    found: dict[str, Value] = {}
    for name, value in arguments.items():
        ours = _NAMES.get(name, name)
        if ours in KINDS and ours not in PRIVATE:
            plain = _plain(ours, value)
            if plain is not None:
                found[ours] = plain
    for name, dtype in (("fp16", "float16"), ("bf16", "bfloat16")):
        if arguments.get(name) in (True, "True"):
            found["dtype"] = dtype
    if arguments.get("eval_strategy", arguments.get("evaluation_strategy")) == "steps":
        every = _plain("eval_interval", arguments.get("eval_steps"))
        found |= {"eval_interval": every} if every is not None else {}
    batch, length = _plain("n_params", arguments.get("global_batch_size")), found.get("block_size")
    if isinstance(batch, float) and isinstance(length, int):
        found["tokens_per_iter"] = int(batch * length)
    return found


def _plain(name: str, value: object) -> Value | None:
    """The value in the type of the setting; None if it does not fit."""
    kind = KINDS[name]
    if isinstance(value, str):
        value = _number(value) if kind in (int, float) else {"True": True, "False": False}.get(value, value)
    if kind is bool or isinstance(value, bool):
        return value if kind is bool and isinstance(value, bool) else None
    if kind is str:
        return value if isinstance(value, str) and len(value) < 100 else None
    return as_kind(name, value) if isinstance(value, (int, float)) else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
