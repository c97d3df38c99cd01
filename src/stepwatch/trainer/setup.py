"""What is prepared before the first step: data, model, optimizer, compilation, sharing among the ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from stepwatch.errors import InputError
from stepwatch.messages import Message
from stepwatch.settings import GPT2_TOKENS, GPT2_VOCABULARY, flops_per_token
from stepwatch.trainer import CheckpointError
from stepwatch.trainer import optimizer as optimizers
from stepwatch.trainer.config import MODERN, RECIPES, TrainConfig
from stepwatch.trainer.data import Data, open_data
from stepwatch.trainer.distributed import Ranks, shard
from stepwatch.trainer.hardware import Device
from stepwatch.trainer.log import Log
from stepwatch.trainer.model import GPT, GPTConfig
from stepwatch.trainer.modern import ModernConfig, ModernGPT, optimizer_of
from stepwatch.trainer.optimizer import AdamW
from stepwatch.trainer.pretrained import gpt2
from stepwatch.trainer.resuming import SHAPE, STOPPED, ResumePoint, load, model_state, newest, point_of

Model = GPT | ModernGPT


@dataclass(slots=True, kw_only=True)
class Training:
    """A run that is ready to start."""

    config: TrainConfig
    device: Device
    ranks: Ranks
    data: Data
    raw: Model
    """The model itself, which is saved."""
    model: Callable[..., tuple[Tensor, Tensor | None]]
    """The model as it is called: compiled, distributed over the ranks, or neither."""
    for_evaluation: Callable[..., tuple[Tensor, Tensor | None]]
    optimizer: AdamW
    scaler: Any
    iteration: int = 0
    best_val_loss: float = 1e9
    resumed_from: Path | None = None
    resume_point: ResumePoint | None = None

    @property
    def micro_batches(self) -> int:
        """Micro-batches per step on this rank."""
        return self.ranks.share_of(self.config.gradient_accumulation_steps)

    @property
    def flops_per_iter(self) -> float:
        """FLOPs of all ranks together, counted as in nanoGPT."""
        shape = self.raw.config
        of_token = flops_per_token(self.raw.n_params(), shape.n_layer, shape.n_embd, shape.block_size)
        return of_token * self.config.tokens_per_iter

    def checkpoint(self) -> dict[str, Any]:
        """What is saved, under nanoGPT's names."""
        return {
            "model": self.raw.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "model_args": asdict(self.raw.config),
            "iter_num": self.iteration,
            "best_val_loss": self.best_val_loss,
            "config": self.config.plain(),
        }


def prepare(config: TrainConfig, device: Device, ranks: Ranks, log: Log) -> Training:
    """Prepares in nanoGPT's order, which determines the order of its log lines and random draws."""
    ranks.share_of(config.gradient_accumulation_steps)
    log.say(f"tokens per iteration will be: {config.tokens_per_iter:,}")
    torch.manual_seed(config.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    directory = data_directory(config.dataset)
    data = open_data(directory, block_size=config.block_size, vocab_size=None)
    if data.vocab_size is not None:
        log.say(f"found vocab_size = {data.vocab_size} (inside {directory / 'meta.pkl'})")
    resumed_from = _resumed_from(config, ranks)
    model, saved = _model(config, data, log, resumed_from)
    data.expect(model.config.vocab_size)
    if config.block_size < model.config.block_size:
        model.crop_block_size(config.block_size)
    model.chunked_loss = config.chunked_loss
    log.say(f"number of parameters: {model.n_params() / 1e6:.2f}M")
    if not ranks.shards:
        model.to(device.device)
    if config.activation_checkpointing:
        recompute_activations(model)
    optimizer: AdamW
    if isinstance(model, ModernGPT):
        optimizer = optimizer_of(model, config)
        log.say(f"recipe=modern{f' without {config.without}' if config.without else ''}: nanoGPT cannot load it")
    else:
        optimizer = optimizers.adamw(model, config)
        for kind, group in zip(("decayed", "non-decayed"), optimizer.param_groups, strict=True):
            sizes = [weight.numel() for weight in group["params"]]
            log.say(f"num {kind} parameter tensors: {len(sizes)}, with {sum(sizes):,} parameters")
        log.say(f"using fused AdamW: {bool(optimizer.defaults['fused'])}")
    training = Training(
        config=config,
        device=device,
        ranks=ranks,
        data=data,
        raw=model,
        model=model,
        for_evaluation=model,
        optimizer=optimizer,
        scaler=optimizers.scaler(device.dtype == "float16"),
        resumed_from=resumed_from,
    )
    if saved is not None:
        try:
            positions = model.transformer["wpe"].weight if "wpe" in model.transformer else None
            optimizers.resume(training.optimizer, saved["optimizer"], positions)
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise _foreign(Message("the optimizer in the checkpoint does not fit the model")) from error
        training.iteration = int(saved["iter_num"])
        training.best_val_loss = float(saved["best_val_loss"])
        training.resume_point = point_of(saved)
    if ranks.shards:
        shard(model, optimizer, ranks, device)
    return training


def _resumed_from(config: TrainConfig, ranks: Ranks) -> Path | None:
    """The checkpoint to resume from, the same on every rank."""
    if config.init_from not in ("resume", "auto"):
        return None
    found = Path(ranks.broadcast_from_first(str(newest(Path(config.out_dir)))))
    return found if config.init_from == "resume" or found.exists() else None


def data_directory(dataset: str) -> Path:
    """nanoGPT's place for the data, or a directory of that name."""
    usual = Path("data") / dataset
    return Path(dataset) if not usual.is_dir() and Path(dataset).is_dir() else usual


# --- the model --------------------------------------------------------------------------------------------------


def _model(config: TrainConfig, data: Data, log: Log, path: Path | None) -> tuple[Model, dict[str, Any] | None]:
    """From scratch, from a checkpoint (which is returned too), or from OpenAI's weights."""
    if path is None and config.init_from in ("scratch", "auto"):
        log.say("Initializing a new model from scratch")
        if data.vocab_size is None:
            log.say(f"defaulting to vocab_size of GPT-2 to {GPT2_VOCABULARY} ({GPT2_TOKENS} rounded up for efficiency)")
        shape = {name: getattr(config, name) for name in SHAPE if name != "vocab_size"}
        vocab_size = data.vocab_size or GPT2_VOCABULARY
        return _new(config.plain(), shape | {"vocab_size": vocab_size, "dropout": config.dropout}), None
    if path is None:
        log.say(f"Initializing from OpenAI GPT-2 weights: {config.init_from}")
        return gpt2(config.init_from, config.weights, config.dropout), None
    log.say(f"Resuming training from {config.out_dir}")
    if path.match(STOPPED.format("*")):
        log.say(f"note: the newest checkpoint is {path.name}, saved at the end of a run")
    saved = load(path)
    # The shape is the checkpoint's, as in nanoGPT; block_size may be smaller, dropout may be anything.
    args = saved["model_args"]
    if config.block_size > args["block_size"]:
        differing = {"differing": f"block_size {args['block_size']} ≠ {config.block_size}"}
        raise CheckpointError(
            Message("the checkpoint has another shape than the settings: {differing:list}", differing),
            Message("leave these settings out to use those of the checkpoint, or start over: --init_from=scratch"),
        )
    recipe, without = args.get("recipe", RECIPES[0]), args.get("without", "")
    if (recipe, without) != (config.recipe, config.without):
        facts = {"recipe": str(recipe), "without": f" --without={without}" if without else ""}
        raise CheckpointError(
            Message("the checkpoint is of another recipe than the settings: {recipe:word}", facts),
            Message("continue with --recipe={recipe:word}{without:word}, or start over: --init_from=scratch", facts),
        )
    return model_of(saved, config.dropout), saved


def _new(args: Mapping[str, Any], shape: Mapping[str, Any]) -> Model:
    """A model of this shape, by the recipe that the settings or a checkpoint name."""
    if args.get("recipe") == MODERN:
        return ModernGPT(ModernConfig(**shape, without=str(args.get("without", ""))))
    return GPT(GPTConfig(**shape))


def model_of(saved: Mapping[str, Any], dropout: float) -> Model:
    """The model of a loaded checkpoint."""
    args, weights = saved["model_args"], model_state(saved)
    shape = {name: args[name] for name in SHAPE} | {"dropout": dropout}
    try:
        if args["n_layer"] > len(weights):
            raise RuntimeError
        with torch.device("meta"):  # without memory: model_args may name any size
            expected = {name: weight.shape for name, weight in _new(args, shape).state_dict().items()}
        if expected != {name: weight.shape for name, weight in weights.items()}:
            raise RuntimeError
        model = _new(args, shape)
        model.load_state_dict(weights)
    except (RuntimeError, ValueError) as error:
        raise _foreign(Message("the weights in the checkpoint do not fit its own model_args")) from error
    return model


def _foreign(what: Message) -> InputError:
    return InputError(what, Message("the file is damaged, or of another program: use --init_from=scratch"))


def recompute_activations(model: nn.Module) -> None:
    """Activation checkpointing, in place: a layer only keeps its input; the backward pass computes the rest again."""
    for block in model.transformer["h"]:  # type: ignore[index,union-attr]
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


# --- compiling, and sharing among the ranks ---------------------------------------------------------------------


def compile_and_share(training: Training, log: Log) -> bool:
    """Compiles with a batch that is not trained on, so that iteration 0 is a normal step; returns whether it worked."""
    if training.device.compile:
        log.say("compiling the model... (takes a ~minute)")
        compiled = torch.compile(training.raw)
        try:
            _share(training, compiled)
            _warm_up(training)
            return True
        except Exception as error:  # dynamo and inductor have dozens of exceptions
            if isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)) or "out of memory" in str(error):
                raise
            first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
            reason = f"{type(error).__name__}: {first[:150]}" if first else type(error).__name__
            log.say(f"note: compilation failed ({reason}); going on without")
            log.say("compile = False")
            torch.compiler.reset()
    _share(training, training.raw)
    return False


def _share(training: Training, model: Any) -> None:
    training.for_evaluation = model
    training.model = training.ranks.wrap(model)


def _warm_up(training: Training) -> None:
    """One forward and backward pass, and one forward pass for evaluation; only the compiled code is kept."""
    config, device = training.config, training.device
    batches = training.data.batches("train", device.device)  # code is compiled for exactly this kind of tensor
    cards = [device.device] if device.is_cuda else []
    with torch.random.fork_rng(devices=cards):  # random numbers continue where they were
        with device.autocast():
            _, loss = training.model(*batches.gather(torch.zeros(config.batch_size, dtype=torch.int64)))
        assert loss is not None
        training.scaler.scale(loss).backward()
        training.raw.eval()
        starts = torch.zeros(config.eval_batch_size or config.batch_size, dtype=torch.int64)
        with torch.no_grad(), device.autocast():
            training.for_evaluation(*batches.gather(starts))
        device.synchronize()
    training.raw.train()
    training.optimizer.zero_grad(set_to_none=True)
