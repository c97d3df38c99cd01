"""What is to be trained: shape, batch and stack, from settings or by a model's name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stepwatch.estimator.constants import ADAM_BYTES_PER_PARAM, FORWARD_AND_BACKWARD, LAYER_WEIGHTS
from stepwatch.gpus.catalogue import DTYPES
from stepwatch.settings import MODELS, NANOGPT_DEFAULTS, Settings, Value, flops_per_token

_COUNTS = ("n_layer", "n_head", "n_embd", "block_size", "vocab_size", "batch_size", "grad_accum", "world_size")


def nanochat(depth: int) -> dict[str, Value]:
    """The shape that nanochat's --depth means: width 64 per layer, heads of 128."""
    width = 64 * depth
    return {"n_layer": depth, "n_head": -(-width // 128), "n_embd": width, "block_size": 2048, "vocab_size": 32768}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One training run as far as its speed depends on it; `grad_accum` is the total over all cards, as in nanoGPT."""

    n_layer: int = NANOGPT_DEFAULTS["n_layer"]
    n_head: int = NANOGPT_DEFAULTS["n_head"]
    n_embd: int = NANOGPT_DEFAULTS["n_embd"]
    block_size: int = NANOGPT_DEFAULTS["block_size"]
    vocab_size: int = NANOGPT_DEFAULTS["vocab_size"]
    bias: bool = NANOGPT_DEFAULTS["bias"]
    dropout: float = NANOGPT_DEFAULTS["dropout"]
    batch_size: int = NANOGPT_DEFAULTS["batch_size"]
    grad_accum: int = NANOGPT_DEFAULTS["gradient_accumulation_steps"]
    world_size: int = NANOGPT_DEFAULTS["world_size"]
    dtype: str = NANOGPT_DEFAULTS["dtype"]
    compile: bool | None = NANOGPT_DEFAULTS["compile"]
    """None if unknown: estimated as compiled, with a wider interval."""
    flash: bool | None = NANOGPT_DEFAULTS["flash"]
    fused: bool = NANOGPT_DEFAULTS["fused"]
    activation_checkpointing: bool = NANOGPT_DEFAULTS["activation_checkpointing"]
    recipe: str = "nanogpt"  # or `modern`, as in `stepwatch train`
    chunked_loss: bool = False  # `stepwatch train` never holds all logits of a large vocabulary
    tf32: bool = True  # for float32: nanoGPT allows TF32
    eval_iters: int = NANOGPT_DEFAULTS["eval_iters"]
    stated_params: float | None = None  # if the model differs from GPT-2, as with nanochat's value embeddings
    static_bytes_per_param: float = ADAM_BYTES_PER_PARAM

    def __post_init__(self) -> None:
        for name in _COUNTS:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be above zero")
        if self.n_embd % self.n_head:
            raise ValueError("n_embd must be divisible by n_head")
        if self.dtype not in DTYPES.values():
            raise ValueError(f"not a dtype: {self.dtype}")

    @classmethod
    def from_settings(cls, settings: Settings, *, has_bf16: bool = True) -> tuple[Workload, dict[str, Value]]:
        """The workload, and what was assumed because the settings do not say it (Origin.FORMAT_DEFAULT)."""
        given = {name: setting.value for name, setting in settings.items()}
        base = {**NANOGPT_DEFAULTS, **MODELS.get(str(given.get("init_from", "")), {})}
        if not has_bf16:
            base["dtype"] = "float16"
        tokens = given.get("tokens_per_iter")
        if isinstance(tokens, int):  # only the tokens of an iteration are known
            batch, block = (int(given.get(name, base[name])) for name in ("batch_size", "block_size"))
            base["gradient_accumulation_steps"] = max(1, round(tokens / (batch * block)))
        assumed = {name: value for name, value in base.items() if name not in given}
        values: dict[str, Any] = {**base, **given}
        shared = {name: values[name] for name in NANOGPT_DEFAULTS if name in cls.__dataclass_fields__}
        shared["dtype"] = DTYPES.get(str(values["dtype"]).removeprefix("torch."), str(values["dtype"]))
        stated = given.get("n_params")
        return cls(
            **shared,
            grad_accum=int(values["gradient_accumulation_steps"]),
            stated_params=float(stated) if isinstance(stated, (int, float)) else None,
            chunked_loss=bool(given.get("chunked_loss", False)),
            recipe=str(given.get("recipe", "nanogpt")),
        ), assumed

    @property
    def n_params(self) -> float:
        """All parameters, the head tied to the embedding, positions included."""
        return self.stated_params or self.shape_params

    @property
    def shape_params(self) -> float:
        """All parameters by the shape, even if another number was stated."""
        width = self.n_embd
        vectors = 13 if self.bias else 2  # two norms; with biases theirs, and those of the matrices (3 + 1 + 4 + 1)
        layers = self.n_layer * (LAYER_WEIGHTS * width * width + vectors * width)
        norm = 2 * width if self.bias else width
        if self.is_modern:
            return float(self.n_layer * LAYER_WEIGHTS * width * width + self.vocab_size * width + self.looked_up)
        return float(layers + norm + self.vocab_size * width + self.looked_up)

    @property
    def is_modern(self) -> bool:
        return self.recipe == "modern"

    @property
    def looked_up(self) -> int:
        """Parameters of tables that cost no arithmetic: positions; with recipe=modern, tokens and values instead."""
        return (2 * self.vocab_size if self.is_modern else self.block_size) * self.n_embd

    @property
    def optimizer_flops(self) -> float:
        """FLOPs of Muon, once per iteration: five turns of three products for each matrix of a layer."""
        squares, wide = 4, 2  # queries, keys, values and their output; the MLP, four times as wide
        turns, square, oblong = 5, 6, 18  # a turn in cubes of the width: 2 m² n for the Gram matrix, 2 m³, 2 m² n
        cubes = turns * (squares * square + wide * oblong)
        return float(cubes * self.n_layer * self.n_embd**3) if self.is_modern else 0.0

    @property
    def single_precision(self) -> bool:
        return self.dtype in ("float32", "tf32")

    @property
    def micro_steps(self) -> float:
        """Micro-steps of one card in one iteration."""
        return max(1.0, self.grad_accum / self.world_size)

    @property
    def tokens_per_micro_step(self) -> int:
        return self.batch_size * self.block_size

    @property
    def tokens_per_iteration(self) -> float:
        return self.tokens_per_micro_step * self.micro_steps * self.world_size


NANOGPT = Workload()


def flops_per_iteration(workload: Workload) -> float:
    """Forward and backward over all cards, as nanoGPT counts: positions left out."""
    counted = workload.n_params - workload.looked_up
    of_token = flops_per_token(counted, workload.n_layer, workload.n_embd, workload.block_size)
    return of_token * workload.tokens_per_iteration


def least_flops_per_iteration(workload: Workload) -> float:
    """What no implementation can avoid: the matrix products, and the half of the scores that a causal mask leaves."""
    width = workload.n_embd
    weights = LAYER_WEIGHTS * workload.n_layer * width * width + workload.vocab_size * width
    scores = workload.n_layer * width * workload.block_size
    return FORWARD_AND_BACKWARD * (weights + scores) * workload.tokens_per_iteration
