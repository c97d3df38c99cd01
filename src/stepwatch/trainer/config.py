"""The settings of a training run: nanoGPT's names and defaults, and a few of our own.

A config file is read, never executed; a flag `--key=value` overrides it; an unknown name is an error.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from typing import Any, get_type_hints

from stepwatch.errors import InputError, UsageError
from stepwatch.messages import Message
from stepwatch.settings import NotPlain, Value, evaluate, read_assignments

DTYPES = ("float32", "bfloat16", "float16")
PRETRAINED = ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl")
MODERN = "modern"
RECIPES = ("nanogpt", MODERN)
# What `without` can leave out of the modern recipe (trainer/modern.py).
RECIPE_PARTS = ("muon", "rotary", "qk_norm", "relu2", "zero_init", "cap", "untied", "value_embeddings", "warm_down")
_WORDS = {
    "recipe": RECIPES,
    "dtype": DTYPES,
    "eval_splits": ("train,val", "val"),
    "on_nan": ("stop", "continue"),
    "init_from": ("scratch", "resume", "auto", *PRETRAINED),
    "sharding": ("ddp", "fsdp"),
}
_COUNTS = ("eval_interval", "log_interval", "eval_iters", "gradient_accumulation_steps", "batch_size", "block_size")
_POSITIVE = (*_COUNTS, "n_layer", "n_head", "n_embd", "learning_rate")
_SHARES = ("dropout", "beta1", "beta2")


def _setting(default: object, meaning: Message) -> Any:
    """A setting with its default and its line in `train --help`."""
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """One run. `None` depends on the available device; 0 in the last counts means "as nanoGPT does"."""

    # what is written, and how often
    out_dir: str = _setting("out", Message("where run.jsonl and the checkpoints are written"))
    eval_interval: int = _setting(2000, Message("iterations between evaluations"))
    log_interval: int = _setting(1, Message("iterations between lines of the log"))
    eval_iters: int = _setting(200, Message("batches of each split in an evaluation"))
    eval_only: bool = _setting(False, Message("evaluate once and stop"))
    always_save_checkpoint: bool = _setting(True, Message("save at every evaluation, not only if the loss improved"))
    init_from: str = _setting(
        "scratch",
        Message("scratch; resume from the newest checkpoint in out_dir; auto: resume if there is one; or gpt2, …"),
    )
    wandb_log: bool = _setting(False, Message("report to Weights & Biases; needs wandb"))
    wandb_project: str = _setting("owt", Message("project at Weights & Biases"))
    wandb_run_name: str = _setting("gpt2", Message("run name at Weights & Biases"))
    # data; a step has gradient_accumulation_steps micro-batches of batch_size sequences, on all ranks together
    dataset: str = _setting("openwebtext", Message("a directory under data/, or a path"))
    gradient_accumulation_steps: int = _setting(40, Message("micro-batches per step, over all ranks"))
    batch_size: int = _setting(12, Message("sequences per micro-batch"))
    block_size: int = _setting(1024, Message("tokens per sequence"))
    # model
    n_layer: int = _setting(12, Message("layers"))
    n_head: int = _setting(12, Message("attention heads per layer"))
    n_embd: int = _setting(768, Message("width of the model"))
    dropout: float = _setting(0.0, Message("share of activations set to zero in training"))
    bias: bool = _setting(False, Message("biases in linear layers and norms"))
    # AdamW
    learning_rate: float = _setting(6e-4, Message("the highest learning rate"))
    max_iters: int = _setting(600000, Message("iterations of the run"))
    weight_decay: float = _setting(0.1, Message("weight decay of AdamW"))
    beta1: float = _setting(0.9, Message("first beta of AdamW"))
    beta2: float = _setting(0.95, Message("second beta of AdamW"))
    grad_clip: float = _setting(1.0, Message("largest norm of the gradients; 0 turns clipping off"))
    # the learning rate: linear warm-up over warmup_iters, then half a cosine down to min_lr
    decay_lr: bool = _setting(True, Message("warm-up and decay of the learning rate"))
    warmup_iters: int = _setting(2000, Message("iterations until the highest learning rate"))
    lr_decay_iters: int = _setting(600000, Message("iterations until the lowest learning rate"))
    min_lr: float = _setting(6e-5, Message("the lowest learning rate"))
    # the machine
    backend: str | None = _setting(None, Message("nccl on CUDA, otherwise gloo"))
    device: str | None = _setting(None, Message("CUDA, otherwise Apple's GPU, otherwise the CPU"))
    dtype: str | None = _setting(None, Message("bfloat16 if the card has it, otherwise float16; float32 on a CPU"))
    compile: bool | None = _setting(None, Message("True on CUDA, otherwise False"))
    # ours
    sharding: str = _setting("ddp", Message("with several ranks: ddp, each has all weights, or fsdp, each has a part"))
    activation_checkpointing: bool = _setting(
        False, Message("recompute activations in the backward pass: less memory, more time")
    )
    seed: int = _setting(1337, Message("seed of all random numbers"))
    recipe: str = _setting(
        "nanogpt", Message("nanogpt, or modern: another model and optimizer, whose checkpoints nanoGPT cannot load")
    )
    without: str = _setting(
        "",
        Message(
            "parts of recipe=modern to leave out, separated by commas: {parts:word}", {"parts": ", ".join(RECIPE_PARTS)}
        ),
    )
    chunked_loss: bool = _setting(True, Message("never keep all logits of a large vocabulary at once"))
    tensorboard_log: bool = _setting(False, Message("write TensorBoard event files to out_dir; needs tensorboard"))
    eval_batch_size: int = _setting(0, Message("sequences per batch in an evaluation; 0: batch_size"))
    eval_splits: str = _setting("train,val", Message("train,val or val"))
    checkpoint_interval: int = _setting(0, Message("iterations between saves; 0: at evaluations"))
    keep: int = _setting(0, Message("how many of the newest checkpoints to keep in addition to ckpt.pt"))
    on_nan: str = _setting("stop", Message("stop or continue if the loss is not finite"))
    profile: bool = _setting(False, Message("write a PyTorch profiler trace of a few steps to out_dir"))
    weights: str = _setting("", Message("GPT-2's weights for init_from=gpt2…: a file or its directory"))

    def __post_init__(self) -> None:
        values = asdict(self)
        for name, words in _WORDS.items():
            if values[name] is not None and values[name] not in words:
                raise _no_value(name, str(values[name]))
        for name, value in values.items():
            if isinstance(value, (int, float)):
                too_small = value < 0 or (name in _POSITIVE and value == 0)
                if not math.isfinite(value) or too_small or (name in _SHARES and value >= 1):
                    raise _no_value(name, str(value))
        heads = {"width": self.n_embd, "heads": self.n_head}
        left_out = set(self.without.split(",")) - {""}
        if not left_out <= set(RECIPE_PARTS) or (left_out and self.recipe != MODERN):
            raise UsageError(
                Message("“{value:word}” is not a value for {name:word}", {"value": self.without, "name": "without"}),
                Message(
                    "with recipe=modern, {name:word} is one or more of {words:word}, with commas between them",
                    {"name": "without", "words": ", ".join(RECIPE_PARTS)},
                ),
            )
        if self.recipe == MODERN and self.n_embd % (2 * self.n_head) == self.n_head:
            raise UsageError(
                Message(
                    "with recipe=modern a head needs an even width, and {width:n} among {heads:n} heads is odd", heads
                ),
                Message("choose n_embd as a multiple of twice n_head"),
            )
        if self.recipe == MODERN and self.sharding == "fsdp":
            raise UsageError(Message("recipe=modern does not work with sharding=fsdp"), Message("use --sharding=ddp"))
        if self.recipe == MODERN and self.init_from in PRETRAINED:
            raise UsageError(
                Message("recipe=modern has another model than GPT-2 and cannot start from its weights"),
                Message("use --recipe=nanogpt, or --init_from=scratch"),
            )
        if self.n_embd % self.n_head:
            raise UsageError(
                Message("n_embd {width:n} cannot be divided among {heads:n} heads", heads),
                Message("choose n_embd as a multiple of n_head"),
            )

    @property
    def tokens_per_iter(self) -> int:
        return self.gradient_accumulation_steps * self.batch_size * self.block_size

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.eval_splits.split(","))

    def plain(self) -> dict[str, Value]:
        """As in nanoGPT's checkpoints: names and plain values, without undecided settings."""
        return {name: value for name, value in asdict(self).items() if value is not None}


NAMES = tuple(setting.name for setting in fields(TrainConfig))
MEANINGS: dict[str, Message] = {setting.name: setting.metadata["meaning"] for setting in fields(TrainConfig)}
_TYPES = {
    name: next(kind for kind in (bool, int, float, str) if kind in (hint, *getattr(hint, "__args__", ())))
    for name, hint in get_type_hints(TrainConfig).items()
}


# --- files and flags --------------------------------------------------------------------------------------------


def config_from_file(text: str, overridden: Collection[str] = ()) -> tuple[dict[str, Value], tuple[str, ...]]:
    """The settings of a config file, and the names that it sets by code, which we do not execute.

    A name that later lines compute with may be anything; any other unknown name is an error. What a flag or a later
    file overrides is not checked.
    """
    values, skipped, used = read_assignments(text)
    missed = (name for name in skipped if name in NAMES and name not in overridden)
    lost = next((name for name in missed if not name.startswith("wandb_")), None)
    if lost is not None:
        raise InputError(
            Message("{name:word} in the config is not a plain value of the right type", {"name": lost}),
            Message("write a number, a word, True or False there: the config is read, not executed"),
        )
    settings = {}
    for name, value in values.items():
        if name in overridden:
            continue
        if name in NAMES:
            settings[name] = _fitting(name, value, str(value))
        elif name not in used and not name.startswith("_"):
            raise _unknown(name)
    return settings, tuple(dict.fromkeys(name for name in skipped if " (" not in name))


def config_from_flags(flags: Sequence[str]) -> dict[str, Value]:
    """`--batch_size=8` and `--compile=False`, as nanoGPT's train.py accepts them."""
    settings = {}
    for flag in flags:
        name, equals, raw = flag.partition("=")
        name = name.lstrip("-").replace("-", "_")
        if not equals or not flag.startswith("--"):
            raise UsageError(
                Message("“{flag:word}” is not --key=value", {"flag": flag}), Message("for example: --max_iters=2000")
            )
        if name not in NAMES:
            raise _unknown(name)
        text = raw.strip()
        value: Value = text
        if _TYPES[name] is str and len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
            value = text[1:-1]
        elif _TYPES[name] is not str:
            with suppress(NotPlain):
                value = evaluate(text)
        settings[name] = _fitting(name, value, raw)
    return settings


def train_config(*layers: Mapping[str, Value]) -> TrainConfig:
    """Defaults, overridden by each layer in turn."""
    merged = {name: value for layer in layers for name, value in layer.items()}
    return TrainConfig(**merged)  # type: ignore[arg-type]  # _fitting has checked the types


def _fitting(name: str, value: Value, raw: str) -> Value:
    """The value with the type of its setting; 1 is not a bool, and 3.5 is not a count."""
    kind = _TYPES[name]
    if kind is bool and not isinstance(value, bool):
        value = {"true": True, "false": False}.get(raw.lower(), raw)
    elif kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    elif kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not kind or (kind is str and not str(value).isprintable()):
        raise _no_value(name, raw)
    return value


# --- what is refused ---------------------------------------------------------------------------------------------


def _no_value(name: str, raw: str) -> UsageError:
    remedy = Message("{name:word} is a number", {"name": name})
    if name in _WORDS:
        remedy = Message("{name:word} is one of {words:word}", {"name": name, "words": " | ".join(_WORDS[name])})
    elif _TYPES[name] is bool:
        remedy = Message("{name:word} is True or False", {"name": name})
    elif _TYPES[name] is str:
        remedy = Message("{name:word} is a word", {"name": name})
    elif name in _SHARES:
        remedy = Message("{name:word} is at least 0 and below 1", {"name": name})
    elif name in _POSITIVE:
        remedy = Message("{name:word} is a number above zero", {"name": name})
    return UsageError(Message("“{value:word}” is not a value for {name:word}", {"value": raw, "name": name}), remedy)


def _unknown(name: str) -> UsageError:
    near = difflib.get_close_matches(name, NAMES, n=3) or ["batch_size", "max_iters", "eval_interval"]
    return UsageError(
        Message("there is no setting “{name:word}”", {"name": name}),
        Message("did you mean {names:word}?", {"names": ", ".join(near)}),
    )
