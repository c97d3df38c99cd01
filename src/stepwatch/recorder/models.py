"""What a model of torch shows of itself without being run. Nothing is imported: the framework brought torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def n_params(model: Any) -> int | None:
    """Parameters, each counted once; DeepSpeed keeps the size of those that it has put elsewhere."""
    if model is None or not hasattr(model, "parameters"):
        return None
    return sum(int(getattr(weights, "ds_numel", None) or weights.numel()) for weights in model.parameters()) or None


def dtype_of_weights(model: Any) -> str | None:
    weights = next(iter(model.parameters()), None) if hasattr(model, "parameters") else None
    return None if weights is None else str(weights.dtype).removeprefix("torch.")


def is_compiled(model: Any) -> bool:
    """Whether it, or a part of it, went through torch.compile."""
    parts = model.modules() if hasattr(model, "modules") else ()
    return any(
        type(part).__name__ == "OptimizedModule" or getattr(part, "_compiled_call_impl", None) is not None
        for part in parts
    )


def plain_number(value: Any) -> float | None:
    """A number, or that of a tensor which lies in this machine's own memory: no device is waited for."""
    if isinstance(value, (int, float)):
        return float(value)
    at_hand = getattr(getattr(value, "device", None), "type", None) == "cpu"
    return float(value.item()) if at_hand and value.numel() == 1 else None


def tokens_in(batch: Any) -> int | None:
    """The tokens of a batch that says which of its tensors are tokens."""
    tokens = batch.get("input_ids") if isinstance(batch, Mapping) else None
    return int(tokens.numel()) if tokens is not None and hasattr(tokens, "numel") else None


def known(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}
