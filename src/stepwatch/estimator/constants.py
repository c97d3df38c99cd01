"""The constants of the model: `constants.tsv`, written by benchmarks/fit_estimator.py, each with its origin."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

PLACE = Path(__file__).with_name("constants.tsv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Effective numbers, not physics: they trade off against each other, and hold together.

    Bytes are of memory traffic: per token, layer and unit of width; per token and vocabulary entry; per token, layer,
    head and position of the block; per parameter and iteration.
    """

    matmul_efficiency: float
    no_tensor_cores: float
    attention_efficiency: float
    hopper_attention: float
    unpadded_vocabulary: float
    layer_bytes: float
    dropout_bytes: float
    vocabulary_bytes: float
    eager_layer_bytes: float
    eager_vocabulary_bytes: float
    float32_bytes: float
    score_bytes: float
    no_flash_layer_bytes: float
    large_cache: float
    optimizer_bytes: float
    unfused_optimizer_bytes: float
    launch_s: float
    launch_s_per_layer: float
    eager_launch_s_per_layer: float
    no_flash_launch_s_per_layer: float
    iteration_s: float
    link_efficiency: float
    overlap: float
    straggling: float


@cache
def fitted() -> Constants:
    """The constants that the fit has written."""
    known = {field.name for field in fields(Constants)}
    return Constants(**{name: value for name, value in _rows().items() if name in known})


@cache
def widths() -> dict[str, tuple[float, float]]:
    """Truth over estimate, at the low and the high end of 90 %, for each kind of estimate."""
    rows = _rows()
    kinds = [name.removeprefix("low:") for name in rows if name.startswith("low:")]
    return {kind: (rows[f"low:{kind}"], rows[f"high:{kind}"]) for kind in kinds}


@cache
def _rows() -> dict[str, float]:
    _, *lines = PLACE.read_text(encoding="utf-8").splitlines()
    return {name: float(value) for name, value, *_ in (line.split("\t") for line in lines)}
