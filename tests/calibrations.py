"""A machine as it might have been measured: times from plain figures, so that a test knows what must come out."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from stepwatch.gpus.calibration import Axis, Calibration, Curve, Measurement, processor_name
from stepwatch.platforms import allowed_processors

FLOPS, BANDWIDTH, OPERATION_S = 1e11, 1e10, 1e-5
_TOKENS, _WIDTHS = (32.0, 128.0, 512.0, 2048.0), (64.0, 128.0, 256.0, 512.0)


def figure(value: float, unit: str = "s") -> Measurement:
    """With the six digits that the file has."""
    middle, low, high = (float(f"{share * value:.6g}") for share in (1.0, 0.97, 1.03))
    return Measurement(middle, low, high, unit)


def curve(seconds: Callable[..., float], **axes: tuple[float, ...]) -> Curve:
    places = itertools.product(*axes.values())
    return Curve(
        tuple(Axis(name, points) for name, points in axes.items()), tuple(figure(seconds(*place)) for place in places)
    )


def layer_s(tokens: float, width: float) -> float:
    return 40 * OPERATION_S + 72 * tokens * width * width / FLOPS + 200 * tokens * width / BANDWIDTH


def attention_s(positions: float, head_size: float) -> float:
    return 8 * (6 * positions**2 * head_size / FLOPS + 4 * positions * head_size / BANDWIDTH)


def head_s(logits: float, vocabulary: float, width: float) -> float:
    return 20 * OPERATION_S + 6 * logits * width / FLOPS + 24 * logits / BANDWIDTH


def a_calibration(**changes: Any) -> Calibration:
    """Of this very processor, unless told otherwise."""
    sizes = {"block_size": (32.0, 128.0, 1024.0), "head_size": (16.0, 64.0)}
    logits = {"logits": (2.0**14, 2.0**21, 2.0**24), "vocab_size": (2048.0, 32768.0), "n_embd": (64.0, 384.0)}
    elements = {"elements": (64.0, 2.0**16, 2.0**24)}
    curves = {}
    for passes, share in (("forward", 1 / 3), ("both", 1.0)):
        curves |= {
            f"layer_{passes}": curve(lambda *at, s=share: s * layer_s(*at), tokens=_TOKENS, n_embd=_WIDTHS),
            f"attention_{passes}": curve(lambda *at, s=share: s * attention_s(*at), **sizes),
            f"scores_{passes}": curve(lambda *at, s=share: 3 * s * attention_s(*at), **sizes),
            f"head_{passes}": curve(lambda *at, s=share: s * head_s(*at), **logits),
            f"embedding_{passes}": curve(lambda n, s=share: s * 12 * n / BANDWIDTH + 1e-6, **elements),
        }
    curves["optimizer"] = curve(lambda n: 6 * OPERATION_S + 60 * n / BANDWIDTH, **elements)
    given: dict[str, Any] = {
        "device": "cpu", "name": processor_name(), "processor": processor_name(), "cores": allowed_processors(),
        "threads": 2, "memory_bytes": 3.2e10, "torch": "2.9.0", "driver": None, "made": "2026-01-01T00:00:00+00:00",
        "curves": curves,
        "figures": {
            "matmul_float32": figure(FLOPS, "FLOP/s"), "bandwidth": figure(BANDWIDTH, "B/s"),
            "launch": figure(OPERATION_S), "dropout_element": figure(1e-8), "bias": figure(1.05, "1"),
            "batch_sequence": figure(1e-5), "save_tensor": figure(4e-5), "save_rate": figure(1e9, "B/s"),
            "compile": figure(20.0), "compiled_share": figure(0.8, "1"),
        },
    }  # fmt: skip
    return Calibration(**{**given, **changes})
